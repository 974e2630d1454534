//! Who answers requests that programs in the kernel can answer by themselves: they, or the worker.
//!
//! A program answers on the CPU that the request comes by, one after the other, and no thread is woken. A worker that is awake takes what
//! waits in one turn, on a CPU of its own. So the programs are right while requests come one by one, and the worker is where it finds
//! several at a time, or where more come once it answers, as clients wait for replies. Only the worker can see that: the programs try it
//! now and then (`stack/bpf/bpf/reflex.h`), and it says whether it goes on.

use twinpath_time::{Duration, Instant};

/// A decision needs so many turns that found requests.
const LOOKS: u32 = 16;
/// The worker begins to answer if a turn finds so many quarters of a request on average: 1.5 requests.
const BEGINS: u32 = 6;
/// It goes on as long as a turn finds so many quarters: 1.25 requests.
const GOES_ON: u32 = 5;
/// It also begins if the rate of requests is this times the rate before the trial.
const MORE: f64 = 1.15;
/// The rate of a trial is known after this time,
const TRIED_FOR: Duration = Duration::from_millis(1);
/// and this number of requests: the rate of fewer varies by chance.
const ENOUGH: u32 = 200;
/// It also goes on while the rate is this times the rate before the trial,
const STILL_MORE: f64 = 1.08;
/// for this time at most: there may be more clients by then, whom the programs would serve as well.
const MORE_FOR: Duration = Duration::from_secs(2);
/// While it answers, it decides anew after each of these.
const WINDOW: Duration = Duration::from_millis(4);
/// After a decision it answers for this time, unless it decides again.
const KEPT: Duration = Duration::from_millis(12);
/// It answers for this time at least, unless the rate falls. The time doubles whenever the programs could not keep up.
const HOLD_LEAST: Duration = Duration::from_millis(8);
const HOLD_MOST: Duration = Duration::from_secs(2);
/// The rate of requests that come to the worker while the programs answer is counted over this time.
const BESIDE: Duration = Duration::from_millis(20);
/// The programs could not keep up if the worker has to begin again within this time after it gave back, at about the same rate.
const SOON: Duration = Duration::from_millis(500);

/// What the worker tells the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It answers until then.
    Worker {
        /// When the programs answer again, if it says nothing more.
        until: Instant,
    },
    /// The trial is over: the programs answer better.
    Programs,
    /// As [`Word::Programs`], after the worker has answered: it may be tried again soon.
    GivenBack,
}

/// What the programs say of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The worker answers until then, if it says nothing.
    pub until: Instant,
    /// Requests a second that they have answered before.
    pub before: u64,
}

/// What the worker knows of who answers better. A value without a clock, told what each turn has found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answering {
    /// The end of the trial, or of the time that it answers, as the programs know it.
    until: Instant,
    /// It has decided to answer.
    answers: bool,
    /// What came in a second before the worker was tried, to the programs and to it.
    before: f64,
    /// What comes to it in a second while the programs answer: requests of other services, and those that they do not answer.
    beside: f64,
    /// What has come so since that was counted.
    beside_window: Window,
    /// It has begun because a turn found several requests, not because the rate was higher.
    found_several: bool,
    /// It has answered, or tried to, for a window that found several at a time.
    finds_several: bool,
    /// When it has begun.
    begun: Instant,
    /// The turn before this one ended with a sleep: what waits now has come during the wake-up.
    slept: bool,
    window: Window,
    /// While it answers: the rate at which it has begun, per second, as soon as that is known, and how long it holds that.
    rate: Option<f64>,
    hold: Duration,
    hold_until: Instant,
    /// When it has given back, and the rate at which it had begun then.
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
    /// Whether a turn found so many on average, in quarters.
    const fn finds(&self, quarters: u32) -> bool {
        self.requests.saturating_mul(4) >= self.looks.saturating_mul(quarters)
    }

    /// Requests a second until `now`.
    fn rate(&self, now: Instant) -> f64 {
        f64::from(self.requests) * 1e9 / now.since(self.began).as_nanos().max(1) as f64
    }
}

