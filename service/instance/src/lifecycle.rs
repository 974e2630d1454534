//! Carries out what the phases of the instance decide. `service/lifecycle` says what is done when; here is how.

use twinpath_config::Path;
use twinpath_lifecycle::{Action, Detached, Event, Limits, Outcome, Refusal};
use twinpath_serve::ServeCommand;
use twinpath_sys::clock;
use twinpath_time::Duration;

use super::{Instance, InstanceError};
use crate::hold::{Held, HoldError};
use crate::plan::Plan;
use crate::rpcbind::Registered;

/// How long another instance waits at most for connections that move to the kernel, beside queues. A worker moves some ten
/// thousand in a second. Those whose address is gone do not move.
const MOVES_PATIENCE: Duration = Duration::from_secs(5);

/// The time limits of a plan.
pub(super) const fn limits_of(plan: &Plan) -> Limits {
    Limits { drain: plan.drain, take_over_patience: plan.take_over_patience }
}

impl Instance {
    /// Handles an event, and those that come meanwhile.
    pub(super) async fn on(&mut self, event: Event) {
        self.events.push_back(event);
        self.handle_events().await;
    }

    /// Handles the events that have come while something else was carried out.
    pub(super) async fn handle_events(&mut self) {
        loop {
            while let Some(event) = self.events.pop_front() {
                self.handle(event).await;
            }
            self.drop_leaving_claims();
            if self.events.is_empty() {
                break;
            }
        }
    }

