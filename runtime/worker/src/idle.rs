//! The idle policy: turn again, or sleep. A value without a clock or an fd, told what happened and what time it is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_time::{Duration, Instant};

/// How a worker idles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Spins for a bounded time after work, then sleeps.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do.
    Interrupt,
    /// Never sleeps: the floor for latency, at the price of a core.
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
    /// While traffic lasts, where a measurement at start showed that it shortens wake-ups.
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

/// What the policy is made of.
#[derive(Clone, Copy, Debug)]
pub struct IdleConfig {
    /// The mode to begin with.
    pub mode: Mode,
    /// Longest time `adaptive` spins after the last work.
    pub spin: Duration,
    /// How long after the last work a latency request is still held.
    pub linger: Duration,
    /// Whether a latency request may be held at all: the setting joined with what was measured.
    pub request: bool,
}

impl Default for IdleConfig {
    /// 50 us of spinning cover the gaps within a conversation (a round trip takes 2 to 20 us) and cost at most 5 % of a core
    /// at a thousand lone packets per second. A second of linger keeps a shallow idle state between the bursts of one user
    /// and lets an idle host rest.
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            spin: Duration::from_micros(50),
            linger: Duration::from_secs(1),
            request: false,
        }
    }
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Turn again at once.
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
}

impl Idle {
    /// A policy that has seen nothing yet.
    #[must_use]
    pub const fn new(config: IdleConfig) -> Self {
        Self { config, last_work: None }
    }

    /// The mode in force.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.config.mode
    }

    /// Changes the mode from the next decision on.
    pub const fn set_mode(&mut self, mode: Mode) {
        self.config.mode = mode;
    }

    /// Whether a latency request may be held, from the next decision on.
    pub const fn allow_request(&mut self, allowed: bool) {
        self.config.request = allowed;
    }

    /// A turn that began at `now` found work.
    #[inline]
    pub const fn worked(&mut self, now: Instant) {
        self.last_work = Some(now);
    }

    /// Whether a latency request should be held at `now`. A spinning CPU needs none.
    #[must_use]
    pub fn wants_request(&self, now: Instant) -> bool {
        self.config.request && self.config.mode != Mode::Poll && now < self.linger_end()
    }

    /// What to do after the turn that began at `now`. `deadline` is the engine's next one.
    #[must_use]
    pub fn decide(&self, now: Instant, deadline: Instant) -> Decision {
        let spin_end = match (self.config.mode, self.last_work) {
            (Mode::Poll, _) => Instant::NEVER,
            (Mode::Adaptive, Some(last)) => last + self.config.spin,
            (Mode::Adaptive, None) | (Mode::Interrupt, _) => Instant::ZERO,
        };
        if now < spin_end || deadline <= now {
            return Decision::Turn;
        }
        let release = if self.wants_request(now) { self.linger_end() } else { Instant::NEVER };
        Decision::Sleep { until: deadline.min(release) }
    }

    fn linger_end(&self) -> Instant {
        self.last_work.map_or(Instant::ZERO, |last| last + self.config.linger)
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
        Idle::new(IdleConfig { mode, request: true, ..IdleConfig::default() })
    }

    #[test]
    fn poll_never_sleeps_and_asks_for_nothing() {
        let idle = idle(Mode::Poll);
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
    fn adaptive_spins_for_its_budget_after_work_and_not_before_any() {
        let mut idle = idle(Mode::Adaptive);
        assert_eq!(idle.decide(at(0), Instant::NEVER), Decision::Sleep { until: Instant::NEVER });
        idle.worked(at(1_000 * US));
        assert_eq!(idle.decide(at(1_050 * US - 1), Instant::NEVER), Decision::Turn);
        let until = at(1_000 * US + LINGER_NS);
        assert_eq!(idle.decide(at(1_050 * US), Instant::NEVER), Decision::Sleep { until });
    }

    #[test]
    fn an_engine_deadline_bounds_the_sleep_and_a_due_one_forbids_it() {
        let idle = idle(Mode::Interrupt);
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
