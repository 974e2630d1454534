//! The machine under the workers: the cost of a wake-up, the effect of a CPU latency request, the CPUs it applies to,
//! and the workers' priority. Measured at the start, before anything is served.

use std::path::PathBuf;

use twinpath_sys::trusted_dir::TrustError;
use twinpath_sys::{clock, cpu_request, cpuidle};
use twinpath_time::Duration;
use twinpath_worker::costs::{self as costs, Costs, Measurement, Scope};
use twinpath_worker::idle::{Mode, RequestSetting, Requests};
use twinpath_worker::place::Placement;
use twinpath_worker::thread::priority::Priority;
use twinpath_worker::thread::request::{Request, RequestScope};

use twinpath_observe::command::run_directory;
use twinpath_observe::report;
use twinpath_tune::{Host, topology};

mod again;
mod scheduling;

pub use again::Answer;
pub use scheduling::Scheduling;

/// Duration of the measurement at start.
const BUDGET: Duration = Duration::from_millis(120);

/// The folder for former values of CPUs' requests, in the run directory.
const FORMER_VALUES: &str = "cpu-latency";

/// A request for single CPUs survives a crash, so it is used only if it leaves at least this many CPUs
/// unaffected.
const SPARED_CPUS_MIN: usize = 4;

/// The user's settings for the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Whether a latency request may be held.
    pub request: RequestSetting,
    /// The CPUs that it applies to.
    pub scope: RequestScope,
    /// The longest exit latency of idle states allowed while it is held, us; without a value it is found by measuring.
    pub max_exit_us: Option<u32>,
    /// The workers' priority.
    pub priority: Priority,
    /// Maximum share, in percent, of a shared CPU that workers spin where other processes could not preempt
    /// them.
    pub spin_share_max: Option<u32>,
}

/// The measured machine.
pub struct Machine {
    /// The cost of a wake-up, as measured last.
    pub costs: Costs,
    /// The request in `show workers`, the same for each worker except whether it is held.
    pub request: report::LatencyRequest,
    wanted: Wanted,
    mode: Mode,
    /// The CPUs that requests apply to, as text.
    scope: String,
    /// Whether to hold a request whose effect could not be measured: it prevents few CPUs besides the
    /// workers' from resting.
    tries: bool,
    /// The CPU of workers that are not pinned, if it is the only one that the process may use.
    only_cpu: Option<usize>,
    measuring: again::Measuring,
    /// Set if requests are for single CPUs: the folder for former values.
    pub former_values: Option<PathBuf>,
}

impl Machine {
    /// Measures for workers on `cpus` (empty: any) that serve `interface`.
    pub fn learn(wanted: Wanted, mode: Mode, cpus: &[usize], interface: &str) -> Self {
        let directory = former_values();
        put_right(&directory);
        let only_cpu = only_cpu();
        let facts = ScopeFacts {
            workers: if cpus.is_empty() { only_cpu.into_iter().collect() } else { cpus.to_vec() },
            online: cpuidle::online_cpus().len(),
            interrupts: interrupt_cpus(interface),
        };
        let (single, why) = facts.single_cpus(wanted.scope);
        let scope = match (wanted.request, single) {
            (RequestSetting::Never, _) => Scope::None,
            (_, true) => Scope::Cpu(directory.clone()),
            (_, false) => Scope::Machine,
        };
        let cpu = cpus.first().copied().or_else(any_cpu).unwrap_or(0);
        let (max_exit_us, priority) = (wanted.max_exit_us, wanted.priority);
        let measurement = Measurement { cpu, budget: BUDGET, max_exit_us, priority, scope };
        let costs = costs::measure_as(&measurement);
        let tries = single || facts.spared() < SPARED_CPUS_MIN;
        let request = judge(wanted.request, mode, &costs, &why, tries);
        let measuring = again::Measuring::new(&measurement, clock::now(), &costs);
        let former_values = single.then_some(directory);
        Self { costs, request, wanted, mode, scope: why, tries, only_cpu, measuring, former_values }
    }

