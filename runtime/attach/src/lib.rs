//! Attaches an interface to a fast path and detaches it: for an instance's claims, or for a client's own flows.

mod attachment;
mod client;
mod interface;

pub use attachment::{
    AttachError, AttachPlan, Attachment, PlacedQueue, Target, describe, kernel_ring_bytes, pool_frames,
};
pub use client::{Client, ClientError, ClientPath};
pub use interface::{InterfaceError, find_link, learn_facts, tidy};
