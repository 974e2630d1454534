//! The ports of an interface. [`xdp`] has that of the XDP path; this is the one of the packet path: an AF_PACKET receive
//! ring, and a second socket for sending.
//!
//! The receive socket is bound to all protocols (protocol hooks run after tc, which drops claimed frames). It
//! receives only what its filter accepts (the verdict; the caller attaches it before the first frame can come), and
//! ignores what the host itself sends. A frame is copied out of its slot immediately and the slot given back,
//! because a slot that is kept would keep the socket readable.
//!
//! While its worker does not sleep, no socket is needed to wake it. The socket's filter then puts claimed frames
//! into the worker's direct ring, from which they are read without the socket's locks, time stamps and wake-ups.
//! Before each sleep the worker closes that ring, and frames come through the socket again (`receive.rs`). The only
//! worker of an interface starts without a bound socket, until it is about to sleep for the first time (in mode
//! `poll`: never). Until then, the program at tc ingress does the filter's work, and frames are not offered to the
//! socket, which costs more than all the rest.
//!
//! Sending happens once per turn, through an AF_XDP socket that only sends. It needs no XDP program, so nothing
//! changes for the kernel's traffic. It takes one system call per burst without passing the socket layer per frame
//! (a round trip took 3.55 us instead of 4.0, and bursts were sent a sixth faster). If such a queue cannot be
//! opened, `sendmmsg(2)` on a socket without a ring is used, which is 7 to 15 % faster than the packet socket's own
//! transmit ring.
//!
//! Runs of datagrams leave as super-frames if the kernel segments them before anyone else sees them
//! (`segments.rs`).
//!
//! For connections, super-frames come and leave as they are (`PacketConfig::super_frames`). The peer's kernel hands
//! over up to 64 KiB at once on a virtual link, and a device's driver joins segments as well. Such a frame has its slot in
//! the ring like others, and the socket's queue has it whole (`whole.rs`). So its order among the other frames, the
//! wake-up of a sleeping worker, and the choice of the worker are the same as for other frames; a second socket would
//! have each of these twice. Only the direct ring has no room for it (`receive.rs`).
//!
//! Coalesced datagrams can come in the same way, and are taken apart (`PacketConfig::datagrams`, `datagrams.rs`). While the
//! direct ring is open and has room, the program takes them apart instead, each into a slot (`stack/bpf/bpf/cut.h`).
//!
//! Never here: decisions about what is claimed.

pub mod chain;
mod datagrams;
mod open;
mod receive;
mod segments;
mod transmit;
mod whole;
pub mod xdp;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use open::{OpenError, PacketConfig, lost_frames, receive_ring, receive_whole};
use twinpath_frame::{
    BURST_MAX, Burst, CHUNK_SIZE, Checksum, Frame, GsoKind, HEADROOM, Meta, OutOfChunk, Pool,
};
use twinpath_inspect::Reason;
use twinpath_port::fit::is_plain;
use twinpath_port::vnet_header;
use twinpath_port::{
    Capabilities, GsoKinds, LinkState, PortQueue, QueueInfo, Received, SentParts, WaitSource,
};
use twinpath_rings::answering::ByWorker;
use twinpath_rings::direct::{DirectFrame, DirectRing};
use twinpath_rings::packet::Slot;
use twinpath_rings::pending::Pending;
use twinpath_sys::cpuidle::online_cpus;
use twinpath_time::Instant;
pub use whole::{WholeFrames, discard_queued};

use crate::chain::{CHAIN, PACKET_LEN_MAX};
pub use crate::datagrams::DATAGRAMS_MAX;
use crate::datagrams::Datagrams;
use crate::receive::{Arrived, Rings};
use crate::transmit::Transmitter;
use crate::xdp::XdpPort;

/// The longest frame that fits into a frame of the pool.
const FRAME_LEN_MAX: u32 = CHUNK_SIZE - HEADROOM;

/// Frames of the pool that long packets of one call of [`PortQueue::receive`] take, exceeded by at most one packet: four
/// of the longest.
const CHUNKS_PER_TURN: usize = 4 * CHAIN;

/// Frames of the pool that super-frames need in addition: those for the next long packet, and those that came in one
/// turn or leave in it. If the pool is empty, super-frames are dropped and counted.
pub const SUPER_FRAME_CHUNKS: u32 = (CHAIN + 2 * (CHUNKS_PER_TURN + CHAIN)) as u32;

