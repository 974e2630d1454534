//! The engine's surface: what a worker asks of the code that handles frames, and what it offers it.

use std::os::fd::AsFd;

use rustix::io::Errno;
use twinpath_frame::{Burst, Frame, Pool};
use twinpath_inspect::Drops;
use twinpath_port::{PortId, PortQueue};
use twinpath_time::Instant;

use crate::mailbox::Sender;
use crate::message::Event;
use crate::sleep::Sleeper;
use crate::tap::Taps;

/// What handles frames on a worker: a server, a load generator, later a switch.
///
/// Calls come from the worker's turn, never block, and get the turn's time. Frames given to the engine must leave it
/// through [`Io::send`] or [`Io::release`].
pub trait Engine: Send {
    /// What control may tell it.
    type Command: Send;
    /// What it may tell control.
    type Event: Send;

    /// Called once on the worker's thread before the first turn: register fds here.
    ///
    /// # Errors
    /// What registering them returns; the worker does not start then.
    fn start(&mut self, now: Instant, io: &mut Io<'_, Self::Event>) -> Result<(), Errno>;

    /// A port was attached: frames may come by it and be sent by it from now on. For ports that a worker begins with it is called before
    /// [`Self::start`], on the thread that puts the worker together.
    fn attached(&mut self, _port: PortId, _io: &mut Io<'_, Self::Event>) {}

    /// A port was detached: no frames come by it any more, and what is sent by it is dropped.
    fn detached(&mut self, _port: PortId, _io: &mut Io<'_, Self::Event>) {}

    /// Frames that arrived on a port; takes all of them.
    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, Self::Event>);

    /// An fd registered with [`Io::watch`] is ready, or reports an error. Says whether something had come or could leave: an fd that
    /// is ready for nothing keeps no worker awake.
    fn ready(&mut self, now: Instant, token: u32, error: bool, io: &mut Io<'_, Self::Event>) -> bool;

    /// Once per turn: due timers and whatever else is waiting. Says whether there was something.
    fn run(&mut self, now: Instant, io: &mut Io<'_, Self::Event>) -> bool;

    /// When [`Self::run`] must be called again at the latest.
    fn next_deadline(&self) -> Instant;

    /// Whether it asks an fd of its own in [`Self::run`], which the worker does not watch: the worker's other fds are looked
    /// at every few microseconds then, as beside a busy port.
    fn spins(&self) -> bool {
        false
    }

    /// Whether the last [`Self::run`] found something that had come to such an fd: an arrival, as if the worker had been told of it. What
    /// else there was to do is none.
    fn found(&self) -> bool {
        false
    }

    /// The worker is about to sleep: every fd must be watched from here on.
    fn rest(&mut self, _io: &mut Io<'_, Self::Event>) {}

    /// Whether it has nothing more to do: the worker ends then. A server never has.
    fn is_done(&self) -> bool {
        false
    }

    /// Control says something.
    fn command(&mut self, now: Instant, command: Self::Command, io: &mut Io<'_, Self::Event>);
}

/// A port attached to a worker, with what waits to leave by it this turn.
pub struct Attached {
    id: PortId,
    ifindex: u32,
    /// The port.
    pub queue: Box<dyn PortQueue>,
    pub(crate) outbox: Burst,
}

impl Attached {
    pub(crate) fn new(queue: Box<dyn PortQueue>) -> Self {
        Self { id: queue.id(), ifindex: queue.ifindex(), queue, outbox: Burst::new() }
    }

    /// Its name, which stays for as long as it is attached.
    #[must_use]
    pub const fn id(&self) -> PortId {
        self.id
    }

    /// Kernel index of the interface that it is on, 0 if there is none.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Sends what waits; who looks on sees it before it leaves.
    pub(crate) fn transmit(&mut self, pool: &mut Pool, taps: &mut Taps) {
        taps.sent(&*self.queue, self.outbox.frames());
        self.queue.transmit(pool, &mut self.outbox);
    }
}

/// What a worker lends its engine for the length of a call.
pub struct Io<'a, E> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) ports: &'a mut Vec<Attached>,
    pub(crate) taps: &'a mut Taps,
    pub(crate) sleeper: &'a Sleeper,
    pub(crate) events: &'a mut Sender<Event<E>>,
    pub(crate) drops: &'a Drops,
    /// The port whose frames the engine is given, and its place: most that it asks about a port is about this one.
    pub(crate) here: Here,
    /// Where the tokens of its part begin; 0 unless the engine hands on calls to engines that it is made of.
    pub(crate) first_token: u32,
}

/// A port, and its place among those of the worker for the length of a call.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    pub(crate) port: PortId,
    pub(crate) place: u32,
}

impl Here {
    /// No port: there is none of that number.
    pub(crate) const NOWHERE: Self = Self { port: PortId { port: u16::MAX, queue: u16::MAX }, place: 0 };
}

/// Engine tokens stand above those of the worker's own fds.
pub(crate) const ENGINE_TOKENS: u64 = 1 << 32;

/// Bits of a token that one part of an engine has to itself.
const PART_BITS: u32 = 24;

/// Parts that an engine can be made of.
pub const PARTS_MAX: usize = 1 << (u32::BITS - PART_BITS);

/// The part of an engine that a token belongs to, and the token as that part knows it.
#[inline]
#[must_use]
pub const fn part_of(token: u32) -> (usize, u32) {
    ((token >> PART_BITS) as usize, token & ((1 << PART_BITS) - 1))
}

impl<E: Send> Io<'_, E> {
    /// The same for one part of an engine that is made of several: the part uses tokens below 2^24, as if it were alone, and counts its
    /// drops in `drops`. [`part_of`] says which part a token belongs to. `part` is below [`PARTS_MAX`].
    #[inline]
    pub fn part<'b>(&'b mut self, part: usize, drops: &'b Drops) -> Io<'b, E> {
        Io {
            pool: &mut *self.pool,
            ports: &mut *self.ports,
            taps: &mut *self.taps,
            sleeper: self.sleeper,
            events: &mut *self.events,
            drops,
            here: self.here,
            first_token: (part as u32) << PART_BITS,
        }
    }

    const fn token(&self, token: u32) -> u64 {
        ENGINE_TOKENS + (self.first_token | token) as u64
    }

    /// An empty frame; `None` if the pool is empty (count it, try again later).
    pub fn take(&mut self) -> Option<Frame> {
        self.pool.take()
    }

    /// Gives a frame back.
    pub fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    /// Sends a frame by a port, when the turn ends or its burst is full. If that is not attached any more, the frame is released.
    pub fn send(&mut self, port: PortId, frame: Frame) {
        let Some(attached) = self.place_of(port).and_then(|place| self.ports.get_mut(place)) else {
            self.drops.add(twinpath_inspect::Reason::PortDown, 1);
            return self.pool.release(frame);
        };
        if attached.outbox.room() == 0 {
            attached.transmit(self.pool, self.taps);
        }
        if let Err(frame) = attached.outbox.push(frame) {
            self.drops.add(twinpath_inspect::Reason::PortFull, 1);
            self.pool.release(frame);
        }
    }

    /// The attached ports.
    #[must_use]
    pub fn ports(&self) -> &[Attached] {
        self.ports
    }

    /// A port, if it is attached.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&Attached> {
        self.ports.get(self.place_of(port)?)
    }

    /// Where a port stands, for the length of a call.
    #[inline]
    fn place_of(&self, port: PortId) -> Option<usize> {
        if port == self.here.port {
            Some(self.here.place as usize)
        } else {
            self.ports.iter().position(|attached| attached.id == port)
        }
    }

    /// A port on interface `ifindex`: `preferred` if it is one, else the first.
    #[inline]
    #[must_use]
    pub fn port_on(&self, ifindex: u32, preferred: PortId) -> Option<PortId> {
        let on = |attached: &&Attached| attached.ifindex == ifindex;
        if self.port(preferred).as_ref().is_some_and(on) {
            return Some(preferred);
        }
        self.ports.iter().find(on).map(Attached::id)
    }

    /// Whether the kernel has stopped claiming for a port, as this worker has not looked for too long: frames that came by it before
    /// are served no longer.
    #[inline]
    #[must_use]
    pub fn is_withdrawn(&self, port: PortId) -> bool {
        self.port(port).is_some_and(|attached| attached.queue.is_withdrawn())
    }

    /// Counters for what the engine drops.
    #[must_use]
    pub const fn drops(&self) -> &Drops {
        self.drops
    }

    /// Has the worker watch `fd` for reading, and for writing if `write`; [`Engine::ready`] is told `token`.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn watch(&self, fd: impl AsFd, token: u32, write: bool) -> Result<(), Errno> {
        self.sleeper.add(fd, self.token(token), write)
    }

    /// Has the worker watch `fd` for reading and writing by edges: [`Engine::ready`] is told once when either becomes possible, and
    /// that it reports an error if its peer has sent its last byte.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn watch_edges(&self, fd: impl AsFd, token: u32) -> Result<(), Errno> {
        self.sleeper.add_edges(fd, self.token(token))
    }

