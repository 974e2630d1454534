//! Calls that must run once: their replies are kept, and sent again when the call comes again.
//!
//! A client that misses a reply repeats its call under the same xid: by datagram, or over a new connection from the same
//! port. A call is known again by who sent it (address and port), its length, and a keyed hash of its header, credential and
//! verifier included, and of the start of its arguments. So a client that starts anew and reuses an xid is not taken for its
//! former self.
//!
//! The table is one for all workers of an instance: it does not matter to which of them a call comes, by which path, or whether
//! its first run is still under way. It is cut into shards, each with a lock, which is held for the time of a search and of a
//! copy of one reply, and only for calls that must run once: no other call comes here.
//!
//! Memory is taken at the start: sets of [`WAYS`] places, and a reply's room beside each. At the limit the oldest of a set
//! makes room; a reply older than the age is forgotten. Calls that are being worked on are never forgotten to make room: there
//! are as many of them as their core has room for, and [`WORKING_MAX`] at most.

use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use twinpath_time::{Duration, Instant};

use crate::call::Header;

/// Places that a call may be kept in; its hash says which.
pub(crate) const WAYS: usize = 8;

/// Parts with a lock of their own.
const SHARDS: usize = 16;

/// Bytes of a call's arguments that are hashed: those that tell calls apart, at a price that does not grow with a WRITE.
const HASHED_ARGS_MAX: usize = 256;

/// Most calls that are being worked on: what a core may be configured to have under way at once.
pub(crate) const WORKING_MAX: usize = 65_536;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateLimits {
    /// Calls, of all workers; rounded up to whole sets in each shard, and to a power of two of those.
    pub calls: u32,
    /// How long: longer than a client goes on repeating a call.
    pub age: Duration,
}

/// What tells one call from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    peer: SocketAddr,
    len: u32,
    hash: u128,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    since: Instant,
    /// Bytes of its reply.
    len: u32,
}

/// A call that is being worked on.
#[derive(Clone, Copy, Debug)]
struct Working {
    /// Ascends. Its reply is known by it: another call of the same peer may have the same xid.
    number: u64,
    key: Key,
    since: Instant,
}

/// What is known of a call that comes.
pub(crate) enum Known {
    /// Nothing: it is to be run now.
    New(Ticket),
    /// Its reply was appended to what was given.
    Answered,
    /// It is being worked on.
    Working,
    /// Nothing, and it could not be remembered while it is worked on.
    Full,
}

/// The table, of all workers.
pub(crate) struct Duplicates {
    shards: Box<[Mutex<Shard>]>,
    /// Makes it unforeseeable which calls share a place, and which have the same hash.
    hasher: SipHasher13,
}

