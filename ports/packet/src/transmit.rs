//! Sends the frames of a turn on the packet path: runs of one flow as super-frames, the others with one system call for
//! all.
//!
//! A frame that is a super-frame already leaves by the same socket as those made of runs. It passes the queueing
//! discipline, which other frames bypass. So that a flow keeps its order, frames before it must have been taken by the
//! driver, and frames after it leave by that socket as well until the kernel has freed all that it sent. With several
//! transmit queues, a device may still send two frames of a flow at the same time.
#![allow(unsafe_code, reason = "sendmmsg(2) takes arrays of pointers")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Burst, Frame, GsoKind, Meta, Pool};
use twinpath_inspect::Reason;
use twinpath_port::fit::is_plain;
use twinpath_port::{LinkState, PortCounters, PortQueue, SentParts, WaitSource};
use twinpath_sys::{last_errno, send_queue};

use crate::chain::{Outgoing, refusal};
use crate::segments::{self, SUPER_FRAME_MAX};
use crate::xdp::XdpPort;

/// From this many frames on, one super-frame costs less than single frames.
const RUN_MIN: usize = 3;

#[derive(Debug)]
pub(crate) struct Transmitter {
    socket: OwnedFd,
    /// The AF_XDP queue through which frames leave, if there is one.
    queue: Option<Box<XdpPort>>,
    joiner: Option<Joiner>,
    /// Whether runs are joined to super-frames: the state of the link allows it, and the kernel has not refused one
    /// since.
    joins: bool,
    /// For frames with offloads, if such frames are sent.
    outgoing: Option<Outgoing>,
    /// Whether the kernel may still hold frames with offloads, so that later frames must follow them.
    follows: bool,
    /// Whether frames with offloads were taken since the last flush, or must be followed.
    is_mixed: bool,
    /// Frames taken since the last flush, or that must wait for earlier ones.
    taken: Burst,
    /// Those of them that leave one by one.
    pending: Burst,
    /// Message headers and their vectors, allocated once; only the vectors' contents change.
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
}

/// The socket and buffer for super-frames.
#[derive(Debug)]
struct Joiner {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

// SAFETY: the pointers in `messages` lead into `vectors`, which moves along (a box's contents stay put); those in
// `vectors` are rewritten before each use.
unsafe impl Send for Transmitter {}

impl Transmitter {
    pub(crate) fn new(socket: OwnedFd, queue: Option<XdpPort>, super_frames: Option<OwnedFd>) -> Self {
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut vectors = vec![empty; BURST_MAX].into_boxed_slice();
        let messages = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: an all-zero mmsghdr is a valid value: null pointers and zero lengths.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = ptr::from_mut(vector);
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        Self {
            socket,
            queue: queue.map(Box::new),
            joiner: super_frames
                .map(|socket| Joiner { socket, buffer: vec![0; SUPER_FRAME_MAX].into_boxed_slice() }),
            joins: false,
            outgoing: None,
            follows: false,
            is_mixed: false,
            taken: Burst::new(),
            pending: Burst::new(),
            messages,
            vectors,
        }
    }

    /// The same, also for frames with offloads.
    pub(crate) fn with_offloads(mut self, with_offloads: bool) -> Self {
        self.outgoing = (with_offloads && self.joiner.is_some()).then(Outgoing::new);
        self
    }

    /// Whether it sends frames with offloads.
    pub(crate) const fn sends_offloads(&self) -> bool {
        self.outgoing.is_some()
    }

    /// Sets the state of the link.
    pub(crate) fn changed(&mut self, link: LinkState) {
        self.joins = link.takes_super_frames && self.joiner.is_some();
        self.queue.iter_mut().for_each(|queue| queue.changed(link));
    }

    pub(crate) fn take(&mut self, pool: &mut Pool, burst: &mut Burst, counters: &PortCounters) {
        while !burst.is_empty() {
            if self.taken.room() == 0 {
                self.flush(pool, counters);
            }
            let room = self.taken.room();
            if self.outgoing.is_some() {
                if room == 0 {
                    counters.drops.add(Reason::PortFull, burst.len() as u64);
                    return burst.release(usize::MAX, pool);
                }
                self.is_mixed |= burst.frames().iter().take(room).any(|frame| !is_plain(frame));
            }
            for frame in burst.drain(room) {
                if let Err(frame) = self.taken.push(frame) {
                    pool.release(frame);
                }
            }
        }
    }

