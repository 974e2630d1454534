//! Hooks of the calls that wait.
#![allow(unsafe_code, reason = "functions that C calls take pointers")]

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use twinpath_calls::early::EarlyWaits;
use twinpath_calls::earning::SetWait;
use twinpath_calls::{epoll, nested, poll as calls_poll, select as calls_select, table};

use crate::decide::look_for_answer;
use crate::explain;
use crate::real::{KERNEL, real};

/// Takes up answers of the owner for the sockets that are waited for, and counts this thread for those that may get a
/// lease while it waits. Returns whether a socket with a lease is among them.
///
/// # Safety
/// As for `poll(2)`.
unsafe fn look_at(waited: *const pollfd, count: nfds_t, early: &mut EarlyWaits) -> bool {
    if !table::is_tracking() {
        return false;
    }
    let mut has_leased = false;
    // SAFETY: the caller's promise.
    for one in unsafe { calls_poll::each(waited, count) }.filter(|one| table::is_known(one.fd)) {
        has_leased |= is_leased_now(one.fd, early);
    }
    has_leased
}

fn is_leased_now(descriptor: c_int, early: &mut EarlyWaits) -> bool {
    look_for_answer(descriptor);
    if !table::is_leased(descriptor) {
        early.add(descriptor);
    }
    // Another thread may have taken the lease up before this one was counted.
    table::is_leased(descriptor)
}

/// Sets of epoll(7) that are waited for by `poll(2)`: the kernel alone tells of them.
///
/// # Safety
/// As for `poll(2)`.
unsafe fn look_at_sets(waited: *const pollfd, count: nfds_t) {
    if !table::is_any() {
        return;
    }
    // SAFETY: the caller's promise.
    let all = unsafe { calls_poll::each(waited, count) };
    all.filter(|one| nested::may_be_set(one.fd)).for_each(|one| epoll::set_waited_for_elsewhere(one.fd));
}

/// As [`look_at_sets`], for `select(2)`.
///
/// # Safety
/// As for `select(2)`.
unsafe fn look_at_sets_in(limit: c_int, read: *mut fd_set) {
    if table::is_any() {
        let mut look_at = |descriptor| {
            if nested::may_be_set(descriptor) {
                epoll::set_waited_for_elsewhere(descriptor);
            }
        };
        // SAFETY: the caller's promise.
        unsafe { calls_select::each(&KERNEL, limit, read, &mut look_at) };
    }
}

/// As [`look_at`], for what is to be readable.
///
/// # Safety
/// As for `select(2)`.
unsafe fn look_at_set(limit: c_int, read: *mut fd_set, early: &mut EarlyWaits) -> bool {
    let mut has_leased = false;
    if table::is_tracking() {
        let mut look_at = |descriptor| {
            if table::is_known(descriptor) {
                has_leased |= is_leased_now(descriptor, early);
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
    unsafe { look_at_sets(waited, count) };
    let mut early = EarlyWaits::new();
    // SAFETY: the caller's promise.
    if !unsafe { look_at(waited, count, &mut early) } {
        return real!(poll(waited, count, timeout_ms) as fn(*mut pollfd, nfds_t, c_int) -> c_int);
    }
    drop(early);
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
    unsafe { look_at_sets(waited, count) };
    let mut early = EarlyWaits::new();
    // SAFETY: the caller's promise.
    if !unsafe { look_at(waited, count, &mut early) } {
        // SAFETY: the caller's promise.
        return unsafe { (KERNEL.ppoll)(waited, count, timeout, mask) };
    }
    drop(early);
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
    unsafe { look_at_sets_in(limit, read) };
    let mut early = EarlyWaits::new();
    // SAFETY: the caller's promise.
    if !unsafe { look_at_set(limit, read, &mut early) } {
        return real!(select(limit, read, write, except, timeout)
            as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
    }
    drop(early);
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
    unsafe { look_at_sets_in(limit, read) };
    let mut early = EarlyWaits::new();
    // SAFETY: the caller's promise.
    if !unsafe { look_at_set(limit, read, &mut early) } {
        // SAFETY: the caller's promise.
        return unsafe { (KERNEL.pselect)(limit, read, write, except, timeout, mask) };
    }
    drop(early);
    // SAFETY: the caller's promise.
    unsafe { calls_select::pselect(&KERNEL, limit, [read, write, except], timeout, mask) }
}

/// Takes up answers of the owner for sockets in the set, and counts this thread for those that may get a lease while it
/// waits.
#[inline]
fn waits_in(set: c_int) -> Option<SetWait> {
    epoll::asked_in(set).inspect(|asked| look_for_answer(*asked));
    epoll::waits_early(set)
}

fn made(set: c_int) -> c_int {
    if set >= 0 && table::is_own_process() {
        if table::is_watched(set) {
            table::close_here(set);
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

/// A program may put a socket into a set for each query, so the process is asked for only where a lease is at stake.
fn is_here(descriptor: c_int) -> bool {
    if table::is_undecided(descriptor) { table::is_own_memory() } else { table::is_own_process() }
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
    let done =
        real!(epoll_ctl(set, operation, fd, event) as fn(c_int, c_int, c_int, *mut epoll_event) -> c_int);
    if done == 0 && (table::is_known(fd) || nested::may_be_set(fd)) && is_here(fd) {
        // SAFETY: the caller's promise.
        if let Some(why) = unsafe { epoll::done(set, operation, fd, event) } {
            explain::without_lease(fd, &why);
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
    let early = waits_in(set);
    if !epoll::has_leased(set) {
        return real!(
            epoll_wait(set, events, count, timeout_ms) as fn(c_int, *mut epoll_event, c_int, c_int) -> c_int
        );
    }
    drop(early);
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
    let early = waits_in(set);
    if !epoll::has_leased(set) {
        // SAFETY: the caller's promise.
        return unsafe { (KERNEL.epoll_pwait)(set, events, count, timeout_ms, mask) };
    }
    drop(early);
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
    let early = waits_in(set);
    if !epoll::has_leased(set) {
        return real!(epoll_pwait2(set, events, count, timeout, mask)
            as fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int);
    }
    // SAFETY: the caller's promise.
    drop(early);
    // SAFETY: the caller's promise.
    match unsafe { epoll::wait_for(&KERNEL, set, events, count, timeout, mask) } {
        Some(ready) => ready,
        None => real!(epoll_pwait2(set, events, count, timeout, mask)
            as fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int),
    }
}
