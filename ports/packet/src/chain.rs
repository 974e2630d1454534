//! Buffers for one read or write of a packet that may span several frames: room for the largest packet, of which an
//! ordinary one uses only the first chunk.
#![allow(unsafe_code, reason = "readv(2), recvmsg(2) and writev(2) take pointers to the frames' chunks")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use twinpath_frame::{CHUNK_SIZE, Frame, HEADROOM, Meta, Pool};
use twinpath_inspect::Reason;
use twinpath_port::vnet_header;
use twinpath_sys::last_errno;

/// Bytes of one read: an IP packet of 65,535, an Ethernet header, two tags, and one more to detect a longer packet.
const ROOM: usize = 65_535 + 14 + 8 + 1;

/// Number of chunks for that. The first one keeps its headroom, so that a tag or a tunnel's header can be put in
/// front.
pub const CHAIN: usize = 1 + (ROOM - FIRST).div_ceil(CHUNK_SIZE as usize);
const FIRST: usize = (CHUNK_SIZE - HEADROOM) as usize;

/// Longest packet that is received, bytes from the Ethernet header.
pub const PACKET_LEN_MAX: usize = FIRST + (CHAIN - 1) * CHUNK_SIZE as usize - 1;

/// Maximum number of frames in a chain that is sent: a chain built elsewhere may have headroom in each frame.
const SENT_MAX: usize = 64;

/// A header and a chain of frames, ready to be read into.
#[derive(Debug)]
pub struct Prepared {
    frames: Box<[Option<Frame>; CHAIN]>,
    header: Box<[u8; vnet_header::LEN]>,
    /// The vectors of the read: one for the header, then one per run of adjacent chunks. If the pool's frames are
    /// in order, there are three in all.
    vectors: Box<[libc::iovec; 1 + CHAIN]>,
    vectors_len: usize,
    /// The frames before this index are missing.
    missing: usize,
    /// Whether more than the first frame has changed since the vectors were built.
    stale: bool,
}

// SAFETY: the pointers in `vectors` lead into `header` and into the chunks of `frames`, all of which move along.
unsafe impl Send for Prepared {}

impl Default for Prepared {
    fn default() -> Self {
        Self::new()
    }
}

impl Prepared {
    /// Without frames yet.
    #[must_use]
    pub fn new() -> Self {
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            frames: Box::new([const { None }; CHAIN]),
            header: Box::new([0; vnet_header::LEN]),
            vectors: Box::new([nothing; 1 + CHAIN]),
            vectors_len: 0,
            missing: CHAIN,
            stale: true,
        }
    }

    /// Fills the chain for the first time: the frames of a fresh pool come in order, with adjacent chunks.
    pub fn fill(&mut self, pool: &mut Pool) {
        if (pool.free() as usize) < CHAIN || self.missing < CHAIN {
            return;
        }
        for at in 0..CHAIN {
            self.frames[at] = pool.take().map(|frame| placed(frame, at));
        }
        self.missing = 0;
        self.lay_out();
    }

    /// Replaces the frames of the last packet from `pool`. Returns whether there is room for a packet now.
    #[inline]
    pub fn refill(&mut self, pool: &mut Pool) -> bool {
        if self.missing == 0 {
            return true;
        }
        // From the back: a chain is released in order, so its frames leave the pool's stack in reverse order, and
        // their chunks are adjacent again.
        while let Some(at) = self.missing.checked_sub(1) {
            let Some(frame) = pool.take() else { return false };
            self.frames[at] = Some(placed(frame, at));
            self.missing = at;
        }
        if self.stale {
            self.lay_out();
        } else if let Some(frame) = &mut self.frames[0] {
            self.vectors[1] = vector(frame.bytes_mut());
        }
        true
    }

    fn lay_out(&mut self) {
        self.vectors[0] = vector(&mut self.header[..]);
        self.vectors_len = 1;
        for (at, frame) in self.frames.iter_mut().flatten().enumerate() {
            let next = vector(frame.bytes_mut());
            let last = &mut self.vectors[self.vectors_len - 1];
            // The first chunk keeps a vector of its own, because it changes with every packet.
            if at > 1 && last.iov_base.wrapping_byte_add(last.iov_len) == next.iov_base {
                last.iov_len += next.iov_len;
            } else {
                self.vectors[self.vectors_len] = next;
                self.vectors_len += 1;
            }
        }
        self.stale = false;
    }

    /// The vectors to read into. To be called only after [`Self::refill`] returned true.
    pub fn vectors(&mut self) -> &mut [libc::iovec] {
        debug_assert_eq!(self.missing, 0);
        &mut self.vectors[..self.vectors_len]
    }

    /// The header that was read.
    pub const fn header(&self) -> &[u8; vnet_header::LEN] {
        &self.header
    }

    /// Takes the packet of `len` bytes that was read, as a frame or a chain.
    pub fn take(&mut self, len: usize) -> Option<Frame> {
        let count = 1 + len.saturating_sub(FIRST).div_ceil(CHUNK_SIZE as usize);
        let mut rest = len;
        for frame in self.frames.get_mut(..count)?.iter_mut().flatten() {
            let here = rest.min(frame.len());
            frame.set_len(here).ok()?;
            rest -= here;
        }
        let mut behind = None;
        for at in (0..count).rev() {
            let mut frame = self.frames[at].take()?;
            frame.meta_mut().next = behind;
            behind = Some(frame);
        }
        self.missing = count;
        self.stale |= count > 1;
        behind
    }

    /// Returns the frames it holds.
    pub fn into_frames(self) -> Vec<Frame> {
        self.frames.into_iter().flatten().collect()
    }
}

