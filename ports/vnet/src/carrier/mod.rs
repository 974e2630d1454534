//! A queue that carries all kernel interfaces of a switch in one network namespace: one packet socket with one
//! receive ring for all of them, and shared sockets to send.
//!
//! The receive socket is bound to no interface. It receives the frames of all ports, as its filter decides
//! (`PortPrograms` of `stack/bpf`, which also keep them from the kernel's own stack). A slot of the ring says on
//! which interface its frame arrived, so a turn looks at only one ring, however many ports are idle. Several
//! workers have a queue each, joined by PACKET_FANOUT: for all interfaces, the kernel chooses the queue by the hash
//! of the flow.
//!
//! Frames keep their offloads: a virtio-net header is in front of each (checksum to be completed, segmentation to
//! be done), and the tag is in the slot's header. A frame that is longer than a slot, such as a super-frame, is
//! read whole from the socket's queue (PACKET_COPY_THRESH), by one system call, into a chain of frames.
//!
//! A burst is sent by one `sendmmsg(2)`, for any mix of ports: each message names its interface. A frame that the
//! kernel refuses is counted for its port, and the frames after it are still sent. If frames of one port are stuck,
//! the other ports are not delayed (`spare.rs`).
//!
//! # Why so
//!
//! Measured between the ends of a veth pair with two virtual CPUs of Linux 6.18, a sender on one CPU and on the
//! other a receiver, which sleeps when it finds nothing:
//!
//! | way to receive | 64 bytes, frames/s | receiver, ns/frame | 65,000 bytes, frames/s | receiver, ns/frame |
//! |---|---|---|---|---|
//! | `recvmsg(2)` for each frame | 226,000 | 1,517 | 77,000 | 9,008 |
//! | `recvmmsg(2)`, 8 to 32 frames | 297,000 to 430,000 | 1,148 to 2,074 | 89,000 to 99,000 | 8,583 to 9,795 |
//! | ring of version 2, long frames by the queue | 450,000 | 1,019 | 87,000 to 104,000 | 8,410 to 9,550 |
//! | the same for all interfaces | 352,000 | 1,274 | 117,000 | 7,825 |
//! | ring of version 2, slots of 128 KiB | 387,000 | 1,200 | 94,000 | 6,993 |
//! | ring of version 3, blocks of 256 KiB | 705,000 | 48 | 92,000 | 6,471 |
//!
//! These are single runs, and two runs of a row differ by a tenth or more here. The cost of one socket for all
//! interfaces, compared with one for each, has yet to be measured in pairs. Version 3 is far cheaper for small
//! frames, because it wakes the receiver once per block. But a frame then waits for its block to be closed, a
//! millisecond if few frames come. A worker that does not sleep is not woken at all, and version 2 costs its CPU
//! only a copy. Slots for the longest frames take 64 times the memory.
//!
//! For sending, 64 frames by one call took 1,337 ns each, 32 took 1,324, and single ones 1,563. Naming an interface
//! in each message has no measurable cost, so all interfaces share two sockets. Super-frames, and frames whose
//! checksum is to be completed, leave with a virtio-net header, and the kernel segments what a device cannot.
//! Complete frames leave without the header and, where an interface has no queue (veth), past the qdisc: through a
//! port that programs hold, 60 bytes and bursts of 64 took 1,302 ns this way and 1,466 ns with the header and
//! through tc (medians of 14 alternating rounds, including the receiving end). AF_XDP sends bursts to one interface
//! a sixth faster (`port_packet`), but takes a socket, its rings and a system call for each interface.
//!
//! While the worker keeps up, frames leave in the order in which they came. If it does not, and several ports have
//! frames, the ports take turns (`ahead.rs`).
//!
//! Ports without frames have no measurable cost: beside 1,000 of them, passing on a frame of 64 bytes took 1,853 ns
//! of the worker's CPU, and 1,890 without them; for one of 65,000 bytes, it was 15,092 and 14,699 (`--example
//! forward 1000`, medians of five).
//!
//! Never here: a decision about where a frame goes.
mod ahead;
mod open;
mod read;
mod send;
mod spare;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use twinpath_frame::{BURST_MAX, Burst, CHUNK_SIZE, Frame, HEADROOM, Pool};
use twinpath_inspect::Reason;
use twinpath_packet::chain::{CHAIN, PACKET_LEN_MAX};
use twinpath_packet::{OpenError, WholeFrames, discard_queued, lost_frames};
use twinpath_port::{
    Capabilities, CarriedPort, CarriedPorts, Carrier, GsoKinds, LinkState, PortQueue, QueueInfo, WaitSource,
};
use twinpath_rings::packet::PacketRing;
use twinpath_rings::pending::Pending;
use twinpath_time::{Duration, Instant};

