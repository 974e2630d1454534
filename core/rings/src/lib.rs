//! Rings: shared memory that another core or the kernel reads and writes at the same time as we do.
//!
//! - [`handoff`]: one producer, one consumer, between two threads of the process.
//! - [`slots`]: one producer, one consumer, by copy, also to another process, which may die or violate the
//!   protocol.
//! - [`xsk`]: the four rings of an AF_XDP socket, shared with the kernel.
//! - [`direct`]: slots that a BPF program fills.
//! - [`lease`]: a direct ring beside a kernel socket, filled only while a thread looks, and the order of datagrams
//!   from both.
//! - [`remains`]: reads what is left in such a ring after its holder.
//! - [`sample`]: not a ring, but the start of a frame that the kernel sends for such a socket.
//! - [`packet`]: the receive ring of an AF_PACKET socket, shared with the kernel.
//! - [`waiting`]: not a ring, but a word beside several: whether their consumer sleeps and must be signalled.
//! - [`pending`]: not a ring, but a word beside the rings of each queue: since when a frame has been waiting in
//!   them.
//!
//! A ring is a pair of positions that count up modulo 2^32, and a cached copy of the peer's position, so that the
//! peer's cache line is read only when the ring looks full or empty (`cursor`). All atomics come from `sync`, which
//! uses the model checker's under `--cfg loom`.
//!
//! The model covers neither a peer that violates the protocol of `slots` (other tests do) nor the kernel's side of
//! `xsk` and `packet`. Their memory ordering follows the kernel's documentation, quoted where it is relied on, and
//! their logic is tested against a simple model of the kernel.

#[cfg(not(loom))]
pub mod answering;
mod cursor;
pub mod direct;
pub mod handoff;
#[cfg(not(loom))]
mod layouts;
pub mod lease;
#[cfg(not(loom))]
pub mod packet;
#[cfg(not(loom))]
pub mod pending;
#[cfg(not(loom))]
pub mod remains;
#[cfg(not(loom))]
pub mod sample;
pub mod slots;
mod sync;
pub mod waiting;
#[cfg(not(loom))]
pub mod xsk;
