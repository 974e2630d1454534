//! A reload, all of it or nothing. Steps that can fail come first. After the claims have changed, nothing can fail.

use twinpath_time::Instant;

use crate::action::{Action, Detached, Refusal, TakerFailure};
use crate::event::Outcome;
use crate::taker::Taker;
use crate::{Awaited, Lifecycle, Phase};

/// A reload that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    step: Step,
    /// A new instance that has the sockets, and has changed nothing.
    pub(crate) taker: Option<Taker>,
}

/// The step that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Reads the configuration.
    Reading,
    /// Binds new ports.
    Staging,
    /// Gives new services to the workers.
    Preparing,
    /// Changes the claims of the attached programs.
    Claiming,
    /// Attaches, as nothing was claimed before.
    Attaching,
    /// The workers take their queues.
    Steering,
    /// New services begin, and removed ones leave.
    Switching,
    /// The new services are taken back.
    Undoing,
}

impl Lifecycle {
    pub(crate) fn reload_asked(&mut self, actions: &mut Vec<Action>) {
        let taker = match &self.phase {
            Phase::Serving(Some(taker)) if taker.is_aside() => {
                return actions.push(Action::RefuseReload(Refusal::BeingTakenOver));
            }
            Phase::Serving(taker) => *taker,
            _ => return actions.push(Action::RefuseReload(self.refusal())),
        };
        self.phase = Phase::Reloading(Reload { step: Step::Reading, taker });
        self.ask(Action::ReadConfiguration, Awaited::Reload, actions);
    }

    fn reload_step(&mut self, step: Step, action: Action, actions: &mut Vec<Action>) {
        if let Phase::Reloading(reload) = &mut self.phase {
            reload.step = step;
            self.ask(action, Awaited::Reload, actions);
        }
    }

    pub(crate) fn reload_continues(&mut self, now: Instant, outcome: &Outcome, actions: &mut Vec<Action>) {
        let Phase::Reloading(Reload { step, .. }) = self.phase else { return };
        match (step, outcome) {
            (Step::Reading, Outcome::Done) => self.reload_step(Step::Staging, Action::Stage, actions),
            (Step::Reading, Outcome::Nothing) => self.finish_reload(true, actions),
            (Step::Reading | Step::Staging, Outcome::Failed) => self.finish_reload(false, actions),
            (Step::Staging, _) => self.reload_step(Step::Preparing, Action::Prepare, actions),
            (Step::Preparing, Outcome::Done) => {
                actions.push(Action::Adopt);
                self.claim(actions);
            }
            (Step::Preparing, _) => self.reload_step(Step::Undoing, Action::Undo, actions),
            (Step::Claiming | Step::Attaching, Outcome::Failed) => {
                actions.push(Action::Restore);
                self.reload_step(Step::Undoing, Action::Undo, actions);
            }
            (Step::Claiming, outcome) => self.claimed(outcome, actions),
            (Step::Attaching, outcome) => {
                self.attached(outcome);
                match outcome {
                    Outcome::Done => self.reload_step(Step::Steering, Action::AwaitSteering, actions),
                    _ => self.reload_step(Step::Switching, Action::Switch, actions),
                }
            }
            (Step::Steering, _) => self.reload_step(Step::Switching, Action::Switch, actions),
            (Step::Switching, outcome) => self.switched(now, outcome, actions),
            (Step::Undoing, outcome) => {
                if let Outcome::Leaving { parts, workers } = outcome {
                    self.expect_to_leave(now, parts, *workers);
                }
                self.finish_reload(false, actions);
            }
            (Step::Reading, _) => self.finish_reload(false, actions),
        }
    }

    /// Changes the claims to those of the plan, which is the new one.
    fn claim(&mut self, actions: &mut Vec<Action>) {
        let fast = self.fast;
        let can_attach = fast.present && !fast.withheld;
        if fast.attached {
            self.reload_step(Step::Claiming, Action::ChangeClaims, actions);
        } else if can_attach && !fast.due && !fast.returning && self.given_up.is_none() {
            self.reload_step(Step::Attaching, Action::Attach, actions);
        } else {
            // Once the queues of a former attachment are back.
            self.fast.due = can_attach;
            self.reload_step(Step::Switching, Action::Switch, actions);
        }
    }

    /// The claims have changed, or they must come off before removed services leave.
    fn claimed(&mut self, outcome: &Outcome, actions: &mut Vec<Action>) {
        match outcome {
            Outcome::Withheld => {
                self.detach(Detached::Withheld, actions);
                self.fast.withheld = true;
            }
            Outcome::OtherPrograms => {
                // Attached again once the workers have returned the queues; the kernel serves until then.
                self.detach(Detached::OtherPrograms, actions);
                self.fast.due = true;
            }
            Outcome::Nothing => self.detach(Detached::NothingClaimed, actions),
            _ => {}
        }
        self.reload_step(Step::Switching, Action::Switch, actions);
    }

    fn switched(&mut self, now: Instant, outcome: &Outcome, actions: &mut Vec<Action>) {
        if let Outcome::Leaving { parts, workers } = outcome {
            self.expect_to_leave(now, parts, *workers);
        }
        self.fail_taker(now, TakerFailure::Outdated, actions);
        self.stand_in_serves = false;
        actions.extend([Action::DismissStandbys, Action::RenewStandIn, Action::Reregister]);
        self.stand_in(actions);
        self.finish_reload(true, actions);
    }

    fn finish_reload(&mut self, done: bool, actions: &mut Vec<Action>) {
        if let Phase::Reloading(Reload { taker, .. }) = self.phase {
            self.phase = Phase::Serving(taker);
            actions.extend([Action::WatchSockets, Action::FinishReload { done }]);
        }
    }
}
