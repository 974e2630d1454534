//! Hooks of the calls that receive.
#![allow(unsafe_code, reason = "functions that C calls take pointers")]

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use twinpath_calls::early::EarlyWaits;
use twinpath_calls::{errno, receive, set_errno, table};

use crate::decide::{look_for_answer, received};
use crate::real::{KERNEL, real};

/// Whether a call on the descriptor must not be passed on. If nothing is known of the descriptor, that costs a load and
/// a comparison.
#[inline(always)]
fn is_ours(descriptor: c_int) -> bool {
    table::is_known(descriptor) && is_leased_now(descriptor)
}

/// Takes up what the owner may have answered.
#[cold]
#[inline(never)]
fn is_leased_now(descriptor: c_int) -> bool {
    look_for_answer(descriptor);
    table::is_leased(descriptor)
}

/// Calls the kernel for a socket without a lease, and counts what it receives: that is how a socket earns one. `None`:
/// it has got a lease meanwhile. If nothing is known of the descriptor, that costs a load and a comparison.
#[inline(always)]
fn by_kernel<R: Count>(descriptor: c_int, call: impl FnOnce() -> R) -> Option<R> {
    if table::is_known(descriptor) { earns(descriptor, call) } else { Some(call()) }
}

#[cold]
#[inline(never)]
fn earns<R: Count>(descriptor: c_int, call: impl FnOnce() -> R) -> Option<R> {
    // Another thread may take a lease up meanwhile: it has to know that this one waits.
    let mut waits = EarlyWaits::new();
    waits.add(descriptor);
    if table::is_leased(descriptor) {
        return None;
    }
    let got = call();
    drop(waits);
    let error = errno();
    if let Some(count) = got.count() {
        received(descriptor, count);
    }
    set_errno(error);
    Some(got)
}

/// What a receiving call returns.
trait Count: Copy {
    /// How many datagrams it has received; `None`: none.
    fn count(self) -> Option<u32>;
}

impl Count for ssize_t {
    fn count(self) -> Option<u32> {
        (self >= 0).then_some(1)
    }
}

impl Count for c_int {
    fn count(self) -> Option<u32> {
        u32::try_from(self).ok().filter(|count| *count > 0)
    }
}

/// The descriptor was closed behind our back, and has another meaning now.
fn is_no_socket(received: ssize_t, descriptor: c_int) -> bool {
    let is_none = received < 0 && errno() == libc::ENOTSOCK;
    if is_none {
        table::forget(descriptor);
    }
    is_none
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `recv(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if !is_ours(fd) {
        let real = || real!(recv(fd, buffer, len, flags) as fn(c_int, *mut c_void, size_t, c_int) -> ssize_t);
        if let Some(got) = by_kernel(fd, real) {
            return got;
        }
    }
    let none = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { receive::recvfrom(&KERNEL, fd, buffer, len, flags, none, std::ptr::null_mut()) }
}

/// A hook: `recv` where the compiler knows the size of the buffer.
///
/// # Safety
/// As for `recv(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len > room {
        return real!(__recv_chk(fd, buffer, len, room, flags)
            as fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t);
    }
    // SAFETY: the caller's promise.
    unsafe { recv(fd, buffer, len, flags) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `recvfrom(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    if !is_ours(fd) {
        let real = || {
            real!(recvfrom(fd, buffer, len, flags, address, address_len)
                as fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)
        };
        if let Some(got) = by_kernel(fd, real) {
            return got;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { receive::recvfrom(&KERNEL, fd, buffer, len, flags, address, address_len) }
}

/// A hook: `recvfrom` where the compiler knows the size of the buffer.
///
/// # Safety
/// As for `recvfrom(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        return real!(__recvfrom_chk(fd, buffer, len, room, flags, address, address_len)
            as fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t);
    }
    // SAFETY: the caller's promise.
    unsafe { recvfrom(fd, buffer, len, flags, address, address_len) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `recvmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !is_ours(fd) {
        let real = || real!(recvmsg(fd, message, flags) as fn(c_int, *mut msghdr, c_int) -> ssize_t);
        if let Some(got) = by_kernel(fd, real) {
            return got;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { receive::recvmsg(&KERNEL, fd, message, flags) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `recvmmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !is_ours(fd) || messages.is_null() {
        let real = || {
            real!(recvmmsg(fd, messages, count, flags, timeout)
                as fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int)
        };
        if let Some(got) = by_kernel(fd, real) {
            return got;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { receive::recvmmsg(&KERNEL, fd, messages, count, flags, timeout) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `read(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // Of no bytes it takes no datagram.
    if len > 0 && len <= isize::MAX as size_t && is_ours(fd) {
        let none = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let got = unsafe { receive::recvfrom(&KERNEL, fd, buffer, len, 0, none, std::ptr::null_mut()) };
        if !is_no_socket(got, fd) {
            return got;
        }
    }
    let real = || real!(read(fd, buffer, len) as fn(c_int, *mut c_void, size_t) -> ssize_t);
    by_kernel(fd, real).unwrap_or_else(real)
}

/// A hook: `read` where the compiler knows the size of the buffer.
///
/// # Safety
/// As for `read(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    if len > room {
        return real!(__read_chk(fd, buffer, len, room) as fn(c_int, *mut c_void, size_t, size_t) -> ssize_t);
    }
    // SAFETY: the caller's promise.
    unsafe { read(fd, buffer, len) }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `readv(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // Of more pieces it returns another error than recvmsg(2), and into no bytes it receives nothing.
    // SAFETY: the caller's promise.
    if is_ours(fd) && unsafe { receive::has_room(pieces, count) } {
        // SAFETY: the caller's promise.
        let got = unsafe { receive::readv(&KERNEL, fd, pieces, count) };
        if !is_no_socket(got, fd) {
            return got;
        }
    }
    let real = || real!(readv(fd, pieces, count) as fn(c_int, *const iovec, c_int) -> ssize_t);
    by_kernel(fd, real).unwrap_or_else(real)
}
