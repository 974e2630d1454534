//! Congestion control (RFC 5681): how many segments may be in flight.

use twinpath_time::{Duration, Instant};

use crate::config::CongestionKind;

pub mod cubic;
pub mod hystart;
pub mod new_reno;

pub use cubic::Cubic;
pub use new_reno::NewReno;

/// The congestion window of a connection, in full-sized segments, as Linux counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Whether the window is below the threshold (RFC 5681 section 3.1).
    #[must_use]
    pub const fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows by one for each of `segments`, up to the threshold. Returns the segments that are left for congestion
    /// avoidance.
    pub fn slow_start(&mut self, segments: u32) -> u32 {
        let reached = self.cwnd.saturating_add(segments).min(self.ssthresh).max(self.cwnd);
        let left = segments - (reached - self.cwnd);
        self.cwnd = reached.min(self.clamp);
        left
    }

    /// Congestion avoidance: grows by one for every `per_growth` of the segments acknowledged; at least 1.
    pub fn grow(&mut self, per_growth: u32, segments: u32) {
        let per_growth = per_growth.max(1);
        // The credit may stem from a time at which growth cost more. It buys one segment, not a burst.
        if self.credit >= per_growth {
            self.credit = 0;
            self.cwnd = self.cwnd.saturating_add(1);
        }
        self.credit = self.credit.saturating_add(segments);
        self.cwnd = self.cwnd.saturating_add(self.credit / per_growth).min(self.clamp);
        self.credit %= per_growth;
    }
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

/// An algorithm of congestion control: it decides how the window grows, and how far it falls.
///
/// The engine decides when: it detects loss, marks and spurious reductions, and sets the window during recovery
/// ([`crate::prr`]).
pub trait Control {
    /// The name that `TCP_CONGESTION` has for it.
    fn name(&self) -> &'static str;

    /// An acknowledgement of new data, outside of recovery: grows `window` if [`Acked::is_limited`].
    ///
    /// Acknowledgements that do not let it grow count too: they carry a round-trip time, and they tell how long the
    /// application was the limit.
    fn on_ack(&mut self, window: &mut Window, acked: &Acked);

    /// Loss or a mark (ECN) at `now`: returns the new threshold, at least 2. Remembers `window` for [`Self::undo`].
    ///
    /// Called once for each window of data (RFC 5681 section 3.2, RFC 3168 section 6.1.2), before the window is
    /// reduced.
    fn ssthresh(&mut self, window: &Window, now: Instant) -> u32;

    /// The retransmission timer has expired. Called after [`Self::ssthresh`], if that is due.
    fn on_timeout(&mut self);

    /// The last reduction was spurious: returns the window to go back to. The engine restores the threshold.
    fn undo(&mut self, window: &Window) -> u32;

    /// The first segment is sent at `now` after a pause of `idle` in which the application had nothing to send and
    /// nothing was in flight.
    fn on_idle_end(&mut self, now: Instant, idle: Duration);
}

/// The congestion control of one connection.
#[derive(Clone, Debug)]
pub enum Congestion {
    /// RFC 5681 and RFC 6582.
    NewReno(NewReno),
    /// RFC 9438.
    Cubic(Cubic),
}

impl Congestion {
    /// Congestion control of a kind, for a new connection.
    #[must_use]
    pub const fn new(kind: CongestionKind) -> Self {
        match kind {
            // Peers acknowledge a super-segment as a whole: a limit of 8 segments per acknowledgement (RFC 9406 section
            // 4.2) would make slow start slower than the kernel's.
            CongestionKind::Cubic => Self::Cubic(Cubic::new(hystart::PACED)),
            CongestionKind::NewReno => Self::NewReno(NewReno::new()),
        }
    }
}

impl Default for Congestion {
    fn default() -> Self {
        Self::new(CongestionKind::NewReno)
    }
}

/// Calls the same method of whichever algorithm it is.
macro_rules! each {
    ($congestion:expr, $control:ident => $call:expr) => {
        match $congestion {
            Congestion::NewReno($control) => $call,
            Congestion::Cubic($control) => $call,
        }
    };
}

impl Control for Congestion {
    fn name(&self) -> &'static str {
        each!(self, control => control.name())
    }

    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        each!(self, control => control.on_ack(window, acked));
    }

    fn ssthresh(&mut self, window: &Window, now: Instant) -> u32 {
        each!(self, control => control.ssthresh(window, now))
    }

    fn on_timeout(&mut self) {
        each!(self, control => control.on_timeout());
    }

    fn undo(&mut self, window: &Window) -> u32 {
        each!(self, control => control.undo(window))
    }

    fn on_idle_end(&mut self, now: Instant, idle: Duration) {
        each!(self, control => control.on_idle_end(now, idle));
    }
}

#[cfg(test)]
mod tests;
