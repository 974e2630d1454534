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

use twinpath_rings::direct::{DirectFrame, DirectRing};
use twinpath_rings::packet::{PacketRing, Slot};
use twinpath_time::{Duration, Instant};

/// For this time after the direct ring was opened, a frame may still be on its way to the socket, because the
/// filter decided it before. A CPU needs much less than a microsecond for that, unless a hypervisor stops it.
const SETTLING: Duration = Duration::from_millis(1);

/// A frame in its slot.
pub(crate) enum Arrived<'a> {
    Direct(DirectFrame<'a>),
    Socket(Slot<'a>),
}

#[derive(Debug)]
pub(crate) struct Rings {
    socket: PacketRing,
    direct: Option<DirectRing>,
    /// Until when the socket may still receive frames that were decided before the direct ring was opened.
    settles_at: Instant,
    /// CPUs that can fill the socket's ring at the same time.
    cpus: usize,
}

impl Rings {
    /// The rings of a queue, with the direct ring closed.
    pub(crate) const fn new(socket: PacketRing, direct: Option<DirectRing>, cpus: usize) -> Self {
        Self { socket, direct, settles_at: Instant::ZERO, cpus }
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

    /// Opens the direct ring, unless frames are left in it from the last time. Returns whether it was closed.
    pub(crate) fn open(&mut self, now: Instant) -> bool {
        match &mut self.direct {
            Some(direct) if direct.is_drained() => {
                direct.open();
                self.settles_at = now + SETTLING;
                true
            }
            _ => false,
        }
    }

    /// Closes the direct ring. Returns whether everything that came before that has been read; otherwise the worker
    /// must take it before it sleeps, and then ask again.
    pub(crate) fn close(&mut self) -> bool {
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
                    return self.socket.take(|slot| see(Arrived::Socket(slot)));
                }
                // After a frame that another CPU is still writing, earlier frames of this CPU may be complete.
                if !waits || now < self.settles_at && self.socket.look_ahead(self.cpus) {
                    return None;
                }
                direct.take(|frame| see(Arrived::Direct(frame)))
            }
            Some(direct) if !direct.is_drained() => direct.take(|frame| see(Arrived::Direct(frame))),
            _ => self.socket.take(|slot| see(Arrived::Socket(slot))),
        }
    }

    /// Discards all frames; returns their number.
    pub(crate) fn discard(&mut self) -> u64 {
        let mut frames = 0;
        while self.direct.as_mut().is_some_and(|direct| direct.take(|_| ()).is_some()) {
            frames += 1;
        }
        while self.socket.take(|_| ()).is_some() {
            frames += 1;
        }
        frames
    }

    /// Frames lost since the last call because the direct ring was full.
    pub(crate) fn lost_direct(&mut self) -> u32 {
        self.direct.as_mut().map_or(0, DirectRing::lost)
    }
}

#[cfg(test)]
mod tests;
