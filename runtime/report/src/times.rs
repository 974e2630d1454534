//! Durations in a report.

use serde::{Deserialize, Serialize};

/// A histogram of durations, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Number of values.
    pub count: u64,
    /// Their sum, ns.
    pub sum_ns: u64,
    /// Median, ns, to 1/16.
    pub p50_ns: Option<u64>,
    /// 99th percentile, ns.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile, ns.
    pub p999_ns: Option<u64>,
    /// Upper bound of a bucket, ns (inclusive), and the number of values in it; ascending, without empty buckets.
    pub buckets: Vec<(u64, u64)>,
}

impl From<twinpath_inspect::Times> for Times {
    fn from(times: twinpath_inspect::Times) -> Self {
        Self {
            count: times.count(),
            sum_ns: times.sum_ns,
            p50_ns: times.quantile(0.5),
            p99_ns: times.quantile(0.99),
            p999_ns: times.quantile(0.999),
            buckets: times.buckets,
        }
    }
}

impl From<&Times> for twinpath_inspect::Times {
    fn from(times: &Times) -> Self {
        Self { sum_ns: times.sum_ns, buckets: times.buckets.clone() }
    }
}