impl Duplicates {
    /// A table for replies of up to `reply_max` bytes. `seed` keys the hash.
    pub(crate) fn new(limits: DuplicateLimits, reply_max: usize, seed: u64) -> Self {
        let each = DuplicateLimits { calls: limits.calls.div_ceil(SHARDS as u32), ..limits };
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(each, reply_max))).collect();
        Self { shards, hasher: SipHasher13::new_with_keys(seed, !seed) }
    }

    /// What a call is known by.
    pub(crate) fn key(&self, peer: SocketAddr, header: &Header<'_>, message: &[u8]) -> Key {
        let header_len = message.len() - header.args.len();
        let mut hasher = self.hasher;
        hasher.write(&message[..header_len + header.args.len().min(HASHED_ARGS_MAX)]);
        Key { peer, len: message.len() as u32, hash: hasher.finish128().as_u128() }
    }

    /// A call that must run once has come. The reply it had, if there was one, is appended to `out`.
    pub(crate) fn begin(self: &Arc<Self>, now: Instant, key: Key, out: &mut Vec<u8>) -> Known {
        let at = key.hash as usize % SHARDS;
        let mut shard = self.shard(at);
        if shard.is_working(now, &key) {
            return Known::Working;
        }
        if let Some(reply) = shard.find(now, &key) {
            out.extend_from_slice(reply);
            return Known::Answered;
        }
        let Some(number) = shard.begin(now, key) else { return Known::Full };
        Known::New(Ticket { table: Arc::clone(self), shard: at, number, started: false, done: false })
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, Shard> {
        // Nothing in there panics half-way.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is being worked on. Dropped before it [started](Self::start), it is as if it had never come; dropped after that
/// without a reply, its code panicked half-way: then it is not run again.
pub(crate) struct Ticket {
    table: Arc<Duplicates>,
    shard: usize,
    number: u64,
    started: bool,
    done: bool,
}

impl Ticket {
    /// From here on it must not be run again.
    pub(crate) const fn start(&mut self) {
        self.started = true;
    }

    /// What it takes is still to be done, by another thread.
    pub(crate) const fn defer(&mut self) {
        self.started = false;
    }

    /// Keeps its reply, from when it came. Says whether another, still live, made room for it.
    pub(crate) fn finish(mut self, reply: &[u8]) -> bool {
        self.done = true;
        self.table.shard(self.shard).finish(self.number, reply)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.started && !self.done {
            self.table.shard(self.shard).take(self.number);
        }
    }
}

/// A part of the table.
struct Shard {
    age: Duration,
    /// Whole sets, a power of two of them.
    places: Box<[Option<Place>]>,
    /// Room for a reply per place.
    replies: Box<[u8]>,
    reply_max: usize,
    /// Calls that are being worked on, the oldest first.
    working: VecDeque<Working>,
    /// The number of the last one that was.
    last: u64,
}

impl Shard {
    fn new(limits: DuplicateLimits, reply_max: usize) -> Self {
        let sets = (limits.calls as usize).div_ceil(WAYS).max(1).next_power_of_two();
        let places = sets * WAYS;
        Self {
            age: limits.age,
            places: vec![None; places].into_boxed_slice(),
            replies: vec![0; places * reply_max].into_boxed_slice(),
            reply_max,
            // Calls that are answered at once: one of each worker.
            working: VecDeque::with_capacity(64),
            last: 0,
        }
    }

    /// The place of the first of a call's set.
    fn first(&self, key: &Key) -> usize {
        let sets = self.places.len() / WAYS;
        ((key.hash >> 64) as usize & (sets - 1)) * WAYS
    }

    fn live(&self, now: Instant, place: usize) -> Option<Place> {
        self.places[place].filter(|place| now.since(place.since) < self.age)
    }

    /// The reply that was kept for a call.
    fn find(&self, now: Instant, key: &Key) -> Option<&[u8]> {
        let first = self.first(key);
        let known = |at: usize| Some((at, self.live(now, at).filter(|place| place.key == *key)?));
        let (at, place) = (first..first + WAYS).find_map(known)?;
        let start = at * self.reply_max;
        Some(&self.replies[start..start + place.len as usize])
    }

    /// A call is worked on from now on: its number; `None` if too many are.
    fn begin(&mut self, now: Instant, key: Key) -> Option<u64> {
        if self.working.len() >= WORKING_MAX / SHARDS {
            return None;
        }
        self.last += 1;
        self.working.push_back(Working { number: self.last, key, since: now });
        Some(self.last)
    }

    /// Whether it is being worked on: what comes again then is neither run nor answered.
    fn is_working(&mut self, now: Instant, key: &Key) -> bool {
        // One whose work never ended is forgotten, as its reply would be.
        while self.working.front().is_some_and(|oldest| now.since(oldest.since) >= self.age) {
            self.working.pop_front();
        }
        self.working.iter().any(|working| working.key == *key)
    }

    fn take(&mut self, number: u64) -> Option<Working> {
        let at = self.working.binary_search_by_key(&number, |working| working.number).ok()?;
        self.working.remove(at)
    }

    fn finish(&mut self, number: u64, reply: &[u8]) -> bool {
        let ended = self.take(number);
        ended.is_some_and(|ended| self.keep(ended.since, ended.key, reply))
    }

    /// Keeps the reply of a call that has none; one that is longer than its program said is not kept, rather than cut.
    /// Says whether another, still live, made room for it.
    fn keep(&mut self, now: Instant, key: Key, reply: &[u8]) -> bool {
        debug_assert!(reply.len() <= self.reply_max, "a reply of {} bytes", reply.len());
        if reply.len() > self.reply_max {
            return false;
        }
        let first = self.first(&key);
        // Free places first, then the oldest.
        let since = |place: usize| self.live(now, place).map(|place| place.since);
        let at = (first..first + WAYS).min_by_key(|place| since(*place)).unwrap_or(first);
        let displaced = since(at).is_some();
        let start = at * self.reply_max;
        self.replies[start..start + reply.len()].copy_from_slice(reply);
        self.places[at] = Some(Place { key, since: now, len: reply.len() as u32 });
        displaced
    }
}

#[cfg(test)]
mod tests;
