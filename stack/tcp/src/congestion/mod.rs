//! Congestion control (RFC 5681): how many segments may be in flight.

use twinpath_time::Instant;

/// The congestion window of a connection, in full-sized segments, as Linux counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Segments that may be in flight.
    pub cwnd: u32,
    /// Fractions of a segment by which the window has grown: segments acknowledged since the last growth by one.
    pub credit: u32,
    /// Slow start ends here; [`Window::INFINITE`] before the first loss.
    pub ssthresh: u32,
    /// The largest window that may be reached.
    pub clamp: u32,
}

impl Window {
    /// No threshold is known.
    pub const INFINITE: u32 = 0x7fff_ffff;
}

/// An acknowledgement, as congestion control sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// The time.
    pub now: Instant,
    /// Segments newly acknowledged, cumulatively or selectively; at least 1.
    pub segments: u32,
    /// The round-trip time of the newest of them, in us, if none was retransmitted.
    pub rtt_us: Option<u32>,
    /// The smoothed and the smallest round-trip time, in us; 0: not known.
    pub srtt_us: u32,
    /// See above.
    pub min_rtt_us: u32,
    /// Segments in flight before this acknowledgement.
    pub in_flight: u32,
    /// Sequence number up to which the peer has everything, and the next to be sent.
    pub una: u32,
    /// See above.
    pub next: u32,
    /// Whether the window, not the application, limited what was sent (RFC 7661 section 4.1).
    pub is_limited: bool,
}
pub trait Control {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked);
    fn ssthresh(&mut self, window: &Window, now: Instant) -> u32;
    fn on_timeout(&mut self);
    fn undo(&self, window: &Window) -> u32;
    fn on_idle_end(&mut self, now: Instant, idle: twinpath_time::Duration);
}
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    prior: u32,
}
impl Congestion {
    pub fn cubic() -> Self {
        Self { prior: 0 }
    }
    pub fn new_reno() -> Self {
        Self { prior: 0 }
    }
}
impl Control for Congestion {
    fn on_ack(&mut self, w: &mut Window, a: &Acked) {
        if w.cwnd < w.ssthresh {
            w.cwnd = (w.cwnd + a.segments).min(w.ssthresh).min(w.clamp);
        } else {
            w.credit += a.segments;
            if w.credit >= w.cwnd {
                w.credit -= w.cwnd;
                w.cwnd += 1;
            }
        }
    }
    fn ssthresh(&mut self, w: &Window, _: Instant) -> u32 {
        self.prior = w.cwnd;
        (w.cwnd / 2).max(2)
    }
    fn on_timeout(&mut self) {}
    fn undo(&self, w: &Window) -> u32 {
        self.prior.max(w.cwnd)
    }
    fn on_idle_end(&mut self, _: Instant, _: twinpath_time::Duration) {}
}
