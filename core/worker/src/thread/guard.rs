//! Limits how much a worker takes of a shared CPU, if the scheduler alone would give it everything.
//!
//! A worker that spins at real-time priority keeps every normal thread off its CPU: competing processes, and the
//! kernel threads that would deliver its packets. When real-time threads have used up their budget
//! (`sched_rt_runtime_us`), the kernel stops the worker for the rest of the second (54 ms were measured). A signal
//! at a limit (`RLIMIT_RTTIME`) would end the process. So the worker keeps two budgets, one for spinning and one
//! for all running, and yields by sleeping for short times. When the budget for spinning is used up, it sleeps as
//! in mode `interrupt`, and work wakes it. When the budget for running is used up, it pauses, even if work waits.
//!
//! With priority `auto` the worker does not yield. When one of the budgets is used up, it steps down to a lower
//! priority, at which the scheduler is fair, until both budgets are full again. So a worker that takes little of
//! its CPU gets it immediately, even beside busy processes. A worker that takes much of it is scheduled like any
//! other thread.
//!
//! The guard is a value: it is told what happened, and the time.

use twinpath_sys::scheduling::RealTimeBudget;
use twinpath_time::{Duration, Instant};

use crate::thread::priority::Priority;

/// The default share of a shared CPU that a worker may spin, in thousandths. At one packet per 350 us, a competing
/// process gets nine tenths of the CPU, minus the time that the packets take.
pub const SPIN_PERMILLE: u32 = 100;

/// The largest share that a worker may run, with or without work, in thousandths.
pub const RUN_PERMILLE: u32 = 900;

/// The largest share that a worker may run at its higher priority before it steps down, in thousandths. It is the share
/// that the scheduler would give it beside one competing process.
pub const RUN_HIGH_PERMILLE: u32 = 500;

/// The maximum part of the kernel's budget for real-time threads that we use, in thousandths, so that the kernel
/// never stops the worker.
const OF_BUDGET_PERMILLE: u32 = 950;

/// Maximum of a budget. The longest spin or run without a sleep is this plus what accrues meanwhile.
const SAVED_MAX: Duration = Duration::from_millis(1);

/// A budget that was used up must hold this much before it is used again: a few long spins cost less than many short ones.
const WORTH_IT: Duration = Duration::from_micros(100);

/// A worker that has stepped down wakes for stepping up at multiples of this.
const STEPS_UP_GRAIN: Duration = Duration::from_millis(4);

/// A turn that finds nothing takes no longer than this. If more time has passed, other threads or a hypervisor had the CPU.
const TURN_MAX: Duration = Duration::from_micros(100);

/// How many sleeps in a row may end early without work. A source that is readable but has nothing would otherwise turn
/// sleeping into spinning.
const IN_VAIN_MAX: u8 = 3;

/// The shares of a CPU, in thousandths, that a worker may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// For spinning: turns that find no work.
    pub spin_permille: u32,
    /// For all turns, with or without work.
    pub run_permille: u32,
}

impl Shares {
    /// The shares of a worker of that priority; `None` if the scheduler is fair at that priority, so that no limit is
    /// needed.
    ///
    /// `isolated`: the scheduler keeps other work off that CPU. `spin_permille`: the share that was configured.
    #[must_use]
    pub fn of(
        priority: Priority,
        isolated: bool,
        budget: RealTimeBudget,
        spin_permille: Option<u32>,
    ) -> Option<Self> {
        let run_permille = match priority {
            // At nice 0 and above a spinning worker gets no more than each competing thread.
            Priority::Normal | Priority::Auto | Priority::Slice(_) => return None,
            Priority::Nice(nice) if nice >= 0 => return None,
            Priority::Nice(_) if isolated => return None,
            // Beside nice -20 a competing thread of nice 0 keeps a ninetieth.
            Priority::Nice(_) => RUN_PERMILLE,
            Priority::Fifo(_) if isolated && budget.runtime_us.is_none() => return None,
            Priority::Fifo(_) => RUN_PERMILLE.min(budget.permille() * OF_BUDGET_PERMILLE / 1000),
        };
        let spin_permille = if isolated { run_permille } else { spin_permille.unwrap_or(SPIN_PERMILLE) };
        Some(Self { spin_permille: spin_permille.min(run_permille), run_permille })
    }

