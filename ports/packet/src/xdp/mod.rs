//! The port of the XDP path: one AF_XDP socket per queue, over the memory of the worker's own pool.
//!
//! Copy mode by default, `need_wakeup` always: the kernel says when it needs a system call, and then each batch
//! costs one. The queues of one worker share the pool's region as one UMEM (XDP_SHARED_UMEM), so a frame received
//! on one can be sent on another without a copy.
//!
//! A frame given to the kernel moves into this port's table, and only a frame in the table comes back: an invalid
//! descriptor from the kernel is counted and never used.
//!
//! Never here: decisions about what is claimed. The XDP program and its map of sockets belong to `stack/bpf`.

mod lent;
mod open;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SendFlags;
use twinpath_frame::{Burst, CHUNK_SIZE, Frame, Pool, Region, UMEM_CHUNK_DATA_MAX};
use twinpath_inspect::Reason;
use twinpath_port::fit::is_plain;
use twinpath_port::{Capabilities, LinkState, PortCounters, PortQueue, QueueInfo, Received, WaitSource};
use twinpath_rings::answering::ByWorker;
use twinpath_rings::pending::Pending;
use twinpath_rings::xsk::{Consumer, Descriptor, Producer};
use twinpath_time::Instant;

pub use self::open::{CopyMode, OpenError, Umem, XdpConfig};

use self::lent::Lent;

/// Maximum number of consecutive system calls to get one batch sent: the kernel takes 32 frames per call in copy
/// mode (`TX_BATCH_SIZE`, net/xdp/xsk.c), and returns EAGAIN while there are more.
const KICKS_MAX: u32 = 64;

/// Frames that the kernel could not deliver to an AF_XDP socket: no room in its receive ring, or no frame in its fill
/// ring. Control calls it, on a descriptor of its own.
#[must_use]
pub fn lost_frames(socket: impl AsFd) -> u64 {
    rustix::net::sockopt::xdp_statistics(socket).map_or(0, |statistics| {
        let full = statistics.rx_ring_full.unwrap_or(0) + statistics.rx_fill_ring_empty_descs.unwrap_or(0);
        statistics.rx_dropped + full
    })
}

/// One queue on the XDP path.
#[derive(Debug)]
pub struct XdpPort {
    info: QueueInfo,
    socket: OwnedFd,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    lent: Lent,
    /// The word that says since when a frame has been waiting.
    pending: Option<Pending>,
    /// Whether it answers requests that programs could answer.
    answers: Option<ByWorker>,
    /// When the rings were last read.
    looked: Instant,
    /// Frames in the fill ring or filled by the kernel.
    filled: u32,
    fill_target: u32,
    /// Frames in the transmit ring, or in the completion ring.
    sending: u32,
    virtual_device: bool,
    /// Whether the interface is down or gone: frames in the transmit ring cannot leave, so the worker may sleep.
    stuck: bool,
    /// The longest frame that may be sent now.
    frame_len_max: u32,
}

impl XdpPort {
    /// Opens a socket on one queue, over the `region` of the worker's pool. The first queue of a worker registers the
    /// memory (`umem: None`), the others share it.
    ///
    /// # Errors
    /// [`OpenError`], one variant per step; [`OpenError::Busy`] may pass within 100 ms after another process died.
    pub fn open(config: &XdpConfig, umem: Option<&Umem>, region: &Region) -> Result<Self, OpenError> {
        let opened = open::open(config, umem, region)?;
        Ok(Self {
            info: QueueInfo::new(config.id, config.ifindex),
            socket: opened.socket,
            fill: opened.fill,
            completion: opened.completion,
            receive: opened.receive,
            transmit: opened.transmit,
            lent: Lent::new((region.len() / CHUNK_SIZE as usize) as u32),
            pending: None,
            answers: None,
            looked: Instant::ZERO,
            filled: 0,
            sending: 0,
            fill_target: if config.receives { config.ring_frames } else { 0 },
            virtual_device: config.virtual_device,
            stuck: false,
            frame_len_max: UMEM_CHUNK_DATA_MAX,
        })
    }

    /// Makes it count in `counters`, those of the port to which this queue belongs.
    #[must_use]
    pub fn counting_in(mut self, counters: Arc<PortCounters>) -> Self {
        self.info.counters = counters;
        self
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
        let Self { receive, lent, info: QueueInfo { counters, .. }, filled, .. } = self;
        receive.take(u32::MAX, |descriptor| {
            *filled = filled.saturating_sub(1);
            match lent.back(descriptor.addr) {
                Some((frame, _)) => {
                    counters.drops.add(Reason::WorkerStuck, 1);
                    pool.release(frame);
                }
                None => counters.drops.add(Reason::BadDescriptor, 1),
            }
        });
        counters.times_stuck.add(1);
        self.pending.iter().for_each(Pending::resume);
    }

    /// The registered memory, for the worker's next queue.
    ///
    /// # Errors
    /// What duplicating the descriptor returns.
    pub fn umem(&self) -> Result<Umem, Errno> {
        Umem::of(&self.socket)
    }

    /// The socket, for the XDP program's map.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// How many frames it can take for sending. Reads the kernel's position only if fewer than `want` are known to
    /// fit.
    pub fn room(&mut self, want: u32) -> u32 {
        self.transmit.free(want)
    }

    /// Whether the kernel has taken all frames for sending, or none can leave at the moment.
    #[must_use]
    pub fn has_sent(&self) -> bool {
        self.stuck || self.transmit.pending() == 0
    }