    pub(crate) fn flush(&mut self, pool: &mut Pool, counters: &PortCounters) {
        if self.is_mixed {
            return self.flush_mixed(pool, counters);
        }
        while !self.taken.is_empty() {
            // Checked for each run, because the kernel may refuse the one before.
            let joins = self.joins && self.taken.len() >= RUN_MIN;
            let run =
                if joins { segments::run(self.taken.frames().iter().map(Frame::bytes)) } else { usize::MAX };
            if joins && run >= RUN_MIN {
                // Earlier frames leave first.
                self.send_pending(pool, counters);
                if self.send_joined(run, pool, counters) {
                    continue;
                }
            }
            for frame in self.taken.drain(run.max(1)) {
                if let Err(frame) = self.pending.push(frame) {
                    pool.release(frame);
                }
            }
        }
        self.send_pending(pool, counters);
        if let Some(queue) = &mut self.queue {
            // Also if nothing was added: frames sent earlier are released, and frames that the kernel did not take
            // are retried.
            queue.flush(pool);
        }
    }

    /// Sends a packet with offloads from where its bytes lie, by one system call; not so if frames with offloads are
    /// not sent here, or earlier frames wait.
    pub(crate) fn send_parts(
        &mut self,
        pool: &mut Pool,
        counters: &PortCounters,
        meta: &Meta,
        parts: [&[u8]; 2],
    ) -> SentParts {
        if self.outgoing.is_none() {
            return SentParts::NotSo;
        }
        if !self.taken.is_empty() {
            self.flush(pool, counters);
        }
        let Self { joiner: Some(joiner), outgoing: Some(outgoing), queue, taken, .. } = self else {
            return SentParts::NotSo;
        };
        if !taken.is_empty() || queue.as_ref().is_some_and(|queue| !queue.has_sent()) {
            return SentParts::NotSo;
        }
        counters.kicks.add(1);
        match outgoing.write_parts(&joiner.socket, meta, parts) {
            Ok(()) => {
                let [headers, payload] = parts.map(<[u8]>::len);
                counters.frames_out.add(1);
                counters.bytes_out.add((headers + payload) as u64);
                if meta.gso.kind != GsoKind::None {
                    counters.super_frames_out.add(1);
                    counters.segments_out.add(payload.div_ceil(usize::from(meta.gso.size).max(1)) as u64);
                }
                (self.follows, self.is_mixed) = (true, true);
            }
            // A signal came before it was sent.
            Err(Errno::INTR) => return SentParts::NotSo,
            Err(error) => {
                counters.drops.add(refusal(error), 1);
                return SentParts::Dropped;
            }
        }
        SentParts::Sent
    }

    /// Whether all frames have left. Without an AF_XDP queue, the kernel takes or refuses each one immediately.
    pub(crate) fn is_flushed(&self) -> bool {
        self.taken.is_empty() && self.queue.as_ref().is_none_or(|queue| queue.is_flushed())
    }

    /// Sends frames of which some have offloads, and frames that follow such frames, in order.
    #[inline(never)]
    fn flush_mixed(&mut self, pool: &mut Pool, counters: &PortCounters) {
        if !self.taken.is_empty() {
            self.follows = self.follows && !self.is_drained();
        }
        while let Some(frame) = self.taken.frames().first() {
            if self.follows || !is_plain(frame) {
                if self.queue.as_ref().is_some_and(|queue| !queue.has_sent()) {
                    // The driver is busy with earlier frames: this one waits for the next turn.
                    break;
                }
                self.send_whole(pool, counters);
                continue;
            }
            let plain = self.taken.frames().iter().take_while(|frame| is_plain(frame)).count();
            self.pending.fill(&mut self.taken.drain(plain));
            self.send_pending(pool, counters);
        }
        self.follows = self.follows && !self.is_drained();
        self.is_mixed = self.follows || !self.taken.is_empty();
        if let Some(queue) = &mut self.queue {
            queue.flush(pool);
        }
    }

    /// Whether the kernel has freed all frames with offloads.
    fn is_drained(&self) -> bool {
        // This does not fail for a packet socket.
        self.joiner
            .as_ref()
            .is_none_or(|joiner| send_queue::queued(&joiner.socket).is_ok_and(|bytes| bytes == 0))
    }

    /// Sends the first frame with its offloads, by one system call.
    fn send_whole(&mut self, pool: &mut Pool, counters: &PortCounters) {
        let (Some(joiner), Some(outgoing)) = (&self.joiner, &mut self.outgoing) else { return };
        let Some(frame) = self.taken.frames().first() else { return };
        counters.kicks.add(1);
        match outgoing.write(&joiner.socket, frame) {
            Ok(()) => {
                counters.frames_out.add(1);
                counters.bytes_out.add(frame.chain_len() as u64);
                counters.count_super_frame_out(frame);
                self.follows = true;
            }
            // A signal came before the frame was sent.
            Err(Errno::INTR) => return,
            Err(error) => counters.drops.add(refusal(error), 1),
        }
        self.taken.release(1, pool);
    }

