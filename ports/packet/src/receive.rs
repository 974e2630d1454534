//! The two rings of a queue, and the order in which their frames are taken: for each flow, the order of arrival.
//!
//! The socket's filter puts a frame into the direct ring if that is open, and into the socket's ring otherwise. The
//! worker opens the direct ring while it does not sleep, and closes it before it sleeps, because only the socket
//! can wake it. The frames of a flow come on one CPU, one after the other (if they do not, their order is not known
//! anyway). So:
//!
//! - While the ring is open, frames in the socket's ring come first, because they were decided before it was
//!   opened. If a frame is seen in the direct ring, all earlier frames of its CPU are complete in the socket's
//!   ring.
//! - After the ring was closed, its frames come first. Their number is known, so the worker waits for those that
//!   are still being filled, and only then looks at the socket's ring.
//!
//! A long frame (one that does not fit into a slot, or is a super-frame) comes through the socket only. The filter
//! closes the direct ring before it lets the socket take such a frame. The worker looks whether the ring is closed
//! only when a frame is in the socket's ring, so this costs the other frames nothing. Frames there that were decided
//! before the ring was opened still come first: these are the frames in front of the first long one, unless the
//! socket's ring has been seen empty after [`SETTLING`]. So the ring is not opened while a long frame may be in the
//! socket's ring. The worker opens the ring again when no long frame has come for [`PAUSE`], so a stream of long frames
//! does not open and close it each time.

use twinpath_frame::{GsoKind, Meta};
use twinpath_port::vnet_header;
use twinpath_rings::direct::{DirectFrame, DirectRing};
use twinpath_rings::packet::{PacketRing, Slot};
use twinpath_time::{Duration, Instant};

/// For this time after the direct ring was opened, a frame may still be on its way to the socket, because the
/// filter decided it before. A CPU needs much less than a microsecond for that, unless a hypervisor stops it.
const SETTLING: Duration = Duration::from_millis(1);

/// How long after a long frame the direct ring stays closed.
const PAUSE: Duration = Duration::from_millis(1);

