//! Decides whether requests that BPF programs in the kernel can answer are answered by them or by the worker.
//!
//! A program answers on the CPU that receives the request, one request after the other, and wakes no thread. A
//! worker that is awake takes all waiting requests in one turn, on its own CPU. So the programs are better while
//! requests come one by one. The worker is better if it finds several at a time, or if more come once it answers,
//! because clients wait for replies. Only the worker can see that, so the programs let it try from time to time
//! (`stack/bpf/bpf/reflex.h`), and it decides whether to continue.

use twinpath_time::{Duration, Instant};

/// Number of turns with requests that a decision needs.
const LOOKS: u32 = 16;
/// The worker begins to answer if a turn finds this many quarters of a request on average: 1.5 requests.
const BEGINS: u32 = 6;
/// It continues while a turn finds at least this many quarters: 1.25 requests.
const GOES_ON: u32 = 5;
/// It also begins if the rate of requests is this many times the rate before the trial.
const MORE: f64 = 1.15;
/// The rate of a trial is known after this time,
const TRIED_FOR: Duration = Duration::from_millis(1);
/// and this number of requests: the rate of fewer varies by chance.
const ENOUGH: u32 = 200;
/// The programs leave requests to the worker from this rate per second on (TRIED_RATE_LEAST in stack/bpf/bpf/reflex.h).
const LOAD_LEAST: f64 = 25_000.0;
/// If it lapses this often in a row with less than that, the worker gives back.
const SMALL_MAX: u32 = 2;
/// It also continues while the rate is this many times the rate before the trial,
const STILL_MORE: f64 = 1.08;
/// but for at most this time: by then there may be more clients, which the programs would serve as well.
const MORE_FOR: Duration = Duration::from_secs(2);
/// While it answers, it decides again at the end of each such window.
const WINDOW: Duration = Duration::from_millis(4);
/// If nothing was found for this time, the clients or the worker had to wait for a CPU, or the load has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// After a decision it answers for this time, unless it decides again.
const KEPT: Duration = Duration::from_millis(12);
/// It answers for at least this time, unless the rate falls. The time doubles whenever the programs could not keep
/// up.
const HOLD_LEAST: Duration = Duration::from_millis(8);
const HOLD_MOST: Duration = Duration::from_secs(2);
/// The rate of requests that come to the worker while the programs answer is counted over this time.
const BESIDE: Duration = Duration::from_millis(20);
/// The programs could not keep up if the worker has to begin again within this time after it gave back, at about the same rate.
const SOON: Duration = Duration::from_millis(500);

/// What the worker tells the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The worker answers until this time.
    Worker {
        /// When the programs answer again, unless another word comes.
        until: Instant,
    },
    /// The trial is over: the programs answer better.
    Programs,
    /// As [`Word::Programs`], but after the worker has answered: the next trial may come soon.
    GivenBack,
}

/// What the programs say of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The worker answers until then, unless it says otherwise.
    pub until: Instant,
    /// Requests a second that the programs answered before the trial.
    pub before: u64,
}

/// What the worker has observed to decide who answers. A value without a clock: it is told what each turn found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answering {
    /// The end of the trial, or of the time that the worker answers, as the programs know it.
    until: Instant,
    /// It has decided to answer.
    answers: bool,
    /// It has answered, and has not given back since: a trial now is about whether it goes on.
    answered: bool,
    /// Requests a second before the trial, to the programs and the worker together; and the programs' part of it, as
    /// they say it.
    before: f64,
    before_by_programs: u64,
    /// Requests a second that come to the worker while the programs answer: those for other services, and those
    /// that the programs cannot answer.
    beside: f64,
    /// Such requests in the current window.
    beside_window: Window,
    /// It began because a turn found several requests, not because the rate was higher.
    found_several: bool,
    /// In the last window in which it answered, or tried to, it found several at a time.
    finds_several: bool,
    /// When it began, after the programs had last measured their rate.
    begun: Instant,
    /// What it has found since it began, or since the last lapse.
    since_lapse: Window,
    /// Lapses in a row before which it had found less than a load.
    small: u32,
    /// The turn before this one ended with a sleep, so the requests that wait now came during the wake-up.
    slept: bool,
    /// When a turn last found requests.
    looked: Instant,
    window: Window,
    /// While it answers: the rate per second at which it began, once that is known, and how long it keeps
    /// answering.
    rate: Option<f64>,
    hold: Duration,
    hold_until: Instant,
    /// When it gave back, and the rate at which it had begun.
    given_back: Option<(Instant, f64)>,
}

