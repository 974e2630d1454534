//! Reads frames with their offloads out of the ring of a socket with PACKET_VNET_HDR and PACKET_COPY_THRESH.
//!
//! A virtio-net header is in front of each frame. A frame that is longer than its slot is in the socket's queue as
//! well, from which it is read whole by one system call, into a chain of frames. Its slot keeps its place in the
//! order.
#![allow(unsafe_code, reason = "recvmsg(2) takes pointers to where it writes")]

use std::os::fd::{AsRawFd, OwnedFd};

use twinpath_frame::{CHUNK_SIZE, Frame, HEADROOM, OutOfChunk, Pool};
use twinpath_inspect::Reason;
use twinpath_port::vnet_header;
use twinpath_rings::packet::Slot;

use crate::chain::{PACKET_LEN_MAX, Prepared};

/// The frames for the next long packet.
#[derive(Debug, Default)]
pub struct WholeFrames {
    prepared: Prepared,
}

impl WholeFrames {
    /// Takes the frames for the first long packet from a fresh pool.
    pub fn fill(&mut self, pool: &mut Pool) {
        self.prepared.fill(pool);
    }

    /// The frame of a slot of `socket`'s ring. `None` if the frame was lost but for its start, because the socket's
    /// queue had no room for it.
    ///
    /// # Errors
    /// Why the frame is dropped. It is then no longer in the socket's queue.
    pub fn read(
        &mut self,
        slot: &Slot<'_>,
        socket: &OwnedFd,
        pool: &mut Pool,
    ) -> Result<Option<Frame>, Reason> {
        if !slot.is_in_queue {
            return in_slot(slot, pool);
        }
        let frame = self.queued(socket, pool)?;
        debug_assert!(
            frame.bytes().iter().zip(slot.bytes).all(|(whole, start)| whole == start),
            "the queue has the frames in the order of their slots"
        );
        Ok(Some(frame))
    }

    /// The next frame of the socket's queue.
    fn queued(&mut self, socket: &OwnedFd, pool: &mut Pool) -> Result<Frame, Reason> {
        if !self.prepared.refill(pool) {
            discard_queued(socket);
            return Err(Reason::PoolEmpty);
        }
        let vectors = self.prepared.vectors();
        // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len());
        // MSG_TRUNC: returns the full length even if it did not fit.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the vectors describe memory of the prepared chain, which nobody else touches during the call.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        let len = usize::try_from(len).ok().and_then(|len| len.checked_sub(vnet_header::LEN));
        let len = len.ok_or(Reason::Truncated)?;
        if len > PACKET_LEN_MAX {
            return Err(Reason::FrameTooLarge);
        }
        let header = *self.prepared.header();
        let mut frame = self.prepared.take(len).ok_or(Reason::FrameTooLarge)?;
        if vnet_header::decode(&header, frame.meta_mut()).is_err() {
            pool.release(frame);
            return Err(Reason::OffloadRefused);
        }
        Ok(frame)
    }

    /// The frames that it holds.
    #[must_use]
    pub fn into_frames(self) -> Vec<Frame> {
        self.prepared.into_frames()
    }
}

/// The frame in a slot; `None` if the slot has only its start.
fn in_slot(slot: &Slot<'_>, pool: &mut Pool) -> Result<Option<Frame>, Reason> {
    if slot.bytes.len() < slot.len {
        return Ok(None);
    }
    let header = slot.in_front().ok_or(Reason::Truncated)?;
    let mut frame = pool.take().ok_or(Reason::PoolEmpty)?;
    // A slot is a few bytes larger than a frame with its full headroom.
    let len = slot.bytes.len();
    let headroom = HEADROOM.min((CHUNK_SIZE as usize).saturating_sub(len) as u32);
    let copied = match frame.place(headroom, len) {
        Ok(()) => {
            frame.bytes_mut().copy_from_slice(slot.bytes);
            vnet_header::decode(header, frame.meta_mut()).map_err(|_| Reason::OffloadRefused)
        }
        Err(OutOfChunk) => Err(Reason::FrameTooLarge),
    };
    match copied {
        Ok(()) => Ok(Some(frame)),
        Err(reason) => {
            pool.release(frame);
            Err(reason)
        }
    }
}

/// Discards the next frame of the socket's queue.
#[cold]
pub fn discard_queued(socket: &OwnedFd) {
    let _ = rustix::net::recv(socket, &mut [0u8; 0][..], rustix::net::RecvFlags::DONTWAIT);
}
