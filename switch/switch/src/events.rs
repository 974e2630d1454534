//! What becomes of ports: interfaces and applications that come and go, and what the worker says.

use crate::engine::SwitchEvent;
use twinpath_attach::mirror::Event;
use twinpath_attach::mirror::table::Link;
use twinpath_forwarding::learning::{Loop, Notice};
use twinpath_port::{PortId, PortQueue};
use twinpath_sys::clock;
use twinpath_worker::{Command, Event as WorkerEvent};

use super::Switching;
use super::port::State;
use crate::homes::HomeAt;
use crate::kinds::{OpenError, Opened, Step};

/// Parts of the MAC table that are swept before other work gets its turn.
const SWEEP_PARTS: usize = 1024;

impl Switching {
    /// Takes what workers have sent.
    pub(super) fn take_events(&mut self) {
        for number in 0..self.workers.len() {
            self.workers[number].events.drain();
            while let Some(event) = self.workers[number].events.take() {
                match event {
                    WorkerEvent::Detached(queue) => self.queue_is_back(number, queue),
                    WorkerEvent::PortRemoved(id) => {
                        self.count(number, id);
                        self.workers[number].port_removed(id);
                        self.ports_changed = true;
                        self.port_is_back(id.port);
                    }
                    WorkerEvent::Engine(SwitchEvent::Adopted(snapshot, former)) => {
                        drop(former);
                        self.adopted(number, snapshot);
                    }
                    WorkerEvent::Engine(SwitchEvent::Notice(notice)) => self.noticed(notice),
                    WorkerEvent::Engine(SwitchEvent::Sample(sample)) if self.openflow.is_none() => {
                        self.sampled(number, sample);
                    }
                    WorkerEvent::Engine(event) => self.openflow_event(number, event),
                    WorkerEvent::Attached(_) | WorkerEvent::Untapped(_) => {}
                }
            }
        }
    }

    fn noticed(&mut self, notice: Notice) {
        match notice {
            Notice::Loop(Loop { blocked, other, until }) => {
                let name = |number| self.name_of(number);
                let block_s = until.since(clock::now()).as_secs();
                if blocked == other {
                    tracing::warn!(
                        "{0} is a loop: it sends back what it gets. Nothing is flooded by {0} for {block_s} s; find \
                         the device behind it that does so",
                        name(blocked)
                    );
                } else {
                    tracing::warn!(
                        "{0} and {1} are a loop: a frame that was sent by the one has come back by the other. Nothing is \
                         flooded by {0} for {block_s} s; find the other connection between them",
                        name(blocked),
                        name(other)
                    );
                }
            }
            Notice::Sweep => self.sweep_from = self.sweep_from.or(Some(0)),
        }
    }

    /// Frees the places of some addresses that are too old.
    pub(super) fn sweep(&mut self) {
        let Some(from) = self.sweep_from else { return };
        let (table, ageing) = (&self.shared.table, self.snapshots.current.ageing());
        table.sweep(from..from + SWEEP_PARTS, clock::now(), ageing, |_| true);
        self.sweep_from = Some(from + SWEEP_PARTS).filter(|next| *next < table.parts());
    }

    /// Closes a queue that a worker gave back: it was told to, or what the port is on has gone.
    fn queue_is_back(&mut self, worker: usize, queue: Box<dyn PortQueue>) {
        let id = queue.id();
        self.count(worker, id);
        self.ports_changed = true;
        self.workers[worker].close(queue);
        if !self.homes.queue_is_back(id) {
            self.port_is_back(id.port);
        }
    }

    /// A worker serves a port no more. When none does, it may be attached again.
    fn port_is_back(&mut self, number: u16) {
        let Some(at) = self.at(number) else { return };
        if self.ports[at].leaving == 0 {
            // Nobody asked for it: what the port is on has gone, or the worker could not serve it.
            tracing::warn!("{} has gone", self.ports[at].name);
            self.detach(at, State::Gone);
        }
        let port = &mut self.ports[at];
        port.leaving = port.leaving.saturating_sub(1);
        if port.leaving > 0 {
            return;
        }
        port.on.release();
        if port.removed {
            self.ports.remove(at);
            return self.give_back_unused();
        }
        self.take_snapshot();
        self.try_to_attach(at);
    }

