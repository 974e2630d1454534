//! Hooks of the calls that make and close descriptors, and change what a socket is.
#![allow(unsafe_code, reason = "functions that C calls take pointers")]

use libc::{FILE, c_char, c_int, c_uint, c_ulong, c_void, sockaddr, socklen_t};
use twinpath_calls::{SocketKind, WhyKernel, can_write, epoll, errno, nested, set_errno, table};

use crate::decide;
use crate::real::real;
use crate::{explain, group, own, process};

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let made = real!(socket(domain, kind, protocol) as fn(c_int, c_int, c_int) -> c_int);
    let is_udp = SocketKind::made_by(domain, kind, protocol) == Some(SocketKind::Udp);
    // The number may have had another meaning, and have been closed by a call that is not hooked.
    if made >= 0 && (matters(made) || group::has_unbound(made)) {
        remember(made, is_udp);
    } else if made >= 0 && is_udp && !own::is_inside() {
        // Nothing is known of the number, so a process that shares this memory (`vfork`) changes nothing for its parent.
        table::set_undecided(made);
    }
    made
}

/// A socket was made, and something about the descriptor has to be noted here.
#[cold]
fn remember(made: c_int, is_udp: bool) {
    if own::is_inside() {
        table::forget(made);
    } else if table::is_own_process() {
        forget(made);
        if is_udp {
            table::set_undecided(made);
        }
    }
}

/// The number has a new meaning. What was there was closed, perhaps by a call that is not hooked.
fn forget(made: c_int) {
    let _inside = own::Inside::enter();
    table::close_here(made);
    epoll::set_closed(made);
    group::forget(made);
}

/// A descriptor was made that is no UDP socket.
#[inline]
fn made_other(made: c_int) -> c_int {
    if made >= 0 && table::is_tracking() && (matters(made) || group::has_unbound(made)) {
        forget_former(made);
    }
    made
}

