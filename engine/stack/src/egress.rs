//! Where a reply leaves: the worker's copy of what the kernel's route and neighbour tables say.
//!
//! We keep no truth of our own. The control thread asks the kernel for the route to a peer (`RTM_GETROUTE`), joins it
//! with the neighbour mirror, and posts the answer as an [`Update`]; the worker looks it up per reply. While there is
//! no answer, or where the answer is "not by this interface", the reply leaves through the kernel's own socket, which
//! resolves the neighbour, queues within its own bounds and fragments as needed.
//!
//! Anybody can forge sources, so the table is built to hold under a flood of them:
//!
//! - A peer without an answer is only pending. There is room for [`PENDING_MAX`] of them, a pending one that got no answer
//!   is asked about again when it is looked up and gives way after [`RETRY_INTERVAL`], and new peers are asked about at most
//!   [`QUESTIONS_PER_S`] times a second. A question that is lost costs its peer that time and nobody else anything.
//! - Once the table of answers is full, an answer that is no use (not a way out), or that was not used
//!   [`PROVEN_USES`] times and rests, gives way to a new one. Peers in use keep their place until they have been silent
//!   for [`KEEP`].

mod bounded;

use std::net::IpAddr;

use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use self::bounded::Bounded;

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
/// them latency and nobody anything else.
pub const PEERS_MAX: usize = 4096;

/// Peers that wait for an answer at a time.
pub const PENDING_MAX: usize = 512;

/// New peers that are asked about per second: what control can answer beside its other work. Up to [`PENDING_MAX`] of them
/// may come at once.
pub const QUESTIONS_PER_S: u64 = 2048;

/// Uses of an answer after which its peer counts as one that talks, not as a forged source that was seen once.
pub const PROVEN_USES: u8 = 4;

/// How long a peer that talks keeps its place while it is silent, as long as control keeps it.
pub const KEEP: Duration = Duration::from_secs(60);

/// How often a peer in use is asked about again: that keeps it known, and has the kernel keep its neighbour fresh, which
/// our traffic alone does not.
const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before asking again about a peer whose question got no answer.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two questions about new peers, where they come all the time.
const QUESTION_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / QUESTIONS_PER_S);

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

    /// Whether it may be dropped for another one.
    fn gives_way(&self, now: Instant) -> bool {
        let proven = self.answer.is_ok() && self.uses == PROVEN_USES;
        now.since(self.used_at) >= if proven { KEEP } else { RETRY_INTERVAL }
    }
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
    known: Bounded<Peer>,
    /// When each was asked about.
    pending: Bounded<Instant>,
    /// When the next question about a new peer would be due if they came evenly; questions may run ahead of it.
    question_due: Instant,
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
        Self {
            known: Bounded::new(PEERS_MAX),
            pending: Bounded::new(PENDING_MAX),
            question_due: Instant::ZERO,
            overflows: 0,
        }
    }

    /// Where a reply to `peer` leaves.
    #[inline]
    pub fn lookup(&mut self, peer: IpAddr, now: Instant) -> Lookup {
        let Some(known) = self.known.get_mut(&peer) else { return self.lookup_unknown(peer, now) };
        known.used_at = now;
        let mut ask = now >= known.ask_at;
        if known.uses < PROVEN_USES {
            known.uses += 1;
            // Control learns which peers talk: their entries are the last it drops.
            ask |= known.uses == PROVEN_USES && known.answer.is_ok();
        }
        if ask {
            known.ask_at = now + if known.answer.is_ok() { ASK_INTERVAL } else { RETRY_INTERVAL };
        }
        Lookup { answer: known.answer, ask }
    }

    #[cold]
    fn lookup_unknown(&mut self, peer: IpAddr, now: Instant) -> Lookup {
        let answer = Err(KernelReason::Unknown);
        if let Some(asked_at) = self.pending.get_mut(&peer) {
            let ask = now >= *asked_at + RETRY_INTERVAL;
            if ask {
                *asked_at = now;
            }
            return Lookup { answer, ask };
        }
        let ask = self.may_ask(now) && {
            // Pending peers whose answer is late make room: their question was lost, or nobody can answer it.
            self.pending.make_room(|asked_at| now >= *asked_at + RETRY_INTERVAL)
        };
        if ask {
            self.pending.insert(peer, now);
            self.question_due = self.question_due.max(now) + QUESTION_INTERVAL;
        } else {
            self.overflows += 1;
        }
        Lookup { answer, ask }
    }

    /// Whether the rate of questions about new peers allows one more (a token bucket, kept as the time at which it is full).
    fn may_ask(&mut self, now: Instant) -> bool {
        let burst = QUESTION_INTERVAL * PENDING_MAX as u32;
        if self.question_due.since(now) > burst {
            // The clock went back.
            self.question_due = now;
        }
        self.question_due.since(now) + QUESTION_INTERVAL <= burst
    }

    /// The question could not be posted (the mailbox was full): it will be asked again at the next lookup.
    pub fn not_asked(&mut self, peer: IpAddr) {
        if let Some(known) = self.known.get_mut(&peer) {
            known.ask_at = Instant::ZERO;
        }
        self.pending.remove(&peer);
    }

    /// Takes over what control learnt from the kernel at about `now`.
    pub fn update(&mut self, update: Update, now: Instant) {
        match update {
            Update::Learn { peer, answer } => {
                let asked = self.pending.remove(&peer);
                if let Some(known) = self.known.get_mut(&peer) {
                    let (used_at, uses) = (known.used_at, known.uses);
                    *known = Peer { used_at, uses, ..Peer::new(answer, now) };
                } else if !self.known.is_full() || asked && self.known.make_room(|known| known.gives_way(now))
                {
                    // What another worker asked about takes nobody's place here.
                    self.known.insert(peer, Peer::new(answer, now));
                } else if asked {
                    self.overflows += 1;
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

    /// Peers known, or asked about.
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