    /// Keeps what a queue has counted, which goes with the queue.
    fn count(&mut self, worker: usize, id: PortId) {
        let Some(port) = self.ports.iter_mut().find(|port| port.number == id.port) else { return };
        if let Some(queue) = self.workers[worker].queues().iter().find(|queue| queue.id == id) {
            port.before = port.before.with(&queue.counters);
        }
    }

    /// The place of the port with that number.
    pub(super) fn at(&self, number: u16) -> Option<usize> {
        self.ports.iter().position(|port| port.number == number)
    }

    /// Takes a port away from the workers that have it; what comes of it are events.
    pub(super) fn detach(&mut self, at: usize, state: State) {
        let port = &mut self.ports[at];
        let was_attached = std::mem::replace(&mut port.state, state) == State::Attached;
        let is_carried = port.on.carried_mut().map(|carried| carried.joins_with = None).is_some();
        if !was_attached {
            return;
        }
        let (number, home, ifindex) = (port.number, port.home, port.ifindex);
        port.leaving = std::mem::take(&mut port.given);
        // First no frame is sent there any more.
        self.take_snapshot();
        if !is_carried {
            return self.detach_queues(number);
        }
        if let Err(error) = self.homes.let_go(home, ifindex) {
            tracing::warn!("{}: {error}", self.ports[at].name);
        }
        self.end_thread(at);
        self.workers.iter_mut().for_each(|worker| worker.remove_port(number));
    }

    /// The kernel takes the frames of a port's interface as it did before it was a port.
    pub(super) fn end_thread(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let thread = port.on.carried_mut().and_then(|carried| carried.thread.take());
        self.homes.end_thread(port.home, thread);
    }

    /// Gives network namespaces back that have no port any more, and queues that carry none.
    pub(super) fn give_back_unused(&mut self) {
        let ports = self.ports.iter().map(|port| (port.home, port.on.carried().is_some()));
        for emptied in self.homes.give_back_unused(ports) {
            self.with_openflow(|openflow, _| openflow.remove_kernel(emptied.home));
            self.with_learned(|learned, now, snapshot| learned.remove(emptied.home, now, snapshot));
            let mut asked = 0;
            for worker in &mut self.workers {
                let queue = emptied.queue(worker.number());
                // Not if the worker has never got it, or could not serve it.
                if worker.queues().iter().any(|known| known.id == queue) {
                    worker.detach_queue(queue);
                    asked += 1;
                }
            }
            self.homes.awaits(emptied.number, asked);
        }
    }

    /// Takes the queues of a port from the workers that have them. The others no longer hand frames for it over.
    fn detach_queues(&mut self, number: u16) {
        for worker in 0..self.workers.len() {
            let queues = self.workers[worker].queues().iter().filter(|queue| queue.id.port == number);
            let queues: Vec<PortId> = queues.map(|queue| queue.id).collect();
            if queues.is_empty() {
                self.workers[worker].tell(Command::PortElsewhere { port: number, worker: None });
            }
            for id in queues {
                self.count(worker, id);
                self.ports_changed = true;
                self.workers[worker].detach_queue(id);
            }
        }
    }

    /// Attaches a port if what it is on is there.
    pub(super) fn try_to_attach(&mut self, at: usize) {
        if self.ports[at].is_attached() || !self.ports[at].is_free() {
            return;
        }
        let mut port = self.ports.swap_remove(at);
        let opened = self.open(&mut port);
        let number = port.number;
        match &opened {
            Ok(Opened::Nothing) | Err(OpenError::NoInterface { .. }) => port.state = State::Gone,
            Ok(_) => tracing::info!("{} is attached", port.name),
            Err(error) => {
                let why = error.to_string();
                if port.state != State::Refused(why.clone()) {
                    tracing::error!("{} is there, but not in use: {why}", port.name);
                    port.state = State::Refused(why);
                }
            }
        }
        self.ports.push(port);
        let last = self.ports.len() - 1;
        self.ports.swap(at, last);
        match opened {
            // Another process may have connected to it meanwhile.
            Ok(Opened::Nothing) => self.step(at),
            Ok(opened) => self.bring_in(vec![(number, opened)]),
            Err(_) => {}
        }
    }

