//! A lease on a kernel UDP socket. While its holder keeps looking, a BPF program (`stack/bpf/bpf/lease.c`) puts the
//! socket's frames into a direct ring instead of passing them to the kernel.
//!
//! The datagrams of one sender may come through both ring and socket, and their order must be kept. So the two take
//! turns:
//!
//! - While the ring is open, no frame of the socket is passed to the kernel. A frame that cannot be put into the
//!   ring closes it first and sets [`PASSED`]: a fragment, a frame that finds the ring full, or one that comes
//!   after the lease has expired.
//! - The "open" bit is part of the word from which a program takes a slot. So once either side has cleared it, the
//!   holder knows which frames are still to come. It reads all of them before it reads the socket.
//! - The holder clears [`PASSED`], makes sure that it has read everything that was passed, and opens the ring by an
//!   exchange that fails if [`PASSED`] is set again. So anything in the socket came after everything that was ever
//!   in the ring.
//!
//! An empty socket does not prove that everything has been read: a passed frame may still be on its way through the
//! kernel. So the program counts each frame before it passes it, and the holder counts what it reads. If the socket
//! is empty and both counts are equal, everything has been read. If they differ, the difference is made of frames
//! that were lost (dropped by the kernel, or read by another reader) and of frames still on their way. The smallest
//! difference found in several looks within [`SETTLING`] is taken as lost. A passed frame whose result is unknown,
//! such as a fragment, cannot be counted in this way; then no such frame may be passed for [`SETTLING`]. Until then
//! the kernel serves. (An ordinary datagram that comes through another interface is mistaken for one from this
//! interface that is still on its way.)
//!
//! A program that holds a slot fills it without being interrupted, within a microsecond. So a slot is never taken
//! back: a holder that wants to sleep waits for it.
//!
//! A program that finds a lease not renewed for [`LEASE`] closes the ring. So a holder that is stopped or busy with
//! something else does not withhold datagrams from other readers of the socket, except those already in the ring.

#[cfg(not(loom))]
use twinpath_frame::Mapping;
use twinpath_time::{Duration, Instant};

use crate::direct::layout::PASSED;
pub(crate) use crate::direct::layout::SINGLE;
use crate::direct::layout::direct::{ENDED_AT, FULL_AT, LAPSED_AT, ODD_AT, PASSED_AT, UNTIL_AT};
use crate::direct::{DirectFrame, DirectRing, OPEN, POSITION};
#[cfg(not(loom))]
use crate::direct::{HEAD_AT, memory::state_long_word, memory::state_word};
#[cfg(not(loom))]
use crate::sync::Arc;
use crate::sync::Ordering;

/// How long a lease lasts after its holder's last look.
pub const LEASE: Duration = Duration::from_millis(1);
/// The age of a lease at which a holder that looks renews it. Renewing it with each frame would move the word
/// between two CPUs each time.
const RENEWED_AFTER: Duration = Duration::from_micros(500);
/// The longest time that a frame takes from the program to the socket, even if its CPU is stopped for a while.
pub const SETTLING: Duration = Duration::from_millis(5);

/// How many times the socket must be found empty in that time. Under continuous traffic, another frame may be on
/// its way at each look, which is the same picture as a lost one. With four looks, this happened once in some
/// hundred thousand datagrams.
const LOOKS_MIN: u32 = if cfg!(loom) { 4 } else { 64 };
/// How soon the holder looks again in that case.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// After this time the smallest number of missing datagrams is determined again.
const FORGET_AFTER: Duration = Duration::from_millis(100);

/// In the head: [`SINGLE`]: the ring takes one frame, and is closed with it; [`PASSED`]: a frame has been passed to the
/// kernel since the holder cleared it.
const _: () = assert!(POSITION == PASSED - 1 && OPEN == SINGLE << 1);

/// How many frames the ring may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// As many as it has slots.
    All,
    /// One. Then nothing can be left in the ring that a reader without it would miss.
    One,
}

/// Where to look for the next datagram so that the order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// In the ring, complete: [`Lease::take`].
    Ring,
    /// In the ring, but a program is still writing it: look again, without sleeping.
    Soon,
    /// In the socket, if anywhere. If the socket is empty, call [`Lease::socket_was_empty`].
    Socket,
    /// Probably nowhere. The ring is open and empty.
    Nowhere,
    /// Probably nowhere. The ring is closed and empty: [`Lease::open`] may be possible, and sleeping on the socket
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