/// Turns that found requests.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Instant,
    looks: u32,
    requests: u32,
}

impl Window {
    /// Whether a turn found this many quarters of a request on average.
    const fn finds(&self, quarters: u32) -> bool {
        self.requests.saturating_mul(4) >= self.looks.saturating_mul(quarters)
    }

    /// Requests a second until `now`.
    fn rate(&self, now: Instant) -> f64 {
        f64::from(self.requests) * 1e9 / now.since(self.began).as_nanos().max(1) as f64
    }
}

impl Answering {
    /// A turn at `now` has found `requests`, at least one, during this trial. Returns what to tell the programs.
    pub fn found(&mut self, now: Instant, requests: u32, Tried { until, before }: Tried) -> Option<Word> {
        if until <= now {
            // The programs have not been told anything for too long.
            self.answers = false;
            return None;
        }
        let paused = self.answers && now >= self.looked + PAUSE;
        self.looked = now;
        if until != self.until {
            // After a lapse the programs let it try again with what they measured before, and look at no rate.
            let is_renewed = self.answered && before == self.before_by_programs;
            // One such lapse may be a pause right after the worker began. Two in a row are a load of small bursts.
            let is_small = is_renewed && self.since_lapse.rate(now) < LOAD_LEAST;
            self.small = if is_small { self.small + 1 } else { 0 };
            if self.small >= SMALL_MAX {
                self.until = until;
                return Some(self.give_back(now));
            }
            let begun = if is_renewed { self.begun } else { Instant::ZERO };
            *self = Self {
                since_lapse: Window { began: now, ..Window::default() },
                until,
                answers: false,
                before: if before == 0 { f64::INFINITY } else { before as f64 + self.beside_until(now) },
                before_by_programs: before,
                begun,
                slept: true,
                window: Window { began: now, ..Window::default() },
                ..*self
            };
        }
        self.since_lapse.requests = self.since_lapse.requests.saturating_add(requests);
        if paused {
            // What has waited says nothing, and the time would make the rate less than it is.
            self.window = Window { began: now, ..Window::default() };
            return None;
        }
        if !std::mem::take(&mut self.slept) {
            self.window.looks += 1;
            self.window.requests = self.window.requests.saturating_add(requests);
        }
        if self.answers { self.goes_on(now) } else { self.tried(now) }
    }

    /// A turn at `now` has found `requests` while the programs answer.
    pub fn found_beside(&mut self, now: Instant, requests: u32) {
        if now >= self.beside_window.began + BESIDE {
            self.beside = self.beside_until(now);
            self.beside_window = Window { began: now, ..Window::default() };
        }
        self.beside_window.requests = self.beside_window.requests.saturating_add(requests);
    }

    /// The rate of [`Self::found_beside`] now, per second.
    fn beside_until(&self, now: Instant) -> f64 {
        if now >= self.beside_window.began + BESIDE { self.beside_window.rate(now) } else { self.beside }
    }

    /// The worker is about to sleep. Returns what to tell the programs, if they believe that it answers.
    pub fn sleeps(&mut self, now: Instant) -> Option<Word> {
        self.slept = true;
        if self.until <= now {
            return None;
        }
        if self.answers {
            // With many requests, some gap is longer than the worker spins. That does not mean that the worker
            // should give back; if it should, its time simply expires.
            return (!self.finds_several).then(|| self.give_back(now));
        }
        // A trial continues for a while: the worker may find several at a time once it is awake.
        let finds = self.window.looks > 0 && self.window.finds(BEGINS);
        (now >= self.window.began + TRIED_FOR && !finds).then(|| self.end_trial(now))
    }

    fn end_trial(&mut self, now: Instant) -> Word {
        if self.answered {
            return self.give_back(now);
        }
        self.until = Instant::ZERO;
        Word::Programs
    }

