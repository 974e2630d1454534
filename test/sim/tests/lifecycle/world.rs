//! The simulated host: instances, the connections between them, and what happens next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use twinpath_lifecycle::{Action, CUT_MAX, Event, First, Origin, Outcome, Phase, Refusal, TakerId};
use twinpath_time::{Duration, Instant};

use crate::instance::Instance;
use crate::kernel::{Holder, Kernel, Port, Who};

/// Ports that there are. The last one has the kernel path only, as those of TCP have: it is never claimed.
const PORTS: usize = 3;

/// How long users and faults act.
const ACTIVE: Duration = Duration::from_secs(40);

/// How long everything may take to settle then: each answer that was lost has been given up.
const QUIET: Duration = Duration::from_secs(60);

/// How long all instances may take to end.
const END: Duration = Duration::from_secs(30);

/// How long a drain may take beyond its limit: to cut, and to carry out what is under way.
const DRAIN_PATIENCE: Duration = Duration::from_secs(4);

/// Random numbers from the seed.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit)
    }

    /// True in this percentage of calls.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum Task {
    /// An instance takes its next event or action.
    Turn(Who),
    /// A message arrives at an instance, over a connection.
    Deliver(Who, Event, Option<usize>),
    /// An answer arrives at a new instance.
    Answered(usize, Answer),
    /// A new instance has waited for an answer for too long.
    Silence(Who, u32),
    /// The workers of an instance send an event.
    FromWorkers(Who, Event),
    /// A standby looks at the first instance.
    Watch(Who),
    /// The process of an instance that has ended exits.
    Exit(Who),
    /// A user or a fault acts.
    Act,
}

/// An answer of a former instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Agreed,
    Refused,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    TakeOver(TakerId),
    StandBy,
}

/// A connection of a new instance, or a standby, to a running one.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) new: Who,
    pub(crate) former: Who,
    pub(crate) kind: LinkKind,
    /// Whether the new instance's end is open.
    pub(crate) is_open_here: bool,
    /// Whether the running instance's end is open.
    pub(crate) is_open_there: bool,
    pub(crate) answers: VecDeque<Answer>,
    /// Answers that have not arrived yet.
    pub(crate) in_flight: usize,
    /// Whether nothing comes from the running instance any more.
    pub(crate) is_mute: bool,
    /// Whether a new instance has the sockets, too, as a standby was told.
    pub(crate) has_taker: bool,
    /// Whether a standby was told that the sockets may have changed.
    pub(crate) is_outdated: bool,
    /// The standbys of the same instance that a standby was told of.
    pub(crate) known: BTreeSet<Who>,
}

impl Link {
    /// Whether a new instance that reads finds the end of the connection.
    pub(crate) const fn has_ended(&self) -> bool {
        !self.is_open_there && !self.is_mute && self.in_flight == 0
    }
}

/// How often the simulation has reached something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) steps: u64,
    pub(crate) attached: u64,
    pub(crate) detached: u64,
    pub(crate) taken_over: u64,
    pub(crate) gave_up: u64,
    pub(crate) late: u64,
    pub(crate) not_confirmed: u64,
    pub(crate) lost_answers: u64,
    pub(crate) stood_in: u64,
    pub(crate) stand_in: u64,
    pub(crate) reloaded: u64,
    pub(crate) undone: u64,
    pub(crate) drained: u64,
    pub(crate) crashed: u64,
    pub(crate) flaps: u64,
    pub(crate) nothing_claimed: u64,
}

