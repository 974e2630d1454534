//! Steering inside the kernel: the BPF programs that make the verdict of `stack/claims` for each frame, their rules
//! and their attachment. Further programs withhold a whole interface from the kernel's stack, for an exception port
//! ([`Exclusive`]), or several interfaces for a switch ([`PortPrograms`]). The kernel forwards some flows between
//! these by itself ([`Offload`]), and continues for a while after the process has ended ([`Keep`]). Another program
//! gives a process the datagrams of its kernel sockets while it polls them ([`Leases`]).
//!
//! - [`Path::Packet`]: a filter on packet sockets decides each frame, and leaves a note of a claimed frame on its
//!   CPU. A program at tc ingress, which the kernel runs directly after the packet sockets, drops the noted frame
//!   and nothing else. A frame that no filter claimed is therefore never dropped: a socket or a process may go away
//!   at any time. A claimed frame is put into the direct ring of its worker if that is open, and otherwise received
//!   by the socket. (A frame for which there is no room is lost and counted.)
//! - [`Path::Xdp`]: claimed frames go to the AF_XDP socket of their queue; without one, to the kernel. Requests to
//!   which programs [reply](Reflexes) by themselves are left to a program at tc ingress.
//!
//! Workers may have whole [connections of TCP](TcpFlows) on the packet path: the programs leave them SYNs, and claim or
//! drop the segments of their connections, of which the kernel gets none.
//!
//! Attachments are BPF links held by [`Steering`]: they end with the process, however it ends. Where the kernel has
//! no links at tc, classic filters are used instead ([`TcAttach::Clsact`]): one that outlives its process has no
//! effect, and [`tidy`] removes it.
//!
//! # Changing rules while running
//!
//! [`Steering::apply`] writes the new rules beside those in force, puts all of them in force by one store, waits
//! until no program runs that saw the old ones, and only then removes the old ones. Each frame is decided once,
//! wholly by the old table or wholly by the new one. On the packet path, a change therefore neither loses nor
//! duplicates a frame; on XDP each frame goes one way or the other, never both. Only claims on flows are added just
//! before that store and removed just after it, which again means old or new for each of them.
//!
//! Never here: a netlink change of settings, a decision about the path, packet memory.

mod caught;
mod clsact;
mod cost;
mod detach;
mod empty;
mod error;
mod exclusive;
mod holder;
mod hosts;
mod keep;
mod keep_lease;
mod kept;
mod layout;
mod layouts;
mod leases;
mod link;
mod made;
mod mapped;
mod maps;
mod moves;
mod names;
mod offload;
mod pins;
mod ports;
mod probe;
mod program;
mod reflex;
mod revision;
mod rules;
mod served;
mod steering;
mod stuck;
mod taps;
mod tc;
mod tcp_claims;
mod tcp_flows;
mod withdrawal;
mod xdp_holder;

pub use caught::Caught;
pub use clsact::{Leftover, leftovers, tidy};
pub use cost::{ProgramCost, program_costs};
pub use empty::EmptyXdp;
pub use error::SteerError;
pub use exclusive::{Exclusive, Withheld, crosses, withheld};
pub use holder::{xdp_holder, xdp_program};
pub use keep::{Keep, KeepError, Left, kept, remove_kept};
pub use kept::KeptMaps;
pub use layouts::Crossed;
pub use leases::{Assigned, Handed, LEASE_SLOTS, LEASES_MAX, Leases, PROCESSES_MAX};
pub use moves::{MoveWords, Unmoved};
pub use offload::{KeptEntry, OFFLOAD_MASKS, OFFLOAD_WORDS, Offload, OffloadCount, OffloadEntry};
pub use ports::{KeepPlan, PortPrograms, Unserved};
pub use probe::{Probe, ReflexProbe, describes_datagrams, probe, probe_reflexes, probe_without_loading};
pub use reflex::{REFLEX_PEERS_MAX, ReflexCount, ReflexPeer, ReflexPlan, Reflexes};
pub use steering::{
    DIRECT_SLOTS, Datagrams, FILTERS_MAX, Features, Kept, Path, QUEUES_MAX, Steering, XdpMode,
};
pub use taps::{Exchange, ReflexTap, Shown, TAPS_MAX, TapReader};
pub use tc::TcAttach;
pub use tcp_claims::{Opening, TcpClaims};
pub use tcp_flows::{TCP_FLOWS_MAX, TCP_WORKERS_MAX, TcpFlows};
pub use withdrawal::Withdrawal;
pub use xdp_holder::{Attachment, XdpHolder, tool_of};
