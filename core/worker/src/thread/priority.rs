//! The priority of a worker's thread: requested and granted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_sys::scheduling::{self, FIFO_LEVELS, NICE_LEVELS, SLICES_US, SchedulingError};

/// The real-time priority that `auto` takes: above all normal threads, below all other real-time ones
/// (sched_set_fifo_low of the kernel).
const AUTO_FIFO: u8 = 1;

/// The nice value that `auto` falls back to.
const AUTO_NICE: i8 = -20;

/// The slices that `auto` takes if it gets neither of these: the shortest possible. Their cost is that a busy
/// worker beside a busy process is switched more often.
const AUTO_SLICE_US: u32 = *SLICES_US.start();

/// The requested priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Priority {
    /// The same as for any process.
    Normal,
    /// The best priority that is granted, while the worker takes little of its CPU: `fifo:1`, else `nice:-20`.
    /// Otherwise slices of 100 us, if the kernel has them.
    #[default]
    Auto,
    /// The normal policy at nice 0 with slices of this many us: runs sooner when woken, and is preempted sooner.
    Slice(u32),
    /// The normal policy with a nice value, -20 (the best) to 19.
    Nice(i8),
    /// `SCHED_FIFO`, 1 to 99: before all normal threads on its CPU.
    Fifo(u8),
}

/// What was granted, and what was refused before.
#[derive(Debug)]
pub struct Granted {
    /// The priority in force. Never [`Priority::Auto`].
    pub priority: Priority,
    /// With `auto`, the priority that the worker has instead while it takes much of its CPU, or polls; `None` if it
    /// keeps the first one.
    pub lower: Option<Priority>,
    /// Why `auto` got nothing better.
    pub refused: Vec<SchedulingError>,
}

impl Granted {
    /// This one, and no other.
    const fn only(priority: Priority) -> Self {
        Self { priority, lower: None, refused: Vec::new() }
    }
}

impl Priority {
    /// Gives the calling thread this priority.
    ///
    /// # Errors
    /// The kernel's refusal; `auto` takes the next best priority instead.
    pub fn apply(self) -> Result<Granted, SchedulingError> {
        match self {
            Self::Normal => Ok(Granted::only(self)),
            Self::Slice(slice_us) => scheduling::set_slice(slice_us).map(|()| Granted::only(self)),
            Self::Nice(nice) => scheduling::set_nice(nice).map(|()| Granted::only(self)),
            Self::Fifo(level) => scheduling::set_fifo(level).map(|()| Granted::only(self)),
            Self::Auto => {
                let mut refused = Vec::new();
                let mut grants = |wanted: Self| match wanted.apply() {
                    Ok(Granted { priority, .. }) => Some(priority),
                    Err(error) => {
                        refused.push(error);
                        None
                    }
                };
                // First, because a thread keeps its slices when it gets a nice value.
                let lower = grants(Self::Slice(AUTO_SLICE_US)).unwrap_or(Self::Normal);
                let high = [Self::Fifo(AUTO_FIFO), Self::Nice(AUTO_NICE)].into_iter().find_map(grants);
                Ok(match high {
                    Some(priority) => Granted { priority, lower: Some(lower), refused },
                    None => Granted { priority: lower, lower: None, refused },
                })
            }
        }
    }

    /// Gives the calling thread this priority again, which it was granted before.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn resume(self) -> Result<(), SchedulingError> {
        match self {
            Self::Normal => scheduling::set_normal(),
            granted => granted.apply().map(drop),
        }
    }

    /// Whether others on the CPU have to wait while it runs.
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
            Self::Slice(slice_us) => write!(f, "slice:{slice_us}"),
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
                "unknown priority '{text}': choose normal, auto, slice:US ({} to {}), nice:N ({} the best to {}) or fifo:N ({} to \
                 {} the best)",
                SLICES_US.start(),
                SLICES_US.end(),
                NICE_LEVELS.start(),
                NICE_LEVELS.end(),
                FIFO_LEVELS.start(),
                FIFO_LEVELS.end()
            )
        };
        match text.split_once(':') {
            None if text == "normal" => Ok(Self::Normal),
            None if text == "auto" => Ok(Self::Auto),
            Some(("slice", slice_us)) => slice_us
                .parse()
                .ok()
                .filter(|slice_us| SLICES_US.contains(slice_us))
                .map(Self::Slice)
                .ok_or_else(wrong),
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
        let named = [Priority::Normal, Priority::Auto, Priority::Slice(100), Priority::Slice(100_000)];
        for priority in named.into_iter().chain([Priority::Nice(-20), Priority::Nice(19), Priority::Fifo(1)])
        {
            assert_eq!(priority.to_string().parse(), Ok(priority));
        }
        for wrong in
            ["", "fifo", "fifo:0", "fifo:100", "nice:-21", "nice:20", "nice:x", "rr:1", "Normal", "fifo:1:2"]
                .into_iter()
                .chain(["slice", "slice:99", "slice:100001"])
        {
            let error = wrong.parse::<Priority>().expect_err("no such priority");
            assert!(error.contains("choose normal, auto, slice:US"), "{error}");
        }
    }

    /// What `auto` gets on a thread of its own, after `before`.
    fn auto_after(before: impl FnOnce() + Send) -> Granted {
        let granted = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                before();
                Priority::Auto.apply()
            });
            thread.join().expect("no panic")
        });
        granted.expect("auto is never refused")
    }

    /// Whether the kernel has slices; what was refused for want of them.
    fn slices(granted: &Granted) -> usize {
        usize::from(granted.refused.contains(&SchedulingError::NoSlices))
    }

    #[test]
    fn auto_always_gets_something() {
        let granted = auto_after(|| {});
        let lacking = slices(&granted);
        let lowest = if lacking == 0 { Priority::Slice(100) } else { Priority::Normal };
        let (lower, refusals) = match granted.priority {
            Priority::Fifo(1) => (Some(lowest), 0),
            Priority::Nice(-20) => (Some(lowest), 1),
            priority if priority == lowest => (None, 2),
            other => panic!("auto gave {other}"),
        };
        assert_eq!((granted.lower, granted.refused.len()), (lower, refusals + lacking));
    }

    #[test]
    fn without_the_privilege_auto_keeps_nobody_off_the_cpu() {
        use rustix::process::{Resource, getrlimit};
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        // Limits would allow what the capability does not.
        if getrlimit(Resource::Rtprio).current != Some(0) || getrlimit(Resource::Nice).current != Some(0) {
            return twinpath_test_rig::skip("limits grant real time or nice values here");
        }
        let granted = auto_after(|| {
            let mut sets = capabilities(None).expect("capabilities are told");
            sets.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, sets).expect("anybody may give one up");
        });
        let lowest = if slices(&granted) == 0 { Priority::Slice(100) } else { Priority::Normal };
        assert_eq!((granted.priority, granted.lower), (lowest, None));
        let refused: Vec<_> = granted.refused.iter().map(ToString::to_string).collect();
        assert!(refused.iter().all(|refused| refused.contains("CAP_SYS_NICE") || refused.contains("6.12")));
        assert_eq!(granted.refused.len(), 2 + slices(&granted));
    }
}