/// Frames of the pool that coalesced datagrams need in addition: those that came in one turn, and those that wait for the
/// next one. If the pool is empty, they are dropped and counted.
pub const DATAGRAM_CHUNKS: u32 = (BURST_MAX + DATAGRAMS_MAX) as u32;

/// Whether the socket receives the interface's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    /// No: the program at tc ingress fills the direct ring by itself.
    Unbound,
    /// Since the last call of `arm`. A run of the program that has not seen the socket yet may still be in
    /// progress.
    JustBound,
    Bound,
}

/// A queue on the packet path. Several workers on one interface have one each, joined by PACKET_FANOUT.
#[derive(Debug)]
pub struct PacketPort {
    info: QueueInfo,
    receiver: OwnedFd,
    socket: Socket,
    rings: Rings,
    /// Reads frames with their offloads, if such frames come.
    offloads: Option<Box<Offloads>>,
    /// The word that says since when a frame has been waiting.
    pending: Option<Pending>,
    /// Whether it answers requests that programs could answer.
    answers: Option<ByWorker>,
    /// When the rings were last read.
    looked: Instant,
    virtual_device: bool,
    transmitter: Transmitter,
    /// The longest frame that may be sent now.
    frame_len_max: u32,
    /// The time stamps of the first and the last frame of the last burst; 0 if it was empty.
    stamps_ns: [u64; 2],
}

impl PacketPort {
    /// Opens both sockets. `attach_filter` is called with the receiving one before it can receive anything.
    /// `sender_queue` is an AF_XDP queue on the same interface that only sends; its memory is the pool's. `direct` is
    /// the worker's direct ring; without it all frames come through the socket.
    ///
    /// # Errors
    /// [`OpenError`], one variant per step.
    pub fn open<E>(
        config: &PacketConfig<'_>,
        attach_filter: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
        sender_queue: Option<XdpPort>,
        direct: Option<DirectRing>,
    ) -> Result<Self, OpenError<E>> {
        // A socket that is not needed yet is not bound to the interface: each frame would cost a run of its filter.
        // It is needed for super-frames of connections, which the kernel must not get.
        let binds_late = config.binds_late && direct.is_some() && !config.super_frames;
        let socket = if binds_late { Socket::Unbound } else { Socket::Bound };
        let (receiver, ring) = open::receiver(config, attach_filter, socket == Socket::Bound)?;
        let rings = Rings::new(ring, direct, online_cpus().len().max(1)).with_headers(config.has_headers());
        let sender = open::sender(config)?;
        let info = QueueInfo::new(config.id, config.ifindex);
        let sender_queue = sender_queue.map(|queue| queue.counting_in(Arc::clone(&info.counters)));
        let super_frames = open::super_frame_sender(config)?;
        let transmitter =
            Transmitter::new(sender, sender_queue, super_frames).with_offloads(config.super_frames);
        Ok(Self {
            info,
            receiver,
            socket,
            rings,
            offloads: config.has_headers().then(|| Box::new(Offloads::new(config))),
            pending: None,
            answers: None,
            looked: Instant::ZERO,
            virtual_device: config.bypass_qdisc,
            transmitter,
            frame_len_max: FRAME_LEN_MAX,
            stamps_ns: [0; 2],
        })
    }

    /// Makes the queue report when it reads its rings, so that the program withdraws the claims of a stuck worker.
    #[must_use]
    pub fn failing_open(mut self, pending: Option<Pending>) -> Self {
        self.answers = pending.clone().map(ByWorker::new);
        self.pending = pending;
        self
    }

    /// Claims were withdrawn: discards the frames that came before.
    #[cold]
    fn discard(&mut self, pool: &mut Pool) {
        let mut frames = self.rings.discard(|| discard_queued(&self.receiver));
        frames += self.datagrams().map_or(0, |datagrams| datagrams.release(pool));
        self.info.counters.times_stuck.add(1);
        self.info.counters.drops.add(Reason::WorkerStuck, frames);
        self.pending.iter().for_each(Pending::resume);
    }

