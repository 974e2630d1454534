//! Silence ends in sleep, whatever was learnt before: seeded replays beside busy processes, and property tests of a
//! policy that receives arbitrary events.

use std::time::Duration;

use proptest::prelude::*;
use twinpath_idle::replay::machine::Simulated;
use twinpath_idle::replay::simulate::{Rule, simulate};
use twinpath_idle::replay::table::policy;
use twinpath_idle::replay::traces::Trace;
use twinpath_idle::{Arrival, Config, Decision, Goal, Machine, Policy, SPIN_MAX, Woken};
use twinpath_time::Instant;

const SECOND_NS: u64 = 1_000_000_000;

/// 20,000 requests per second for 4 s, then silence.
fn load_then_silence(seed: u64, silence_us: f64) -> Trace {
    Trace::of_gaps("20,000/s, then silence", false, seed, &vec![50.0; 80_000], silence_us)
}

#[test]
fn load_beside_a_busy_process_is_followed_by_sleep() {
    for seed in 0..5 {
        let trace = load_then_silence(seed, 60e6);
        let last_ns = *trace.arrivals_ns.last().expect("there are packets");
        for machine in Simulated::all().map(|machine| machine.beside_busy().unstamped()) {
            let outcome = simulate(&trace, &mut policy(&machine, Goal::Weight(0.125)), &machine, true);
            let silent = outcome.stretches.iter().filter(|(_, to)| *to > last_ns);
            let spun_ns: u64 = silent.map(|(from, to)| to - (*from).max(last_ns)).sum();
            // Others may have the CPU when the spinning should end.
            let most_ns = SPIN_MAX.as_nanos() as u64 + 6_000_000;
            assert!(spun_ns <= most_ns, "{}, seed {seed}: spins for {spun_ns} ns of silence", machine.name);
        }
    }
}

/// A policy, and the shortest mean gap that it has assumed, us.
struct Watched {
    policy: Policy,
    least_gap_us: f32,
}

impl Rule for Watched {
    fn arrived(&mut self, now: Instant, arrival: Arrival) {
        self.policy.arrived(now, arrival);
    }

    fn decide(&mut self, now: Instant) -> Decision {
        let decision = self.policy.decide(now, Instant::NEVER);
        let summary = self.policy.summary();
        if summary.gaps > 100 {
            self.least_gap_us = self.least_gap_us.min(summary.gap_us);
        }
        decision
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        self.policy.woke(now, woken);
    }

    fn holds(&self, now: Instant) -> bool {
        self.policy.holds(now)
    }
}

#[test]
fn packets_that_waited_for_the_cpu_did_not_come_all_at_once() {
    for seed in 0..5 {
        let trace = load_then_silence(seed, 1e3);
        for machine in Simulated::all().map(|machine| machine.beside_busy().unstamped()) {
            let policy = policy(&machine, Goal::Weight(0.125));
            let mut rule = Watched { policy, least_gap_us: f32::INFINITY };
            simulate(&trace, &mut rule, &machine, false);
            assert!(rule.least_gap_us > 10.0, "{}, seed {seed}: {} us", machine.name, rule.least_gap_us);
        }
    }
}

#[test]
fn a_time_that_the_policy_is_not_told_of_is_no_gap() {
    let mut policy = Policy::new(Config::default());
    let at = |us: u64| Instant::from_nanos(SECOND_NS + us * 1_000);
    let arrival = |us: u64| Arrival { first: at(us), last: at(us), count: 1 };
    let hundred_apart = |policy: &mut Policy, from: u64, count: u64| {
        for us in (0..count).map(|packet| from + packet * 100) {
            policy.arrived(at(us), arrival(us));
            policy.decide(at(us + 1), Instant::NEVER);
        }
    };
    hundred_apart(&mut policy, 0, 500);
    policy.pause();
    let deadline = at(55_000);
    assert!(matches!(policy.decide(at(50_001), deadline), Decision::Sleep { until } if until == deadline));
    hundred_apart(&mut policy, 60_000, 10);
    assert!(policy.summary().gap_us < 105.0, "{} us", policy.summary().gap_us);
}

/// An event for a policy.
#[derive(Clone, Debug)]
enum Event {
    /// Packets were found after this time, the first of which had come this long before; the worker turned this often
    /// in between.
    Packets {
        after_ns: u64,
        age_ns: u64,
        count: u32,
        turns: u8,
    },
    /// The same packets again and again.
    Steady {
        gap_ns: u64,
        count: u32,
        times: u16,
    },
    /// The worker sleeps if the policy says so, and is woken after this time.
    Woken {
        after_ns: u64,
        how: u8,
        latency_ns: u64,
    },
    /// The policy is not asked for this long, because others have the CPU.
    Stolen {
        ns: u64,
    },
    Goal(Goal),
    SpinShare(Option<f32>),
    Machine(Machine),
    Pause,
}

/// Times of any length, evenly distributed by magnitude.
fn time_ns() -> impl Strategy<Value = u64> {
    (0u32..36).prop_flat_map(|octave| 0..=(1u64 << octave))
}

/// Times that a measurement may report, us; some of them absurd.
fn claimed_us() -> impl Strategy<Value = f32> {
    prop_oneof![
        (-4.0f32..24.0).prop_map(f32::exp2),
        prop::sample::select(vec![0.0, 1e12, f32::MAX, f32::INFINITY, f32::NAN]),
    ]
}

