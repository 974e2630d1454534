//! Arrival traces from seeds.

use super::machine::Chance;

/// When packets arrive.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The name of its kind.
    pub name: &'static str,
    /// Whether the oracle is a fair comparison, because the next arrival can be predicted from earlier ones.
    pub regular: bool,
    /// The seed it was generated from.
    pub seed: u64,
    /// Ascending, ns.
    pub arrivals_ns: Vec<u64>,
    /// Its end, ns: silence may follow the last packet.
    pub end_ns: u64,
}

/// Minimum number of packets per trace, and its approximate minimum length, us. In a shorter trace, the wake-up for
/// the first packet, which no rule can expect, would outweigh everything that is learnt.
const PACKETS: usize = 12_000;
const LENGTH_US: f64 = 500_000.0;

/// Generates the gaps of a trace, us.
type Gaps = fn(&mut Chance, &mut Vec<f64>);

/// One kind of trace.
struct Kind {
    name: &'static str,
    regular: bool,
    gaps: Gaps,
}

const fn regular(name: &'static str, gaps: Gaps) -> Kind {
    Kind { name, regular: true, gaps }
}

const fn irregular(name: &'static str, gaps: Gaps) -> Kind {
    Kind { name, regular: false, gaps }
}

const KINDS: &[Kind] = &[
    regular("steady 10 us", |chance, gaps| steady(chance, gaps, 10.0, 0.0)),
    regular("steady 100 us", |chance, gaps| steady(chance, gaps, 100.0, 0.0)),
    regular("steady 350 us", |chance, gaps| steady(chance, gaps, 350.0, 0.0)),
    regular("steady 10 ms", |chance, gaps| steady(chance, gaps, 10_000.0, 0.0)),
    regular("jittered 10 us", |chance, gaps| steady(chance, gaps, 10.0, 0.03)),
    regular("jittered 100 us", |chance, gaps| steady(chance, gaps, 100.0, 0.03)),
    regular("jittered 350 us", |chance, gaps| steady(chance, gaps, 350.0, 0.03)),
    regular("jittered 1 ms", |chance, gaps| steady(chance, gaps, 1_000.0, 0.03)),
    regular("jittered 10 ms", |chance, gaps| steady(chance, gaps, 10_000.0, 0.03)),
    regular("one per second", |chance, gaps| {
        steady(chance, gaps, 1e6, 0.001);
        gaps.truncate(2_000);
    }),
    regular("bursts of 16, 5 us", |chance, gaps| bursts(chance, gaps, 16, 5.0, 1_000.0)),
    regular("bursts of 4, 2 us", |chance, gaps| bursts(chance, gaps, 4, 2.0, 350.0)),
    regular("bursts of 64, 20 us", |chance, gaps| bursts(chance, gaps, 64, 20.0, 10_000.0)),
    irregular("irregular bursts", irregular_bursts),
    irregular("Poisson 5 us", |chance, gaps| poisson(chance, gaps, 5.0)),
    irregular("Poisson 20 us", |chance, gaps| poisson(chance, gaps, 20.0)),
    irregular("Poisson 80 us", |chance, gaps| poisson(chance, gaps, 80.0)),
    irregular("Poisson 350 us", |chance, gaps| poisson(chance, gaps, 350.0)),
    irregular("Poisson 2 ms", |chance, gaps| poisson(chance, gaps, 2_000.0)),
    irregular("Poisson 50 ms", |chance, gaps| {
        poisson(chance, gaps, 50_000.0);
        gaps.truncate(4_000);
    }),
    irregular("silence", |_, gaps| gaps.clear()),
    irregular("burst, then silence", |chance, gaps| {
        poisson(chance, gaps, 30.0);
        gaps.truncate(2_000);
        gaps.push(60e6);
    }),
    irregular("changing", changing),
    irregular("heavy-tailed", |chance, gaps| {
        let shape = chance.within(1.1, 1.6);
        let scale = chance.within(3.0, 12.0);
        fill_with(gaps, packets(scale), || (scale * (1.0 - chance.unit()).powf(-1.0 / shape)).min(1e6));
    }),
    irregular("two flows", |chance, gaps| {
        let periods = [chance.within(250.0, 400.0), chance.within(400.0, 900.0)];
        let mut due = [0.0, chance.within(0.0, 400.0)];
        let mut now = 0.0;
        fill(gaps, || {
            let flow = usize::from(due[1] < due[0]);
            let at: f64 = due[flow] + chance.normal().abs();
            due[flow] += periods[flow];
            let gap = (at - now).max(0.05);
            now += gap;
            gap
        });
    }),
    irregular("requests and think time", requests),
    irregular("lossy ticks", |chance, gaps| {
        let period = 350.0 * chance.within(0.7, 1.4);
        let loss = chance.within(0.02, 0.1);
        fill(gaps, || {
            let mut gap = period;
            while chance.unit() < loss {
                gap += period;
            }
            gap * (1.0 + 0.005 * chance.normal())
        });
    }),
];

