//! The duplicate request cache: keeps the replies of non-idempotent calls and sends them again when a call is
//! repeated.
//!
//! A client that misses a reply repeats its call under the same xid: by datagram, or over a new connection from the
//! same port. A repeated call is recognised by its source (address and port), its length, and a keyed hash of its
//! header, credential and verifier included, and of the start of its arguments. So a restarted client that reuses an
//! xid does not get the reply to an earlier call.
//!
//! All workers of an instance share the table: it does not matter which worker gets a call, by which path,
//! or whether its first run is still in progress. The table is divided into shards, each with a lock. The
//! lock is held while one reply is searched for and copied, and only for calls that must run once: other
//! calls do not use the table.
//!
//! Memory is allocated at the start: sets of [`SET_ENTRIES`] entries, each with room for a reply. A new
//! entry replaces the oldest of its set; a reply is forgotten when its age is reached. Calls in progress
//! are never replaced: their number is limited by the service's configuration, and never exceeds
//! [`WORKING_MAX`].

use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use twinpath_time::{Duration, Instant};

use crate::call::Header;

/// Associativity: the entries in which a call may be kept; its hash selects the set.
pub(crate) const SET_ENTRIES: usize = 8;

/// Number of shards, each with its own lock.
const SHARDS: usize = 16;

/// Bytes of a call's arguments that are hashed: enough to tell calls apart, at a cost that does not grow
/// with the size of a WRITE.
const HASHED_ARGS_MAX: usize = 256;

/// Maximum number of calls in progress: the highest value that a service can be configured with.
pub(crate) const WORKING_MAX: usize = 65_536;

/// How many replies are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateLimits {
    /// Number of calls, over all workers; rounded up to whole sets in each shard, and to a power of two of
    /// those.
    pub calls: u32,
    /// How long a reply is kept: longer than clients repeat a call.
    pub age: Duration,
}

/// What identifies a call.
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
    /// Length of its reply, bytes.
    len: u32,
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
struct Working {
    /// Ascending. It identifies the call when its reply arrives: another call of the same peer may have the
    /// same xid.
    number: u64,
    key: Key,
    since: Instant,
    /// Whether its ticket exists: it may end yet, however long it takes.
    is_held: bool,
}

/// The table's state of a received call.
pub(crate) enum Known {
    /// Unknown: it must run now.
    New(Ticket),
    /// Its reply was found and appended to the output.
    Answered,
    /// It is in progress.
    Working,
    /// Unknown, and there is no room to remember it while it is in progress.
    Full,
}

/// The table, shared by all workers, and by a server with the one that follows it ([`Server::sharing`]).
///
/// [`Server::sharing`]: crate::Server::sharing
pub struct Duplicates {
    shards: Box<[Mutex<Shard>]>,
    /// Keyed, so that nobody can choose calls of the same set or the same hash.
    hasher: SipHasher13,
    room: Mutex<Room>,
}

/// What a table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    limits: DuplicateLimits,
    /// Length of the longest reply, bytes.
    reply_max: usize,
}

impl std::fmt::Debug for Duplicates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duplicates").field("room", &self.room).finish_non_exhaustive()
    }
}

impl Duplicates {
    /// A table that a server may use. It has no memory for replies before one does. `seed` should be a number that no
    /// caller can guess: it keys the hash.
    #[must_use]
    pub fn new(limits: DuplicateLimits, seed: u64) -> Self {
        let none = DuplicateLimits { calls: 0, ..limits };
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(none, 0))).collect();
        let room = Mutex::new(Room { limits, reply_max: 0 });
        Self { shards, hasher: SipHasher13::new_with_keys(seed, !seed), room }
    }

    /// Changes the limits. What is kept stays, as far as there is room, and so does what is in progress.
    pub fn set_limits(&self, limits: DuplicateLimits) {
        self.change_room(|room| Room { limits, ..room });
    }

    /// Makes room for replies of up to `reply_max` bytes.
    pub(crate) fn make_room(&self, reply_max: usize) {
        self.change_room(|room| Room { reply_max: room.reply_max.max(reply_max), ..room });
    }

    fn change_room(&self, change: impl FnOnce(Room) -> Room) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let Room { limits, reply_max } = change(*room);
        if *room == (Room { limits, reply_max }) {
            return;
        }
        *room = Room { limits, reply_max };
        // There is nothing to keep yet, nor anybody who would.
        if reply_max == 0 {
            return;
        }
        let each = DuplicateLimits { calls: limits.calls.div_ceil(SHARDS as u32), ..limits };
        for at in 0..SHARDS {
            // Workers do not wait for memory.
            let mut changed = Shard::new(each, reply_max);
            let mut shard = self.shard(at);
            changed.take_over(&mut shard);
            std::mem::swap(&mut *shard, &mut changed);
            drop(shard);
        }
    }

    /// The key of a call.
    pub(crate) fn key(&self, peer: SocketAddr, header: &Header<'_>, message: &[u8]) -> Key {
        let header_len = message.len() - header.args.len();
        let mut hasher = self.hasher;
        hasher.write(&message[..header_len + header.args.len().min(HASHED_ARGS_MAX)]);
        Key { peer, len: message.len() as u32, hash: hasher.finish128().as_u128() }
    }

    /// Looks up a received call that must run once. Its reply, if there is one, is appended to `out`.
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
        // No code under this lock panics halfway.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in progress. If it is dropped before it [started](Self::start), the call is forgotten. If it is
