//! The egress table: a worker's copy of the kernel's routes and neighbour entries, by peer.
//!
//! The kernel's tables are the only source. The control thread asks the kernel for the route to a peer
//! (`RTM_GETROUTE`), joins it with the mirrored neighbour entry, and posts the answer as an [`Update`]; the worker
//! looks it up per reply. Until there is an answer, or if the answer is "not through this interface", the reply
//! leaves through the kernel's own socket, which resolves the neighbour, queues within its own bounds and fragments
//! as needed.
//!
//! Anybody can forge source addresses, so the table is built to withstand a flood of them:
//!
//! - A peer without an answer is only pending. There is room for [`PENDING_MAX`] of them. Control is asked about a
//!   pending peer again if it is looked up after [`RETRY_INTERVAL`], and from that time it may also be replaced.
//!   Control is asked about at most [`QUESTIONS_PER_S`] new peers a second, and about at most
//!   [`FIRST_QUESTIONS_PER_S`] that have not sent before. A lost question delays its own peer by that time, and
//!   affects no other peer.
//! - Once the table of answers is full, a new answer replaces one that is useless (no egress), or one that was used
//!   fewer than [`PROVEN_USES`] times and is idle. Active peers keep their entries until they have been silent for
//!   [`KEEP`].
//! - A reply to an address of a connected network makes the kernel resolve that address, and its neighbour table is
//!   small and shared by the whole host. If too many addresses of one network do not resolve, replies to those
//!   without an answer are refused for a while: see [`unresolved`].

mod bounded;
mod questions;
pub mod unresolved;

use std::net::IpAddr;

use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use self::bounded::Bounded;
use self::questions::Questions;
pub use self::questions::{FIRST_QUESTIONS_BURST, FIRST_QUESTIONS_PER_S, QUESTIONS_BURST, QUESTIONS_PER_S};
use self::unresolved::UnresolvedNetworks;

/// How frames to one peer leave on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// Our link-layer address on that interface.
    pub source_mac: Mac,
    /// Link-layer address of the next hop.
    pub next_hop_mac: Mac,
    /// Largest IP packet on the path, bytes (the least of route, link and learnt path MTU).
    pub mtu: u32,
}

/// Why replies to a peer leave through the kernel socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelReason {
    /// The kernel has not been asked yet, or has not answered.
    Unknown,
    /// The gateway's link-layer address is not known yet; the kernel resolves it.
    Unresolved,
    /// The same for a peer that is its own next hop.
    UnresolvedPeer {
        /// Length in bits of the prefix of the connected network that the peer is in.
        prefix_len: u8,
    },
    /// The route leaves through an interface that we do not serve.
    OtherInterface,
    /// The route needs something that the fast path does not support: a tunnel, an encapsulation, a VLAN, a local
    /// peer.
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
            Self::Unresolved | Self::UnresolvedPeer { .. } => "unresolved",
            Self::OtherInterface => "other_interface",
            Self::NotPlain => "not_plain",
            Self::NoRoute => "no_route",
        }
    }

    /// Whether only the link-layer address of the next hop is missing.
    #[must_use]
    pub const fn is_unresolved(self) -> bool {
        matches!(self, Self::Unresolved | Self::UnresolvedPeer { .. })
    }
}

/// A change to a worker's egress table, posted by the control thread through a bounded mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The kernel's present answer for `peer`; replaces the former one.
    Learn {
        /// The peer's address.
        peer: IpAddr,
        /// The egress, or why there is none.
        answer: Result<Egress, KernelReason>,
    },
    /// Control requests a question at the next use of `peer`: it makes the kernel confirm the neighbour only if the
    /// peer is in use.
    AskAgain {
        /// The peer's address.
        peer: IpAddr,
    },
    /// The entry of `peer` is no longer valid.
    Forget {
        /// The peer's address.
        peer: IpAddr,
    },
    /// Routes, links or addresses changed: no entry is valid.
    Clear,
}

