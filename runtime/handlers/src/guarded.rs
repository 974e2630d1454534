//! The service as the engine calls it: a panic in a callback is caught, counted and kept for the log.

use twinpath_inspect::Reason;
use twinpath_thread::panics;
use twinpath_time::{Duration, Instant};

/// The least time between two panics that control is told of. All are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Panics of a service's callback, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The callback of the first one.
    pub callback: &'static str,
    /// What that one said, and where it was.
    pub why: String,
    /// How many there have been since the last ones that were told of.
    pub count: u64,
}

/// A service whose callbacks may panic. It goes on as the panic has left it.
pub struct Guarded<S> {
    service: S,
    panicked: Option<Panicked>,
    tell_at: Instant,
}

impl<S> Guarded<S> {
    /// A service that has not panicked.
    #[must_use]
    pub const fn new(service: S) -> Self {
        Self { service, panicked: None, tell_at: Instant::ZERO }
    }

    /// Calls the service.
    ///
    /// # Errors
    /// The reason to count what it was called for under, if it panicked.
    #[inline]
    pub fn call<R>(&mut self, callback: &'static str, call: impl FnOnce(&mut S) -> R) -> Result<R, Reason> {
        let service = &mut self.service;
        panics::caught(|| call(service)).map_err(|why| self.failed(callback, why))
    }

    /// Takes note of a panic; the reason to count it under.
    #[cold]
    pub fn failed(&mut self, callback: &'static str, why: String) -> Reason {
        let first = || Panicked { callback, why, count: 0 };
        self.panicked.get_or_insert_with(first).count += 1;
        Reason::HandlerFailed
    }

    /// Panics that control is to be told of now.
    #[inline]
    pub fn panicked(&mut self, now: Instant) -> Option<Panicked> {
        if self.panicked.is_none() || now < self.tell_at {
            return None;
        }
        self.tell_at = now + TELL_INTERVAL;
        self.panicked.take()
    }
}
