//! Calls by datagram that must run once: their replies are kept, and sent again when the call comes again.
//!
//! A client that misses a reply repeats its call under the same xid. A call is known again by who sent it, its number, what
//! it calls, and the length and a checksum of its bytes, so that a client that starts anew and reuses an xid is not taken for
//! its former self. Memory is taken at the start: a table of sets of [`WAYS`] places, and a reply's room beside each. At the
//! limit the oldest of a set makes room; a reply older than the age is forgotten. Calls that are being worked on are never
//! forgotten to make room: there are as many of them as their core has room for, and [`WORKING_MAX`] at most.

use std::collections::VecDeque;
use std::net::SocketAddr;

use twinpath_time::{Duration, Instant};

use crate::call::Header;

/// Places that a call may be kept in; its hash says which.
pub(crate) const WAYS: usize = 8;

/// Bytes of a call that its checksum covers: those that tell calls apart, at a price that does not grow with a WRITE.
const SUMMED_MAX: usize = 256;

/// Most calls that are being worked on: what a core may be configured to have under way at once.
pub(crate) const WORKING_MAX: usize = 65_536;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateLimits {
    /// Calls; rounded up to whole sets, and to a power of two of those.
    pub calls: u32,
    /// How long: longer than a client goes on repeating a call.
    pub age: Duration,
}

/// What tells one call from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    peer: SocketAddr,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    len: u32,
    sum: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    since: Instant,
    /// Bytes of its reply.
    len: u32,
}

/// A call that a thread which may block works on.
#[derive(Clone, Copy, Debug)]
struct Working {
    /// Ascends. Its reply is known by it: another call of the same peer may have the same xid.
    number: u64,
    key: Key,
    since: Instant,
}

/// The table.
pub(crate) struct Duplicates {
    limits: DuplicateLimits,
    /// Whole sets, a power of two of them.
    places: Box<[Option<Place>]>,
    /// Room for a reply per place.
    replies: Box<[u8]>,
    reply_max: usize,
    /// Makes it unforeseeable which calls share a set.
    seed: u64,
    /// Calls that are being worked on, the oldest first.
    working: VecDeque<Working>,
    /// The number of the last one that was.
    last: u64,
}

impl Duplicates {
    /// A table for replies of up to `reply_max` bytes.
    pub(crate) fn new(limits: DuplicateLimits, reply_max: usize, seed: u64) -> Self {
        let sets = (limits.calls as usize).div_ceil(WAYS).max(1).next_power_of_two();
        let places = sets * WAYS;
        Self {
            limits,
            places: vec![None; places].into_boxed_slice(),
            replies: vec![0; places * reply_max].into_boxed_slice(),
            reply_max,
            seed,
            working: VecDeque::new(),
            last: 0,
        }
    }

    /// What a call is known by.
    pub(crate) fn key(&self, peer: SocketAddr, header: &Header<'_>, message: &[u8]) -> Key {
        let Header { xid, program, version, procedure, .. } = *header;
        let sum = checksum(self.seed, &message[..message.len().min(SUMMED_MAX)]);
        Key { peer, xid, program, version, procedure, len: message.len() as u32, sum }
    }

    /// The place of the first of a call's set. The xid is among the bytes summed.
    fn first(&self, key: &Key) -> usize {
        let sets = self.places.len() / WAYS;
        (key.sum as usize & (sets - 1)) * WAYS
    }

    fn live(&self, now: Instant, place: usize) -> Option<Place> {
        self.places[place].filter(|place| now.since(place.since) < self.limits.age)
    }

    /// The reply that was kept for a call.
    pub(crate) fn find(&self, now: Instant, key: &Key) -> Option<&[u8]> {
        let first = self.first(key);
        let known = |at: usize| Some((at, self.live(now, at).filter(|place| place.key == *key)?));
        let (at, place) = (first..first + WAYS).find_map(known)?;
        let start = at * self.reply_max;
        Some(&self.replies[start..start + place.len as usize])
    }

    /// Whether no other call may be answered later.
    pub(crate) fn is_full(&self) -> bool {
        self.working.len() >= WORKING_MAX
    }

    /// A call is to be answered later: the number for [`Self::finish`], from 1. There is room: [`Self::is_full`] was asked.
    pub(crate) fn begin(&mut self, now: Instant, key: Key) -> u64 {
        debug_assert!(!self.is_full(), "a call too many is being worked on");
        self.last += 1;
        self.working.push_back(Working { number: self.last, key, since: now });
        self.last
    }

    /// Whether it is being worked on: what comes again then is neither run nor answered.
    pub(crate) fn is_working(&mut self, now: Instant, key: &Key) -> bool {
        // One whose work never ended is forgotten, as its reply would be.
        while self.working.front().is_some_and(|oldest| now.since(oldest.since) >= self.limits.age) {
            self.working.pop_front();
        }
        self.working.iter().any(|working| working.key == *key)
    }

    /// The reply of a call that was to be answered later; keeps it if it is of one that must run once. As [`Self::keep`] otherwise.
    pub(crate) fn finish(&mut self, now: Instant, number: u64, reply: &[u8]) -> bool {
        let Ok(at) = self.working.binary_search_by_key(&number, |working| working.number) else {
            return false;
        };
        let ended = self.working.remove(at);
        ended.is_some_and(|ended| self.keep(now, ended.key, reply))
    }

    /// Keeps the reply of a call that has none; one that is longer than its program said is not kept, rather than cut.
    /// Says whether another, still live, made room for it.
    pub(crate) fn keep(&mut self, now: Instant, key: Key, reply: &[u8]) -> bool {
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

/// A keyed checksum: quick, and of no use to somebody who does not know the seed. What decides is the whole key.
fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    // Odd, its bits well mixed: the golden ratio of 2^64.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word) * u128::from(FACTOR);
        (product >> 64) as u64 ^ product as u64 ^ seed.rotate_left(32)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(seed ^ FACTOR, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(rest.len() as u64, |last, byte| last << 8 | u64::from(*byte));
    mix(mix(sum, last), seed)
}

#[cfg(test)]
mod tests;
