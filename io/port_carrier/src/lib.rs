//! A queue that carries all kernel interfaces of a switch in one network namespace: one packet socket with one receive
//! ring for all of them, and one to send.
//!
//! The receive socket belongs to no interface: it takes the frames of all that are ports, as its filter says
//! (`PortPrograms` of `steer_bpf`, which also keeps the kernel's own stack from getting them). A slot of the ring says on
//! which interface its frame arrived, so a turn looks at one ring, however many ports are idle. Several workers have a
//! queue each, joined by PACKET_FANOUT: the kernel chooses by the hash of the flow, for all interfaces alike.
//!
//! Frames keep what travels beside them: a virtio-net header is in front of each (checksum to be completed, segmentation
//! to be done), and the tag is in the slot's header. A frame that is longer than a slot, such as a super-frame, is read
//! whole from the socket's queue (PACKET_COPY_THRESH), by one system call, into a chain of frames.
//!
//! Frames are sent by one `sendmmsg(2)` for a burst, whichever ports they leave by: each message names its interface. A
//! frame that the kernel refuses is counted for its port, and those behind it are sent.
//!
//! # Why so
//!
//! Measured between the ends of a veth pair with two virtual CPUs of Linux 6.18, a sender on one and a receiver on the
//! other, which sleeps when it finds nothing:
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
//! These are single runs, and two runs of a row differ by a tenth and more here: what a socket for all interfaces costs beside one
//! for each has yet to be measured in pairs. Version 3 is far cheaper for small frames, as it wakes the receiver once per block; but
//! a frame then waits for its block to be closed, a millisecond if few frames come. While a worker does not sleep it is not
//! woken at all, and version 2 costs its CPU a copy. Slots for the longest frames take 64 times the memory.
//!
//! To send, 64 frames by one call took 1,337 ns each, 32 took 1,324, and single ones 1,563. An interface for each message
//! costs nothing that can be told, and passing the queueing discipline by gains nothing (1,357 ns with it), so super-frames
//! and small frames of all interfaces leave through one socket, and the kernel cuts what a device does not take. AF_XDP sends
//! bursts to one interface a sixth faster (`port_packet`), but takes a socket, its rings and a system call for each.
//!
//! Never here: a decision about where a frame goes.
#![allow(unsafe_code, reason = "recvmsg(2) and sendmmsg(2) take arrays of pointers")]

mod open;
mod send;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use twinpath_frame::{BURST_MAX, Burst, CHUNK_SIZE, Frame, HEADROOM, OutOfChunk, Pool};
use twinpath_inspect::Reason;
use twinpath_port::fit::insert_tag;
use twinpath_port::{
    Capabilities, CarriedPort, CarriedPorts, Carrier, GsoKinds, LinkState, PortQueue, QueueInfo, WaitSource,
    vnet_header,
};
use twinpath_port_vnet::chain::{CHAIN, PACKET_LEN_MAX, Prepared};
use twinpath_rings::packet::{PacketRing, Slot};
use twinpath_rings::pending::Pending;
use twinpath_time::Instant;

pub use crate::open::{CarrierConfig, OpenError};
use crate::send::Sender;

/// Chunks that one call of [`PortQueue::receive`] takes, exceeded by one packet at most: four of the largest packets.
const CHUNKS_PER_TURN: usize = 4 * CHAIN;

/// Frames that a queue may hold: those that it reads the next long packet into, and a burst in transit.
pub const QUEUE_FRAMES: u32 = (CHAIN + CHUNKS_PER_TURN + CHAIN + 2 * BURST_MAX) as u32;

/// The longest packet that is one chunk in any case.
const SHORT_MAX: usize = (CHUNK_SIZE - HEADROOM) as usize;

/// EtherType of an 802.1Q tag.
const TAG: u16 = 0x8100;

