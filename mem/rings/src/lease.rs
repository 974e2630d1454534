//! A lease on a kernel UDP socket: a direct ring that a BPF program (`io/steer_bpf/bpf/lease.c`) fills with the socket's
//! frames instead of passing them to the kernel, while somebody holds the lease, that is: looks.
//!
//! The datagrams of one sender may come by both, and their order has to be kept. Ring and socket take turns:
//!
//! - While the ring is open, no frame of the socket is passed to the kernel. What cannot be put into the ring (a fragment, a
//!   frame that finds it full, one that comes when the lease has lapsed) closes it first, and sets [`PASSED`].
//! - The bit that says "open" is part of the word from which a program takes a slot. So after it was cleared, by either side, the
//!   holder knows which frames are still to come, reads all of them, and only then the socket.
//! - The holder opens the ring only if it has read everything that was passed, and by an exchange that fails if [`PASSED`] is
//!   set, which it has cleared before. So what is in the socket has come after everything that was ever in the ring.
//!
//! An empty socket is no proof that everything has been read: a frame that was passed may still be on its way, as the kernel
//! passes up to eight frames on together. So the program counts what it passes before it passes it, and the holder what it reads.
//! If the two are equal, everything has been read. If they are not, as a datagram has come in fragments, the kernel has dropped one
//! or somebody else has read it, then nothing has to be passed for [`SETTLING`] before the holder believes an empty socket; for
//! its own part it waits no longer than [`SETTLING_MAX`] for that. (What comes from other interfaces is not counted by the
//! program: such a datagram can make up for one that is on its way.)
//!
//! A program that holds a slot fills it without being interrupted, within a microsecond. So nobody takes a slot back: a holder
//! that wants to sleep waits for it.
//!
//! A program that finds that a lease was not renewed for [`LEASE`] closes the ring: a holder that is stopped, or busy with
//! something else, keeps nothing from other readers of the socket. What is in the ring by then stays there.

use twinpath_time::{Duration, Instant};

use crate::direct::{DirectFrame, DirectRing, OPEN, POSITION};
use crate::sync::Ordering;

/// How long a lease lasts after its holder has last looked.
pub const LEASE: Duration = Duration::from_millis(1);
/// How old a holder that looks lets its lease become before it renews it: a word that both sides used with each frame would
/// travel between two CPUs.
const RENEWED_AFTER: Duration = Duration::from_micros(500);
/// A frame takes no longer from the program to the socket, unless its CPU is stopped.
pub const SETTLING: Duration = Duration::from_micros(20);
/// A holder that has not found the socket settled for so long, under traffic without a gap, opens the ring nevertheless: frames
/// that are on their way at that moment may come behind later ones.
pub const SETTLING_MAX: Duration = Duration::from_millis(1);

/// In the head: the ring takes one frame, and is closed with it.
const SINGLE: u64 = 1 << 62;
/// In the head: a frame has been passed to the kernel since the holder cleared it.
const PASSED: u64 = 1 << 61;
const _: () = assert!(POSITION == PASSED - 1 && OPEN == SINGLE << 1);

/// Offset in the state of the time when the lease lapses.
const UNTIL_AT: usize = 8;
/// Offset of the number of times that the program has closed the ring.
const ENDED_AT: usize = 16;
/// Offset of those of them because it was full.
const FULL_AT: usize = 72;
/// Offset of those of them because the lease had lapsed.
const LAPSED_AT: usize = 76;
/// Offset of the number of frames that the program has passed to the kernel.
const PASSED_AT: usize = 80;

/// How many frames the ring may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// As many as it has slots.
    All,
    /// One. Then nothing can be left in the ring that a reader without it would miss.
    One,
}

/// Where the next datagram is, if their order is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// In the ring, complete: [`Lease::take`].
    Ring,
    /// In the ring, and a program is about to have written it: look again, without sleeping.
    Soon,
    /// In the socket, if anywhere. If that is empty: [`Lease::socket_was_empty`].
    Socket,
    /// Nowhere, as far as is known. The ring is open and empty.
    Nowhere,
    /// Nowhere, as far as is known. The ring is closed and empty: [`Lease::open`] may be possible, and sleeping on the socket
    /// loses nothing.
    Idle,
}

/// How often leases ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// By the program, for any reason.
    pub by_program: u32,
    /// The ring was full.
    pub full: u32,
    /// Its holder did not look for too long.
    pub lapsed: u32,
}

/// What the holder knows of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    /// Something has been passed that was not read.
    Unread,
    /// It was empty at that time, when so many frames had been passed.
    Settling { since: Instant, passed: u32 },
    /// Everything that was passed has been read.
    Settled,
}

/// The holder's end.
#[derive(Debug)]
pub struct Lease {
    ring: DirectRing,
    room: Room,
    socket: Socket,
    /// When it was last settled.
    settled: Instant,
    /// Datagrams read from the socket, as the program counts frames.
    read: u32,
    renewed: Instant,
    ended_seen: u32,
}

impl Lease {
    /// Of a ring that nobody has used before.
    #[must_use]
    pub fn new(ring: DirectRing, now: Instant) -> Self {
        let ended_seen = ring.word(ENDED_AT).load(Ordering::Relaxed);
        // What came before there was a program is in the socket, or on its way.
        let read = ring.word(PASSED_AT).load(Ordering::Relaxed).wrapping_sub(1);
        let (socket, settled) = (Socket::Unread, now);
        Self { ring, room: Room::All, socket, settled, read, renewed: Instant::ZERO, ended_seen }
    }

