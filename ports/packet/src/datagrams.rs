//! Takes coalesced datagrams apart: what a peer has sent by one call (`UDP_SEGMENT`), or a device's driver has joined.
//!
//! Each payload is copied once, by the kernel or out of the slot, to where its datagram is. The datagrams are then like
//! those that come one by one from a virtual device: the checksum is left to hardware.
#![allow(unsafe_code, reason = "recvmsg(2) takes pointers to where it writes")]

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use twinpath_frame::{CHUNK_SIZE, Checksum, Frame, HEADROOM, Meta, Pool};
use twinpath_inspect::Reason;
use twinpath_port::vnet_header;
use twinpath_rings::packet::Slot;
use twinpath_wire::eth::TAG_LEN;
use twinpath_wire::offload::{Headers, Segmentation};
use twinpath_wire::{eth, ipv4, ipv6};

use crate::segments::CHECKSUM_AT;
use crate::whole::{discard_queued, next_queued};

/// Maximum number of datagrams in one frame that are taken apart: `UDP_MAX_SEGMENTS` of linux/udp.h, which was 64 before
/// Linux 6.9.
pub const DATAGRAMS_MAX: usize = 128;

/// Datagrams that came in one frame, and that are still to be passed on.
#[derive(Debug)]
pub(crate) struct Datagrams {
    waiting: VecDeque<Frame>,
    vectors: Box<[libc::iovec; 1 + DATAGRAMS_MAX]>,
}

// SAFETY: the pointers in `vectors` are rewritten before each use.
unsafe impl Send for Datagrams {}

impl Datagrams {
    pub(crate) fn new() -> Self {
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let waiting = VecDeque::with_capacity(DATAGRAMS_MAX);
        Self { waiting, vectors: Box::new([nothing; 1 + DATAGRAMS_MAX]) }
    }

    /// Whether a datagram is waiting.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next datagram.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Frame> {
        self.waiting.pop_front()
    }

    /// Takes the frame of a slot apart, whose metadata are `meta`. None must be waiting. Returns the number of datagrams,
    /// which then wait.
    ///
    /// # Errors
    /// Why the frame is dropped. It is then no longer in the socket's queue either.
    pub(crate) fn take(
        &mut self,
        slot: &Slot<'_>,
        meta: &Meta,
        socket: &OwnedFd,
        pool: &mut Pool,
    ) -> Result<usize, Reason> {
        debug_assert!(self.waiting.is_empty(), "the former ones come first");
        let prepared = cut(slot.bytes, slot.len, meta).and_then(|cut| {
            self.prepare(&cut, pool)?;
            Ok(cut)
        });
        let taken = match prepared {
            Ok(cut) if slot.is_in_queue => self.read(&cut, slot.len, socket).map(|()| cut),
            Ok(cut) => self.copy(&cut, slot.bytes).map(|()| cut),
            Err(reason) => {
                if slot.is_in_queue {
                    discard_queued(socket);
                }
                Err(reason)
            }
        };
        match taken {
            Ok(cut) => {
                self.finish(&cut, slot);
                Ok(self.waiting.len())
            }
            Err(reason) => {
                self.release(pool);
                Err(reason)
            }
        }
    }

    /// Takes a frame for each datagram.
    fn prepare(&mut self, cut: &Segmentation, pool: &mut Pool) -> Result<(), Reason> {
        for number in 0..cut.count() {
            let mut frame = pool.take().ok_or(Reason::PoolEmpty)?;
            let len = cut.headers().payload_at + cut.payload(number).len();
            let headroom = HEADROOM.min((CHUNK_SIZE as usize).saturating_sub(len) as u32);
            let placed = frame.place(headroom, len);
            self.waiting.push_back(frame);
            placed.map_err(|_| Reason::FrameTooLarge)?;
        }
        Ok(())
    }

    /// Reads the next frame of the socket's queue: the payloads to their places, and the headers in front of the first.
    fn read(&mut self, cut: &Segmentation, frame_len: usize, socket: &OwnedFd) -> Result<(), Reason> {
        let headers_len = cut.headers().payload_at;
        let mut header = [0u8; vnet_header::LEN];
        self.vectors[0] = vector(&mut header);
        for (number, frame) in self.waiting.iter_mut().enumerate() {
            let from = if number == 0 { 0 } else { headers_len };
            self.vectors[1 + number] = vector(&mut frame.bytes_mut()[from..]);
        }
        // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (self.vectors.as_mut_ptr(), 1 + self.waiting.len());
        // MSG_TRUNC: returns the full length even if it did not fit.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the vectors describe the header and memory of the waiting frames, which nobody else touches during the
        // call.
        let len = next_queued(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) });
        let is_whole = len.is_ok_and(|len| len == vnet_header::LEN + frame_len);
        if is_whole { Ok(()) } else { Err(Reason::Truncated) }
    }

    /// Copies the payloads out of a slot.
    fn copy(&mut self, cut: &Segmentation, bytes: &[u8]) -> Result<(), Reason> {
        let headers_len = cut.headers().payload_at;
        for (number, frame) in self.waiting.iter_mut().enumerate() {
            let payload = bytes.get(cut.payload(number)).ok_or(Reason::Truncated)?;
            frame.bytes_mut()[headers_len..].copy_from_slice(payload);
        }
        Ok(())
    }

    /// Writes the headers of all datagrams.
    fn finish(&mut self, cut: &Segmentation, slot: &Slot<'_>) {
        let headers: &Headers = cut.headers();
        for (number, frame) in self.waiting.iter_mut().enumerate() {
            // Those in the slot are the same as those that were read.
            frame.bytes_mut()[..headers.payload_at].copy_from_slice(&slot.bytes[..headers.payload_at]);
            cut.write_datagram_headers(number, frame.bytes_mut());
            let meta = frame.meta_mut();
            meta.vlan = slot.vlan_tci;
            meta.checksum = Checksum::Partial;
            meta.checksum_start = headers.transport_at as u16;
            meta.checksum_offset = (headers.checksum_at() - headers.transport_at) as u16;
        }
    }

    /// Releases all that wait; returns their number.
    pub(crate) fn release(&mut self, pool: &mut Pool) -> u64 {
        let count = self.waiting.len() as u64;
        self.waiting.drain(..).for_each(|frame| pool.release(frame));
        count
    }

    pub(crate) fn into_frames(self) -> impl Iterator<Item = Frame> {
        self.waiting.into_iter()
    }
}