impl Update {
    /// The peer concerned; `None`: all of them.
    #[must_use]
    pub const fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Learn { peer, .. } | Self::AskAgain { peer } | Self::Forget { peer } => Some(*peer),
            Self::Clear => None,
        }
    }

    /// Whether `earlier` need not be delivered if this one follows it.
    #[must_use]
    pub fn voids(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Clear, _) => true,
            (_, Self::Clear) => false,
            // One is an answer, the other a request for a question.
            (Self::AskAgain { .. }, Self::Learn { .. } | Self::Forget { .. })
            | (Self::Learn { .. }, Self::AskAgain { .. }) => false,
            _ => self.peer() == earlier.peer(),
        }
    }
}

/// Peers for which a worker keeps an answer. Beyond the limit, further peers are answered through the kernel: their
/// latency is higher, and no other peer is affected.
pub const PEERS_MAX: usize = 4096;

/// Maximum number of peers that wait for an answer.
pub const PENDING_MAX: usize = 512;

/// Uses of an answer after which its peer counts as active, not as a forged source that was seen once.
pub const PROVEN_USES: u8 = 4;

/// How long a silent peer stays active, if control keeps its entry.
pub const KEEP: Duration = Duration::from_secs(60);

/// How often control is asked again about a peer in use, which keeps its entry. When the kernel's entry of its next
/// hop has become stale, control requests a question at the next use ([`Update::AskAgain`]).
pub const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// Time after which control is asked again about a peer that got no answer.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Peer {
    answer: Result<Egress, KernelReason>,
    ask_at: Instant,
    used_at: Instant,
    /// Lookups since the answer came, up to [`PROVEN_USES`].
    uses: u8,
}

impl Peer {
    fn new(answer: Result<Egress, KernelReason>, now: Instant) -> Self {
        let interval = if answer.is_ok() { ASK_INTERVAL } else { RETRY_INTERVAL };
        Self { answer, ask_at: now + interval, used_at: now, uses: 0 }
    }

