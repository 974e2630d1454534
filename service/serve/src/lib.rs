//! Services on both paths: the engine that a worker runs to serve.
//!
//! A claimed port has two paths. On the fast path, frames come from the worker's ports, `stack` parses them to
//! datagrams, and each reply leaves in the frame of its request. On the kernel path, a UDP socket and a TCP
//! listener on the same port serve what the claims leave to the kernel: local clients, reassembled fragments,
//! and everything while no fast path is attached. The service does not see which path a request came by.
//!
//! If the egress of a reply is not known yet, or the reply is too large for it, the kernel's socket sends the
//! reply of a fast-path request as well.

mod demux;
mod engine;
mod frames;
pub mod handlers;
mod hosted;
pub mod kernel_tcp;
mod limits;
mod prototype;

pub use crate::handlers::{HandlerPool, Panicked, Sends};
pub use crate::kernel_tcp::{CHUNK, TcpTotals};
pub use demux::{Demux, DemuxCommand, PARTS_MAX, Prepare, Routes, ServicePart, Switch};
pub use engine::{KernelSide, SOCKETS_MAX, ServeCommand, ServeConfig, ServeEngine, ServeEvent};
pub use limits::ServiceLimits;
pub use prototype::Prototype;
pub use twinpath_inspect::{ClaimCounters, ServeCounters};
pub use twinpath_udp::served::{Served, ServedPort};
