//! The choice of an interface's path: the facts that it depends on ([`facts`], [`device`], [`bypassed`]), and the
//! decision ([`choose`]).
//!
//! This crate attaches no program and opens no packet socket.

pub mod bypassed;
pub mod choose;
pub mod device;
pub mod facts;
pub mod privileges;
mod xdp_features;