fn fill(gaps: &mut Vec<f64>, gap: impl FnMut() -> f64) {
    fill_with(gaps, PACKETS, gap);
}

fn fill_with(gaps: &mut Vec<f64>, packets: usize, mut gap: impl FnMut() -> f64) {
    gaps.extend((0..packets).map(|_| gap()));
}

/// The number of packets of a trace with gaps of about this length.
fn packets(about_us: f64) -> usize {
    PACKETS.max((LENGTH_US / about_us) as usize)
}

/// A period drawn from around `about_us`; every gap is jittered by this share of it.
fn steady(chance: &mut Chance, gaps: &mut Vec<f64>, about_us: f64, jitter: f64) {
    let period = about_us * chance.within(0.71, 1.43);
    fill_with(gaps, packets(about_us), || period * (1.0 + chance.within(-jitter, jitter)));
}

fn poisson(chance: &mut Chance, gaps: &mut Vec<f64>, about_us: f64) {
    let mean = about_us * chance.within(0.71, 1.43);
    fill_with(gaps, packets(about_us), || chance.exponential(mean));
}

fn bursts(chance: &mut Chance, gaps: &mut Vec<f64>, size: usize, inside_us: f64, between_us: f64) {
    let inside = inside_us * chance.within(0.8, 1.25);
    let between = between_us * chance.within(0.71, 1.43);
    let mut at = 0;
    fill(gaps, || {
        at += 1;
        let gap = if at % size == 0 { between } else { inside };
        gap * (1.0 + chance.within(-0.02, 0.02))
    });
}

fn irregular_bursts(chance: &mut Chance, gaps: &mut Vec<f64>) {
    let (inside, between) = (chance.within(2.0, 10.0), chance.within(500.0, 5_000.0));
    let size = chance.within(5.0, 30.0);
    fill(gaps, || {
        if chance.unit() < 1.0 / size { chance.exponential(between) } else { chance.exponential(inside) }
    });
}

/// Changes the kind of traffic every couple of thousand packets.
fn changing(chance: &mut Chance, gaps: &mut Vec<f64>) {
    while gaps.len() < PACKETS {
        let until = gaps.len() + 1_000 + (chance.unit() * 2_000.0) as usize;
        let about = 10f64.powf(chance.within(0.7, 3.7));
        let regular = chance.unit() < 0.5;
        while gaps.len() < until {
            gaps.push(if regular {
                about * (1.0 + chance.within(-0.03, 0.03))
            } else {
                chance.exponential(about)
            });
        }
    }
}

/// As recorded from a client that sends a request, waits for the answer, repeats that some times, and pauses; all times
/// are log-normal.
fn requests(chance: &mut Chance, gaps: &mut Vec<f64>) {
    let (round, think) = (chance.within(8.0, 40.0), chance.within(2e3, 2e4));
    let mut left = 0;
    fill(gaps, || {
        if left == 0 {
            left = 1 + (chance.exponential(12.0)) as u32;
            return think * (0.8 * chance.normal()).exp();
        }
        left -= 1;
        round * (0.25 * chance.normal()).exp()
    });
}

impl Trace {
    /// Every kind of trace, from one seed.
    #[must_use]
    pub fn all(seed: u64) -> Vec<Self> {
        let kinds = KINDS.iter().enumerate();
        kinds.map(|(at, kind)| Self::of_kind(kind, seed.wrapping_mul(1_000_003) + at as u64)).collect()
    }

    fn of_kind(kind: &Kind, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let mut gaps = Vec::with_capacity(PACKETS + 1);
        (kind.gaps)(&mut chance, &mut gaps);
        // A last gap that no packet ends is silence.
        let silence = if gaps.last().is_some_and(|gap| *gap >= 60e6) { gaps.pop() } else { None };
        Self::of_gaps(kind.name, kind.regular, seed, &gaps, silence.unwrap_or(1e3))
    }

    /// A trace from given gaps in us, and the silence after the last packet.
    #[must_use]
    pub fn of_gaps(name: &'static str, regular: bool, seed: u64, gaps_us: &[f64], silence_us: f64) -> Self {
        let mut now = 1_000_000u64;
        let arrivals_ns: Vec<u64> = gaps_us
            .iter()
            .map(|gap| {
                now += (gap * 1e3).max(1.0) as u64;
                now
            })
            .collect();
        let end_ns = now + (silence_us * 1e3) as u64;
        let end_ns = if arrivals_ns.is_empty() { 60_000_000_000 } else { end_ns };
        Self { name, regular, seed, arrivals_ns, end_ns }
    }
}
