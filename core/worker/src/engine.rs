//! The contract between a worker and its engine: the calls that the worker makes, and the resources that it lends
//! the engine for each.

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Burst, Frame, Meta, Pool};
use twinpath_inspect::{Drops, Reason};
use twinpath_port::fit::fit;
use twinpath_port::{Capabilities, GsoKinds, PortCounters, PortId, SentParts};
use twinpath_time::Instant;

use crate::counters::WorkerCounters;
use crate::fds::{ENGINE_TOKENS, Fds};
use crate::message::Event;
use crate::peers::Peers;
use crate::ports::{Attached, Here, Ports};
use crate::tap::Taps;
use crate::thread::mailbox::Sender;

/// The code that handles a worker's frames: a server, a load generator, later a switch.
///
/// Calls come from the worker's turn, never block, and get the turn's time. Frames given to the engine must leave it
/// through [`Io::send`] or [`Io::release`].
pub trait Engine: Send {
    /// A message from control to the engine.
    type Command: Send;
    /// A message from the engine to control.
    type Event: Send;

    /// Called once on the worker's thread before the first turn: register fds here.
    ///
    /// # Errors
    /// What registering them returns; the worker then does not start.
    fn start(&mut self, now: Instant, io: &mut Io<'_, Self::Event>) -> Result<(), Errno>;

    /// A port was attached: from now on frames may arrive on it and be sent through it. For the ports that a worker starts
    /// with, this is called before [`Self::start`], on the thread that builds the worker.
    fn attached(&mut self, _port: PortId, _io: &mut Io<'_, Self::Event>) {}

    /// The interface of a port has changed, and perhaps [`Attached::capabilities`] with it.
    fn changed(&mut self, _port: PortId, _io: &mut Io<'_, Self::Event>) {}

    /// A port was detached: no more frames arrive on it, and frames sent through it are dropped.
    fn detached(&mut self, _port: PortId, _io: &mut Io<'_, Self::Event>) {}

    /// Frames that arrived on a port; the engine takes all of them. From a queue that carries several ports, `port`
    /// is the name of the queue, and the metadata of each frame say on which port it arrived.
    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, Self::Event>);

    /// Maximum number of frames that it takes from a port in one turn. An engine that may need long for a frame
    /// takes fewer, so that a turn, in which all other ports wait, stays short.
    fn frames_per_turn(&self) -> usize {
        BURST_MAX
    }

    /// An fd registered with [`Fds::watch`] is ready, or reports an error. Returns whether anything was received or
    /// sent. An fd that is always ready but has nothing must not keep the worker awake.
    fn ready(&mut self, now: Instant, token: u32, error: bool, io: &mut Io<'_, Self::Event>) -> bool;

    /// Called once per turn, for timers that are due and other pending work. Returns whether there was any.
    fn run(&mut self, now: Instant, io: &mut Io<'_, Self::Event>) -> bool;

    /// When [`Self::run`] must be called again at the latest.
    fn next_deadline(&self) -> Instant;

    /// Whether [`Self::run`] polls an fd that the worker does not watch. The worker then checks its other fds only
    /// every few microseconds, as beside a busy port.
    fn spins(&self) -> bool {
        false
    }

    /// Whether the last [`Self::run`] received something on such an fd. That counts as an arrival for the idle
    /// policy.
    fn found(&self) -> bool {
        false
    }

    /// The worker is about to sleep: from now on it must watch every fd.
    fn rest(&mut self, _io: &mut Io<'_, Self::Event>) {}

    /// Whether the engine has finished, so that the worker ends. A server never finishes.
    fn is_done(&self) -> bool {
        false
    }

    /// Whether it has something to send before its ports go: a port that is to be detached stays meanwhile, and so does the
    /// worker. Control waits, so it should be short.
    fn keeps_ports(&self) -> bool {
        false
    }

    /// A message from control.
    fn command(&mut self, now: Instant, command: Self::Command, io: &mut Io<'_, Self::Event>);
}

/// The resources that a worker lends its engine for one call.
pub struct Io<'a, E> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) ports: &'a mut Ports,
    /// The other workers, if frames may be handed over to them.
    pub(crate) peers: &'a mut Option<Peers>,
    pub(crate) worker: &'a WorkerCounters,
    pub(crate) taps: &'a mut Taps,
    pub(crate) events: &'a mut Sender<Event<E>>,
    /// The port whose frames the engine is given, and its index: most lookups are for this port.
    pub(crate) here: Here,
    /// The engine's descriptors, and the counters of its drops.
    pub fds: Fds<'a>,
}

/// The token of frames handed over by other workers; no port has it.
pub(crate) const PEERS: u64 = ENGINE_TOKENS - 1;

/// Frames that [`Io::take_long`] leaves to packets of one frame: those that come, and those that answer them.
const LEFT_BY_LONG: u32 = 2 * BURST_MAX as u32;

/// Number of token bits available to one part of an engine.
const PART_BITS: u32 = 24;

/// Maximum number of parts of an engine.
pub const PARTS_MAX: usize = 1 << (u32::BITS - PART_BITS);

/// The part of an engine to which a token belongs, and the token that this part knows.
#[inline]
#[must_use]
pub const fn part_of(token: u32) -> (usize, u32) {
    ((token >> PART_BITS) as usize, token & ((1 << PART_BITS) - 1))
}

impl<E: Send> Io<'_, E> {
    /// The same for one part of an engine that consists of several. The part uses tokens below 2^24, as if it were alone, and
    /// counts its drops in `drops`. [`part_of`] returns the part of a token. `part` is below [`PARTS_MAX`].
    #[inline]
    pub fn part<'b>(&'b mut self, part: usize, drops: &'b Drops) -> Io<'b, E> {
        Io {
            pool: &mut *self.pool,
            ports: &mut *self.ports,
            peers: &mut *self.peers,
            worker: self.worker,
            taps: &mut *self.taps,
            events: &mut *self.events,
            here: self.here,
            fds: Fds { drops, first_token: (part as u32) << PART_BITS, ..self.fds },
        }
    }

    /// An empty frame; `None` if the pool is empty (count it, try again later).
    pub fn take(&mut self) -> Option<Frame> {
        self.pool.take()
    }

    /// A frame with these bytes and no metadata, or a chain if one does not hold them; `None` if too few frames are free
    /// (count it).
    pub fn take_with(&mut self, bytes: &[u8]) -> Option<Frame> {
        self.pool.copy_of([bytes])
    }

    /// The same for a packet of two parts, one behind the other, that may take many frames: [`LEFT_BY_LONG`] stay free for
    /// others. `None`: try again in the next turn.
    pub fn take_long(&mut self, parts: [&[u8]; 2]) -> Option<Frame> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let frames = 1 + bytes.div_ceil(twinpath_frame::CHUNK_SIZE as usize) as u32;
        if self.pool.free() < frames + LEFT_BY_LONG {
            return None;
        }
        self.pool.copy_of(parts)
    }

    /// Sends a super-frame of two parts through a port, behind all that was sent through it before, from where its bytes lie.
    /// The engine must have built it, without a tag. If it cannot be sent so, a copy ([`Self::take_long`]) is to be forwarded.
    pub fn send_parts(&mut self, port: PortId, meta: &Meta, parts: [&[u8]; 2]) -> SentParts {
        let Some(place) = self.place_of(port) else { return SentParts::NotSo };
        self.ports.send_parts(place, meta, parts, self.pool, self.taps)
    }

    /// Passes a super-frame that a port received to `each`, as the packets that it is on a wire, and releases it. A
    /// frame that cannot be segmented is counted at that port.
    pub fn segment(&mut self, frame: Frame, mut each: impl FnMut(&Frame)) {
        const PACKETS: Capabilities = Capabilities {
            frame_len_max: u32::MAX,
            super_frame_len_max: 0,
            checksum: true,
            partial_checksums: true,
            segmentation: GsoKinds { tcp: false, udp: false },
            chains: true,
            tags: true,
        };
        let place = self.ports.first_place_of(frame.meta().port);
        let own = PortCounters::default();
        let counters = place.map_or(&own, |place| &**self.ports.attached()[place].counters());
        fit(frame, &PACKETS, counters, self.pool, |packet, pool| {
            each(&packet);
            pool.release(packet);
        });
        own.drops.happened().for_each(|(reason, count)| self.fds.drops.add(reason, count));
    }

    /// Gives a frame back.
    pub fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    /// Another packet with the same bytes and metadata, for flooding and mirroring. The bytes of a long one are
    /// copied only when one of the two is written to. `None` if too few frames are free (count it).
    #[inline]
    pub fn share(&mut self, packet: &mut Frame) -> Option<Frame> {
        self.pool.share(packet)
    }

    /// Sends a frame through a port, at the end of the turn or when the burst of its queue is full. If the port is
    /// not attached here, the frame is handed over to the worker that has it, or dropped if there is none. The
    /// engine must have built the frame; [`Self::forward`] sends frames that a port received.
    #[inline]
    pub fn send(&mut self, port: PortId, frame: Frame) {
        match self.place_of(port) {
            Some(place) => self.ports.send(place, frame, self.pool, self.taps),
            None => self.hand_over(port.port, frame),
        }
    }

    /// Sends a frame through a port other than the one that received it. Offloads that the port does not take are
    /// done in software first, so one frame may leave as several ([`twinpath_port::fit`]).
    #[inline]
    pub fn forward(&mut self, port: PortId, frame: Frame) {
        match self.place_of(port) {
            Some(place) => self.ports.forward(place, Some(frame), self.pool, self.taps),
            None => self.hand_over(port.port, frame),
        }
    }

    /// As [`Self::forward`], for frames in order, through a port of which only the number is known. They leave
    /// through the port's queue at this worker, or the first of several. If another worker of the instance has the
    /// port, they are handed over to it.
    #[inline]
    pub fn forward_to(&mut self, port: u16, frames: impl IntoIterator<Item = Frame>) {
        match self.ports.first_place_of(port) {
            Some(place) => self.ports.forward(place, frames, self.pool, self.taps),
            None => frames.into_iter().for_each(|frame| self.hand_over(port, frame)),
        }
    }

    /// As [`Self::forward_to`], for all frames of a burst. Each must have at most `longest` bytes, no work left to
    /// be done ([`is_plain`](twinpath_port::fit::is_plain)), and no tag beside it. Cheaper per frame.
    #[inline]
    pub fn forward_plain_to(&mut self, port: u16, frames: &mut Burst, longest: usize) {
        match self.ports.first_place_of(port) {
            Some(place) => self.ports.forward_plain(place, frames, longest, self.pool, self.taps),
            None => frames.drain(usize::MAX).for_each(|frame| self.hand_over(port, frame)),
        }
    }

    /// Hands a frame over to the worker that has the port; drops it if there is none.
    #[cold]
    fn hand_over(&mut self, port: u16, frame: Frame) {
        let handed = match &mut *self.peers {
            Some(peers) => peers.hand_over(port, frame, self.pool),
            None => Err((frame, Reason::PortDown)),
        };
        match handed {
            Ok(()) => self.worker.handed_over.add(1),
            Err((frame, reason)) => {
                self.drops().add(reason, 1);
                self.pool.release(frame);
            }
        }
    }

    /// The attached ports.
    #[must_use]
    pub fn ports(&self) -> &[Attached] {
        self.ports.attached()
    }

    /// A port, if it is attached.
    #[inline]
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&Attached> {
        self.ports.attached().get(self.place_of(port)?)
    }

    /// A port of which only the number is known, if it is attached: its queue at this worker, or the first of
    /// several.
    #[inline]
    #[must_use]
    pub fn port_numbered(&self, number: u16) -> Option<&Attached> {
        self.ports.attached().get(self.ports.first_place_of(number)?)
    }

    /// A port's index among the worker's ports; valid for one call.
    #[inline]
    fn place_of(&self, port: PortId) -> Option<usize> {
        if port == self.here.port { Some(self.here.place as usize) } else { self.ports.place_of(port) }
    }

    /// A port on interface `ifindex`: `preferred` if it is on this interface, else the first one.
    #[inline]
    #[must_use]
    pub fn port_on(&self, ifindex: u32, preferred: PortId) -> Option<PortId> {
        let on = |attached: &&Attached| attached.ifindex() == ifindex;
        if self.port(preferred).as_ref().is_some_and(on) {
            return Some(preferred);
        }
        self.ports.attached().iter().find(on).map(Attached::id)
    }

    /// Whether the kernel has withdrawn the claims of a port because this worker did not read its rings for too
    /// long. Frames received before that must be dropped.
    #[inline]
    #[must_use]
    pub fn is_withdrawn(&self, port: PortId) -> bool {
        let queue = self.place_of(port).and_then(|place| self.ports.queue_of(place));
        queue.is_some_and(|queue| queue.is_withdrawn())
    }

    /// Counters for what the engine drops.
    #[must_use]
    pub const fn drops(&self) -> &Drops {
        self.fds.drops
    }

    /// Sends control a message that may get lost, because the engine repeats it or nothing depends on it.
    ///
    /// # Errors
    /// Returns the event if the mailbox is full.
    pub fn tell(&mut self, event: E) -> Result<(), E> {
        self.events.send(Event::Engine(event)).map_err(own)
    }

    /// Sends control a message that must arrive. An engine may have [`ENGINE_RESERVE`](crate::ENGINE_RESERVE) such
    /// events unread at a time.
    ///
    /// # Errors
    /// Returns the event if the mailbox and its reserved room are full.
    pub fn tell_reserved(&mut self, event: E) -> Result<(), E> {
        self.events.send_reserved(Event::Engine(event)).map_err(own)
    }
}

/// The engine's event that a full mailbox returned.
fn own<E>(event: Event<E>) -> E {
    match event {
        Event::Engine(event) => event,
        Event::Attached(_) | Event::Detached(_) | Event::PortRemoved(_) | Event::Untapped(_) => {
            unreachable!("what comes back is what was sent")
        }
    }
}