fn goal() -> impl Strategy<Value = Goal> {
    prop_oneof![
        (-12.0f32..12.0).prop_map(|weight| Goal::Weight(weight.exp2())),
        time_ns().prop_map(|budget| Goal::Latency(Duration::from_nanos(budget))),
        (0.0f32..1.2).prop_map(Goal::Cpu),
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    (claimed_us(), prop::option::of(claimed_us()), claimed_us(), claimed_us(), claimed_us()).prop_map(
        |(wake_us, wake_held_us, overshoot_us, timer_cpu_us, sleep_cpu_us)| Machine {
            wake_us,
            wake_held_us,
            overshoot_us,
            timer_cpu_us,
            sleep_cpu_us,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (time_ns(), time_ns(), 1u32..200, 0u8..4)
            .prop_map(|(after_ns, age_ns, count, turns)| Event::Packets { after_ns, age_ns, count, turns }),
        4 => (time_ns(), 1u32..70, 1u16..300)
            .prop_map(|(gap_ns, count, times)| Event::Steady { gap_ns, count, times }),
        3 => (time_ns(), 0u8..4, time_ns())
            .prop_map(|(after_ns, how, latency_ns)| Event::Woken { after_ns, how, latency_ns }),
        2 => time_ns().prop_map(|ns| Event::Stolen { ns }),
        1 => goal().prop_map(Event::Goal),
        1 => prop::option::of(0.0f32..1.1).prop_map(Event::SpinShare),
        1 => machine().prop_map(Event::Machine),
        1 => Just(Event::Pause),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let spin = prop::option::weighted(0.2, (0u64..1_000_000).prop_map(Duration::from_micros));
    let linger = prop::option::weighted(0.2, (0u64..3_600).prop_map(Duration::from_secs));
    (goal(), machine(), spin, linger, prop::option::of(0.0f32..1.1)).prop_map(
        |(goal, machine, spin, linger, spin_share)| Config {
            goal,
            machine,
            spin,
            linger,
            spin_share,
            ..Config::default()
        },
    )
}

fn packets(policy: &mut Policy, now: u64, age_ns: u64, count: u32) {
    let (now, first) = (Instant::from_nanos(now), Instant::from_nanos(now.saturating_sub(age_ns)));
    let last = if age_ns.is_multiple_of(2) { now } else { first };
    policy.arrived(now, Arrival { first, last, count });
}

/// Applies an event; returns the time after it.
fn happen(policy: &mut Policy, mut now: u64, event: &Event) -> u64 {
    match *event {
        Event::Packets { after_ns, age_ns, count, turns } => {
            for _ in 0..turns {
                policy.decide(Instant::from_nanos(now), Instant::NEVER);
                now += after_ns / u64::from(turns);
            }
            packets(policy, now, age_ns, count);
        }
        Event::Steady { gap_ns, count, times } => {
            for _ in 0..times {
                policy.decide(Instant::from_nanos(now), Instant::NEVER);
                now += gap_ns;
                packets(policy, now, 0, count);
            }
        }
        Event::Woken { after_ns, how, latency_ns } => {
            policy.decide(Instant::from_nanos(now), Instant::NEVER);
            now += after_ns;
            let latency = Duration::from_nanos(latency_ns);
            let ends = [Woken::Timer, Woken::Other, Woken::Packet(None), Woken::Packet(Some(latency))];
            policy.woke(Instant::from_nanos(now), ends[usize::from(how)]);
        }
        Event::Stolen { ns } => now += ns,
        Event::Goal(goal) => policy.set_goal(goal),
        Event::SpinShare(share) => policy.set_spin_share(share),
        Event::Machine(machine) => policy.set_machine(machine),
        Event::Pause => policy.pause(),
    }
    now
}

/// A silent minute: how long it spins, ns, and how often it wakes by its own timer. `late_ns`: the lateness of timers;
/// `told`: how often something other than a packet wakes it.
fn silent_minute(policy: &mut Policy, start: u64, late_ns: u64, told: u32) -> (u64, u32) {
    let (mut now, mut spun, mut timers, mut told) = (start, 0, 0, told);
    let end = start + 60 * SECOND_NS;
    while now < end {
        match policy.decide(Instant::from_nanos(now), Instant::NEVER) {
            Decision::Spin { until } => {
                assert!(until.as_nanos() > now, "it spins for nothing");
                let until = until.as_nanos().min(end);
                // Turns are short, and need not be modelled one by one.
                let turn = (until - now).min(300_000);
                (now, spun) = (now + turn, spun + turn);
            }
            Decision::Sleep { until } if told > 0 => {
                told -= 1;
                now = until.as_nanos().min(now + 500_000);
                policy.woke(Instant::from_nanos(now), Woken::Other);
            }
            Decision::Sleep { until } if until.as_nanos() >= end => break,
            Decision::Sleep { until } => {
                timers += 1;
                assert!(timers < 1_000, "it does not come to rest");
                now = until.as_nanos().max(now) + late_ns;
                policy.woke(Instant::from_nanos(now), Woken::Timer);
            }
        }
    }
    (spun, timers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_learnt_silence_leads_to_sleep(
        config in config(),
        events in prop::collection::vec(event(), 0..40),
        late_ns in time_ns(),
        told in prop_oneof![Just(0u32), 0u32..200],
    ) {
        let mut policy = Policy::new(config);
        let mut now = 1_000;
        for event in &events {
            now = happen(&mut policy, now, event);
        }
        let (spun, timers) = silent_minute(&mut policy, now, late_ns % 10_000_000, told);
        // Rounding: times are kept in 24 bits of microseconds.
        let most = config.spin.unwrap_or_default().max(SPIN_MAX).as_nanos() as u64;
        prop_assert!(spun <= most + most / 1_000, "spun for {spun} ns, {most} are allowed");
        // One for each expected packet of a plan, and one to release a latency request.
        prop_assert!(timers <= 6, "woken {timers} times");
        let resting = policy.decide(Instant::from_nanos(now + 61 * SECOND_NS), Instant::NEVER);
        prop_assert!(matches!(resting, Decision::Sleep { .. }), "{resting:?}");
    }
}
