//! The contract of a port's queue: how a worker receives and sends frames.

use std::sync::Arc;

use twinpath_frame::{Burst, Frame, Meta, Pool};
use twinpath_time::Instant;

use crate::carried::Carrier;
use crate::port::{Capabilities, LinkState, PortCounters, PortId};
use crate::wait::WaitSource;

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
    #[inline(always)]
    pub fn push(&mut self, mut frame: Frame, bytes: usize, pool: &mut Pool, burst: &mut Burst) {
        let meta = frame.meta_mut();
        (meta.arrival, meta.port, meta.queue) = (self.now, self.id.port, self.id.queue);
        self.frames += 1;
        self.bytes += bytes as u64;
        if let Err(frame) = burst.push(frame) {
            pool.release(frame);
        }
    }

    /// Number of frames so far.
    #[must_use]
    pub const fn frames(&self) -> u32 {
        self.frames as u32
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

/// What has become of a packet of two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentParts {
    /// It was sent.
    Sent,
    /// It was dropped, and counted.
    Dropped,
    /// Nothing has happened: a copy is to be sent as a frame ([`PortQueue::transmit`]).
    NotSo,
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

    /// The longest frame that it sends, and the offloads that sent and received frames may have.
    fn capabilities(&self) -> Capabilities;

    /// The ports that it carries, if there are several. What this contract says of its port then applies to each of
    /// them, through [`Carrier`]. `None`: it is a queue of one port.
    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        None
    }

    /// Sets the state of its interface. Called after attaching, and after each change.
    fn changed(&mut self, _link: LinkState) {}

    /// Called once by the worker before frames are steered here: takes the frames that it receives into from `pool`.
    fn prepare(&mut self, _pool: &mut Pool) {}

    /// The worker has taken several bursts without sleeping, and does not wait on the descriptor: nothing needs to
    /// wake it until the next [`WaitSource::arm`]. A queue that can receive faster in this mode switches to it.
    fn begin_polling(&mut self, _now: Instant) {}

    /// Moves received frames into `burst`, while there is room there and in `pool`. Frames that cannot be passed on
    /// are counted under a reason.
    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst);

    /// When the kernel received the first and the last frame of the last burst, ns of its `CLOCK_REALTIME`; `None` if
    /// the burst was empty or the path has no time stamps.
    fn stamps_ns(&self) -> Option<[u64; 2]> {
        None
    }

    /// Takes all of `burst` for sending, in order. The caller has made the frames fit [`Self::capabilities`]. Their
    /// bytes may be shared with frames on their way to other ports: a port that writes to them gets a copy. Frames
    /// that cannot be sent are dropped, counted and released. Frames may still be unsent when it returns:
    /// [`Self::flush`] is called before the turn ends.
    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst);

    /// Sends a packet of two parts, with the offloads that `meta` says and that it takes, from where its bytes lie, behind all
    /// that it has taken. A packet that cannot be sent is dropped and counted.
    fn send_parts(&mut self, _pool: &mut Pool, _meta: &Meta, _parts: [&[u8]; 2]) -> SentParts {
        SentParts::NotSo
    }

    /// Makes sure that all frames taken by [`Self::transmit`] leave, and releases sent frames. Wakes the kernel at
    /// most once where its rules allow. Called in turns in which it took frames, and in those after them until
    /// [`Self::is_flushed`].
    fn flush(&mut self, pool: &mut Pool);

    /// Whether all frames that it took have left, and those lent to the kernel for sending have come back. Until
    /// then it is flushed in each turn.
    fn is_flushed(&self) -> bool {
        true
    }

    /// The fd reported an error condition (interface down or gone): clears it, so that the fd does not report it
    /// again.
    fn on_error(&mut self) {}

    /// Whether the kernel has withdrawn the claims of this queue because its worker had not read the rings for too
    /// long. Frames received before, and replies to them, are then dropped, as their senders have sent again. The
    /// next [`Self::receive`] restores the claims.
    fn is_withdrawn(&self) -> bool {
        false
    }

    /// Whether the device is gone for good: it will never move a frame again, and the fd would report the error for
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
