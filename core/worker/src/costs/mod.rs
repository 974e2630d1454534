//! Measures the cost of a wake-up on this machine: from another CPU, from the same one, and by a timer; without a CPU
//! latency request and with one.
//!
//! Machines differ: on one virtual machine the request shortens a wake-up from 40 us to 2, on a similar one it has
//! no effect, and both report wrong exit latencies of their idle states. So the effect is measured before it is
//! used ([`measure`]), off the packet path, and again later ([`again`]). The measurement changes nothing but the
//! request.

pub mod again;
mod judge;
mod sample;

use std::hint::black_box;

use serde::{Deserialize, Serialize};
use twinpath_sys::{affinity, clock, cpuidle};
use twinpath_time::Duration;

use judge::{Judged, Set};

use crate::thread::priority::Priority;
use crate::thread::request::Request;

/// Maximum number of limits that are tried besides 0: each takes 5 ms per pair.
const CAPS_MAX: usize = 2;

/// A state with a longer exit latency is never allowed: the request is there to avoid it.
const CAP_US_MAX: u32 = 50;

/// A CPU that was idle for a smaller fraction of the time shows little of the cost of idle states.
const IDLE_SHARE_MIN: f64 = 0.5;

/// Minimum and maximum number of pairs of samples, without a request and with one.
const PAIRS: std::ops::RangeInclusive<u32> = 3..=12;

/// A distribution of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Half took at most this, ns.
    pub p50_ns: u64,
    /// 99 % took at most this, ns. With fewer than 100 values, the longest one.
    pub p99_ns: u64,
    /// Number of values.
    pub count: u32,
}

impl Spread {
    /// `None` without values.
    fn of(mut times_ns: Vec<u64>) -> Option<Self> {
        times_ns.sort_unstable();
        let at = |percent: usize| {
            times_ns.get((times_ns.len() * percent / 100).min(times_ns.len().checked_sub(1)?))
        };
        Some(Self { p50_ns: *at(50)?, p99_ns: *at(99)?, count: times_ns.len() as u32 })
    }
}

/// The same duration without a latency request and with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pair {
    /// Without a request; `None` if it could not be measured.
    pub without: Option<Spread>,
    /// With one; `None` if requests are refused.
    pub with: Option<Spread>,
}

/// An idle state, as its driver reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleState {
    /// `POLL`, `C1`, ...
    pub name: String,
    /// Longest exit latency according to the driver, us. It is rarely correct on virtual machines.
    pub exit_us: u32,
    /// Whether it has been disabled.
    pub disabled: bool,
}

/// One limit on exit latency that was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cap {
    /// The limit: idle states with a longer exit latency were forbidden, us.
    pub max_exit_us: u32,
    /// A wake-up from another CPU with this limit.
    pub wake: Spread,
    /// Whether it shortens a wake-up.
    pub helps: bool,
}

/// The effect of a latency request here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestCosts {
    /// `machine` (all CPUs, /dev/cpu_dma_latency), `cpu` (the worker's alone) or `none` (not measured).
    pub scope: String,
    /// The best limit: the deepest one that adds no latency; 0 allows only the shallowest state.
    pub max_exit_us: u32,
    /// Whether it shortens a wake-up.
    pub helps: bool,
    /// The reason that the system refuses requests.
    pub refused: Option<String>,
    /// Every limit tried, the deepest first.
    pub tried: Vec<Cap>,
}

/// The costs of waking up here. Times in ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// The CPU that was woken.
    pub cpu: u32,
    /// The CPU it was woken from; `None` if there is only one: then nothing was measured between CPUs.
    pub from_cpu: Option<u32>,
    /// The kernel's driver for idle CPUs; `None` if there is none, so that a request has no effect.
    pub idle_driver: Option<String>,
    /// Its governor.
    pub idle_governor: Option<String>,
    /// Idle states, the shallowest first.
    pub idle_states: Vec<IdleState>,
    /// How long this guest polls before it halts a CPU (`guest_halt_poll_ns`); `None` if the kernel does not do that.
    pub halt_poll_ns: Option<u64>,
    /// From a signal on another CPU until the blocked thread runs (a blocking eventfd).
    pub wake: Pair,
    /// The same from a thread on the same CPU.
    pub wake_same_cpu: Option<Spread>,
    /// The lateness of a timer.
    pub timer: Pair,
    /// CPU time of the thread for going to sleep and waking up.
    pub wake_cpu_ns: u64,
    /// One system call that does nothing.
    pub syscall_ns: u64,
    /// One reading of the clock.
    pub clock_ns: u64,
    /// The effect of a request.
    pub request: RequestCosts,
    /// The share of the time that the CPU was idle meanwhile, to 10 ms: other work hides the cost of idle states.
    pub idle_share: Option<f64>,
    /// Duration of the measurement, ms.
    pub took_ms: f64,
    /// CPU time of the measurement on all threads, ms.
    pub cpu_ms: f64,
}

