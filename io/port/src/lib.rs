//! Ports: how frames enter and leave the process.
//!
//! The contract is [`PortQueue`] (one queue of one port, owned by one worker) on top of [`WaitSource`] (how a worker
//! sleeps until there is work). Real devices have crates of their own (`port_packet`, `port_xdp`). This crate holds
//! the ports that need no device: [`loopback`], [`null`], and the two that wrap another port: [`fault`] and
//! [`capture`]. All satisfy the same contract, so the layers above can be tested without a NIC, and faults can be
//! injected into any real port or its frames recorded.

pub mod capture;
pub mod fault;
pub mod loopback;
pub mod null;
mod queue;
mod wait;

pub use queue::{Capabilities, PortCounters, PortId, PortQueue};
pub use wait::WaitSource;
