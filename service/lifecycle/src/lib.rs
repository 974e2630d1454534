//! The phases of an instance, from its start to its end, as a state machine.
//!
//! [`Lifecycle::handle`] gets an event and returns what to do. It does nothing itself: it has no clock, no descriptor
//! and no thread. `service/instance` carries out the actions in the product, and `test/sim/tests/lifecycle` in a
//! simulation, where interfaces go, answers are lost and instances crash between any two actions.
//!
//! An action may have an outcome, such as [`Action::Attach`]. It is the last one of its batch, and its outcome is the
//! next event. So a sequence that can fail in the middle is a sequence of states, and what it undoes is written once.

mod action;
mod drain;
mod event;
mod fast_path;
mod hand_over;
mod reload;
mod stand_by;
mod start;
mod taker;

pub use action::{Action, Detached, Refusal, TakerFailure};
pub use drain::{CUT_MAX, CUT_PATIENCE, Drain};
pub use event::{Event, First, Outcome, Step, TakerId};
pub use hand_over::GIVEN_UP_PATIENCE;
pub use reload::Reload;
pub use stand_by::{STANDBYS_MAX, StandBy};
pub use start::Start;
pub use taker::Taker;
use twinpath_time::{Duration, Instant};

use crate::drain::Leaving;
use crate::fast_path::FastPath;
use crate::hand_over::GivenUp;

/// Where the sockets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The instance makes its own.
    Fresh,
    /// From a running instance, which this one replaces.
    TakesOver,
    /// From a running instance, which this one stands by for.
    StandsBy,
}

/// Time limits, which a reload can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long connections may take to end when it stops.
    pub drain: Duration,
    /// How long an instance that takes over may be silent before it serves.
    pub take_over_patience: Duration,
}

/// The phase of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It starts.
    Starting(Start),
    /// It stands by for another instance.
    StandingBy(StandBy),
    /// It serves. A new instance may have its sockets.
    Serving(Option<Taker>),
    /// It serves, and its configuration changes.
    Reloading(Reload),
    /// It stops.
    Draining(Drain),
    /// It has ended, and nothing is left of it once the last actions are carried out.
    Ended,
}

/// The action whose outcome is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Nothing,
    Start,
    Path,
    Attach,
    Give(TakerId),
    Drain,
    Reload,
}

/// The state of an instance that its phases depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    origin: Origin,
    limits: Limits,
    /// Whether it goes on with the next best path if attaching fails.
    tries_next_path: bool,
    phase: Phase,
    fast: FastPath,
    awaited: Awaited,
    given_up: Option<GivenUp>,
    next_taker: TakerId,
    /// Whether some worker is stuck.
    is_stuck: bool,
    stand_in_serves: bool,
    leaving: Vec<Leaving>,
}

impl Lifecycle {
    /// An instance before its start.
    #[must_use]
    pub const fn new(origin: Origin, limits: Limits, tries_next_path: bool) -> Self {
        Self {
            origin,
            limits,
            tries_next_path,
            phase: Phase::Starting(Start::Holding),
            fast: FastPath::NEW,
            awaited: Awaited::Nothing,
            given_up: None,
            next_taker: 0,
            is_stuck: false,
            stand_in_serves: false,
            leaving: Vec::new(),
        }
    }