    /// Sends the first `run` frames as one; returns whether they are dealt with.
    fn send_joined(&mut self, run: usize, pool: &mut Pool, counters: &PortCounters) -> bool {
        let Some(Joiner { socket, buffer, .. }) = &mut self.joiner else { return false };
        let frames = &self.taken.frames()[..run];
        let Some(len) = segments::join(frames.iter().map(Frame::bytes), buffer) else { return false };
        counters.kicks.add(1);
        // SAFETY: the pointer and length describe the buffer's first bytes, which the kernel copies before it returns.
        let sent = unsafe {
            libc::send(
                socket.as_raw_fd(),
                buffer.as_ptr().cast::<c_void>(),
                len.min(SUPER_FRAME_MAX),
                libc::MSG_DONTWAIT,
            )
        };
        if sent >= 0 {
            counters.frames_out.add(run as u64);
            counters.frames_joined.add(run as u64);
            counters.bytes_out.add(frames.iter().map(Frame::len).sum::<usize>() as u64);
        } else {
            match last_errno() {
                Errno::INTR => return false,
                Errno::AGAIN | Errno::NOBUFS => counters.drops.add(Reason::PortFull, run as u64),
                Errno::NETDOWN | Errno::NXIO => counters.drops.add(Reason::PortDown, run as u64),
                // The kernel does not support this kind (before Linux 6.2), or not on this device: the frames leave
                // one by one until the state of the link changes.
                _ => {
                    counters.super_frames_refused.add(1);
                    self.joins = false;
                    return false;
                }
            }
        }
        self.taken.release(run, pool);
        true
    }

    /// Sends the pending frames one by one.
    fn send_pending(&mut self, pool: &mut Pool, counters: &PortCounters) {
        if let Some(queue) = &mut self.queue {
            let count = self.pending.len() as u32;
            if count > 0 && queue.room(count) >= count {
                queue.transmit(pool, &mut self.pending);
                queue.flush(pool);
            }
        }
        let total = self.pending.len();
        if total == 0 {
            return;
        }
        let (mut done, mut sent, mut bytes) = (0, 0, 0);
        while done < total {
            counters.kicks.add(1);
            match self.send(done) {
                Ok(count) => {
                    bytes += self.pending.frames()[done..done + count].iter().map(Frame::len).sum::<usize>();
                    done += count;
                    sent += count;
                }
                // A signal came before any frame was sent.
                Err(Errno::INTR) => {}
                // The queue of the socket or the device is full: further frames would fail the same way.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    counters.drops.add(Reason::PortFull, (total - done) as u64);
                    break;
                }
                // The frame is longer than the interface's present MTU allows; the next one may be shorter.
                Err(Errno::MSGSIZE) => {
                    counters.drops.add(Reason::FrameTooLarge, 1);
                    done += 1;
                }
                // ENETDOWN, ENXIO: the interface is down or gone.
                Err(_) => {
                    counters.drops.add(Reason::PortDown, (total - done) as u64);
                    break;
                }
            }
        }
        // The kernel has copied the frames: they are released now.
        counters.frames_out.add(sent as u64);
        counters.bytes_out.add(bytes as u64);
        self.pending.release(usize::MAX, pool);
    }

    /// Sends pending frames from the `first`; returns how many the kernel took.
    fn send(&mut self, first: usize) -> Result<usize, Errno> {
        let frames = &self.pending.frames()[first..];
        if let [frame] = frames {
            // A single frame is the case in which latency counts: `send` saves copying the array in and out.
            let bytes = frame.bytes();
            // SAFETY: the pointer and length describe the frame's bytes, which the kernel copies before it returns.
            let sent = unsafe {
                libc::send(
                    self.socket.as_raw_fd(),
                    bytes.as_ptr().cast::<c_void>(),
                    bytes.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            return if sent < 0 { Err(last_errno()) } else { Ok(1) };
        }
        for (vector, frame) in self.vectors.iter_mut().zip(frames) {
            vector.iov_base = frame.bytes().as_ptr().cast_mut().cast::<c_void>();
            vector.iov_len = frame.len();
        }
        // SAFETY: the first `frames.len()` headers point at vectors that describe living frames; the kernel only reads
        // them (sending never writes through iov_base) and copies before it returns.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                frames.len() as u32,
                libc::MSG_DONTWAIT,
            )
        };
        if sent < 0 { Err(last_errno()) } else { Ok(sent as usize) }
    }

    /// Whether the worker may sleep: all frames have left, or none can leave at the moment.
    pub(crate) fn arm(&mut self) -> bool {
        self.queue.as_mut().is_none_or(|queue| queue.arm())
    }

    /// After a sleep, frames may be able to leave that could not before.
    pub(crate) fn disarm(&mut self) {
        self.queue.iter_mut().for_each(|queue| queue.disarm());
    }

    pub(crate) fn into_frames(mut self) -> Vec<Frame> {
        let mut frames: Vec<_> = self.taken.drain(usize::MAX).collect();
        frames.extend(self.pending.drain(usize::MAX));
        frames.extend(self.queue.into_iter().flat_map(|queue| queue.close()));
        frames
    }
}