impl Seen {
    fn all(&mut self) -> [(&'static str, &mut u64); 16] {
        [
            ("steps", &mut self.steps),
            ("attached", &mut self.attached),
            ("detached", &mut self.detached),
            ("taken over", &mut self.taken_over),
            ("gave up", &mut self.gave_up),
            ("late", &mut self.late),
            ("not confirmed", &mut self.not_confirmed),
            ("lost answers", &mut self.lost_answers),
            ("stood in", &mut self.stood_in),
            ("stand-in", &mut self.stand_in),
            ("reloaded", &mut self.reloaded),
            ("undone", &mut self.undone),
            ("drained", &mut self.drained),
            ("crashed", &mut self.crashed),
            ("flaps", &mut self.flaps),
            ("nothing claimed", &mut self.nothing_claimed),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for ((_, sum), (_, more)) in self.all().into_iter().zip(other.all()) {
            *sum += *more;
        }
    }

    /// What was reached too rarely to mean anything.
    pub(crate) fn rare(&self) -> Vec<&'static str> {
        let mut seen = *self;
        seen.all().into_iter().filter(|(_, count)| **count < 20).map(|(name, _)| name).collect()
    }
}

/// Everything.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) rng: Random,
    tasks: BTreeMap<(Instant, u64), Task>,
    next_task: u64,
    pub(crate) kernel: Kernel,
    pub(crate) instances: Vec<Instance>,
    pub(crate) links: Vec<Link>,
    /// The instance whose task it is to serve, from when it is ready until another one has taken over, it crashes, or
    /// a user ends it.
    pub(crate) on_duty: Option<Who>,
    /// Whether the interface takes the programs of one instance only, as on the XDP paths.
    pub(crate) is_exclusive: bool,
    /// Whether users and faults still act.
    pub(crate) is_active: bool,
    prints: bool,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64, prints: bool) -> Self {
        let mut rng = Random(fastrand::Rng::with_seed(seed));
        let mut kernel = Kernel::default();
        kernel.add_interface();
        Self {
            now: Instant::ZERO,
            is_exclusive: rng.chance(30),
            rng,
            tasks: BTreeMap::new(),
            next_task: 0,
            kernel,
            instances: Vec::new(),
            links: Vec::new(),
            on_duty: None,
            is_active: true,
            prints,
            seen: Seen::default(),
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// What must hold and did not, and when.
    pub(crate) fn run(mut self) -> Result<Seen, String> {
        self.start(Origin::Fresh, None);
        self.after(Duration::from_millis(50), Task::Act);
        self.run_until(Instant::ZERO + ACTIVE)?;
        self.is_active = false;
        self.calm();
        self.run_until(self.now + QUIET)?;
        self.check(|world| world.has_settled())?;
        for who in 0..self.instances.len() {
            if self.instances[who].is_alive {
                self.instances[who].was_told_to_end = true;
                self.on_duty = self.on_duty.filter(|duty| *duty != who);
                self.tell(who, Event::StopAsked(None), None);
            }
        }
        self.run_until(self.now + END)?;
        self.check(|world| world.has_nothing_left())?;
        Ok(self.seen)
    }

    fn run_until(&mut self, end: Instant) -> Result<(), String> {
        loop {
            let due = self.tasks.first_key_value().map(|((at, _), _)| *at);
            let (deadline, who) = self.next_deadline();
            let next = due.unwrap_or(Instant::NEVER).min(deadline);
            if next > end {
                self.now = end;
                return Ok(());
            }
            self.seen.steps += 1;
            self.now = self.now.max(next);
            if due.is_some_and(|due| due <= deadline) {
                let (_, task) = self.tasks.pop_first().unwrap();
                self.say_step(&task);
                self.happens(task);
            } else if let Some(who) = who {
                self.say_step(&("deadline", who));
                let is_cutting = self.instances[who].machine.drain().is_some_and(|drain| drain.is_cutting);
                if is_cutting && self.rng.chance(50) {
                    self.tell(who, Event::CutGoesOn, None);
                }
                self.tell(who, Event::Deadline, None);
            }
            self.check(|world| world.invariants())?;
        }
    }

    fn say_step(&self, step: &impl std::fmt::Debug) {
        if self.prints {
            println!("{:>10.6} {step:?}", self.now.since(Instant::ZERO).as_secs_f64());
        }
    }

    fn check(&self, rule: impl Fn(&Self) -> Result<(), String>) -> Result<(), String> {
        rule(self).map_err(|why| format!("{why}, at {:.6} s", self.now.since(Instant::ZERO).as_secs_f64()))
    }

    /// The first deadline of an instance that has nothing else to do.
    fn next_deadline(&self) -> (Instant, Option<Who>) {
        let idle = self
            .instances
            .iter()
            .filter(|it| it.runs() && !it.is_busy && it.actions.is_empty() && it.inbox.is_empty());
        let first = idle.map(|it| (it.machine.deadline(), it.who)).min();
        first.map_or((Instant::NEVER, None), |(at, who)| (at, Some(who)))
    }

    pub(crate) fn after(&mut self, delay: Duration, task: Task) {
        self.tasks.insert((self.now + delay, self.next_task), task);
        self.next_task += 1;
    }

    /// The ports of a plan that are claimed.
    pub(crate) fn claims(plan: &BTreeSet<Port>) -> BTreeSet<Port> {
        plan.range(..PORTS - 1).copied().collect()
    }

    /// What an instance claims: also for services that leave.
    pub(crate) fn claims_of(&self, who: Who) -> BTreeSet<Port> {
        let instance = &self.instances[who];
        Self::claims(&(&instance.plan | &instance.kept))
    }

    /// Once every removed service has left, what they had is claimed no more.
    fn drop_kept(&mut self, who: Who) {
        let instance = &mut self.instances[who];
        let is_between = !instance.actions.is_empty()
            || instance.is_busy
            || matches!(instance.inbox.front(), Some((Event::Outcome(_), _)))
            || matches!(instance.machine.phase(), Phase::Reloading(_));
        if is_between || instance.kept.is_empty() || instance.machine.has_leaving() {
            return;
        }
        let (plan, kept) = (instance.plan.clone(), std::mem::take(&mut instance.kept));
        self.kernel.let_go(|port, holder, kind| {
            holder == who && kind == Holder::Workers && kept.contains(&port) && !plan.contains(&port)
        });
        let claims = self.claims_of(who);
        let Some(program) = self.kernel.programs.iter_mut().find(|program| program.owner == who) else {
            return;
        };
        if claims.is_empty() {
            self.seen.nothing_claimed += 1;
            self.instances[who].inbox.push_front((Event::NothingClaimed, None));
        } else {
            program.ports = claims;
        }
    }

    pub(crate) fn random_plan(&mut self) -> BTreeSet<Port> {
        let bits = 1 + self.rng.below((1 << PORTS) - 1);
        (0..PORTS).filter(|port| bits >> port & 1 == 1).collect()
    }

    /// How long a message to a running instance takes. One in some hundred is lost.
    pub(crate) fn message_delay(&mut self) -> Duration {
        if self.is_active && self.rng.chance(2) {
            self.seen.lost_answers += 1;
            return Duration::from_secs(100_000);
        }
        Duration::from_micros(self.rng.below(5_000))
    }

    /// Starts an instance. Its sockets are new, or come from another one.
    pub(crate) fn start(&mut self, origin: Origin, from: Option<Who>) {
        let who = self.instances.len();
        let plan = self.random_plan();
        let mut instance = Instance::new(who, origin, plan, self.rng.chance(50));
        if let Some(former) = from {
            let kind = match origin {
                Origin::StandsBy => LinkKind::StandBy,
                _ => LinkKind::TakeOver(TakerId::MAX),
            };
            instance.former = Some(self.links.len());
            self.links.push(Link {
                new: who,
                former,
                kind,
                is_open_here: false,
                is_open_there: false,
                answers: VecDeque::new(),
                in_flight: 0,
                is_mute: false,
                has_taker: false,
                is_outdated: false,
                known: BTreeSet::new(),
            });
        }
        self.instances.push(instance);
        self.after(Duration::ZERO, Task::Turn(who));
    }

    /// An event comes to an instance.
    pub(crate) fn tell(&mut self, who: Who, event: Event, link: Option<usize>) {
        if self.instances[who].is_alive {
            self.instances[who].inbox.push_back((event, link));
            self.after(Duration::ZERO, Task::Turn(who));
        }
    }

    /// The outcome of the present action.
    pub(crate) fn tell_outcome(&mut self, who: Who, outcome: Outcome) {
        let instance = &mut self.instances[who];
        instance.is_busy = false;
        instance.wait += 1;
        instance.inbox.push_front((Event::Outcome(outcome), None));
        self.after(Duration::ZERO, Task::Turn(who));
    }

    pub(crate) fn wait_for_answer(&mut self, who: Who, patience: Duration) {
        self.instances[who].is_busy = true;
        let wait = self.instances[who].wait;
        self.after(patience, Task::Silence(who, wait));
    }

    fn happens(&mut self, task: Task) {
        match task {
            Task::Turn(who) => self.turn(who),
            Task::Deliver(who, event, link) => self.tell(who, event, link),
            Task::Answered(link, answer) => {
                self.links[link].in_flight -= 1;
                self.links[link].answers.push_back(answer);
                self.look_at_answer(self.links[link].new);
            }
            Task::Silence(who, wait) => {
                let instance = &self.instances[who];
                if instance.is_alive && instance.is_busy && instance.wait == wait {
                    self.tell_outcome(who, Outcome::Silence);
                }
            }
            Task::FromWorkers(who, event) => {
                let instance = &mut self.instances[who];
                if !instance.runs() || instance.stuck_since.is_some() {
                    instance.owed.push(event);
                } else if instance.has_workers {
                    if let Event::Left(part) = event
                        && !instance.plan.contains(&part)
                    {
                        self.part_left(who, part);
                    }
                    self.tell(who, event, None);
                }
            }
            Task::Watch(who) => self.watch(who),
            Task::Exit(who) => self.exit(who),
            Task::Act if self.is_active => {
                self.act();
                let pause = Duration::from_micros(self.rng.below(700_000));
                self.after(pause, Task::Act);
            }
            Task::Act => {}
        }
    }

    /// One turn of an instance: it carries out its next action, or handles its next event.
    fn turn(&mut self, who: Who) {
        let now = self.now;
        let instance = &mut self.instances[who];
        if !instance.runs() || instance.is_busy {
            return;
        }
        if let Some(action) = instance.actions.pop_front() {
            if self.prints {
                println!("           {who} does {action:?}");
            }
            self.carry_out(who, action);
        } else if let Some((event, link)) = instance.inbox.pop_front() {
            if !self.is_worth_telling(who, &event, link) {
                return self.after(Duration::ZERO, Task::Turn(who));
            }
            let event = self.as_of_now(who, event);
            let instance = &mut self.instances[who];
            instance.asking = link.or(instance.asking);
            let before = *instance.machine.phase();
            let actions = instance.machine.handle(now, event);
            instance.actions.extend(actions);
            self.phase_changed(who, &before);
            self.drop_kept(who);
        }
        let instance = &self.instances[who];
        let is_idle = instance.actions.is_empty() && instance.inbox.is_empty();
        if instance.has_ended() && is_idle {
            let delay = Duration::from_micros(self.rng.below(1_500_000));
            self.after(delay, Task::Exit(who));
        } else if !instance.is_busy && !is_idle {
            let delay = self.time_of_action(who);
            self.after(delay, Task::Turn(who));
        }
    }

    /// How long the next action takes. Some take long on a busy machine.
    fn time_of_action(&mut self, who: Who) -> Duration {
        let longest_us = match self.instances[who].actions.front() {
            Some(Action::StartWorkers { .. }) if self.is_active && self.rng.chance(25) => 20_000_000,
            Some(Action::StartWorkers { .. } | Action::Attach | Action::ChoosePath)
                if self.rng.chance(20) =>
            {
                1_800_000
            }
            Some(Action::AwaitSteering | Action::Begin | Action::Prepare) if self.rng.chance(20) => 900_000,
            Some(_) => 3_000,
            None => 1,
        };
        Duration::from_micros(self.rng.below(longest_us))
    }

    /// Whether what waits is still so. A message of a new instance counts only while that is connected.
    fn is_worth_telling(&self, who: Who, event: &Event, link: Option<usize>) -> bool {
        match (event, link) {
            (Event::Heard(..) | Event::SocketsAsked | Event::StandbyAsked { .. }, Some(link)) => {
                self.links[link].is_open_here && !self.instances[who].machine.is_ended()
            }
            (Event::Deadline, _) => self.instances[who].machine.deadline() <= self.now,
            (Event::QueuesReturned, _) => self.instances[who].machine.awaits_queues(),
            _ => true,
        }
    }

    /// The event with what holds when it is handled.
    fn as_of_now(&mut self, who: Who, event: Event) -> Event {
        match event {
            Event::Bypassed(_) => Event::Bypassed(self.kernel.bypassed),
            Event::InterfaceBack => {
                self.instances[who].generation = self.kernel.generation;
                event
            }
            event => event,
        }
    }

    fn phase_changed(&mut self, who: Who, before: &Phase) {
        let after = *self.instances[who].machine.phase();
        let serves = |phase: &Phase| matches!(phase, Phase::Serving(_) | Phase::Reloading(_));
        if serves(&after) && !serves(before) && !self.instances[who].was_told_to_end {
            self.seen.taken_over += u64::from(self.instances[who].origin == Origin::TakesOver);
            self.on_duty = Some(who);
        }
        if let Phase::Draining(drain) = after
            && !drain.is_cutting
        {
            self.instances[who].drain_ends_by = Some(drain.ends_at + CUT_MAX + DRAIN_PATIENCE);
        }
        if matches!(after, Phase::Draining(_)) && serves(before) && self.on_duty == Some(who) {
            self.seen.drained += 1;
            // The new instance, which has said that it serves, is on duty from now on.
            let new = self.instances.iter().find(|it| {
                it.runs()
                    && !it.was_told_to_end
                    && it.former.is_some_and(|link| self.links[link].former == who)
                    && matches!(it.machine.phase(), Phase::Starting(twinpath_lifecycle::Start::FormerEnds))
            });
            self.on_duty = new.map(|it| it.who);
        }
    }

    /// Looks at a connection of a new instance that waits.
    pub(crate) fn look_at_answer(&mut self, new: Who) {
        if !self.instances[new].is_alive || !self.instances[new].is_busy {
            return;
        }
        let is_holding = matches!(
            self.instances[new].machine.phase(),
            Phase::Starting(twinpath_lifecycle::Start::Holding)
        );
        let link = self.instances[new].former.unwrap();
        let has_closed = self.links[link].has_ended() && self.links[link].answers.is_empty();
        if is_holding && has_closed {
            // It has got no sockets.
            self.tell_outcome(new, Outcome::Failed);
        } else if let Some(outcome) = self.answer(new) {
            self.tell_outcome(new, outcome);
        }
    }

    /// A running instance answers over a connection. If an agreement is lost, nothing comes after it, not even the end of
    /// the connection: a connection keeps its order.
    pub(crate) fn answer_over(&mut self, link: usize, answer: Answer) {
        if answer == Answer::Agreed && self.is_active && self.rng.chance(2) {
            self.seen.lost_answers += 1;
            self.links[link].is_mute = true;
        }
        if self.links[link].is_open_there && !self.links[link].is_mute {
            let delay = Duration::from_micros(self.rng.below(5_000));
            self.links[link].in_flight += 1;
            self.after(delay, Task::Answered(link, answer));
        }
    }

    /// The running instance's end of a connection closes.
    pub(crate) fn close_there(&mut self, link: usize) {
        self.links[link].is_open_there = false;
        let new = self.links[link].new;
        match self.links[link].kind {
            LinkKind::StandBy if self.instances[new].watches => {
                self.after(Duration::from_millis(1), Task::Watch(new))
            }
            // What was sent before arrives before the end.
            _ => self.after(Duration::from_millis(6), Task::Watch(new)),
        }
    }

    /// The new instance's end of a connection closes. The running one hears of it when the process has ended, or after
    /// a while.
    fn close_here(&mut self, link: usize) {
        let Link { former, kind, is_open_here, .. } = self.links[link];
        self.links[link].is_open_here = false;
        if let (true, LinkKind::TakeOver(id)) = (is_open_here, kind) {
            let delay = Duration::from_micros(self.rng.below(2_000_000));
            self.after(delay, Task::Deliver(former, Event::TakerGone(id), Some(link)));
        }
    }

    pub(crate) fn link_of_taker(&self, former: Who, id: TakerId) -> Option<usize> {
        self.links.iter().position(|link| link.former == former && link.kind == LinkKind::TakeOver(id))
    }

    /// Open connections of standbys of an instance.
    pub(crate) fn standbys_of(&self, first: Who) -> Vec<usize> {
        let is = |link: &Link| {
            link.former == first && link.kind == LinkKind::StandBy && link.is_open_here && link.is_open_there
        };
        (0..self.links.len()).filter(|link| is(&self.links[*link])).collect()
    }

    /// An instance tells its standbys of each other, and of the new instance that has the sockets.
    pub(crate) fn introduce_standbys(&mut self, first: Who) {
        let has_taker = self.instances[first].machine.taker().is_some();
        let links = self.standbys_of(first);
        let all: Vec<_> = links.iter().map(|link| self.links[*link].new).collect();
        for link in links {
            self.links[link].known.extend(&all);
            self.links[link].has_taker = has_taker;
        }
    }

    /// All connections of an instance close.
    pub(crate) fn disconnect(&mut self, who: Who) {
        for link in 0..self.links.len() {
            if self.links[link].new == who {
                self.close_here(link);
            }
            if self.links[link].former == who && self.links[link].is_open_there {
                self.close_there(link);
            }
        }
    }

    /// The process of an instance exits or crashes.
    pub(crate) fn exit(&mut self, who: Who) {
        if !self.instances[who].is_alive {
            return;
        }
        self.instances[who].is_alive = false;
        self.kernel.end_process(who);
        self.disconnect(who);
        self.on_duty = self.on_duty.filter(|duty| *duty != who);
        self.watch_first_of(who);
    }

    /// The standbys of an instance look at it.
    pub(crate) fn watch_first_of(&mut self, first: Who) {
        let standbys =
            self.links.iter().filter(|link| link.former == first && link.kind == LinkKind::StandBy);
        for standby in standbys.map(|link| link.new).collect::<Vec<_>>() {
            let delay = Duration::from_micros(1_000 + self.rng.below(60_000));
            self.after(delay, Task::Watch(standby));
        }
    }

    /// A standby looks at the first instance, as `service/instance/src/stuck/process.rs` does. A new instance that
    /// waits for an answer looks whether its connection has closed.
    fn watch(&mut self, who: Who) {
        let instance = &self.instances[who];
        if !instance.watches {
            return self.look_at_answer(who);
        }
        if !instance.runs() {
            if instance.is_alive {
                self.after(Duration::from_millis(500), Task::Watch(who));
            }
            return;
        }
        let link = instance.former.unwrap();
        let Link { former, has_taker, is_outdated, is_open_there, .. } = self.links[link];
        let first = &self.instances[former];
        let said_stuck = instance.said_stuck;
        let mut again = false;
        let event = if !first.is_alive {
            let mut before = self.links[link].known.range(..who);
            let is_succeeded = has_taker || before.any(|other| self.instances[*other].is_alive);
            Some(match (is_outdated, is_succeeded) {
                // What it knows of the others may be old.
                (true, _) => First::Changed,
                (false, true) => First::Succeeded,
                (false, false) => First::Gone,
            })
        } else if !is_open_there {
            again = true;
            let others = self.standbys_of(former).len();
            // It asks for the sockets again, once it serves.
            let answer = match first.machine.phase() {
                _ if !said_stuck => Some(First::Stuck),
                Phase::Ended | Phase::Reloading(_) => None,
                _ if !first.runs() || first.is_busy || !first.actions.is_empty() => None,
                _ => match first.machine.clone().handle(self.now, Event::StandbyAsked { others }).first() {
                    Some(Action::RefuseStandby(Refusal::Stopping)) => None,
                    Some(Action::GiveStandby) if first.plan == instance.plan => Some(First::Back),
                    _ => Some(First::Changed),
                },
            };
            if answer == Some(First::Back) {
                (self.links[link].is_open_there, self.links[link].is_outdated) = (true, false);
                self.introduce_standbys(former);
            }
            answer
        } else if first.is_stopped {
            again = true;
            (!said_stuck).then_some(First::Stuck)
        } else {
            said_stuck.then_some(First::Back)
        };
        if let Some(event) = event {
            self.instances[who].said_stuck = event == First::Stuck;
            self.instances[who].watches = !matches!(event, First::Gone | First::Succeeded | First::Changed);
            self.tell(who, Event::First(event), None);
        }
        if again && self.instances[who].watches {
            self.after(Duration::from_millis(300), Task::Watch(who));
        }
    }
}
