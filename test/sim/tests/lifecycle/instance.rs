//! The model of an instance: it carries out the actions of its machine, each after a while, on the modelled kernel.

use std::collections::{BTreeSet, VecDeque};

use twinpath_lifecycle::{
    Action, Detached, Event, Lifecycle, Limits, Origin, Outcome, Phase, Start, Step, TakerFailure,
};
use twinpath_time::{Duration, Instant};

use crate::kernel::{Holder, Port, Who};
use crate::world::{Answer, LinkKind, Task, World};

/// Workers of an instance.
pub(crate) const WORKERS: usize = 2;

pub(crate) const LIMITS: Limits =
    Limits { drain: Duration::from_secs(4), take_over_patience: Duration::from_secs(8) };

/// How long a new instance waits for the answer to a step.
pub(crate) const STEP_PATIENCE: Duration = Duration::from_secs(20);

/// An instance.
pub(crate) struct Instance {
    pub(crate) who: Who,
    pub(crate) machine: Lifecycle,
    pub(crate) origin: Origin,
    /// The connection to the instance that its sockets come from.
    pub(crate) former: Option<usize>,
    /// Whether its process exists.
    pub(crate) is_alive: bool,
    /// Whether its process is stopped by a signal.
    pub(crate) is_stopped: bool,
    /// Whether it was ever stopped.
    pub(crate) was_stopped: bool,
    /// Whether a user has asked it to end.
    pub(crate) was_told_to_end: bool,
    /// Events that wait, each with the connection that it is about.
    pub(crate) inbox: VecDeque<(Event, Option<usize>)>,
    pub(crate) actions: VecDeque<Action>,
    /// Set while an action is carried out.
    pub(crate) is_busy: bool,
    /// Counts what it waits for, so that what comes late is ignored.
    pub(crate) wait: u32,
    /// The connection that the present event is about.
    pub(crate) asking: Option<usize>,
    /// The index of the interface, as it knows it.
    pub(crate) generation: u32,
    pub(crate) plan: BTreeSet<Port>,
    former_plan: BTreeSet<Port>,
    staged: BTreeSet<Port>,
    /// The ports whose claimed frames its workers serve.
    pub(crate) workers: BTreeSet<Port>,
    /// Ports of removed services that have connections on the fast path yet: they stay claimed.
    pub(crate) kept: BTreeSet<Port>,
    /// The ports whose sockets its workers serve.
    pub(crate) listening: BTreeSet<Port>,
    pub(crate) has_workers: bool,
    pub(crate) stuck_since: Option<Instant>,
    pub(crate) stand_in_serves: bool,
    pub(crate) is_registered: bool,
    /// Queues that workers return once they turn, and events that they owe for a drain.
    pub(crate) owed: Vec<Event>,
    pub(crate) drain_ends_by: Option<Instant>,
    /// Whether it was left on the kernel path, because no other one was to be had.
    pub(crate) has_no_path: bool,
    /// Services that nobody ends until they are cut.
    lingering: Vec<Event>,
    /// What it, as a standby, has said of the first instance.
    pub(crate) said_stuck: bool,
    pub(crate) watches: bool,
}

impl Instance {
    pub(crate) fn new(who: Who, origin: Origin, plan: BTreeSet<Port>, falls_back: bool) -> Self {
        Self {
            who,
            machine: Lifecycle::new(origin, LIMITS, falls_back),
            origin,
            former: None,
            is_alive: true,
            is_stopped: false,
            was_stopped: false,
            was_told_to_end: false,
            inbox: VecDeque::from([(Event::Start, None)]),
            actions: VecDeque::new(),
            is_busy: false,
            wait: 0,
            asking: None,
            generation: 0,
            former_plan: BTreeSet::new(),
            staged: BTreeSet::new(),
            plan,
            workers: BTreeSet::new(),
            kept: BTreeSet::new(),
            listening: BTreeSet::new(),
            has_workers: false,
            stuck_since: None,
            stand_in_serves: false,
            is_registered: false,
            owed: Vec::new(),
            drain_ends_by: None,
            has_no_path: false,
            lingering: Vec::new(),
            said_stuck: false,
            watches: false,
        }
    }

