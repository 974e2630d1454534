//! Which path an interface gets: what is known of it ([`facts`], [`device`], [`bypassed`]), and what follows from that ([`choose`]).
//!
//! Never here: a program or a socket. Nothing is attached to find out what a path would be like.

pub mod bypassed;
pub mod choose;
pub mod device;
pub mod facts;
pub mod privileges;
mod xdp_features;