    /// Measures again on a separate thread, which passes the result to `done`; [`Self::learnt`] answers
    /// `answer`.
    pub fn measure(&mut self, answer: Option<Answer>, done: impl FnOnce(Costs) + Send + 'static) {
        self.measuring.begin(answer, done);
    }

    /// Whether to repeat the measurement without being asked: nothing was served since the last call
    /// (`busy_turns` of all workers has not changed), and the workers are at rest (none spins, none holds a
    /// request).
    pub fn is_due(&mut self, busy_turns: u64, at_rest: bool) -> bool {
        self.measuring.is_due(clock::now(), busy_turns, at_rest)
    }

    /// Takes the result of a new measurement. Returns whether the policy must be told.
    pub fn learnt(&mut self, costs: Costs) -> bool {
        let held_before = self.may_hold();
        self.costs = costs;
        self.request = judge(self.wanted.request, self.mode, &self.costs, &self.scope, self.tries);
        let told = serde_json::json!({ "machine": self.costs });
        self.measuring.ended(clock::now(), &self.costs, &told);
        if held_before != self.may_hold() {
            tracing::info!("a wake-up was measured again: a latency request is {}", self.request.verdict);
        }
        held_before != self.may_hold()
    }

    /// Whether the policy may hold a request.
    pub const fn may_hold(&self) -> Requests {
        match self.wanted.request {
            RequestSetting::Always => Requests::Allowed,
            RequestSetting::Never => Requests::None,
            RequestSetting::Auto if self.costs.request.helps => Requests::Allowed,
            RequestSetting::Auto if self.tries && self.costs.leaves_requests_open() => Requests::OnTrial,
            RequestSetting::Auto => Requests::None,
        }
    }

    /// The figures of the machine for the policy.
    pub fn figures(&self) -> twinpath_idle::Machine {
        self.costs.machine(self.may_hold() == Requests::Allowed)
    }

    /// CPU, priority and latency request of a worker on that CPU.
    pub fn placement(&self, cpu: Option<usize>) -> Placement {
        Placement {
            cpu,
            priority: self.wanted.priority,
            request: self.request_for(cpu.or(self.only_cpu)),
            spin_permille: self.wanted.spin_share_max.map(|percent| percent * 10),
        }
    }

    fn request_for(&self, cpu: Option<usize>) -> Request {
        let max_exit_us = self.wanted.max_exit_us.unwrap_or(self.costs.request.max_exit_us);
        if let (Some(cpu), Some(directory)) = (cpu, &self.former_values) {
            match Request::cpu(cpu, max_exit_us, directory) {
                Ok(request) => return request,
                Err(error) => tracing::warn!("{error}; requests of this worker are for all CPUs instead"),
            }
        }
        Request::machine(max_exit_us)
    }
}

/// The folder for former values of CPUs' requests.
fn former_values() -> PathBuf {
    run_directory().join(FORMER_VALUES)
}

/// Withdraws the latency requests for single CPUs that killed instances have left; returns the CPUs.
///
/// # Errors
/// The folder of former values cannot be read, or others may have written its content.
pub fn withdraw_abandoned_requests() -> Result<Vec<usize>, TrustError> {
    cpu_request::restore_abandoned(&former_values())
}

fn put_right(directory: &std::path::Path) {
    match withdraw_abandoned_requests() {
        Ok(cpus) if cpus.is_empty() => {}
        Ok(cpus) => {
            tracing::info!("withdrew the latency request that a killed instance left on CPUs {cpus:?}")
        }
        Err(error) => tracing::warn!(
            "latency requests that killed instances may have left in {} are not withdrawn: {error}",
            directory.display()
        ),
    }
}