    /// Whether frames may be put into the ring, as far as is known.
    #[inline]
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    /// Where the next datagram is.
    #[inline]
    #[must_use]
    pub fn next(&mut self, now: Instant) -> Next {
        if self.ring.look() {
            return Next::Ring;
        }
        if self.ring.is_open() && !self.notice_end() {
            return Next::Nowhere;
        }
        if !self.ring.is_drained() {
            // A program may have filled it meanwhile.
            return if self.ring.look() { Next::Ring } else { Next::Soon };
        }
        self.closed_and_empty(now)
    }

    /// Whether the program has closed the ring.
    fn notice_end(&mut self) -> bool {
        let ended = self.ring.word(ENDED_AT).load(Ordering::Acquire);
        if ended == self.ended_seen {
            return false;
        }
        self.ended_seen = ended;
        let head = self.ring.head().load(Ordering::SeqCst);
        // The program counts after it has closed, so the count may be of a former time.
        if head & OPEN == 0 {
            self.ring.was_closed(head);
        }
        head & OPEN == 0
    }

    fn closed_and_empty(&mut self, now: Instant) -> Next {
        if self.ring.head().load(Ordering::Acquire) & PASSED != 0 {
            // Before the count is read: what is counted later sets it again.
            self.ring.head().fetch_and(!PASSED, Ordering::SeqCst);
            self.socket = Socket::Unread;
            self.note_counts(now);
        }
        match self.socket {
            Socket::Unread => Next::Socket,
            // To be looked at once more.
            Socket::Settling { since, .. } if now >= since + SETTLING => Next::Socket,
            Socket::Settled | Socket::Settling { .. } => Next::Idle,
        }
    }

    fn passed(&self) -> u32 {
        self.ring.word(PASSED_AT).load(Ordering::SeqCst)
    }

    fn note_counts(&mut self, now: Instant) {
        if self.passed() == self.read {
            (self.socket, self.settled) = (Socket::Settled, now);
        }
    }

    /// The socket was looked at, and had nothing.
    pub fn socket_was_empty(&mut self, now: Instant) {
        if self.socket == Socket::Settled {
            return;
        }
        let passed = self.passed();
        let rested = matches!(self.socket, Socket::Settling { since, passed: then } if then == passed && now >= since + SETTLING);
        if rested || now >= self.settled + SETTLING_MAX {
            self.read = passed;
        }
        match self.socket {
            Socket::Settling { passed: then, .. } if then == passed => {}
            _ => self.socket = Socket::Settling { since: now, passed },
        }
        self.note_counts(now);
    }

    /// A datagram was read from the socket.
    pub fn socket_was_read(&mut self, now: Instant) {
        self.read = self.read.wrapping_add(1);
        if !self.ring.is_open() {
            self.note_counts(now);
        }
    }

    /// Whether a datagram that is seen in the socket, although the ring is open, comes before what is in the ring. It is to
    /// be asked when the datagram has been seen and not yet been taken; if not, it must stay in the socket.
    #[must_use]
    pub fn socket_is_first(&mut self) -> bool {
        if !self.ring.is_open() {
            return self.ring.is_drained();
        }
        let head = self.ring.head().load(Ordering::SeqCst);
        if head & OPEN != 0 {
            return true;
        }
        self.ring.was_closed(head);
        self.ring.is_drained()
    }

    /// Opens the ring, after [`Next::Idle`]. `false` if that is not possible yet: a frame was passed that is to be read first.
    pub fn open(&mut self, now: Instant, room: Room) -> bool {
        debug_assert!(self.ring.is_drained(), "frames are left");
        self.renew(now);
        let head = self.ring.head();
        let closed = head.load(Ordering::Relaxed);
        let single = if matches!(room, Room::One) { SINGLE } else { 0 };
        let opened = closed & PASSED == 0
            && self.socket == Socket::Settled
            && head
                .compare_exchange(closed, closed | OPEN | single, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
        if opened {
            self.room = room;
            self.ring.was_opened();
        }
        opened
    }

    /// Gives the lease back. From now on no frame takes a slot; those that have one are still to come.
    pub fn close(&mut self) {
        if self.ring.is_open() {
            let head = self.ring.head().fetch_and(!(OPEN | SINGLE), Ordering::SeqCst);
            self.ring.was_closed(head);
        }
    }

    /// The holder looks: to be called at least every [`LEASE`], or the lease lapses.
    #[inline]
    pub fn looks(&mut self, now: Instant) {
        if now.nanos_since(self.renewed) >= RENEWED_AFTER.as_nanos() as u64 {
            self.renew(now);
        }
    }

    fn renew(&mut self, now: Instant) {
        self.renewed = now;
        self.ring.long_word(UNTIL_AT).store((now + LEASE).as_nanos(), Ordering::Release);
    }

    /// Passes the oldest frame in the ring to `see`, after [`Next::Ring`]. `None` if there is none, or if it could not be read.
    #[inline]
    pub fn take<R>(&mut self, see: impl FnOnce(DirectFrame<'_>) -> R) -> Option<R> {
        let was_there = self.ring.look();
        let taken = self.ring.take(see);
        if matches!(self.room, Room::One) && was_there && self.ring.is_open() {
            self.ring.was_last();
        }
        taken
    }

    /// Whether a frame is in the ring, or comes.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.ring.look() || !self.ring.is_open() && !self.ring.is_drained()
    }

    /// How often the program ended the lease.
    #[must_use]
    pub fn ends(&self) -> Ends {
        let count = |at| self.ring.word(at).load(Ordering::Relaxed);
        Ends { by_program: count(ENDED_AT), full: count(FULL_AT), lapsed: count(LAPSED_AT) }
    }
}

#[cfg(all(test, loom))]
mod model;
