//! The results of a run of `twinpath bench`: the object that `--json` prints and the labs read.
//!
//! Names and units of the fields are stable: fields are added, never renamed.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use twinpath_socket_load::Transfers;

/// One run, or several equal ones. Counts cover the measured window only, not the warm-up; those of several runs are
/// sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// `echo`, `rpc` or `nfs`.
    #[serde(default = "echo")]
    pub service: String,
    /// As the user named it: `HOST:PORT`.
    pub target: String,
    /// `udp` or `tcp`.
    pub transport: String,
    /// The path that was used: `kernel`, `packet` or `xdp`; never `auto`.
    pub path: String,
    /// `adaptive`, `interrupt` or `poll`.
    pub mode: String,
    /// Payload bytes of a request.
    pub size: usize,
    /// Maximum number of unanswered requests per thread.
    pub inflight: u32,
    /// Threads, each with its own flow.
    pub threads: u32,
    /// The offered rate of an open-loop run, all threads together; null when each reply triggers the next request.
    pub rate_per_s: Option<f64>,
    /// How requests of an open-loop run were spread over time, and what determined that.
    #[serde(default)]
    pub arrivals: Option<String>,
    /// The seed of `arrivals`.
    #[serde(default)]
    pub arrivals_seed: Option<u64>,
    /// The delay of sending after the request was due, in an open-loop run. It is included in `rtt_us`.
    #[serde(default)]
    pub pacing_us: Option<RttUs>,
    /// Replies during the warm-up; no other count includes them.
    #[serde(default)]
    pub warmup_replies: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered in time, every byte right.
    pub received: u64,
    /// Requests given up after the loss timeout.
    pub lost: u64,
    /// Replies with a wrong byte.
    pub corrupt: u64,
    /// Second and later replies to one request.
    pub duplicates: u64,
    /// Replies to requests already counted as lost.
    pub late: u64,
    /// Length of the measured window; of several runs the sum.
    pub duration_s: f64,
    /// `received / duration_s` of a run; several runs are summarised by `summarised`.
    pub requests_per_s: f64,
    /// Null when no reply came. For several runs each field is summarised as `summarised` says.
    pub rtt_us: Option<RttUs>,
    /// Share of a core that the client's threads used over the measured window (user and system), all together.
    pub cpu_client: f64,
    /// Heap allocations per packet in steady state, where counted.
    pub allocations_per_packet: Option<f64>,
    /// Notes for the user: how a mode was realised, why a path was not used.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Non-empty buckets of the round-trip times of all runs: highest value of the bucket in ns, and its count.
    pub histogram: Vec<(u64, u64)>,
    /// For `rpc`: `null` or `getattr`. For `nfs`: `read`, `write`, `getattr`, `lookup` or `list`.
    #[serde(default)]
    pub procedure: Option<String>,
    /// For `rpc`: `none`, or `sys` (formerly `unix`).
    #[serde(default)]
    pub auth: Option<String>,
    /// For `rpc` over TCP: fragments into which each call is split.
    #[serde(default)]
    pub fragments: Option<u32>,
    /// Whether requests shared system calls.
    #[serde(default)]
    pub batch: bool,
    /// Over TCP, whether requests might wait for acknowledgements, to leave in one segment (Nagle's algorithm).
    #[serde(default)]
    pub nagle: bool,
    /// Requests that the server refused with a valid reply.
    #[serde(default)]
    pub refused: u64,
    /// A description of the first refused or wrong reply.
    #[serde(default)]
    pub complaint: Option<String>,
    /// The error that ended the measurement early.
    #[serde(default)]
    pub broken: Option<String>,
    /// The requested percentiles, as in `rtt_us`.
    #[serde(default)]
    pub quantiles_us: Vec<QuantileUs>,
    /// System calls, if over kernel sockets.
    #[serde(default)]
    pub system_calls: Option<SystemCalls>,
    /// CPU time of the client's threads per request received.
    #[serde(default)]
    pub cpu_us_per_request: Option<f64>,
    /// For `read` and `write` of `nfs`: bytes of files that were read or written per second.
    #[serde(default)]
    pub bytes_per_s: Option<f64>,
    /// For `list` of `nfs`: names that a listing found.
    #[serde(default)]
    pub names: Option<u64>,
    /// For `list` of `nfs`: how long a listing took.
    #[serde(default)]
    pub listing_s: Option<f64>,
    /// Whether it ended early: by a signal, because of the server, or because a run failed.
    #[serde(default)]
    pub partial: bool,
    /// Number of runs requested.
    #[serde(default = "one")]
    pub iterations: u32,
    /// `median` or `average`: how several runs are summarised.
    #[serde(default)]
    pub summarised: Option<String>,
    /// Every run that is counted, in order.
    #[serde(default)]
    pub runs: Vec<RunReport>,
    /// Version of the program that measured.
    #[serde(default)]
    pub version: String,
}