/// CPUs that take the interrupts of the interface's queues, ascending. Empty for a device without
/// interrupts, such as a software device, whose frames arrive on the CPU that sent them, which is awake.
fn interrupt_cpus(interface: &str) -> Vec<usize> {
    Host::open(Some(interface)).map(|host| topology::interrupt_cpus(&host, interface)).unwrap_or_default()
}

/// The only CPU that this process may use; `None` if there are several.
fn only_cpu() -> Option<usize> {
    match *twinpath_sys::affinity::allowed_cpus().ok()? {
        [cpu] => Some(cpu),
        _ => None,
    }
}

fn any_cpu() -> Option<usize> {
    twinpath_sys::affinity::allowed_cpus().ok()?.first().copied()
}

/// The facts that decide which CPUs requests apply to.
#[derive(Debug, PartialEq, Eq)]
struct ScopeFacts {
    /// CPUs of the workers; empty: not pinned.
    workers: Vec<usize>,
    /// CPUs online.
    online: usize,
    /// CPUs that the interface's interrupts go to; empty for a device without interrupts.
    interrupts: Vec<usize>,
}

impl ScopeFacts {
    /// Number of CPUs without a worker.
    fn spared(&self) -> usize {
        self.online.saturating_sub(self.workers.len())
    }

    /// Decides whether requests are only for the workers' CPUs, and returns the reason.
    ///
    /// They are for all CPUs unless that costs much. A request for all CPUs ends with its process, combines
    /// with others, and also covers the CPU that takes the interrupt.
    fn single_cpus(&self, scope: RequestScope) -> (bool, String) {
        let spared = self.spared();
        let elsewhere = self.interrupts.iter().find(|cpu| !self.workers.contains(cpu));
        match (scope, elsewhere) {
            (RequestScope::Machine, _) => (false, "for all CPUs, as asked".to_owned()),
            (_, _) if self.workers.is_empty() => {
                (false, "for all CPUs: the workers are not pinned".to_owned())
            }
            (RequestScope::Cpu, _) => (true, "for the workers' CPUs alone, as asked".to_owned()),
            (RequestScope::Auto, _) if spared < SPARED_CPUS_MIN => {
                (false, format!("for all CPUs: it would spare only {spared} others"))
            }
            (RequestScope::Auto, Some(cpu)) => (
                false,
                format!("for all CPUs: interrupts of the interface go to CPU {cpu}, where no worker is"),
            ),
            (RequestScope::Auto, None) => {
                (true, format!("for the workers' CPUs alone: {spared} others may rest"))
            }
        }
    }
}

