//! The result of a load: counts and histograms, which can be merged.

use hdrhistogram::Histogram;
use twinpath_time::Duration;

/// Maximum round trip in the histogram; a longer one is recorded as this.
const RTT_MAX_NS: u64 = 60_000_000_000;
/// Three digits: buckets no wider than 0.1 % of their value.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Two digits are enough to show how well the schedule was kept.
const PACING_DIGITS: u8 = 2;

/// The result of a load. Requests of the warm-up are not part of it.
///
/// `sent == received + refused + lost + unanswered`, and every reply after the warm-up is one of `received`,
/// `refused`, `duplicates`, `late` and `corrupt`.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Replies during the warm-up, which are counted nowhere else.
    pub warmup_replies: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered in time, every byte right.
    pub received: u64,
    /// Requests answered in time by a well-formed refusal.
    pub refused: u64,
    /// Requests unanswered after the loss time-out.
    pub lost: u64,
    /// Requests still outstanding when the summary was made.
    pub unanswered: u64,
    /// Replies with a wrong byte or length, or to requests never made.
    pub corrupt: u64,
    /// Second and later replies to one request.
    pub duplicates: u64,
    /// Replies to requests already lost.
    pub late: u64,
    /// Time from the end of the warm-up to the end of the load.
    pub elapsed: Duration,
    /// Time from the last reply to the end, if requests were lost.
    pub quiet: Duration,
    /// Round-trip times of `received`, ns.
    pub histogram: Histogram<u64>,
    /// In an open loop: time from when a request was due until it was sent, ns. It is part of the round trip.
    pub pacing: Histogram<u64>,
}

impl Summary {
    /// An empty summary.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            warmup_replies: 0,
            sent: 0,
            received: 0,
            refused: 0,
            lost: 0,
            unanswered: 0,
            corrupt: 0,
            duplicates: 0,
            late: 0,
            elapsed: Duration::ZERO,
            quiet: Duration::ZERO,
            histogram: Histogram::new_with_bounds(1, RTT_MAX_NS, SIGNIFICANT_DIGITS)
                .expect("1 to 60e9 with three digits is a valid range"),
            pacing: Histogram::new_with_bounds(1, RTT_MAX_NS, PACING_DIGITS)
                .expect("1 to 60e9 with two digits is a valid range"),
        }
    }

    /// Adds another thread's measurement of the same time.
    pub fn merge(&mut self, other: &Self) {
        self.warmup_replies += other.warmup_replies;
        self.sent += other.sent;
        self.received += other.received;
        self.refused += other.refused;
        self.lost += other.lost;
        self.unanswered += other.unanswered;
        self.corrupt += other.corrupt;
        self.duplicates += other.duplicates;
        self.late += other.late;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.quiet = self.quiet.max(other.quiet);
        self.histogram.add(&other.histogram).expect("all summaries have the same range");
        self.pacing.add(&other.pacing).expect("all summaries have the same range");
    }

    /// Replies per second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.received as f64 / self.elapsed.as_secs_f64() }
    }
}