impl Answering {
    /// A turn at `now` has found `requests`, at least one, while the programs said this. What to tell them.
    pub fn found(&mut self, now: Instant, requests: u32, Tried { until, before }: Tried) -> Option<Word> {
        if until <= now {
            // Nobody has said anything for too long.
            self.answers = false;
            return None;
        }
        if until != self.until {
            *self = Self {
                until,
                answers: false,
                before: if before == 0 { f64::INFINITY } else { before as f64 + self.beside_until(now) },
                slept: true,
                window: Window { began: now, ..Window::default() },
                ..*self
            };
        }
        if !std::mem::take(&mut self.slept) {
            self.window.looks += 1;
            self.window.requests = self.window.requests.saturating_add(requests);
        }
        if self.answers { self.goes_on(now) } else { self.tried(now) }
    }

    /// A turn at `now` has found so many while the programs answer.
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

    /// The worker is about to sleep. What to write, if the word says that it answers.
    pub fn sleeps(&mut self, now: Instant) -> Option<Word> {
        self.slept = true;
        if self.until <= now {
            return None;
        }
        if self.answers {
            // Of many requests some gap is longer than it looks for more. It is the worker's load all the same, and lapses by itself.
            return (!self.finds_several).then(|| self.give_back(now));
        }
        // A trial goes on for a while: the worker may find several at once when it is awake.
        let finds = self.window.looks > 0 && self.window.finds(BEGINS);
        (now >= self.window.began + TRIED_FOR && !finds).then(|| self.end_trial())
    }

    fn end_trial(&mut self) -> Word {
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
            if self.window.rate(now) < MORE * self.before {
                return Some(self.end_trial());
            }
        }
        (self.begun, self.finds_several) = (now, self.found_several);
        (self.answers, self.rate, self.hold_until) = (true, None, now + HOLD_LEAST);
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

    /// The rate at which it has begun to answer is known.
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
        (self.answers, self.until) = (false, Instant::ZERO);
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

    /// What the programs answer: as many as the worker gets if it finds one each time.
    const BEFORE: u64 = 100_000;

    fn found(answering: &mut Answering, us: u64, requests: u32, until: Instant) -> Option<Word> {
        answering.found(at(us), requests, Tried { until, before: BEFORE })
    }

    /// The worker looks every 10 us from `from_us` on and finds so many each time, until it says something or 100 ms are over. When, and what.
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

    /// As where four clients wait for replies, and the worker is as fast as they are.
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
        // The clients are one less, and the programs would answer as many.
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

    /// Half of what comes is of no program: that the worker gets twice as much in a trial says nothing.
    #[test]
    fn what_comes_to_the_worker_anyway_is_not_more() {
        let mut answering = Answering::default();
        (0..5_000).for_each(|look| answering.found_beside(at(look * 10), 1));
        let mut look = |us: u64| answering.found(at(us), 1, Tried { until: TRIAL, before: BEFORE });
        let (_, word) =
            (10_000..).map(|n| n * 5).find_map(|us| look(us).map(|word| (us, word))).expect("it decides");
        assert_eq!(word, Word::Programs);
    }

    /// What the programs answered before is measured anew, as more may come meanwhile.
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

    #[test]
    fn what_lapses_is_over() {
        let mut answering = Answering::default();
        let Some((us, Word::Worker { until })) = said(&mut answering, 0, 2, TRIAL) else {
            panic!("it answers")
        };
        let late = us + 20_000;
        assert_eq!(found(&mut answering, late, 9, until), None, "the programs answer since then");
        assert!(matches!(said(&mut answering, late, 1, at(late + 12_000)), Some((_, Word::Programs))));
    }

    /// The programs cannot keep up with a rate at which the worker finds one at a time: it holds twice as long each time.
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
        // Much less than that is no longer the load that it holds.
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
