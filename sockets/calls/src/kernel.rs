//! The kernel's own calls, as the crate that uses this one reaches them.

use libc::{
    c_int, c_uint, c_void, epoll_event, fd_set, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};

/// The C library's functions. They may end the thread that calls them, by its cancellation, so they may unwind.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// `recvfrom(2)`
    pub recvfrom: unsafe extern "C-unwind" fn(
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    /// `recvmsg(2)`
    pub recvmsg: unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> ssize_t,
    /// `recvmmsg(2)`
    pub recvmmsg: unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int,
    /// `ppoll(2)`
    pub ppoll: unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int,
    /// `pselect(2)`
    pub pselect: unsafe extern "C-unwind" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int,
    /// `epoll_pwait(2)`
    pub epoll_pwait:
        unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int,
}

/// The error of the last call of this thread.
#[must_use]
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sets the error of this thread, and returns what a call returns then.
#[allow(unsafe_code, reason = "errno is reached by a pointer")]
pub fn set_errno(error: c_int) -> c_int {
    // SAFETY: the C library returns the place of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = error };
    -1
}