/// The conclusion from the measurement, for `show`.
fn judge(
    setting: RequestSetting,
    mode: Mode,
    costs: &Costs,
    scope: &str,
    tries: bool,
) -> report::LatencyRequest {
    let us = |spread: costs::Spread| spread.p50_ns as f64 / 1e3;
    let (found, cap) = (&costs.request, costs.request.max_exit_us);
    let verdict = match (&found.refused, setting, found.helps) {
        (_, RequestSetting::Never, _) => "not held: switched off".to_owned(),
        (Some(refused), ..) => format!("not held: the system refuses requests: {refused}"),
        (None, RequestSetting::Auto, _)
            if tries && mode == Mode::Adaptive && costs.leaves_requests_open() =>
        {
            format!("held if packets show that it shortens wake-ups ({scope}): measuring that takes two CPUs")
        }
        (None, ..) if costs.wake.with.is_none() => "not measured: it takes two CPUs".to_owned(),
        (None, RequestSetting::Auto, false) if costs.is_disturbed() => {
            "not held: it shortens no wake-up on a CPU as busy as this one was; it is measured again later"
                .to_owned()
        }
        (None, RequestSetting::Auto, false) => "not held: it does not shorten a wake-up here".to_owned(),
        _ if mode == Mode::Poll => "not held in mode poll: a spinning CPU needs none".to_owned(),
        (None, _, true) => format!("held while traffic lasts ({scope}): it shortens a wake-up here"),
        (None, _, false) => {
            format!("held while traffic lasts ({scope}), as asked, though it does not shorten a wake-up here")
        }
    };
    report::LatencyRequest {
        setting: setting.name().to_owned(),
        held: false,
        max_exit_us: cap,
        wake_us_without: costs.wake.without.map(us),
        wake_us_with: costs.wake.with.map(us),
        helps: found.helps,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_for_single_cpus_only_where_that_serves() {
        let facts = |workers: &[usize], online, interrupts: &[usize]| ScopeFacts {
            workers: workers.to_vec(),
            online,
            interrupts: interrupts.to_vec(),
        };
        let auto = |facts: ScopeFacts| facts.single_cpus(RequestScope::Auto);
        assert!(auto(facts(&[3], 32, &[3])).0);
        assert!(auto(facts(&[3], 32, &[])).0);
        assert_eq!(
            auto(facts(&[3], 32, &[3, 7])),
            (false, "for all CPUs: interrupts of the interface go to CPU 7, where no worker is".to_owned())
        );
        assert_eq!(
            auto(facts(&[1], 2, &[])),
            (false, "for all CPUs: it would spare only 1 others".to_owned())
        );
        assert!(!auto(facts(&[], 32, &[])).0);
        assert!(facts(&[1], 2, &[0]).single_cpus(RequestScope::Cpu).0);
        assert!(!facts(&[], 2, &[]).single_cpus(RequestScope::Cpu).0);
        assert!(!facts(&[3], 32, &[3]).single_cpus(RequestScope::Machine).0);
    }

    #[test]
    fn verdicts() {
        let spread = |us: u64| Some(costs::Spread { p50_ns: us * 1000, p99_ns: us * 2000, count: 9 });
        let measured = |helps| Costs {
            wake: costs::Pair { without: spread(40), with: spread(4) },
            request: costs::RequestCosts { helps, ..Default::default() },
            ..Costs::default()
        };
        let verdict =
            |setting, mode, costs: &Costs| judge(setting, mode, costs, "for all CPUs", true).verdict;
        let (auto, always, never) = (RequestSetting::Auto, RequestSetting::Always, RequestSetting::Never);
        for (setting, mode, helps, said) in [
            (
                auto,
                Mode::Adaptive,
                true,
                "held while traffic lasts (for all CPUs): it shortens a wake-up here",
            ),
            (auto, Mode::Adaptive, false, "not held: it does not shorten a wake-up here"),
            (auto, Mode::Poll, true, "not held in mode poll: a spinning CPU needs none"),
            (never, Mode::Adaptive, true, "not held: switched off"),
            (
                always,
                Mode::Adaptive,
                false,
                "held while traffic lasts (for all CPUs), as asked, though it does not shorten a wake-up here",
            ),
        ] {
            assert_eq!(verdict(setting, mode, &measured(helps)), said);
        }
        assert_eq!(verdict(auto, Mode::Adaptive, &Costs::default()), "not measured: it takes two CPUs");
        let one_cpu =
            Costs { wake_same_cpu: spread(5), idle_driver: Some("haltpoll".to_owned()), ..Costs::default() };
        assert!(verdict(auto, Mode::Adaptive, &one_cpu).starts_with("held if packets show"));
        assert_eq!(verdict(auto, Mode::Interrupt, &one_cpu), "not measured: it takes two CPUs");
        let on_many = judge(auto, Mode::Adaptive, &one_cpu, "for all CPUs", false).verdict;
        assert_eq!(on_many, "not measured: it takes two CPUs", "many others could not rest");
        let disturbed = Costs { idle_share: Some(0.1), ..measured(false) };
        assert!(verdict(auto, Mode::Adaptive, &disturbed).contains("measured again later"));
        let mut refused = measured(false);
        refused.request.refused = Some("no".to_owned());
        assert_eq!(verdict(auto, Mode::Adaptive, &refused), "not held: the system refuses requests: no");
    }
}
