//! The shared object by which packetdrill (github.com/google/packetdrill) runs its scripts against the TCP engine: what
//! packetdrill asks of a kernel's sockets, its network and its clock, over an engine that is a value.
//!
//! What blocks, what an error is called and which bits `poll` gives are Linux's rules, and they are here: the engine
//! knows no sockets. Where FreeBSD's rules differ, a profile says so ([`profile`]).

mod adapter;
mod address;
mod commands;
mod descriptor;
mod engine;
mod errno;
mod info;
mod interface;
mod knobs;
mod packet;
mod profile;
mod world;

pub use adapter::COMMANDS_VARIABLE;
pub use interface::{Interface, packetdrill_interface_init};
