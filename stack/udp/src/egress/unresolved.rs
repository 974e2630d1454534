//! Counts the addresses of a connected network that do not resolve, to bound what forged sources cost the host.
//!
//! A reply to an address of a connected network makes the kernel ask for it by ARP or neighbour discovery, and keep
//! an entry until nobody has answered for three seconds. The kernel has 1,024 such entries for all interfaces and
//! namespaces (`net.ipv4.neigh.default.gc_thresh3`); above half of that it searches for old ones each time. Forged
//! sources of that network can fill this table in milliseconds. The host then reaches no new neighbour.
//!
//! So each answer "this peer does not resolve" counts for its network, until the peer has been resolved. Beyond
//! [`BURST`] such peers, plus [`PER_S`] a second, replies to peers of that network without an answer are refused.
//! Peers with an answer are not affected. Meanwhile, control gives workers the answers for all neighbours that the
//! kernel knows, and a peer that sends to us has usually asked the kernel for our address before.

use std::net::IpAddr;

use twinpath_claims::Prefix;
use twinpath_time::{Duration, Instant};

use super::{Egress, KernelReason};

/// Maximum burst of unresolved peers of one network.
pub const BURST: u32 = 64;

/// Further unresolved peers of one network per second.
pub const PER_S: u32 = 16;

/// Networks that are counted.
const NETWORKS_MAX: usize = 8;

/// Time in which one more peer may be unresolved.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / PER_S as u64);

/// The count of one network, stored as the time at which it is 0 again (the virtual scheduling algorithm of ITU-T
/// I.371).
#[derive(Clone, Copy, Debug)]
struct Count {
    network: Prefix,
    zero_at: Instant,
}

impl Count {
    fn is_full(&self, now: Instant) -> bool {
        let left = self.zero_at.since(now);
        // Only a clock that went back can put it further ahead.
        left >= INTERVAL * BURST && left <= INTERVAL * (2 * BURST)
    }

    fn add(&mut self, now: Instant) {
        // Answers that were on their way when the limit was reached do not extend it without bound.
        self.zero_at = (self.zero_at.max(now) + INTERVAL).min(now + INTERVAL * (2 * BURST));
    }
}

/// The counts of the networks that have unresolved peers.
#[derive(Clone, Debug, Default)]
pub struct UnresolvedNetworks {
    counts: [Option<Count>; NETWORKS_MAX],
}

impl UnresolvedNetworks {
    /// Takes an answer about `peer`; `before` is the former one.
    pub fn answered(
        &mut self,
        peer: IpAddr,
        before: Option<Result<Egress, KernelReason>>,
        answer: Result<Egress, KernelReason>,
        now: Instant,
    ) {
        match (before, answer) {
            // It was resolved once, so it exists: its entry is not part of a flood.
            (Some(Ok(_) | Err(KernelReason::UnresolvedPeer { .. })), Err(_)) => {}
            (_, Err(KernelReason::UnresolvedPeer { prefix_len })) => {
                if let Some(count) =
                    Prefix::new(peer, prefix_len).ok().and_then(|network| self.count(network))
                {
                    count.add(now);
                }
            }
            (Some(Err(KernelReason::UnresolvedPeer { .. })), Ok(_)) => {
                if let Some(count) = self.of(peer) {
                    count.zero_at = count.zero_at - INTERVAL;
                }
            }
            _ => {}
        }
    }

    /// Whether too many addresses of the peer's network do not resolve.
    #[must_use]
    pub fn refuses(&mut self, peer: IpAddr, now: Instant) -> bool {
        self.of(peer).is_some_and(|count| count.is_full(now))
    }

    fn of(&mut self, peer: IpAddr) -> Option<&mut Count> {
        self.counts.iter_mut().flatten().find(|count| count.network.contains(peer))
    }

    /// The count of a network. A new one replaces the one that reaches 0 first.
    fn count(&mut self, network: Prefix) -> Option<&mut Count> {
        let known = self.counts.iter().position(|count| count.is_some_and(|count| count.network == network));
        let zero_at = |place: &usize| self.counts[*place].map_or(Instant::ZERO, |count| count.zero_at);
        let place = known.or_else(|| (0..NETWORKS_MAX).min_by_key(zero_at))?;
        let new = Count { network, zero_at: Instant::ZERO };
        if known.is_none() {
            self.counts[place] = Some(new);
        }
        self.counts[place].as_mut()
    }
}

#[cfg(test)]
mod tests;
