//! Sessions: state per UDP peer, limited in number and by age. A service that needs them holds a
//! [`Sessions`]; other services have no cost.

use std::collections::HashMap;
use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_time::{Duration, Instant};

use crate::ServiceCounters;

/// How to treat a new peer when there is no room for its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The least recently used session is dropped (`sessions_displaced`): every new peer is served, but a flood of
    /// forged senders displaces all sessions.
    #[default]
    DropOldest,
    /// The new peer is refused (`session_limit`), and existing sessions are kept.
    Refuse,
}

/// Limits of sessions, per worker, as each worker has its own clone of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of sessions.
    pub sessions: u32,
    /// How long a session is kept without a datagram.
    pub idle: Duration,
    /// How to treat a new peer at the limit.
    pub when_full: WhenFull,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions: 4096, idle: Duration::from_secs(60), when_full: WhenFull::default() }
    }
}

/// The index that means "none".
const NONE: u32 = u32::MAX;

/// Maximum number of aged sessions dropped per use: more than one use can create.
const AGED_PER_USE: usize = 2;

struct Place<T> {
    peer: SocketAddr,
    used: Instant,
    /// The next older and newer place in the order of use.
    older: u32,
    newer: u32,
    /// `None` while the place is free; then `newer` is the next free one.
    state: Option<T>,
}

/// The sessions of peers. A clone is empty and has the same limits: every worker has its own.
pub struct Sessions<T> {
    limits: SessionLimits,
    by_peer: HashMap<SocketAddr, u32>,
    places: Vec<Place<T>>,
    free: u32,
    oldest: u32,
    newest: u32,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    opened: u64,
    aged: u64,
    displaced: u64,
}

impl<T> Clone for Sessions<T> {
    fn clone(&self) -> Self {
        Self::new(self.limits)
    }
}

impl<T> Sessions<T> {
    /// An empty table, with room for all sessions allocated.
    #[must_use]
    pub fn new(limits: SessionLimits) -> Self {
        let room = limits.sessions as usize;
        Self {
            limits,
            by_peer: HashMap::with_capacity(room),
            places: Vec::with_capacity(room),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            counts: Counts::default(),
        }
    }

    /// The number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_peer.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }

    /// The session of `peer`, created if it has none, and marked as used at `now`.
    ///
    /// # Errors
    /// [`Reason::SessionLimit`] if there is no room; return it in [`Answer::Drop`](crate::Answer::Drop).
    #[inline]
    pub fn at(&mut self, now: Instant, peer: SocketAddr, make: impl FnOnce() -> T) -> Result<&mut T, Reason> {
        self.forget_aged(now);
        let place = match self.by_peer.get(&peer) {
            Some(place) => *place,
            None => self.open(peer, make())?,
        };
        self.used(place, now);
        self.places[place as usize].state.as_mut().ok_or(Reason::SessionLimit)
    }

    /// The session of `peer`, if it has one; it does not count as used.
    pub fn get(&mut self, peer: SocketAddr) -> Option<&mut T> {
        let place = *self.by_peer.get(&peer)?;
        self.places.get_mut(place as usize)?.state.as_mut()
    }

    /// Ends the session of `peer`, and returns its state if it had one.
    pub fn end(&mut self, peer: SocketAddr) -> Option<T> {
        let place = self.by_peer.remove(&peer)?;
        self.unlink(place);
        let free = std::mem::replace(&mut self.free, place);
        let place = &mut self.places[place as usize];
        place.newer = free;
        place.state.take()
    }

    /// Updates the counters of open, aged and displaced sessions.
    pub fn publish(&self, counters: &ServiceCounters) {
        counters.sessions.set(self.len() as u64);
        counters.sessions_opened.set(self.counts.opened);
        counters.sessions_aged.set(self.counts.aged);
        counters.sessions_displaced.set(self.counts.displaced);
    }

    fn forget_aged(&mut self, now: Instant) {
        for _ in 0..AGED_PER_USE {
            let Some(oldest) = self.places.get(self.oldest as usize) else { return };
            if oldest.used + self.limits.idle > now {
                return;
            }
            let peer = oldest.peer;
            self.end(peer);
            self.counts.aged += 1;
        }
    }

