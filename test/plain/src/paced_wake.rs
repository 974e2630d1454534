//! Measures the least that one wake-up costs at a given rate: a thread that spins until a signal is due wakes one
//! that sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hdrhistogram::Histogram;
use twinpath_load::{Arrivals, Schedule, Summary};
use twinpath_socket_load::{SocketError, Stop};
use twinpath_sys::{EventFd, affinity, clock};
use twinpath_time::{Duration, Instant};

use crate::PlainError;

/// When to signal, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Signals per second.
    pub rate_per_s: f64,
    /// How they are distributed over time.
    pub arrivals: Arrivals,
    /// The seed of the distribution.
    pub seed: u64,
    /// Signals in this first period are not recorded.
    pub warmup: Duration,
    /// The period after it.
    pub length: Duration,
}

/// A value above any sum of a run's signals; it ends the other thread.
const LAST: u64 = 1 << 32;

/// Signals at `pace` from a thread on `from_cpu` that spins; a thread on `to_cpu` sleeps in between. Returns the
/// times, ns, from just before the signalling system call until the other thread has read the clock. Stops early when
/// `stop` is requested.
///
/// # Errors
/// An impossible pace, no eventfd, no thread, or a CPU that may not be used.
pub fn paced_wake(
    from_cpu: usize,
    to_cpu: usize,
    pace: &Pace,
    stop: &Stop,
) -> Result<Histogram<u64>, PlainError> {
    let event = EventFd::new_blocking().map_err(|error| PlainError::EventFd(error.into()))?;
    let signalled_ns = AtomicU64::new(0);
    let outcome = thread::scope(|scope| {
        // Separate threads, so that the caller stays on its CPU.
        let waking = thread::Builder::new().spawn_scoped(scope, || wake(to_cpu, &event, &signalled_ns))?;
        let signalling = thread::Builder::new()
            .spawn_scoped(scope, || signal(from_cpu, pace, stop, &event, &signalled_ns));
        let signalled = signalling.map(join);
        event.signal_many(LAST);
        let woken = join(waking);
        signalled.map(|signalled| signalled.and(woken))
    });
    outcome.map_err(SocketError::Thread)?
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Signals, and tells the other thread the time of the signal; 0 for one that is not to be recorded.
fn signal(
    cpu: usize,
    pace: &Pace,
    stop: &Stop,
    event: &EventFd,
    signalled_ns: &AtomicU64,
) -> Result<(), PlainError> {
    affinity::pin_current_thread(cpu)?;
    let started = clock::now();
    let (measured_from, until) = (started + pace.warmup, started + pace.warmup + pace.length);
    let mut schedule = Schedule::new(pace.arrivals, pace.rate_per_s, pace.seed, started)?;
    loop {
        let mut now = clock::now();
        while now < schedule.due() && now < until {
            std::hint::spin_loop();
            now = clock::now();
        }
        if now >= until || stop.is_requested() {
            return Ok(());
        }
        let counts = schedule.due() >= measured_from;
        schedule.advance();
        signalled_ns.store(if counts { clock::now().as_nanos() } else { 0 }, Ordering::Release);
        event.signal();
    }
}

fn wake(cpu: usize, event: &EventFd, signalled_ns: &AtomicU64) -> Result<Histogram<u64>, PlainError> {
    affinity::pin_current_thread(cpu)?;
    let mut histogram = Summary::empty().histogram;
    loop {
        let waiting = clock::now();
        let signals = event.drain();
        let now = clock::now();
        if signals >= LAST {
            return Ok(histogram);
        }
        let signalled = Instant::from_nanos(signalled_ns.load(Ordering::Acquire));
        // A signal that found this thread awake is no wake-up. If several came at once, or the next one since, the latest
        // has overwritten the others.
        if signals == 1 && signalled > waiting && signalled <= now {
            histogram.saturating_record(now.nanos_since(signalled));
        }
    }
}
