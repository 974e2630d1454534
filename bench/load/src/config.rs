//! The configuration of a load, its limits, and the reasons why a load is impossible.

use twinpath_time::Duration;

use crate::Arrivals;

/// Minimum payload: 8 bytes of request number, and 8 that prove that the request is ours.
pub const PAYLOAD_MIN: usize = 16;
/// Largest payload of a UDP datagram over IPv4: 65,535 less 20 of IP header and 8 of UDP header.
pub const PAYLOAD_MAX: usize = 65_507;
/// Minimum datagram of a stream: the header by which it is counted.
pub const DATAGRAM_MIN: usize = twinpath_service::stream::HEADER_LEN;
/// Maximum number of outstanding requests.
pub const INFLIGHT_MAX: u32 = 1024;
/// The run is given up after this many loss time-outs without any reply.
pub const SILENT_TIMEOUTS: u32 = 3;
/// Replies later than this are beyond the histogram's range, so a longer time-out would be useless.
pub(crate) const LOSS_TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// The configuration of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadConfig {
    /// Maximum number of outstanding requests, 1 to [`INFLIGHT_MAX`].
    pub inflight: u32,
    /// `None`: closed loop, in which each reply makes room for the next request. `Some`: open loop, in
    /// which this many requests per second are due independently of the replies, and latency counts from
    /// the due time.
    pub rate_per_s: Option<f64>,
    /// How the requests of an open loop are distributed over time.
    pub arrivals: Arrivals,
    /// The seed of that distribution.
    pub arrivals_seed: u64,
    /// When to stop.
    pub limit: Limit,
    /// Requests that begin within this time are sent but not counted.
    pub warmup: Duration,
    /// A request unanswered for this long is lost and frees its slot in the window.
    pub loss_timeout: Duration,
}

impl Default for LoadConfig {
    /// One request at a time, for one second.
    fn default() -> Self {
        Self {
            inflight: 1,
            rate_per_s: None,
            arrivals: Arrivals::Even,
            arrivals_seed: 0,
            limit: Limit::Duration(Duration::from_secs(1)),
            warmup: Duration::ZERO,
            loss_timeout: Duration::from_secs(1),
        }
    }
}

/// When a load ends, not counting its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this many requests.
    Count(u64),
    /// After this time.
    Duration(Duration),
}

/// Why a load is impossible.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// The request is too small to be verified, or larger than a datagram.
    #[error(
        "a request of {0} bytes is impossible: it takes at least {PAYLOAD_MIN} (8 of request number, 8 that prove \
         the reply is ours) and a UDP datagram holds at most {PAYLOAD_MAX}"
    )]
    PayloadLen(usize),
    /// A datagram of a stream is too small for its header, or larger than a datagram can be.
    #[error(
        "a datagram of {0} bytes is impossible: it takes at least {DATAGRAM_MIN} to be counted, and a UDP datagram holds at \
         most {PAYLOAD_MAX}"
    )]
    DatagramLen(usize),
    /// `inflight` is out of range.
    #[error("{0} requests in flight are impossible: choose 1 to {INFLIGHT_MAX}")]
    Inflight(u32),
    /// The rate is not positive.
    #[error("a rate of {0} requests per second is impossible: choose one above 0 and up to 1e9")]
    Rate(f64),
    /// The distribution is impossible, by itself or at that rate.
    #[error(
        "arrivals {arrivals} are impossible at {rate_per_s} requests per second: a jitter is 0 to 100 %, a burst has a \
         request, and its gaps must leave time for a pause; a step lasts for a time, and its low rate is above 0 and up to \
         100 % of its high one"
    )]
    Arrivals {
        /// The distribution.
        arrivals: Arrivals,
        /// The rate.
        rate_per_s: f64,
    },
    /// The limit is zero: nothing would be measured.
    #[error("nothing to measure: the count or duration is zero")]
    Empty,
    /// The loss time-out is zero, or longer than the histogram can record.
    #[error("a loss timeout of {0:?} is impossible: choose one above 0 and up to {LOSS_TIMEOUT_MAX:?}")]
    LossTimeout(Duration),
}

impl LoadConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        if !(1..=INFLIGHT_MAX).contains(&self.inflight) {
            return Err(LoadError::Inflight(self.inflight));
        }
        if let Some(rate) = self.rate_per_s
            && !(rate > 0.0 && rate <= 1e9)
        {
            return Err(LoadError::Rate(rate));
        }
        if let Some(rate_per_s) = self.rate_per_s
            && !self.arrivals.is_possible(rate_per_s)
        {
            return Err(LoadError::Arrivals { arrivals: self.arrivals, rate_per_s });
        }
        if matches!(self.limit, Limit::Count(0) | Limit::Duration(Duration::ZERO)) {
            return Err(LoadError::Empty);
        }
        if self.loss_timeout.is_zero() || self.loss_timeout > LOSS_TIMEOUT_MAX {
            return Err(LoadError::LossTimeout(self.loss_timeout));
        }
        Ok(())
    }
}
