//! A socket with a lease, and what is known of it.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};

use libc::c_int;
use twinpath_leases::sockets::Lessee;

use super::SETS;
use super::paying::Paying;
use crate::earning::Membership;
use crate::on_socket::Calls;
use crate::options::Wanted;
use crate::users::{self, Others, Shared};

/// A socket with a lease.
#[derive(Debug)]
pub struct Place {
    pub(crate) lessee: Lessee,
    pub(super) is_used: AtomicBool,
    /// How many descriptors it has.
    pub(super) descriptors: AtomicU32,
    pub(super) wanted: AtomicU32,
    /// The cookie by which the socket is recognised.
    pub(super) cookie: AtomicU64,
    /// How it is shared with other processes ([`Shared`]).
    pub(super) shared: AtomicU16,
    /// The program waits for it by calls of this crate: what is in the ring is seen.
    pub(super) is_waited_for: AtomicBool,
    /// When a call that waits asks the kernel next, ns.
    pub(crate) ask_at: AtomicU64,
    pub(crate) calls: Calls,
    /// For the next receiving call to return; 0: none.
    pub(super) error: AtomicI32,
    /// A descriptor of the socket after its last one was closed, for calls that have the socket until they return; -1: none.
    pub(super) kept: AtomicI32,
    /// What number its last one had then.
    pub(super) closed_as: AtomicI32,
    pub(crate) sets: [InSet; SETS],
    pub(super) paying: Paying,
}

/// That a socket is in a set of `epoll(7)`.
#[derive(Debug)]
pub(crate) struct InSet {
    /// -1: in none.
    pub(crate) set: AtomicI32,
    pub(crate) descriptor: AtomicI32,
    pub(crate) events: AtomicU32,
    pub(crate) data: AtomicU64,
    /// Edge-triggered: how many frames the ring had taken when the program was told of it last.
    told_of: AtomicU64,
    /// The last call had no room for it, so the next one begins with it.
    pub(crate) left_out: AtomicBool,
}

/// The program was told of nothing.
const NOTHING: u64 = u64::MAX;

impl InSet {
    const fn none() -> Self {
        Self {
            set: AtomicI32::new(-1),
            descriptor: AtomicI32::new(-1),
            events: AtomicU32::new(0),
            data: AtomicU64::new(0),
            told_of: AtomicU64::new(NOTHING),
            left_out: AtomicBool::new(false),
        }
    }
}

impl InSet {
    /// The program says that it is in that set, or says so again: it is told of what is there, also if it was told of that before.
    pub(crate) fn put(&self, set: c_int, descriptor: c_int, events: u32, data: u64) {
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.events.store(events, Ordering::Relaxed);
        self.data.store(data, Ordering::Relaxed);
        self.told_of.store(NOTHING, Ordering::Relaxed);
        self.left_out.store(false, Ordering::Relaxed);
        self.set.store(set, Ordering::Release);
    }

    /// As the program has described it; `None`: it is in none.
    pub(super) fn membership(&self) -> Option<Membership> {
        let set = self.set.load(Ordering::Acquire);
        let (events, data) = (self.events.load(Ordering::Relaxed), self.data.load(Ordering::Relaxed));
        (set >= 0).then_some(Membership { set, events, data })
    }

    /// Whether the program is told only of what has come since it was told last.
    pub(crate) fn is_edge(&self) -> bool {
        self.events.load(Ordering::Relaxed) & libc::EPOLLET as u32 != 0
    }

    /// Whether the program is to be told of something in a ring that has taken this many frames.
    pub(crate) fn is_news(&self, taken: u64) -> bool {
        !self.is_edge() || self.told_of.load(Ordering::Relaxed) != taken
    }

    /// The program is told of everything in a ring that has taken this many frames.
    pub(crate) fn set_told_of(&self, taken: u64) {
        self.told_of.store(taken, Ordering::Relaxed);
    }
}

impl Place {
    pub(super) const fn new() -> Self {
        Self {
            lessee: Lessee::new(),
            is_used: AtomicBool::new(false),
            descriptors: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            cookie: AtomicU64::new(0),
            shared: AtomicU16::new(0),
            is_waited_for: AtomicBool::new(false),
            ask_at: AtomicU64::new(0),
            calls: Calls::new(),
            error: AtomicI32::new(0),
            kept: AtomicI32::new(-1),
            closed_as: AtomicI32::new(-1),
            sets: [const { InSet::none() }; SETS],
            paying: Paying::new(),
        }
    }

    /// Takes the place, if it is free.
    pub(super) fn take(&self) -> bool {
        if self.is_used.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.lessee.set_free();
        // A call on the former socket would take the new one for it.
        let is_free = self.calls.are_none() && self.lessee.is_free();
        if !is_free {
            self.is_used.store(false, Ordering::Release);
        }
        is_free
    }

    /// Whether it is in that epoll set, as far as that is known.
    pub(crate) fn is_in(&self, set: c_int) -> bool {
        self.in_sets(set).next().is_some()
    }

    /// What is known of it in that epoll set: once for each of its descriptors that is there. A set loses one that is closed.
    pub(crate) fn in_sets(&self, set: c_int) -> impl Iterator<Item = &InSet> {
        self.sets.iter().filter(move |in_set| {
            set >= 0
                && in_set.set.load(Ordering::Acquire) == set
                && in_set.descriptor.load(Ordering::Relaxed) >= 0
        })
    }

    /// The descriptor by which a call goes on that has begun with another one of this socket: that may be closed by now, and its number
    /// have another meaning.
    pub(crate) fn descriptor(&self, begun_with: c_int) -> c_int {
        self.kept().unwrap_or(begun_with)
    }

    /// A descriptor of the socket, after the program has closed its last one while calls have it.
    pub(crate) fn kept(&self) -> Option<c_int> {
        Some(self.kept.load(Ordering::Acquire)).filter(|kept| *kept >= 0)
    }

    /// Whether the program has closed the socket, as that number, while calls have it.
    pub(crate) fn was_closed_as(&self, descriptor: c_int) -> bool {
        self.kept().is_some() && self.closed_as.load(Ordering::Relaxed) == descriptor
    }

    /// Says that the program waits for it by a call of this crate.
    #[inline]
    pub(crate) fn set_waited_for(&self) {
        if !self.is_waited_for() {
            self.is_waited_for.store(true, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    pub(super) fn shared(&self) -> Option<Shared> {
        Shared::from_bits(self.shared.load(Ordering::Relaxed))
    }

    pub(super) fn set_shared(&self, shared: Option<Shared>) {
        self.shared.store(shared.map_or(0, Shared::bits), Ordering::Relaxed);
    }

    /// The program uses the socket: looks whether other processes do so, too, if they have it.
    #[inline]
    pub(crate) fn look_for_others(&self) {
        if let Some(shared) = self.shared() {
            let others = shared.others(users::own());
            self.lessee.set_used_by_others(others == Others::Use);
            self.lessee.set_had_by_others(others >= Others::May);
        }
    }

    /// Keeps an error that a call met after it had received something.
    pub(crate) fn set_error(&self, error: c_int) {
        self.error.store(error, Ordering::Relaxed);
    }

    /// What [`Self::set_error`] has kept.
    #[inline]
    pub(crate) fn take_error(&self) -> Option<c_int> {
        if self.error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.error.swap(0, Ordering::Relaxed)).filter(|error| *error != 0)
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted::from_bits(self.wanted.load(Ordering::Relaxed))
    }
}