    fn tried(&mut self, now: Instant) -> Option<Word> {
        if self.window.looks < LOOKS {
            return None;
        }
        self.found_several = self.window.finds(BEGINS);
        if !self.found_several {
            if now.since(self.window.began) < TRIED_FOR || self.window.requests < ENOUGH {
                return None;
            }
            // A load with many pauses completes no window, and the programs' rate is too old by now.
            if self.answered && now >= self.begun + MORE_FOR {
                return Some(self.end_trial(now));
            }
            if self.window.rate(now) < MORE * self.before {
                return Some(self.end_trial(now));
            }
        }
        if self.begun == Instant::ZERO {
            self.begun = now;
        }
        self.finds_several = self.found_several;
        (self.answers, self.answered) = (true, true);
        (self.rate, self.hold_until) = (None, now + HOLD_LEAST);
        self.window = Window { began: now, ..Window::default() };
        Some(self.answer(now))
    }

    fn goes_on(&mut self, now: Instant) -> Option<Word> {
        let took = now.since(self.window.began);
        if took < WINDOW || self.window.requests < ENOUGH && took < WINDOW * 2 {
            return None;
        }
        let window = std::mem::replace(&mut self.window, Window { began: now, ..Window::default() });
        let rate = window.rate(now);
        let held = match self.rate {
            Some(held) => held,
            None => {
                self.begun(now, rate);
                rate
            }
        };
        let holds = now < self.hold_until && rate > 0.75 * held;
        let is_more = rate >= STILL_MORE * self.before && now < self.begun + MORE_FOR;
        self.finds_several = window.looks > 0 && window.finds(GOES_ON);
        if self.finds_several || is_more || holds {
            Some(self.answer(now))
        } else {
            Some(self.give_back(now))
        }
    }

    /// The rate at which it began to answer is known.
    fn begun(&mut self, now: Instant, rate: f64) {
        let could_not_keep_up = self
            .given_back
            .filter(|_| self.found_several)
            .is_some_and(|(when, then)| now < when + SOON && rate > 0.75 * then && rate < 1.25 * then);
        self.hold = if could_not_keep_up { (self.hold * 2).min(HOLD_MOST) } else { HOLD_LEAST };
        (self.rate, self.hold_until) = (Some(rate), now + self.hold);
    }

    fn answer(&mut self, now: Instant) -> Word {
        self.until = now + KEPT;
        Word::Worker { until: self.until }
    }

