//! Rings: everything that another core or the kernel reads and writes at the same time as we do.
//!
//! - [`handoff`]: one producer, one consumer, between two of our threads.
//! - [`slots`]: one producer, one consumer, by copy: also to a process that may die or lie.
//! - [`xsk`]: the four rings of an AF_XDP socket, shared with the kernel.
//! - [`direct`]: slots that a BPF program fills.
//! - [`packet`]: the receive ring of an AF_PACKET socket, shared with the kernel.
//! - [`pending`]: no ring, but what stands beside them all: since when something waits in one.
//!
//! A ring is a pair of positions that count up for ever (modulo 2^32) and a cached copy of the peer's, so that the
//! other side's cache line is touched only when the ring looks full or empty (`cursor`). All atomics come from
//! `sync`, which is the model checker's under `--cfg loom`.
//!
//! What the model cannot see: a peer that lies in `slots` (tests do that), and the kernel's side of `xsk` and `packet`. Their memory ordering is that of the kernel's
//! documentation, quoted where it is relied on, and their logic is tested against a naive model of the kernel.

mod cursor;
#[cfg(not(loom))]
pub mod direct;
pub mod handoff;
#[cfg(not(loom))]
pub mod packet;
#[cfg(not(loom))]
pub mod pending;
pub mod slots;
mod sync;
#[cfg(not(loom))]
pub mod xsk;
