//! Ports: how frames enter and leave the process.
//!
//! The contract is [`PortQueue`] (one queue of one port, owned by one worker) on top of [`WaitSource`] (how a worker
//! sleeps until there is something). Real devices live in crates of their own (`port_packet`, `port_xdp`); here are
//! the ports that need no device: [`loopback`], [`null`], and the two that wrap another port: [`fault`] and
//! [`capture`]. They satisfy the same contract, so everything above can be tested without a NIC and any real port can
//! be made to misbehave or be recorded.

pub mod capture;
pub mod fault;
pub mod loopback;
pub mod null;
mod queue;
mod wait;

pub use queue::{Capabilities, PortCounters, PortId, PortQueue};
pub use wait::WaitSource;
