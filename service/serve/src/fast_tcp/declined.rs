//! Tuples that are left to the kernel although the programs had taken their SYN.

use std::collections::VecDeque;

use twinpath_tcp::Tuple;
use twinpath_time::{Duration, Instant};

use super::TcpClaims;

/// How long the kernel's programs leave a declined tuple to the kernel. By then the kernel has a connection of its own,
/// or its peer has given up for this time.
const DECLINED_FOR: Duration = Duration::from_secs(10);

/// Maximum number of declined tuples. While there are this many, the programs take no SYN.
const DECLINED_MAX: usize = 4096;

/// The tuples, oldest first, with the end of their time.
#[derive(Debug, Default)]
pub(crate) struct Declined {
    tuples: VecDeque<(Instant, Tuple)>,
    /// Those of which the programs were not told yet: the last ones.
    untold: usize,
}

impl Declined {
    pub(crate) fn add(&mut self, now: Instant, tuple: Tuple) {
        self.tuples.push_back((now + DECLINED_FOR, tuple));
        self.untold += 1;
    }

    /// Tells the programs what is the kernel's, and what may be claimed again, by `calls` calls at most. Returns how many
    /// are left.
    pub(crate) fn settle(&mut self, now: Instant, calls: u32, claims: &mut dyn TcpClaims) -> u32 {
        let told = self.tuples.len() - self.untold;
        let count = self.untold.min(calls as usize);
        for (_, tuple) in self.tuples.range(told..told + count) {
            claims.decline(tuple.local(), tuple.remote());
        }
        self.untold -= count;
        let mut left = calls - count as u32;
        while left > 0
            && self.tuples.len() > self.untold
            && let Some((_, tuple)) = self.tuples.front().copied().filter(|(until, _)| *until <= now)
        {
            self.tuples.pop_front();
            claims.release(tuple.local(), tuple.remote());
            left -= 1;
        }
        left
    }

    /// All of them may be claimed again.
    pub(crate) fn release_all(&mut self, claims: &mut dyn TcpClaims) {
        for (_, tuple) in self.tuples.drain(..) {
            claims.release(tuple.local(), tuple.remote());
        }
        self.untold = 0;
    }

    pub(crate) fn deadline(&self) -> Instant {
        if self.untold > 0 {
            return Instant::ZERO;
        }
        self.tuples.front().map_or(Instant::NEVER, |(until, _)| *until)
    }

    /// How many more may be declined.
    pub(crate) fn room(&self) -> u32 {
        DECLINED_MAX.saturating_sub(self.tuples.len()) as u32
    }
}
