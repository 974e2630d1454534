//! Reads frames with their offloads out of the ring of a socket with PACKET_VNET_HDR and PACKET_COPY_THRESH.
//!
//! A virtio-net header is in front of each frame. A frame that is longer than its slot is in the socket's queue as
//! well, from which it is read whole by one system call, into a chain of frames. Its slot keeps its place in the
//! order.
#![allow(unsafe_code, reason = "recvmsg(2) takes pointers to where it writes")]

use std::io;
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
        let len = next_queued(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) }).ok();
        let len = len.and_then(|len| len.checked_sub(vnet_header::LEN)).ok_or(Reason::Truncated)?;
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

/// The bytes that `receive`, a call of recvmsg(2), returns for the next frame of the socket's queue. An error that waits at the socket
/// is returned once in place of a frame (ENETDOWN, when the interface goes down). Each later slot would then get the frame of
/// the one before it, so the socket is asked again. Other errors are of a frame, which is no longer in the queue.
///
/// # Errors
/// EAGAIN: the queue is empty. EINVAL: there was no room for the virtio-net header (packet_recvmsg(), net/packet/af_packet.c).
pub(crate) fn next_queued(mut receive: impl FnMut() -> isize) -> io::Result<usize> {
    let mut next = || usize::try_from(receive()).map_err(|_| io::Error::last_os_error());
    next().or_else(|error| if error.kind() == io::ErrorKind::NetworkDown { next() } else { Err(error) })
}

/// Discards the next frame of the socket's queue.
#[cold]
pub fn discard_queued(socket: &OwnedFd) {
    // SAFETY: no byte is written.
    let receive = || unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    let _ = next_queued(receive);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_waits_at_the_socket_takes_no_frame_from_its_slot() {
        let answers = |errors: &[i32]| {
            let mut errors = errors.iter();
            next_queued(|| {
                let Some(error) = errors.next() else { return 7 };
                // SAFETY: it is the calling thread's.
                unsafe { *libc::__errno_location() = *error };
                -1
            })
            .map_err(|error| error.raw_os_error())
        };
        assert_eq!(answers(&[]), Ok(7));
        assert_eq!(answers(&[libc::ENETDOWN]), Ok(7));
        assert_eq!(answers(&[libc::EAGAIN]), Err(Some(libc::EAGAIN)));
        assert_eq!(answers(&[libc::EINVAL]), Err(Some(libc::EINVAL)));
        assert_eq!(answers(&[libc::ENETDOWN, libc::EAGAIN]), Err(Some(libc::EAGAIN)));
    }
}