    /// The shares of a worker that steps down when they are used up. Such a worker always has shares; on an
    /// isolated CPU they are larger, because there are no competing processes.
    #[must_use]
    pub fn of_steps(
        priority: Priority,
        isolated: bool,
        budget: RealTimeBudget,
        spin_permille: Option<u32>,
    ) -> Self {
        let most = if isolated { 1000 } else { RUN_HIGH_PERMILLE };
        let all = Self { spin_permille: most, run_permille: most };
        let Self { spin_permille, run_permille } =
            Self::of(priority, isolated, budget, spin_permille).unwrap_or(all);
        Self { spin_permille: spin_permille.min(most), run_permille: run_permille.min(most) }
    }
}

/// The two priorities of a worker that steps down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The one that keeps others off its CPU.
    High,
    /// The one at which the scheduler is fair.
    Low,
}

/// Tells the worker what to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no restriction.
    Free,
    /// The worker sleeps instead of spinning, until work comes or this time.
    Sleep {
        /// From then on it may spin again.
        until: Instant,
    },
    /// The worker sleeps even if work waits.
    Pause {
        /// The end of the pause.
        until: Instant,
    },
    /// The worker takes this priority.
    Step(Step),
}

/// A budget of time, which accrues at a share of the time that passes.
#[derive(Clone, Copy, Debug)]
struct Account {
    permille: u64,
    saved_ns: u64,
    /// After it was used up, it must hold this much before it is used again.
    worth_ns: u64,
    /// It was used up, and does not yet hold enough to be used again.
    closed: bool,
}

impl Account {
    const fn new(permille: u32, worth: Duration) -> Self {
        let (saved_ns, worth_ns) = (SAVED_MAX.as_nanos() as u64, worth.as_nanos() as u64);
        Self { permille: permille as u64, saved_ns, worth_ns, closed: false }
    }

    /// Accounts for `passed_ns` of time, in which the budget was `used` or not.
    fn pass(&mut self, passed_ns: u64, used: bool) {
        let accrued = passed_ns.saturating_mul(self.permille) / 1000;
        let spent = if used { passed_ns } else { 0 };
        self.saved_ns = (self.saved_ns + accrued).saturating_sub(spent).min(SAVED_MAX.as_nanos() as u64);
        if self.saved_ns == 0 {
            self.closed = true;
        } else if self.saved_ns >= self.worth_ns {
            self.closed = false;
        }
    }

    /// The time from which it may be used again; `None` if it may be used now.
    fn opens(&self, now: Instant) -> Option<Instant> {
        let missing = self.worth_ns.saturating_sub(self.saved_ns);
        // Rounded up, so that it is open then.
        let wait = missing.saturating_mul(1000).div_ceil(self.permille.max(1)) + 1;
        self.closed.then(|| now + Duration::from_nanos(wait))
    }
}

/// The budgets of one worker.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    shares: Shares,
    spin: Account,
    run: Account,
    /// Time is accounted for up to here.
    seen: Instant,
    /// The last turn found work.
    worked: bool,
    /// Sleeps demanded since work was last found, or since spinning was last allowed.
    in_vain: u8,
    /// The present priority of a worker that steps down; `None` for a worker that yields.
    step: Option<Step>,
}

impl Guard {
    /// Full budgets, for a worker that yields.
    #[must_use]
    pub const fn new(shares: Shares) -> Self {
        Self::with(shares, WORTH_IT, None)
    }

    /// Full budgets, for a worker at its higher priority that steps down instead of yielding. It steps up again
    /// only when both budgets are full. So a worker that exceeds its share for a long time stays down, and steps
    /// are rare.
    #[must_use]
    pub const fn stepping(shares: Shares) -> Self {
        Self::with(shares, SAVED_MAX, Some(Step::High))
    }

    const fn with(shares: Shares, worth: Duration, step: Option<Step>) -> Self {
        Self {
            shares,
            spin: Account::new(shares.spin_permille, worth),
            run: Account::new(shares.run_permille, worth),
            seen: Instant::ZERO,
            worked: true,
            in_vain: 0,
            step,
        }
    }

    /// The share of the time in which the worker may spin; `None` if it may spin more at its lower priority.
    #[must_use]
    pub fn spin_share(&self) -> Option<f32> {
        self.step.is_none().then(|| self.shares.spin_permille as f32 / 1e3)
    }