impl Costs {
    /// Whether other work kept the CPU busy for most of the time: a request may have more effect than measured.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.idle_share.is_some_and(|share| share < IDLE_SHARE_MIN)
    }

    /// Whether a request was not tried because that takes two CPUs, though it may have an effect here.
    #[must_use]
    pub const fn leaves_requests_open(&self) -> bool {
        self.from_cpu.is_none()
            && self.wake_same_cpu.is_some()
            && self.request.refused.is_none()
            && self.idle_driver.is_some()
    }

    /// The figures for the idle policy. `hold`: whether it may hold a request at all.
    #[must_use]
    pub fn machine(&self, hold: bool) -> twinpath_idle::Machine {
        let unknown = twinpath_idle::Machine::default();
        let us = |spread: Spread| spread.p50_ns as f32 / 1e3;
        twinpath_idle::Machine {
            wake_us: self.wake.without.or(self.wake_same_cpu).map_or(unknown.wake_us, us),
            wake_held_us: self.wake.with.filter(|_| hold).map(us),
            overshoot_us: self.timer.without.map_or(unknown.overshoot_us, us),
            timer_cpu_us: if self.wake_cpu_ns > 0 {
                self.wake_cpu_ns as f32 / 1e3
            } else {
                unknown.timer_cpu_us
            },
            ..unknown
        }
    }
}

/// The parameters of a measurement.
#[derive(Debug)]
pub struct Measurement {
    /// The CPU that is woken: the worker's.
    pub cpu: usize,
    /// Intended duration; a busy machine makes it longer.
    pub budget: Duration,
    /// The limit to try, us; none: those that the idle states suggest.
    pub max_exit_us: Option<u32>,
    /// The priority of the woken thread.
    pub priority: Priority,
    /// The scope of the requests during the measurement; see [`crate::thread::request`].
    pub scope: Scope,
}

/// The CPUs that a request applies to during the measurement.
#[derive(Debug, Default)]
pub enum Scope {
    /// No request is made.
    None,
    /// All CPUs.
    #[default]
    Machine,
    /// The CPU that is woken; former values are kept in this folder.
    Cpu(std::path::PathBuf),
}

/// Measures the cost of a wake-up on `cpu`, in about `budget` (100 ms are enough; at least 60 ms are used).
/// Meanwhile it sometimes holds a request for all CPUs, and uses about 5 % of one CPU. Call it before anything is
/// served, or on a separate thread.
///
/// Figures that cannot be measured are missing from the result; the function never fails.
#[must_use]
pub fn measure(cpu: usize, budget: Duration) -> Costs {
    let (priority, scope) = (Priority::default(), Scope::default());
    measure_as(&Measurement { cpu, budget, max_exit_us: None, priority, scope })
}

/// The same, with all parameters.
#[must_use]
pub fn measure_as(measurement: &Measurement) -> Costs {
    let start = clock::now();
    let idle_before = cpuidle::idle_time(measurement.cpu);
    let mut costs = machine_says(measurement.cpu);
    let far = affinity::allowed_cpus().unwrap_or_default().into_iter().find(|cpu| *cpu != measurement.cpu);
    costs.from_cpu = far.map(|far| far as u32);
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().name("measure".to_owned()).spawn_scoped(scope, || {
            // If placement or priority are refused, the figures are those of another CPU or of a normal thread.
            let _ = affinity::pin_current_thread(measurement.cpu);
            let _ = measurement.priority.apply();
            on_the_cpu(measurement, far, &mut costs);
        });
        if let Ok(thread) = started {
            let _ = thread.join();
        }
    });
    let took = clock::now().since(start);
    let idle =
        idle_before.zip(cpuidle::idle_time(measurement.cpu)).map(|(before, now)| now.saturating_sub(before));
    costs.idle_share = idle.map(|idle| (idle.as_secs_f64() / took.as_secs_f64().max(1e-9)).min(1.0));
    costs.took_ms = took.as_secs_f64() * 1e3;
    costs
}

