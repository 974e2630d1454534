//! Attaches an interface to a fast path and detaches it: for an instance's claims, for a client's own flows, or as a port of
//! a switch.

mod attachment;
mod client;
mod interface;
mod port_set;

pub use attachment::{
    AttachError, AttachPlan, Attachment, PlacedQueue, Target, describe, kernel_ring_bytes, pool_frames,
};
pub use client::{Client, ClientError, ClientPath};
pub use interface::{InterfaceError, find_link, learn_facts, tidy};
pub use port_set::{PortSet, PortSetPlan};
