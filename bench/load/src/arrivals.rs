//! How the requests of an open loop are distributed over time.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;
use twinpath_time::Duration;

/// How the requests of an open loop are distributed over time. The mean rate is the same for all variants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Even,
    /// At such intervals, each longer or shorter by a random part of up to this share, uniformly
    /// distributed.
    Jittered(f64),
    /// A Poisson process: exponentially distributed gaps.
    Poisson,
    /// Bursts of `size` requests with `gap` between them, then a pause; gaps and pauses are jittered by
    /// [`BURST_JITTER`].
    Bursts {
        /// Requests per burst.
        size: u32,
        /// Between two requests of a burst.
        gap: Duration,
    },
}

/// Share by which gaps and pauses of bursts vary.
pub const BURST_JITTER: f64 = 0.03;

impl Arrivals {
    /// Whether this distribution is possible at `rate_per_s`.
    pub(crate) fn is_possible(self, rate_per_s: f64) -> bool {
        match self {
            Self::Even | Self::Poisson => true,
            Self::Jittered(share) => (0.0..=1.0).contains(&share),
            Self::Bursts { size, gap } => {
                size > 0 && f64::from(size - 1) * gap.as_secs_f64() * rate_per_s < f64::from(size)
            }
        }
    }

    /// The gap after request `index`, in ns.
    pub(crate) fn gap_ns(self, index: u64, mean_ns: f64, random: &mut Rng) -> f64 {
        let mut varied = |ns: f64, share: f64| ns * (1.0 + share * (2.0 * random.f64() - 1.0));
        match self {
            Self::Even => mean_ns,
            Self::Jittered(share) => varied(mean_ns, share),
            // 1 - [0, 1) is never 0.
            Self::Poisson => -mean_ns * (1.0 - random.f64()).ln(),
            Self::Bursts { size, gap } => {
                let (size, gap_ns) = (u64::from(size), gap.as_nanos() as f64);
                let pause_ns = mean_ns * size as f64 - gap_ns * (size - 1) as f64;
                varied(if index % size == size - 1 { pause_ns } else { gap_ns }, BURST_JITTER)
            }
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even => f.write_str("even"),
            Self::Jittered(share) => write!(f, "jitter:{}", share * 100.0),
            Self::Poisson => f.write_str("poisson"),
            Self::Bursts { size, gap } => write!(f, "bursts:{size}:{}", gap.as_nanos() as f64 / 1000.0),
        }
    }
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || {
            let mut words = text.split(':');
            let arrivals = match (words.next()?, words.next(), words.next()) {
                ("even", None, None) => Self::Even,
                ("poisson", None, None) => Self::Poisson,
                ("jitter", Some(percent), None) => Self::Jittered(percent.parse::<f64>().ok()? / 100.0),
                ("bursts", Some(size), Some(gap_us)) => {
                    let gap = Duration::try_from_secs_f64(gap_us.parse::<f64>().ok()? / 1e6).ok()?;
                    Self::Bursts { size: size.parse().ok()?, gap }
                }
                _ => return None,
            };
            words.next().is_none().then_some(arrivals)
        };
        known().ok_or_else(|| {
            format!("unknown arrivals '{text}': choose even, jitter:PERCENT, poisson or bursts:SIZE:GAP_US")
        })
    }
}