/// Says of a datagram that a program has taken out of a coalesced frame, without options or a tag in its headers, that its
/// checksum is left to hardware.
pub(crate) fn leave_checksum(frame: &mut Frame) {
    let is_ipv4 = frame.bytes().get(12..14) == Some(&[0x08, 0x00]);
    let ip_header_len = if is_ipv4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let meta = frame.meta_mut();
    meta.checksum = Checksum::Partial;
    meta.checksum_start = (eth::HEADER_LEN + ip_header_len) as u16;
    meta.checksum_offset = CHECKSUM_AT;
}

/// How a frame of `frame_len` bytes that begins with `start` is cut into datagrams. Only a frame whose checksum was left to
/// hardware is: the datagrams of another one would have to be verified each.
fn cut(start: &[u8], frame_len: usize, meta: &Meta) -> Result<Segmentation, Reason> {
    if meta.checksum != Checksum::Partial {
        return Err(Reason::OffloadRefused);
    }
    let found = Segmentation::of(start, frame_len, meta.gso.size).map_err(|_| Reason::OffloadRefused)?;
    // Of a packet in a tunnel, whose outer datagram looks the same to the programs, the inner segments are meant.
    let headers = found.headers();
    let begins =
        [headers.transport_at, headers.transport_at + TAG_LEN].contains(&usize::from(meta.checksum_start));
    let is_outer =
        begins && usize::from(meta.checksum_offset) == headers.checksum_at() - headers.transport_at;
    // The programs claim no others.
    let is_plain = !found.headers().is_tcp
        && is_outer
        && found.count() <= DATAGRAMS_MAX
        && found.headers().payload_at < frame_len
        && found.headers().payload_at <= start.len();
    if !is_plain {
        return Err(Reason::OffloadRefused);
    }
    // A frame that is longer than a slot has at least its headers there.
    let fits = found.packet_len_max() <= (CHUNK_SIZE - HEADROOM) as usize;
    if fits { Ok(found) } else { Err(Reason::FrameTooLarge) }
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use twinpath_frame::Gso;

    use super::*;

    /// Such as a guest may send.
    #[test]
    fn datagrams_whose_checksums_nobody_has_left_to_hardware_are_refused() {
        let mut frame = [0; 14 + 20 + 8 + 30];
        (frame[12], frame[14], frame[17], frame[23]) = (8, 0x45, 20 + 8 + 30, 17);
        frame[39] = 8 + 30;
        let gso = Gso { size: 10, ..Gso::default() };
        let cut = |checksum, checksum_start| {
            let meta = Meta { checksum, checksum_start, checksum_offset: 6, gso, ..Meta::default() };
            cut(&frame, frame.len(), &meta).map(|cut| cut.count())
        };
        // Some kernels count a tag that is beside the frame.
        assert_eq!([34, 38].map(|start| cut(Checksum::Partial, start)), [Ok(3); 2]);
        for checksum in [Checksum::Unverified, Checksum::Verified] {
            assert_eq!(cut(checksum, 34), Err(Reason::OffloadRefused));
        }
        // That of a datagram in a tunnel.
        assert_eq!(cut(Checksum::Partial, 34 + 8 + 8 + 34), Err(Reason::OffloadRefused));
    }
}
