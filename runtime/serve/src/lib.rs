//! Services on either path: the engine that a worker runs to serve.
//!
//! A claimed port has two paths. On the fast path frames come from the worker's ports, become datagrams in `stack`, and
//! their replies leave in the frames they came in. On the kernel path a UDP socket and a TCP listener on the same port
//! serve what never crosses the wire whole: local clients, fragments that the kernel has put together, everything while
//! no fast path is attached. The service cannot tell which way a request came.
//!
//! A fast-path reply whose way out is not known, or too small, leaves through the kernel's socket as well.

mod counters;
mod demux;
mod engine;
mod frames;
mod limits;
mod prototype;

pub use counters::{ClaimCounters, ServeCounters};
pub use demux::{Demux, DemuxCommand, Prepare, Routes, SLOTS_MAX, Slot, Switch};
pub use engine::{KernelSide, SOCKETS_MAX, ServeCommand, ServeConfig, ServeEngine, ServeEvent};
pub use limits::Limits;
pub use prototype::Prototype;
pub use twinpath_handlers::{HandlerPool, Panicked, PoolLimits};
pub use twinpath_kernel_tcp::{CHUNK, Share, TcpLimits};
pub use twinpath_stack::served::{Served, ServedPort};