    fn give_back(&mut self, now: Instant) -> Word {
        (self.answers, self.answered, self.until) = (false, false, Instant::ZERO);
        self.given_back = self.rate.map(|rate| (now, rate));
        Word::GivenBack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    /// The rate of the programs: the same as the worker's when it finds one request each time.
    const BEFORE: u64 = 100_000;

    fn found(answering: &mut Answering, us: u64, requests: u32, until: Instant) -> Option<Word> {
        answering.found(at(us), requests, Tried { until, before: BEFORE })
    }

    /// The worker looks every 10 us from `from_us` on and finds `requests` each time, until it says something or
    /// 100 ms are over. Returns when, and what.
    fn said(answering: &mut Answering, from_us: u64, requests: u32, word: Instant) -> Option<(u64, Word)> {
        (0..10_000)
            .map(|look| from_us + look * 10)
            .find_map(|us| found(answering, us, requests, word).map(|word| (us, word)))
    }

    const TRIAL: Instant = at(1_000_000);

    #[test]
    fn a_trial_ends_soon_where_requests_come_one_by_one() {
        let mut answering = Answering::default();
        let (us, word) = said(&mut answering, 0, 1, TRIAL).expect("it decides");
        assert_eq!((us, word), (2_000, Word::Programs));
    }

    #[test]
    fn the_worker_goes_on_while_it_finds_several_and_gives_back_when_it_does_not() {
        let mut answering = Answering::default();
        let (mut us, Word::Worker { mut until }) = said(&mut answering, 0, 3, TRIAL).expect("it decides")
        else {
            panic!("several wait at a time")
        };
        for _ in 0..10 {
            assert_eq!(until, at(us) + KEPT);
            let (later, Word::Worker { until: next }) =
                said(&mut answering, us + 10, 3, until).expect("in time")
            else {
                panic!("it still finds several")
            };
            assert!(later - us <= 4_010, "it says so before that lapses");
            (us, until) = (later, next);
        }
        let (later, word) = said(&mut answering, us + 10, 1, until).expect("in time");
        assert_eq!(word, Word::GivenBack);
        assert!(later - us <= 4_010);
    }

    /// As with four clients that wait for replies, and a worker that is as fast as they are.
    #[test]
    fn the_worker_goes_on_where_more_come_once_it_answers() {
        let mut answering = Answering::default();
        let mut look = |us: u64, until| answering.found(at(us), 1, Tried { until, before: 160_000 });
        let (us, word) =
            (0..).map(|n| n * 5).find_map(|us| look(us, TRIAL).map(|word| (us, word))).expect("it decides");
        let Word::Worker { until } = word else { panic!("a quarter more come: {word:?}") };
        assert_eq!(us, 1_000, "no sooner than that is known");
        let (_, word) =
            (0..).map(|n| us + n * 5).find_map(|us| look(us, until).map(|word| (us, word))).expect("in time");
        let Word::Worker { until } = word else { panic!("they still come: {word:?}") };
        // One client fewer, so the programs would answer at the same rate.
        let fewer = (0..).map(|n| us + 5_000 + n * 6);
        let word = fewer
            .map(|us| look(us, until))
            .find_map(|word| word.filter(|word| !matches!(word, Word::Worker { .. })));
        assert_eq!(word, Some(Word::GivenBack));
    }

    #[test]
    fn what_has_waited_during_a_wake_up_says_nothing() {
        let mut answering = Answering::default();
        for us in (0..1_000).step_by(50) {
            assert_eq!(found(&mut answering, us, 3, TRIAL), None);
            let said = answering.sleeps(at(us + 1));
            assert_eq!(said, None, "it may find several while it is awake");
        }
        assert_eq!(found(&mut answering, 1_000, 3, TRIAL), None);
        assert_eq!(answering.sleeps(at(1_001)), Some(Word::Programs));
    }

    /// Half of the requests are not for the programs, so a doubled rate at the worker during a trial proves
    /// nothing.
    #[test]
    fn what_comes_to_the_worker_anyway_is_not_more() {
        let mut answering = Answering::default();
        (0..5_000).for_each(|look| answering.found_beside(at(look * 10), 1));
        let mut look = |us: u64| answering.found(at(us), 1, Tried { until: TRIAL, before: BEFORE });
        let (_, word) =
            (10_000..).map(|n| n * 5).find_map(|us| look(us).map(|word| (us, word))).expect("it decides");
        assert_eq!(word, Word::Programs);
    }

    /// The rate of the programs before a trial is measured each time, because it may have grown meanwhile.
    #[test]
    fn more_is_more_for_a_while() {
        let mut answering = Answering::default();
        let mut word = TRIAL;
        for us in (0..3_000_000).step_by(5) {
            match answering.found(at(us), 1, Tried { until: word, before: 160_000 }) {
                None => {}
                Some(Word::Worker { until }) => word = until,
                Some(other) => {
                    assert_eq!(other, Word::GivenBack);
                    assert!((2_000_000..2_020_000).contains(&us), "after {us} us");
                    return;
                }
            }
        }
        panic!("it is never given back");
    }

    #[test]
    fn a_worker_that_sleeps_gives_back_what_came_one_by_one() {
        let mut answering = Answering::default();
        let mut look = |us: u64| answering.found(at(us), 1, Tried { until: TRIAL, before: 160_000 });
        let begun = (0..).map(|n| n * 5).find_map(|us| look(us).map(|word| (us, word)));
        let Some((us, Word::Worker { .. })) = begun else { panic!("a quarter more come: {begun:?}") };
        assert_eq!(answering.sleeps(at(us + 100)), Some(Word::GivenBack));
        assert_eq!(answering.sleeps(at(us + 200)), None);
    }

    #[test]
    fn a_short_sleep_between_several_gives_nothing_back() {
        let mut answering = Answering::default();
        let Some((us, Word::Worker { until })) = said(&mut answering, 0, 2, TRIAL) else {
            panic!("several wait at a time")
        };
        assert_eq!(answering.sleeps(at(us + 100)), None);
        // Now they come one by one, and it sleeps between them.
        let mut seldom = (1..1_000).map(|look| us + look * 1_000);
        let (later, word) = seldom
            .find_map(|us| {
                let word = found(&mut answering, us, 1, until).or_else(|| answering.sleeps(at(us + 50)));
                word.map(|word| (us, word))
            })
            .expect("in time");
        assert_eq!(word, Word::GivenBack);
        assert!(later - us <= 8_000, "after {} us", later - us);
    }

    /// As when the client, or the worker, has to wait for its CPU.
    #[test]
    fn a_pause_gives_nothing_back_if_as_many_come_after_it() {
        let mut answering = Answering::default();
        let Some((us, Word::Worker { until })) = said(&mut answering, 0, 4, TRIAL) else {
            panic!("several wait at a time")
        };
        assert_eq!(answering.sleeps(at(us + 50)), None);
        let after = us + 5_000;
        let (later, word) = said(&mut answering, after, 4, until).expect("in time");
        assert!(matches!(word, Word::Worker { .. }), "they come as before: {word:?}");
        assert_eq!(later - after, 4_000, "as if there had been no pause");
        // A longer pause: its time lapses, and the programs let it try.
        let after = later + 13_000;
        assert_eq!(found(&mut answering, after, 4, at(later + 12_000)), None);
        let (again, word) = said(&mut answering, after + 10, 4, at(after + 12_000)).expect("in time");
        assert!(matches!(word, Word::Worker { .. }), "they come as before: {word:?}");
        assert!(again - after <= 200, "after {} us", again - after);
    }

    /// The rate of a load at which it finds one at a time is not measured over a pause.
    #[test]
    fn a_pause_is_no_lower_rate() {
        let mut answering = Answering::default();
        let (mut until, mut begun, mut us) = (TRIAL, None, 0);
        while us < 1_000_000 {
            // Every 20 ms a pause of 3 ms.
            us += if us % 20_000 == 0 { 3_000 } else { 5 };
            match answering.found(at(us), 1, Tried { until, before: 160_000 }) {
                None => {}
                Some(Word::Worker { until: next }) => {
                    begun = begun.or(Some(us));
                    until = next;
                }
                Some(other) => panic!("{other:?} after {us} us"),
            }
            assert!(at(us) < until, "its time lapses after {us} us");
        }
        assert!(begun.expect("a quarter more come") < 5_000);
    }

    #[test]
    fn a_load_that_has_ended_lapses_and_what_is_left_of_it_is_given_back() {
        let mut answering = Answering::default();
        let Some((us, Word::Worker { until })) = said(&mut answering, 0, 4, TRIAL) else {
            panic!("several wait at a time")
        };
        let mut seldom = |us: u64, until| {
            let said = found(&mut answering, us, 1, until);
            assert_eq!(said, None, "after {us} us");
            answering.sleeps(at(us + 50))
        };
        for look in 1..4 {
            assert_eq!(seldom(us + 3_000 * look, until), None);
        }
        let (us, trial) = (us + 15_000, at(us + 27_000));
        assert_eq!(seldom(us, trial), None, "it may find several while it is awake");
        assert_eq!(seldom(us + 3_000, trial), Some(Word::GivenBack));
    }

    /// Its time lapses twice a second. Each time the programs let it try with the rate that they measured at first, so
    /// that is not believed for longer.
    #[test]
    fn a_lapse_renews_no_old_rate() {
        let mut answering = Answering::default();
        let (mut word, mut lapses, mut begun) = (TRIAL, at(500_000), None);
        let mut us = 0;
        while us < 10_000_000 {
            us += 5;
            if at(us) >= lapses {
                us += 20_000;
                (word, lapses) = (at(us + 12_000), at(us + 500_000));
            }
            match answering.found(at(us), 1, Tried { until: word, before: 160_000 }) {
                None => {}
                Some(Word::Worker { until }) => {
                    begun = begun.or(Some(us));
                    word = until;
                }
                Some(other) => {
                    assert_eq!(other, Word::GivenBack);
                    let held = us - begun.expect("it has begun");
                    assert!((2_000_000..2_020_000).contains(&held), "after {held} us");
                    return;
                }
            }
        }
        panic!("it is never given back");
    }

    /// 50 % of the time none come, so no window is ever complete.
    #[test]
    fn a_load_with_many_pauses_is_not_kept_for_ever() {
        let (mut answering, mut word, mut us) = (Answering::default(), TRIAL, 0);
        while us < 10_000_000 {
            us += 5;
            if us % 4_000 < 2_000 {
                us += 2_000;
            }
            if at(us) >= word {
                word = at(us + 12_000);
            }
            match answering.found(at(us), 1, Tried { until: word, before: 30_000 }) {
                None => {}
                Some(Word::Worker { until }) => word = until,
                Some(other) => {
                    assert_eq!(other, Word::GivenBack);
                    assert!(us < 2_030_000, "after {us} us");
                    return;
                }
            }
        }
        panic!("it is never given back");
    }

    /// As 200 requests at once each 100 ms, after a load that was worth it.
    #[test]
    fn bursts_are_given_back() {
        let mut answering = Answering::default();
        let (us, word) = said(&mut answering, 0, 3, TRIAL).expect("it decides");
        assert!(matches!(word, Word::Worker { .. }));
        let late = us + 90_000;
        let again = said(&mut answering, late, 8, at(late + 12_000));
        assert!(matches!(again, Some((_, Word::Worker { .. }))), "a pause may come right after it began");
        let later = late + 100_000;
        assert_eq!(found(&mut answering, later, 8, at(later + 12_000)), Some(Word::GivenBack));
    }

    #[test]
    fn what_lapses_is_over() {
        let mut answering = Answering::default();
        let Some((us, Word::Worker { until })) = said(&mut answering, 0, 2, TRIAL) else {
            panic!("it answers")
        };
        let late = us + 20_000;
        assert_eq!(found(&mut answering, late, 9, until), None, "the programs answer since then");
        let again = said(&mut answering, late, 1, at(late + 12_000));
        assert!(matches!(again, Some((_, Word::GivenBack))), "it has answered until then: {again:?}");
        let again = said(&mut answering, late + 50_000, 1, at(late + 62_000));
        assert!(matches!(again, Some((_, Word::Programs))), "{again:?}");
    }

    /// The programs cannot keep up with a rate at which the worker finds one at a time. Each time, it holds twice
    /// as long.
    #[test]
    fn a_load_between_the_two_is_held_for_ever_longer() {
        let mut answering = Answering::default();
        let mut us = 0;
        let mut held = Vec::new();
        for _ in 0..12 {
            // What has piled up.
            let (begun, Word::Worker { mut until }) =
                said(&mut answering, us, 4, at(us + 12_000)).expect("it decides")
            else {
                panic!("several wait at a time")
            };
            us = begun;
            loop {
                match said(&mut answering, us + 10, 1, until).expect("in time") {
                    (later, Word::Worker { until: next }) => (us, until) = (later, next),
                    (later, word) => {
                        assert_eq!(word, Word::GivenBack);
                        us = later;
                        break;
                    }
                }
            }
            held.push((us - begun) / 1_000);
            us += 50_000;
        }
        assert!(held.windows(2).all(|pair| pair[0] <= pair[1]), "{held:?}");
        assert!(held[0] <= 20 && (2_000..2_020).contains(held.last().expect("some")), "ms: {held:?}");
        // A much lower rate is no longer the load for which it holds.
        let Some((us, Word::Worker { until })) = said(&mut answering, us, 4, at(us + 12_000)) else {
            panic!("several wait at a time")
        };
        let Some((us, Word::Worker { until })) = said(&mut answering, us + 10, 1, until) else {
            panic!("it holds")
        };
        let mut seldom = (0..1_000).map(|look| us + 10 + look * 50);
        let given_back = seldom.find_map(|us| found(&mut answering, us, 1, until).map(|word| (us, word)));
        let (later, word) = given_back.expect("in time");
        assert_eq!(word, Word::GivenBack);
        assert!(later - us < 9_000, "{} us", later - us);
    }
}