pub use crate::carrier::open::{CarrierConfig, spare};
pub use crate::carrier::spare::SPARES_MAX;

use crate::carrier::ahead::Ahead;
use crate::carrier::read::{Reader, Taken};
use crate::carrier::send::Sender;

/// Chunks that one call of [`PortQueue::receive`] takes, exceeded by at most one packet: four of the largest
/// packets.
const CHUNKS_PER_TURN: usize = 4 * CHAIN;

/// Sockets of one queue that are slow to close; spare ones come with ports.
pub const SOCKETS: usize = 3;

/// Maximum number of frames that a queue may hold: those for the next long packet, those that are read ahead of
/// their turn, and a burst in transit.
pub const QUEUE_FRAMES: u32 = (CHAIN + CHUNKS_PER_TURN + CHAIN + ahead::CHUNKS_MAX + 2 * BURST_MAX) as u32;

/// The worker does not keep up if a burst is full and the ring has more. After frames of several ports came, the
/// ports then take turns for this time.
const MIXED: Duration = Duration::from_millis(10);

/// Slots of the ring that are read per turn while ports take turns. More than arrive meanwhile, so the ring becomes
/// empty.
const READ_AHEAD: usize = 256;

/// Frames in a burst meanwhile. A frame of a port that sends little waits for at most this many others, plus one of
/// each other port. With half as many, a frame costs a tenth more.
const FAIR_BURST: usize = BURST_MAX / 2;

/// The longest packet that certainly fits into one chunk.
const SHORT_MAX: usize = (CHUNK_SIZE - HEADROOM) as usize;

/// The capabilities of an interface carried by such a queue: it sends everything whole that the kernel can segment
/// or complete.
#[must_use]
pub fn capabilities(segmentation: GsoKinds) -> Capabilities {
    Capabilities {
        frame_len_max: PACKET_LEN_MAX as u32,
        checksum: true,
        segmentation,
        chains: true,
        ..Capabilities::default()
    }
}

/// The queue of one worker for the interfaces of one network namespace.
#[derive(Debug)]
pub struct CarrierPort {
    info: QueueInfo,
    ports: CarriedPorts,
    receiver: OwnedFd,
    ring: PacketRing,
    frames: WholeFrames,
    sender: Sender,
    /// Frames that were read ahead of their turn.
    ahead: Ahead,
    /// Whether ports take turns, because the worker does not keep up with them.
    takes_turns: bool,
    /// The port of the last frame, and when frames of different ports last followed each other.
    last_port: u16,
    mixed_at: Instant,
    /// The word that says since when a frame has been waiting.
    pending: Option<Pending>,
    /// The time stamps of the first and the last frame of the last burst; 0 if it was empty.
    stamps_ns: [u64; 2],
}

impl CarrierPort {
    /// Opens the sockets, in the network namespace of the calling thread. `attach_filter` is called with the receiving one
    /// before it can receive anything.
    ///
    /// # Errors
    /// [`OpenError`], one variant per step.
    pub fn open<E>(
        config: &CarrierConfig<'_>,
        attach_filter: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    ) -> Result<Self, OpenError<E>> {
        let (receiver, ring) = open::receiver(config, attach_filter)?;
        Ok(Self {
            info: QueueInfo::new(config.id, 0),
            ports: CarriedPorts::new(config.ports_max),
            receiver,
            ring,
            frames: WholeFrames::default(),
            sender: Sender::new(open::senders(config)?),
            ahead: Ahead::new(),
            takes_turns: false,
            last_port: 0,
            mixed_at: Instant::ZERO,
            pending: None,
            stamps_ns: [0; 2],
        })
    }

