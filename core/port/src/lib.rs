//! Ports: how frames enter and leave the process.
//!
//! The contract is [`PortQueue`] (one queue of one port, owned by one worker) on top of [`WaitSource`] (how a
//! worker sleeps until there is work). Real devices have crates of their own (`port_packet`, `port_xdp`). This
//! crate holds two ports that need no device: [`loopback`], and [`fault`], which wraps another port. Both fulfil
//! the same contract, so the layers above can be tested without a NIC, and faults can be injected into any real
//! port.
//!
//! A queue may carry several ports ([`Carrier`]).
//!
//! [`fit`] does in software what a port does not support: segmentation, checksums, tags.

mod carried;
pub mod fault;
pub mod fit;
pub mod loopback;
mod port;
mod queue;
mod super_frame;
pub mod vnet_header;
mod wait;
pub mod wire_copy;

pub use carried::{CarriedPort, CarriedPorts, Carrier, PORTS_MAX};
pub use port::{Capabilities, GsoKinds, LinkState, PortCounters, PortCounts, PortId};
pub use queue::{PortQueue, QueueInfo, Received};
pub use super_frame::packets_of;
pub use wait::WaitSource;