fn echo() -> String {
    "echo".to_owned()
}

fn one() -> u32 {
    1
}

/// One run of several. The fields are those of [`BenchReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Seconds since 1970 when it began.
    pub started_unix_s: f64,
    /// Length of the measured window.
    pub duration_s: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered in time, every byte right.
    pub received: u64,
    /// Requests refused with a valid reply.
    pub refused: u64,
    /// Requests given up.
    pub lost: u64,
    /// Replies with a wrong byte.
    pub corrupt: u64,
    /// Second and later replies.
    pub duplicates: u64,
    /// Replies to requests already given up.
    pub late: u64,
    /// `received / duration_s`.
    pub requests_per_s: f64,
    /// Null when no reply came.
    pub rtt_us: Option<RttUs>,
    /// The requested percentiles.
    pub quantiles_us: Vec<QuantileUs>,
    /// Share of a core, all threads together.
    pub cpu_client: f64,
    /// CPU time per request received.
    pub cpu_us_per_request: Option<f64>,
    /// System calls, if over kernel sockets.
    pub system_calls: Option<SystemCalls>,
    /// The threads, one by one.
    pub threads: Vec<ThreadReport>,
}

/// The results of one thread in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Length of its measured window.
    pub duration_s: f64,
    /// Requests answered.
    pub received: u64,
    /// `received / duration_s`.
    pub requests_per_s: f64,
    /// Median round trip.
    pub p50_us: Option<f64>,
}

/// A percentile of the round-trip times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuantileUs {
    /// The percentile.
    pub percent: f64,
    /// The time that this percentage of round trips did not exceed.
    pub us: f64,
}

impl QuantileUs {
    /// From round-trip times in ns; empty without any.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>, percents: &[f64]) -> Vec<Self> {
        // Rounded, because 99.9 / 100 is a little more than 0.999, and would give the next value.
        let quantile = |percent: f64| (percent * 1e7).round() / 1e9;
        let at = |percent: &f64| Self {
            percent: *percent,
            us: histogram.value_at_quantile(quantile(*percent)) as f64 / 1000.0,
        };
        if histogram.is_empty() { Vec::new() } else { percents.iter().map(at).collect() }
    }
}

/// System calls of the client on its sockets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCalls {
    /// Sends that moved bytes.
    pub sends: u64,
    /// Sends refused because the kernel had no room.
    pub sends_refused: u64,
    /// Receives that moved bytes.
    pub receives: u64,
    /// Receives that found nothing.
    pub receives_empty: u64,
    /// Bytes of requests.
    pub bytes_sent: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
}

impl SystemCalls {
    /// From the counts of a client.
    #[must_use]
    pub fn of(transfers: &Transfers) -> Self {
        let Transfers { sends, sends_refused, receives, receives_empty, bytes_sent, bytes_received } =
            *transfers;
        Self { sends, sends_refused, receives, receives_empty, bytes_sent, bytes_received }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sends: self.sends + other.sends,
            sends_refused: self.sends_refused + other.sends_refused,
            receives: self.receives + other.receives,
            receives_empty: self.receives_empty + other.receives_empty,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
        }
    }
}

/// Round-trip times in microseconds. Three significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RttUs {
    /// The fastest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th.
    pub p99: f64,
    /// The 99.9th.
    pub p99_9: f64,
    /// The slowest.
    pub max: f64,
    /// The average.
    pub mean: f64,
}

impl RttUs {
    /// The values by their names in the labs.
    #[must_use]
    pub fn values(&self) -> BTreeMap<&'static str, f64> {
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

    /// Summarises each field of several.
    pub fn summarise(each: &[Self], summarise: impl Fn(&[f64]) -> f64) -> Option<Self> {
        let of = |field: fn(&Self) -> f64| summarise(&each.iter().map(field).collect::<Vec<_>>());
        (!each.is_empty()).then(|| Self {
            min: of(|rtt| rtt.min),
            p50: of(|rtt| rtt.p50),
            p90: of(|rtt| rtt.p90),
            p99: of(|rtt| rtt.p99),
            p99_9: of(|rtt| rtt.p99_9),
            max: of(|rtt| rtt.max),
            mean: of(|rtt| rtt.mean),
        })
    }

    /// From round-trip times in ns; `None` without any.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
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
#[must_use]
pub fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()
}
