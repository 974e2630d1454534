//! Receiving and waiting, each as the function of the C library without the prefix.
#![allow(unsafe_code, reason = "functions for C take pointers, which C has no other word for")]

use libc::{
    c_int, c_void, epoll_event, fd_set, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};
use twinpath_calls::{epoll, poll, receive, select};

use crate::kernel::KERNEL;

/// The functions of which the only difference to those without the prefix is what they end in.
macro_rules! as_in_c {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $call:expr;)*) => {
        $(
            /// See the header.
            ///
            /// # Safety
            /// As for the function of the C library without the prefix.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the caller's promise is the one that is asked for.
                unsafe { $call }
            }
        )*
    };
}

as_in_c! {
    twinpath_recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        receive::recvfrom(&KERNEL, fd, buffer, len, flags, std::ptr::null_mut(), std::ptr::null_mut());
    twinpath_recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t
    ) -> ssize_t = receive::recvfrom(&KERNEL, fd, buffer, len, flags, address, address_len);
    twinpath_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t =
        receive::recvmsg(&KERNEL, fd, message, flags);
    twinpath_recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, timeout: *mut timespec) -> c_int =
        receive::recvmmsg(&KERNEL, fd, messages, count, flags, timeout);
    twinpath_poll(waited: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int =
        poll::poll(&KERNEL, waited, count, timeout_ms);
    twinpath_ppoll(waited: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int =
        poll::ppoll(&KERNEL, waited, count, timeout, mask);
    twinpath_select(
        limit: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int = select::select(&KERNEL, limit, [read, write, except], timeout);
    twinpath_pselect(
        limit: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int = select::pselect(&KERNEL, limit, [read, write, except], timeout, mask);
    twinpath_epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, timeout_ms: c_int) -> c_int =
        epoll::wait(&KERNEL, set, events, count, timeout_ms, std::ptr::null());
    twinpath_epoll_pwait(
        set: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout_ms: c_int,
        mask: *const sigset_t
    ) -> c_int = epoll::wait(&KERNEL, set, events, count, timeout_ms, mask);
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_epoll_create1(flags: c_int) -> c_int {
    // SAFETY: it takes a number only.
    let set = unsafe { libc::epoll_create1(flags) };
    // A former set of this number may have been closed without this library.
    if set >= 0 {
        epoll::set_made(set);
    }
    set
}

/// See the header.
///
/// # Safety
/// As for `epoll_ctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn twinpath_epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::epoll_ctl(set, operation, fd, event) };
    if done == 0 {
        // SAFETY: the caller's promise.
        unsafe { epoll::done(set, operation, fd, event) };
    }
    done
}
