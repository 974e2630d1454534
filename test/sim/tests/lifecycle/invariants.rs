//! What must hold after each step, and at the end.

use twinpath_lifecycle::Phase;
use twinpath_time::Duration;

use crate::instance::Instance;
use crate::kernel::Who;
use crate::world::World;

/// How long the stand-in may take to serve in place of a stuck worker.
const STAND_IN_PATIENCE: Duration = Duration::from_secs(4);

impl World {
    /// What must hold after each step.
    pub(crate) fn invariants(&self) -> Result<(), String> {
        self.claims_are_served()?;
        self.nothing_is_answered_twice()?;
        self.ports_on_duty_are_served()?;
        self.ended_leave_nothing()?;
        for instance in self.instances.iter().filter(|it| it.is_alive) {
            self.standby_keeps_still(instance)?;
            self.drain_ends(instance)?;
            self.stuck_workers_are_stood_in_for(instance)?;
        }
        Ok(())
    }

    /// No port is claimed by an instance whose workers do not serve it.
    fn claims_are_served(&self) -> Result<(), String> {
        for program in &self.kernel.programs {
            let owner = &self.instances[program.owner];
            if !owner.is_alive || !owner.has_workers || !program.ports.is_subset(&owner.workers) {
                return Err(format!(
                    "instance {} claims {:?}, and its workers serve {:?}",
                    owner.who, program.ports, owner.workers
                ));
            }
        }
        Ok(())
    }

    /// Two programs with the same claim would both take a frame. A process that was stopped in the middle of a
    /// take-over hangs, which is bounded by `worker.fail_open_ms`.
    fn nothing_is_answered_twice(&self) -> Result<(), String> {
        for (at, one) in self.kernel.programs.iter().enumerate() {
            for other in &self.kernel.programs[at + 1..] {
                let hung = [one, other].iter().any(|program| self.instances[program.owner].was_stopped);
                if !hung && one.ports.intersection(&other.ports).next().is_some() {
                    return Err(format!("instances {} and {} claim the same port", one.owner, other.owner));
                }
            }
        }
        Ok(())
    }

    /// From when an instance is ready until another one has taken over from it, its sockets are served.
    fn ports_on_duty_are_served(&self) -> Result<(), String> {
        let Some(duty) = self.on_duty.map(|who| &self.instances[who]) else { return Ok(()) };
        let is_settled = duty.actions.is_empty() && !duty.is_busy;
        let is_between = matches!(duty.machine.phase(), Phase::Reloading(_)) || !is_settled;
        for port in duty.plan.iter().filter(|_| !is_between) {
            if !self.instances.iter().any(|it| it.runs() && it.listening.contains(port)) {
                return Err(format!("port {port} of instance {} is served by nobody", duty.who));
            }
        }
        if matches!(duty.machine.phase(), Phase::Ended) {
            return Err(format!("instance {} has ended, and nobody serves in its place", duty.who));
        }
        Ok(())
    }

    /// Nothing is left of an instance that has ended.
    fn ended_leave_nothing(&self) -> Result<(), String> {
        let is_left = |who: Who| !self.instances[who].is_alive || self.instances[who].has_ended();
        let left = |what: &str, who: Who| Err(format!("instance {who} has ended and leaves {what}"));
        if let Some((who, holder)) = self.kernel.sockets.values().flatten().find(|(who, _)| is_left(*who)) {
            return left(&format!("sockets of {holder:?}"), *who);
        }
        if let Some(program) = self.kernel.programs.iter().find(|program| is_left(program.owner)) {
            return left("programs", program.owner);
        }
        for link in &self.links {
            if (link.is_open_here && is_left(link.new)) || (link.is_open_there && is_left(link.former)) {
                return left("a connection", if link.is_open_here { link.new } else { link.former });
            }
        }
        let registered = |it: &&Instance| it.is_alive && it.is_registered && it.has_ended();
        self.instances.iter().find(registered).map_or(Ok(()), |it| left("a registration", it.who))
    }

