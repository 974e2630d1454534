//! The cost of one rule on one trace and one machine.

use twinpath_time::Instant;

use super::machine::{Chance, Simulated};
use super::traces::Trace;
use crate::{Arrival, Decision, Policy, Woken};

/// A rule that decides: the policy, or a fixed setting.
pub trait Rule {
    /// See [`Policy::arrived`].
    fn arrived(&mut self, now: Instant, arrival: Arrival);
    /// See [`Policy::decide`].
    fn decide(&mut self, now: Instant) -> Decision;
    /// See [`Policy::woke`].
    fn woke(&mut self, now: Instant, woken: Woken);
    /// See [`Policy::holds`].
    fn holds(&self, now: Instant) -> bool;
}

impl Rule for Policy {
    fn arrived(&mut self, now: Instant, arrival: Arrival) {
        Self::arrived(self, now, arrival);
    }

    fn decide(&mut self, now: Instant) -> Decision {
        Self::decide(self, now, Instant::NEVER)
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        Self::woke(self, now, woken);
    }

    fn holds(&self, now: Instant) -> bool {
        Self::holds(self, now)
    }
}

/// The costs of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Sum over packets of the time from arrival to being found, us.
    pub latency_us: f64,
    /// CPU spent spinning, us.
    pub spun_us: f64,
    /// CPU spent on wake-ups ahead of predictions, us.
    pub timers_us: f64,
    /// Wake-ups by a timer.
    pub timers: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Time asleep with the request held, us.
    pub held_us: f64,
    /// Length of the trace, us.
    pub length_us: f64,
    /// Wake-ups that waited for a tick because the worker was ahead of the competing process.
    pub stalls: u64,
    /// Each packet's latency, us, if details are wanted.
    pub latencies: Vec<f32>,
    /// Each stretch of spinning, ns: from, to; if details are wanted.
    pub stretches: Vec<(u64, u64)>,
}

impl Outcome {
    /// Latency beyond that of polling, plus the weighted CPU time spent waiting.
    #[must_use]
    pub fn cost(&self, weight: f64) -> f64 {
        self.latency_us + weight * (self.spun_us + self.timers_us)
    }
}

/// Beside a competing process under a fair scheduler: the length of a tick, and the CPU time of a wake-up and of a
/// packet, ns.
const TICK_NS: u64 = 4_000_000;
const CYCLE_NS: u64 = 8_000;

/// Replays a trace. It begins with the first packet, found at once: no rule can expect it, so all are equal until then.
pub fn simulate(trace: &Trace, rule: &mut dyn Rule, machine: &Simulated, details: bool) -> Outcome {
    let stolen = machine.stolen_until(trace.end_ns, trace.seed);
    let outcome = Outcome::default();
    let mut run = Run { trace, machine, stolen, at: 0, now: 0, ahead_ns: 0, details, outcome };
    run.outcome.length_us = trace.end_ns as f64 / 1e3;
    run.now = trace.arrivals_ns.first().copied().unwrap_or(0);
    run.deliver(rule, None);
    while run.now < trace.end_ns {
        match rule.decide(Instant::from_nanos(run.now)) {
            Decision::Spin { until } => run.spin(rule, until.as_nanos()),
            Decision::Sleep { until } => run.sleep(rule, until.as_nanos()),
        }
    }
    run.outcome
}

struct Run<'a> {
    trace: &'a Trace,
    machine: &'a Simulated,
    stolen: Vec<(u64, u64)>,
    at: usize,
    now: u64,
    /// How much longer the worker has run than the competing process.
    ahead_ns: u64,
    details: bool,
    outcome: Outcome,
}

impl Run<'_> {
    fn next(&self) -> u64 {
        self.trace.arrivals_ns.get(self.at).copied().unwrap_or(u64::MAX)
    }

    /// When a worker that is ready at this time actually runs.
    fn runs(&self, at: u64) -> u64 {
        let next = self.stolen.partition_point(|(_, end)| *end <= at);
        self.stolen.get(next).filter(|(start, _)| *start <= at).map_or(at, |(_, end)| *end)
    }

    /// When a sleeping worker that is woken at this time actually runs.
    fn let_in(&mut self, at: u64) -> u64 {
        let ahead_ns = std::mem::replace(&mut self.ahead_ns, CYCLE_NS).saturating_sub(at - self.now);
        if !self.machine.fair || ahead_ns == 0 {
            return at;
        }
        self.outcome.stalls += 1;
        at.next_multiple_of(TICK_NS)
    }

    fn spin(&mut self, rule: &mut dyn Rule, until: u64) {
        let end = self.next().max(self.now).min(until.max(self.now + 100)).min(self.trace.end_ns);
        let looked = Instant::from_nanos(end);
        let end = self.runs(end);
        self.outcome.spun_us += (end - self.now) as f64 / 1e3;
        self.ahead_ns += end - self.now;
        if self.details {
            self.outcome.stretches.push((self.now, end));
        }
        self.now = end;
        self.deliver(rule, Some(looked));
    }

    /// Delivers the packets that have come; `looked` is when an awake worker last found nothing.
    fn deliver(&mut self, rule: &mut dyn Rule, looked: Option<Instant>) {
        let first = self.at;
        while self.next() <= self.now {
            let latency_us = (self.now - self.next()) as f64 / 1e3;
            self.outcome.latency_us += latency_us;
            if self.details {
                self.outcome.latencies.push(latency_us as f32);
            }
            self.at += 1;
        }
        if self.at > first {
            let times = &self.trace.arrivals_ns[first..self.at];
            let now = Instant::from_nanos(self.now);
            let (first, last) = (Instant::from_nanos(times[0]), Instant::from_nanos(times[times.len() - 1]));
            let count = times.len() as u32;
            let arrival = match looked {
                Some(looked) if !self.machine.stamps => Arrival::since_look(looked, now, count),
                _ => Arrival { first, last, count },
            };
            rule.arrived(now, arrival);
        }
    }

    fn sleep(&mut self, rule: &mut dyn Rule, until: u64) {
        let start = Instant::from_nanos(self.now);
        let held = rule.holds(start) && self.machine.has_request();
        let event = self.at as u64;
        let packet = self.next();
        let fires = if until == u64::MAX {
            u64::MAX
        } else {
            let chance = Chance::of(self.trace.seed, event, 2);
            until.max(self.now) + self.machine.overshoot_ns(chance)
        };
        let woken = if packet <= self.now {
            self.now
        } else if packet == u64::MAX {
            u64::MAX
        } else {
            let gap = packet - self.at.checked_sub(1).map_or(0, |last| self.trace.arrivals_ns[last]);
            packet + self.machine.wake_ns(held, gap, Chance::of(self.trace.seed, event, 1))
        };
        // A timer that is set for later does not speed up a wake-up in progress.
        let fires = if packet < until { u64::MAX } else { fires };
        let first = fires.min(woken).min(self.trace.end_ns.max(self.now));
        let end = self.runs(first);
        let end = self.let_in(end);
        self.outcome.sleeps += 1;
        if held {
            self.outcome.held_us += (end - self.now) as f64 / 1e3;
        }
        self.now = end;
        let now = Instant::from_nanos(end);
        if first == fires {
            self.outcome.timers += 1;
            self.outcome.timers_us += self.machine.timer_cpu_us;
            rule.woke(now, Woken::Timer);
        } else if first == woken {
            let latency = std::time::Duration::from_nanos(end - packet);
            rule.woke(now, Woken::Packet(Some(latency)));
        }
        self.deliver(rule, None);
    }
}
