//! Token buckets for what a port has flooded (storm control), and for what it has sent to OpenFlow's controllers.
//!
//! A bucket is one word, the time at which it would be full again (GCRA, ITU-T I.371): all workers that receive from the
//! port share it, so that the limit holds for the port.

use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_time::Instant;

/// The kinds of frames, each with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Broadcast,
    Unknown,
    Multicast,
}

/// The share of a second that may come at once.
const BURST_PER_S: u64 = 10;

const NS_PER_S: u64 = 1_000_000_000;

/// A limit as a bucket needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Time per packet, ns; 0: nothing is allowed.
    interval_ns: u64,
    /// How far packets may run ahead of the rate.
    burst_ns: u64,
}

impl Limit {
    /// Nothing is allowed.
    pub const NOTHING: Self = Self { interval_ns: 0, burst_ns: 0 };

    /// A limit of packets per second. A tenth of a second's packets may come at once, and at least one.
    #[must_use]
    pub fn new(per_s: u32) -> Self {
        let Some(interval_ns) = NS_PER_S.checked_div(u64::from(per_s)) else {
            return Self::NOTHING;
        };
        let interval_ns = interval_ns.max(1);
        let burst = (u64::from(per_s) / BURST_PER_S).max(1);
        Self { interval_ns, burst_ns: interval_ns * (burst - 1) }
    }
}

/// One bucket.
#[derive(Debug, Default)]
pub(crate) struct Bucket(AtomicU64);

/// How often a worker retries if another one has taken from the same bucket at that moment.
const TRIES: usize = 8;

impl Bucket {
    /// Takes tokens for a frame of this many packets, if there is one for the first of them. A super-frame passes as a
    /// whole, and the bucket then goes into debt.
    #[inline]
    pub(crate) fn allows(&self, limit: Limit, now: Instant, packets: u32) -> bool {
        if limit.interval_ns == 0 {
            return false;
        }
        let now_ns = now.as_nanos();
        let cost_ns = limit.interval_ns.saturating_mul(u64::from(packets.max(1)));
        let mut full_at = self.0.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            if full_at > now_ns.saturating_add(limit.burst_ns) {
                return false;
            }
            let next = full_at.max(now_ns).saturating_add(cost_ns);
            match self.0.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => full_at = other,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(bucket: &Bucket, limit: Limit, from_ns: u64, count: u64, every_ns: u64) -> u64 {
        let at = |number| Instant::from_nanos(from_ns + number * every_ns);
        (0..count).filter(|number| bucket.allows(limit, at(*number), 1)).count() as u64
    }

    #[test]
    fn a_tenth_of_a_second_may_come_at_once_and_then_the_rate() {
        let (bucket, limit) = (Bucket::default(), Limit::new(1000));
        assert_eq!(passed(&bucket, limit, NS_PER_S, 500, 0), 100);
        assert_eq!(passed(&bucket, limit, NS_PER_S, 10_000, 100_000), 1000 - 1);
    }

    #[test]
    fn one_packet_a_second_is_one() {
        let (bucket, limit) = (Bucket::default(), Limit::new(1));
        assert_eq!(passed(&bucket, limit, 5 * NS_PER_S, 10, 0), 1);
        assert_eq!(passed(&bucket, limit, 5 * NS_PER_S, 100, NS_PER_S / 10), 9);
    }

    #[test]
    fn a_limit_of_zero_lets_nothing_through() {
        assert_eq!(passed(&Bucket::default(), Limit::new(0), 0, 10, NS_PER_S), 0);
    }

    #[test]
    fn a_super_frame_goes_whole_and_leaves_a_debt() {
        let (bucket, limit) = (Bucket::default(), Limit::new(100));
        assert!(bucket.allows(limit, Instant::from_nanos(NS_PER_S), 60));
        assert!(!bucket.allows(limit, Instant::from_nanos(NS_PER_S), 1));
        assert_eq!(passed(&bucket, limit, NS_PER_S, 1, 0), 0);
        assert!(bucket.allows(limit, Instant::from_nanos(NS_PER_S * 3 / 2 + 10_000_000), 1));
    }
}
