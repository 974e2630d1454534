//! Limits the rate of replies to one source that are as large as its requests.
//!
//! With a forged source, a datagram can make two services that answer everything answer each other for ever, as
//! fast as both can (CERT CA-1996-01). A reply that is at least as large as its request keeps such a loop going,
//! and makes forged sources attractive for amplification. So each source has a rate of such replies; above it they
//! are dropped. A loop needs every one of its datagrams, so a loop that exceeds the limit ends at the first drop,
//! and slower ones cost no more than the limit.
//!
//! Sources share a fixed table by a keyed hash. Nothing grows under forged sources, nobody can choose sources that
//! share an entry, and an honest source shares the entry of a loop with a probability of 1 in [`PLACES`].

use std::hash::BuildHasher as _;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use twinpath_time::Instant;

/// Entries of the table: 64 KiB.
pub const PLACES: usize = 8192;

/// The burst allowed after silence: replies for this time, ns.
const BURST_NS: u64 = 200_000_000;

/// The reply rates of all sources, for one worker.
///
/// Each entry is a token bucket stored as one number, the time at which it is full again (the virtual scheduling
/// algorithm of ITU-T I.371).
#[derive(Debug)]
pub struct ReplyLimit {
    /// In ns of the clock of [`Instant`].
    full_at_ns: Box<[u64; PLACES]>,
    hash: FixedState,
    /// Time that one reply takes from the bucket, ns.
    interval_ns: u64,
}

impl ReplyLimit {
    /// Allows at most `per_s` replies a second to one source (an IPv4 address, or a /64 of IPv6), at least 1. `seed`
    /// keys the hash and must be secret.
    #[must_use]
    pub fn new(per_s: u32, seed: u64) -> Self {
        let interval_ns = 1_000_000_000 / u64::from(per_s.max(1));
        Self { full_at_ns: Box::new([0; PLACES]), hash: FixedState::with_seed(seed), interval_ns }
    }

    /// Whether one more reply may be sent to `source` at `now`; counts it if so.
    #[inline]
    pub fn allows(&mut self, source: IpAddr, now: Instant) -> bool {
        let place = self.hash.hash_one(key(source)) as usize % PLACES;
        let (full_at_ns, now_ns) = (&mut self.full_at_ns[place], now.as_nanos());
        let owed_ns = full_at_ns.saturating_sub(now_ns);
        if owed_ns >= BURST_NS {
            if owed_ns <= BURST_NS + self.interval_ns {
                return false;
            }
            // Only a clock that went back can put it this far ahead.
            *full_at_ns = now_ns;
        }
        *full_at_ns = now_ns.max(*full_at_ns).saturating_add(self.interval_ns);
        true
    }
}

/// The key of a source; an IPv6 host counts as its whole /64.
#[inline]
const fn key(source: IpAddr) -> u64 {
    match source {
        IpAddr::V4(v4) => v4.to_bits() as u64,
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests;
