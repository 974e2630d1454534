//! The latencies of wake-ups and timers on this machine: measured at start, then learnt from each wake-up.

use crate::gaps::{CLASSES, Decaying, class_of};

/// Points of equal weight that represent the distribution of a latency.
pub(crate) const POINTS: usize = 12;

/// The machine's figures before anything has been learnt: medians, as measured at start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Wake-up latency without a latency request, us.
    pub wake_us: f32,
    /// The same with a request held; `None` if requests are refused, not wanted, or do not help.
    pub wake_held_us: Option<f32>,
    /// The lateness of a timer, us.
    pub overshoot_us: f32,
    /// CPU time of a timer wake-up for a prediction, us.
    pub timer_cpu_us: f32,
    /// CPU time of going to sleep and waking up, us; 0 to count only spinning and predicting.
    pub sleep_cpu_us: f32,
}

impl Default for Machine {
    /// A virtual machine whose CPUs sleep deeply, for use where nothing was measured.
    fn default() -> Self {
        Self { wake_us: 50.0, wake_held_us: None, overshoot_us: 10.0, timer_cpu_us: 3.0, sleep_cpu_us: 0.0 }
    }
}

impl Machine {
    /// Replaces absurd figures: a value that no clock can have measured counts as unknown, and one above a tenth of a
    /// second is cut to that.
    pub(crate) fn plausible(self) -> Self {
        let unknown = Self::default();
        let checked = |us: f32, unknown: f32| if us.is_finite() { us.clamp(0.0, 1e5) } else { unknown };
        Self {
            wake_us: checked(self.wake_us, unknown.wake_us),
            wake_held_us: self.wake_held_us.map(|us| checked(us, unknown.wake_us)),
            overshoot_us: checked(self.overshoot_us, unknown.overshoot_us),
            timer_cpu_us: checked(self.timer_cpu_us, unknown.timer_cpu_us),
            sleep_cpu_us: checked(self.sleep_cpu_us, unknown.sleep_cpu_us),
        }
    }
}

/// A learnt latency: its distribution, and its mean by the length of the sleep.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    seen: Decaying,
    /// Decaying mean, us, and a median that follows in steps.
    mean: f32,
    median: f32,
    count: u8,
    by_class: [(f32, u8); CLASSES],
    /// See [`Self::points`]; as of the last time the table of costs was made.
    points: [f32; POINTS],
}

/// Until a class of sleeps has wake-ups of its own, those of similar length count as this many.
const LIKE_OTHERS: f32 = 2.0;

/// A wake-up that another one overtook is assumed to be this factor longer than all that were seen.
const OVERTAKEN: f32 = 1.12;

/// With fewer than this, it is unknown how often that happens.
const FEW: f32 = 3.0;

/// After a silence, all earlier wake-ups together count as this many.
const DOUBTED: f32 = 4.0;

/// A latency beyond this many medians does not belong to a wake-up.
const OUTLIER: f32 = 4.0;

impl Latency {
    /// Starts with a few assumed wake-ups around the given median.
    fn new(median_us: f32) -> Self {
        let mut seen = Decaying::new(1024.0);
        for share in [0.72, 0.86, 0.96, 1.06, 1.22, 1.6] {
            seen.add(median_us * share, 4.0);
        }
        let (by_class, points) = ([(0.0, 0); CLASSES], [median_us; POINTS]);
        Self { seen, mean: median_us, median: median_us, count: 4, by_class, points }
    }

    fn learn(&mut self, slept_us: f32, latency_us: f32) {
        let latency_us = latency_us.max(0.0);
        self.seen.add(latency_us, 1.0);
        self.median *= if latency_us > self.median { 1.05 } else { 1.0 / 1.05 };
        // Waiting for another process is not part of a wake-up's latency: a spinning worker waits for it as well.
        let latency_us = latency_us.min(self.longest());
        self.count = (self.count + 1).min(64);
        self.mean += (latency_us - self.mean) / f32::from(self.count);
        let (mean, count) = &mut self.by_class[class_of(slept_us)];
        *count = count.saturating_add(1).min(64);
        *mean += (latency_us - *mean) / f32::from(*count);
    }

