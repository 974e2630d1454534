//! Where a reply leaves: the worker's copy of what the kernel's route and neighbour tables say.
//!
//! We keep no truth of our own. The control thread asks the kernel for the route to a peer (`RTM_GETROUTE`), joins it
//! with the neighbour mirror, and posts the answer as an [`Update`]; the worker looks it up per reply. While there is
//! no answer, or where the answer is "not by this interface", the reply leaves through the kernel's own socket, which
//! resolves the neighbour, queues within its own bounds and fragments as needed.

use std::net::IpAddr;

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