/// The figures that can be read from the kernel.
fn machine_says(cpu: usize) -> Costs {
    let state = |state: cpuidle::IdleState| IdleState {
        name: state.name,
        exit_us: state.exit_us,
        disabled: state.disabled,
    };
    Costs {
        cpu: cpu as u32,
        idle_driver: cpuidle::driver(),
        idle_governor: cpuidle::driver().and_then(|_| cpuidle::governor()),
        idle_states: cpuidle::states(cpu).into_iter().map(state).collect(),
        halt_poll_ns: cpuidle::guest_halt_poll_ns(),
        ..Costs::default()
    }
}

/// Takes all measurements, on the thread that is woken.
fn on_the_cpu(measurement: &Measurement, far: Option<usize>, costs: &mut Costs) {
    costs.syscall_ns = sample::each_ns(|| _ = black_box(rustix::process::getppid()));
    costs.clock_ns = sample::each_ns(|| _ = black_box(clock::now()));
    let Ok(mut near) = sample::Near::new() else { return };
    if let Ok(set) = near.sample(measurement.cpu) {
        costs.wake_same_cpu = Spread::of(set.wake_ns);
    }
    let (pairs, refused) = match far {
        Some(far) => pairs(measurement, &mut near, far, &costs.idle_states),
        // With one CPU, only timers can be compared.
        None => (Vec::new(), None),
    };
    let judged = Judged::of(&pairs);
    costs.wake = judged.wake;
    costs.timer = judged.timer;
    if far.is_none() {
        costs.timer.without = near.sample(measurement.cpu).ok().and_then(|set| Spread::of(set.timer_ns));
    }
    costs.request = RequestCosts {
        scope: match measurement.scope {
            _ if pairs.is_empty() => "none",
            Scope::None => "none",
            Scope::Machine => "machine",
            Scope::Cpu(_) => "cpu",
        }
        .to_owned(),
        max_exit_us: judged.max_exit_us,
        helps: judged.helps,
        refused,
        tried: judged.tried,
    };
    costs.wake_cpu_ns = near.wake_cpu_ns();
    costs.cpu_ms = near.cpu_ms();
}

/// One sample without a request and one with each cap.
struct PairOfSets {
    without: Set,
    with: Vec<(u32, Set)>,
}

/// Measures pairs until the budget is used up; returns them, and the reason if requests are refused.
fn pairs(
    measurement: &Measurement,
    near: &mut sample::Near,
    far: usize,
    states: &[IdleState],
) -> (Vec<PairOfSets>, Option<String>) {
    let caps = match (&measurement.scope, measurement.max_exit_us) {
        (Scope::None, _) => Vec::new(),
        (_, Some(cap)) => vec![cap],
        (_, None) => caps(states),
    };
    let start = clock::now();
    let mut pairs = Vec::new();
    let mut refused = None;
    loop {
        near.rest();
        let Ok(without) = near.sample(far) else { break };
        let mut with = Vec::with_capacity(caps.len());
        for &cap in &caps {
            match held(measurement, cap) {
                Ok(_request) => with.extend(near.sample(far).ok().map(|set| (cap, set))),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        pairs.push(PairOfSets { without, with });
        let (done, spent) = (pairs.len() as u32, clock::now().since(start));
        let next_ends = spent + spent / done;
        if done >= *PAIRS.end() || done >= *PAIRS.start() && next_ends > measurement.budget {
            break;
        }
    }
    (pairs, refused)
}

fn held(measurement: &Measurement, max_exit_us: u32) -> Result<Request, String> {
    let mut request = match &measurement.scope {
        Scope::None | Scope::Machine => Request::machine(max_exit_us),
        Scope::Cpu(directory) => {
            Request::cpu(measurement.cpu, max_exit_us, directory).map_err(|error| error.to_string())?
        }
    };
    request.hold().map_err(|error| error.to_string())?;
    Ok(request)
}

/// The limits worth trying, the deepest first, so that the effect of one does not last into the next: each state's exit
/// latency except the deepest one's, which needs no request.
fn caps(states: &[IdleState]) -> Vec<u32> {
    let enabled = states.iter().filter(|state| !state.disabled).map(|state| state.exit_us);
    let mut exits: Vec<u32> = enabled.filter(|exit| (1..=CAP_US_MAX).contains(exit)).collect();
    let deepest = states.iter().filter(|state| !state.disabled).map(|state| state.exit_us).max();
    exits.retain(|exit| Some(*exit) != deepest);
    exits.sort_unstable();
    exits.dedup();
    exits.truncate(CAPS_MAX);
    exits.insert(0, 0);
    exits.reverse();
    exits
}

#[cfg(test)]
mod tests;