    /// Counts frames that came by the direct ring, and datagrams that came coalesced.
    #[inline]
    fn count_ways(&self, direct: u64, split: u64) {
        if direct > 0 {
            self.info.counters.frames_direct.add(direct);
        }
        if split > 0 {
            self.info.counters.frames_split.add(split);
        }
    }

    /// Whether datagrams wait that have been read.
    #[inline]
    fn has_waiting(&self) -> bool {
        self.offloads.as_ref().is_some_and(|offloads| offloads.look())
    }

    fn datagrams(&mut self) -> Option<&mut Datagrams> {
        self.offloads.as_mut()?.datagrams.as_mut()
    }

    /// Passes on datagrams that wait, as many as there is room for.
    #[inline]
    fn pass_on(&mut self, received: &mut Received, pool: &mut Pool, burst: &mut Burst) {
        let Some(datagrams) = self.datagrams().filter(|datagrams| datagrams.look()) else { return };
        while burst.room() > 0
            && let Some(frame) = datagrams.next()
        {
            let len = frame.len();
            received.push(frame, len, pool, burst);
        }
    }

    /// Binds the socket if the program has seen a frame that only a socket takes. The program decides for one turn more,
    /// as in [`Self::leave_direct`].
    #[inline]
    fn bind_if_wanted(&mut self) {
        match self.socket {
            Socket::Unbound if self.rings.wants_socket() => self.bind(),
            Socket::JustBound => self.let_socket_decide(),
            _ => {}
        }
    }

    #[cold]
    fn bind(&mut self) {
        if open::receive_all(&self.receiver, self.info.ifindex).is_err() {
            // The interface is gone; no frame will come through either.
            self.info.counters.errors.add(1);
        }
        self.socket = Socket::JustBound;
    }

    #[cold]
    fn let_socket_decide(&mut self) {
        self.rings.set_without_socket(false);
        self.socket = Socket::Bound;
    }

    /// Makes frames come through the socket, which alone can wake the worker. Returns whether everything that came
    /// before has been taken; otherwise the worker takes another turn before it sleeps.
    fn leave_direct(&mut self) -> bool {
        match self.socket {
            Socket::Unbound => {
                self.bind();
                // The ring stays open for one more turn, for frames that had passed the socket when it was bound. A
                // frame that finds the ring closed goes to the kernel's sockets.
                return false;
            }
            Socket::JustBound => self.let_socket_decide(),
            Socket::Bound => {}
        }
        self.rings.close()
    }
}

/// The result of reading one slot.
enum Taken {
    Frame(Frame),
    /// A super-frame, or one of several frames.
    Long(Frame),
    /// Coalesced datagrams, so many, which wait.
    Datagrams(usize),
    /// A long frame of which only the start is left.
    Lost,
    Dropped(Reason),
}

/// Copies the frame of a slot into a frame of the pool.
fn copy_out(slot: &Slot<'_>, pool: &mut Pool) -> Taken {
    if slot.bytes.len() < slot.len {
        return Taken::Dropped(Reason::FrameTooLarge);
    }
    let Some(mut frame) = pool.take() else {
        return Taken::Dropped(Reason::PoolEmpty);
    };
    if let Err(OutOfChunk) = frame.copy_from(slot.bytes) {
        pool.release(frame);
        return Taken::Dropped(Reason::FrameTooLarge);
    }
    let meta = frame.meta_mut();
    meta.vlan = slot.vlan_tci;
    meta.checksum = match (slot.checksum_not_ready, slot.checksum_valid) {
        (true, _) => Checksum::Partial,
        (false, true) => Checksum::Verified,
        (false, false) => Checksum::Unverified,
    };
    Taken::Frame(frame)
}

/// The metadata of a slot's frame, if that consists of coalesced datagrams.
fn datagrams_of(slot: &Slot<'_>) -> Option<Meta> {
    let mut meta = Meta::default();
    let decoded = slot.in_front().map(|header| vnet_header::decode(header, &mut meta));
    (decoded == Some(Ok(())) && meta.gso.kind == GsoKind::UdpSegments).then_some(meta)
}

/// Reads frames that have a virtio-net header in front.
#[derive(Debug)]
struct Offloads {
    whole: WholeFrames,
    /// Whether super-frames, and frames that are longer than a slot, are taken as they are.
    super_frames: bool,
    /// Takes coalesced datagrams apart, if such frames come.
    datagrams: Option<Datagrams>,
}

