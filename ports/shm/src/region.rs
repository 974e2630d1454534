//! The memory that both sides map: a page of header, then the ring to the application, then the ring from it.
//!
//! The header is written once, before the memory is shared, and only the application reads it: the owner relies on
//! its own copy.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use twinpath_frame::{CHUNK_SIZE, HEADROOM, Mapping};
use twinpath_port::PortId;
use twinpath_rings::slots::{BadShape, Shape, SlotConsumer, SlotProducer, consumer, producer};

use crate::offer::{MAGIC, VERSION};

/// Largest frame in either direction: as much as a frame of the owner's pool holds.
pub const FRAME_LEN_MAX: u32 = CHUNK_SIZE - HEADROOM;

/// Default number of slots per direction, the same as ring entries of other ports: 2 x 512 x (64 + 16 + 1856) bytes
/// = 1.9 MiB.
pub const SLOTS_DEFAULT: u32 = 512;

/// Bytes in front of the first ring.
const HEADER_BYTES: usize = 4096;

/// Bytes of the header in use: `MAGIC`, `VERSION`, slots, bytes per slot.
const HEADER_USED: usize = 24;

/// The configuration of a port.
#[derive(Clone, Copy, Debug)]
pub struct ShmConfig {
    /// Number of the port and queue.
    pub id: PortId,
    /// Slots per direction, a power of two; usually [`SLOTS_DEFAULT`].
    pub slots: u32,
}

/// The sizes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
}

impl Layout {
    pub(crate) fn new(slots: u32) -> Result<Self, BadShape> {
        Shape::new(slots, FRAME_LEN_MAX).map(|shape| Self { shape })
    }

    pub(crate) const fn bytes(self) -> usize {
        HEADER_BYTES + 2 * self.shape.bytes()
    }

    const fn outbound(self) -> usize {
        HEADER_BYTES
    }

    const fn inbound(self) -> usize {
        HEADER_BYTES + self.shape.bytes()
    }

    fn header(self) -> [u8; HEADER_USED] {
        let mut bytes = [0; HEADER_USED];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.shape.slots().to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.shape.slot_bytes().to_ne_bytes());
        bytes
    }

    fn of_header(bytes: [u8; HEADER_USED]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u32::from_ne_bytes(*word));
        let layout = Self { shape: Shape::new(word(12)?, word(16)?).ok()? };
        (layout.header() == bytes).then_some(layout)
    }
}

/// The system call that failed while making a region, and its error.
pub(crate) type Failed = (&'static str, Errno);

/// Makes the memory, sealed so that nobody can change its size: a missing page would be a SIGBUS for the owner.
pub(crate) fn create(layout: Layout) -> Result<(OwnedFd, Arc<Mapping>), Failed> {
    let step = |what| move |errno| (what, errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("twinpath-shm-port", flags).map_err(step("memfd_create"))?;
    ftruncate(&memfd, layout.bytes() as u64).map_err(step("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&memfd, seals).map_err(step("sealing"))?;
    pwrite(&memfd, &layout.header(), 0).map_err(step("writing the header"))?;
    let mapping = Mapping::of_fd(&memfd, layout.bytes(), 0).map_err(step("mmap"))?;
    Ok((memfd, Arc::new(mapping)))
}

/// The owner's ends: of the ring to the application, and of the ring from it.
pub(crate) fn owner_ends(
    layout: Layout,
    mapping: &Arc<Mapping>,
) -> Result<(SlotProducer, SlotConsumer), BadShape> {
    Ok((
        producer(Arc::clone(mapping), layout.outbound(), layout.shape)?,
        consumer(Arc::clone(mapping), layout.inbound(), layout.shape)?,
    ))
}

/// The application's ends: of the ring from the owner, and of the ring to it. `None` if the memory does not have an
/// owner's layout.
pub(crate) fn application_ends(memfd: impl AsFd) -> Result<Option<(SlotConsumer, SlotProducer)>, Errno> {
    let mut header = [0; HEADER_USED];
    let read = pread(&memfd, &mut header, 0)?;
    let Some(layout) = Layout::of_header(header).filter(|_| read == HEADER_USED) else { return Ok(None) };
    if fstat(&memfd)?.st_size != layout.bytes() as i64 {
        return Ok(None);
    }
    let mapping = Arc::new(Mapping::of_fd(&memfd, layout.bytes(), 0)?);
    let from_owner = consumer(Arc::clone(&mapping), layout.outbound(), layout.shape);
    let to_owner = producer(mapping, layout.inbound(), layout.shape);
    Ok(from_owner.ok().zip(to_owner.ok()))
}