    /// The worker has no lower priority after all: from now on it yields.
    pub fn yields(&mut self) {
        self.step = None;
    }

    /// Accounts for a turn that began at `now`, and tells the worker what to do next. `worked`: the turn found work.
    /// `polls`: the worker is in mode `poll`, which never sleeps.
    #[inline]
    pub fn turned(&mut self, now: Instant, worked: bool, polls: bool) -> Verdict {
        // The first call has nothing before it.
        let passed_ns = if self.seen == Instant::ZERO { 0 } else { now.nanos_since(self.seen) };
        self.seen = now;
        let own_ns = match self.step {
            Some(_) if !self.worked => passed_ns.min(TURN_MAX.as_nanos() as u64),
            _ => passed_ns,
        };
        self.spin.pass(own_ns, !self.worked);
        self.run.pass(own_ns, true);
        self.worked = worked;
        if let Some(step) = self.step {
            // A worker that polls would use up any budget immediately, so it has the lower priority throughout.
            let next = if polls || self.spin.closed || self.run.closed { Step::Low } else { Step::High };
            self.step = Some(next);
            return if next == step { Verdict::Free } else { Verdict::Step(next) };
        }
        if let Some(until) = self.run.opens(now) {
            return Verdict::Pause { until };
        }
        match self.spin.opens(now) {
            Some(until) if !worked && self.in_vain >= IN_VAIN_MAX => {
                self.in_vain = 0;
                Verdict::Pause { until: until.min(now + WORTH_IT) }
            }
            Some(until) if !worked => {
                self.in_vain += 1;
                Verdict::Sleep { until }
            }
            _ => {
                // The worker may spin, so the sleeps before this turn have lasted long enough.
                self.in_vain = 0;
                Verdict::Free
            }
        }
    }

