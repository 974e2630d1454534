//! The owner's end of a shared-memory port; for the worker it is a queue like any other.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use twinpath_frame::{Burst, Checksum, Frame, HEADROOM, Pool};
use twinpath_inspect::Reason;
use twinpath_port::{Capabilities, PortQueue, QueueInfo, Received, WaitSource};
use twinpath_rings::slots::{BadShape, Fault, Note, Refused, SlotConsumer, SlotProducer, TakeSlot, Taken};
use twinpath_sys::EventFd;
use twinpath_time::Instant;

use crate::application::tag;
use crate::offer::Offer;
use crate::region::{self, FRAME_LEN_MAX, Layout, ShmConfig};

/// Shortest frame: two addresses and a type.
const FRAME_LEN_MIN: usize = 14;

/// Number of wake-ups after which the descriptor is drained even if the ring announced no signal. Otherwise an
/// application that signals without announcing it would keep the worker awake.
const DRAIN_INTERVAL: u32 = 16;

/// Why a port could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The number of slots is not possible.
    #[error("{0}")]
    Shape(#[from] BadShape),
    /// The memory could not be made.
    #[error(
        "cannot make {bytes} bytes of shared memory ({step}: {source}); free memory or choose fewer slots"
    )]
    Memory {
        /// Bytes requested.
        bytes: usize,
        /// The system call.
        step: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// A descriptor could not be made.
    #[error(
        "cannot make a descriptor to wake the application by ({0}); raise the limit of open files (ulimit -n)"
    )]
    Descriptor(Errno),
}

/// A port to another process.
#[derive(Debug)]
pub struct ShmPort {
    info: QueueInfo,
    to_application: SlotProducer,
    from_application: SlotConsumer,
    /// Signalled by us and private to us; the application has an epoll set that contains it.
    wake_application: EventFd,
    /// Signalled by the application, which holds it too.
    woken: EventFd,
    /// The ring announced a signal that has not been drained.
    signal_due: bool,
    disarms: u32,
    /// Frames were pushed since the last flush.
    unflushed: bool,
}

impl ShmPort {
    /// Creates the port, and the offer of its other end.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(config: &ShmConfig) -> Result<(Self, Offer), CreateError> {
        let layout = Layout::new(config.slots)?;
        let (memfd, mapping) = region::create(layout).map_err(|(step, source)| CreateError::Memory {
            bytes: layout.bytes(),
            step,
            source,
        })?;
        let (to_application, from_application) = region::owner_ends(layout, &mapping)?;
        let descriptor = CreateError::Descriptor;
        let wake_application = EventFd::new().map_err(descriptor)?;
        let woken = EventFd::new().map_err(descriptor)?;
        let waits_on = epoll::create(CreateFlags::CLOEXEC).map_err(descriptor)?;
        // Edge-triggered, so that nobody has to drain the eventfd, which the application could not do.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&waits_on, &wake_application, EventData::new_u64(0), flags).map_err(descriptor)?;
        let signals = woken.as_fd().try_clone_to_owned();
        let signals =
            signals.map_err(|error| descriptor(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))?;
        let port = Self {
            info: QueueInfo::new(config.id, 0),
            to_application,
            from_application,
            wake_application,
            woken,
            signal_due: false,
            disarms: 0,
            unflushed: false,
        };
        Ok((port, Offer { memfd, waits_on, signals }))
    }
}

/// Copies slots into frames of the pool.
struct IntoFrames<'a> {
    info: &'a QueueInfo,
    received: Received,
    pool: &'a mut Pool,
    burst: &'a mut Burst,
}

impl TakeSlot for IntoFrames<'_> {
    #[inline(always)]
    fn take(&mut self, slot: Result<Taken<'_>, Fault>) {
        match self.frame_of(slot) {
            Ok(frame) => {
                let len = frame.len();
                self.received.push(frame, len, self.pool, self.burst);
            }
            Err(reason) => self.info.counters.drops.add(reason, 1),
        }
    }
}

