//! Measures the least that a wake-up between two threads costs: two threads, two eventfds, nothing else.

use std::thread;

use hdrhistogram::Histogram;
use twinpath_load::{Limit, Summary};
use twinpath_socket_load::{SocketError, Stop, Wait};
use twinpath_sys::{EventFd, affinity, clock};

use crate::PlainError;

/// Bounces a signal between a thread on `cpu_a` and one on `cpu_b`; returns the round-trip times in ns.
///
/// A further tenth of the `limit` is spent first on a warm-up that is not recorded. Stops early when `stop` is
/// requested.
///
/// # Errors
/// No eventfd, no thread, or a CPU that may not be used.
pub fn eventfd_pingpong(
    cpu_a: usize,
    cpu_b: usize,
    limit: Limit,
    wait: Wait,
    stop: &Stop,
) -> Result<Histogram<u64>, PlainError> {
    let make = || match wait {
        Wait::Sleep => EventFd::new_blocking(),
        Wait::Spin | Wait::SpinThenSleep(_) => EventFd::new(),
    };
    let there = make().map_err(|error| PlainError::EventFd(error.into()))?;
    let back = make().map_err(|error| PlainError::EventFd(error.into()))?;
    let mut histogram = Summary::empty().histogram;
    let outcome = thread::scope(|scope| {
        // Separate threads, so that the caller stays on its CPU.
        let answering = thread::Builder::new().spawn_scoped(scope, || answer(cpu_b, &there, &back))?;
        let asking = thread::Builder::new().spawn_scoped(scope, || {
            let asked = ask(cpu_a, limit, stop, &there, &back, &mut histogram);
            there.signal_many(LAST);
            asked
        });
        let asked = asking.map(join);
        there.signal_many(LAST);
        asked.map(|asked| asked.and(join(answering)))
    });
    outcome.map_err(SocketError::Thread)??;
    Ok(histogram)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A value above any sum of signals; it ends the other thread.
const LAST: u64 = 1 << 32;

fn ask(
    cpu: usize,
    limit: Limit,
    stop: &Stop,
    there: &EventFd,
    back: &EventFd,
    histogram: &mut Histogram<u64>,
) -> Result<(), PlainError> {
    affinity::pin_current_thread(cpu)?;
    let started = clock::now();
    let mut begun = started;
    for round in 0.. {
        let (is_warm, is_over) = match limit {
            Limit::Count(count) => (round >= count / 10, round >= count + count / 10),
            Limit::Duration(length) => {
                (begun >= started + length / 10, begun >= started + length + length / 10)
            }
        };
        if is_over || stop.is_requested() {
            break;
        }
        there.signal();
        if take(back) >= LAST {
            break;
        }
        let now = clock::now();
        if is_warm {
            histogram.saturating_record(now.nanos_since(begun));
        }
        begun = now;
    }
    Ok(())
}

fn answer(cpu: usize, there: &EventFd, back: &EventFd) -> Result<(), PlainError> {
    let pinned = affinity::pin_current_thread(cpu);
    if pinned.is_err() {
        back.signal_many(LAST);
        return Ok(pinned?);
    }
    while take(there) < LAST {
        back.signal();
    }
    Ok(())
}

/// Takes a signal: sleeps if the eventfd blocks, else tries until there is one.
fn take(event: &EventFd) -> u64 {
    loop {
        match event.drain() {
            0 => {}
            signals => return signals,
        }
    }
}
