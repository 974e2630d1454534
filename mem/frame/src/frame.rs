//! The frame: one owner, metadata in a header of its own.
#![allow(
    unsafe_code,
    reason = "a frame owns its header and chunk through a pointer; the pool proves that it is the only one"
)]

use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_time::Instant;

/// Bytes left free in front of a fresh frame's data, so that headers can be put in front of a payload without moving
/// it. AF_XDP keeps as many free in front of what it receives (`XDP_PACKET_HEADROOM`, linux/bpf.h).
pub const HEADROOM: u32 = 256;

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Frames that were dropped rather than released to their pool, in this process, ever. Always 0 in a sound program;
/// tests assert it and `show` would tell.
#[must_use]
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// What is known of a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is known: whoever cares computes it.
    #[default]
    Unverified,
    /// The device or the kernel has found it right.
    Verified,
    /// Only the pseudo-header sum is filled in; the sender left the rest to hardware it does not have
    /// (`CHECKSUM_PARTIAL`, include/linux/skbuff.h).
    Partial,
}

/// What kind of segments a frame holds that a device or the kernel still has to cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GsoKind {
    /// An ordinary frame.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of equal length (`UDP_SEGMENT`).
    UdpSegments,
}

/// Segmentation still to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gso {
    /// The kind.
    pub kind: GsoKind,
    /// The sender speaks ECN: CWR belongs into the first segment only (TCP, RFC 3168).
    pub ecn: bool,
    /// Payload bytes per segment.
    pub size: u16,
}

/// What travels beside the bytes.
#[derive(Debug, Default)]
pub struct Meta {
    /// When it arrived: the time of the turn that took it from its port.
    pub arrival: Instant,
    /// The port it came from, as its worker numbers ports.
    pub port: u16,
    /// The queue of that port.
    pub queue: u16,
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Where the bytes that the checksum covers begin, from the start of the data, where [`Self::checksum`] is
    /// [`Checksum::Partial`] and the port knows it; else 0.
    pub checksum_start: u16,
    /// Where the checksum itself stands, from there; known together with [`Self::checksum_start`].
    pub checksum_offset: u16,
    /// Length of all headers, up to and with the transport's, of a frame with segmentation to be done; 0 if not known.
    pub headers_len: u16,
    /// An 802.1Q tag that travels beside the frame (TCI, host order).
    pub vlan: Option<u16>,
    /// Segmentation still to be done.
    pub gso: Gso,
    /// The next frame of a packet that spans several.
    pub next: Option<Frame>,
}

/// Beside each chunk; one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Header {
    pub(crate) chunk: NonNull<u8>,
    pub(crate) chunk_len: u32,
    pub(crate) index: u32,
    pub(crate) pool: u32,
    offset: u16,
    len: u16,
    meta: Meta,
}

const _: () = assert!(size_of::<Header>() == 64, "one cache line");
const _: () = assert!(crate::pool::CHUNK_SIZE <= u16::MAX as u32, "an offset within a chunk fits its field");

impl Header {
    pub(crate) fn new(chunk: NonNull<u8>, chunk_len: u32, index: u32, pool: u32) -> Self {
        Self {
            chunk,
            chunk_len,
            index,
            pool,
            offset: HEADROOM.min(chunk_len) as u16,
            len: 0,
            meta: Meta::default(),
        }
    }
}

/// A frame: a chunk of packet memory and what is known of it. Whoever holds it owns both; give it back with
/// [`Pool::release`](crate::Pool::release).
#[derive(Debug)]
#[must_use = "a frame that is not released is lost to its pool"]
pub struct Frame(NonNull<Header>);

// SAFETY: a frame is the only way to its header and chunk, so moving it to another thread moves all access with it.
unsafe impl Send for Frame {}

impl Frame {
    /// # Safety
    /// `header` must be valid for as long as the frame lives, and no other frame may hold it.
    pub(crate) const unsafe fn from_header(header: NonNull<Header>) -> Self {
        Self(header)
    }