    /// Whether it runs.
    pub(crate) const fn runs(&self) -> bool {
        self.is_alive && !self.is_stopped
    }

    /// Whether it serves as an ordinary instance, and nothing is under way.
    pub(crate) fn serves(&self) -> bool {
        self.runs()
            && self.actions.is_empty()
            && !self.is_busy
            && matches!(self.machine.phase(), Phase::Serving(_))
    }

    /// Whether it has ended in order, and all that this takes is done.
    pub(crate) fn has_ended(&self) -> bool {
        self.machine.is_ended() && self.actions.is_empty() && !self.is_busy
    }
}

impl World {
    /// Carries out an action, after the time that it takes.
    pub(crate) fn carry_out(&mut self, who: Who, action: Action) {
        let outcome = match action {
            Action::HoldPorts
            | Action::Say(_)
            | Action::Confirm
            | Action::StartWorkers { .. }
            | Action::NextPath
            | Action::AwaitSteering
            | Action::Begin => self.carry_out_start(who, action),
            Action::ChoosePath | Action::Attach | Action::Detach(_) => self.carry_out_fast_path(who, action),
            Action::ReadConfiguration
            | Action::Stage
            | Action::Prepare
            | Action::Adopt
            | Action::Restore
            | Action::ChangeClaims
            | Action::Switch
            | Action::Undo => self.carry_out_reload(who, action),
            Action::GiveSockets(_)
            | Action::RefuseSockets(_)
            | Action::Agree(_)
            | Action::GiveUp(..)
            | Action::GiveStandby
            | Action::RefuseStandby(_)
            | Action::NoTaker
            | Action::DismissStandbys
            | Action::CloseStandbys => self.carry_out_for_others(who, action),
            _ => self.carry_out_rest(who, action),
        };
        if let Some(outcome) = outcome {
            self.tell_outcome(who, outcome);
        }
    }

    fn carry_out_start(&mut self, who: Who, action: Action) -> Option<Outcome> {
        match action {
            Action::HoldPorts => return self.hold_ports(who),
            Action::Say(step) => return self.say(who, step),
            Action::Confirm => {
                let link = &mut self.links[self.instances[who].former.unwrap()];
                let is_refused = link.answers.contains(&Answer::Refused);
                self.seen.not_confirmed += u64::from(is_refused);
                return Some(if is_refused { Outcome::Failed } else { Outcome::Done });
            }
            Action::StartWorkers { .. } | Action::Begin if self.rng.chance(3) => {
                return Some(Outcome::Failed);
            }
            Action::StartWorkers { waits } => {
                let instance = &mut self.instances[who];
                instance.has_workers = true;
                instance.workers = instance.plan.clone();
                instance.listening = if waits { BTreeSet::new() } else { instance.plan.clone() };
                for port in instance.plan.clone() {
                    self.kernel.hold(port, who, Holder::Workers);
                }
            }
            Action::Begin => {
                let instance = &mut self.instances[who];
                instance.listening = instance.plan.clone();
            }
            Action::NextPath if self.rng.chance(20) => return Some(Outcome::Failed),
            _ => {}
        }
        Some(Outcome::Done)
    }

    /// Binds the ports, or asks another instance for its sockets.
    fn hold_ports(&mut self, who: Who) -> Option<Outcome> {
        self.instances[who].generation = self.kernel.generation;
        if !self.kernel.present {
            return Some(Outcome::Failed);
        }
        if let Some(link) = self.instances[who].former {
            let former = self.links[link].former;
            if !self.instances[former].is_alive || self.instances[former].has_ended() {
                return Some(Outcome::Failed);
            }
            let event = match self.links[link].kind {
                LinkKind::TakeOver(_) => Event::SocketsAsked,
                LinkKind::StandBy => Event::StandbyAsked { others: self.standbys_of(former).len() },
            };
            self.links[link].is_open_here = true;
            self.links[link].is_open_there = true;
            let delay = self.message_delay();
            self.after(delay, Task::Deliver(former, event, Some(link)));
            self.wait_for_answer(who, STEP_PATIENCE);
            return None;
        }
        let plan = self.instances[who].plan.clone();
        if plan.iter().any(|port| self.kernel.is_bound(*port)) || self.rng.chance(2) {
            return Some(Outcome::Failed);
        }
        plan.into_iter().for_each(|port| self.kernel.hold(port, who, Holder::Control));
        Some(Outcome::Done)
    }

