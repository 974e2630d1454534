//! Services on both paths: the engine that a worker runs to serve.
//!
//! A claimed port has two paths. On the fast path, frames arrive at the worker's ports, `stack` parses them
//! to datagrams, and each reply leaves in the frame of its request. On the kernel path, a UDP socket and a
//! TCP listener on the same port serve the packets that the claims leave to the kernel: from local clients,
//! reassembled fragments, and everything while no fast path is attached. The service does not see by which
//! path a request arrived.
//!
//! The kernel's socket also sends replies to fast-path requests if the egress is not known yet, or if the
//! reply is too large for it.

mod demux;
mod engine;
pub mod fast_tcp;
mod frames;
pub mod handlers;
mod hosted;
pub mod kernel_tcp;
mod limits;
mod listing;
mod prototype;
#[cfg(feature = "services")]
pub mod services;
pub mod streams;

pub use crate::handlers::{HandlerPool, Panicked, Sends};
pub use crate::streams::{CHUNK, TcpTotals};
pub use demux::{Demux, DemuxCommand, PARTS_MAX, Prepare, Routes, ServicePart, Switch};
pub use engine::{KernelSide, SOCKETS_MAX, ServeCommand, ServeConfig, ServeEngine, ServeEvent};
pub use limits::ServiceLimits;
pub use listing::{ListFilter, Listed, ListedPath, Listing, WhyKernel};
pub use prototype::Prototype;
pub use twinpath_inspect::{ClaimCounters, ServeCounters};
pub use twinpath_udp::served::{Served, ServedPort};
