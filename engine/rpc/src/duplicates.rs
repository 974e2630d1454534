//! Calls by datagram that must run once: their replies are kept, and sent again when the call comes again.
//!
//! A client that misses a reply repeats its call under the same xid. A call is known again by who sent it, its number, what
//! it calls, and the length and a checksum of its bytes, so that a client that starts anew and reuses an xid is not taken for
//! its former self. Memory is taken at the start: a table of sets of [`WAYS`] places, and a reply's room beside each. At the
//! limit the oldest of a set makes room; a reply older than the age is forgotten.

use std::net::SocketAddr;

use twinpath_service::ServiceCounters;
use twinpath_time::{Duration, Instant};

use crate::call::Header;
use crate::program::Arrival;

/// Places that a call may be kept in; its hash says which.
pub(crate) const WAYS: usize = 8;

/// Bytes of a call that its checksum covers: those that tell calls apart, at a price that does not grow with a WRITE.
const SUMMED_MAX: usize = 256;

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
struct Key {
    peer: SocketAddr,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    len: u32,
    sum: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Its program has not answered.
    Running,
    /// Its reply has so many bytes.
    Answered { len: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    since: Instant,
    state: State,
    /// Which use of this place it is.
    turn: u64,
}

/// A place taken for a call that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    place: u32,
    turn: u64,
}

/// What is known of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// Nothing: it is to run, and this is its place.
    New(Slot),
    /// It runs already.
    Running,
    /// It was answered with this.
    Answered(&'a [u8]),
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
    turns: u64,
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
            turns: 0,
        }
    }

    /// Looks a call up, and takes a place for it if it is new.
    pub(crate) fn look_up(
        &mut self,
        arrival: Arrival,
        header: &Header<'_>,
        message: &[u8],
        counters: &ServiceCounters,
    ) -> Known<'_> {
        let Arrival { now, peer, .. } = arrival;
        let Header { xid, program, version, procedure, .. } = *header;
        let sum = checksum(self.seed, &message[..message.len().min(SUMMED_MAX)]);
        let key = Key { peer, xid, program, version, procedure, len: message.len() as u32, sum };
        let sets = self.places.len() / WAYS;
        // The xid is among the bytes summed.
        let first = (sum as usize & (sets - 1)) * WAYS;
        let age = self.limits.age;
        let set = &mut self.places[first..first + WAYS];
        let live = |place: &Option<Place>| place.filter(|place| now.since(place.since) < age);
        if let Some((way, place)) = set
            .iter()
            .enumerate()
            .find_map(|(way, place)| Some((way, live(place).filter(|place| place.key == key)?)))
        {
            return match place.state {
                State::Running => Known::Running,
                State::Answered { len } => {
                    counters.repeated.add(1);
                    let start = (first + way) * self.reply_max;
                    Known::Answered(&self.replies[start..start + len as usize])
                }
            };
        }
        // Free places first, then the oldest.
        let order = |place: &Option<Place>| live(place).map(|place| place.since);
        let way = (0..WAYS).min_by_key(|way| order(&set[*way])).unwrap_or_default();
        counters.forgotten.add(u64::from(live(&set[way]).is_some()));
        self.turns += 1;
        set[way] = Some(Place { key, since: now, state: State::Running, turn: self.turns });
        Known::New(Slot { place: (first + way) as u32, turn: self.turns })
    }

    /// Keeps the reply of a call; the call's place may be another's by now.
    pub(crate) fn answered(&mut self, slot: Slot, reply: &[u8]) {
        let at = slot.place as usize;
        let Some(place) = self.places.get_mut(at).and_then(Option::as_mut) else { return };
        let start = at * self.reply_max;
        if place.turn != slot.turn {
            return;
        }
        let Some(room) = self.replies[start..start + self.reply_max].get_mut(..reply.len()) else {
            // Longer than its program said: better run again than cut.
            debug_assert!(false, "a reply of {} bytes; results_max says otherwise", reply.len());
            self.places[at] = None;
            return;
        };
        room.copy_from_slice(reply);
        place.state = State::Answered { len: reply.len() as u32 };
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