/// A frame in its slot.
pub(crate) enum Arrived<'a> {
    Direct(DirectFrame<'a>),
    Socket(Slot<'a>),
}

#[derive(Debug)]
pub(crate) struct Rings {
    socket: PacketRing,
    direct: Option<DirectRing>,
    /// Until when the socket may still receive frames that were decided before the direct ring was opened; zero once
    /// all of these have been taken.
    settles_at: Instant,
    /// CPUs that can fill the socket's ring at the same time.
    cpus: usize,
    /// Whether a virtio-net header is in front of each frame in the socket's ring.
    has_headers: bool,
    /// Whether the direct ring is to be opened once no long frames come.
    is_interrupted: bool,
    /// When the last long frame was taken.
    long_at: Instant,
}

impl Rings {
    /// The rings of a queue, with the direct ring closed.
    pub(crate) const fn new(socket: PacketRing, direct: Option<DirectRing>, cpus: usize) -> Self {
        Self {
            socket,
            direct,
            settles_at: Instant::ZERO,
            cpus,
            has_headers: false,
            is_interrupted: false,
            long_at: Instant::ZERO,
        }
    }

    /// The same for a socket that puts a virtio-net header in front of each frame.
    pub(crate) const fn with_headers(mut self, has_headers: bool) -> Self {
        self.has_headers = has_headers;
        self
    }

    pub(crate) const fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Tells the program whether the socket receives nothing.
    pub(crate) fn set_without_socket(&self, without: bool) {
        if let Some(direct) = &self.direct {
            direct.set_without_socket(without);
        }
    }

    /// Whether the program has seen a frame that only a socket takes, while there was none.
    #[inline]
    pub(crate) fn wants_socket(&self) -> bool {
        self.direct.as_ref().is_some_and(DirectRing::wants_socket)
    }

    /// The worker does not wait on the socket any more: opens the direct ring, unless frames are left in it from the
    /// last time or long frames may come, or be there. Returns whether it was closed.
    pub(crate) fn begin_polling(&mut self, now: Instant) -> bool {
        if self.has_headers {
            self.is_interrupted = self.direct.as_ref().is_some_and(|direct| !direct.is_open());
            return self.is_interrupted && self.resume(now);
        }
        self.open(now)
    }

    /// Opens the direct ring, unless frames are left in it from the last time. Returns whether it was closed.
    pub(crate) fn open(&mut self, now: Instant) -> bool {
        match &mut self.direct {
            Some(direct) if direct.is_drained() => {
                direct.open();
                self.settles_at = now + SETTLING;
                self.is_interrupted = false;
                true
            }
            _ => false,
        }
    }

    /// After a burst with or without long frames: opens the direct ring if it is closed because of such frames and none
    /// have come for a while. Returns whether it has.
    #[inline]
    pub(crate) fn end_burst(&mut self, now: Instant, had_long: bool) -> bool {
        if had_long {
            self.long_at = now;
        }
        self.is_interrupted && self.resume(now)
    }

    fn resume(&mut self, now: Instant) -> bool {
        let has_headers = self.has_headers;
        let has_long = || self.socket.has(self.cpus, |slot| is_long(slot, has_headers));
        now.since(self.long_at) >= PAUSE && !has_long() && self.open(now)
    }

    /// Closes the direct ring. Returns whether everything that came before that has been read; otherwise the worker
    /// must take it before it sleeps, and then ask again.
    pub(crate) fn close(&mut self) -> bool {
        self.is_interrupted = false;
        let Some(direct) = &mut self.direct else { return true };
        if direct.is_open() {
            // These come before the frames in the direct ring, which would be taken first if it were closed.
            if self.socket.look_ahead(self.cpus) {
                return false;
            }
            direct.close();
        }
        direct.is_drained()
    }

    /// Whether a frame can be taken, now or soon.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        self.direct.as_ref().is_some_and(DirectRing::look) || self.socket.look()
    }

    /// Passes the next frame to `see`; `None` if there is none, or if it is not complete.
    #[inline]
    pub(crate) fn take<R>(&mut self, now: Instant, see: impl FnOnce(Arrived<'_>) -> R) -> Option<R> {
        match &mut self.direct {
            Some(direct) if direct.is_open() => {
                // In this order: frames in the socket's ring came before the frame seen here.
                let waits = direct.look();
                if self.socket.look() {
                    return self.take_beside(now, see);
                }
                if now < self.settles_at {
                    // After a frame that another CPU is still writing, earlier frames of this CPU may be complete.
                    if !waits || self.socket.look_ahead(self.cpus) {
                        return None;
                    }
                } else {
                    self.settles_at = Instant::ZERO;
                    if !waits {
                        return None;
                    }
                }
                direct.take(|frame| see(Arrived::Direct(frame)))
            }
            Some(direct) if !direct.is_drained() => direct.take(|frame| see(Arrived::Direct(frame))),
            _ => self.socket.take(|slot| see(Arrived::Socket(slot))),
        }
    }

    /// As [`Self::take`], for an open direct ring while a frame is in the socket's ring: either the frame was decided
    /// before the direct ring was opened, or a long frame has closed that since.
    #[inline(never)]
    fn take_beside<R>(&mut self, now: Instant, see: impl FnOnce(Arrived<'_>) -> R) -> Option<R> {
        let has_headers = self.has_headers;
        let may_be_closed = self.settles_at == Instant::ZERO
            || self.socket.peek(|slot| is_long(&slot, has_headers)).unwrap_or(false);
        if may_be_closed && self.direct.as_mut().is_some_and(DirectRing::notice) {
            (self.is_interrupted, self.long_at) = (true, now);
            return self.take(now, see);
        }
        self.socket.take(|slot| see(Arrived::Socket(slot)))
    }

    /// Discards all frames, and calls `discard_queued` for each that is in the socket's queue; returns their number.
    pub(crate) fn discard(&mut self, mut discard_queued: impl FnMut()) -> u64 {
        let mut frames = 0;
        while self.direct.as_mut().is_some_and(|direct| direct.take(|_| ()).is_some()) {
            frames += 1;
        }
        while self.socket.take(|slot| slot.is_in_queue.then(&mut discard_queued)).is_some() {
            frames += 1;
        }
        frames
    }

    /// Frames lost since the last call because the direct ring was full.
    pub(crate) fn lost_direct(&mut self) -> u32 {
        self.direct.as_mut().map_or(0, DirectRing::lost)
    }
}

/// Whether a frame comes through the socket also while the direct ring is open.
fn is_long(slot: &Slot<'_>, has_headers: bool) -> bool {
    let is_super_frame = || {
        let mut meta = Meta::default();
        let header = slot.in_front().filter(|_| has_headers);
        header.is_some_and(|header| {
            vnet_header::decode(header, &mut meta).is_err() || meta.gso.kind != GsoKind::None
        })
    };
    slot.bytes.len() < slot.len || is_super_frame()
}

#[cfg(test)]
mod tests;