    /// Tells the former instance a step, and waits for its answer.
    fn say(&mut self, who: Who, step: Step) -> Option<Outcome> {
        let link = self.instances[who].former.unwrap();
        let (former, kind) = (self.links[link].former, self.links[link].kind);
        let LinkKind::TakeOver(taker) = kind else { panic!("a standby says nothing") };
        if let Some(outcome) = self.answer(who) {
            return Some(outcome);
        }
        let delay = self.message_delay();
        self.after(delay, Task::Deliver(former, Event::Heard(taker, step), Some(link)));
        self.wait_for_answer(who, STEP_PATIENCE);
        None
    }

    /// The answer that has come to a new instance, if one has.
    pub(crate) fn answer(&mut self, who: Who) -> Option<Outcome> {
        let link = &mut self.links[self.instances[who].former?];
        match link.answers.pop_front() {
            Some(Answer::Agreed) => Some(Outcome::Done),
            Some(Answer::Refused) => Some(Outcome::Failed),
            // The end of the connection means that the former instance has ended.
            None if link.has_ended() => {
                let has_sockets = self.instances[who].plan.iter().any(|port| self.kernel.is_bound(*port));
                Some(if has_sockets { Outcome::Done } else { Outcome::Failed })
            }
            None => None,
        }
    }

    fn carry_out_fast_path(&mut self, who: Who, action: Action) -> Option<Outcome> {
        match action {
            Action::ChoosePath if self.rng.chance(5) => {
                self.instances[who].has_no_path = true;
                Some(Outcome::Nothing)
            }
            Action::Attach => {
                let outcome = self.attach(who);
                self.instances[who].has_no_path = outcome == Outcome::Failed;
                Some(outcome)
            }
            Action::Detach(why) => {
                if why != Detached::InterfaceGone {
                    self.seen.detached += 1;
                }
                self.kernel.detach(who);
                self.owe(who, Event::QueuesReturned);
                None
            }
            _ => Some(Outcome::Done),
        }
    }

    fn attach(&mut self, who: Who) -> Outcome {
        let ports = self.claims_of(who);
        let instance = &self.instances[who];
        if !self.kernel.present || instance.generation != self.kernel.generation || ports.is_empty() {
            return Outcome::Nothing;
        }
        if self.kernel.bypassed {
            return Outcome::Withheld;
        }
        let is_taken = self.is_exclusive && !self.kernel.programs.is_empty();
        if is_taken || self.rng.chance(10) {
            return Outcome::Failed;
        }
        self.seen.attached += 1;
        self.kernel.programs.push(crate::kernel::Program { owner: who, ports });
        Outcome::Done
    }

    fn carry_out_reload(&mut self, who: Who, action: Action) -> Option<Outcome> {
        let fails = self.rng.chance(8);
        match action {
            Action::ReadConfiguration if fails => return Some(Outcome::Failed),
            Action::ReadConfiguration => {
                let plan = self.random_plan();
                let instance = &mut self.instances[who];
                if plan == instance.plan {
                    return Some(Outcome::Nothing);
                }
                instance.staged = plan;
            }
            Action::Stage => {
                let instance = &self.instances[who];
                let fresh: Vec<_> = instance.staged.difference(&instance.plan).copied().collect();
                if fails || fresh.iter().any(|port| self.kernel.is_bound(*port)) {
                    return Some(Outcome::Failed);
                }
                fresh.into_iter().for_each(|port| self.kernel.hold(port, who, Holder::Staged));
            }
            Action::Prepare => {
                let instance = &mut self.instances[who];
                instance.workers.extend(instance.staged.clone());
                if fails {
                    return Some(Outcome::Failed);
                }
            }
            Action::Adopt => {
                let instance = &mut self.instances[who];
                instance.former_plan = std::mem::replace(&mut instance.plan, instance.staged.clone());
                for port in instance.former_plan.difference(&instance.plan) {
                    if self.rng.chance(40) {
                        instance.kept.insert(*port);
                    }
                }
                return None;
            }
            Action::Restore => {
                let instance = &mut self.instances[who];
                instance.plan = std::mem::take(&mut instance.former_plan);
                return None;
            }
            Action::ChangeClaims => return Some(self.change_claims(who, fails)),
            Action::Switch => return Some(self.switch(who)),
            Action::Undo => return Some(self.undo(who)),
            _ => {}
        }
        Some(Outcome::Done)
    }

