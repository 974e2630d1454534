//! Seeded replays beside a process that always wants the CPU, under a fair scheduler. A worker that spins gets
//! ahead of that process, and waits for a tick when it is then woken. The tail of a worker that detects this is no
//! longer than that of one that sleeps.

use std::time::Duration;

use twinpath_idle::replay::fixed::{Fixed, Setting};
use twinpath_idle::replay::machine::Simulated;
use twinpath_idle::replay::simulate::{Outcome, Rule, simulate};
use twinpath_idle::replay::table::policy;
use twinpath_idle::replay::traces::Trace;
use twinpath_idle::{Arrival, Config, Contention, Decision, Goal, Policy, Woken};
use twinpath_time::Instant;

/// The policy, with the worker's detection of contention.
struct Aware {
    policy: Policy,
    contention: Contention,
    /// Whether late wake-ups count as waits for the CPU in the kernel's account; those caused by a hypervisor do not.
    waits: bool,
    asked: bool,
    until: Instant,
    /// Contention was detected at least once.
    believed: bool,
}

impl Aware {
    fn on(machine: &Simulated, waits: bool) -> Self {
        let (policy, contention) = (policy(machine, Goal::Weight(0.125)), Contention::default());
        Self { policy, contention, waits, asked: false, until: Instant::NEVER, believed: false }
    }

    fn woken(&mut self, now: Instant, late: Duration) {
        let waited = if self.waits { late } else { Duration::from_micros(3) };
        self.contention.woken(now, late, self.asked.then_some(waited));
    }
}

impl Rule for Aware {
    fn arrived(&mut self, now: Instant, arrival: Arrival) {
        self.policy.arrived(now, arrival);
    }

    fn decide(&mut self, now: Instant) -> Decision {
        let there = self.contention.is_there(now);
        self.believed |= there;
        self.policy.set_contended(there);
        self.asked = self.contention.is_suspected(now);
        let decision = self.policy.decide(now, Instant::NEVER);
        self.until = if let Decision::Sleep { until } = decision { until } else { Instant::NEVER };
        decision
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        match woken {
            Woken::Packet(Some(latency)) => self.woken(now, latency),
            _ => self.woken(now, Duration::from_nanos(now.nanos_since(self.until))),
        }
        self.policy.woke(now, woken);
    }

    fn holds(&self, now: Instant) -> bool {
        self.policy.holds(now)
    }
}

/// The latency, us, that this share of the packets did not exceed, once the first second is over.
fn quantile(trace: &Trace, outcome: &Outcome, share: f64) -> f32 {
    let known_ns = trace.arrivals_ns[0] + 1_000_000_000;
    let from = trace.arrivals_ns.partition_point(|at| *at < known_ns);
    let mut latencies = outcome.latencies[from..].to_vec();
    latencies.sort_by(f32::total_cmp);
    latencies[(latencies.len() as f64 * share) as usize]
}

/// Traffic for which spinning pays, though now and then it is in vain.
fn traces(seed: u64) -> impl Iterator<Item = Trace> {
    let names = ["jittered 350 us", "jittered 1 ms", "jittered 10 ms", "lossy ticks"];
    Trace::all(seed).into_iter().filter(move |trace| names.contains(&trace.name))
}

#[test]
fn beside_a_busy_process_the_tail_is_that_of_a_worker_that_sleeps() {
    let mut stalls = [0, 0];
    for trace in (0..3).flat_map(traces) {
        for machine in Simulated::all().map(Simulated::beside_fair) {
            let mut sleeps = Fixed::new(Setting::Spin(0.0), machine.has_request());
            let sleeping = simulate(&trace, &mut sleeps, &machine, true);
            let unaware = simulate(&trace, &mut policy(&machine, Goal::Weight(0.125)), &machine, false);
            let aware = simulate(&trace, &mut Aware::on(&machine, true), &machine, true);
            stalls[0] += unaware.stalls;
            stalls[1] += aware.stalls;
            // The tail beyond this quantile contains the cost of detection: a wait or two.
            let [tail, tail_asleep] = [&aware, &sleeping].map(|outcome| quantile(&trace, outcome, 0.99));
            let case = format!("{} on {}, seed {}", trace.name, machine.name, trace.seed);
            assert!(tail <= 1.2 * tail_asleep + 10.0, "{case}: {tail} us, sleeping {tail_asleep} us");
        }
    }
    let [unaware, aware] = stalls;
    assert!(unaware > 10 * aware, "{unaware} waits for a tick, and {aware} where others are known of");
}

#[test]
fn alone_and_under_a_hypervisor_that_takes_the_cpu_nobody_is_believed_to_want_it() {
    for trace in traces(7) {
        for machine in Simulated::all().into_iter().flat_map(|machine| [machine, machine.stolen(30e3)]) {
            let mut aware = Aware::on(&machine, false);
            simulate(&trace, &mut aware, &machine, false);
            assert!(!aware.believed, "{} on {}", trace.name, machine.name);
        }
    }
}

#[test]
fn who_is_to_reach_a_latency_and_who_was_told_how_long_to_spin_does_so_beside_others() {
    let arrive = |config: Config| {
        let mut policy = Policy::new(config);
        policy.set_contended(true);
        let at = |us: u64| Instant::from_nanos(1 + us * 1_000);
        for packet in 0..200 {
            let came = at(20 * packet);
            policy.arrived(came, Arrival { first: came, last: came, count: 1 });
            policy.decide(came, Instant::NEVER);
        }
        policy.arrived(at(4_000), Arrival { first: at(4_000), last: at(4_000), count: 1 });
        policy.decide(at(4_001), Instant::NEVER) != Decision::Sleep { until: Instant::NEVER }
    };
    let spin = Some(Duration::from_micros(50));
    assert!(arrive(Config { spin, ..Config::default() }));
    assert!(arrive(Config { goal: Goal::Latency(Duration::from_micros(5)), ..Config::default() }));
    assert!(!arrive(Config { goal: Goal::Weight(0.125), ..Config::default() }));
}