    /// A standby claims nothing, and serves only in place of an instance that does not.
    fn standby_keeps_still(&self, instance: &Instance) -> Result<(), String> {
        let Some(standby) = instance.machine.standby() else { return Ok(()) };
        let is_settled = instance.actions.is_empty() && !instance.is_busy;
        let claims = self.kernel.programs.iter().any(|program| program.owner == instance.who);
        if claims || instance.is_registered {
            return Err(format!("instance {} stands by, and claims or is registered", instance.who));
        }
        if instance.is_alive
            && is_settled
            && standby.serves == instance.listening.is_empty()
            && !instance.plan.is_empty()
        {
            return Err(format!("instance {} stands by and serves {:?}", instance.who, instance.listening));
        }
        Ok(())
    }

    fn drain_ends(&self, instance: &Instance) -> Result<(), String> {
        let is_late = instance.drain_ends_by.is_some_and(|by| by < self.now);
        if instance.runs() && !instance.was_stopped && is_late && !instance.has_ended() {
            return Err(format!("the drain of instance {} does not end", instance.who));
        }
        Ok(())
    }

    fn stuck_workers_are_stood_in_for(&self, instance: &Instance) -> Result<(), String> {
        let is_late = instance.stuck_since.is_some_and(|since| self.now.since(since) > STAND_IN_PATIENCE);
        if instance.serves() && instance.inbox.is_empty() && is_late && !instance.stand_in_serves {
            return Err(format!("nobody serves in place of the stuck workers of instance {}", instance.who));
        }
        Ok(())
    }

    /// Faults have ended for long: whoever is left serves, alone, with all that it can have.
    pub(crate) fn has_settled(&self) -> Result<(), String> {
        let serving: Vec<_> = self.instances.iter().filter(|it| it.serves()).collect();
        for instance in &serving {
            let who = instance.who;
            if instance.listening != instance.plan {
                return Err(format!("instance {who} serves {:?} of {:?}", instance.listening, instance.plan));
            }
            if instance.machine.taker().is_some_and(twinpath_lifecycle::Taker::is_aside) {
                return Err(format!("instance {who} waits for a new instance for ever"));
            }
            if instance.machine.awaits_queues() {
                return Err(format!("instance {who} waits for its queues for ever"));
            }
            let is_attached = self.kernel.programs.iter().any(|program| program.owner == who);
            if instance.machine.is_attached() != is_attached || instance.stand_in_serves {
                return Err(format!("instance {who} does not know what it has attached: {is_attached}"));
            }
            let claims = !self.claims_of(who).is_empty();
            if is_attached && !claims {
                return Err(format!("instance {who} is attached and claims nothing"));
            }
            let can_attach = self.kernel.present && !instance.has_no_path && claims;
            if can_attach && !is_attached && instance.machine.taker().is_none() {
                return Err(format!("instance {who} does not attach again: {:?}", instance.machine));
            }
            for other in serving.iter().filter(|other| other.who > who) {
                // A standby that was stopped while its successors came and went cannot know of them.
                let hung = instance.was_stopped || other.was_stopped;
                if !hung && instance.plan.intersection(&other.plan).next().is_some() {
                    return Err(format!("instances {who} and {} serve the same port", other.who));
                }
            }
        }
        let ended = |it: &&Instance| it.is_alive && it.machine.is_draining();
        if let Some(instance) = self.instances.iter().find(ended) {
            return Err(format!("instance {} drains for ever", instance.who));
        }
        Ok(())
    }

    /// All instances have ended.
    pub(crate) fn has_nothing_left(&self) -> Result<(), String> {
        if let Some(instance) = self.instances.iter().find(|it| it.is_alive) {
            return Err(format!("instance {} does not end: {:?}", instance.who, instance.machine));
        }
        if !self.kernel.sockets.is_empty() || !self.kernel.programs.is_empty() {
            return Err(format!("the kernel keeps {:?}", self.kernel));
        }
        Ok(())
    }
}
