//! The service as the engine calls it: a panic in a callback is caught, counted and kept for the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use twinpath_inspect::Reason;
use twinpath_time::{Duration, Instant};
use twinpath_worker::thread::panics;

/// Minimum time between reports of panics to control. All panics are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Panics of a service's callback, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The callback of the first panic.
    pub callback: &'static str,
    /// The message of the first panic, and its location.
    pub why: String,
    /// Number of panics since the last report to control.
    pub count: u64,
}

/// A service whose callbacks may panic. It continues in the state that the panic has left.
pub struct Guarded<S> {
    service: S,
    /// Whether a callback has been called and has not returned.
    called: Arc<AtomicBool>,
    panicked: Option<Panicked>,
    tell_at: Instant,
}

impl<S> Guarded<S> {
    /// A service that has not panicked; `called` tells other threads whether one of its callbacks has not returned.
    #[must_use]
    pub const fn new(service: S, called: Arc<AtomicBool>) -> Self {
        Self { service, called, panicked: None, tell_at: Instant::ZERO }
    }

    /// The service, for calls that cannot panic.
    #[inline]
    pub const fn get(&self) -> &S {
        &self.service
    }

    /// Calls the service.
    ///
    /// # Errors
    ///
    /// If it panicked: the reason under which to count the request.
    #[inline]
    pub fn call<R>(&mut self, callback: &'static str, call: impl FnOnce(&mut S) -> R) -> Result<R, Reason> {
        let service = &mut self.service;
        // Relaxed: it is read when the worker has not turned for long.
        self.called.store(true, Ordering::Relaxed);
        let outcome = panics::caught(|| call(service));
        self.called.store(false, Ordering::Relaxed);
        outcome.map_err(|why| self.failed(callback, why))
    }

    /// Records a panic; returns the reason under which to count it.
    #[cold]
    pub fn failed(&mut self, callback: &'static str, why: String) -> Reason {
        let first = || Panicked { callback, why, count: 0 };
        self.panicked.get_or_insert_with(first).count += 1;
        Reason::HandlerFailed
    }

    /// The panics to report to control now, if there are any.
    #[inline]
    pub fn panicked(&mut self, now: Instant) -> Option<Panicked> {
        if self.panicked.is_none() || now < self.tell_at {
            return None;
        }
        self.tell_at = now + TELL_INTERVAL;
        self.panicked.take()
    }
}
