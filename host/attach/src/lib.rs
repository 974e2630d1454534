//! Attaches an interface to a fast path and detaches it: for an instance's claims, for a client's own
//! flows, as a port of a switch, or for kernel sockets with leases.

mod attachment;
mod client;
mod handed;
mod interface;
mod leased;
mod load;
mod loan;
pub mod mirror;
pub mod path;
#[cfg(feature = "port-set")]
mod port_set;
mod receive_thread;
mod replying;

pub use attachment::{
    AttachError, AttachPlan, Attaching, Attachment, DATAGRAM_CHUNKS, PlacedQueue, SUPER_FRAME_CHUNKS, Target,
    describe, kernel_ring_bytes, pool_frames,
};
pub use client::{Client, ClientError, ClientPath};
pub use handed::HandedOver;
pub use interface::{InterfaceError, find_link, learn_facts, tidy};
pub use leased::{LeaseError, LeasedInterface, LeasedOn, Load, OwnLease, SOCKETS_MAX, Sending, hosts};
pub use load::Replies;
pub use loan::{Loan, ring_of};
#[cfg(feature = "port-set")]
pub use port_set::{PortSet, PortSetPlan};
pub use receive_thread::{ReceiveThread, ReceiveThreadError};
pub use twinpath_bpf::Withdrawal;