    /// Whether the worker has its lower priority.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.step == Some(Step::Low)
    }

    /// When a worker that has stepped down may step up again. If it slept for longer, it would be woken at the
    /// lower priority. Rounded up, because this time moves with every turn, and each change of a timer is a system
    /// call that takes 10 us in a virtual machine.
    #[must_use]
    pub fn steps_up_at(&self, now: Instant) -> Option<Instant> {
        if self.step != Some(Step::Low) {
            return None;
        }
        let opens = self.spin.opens(now).max(self.run.opens(now))?;
        Some(Instant::from_nanos(opens.as_nanos().next_multiple_of(STEPS_UP_GRAIN.as_nanos() as u64)))
    }

    /// Accounts for a sleep that ended at `now` and began with the last turn. `worked`: work was found on waking.
    #[inline]
    pub fn slept(&mut self, now: Instant, worked: bool) {
        if worked {
            self.in_vain = 0;
        }
        let passed_ns = now.nanos_since(self.seen);
        self.seen = now;
        self.spin.pass(passed_ns, false);
        self.run.pass(passed_ns, false);
        self.worked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: RealTimeBudget = RealTimeBudget { runtime_us: Some(950_000), period_us: 1_000_000 };

    #[test]
    fn who_is_guarded() {
        let shares = |priority, isolated| Shares::of(priority, isolated, BUDGET, None);
        for free in [Priority::Normal, Priority::Nice(0), Priority::Nice(5)] {
            assert_eq!(shares(free, false), None);
        }
        let shared = Some(Shares { spin_permille: 100, run_permille: 900 });
        assert_eq!((shares(Priority::Fifo(1), false), shares(Priority::Nice(-20), false)), (shared, shared));
        // Alone, limited only by the kernel.
        let alone = Some(Shares { spin_permille: 900, run_permille: 900 });
        assert_eq!((shares(Priority::Fifo(1), true), shares(Priority::Nice(-20), true)), (alone, None));
        let unlimited = RealTimeBudget { runtime_us: None, ..BUDGET };
        assert_eq!(Shares::of(Priority::Fifo(1), true, unlimited, None), None);
        // A small budget, and a wish beyond it.
        let small = RealTimeBudget { runtime_us: Some(100_000), ..BUDGET };
        let both = Some(Shares { spin_permille: 95, run_permille: 95 });
        assert_eq!(Shares::of(Priority::Fifo(1), false, small, Some(500)), both);
    }

    #[test]
    fn who_steps_down_always_has_shares() {
        let shares = |priority, isolated, budget, spin| Shares::of_steps(priority, isolated, budget, spin);
        let shared = Shares { spin_permille: 100, run_permille: 500 };
        for priority in [Priority::Fifo(1), Priority::Nice(-20)] {
            assert_eq!(shares(priority, false, BUDGET, None), shared);
        }
        let wish = Shares { spin_permille: 500, run_permille: 500 };
        assert_eq!(shares(Priority::Fifo(1), false, BUDGET, Some(700)), wish);
        // Below the kernel's own limit, so that it is never stopped.
        let small = RealTimeBudget { runtime_us: Some(100_000), ..BUDGET };
        let both = Shares { spin_permille: 95, run_permille: 95 };
        assert_eq!(shares(Priority::Fifo(1), false, small, Some(700)), both);
        let alone = Shares { spin_permille: 900, run_permille: 900 };
        assert_eq!(shares(Priority::Fifo(1), true, BUDGET, None), alone);
        let unlimited = RealTimeBudget { runtime_us: None, ..BUDGET };
        let all = Shares { spin_permille: 1000, run_permille: 1000 };
        assert_eq!(shares(Priority::Fifo(1), true, unlimited, None), all);
    }

    /// The result of a run over `for_ns`: ns of spinning, of work and asleep, and the longest piece without sleep.
    #[derive(Debug, Default, PartialEq)]
    struct Ran {
        spun: u64,
        worked: u64,
        slept: u64,
        longest: u64,
    }

    /// A worker that never wants to sleep, turns once per microsecond, and has `work_ns` of work every `period_ns`, for which
    /// it is woken.
    fn run(shares: Shares, for_ns: u64, period_ns: u64, work_ns: u64) -> Ran {
        let mut guard = Guard::new(shares);
        let mut ran = Ran::default();
        let (mut now, mut piece) = (1, 0);
        while now < for_ns {
            let worked = now % period_ns < work_ns;
            let next_work = (now / period_ns + 1) * period_ns;
            let until = match guard.turned(Instant::from_nanos(now), worked, false) {
                Verdict::Free => {
                    *(if worked { &mut ran.worked } else { &mut ran.spun }) += 1000;
                    now += 1000;
                    piece += 1000;
                    ran.longest = ran.longest.max(piece);
                    continue;
                }
                Verdict::Sleep { until } => until.as_nanos().min(next_work),
                Verdict::Pause { until } => until.as_nanos(),
                Verdict::Step(step) => panic!("it has one priority, and is to have the {step:?} one"),
            };
            assert!(until > now);
            ran.slept += until - now;
            now = until;
            guard.slept(Instant::from_nanos(now), false);
            piece = 0;
        }
        ran
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_worker_that_would_spin_for_ever_spins_its_share_in_small_pieces() {
        let ran = run(Shares { spin_permille: 100, run_permille: 900 }, SECOND, 2 * SECOND, 0);
        // A tenth, what was saved up at first, and a microsecond per piece for the turn that finds out.
        assert!((100_000_000..=103_000_000).contains(&ran.spun), "{ran:?}");
        assert!(ran.longest <= 1_200_000, "{ran:?}");
        let half = run(Shares { spin_permille: 500, run_permille: 900 }, SECOND, 2 * SECOND, 0);
        assert!((500_000_000..=507_000_000).contains(&half.spun), "{half:?}");
        assert!(half.longest <= 2_100_000, "{half:?}");
    }

    #[test]
    fn a_flood_of_work_leaves_a_tenth_to_others_and_stays_below_the_kernels_budget() {
        let ran = run(Shares { spin_permille: 100, run_permille: 900 }, SECOND, 1, 1);
        assert!((890_000_000..=911_000_000).contains(&ran.worked), "{ran:?}");
        assert!(ran.longest <= 11_000_000, "{ran:?}");
    }

    #[test]
    fn work_takes_nothing_from_what_may_be_spun() {
        // 20 us of work per 350 us, and spinning wherever it is allowed.
        let ran = run(Shares { spin_permille: 100, run_permille: 900 }, SECOND, 350_000, 20_000);
        assert!((98_000_000..=104_000_000).contains(&ran.spun), "{ran:?}");
        assert!(ran.worked >= 55_000_000, "{ran:?}");
    }

    #[test]
    fn who_sleeps_by_himself_is_never_told_to() {
        let mut guard = Guard::new(Shares { spin_permille: 100, run_permille: 900 });
        // A packet per 350 us, 5 us of work and 20 us of spinning each.
        for packet in 0..10_000 {
            let at = |us: u64| Instant::from_nanos(1 + packet * 350_000 + us * 1000);
            assert_eq!(guard.turned(at(0), true, false), Verdict::Free);
            assert_eq!(guard.turned(at(5), false, false), Verdict::Free);
            assert_eq!(guard.turned(at(25), false, false), Verdict::Free);
            guard.slept(at(350), true);
        }
    }

    #[test]
    fn sleeps_that_end_at_once_without_work_become_pauses() {
        let mut guard = Guard::new(Shares { spin_permille: 100, run_permille: 900 });
        let (mut now, mut asleep, mut paused) = (1, 0, 0);
        while now < SECOND {
            let at = Instant::from_nanos(now);
            now = match guard.turned(at, false, false) {
                Verdict::Free => now + 1000,
                Verdict::Sleep { .. } => {
                    asleep += 1;
                    guard.slept(Instant::from_nanos(now + 2000), false);
                    now + 2000
                }
                Verdict::Pause { until } => {
                    assert!(until <= at + WORTH_IT);
                    paused += until.nanos_since(at);
                    guard.slept(until, false);
                    until.as_nanos()
                }
                Verdict::Step(_) => panic!("it has one priority"),
            };
        }
        assert!(asleep > 0 && paused > SECOND * 8 / 10, "{asleep} sleeps, paused for {paused} ns");
        // A worker that sleeps as long as it was told is never paused, nor is one that finds work on waking.
        let mut guard = Guard::new(Shares { spin_permille: 100, run_permille: 900 });
        let mut now = 1;
        while now < SECOND {
            match guard.turned(Instant::from_nanos(now), false, false) {
                Verdict::Free => now += 1000,
                Verdict::Sleep { until } => {
                    now = until.as_nanos() + 500;
                    guard.slept(Instant::from_nanos(now), false);
                }
                verdict => panic!("{verdict:?} at {now} ns"),
            }
        }
        let mut guard = Guard::new(Shares { spin_permille: 100, run_permille: 1000 });
        for step in 0..100_000 {
            let at = Instant::from_nanos(1 + step * 100_000);
            match guard.turned(at, false, false) {
                Verdict::Free => {}
                Verdict::Sleep { .. } => guard.slept(at, true),
                verdict => panic!("{verdict:?} after {step} turns"),
            }
        }
    }

    /// A worker that steps: how often it did, and what it spun and worked at its higher priority, ns. Each packet comes after a gap of
    /// `gaps`, us, takes `work_us`, and is followed by at most `spin_us` of spinning before it sleeps.
    fn stepping(gaps: impl Iterator<Item = u64>, work_us: u64, spin_us: u64, polls: bool) -> (u64, [u64; 2]) {
        let mut guard = Guard::stepping(Shares { spin_permille: 100, run_permille: 500 });
        let (mut now, mut steps, mut high) = (1_000, 0, [0; 2]);
        let (mut step, mut asleep) = (Step::High, false);
        for gap in gaps {
            let mut us = 0;
            while us < gap {
                let worked = us < work_us;
                if !worked && us >= work_us + spin_us {
                    now += (gap - us) * 1_000;
                    guard.slept(Instant::from_nanos(now), true);
                    asleep = true;
                    break;
                }
                match guard.turned(Instant::from_nanos(now), worked, polls) {
                    Verdict::Free => {}
                    Verdict::Step(next) => {
                        assert_ne!(next, step);
                        (step, steps) = (next, steps + 1);
                    }
                    other => panic!("told to {other:?}, though it has a lower priority"),
                }
                high[usize::from(worked)] += if step == Step::High { 1_000 } else { 0 };
                (now, us) = (now + 1_000, us + 1);
            }
        }
        assert!(asleep || spin_us > 1_000);
        (steps, high)
    }

    #[test]
    fn who_takes_little_keeps_the_higher_priority() {
        // Two seconds of a packet per 250 to 500 us, each 10 us of work and 20 of spinning.
        let mut random = fastrand::Rng::with_seed(350);
        let gaps = (0..5_000).map(|_| random.u64(250..=500));
        let (steps, [spun, worked]) = stepping(gaps, 10, 20, false);
        assert_eq!((steps, spun, worked), (0, 100_000_000, 50_000_000));
    }

    #[test]
    fn who_takes_much_has_the_lower_priority_and_leaves_the_cpu_to_others() {
        // Spinning from packet to packet: a millisecond of it, and no more.
        let (steps, [spun, _]) = stepping((0..5_000).map(|_| 350), 10, 1_001, false);
        assert!(steps == 1 && spun <= 1_200_000, "{steps} steps, spun for {spun} ns");
        // A flood: all work.
        let (steps, [_, worked]) = stepping((0..5_000).map(|_| 350), 350, 1_001, false);
        assert!(steps == 1 && worked <= 2_100_000, "{steps} steps, worked for {worked} ns");
        // A worker that polls is never at the higher priority.
        let (steps, high) = stepping((0..5_000).map(|_| 350), 10, 1_001, true);
        assert_eq!((steps, high), (1, [0, 0]));
    }

    #[test]
    fn whatever_comes_the_shares_hold_and_steps_are_few() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let (work, spin) = (random.u64(1..200), random.u64(1..400));
            let gaps: Vec<u64> = (0..3_000).map(|_| random.u64(10..1_500)).collect();
            let total_ns = 1_000 * gaps.iter().sum::<u64>();
            let (steps, [spun, worked]) = stepping(gaps.into_iter(), work, spin, false);
            // What was saved up at first, and a turn per step.
            let most = |permille: u64| total_ns * permille / 1_000 + 1_000_000 + steps * 1_000;
            assert!(spun <= most(100) && spun + worked <= most(500), "{spun} ns, {worked} ns");
            // Two steps take a millisecond at the higher priority, and ten to save that up.
            assert!(steps <= 2 + total_ns / 5_000_000, "{steps} steps in {total_ns} ns");
        }
    }

    #[test]
    fn who_cannot_step_down_after_all_yields() {
        let mut guard = Guard::stepping(Shares { spin_permille: 100, run_permille: 500 });
        guard.yields();
        assert_eq!(guard.spin_share(), Some(0.1));
        let mut verdicts = (1..3_000).map(|us| guard.turned(Instant::from_nanos(us * 1_000), false, true));
        let told = verdicts.find(|verdict| *verdict != Verdict::Free);
        assert!(matches!(told, Some(Verdict::Sleep { .. })), "{told:?}");
    }

    #[test]
    fn quiet_brings_the_higher_priority_back() {
        let busy = (0..1_000).map(|_| 350_u64);
        let quiet = (0..1_000).map(|_| 2_000_u64);
        // At the same work per packet: 300 us of spinning are much of 350, and little of 20,000.
        let (steps, _) = stepping(busy.chain(quiet.map(|us| 10 * us)), 10, 300, false);
        assert_eq!(steps, 2);
    }

    #[test]
    fn who_falls_asleep_below_steps_up_in_time_for_the_next_packet() {
        let mut guard = Guard::stepping(Shares { spin_permille: 100, run_permille: 500 });
        let now = Instant::from_nanos(SECOND);
        assert_eq!(guard.steps_up_at(now), None);
        assert_eq!(guard.turned(now, true, true), Verdict::Step(Step::Low));
        // It has polled for a second, and would now have to sleep for ever if more than a tenth of 10 ms could be
        // saved up.
        let now = now + Duration::from_secs(1);
        assert_eq!(guard.turned(now, false, false), Verdict::Free);
        let up_at = guard.steps_up_at(now).expect("it is to step up again");
        assert!(up_at <= now + Duration::from_millis(11) + STEPS_UP_GRAIN, "{up_at:?}");
        let later = guard.steps_up_at(now + Duration::from_micros(20)).expect("still");
        assert_eq!(later, up_at, "a timer is not set for each turn");
        guard.slept(up_at, false);
        assert_eq!(guard.turned(up_at, false, false), Verdict::Step(Step::High));
        assert_eq!(guard.steps_up_at(up_at), None);
    }

    #[test]
    fn shares_of_everything_never_stop_anybody() {
        let ran = run(Shares { spin_permille: 1000, run_permille: 1000 }, SECOND / 10, SECOND, 0);
        assert_eq!(ran.slept, 0);
    }
}
