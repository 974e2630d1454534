//! Hooks of the calls that wait.
#![allow(unsafe_code, reason = "functions that C calls take pointers")]

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use twinpath_calls::{epoll, nested, poll as calls_poll, select as calls_select, table};

use crate::decide::{decide, decide_for};
use crate::explain;
use crate::real::{KERNEL, real};

/// Decides for what is waited for. Returns whether a socket with a lease is among it.
///
/// # Safety
/// As for `poll(2)`.
unsafe fn look_at(waited: *const pollfd, count: nfds_t) -> bool {
    if !table::is_tracking() || !calls_poll::can_be_looked_at(waited, count) {
        return false;
    }
    // SAFETY: the caller's promise.
    let all = unsafe { std::slice::from_raw_parts(waited, count as usize) };
    let mut has_leased = false;
    for one in all.iter().filter(|one| table::is_known(one.fd)) {
        decide(one.fd);
        has_leased |= table::is_leased(one.fd);
    }
    has_leased
}

/// Sets of epoll(7) that are waited for by `poll(2)`. If something is left in a ring of theirs, of which the kernel does not tell, the
/// call returns at once: with what is returned here.
///
/// # Safety
/// As for `poll(2)`.
unsafe fn poll_sets(waited: *mut pollfd, count: nfds_t) -> Option<c_int> {
    if !table::is_any() || !calls_poll::can_be_looked_at(waited, count) {
        return None;
    }
    // SAFETY: the caller's promise.
    let all = unsafe { std::slice::from_raw_parts_mut(waited, count as usize) };
    let mut has_left = false;
    for one in all.iter().filter(|one| nested::may_be_set(one.fd)) {
        epoll::set_waited_for_elsewhere(one.fd);
        has_left |= one.events & libc::POLLIN != 0 && epoll::has_left(one.fd);
    }
    if !has_left {
        return None;
    }
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the caller's promise.
    let ready = unsafe { (KERNEL.ppoll)(all.as_mut_ptr(), count, &raw const now, std::ptr::null()) };
    if ready < 0 {
        return Some(ready);
    }
    let sets = all.iter_mut().filter(|one| nested::may_be_set(one.fd) && one.events & libc::POLLIN != 0);
    for one in sets.filter(|one| epoll::has_left(one.fd)) {
        one.revents |= libc::POLLIN;
    }
    Some(all.iter().filter(|one| one.revents != 0).count() as c_int)
}