    fn change_claims(&mut self, who: Who, fails: bool) -> Outcome {
        let claims = self.claims_of(who);
        if claims.is_empty() {
            return Outcome::Nothing;
        }
        if self.kernel.bypassed {
            return Outcome::Withheld;
        }
        if self.rng.chance(10) {
            return Outcome::OtherPrograms;
        }
        if fails {
            return Outcome::Failed;
        }
        self.kernel
            .programs
            .iter_mut()
            .filter(|program| program.owner == who)
            .for_each(|it| it.ports.clone_from(&claims));
        Outcome::Done
    }

    fn switch(&mut self, who: Who) -> Outcome {
        self.seen.reloaded += 1;
        let instance = &mut self.instances[who];
        let removed: Vec<_> = instance.former_plan.difference(&instance.plan).copied().collect();
        let plan = instance.plan.clone();
        (instance.workers, instance.listening) = (&plan | &instance.kept, plan.clone());
        self.kernel.let_go(|port, holder, kind| {
            holder == who && (kind == Holder::Staged || kind == Holder::Control && removed.contains(&port))
        });
        for port in plan {
            self.kernel.hold(port, who, Holder::Control);
            self.kernel.hold(port, who, Holder::Workers);
        }
        self.parts_leave(who, removed)
    }

    fn undo(&mut self, who: Who) -> Outcome {
        self.seen.undone += 1;
        let instance = &mut self.instances[who];
        let fresh: Vec<_> = instance.staged.difference(&instance.plan).copied().collect();
        instance.workers = &instance.plan | &instance.kept;
        self.kernel.let_go(|_, holder, kind| holder == who && kind == Holder::Staged);
        for port in &fresh {
            self.kernel.hold(*port, who, Holder::Workers);
        }
        self.parts_leave(who, fresh)
    }

    /// Services leave the workers: some at once, some when they are cut.
    fn parts_leave(&mut self, who: Who, parts: Vec<Port>) -> Outcome {
        for part in &parts {
            for _ in 0..WORKERS {
                match self.rng.chance(30) {
                    true => self.instances[who].lingering.push(Event::Left(*part)),
                    false => self.owe(who, Event::Left(*part)),
                }
            }
        }
        Outcome::Leaving { parts, workers: WORKERS }
    }

    fn carry_out_for_others(&mut self, who: Who, action: Action) -> Option<Outcome> {
        let asking = self.instances[who].asking;
        match action {
            Action::GiveSockets(id) => {
                let link = asking.unwrap();
                self.links[link].kind = LinkKind::TakeOver(id);
                if !self.links[link].is_open_here || self.rng.chance(3) {
                    self.answer_over(link, Answer::Refused);
                    return Some(Outcome::Failed);
                }
                self.give(link);
                for standby in self.standbys_of(who) {
                    self.links[standby].has_taker = true;
                }
                return Some(Outcome::Done);
            }
            Action::GiveStandby => {
                self.give(asking.unwrap());
                self.introduce_standbys(who);
            }
            Action::RefuseSockets(_) | Action::RefuseStandby(_) => {
                self.answer_over(asking.unwrap(), Answer::Refused);
                self.close_there(asking.unwrap());
            }
            Action::Agree(id) => {
                if let Some(link) = self.link_of_taker(who, id) {
                    self.answer_over(link, Answer::Agreed);
                }
            }
            Action::GiveUp(id, why) => {
                self.seen.gave_up += 1;
                self.seen.late += u64::from(why == TakerFailure::Late);
                if let Some(link) = self.link_of_taker(who, id) {
                    self.answer_over(link, Answer::Refused);
                }
            }
            Action::NoTaker => {
                for link in self.standbys_of(who) {
                    self.links[link].has_taker = false;
                }
            }
            Action::CloseStandbys | Action::DismissStandbys => {
                for link in self.standbys_of(who) {
                    self.links[link].is_outdated = action == Action::DismissStandbys;
                    self.close_there(link);
                }
            }
            _ => {}
        }
        None
    }