/// The state of a ring that any thread can see, even while another one has the [`Lease`].
#[cfg(not(loom))]
#[derive(Clone, Debug)]
pub struct LeaseView {
    states: Arc<Mapping>,
    number: u32,
}

#[cfg(not(loom))]
impl LeaseView {
    /// How many frames the ring has taken so far, including those still being written.
    #[must_use]
    pub fn taken(&self) -> u64 {
        state_long_word(&self.states, self.number, HEAD_AT)
            .map_or(0, |head| head.load(Ordering::Acquire) & POSITION)
    }

    /// How often the program ended the lease so far.
    #[must_use]
    pub fn ends(&self) -> Ends {
        let word = |at| state_word(&self.states, self.number, at);
        let count = |at| word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        Ends { by_program: count(ENDED_AT), full: count(FULL_AT), lapsed: count(LAPSED_AT) }
    }
}

/// What the program has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    datagrams: u32,
    odd: u32,
}

/// The smallest number of datagrams that were passed and not read when the socket was found empty.
#[derive(Clone, Copy, Debug)]
struct Missing {
    since: Instant,
    least: u32,
    looks: u32,
}

/// The holder's knowledge of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Socket {
    /// Something has been passed that was not read.
    Unread,
    /// It was empty at that time, and not everything that was passed had been read.
    Empty { at: Instant },
    /// Everything that was passed has been read.
    Settled,
}

/// The holder's end.
#[derive(Debug)]
pub struct Lease {
    ring: DirectRing,
    room: Room,
    socket: Socket,
    /// Datagrams read from the socket, counted as the program counts them.
    read: Counts,
    /// The number of passed odd frames when it was last found to have changed, and the time of that.
    odd: (u32, Instant),
    missing: Option<Missing>,
    renewed: Instant,
    ended_seen: u32,
}

impl Lease {
    /// For a ring that was never used, and a socket that the program does not know yet. What was passed before it
    /// knows the socket must have reached the socket before the ring is opened.
    #[must_use]
    pub fn new(ring: DirectRing) -> Self {
        let ended_seen = ring.word(ENDED_AT).load(Ordering::Relaxed);
        let read = passed(&ring);
        Self {
            ring,
            room: Room::All,
            socket: Socket::Unread,
            read,
            odd: (read.odd, Instant::ZERO),
            missing: None,
            renewed: Instant::ZERO,
            ended_seen,
        }
    }

    /// Whether the holder believes that frames may be put into the ring.
    #[inline]
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    /// How many frames the ring may take, if it is open.
    #[inline]
    #[must_use]
    pub const fn room(&self) -> Room {
        self.room
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
        // The program counts after it has closed, so the count may be an old one.
        if head & OPEN == 0 {
            self.ring.was_closed(head);
        }
        head & OPEN == 0
    }

    fn closed_and_empty(&mut self, now: Instant) -> Next {
        if self.ring.head().load(Ordering::Acquire) & PASSED != 0 {
            // Clear it before the counts are read: a frame that is counted later sets it again.
            self.ring.head().fetch_and(!PASSED, Ordering::SeqCst);
            self.socket = Socket::Unread;
            let odd = self.passed().odd;
            if odd != self.odd.0 {
                self.odd = (odd, now);
            }
        }
        match self.socket {
            Socket::Unread => Next::Socket,
            // It must be looked at once more.
            Socket::Empty { at } if now >= at + LOOK_AGAIN => Next::Socket,
            Socket::Settled | Socket::Empty { .. } => Next::Idle,
        }
    }

    fn passed(&self) -> Counts {
        passed(&self.ring)
    }

    /// The socket was looked at and was empty.
    pub fn socket_was_empty(&mut self, now: Instant) {
        if self.socket == Socket::Settled {
            return;
        }
        let passed = self.passed();
        // Odd frames have all been read if none came for this time, whatever else comes.
        if passed.odd == self.odd.0 && now >= self.odd.1 + SETTLING {
            self.read.odd = passed.odd;
        }
        if self.is_lost(passed.datagrams.wrapping_sub(self.read.datagrams), now) {
            self.read.datagrams = passed.datagrams;
        }
        self.socket = if self.read == passed { Socket::Settled } else { Socket::Empty { at: now } };
        if self.read.datagrams == passed.datagrams {
            self.missing = None;
        }
    }

