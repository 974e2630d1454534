//! What a wake-up costs on this machine, with and without a CPU latency request.
//!
//! Machines differ: on one virtual machine the request takes a wake-up from 40 us down to 2, on its twin it does nothing. So
//! it is measured before it is used.

use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use twinpath_sys::{EventFd, LatencyRequest, affinity, clock};

/// Wake-ups measured per side. Each takes up to 100 us on a machine with deep idle states: 13 ms in all.
const ROUNDS: usize = 64;

/// One wake-up across CPUs (half a blocking eventfd ping-pong), median, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeCost {
    /// Without a request.
    pub without_ns: u64,
    /// With one for 0 us; `None` if the system refuses requests.
    pub with_ns: Option<u64>,
}

impl WakeCost {
    /// Whether holding a request is worth it: it takes at least a fifth off.
    #[must_use]
    pub fn request_helps(&self) -> bool {
        self.with_ns.is_some_and(|with| with * 5 <= self.without_ns * 4)
    }
}

/// Measures, in about 15 ms. `None` where it can't be (no second CPU, no fd left).
#[must_use]
pub fn measure_wake_cost() -> Option<WakeCost> {
    let cpus = affinity::allowed_cpus().ok()?;
    let [near, far] = [*cpus.first()?, *cpus.get(1)?];
    let without_ns = wake_ns(near, far).ok()??;
    let with_ns = match LatencyRequest::open(0) {
        Ok(_held) => wake_ns(near, far).ok()?,
        Err(_) => None,
    };
    Some(WakeCost { without_ns, with_ns })
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
    fn a_fifth_off_is_worth_a_request() {
        let cost = |without_ns, with_ns| WakeCost { without_ns, with_ns };
        assert!(cost(40_000, Some(2_000)).request_helps());
        assert!(cost(10, Some(8)).request_helps());
        assert!(!cost(10, Some(9)).request_helps());
        assert!(!cost(10, None).request_helps());
    }
}