#[cold]
fn forget_former(made: c_int) {
    if table::is_own_process() && !own::is_inside() {
        forget(made);
    }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `accept(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    made_other(real!(accept(fd, address, len) as fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int))
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `accept4(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    made_other(real!(
        accept4(fd, address, len, flags) as fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int
    ))
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `socketpair(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    made: *mut c_int,
) -> c_int {
    let done =
        real!(socketpair(domain, kind, protocol, made) as fn(c_int, c_int, c_int, *mut c_int) -> c_int);
    if done == 0 {
        for at in 0..2 {
            // SAFETY: the kernel has filled an array of two.
            made_other(unsafe { made.add(at).read() });
        }
    }
    done
}

/// The C library is about to close the descriptor of a stream, by a call of its own.
///
/// # Safety
/// As for `fclose(3)`.
unsafe fn stream_closes(stream: *mut FILE) {
    if !table::is_tracking() || stream.is_null() {
        return;
    }
    let before = errno();
    // SAFETY: the caller passes a stream. One without a descriptor has -1.
    let fd = unsafe { libc::fileno(stream) };
    set_errno(before);
    if matters(fd) {
        closes(fd);
    }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `fclose(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { stream_closes(stream) };
    real!(fclose(stream) as fn(*mut FILE) -> c_int)
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `freopen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { stream_closes(stream) };
    real!(freopen(path, mode, stream) as fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE)
}

/// A hook: `freopen` of programs that were compiled for large files.
///
/// # Safety
/// As for `freopen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { stream_closes(stream) };
    real!(freopen64(path, mode, stream) as fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE)
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `bind(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let bound = real!(bind(fd, address, len) as fn(c_int, *const sockaddr, socklen_t) -> c_int);
    if bound == 0 && group::has_unbound(fd) && table::is_own_process() {
        group::bound(fd);
    }
    // A program may bind a socket for each query, so the process is asked for only where a rule waits for a lease.
    if bound == 0 && table::is_undecided(fd) {
        // The port is at the same place in addresses of both families.
        // SAFETY: the kernel has read as much of the address.
        let port = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() }.sin_port;
        // A port that the kernel has chosen is decided about when it is used.
        if port != 0 {
            table::set_port_named(fd);
            decide::bound(fd);
        }
    }
    bound
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `connect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if table::is_leased(fd) {
        table::is_narrowed(fd);
    }
    real!(connect(fd, address, len) as fn(c_int, *const sockaddr, socklen_t) -> c_int)
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `setsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if table::is_leased(fd) {
        table::option_is_set(fd, level, name);
    }
    let set =
        real!(setsockopt(fd, level, name, value, len)
            as fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int);
    if set == 0 && group::is_program(level, name) && table::is_own_process() {
        group::has_program(fd);
    }
    if set == 0 && table::is_known(fd) {
        let error = errno();
        if let Some((why, has_ended)) = table::option_set(fd, level, name) {
            is_kernels(fd, &why, has_ended);
        }
        set_errno(error);
    }
    set
}

/// A hook: the function of that name. Otherwise a call that spins would notice up to 50 us late that the socket cannot
/// receive any more.
///
/// # Safety
/// None: it takes numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let done = real!(shutdown(fd, how) as fn(c_int, c_int) -> c_int);
    let error = errno();
    // The receiving side of a socket without a peer is shut down nevertheless (`inet_shutdown` of the kernel).
    let is_done = done == 0 || error == libc::ENOTCONN;
    if is_done && how != libc::SHUT_WR && table::is_leased(fd) && table::is_own_process() {
        if table::give_up(fd) {
            is_kernels(fd, &WhyKernel::ShutDown, true);
        }
        set_errno(error);
    }
    done
}

/// Says why a socket is the kernel's. `has_ended`: it had a lease.
fn is_kernels(fd: c_int, why: &WhyKernel, has_ended: bool) {
    if has_ended {
        explain::from_now_on(fd, why);
    } else {
        explain::without_lease(fd, why);
    }
}

/// `SIOCGSTAMP_NEW` and `SIOCGSTAMPNS_NEW` of linux/sockios.h, with two 64-bit numbers each.
const STAMP_NEW: c_ulong = 0x8010_8906;
const STAMP_NS_NEW: c_ulong = 0x8010_8907;
const SIOCGSTAMP: c_ulong = 0x8906;
const SIOCGSTAMPNS: c_ulong = 0x8907;

/// A hook: the function of that name. In C it takes any number of arguments: one, or none, is passed as this one is.
///
/// # Safety
/// As for `ioctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // Of the request the kernel takes 32 bits.
    match c_ulong::from(request as u32) {
        libc::FIONREAD if table::is_leased(fd) => {
            let has_room = can_write(argument.cast(), size_of::<c_int>());
            if let Some(len) = table::next_len(fd).filter(|_| has_room) {
                // SAFETY: as above.
                unsafe { argument.cast::<c_int>().write_unaligned(len as c_int) };
                return 0;
            }
        }
        SIOCGSTAMP | SIOCGSTAMPNS | STAMP_NEW | STAMP_NS_NEW if table::is_known(fd) => {
            if let Some((why, has_ended)) = table::stamp_wanted(fd) {
                is_kernels(fd, &why, has_ended);
            }
        }
        _ => {}
    }
    real!(ioctl(fd, request, argument) as fn(c_int, c_ulong, *mut c_void) -> c_int)
}

/// Whether closing the descriptor changes anything here. Most are the program's and nothing is known of them: for these it is a few loads.
#[inline]
fn matters(fd: c_int) -> bool {
    table::is_watched(fd) || own::may_be_known(fd) || epoll::is_set(fd)
}

/// Numbers that are looked at together.
const WORD: c_uint = u64::BITS;

/// Whether none of the descriptors of a word matters, which begins with this one. A program that closes all descriptors there may be closes
/// tens of thousands of which nothing was ever known.
#[inline]
fn is_nothing_known(first: c_uint) -> bool {
    let word = (first / WORD) as usize;
    first.is_multiple_of(WORD) && first as usize >= table::below() && !own::may_be_known_in(word)
}

/// A descriptor that matters is about to be closed. Returns whether it must not be: it is the library's own, which the program does not
/// know of.
#[cold]
fn closes(fd: c_int) -> bool {
    // A child that shares this memory (`vfork`) closes what it has, which changes nothing here.
    table::is_own_process() && closes_here(fd)
}

/// As [`closes`], in the process to which the table belongs.
fn closes_here(fd: c_int) -> bool {
    if own::refuses(fd) {
        return true;
    }
    explain::closing(fd);
    // With the last socket that has a lease, or was to have one, the connection to the owner is closed.
    let _inside = own::Inside::enter();
    table::close_here(fd);
    epoll::set_closed(fd);
    false
}

/// Whether it is a UDP socket by which nothing was received, and of which there is nothing to say: it is forgotten.
#[inline]
fn is_unused(fd: c_int) -> bool {
    !explain::is_on() && !own::may_be_known(fd) && !epoll::is_set(fd) && table::close_unused(fd)
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes a number, which is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if table::is_tracking() && !is_unused(fd) && matters(fd) && closes(fd) {
        return set_errno(libc::EBADF);
    }
    real!(close(fd) as fn(c_int) -> c_int)
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes numbers, which are the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let close = |first: c_uint, last: c_uint| {
        real!(close_range(first, last, flags) as fn(c_uint, c_uint, c_int) -> c_int)
    };
    if !table::is_tracking() || flags != 0 || first > last || !table::is_own_process() {
        return close(first, last);
    }
    let (mut from, mut done) = (first, 0);
    let mut fd = first;
    while fd <= last.min(table::DESCRIPTORS as c_uint) {
        if is_nothing_known(fd) {
            fd += WORD;
            continue;
        }
        if matters(fd as c_int) && closes_here(fd as c_int) {
            // Around the library's own.
            if from < fd {
                done |= close(from, fd - 1);
            }
            from = fd + 1;
        }
        fd += 1;
    }
    if from <= last { done | close(from, last) } else { done }
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes a number, from which on all are the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: as here.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Whether anything may be known of the descriptor that its duplicate has to share. Runtimes such as tokio's duplicate their set before the
/// program has a socket.
#[inline]
fn is_shared(of: c_int) -> bool {
    table::is_tracking() || nested::was_set(of)
}

fn duplicate(of: c_int, new: c_int) {
    if table::is_undecided(of) && table::is_own_process() {
        explain::without_lease(of, &WhyKernel::Duplicated);
    }
    let _inside = own::Inside::enter();
    table::duplicate(of, new);
    if nested::may_be_set(of) && table::is_own_process() {
        epoll::set_duplicated(of, new);
    }
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(of: c_int) -> c_int {
    let new = real!(dup(of) as fn(c_int) -> c_int);
    if new >= 0 && is_shared(of) {
        duplicate(of, new);
    }
    new
}

/// The program wants a descriptor at this number: what was there is closed.
fn gives_way(of: c_int, new: c_int) {
    if of == new || !table::is_tracking() || !matters(new) {
        return;
    }
    // SAFETY: it takes numbers. If there is nothing to duplicate, the call will fail and close nothing.
    if unsafe { libc::fcntl(of, libc::F_GETFD) } < 0 {
        return;
    }
    if closes(new) {
        own::is_taken(new);
    }
}

/// A hook: the function of that name.
///
/// # Safety
/// None: it takes numbers, of which the second is the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(of: c_int, new: c_int) -> c_int {
    gives_way(of, new);
    let made = real!(dup2(of, new) as fn(c_int, c_int) -> c_int);
    if made >= 0 && of != new && is_shared(of) {
        duplicate(of, new);
    }
    made
}

/// A hook: the function of that name.
///
/// # Safety
/// As for [`dup2`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(of: c_int, new: c_int, flags: c_int) -> c_int {
    gives_way(of, new);
    let made = real!(dup3(of, new, flags) as fn(c_int, c_int, c_int) -> c_int);
    if made >= 0 && is_shared(of) {
        duplicate(of, new);
    }
    made
}

/// A duplicate was made by `fcntl(2)`.
fn controlled(fd: c_int, command: c_int, result: c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && result >= 0 && is_shared(fd) {
        duplicate(fd, result);
    }
    result
}

/// A hook: the function of that name. In C it takes any number of arguments: one, or none, is passed as this one is.
///
/// # Safety
/// As for `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let result = real!(fcntl(fd, command, argument) as fn(c_int, c_int, *mut c_void) -> c_int);
    controlled(fd, command, result)
}

/// A hook: `fcntl` of programs that were compiled for large files.
///
/// # Safety
/// As for `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let result = real!(fcntl64(fd, command, argument) as fn(c_int, c_int, *mut c_void) -> c_int);
    controlled(fd, command, result)
}

/// A hook: the end of a program that leaves out what is done at an exit.
///
/// # Safety
/// None: it takes a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _exit(code: c_int) -> ! {
    let error = errno();
    if table::is_tracking() && table::is_own_process() {
        process::end();
    }
    set_errno(error);
    real!(_exit(code) as fn(c_int) -> ());
    // SAFETY: it ends the process, in case that the other one has not.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
    std::process::abort()
}
