//! Reads frames out of the slots of the ring, or of the socket's queue.
#![allow(unsafe_code, reason = "recvmsg(2) takes pointers to where it writes")]

use std::os::fd::{AsRawFd, OwnedFd};

use crate::chain::{PACKET_LEN_MAX, Prepared};
use twinpath_frame::{CHUNK_SIZE, Frame, HEADROOM, OutOfChunk, Pool};
use twinpath_inspect::Reason;
use twinpath_port::fit::insert_tag;
use twinpath_port::{CarriedPorts, vnet_header};
use twinpath_rings::packet::Slot;

use crate::carrier::ahead::Ahead;

/// EtherType of an 802.1Q tag.
const TAG: u16 = 0x8100;

/// The result of reading one slot.
pub(crate) enum Taken {
    /// A frame, with its length.
    Frame(Frame, usize),
    /// The port to which it belongs, if it is carried, and the reason.
    Dropped(Option<u16>, Reason),
    /// It was truncated, because the socket's queue had no room for all of it.
    Lost(u16),
}

/// The destination of the frames of slots.
pub(crate) struct Reader<'a> {
    pub(crate) receiver: &'a OwnedFd,
    pub(crate) ports: &'a CarriedPorts,
    pub(crate) prepared: &'a mut Prepared,
    pub(crate) pool: &'a mut Pool,
    /// While ports take turns: their shares of the kept chunks.
    pub(crate) shares: Option<&'a Ahead>,
}

impl Reader<'_> {
    pub(crate) fn read(&mut self, slot: &Slot<'_>) -> Taken {
        let Some(port) = self.ports.on_interface(slot.ifindex()).map(|carried| carried.port) else {
            if slot.is_in_queue {
                discard_queued(self.receiver);
            }
            // The interface was a port when the frame arrived.
            return Taken::Dropped(None, Reason::PortDown);
        };
        if self.shares.is_some_and(|ahead| ahead.has_share(port)) {
            if slot.is_in_queue {
                discard_queued(self.receiver);
            }
            return Taken::Dropped(Some(port), Reason::PortShare);
        }
        let read = if slot.is_in_queue { self.queued() } else { self.in_slot(slot) };
        let mut frame = match read {
            Ok(Some(frame)) => frame,
            Ok(None) => return Taken::Lost(port),
            Err(reason) => return Taken::Dropped(Some(port), reason),
        };
        let tagged = match (slot.vlan_tci, slot.vlan_tpid) {
            (Some(tci), Some(protocol)) if protocol != TAG => {
                // Only an 802.1Q tag can be beside a frame.
                let ([p0, p1], [c0, c1]) = (protocol.to_be_bytes(), tci.to_be_bytes());
                insert_tag(&mut frame, [p0, p1, c0, c1])
            }
            (tci, _) => {
                frame.meta_mut().vlan = tci;
                true
            }
        };
        if !tagged {
            self.pool.release(frame);
            return Taken::Dropped(Some(port), Reason::OffloadRefused);
        }
        frame.meta_mut().port = port;
        let len = frame.chain_len();
        Taken::Frame(frame, len)
    }

    /// The frame in the slot; `None` if the slot has only its start.
    fn in_slot(&mut self, slot: &Slot<'_>) -> Result<Option<Frame>, Reason> {
        if slot.bytes.len() < slot.len {
            return Ok(None);
        }
        let header = slot.in_front().ok_or(Reason::Truncated)?;
        let mut frame = self.pool.take().ok_or(Reason::PoolEmpty)?;
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
                self.pool.release(frame);
                Err(reason)
            }
        }
    }

    /// The next frame of the socket's queue, whole.
    fn queued(&mut self) -> Result<Option<Frame>, Reason> {
        if !self.prepared.refill(self.pool) {
            discard_queued(self.receiver);
            return Err(Reason::PoolEmpty);
        }
        let vectors = self.prepared.vectors();
        // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len());
        // MSG_TRUNC: returns the full length even if it did not fit.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the vectors describe memory of the prepared chain, which nobody else touches during the call.
        let len = unsafe { libc::recvmsg(self.receiver.as_raw_fd(), &raw mut message, flags) };
        let len = usize::try_from(len).ok().and_then(|len| len.checked_sub(vnet_header::LEN));
        let len = len.ok_or(Reason::Truncated)?;
        if len > PACKET_LEN_MAX {
            return Err(Reason::FrameTooLarge);
        }
        let header = *self.prepared.header();
        let mut frame = self.prepared.take(len).ok_or(Reason::FrameTooLarge)?;
        if vnet_header::decode(&header, frame.meta_mut()).is_err() {
            self.pool.release(frame);
            return Err(Reason::OffloadRefused);
        }
        Ok(Some(frame))
    }
}

/// Discards the next frame of the socket's queue.
#[cold]
pub(crate) fn discard_queued(socket: &OwnedFd) {
    let _ = rustix::net::recv(socket, &mut [0u8; 0][..], rustix::net::RecvFlags::DONTWAIT);
}
