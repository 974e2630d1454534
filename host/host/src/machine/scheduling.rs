//! A worker's scheduling: its present priority, the reason for it, and its share of the CPU.

use twinpath_worker::WorkerCounters;
use twinpath_worker::idle::Mode;
use twinpath_worker::thread::guard::Shares;
use twinpath_worker::thread::priority::{Granted, Priority};

use twinpath_observe::report;

/// The requested scheduling, and the result.
#[derive(Clone, Debug)]
pub struct Scheduling {
    asked: Priority,
    granted: Priority,
    /// The lower priority while it uses much of its CPU, or polls.
    lower: Option<Priority>,
    /// The reasons why a better priority was refused.
    refused: Vec<String>,
    shares: Option<Shares>,
}

impl Scheduling {
    /// Logs the priorities that a worker was refused.
    pub fn told(worker: usize, asked: Priority, granted: Granted, shares: Option<Shares>) -> Self {
        let Granted { priority, lower, refused } = granted;
        let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
        for refused in &refused {
            tracing::info!("worker {worker} runs at {priority}: {refused}");
        }
        Self { asked, granted: priority, lower, refused, shares }
    }

    /// The present priority.
    pub fn priority(&self, counters: &WorkerCounters) -> Priority {
        self.lower.filter(|_| counters.priority_lower.get() == 1).unwrap_or(self.granted)
    }

    /// The reason for it, as text.
    pub fn why(&self, counters: &WorkerCounters, mode: Mode) -> String {
        let Self { asked, granted, lower, refused, shares } = self;
        let (Priority::Auto, Some(_), Some(shares)) = (asked, lower, shares) else {
            return if refused.is_empty() {
                "as asked".to_owned()
            } else {
                format!("auto: {}", refused.join("; "))
            };
        };
        let [spin, run] = [shares.spin_permille, shares.run_permille].map(|permille| permille / 10);
        if self.priority(counters) == *granted {
            return format!(
                "auto: before others on its CPU, as it spins at most {spin} % of the time and runs at most {run} %"
            );
        }
        let reason = match mode {
            _ if counters.priority_refused.get() == 1 => {
                return format!("auto: beside others on its CPU, as the system now refuses it {granted}");
            }
            Mode::Poll => "mode poll never leaves it".to_owned(),
            _ => format!("it would spin more than {spin} % of the time or run more than {run} %"),
        };
        format!("auto: beside others on its CPU, not before them, as {reason}; {granted} when that is over")
    }

    /// The guard in `show workers`.
    pub fn guard(&self, counters: &WorkerCounters) -> Option<report::Guard> {
        let shares = self.shares?;
        Some(report::Guard {
            spin_share_max: f64::from(shares.spin_permille) / 1e3,
            run_share_max: f64::from(shares.run_permille) / 1e3,
            lower: self.lower.map(|lower| lower.to_string()),
            counts: counters.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduling(asked: Priority, lower: Option<Priority>, refused: &[&str]) -> Scheduling {
        let granted = if lower.is_some() { Priority::Fifo(1) } else { Priority::Slice(100) };
        let shares = lower.map(|_| Shares { spin_permille: 100, run_permille: 500 });
        let refused = refused.iter().map(ToString::to_string).collect();
        Scheduling { asked, granted, lower, refused, shares }
    }

    #[test]
    fn the_priority_in_force_is_told_and_why() {
        let counters = WorkerCounters::default();
        let stepping = scheduling(Priority::Auto, Some(Priority::Slice(100)), &[]);
        assert_eq!(stepping.priority(&counters), Priority::Fifo(1));
        assert!(
            stepping
                .why(&counters, Mode::Adaptive)
                .contains("at most 10 % of the time and runs at most 50 %")
        );
        counters.priority_lower.set(1);
        counters.priority_steps.add(3);
        assert_eq!(stepping.priority(&counters), Priority::Slice(100));
        assert!(stepping.why(&counters, Mode::Adaptive).contains("it would spin more than 10 %"));
        assert!(
            stepping
                .why(&counters, Mode::Poll)
                .contains("mode poll never leaves it; fifo:1 when that is over")
        );
        let guard = stepping.guard(&counters).unwrap();
        assert_eq!((guard.lower.as_deref(), guard.counts.priority_steps), (Some("slice:100"), 3));
        counters.priority_refused.set(1);
        assert!(stepping.why(&counters, Mode::Adaptive).contains("now refuses it fifo:1"));
        // Without a lower priority it has the granted one.
        let named = scheduling(Priority::Slice(100), None, &[]);
        assert_eq!(
            (named.priority(&counters), named.why(&counters, Mode::Poll).as_str()),
            (Priority::Slice(100), "as asked")
        );
        let refused = scheduling(Priority::Auto, None, &["no real time", "no nice values"]);
        assert_eq!(refused.why(&counters, Mode::Adaptive), "auto: no real time; no nice values");
        assert!(refused.guard(&counters).is_none());
    }
}
