//! The priority of a worker's thread: what is asked for, and what the machine grants.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_sys::scheduling::{self, FIFO_LEVELS, NICE_LEVELS, SchedulingError};

/// The real-time priority that `auto` takes: above everything normal, below everything else (sched_set_fifo_low of the kernel).
const AUTO_FIFO: u8 = 1;

/// The nice value that `auto` falls back to.
const AUTO_NICE: i8 = -20;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Priority {
    /// That of every process.
    #[default]
    Normal,
    /// The best that is granted: `fifo:1`, else `nice:-20`, else normal.
    Auto,
    /// The normal policy with a nice value, -20 (the best) to 19.
    Nice(i8),
    /// `SCHED_FIFO`, 1 to 99: before everything normal on its CPU.
    Fifo(u8),
}

/// What was granted, and what was refused on the way.
#[derive(Debug, Default)]
pub struct Granted {
    /// Never [`Priority::Auto`].
    pub priority: Priority,
    /// Why `auto` did not get better.
    pub refused: Vec<SchedulingError>,
}

impl Priority {
    /// Gives the calling thread this priority.
    ///
    /// # Errors
    /// What the kernel says; `auto` takes the next best thing instead.
    pub fn apply(self) -> Result<Granted, SchedulingError> {
        match self {
            Self::Normal => Ok(Granted::default()),
            Self::Nice(nice) => {
                scheduling::set_nice(nice).map(|()| Granted { priority: self, refused: Vec::new() })
            }
            Self::Fifo(level) => {
                scheduling::set_fifo(level).map(|()| Granted { priority: self, refused: Vec::new() })
            }
            Self::Auto => {
                let mut refused = Vec::new();
                for priority in [Self::Fifo(AUTO_FIFO), Self::Nice(AUTO_NICE)] {
                    match priority.apply() {
                        Ok(Granted { priority, .. }) => return Ok(Granted { priority, refused }),
                        Err(error) => refused.push(error),
                    }
                }
                Ok(Granted { priority: Self::Normal, refused })
            }
        }
    }

    /// Whether others on the CPU wait while it runs.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo(_))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("normal"),
            Self::Auto => f.write_str("auto"),
            Self::Nice(nice) => write!(f, "nice:{nice}"),
            Self::Fifo(level) => write!(f, "fifo:{level}"),
        }
    }
}

impl From<Priority> for String {
    fn from(priority: Priority) -> Self {
        priority.to_string()
    }
}

impl TryFrom<String> for Priority {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "unknown priority '{text}': choose normal, auto, nice:N ({} the best to {}) or fifo:N ({} to {} the best)",
                NICE_LEVELS.start(),
                NICE_LEVELS.end(),
                FIFO_LEVELS.start(),
                FIFO_LEVELS.end()
            )
        };
        match text.split_once(':') {
            None if text == "normal" => Ok(Self::Normal),
            None if text == "auto" => Ok(Self::Auto),
            Some(("nice", nice)) => {
                nice.parse().ok().filter(|nice| NICE_LEVELS.contains(nice)).map(Self::Nice).ok_or_else(wrong)
            }
            Some(("fifo", level)) => level
                .parse()
                .ok()
                .filter(|level| FIFO_LEVELS.contains(level))
                .map(Self::Fifo)
                .ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_read_back_their_own_names() {
        for priority in
            [Priority::Normal, Priority::Auto, Priority::Nice(-20), Priority::Nice(19), Priority::Fifo(1)]
        {
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        for wrong in
            ["", "fifo", "fifo:0", "fifo:100", "nice:-21", "nice:20", "nice:x", "rr:1", "Normal", "fifo:1:2"]
        {
            let error = wrong.parse::<Priority>().expect_err("no such priority");
            assert!(error.contains("choose normal, auto, nice:N"), "{error}");
        }
    }

    #[test]
    fn auto_always_gets_something() {
        let granted =
            std::thread::scope(|scope| scope.spawn(|| Priority::Auto.apply()).join().expect("no panic"));
        let granted = granted.expect("auto is never refused");
        let refusals = match granted.priority {
            Priority::Fifo(1) => 0,
            Priority::Nice(-20) => 1,
            Priority::Normal => 2,
            other => panic!("auto gave {other}"),
        };
        assert_eq!(granted.refused.len(), refusals);
    }
}