impl Offloads {
    fn new(config: &PacketConfig<'_>) -> Self {
        let datagrams = config.datagrams.then(Datagrams::new);
        Self { whole: WholeFrames::default(), super_frames: config.super_frames, datagrams }
    }

    /// Reads the frame of a slot.
    fn read(&mut self, slot: &Slot<'_>, socket: &OwnedFd, pool: &mut Pool) -> Taken {
        if slot.bytes.len() < slot.len && !slot.is_in_queue {
            return Taken::Lost;
        }
        if let (Some(datagrams), Some(meta)) = (&mut self.datagrams, datagrams_of(slot)) {
            let taken = datagrams.take(slot, &meta, socket, pool);
            return taken.map_or_else(Taken::Dropped, Taken::Datagrams);
        }
        let mut frame = match self.whole.read(slot, socket, pool) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Taken::Lost,
            Err(reason) => return Taken::Dropped(reason),
        };
        let meta = frame.meta_mut();
        meta.vlan = slot.vlan_tci;
        if meta.next.is_none() && meta.gso.kind == GsoKind::None {
            return Taken::Frame(frame);
        }
        if self.super_frames {
            return Taken::Long(frame);
        }
        // The programs leave such frames to the kernel.
        pool.release(frame);
        Taken::Dropped(Reason::OffloadRefused)
    }

    /// Whether a datagram waits.
    fn look(&self) -> bool {
        self.datagrams.as_ref().is_some_and(Datagrams::look)
    }

    fn into_frames(self) -> Vec<Frame> {
        let mut frames = self.whole.into_frames();
        frames.extend(self.datagrams.into_iter().flat_map(Datagrams::into_frames));
        frames
    }
}

/// Copies the frame of a direct ring's slot into a frame of the pool.
fn copy_direct(slot: &DirectFrame<'_>, pool: &mut Pool) -> Taken {
    let Some(mut frame) = pool.take() else {
        return Taken::Dropped(Reason::PoolEmpty);
    };
    if let Err(OutOfChunk) = frame.copy_from(slot.bytes) {
        pool.release(frame);
        return Taken::Dropped(Reason::FrameTooLarge);
    }
    frame.meta_mut().vlan = slot.vlan_tci;
    if slot.is_cut {
        datagrams::leave_checksum(&mut frame);
    }
    Taken::Frame(frame)
}

impl WaitSource for PacketPort {
    #[inline]
    fn look(&self) -> bool {
        self.rings.look() || self.has_waiting()
    }

    /// The socket is readable whenever the ring is not empty, so there is nothing to arm, except for frames that have
    /// not left yet.
    fn arm(&mut self) -> bool {
        if self.has_waiting() {
            return false;
        }
        let has_left = self.leave_direct();
        // Frames from before the mark must be discarded first.
        let is_clear = self.pending.as_ref().is_none_or(Pending::clear);
        let is_armed = has_left && is_clear && self.transmitter.arm();
        if let Some(answers) = self.answers.as_mut().filter(|_| is_armed) {
            answers.sleeps(self.looked);
        }
        is_armed
    }

    fn disarm(&mut self) {
        self.transmitter.disarm();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }
}