    /// Makes the queue report when it reads its ring, so that the programs can detect a stuck worker.
    #[must_use]
    pub fn failing_open(mut self, pending: Option<Pending>) -> Self {
        self.pending = pending;
        self
    }

    /// The worker was stuck: discards the frames that waited, as later ones have overtaken them.
    #[cold]
    fn discard(&mut self, pool: &mut Pool) {
        let mut frames = 0;
        while let Some(frame) = self.ahead.pop() {
            pool.release(frame);
            frames += 1;
        }
        let receiver = &self.receiver;
        while self
            .ring
            .take(|slot| {
                if slot.is_in_queue {
                    discard_queued(receiver);
                }
            })
            .is_some()
        {
            frames += 1;
        }
        self.info.counters.times_stuck.add(1);
        self.info.counters.drops.add(Reason::WorkerStuck, frames);
        self.pending.iter().for_each(Pending::resume);
    }

    /// Reads the next slot of the ring. A frame that cannot be passed on is counted.
    #[inline]
    fn read(&mut self, now: Instant, pool: &mut Pool, seen: &mut Seen) -> Next {
        let Self { info, ports, receiver, ring, frames, ahead, takes_turns, .. } = self;
        let shares = takes_turns.then_some(&*ahead);
        let mut reader = Reader { receiver, ports, frames, pool, shares };
        let taken = ring.take(|slot| {
            if seen.stamps_ns[0] == 0 {
                seen.stamps_ns[0] = slot.stamp_ns;
            }
            seen.stamps_ns[1] = slot.stamp_ns;
            seen.losing |= slot.losing;
            reader.read(&slot)
        });
        match taken {
            Some(Taken::Frame(mut frame, len)) => {
                let meta = frame.meta_mut();
                (meta.arrival, meta.queue) = (now, info.id.queue);
                if let Some(CarriedPort { counters, .. }) = ports.get(frame.meta().port) {
                    counters.frames_in.add(1);
                    counters.bytes_in.add(len as u64);
                    counters.count_super_frame_in(&frame);
                }
                Next::Frame(frame, chunks_of(len))
            }
            Some(Taken::Dropped(port, reason)) => {
                let port = port.and_then(|port| ports.get(port));
                port.map_or(&info.counters, |port| &port.counters).drops.add(reason, 1);
                Next::Dropped
            }
            Some(Taken::Lost(port)) => {
                ports.get(port).inspect(|port| port.counters.ring_full.add(1));
                Next::Dropped
            }
            None => Next::Empty,
        }
    }

    /// Fills the burst with the frames that came first.
    fn receive_in_order(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst, seen: &mut Seen) {
        let mut chunks = 0;
        while burst.room() > 0 && chunks < CHUNKS_PER_TURN {
            match self.read(now, pool, seen) {
                Next::Frame(frame, more) => {
                    chunks += more;
                    let port = frame.meta().port;
                    if port != self.last_port {
                        (self.last_port, self.mixed_at) = (port, now);
                    }
                    push(frame, burst, pool);
                }
                Next::Dropped => {}
                Next::Empty => return,
            }
        }
        self.takes_turns = burst.room() == 0 && now.since(self.mixed_at) < MIXED && self.ring.look();
    }

    /// Reads the ring ahead, and fills the burst from the ports in turns.
    fn receive_in_turns(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst, seen: &mut Seen) {
        for _ in 0..READ_AHEAD {
            // A long packet counts by its chunks, whose number is not known before it is read.
            if !self.ahead.has_room(CHAIN) {
                break;
            }
            match self.read(now, pool, seen) {
                Next::Frame(frame, chunks) => {
                    if let Err(frame) = self.ahead.push(frame, chunks) {
                        pool.release(frame);
                    }
                }
                Next::Dropped => {}
                Next::Empty => break,
            }
        }
        let mut chunks = 0;
        while burst.len() < FAIR_BURST && chunks < CHUNKS_PER_TURN {
            let Some(frame) = self.ahead.pop() else {
                self.takes_turns = self.ring.look();
                return;
            };
            chunks += chunks_of(frame.chain_len());
            push(frame, burst, pool);
        }
    }
}