    /// Gives the kernel frames to receive into, up to the target number.
    fn refill(&mut self, pool: &mut Pool) {
        while self.filled < self.fill_target && self.fill.free(1) > 0 {
            let Some(mut frame) = pool.take() else { break };
            // The kernel decides where received data begin: it gets the chunk from its start.
            let _ = frame.place(0, 0);
            let written = self.fill.write(frame.region_offset());
            debug_assert!(written, "the ring had room");
            self.lent.lend(frame);
            self.filled += 1;
        }
        self.fill.publish();
    }

    /// Releases sent frames to the pool.
    fn complete(&mut self, pool: &mut Pool) {
        let Self { completion, lent, sending, info: QueueInfo { counters, .. }, .. } = self;
        completion.take(u32::MAX, |addr| match lent.back(addr) {
            Some((frame, _)) => {
                *sending = sending.saturating_sub(1);
                pool.release(frame);
            }
            None => counters.drops.add(Reason::BadDescriptor, 1),
        });
    }

    /// Calls the kernel until it has taken all of the transmit ring, or returns an error that makes it impossible.
    fn kick(&mut self) {
        for _ in 0..KICKS_MAX {
            self.info.counters.kicks.add(1);
            match rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN) if self.transmit.pending() > 0 => {}
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => return,
                Err(_) => {
                    self.stuck = true;
                    return;
                }
            }
        }
    }
}

impl WaitSource for XdpPort {
    #[inline]
    fn look(&self) -> bool {
        self.receive.look()
    }

    fn arm(&mut self) -> bool {
        if self.fill.needs_wakeup() {
            self.info.counters.kicks.add(1);
            let _ = rustix::net::recv(&self.socket, &mut [0u8; 0][..], rustix::net::RecvFlags::DONTWAIT);
        }
        // Frames from before the mark must be discarded first.
        let is_clear = self.pending.as_ref().is_none_or(Pending::clear);
        // Unsent frames need another turn, unless none can be sent at the moment.
        let is_armed = is_clear && self.has_sent();
        if let Some(answers) = self.answers.as_mut().filter(|_| is_armed) {
            answers.sleeps(self.looked);
        }
        is_armed
    }

    fn disarm(&mut self) {
        self.stuck = false;
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl PortQueue for XdpPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_len_max: self.frame_len_max,
            partial_checksums: self.virtual_device,
            ..Capabilities::default()
        }
    }

    fn changed(&mut self, link: LinkState) {
        // The kernel sends frames of an AF_XDP socket without checking the MTU.
        self.frame_len_max = link.frame_len_max().min(UMEM_CHUNK_DATA_MAX);
    }

    fn prepare(&mut self, pool: &mut Pool) {
        self.refill(pool);
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        if self.pending.as_ref().is_some_and(|pending| !pending.may_take(now)) {
            self.discard(pool);
        }
        let Self { receive, lent, info: QueueInfo { id, counters, .. }, filled, answers, looked, .. } = self;
        let mut received = Received::new(now, *id);
        receive.take(burst.room() as u32, |descriptor| {
            *filled = filled.saturating_sub(1);
            let Some((mut frame, offset)) = lent.back(descriptor.addr) else {
                counters.drops.add(Reason::BadDescriptor, 1);
                return;
            };
            if frame.place(offset, descriptor.len as usize).is_err() {
                counters.drops.add(Reason::BadDescriptor, 1);
                pool.release(frame);
                return;
            }
            received.push(frame, descriptor.len as usize, pool, burst);
        });
        *looked = now;
        if let Some(answers) = answers {
            answers.found(now, received.frames());
        }
        received.count(counters);
        if self.filled < self.fill_target {
            self.refill(pool);
        }
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        if self.is_withdrawn() {
            self.info.counters.drops.add(Reason::WorkerStuck, burst.len() as u64);
            return burst.release(usize::MAX, pool);
        }
        debug_assert!(burst.frames().iter().all(is_plain), "what this port does not take is done before");
        if self.transmit.free(burst.len() as u32) < burst.len() as u32 {
            self.flush(pool);
        }
        let (mut frames, mut bytes) = (0, 0);
        for mut frame in burst.drain(usize::MAX) {
            // The kernel reads only this pool's memory: frames that another worker has handed over are copied.
            if !pool.is_own(&frame) {
                let Some(copy) = pool.duplicate(&frame) else {
                    self.info.counters.drops.add(Reason::PoolEmpty, 1);
                    pool.release(frame);
                    continue;
                };
                pool.release(std::mem::replace(&mut frame, copy));
            }
            // The kernel returns a chunk by its address, so each chunk must be sent by one frame only: shared bytes
            // are copied.
            let descriptor = Descriptor { addr: frame.region_offset(), len: frame.len() as u32, options: 0 };
            let fits = frame.len() <= self.frame_len_max as usize;
            if fits && self.transmit.write(descriptor) {
                frames += 1;
                bytes += frame.len() as u64;
                self.lent.lend(frame);
            } else {
                let reason = if fits { Reason::PortFull } else { Reason::FrameTooLarge };
                self.info.counters.drops.add(reason, 1);
                pool.release(frame);
            }
        }
        self.sending += frames as u32;
        self.info.counters.frames_out.add(frames);
        self.info.counters.bytes_out.add(bytes);
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.transmit.publish();
        if self.transmit.pending() > 0 && self.transmit.needs_wakeup() {
            self.kick();
        }
        self.complete(pool);
    }

    fn is_flushed(&self) -> bool {
        self.sending == 0
    }

    #[inline]
    fn is_withdrawn(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_withdrawn)
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        let Self { socket, lent, .. } = *self;
        // After this the kernel no longer accesses the memory; only then may the frames be used again.
        drop(socket);
        lent.into_frames()
    }
}
