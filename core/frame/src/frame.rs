//! The frame: a move-only handle on a chunk of packet memory, with its metadata in a separate header.
#![allow(
    unsafe_code,
    reason = "a frame owns its header and chunk through a pointer; the pool proves that it is the only one, or that none writes"
)]

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_time::Instant;

/// Bytes per chunk. AF_XDP's aligned mode takes 2048 or a page (Documentation/networking/af_xdp.rst, "UMEM"); 2048
/// holds an Ethernet frame of MTU 1500 with all headroom. Frames that do not fit are not claimed and stay with the
/// kernel.
pub const CHUNK_SIZE: u32 = 2048;

/// Bytes left free in front of the data of a new frame, so that headers can be put in front of a payload without
/// moving it. AF_XDP leaves the same headroom in front of received data (`XDP_PACKET_HEADROOM`, linux/bpf.h).
pub const HEADROOM: u32 = 256;

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Number of frames, since the process started, that were dropped rather than released to their pool. It is 0 unless
/// there is a bug; tests assert that, and `show` reports it.
#[must_use]
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// What is known about a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is known: code that needs the checksum computes it.
    #[default]
    Unverified,
    /// The device or the kernel has verified it.
    Verified,
    /// Only the pseudo-header sum is filled in; the sender left the rest to hardware it does not have
    /// (`CHECKSUM_PARTIAL`, include/linux/skbuff.h).
    Partial,
}

/// The kind of segmentation that a device or the kernel still has to do on a frame (generic segmentation offload).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GsoKind {
    /// No segmentation: an ordinary frame.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of equal length (`UDP_SEGMENT`).
    UdpSegments,
}

/// The segmentation still to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gso {
    /// The kind.
    pub kind: GsoKind,
    /// The sender uses ECN: CWR belongs into the first segment only (TCP, RFC 3168).
    pub ecn: bool,
    /// Payload bytes per segment.
    pub size: u16,
}

/// Metadata of a frame, outside its bytes.
#[derive(Debug, Default)]
pub struct Meta {
    /// Arrival time: the time of the turn in which the worker received it.
    pub arrival: Instant,
    /// The port it came from, by its number in this process.
    pub port: u16,
    /// The queue of that port.
    pub queue: u16,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Where the checksummed range begins, bytes from the start of the data, if [`Self::checksum`] is
    /// [`Checksum::Partial`] and the port knows it; else 0.
    pub checksum_start: u16,
    /// Offset of the checksum field from there; known together with [`Self::checksum_start`].
    pub checksum_offset: u16,
    /// A hint of the sender of a frame with segmentation to be done: bytes that hold at least all headers, up to and
    /// including the transport header (the kernel gives the length of the linear part of its buffer); 0 if not known.
    pub headers_len: u16,
    /// TCI (host order) of an 802.1Q tag that is not in the frame's bytes.
    pub vlan: Option<u16>,
    /// Segmentation still to be done.
    pub gso: Gso,
    /// The next frame of a packet that spans several.
    pub next: Option<Frame>,
}

/// A frame's header, stored beside its chunk; one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Header {
    /// The chunk that has the data: the frame's own, or that of a frame whose bytes it shares.
    pub(crate) chunk: NonNull<u8>,
    pub(crate) index: u32,
    pub(crate) pool: u32,
    pub(crate) sharing: Sharing,
    offset: u16,
    len: u16,
    meta: Meta,
}

const _: () = assert!(size_of::<Header>() == 64, "one cache line");
const _: () = assert!(CHUNK_SIZE <= u16::MAX as u32, "an offset within a chunk fits its field");

/// Whether bytes are shared, in one word:
///
/// - 0: they are not;
/// - in a frame's header: one plus the index of its source, the frame whose chunk it reads. [`Sharing::COPIED`] is
///   added once the frame has a copy of its own but is still counted as a reader;
/// - in a source's header: the number of its readers. Nobody holds a source as a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing(pub(crate) u32);

impl Sharing {
    pub(crate) const NONE: Self = Self(0);
    const COPIED: u32 = 1 << 31;

    /// For a frame that reads the chunk of the source with this index.
    pub(crate) const fn reading(source: u32) -> Self {
        Self(source + 1)
    }

