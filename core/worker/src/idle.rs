//! How a worker idles: its mode and its goal. It decides whether to turn again or to sleep; for `adaptive`, the
//! policy of `twinpath_idle` decides. A value without a clock or an fd: it is told what happened and what time it
//! is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_idle::{Arrival, Config, Goal, Machine, Policy, Summary, Woken};
use twinpath_time::{Duration, Instant};

/// How a worker idles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Learns when packets come. Spins, sleeps, and wakes ahead of them.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do.
    Interrupt,
    /// Never sleeps: the lowest latency, at the price of a core.
    Poll,
}

impl Mode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Interrupt, Self::Poll];

    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Interrupt => "interrupt",
            Self::Poll => "poll",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| format!("unknown mode '{name}': choose adaptive, interrupt or poll"))
    }
}

/// Whether the policy may hold a CPU latency request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestSetting {
    /// While traffic lasts, if a measurement at start showed that it shortens wake-ups. If it could not be
    /// measured, the wake-ups in use decide.
    #[default]
    Auto,
    /// While traffic lasts, whatever was measured.
    Always,
    /// Not at all.
    Never,
}

impl RequestSetting {
    /// All settings.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl fmt::Display for RequestSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RequestSetting {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|setting| setting.name() == name)
            .ok_or_else(|| format!("unknown latency request setting '{name}': choose auto, always or never"))
    }
}

/// Whether the policy may hold a latency request, according to the setting and the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// No.
    #[default]
    None,
    /// While traffic lasts.
    Allowed,
    /// It could not be measured whether one shortens wake-ups. `adaptive` tries it once packets have shown how long
    /// wake-ups take, and keeps it if they then take less time.
    OnTrial,
}

/// The configuration of the policy.
#[derive(Clone, Copy, Debug)]
pub struct IdleConfig {
    /// The initial mode.
    pub mode: Mode,
    /// The goal of `adaptive`.
    pub goal: Goal,
    /// For experts: `adaptive` spins for exactly this long after the last packet, and learns nothing.
    pub spin: Option<Duration>,
    /// How long after the last work a latency request is still held; without it, `adaptive` learns this time.
    pub linger: Option<Duration>,
    /// Whether a latency request may be held at all.
    pub request: Requests,
    /// The known figures of the machine.
    pub machine: Machine,
}

/// The value of a us of CPU without a goal, in us of latency: spinning through a gap pays up to eight times the
/// duration of a wake-up.
pub const WEIGHT: f32 = 0.125;

/// If the effect of a request was not measured, a wake-up with one is assumed to take this part of its time, until
/// some were observed.
const UNTESTED: f32 = 0.8;

/// How long a latency request is held after the last work, if nothing is learnt.
pub const LINGER: Duration = Duration::from_secs(1);

impl Default for IdleConfig {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            goal: Goal::Weight(WEIGHT),
            spin: None,
            linger: None,
            request: Requests::None,
            machine: Machine::default(),
        }
    }
}

impl IdleConfig {
    fn policy(&self) -> Config {
        let held = match self.request {
            Requests::None | Requests::OnTrial => None,
            Requests::Allowed => Some(self.machine.wake_held_us.unwrap_or(UNTESTED * self.machine.wake_us)),
        };
        let machine = Machine { wake_held_us: held, ..self.machine };
        Config { goal: self.goal, machine, spin: self.spin, linger: self.linger, ..Config::default() }
    }
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Turn again immediately.
    Turn,
    /// Sleep until something comes, but no later than this.
    Sleep {
        /// [`Instant::NEVER`] if nothing is due.
        until: Instant,
    },
}

/// The policy's state.
#[derive(Clone, Debug)]
pub struct Idle {
    config: IdleConfig,
    /// When work was last found; `None` before the first.
    last_work: Option<Instant>,
    policy: Box<Policy>,
    /// A request is on trial, and the policy compares wake-ups with and without it.
    compares: bool,
}

