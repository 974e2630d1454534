//! Attaches an interface to a fast path and detaches it: for an instance's claims, for a client's own flows, as a port of
//! a switch, or for kernel sockets that have leases.

mod attachment;
mod client;
mod interface;
mod leased;
mod loan;
mod port_set;
mod receive_thread;

pub use attachment::{
    AttachError, AttachPlan, Attachment, PlacedQueue, Target, describe, kernel_ring_bytes, pool_frames,
};
pub use client::{Client, ClientError, ClientPath};
pub use interface::{InterfaceError, find_link, learn_facts, tidy};
pub use leased::{LeaseError, LeasedInterface, Lent, SOCKETS_MAX, Sending};
pub use loan::{Loan, ring_of};
pub use port_set::{PortSet, PortSetPlan};
pub use receive_thread::{ReceiveThread, ReceiveThreadError};
pub use twinpath_steer_bpf::Withdrawal;