    /// Ends ownership without counting a leak.
    pub(crate) fn into_header(self) -> NonNull<Header> {
        let header = self.0;
        std::mem::forget(self);
        header
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the pool keeps the header alive while the frame is out, and only this frame holds it.
        unsafe { self.0.as_ref() }
    }

    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: as in `header`, and `&mut self` is exclusive.
        unsafe { self.0.as_mut() }
    }

    /// The chunk's number in its pool.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.header().index
    }

    /// Where the data begin, in bytes from the start of the pool's region: the address AF_XDP knows it by.
    #[must_use]
    pub fn region_offset(&self) -> u64 {
        let header = self.header();
        u64::from(header.index) * u64::from(header.chunk_len) + u64::from(header.offset)
    }

    /// Length of the data, bytes.
    #[must_use]
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
    pub fn bytes(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: `place` keeps offset + len within the chunk, which the pool initialised (zeroed memory) and only
        // this frame may touch.
        unsafe {
            slice::from_raw_parts(header.chunk.as_ptr().add(header.offset as usize), header.len as usize)
        }
    }

    /// The data, to be changed.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let header = self.header_mut();
        // SAFETY: as in `bytes`, and `&mut self` is exclusive.
        unsafe {
            slice::from_raw_parts_mut(header.chunk.as_ptr().add(header.offset as usize), header.len as usize)
        }
    }

    /// Lays the data at `offset` from the chunk's start, `len` bytes long, keeping whatever bytes stand there.
    ///
    /// # Errors
    /// [`OutOfChunk`] if that does not fit; the frame is unchanged then.
    pub fn place(&mut self, offset: u32, len: usize) -> Result<(), OutOfChunk> {
        let header = self.header_mut();
        let len = u32::try_from(len).map_err(|_| OutOfChunk)?;
        if offset.checked_add(len).is_none_or(|end| end > header.chunk_len) {
            return Err(OutOfChunk);
        }
        // Both are within the chunk, whose length fits.
        (header.offset, header.len) = (offset as u16, len as u16);
        Ok(())
    }

    /// Sets the length, keeping the start.
    ///
    /// # Errors
    /// [`OutOfChunk`] if the chunk has no room for it.
    pub fn set_len(&mut self, len: usize) -> Result<(), OutOfChunk> {
        self.place(u32::from(self.header().offset), len)
    }

    /// Drops the first `count` bytes of the data: the rest begins where it stands.
    ///
    /// # Errors
    /// [`OutOfChunk`] if there are fewer.
    pub fn advance(&mut self, count: usize) -> Result<(), OutOfChunk> {
        let rest = self.len().checked_sub(count).ok_or(OutOfChunk)?;
        let offset = u32::from(self.header().offset) + u32::try_from(count).map_err(|_| OutOfChunk)?;
        self.place(offset, rest)
    }

    /// Puts `count` bytes, of whatever value, in front of the data.
    ///
    /// # Errors
    /// [`OutOfChunk`] if there is no room in front.
    pub fn retreat(&mut self, count: usize) -> Result<(), OutOfChunk> {
        let count = u32::try_from(count).map_err(|_| OutOfChunk)?;
        let offset = u32::from(self.header().offset).checked_sub(count).ok_or(OutOfChunk)?;
        self.place(offset, self.len() + count as usize)
    }

    /// Makes it a copy of `bytes`, behind [`HEADROOM`].
    ///
    /// # Errors
    /// [`OutOfChunk`] if it does not fit; the frame is unchanged then.
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<(), OutOfChunk> {
        self.place(HEADROOM, bytes.len())?;
        self.bytes_mut().copy_from_slice(bytes);
        Ok(())
    }

    /// Largest length that fits behind the present start, bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let header = self.header();
        header.chunk_len as usize - usize::from(header.offset)
    }

    /// Length of the whole packet: of this frame and all that follow in its chain.
    #[must_use]
    pub fn chain_len(&self) -> usize {
        self.chain().map(Self::len).sum()
    }

    /// This frame and all that follow in its chain.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |frame| frame.meta().next.as_ref())
    }

    /// What travels beside the bytes.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.header().meta
    }

    /// What travels beside the bytes, to be changed.
    #[must_use]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.header_mut().meta
    }

    /// Empties it: no data, [`HEADROOM`] in front, nothing known.
    pub(crate) fn reset(&mut self) {
        let header = self.header_mut();
        header.offset = HEADROOM.min(header.chunk_len) as u16;
        header.len = 0;
        header.meta = Meta::default();
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        LEAKED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The place asked for is not within the frame's chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data would reach beyond the frame's chunk")]
pub struct OutOfChunk;
