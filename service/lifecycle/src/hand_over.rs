//! A take-over, at the former instance's end: it serves until the new one does.
//!
//! The new instance gets the sockets. At its step `aside`, this instance detaches its programs, so that the new one
//! can attach its own. At its step `serving`, this instance accepts nothing more, agrees, and drains. If the new one
//! fails before that, or is silent for too long, this one goes on and attaches again.

use twinpath_time::{Duration, Instant};

use crate::action::{Action, Detached, Refusal, TakerFailure};
use crate::drain::Begun;
use crate::event::{Outcome, Step, TakerId};
use crate::taker::{Stage, Taker};
use crate::{Awaited, Lifecycle, Phase};

/// How long a new instance that was given up, and may have attached programs, has to end. While both have programs,
/// they would answer each request twice. If it takes longer, it hangs, and answers nothing.
pub const GIVEN_UP_PATIENCE: Duration = Duration::from_secs(5);

/// A new instance that was given up and has not closed its connection yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenUp {
    id: TakerId,
    pub(crate) until: Instant,
}

impl GivenUp {
    pub(crate) const fn id(self) -> TakerId {
        self.id
    }
}

impl Lifecycle {
    /// The new instance that has the sockets, if there is one.
    #[must_use]
    pub const fn taker(&self) -> Option<&Taker> {
        match &self.phase {
            Phase::Serving(taker) => taker.as_ref(),
            Phase::Reloading(reload) => reload.taker.as_ref(),
            Phase::Draining(drain) => drain.taker.as_ref(),
            Phase::Starting(_) | Phase::StandingBy(_) | Phase::Ended => None,
        }
    }

    const fn taker_slot(&mut self) -> Option<&mut Option<Taker>> {
        match &mut self.phase {
            Phase::Serving(taker) => Some(taker),
            Phase::Reloading(reload) => Some(&mut reload.taker),
            Phase::Draining(drain) => Some(&mut drain.taker),
            Phase::Starting(_) | Phase::StandingBy(_) | Phase::Ended => None,
        }
    }

    /// When the new instance has been silent for too long.
    pub(crate) fn taker_silent_at(&self) -> Instant {
        self.taker().map_or(Instant::NEVER, Taker::silent_at)
    }

    pub(crate) fn sockets_asked(&mut self, actions: &mut Vec<Action>) {
        let refusal = match &self.phase {
            Phase::Serving(Some(taker)) if taker.is_aside() => Refusal::BeingTakenOver,
            Phase::Serving(_) => {
                let id = self.next_taker;
                self.next_taker = self.next_taker.wrapping_add(1);
                return self.ask(Action::GiveSockets(id), Awaited::Give(id), actions);
            }
            _ => self.refusal(),
        };
        actions.push(Action::RefuseSockets(refusal));
    }

    /// Why nobody gets the sockets in the present phase.
    pub(crate) const fn refusal(&self) -> Refusal {
        match &self.phase {
            Phase::StandingBy(_) => Refusal::StandingBy,
            Phase::Draining(drain) if drain.is_taken_over() => Refusal::TakenOver,
            _ => Refusal::Stopping,
        }
    }

    pub(crate) fn sockets_given(
        &mut self,
        now: Instant,
        id: TakerId,
        outcome: &Outcome,
        actions: &mut Vec<Action>,
    ) {
        if *outcome != Outcome::Done {
            return;
        }
        let until = now + self.limits.take_over_patience;
        let new = Taker { id, stage: Stage::HasSockets { until } };
        // The earlier one has changed nothing. It must hear that it does not take over: it would go on if it heard
        // nothing but the end of its connection, as if this instance had ended.
        if let Some(earlier) = self.taker_slot().and_then(|slot| slot.replace(new)) {
            actions.push(Action::GiveUp(earlier.id, TakerFailure::Replaced));
        }
    }

    /// New instance `id` says that it has reached a step.
    pub(crate) fn heard(&mut self, now: Instant, id: TakerId, step: Step, actions: &mut Vec<Action>) {
        let Some(taker) = self.taker().copied().filter(|taker| taker.id == id) else { return };
        match (step, taker.stage, &self.phase) {
            (Step::Aside, Stage::HasSockets { .. }, Phase::Serving(_)) => {
                let until = now + self.limits.take_over_patience;
                self.phase = Phase::Serving(Some(Taker { id, stage: Stage::Waits { until } }));
                self.fast.due |= self.fast.attached;
                // Also if the programs are off already: connections may still be about to move to the kernel.
                (self.fast.attached, self.fast.returning) = (false, true);
                actions.push(Action::Detach(Detached::TakenOver));
            }
            (Step::Serving, Stage::MayAttach { .. }, Phase::Serving(_)) => self.hand_over(now, id, actions),
            (Step::Serving, Stage::MayAttach { .. }, Phase::Draining(_)) => {
                self.agree_in_drain(now, id, actions)
            }
            _ => self.fail_taker(now, TakerFailure::OutOfStep(step), actions),
        }
    }

    /// The new instance serves from here on.
    fn hand_over(&mut self, now: Instant, id: TakerId, actions: &mut Vec<Action>) {
        actions.extend([Action::ReleaseFrames, Action::LeaveRegistrations]);
        let begun =
            Begun { handed_over: true, taker: None, agrees_with: Some(id), within: self.limits.drain };
        self.begin_to_drain(now, begun, actions);
    }

    /// Tells the new instance that the programs are detached, once the queues are closed: the kernel gives a queue to
    /// one socket at a time. One that was given up may have programs, too.
    pub(crate) fn agree_if_aside(&mut self, actions: &mut Vec<Action>) {
        let can = !self.fast.returning && self.given_up.is_none();
        if let Some(Some(taker)) = self.taker_slot()
            && let Stage::Waits { until } = taker.stage
            && can
        {
            taker.stage = Stage::MayAttach { until };
            actions.push(Action::Agree(taker.id));
        }
    }

    /// The connection to new instance `id` has closed.
    pub(crate) fn taker_gone(&mut self, now: Instant, id: TakerId, actions: &mut Vec<Action>) {
        if self.given_up.is_some_and(|given_up| given_up.id == id) {
            self.given_up = None;
        } else if self.taker().is_some_and(|taker| taker.id == id) {
            self.fail_taker(now, TakerFailure::Gone, actions);
        }
    }

    /// New instance `id` says something that is no step.
    pub(crate) fn misheard(&mut self, now: Instant, id: TakerId, actions: &mut Vec<Action>) {
        if self.taker().is_some_and(|taker| taker.id == id) {
            self.fail_taker(now, TakerFailure::NoStep, actions);
        }
    }

    /// The new instance does not take over, and this one goes on.
    pub(crate) fn fail_taker(&mut self, now: Instant, why: TakerFailure, actions: &mut Vec<Action>) {
        let Some(taker) = self.taker_slot().and_then(Option::take) else { return };
        actions.extend([Action::GiveUp(taker.id, why), Action::NoTaker]);
        let may_have_programs = matches!(taker.stage, Stage::MayAttach { .. }) && why != TakerFailure::Gone;
        if may_have_programs {
            self.given_up = Some(GivenUp { id: taker.id, until: now + GIVEN_UP_PATIENCE });
        }
    }
}
