//! Where a reply leaves: the worker's copy of what the kernel's route and neighbour tables say.
//!
//! We keep no truth of our own. The control thread asks the kernel for the route to a peer (`RTM_GETROUTE`), joins it
//! with the neighbour mirror, and posts the answer as an [`Update`]; the worker looks it up per reply. While there is
//! no answer, or where the answer is "not by this interface", the reply leaves through the kernel's own socket, which
//! resolves the neighbour, queues within its own bounds and fragments as needed.

use std::collections::HashMap;
use std::net::IpAddr;

use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

/// How frames to one peer leave on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Index of the interface, as the kernel numbers it.
    pub ifindex: u32,
    /// Our own address on that link.
    pub source_mac: Mac,
    /// Address of the next hop on that link.
    pub next_hop_mac: Mac,
    /// Largest IP packet the path takes, bytes (route, link or learnt path MTU, whichever is least).
    pub mtu: u32,
}

/// Why replies to a peer leave through the kernel socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelReason {
    /// The kernel has not been asked yet, or has not answered.
    Unknown,
    /// The next hop's link-layer address is not known yet; the kernel resolves it.
    Unresolved,
    /// The route leaves by an interface we do not serve.
    OtherInterface,
    /// The route needs something that we do not do: a tunnel, an encapsulation, a VLAN, a local peer.
    NotPlain,
    /// The kernel has no route.
    NoRoute,
}

impl KernelReason {
    /// A stable name, for `show`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Unresolved => "unresolved",
            Self::OtherInterface => "other_interface",
            Self::NotPlain => "not_plain",
            Self::NoRoute => "no_route",
        }
    }
}

/// A change to a worker's egress table, posted by the control thread through a bounded mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// What the kernel says of `peer` now; replaces what was known.
    Learn {
        /// The peer's address.
        peer: IpAddr,
        /// The way out.
        answer: Result<Egress, KernelReason>,
    },
    /// Nothing is known of `peer` any more.
    Forget {
        /// The peer's address.
        peer: IpAddr,
    },
    /// Routes, links or addresses changed: nothing is known of anybody.
    Clear,
}

impl Update {
    /// The peer it is about; `None`: all of them.
    #[must_use]
    pub const fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Learn { peer, .. } | Self::Forget { peer } => Some(*peer),
            Self::Clear => None,
        }
    }
}

/// Peers that a worker keeps an answer for. At the limit further peers are answered through the kernel, which costs
/// them latency and nobody anything else; control has a peer forgotten a minute after it was last asked about.
pub const PEERS_MAX: usize = 4096;

/// How often a peer in use is asked about again: that keeps it known, and has the kernel keep its neighbour fresh, which
/// our traffic alone does not.
const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before asking again about a peer whose question got no answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Peer {
    answer: Result<Egress, KernelReason>,
    ask_at: Instant,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The way out, or why it is the kernel's socket.
    pub answer: Result<Egress, KernelReason>,
    /// The peer should be asked about: nothing is known, or it has not been asked about for a while.
    pub ask: bool,
}

/// A worker's egress table.
#[derive(Debug)]
pub struct EgressTable {
    peers: HashMap<IpAddr, Peer>,
    /// Lookups of peers for which there was no room.
    overflows: u64,
}

impl Default for EgressTable {
    fn default() -> Self {
        Self::new()
    }
}

impl EgressTable {
    /// An empty table with all its room.
    #[must_use]
    pub fn new() -> Self {
        // Twice the limit: a table at most half full sweeps its deleted entries in place and never allocates again.
        Self { peers: HashMap::with_capacity(2 * PEERS_MAX), overflows: 0 }
    }

    /// Where a reply to `peer` leaves.
    #[inline]
    pub fn lookup(&mut self, peer: IpAddr, now: Instant) -> Lookup {
        if let Some(known) = self.peers.get_mut(&peer) {
            let ask = now >= known.ask_at;
            if ask {
                known.ask_at = now + if known.answer.is_ok() { ASK_INTERVAL } else { RETRY_INTERVAL };
            }
            return Lookup { answer: known.answer, ask };
        }
        let ask = self.peers.len() < PEERS_MAX;
        if ask {
            let answer = Err(KernelReason::Unknown);
            self.peers.insert(peer, Peer { answer, ask_at: now + RETRY_INTERVAL });
        } else {
            self.overflows += 1;
        }
        Lookup { answer: Err(KernelReason::Unknown), ask }
    }

    /// The question could not be posted (the mailbox was full): it will be asked again at the next lookup.
    pub fn not_asked(&mut self, peer: IpAddr) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.ask_at = Instant::ZERO;
        }
    }

    /// Takes over what control learnt from the kernel at about `now`.
    pub fn update(&mut self, update: Update, now: Instant) {
        match update {
            Update::Learn { peer, answer } => {
                if self.peers.contains_key(&peer) || self.peers.len() < PEERS_MAX {
                    let interval = if answer.is_ok() { ASK_INTERVAL } else { RETRY_INTERVAL };
                    self.peers.insert(peer, Peer { answer, ask_at: now + interval });
                }
            }
            Update::Forget { peer } => {
                self.peers.remove(&peer);
            }
            Update::Clear => self.peers.clear(),
        }
    }

    /// Peers known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether no peer is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Lookups of peers for which there was no room.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }
}

#[cfg(test)]
mod tests;
