//! The queues of a worker: attaching and detaching them, and watching their fds while the worker may sleep.

use rustix::io::Errno;
use twinpath_inspect::Reason;
use twinpath_port::{LinkState, PortQueue};
use twinpath_time::Instant;

use super::{Event, PORTS_MAX, Worker};
use crate::engine::{Attached, Engine};
use crate::sleep::Sleeper;

/// The most turns for emptying the rings: more than any ring has bursts.
const EMPTYING_TURNS_MAX: u32 = 1024;

impl<E: Engine> Worker<E> {
    /// Attaches a queue before the worker runs; later it is [`Command::Attach`].
    pub fn attach(&mut self, mut queue: Box<dyn PortQueue>) {
        if self.ports.len() == PORTS_MAX {
            self.counters.drops.add(Reason::PortDown, 1);
            return self.hand_back(queue);
        }
        if self.watching_ports && watch(&self.sleeper, &*queue).is_err() {
            // A queue that is not in the epoll would be served only while the worker spins: the kernel serves it better.
            return self.hand_back(queue);
        }
        queue.prepare(&mut self.pool);
        if !self.watching_ports {
            queue.begin_polling(self.looked);
        }
        let id = queue.id();
        self.ports.push(Attached::new(queue));
        self.with_io(|engine, io| engine.attached(id, io));
        if self.events.send_reserved(Event::Attached(id)).is_err() {
            // Control then steers nothing to the queue, and the kernel goes on serving.
            self.counters.drops.add(Reason::MailboxFull, 1);
        }
    }

    /// Tells the ports of an interface that it has changed, and then the engine, which so finds their present capabilities.
    pub(super) fn link_changed(&mut self, ifindex: u32, link: LinkState) {
        for place in 0..self.ports.len() {
            let port = &mut self.ports[place];
            if port.ifindex() == ifindex {
                port.queue.changed(link);
                port.capabilities = port.queue.capabilities();
                let id = port.id();
                self.with_io(|engine, io| engine.changed(id, io));
            }
        }
    }

    /// Serves the frames that are in the rings, before a queue is detached and before the worker ends: the kernel gives them
    /// to nobody else. Nothing new is claimed for such a queue by then, so a few turns are enough.
    pub(super) fn empty_ports(&mut self, now: Instant) {
        for _ in 0..EMPTYING_TURNS_MAX {
            let taken = self.poll_ports(now);
            self.flush();
            if taken == 0 {
                break;
            }
        }
    }

    pub(super) fn detach(&mut self, now: Instant, is_meant: impl Fn(&dyn PortQueue) -> bool) {
        self.empty_ports(now);
        while let Some(place) = self.ports.iter().position(|port| is_meant(&*port.queue)) {
            self.detach_place(place);
        }
    }

    pub(super) fn detach_place(&mut self, place: usize) {
        let mut port = self.ports.remove(place);
        if self.watching_ports {
            unwatch(&self.sleeper, &*port.queue);
        }
        // Empty, unless the device went away in the middle of a turn.
        port.outbox.release(usize::MAX, &mut self.pool);
        self.with_io(|engine, io| engine.detached(port.id(), io));
        self.hand_back(port.queue);
    }

    /// Gives a queue to control, as closing it may block. The event has room reserved in the mailbox. Only if a program has
    /// made the mailbox without that room, and it is full, is the queue closed here.
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
            self.ports.iter().for_each(|port| unwatch(&self.sleeper, &*port.queue));
        }
    }

    /// Watches the fds of the ports again, before a sleep. Returns whether all of them are watched.
    pub(super) fn watch_ports(&mut self) -> bool {
        if !self.watching_ports {
            let watched = self.ports.iter().all(|port| watch(&self.sleeper, &*port.queue).is_ok());
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