/// Chunks that a packet of that length takes; for a long one, one more than it may need.
const fn chunks_of(len: usize) -> usize {
    len.div_ceil(SHORT_MAX)
}

fn push(frame: Frame, burst: &mut Burst, pool: &mut Pool) {
    if let Err(frame) = burst.push(frame) {
        pool.release(frame);
    }
}

/// Observations of a turn besides frames.
#[derive(Debug, Default)]
struct Seen {
    stamps_ns: [u64; 2],
    losing: bool,
}

/// The next entry of the ring.
enum Next {
    /// A frame and its chunks.
    Frame(Frame, usize),
    Dropped,
    Empty,
}

impl WaitSource for CarrierPort {
    #[inline]
    fn look(&self) -> bool {
        self.ring.look() || !self.ahead.is_empty()
    }

    /// The socket is readable whenever the ring is not empty, so there is nothing to arm.
    fn arm(&mut self) -> bool {
        // Frames from before the mark must be discarded first.
        self.ahead.is_empty() && self.pending.as_ref().is_none_or(Pending::clear)
    }

    fn disarm(&mut self) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }
}

impl Carrier for CarrierPort {
    fn ports(&self) -> &CarriedPorts {
        &self.ports
    }

    fn add(&mut self, port: CarriedPort) -> Result<(), CarriedPort> {
        let spares = port.spares.clone();
        self.ports.add(port)?;
        spares.iter().for_each(|socket| self.sender.add_spare(socket));
        Ok(())
    }

    fn remove(&mut self, port: u16) -> Option<CarriedPort> {
        self.ports.remove(port)
    }

    fn port_changed(&mut self, port: u16, _link: LinkState) -> Option<Capabilities> {
        // The kernel compares each frame with the present MTU, and segments what the device cannot.
        self.ports.get(port).map(|carried| carried.capabilities)
    }
}

impl PortQueue for CarrierPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(GsoKinds::ALL)
    }

    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        Some(self)
    }

    fn prepare(&mut self, pool: &mut Pool) {
        self.frames.fill(pool);
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        if self.pending.as_ref().is_some_and(|pending| !pending.may_take(now)) {
            self.discard(pool);
        }
        let mut seen = Seen::default();
        if self.takes_turns {
            self.receive_in_turns(now, pool, burst, &mut seen);
        } else {
            self.receive_in_order(now, pool, burst, &mut seen);
        }
        self.stamps_ns = seen.stamps_ns;
        if seen.losing {
            self.info.counters.ring_full.add(u64::from(lost_frames(&self.receiver)));
        }
    }

    fn stamps_ns(&self) -> Option<[u64; 2]> {
        (self.stamps_ns[0] != 0).then_some(self.stamps_ns)
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        if self.is_withdrawn() {
            self.info.counters.drops.add(Reason::WorkerStuck, burst.len() as u64);
            return burst.release(usize::MAX, pool);
        }
        self.sender.send(burst, &self.ports, &self.info.counters, pool);
    }

    /// Nothing to do: a burst is sent in the call that takes it.
    fn flush(&mut self, _pool: &mut Pool) {}

    fn on_error(&mut self) {
        // Reading SO_ERROR clears it.
        let _ = rustix::net::sockopt::socket_error(&self.receiver);
        self.info.counters.errors.add(1);
    }

    #[inline]
    fn is_withdrawn(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_withdrawn)
    }

    fn close(mut self: Box<Self>) -> Vec<Frame> {
        // A frame that waited here no longer waits: the next queue that uses the word starts afresh.
        self.pending.iter().for_each(Pending::resume);
        let mut frames: Vec<_> = std::iter::from_fn(|| self.ahead.pop()).collect();
        frames.extend(self.frames.into_frames());
        frames
    }
}
