//! The C library's calls.
#![allow(unsafe_code, reason = "the calls of the C library take pointers")]

use libc::{
    c_int, c_uint, c_void, epoll_event, fd_set, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};
use twinpath_calls::Kernel;

unsafe extern "C-unwind" {
    fn recvfrom(
        descriptor: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> ssize_t;
    fn recvmsg(descriptor: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(
        descriptor: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int;
    fn ppoll(waited: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn pselect(
        limit: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
    fn epoll_pwait(
        set: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout_ms: c_int,
        mask: *const sigset_t,
    ) -> c_int;
}

/// The calls that those with a lease end in.
pub(crate) static KERNEL: Kernel = Kernel { recvfrom, recvmsg, recvmmsg, ppoll, pselect, epoll_pwait };