/// What an interface carried by such a queue sends: everything whole that the kernel can cut or complete.
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
    /// Where the next long packet is read into.
    prepared: Prepared,
    sender: Sender,
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
        config: &CarrierConfig,
        attach_filter: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    ) -> Result<Self, OpenError<E>> {
        let (receiver, ring) = open::receiver(config, attach_filter)?;
        Ok(Self {
            info: QueueInfo::new(config.id, 0),
            ports: CarriedPorts::new(config.ports_max),
            receiver,
            ring,
            prepared: Prepared::new(),
            sender: Sender::new(open::sender(config)?),
            pending: None,
            stamps_ns: [0; 2],
        })
    }

    /// Makes the queue report when it reads its ring, so that the programs find a stuck worker.
    #[must_use]
    pub fn failing_open(mut self, pending: Option<Pending>) -> Self {
        self.pending = pending;
        self
    }

    /// The worker was stuck: discards the frames that waited, as later ones have overtaken them.
    #[cold]
    fn discard(&mut self) {
        let mut frames = 0;
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
}

/// The result of reading one slot.
enum Taken {
    /// A frame, with its length.
    Frame(Frame, usize),
    /// Port it belongs to, if it is carried, and the reason.
    Dropped(Option<u16>, Reason),
    /// It was cut, as the socket's queue had no room for the whole of it.
    Lost(u16),
}

/// Where the frames of slots are read to.
struct Reader<'a> {
    receiver: &'a OwnedFd,
    ports: &'a CarriedPorts,
    prepared: &'a mut Prepared,
    pool: &'a mut Pool,
}

impl Reader<'_> {
    fn read(&mut self, slot: &Slot<'_>) -> Taken {
        let Some(port) = self.ports.on_interface(slot.ifindex()).map(|carried| carried.port) else {
            if slot.is_in_queue {
                discard_queued(self.receiver);
            }
            // It was a port when the frame arrived.
            return Taken::Dropped(None, Reason::PortDown);
        };
        let read = if slot.is_in_queue { self.queued() } else { self.in_slot(slot) };
        let mut frame = match read {
            Ok(Some(frame)) => frame,
            Ok(None) => return Taken::Lost(port),
            Err(reason) => return Taken::Dropped(Some(port), reason),
        };
        let tagged = match (slot.vlan_tci, slot.vlan_tpid) {
            (Some(tci), Some(protocol)) if protocol != TAG => {
                // Only an 802.1Q tag can be beside a frame.
                let ([p0, p1], [c0, c1]) = (protocol.to_be_bytes(), tci.to_be_bytes());
                insert_tag(&mut frame, [p0, p1, c0, c1])
            }
            (tci, _) => {
                frame.meta_mut().vlan = tci;
                true
            }
        };
        if !tagged {
            self.pool.release(frame);
            return Taken::Dropped(Some(port), Reason::OffloadRefused);
        }
        frame.meta_mut().port = port;
        let len = frame.chain_len();
        Taken::Frame(frame, len)
    }

    /// The frame in the slot; `None` if the slot has only its start.
    fn in_slot(&mut self, slot: &Slot<'_>) -> Result<Option<Frame>, Reason> {
        if slot.bytes.len() < slot.len {
            return Ok(None);
        }
        let header = slot.in_front().ok_or(Reason::Truncated)?;
        let mut frame = self.pool.take().ok_or(Reason::PoolEmpty)?;
        // A slot has room for a few bytes more than a frame with all of its headroom.
        let len = slot.bytes.len();
        let headroom = HEADROOM.min((CHUNK_SIZE as usize).saturating_sub(len) as u32);
        let copied = match frame.place(headroom, len) {
            Ok(()) => {
                frame.bytes_mut().copy_from_slice(slot.bytes);
                vnet_header::decode(header, frame.meta_mut()).map_err(|_| Reason::OffloadRefused)
            }
            Err(OutOfChunk) => Err(Reason::FrameTooLarge),
        };
        match copied {
            Ok(()) => Ok(Some(frame)),
            Err(reason) => {
                self.pool.release(frame);
                Err(reason)
            }
        }
    }

    /// The next frame of the socket's queue, whole.
    fn queued(&mut self) -> Result<Option<Frame>, Reason> {
        if !self.prepared.refill(self.pool) {
            discard_queued(self.receiver);
            return Err(Reason::PoolEmpty);
        }
        let vectors = self.prepared.vectors();
        // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len());
        // MSG_TRUNC: the length it had, also where it did not fit.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the vectors describe memory of the prepared chain, which nobody else touches during the call.
        let len = unsafe { libc::recvmsg(self.receiver.as_raw_fd(), &raw mut message, flags) };
        let len = usize::try_from(len).ok().and_then(|len| len.checked_sub(vnet_header::LEN));
        let len = len.ok_or(Reason::Truncated)?;
        if len > PACKET_LEN_MAX {
            return Err(Reason::FrameTooLarge);
        }
        let header = *self.prepared.header();
        let mut frame = self.prepared.take(len).ok_or(Reason::FrameTooLarge)?;
        if vnet_header::decode(&header, frame.meta_mut()).is_err() {
            self.pool.release(frame);
            return Err(Reason::OffloadRefused);
        }
        Ok(Some(frame))
    }
}