    /// Handles an event: carries out what follows, up to the last outcome.
    pub(super) async fn handle(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            for action in self.lifecycle.handle(clock::now(), event) {
                next = self.carry_out(action).await.map(Event::Outcome);
            }
        }
    }

    async fn carry_out(&mut self, action: Action) -> Option<Outcome> {
        match action {
            // These were carried out before there was an instance.
            Action::HoldPorts | Action::StartWorkers { .. } => return Some(Outcome::Failed),
            Action::Say(step) => {
                let answer = self.former.say(step);
                self.former.over(matches!(answer, Ok(true)));
                return Some(self.say(answer));
            }
            Action::Confirm => return Some(self.say(self.former.confirm().map(|()| true))),
            Action::NextPath => return Some(self.next_path()),
            Action::AwaitSteering => {
                self.wait_until_steered();
                return Some(Outcome::Done);
            }
            Action::Begin => return Some(self.begin_with_sockets()),
            Action::Register => self.registered = Registered::set(&self.plan.registrations()).await,
            Action::WatchFirst => {
                (self.interface.choice.path, self.interface.choice.why) = (Path::Kernel, self.standing_by());
                self.watch_first();
            }
            Action::WatchSockets => self.watch_sockets(),
            Action::ChoosePath => {
                let outcome = self.choose_anew();
                return Some(self.without_path(outcome));
            }
            Action::Attach => {
                let outcome = self.attach_to_path().await;
                return Some(self.without_path(outcome));
            }
            Action::Detach(why) => self.detach_because(why),
            Action::ReleaseFrames => self.interface.frame_claims.clear(),
            Action::StandIn(serves) => {
                self.stand_in.iter_mut().for_each(|stand_in| stand_in.serve_if(serves))
            }
            Action::ServeSockets(serves) => self.serve_sockets(serves),
            Action::GiveSockets(_)
            | Action::RefuseSockets(_)
            | Action::Agree(_)
            | Action::GiveUp(..)
            | Action::LeaveRegistrations
            | Action::GiveStandby
            | Action::RefuseStandby(_)
            | Action::NoTaker
            | Action::DismissStandbys
            | Action::CloseStandbys => return self.answer_others(action),
            Action::RefuseReload(_)
            | Action::ReadConfiguration
            | Action::Stage
            | Action::Prepare
            | Action::Adopt
            | Action::Restore
            | Action::ChangeClaims
            | Action::Switch
            | Action::Undo
            | Action::RenewStandIn
            | Action::Reregister
            | Action::FinishReload { .. } => return self.carry_out_reload(action).await,
            Action::Drain { .. }
            | Action::Cut
            | Action::CutService(_)
            | Action::TellEnd
            | Action::Unregister
            | Action::StopWorkers { .. }
            | Action::LetGo
            | Action::Disconnect => return self.carry_out_end(action).await,
        }
        None
    }

    /// Notes how the former instance has answered.
    fn say(&mut self, answer: Result<bool, HoldError>) -> Outcome {
        match answer {
            Ok(true) => Outcome::Done,
            Ok(false) => {
                let from = self.plan.take_over.clone().unwrap_or_default();
                let why = "it does not answer".to_owned();
                self.error = Some(HoldError::TakeOver { from, why }.into());
                Outcome::Silence
            }
            Err(error) => self.failed(error.into()),
        }
    }

    /// Notes why an action of the start failed.
    pub(super) fn failed(&mut self, error: InstanceError) -> Outcome {
        self.error = Some(error);
        Outcome::Failed
    }

    fn detach_because(&mut self, why: Detached) {
        if why == Detached::Ending {
            (self.interface.attachment, self.interface.stuck_said) = (None, None);
            return;
        }
        let awaits = why == Detached::TakenOver && self.interface.attachment.is_none();
        // Half of what the other one allows is left for the rest: it may wait in vain.
        let patience = MOVES_PATIENCE.min(self.plan.take_over_patience / 2);
        self.moves_awaited = awaits.then(|| clock::now() + patience);
        if let Some(ifindex) = self.interface.ifindex {
            self.detach(ifindex, !why.is_brief());
        }
        if why == Detached::TakenOver {
            self.interface.choice.path = Path::Kernel;
            "another instance is taking over".clone_into(&mut self.interface.choice.why);
        }
    }

    fn answer_others(&mut self, action: Action) -> Option<Outcome> {
        match action {
            Action::GiveSockets(id) => return Some(self.give_sockets(id)),
            Action::RefuseSockets(refusal) => self.refuse_sockets(refusal),
            Action::Agree(id) => self.agree(id),
            Action::GiveUp(id, failure) => self.give_up(id, failure),
            Action::LeaveRegistrations => self.leave_registrations(),
            Action::GiveStandby => self.give_standby(),
            Action::RefuseStandby(refusal) => self.refuse_standby(refusal),
            Action::NoTaker => self.no_taker(),
            Action::DismissStandbys => self.close_standbys(true),
            _ => self.close_standbys(false),
        }
        None
    }

    async fn carry_out_reload(&mut self, action: Action) -> Option<Outcome> {
        match action {
            Action::RefuseReload(refusal) => {
                self.reloads.outcome = Some(Err(match refusal {
                    Refusal::StandingBy => {
                        format!("it is {}: reload that one, and start this one again", self.standing_by())
                    }
                    Refusal::BeingTakenOver => {
                        "another instance is taking over: reload that one once it serves".to_owned()
                    }
                    Refusal::TakenOver | Refusal::Stopping | Refusal::TooManyStandbys => {
                        "the instance is stopping".to_owned()
                    }
                }));
            }
            Action::ReadConfiguration => return Some(self.read_configuration()),
            Action::Stage => return Some(self.stage().await),
            Action::Prepare => return Some(self.prepare()),
            Action::Adopt => self.adopt(),
            Action::Restore => self.restore(),
            Action::ChangeClaims => return Some(self.change_claims()),
            Action::Switch => return Some(self.switch()),
            Action::Undo => return Some(self.undo()),
            Action::RenewStandIn => self.renew_stand_in_of_change(),
            Action::Reregister => self.register_anew().await,
            _ => self.finish_reload(action == Action::FinishReload { done: true }),
        }
        None
    }

    async fn carry_out_end(&mut self, action: Action) -> Option<Outcome> {
        match action {
            Action::Drain { handed_over } => return Some(self.begin_to_drain(handed_over)),
            Action::Cut => self.cut(),
            Action::CutService(part) => self.cut_service(part),
            Action::TellEnd => self.cut_off = self.tell_the_end(),
            // The services are unregistered before they end, so that rpcbind sends no client here any more.
            Action::Unregister => std::mem::take(&mut self.registered).unset().await,
            Action::StopWorkers { patient } => self.stop_workers(patient),
            Action::LetGo => {
                self.held.iter_mut().for_each(Held::let_go);
                self.unserved = None;
            }
            _ => {
                self.takers = Default::default();
                self.close_standbys(false);
                self.former = Default::default();
            }
        }
        None
    }

    /// Closes the connections that are left of the removed service that is this part.
    fn cut_service(&mut self, part: usize) {
        use twinpath_serve::DemuxCommand;
        use twinpath_worker::Command;
        for worker in &mut self.workers {
            worker.tell(Command::Engine(DemuxCommand::One(part, ServeCommand::Cut)));
        }
    }
}
