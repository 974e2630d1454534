//! The choice of an interface's path: the facts that it depends on ([`facts`], [`device`], [`bypassed`]), the decision
//! ([`choose`]; for ports of a switch [`forwarding`]), and notifications that the facts may have changed ([`Announcements`]).
//!
//! This crate attaches no program and opens no packet socket.

mod announced;
pub mod bypassed;
pub mod choose;
pub mod device;
mod ethtool;
pub mod facts;
pub mod forwarding;
pub mod privileges;
mod xdp_features;

pub use announced::{Announced, Announcements, XdpAnnouncements};