    /// Whether the bytes are another frame's. A single comparison, because it runs before each access that may
    /// write.
    #[inline]
    const fn is_reading(self) -> bool {
        self.0.wrapping_sub(1) < Self::COPIED
    }

    const fn copied(self) -> Self {
        Self(self.0 | Self::COPIED)
    }

    /// The index of the source, if the frame is counted as a reader of one.
    pub(crate) const fn source(self) -> Option<u32> {
        (self.0 & !Self::COPIED).checked_sub(1)
    }
}

impl Header {
    pub(crate) fn new(chunk: NonNull<u8>, index: u32, pool: u32) -> Self {
        Self {
            chunk,
            index,
            pool,
            sharing: Sharing::NONE,
            offset: HEADROOM as u16,
            len: 0,
            meta: Meta::default(),
        }
    }

    /// The header's own chunk, even while it reads another one.
    fn own_chunk(&self) -> NonNull<u8> {
        let source = if self.sharing.is_reading() { self.sharing.source() } else { None };
        let ahead = i64::from(self.index) - i64::from(source.unwrap_or(self.index));
        // SAFETY: both chunks are chunks of the same pool, `index` times their size from the start of one mapping.
        unsafe { self.chunk.offset(ahead as isize * CHUNK_SIZE as isize) }
    }

    /// Makes it read its own chunk again and ends its count as a reader. Returns the index of the source that
    /// counted it.
    pub(crate) fn end_sharing(&mut self) -> Option<u32> {
        self.chunk = self.own_chunk();
        std::mem::take(&mut self.sharing).source()
    }

    /// Makes it read the same bytes as `source`, counted as a reader of the source with index `counted`.
    pub(crate) const fn share(&mut self, source: &Self, counted: u32) {
        self.sharing = Sharing::reading(counted);
        (self.chunk, self.offset, self.len) = (source.chunk, source.offset, source.len);
    }
}

/// A frame: a chunk of packet memory and its metadata. The holder owns both, and gives them back with
/// [`Pool::release`](crate::Pool::release).
#[derive(Debug)]
#[must_use = "a frame that is not released is lost to its pool"]
pub struct Frame(NonNull<Header>);

// SAFETY: a frame is the only way to its header, and to its chunk, so moving it to another thread moves all access with
// it. The chunk of a source is read by several frames, and nothing writes it before all of them are back in the pool;
// that they count is known to the pool alone.
unsafe impl Send for Frame {}

impl Frame {
    /// # Safety
    /// `header` must be valid for as long as the frame lives, and no other frame may hold it.
    pub(crate) const unsafe fn from_header(header: NonNull<Header>) -> Self {
        Self(header)
    }

    /// Gives up ownership without counting a leak.
    #[inline]
    pub(crate) fn into_header(self) -> NonNull<Header> {
        let header = self.0;
        std::mem::forget(self);
        header
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the pool keeps the header alive while the frame is out, and only this frame holds it.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn header_mut(&mut self) -> &mut Header {
        // SAFETY: as in `header`, and `&mut self` is exclusive.
        unsafe { self.0.as_mut() }
    }

    /// The number of its pool in this process.
    #[must_use]
    pub fn pool(&self) -> u32 {
        self.header().pool
    }

    /// The chunk's index in its pool.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.header().index
    }

    /// Where the data begin, in bytes from the start of the pool's region: the address that AF_XDP uses for it. A frame
    /// that shares its bytes gets a copy of its own first.
    #[must_use]
    pub fn region_offset(&mut self) -> u64 {
        self.unshare();
        let header = self.header();
        u64::from(header.index) * u64::from(CHUNK_SIZE) + u64::from(header.offset)
    }

