//! Sending: frames gathered over a turn, one system call for all of them.
#![allow(unsafe_code, reason = "sendmmsg(2) takes arrays of pointers")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Burst, Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_port::{PortCounters, PortQueue, WaitSource};
use twinpath_port_xdp::XdpPort;

use crate::open::last_errno;

#[derive(Debug)]
pub(crate) struct Transmitter {
    socket: OwnedFd,
    /// Where it can be had, frames leave by it.
    queue: Option<Box<XdpPort>>,
    pending: Burst,
    /// Message headers and their vectors, made once; only the vectors' contents change.
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
}

// SAFETY: the pointers in `messages` lead into `vectors`, which moves along (a box's contents stay put); those in
// `vectors` are rewritten before each use.
unsafe impl Send for Transmitter {}

impl Transmitter {
    pub(crate) fn new(socket: OwnedFd, queue: Option<XdpPort>) -> Self {
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
        Self { socket, queue: queue.map(Box::new), pending: Burst::new(), messages, vectors }
    }

    pub(crate) fn take(&mut self, pool: &mut Pool, burst: &mut Burst, counters: &PortCounters) {
        while !burst.is_empty() {
            if self.pending.room() == 0 {
                self.flush(pool, counters);
            }
            let room = self.pending.room();
            for frame in burst.drain(room) {
                if let Err(frame) = self.pending.push(frame) {
                    pool.release(frame);
                }
            }
        }
    }

    pub(crate) fn flush(&mut self, pool: &mut Pool, counters: &PortCounters) {
        if let Some(queue) = &mut self.queue {
            let count = self.pending.len() as u32;
            if count > 0 && queue.room(count) >= count {
                queue.transmit(pool, &mut self.pending);
            }
            // Also when nothing was added: frames sent earlier come home, and what the kernel did not take goes again.
            queue.flush(pool);
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
                // A signal came before anything was sent.
                Err(Errno::INTR) => {}
                // The socket's or the device's queue is full: more now would only fail the same way.
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    counters.drops.add(Reason::PortFull, (total - done) as u64);
                    break;
                }
                // Longer than the interface takes now; the next one may be shorter.
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
        // Frames were copied into the kernel: they go home now.
        counters.frames_out.add(sent as u64);
        counters.bytes_out.add(bytes as u64);
        self.pending.release(usize::MAX, pool);
    }

    /// Sends pending frames from the `first`; returns how many the kernel took.
    fn send(&mut self, first: usize) -> Result<usize, Errno> {
        let frames = &self.pending.frames()[first..];
        if let [frame] = frames {
            // One frame is the case where latency counts: `send` saves the array's way in and out.
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

    /// Whether all has left, or nothing can: then sleeping is right.
    pub(crate) fn arm(&mut self) -> bool {
        self.queue.as_mut().is_none_or(|queue| queue.arm())
    }

    pub(crate) fn into_frames(mut self) -> Vec<Frame> {
        let mut frames: Vec<_> = self.pending.drain(usize::MAX).collect();
        frames.extend(self.queue.into_iter().flat_map(|queue| queue.close()));
        frames
    }
}