/// Discards the next frame of the socket's queue.
#[cold]
fn discard_queued(socket: &OwnedFd) {
    let _ = rustix::net::recv(socket, &mut [0u8; 0][..], rustix::net::RecvFlags::DONTWAIT);
}

impl WaitSource for CarrierPort {
    #[inline]
    fn look(&self) -> bool {
        self.ring.look()
    }

    /// The socket is readable whenever the ring is not empty, so there is nothing to arm.
    fn arm(&mut self) -> bool {
        // Frames of before the mark are to be discarded first.
        self.pending.as_ref().is_none_or(Pending::clear)
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
        self.ports.add(port)
    }

    fn remove(&mut self, port: u16) -> Option<CarriedPort> {
        self.ports.remove(port)
    }

    fn port_changed(&mut self, port: u16, _link: LinkState) -> Option<Capabilities> {
        // The kernel compares each frame with the present MTU, and cuts what the device does not.
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
        self.prepared.fill(pool);
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        if self.pending.as_ref().is_some_and(|pending| !pending.may_take(now)) {
            self.discard();
        }
        let Self { info, ports, receiver, ring, prepared, .. } = self;
        let mut reader = Reader { receiver, ports, prepared, pool };
        let ([mut first, mut last], mut losing, mut chunks) = ([0; 2], false, 0);
        while burst.room() > 0 && chunks < CHUNKS_PER_TURN {
            let taken = ring.take(|slot| {
                if first == 0 {
                    first = slot.stamp_ns;
                }
                last = slot.stamp_ns;
                losing |= slot.losing;
                reader.read(&slot)
            });
            match taken {
                Some(Taken::Frame(mut frame, len)) => {
                    let meta = frame.meta_mut();
                    (meta.arrival, meta.queue) = (now, info.id.queue);
                    chunks += len.div_ceil(SHORT_MAX);
                    if let Some(CarriedPort { counters, .. }) = ports.get(frame.meta().port) {
                        counters.frames_in.add(1);
                        counters.bytes_in.add(len as u64);
                        counters.count_super_frame_in(&frame);
                    }
                    if let Err(frame) = burst.push(frame) {
                        reader.pool.release(frame);
                    }
                }
                Some(Taken::Dropped(port, reason)) => {
                    let port = port.and_then(|port| ports.get(port));
                    port.map_or(&info.counters, |port| &port.counters).drops.add(reason, 1);
                }
                Some(Taken::Lost(port)) => {
                    ports.get(port).inspect(|port| port.counters.ring_full.add(1));
                }
                None => break,
            }
        }
        self.stamps_ns = [first, last];
        if losing {
            self.info.counters.ring_full.add(u64::from(open::lost_frames(&self.receiver)));
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

    /// Nothing to do: a burst leaves when it is given.
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

    fn close(self: Box<Self>) -> Vec<Frame> {
        // A frame that waited here waits no longer: a queue that uses the word after this one starts afresh.
        self.pending.iter().for_each(Pending::resume);
        self.prepared.into_frames()
    }
}
