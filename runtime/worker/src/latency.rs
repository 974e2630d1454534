//! What a wake-up costs on this machine, with and without a CPU latency request.
//!
//! Machines differ: on one virtual machine the request takes a wake-up from 40 us down to 2, on its twin it does nothing. So
//! it is measured before it is used.

use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use twinpath_sys::{EventFd, LatencyRequest, affinity, clock};
use twinpath_time::Duration;

use crate::sleep::Sleeper;

/// Wake-ups per sample, and pairs of samples. A wake-up takes up to 100 us on a machine with deep idle states.
const ROUNDS: usize = 16;
const PAIRS: usize = 5;

/// What a request did lasts beyond its end, until the next tick of an idle CPU (4 ms at HZ=250): a sample without one comes
/// after a rest.
const REST: Duration = Duration::from_millis(12);

/// One wake-up across CPUs (half a blocking eventfd ping-pong), median over all pairs, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeCost {
    /// Without a request.
    pub without_ns: u64,
    /// With one for 0 us; `None` if the system refuses requests.
    pub with_ns: Option<u64>,
    /// Whether holding one is worth it.
    pub request_helps: bool,
}

impl WakeCost {
    /// Judges pairs of neighbouring samples, `(without, with)` in ns; `None` for the second where requests are refused.
    ///
    /// A request is worth it if it takes at least a fifth off in most pairs. Other work on the machine hides the gain, as a CPU
    /// that is never idle has no idle state to leave: so half off in a quarter of the pairs is enough as well.
    fn of(pairs: &[(u64, Option<u64>)]) -> Option<Self> {
        let without_ns = quantile(pairs.iter().map(|pair| pair.0).collect(), 2)?;
        let with_ns =
            pairs.iter().map(|pair| pair.1).collect::<Option<Vec<_>>>().and_then(|with| quantile(with, 2));
        let permille =
            |(without, with): &(u64, Option<u64>)| with.map(|with| with * 1000 / (*without).max(1));
        let ratios = || pairs.iter().filter_map(permille).collect::<Vec<_>>();
        let (typical, best) = (quantile(ratios(), 2), quantile(ratios(), 4));
        let request_helps =
            typical.is_some_and(|typical| typical <= 800) || best.is_some_and(|best| best <= 500);
        Some(Self { without_ns, with_ns, request_helps })
    }
}

/// The value that one in `part` of the values is not above.
fn quantile(mut values: Vec<u64>, part: usize) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / part).copied()
}

/// Measures, in some 70 ms. `None` where it can't be (no second CPU, no fd left).
#[must_use]
pub fn measure_wake_cost() -> Option<WakeCost> {
    let cpus = affinity::allowed_cpus().ok()?;
    let [near, far] = [*cpus.first()?, *cpus.get(1)?];
    let mut pairs = Vec::with_capacity(PAIRS);
    let mut rest = Sleeper::new().ok()?;
    for _ in 0..PAIRS {
        rest.sleep(clock::now() + REST);
        let without = wake_ns(near, far).ok()??;
        let with = match LatencyRequest::open(0) {
            Ok(_held) => wake_ns(near, far).ok()?,
            Err(_) => None,
        };
        pairs.push((without, with));
    }
    WakeCost::of(&pairs)
}

/// The median of half round trips between two threads on these CPUs.
fn wake_ns(near: usize, far: usize) -> Result<Option<u64>, Errno> {
    let there = Arc::new(EventFd::new_blocking()?);
    let back = Arc::new(EventFd::new_blocking()?);
    let (echo_in, echo_out) = (Arc::clone(&there), Arc::clone(&back));
    let echo = thread::spawn(move || {
        // A refused placement only makes the figure a same-CPU one.
        let _ = affinity::pin_current_thread(far);
        for _ in 0..ROUNDS {
            echo_in.drain();
            echo_out.signal();
        }
    });
    let driver = thread::spawn(move || {
        let _ = affinity::pin_current_thread(near);
        let mut samples: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                let start = clock::now();
                there.signal();
                back.drain();
                clock::now().nanos_since(start) / 2
            })
            .collect();
        samples.sort_unstable();
        samples[ROUNDS / 2]
    });
    let median = driver.join().ok();
    // The echo ends after as many rounds as the driver, which has ended.
    let _ = echo.join();
    Ok(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_off_is_worth_a_request_also_among_other_work() {
        let helps = |pairs: &[(u64, u64)]| {
            let pairs: Vec<_> = pairs.iter().map(|(without, with)| (*without, Some(*with))).collect();
            WakeCost::of(&pairs).expect("there are pairs").request_helps
        };
        assert!(helps(&[(40_000, 2_000); 8]));
        assert!(helps(&[(10, 8); 8]));
        assert!(!helps(&[(10, 9); 8]));
        // A busy machine: most samples find no idle CPU.
        assert!(helps(&[(16, 16), (16, 15), (40, 4), (16, 17), (15, 16), (42, 4), (16, 16), (41, 3)]));
        assert!(!helps(&[(16, 16), (16, 15), (40, 30), (16, 17), (15, 16), (30, 40), (16, 16), (16, 16)]));
    }

    #[test]
    fn a_refused_request_never_helps() {
        let cost = WakeCost::of(&[(40_000, None); 8]).expect("there are pairs");
        assert_eq!((cost.with_ns, cost.request_helps), (None, false));
        assert_eq!(WakeCost::of(&[]), None);
    }
}
