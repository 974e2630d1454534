//! The contract of a port's queue: how a worker receives and sends frames.

use std::sync::Arc;

use twinpath_frame::{Burst, Frame, GsoKind, Pool};
use twinpath_inspect::{Counter, Drops};
use twinpath_time::Instant;

use crate::carried::Carrier;
use crate::super_frame::packets_of;
use crate::wait::WaitSource;

/// The number of a port and of one of its queues in this process; stable while the port is attached. Aligned so that
/// two are compared at once: that is done for each frame that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct PortId {
    /// Number of the port.
    pub port: u16,
    /// Queue of the port.
    pub queue: u16,
}

/// The identity and the counters of a queue.
#[derive(Debug, Default)]
pub struct QueueInfo {
    /// Number of the port and queue.
    pub id: PortId,
    /// Kernel index of the interface, 0 if there is none.
    pub ifindex: u32,
    /// Its counters.
    pub counters: Arc<PortCounters>,
}

impl QueueInfo {
    /// The identity of a queue, with counters at zero.
    #[must_use]
    pub fn new(id: PortId, ifindex: u32) -> Self {
        Self { id, ifindex, counters: Arc::default() }
    }
}

/// Marks the frames of one call of [`PortQueue::receive`] with their arrival time and queue, and counts them.
#[derive(Debug)]
pub struct Received {
    now: Instant,
    id: PortId,
    frames: u64,
    bytes: u64,
}

impl Received {
    /// Starts with no frames, for queue `id`.
    #[must_use]
    pub const fn new(now: Instant, id: PortId) -> Self {
        Self { now, id, frames: 0, bytes: 0 }
    }

    /// Puts a frame of `bytes` bytes into the burst; releases it if there is no room.
    #[inline]
    pub fn push(&mut self, mut frame: Frame, bytes: usize, pool: &mut Pool, burst: &mut Burst) {
        let meta = frame.meta_mut();
        (meta.arrival, meta.port, meta.queue) = (self.now, self.id.port, self.id.queue);
        self.frames += 1;
        self.bytes += bytes as u64;
        if let Err(frame) = burst.push(frame) {
            pool.release(frame);
        }
    }

    /// Adds the frames to the queue's counters.
    #[inline]
    pub fn count(self, counters: &PortCounters) {
        if self.frames > 0 {
            counters.frames_in.add(self.frames);
            counters.bytes_in.add(self.bytes);
        }
    }
}

/// What a queue sends beyond plain frames; the same for as long as it is attached. Engines that pass frames on from port
/// to port leave it to [`fit`](crate::fit::fit) to make a frame one that the port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest frame it receives and sends, bytes from the Ethernet header.
    pub frame_len_max: u32,
    /// It sends frames whose transport checksum is [`Checksum::Partial`](twinpath_frame::Checksum).
    pub checksum: bool,
    /// Frames may arrive with a transport checksum that the sender left to hardware, and the metadata does not say
    /// which do: a virtual device on the XDP path. On other paths [`Meta::checksum`](twinpath_frame::Meta) says it.
    pub partial_checksums: bool,
    /// The kinds of super-frames that it sends.
    pub segmentation: GsoKinds,
    /// It receives and sends packets that span several frames (`Meta::next`).
    pub chains: bool,
    /// It sends a tag that is beside the frame (`Meta::vlan`); other ports ignore it.
    pub tags: bool,
}

/// The kinds of super-frames that a port sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GsoKinds {
    /// TCP over IPv4 and IPv6.
    pub tcp: bool,
    /// UDP datagrams.
    pub udp: bool,
}

impl GsoKinds {
    /// All kinds.
    pub const ALL: Self = Self { tcp: true, udp: true };

    /// Whether frames of this kind are taken: those without segmentation always are.
    #[inline]
    #[must_use]
    pub const fn takes(self, kind: GsoKind) -> bool {
        match kind {
            GsoKind::None => true,
            GsoKind::TcpV4 | GsoKind::TcpV6 => self.tcp,
            GsoKind::UdpSegments => self.udp,
        }
    }
}

/// The state of a port's interface, as far as it may change while the port is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// MTU, bytes.
    pub mtu: u32,
    /// Whether the kernel segments super-frames on this host's side of the link: only then is it right to send them, as
    /// otherwise a packet socket of the peer could receive them whole.
    pub cuts_super_frames: bool,
}

impl LinkState {
    /// The longest frame that the interface sends, bytes from the Ethernet header.
    #[must_use]
    pub const fn frame_len_max(&self) -> u32 {
        self.mtu.saturating_add(twinpath_wire::eth::HEADER_LEN as u32)
    }
}

