//! The fast path: when programs are attached, and when they come off.

use crate::action::{Action, Detached};
use crate::event::Outcome;
use crate::{Awaited, Lifecycle, Phase};

/// The state of the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastPath {
    /// Whether the interface is there.
    pub(crate) present: bool,
    /// Whether programs are attached.
    pub(crate) attached: bool,
    /// Whether to attach as soon as that is possible.
    pub(crate) due: bool,
    /// Whether the claims are withheld, because claimed flows would bypass checks of the kernel.
    pub(crate) withheld: bool,
    /// Whether workers have yet to return queues of the former attachment.
    pub(crate) returning: bool,
}

impl FastPath {
    pub(crate) const NEW: Self =
        Self { present: true, attached: false, due: false, withheld: false, returning: false };
}

impl Lifecycle {
    pub(crate) fn interface_gone(&mut self, actions: &mut Vec<Action>) {
        self.detach(Detached::InterfaceGone, actions);
        actions.push(Action::ReleaseFrames);
        (self.fast.present, self.fast.due, self.fast.withheld) = (false, false, false);
    }

    pub(crate) const fn interface_back(&mut self) {
        (self.fast.present, self.fast.due) = (true, true);
    }

    pub(crate) fn queues_changed(&mut self, actions: &mut Vec<Action>) {
        if self.fast.attached {
            self.detach(Detached::QueuesChanged, actions);
            self.fast.due = true;
        }
    }

    pub(crate) fn bypassed(&mut self, is_bypassed: bool, actions: &mut Vec<Action>) {
        if is_bypassed && self.fast.attached {
            self.detach(Detached::Withheld, actions);
            self.fast.withheld = true;
        } else if !is_bypassed && self.fast.withheld {
            (self.fast.withheld, self.fast.due) = (false, true);
        }
    }

    /// The programs come off first, so that the kernel serves, and no frame is steered to a queue that is about to
    /// close.
    pub(crate) fn detach(&mut self, why: Detached, actions: &mut Vec<Action>) {
        if self.fast.attached {
            (self.fast.attached, self.fast.returning) = (false, true);
            actions.push(Action::Detach(why));
        }
    }

    /// Attaches if that is due and possible. The kernel gives a queue to one socket at a time, and the programs of two
    /// instances would answer each request twice.
    pub(crate) fn attach_if_due(&mut self, actions: &mut Vec<Action>) {
        let fast = &mut self.fast;
        let can = fast.due && fast.present && !fast.attached && !fast.returning;
        if can && self.may_attach() {
            self.fast.due = false;
            self.ask(Action::ChoosePath, Awaited::Path, actions);
        }
    }

    /// Whether no other instance has, or is about to have, programs on the interface.
    fn may_attach(&self) -> bool {
        let by_phase = match &self.phase {
            Phase::Serving(taker) => !taker.is_some_and(|taker| taker.is_aside()),
            Phase::Draining(drain) => {
                !drain.handed_over && !drain.taker.is_some_and(|taker| taker.is_aside())
            }
            Phase::Starting(_) | Phase::StandingBy(_) | Phase::Reloading(_) | Phase::Ended => false,
        };
        by_phase && self.given_up.is_none()
    }

    pub(crate) fn path_chosen(&mut self, outcome: &Outcome, actions: &mut Vec<Action>) {
        if *outcome == Outcome::Done {
            self.ask(Action::Attach, Awaited::Attach, actions);
        }
    }

    /// Attaching has ended, or goes on with the next best path.
    pub(crate) fn attached_again(&mut self, outcome: &Outcome, actions: &mut Vec<Action>) {
        self.attached(outcome);
        if *outcome == Outcome::Failed && self.tries_next_path {
            self.ask(Action::NextPath, Awaited::Path, actions);
        }
    }

    /// Notes how attaching ended.
    pub(crate) fn attached(&mut self, outcome: &Outcome) {
        self.fast.attached = *outcome == Outcome::Done;
        self.fast.withheld = *outcome == Outcome::Withheld;
    }
}