    fn open(&mut self, peer: SocketAddr, state: T) -> Result<u32, Reason> {
        if self.len() >= self.limits.sessions as usize {
            let oldest = self.places.get(self.oldest as usize).map(|place| place.peer);
            match (self.limits.when_full, oldest) {
                (WhenFull::DropOldest, Some(oldest)) => {
                    self.end(oldest);
                    self.counts.displaced += 1;
                }
                _ => return Err(Reason::SessionLimit),
            }
        }
        let new = Place { peer, used: Instant::ZERO, older: NONE, newer: NONE, state: Some(state) };
        let place = match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let place = self.free;
                self.free = free.newer;
                *free = new;
                place
            }
            None => {
                self.places.push(new);
                (self.places.len() - 1) as u32
            }
        };
        self.by_peer.insert(peer, place);
        self.counts.opened += 1;
        self.link(place);
        Ok(place)
    }

    #[inline]
    fn used(&mut self, place: u32, now: Instant) {
        self.places[place as usize].used = now;
        if place != self.newest {
            self.unlink(place);
            self.link(place);
        }
    }

    fn link(&mut self, place: u32) {
        let before = std::mem::replace(&mut self.newest, place);
        let own = &mut self.places[place as usize];
        (own.older, own.newer) = (before, NONE);
        match self.places.get_mut(before as usize) {
            Some(before) => before.newer = place,
            None => self.oldest = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Place { older, newer, .. } = self.places[place as usize];
        match self.places.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.places.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], number))
    }

    fn at(second: u64) -> Instant {
        Instant::from_nanos(second * 1_000_000_000)
    }

    fn limits(when_full: WhenFull) -> SessionLimits {
        SessionLimits { sessions: 5, idle: Duration::from_secs(10), when_full }
    }

    #[test]
    fn a_peer_keeps_its_state_until_it_has_been_silent_for_long() {
        let mut sessions = Sessions::new(limits(WhenFull::Refuse));
        for second in 0..30 {
            let count = sessions.at(at(second), peer(1), || 0).expect("room");
            *count += 1;
            assert_eq!(*count, second + 1);
        }
        assert_eq!(sessions.at(at(31), peer(2), || 7), Ok(&mut 7));
        assert_eq!(sessions.at(at(39), peer(1), || 0), Ok(&mut 0), "it was gone at 39");
        assert_eq!(sessions.get(peer(2)), Some(&mut 7));
        assert_eq!(sessions.get(peer(9)), None);
        assert_eq!(sessions.end(peer(2)), Some(7));
        assert_eq!((sessions.end(peer(2)), sessions.len()), (None, 1));
        assert!(sessions.clone().is_empty());
    }

    #[test]
    fn at_the_limit_the_new_peer_is_refused_or_the_oldest_goes() {
        for when_full in [WhenFull::Refuse, WhenFull::DropOldest] {
            let mut sessions = Sessions::new(limits(when_full));
            for number in 0..5 {
                sessions.at(at(u64::from(number)), peer(number), || number).expect("room");
            }
            // The first one was used again, so the second is the oldest now.
            sessions.at(at(5), peer(0), || 99).expect("its own");
            let new_peer = sessions.at(at(5), peer(9), || 9).map(|state| *state);
            let refused = when_full == WhenFull::Refuse;
            assert_eq!(new_peer, if refused { Err(Reason::SessionLimit) } else { Ok(9) });
            assert_eq!(sessions.end(peer(1)), refused.then_some(1));
            assert_eq!(sessions.end(peer(0)), Some(0));
            let counters = ServiceCounters::default();
            sessions.publish(&counters);
            assert_eq!(counters.sessions_displaced.get(), u64::from(!refused));
            assert_eq!(
                (counters.sessions.get(), counters.sessions_aged.get()),
                (if refused { 3 } else { 4 }, 0)
            );
        }
    }

    #[test]
    fn what_became_of_sessions_is_published() {
        let mut sessions = Sessions::new(limits(WhenFull::DropOldest));
        (0..7).for_each(|number| assert!(sessions.at(at(0), peer(number), || number).is_ok()));
        assert!((0..3).all(|_| sessions.at(at(10), peer(9), || 9).is_ok()), "the others go, two at a time");
        assert_eq!((sessions.len(), sessions.is_empty()), (1, false));
        let counters = ServiceCounters::default();
        sessions.publish(&counters);
        assert_eq!((counters.sessions.get(), counters.sessions_opened.get()), (1, 8));
        assert_eq!((counters.sessions_aged.get(), counters.sessions_displaced.get()), (5, 2));
        assert_eq!((sessions.end(peer(9)), sessions.is_empty()), (Some(9), true));
    }

    #[test]
    fn a_place_that_became_free_is_used_again() {
        let mut sessions = Sessions::new(limits(WhenFull::Refuse));
        for round in 0..100 {
            (0..5).for_each(|number| assert!(sessions.at(at(round), peer(number), || number).is_ok()));
            (0..5).for_each(|number| assert_eq!(sessions.end(peer(number)), Some(number)));
        }
        assert_eq!(sessions.places.len(), 5);
    }

    #[test]
    fn it_agrees_with_a_list_in_the_order_of_use() {
        let mut sessions = Sessions::new(limits(WhenFull::DropOldest));
        let mut model: Vec<(u16, u64, u32)> = Vec::new();
        let (mut seed, mut now) = (0x9e37_79b9_7f4a_7c15u64, 0);
        for round in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (number, step, what) = ((seed >> 33) as u16 % 9, (seed >> 50) % 4, (seed >> 60) % 8);
            now += step;
            if what == 0 {
                let ended =
                    model.iter().position(|(peer, ..)| *peer == number).map(|place| model.remove(place).2);
                assert_eq!(sessions.end(peer(number)), ended);
                continue;
            }
            for _ in 0..AGED_PER_USE {
                if model.first().is_some_and(|(_, used, _)| used + 10 <= now) {
                    model.remove(0);
                }
            }
            let state = match model.iter().position(|(peer, ..)| *peer == number) {
                Some(place) => model.remove(place).2,
                None => {
                    if model.len() == 5 {
                        model.remove(0);
                    }
                    round
                }
            };
            model.push((number, now, state));
            assert_eq!(sessions.at(at(now), peer(number), || round), Ok(&mut { state }));
            assert_eq!(sessions.len(), model.len());
        }
    }
}
