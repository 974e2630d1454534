//! The functions that the hooks take the place of.
#![allow(unsafe_code, reason = "functions are found by name, and called by pointers")]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    c_int, c_uint, epoll_event, fd_set, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec,
};
use twinpath_calls::{Kernel, set_errno};

use crate::preloader;

/// A function of the C library, found by its name.
pub(crate) struct Function {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(null_mut()) }
    }

    /// Where it is; null if this C library has none of that name. Most calls of a program have nothing to do with this library, so it
    /// costs a load and a comparison.
    #[inline(always)]
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.at.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    /// The next function of that name after this library's.
    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        let found = preloader::next(self.name);
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

/// Finds all of them, so that a hook which is called by a handler of a signal does not have to: that takes a lock. Constructors of other
/// libraries may have called hooks before.
pub(crate) fn find_all() {
    for function in ALL {
        function.get();
    }
}

macro_rules! functions {
    ($($name:ident)*) => {
        #[allow(non_upper_case_globals, reason = "they are named as the functions are")]
        pub(crate) mod function {
            use super::Function;
            $(pub(crate) static $name: Function = Function::new(
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero"),
                },
            );)*
        }

        static ALL: &[&Function] = &[$(&function::$name),*];
    };
}

functions! {
    __poll_chk __ppoll_chk __read_chk __recv_chk __recvfrom_chk _exit accept accept4 bind close close_range dup dup2 dup3
    connect epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait fclose fcntl fcntl64 freopen freopen64 ioctl poll ppoll pselect
    read readv recv recvfrom recvmmsg recvmsg select sendmmsg sendmsg setsockopt shutdown socket socketpair
}

/// What a function returns that this C library does not have. A program that looks up newer functions finds the hook.
pub(crate) trait Missing {
    fn missing() -> Self;
}

impl Missing for c_int {
    fn missing() -> Self {
        set_errno(libc::ENOSYS)
    }
}

impl Missing for ssize_t {
    fn missing() -> Self {
        set_errno(libc::ENOSYS) as Self
    }
}

impl<T> Missing for *mut T {
    fn missing() -> Self {
        set_errno(libc::ENOSYS);
        null_mut()
    }
}

impl Missing for () {
    fn missing() -> Self {}
}

/// Calls the function of the C library that has that name.
macro_rules! real {
    ($name:ident($($argument:ident),* $(,)?) as fn($($type:ty),*) -> $result:ty) => {{
        let found = $crate::real::function::$name.get();
        if found.is_null() {
            <$result as $crate::real::Missing>::missing()
        } else {
            type Of = unsafe extern "C-unwind" fn($($type),*) -> $result;
            // SAFETY: the C library declares a function of that name so.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Of>(found) };
            // SAFETY: the caller's promises are those of the function.
            unsafe { function($($argument),*) }
        }
    }};
}

pub(crate) use real;

/// What calls with a lease end in.
pub(crate) static KERNEL: Kernel = Kernel { recvfrom, recvmsg, recvmmsg, ppoll, pselect, epoll_pwait };

/// # Safety
/// As for `recvfrom(2)`.
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    real!(recvfrom(fd, buffer, len, flags, address, address_len)
        as fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)
}

/// # Safety
/// As for `recvmsg(2)`.
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    real!(recvmsg(fd, message, flags) as fn(c_int, *mut msghdr, c_int) -> ssize_t)
}

/// # Safety
/// As for `recvmmsg(2)`.
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    real!(recvmmsg(fd, messages, count, flags, timeout)
        as fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int)
}

/// # Safety
/// As for `ppoll(2)`.
unsafe extern "C-unwind" fn ppoll(
    waited: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    real!(ppoll(waited, count, timeout, mask)
        as fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int)
}

/// # Safety
/// As for `pselect(2)`.
unsafe extern "C-unwind" fn pselect(
    limit: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    real!(pselect(limit, read, write, except, timeout, mask)
        as fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int)
}

/// # Safety
/// As for `epoll_pwait(2)`.
unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    real!(epoll_pwait(set, events, count, timeout_ms, mask)
        as fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int)
}
