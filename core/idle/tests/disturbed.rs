//! Seeded replays on machines where others sometimes take the CPU, and where arrival times are hardly known: no
//! packet is found much later than by polling.

use twinpath_idle::replay::fixed::{Fixed, Setting};
use twinpath_idle::replay::machine::Simulated;
use twinpath_idle::replay::simulate::{Outcome, Rule, simulate};
use twinpath_idle::replay::table::policy;
use twinpath_idle::replay::traces::Trace;
use twinpath_idle::{Arrival, Decision, Goal, Policy, Woken};
use twinpath_time::Instant;

/// Which arrival times the policy gets, besides the times at which packets were found.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stamps {
    All,
    /// Of the first packet after a sleep.
    First,
    None,
}

struct Told(Policy, Stamps);

impl Rule for Told {
    fn arrived(&mut self, now: Instant, arrival: Arrival) {
        let Arrival { mut first, mut last, count } = arrival;
        if self.1 == Stamps::None {
            first = now;
        }
        if self.1 != Stamps::All {
            last = if count == 1 { first } else { now };
        }
        self.0.arrived(now, Arrival { first, last, count });
    }

    fn decide(&mut self, now: Instant) -> Decision {
        self.0.decide(now, Instant::NEVER)
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        let unknown = self.1 == Stamps::None && matches!(woken, Woken::Packet(_));
        self.0.woke(now, if unknown { Woken::Packet(None) } else { woken });
    }

    fn holds(&self, now: Instant) -> bool {
        self.0.holds(now)
    }
}

/// The latency, us, that this share of the packets did not exceed, without the first packets.
fn quantile(outcome: &Outcome, share: f64) -> f32 {
    let mut latencies = outcome.latencies[500..].to_vec();
    latencies.sort_by(f32::total_cmp);
    latencies[(latencies.len() as f64 * share) as usize]
}

fn compare(stamps: Stamps, every_us: f64, judge: impl Fn(&str, &Outcome, &Outcome)) {
    for trace in Trace::all(9_100) {
        if trace.name != "jittered 350 us" && trace.name != "steady 350 us" {
            continue;
        }
        for machine in Simulated::all().map(|machine| machine.stolen(every_us)) {
            // Without a stamp nothing shows that wake-ups take longer there than was measured after short sleeps.
            if stamps == Stamps::None && machine.name == "metal" {
                continue;
            }
            let polled = simulate(&trace, &mut Fixed::new(Setting::Poll, false), &machine, true);
            let mut told = Told(policy(&machine, Goal::Weight(0.25)), stamps);
            let learnt = simulate(&trace, &mut told, &machine, true);
            judge(&format!("{} on {}, {stamps:?}", trace.name, machine.name), &learnt, &polled);
        }
    }
}

#[test]
fn a_cpu_that_others_take_makes_no_tail_beyond_that_of_polling() {
    for stamps in [Stamps::All, Stamps::First] {
        for every_us in [300e3, 100e3, 30e3] {
            compare(stamps, every_us, |case, learnt, polled| {
                for share in [0.9, 0.99, 0.999] {
                    let (learnt, polled) = (quantile(learnt, share), quantile(polled, share));
                    assert!(learnt < polled + 20.0, "{case}, {share}: {learnt} us, polling {polled} us");
                }
                assert!(learnt.spun_us < 0.06 * learnt.length_us, "{case}: {} us", learnt.spun_us);
            });
        }
    }
}

#[test]
fn without_stamps_the_next_packet_is_not_expected_late() {
    for every_us in [f64::INFINITY, 100e3] {
        compare(Stamps::None, every_us, |case, learnt, polled| {
            let (typical, late) = (quantile(learnt, 0.5), quantile(learnt, 0.95) - quantile(polled, 0.95));
            assert!(typical < 2.0 && late < 20.0, "{case}: {typical} us, late {late} us");
        });
    }
}
