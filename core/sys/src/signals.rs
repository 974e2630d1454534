//! Blocks signals on a thread during work that they must not interrupt.
#![allow(unsafe_code, reason = "sets of signals are passed to the C library by pointers")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use libc::{c_int, sigset_t};

/// Faults of the thread itself. If they come while blocked, the kernel ends the process, whatever handler there is.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Blocks all signals except faults on the thread that made it, while this exists. They are delivered afterwards,
/// or to another thread of the process.
pub struct HeldBack {
    before: sigset_t,
    /// The mask is the thread's.
    stays_here: PhantomData<*const ()>,
}

impl HeldBack {
    /// Blocks them from now on.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it acts on the thread")]
    pub fn new() -> Self {
        let mut all = MaybeUninit::<sigset_t>::uninit();
        let mut before = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: both are sets that the calls fill; the C library leaves out those that it needs itself.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            FAULTS.iter().for_each(|fault| {
                libc::sigdelset(all.as_mut_ptr(), *fault);
            });
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, stays_here: PhantomData }
    }

    /// The signals that were blocked before.
    #[must_use]
    pub const fn before(&self) -> &sigset_t {
        &self.before
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by the same call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
