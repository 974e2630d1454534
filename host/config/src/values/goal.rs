//! The goals of mode `adaptive`: the maximum delay of receiving a packet, or the maximum share of a core
//! spent waiting.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_idle::Goal;
use twinpath_time::Duration;

/// No machine wakes up within a microsecond, and a second is no latency.
const LATENCY_US: std::ops::RangeInclusive<u64> = 1..=1_000_000;

/// At least 99 % of the packets are received within this: `20us`, `1ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LatencyGoal {
    us: u64,
}

/// The text is no latency.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no latency to reach: write 1us to 1s, as in 20us or 1ms")]
pub struct LatencyGoalError(String);

impl LatencyGoal {
    /// The latency of a goal, if it has one.
    #[must_use]
    pub const fn of(goal: Goal) -> Option<Self> {
        match goal {
            Goal::Latency(latency) => Some(Self { us: latency.as_micros() as u64 }),
            Goal::Cpu(_) | Goal::Weight(_) => None,
        }
    }

    /// The goal for the policy.
    #[must_use]
    pub const fn goal(self) -> Goal {
        Goal::Latency(Duration::from_micros(self.us))
    }
}

impl FromStr for LatencyGoal {
    type Err = LatencyGoalError;

    fn from_str(text: &str) -> Result<Self, LatencyGoalError> {
        let units = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];
        let number = |(unit, us): (&str, u64)| {
            text.strip_suffix(unit)?.trim_end().parse::<u64>().ok()?.checked_mul(us)
        };
        let us = units.into_iter().find_map(number).filter(|us| LATENCY_US.contains(us));
        us.map(|us| Self { us }).ok_or_else(|| LatencyGoalError(text.to_owned()))
    }
}

impl fmt::Display for LatencyGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.us)
    }
}

impl TryFrom<String> for LatencyGoal {
    type Error = LatencyGoalError;

    fn try_from(text: String) -> Result<Self, LatencyGoalError> {
        text.parse()
    }
}

impl From<LatencyGoal> for String {
    fn from(goal: LatencyGoal) -> Self {
        goal.to_string()
    }
}

/// At most this much of a core is spent waiting: `5%`, `0.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuGoal {
    permille: u32,
}

/// The text is no share of a core.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no share of a core: write 0.1% to 100%, as in 5%")]
pub struct CpuGoalError(String);

impl CpuGoal {
    /// The share of a core of a goal, if it has one.
    #[must_use]
    pub fn of(goal: Goal) -> Option<Self> {
        match goal {
            Goal::Cpu(share) => Some(Self { permille: (share * 1e3).round() as u32 }),
            Goal::Latency(_) | Goal::Weight(_) => None,
        }
    }

    /// The goal for the policy.
    #[must_use]
    pub fn goal(self) -> Goal {
        Goal::Cpu(self.permille as f32 / 1e3)
    }
}

impl FromStr for CpuGoal {
    type Err = CpuGoalError;

    fn from_str(text: &str) -> Result<Self, CpuGoalError> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        let permille =
            percent.map(|percent| (percent * 10.0).round()).filter(|it| (1.0..=1000.0).contains(it));
        permille.map(|it| Self { permille: it as u32 }).ok_or_else(|| CpuGoalError(text.to_owned()))
    }
}

impl fmt::Display for CpuGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.permille) / 10.0)
    }
}

impl TryFrom<String> for CpuGoal {
    type Error = CpuGoalError;

    fn try_from(text: String) -> Result<Self, CpuGoalError> {
        text.parse()
    }
}

impl From<CpuGoal> for String {
    fn from(goal: CpuGoal) -> Self {
        goal.to_string()
    }
}

/// The goal from the two keys, of which at most one has a value. Without either, latency and CPU time are
/// weighed against each other.
#[must_use]
pub fn goal(latency: Option<LatencyGoal>, cpu: Option<CpuGoal>) -> Goal {
    let cpu = || cpu.map_or(Goal::Weight(twinpath_worker::idle::WEIGHT), CpuGoal::goal);
    latency.map_or_else(cpu, LatencyGoal::goal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_read_back_and_nonsense_is_refused_with_an_example() {
        for text in ["20us", "1us", "1000000us"] {
            assert_eq!(text.parse::<LatencyGoal>().expect(text).to_string(), text);
        }
        assert_eq!(
            "1ms".parse::<LatencyGoal>().expect("1 ms").goal(),
            Goal::Latency(Duration::from_millis(1))
        );
        assert_eq!(
            "2 s".parse::<LatencyGoal>().unwrap_err().to_string(),
            LatencyGoalError("2 s".into()).to_string()
        );
        for text in ["", "20", "0us", "-1us", "20 parsecs", "99999999999999999999us", "18446744073709551615s"]
        {
            assert!(text.parse::<LatencyGoal>().is_err(), "{text}");
        }
        for text in ["5%", "0.5%", "100%"] {
            assert_eq!(text.parse::<CpuGoal>().expect(text).to_string(), text);
        }
        for text in ["", "5", "0%", "101%", "NaN%", "-1%", "%"] {
            assert!(text.parse::<CpuGoal>().is_err(), "{text}");
        }
        assert_eq!(goal(None, "5%".parse().ok()), Goal::Cpu(0.05));
    }
}
