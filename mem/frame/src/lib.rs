//! Frames: packet memory with one owner.
//!
//! A [`Pool`] cuts one shared mapping into chunks of equal size and hands them out as [`Frame`]s. A frame is
//! move-only: whoever holds it owns the bytes, and giving it to the kernel, another core or the pool means moving it
//! there. So no two parties can ever write the same packet, and that is checked by the compiler rather than by a
//! comment. Metadata lives beside the chunk, not in it: a chunk may be mapped into the kernel's AF_XDP memory, and
//! what we believe about a frame must not stand where somebody else can write.
//!
//! Never here: a clock, a lock, an allocation after [`Pool::new`].

mod burst;
mod frame;
mod mapping;
mod pool;

pub use burst::{BURST_MAX, Burst};
pub use frame::{Checksum, Frame, Gso, GsoKind, HEADROOM, Meta, OutOfChunk, leaked};
pub use mapping::Mapping;
pub use pool::{CHUNK_SIZE, Pool, PoolError, Region, UMEM_CHUNK_DATA_MAX};