impl Idle {
    /// A policy that has seen nothing yet.
    #[must_use]
    pub fn new(config: IdleConfig) -> Self {
        let policy = Box::new(Policy::new(config.policy()));
        Self { config, last_work: None, policy, compares: false }
    }

    /// The mode in force.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.config.mode
    }

    /// Changes the mode from the next decision on.
    pub fn set_mode(&mut self, mode: Mode) {
        self.config.mode = mode;
        self.policy.pause();
    }

    /// Changes the goal of `adaptive`.
    pub fn set_goal(&mut self, goal: Goal) {
        self.config.goal = goal;
        self.policy.set_goal(goal);
    }

    /// Sets the figures of the machine, and whether a latency request may be held, from the next decision on.
    pub fn set_machine(&mut self, machine: Machine, request: Requests) {
        (self.config.machine, self.config.request, self.compares) = (machine, request, false);
        self.policy.set_machine(self.config.policy().machine);
    }

    /// Bounds the share of the time that it may spin; plans are made within it.
    pub fn set_spin_share(&mut self, share: Option<f32>) {
        self.policy.set_spin_share(share);
    }

    /// Whether others want the CPU and the scheduler is fair. It then prefers to sleep.
    #[inline]
    pub fn set_contended(&mut self, contended: bool) {
        self.policy.set_contended(contended);
    }

    /// A turn that began at `now` found work.
    #[inline]
    pub const fn worked(&mut self, now: Instant) {
        self.last_work = Some(now);
    }

    /// The packets in that work.
    #[inline]
    pub fn arrived(&mut self, now: Instant, arrival: Arrival) {
        if matches!(self.config.mode, Mode::Adaptive) {
            self.policy.arrived(now, arrival);
        }
    }

    /// Whether a sleep that ends at `now` was meant to end then, ahead of an expected packet.
    #[must_use]
    pub fn is_ahead(&self, now: Instant) -> bool {
        matches!(self.config.mode, Mode::Adaptive) && self.policy.is_ahead(now)
    }

    /// The sleep that was decided on ended at `now`.
    pub fn woke(&mut self, now: Instant, woken: Woken) {
        if !matches!(self.config.mode, Mode::Adaptive) {
            return;
        }
        self.policy.woke(now, woken);
        // The duration of a wake-up is now known, so the policy can start to compare. This first one may have been
        // an exception, so it is not taken as the expected duration.
        if self.config.request == Requests::OnTrial
            && !self.compares
            && matches!(woken, Woken::Packet(Some(_)))
        {
            self.compares = true;
            let machine = self.config.machine;
            self.policy.set_machine(Machine { wake_held_us: Some(UNTESTED * machine.wake_us), ..machine });
        }
    }

    /// Whether a latency request should be held at `now`. A spinning CPU needs none.
    #[must_use]
    pub fn wants_request(&self, now: Instant) -> bool {
        match self.config.mode {
            Mode::Poll => false,
            Mode::Interrupt => self.config.request == Requests::Allowed && now < self.linger_end(),
            Mode::Adaptive => self.policy.holds(now),
        }
    }

    /// What to do after the turn that began at `now`. `deadline` is the engine's next one.
    #[must_use]
    pub fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        if deadline <= now {
            return Decision::Turn;
        }
        match self.config.mode {
            Mode::Poll => Decision::Turn,
            Mode::Interrupt => {
                let release = if self.wants_request(now) { self.linger_end() } else { Instant::NEVER };
                Decision::Sleep { until: deadline.min(release) }
            }
            Mode::Adaptive => match self.policy.decide(now, deadline) {
                twinpath_idle::Decision::Spin { .. } => Decision::Turn,
                twinpath_idle::Decision::Sleep { until } => Decision::Sleep { until },
            },
        }
    }

    fn linger_end(&self) -> Instant {
        self.last_work.map_or(Instant::ZERO, |last| last + self.config.linger.unwrap_or(LINGER))
    }

    /// The policy's decision in `adaptive`, and its counts.
    #[must_use]
    pub fn summary(&self) -> (Summary, &twinpath_idle::Counts) {
        (self.policy.summary(), self.policy.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const LINGER_NS: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn idle(mode: Mode) -> Idle {
        let (spin, linger) = (Some(Duration::from_micros(50)), Some(Duration::from_nanos(LINGER_NS)));
        Idle::new(IdleConfig { mode, spin, linger, request: Requests::Allowed, ..IdleConfig::default() })
    }

    #[test]
    fn poll_never_sleeps_and_asks_for_nothing() {
        let mut idle = idle(Mode::Poll);
        assert_eq!(idle.decide(at(u64::MAX / 2), Instant::NEVER), Decision::Turn);
        assert!(!idle.wants_request(at(0)));
    }

    #[test]
    fn interrupt_sleeps_at_once_and_wakes_to_let_the_request_go() {
        let mut idle = idle(Mode::Interrupt);
        assert_eq!(idle.decide(at(5), Instant::NEVER), Decision::Sleep { until: Instant::NEVER });
        idle.worked(at(10));
        assert!(idle.wants_request(at(10)));
        assert_eq!(idle.decide(at(10), Instant::NEVER), Decision::Sleep { until: at(10 + LINGER_NS) });
        assert!(!idle.wants_request(at(10 + LINGER_NS)));
        assert_eq!(
            idle.decide(at(10 + LINGER_NS), Instant::NEVER),
            Decision::Sleep { until: Instant::NEVER }
        );
    }

    #[test]
    fn adaptive_spins_for_a_fixed_time_if_told_and_not_before_any_packet() {
        let mut idle = idle(Mode::Adaptive);
        assert_eq!(idle.decide(at(0), Instant::NEVER), Decision::Sleep { until: Instant::NEVER });
        idle.arrived(at(1_000 * US), Arrival { first: at(1_000 * US), last: at(1_000 * US), count: 1 });
        assert_eq!(idle.decide(at(1_001 * US), Instant::NEVER), Decision::Turn);
        assert_eq!(idle.decide(at(1_050 * US - 1), Instant::NEVER), Decision::Turn);
        let until = at(1_000 * US + LINGER_NS);
        assert_eq!(idle.decide(at(1_050 * US), Instant::NEVER), Decision::Sleep { until });
    }

    #[test]
    fn adaptive_learns_a_period_and_wakes_ahead_of_it() {
        let mut idle = Idle::new(IdleConfig::default());
        let (mut now, mut ahead) = (0, 0);
        for packet in 1..400u64 {
            let due = packet * 350 * US;
            loop {
                match idle.decide(at(now), Instant::NEVER) {
                    Decision::Turn if now >= due => break,
                    Decision::Turn => now += US,
                    Decision::Sleep { until } if until < at(due) => {
                        now = until.as_nanos() + 8 * US;
                        ahead += u32::from(idle.is_ahead(at(now)));
                        idle.woke(at(now), Woken::Timer);
                    }
                    Decision::Sleep { .. } => {
                        now = due + 40 * US;
                        idle.woke(at(now), Woken::Packet(Some(Duration::from_micros(40))));
                        break;
                    }
                }
            }
            idle.arrived(at(now), Arrival { first: at(due), last: at(due), count: 1 });
        }
        assert!(ahead > 300, "{ahead}");
        let (summary, _) = idle.summary();
        assert!(
            summary.to_string().starts_with("packets come about every 350 us: sleeps until"),
            "{summary}"
        );
        // Silence: at most one more prediction, then it sleeps without a deadline.
        idle.woke(at(now + 100_000_000_000), Woken::Other);
        assert_eq!(
            idle.decide(at(now + 100_000_000_000), Instant::NEVER),
            Decision::Sleep { until: Instant::NEVER }
        );
    }

    /// A worker that could not measure the effect of a request, because its process may use only one CPU: 2,000
    /// packets at random times, 2 ms apart on average, of which the first is found 5 ms late. Returns which
    /// fraction of the second thousand ended a sleep with a request held, and which fraction of the time the worker
    /// spun.
    fn on_trial(without_us: u64, with_us: u64, stamped: bool) -> [f64; 2] {
        let machine = Machine { wake_us: 5.0, ..Machine::default() };
        let mut idle = Idle::new(IdleConfig { machine, request: Requests::OnTrial, ..IdleConfig::default() });
        let mut random = fastrand::Rng::with_seed(5);
        let begun = 1_000_000_000;
        let (mut now, mut held) = (begun, 0);
        for packet in 0..2_000 {
            let due = now + (random.f64().max(1e-9).ln() * -2e6) as u64;
            loop {
                let holds = idle.wants_request(at(now));
                match idle.decide(at(now), Instant::NEVER) {
                    Decision::Turn if now >= due => break,
                    Decision::Turn => now += US,
                    Decision::Sleep { until } if until < at(due) => {
                        now = until.as_nanos() + US;
                        idle.woke(at(now), Woken::Timer);
                    }
                    Decision::Sleep { .. } => {
                        let usual_us = if idle.wants_request(at(due)) { with_us } else { without_us };
                        let took = if packet == 0 { 5_000 } else { usual_us } * US;
                        held += u32::from(holds && packet >= 1_000);
                        now = due + took;
                        idle.woke(at(now), Woken::Packet(stamped.then(|| Duration::from_nanos(took))));
                        break;
                    }
                }
            }
            idle.arrived(at(now), Arrival { first: at(due), last: at(due), count: 1 });
        }
        [f64::from(held) / 1e3, idle.summary().1.spun_ns as f64 / (now - begun) as f64]
    }

    #[test]
    fn a_request_that_nobody_measured_is_held_if_wake_ups_are_shorter_with_it_and_only_then() {
        for (without_us, with_us, stamped, holds) in
            [(40, 4, true, true), (40, 40, true, false), (40, 60, true, false), (40, 4, false, false)]
        {
            let [held, spun] = on_trial(without_us, with_us, stamped);
            let what = format!("{without_us} us, {with_us} us with a request: {held} held, {spun} spun");
            assert!(if holds { held > 0.5 } else { held < 0.1 }, "{what}");
            assert!(stamped || held == 0.0, "{what}: without stamps nothing shows that it helps");
            assert!(spun < 0.1, "{what}: one slow wake-up is no reason to spin");
        }
    }

    #[test]
    fn in_interrupt_mode_nothing_is_tried() {
        let mut idle = Idle::new(IdleConfig {
            mode: Mode::Interrupt,
            request: Requests::OnTrial,
            ..IdleConfig::default()
        });
        idle.worked(at(10));
        idle.woke(at(11), Woken::Packet(Some(Duration::from_micros(40))));
        assert!(!idle.wants_request(at(12)));
    }

    #[test]
    fn an_engine_deadline_bounds_the_sleep_and_a_due_one_forbids_it() {
        let mut idle = idle(Mode::Interrupt);
        assert_eq!(idle.decide(at(10), at(30)), Decision::Sleep { until: at(30) });
        assert_eq!(idle.decide(at(30), at(30)), Decision::Turn);
    }

    #[test]
    fn without_a_helpful_request_nobody_wakes_to_release_it() {
        let mut idle = Idle::new(IdleConfig { mode: Mode::Interrupt, ..IdleConfig::default() });
        idle.worked(at(10));
        assert!(!idle.wants_request(at(11)));
        assert_eq!(idle.decide(at(11), Instant::NEVER), Decision::Sleep { until: Instant::NEVER });
    }

    #[test]
    fn modes_read_back_their_own_names() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("fast".parse::<Mode>().expect_err("no such mode").contains("choose adaptive"));
    }
}
