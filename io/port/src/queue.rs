//! The contract of a port's queue.

use std::sync::Arc;

use twinpath_frame::{Burst, Frame, Pool};
use twinpath_inspect::{Counter, Drops};
use twinpath_time::Instant;

use crate::wait::WaitSource;

/// Which port and queue, as the process numbers ports; stable while the port is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId {
    /// Number of the port.
    pub port: u16,
    /// Queue of the port.
    pub queue: u16,
}

/// What a queue can do beyond moving plain frames. Whoever builds frames asks here, per burst and not per frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest frame it takes and gives, bytes from the Ethernet header.
    pub frame_len_max: u32,
    /// It completes transport checksums of frames marked [`Checksum::Partial`](twinpath_frame::Checksum).
    pub checksum: bool,
    /// Frames may arrive with a transport checksum that the sender left to hardware, and nothing says which: a virtual
    /// device on the XDP path. Elsewhere [`Meta::checksum`](twinpath_frame::Meta) tells.
    pub partial_checksums: bool,
    /// It cuts frames whose [`Gso`](twinpath_frame::Gso) says so.
    pub segmentation: bool,
    /// It takes and gives packets that span several frames (`Meta::next`).
    pub multi_buffer: bool,
    /// Its frames must come from, and stay in, one registered region (AF_XDP's UMEM).
    pub own_region: bool,
    /// Device and kernel work on our memory without a copy.
    pub zero_copy: bool,
}

/// What a queue counts. Written by its worker, read by control.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Frames received.
    pub frames_in: Counter,
    /// Bytes received, from the Ethernet header.
    pub bytes_in: Counter,
    /// Frames sent.
    pub frames_out: Counter,
    /// Of those, the ones that left within super-frames.
    pub frames_joined: Counter,
    /// Super-frames that the kernel refused; after the first, every frame leaves by itself.
    pub super_frames_refused: Counter,
    /// Bytes sent, from the Ethernet header.
    pub bytes_out: Counter,
    /// System calls made to send or to wake the kernel.
    pub kicks: Counter,
    /// Frames that the kernel could not hand over because the ring was full.
    pub ring_full: Counter,
    /// Times that the worker found its claims withdrawn, as it had not looked for too long.
    pub times_stuck: Counter,
    /// Times the device or socket reported an error condition, such as the interface going down.
    pub errors: Counter,
    /// Frames accepted whose transport checksum the sender had left to hardware.
    pub partial_checksums: Counter,
    /// Everything dropped, by reason.
    pub drops: Drops,
}

/// One queue of a port, owned by one worker.
///
/// All calls are made from that worker, none of them blocks, allocates or logs. A queue is made and closed by control.
pub trait PortQueue: WaitSource + Send {
    /// Which queue this is.
    fn id(&self) -> PortId;

    /// Kernel index of the interface, 0 if there is none.
    fn ifindex(&self) -> u32;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Called once by the worker before anything is steered here: takes from `pool` what it needs to receive into.
    fn prepare(&mut self, _pool: &mut Pool) {}

    /// Moves what has arrived into `burst`, as far as there is room there and in `pool`. Frames that cannot be handed
    /// over are counted under a reason.
    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst);

    /// When the kernel took the first and the last frame of the last burst, ns of its `CLOCK_REALTIME`; `None` if there was
    /// none, or if this way in has no stamps.
    fn stamps_ns(&self) -> Option<[u64; 2]> {
        None
    }

    /// Takes all of `burst` for sending, in order. What cannot be sent is dropped, counted and released. The frames may
    /// still be unsent when it returns: [`Self::flush`] comes once per turn.
    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst);

    /// Sees to it that everything taken by [`Self::transmit`] leaves, with at most one wake-up of the kernel where its
    /// rules allow, and takes sent frames home.
    fn flush(&mut self, pool: &mut Pool);

    /// Its fd reported an error condition (interface down or gone): takes note, so that the fd falls silent.
    fn on_error(&mut self) {}

    /// Whether the kernel has stopped claiming for this queue, as its worker has not looked for too long: frames that it gave before are
    /// dropped, and what is to be sent in answer to them, as those who asked have asked again. The next [`Self::receive`] ends that.
    fn is_withdrawn(&self) -> bool {
        false
    }

    /// Whether its device is gone for good: no call will move a frame again, and the fd would report the error for ever. The
    /// worker hands such a queue back by itself, after [`Self::on_error`].
    fn is_gone(&self) -> bool {
        false
    }

    /// The counters.
    fn counters(&self) -> &Arc<PortCounters>;

    /// Closes the device (this may block: control calls it) and gives back the frames it held.
    fn close(self: Box<Self>) -> Vec<Frame>;
}