impl PortQueue for PacketPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        let with_offloads = self.transmitter.sends_offloads();
        Capabilities {
            frame_len_max: self.frame_len_max,
            super_frame_len_max: if with_offloads { PACKET_LEN_MAX as u32 } else { 0 },
            checksum: with_offloads,
            partial_checksums: self.virtual_device && self.rings.has_direct(),
            segmentation: GsoKinds { tcp: with_offloads, udp: false },
            chains: with_offloads || self.offloads.as_ref().is_some_and(|offloads| offloads.super_frames),
            ..Capabilities::default()
        }
    }

    fn changed(&mut self, link: LinkState) {
        self.frame_len_max = link.frame_len_max().min(FRAME_LEN_MAX);
        self.transmitter.changed(link);
    }

    fn prepare(&mut self, pool: &mut Pool) {
        if let Some(offloads) = self.offloads.as_mut().filter(|offloads| offloads.super_frames) {
            offloads.whole.fill(pool);
        }
        if self.socket == Socket::Unbound {
            self.rings.open(Instant::ZERO);
            self.rings.set_without_socket(true);
        }
    }

    fn begin_polling(&mut self, now: Instant) {
        if self.rings.begin_polling(now) {
            self.info.counters.direct_opened.add(1);
        }
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        if self.pending.as_ref().is_some_and(|pending| !pending.may_take(now)) {
            self.discard(pool);
        }
        self.bind_if_wanted();
        let (mut received, mut losing) = (Received::new(now, self.info.id), false);
        let ([mut first, mut last], mut direct, mut split, mut chunks) = ([0; 2], 0, 0, 0);
        self.pass_on(&mut received, pool, burst);
        while burst.room() > 0 {
            let taken = self.rings.take(now, |arrived| match arrived {
                Arrived::Direct(slot) => {
                    direct += 1;
                    split += u64::from(slot.is_cut);
                    copy_direct(&slot, pool)
                }
                Arrived::Socket(slot) => {
                    if first == 0 {
                        first = slot.stamp_ns;
                    }
                    last = slot.stamp_ns;
                    losing |= slot.losing;
                    match &mut self.offloads {
                        None => copy_out(&slot, pool),
                        Some(offloads) => offloads.read(&slot, &self.receiver, pool),
                    }
                }
            });
            match taken {
                Some(Taken::Frame(frame)) => {
                    let len = frame.len();
                    received.push(frame, len, pool, burst);
                }
                Some(Taken::Datagrams(count)) => {
                    chunks += count;
                    split += count as u64;
                    self.pass_on(&mut received, pool, burst);
                }
                Some(Taken::Long(frame)) => {
                    let len = frame.chain_len();
                    chunks += frame.chain().count();
                    self.info.counters.count_super_frame_in(&frame);
                    received.push(frame, len, pool, burst);
                    if chunks >= CHUNKS_PER_TURN {
                        break;
                    }
                }
                Some(Taken::Lost) => self.info.counters.ring_full.add(1),
                Some(Taken::Dropped(reason)) => self.info.counters.drops.add(reason, 1),
                None => break,
            }
        }
        if self.rings.end_burst(now, chunks > 0) {
            self.info.counters.direct_opened.add(1);
        }
        self.stamps_ns = [first, last];
        self.count_ways(direct, split);
        if burst.room() == 0 {
            // The loss counter is read only if the ring is rather full; otherwise it has not overflowed.
            self.info.counters.ring_full.add(u64::from(self.rings.lost_direct()));
        }
        self.looked = now;
        if let Some(answers) = &mut self.answers {
            answers.found(now, received.frames());
        }
        received.count(&self.info.counters);
        if losing {
            self.info.counters.ring_full.add(u64::from(open::lost_frames(&self.receiver)));
        }
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        if self.is_withdrawn() {
            self.info.counters.drops.add(Reason::WorkerStuck, burst.len() as u64);
            return burst.release(usize::MAX, pool);
        }
        debug_assert!(
            self.transmitter.sends_offloads() || burst.frames().iter().all(is_plain),
            "what this port does not take is done before"
        );
        self.transmitter.take(pool, burst, &self.info.counters);
    }

    fn send_parts(&mut self, pool: &mut Pool, meta: &Meta, parts: [&[u8]; 2]) -> SentParts {
        if self.is_withdrawn() {
            return SentParts::NotSo;
        }
        self.transmitter.send_parts(pool, &self.info.counters, meta, parts)
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.transmitter.flush(pool, &self.info.counters);
    }

    fn is_flushed(&self) -> bool {
        self.transmitter.is_flushed()
    }

    fn stamps_ns(&self) -> Option<[u64; 2]> {
        (self.stamps_ns[0] != 0).then_some(self.stamps_ns)
    }

    #[inline]
    fn is_withdrawn(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_withdrawn)
    }

    fn on_error(&mut self) {
        // Reading SO_ERROR clears it. After NETDEV_DOWN the kernel re-registers the socket by itself on NETDEV_UP
        // (`packet_notifier`, net/packet/af_packet.c).
        let _ = rustix::net::sockopt::socket_error(&self.receiver);
        self.info.counters.errors.add(1);
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        self.rings.set_without_socket(false);
        let mut frames = self.transmitter.into_frames();
        frames.extend(self.offloads.into_iter().flat_map(|offloads| offloads.into_frames()));
        frames
    }
}
