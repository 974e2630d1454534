//! Hooks of the calls by which descriptors are passed to other processes (SCM_RIGHTS).
#![allow(unsafe_code, reason = "functions that C calls take pointers")]

use libc::{c_int, c_uint, cmsghdr, mmsghdr, msghdr, size_t, ssize_t};
use twinpath_calls::{can_read, table};

use crate::own;
use crate::real::real;

/// A message is about to be sent: sockets that are passed with it have other readers from then on.
///
/// # Safety
/// [`may_pass`].
unsafe fn look_at(message: *const msghdr) {
    // SAFETY: the caller's promise; the structure may lie anywhere.
    let message = unsafe { message.read_unaligned() };
    let (mut part, mut rest) = (message.msg_control.cast::<u8>(), message.msg_controllen);
    // SAFETY: it takes a number.
    let none = unsafe { libc::CMSG_LEN(0) } as usize;
    while rest >= none {
        // SAFETY: it is within the caller's control data.
        let header = unsafe { part.cast::<cmsghdr>().read_unaligned() };
        // The kernel refuses a message with such a part, which may end anywhere.
        if !(none..=rest).contains(&header.cmsg_len) {
            return;
        }
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let descriptors = part.wrapping_add(none).cast::<c_int>();
            for number in 0..(header.cmsg_len - none) / size_of::<c_int>() {
                // SAFETY: the part has so many descriptors.
                table::passed_on(unsafe { descriptors.wrapping_add(number).read_unaligned() });
            }
        }
        let len = header.cmsg_len.next_multiple_of(size_of::<size_t>()).min(rest);
        (part, rest) = (part.wrapping_add(len), rest - len);
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
