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
    /// A Poisson process whose rate steps up and down: for `step` it is low, then for as long it is high.
    Steps {
        /// How long each of the two rates lasts.
        step: Duration,
        /// The low rate as a share of the high one, above 0 and at most 1.
        low: f64,
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
            Self::Steps { step, low } => !step.is_zero() && low > 0.0 && low <= 1.0,
            Self::Bursts { size, gap } => {
                size > 0 && f64::from(size - 1) * gap.as_secs_f64() * rate_per_s < f64::from(size)
            }
        }
    }

    /// The gap in ns after request `index`, which is due `at_ns` after the first one.
    pub(crate) fn gap_ns(self, index: u64, at_ns: f64, mean_ns: f64, random: &mut Rng) -> f64 {
        let mut varied = |ns: f64, share: f64| ns * (1.0 + share * (2.0 * random.f64() - 1.0));
        match self {
            Self::Even => mean_ns,
            Self::Jittered(share) => varied(mean_ns, share),
            Self::Poisson => exponential(mean_ns, random),
            Self::Steps { step, low } => next_in_steps(at_ns, mean_ns, step, low, random) - at_ns,
            Self::Bursts { size, gap } => {
                let (size, gap_ns) = (u64::from(size), gap.as_nanos() as f64);
                let pause_ns = mean_ns * size as f64 - gap_ns * (size - 1) as f64;
                varied(if index % size == size - 1 { pause_ns } else { gap_ns }, BURST_JITTER)
            }
        }
    }
}

/// An exponentially distributed gap.
fn exponential(mean_ns: f64, random: &mut Rng) -> f64 {
    // 1 - [0, 1) is never 0.
    -mean_ns * (1.0 - random.f64()).ln()
}

/// When the next request is due. A gap that would last beyond a step is drawn again from the next step on, at the
/// rate of that one: a Poisson process has no memory.
fn next_in_steps(mut at_ns: f64, mean_ns: f64, step: Duration, low: f64, random: &mut Rng) -> f64 {
    let step_ns = step.as_nanos() as f64;
    let mut number = (at_ns / step_ns).floor();
    loop {
        let of_high = if number % 2.0 == 0.0 { low } else { 1.0 };
        // The mean of the high rate and the low one is the rate asked for.
        let next = at_ns + exponential(mean_ns * (1.0 + low) / (2.0 * of_high), random);
        number += 1.0;
        if next < number * step_ns {
            return next;
        }
        at_ns = number * step_ns;
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even => f.write_str("even"),
            Self::Jittered(share) => write!(f, "jitter:{}", share * 100.0),
            Self::Poisson => f.write_str("poisson"),
            Self::Bursts { size, gap } => write!(f, "bursts:{size}:{}", gap.as_nanos() as f64 / 1000.0),
            Self::Steps { step, low } => {
                write!(f, "steps:{}:{}", step.as_nanos() as f64 / 1e6, low * 100.0)
            }
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
                ("steps", Some(step_ms), Some(percent)) => {
                    let step = Duration::try_from_secs_f64(step_ms.parse::<f64>().ok()? / 1e3).ok()?;
                    Self::Steps { step, low: percent.parse::<f64>().ok()? / 100.0 }
                }
                _ => return None,
            };
            words.next().is_none().then_some(arrivals)
        };
        known().ok_or_else(|| {
            format!(
                "unknown arrivals '{text}': choose even, jitter:PERCENT, poisson, bursts:SIZE:GAP_US or \
                 steps:MS:PERCENT"
            )
        })
    }
}