    /// Changes what `fd` is watched for.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn rewatch(&self, fd: impl AsFd, token: u32, read: bool, write: bool) -> Result<(), Errno> {
        self.sleeper.change(fd, self.token(token), read, write)
    }

    /// No longer watches `fd`.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn unwatch(&self, fd: impl AsFd) -> Result<(), Errno> {
        self.sleeper.remove(fd)
    }

    /// Tells control something that may get lost: the engine says it again, or nothing depends on it.
    ///
    /// # Errors
    /// Gives it back when the mailbox is full.
    pub fn tell(&mut self, event: E) -> Result<(), E> {
        self.events.send(Event::Engine(event)).map_err(own)
    }

    /// Tells control something that must arrive. An engine may have [`ENGINE_RESERVE`](crate::ENGINE_RESERVE) such
    /// events unread at a time.
    ///
    /// # Errors
    /// Gives it back when the mailbox and its reserved room are full.
    pub fn tell_reserved(&mut self, event: E) -> Result<(), E> {
        self.events.send_reserved(Event::Engine(event)).map_err(own)
    }
}

/// The engine's event that a full mailbox gave back.
fn own<E>(event: Event<E>) -> E {
    match event {
        Event::Engine(event) => event,
        Event::Attached(_) | Event::Detached(_) | Event::Untapped(_) => {
            unreachable!("what comes back is what was sent")
        }
    }
}