    /// From now on, earlier wake-ups count for no more than a few, so that the next ones decide.
    fn doubt(&mut self) {
        self.seen.keep(DOUBTED);
        self.count = self.count.min(DOUBTED as u8);
        self.by_class.iter_mut().for_each(|(_, count)| *count = (*count).min(1));
    }

    /// Learns a wake-up that another one overtook after `at_least_us`: it is taken to be as long as the longer ones
    /// usually are.
    fn learn_overtaken(&mut self, slept_us: f32, at_least_us: f32) {
        let longer = self.points.iter().filter(|point| **point > at_least_us);
        let (sum, count) = longer.fold((0.0, 0.0), |(sum, count), point| (sum + point, count + 1.0));
        self.learn(slept_us, if count > 0.0 { sum / count } else { OVERTAKEN * at_least_us });
    }

    /// Mean after sleeps of this class, us. Until enough is known: after sleeps half and twice as long, or after
    /// any.
    pub(crate) fn mean(&self, class: usize) -> f32 {
        let near = [class.wrapping_sub(1), class + 1].map(|near| self.by_class.get(near).copied());
        let (sum, known) =
            near.into_iter().flatten().fold((self.mean, 1.0), |(sum, known), (mean, count)| {
                (sum + f32::from(count) * mean, known + f32::from(count))
            });
        let (mean, count) = self.by_class[class];
        (f32::from(count) * mean + LIKE_OTHERS * sum / known) / (f32::from(count) + LIKE_OTHERS)
    }

    pub(crate) const fn overall(&self) -> f32 {
        self.mean
    }

    /// The latency, us, that this share of the wake-ups did not exceed: the upper edge of its bucket.
    pub(crate) fn quantile(&self, share: f32) -> f32 {
        let wanted = self.seen.total() * share;
        let mut below = 0.0;
        let mut last = 0.0;
        for (_, hi, mass) in self.seen.buckets() {
            below += mass;
            last = hi;
            if below >= wanted {
                break;
            }
        }
        last
    }

    /// The share of wake-ups that took longer.
    pub(crate) fn above(&self, limit_us: f32) -> f32 {
        let above = |(lo, hi, mass): (f32, f32, f32)| mass * ((hi - limit_us) / (hi - lo)).clamp(0.0, 1.0);
        self.seen.buckets().map(above).sum::<f32>() / self.seen.total().max(f32::MIN_POSITIVE)
    }

    /// Points of equal weight that represent the distribution, ascending.
    pub(crate) const fn points(&self) -> [f32; POINTS] {
        self.points
    }

    /// Each point is the median of its part, without the few worst. Those may be chance; if they counted, sleeping
    /// would not be tried again and nothing better learnt.
    fn find_points(&mut self) {
        let total = self.seen.total() - FEW;
        let mut points = [0.0; POINTS];
        let (mut at, mut below, mut last) = (0, 0.0, 0.0);
        for (lo, hi, mass) in self.seen.buckets() {
            let before = below;
            below += mass;
            last = hi;
            while at < POINTS && below >= total * (at as f32 + 0.5) / POINTS as f32 {
                let share = (total * (at as f32 + 0.5) / POINTS as f32 - before) / mass;
                points[at] = lo + (hi - lo) * share;
                at += 1;
            }
        }
        points[at..].fill(last);
        self.points = points;
    }

    /// Longer times are not wake-ups: they include waiting for something else.
    fn longest(&self) -> f32 {
        OUTLIER * self.median + 20.0
    }
}

/// Everything learnt of the machine: wake-ups and timers, without and with a request held.
#[derive(Clone, Debug)]
pub(crate) struct Learnt {
    /// The number of observations so far, and the number of them that the table of costs contains.
    lessons: u32,
    told: u32,
    pub(crate) wake: [Latency; 2],
    pub(crate) overshoot: [Latency; 2],
}