    /// Handles an event. Returns what to do, in this order.
    #[must_use]
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_outcome = matches!(event, Event::Outcome(_));
        debug_assert_eq!(is_outcome, self.awaited != Awaited::Nothing, "{event:?} for {self:?}");
        if self.phase != Phase::Ended {
            self.take(now, event, &mut actions);
        }
        if self.awaited == Awaited::Nothing && self.phase != Phase::Ended {
            self.agree_if_aside(&mut actions);
            self.drain_continues(now, &mut actions);
            self.attach_if_due(&mut actions);
        }
        actions
    }

    fn take(&mut self, now: Instant, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Start => self.start(actions),
            Event::Outcome(outcome) => self.outcome(now, &outcome, actions),
            Event::Deadline => self.deadline_passed(now, actions),
            Event::InterfaceGone => self.interface_gone(actions),
            Event::InterfaceBack => self.interface_back(),
            Event::QueuesReturned => self.fast.returning = false,
            Event::QueuesChanged => self.queues_changed(actions),
            Event::Bypassed(is_bypassed) => self.bypassed(is_bypassed, actions),
            Event::Stuck(is_stuck) => {
                self.is_stuck = is_stuck;
                self.stand_in(actions);
            }
            Event::ListenersClosed => self.listeners_closed(),
            Event::ServiceDrained => self.service_drained(),
            Event::CutGoesOn => self.cut_goes_on(now),
            Event::Left(part) => self.left(part),
            Event::NothingClaimed => self.detach(Detached::NothingClaimed, actions),
            Event::SocketsAsked => self.sockets_asked(actions),
            Event::Heard(id, step) => self.heard(now, id, step, actions),
            Event::Misheard(id) => self.misheard(now, id, actions),
            Event::TakerGone(id) => self.taker_gone(now, id, actions),
            Event::StandbyAsked { others } => self.standby_asked(others, actions),
            Event::First(first) => self.first_is(first, actions),
            Event::ReloadAsked => self.reload_asked(actions),
            Event::DrainAsked(within) => self.drain_asked(now, within, actions),
            Event::StopAsked(within) => self.stop_asked(now, within, actions),
            Event::Broken => self.end(false, actions),
        }
    }

    fn outcome(&mut self, now: Instant, outcome: &Outcome, actions: &mut Vec<Action>) {
        match (std::mem::replace(&mut self.awaited, Awaited::Nothing), self.phase) {
            (Awaited::Start, Phase::Starting(step)) => self.start_continues(step, outcome, actions),
            (Awaited::Path, _) => self.path_chosen(outcome, actions),
            (Awaited::Attach, _) => self.attached_again(outcome, actions),
            (Awaited::Give(id), _) => self.sockets_given(now, id, outcome, actions),
            (Awaited::Drain, _) => {
                if let Outcome::Draining { services, listening } = outcome {
                    self.drain_begun(*services, *listening);
                }
            }
            (Awaited::Reload, _) => self.reload_continues(now, outcome, actions),
            (Awaited::Nothing | Awaited::Start, _) => {}
        }
    }

    /// Does an action that has an outcome, as the last one of its batch.
    pub(crate) fn ask(&mut self, action: Action, awaited: Awaited, actions: &mut Vec<Action>) {
        debug_assert!(action.has_outcome(), "{action:?}");
        self.awaited = awaited;
        actions.push(action);
    }

    /// While a worker is stuck, the stand-in serves its sockets. In a drain nothing is accepted, by nobody.
    pub(crate) fn stand_in(&mut self, actions: &mut Vec<Action>) {
        let serves = self.is_stuck && !self.is_draining();
        if serves != self.stand_in_serves {
            self.stand_in_serves = serves;
            actions.push(Action::StandIn(serves));
        }
    }

    /// When [`Event::Deadline`] is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let drain = match &self.phase {
            Phase::Ended => return Instant::NEVER,
            Phase::Draining(drain) => drain.deadline(),
            _ => Instant::NEVER,
        };
        let leaving = self.leaving.iter().map(|leaving| leaving.cut_at).min();
        let given_up = self.given_up.map(|given_up| given_up.until);
        let others = [leaving, given_up].into_iter().flatten().chain([self.taker_silent_at()]);
        others.fold(drain, Instant::min)
    }

    fn deadline_passed(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.taker_silent_at() <= now {
            self.fail_taker(now, TakerFailure::Late, actions);
        }
        self.given_up = self.given_up.filter(|given_up| given_up.until > now);
        self.cut_leaving(now, actions);
    }

    /// Ends the instance: programs come off first, so that the kernel serves every flow until a socket closes.
    pub(crate) fn end(&mut self, is_orderly: bool, actions: &mut Vec<Action>) {
        if is_orderly {
            actions.push(Action::TellEnd);
        }
        actions.push(Action::Unregister);
        self.detach(Detached::Ending, actions);
        let patient = self.drain().is_none_or(|drain| !drain.is_cutting || drain.is_done());
        actions.extend([Action::StopWorkers { patient }, Action::LetGo, Action::Disconnect]);
        self.phase = Phase::Ended;
    }

    /// The present phase.
    #[must_use]
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The drain, if there is one.
    #[must_use]
    pub const fn drain(&self) -> Option<&Drain> {
        match &self.phase {
            Phase::Draining(drain) => Some(drain),
            _ => None,
        }
    }

    /// Whether it drains.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining(_))
    }

    /// The state of a standby, if it is one.
    #[must_use]
    pub const fn standby(&self) -> Option<&StandBy> {
        match &self.phase {
            Phase::StandingBy(standby) => Some(standby),
            _ => None,
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Whether [`Event::QueuesReturned`] is awaited.
    #[must_use]
    pub const fn awaits_queues(&self) -> bool {
        self.fast.returning
    }

    /// Whether programs are attached.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.fast.attached
    }

    /// Whether this new instance was given up, and may have programs attached yet.
    #[must_use]
    pub fn is_given_up(&self, id: TakerId) -> bool {
        self.given_up.is_some_and(|given_up| given_up.id() == id)
    }

    /// Whether the claims are withheld, because claimed flows would bypass checks of the kernel.
    #[must_use]
    pub const fn is_withheld(&self) -> bool {
        self.fast.withheld
    }

    /// Whether a service that a reload removed has something left to answer.
    #[must_use]
    pub const fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether the service that is this part of the workers was removed and has something left to answer.
    #[must_use]
    pub fn is_leaving(&self, part: usize) -> bool {
        self.leaving.iter().any(|leaving| leaving.part == part)
    }

    /// Changes the time limits, with a reload.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }
}

#[cfg(test)]
mod tests;
