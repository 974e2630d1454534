//! The ring itself: what is asked of it, and what comes back.
#![allow(
    unsafe_code,
    reason = "what an entry points to has to stay until its completion; each block says what keeps it"
)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::buffers::{Buffers, GROUP, Lent, set_up_error};
use crate::error::RingError;

/// `IORING_ENTER_GETEVENTS` of linux/io_uring.h.
const GETEVENTS: u32 = 1;

/// Where `optlen` stands in an entry (struct io_uring_sqe): what an armed receive may take in all.
const OPTLEN_AT: usize = 44;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Requests submitted with one system call.
    pub entries: u32,
    /// Completions that the kernel keeps without taking memory of its own.
    pub completions: u32,
    /// Receive buffers, a power of two.
    pub buffers: u16,
    /// Bytes of each.
    pub buffer_bytes: u32,
}

/// Whose a request is: the caller's number, and which of those that had it one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The number.
    pub number: u32,
    /// Told apart modulo 2^24.
    pub generation: u32,
}

/// The request that a completion is of, in the upper byte of its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Receive = 1,
    Writable = 2,
    Send = 3,
    Cancel = 4,
}

impl Key {
    const GENERATIONS: u32 = 1 << 24;

    fn user_data(self, kind: Kind) -> u64 {
        let generation = u64::from(self.generation % Self::GENERATIONS);
        (kind as u64) << 56 | generation << 32 | u64::from(self.number)
    }

    const fn of(user_data: u64) -> Self {
        Self { number: user_data as u32, generation: (user_data >> 32) as u32 % Self::GENERATIONS }
    }

    /// Whether it is this generation's.
    #[must_use]
    pub const fn is_of(self, generation: u32) -> bool {
        self.generation % Self::GENERATIONS == generation % Self::GENERATIONS
    }
}

/// What came of a request.
#[derive(Debug)]
pub enum Completion {
    /// Bytes came.
    Received {
        /// Of the receive.
        key: Key,
        /// They are in it.
        buffer: Lent,
        /// Whether the receive stays armed.
        armed: bool,
    },
    /// A receive ended without any: none follow for it.
    ReceiveEnded {
        /// Of the receive.
        key: Key,
        /// `Ok`: the peer has sent its last byte. `NOBUFS`: there was no free buffer. `CANCELED`: as asked for.
        why: Result<(), Errno>,
    },
    /// A socket takes bytes again, or has an error.
    Writable {
        /// Of the watch.
        key: Key,
    },
    /// A send is over.
    Sent {
        /// Of the send.
        key: Key,
        /// What was to be sent, for its owner.
        bytes: Vec<u8>,
        /// How much of it the socket took; `AGAIN`: nothing.
        taken: Result<usize, Errno>,
    },
}

/// A ring, and all that its requests point to.
pub struct Ring {
    // Closed before what the kernel may write to goes.
    uring: IoUring,
    buffers: Buffers,
    /// Readable when the kernel has something while it is to tell.
    news: OwnedFd,
    /// Sends on their way, by the number in their user data; and which places are free.
    sends: Vec<Option<(Key, Vec<u8>)>>,
    free: Vec<u32>,
    /// Entries that found the queue full and could not be submitted at once, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Closed once every entry that names them has been submitted.
    closing: Vec<OwnedFd>,
}