/// As [`poll_sets`], for `select(2)`: the sets of epoll(7) that have something left.
///
/// # Safety
/// As for `select(2)`.
unsafe fn left_in_sets(limit: c_int, read: *mut fd_set) -> [c_int; SETS_MAX] {
    let mut left = [-1; SETS_MAX];
    if table::is_any() {
        let mut count = 0;
        let mut look_at = |descriptor| {
            if nested::may_be_set(descriptor) {
                epoll::set_waited_for_elsewhere(descriptor);
                if count < SETS_MAX && epoll::has_left(descriptor) {
                    left[count] = descriptor;
                    count += 1;
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { calls_select::each(&KERNEL, limit, read, &mut look_at) };
    }
    left
}

/// A `select(2)` that does not wait, as sets of epoll(7) have something left.
///
/// # Safety
/// As for `select(2)`.
unsafe fn select_now(limit: c_int, sets: [*mut fd_set; 3], left: [c_int; SETS_MAX]) -> c_int {
    let [read, write, except] = sets;
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the caller's promise.
    let mut ready = unsafe { (KERNEL.pselect)(limit, read, write, except, &raw const now, std::ptr::null()) };
    if ready < 0 {
        return ready;
    }
    for descriptor in left.into_iter().filter(|descriptor| *descriptor >= 0) {
        // SAFETY: it was in the caller's set before.
        unsafe {
            if !libc::FD_ISSET(descriptor, read) {
                libc::FD_SET(descriptor, read);
                ready += 1;
            }
        }
    }
    ready
}

/// Sets of epoll(7) with something left, in a call of `select(2)`: others are told of by the next one.
const SETS_MAX: usize = 8;

/// As [`look_at`], for what is to be readable.
///
/// # Safety
/// As for `select(2)`.
unsafe fn look_at_set(limit: c_int, read: *mut fd_set) -> bool {
    let mut has_leased = false;
    if table::is_tracking() {
        let mut look_at = |descriptor| {
            if table::is_known(descriptor) {
                decide(descriptor);
                has_leased |= table::is_leased(descriptor);
            }
        };
        // SAFETY: the caller's promise.
        unsafe { calls_select::each(&KERNEL, limit, read, &mut look_at) };
    }
    has_leased
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `poll(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(waited: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(ready) = unsafe { poll_sets(waited, count) } {
        return ready;
    }
    // SAFETY: the caller's promise.
    if !unsafe { look_at(waited, count) } {
        return real!(poll(waited, count, timeout_ms) as fn(*mut pollfd, nfds_t, c_int) -> c_int);
    }
    // SAFETY: the caller's promise.
    unsafe { calls_poll::poll(&KERNEL, waited, count, timeout_ms) }
}

/// A hook: `poll` where the compiler knows the size of the array.
///
/// # Safety
/// As for `poll(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    waited: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    room: size_t,
) -> c_int {
    if count as usize > room / size_of::<pollfd>() {
        return real!(
            __poll_chk(waited, count, timeout_ms, room) as fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int
        );
    }
    // SAFETY: the caller's promise.
    unsafe { poll(waited, count, timeout_ms) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `ppoll(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    waited: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(ready) = unsafe { poll_sets(waited, count) } {
        return ready;
    }
    // SAFETY: the caller's promise.
    if !unsafe { look_at(waited, count) } {
        // SAFETY: the caller's promise.
        return unsafe { (KERNEL.ppoll)(waited, count, timeout, mask) };
    }
    // SAFETY: the caller's promise.
    unsafe { calls_poll::ppoll(&KERNEL, waited, count, timeout, mask) }
}

/// A hook: `ppoll` where the compiler knows the size of the array.
///
/// # Safety
/// As for `ppoll(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    waited: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if count as usize > room / size_of::<pollfd>() {
        return real!(__ppoll_chk(waited, count, timeout, mask, room)
            as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int);
    }
    // SAFETY: the caller's promise.
    unsafe { ppoll(waited, count, timeout, mask) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `select(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    limit: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let left = unsafe { left_in_sets(limit, read) };
    if left[0] >= 0 {
        // SAFETY: the caller's promise.
        return unsafe { select_now(limit, [read, write, except], left) };
    }
    // SAFETY: the caller's promise.
    if !unsafe { look_at_set(limit, read) } {
        return real!(select(limit, read, write, except, timeout)
            as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
    }
    // SAFETY: the caller's promise.
    unsafe { calls_select::select(&KERNEL, limit, [read, write, except], timeout) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `pselect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    limit: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let left = unsafe { left_in_sets(limit, read) };
    if left[0] >= 0 {
        // SAFETY: the caller's promise.
        return unsafe { select_now(limit, [read, write, except], left) };
    }
    // SAFETY: the caller's promise.
    if !unsafe { look_at_set(limit, read) } {
        // SAFETY: the caller's promise.
        return unsafe { (KERNEL.pselect)(limit, read, write, except, timeout, mask) };
    }
    // SAFETY: the caller's promise.
    unsafe { calls_select::pselect(&KERNEL, limit, [read, write, except], timeout, mask) }
}

fn made(set: c_int) -> c_int {
    if set >= 0 && table::is_own_process() {
        if table::is_watched(set) {
            table::close(set);
        }
        epoll::set_made(set);
    }
    set
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    made(real!(epoll_create(size) as fn(c_int) -> c_int))
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    made(real!(epoll_create1(flags) as fn(c_int) -> c_int))
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `epoll_ctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if table::is_known(fd) {
        decide_for(fd, operation == libc::EPOLL_CTL_ADD);
    }
    let done =
        real!(epoll_ctl(set, operation, fd, event) as fn(c_int, c_int, c_int, *mut epoll_event) -> c_int);
    if done == 0 && (table::is_leased(fd) || nested::may_be_set(fd)) && table::is_own_process() {
        // SAFETY: the caller's promise.
        if let Some(why) = unsafe { epoll::done(set, operation, fd, event) } {
            explain::socket(fd, format_args!("by the kernel: {why}"));
        }
    }
    done
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `epoll_wait(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(ready) = unsafe { epoll::wait_for_inner(&KERNEL, set, events, count, std::ptr::null()) } {
        return ready;
    }
    if !epoll::has_leased(set) {
        return real!(
            epoll_wait(set, events, count, timeout_ms) as fn(c_int, *mut epoll_event, c_int, c_int) -> c_int
        );
    }
    // SAFETY: the caller's promise.
    unsafe { epoll::wait(&KERNEL, set, events, count, timeout_ms, std::ptr::null()) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `epoll_pwait(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(ready) = unsafe { epoll::wait_for_inner(&KERNEL, set, events, count, mask) } {
        return ready;
    }
    if !epoll::has_leased(set) {
        // SAFETY: the caller's promise.
        return unsafe { (KERNEL.epoll_pwait)(set, events, count, timeout_ms, mask) };
    }
    // SAFETY: the caller's promise.
    unsafe { epoll::wait(&KERNEL, set, events, count, timeout_ms, mask) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `epoll_pwait2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(ready) = unsafe { epoll::wait_for_inner(&KERNEL, set, events, count, mask) } {
        return ready;
    }
    if !epoll::has_leased(set) {
        return real!(epoll_pwait2(set, events, count, timeout, mask)
            as fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int);
    }
    // SAFETY: the caller's promise.
    match unsafe { epoll::wait_for(&KERNEL, set, events, count, timeout, mask) } {
        Some(ready) => ready,
        None => real!(epoll_pwait2(set, events, count, timeout, mask)
            as fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int),
    }
}
