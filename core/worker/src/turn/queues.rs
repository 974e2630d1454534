//! The queues of a worker: attaching and detaching them, and watching their fds while the worker may sleep.

use rustix::io::Errno;
use twinpath_frame::BURST_MAX;
use twinpath_inspect::Reason;
use twinpath_port::{CarriedPort, LinkState, PortId, PortQueue};
use twinpath_time::Instant;

use super::{Event, Worker};
use crate::engine::Engine;
use crate::ports::Attached;
use crate::thread::sleep::Sleeper;

/// Maximum number of turns for emptying the rings: more than any ring has bursts.
const EMPTYING_TURNS_MAX: u32 = 1024;

/// Which queues are to be detached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leaves {
    /// All of the interface with this index.
    Interface(u32),
    /// This one.
    Queue(PortId),
}

impl Leaves {
    fn means(self, queue: &dyn PortQueue) -> bool {
        match self {
            Self::Interface(ifindex) => queue.ifindex() == ifindex,
            Self::Queue(id) => queue.id() == id,
        }
    }
}

impl<E: Engine> Worker<E> {
    /// Attaches a queue before the worker runs; later it is [`Command::Attach`].
    pub fn attach(&mut self, mut queue: Box<dyn PortQueue>) {
        if self.ports.is_full() {
            self.counters.drops.add(Reason::PortDown, 1);
            return self.hand_back(queue);
        }
        if self.watching_ports && watch(&self.sleeper, &*queue).is_err() {
            // A queue that is not in the epoll would be served only while the worker spins. The kernel serves it
            // better.
            return self.hand_back(queue);
        }
        queue.prepare(&mut self.pool);
        if !self.watching_ports {
            queue.begin_polling(self.looked);
        }
        let id = queue.id();
        let before = self.ports.add(queue);
        for place in before..self.ports.attached().len() {
            let port = self.ports.attached()[place].id();
            self.with_io(|engine, io| engine.attached(port, io));
        }
        self.tell_attached(id);
    }

    /// Adds a port to a queue.
    pub(super) fn add_port(&mut self, carrier: PortId, port: CarriedPort) {
        match self.ports.add_carried(carrier, port) {
            Ok(id) => {
                self.with_io(|engine, io| engine.attached(id, io));
                self.tell_attached(id);
            }
            Err(port) => {
                self.counters.drops.add(Reason::PortDown, 1);
                self.tell_removed(port.id(carrier.queue));
            }
        }
    }

    /// Removes a port from its queue; frames of it that are in the ring are served first.
    pub(super) fn remove_port(&mut self, now: Instant, port: u16) {
        self.empty_ports(now);
        let is_meant = |attached: &Attached| attached.is_carried() && attached.id().port == port;
        while let Some(place) = self.ports.attached().iter().position(is_meant) {
            let id = self.ports.remove_port(place);
            self.with_io(|engine, io| engine.detached(id, io));
            self.tell_removed(id);
        }
    }

    fn tell_attached(&mut self, id: PortId) {
        if self.events.send_reserved(Event::Attached(id)).is_err() {
            // Control then steers nothing to the queue, and the kernel continues to serve.
            self.counters.drops.add(Reason::MailboxFull, 1);
        }
    }

    fn tell_removed(&mut self, id: PortId) {
        if self.events.send_reserved(Event::PortRemoved(id)).is_err() {
            self.counters.drops.add(Reason::MailboxFull, 1);
        }
    }

    /// Passes on frames that other workers have handed over, at most one burst from each. Returns the number of
    /// packets.
    #[inline]
    pub(super) fn take_handed(&mut self) -> u64 {
        let Self { ports, pool, taps, peers: Some(peers), counters, .. } = self else { return 0 };
        peers.collect(pool);
        let mut taken = 0;
        for worker in 0..peers.workers() {
            for _ in 0..BURST_MAX {
                let Some(frame) = peers.take(worker) else { break };
                taken += 1;
                if let Some(place) = ports.first_place_of(frame.meta().port) {
                    ports.forward(place, Some(frame), pool, taps);
                } else {
                    counters.drops.add(Reason::PortDown, 1);
                    pool.release(frame);
                }
            }
        }
        counters.handed_in.add(taken);
        taken
    }

