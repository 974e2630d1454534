//! Frames: packet memory in which every packet has exactly one owner.
//!
//! A [`Pool`] cuts one shared mapping into chunks of equal size and hands them out as [`Frame`]s. A frame is
//! move-only: its holder owns the bytes, and passing it to the kernel, another core or the pool moves it. So the
//! compiler ensures that no two parties write the same packet. Metadata is stored outside the chunk, because the
//! chunk may be mapped into the kernel's AF_XDP memory, where another party could change it.
//!
//! A packet that leaves by several ports is not copied for each of them: frames may share their bytes
//! ([`Pool::share`]). Each frame has metadata of its own, and gets a copy of the bytes before it writes to them.
//!
//! Never here: a clock, a lock, an allocation after [`Pool::new`].

mod burst;
mod chain;
mod frame;
mod lines;
mod mapping;
mod pool;
mod shared;

pub use burst::{BURST_MAX, Burst};
pub use frame::{CHUNK_SIZE, Checksum, Frame, Gso, GsoKind, HEADROOM, Meta, OutOfChunk, leaked};
pub use lines::{Line, Lines};
pub use mapping::Mapping;
pub use pool::{Pool, PoolError, Region, UMEM_CHUNK_DATA_MAX};