impl IntoFrames<'_> {
    /// `Err` with the reason if the slot was dropped.
    #[inline(always)]
    fn frame_of(&mut self, slot: Result<Taken<'_>, Fault>) -> Result<Frame, Reason> {
        let slot = slot.map_err(|_| Reason::PeerFault)?;
        let len = slot.slot().len;
        if len < FRAME_LEN_MIN {
            return Err(Reason::Truncated);
        }
        let mut frame = self.pool.take().ok_or(Reason::PoolEmpty)?;
        // A frame has room for the largest slot: `FRAME_LEN_MAX`.
        let placed = frame.place(HEADROOM, FRAME_LEN_MAX as usize);
        slot.copy_into(frame.bytes_mut());
        if placed.is_ok() && frame.set_len(len).is_ok() {
            return Ok(frame);
        }
        self.pool.release(frame);
        Err(Reason::FrameTooLarge)
    }
}

impl WaitSource for ShmPort {
    #[inline]
    fn look(&self) -> bool {
        self.from_application.look()
    }

    fn arm(&mut self) -> bool {
        self.from_application.arm();
        true
    }

    fn disarm(&mut self) {
        self.signal_due |= self.from_application.disarm();
        self.disarms = self.disarms.wrapping_add(1);
        if (self.signal_due || self.disarms.is_multiple_of(DRAIN_INTERVAL)) && self.woken.drain_shared() > 0 {
            self.signal_due = false;
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.woken.as_fd())
    }
}

impl PortQueue for ShmPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { frame_len_max: FRAME_LEN_MAX, tags: true, ..Capabilities::default() }
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        let Self { info, from_application, .. } = self;
        // The bound counts slots, not frames: an application whose frames are all dropped gets no more of a turn than
        // others.
        let most = burst.room();
        let mut frames = IntoFrames { info, received: Received::new(now, info.id), pool, burst };
        from_application.pop_each(most, &mut frames);
        frames.received.count(&info.counters);
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        let (mut frames, mut bytes) = (0, 0);
        let mut rest = burst.frames();
        while !rest.is_empty() {
            // A partial checksum may cross: the slot's note says so. No other offload may.
            debug_assert!(rest.iter().all(|frame| frame.meta().next.is_none()), "a slot holds one frame");
            let packets = rest.iter().map(|frame| (note_of(frame), frame.bytes()));
            let (pushed, refused) = self.to_application.push_each(packets);
            let (sent, others) = rest.split_at(pushed);
            frames += pushed as u64;
            bytes += sent.iter().map(|frame| frame.len() as u64).sum::<u64>();
            let reason = match refused {
                None => break,
                Some(Refused::Full) => Reason::PortFull,
                Some(Refused::TooLarge) => Reason::FrameTooLarge,
                Some(Refused::Fault(_)) => Reason::PeerFault,
            };
            self.info.counters.drops.add(reason, 1);
            rest = others.get(1..).unwrap_or_default();
        }
        burst.release(usize::MAX, pool);
        if frames > 0 {
            self.unflushed = true;
            self.info.counters.frames_out.add(frames);
            self.info.counters.bytes_out.add(bytes);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {
        if std::mem::take(&mut self.unflushed) && self.to_application.publish() {
            self.wake_application.signal();
            self.info.counters.kicks.add(1);
        }
    }

    fn on_error(&mut self) {
        // A counter at its maximum reads as an error until it is drained.
        self.woken.drain_shared();
        self.info.counters.errors.add(1);
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        Vec::new()
    }
}

fn note_of(frame: &Frame) -> Note {
    let meta = frame.meta();
    let checksum = match meta.checksum {
        Checksum::Unverified => 0,
        Checksum::Verified => tag::CHECKSUM_VERIFIED,
        Checksum::Partial => tag::CHECKSUM_PARTIAL,
    };
    let vlan = meta.vlan.map_or(0, |tci| tag::VLAN | u32::from(tci));
    Note { original_len: frame.len() as u32, time_ns: meta.arrival.as_nanos(), tag: checksum | vlan }
}
