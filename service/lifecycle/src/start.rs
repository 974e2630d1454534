//! The start. Every step that fails undoes all of them.

use crate::action::{Action, Detached};
use crate::event::{Outcome, Step};
use crate::{Awaited, Lifecycle, Origin, Phase};

/// The step of the start that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Holds the ports.
    Holding,
    /// The former instance detaches its programs.
    FormerAside,
    /// Chooses the path and starts the workers.
    Workers,
    /// Makes sure that the former instance still waits for this one.
    Confirming,
    /// Attaches to the chosen path.
    Attaching,
    /// Chooses the next best path.
    NextPath,
    /// The workers take their queues.
    Steering,
    /// The workers begin with what waits in the sockets of the former instance.
    Beginning,
    /// The former instance stops to serve.
    FormerEnds,
}

impl Lifecycle {
    pub(crate) fn start(&mut self, actions: &mut Vec<Action>) {
        self.step(Start::Holding, Action::HoldPorts, actions);
    }

    fn step(&mut self, step: Start, action: Action, actions: &mut Vec<Action>) {
        self.phase = Phase::Starting(step);
        self.ask(action, Awaited::Start, actions);
    }

    pub(crate) fn start_continues(&mut self, step: Start, outcome: &Outcome, actions: &mut Vec<Action>) {
        let takes_over = self.origin == Origin::TakesOver;
        let waits = self.origin != Origin::Fresh;
        match (step, outcome) {
            (Start::Holding, Outcome::Done) if takes_over => {
                self.step(Start::FormerAside, Action::Say(Step::Aside), actions);
            }
            (Start::Holding | Start::FormerAside, Outcome::Done) => {
                self.step(Start::Workers, Action::StartWorkers { waits }, actions);
            }
            (Start::Workers, Outcome::Done) if self.origin == Origin::StandsBy => {
                self.stand_by(actions);
            }
            // The former instance attaches its own programs some time after it has given this one up.
            (Start::Workers | Start::NextPath, Outcome::Done) if takes_over => {
                self.step(Start::Confirming, Action::Confirm, actions);
            }
            (Start::Workers | Start::NextPath | Start::Confirming, Outcome::Done) => {
                self.step(Start::Attaching, Action::Attach, actions);
            }
            (Start::Attaching, outcome) => {
                self.attached(outcome);
                match outcome {
                    Outcome::Failed if self.tries_next_path => {
                        self.step(Start::NextPath, Action::NextPath, actions);
                    }
                    Outcome::Failed => self.start_fails(step, actions),
                    Outcome::Done => self.step(Start::Steering, Action::AwaitSteering, actions),
                    _ => self.begin(actions),
                }
            }
            (Start::Steering, _) => self.begin(actions),
            (Start::Beginning, Outcome::Done) => {
                self.step(Start::FormerEnds, Action::Say(Step::Serving), actions);
            }
            // The message has been sent. When the former instance goes on, it hears of it first, and drains: if this
            // instance gave up now, nobody would serve then.
            (Start::FormerEnds, Outcome::Done | Outcome::Silence) => self.serve(actions),
            _ => self.start_fails(step, actions),
        }
    }

    fn begin(&mut self, actions: &mut Vec<Action>) {
        if self.origin == Origin::TakesOver {
            self.step(Start::Beginning, Action::Begin, actions);
        } else {
            self.serve(actions);
        }
    }

    fn serve(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Serving(None);
        actions.extend([Action::Register, Action::WatchSockets]);
    }

    /// Undoes the start. The former instance is told last, by the end of the connection, because it attaches its own
    /// programs then.
    fn start_fails(&mut self, step: Start, actions: &mut Vec<Action>) {
        self.detach(Detached::Ending, actions);
        if !matches!(step, Start::Holding | Start::FormerAside) {
            actions.push(Action::StopWorkers { patient: true });
        }
        actions.extend([Action::LetGo, Action::Disconnect]);
        self.phase = Phase::Ended;
    }
}