/// The counters of a queue. Written by its worker, read by control.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Frames received.
    pub frames_in: Counter,
    /// Bytes received, from the Ethernet header.
    pub bytes_in: Counter,
    /// Frames received that came through the direct ring.
    pub frames_direct: Counter,
    /// How often the direct ring was opened again after a sleep.
    pub direct_opened: Counter,
    /// Frames sent.
    pub frames_out: Counter,
    /// Frames sent that left within super-frames.
    pub frames_joined: Counter,
    /// Super-frames that the kernel refused; after the first one, every frame is sent by itself.
    pub super_frames_refused: Counter,
    /// Bytes sent, from the Ethernet header.
    pub bytes_out: Counter,
    /// System calls made to send or to wake the kernel.
    pub kicks: Counter,
    /// Frames that the kernel could not deliver because the ring was full.
    pub ring_full: Counter,
    /// How often the worker found its claims withdrawn because it had not read its rings for too long.
    pub times_stuck: Counter,
    /// Times the device or socket reported an error condition, such as the interface going down.
    pub errors: Counter,
    /// Super-frames received; each counts as one frame above.
    pub super_frames_in: Counter,
    /// The packets that these are on a wire.
    pub segments_in: Counter,
    /// Super-frames sent, to be segmented by the kernel or the device; each counts as one frame above.
    pub super_frames_out: Counter,
    /// The packets that these are on a wire.
    pub segments_out: Counter,
    /// Super-frames segmented in software, as this port does not send them; their packets count as frames.
    pub super_frames_segmented: Counter,
    /// Checksums completed in software, as this port does not do it.
    pub checksums_completed: Counter,
    /// All drops, by reason.
    pub drops: Drops,
}

impl PortCounters {
    /// The packets that the received frames are on a wire. The counters are read one after the other, so that the sum may
    /// be off by the frames of a turn.
    #[must_use]
    pub fn packets_in(&self) -> u64 {
        (self.frames_in.get() + self.segments_in.get()).saturating_sub(self.super_frames_in.get())
    }

    /// The packets that the sent frames are on a wire.
    #[must_use]
    pub fn packets_out(&self) -> u64 {
        (self.frames_out.get() + self.segments_out.get()).saturating_sub(self.super_frames_out.get())
    }

    /// Counts the packets of a frame that was received as a super-frame.
    #[inline]
    pub fn count_super_frame_in(&self, frame: &Frame) {
        if frame.meta().gso.kind != GsoKind::None {
            self.super_frames_in.add(1);
            self.segments_in.add(packets_of(frame));
        }
    }

    /// Counts the packets of a frame that was sent as a super-frame.
    #[inline]
    pub fn count_super_frame_out(&self, frame: &Frame) {
        if frame.meta().gso.kind != GsoKind::None {
            self.super_frames_out.add(1);
            self.segments_out.add(packets_of(frame));
        }
    }
}

/// One queue of a port, owned by one worker.
///
/// All calls except [`Self::close`] are made from that worker; none of them blocks, allocates or logs. Control opens
/// and closes a queue.
pub trait PortQueue: WaitSource + Send {
    /// Its identity and counters.
    fn info(&self) -> &QueueInfo;

    /// The queue's number.
    fn id(&self) -> PortId {
        self.info().id
    }

    /// Kernel index of the interface, 0 if there is none.
    fn ifindex(&self) -> u32 {
        self.info().ifindex
    }

    /// The longest frame that it sends, and the offloads that frames may have on their way to it and from it.
    fn capabilities(&self) -> Capabilities;

    /// The ports that it carries, if they are several: what this contract says of its port is then said of each of them by
    /// [`Carrier`]. `None`: it is a queue of one port.
    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        None
    }

    /// The state of its interface is this now; called after attaching, and after each change.
    fn changed(&mut self, _link: LinkState) {}

    /// Called once by the worker before frames are steered here: takes the frames that it receives into from `pool`.
    fn prepare(&mut self, _pool: &mut Pool) {}

    /// The worker has taken several bursts without sleeping, and does not wait on the descriptor: until the next
    /// [`WaitSource::arm`] nothing needs to wake it. A queue that has a faster way to receive meanwhile changes to it.
    fn begin_polling(&mut self, _now: Instant) {}

    /// Moves received frames into `burst`, as far as there is room there and in `pool`. Frames that cannot be passed
    /// on are counted under a reason.
    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst);

    /// When the kernel received the first and the last frame of the last burst, ns of its `CLOCK_REALTIME`; `None` if
    /// the burst was empty or the path has no time stamps.
    fn stamps_ns(&self) -> Option<[u64; 2]> {
        None
    }

    /// Takes all of `burst` for sending, in order. The frames are such as [`Self::capabilities`] say that the port takes.
    /// Frames that cannot be sent are dropped, counted and released.
    /// Frames may still be unsent when it returns: [`Self::flush`] is called at the end of the turn, and before that if frames were received.
    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst);

    /// Makes sure that all frames taken by [`Self::transmit`] leave, with at most one wake-up of the kernel where its
    /// rules allow, and releases sent frames.
    fn flush(&mut self, pool: &mut Pool);

    /// The fd reported an error condition (interface down or gone): clears it, so that the fd does not report it
    /// again.
    fn on_error(&mut self) {}

    /// Whether the kernel has withdrawn the claims of this queue because its worker had not read the rings for too
    /// long. Frames received before, and replies to them, are then dropped, as their senders have sent again. The
    /// next [`Self::receive`] restores the claims.
    fn is_withdrawn(&self) -> bool {
        false
    }

    /// Whether the device is gone for good: no call will move a frame again, and the fd would report the error for
    /// ever. The worker then gives the queue back to control, after [`Self::on_error`].
    fn is_gone(&self) -> bool {
        false
    }

    /// The counters.
    fn counters(&self) -> &Arc<PortCounters> {
        &self.info().counters
    }

    /// Closes the device (it may block, so control calls it) and returns the frames it held.
    fn close(self: Box<Self>) -> Vec<Frame>;
}