    /// Does what is due at a port for another process.
    pub(super) fn step(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let number = port.is_free().then_some(port.number);
        match port.on.step(number) {
            Step::Nothing => {}
            Step::Connected(queues, who) => {
                port.state = State::Attached;
                tracing::info!("{}: {who}", port.name);
                let number = port.number;
                self.bring_in(vec![(number, Opened::Queues(queues))]);
            }
            Step::Left(why) => {
                tracing::info!("{}: {why}", port.name);
                self.detach(at, State::Gone);
            }
        }
    }

    /// The link of a port has changed.
    fn link_has_changed(&mut self, home: HomeAt, link: &Link) {
        let Some(port) = self.ports.iter_mut().find(|port| port.is_on(home, link.ifindex)) else { return };
        let Some(carried) = port.on.carried_mut() else { return };
        carried.link_is(link.up);
        if let Err(error) = carried.read_settings(&self.homes, home, link.ifindex, &link.name) {
            tracing::warn!("{}: receive=thread: {error}", port.name);
        }
    }

    /// What the kernel has announced.
    pub(super) fn kernel_says(&mut self, home: HomeAt, event: Event) {
        if matches!(event, Event::Link(_) | Event::Renamed { .. } | Event::LinkGone { .. }) {
            self.ports_changed = true;
        }
        match event {
            Event::Link(link) => {
                self.link_has_changed(home, &link);
                self.link_is_there(home, &link.name);
            }
            Event::Renamed { ifindex, to, .. } => {
                let ours = self.ports.iter().find(|port| port.is_on(home, ifindex));
                match ours {
                    Some(port) => tracing::info!("the interface of {} is now called {to}", port.name),
                    None => self.link_is_there(home, &to),
                }
            }
            Event::LinkGone { ifindex, .. } => {
                let Some(at) = self.ports.iter().position(|port| port.is_on(home, ifindex)) else { return };
                if !self.ports[at].on.has_moved() {
                    tracing::warn!("{} has gone: it is a port again when it is back", self.ports[at].name);
                    self.detach(at, State::Gone);
                }
            }
            // What stood in the way of a port may have gone.
            Event::Addresses { ifindex } => {
                let name = self.homes.link(home, ifindex).map(|link| link.name.clone());
                name.into_iter().for_each(|name| self.link_is_there(home, &name));
            }
            _ => {}
        }
    }

    /// The programs pass frames on to the kernel until the worker looks again; it then drops what waited for it. The other
    /// workers go on.
    pub(super) fn worker_is_stuck(&mut self, home: HomeAt) {
        self.homes.read_stuck(home);
        self.look_at_stuck();
        for worker in &self.workers {
            let Some(since) = worker.stuck_since() else { continue };
            let waited = clock::now().since(since).as_nanos() / 1_000_000;
            tracing::error!(
                "{} is stuck: frames have waited for it for {waited} ms; the kernel bridge carries them until it goes on",
                worker.name()
            );
        }
        self.claim_joined();
    }

    /// Looks which workers the programs have found stuck, and which of them have moved on.
    pub(super) fn look_at_stuck(&mut self) {
        let now = clock::now();
        for worker in &mut self.workers {
            let since = self.homes.stuck_since(worker.number());
            worker.look_at_stuck(since, 0, now);
        }
    }

    fn link_is_there(&mut self, home: HomeAt, name: &str) {
        for at in 0..self.ports.len() {
            let port = &self.ports[at];
            if port.home == home && port.name.interface() == Some(name) {
                self.try_to_attach(at);
            }
        }
    }
}
