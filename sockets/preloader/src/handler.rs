//! Whether the caller is a signal handler. Giving a socket a lease allocates, and the handler may have interrupted an
//! allocation. So the lease is put off until the program itself calls.
#![allow(unsafe_code, reason = "the C library and the unwinder are asked by pointers")]

use core::ffi::c_void;
use core::mem::MaybeUninit;

use libc::{c_int, sigset_t};

/// Maximum number of calls between the hook and the handler that called it: those of this library, and of the program.
const FRAMES_MAX: u32 = 64;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(context: *mut c_void, walk: *mut c_void) -> c_int,
        walk: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before: *mut c_int) -> usize;
}

/// Whether a handler of a signal has called, as far as that can be told. It neither allocates nor takes a lock.
#[must_use]
pub fn is_running() -> bool {
    is_on_own_stack() || may_run() && has_interrupted()
}

/// Whether this thread is on the stack that it has set aside for handlers.
fn is_on_own_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: there is room for what is in force, of which zeros are a valid value.
    let stack = unsafe {
        libc::sigaltstack(core::ptr::null(), stack.as_mut_ptr());
        stack.assume_init()
    };
    stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Whether a handler may be running: while one does, its signal is held back, if its program has not said otherwise (SA_NODEFER). Most
/// programs hold nothing back for which they have a handler, so that the stack of these is not looked at.
fn may_run() -> bool {
    let mut held_back = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the set is filled by the call; zeros are an empty one.
    let held_back = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), held_back.as_mut_ptr());
        held_back.assume_init()
    };
    (1..=64).any(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: it is filled by the call, and zeros are a valid value of it; the set was filled above.
        let (action, is_held_back) = unsafe {
            libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr());
            (action.assume_init(), libc::sigismember(&raw const held_back, signal) == 1)
        };
        let has_handler = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        has_handler && (is_held_back || action.sa_flags & libc::SA_NODEFER != 0)
    })
}

struct Walk {
    frames: u32,
    has_interrupted: bool,
}

/// Whether a frame of the stack was interrupted, instead of having called the one above it.
fn has_interrupted() -> bool {
    extern "C" fn look(context: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: it is the value below, which nobody else has meanwhile.
        let walk = unsafe { &mut *walk.cast::<Walk>() };
        let mut is_before = 0;
        // SAFETY: the unwinder passes its context, and there is room for the answer.
        unsafe { _Unwind_GetIPInfo(context, &raw mut is_before) };
        walk.frames += 1;
        walk.has_interrupted |= is_before != 0;
        c_int::from(walk.has_interrupted || walk.frames >= FRAMES_MAX)
    }
    let mut walk = Walk { frames: 0, has_interrupted: false };
    // SAFETY: the function takes what is passed with it, which lives until the call returns.
    unsafe { _Unwind_Backtrace(look, (&raw mut walk).cast()) };
    walk.has_interrupted
}