    /// Another instance gets the sockets of the first one's plan.
    fn give(&mut self, link: usize) {
        let (new, former) = (self.links[link].new, self.links[link].former);
        let receives = self.instances[new].is_busy
            && matches!(self.instances[new].machine.phase(), Phase::Starting(Start::Holding));
        if !self.links[link].is_open_here || !self.instances[new].is_alive || !receives {
            return;
        }
        let plan = self.instances[former].plan.clone();
        for port in &plan {
            self.kernel.hold(*port, new, Holder::Control);
        }
        self.instances[new].plan = plan;
        self.answer_over(link, Answer::Agreed);
    }

    fn carry_out_rest(&mut self, who: Who, action: Action) -> Option<Outcome> {
        let instance = &mut self.instances[who];
        match action {
            Action::Register => instance.is_registered = true,
            Action::Unregister | Action::LeaveRegistrations => instance.is_registered = false,
            Action::WatchFirst => {
                instance.watches = true;
                self.after(Duration::from_millis(20), Task::Watch(who));
            }
            Action::ServeSockets(serves) => {
                self.seen.stood_in += u64::from(serves);
                instance.listening = if serves { instance.plan.clone() } else { BTreeSet::new() };
            }
            Action::StandIn(serves) => {
                self.seen.stand_in += u64::from(serves);
                instance.stand_in_serves = serves;
            }
            Action::RenewStandIn => instance.stand_in_serves = false,
            Action::Drain { handed_over } => return Some(self.drain(who, handed_over)),
            Action::Cut => {
                for event in std::mem::take(&mut instance.lingering) {
                    self.owe(who, event);
                }
            }
            Action::CutService(part) => {
                let cut: Vec<_> =
                    instance.lingering.extract_if(.., |event| *event == Event::Left(part)).collect();
                cut.into_iter().for_each(|event| self.owe(who, event));
            }
            Action::StopWorkers { .. } => {
                instance.has_workers = false;
                instance.workers.clear();
                instance.listening.clear();
                instance.owed.clear();
                self.kernel.let_go(|_, holder, kind| holder == who && kind == Holder::Workers);
            }
            Action::LetGo => self.kernel.let_go(|_, holder, kind| holder == who && kind == Holder::Control),
            Action::Disconnect => self.disconnect(who),
            _ => {}
        }
        None
    }

    fn drain(&mut self, who: Who, handed_over: bool) -> Outcome {
        let instance = &mut self.instances[who];
        if handed_over {
            instance.listening.clear();
        }
        let services = instance.plan.len() * WORKERS;
        for _ in 0..WORKERS {
            self.owe(who, Event::ListenersClosed);
        }
        for _ in 0..services {
            match self.rng.chance(20) {
                true => self.instances[who].lingering.push(Event::ServiceDrained),
                false => self.owe(who, Event::ServiceDrained),
            }
        }
        Outcome::Draining { services, listening: WORKERS }
    }

    /// Workers send this event soon or, if they are stuck, once they turn.
    pub(crate) fn owe(&mut self, who: Who, event: Event) {
        let instance = &mut self.instances[who];
        if instance.stuck_since.is_some() {
            instance.owed.push(event);
        } else {
            let delay = Duration::from_micros(self.rng.below(30_000));
            self.after(delay, Task::FromWorkers(who, event));
        }
    }
}