    /// Tells the ports of an interface that it has changed, and then the engine, which can then read their new
    /// capabilities.
    pub(super) fn link_changed(&mut self, ifindex: u32, link: LinkState) {
        for place in 0..self.ports.attached().len() {
            let port = &self.ports.attached()[place];
            if port.ifindex() == ifindex {
                let id = port.id();
                self.ports.changed(place, link);
                self.with_io(|engine, io| engine.changed(id, io));
            }
        }
    }

    /// Serves the frames in the rings before a queue is detached and before the worker ends: the kernel gives them
    /// to nobody else. By then nothing new is claimed for such a queue, so a few turns are enough.
    pub(super) fn empty_ports(&mut self, now: Instant) {
        for _ in 0..EMPTYING_TURNS_MAX {
            let taken = self.take_handed() + self.poll_ports(now);
            self.flush();
            if taken == 0 {
                break;
            }
        }
    }

    /// Detaches queues, once the engine does not keep them.
    pub(super) fn detach_once_free(&mut self, now: Instant, leaves: Leaves) {
        self.leaving.push(leaves);
        self.detach_free(now);
    }

    /// Detaches the queues that wait for it, unless the engine keeps them.
    #[cold]
    pub(super) fn detach_free(&mut self, now: Instant) {
        if self.engine.keeps_ports() {
            return;
        }
        for leaves in std::mem::take(&mut self.leaving) {
            self.empty_ports(now);
            while let Some(place) = self.ports.place_of_queue(|queue| leaves.means(queue)) {
                self.detach_place(place);
            }
        }
    }

    pub(super) fn detach_place(&mut self, place: usize) {
        if self.watching_ports {
            unwatch(&self.sleeper, &*self.ports.queues()[place].queue);
        }
        while let Some(port) = self.ports.remove_port_of(place) {
            self.with_io(|engine, io| engine.detached(port, io));
        }
        let queue = self.ports.remove_queue(place, &mut self.pool);
        self.hand_back(queue);
    }

    /// Returns a queue to control, because closing it may block. The mailbox has reserved room for the event. Only
    /// if a program has made the mailbox without that room, and it is full, is the queue closed here.
    pub(super) fn hand_back(&mut self, queue: Box<dyn PortQueue>) {
        if let Err(Event::Detached(queue)) = self.events.send_reserved(Event::Detached(queue)) {
            self.counters.drops.add(Reason::MailboxFull, 1);
            queue.close().into_iter().for_each(|frame| self.pool.release(frame));
        }
    }

    /// Removes the fds of the ports from the epoll: while the worker spins from packet to packet, the kernel need not wake it
    /// for each frame.
    pub(super) fn unwatch_ports(&mut self) {
        if std::mem::take(&mut self.watching_ports) {
            self.ports.queues().iter().for_each(|queue| unwatch(&self.sleeper, &*queue.queue));
        }
    }

    /// Watches the fds of the ports again, before a sleep. Returns whether all of them are watched.
    pub(super) fn watch_ports(&mut self) -> bool {
        if !self.watching_ports {
            let watched = self.ports.queues().iter().all(|queue| watch(&self.sleeper, &*queue.queue).is_ok());
            self.watching_ports = true;
            if !watched {
                self.unwatch_ports();
            }
        }
        self.watching_ports
    }
}

fn watch(sleeper: &Sleeper, queue: &dyn PortQueue) -> Result<(), Errno> {
    queue.fd().map_or(Ok(()), |fd| sleeper.add(fd, port_token(queue), false))
}

fn unwatch(sleeper: &Sleeper, queue: &dyn PortQueue) {
    if let Some(fd) = queue.fd() {
        let _ = sleeper.remove(fd);
    }
}

pub(super) fn port_token(queue: &dyn PortQueue) -> u64 {
    let id = queue.id();
    1 + (u64::from(id.port) << 16 | u64::from(id.queue))
}