/// dropped afterwards without a reply, its code panicked, and the call is not run again within the age.
pub(crate) struct Ticket {
    table: Arc<Duplicates>,
    shard: usize,
    number: u64,
    started: bool,
    done: bool,
}

impl Ticket {
    /// Marks that the call must not run again from now on.
    pub(crate) const fn start(&mut self) {
        self.started = true;
    }

    /// Marks that another thread will do the work.
    pub(crate) const fn defer(&mut self) {
        self.started = false;
    }

    /// Keeps its reply, with the age counted from the call's end, or if that is not known, from its arrival. Returns
    /// whether it replaced another one that was still live.
    pub(crate) fn finish(mut self, ended: Option<Instant>, reply: &[u8]) -> bool {
        self.done = true;
        self.table.shard(self.shard).finish(self.number, ended, reply)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut shard = self.table.shard(self.shard);
        if self.started {
            shard.abandon(self.number);
        } else {
            shard.take(self.number);
        }
    }
}

/// A shard of the table.
struct Shard {
    age: Duration,
    /// A power of two of whole sets.
    places: Box<[Option<Place>]>,
    /// Room for a reply per entry.
    replies: Box<[u8]>,
    reply_max: usize,
    /// Calls in progress, the oldest first.
    working: VecDeque<Working>,
    /// The number of the last call in progress.
    last: u64,
}

impl Shard {
    fn new(limits: DuplicateLimits, reply_max: usize) -> Self {
        let sets = (limits.calls as usize).div_ceil(SET_ENTRIES).max(1).next_power_of_two();
        let places = sets * SET_ENTRIES;
        Self {
            age: limits.age,
            places: vec![None; places].into_boxed_slice(),
            replies: vec![0; places * reply_max].into_boxed_slice(),
            reply_max,
            // For calls that are answered immediately: one of each worker.
            working: VecDeque::with_capacity(64),
            last: 0,
        }
    }

    /// Takes what another one keeps, the newest replies if not all have room, and what is in progress there.
    fn take_over(&mut self, former: &mut Self) {
        self.working = std::mem::take(&mut former.working);
        self.last = former.last;
        let mut kept: Vec<_> =
            former.places.iter().enumerate().filter_map(|(at, place)| Some((at, (*place)?))).collect();
        kept.sort_unstable_by_key(|(_, place)| place.since);
        for (at, Place { key, since, len }) in kept {
            let start = at * former.reply_max;
            self.keep(since, key, &former.replies[start..start + len as usize]);
        }
    }

    /// Index of the first entry of a call's set.
    fn first(&self, key: &Key) -> usize {
        let sets = self.places.len() / SET_ENTRIES;
        ((key.hash >> 64) as usize & (sets - 1)) * SET_ENTRIES
    }

    fn live(&self, now: Instant, place: usize) -> Option<Place> {
        self.places[place].filter(|place| now.since(place.since) < self.age)
    }

    /// The kept reply to a call.
    fn find(&self, now: Instant, key: &Key) -> Option<&[u8]> {
        let first = self.first(key);
        let known = |at: usize| Some((at, self.live(now, at).filter(|place| place.key == *key)?));
        let (at, place) = (first..first + SET_ENTRIES).find_map(known)?;
        let start = at * self.reply_max;
        Some(&self.replies[start..start + place.len as usize])
    }

    /// Marks a call as in progress and returns its number; `None` if too many are.
    fn begin(&mut self, now: Instant, key: Key) -> Option<u64> {
        if self.working.len() >= WORKING_MAX / SHARDS {
            return None;
        }
        self.last += 1;
        self.working.push_back(Working { number: self.last, key, since: now, is_held: true });
        Some(self.last)
    }

    /// Whether the call is in progress: a repetition is then neither run nor answered.
    fn is_working(&mut self, now: Instant, key: &Key) -> bool {
        // A call whose code panicked is forgotten at the age at which its reply would be. One that is still carried
        // out is not, however long its file system takes: it would run twice.
        let age = self.age;
        self.working.retain(|working| working.is_held || now.since(working.since) < age);
        self.working.iter().any(|working| working.key == *key)
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        self.working.binary_search_by_key(&number, |working| working.number).ok()
    }

    fn take(&mut self, number: u64) -> Option<Working> {
        let at = self.place_of(number)?;
        self.working.remove(at)
    }

    /// Marks that a call will never end.
    fn abandon(&mut self, number: u64) {
        if let Some(at) = self.place_of(number) {
            self.working[at].is_held = false;
        }
    }

    fn finish(&mut self, number: u64, ended: Option<Instant>, reply: &[u8]) -> bool {
        let Some(call) = self.take(number) else { return false };
        self.keep(ended.unwrap_or(call.since).max(call.since), call.key, reply)
    }

    /// Keeps the reply of a call, unless it is longer than its program announced. Returns whether it
    /// replaced another one that was still live.
    fn keep(&mut self, now: Instant, key: Key, reply: &[u8]) -> bool {
        debug_assert!(reply.len() <= self.reply_max, "a reply of {} bytes", reply.len());
        if reply.len() > self.reply_max {
            return false;
        }
        let first = self.first(&key);
        // Free entries first, then the oldest.
        let since = |place: usize| self.live(now, place).map(|place| place.since);
        let at = (first..first + SET_ENTRIES).min_by_key(|place| since(*place)).unwrap_or(first);
        let displaced = since(at).is_some();
        let start = at * self.reply_max;
        self.replies[start..start + reply.len()].copy_from_slice(reply);
        self.places[at] = Some(Place { key, since: now, len: reply.len() as u32 });
        displaced
    }
}

#[cfg(test)]
mod tests;
