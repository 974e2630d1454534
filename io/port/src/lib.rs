//! Ports: how frames enter and leave the process.
//!
//! The contract is [`PortQueue`] (one queue of one port, owned by one worker) on top of [`WaitSource`] (how a worker
//! sleeps until there is work). Real devices have crates of their own (`port_packet`, `port_xdp`). This crate holds
//! two ports that need no device: [`loopback`], and [`fault`], which wraps another port. Both satisfy the same
//! contract, so the layers above can be tested without a NIC, and faults can be injected into any real port.

pub mod fault;
pub mod loopback;
mod queue;
pub mod vnet_header;
mod wait;

pub use queue::{Capabilities, PortCounters, PortId, PortQueue, QueueInfo, Received};
pub use wait::WaitSource;