impl Ring {
    /// Sets one up that does nothing yet, for [`Self::enable`] on whichever thread is to use it.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn new(config: &RingConfig) -> Result<Self, RingError> {
        let mut builder = IoUring::builder();
        // Completions are made when its one thread asks for them, and a flag in shared memory says that there are some to be made
        // (io_uring_setup(2)).
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_r_disabled();
        builder.setup_submit_all().setup_cqsize(config.completions);
        let uring = builder.build(config.entries).map_err(|error| set_up_error(errno(&error)))?;
        if !uring.params().is_feature_nodrop() {
            return Err(RingError::Operation("guarantee that completions are kept"));
        }
        let buffers = Buffers::register(&uring, config.buffers, config.buffer_bytes)?;
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(RingError::Event)?;
        uring
            .submitter()
            .register_eventfd(news.as_raw_fd())
            .map_err(|error| RingError::Event(errno(&error)))?;
        Ok(Self {
            uring,
            buffers,
            news,
            sends: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            closing: Vec::new(),
        })
    }

    /// Makes it this thread's. Its descriptor tells nothing until [`Self::tell`].
    ///
    /// # Errors
    /// What `io_uring_register(2)` returns.
    pub fn enable(&mut self) -> Result<(), RingError> {
        // Its descriptor is not registered with the thread (`IORING_REGISTER_RING_FDS`): that would keep the ring, and what its
        // armed receives name, for as long as the thread lives.
        self.uring.submitter().register_enable_rings().map_err(|error| RingError::Enable(errno(&error)))?;
        self.uring.completion().disable_eventfd();
        Ok(())
    }

    /// Before waiting for its descriptor, which is watched by edges: from here on it tells of news, also of what is there already.
    pub fn tell(&mut self) {
        self.uring.completion().enable_eventfd();
        // The kernel sets its flag before it looks whether to tell: one of both sees the other.
        fence(Ordering::SeqCst);
        if self.has_news() {
            // Fails only if it is told already, 2^64 times.
            let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
        }
    }

    /// After waiting: spares the kernel the telling.
    pub fn tell_no_more(&mut self) {
        self.uring.completion().disable_eventfd();
    }

    /// Sends on their way.
    #[must_use]
    pub fn sending(&self) -> usize {
        self.sends.len() - self.free.len()
    }

    /// Arms a receive on `fd` that goes on until its peer ends, it is cancelled, or it has taken `most` bytes or nearly so: never
    /// more than that.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, key: Key, most: u32) {
        // The kernel ends it with the buffer that reaches the bound.
        let each = self.buffers.size();
        let (len, most) = if most < 2 * each { (most.clamp(1, each), 1) } else { (0, most - each + 1) };
        let mut entry = opcode::RecvMulti::new(Fd(fd.as_raw_fd()), GROUP).len(len).build();
        // SAFETY: an entry is a `struct io_uring_sqe` (repr(C), 64 bytes, any bytes are one); `optlen` is a u32 there.
        unsafe { (&raw mut entry).cast::<u8>().add(OPTLEN_AT).cast::<u32>().write(most) };
        self.push(entry.user_data(key.user_data(Kind::Receive)));
    }

    /// Says once when `fd` takes bytes again, or has an error.
    pub fn watch_writable(&mut self, fd: BorrowedFd<'_>, key: Key) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), u32::from(PollFlags::OUT.bits())).build();
        self.push(entry.user_data(key.user_data(Kind::Writable)));
    }

    /// Sends what the socket takes at once.
    pub fn send(&mut self, fd: BorrowedFd<'_>, key: Key, bytes: Vec<u8>) {
        let place = self.free.pop().unwrap_or(self.sends.len() as u32);
        let (at, len) = (bytes.as_ptr(), bytes.len() as u32);
        // The bytes stay where they are, here, until the send's completion.
        match self.sends.get_mut(place as usize) {
            Some(free) => *free = Some((key, bytes)),
            None => self.sends.push(Some((key, bytes))),
        }
        let flags = (SendFlags::DONTWAIT | SendFlags::NOSIGNAL).bits() as i32;
        let entry = opcode::Send::new(Fd(fd.as_raw_fd()), at, len).flags(flags).build();
        self.push(entry.user_data(Key { number: place, generation: 0 }.user_data(Kind::Send)));
    }

    /// Ends what is armed for `key` on `fd`, and closes that once the kernel knows. Completions may still come.
    pub fn close(&mut self, fd: OwnedFd, key: Key, received: bool, watched: bool) {
        let asked = [(received, Kind::Receive), (watched, Kind::Writable)];
        for (_, kind) in asked.into_iter().filter(|(armed, _)| *armed) {
            let entry = opcode::AsyncCancel::new(key.user_data(kind)).build();
            self.push(entry.user_data(key.user_data(Kind::Cancel)));
        }
        self.closing.push(fd);
    }

    /// Whether there is something to enter for, or to take: no system call.
    #[inline]
    #[must_use]
    pub fn has_news(&mut self) -> bool {
        self.has_completions() || self.has_work()
    }

    /// Whether there is something to take: no system call.
    #[inline]
    #[must_use]
    pub fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Whether there is something to enter for: no system call.
    #[inline]
    #[must_use]
    pub fn has_work(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow() || !self.backlog.is_empty()
    }

    /// Whether something was asked for that is not submitted yet.
    #[must_use]
    pub fn has_unsubmitted(&mut self) -> bool {
        !self.backlog.is_empty() || !self.uring.submission().is_empty()
    }

    /// Submits what was asked for, and has the kernel do what is pending: one system call. Never waits.
    pub fn enter(&mut self) {
        let pending = self.uring.submission().len() as u32;
        // SAFETY: no argument is passed that could be wrong. What entries point to is kept until their completions: sends in
        // `sends`, receives name registered buffers. A failure (EINTR, EAGAIN, EBUSY) leaves entries for the next call.
        let _ = unsafe { self.uring.submitter().enter::<()>(pending, 0, GETEVENTS, None) };
        while let Some(entry) = self.backlog.pop_front() {
            // SAFETY: as for `push`.
            if unsafe { self.uring.submission().push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                break;
            }
        }
        if !self.closing.is_empty() && !self.has_unsubmitted() {
            self.closing.clear();
        }
    }

    /// The next of what has come.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        loop {
            let entry = self.uring.completion().next()?;
            if let Some(completion) = self.completed(&entry) {
                return Some(completion);
            }
        }
    }

    /// What was received into a buffer.
    ///
    /// # Panics
    /// If no buffer of this ring with that number is lent: it came from another one.
    #[inline]
    #[must_use]
    pub fn bytes(&self, buffer: &Lent) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    /// Gives a buffer back, to be received into again.
    ///
    /// # Panics
    /// As [`Self::bytes`].
    #[inline]
    pub fn give(&mut self, buffer: Lent) {
        self.buffers.give(buffer);
    }

    fn completed(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let (user_data, result, flags) = (entry.user_data(), entry.result(), entry.flags());
        let key = Key::of(user_data);
        let outcome = u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        match user_data >> 56 {
            kind if kind == Kind::Receive as u64 => {
                let buffer =
                    cqueue::buffer_select(flags).and_then(|id| self.buffers.take(id, outcome.unwrap_or(0)));
                let armed = cqueue::more(flags);
                match (buffer, outcome) {
                    (Some(buffer), Ok(1..)) => Some(Completion::Received { key, buffer, armed }),
                    (buffer, outcome) => {
                        if let Some(buffer) = buffer {
                            self.buffers.give(buffer);
                        }
                        Some(Completion::ReceiveEnded { key, why: outcome.map(drop) })
                    }
                }
            }
            kind if kind == Kind::Writable as u64 => Some(Completion::Writable { key }),
            kind if kind == Kind::Send as u64 => {
                let (key, bytes) = self.sends.get_mut(key.number as usize)?.take()?;
                self.free.push(user_data as u32);
                let taken = outcome.map(|taken| (taken as usize).min(bytes.len()));
                Some(Completion::Sent { key, bytes, taken })
            }
            _ => None,
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            for _ in 0..2 {
                // SAFETY: as for `enter`; descriptors are open, or the caller has given them to `close`, until the entry is
                // submitted.
                if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                    return;
                }
                // Full: what is in it goes first.
                let pending = self.uring.submission().len() as u32;
                // SAFETY: as for `enter`.
                let _ = unsafe { self.uring.submitter().enter::<()>(pending, 0, 0, None) };
            }
        }
        self.backlog.push_back(entry);
    }
}

impl AsFd for Ring {
    /// An edge of it tells of news, between [`Ring::tell`] and [`Ring::tell_no_more`]. It is never read: its level means nothing.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