impl Learnt {
    pub(crate) fn new(machine: &Machine) -> Self {
        let held = machine.wake_held_us.unwrap_or(machine.wake_us);
        let wakes = [machine.wake_us, held].map(|median| Latency::new(median.max(0.1)));
        let timer = Latency::new(machine.overshoot_us.max(0.1));
        let mut learnt = Self { lessons: 0, told: 0, wake: wakes, overshoot: [timer.clone(), timer] };
        learnt.told();
        learnt
    }

    /// Whether enough is new that the table of costs should be recomputed.
    pub(crate) fn is_news(&self) -> bool {
        self.lessons - self.told > (self.told / 4).min(64)
    }

    /// The table of costs is being recomputed.
    pub(crate) fn told(&mut self) {
        self.told = self.lessons;
        self.wake.iter_mut().chain(&mut self.overshoot).for_each(Latency::find_points);
    }

    /// After a silence, other processes may run on this machine, and its CPUs may sleep more deeply or less.
    pub(crate) fn doubt(&mut self) {
        self.wake.iter_mut().chain(&mut self.overshoot).for_each(Latency::doubt);
    }

    pub(crate) fn woken(&mut self, held: bool, slept_us: f32, latency_us: f32) {
        self.lessons = self.lessons.saturating_add(1);
        self.wake[usize::from(held)].learn(slept_us, latency_us);
    }

    /// A timer woke the worker this long after a packet had come.
    pub(crate) fn woken_by_timer(&mut self, held: bool, slept_us: f32, after_us: f32) {
        self.wake[usize::from(held)].learn_overtaken(slept_us, after_us);
    }

    /// A packet woke the worker this long after the timer's time.
    pub(crate) fn fired_too_late(&mut self, held: bool, slept_us: f32, after_us: f32) {
        self.overshoot[usize::from(held)].learn_overtaken(slept_us, after_us);
    }

    pub(crate) fn fired(&mut self, held: bool, slept_us: f32, overshoot_us: f32) {
        self.overshoot[usize::from(held)].learn(slept_us, overshoot_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_silence_a_few_wake_ups_decide_what_is_believed() {
        let machine = Machine { wake_us: 30.0, ..Machine::default() };
        let mut learnt = Learnt::new(&machine);
        // Beside busy processes.
        (0..500).for_each(|_| learnt.woken(false, 50.0, 400.0));
        assert!(learnt.wake[0].overall() > 300.0);
        learnt.doubt();
        (0..16).for_each(|_| learnt.woken(false, 50.0, 30.0));
        learnt.told();
        let (mean, p50) = (learnt.wake[0].overall(), learnt.wake[0].quantile(0.5));
        assert!(
            mean < 120.0 && learnt.wake[0].mean(class_of(50.0)) < 120.0 && p50 < 40.0,
            "{mean} us, {p50} us"
        );
    }

    #[test]
    fn a_quantile_is_the_end_of_the_bucket_where_so_many_are_reached() {
        let mut latency = Latency::new(10.0);
        latency.seen = Decaying::new(1e6);
        for (us, count) in [(10.0, 60.0), (100.0, 30.0), (1_000.0, 10.0)] {
            latency.seen.add(us, count);
        }
        for (share, least_us) in
            [(0.1, 10.0), (0.59, 10.0), (0.61, 100.0), (0.89, 100.0), (0.91, 1_000.0), (1.0, 1_000.0)]
        {
            let us = latency.quantile(share);
            assert!((least_us..least_us * 1.07).contains(&us), "{share}: {us} us");
        }
    }

    #[test]
    fn a_figure_that_no_clock_can_have_measured_is_taken_for_unknown() {
        let absurd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -5.0, f32::MAX, 1e12];
        for us in absurd {
            let machine =
                Machine { wake_us: us, wake_held_us: Some(us), overshoot_us: us, ..Machine::default() };
            let machine = machine.plausible();
            for us in [machine.wake_us, machine.wake_held_us.unwrap_or(-1.0), machine.overshoot_us] {
                assert!((0.0..=1e5).contains(&us), "{machine:?}");
            }
        }
    }
}
