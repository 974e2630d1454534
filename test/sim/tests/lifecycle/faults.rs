//! What users do, and what goes wrong.

use std::collections::BTreeSet;

use twinpath_lifecycle::{Event, Origin};
use twinpath_time::Duration;

use crate::kernel::{Holder, Port, Who};
use crate::world::{Task, World};

/// Instances that exist at the same time.
const INSTANCES_MAX: usize = 4;

impl World {
    /// Does one thing, to an instance that exists.
    pub(crate) fn act(&mut self) {
        let alive: Vec<Who> = self.instances.iter().filter(|it| it.is_alive).map(|it| it.who).collect();
        let Some(last) = alive.len().checked_sub(1) else { return self.start(Origin::Fresh, None) };
        let who = alive[self.rng.below(last as u64 + 1) as usize];
        let has_room = alive.len() < INSTANCES_MAX;
        match self.rng.below(100) {
            0..25 if has_room => self.start(Origin::TakesOver, Some(who)),
            25..37 if has_room => self.start(Origin::StandsBy, Some(who)),
            37..40 if has_room => self.start(Origin::Fresh, None),
            40..50 => self.tell(who, Event::ReloadAsked, None),
            50..53 => self.ask_to_end(who, Event::StopAsked(None)),
            53..55 => self.ask_to_end(who, Event::DrainAsked(Some(Duration::from_secs(2)))),
            55..60 => self.crash(who),
            60..66 => self.stop_process(who),
            66..76 => self.flap(),
            76..82 => self.bypass(!self.kernel.bypassed),
            82..86 => self.tell(who, Event::QueuesChanged, None),
            86..97 => self.stick(who),
            _ => {}
        }
    }

    /// Faults end.
    pub(crate) fn calm(&mut self) {
        if !self.kernel.present {
            self.flap();
        }
        self.bypass(false);
        for who in 0..self.instances.len() {
            self.go_on(who);
            self.unstick(who);
        }
    }

    fn ask_to_end(&mut self, who: Who, event: Event) {
        self.instances[who].was_told_to_end = true;
        self.on_duty = self.on_duty.filter(|duty| *duty != who);
        self.tell(who, event, None);
    }

    fn crash(&mut self, who: Who) {
        self.seen.crashed += 1;
        self.exit(who);
    }

    /// Stops the process of an instance, or lets it go on.
    fn stop_process(&mut self, who: Who) {
        if self.instances[who].is_stopped {
            return self.go_on(who);
        }
        let instance = &mut self.instances[who];
        (instance.is_stopped, instance.was_stopped) = (true, true);
        self.on_duty = self.on_duty.filter(|duty| *duty != who);
        self.watch_first_of(who);
    }

    fn go_on(&mut self, who: Who) {
        let instance = &mut self.instances[who];
        if std::mem::take(&mut instance.is_stopped) {
            let owed = std::mem::take(&mut instance.owed);
            owed.into_iter().for_each(|event| self.owe(who, event));
            self.after(Duration::ZERO, Task::Turn(who));
            self.watch_first_of(who);
        }
    }

    /// The interface goes, or comes back.
    fn flap(&mut self) {
        self.seen.flaps += 1;
        let event = if self.kernel.present {
            self.kernel.remove_interface();
            Event::InterfaceGone
        } else {
            self.kernel.add_interface();
            Event::InterfaceBack
        };
        self.announce(&event);
    }

    fn bypass(&mut self, is_bypassed: bool) {
        self.kernel.bypassed = is_bypassed;
        self.announce(&Event::Bypassed(is_bypassed));
    }

    /// The kernel announces something to all instances that read its tables.
    fn announce(&mut self, event: &Event) {
        for who in 0..self.instances.len() {
            if self.instances[who].generation > 0 {
                self.tell(who, event.clone(), None);
            }
        }
    }

    /// A worker gets stuck, or moves on.
    fn stick(&mut self, who: Who) {
        if self.instances[who].stuck_since.is_some() {
            return self.unstick(who);
        }
        if self.instances[who].has_workers {
            self.instances[who].stuck_since = Some(self.now);
            self.tell(who, Event::Stuck(true), None);
        }
    }

    fn unstick(&mut self, who: Who) {
        if self.instances[who].stuck_since.take().is_some() {
            let owed = std::mem::take(&mut self.instances[who].owed);
            owed.into_iter().for_each(|event| self.owe(who, event));
            self.tell(who, Event::Stuck(false), None);
        }
    }

    /// A removed service has left the workers: its socket closes, unless a later reload has it again, or it is claimed.
    /// That nobody else takes the port before the claim ends is assumed.
    pub(crate) fn part_left(&mut self, who: Who, part: Port) {
        let plan: BTreeSet<Port> = &self.instances[who].plan | &self.instances[who].kept;
        self.kernel.let_go(|port, holder, kind| {
            holder == who && port == part && kind == Holder::Workers && !plan.contains(&port)
        });
    }
}