fn placed(mut frame: Frame, at: usize) -> Frame {
    let (offset, len) = if at == 0 { (HEADROOM, FIRST) } else { (0, CHUNK_SIZE as usize) };
    let placed = frame.place(offset, len);
    debug_assert!(placed.is_ok(), "a chunk holds its own length");
    frame
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() }
}

/// The vectors of a frame or chain to be written, with its header in front.
#[derive(Debug)]
pub struct Outgoing {
    header: Box<[u8; vnet_header::LEN]>,
    vectors: Box<[libc::iovec; 1 + SENT_MAX]>,
}

// SAFETY: the pointers in `vectors` are rewritten before each use.
unsafe impl Send for Outgoing {}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}

impl Outgoing {
    /// Without a frame yet.
    #[must_use]
    pub fn new() -> Self {
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self { header: Box::new([0; vnet_header::LEN]), vectors: Box::new([nothing; 1 + SENT_MAX]) }
    }

    /// Vectors over `frame`'s packet, for reading only, valid while it lives. `None` if it has more than [`SENT_MAX`]
    /// parts.
    fn lay_out(&mut self, frame: &Frame) -> Option<&[libc::iovec]> {
        *self.header = vnet_header::encode(frame.meta());
        self.vectors[0] = vector(&mut self.header[..]);
        let mut count = 1;
        for part in frame.chain() {
            let bytes = part.bytes();
            let next =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() };
            let last = &mut self.vectors[count - 1];
            if count > 1 && last.iov_base.wrapping_byte_add(last.iov_len) == next.iov_base {
                last.iov_len += next.iov_len;
                continue;
            }
            *self.vectors.get_mut(count)? = next;
            count += 1;
        }
        Some(&self.vectors[..count])
    }

    /// Sends `frame`'s packet, with its header in front, by a TAP queue or a packet socket with PACKET_VNET_HDR: one
    /// system call.
    ///
    /// # Errors
    /// What writev(2) returns; EMSGSIZE if the packet has too many parts.
    pub fn write(&mut self, fd: &OwnedFd, frame: &Frame) -> Result<(), Errno> {
        let vectors = self.lay_out(frame).ok_or(Errno::MSGSIZE)?;
        // SAFETY: each vector describes the header or bytes of the living frame, which the kernel only reads.
        let sent = unsafe { libc::writev(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as c_int) };
        if sent < 0 { Err(last_errno()) } else { Ok(()) }
    }

    /// The same for a packet of two parts that are no frames.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_parts(&mut self, fd: &OwnedFd, meta: &Meta, parts: [&[u8]; 2]) -> Result<(), Errno> {
        *self.header = vnet_header::encode(meta);
        let vectors = [&self.header[..], parts[0], parts[1]].map(|bytes| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: bytes.len(),
        });
        // SAFETY: each vector describes the header or bytes that are lent for the call, which the kernel only reads.
        let sent = unsafe { libc::writev(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as c_int) };
        if sent < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

