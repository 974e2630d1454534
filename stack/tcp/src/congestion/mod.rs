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
