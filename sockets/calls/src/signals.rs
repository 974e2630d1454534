//! Signals while a call spins. They are held back, and checked as often as the kernel is asked. So a call that spins is
//! interrupted like one that sleeps.
#![allow(unsafe_code, reason = "sets of signals are passed to the C library by pointers")]

use std::mem::MaybeUninit;

use libc::{c_int, sigset_t};
use twinpath_sys::signals::HeldBack;

/// Signals are held back, as long as this exists.
pub(crate) struct Blocked(HeldBack);

/// What signals that have come do to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing, or the end of the process: no handler is called.
    None,
    /// A handler is called, and the call goes on if its kind can.
    Restarts,
    /// A handler is called, and the call is interrupted.
    Interrupts,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        Self(HeldBack::new())
    }

    /// The signals that were held back before.
    pub(crate) const fn before(&self) -> &sigset_t {
        self.0.before()
    }

    /// Whether a signal has come that `mask` lets through.
    pub(crate) fn has_come(mask: &sigset_t) -> bool {
        let pending = pending();
        signals().any(|signal| is_in(&pending, signal) && !is_in(mask, signal))
    }

    /// What the signals that have come do once they are no longer held back.
    pub(crate) fn effect(&self) -> Effect {
        let pending = pending();
        let mut effect = Effect::None;
        for signal in signals().filter(|signal| is_in(&pending, *signal) && !is_in(self.before(), *signal)) {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: `action` is filled by the call; all zeros are a valid value of it.
            let action = unsafe {
                libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
                action.assume_init()
            };
            if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
                continue;
            }
            if action.sa_flags & libc::SA_RESTART == 0 {
                return Effect::Interrupts;
            }
            effect = Effect::Restarts;
        }
        effect
    }
}

fn signals() -> impl Iterator<Item = c_int> {
    1..=64
}

fn pending() -> sigset_t {
    let mut pending = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: `pending` is filled by the call; all zeros are an empty set.
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        pending.assume_init()
    }
}

fn is_in(set: &sigset_t, signal: c_int) -> bool {
    // SAFETY: `set` is a set that the C library has filled.
    unsafe { libc::sigismember(std::ptr::from_ref(set), signal) == 1 }
}