/// Why the kernel did not take a frame with a virtio-net header.
#[must_use]
pub fn refusal(error: Errno) -> Reason {
    match error {
        // The socket's or the device's queue is full.
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Reason::PortFull,
        // The frame is longer than the interface's present MTU allows.
        Errno::MSGSIZE => Reason::FrameTooLarge,
        // The header's offloads contradict the frame, or are not supported.
        Errno::INVAL => Reason::OffloadRefused,
        // ENETDOWN, ENXIO, EIO (a TAP interface that is down), EBADFD (one that is gone).
        _ => Reason::PortDown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `len` bytes as the kernel would.
    fn fill(prepared: &mut Prepared, len: usize) {
        let mut written = 0;
        for vector in &prepared.vectors()[1..] {
            for at in 0..vector.iov_len.min(len - written) {
                // SAFETY: the vector describes chunks that `prepared` holds.
                unsafe { vector.iov_base.cast::<u8>().add(at).write((written + at) as u8) };
            }
            written += vector.iov_len.min(len - written);
        }
        assert_eq!(written, len);
    }

    fn bytes(frame: &Frame) -> Vec<u8> {
        frame.chain().flat_map(Frame::bytes).copied().collect()
    }

    #[test]
    fn packets_of_any_length_come_out_whole_and_their_chunks_come_home() {
        let mut pool = Pool::new(2 * CHAIN as u32).expect("pool");
        let mut prepared = Prepared::new();
        let mut outgoing = Outgoing::new();
        for len in [60, FIRST, FIRST + 1, 1, FIRST + 2048, FIRST + 2049, 40_000, 65_549, PACKET_LEN_MAX, 64] {
            assert!(prepared.refill(&mut pool));
            fill(&mut prepared, len);
            let frame = prepared.take(len).expect("prepared");
            assert_eq!(frame.chain_len(), len);
            let wanted: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert!(bytes(&frame) == wanted, "{len} bytes");
            let laid_out: usize =
                outgoing.lay_out(&frame).expect("few").iter().map(|vector| vector.iov_len).sum();
            assert_eq!(laid_out, vnet_header::LEN + len);
            pool.release(frame);
        }
        prepared.into_frames().into_iter().for_each(|frame| pool.release(frame));
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn an_ordinary_read_needs_three_pointers_also_after_large_packets() {
        let mut pool = Pool::new(2 * CHAIN as u32).expect("pool");
        let mut prepared = Prepared::new();
        prepared.fill(&mut pool);
        for len in [60, 60, 65_549, 65_549, 60, PACKET_LEN_MAX] {
            assert!(prepared.refill(&mut pool));
            let frame = prepared.take(len).expect("prepared");
            pool.release(frame);
        }
        assert!(prepared.refill(&mut pool));
        assert!(prepared.vectors().len() <= 4, "{} pointers", prepared.vectors().len());
        prepared.into_frames().into_iter().for_each(|frame| pool.release(frame));
    }

    #[test]
    fn without_frames_nothing_is_read_and_nothing_is_lost() {
        let mut pool = Pool::new(CHAIN as u32 + 1).expect("pool");
        let mut prepared = Prepared::new();
        assert!(prepared.refill(&mut pool));
        let large = prepared.take(65_549).expect("prepared");
        assert!(!prepared.refill(&mut pool), "one frame is left, where a chain is needed");
        pool.release(large);
        assert!(prepared.refill(&mut pool));
        prepared.into_frames().into_iter().for_each(|frame| pool.release(frame));
        assert_eq!(pool.free(), pool.frames());
    }
}
