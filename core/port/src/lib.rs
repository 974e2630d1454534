//! Ports: how frames enter and leave the process.
//!
//! The contract is [`PortQueue`] (one queue of one port, owned by one worker) on top of [`WaitSource`] (how a
//! worker sleeps until there is work). Devices have crates of their own, such as `ports/packet`.
//! [`loopback`] needs no device and fulfils the same contract, so the layers above can be tested without a NIC.
//!
//! A queue may carry several ports ([`Carrier`]).
//!
//! [`fit`] does in software what a port does not support: segmentation, checksums, tags.

mod carried;
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
pub use queue::{PortQueue, QueueInfo, Received, SentParts};
pub use super_frame::packets_of;
pub use wait::WaitSource;
