//! Measuring again while serving: by a thread of its own, when asked to, and seldom by itself while nothing is served.

use std::thread;

use tokio::sync::oneshot;
use twinpath_costs::again::Again;
use twinpath_costs::{Costs, Measurement, Scope, measure_as};
use twinpath_time::{Duration, Instant};
use twinpath_worker::priority::Priority;

/// Where the result goes, as the command socket answers.
pub type Answer = oneshot::Sender<Result<serde_json::Value, String>>;

/// Who waits for one measurement, at most: as many as there can be clients.
const WAITING_MAX: usize = twinpath_command::CLIENTS_MAX;

/// What is under way, and when the next one is due.
pub(super) struct Measuring {
    cpu: usize,
    max_exit_us: Option<u32>,
    priority: Priority,
    requests: bool,
    due: Again,
    under_way: bool,
    waiting: Vec<Answer>,
    /// Busy turns of all workers, when last looked at.
    busy_turns: u64,
}

impl Measuring {
    pub(super) fn new(measurement: &Measurement, now: Instant, costs: &Costs) -> Self {
        Self {
            cpu: measurement.cpu,
            max_exit_us: measurement.max_exit_us,
            priority: measurement.priority,
            requests: !matches!(measurement.scope, Scope::None),
            due: Again::after(now, cpu_time(costs), costs.is_disturbed()),
            under_way: false,
            waiting: Vec::new(),
            busy_turns: 0,
        }
    }

    /// Whether it is time to measure by ourselves. `busy_turns` of all workers: nothing was served if it is what it was.
    pub(super) fn is_due(&mut self, now: Instant, busy_turns: u64, at_rest: bool) -> bool {
        let quiet = std::mem::replace(&mut self.busy_turns, busy_turns) == busy_turns;
        !self.under_way && self.due.is_due(now, quiet && at_rest)
    }

    /// Begins, unless it has begun; `answer` is told the result, and so is `done`.
    pub(super) fn begin(&mut self, answer: Option<Answer>, done: impl FnOnce(Costs) + Send + 'static) {
        if self.waiting.len() == WAITING_MAX {
            // Dropped: the client is told that it failed.
            return;
        }
        self.waiting.extend(answer);
        if self.under_way {
            return;
        }
        // For all CPUs: that for the worker's alone is the worker's, and what it changes there is the same.
        let scope = if self.requests { Scope::Machine } else { Scope::None };
        let (cpu, max_exit_us, priority) = (self.cpu, self.max_exit_us, self.priority);
        let measurement = Measurement { cpu, budget: super::BUDGET, max_exit_us, priority, scope };
        let started =
            thread::Builder::new().name("measure".to_owned()).spawn(move || done(measure_as(&measurement)));
        match started {
            Ok(_) => self.under_way = true,
            Err(error) => {
                for answer in self.waiting.drain(..) {
                    let _ = answer.send(Err(format!("cannot start a thread to measure with: {error}")));
                }
            }
        }
    }

    /// It has ended.
    pub(super) fn ended(&mut self, now: Instant, costs: &Costs, told: &serde_json::Value) {
        self.under_way = false;
        self.due = Again::after(now, cpu_time(costs), costs.is_disturbed());
        for answer in self.waiting.drain(..) {
            // The client may be gone by now.
            let _ = answer.send(Ok(told.clone()));
        }
    }
}

fn cpu_time(costs: &Costs) -> Duration {
    Duration::from_secs_f64(costs.cpu_ms.max(0.0) / 1e3)
}