    /// Whether it reads bytes that other frames read as well ([`Pool::share`](crate::Pool::share)).
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.header().sharing.is_reading()
    }

    /// Makes the bytes the frame's own, by copying them if they are shared. Costs a comparison if they are not.
    #[inline]
    fn unshare(&mut self) {
        if self.is_shared() {
            self.copy_to_own_chunk();
        }
    }

    /// Every frame keeps its own chunk while it reads another one's, so this needs no memory.
    #[cold]
    fn copy_to_own_chunk(&mut self) {
        let header = self.header_mut();
        let own = header.own_chunk();
        let (offset, len) = (header.offset as usize, header.len as usize);
        // SAFETY: offset + len is within a chunk (`place`), and the two chunks do not overlap. The source's is not written
        // while this frame counts, and nobody else has this frame's own.
        unsafe { header.chunk.add(offset).copy_to_nonoverlapping(own.add(offset), len) };
        (header.chunk, header.sharing) = (own, header.sharing.copied());
    }

    /// Length of the data, bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.header().len as usize
    }

    /// Whether there are no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header().len == 0
    }

    /// The data.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: `place` keeps offset + len within the chunk, which the pool initialised (zeroed memory). Only this frame
        // may touch it or, if it is shared, nobody writes it.
        unsafe {
            slice::from_raw_parts(header.chunk.as_ptr().add(header.offset as usize), header.len as usize)
        }
    }

    /// The data, mutable. A frame that shares its bytes gets a copy of its own first.
    #[must_use]
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.unshare();
        let header = self.header_mut();
        // SAFETY: as in `bytes`; `&mut self` is exclusive, and the chunk is not shared.
        unsafe {
            slice::from_raw_parts_mut(header.chunk.as_ptr().add(header.offset as usize), header.len as usize)
        }
    }

    /// Sets the data to `len` bytes that begin `offset` bytes from the chunk's start. The chunk's bytes are
    /// unchanged.
    ///
    /// # Errors
    /// [`OutOfChunk`] if that does not fit; the frame is unchanged then.
    #[inline]
    pub fn place(&mut self, offset: u32, len: usize) -> Result<(), OutOfChunk> {
        let header = self.header_mut();
        let len = u32::try_from(len).map_err(|_| OutOfChunk)?;
        if offset.checked_add(len).is_none_or(|end| end > CHUNK_SIZE) {
            return Err(OutOfChunk);
        }
        // Both are within the chunk, whose length fits into 16 bits.
        (header.offset, header.len) = (offset as u16, len as u16);
        Ok(())
    }

    /// Sets the length and keeps the start.
    ///
    /// # Errors
    /// [`OutOfChunk`] if the chunk has no room for it.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), OutOfChunk> {
        self.place(u32::from(self.header().offset), len)
    }

    /// Removes the first `count` bytes from the data by moving its start; no byte is copied.
    ///
    /// # Errors
    /// [`OutOfChunk`] if there are fewer.
    pub fn advance(&mut self, count: usize) -> Result<(), OutOfChunk> {
        let rest = self.len().checked_sub(count).ok_or(OutOfChunk)?;
        let offset = u32::from(self.header().offset) + u32::try_from(count).map_err(|_| OutOfChunk)?;
        self.place(offset, rest)
    }

    /// Extends the data by `count` bytes in front, whose values are unspecified.
    ///
    /// # Errors
    /// [`OutOfChunk`] if there is no room in front.
    pub fn retreat(&mut self, count: usize) -> Result<(), OutOfChunk> {
        let count = u32::try_from(count).map_err(|_| OutOfChunk)?;
        let offset = u32::from(self.header().offset).checked_sub(count).ok_or(OutOfChunk)?;
        self.place(offset, self.len() + count as usize)
    }

    /// Replaces the data by a copy of `bytes`, with [`HEADROOM`] in front.
    ///
    /// # Errors
    /// [`OutOfChunk`] if it does not fit; the frame is unchanged then.
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<(), OutOfChunk> {
        self.place(HEADROOM, bytes.len())?;
        self.bytes_mut().copy_from_slice(bytes);
        Ok(())
    }

    /// Largest length that fits with the present start, bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        CHUNK_SIZE as usize - usize::from(self.header().offset)
    }

    /// The metadata.
    #[must_use]
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.header().meta
    }

    /// The metadata, mutable.
    #[must_use]
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.header_mut().meta
    }

    /// Empties the frame: no data, [`HEADROOM`] in front, default metadata.
    #[inline]
    pub(crate) fn reset(&mut self) {
        let header = self.header_mut();
        header.offset = HEADROOM as u16;
        header.len = 0;
        header.meta = Meta::default();
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        LEAKED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The range is not within the frame's chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data would reach beyond the frame's chunk")]
pub struct OutOfChunk;
