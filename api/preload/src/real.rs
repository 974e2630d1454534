//! The functions that the hooks take the place of.
#![allow(unsafe_code, reason = "functions are found by name, and called by pointers")]

use std::ffi::{CStr, c_void};

use libc::{
    c_int, c_uint, epoll_event, fd_set, mmsghdr, msghdr, nfds_t, pollfd, sigset_t, ssize_t, timespec,
};
use twinpath_calls::Kernel;

/// The next function of that name after this library's. The process ends if there is none: then nothing could be called.
#[cold]
pub(crate) fn find(name: &CStr) -> *mut c_void {
    // SAFETY: it is a string of C.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        std::process::abort();
    }
    found
}

/// Calls the function of the C library that has that name. Most calls of a program have nothing to do with this library, so it costs
/// a load and a jump: the first call goes to a function that looks for the other one.
macro_rules! real {
    ($name:ident($($argument:ident),* $(,)?) as fn($($type:ty),*) -> $result:ty) => {{
        type Of = unsafe extern "C-unwind" fn($($type),*) -> $result;
        static FUNCTION: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(look_up as Of as *mut std::ffi::c_void);
        #[cold]
        unsafe extern "C-unwind" fn look_up($($argument: $type),*) -> $result {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero"),
                };
            let found = $crate::real::find(NAME);
            FUNCTION.store(found, std::sync::atomic::Ordering::Relaxed);
            // SAFETY: the C library declares a function of that name so.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Of>(found) };
            // SAFETY: the caller's promises are those of the function.
            unsafe { function($($argument),*) }
        }
        let function = FUNCTION.load(std::sync::atomic::Ordering::Relaxed);
        // SAFETY: it is the function above, or the one that it has found.
        let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Of>(function) };
        // SAFETY: the caller's promises are those of the function.
        unsafe { function($($argument),*) }
    }};
}

pub(crate) use real;

/// What calls with a lease end in.
pub(crate) static KERNEL: Kernel = Kernel { recvmsg, recvmmsg, ppoll, pselect, epoll_pwait };

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
