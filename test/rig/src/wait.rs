//! Waiting for events that come without a notification.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};

/// Longest wait for an event: for what hangs. What is only slow comes within it, also on a machine that others load.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at a condition. Without a pause the test would take the CPU from the program that it waits for.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Waits until a condition holds that the kernel or a peer brings about without a notification.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(PATIENCE, what, so);
}

/// The same with another deadline.
///
/// # Panics
/// If it does not hold in time.
pub fn until_within(patience: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < patience, "{what} did not happen within {patience:?}");
        // An exact deadline, and interrupted is as good as over.
        let _ = poll(&mut [], Some(&PAUSE));
    }
}

/// Measures how late threads run on this machine meanwhile, for a test that times something: its bound is that of a machine at
/// leisure, and what the machine was late beside.
#[derive(Debug)]
pub struct Lateness {
    begun: Instant,
    looks: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lateness {
    /// Between two looks of the thread that is measured: so long that what a timer is always late by counts for little.
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

    /// Threads that run one after the other between two events that a test sees: its own, workers, control and the kernel's.
    const THREADS: u32 = 4;

    /// Begins to measure.
    #[must_use]
    pub fn measure() -> Self {
        let (looks, is_over) = <(Arc<AtomicU32>, Arc<AtomicBool>)>::default();
        let (looked, ends) = (Arc::clone(&looks), Arc::clone(&is_over));
        let begun = Instant::now();
        let thread = spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let _ = poll(&mut [], Some(&Self::PAUSE));
                looked.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { begun, looks, is_over, thread: Some(thread) }
    }

    /// A bound for what has happened since the beginning.
    #[must_use]
    pub fn allows(&self, at_leisure: Duration) -> Duration {
        let looks = self.looks.load(Ordering::Relaxed);
        let paused = looks * Duration::from_nanos(Self::PAUSE.tv_nsec.unsigned_abs());
        at_leisure + Self::THREADS * self.begun.elapsed().saturating_sub(paused)
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_waited_for_and_has_a_deadline() {
        let mut looks = 0;
        until("three looks", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
        let waits = || until_within(Duration::from_millis(5), "nothing", || false);
        let said = std::panic::catch_unwind(waits).unwrap_err();
        assert_eq!(said.downcast_ref::<String>().unwrap(), "nothing did not happen within 5ms");
    }

    #[test]
    fn a_bound_grows_by_what_a_thread_is_late_and_not_by_what_it_waits() {
        let mut lateness = Lateness::measure();
        until("it has looked", || lateness.looks.load(Ordering::Relaxed) > 20);
        let (bound, passed) = (lateness.allows(Duration::ZERO), lateness.begun.elapsed());
        assert!(bound < Lateness::THREADS * (passed - Duration::from_millis(100)), "{bound:?} of {passed:?}");
        // A thread that does not run at all.
        lateness.is_over.store(true, Ordering::Relaxed);
        lateness.thread.take().unwrap().join().unwrap();
        let (before, from) = (lateness.allows(Duration::ZERO), lateness.begun.elapsed());
        until("time passes", || lateness.begun.elapsed() > from + Duration::from_millis(20));
        assert!(lateness.allows(Duration::ZERO) >= before + Duration::from_millis(20));
    }
}
