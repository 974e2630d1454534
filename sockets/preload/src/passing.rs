//! Hooks of the calls by which descriptors are passed to other processes (SCM_RIGHTS).
#![allow(unsafe_code, reason = "functions that C calls take pointers")]

use libc::{c_int, c_uint, mmsghdr, msghdr, ssize_t};
use twinpath_calls::{can_read, table};

use crate::own;
use crate::real::real;

/// A message is about to be sent: sockets that are passed with it have other readers from then on.
///
/// # Safety
/// [`may_pass`].
unsafe fn look_at(message: *const msghdr) {
    // SAFETY: the caller's promise; the structure may lie anywhere.
    let copy = unsafe { message.read_unaligned() };
    let message = &raw const copy;
    let end = copy.msg_control.addr() + copy.msg_controllen;
    // SAFETY: as above.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !part.is_null() {
        // SAFETY: it is within the caller's control data.
        let header = unsafe { part.read_unaligned() };
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: it takes a number.
            let none = unsafe { libc::CMSG_LEN(0) } as usize;
            // A part that is longer than what is there is refused by the kernel.
            let len = header.cmsg_len.min(end - part.addr());
            let count = len.saturating_sub(none) / size_of::<c_int>();
            for number in 0..count {
                // SAFETY: the part has so many descriptors.
                let descriptor =
                    unsafe { libc::CMSG_DATA(part).cast::<c_int>().add(number).read_unaligned() };
                table::passed_on(descriptor);
            }
        }
        // SAFETY: as above.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
}

/// Whether the message may pass sockets of which anything is known.
///
/// # Safety
/// As for `sendmsg(2)`.
#[inline]
unsafe fn may_pass(message: *const msghdr) -> bool {
    // The kernel refuses what cannot be read.
    let is_there = table::is_tracking() && !own::is_inside() && can_read(message.cast(), size_of::<msghdr>());
    is_there && {
        // SAFETY: the caller's promise; the structure may lie anywhere.
        let message = unsafe { message.read_unaligned() };
        message.msg_controllen > 0 && can_read(message.msg_control.cast(), message.msg_controllen)
    }
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `sendmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        if may_pass(message) {
            look_at(message);
        }
    }
    real!(sendmsg(fd, message, flags) as fn(c_int, *const msghdr, c_int) -> ssize_t)
}

/// A hook: the function of that name.
///
/// # Safety
/// As for `sendmmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if table::is_tracking() && !messages.is_null() {
        // The kernel looks at no more (UIO_MAXIOV).
        for number in 0..count.min(1024) as usize {
            // SAFETY: the caller's promise: there are as many messages.
            unsafe {
                let message = &raw const (*messages.wrapping_add(number)).msg_hdr;
                if may_pass(message) {
                    look_at(message);
                }
            }
        }
    }
    real!(sendmmsg(fd, messages, count, flags) as fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int)
}