    /// Whether another peer's entry may replace it.
    fn gives_way(&self, now: Instant) -> bool {
        let proven = self.answer.is_ok() && self.uses == PROVEN_USES;
        now.since(self.used_at) >= if proven { KEEP } else { RETRY_INTERVAL }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The egress, or why the reply leaves through the kernel's socket.
    pub answer: Result<Egress, KernelReason>,
    /// Whether to ask control about the peer: it is unknown, or it has not been asked about for a while.
    pub ask: bool,
    /// Whether the reply must be dropped: too many addresses of the peer's network do not resolve.
    pub refused: bool,
}

/// A worker's egress table.
#[derive(Debug)]
pub struct EgressTable {
    known: Bounded<Peer>,
    /// When control was asked about each.
    pending: Bounded<Instant>,
    questions: Questions,
    unresolved: UnresolvedNetworks,
    /// Lookups of peers for which there was no room.
    overflows: u64,
}

impl EgressTable {
    /// An empty table with all its memory. `seed` keys a hash of peers and must be secret.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            known: Bounded::new(PEERS_MAX),
            pending: Bounded::new(PENDING_MAX),
            questions: Questions::new(seed),
            unresolved: UnresolvedNetworks::default(),
            overflows: 0,
        }
    }

    /// Finds the egress of a reply to `peer`.
    #[inline]
    pub fn lookup(&mut self, peer: IpAddr, now: Instant) -> Lookup {
        self.find(peer, now, true)
    }

    /// The same for what leaves to a source that may be forged, however often: that is no use of the answer.
    pub fn lookup_unproven(&mut self, peer: IpAddr, now: Instant) -> Lookup {
        self.find(peer, now, false)
    }

    #[inline(always)]
    fn find(&mut self, peer: IpAddr, now: Instant, is_use: bool) -> Lookup {
        let Some(known) = self.known.get_mut(&peer) else { return self.lookup_unknown(peer, now) };
        if is_use {
            known.used_at = now;
        }
        let resolving = matches!(known.answer, Err(KernelReason::UnresolvedPeer { .. }));
        if resolving && self.unresolved.refuses(peer, now) {
            return Lookup { answer: known.answer, ask: false, refused: true };
        }
        let mut ask = now >= known.ask_at;
        if is_use && known.uses < PROVEN_USES {
            known.uses += 1;
            // Control learns which peers are active: it drops their entries last.
            ask |= known.uses == PROVEN_USES && known.answer.is_ok();
        }
        if ask {
            known.ask_at = now + if known.answer.is_ok() { ASK_INTERVAL } else { RETRY_INTERVAL };
        }
        Lookup { answer: known.answer, ask, refused: false }
    }

    #[cold]
    fn lookup_unknown(&mut self, peer: IpAddr, now: Instant) -> Lookup {
        let answer = Err(KernelReason::Unknown);
        if self.unresolved.refuses(peer, now) {
            return Lookup { answer, ask: false, refused: true };
        }
        if let Some(asked_at) = self.pending.get_mut(&peer) {
            let ask = now >= *asked_at + RETRY_INTERVAL;
            if ask {
                *asked_at = now;
            }
            return Lookup { answer, ask, refused: false };
        }
        let ask = self.questions.may_ask(peer, now) && {
            // Pending peers with an overdue answer make room: their question was lost, or there is no answer.
            self.pending.make_room(|asked_at| now >= *asked_at + RETRY_INTERVAL)
        };
        if ask {
            self.pending.insert(peer, now);
            self.questions.asked(now);
        } else {
            self.overflows += 1;
        }
        Lookup { answer, ask, refused: false }
    }

    /// Whether control was asked about a peer and has not answered yet.
    pub fn is_pending(&mut self, peer: IpAddr) -> bool {
        self.pending.get_mut(&peer).is_some()
    }

    /// About how many peers that have not sent before control may be asked now.
    #[must_use]
    pub fn questions_left(&self, now: Instant) -> u32 {
        self.questions.left(now)
    }

    /// To be called if the question could not be posted because the mailbox was full: the next lookup asks again.
    pub fn not_asked(&mut self, peer: IpAddr) {
        if let Some(known) = self.known.get_mut(&peer) {
            known.ask_at = Instant::ZERO;
        }
        self.pending.remove(&peer);
    }

    /// Applies what control learnt from the kernel at about `now`.
    pub fn update(&mut self, update: Update, now: Instant) {
        match update {
            Update::Learn { peer, answer } => {
                let asked = self.pending.remove(&peer);
                let before = self.known.get_mut(&peer).map(|known| known.answer);
                self.unresolved.answered(peer, before, answer, now);
                if let Some(known) = self.known.get_mut(&peer) {
                    let Peer { used_at, uses, ask_at, .. } = *known;
                    let new = Peer::new(answer, now);
                    // A question that control has requested remains due.
                    let ask_at = if ask_at == Instant::ZERO { ask_at } else { new.ask_at };
                    *known = Peer { used_at, uses, ask_at, ..new };
                } else if !self.known.is_full() || asked && self.known.make_room(|known| known.gives_way(now))
                {
                    // An answer to another worker's question replaces no entry here.
                    self.known.insert(peer, Peer::new(answer, now));
                } else if asked {
                    self.overflows += 1;
                }
            }
            Update::AskAgain { peer } => {
                if let Some(known) = self.known.get_mut(&peer) {
                    known.ask_at = Instant::ZERO;
                }
            }
            Update::Forget { peer } => {
                self.known.remove(&peer);
            }
            Update::Clear => {
                self.known.clear();
                self.pending.clear();
            }
        }
    }

    /// Number of peers that are known or pending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len() + self.pending.len()
    }

    /// Whether no peer is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lookups of peers for which there was no room.
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }
}

#[cfg(test)]
mod tests;
