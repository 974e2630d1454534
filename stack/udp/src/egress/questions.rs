//! Selects the new peers about which control is asked. An answer takes control about 150 us, and with forged
//! sources each datagram comes from a new peer.
//!
//! Most forged sources come once, while honest peers send again. So beyond a low rate, control is asked about a
//! peer only when it sends for the second time, and even then at a bounded rate. A question about a peer that sends
//! once is useless: its reply has left through the kernel's socket before the answer comes.

use std::hash::BuildHasher as _;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use twinpath_time::{Duration, Instant};

/// Maximum number of new peers per second about which control is asked: as many as it can answer beside its other
/// work.
pub const QUESTIONS_PER_S: u64 = 256;

/// Maximum burst of questions after a quiet time: when routes have changed, a worker asks about all peers in use.
pub const QUESTIONS_BURST: u32 = 2048;

/// Maximum number of new peers per second about which control is asked when they have sent only once.
pub const FIRST_QUESTIONS_PER_S: u64 = 16;

/// Maximum burst of such questions after a quiet time.
pub const FIRST_QUESTIONS_BURST: u32 = 512;

/// Number of peers remembered to have sent once: 64 KiB. A flood of 20,000 sources a second overwrites one within
/// about 0.8 s.
const SEEN_PLACES: usize = 16_384;

/// A rate of questions: a token bucket, stored as the time at which it is full.
#[derive(Debug)]
struct Rate {
    full_at: Instant,
    /// Time for one question.
    interval: Duration,
    /// Time for the maximum burst.
    burst: Duration,
}

impl Rate {
    fn new(per_s: u64, burst: u32) -> Self {
        let interval = Duration::from_nanos(1_000_000_000 / per_s);
        Self { full_at: Instant::ZERO, interval, burst: interval * burst }
    }

    fn allows(&mut self, now: Instant) -> bool {
        if self.full_at.since(now) > self.burst {
            // The clock went back.
            self.full_at = now;
        }
        self.full_at.since(now) + self.interval <= self.burst
    }

    /// How many are allowed at once.
    fn left(&self, now: Instant) -> u32 {
        let used = self.full_at.since(now);
        if used > self.burst {
            // The clock went back.
            return (self.burst.as_nanos() / self.interval.as_nanos()) as u32;
        }
        ((self.burst - used).as_nanos() / self.interval.as_nanos()) as u32
    }

    fn count(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }
}

/// The rates of questions, and the peers that have sent once.
#[derive(Debug)]
pub(super) struct Questions {
    all: Rate,
    first: Rate,
    /// By a keyed hash of the peer: other bits of it.
    seen: Box<[u32; SEEN_PLACES]>,
    hash: FixedState,
}

impl Questions {
    /// `seed` keys the hash and must be secret.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            all: Rate::new(QUESTIONS_PER_S, QUESTIONS_BURST),
            first: Rate::new(FIRST_QUESTIONS_PER_S, FIRST_QUESTIONS_BURST),
            seen: Box::new([0; SEEN_PLACES]),
            hash: FixedState::with_seed(seed),
        }
    }

    /// Whether control may be asked about a peer that sends now. If it is asked, [`Self::asked`] counts that.
    pub(super) fn may_ask(&mut self, peer: IpAddr, now: Instant) -> bool {
        let hash = self.hash.hash_one(peer);
        // 0 is an empty place.
        let tag = (hash >> 32) as u32 | 1;
        let seen = &mut self.seen[hash as usize % SEEN_PLACES];
        let again = std::mem::replace(seen, tag) == tag;
        self.all.allows(now) && (again || self.first.allows(now))
    }

    /// About how many peers that have not sent before control may be asked now.
    pub(super) fn left(&self, now: Instant) -> u32 {
        self.all.left(now).min(self.first.left(now))
    }

    /// Control is asked about a new peer. Each question counts at both rates, at the lower one only if that has
    /// room.
    pub(super) fn asked(&mut self, now: Instant) {
        self.all.count(now);
        if self.first.allows(now) {
            self.first.count(now);
        }
    }
}