    /// Whether this many missing datagrams were lost, so that none of them is on its way.
    fn is_lost(&mut self, missing: u32, now: Instant) -> bool {
        let Some(known) = &mut self.missing else {
            self.missing = Some(Missing { since: now, least: missing, looks: 1 });
            return false;
        };
        // If more are missing for this long, further ones have been lost.
        if missing < known.least || now >= known.since + FORGET_AFTER {
            *known = Missing { since: now, least: missing, looks: 1 };
        } else if missing == known.least {
            known.looks += 1;
            return known.looks >= LOOKS_MIN && now >= known.since + SETTLING;
        }
        false
    }

    /// A datagram was read from the socket. `is_odd`: the program counted it as odd or not at all, because it came
    /// from this host or in fragments.
    pub fn socket_was_read(&mut self, is_odd: bool) {
        // If everything that was passed has already been read, this one came through another interface.
        if !is_odd && self.passed().datagrams != self.read.datagrams {
            self.read.datagrams = self.read.datagrams.wrapping_add(1);
        }
        // Another reader found the socket empty before this was counted. Now the counts prove more.
        if matches!(self.socket, Socket::Empty { .. }) && self.has_read_all() {
            self.socket = Socket::Unread;
        }
    }

    /// Whether the counts say that nothing is left in the socket. The socket must still be looked at.
    #[must_use]
    pub fn has_read_all(&self) -> bool {
        self.read == self.passed()
    }

    /// The lease was given back because the socket was seen to be readable. It is read after the ring.
    pub const fn socket_has_some(&mut self) {
        self.socket = Socket::Unread;
    }

    /// Opens the ring, after [`Next::Idle`]. `false` if that is not possible yet, because a frame was passed that
    /// must be read first.
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

    /// Gives the lease back. From now on no frame takes a slot; frames that have a slot are still to come.
    pub fn close(&mut self) {
        if self.ring.is_open() {
            let head = self.ring.head().fetch_and(!(OPEN | SINGLE), Ordering::SeqCst);
            self.ring.was_closed(head);
        }
    }

    /// Renews the lease. It must be called at least every [`LEASE`], or the lease expires.
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

    /// As [`Self::take`], but leaves the frame there.
    pub fn peek<R>(&mut self, see: impl FnOnce(DirectFrame<'_>) -> R) -> Option<R> {
        self.ring.peek(see)
    }

    /// Leaves the frames in the ring to another reader ([`Remains`](crate::remains::Remains)). An open ring stays
    /// open, so that frames that arrive before that reader closes it queue behind the others. If nobody closes it
    /// until then, its lease expires.
    pub fn leave(&mut self, until: Instant) {
        self.renewed = Instant::ZERO;
        self.ring.long_word(UNTIL_AT).store(until.as_nanos(), Ordering::Release);
    }

    /// After [`Self::leave`]: whether the other reader has read everything and closed the ring. Frames that it has
    /// passed to the kernel are counted as passed.
    pub fn was_left(&mut self) -> bool {
        self.ring.catch_up();
        let head = self.ring.head().load(Ordering::SeqCst);
        if head & OPEN != 0 {
            return false;
        }
        self.ring.was_closed(head);
        self.socket = Socket::Unread;
        self.ring.is_drained()
    }

    /// For another socket, which the program does not know yet: discards the contents of the ring and closes it.
    pub fn begin_anew(&mut self) {
        self.close();
        self.ring.discard();
        (self.read, self.socket) = (self.passed(), Socket::Unread);
        (self.odd, self.missing) = ((self.read.odd, Instant::ZERO), None);
        self.notice_end();
    }

    /// Whether a frame is in the ring or about to come.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.ring.look() || !self.ring.is_open() && !self.ring.is_drained()
    }

    /// How many frames the ring has taken so far, including those still being written.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.ring.head().load(Ordering::Acquire) & POSITION
    }

    /// A view for threads that do not have the lease.
    #[cfg(not(loom))]
    #[must_use]
    pub fn view(&self) -> LeaseView {
        let (states, number) = self.ring.states();
        LeaseView { states, number }
    }

    /// How many of the frames that the ring has taken were read.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.ring.consumed()
    }
}

fn passed(ring: &DirectRing) -> Counts {
    let count = |at| ring.word(at).load(Ordering::SeqCst);
    Counts { datagrams: count(PASSED_AT), odd: count(ODD_AT) }
}

#[cfg(all(test, loom))]
mod model;
