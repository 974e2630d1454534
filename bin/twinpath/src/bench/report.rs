//! What a run of `twinpath bench` measured: the object that `--json` prints and the labs read back.
//!
//! Names and units of the fields are a promise: fields are added, never renamed.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One run. Counts cover the measured window only, not the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchReport {
    /// As the user named it: `HOST:PORT`.
    pub(crate) target: String,
    /// `udp` or `tcp`.
    pub(crate) transport: String,
    /// The path that was used: `kernel`, `packet` or `xdp`; never `auto`.
    pub(crate) path: String,
    /// `adaptive`, `interrupt` or `poll`.
    pub(crate) mode: String,
    /// Payload bytes of a request.
    pub(crate) size: usize,
    /// Requests that may be unanswered at once, per thread.
    pub(crate) inflight: u32,
    /// Threads, each with its own flow.
    pub(crate) threads: u32,
    /// The offered rate of an open-loop run, all threads together; null when each reply triggers the next request.
    pub(crate) rate_per_s: Option<f64>,
    /// How requests of an open-loop run were spread over time, and what determined that.
    #[serde(default)]
    pub(crate) arrivals: Option<String>,
    #[serde(default)]
    pub(crate) arrivals_seed: Option<u64>,
    /// From when a request was due until it was sent, of an open-loop run. It is in `rtt_us`, too.
    #[serde(default)]
    pub(crate) pacing_us: Option<RttUs>,
    /// Requests sent.
    pub(crate) sent: u64,
    /// Requests answered in time, every byte right.
    pub(crate) received: u64,
    /// Requests given up after the loss timeout.
    pub(crate) lost: u64,
    /// Replies with a wrong byte.
    pub(crate) corrupt: u64,
    /// Second and later replies to one request.
    pub(crate) duplicates: u64,
    /// Replies to requests already counted as lost.
    pub(crate) late: u64,
    /// Length of the measured window.
    pub(crate) duration_s: f64,
    /// `received / duration_s`.
    pub(crate) requests_per_s: f64,
    /// Null when no reply came.
    pub(crate) rtt_us: Option<RttUs>,
    /// Share of a core that the client's threads used over the measured window (user and system), all together.
    pub(crate) cpu_client: f64,
    /// Heap allocations per packet in steady state, where counted.
    pub(crate) allocations_per_packet: Option<f64>,
    /// What the reader should know: how a mode was realised, why a path was not taken.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Non-empty buckets of the round-trip times: highest value of the bucket in ns, and its count.
    pub(crate) histogram: Vec<(u64, u64)>,
}

/// Round-trip times in microseconds. Three significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RttUs {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl RttUs {
    /// By the names that labs report them under.
    pub(crate) fn values(&self) -> BTreeMap<&'static str, f64> {
        BTreeMap::from([
            ("min_us", self.min),
            ("p50_us", self.p50),
            ("p90_us", self.p90),
            ("p99_us", self.p99),
            ("p99_9_us", self.p99_9),
            ("max_us", self.max),
            ("mean_us", self.mean),
        ])
    }

    /// From round-trip times in ns; `None` when there are none.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        (!histogram.is_empty()).then(|| Self {
            min: histogram.min() as f64 / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max() as f64 / 1000.0,
            mean: histogram.mean() / 1000.0,
        })
    }
}

/// As [`BenchReport::histogram`].
pub(crate) fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
}
