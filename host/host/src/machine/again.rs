//! Repeats the measurement of wake-ups while serving, on a separate thread: on request, and rarely without
//! one while nothing is served.

use std::thread;

use twinpath_sys::event_loop::channel::SendOnce;
use twinpath_time::{Duration, Instant};
use twinpath_worker::costs::again::Again;
use twinpath_worker::costs::{Costs, Measurement, Scope, measure_as};
use twinpath_worker::thread::priority::Priority;

/// The receiver of the result on the command socket.
pub type Answer = SendOnce<Result<serde_json::Value, String>>;

/// Maximum number of clients that wait for one measurement: all clients that there can be.
const WAITING_MAX: usize = twinpath_observe::command::CLIENTS_MAX;

/// The current measurement, and the time of the next one.
pub(super) struct Measuring {
    cpu: usize,
    max_exit_us: Option<u32>,
    priority: Priority,
    requests: bool,
    due: Again,
    under_way: bool,
    waiting: Vec<Answer>,
    /// Busy turns of all workers at the last check.
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

    /// Whether a measurement is due by itself. Nothing was served if `busy_turns` of all workers has not changed.
    pub(super) fn is_due(&mut self, now: Instant, busy_turns: u64, at_rest: bool) -> bool {
        let quiet = std::mem::replace(&mut self.busy_turns, busy_turns) == busy_turns;
        !self.under_way && self.due.is_due(now, quiet && at_rest)
    }

    /// Starts one, unless one is running; `answer` and `done` get the result.
    pub(super) fn begin(&mut self, answer: Option<Answer>, done: impl FnOnce(Costs) + Send + 'static) {
        if self.waiting.len() == WAITING_MAX {
            // Dropping the sender tells the client that it failed.
            return;
        }
        self.waiting.extend(answer);
        if self.under_way {
            return;
        }
        // Measured with requests for all CPUs: a request for a single CPU belongs to its worker, and has
        // the same effect there.
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

    /// The measurement has ended.
    pub(super) fn ended(&mut self, now: Instant, costs: &Costs, told: &serde_json::Value) {
        self.under_way = false;
        self.due = Again::after(now, cpu_time(costs), costs.is_disturbed());
        for answer in self.waiting.drain(..) {
            // The client may have gone.
            let _ = answer.send(Ok(told.clone()));
        }
    }
}

fn cpu_time(costs: &Costs) -> Duration {
    Duration::from_secs_f64(costs.cpu_ms.max(0.0) / 1e3)
}
