//! Taps: copies of requests to which the programs have replied by themselves, and of the replies, for captures
//! (bpf/tap.h).
//!
//! A tap belongs to the capture that made it. Programs that are loaded later can be given the same tap.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya::Ebpf;
use aya::maps::of_maps::ArrayOfMaps;
use aya::maps::{Map, MapData, RingBuf};

use crate::SteerError;
use crate::layouts::{TAP_FRAME, TAPS, tapped};
use crate::made::{array, ring};
use crate::mapped::Mapped;
use crate::maps::{typed, wrote};

/// Maximum number of taps.
pub const TAPS_MAX: usize = TAPS;

/// Memory of a tap's ring: about 4,000 requests of 400 bytes with their replies, or 15,000 of 64 bytes.
const RING_BYTES: u32 = 4 << 20;

/// The end of a tap that is given to programs.
pub struct ReflexTap {
    ring: MapData,
    missed: Arc<Mapped>,
}

/// The end of a tap that is read.
pub struct TapReader {
    ring: RingBuf<MapData>,
    missed: Arc<Mapped>,
}

/// A request to which a program has replied by itself, and the reply.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The request, as it came.
    pub request: Shown<'a>,
    /// The reply, as the program has sent it. Its checksum may be left to hardware.
    pub reply: Shown<'a>,
}

/// A copy of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// When it was copied, ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Length of the whole frame, bytes.
    pub frame_len: u32,
    /// The frame, from the Ethernet header on; if it is long, its first 2,048 bytes.
    pub bytes: &'a [u8],
}

impl ReflexTap {
    /// Makes a tap, with 4 MiB of the kernel's memory. No program fills it yet.
    ///
    /// # Errors
    /// [`SteerError::Map`]: the kernel has no such maps (added in Linux 5.8), or no memory for them.
    pub fn create() -> Result<(Self, TapReader), SteerError> {
        let [ring, read] = ring("tap_ring", RING_BYTES)?;
        let missed = Arc::new(Mapped::of("tap_missed", array("tap_missed", 8, 1)?, 8)?);
        let read = RingBuf::try_from(Map::RingBuf(read)).map_err(|error| SteerError::Map {
            map: "tap_ring",
            action: "mapping",
            error: Box::new(error),
        })?;
        Ok((Self { ring, missed: Arc::clone(&missed) }, TapReader { ring: read, missed }))
    }

    /// Number of frames, requests and replies, for which there was no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        missed(&self.missed)
    }
}

impl TapReader {
    /// Takes the next request and its reply, in the order in which they were replied to. Returns whether there was one.
    pub fn take(&mut self, with: impl FnOnce(Exchange<'_>)) -> bool {
        let Some(item) = self.ring.next() else { return false };
        // The programs write nothing else.
        if let Some(exchange) = exchange(&item) {
            with(exchange);
        }
        true
    }

    /// Number of frames, requests and replies, for which there was no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        missed(&self.missed)
    }
}

/// It is readable when there is something to take.
impl AsFd for TapReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

fn missed(words: &Mapped) -> u64 {
    words.word(0).map_or(0, |word| word.load(Ordering::Relaxed))
}

fn exchange(bytes: &[u8]) -> Option<Exchange<'_>> {
    let (head, rest) = bytes.split_at_checked(tapped::BYTES_AT)?;
    let word = |at: usize| Some(u64::from_ne_bytes(*head.get(at..)?.first_chunk()?));
    let len = |at: usize| Some(u32::from_ne_bytes(*head.get(at..)?.first_chunk()?));
    let (request_len, reply_len) = (len(tapped::REQUEST_LEN_AT)?, len(tapped::REPLY_LEN_AT)?);
    let (request, reply) = rest.split_at_checked((request_len as usize).min(TAP_FRAME))?;
    let reply = reply.get(..(reply_len as usize).min(TAP_FRAME))?;
    Some(Exchange {
        request: Shown { time_ns: word(tapped::REQUEST_NS_AT)?, frame_len: request_len, bytes: request },
        reply: Shown { time_ns: word(tapped::REPLY_NS_AT)?, frame_len: reply_len, bytes: reply },
    })
}

/// A map of maps.
type Outer = ArrayOfMaps<MapData, MapData>;

/// The places for taps in a loaded object.
pub(crate) struct Taps {
    rings: Outer,
    missed: Outer,
    /// The ring in places without a tap.
    none: MapData,
    /// The taps that have a place, by their words.
    taken: [Option<Arc<Mapped>>; TAPS_MAX],
}

impl Taps {
    pub(crate) fn take(object: &mut Ebpf) -> Result<Self, SteerError> {
        let Some(Map::RingBuf(none)) = object.take_map("tap_rings_none") else {
            return Err(SteerError::Missing("tap_rings_none"));
        };
        Ok(Self {
            rings: typed(object, "tap_rings")?,
            missed: typed(object, "tap_missed")?,
            none,
            taken: Default::default(),
        })
    }

    /// Gives these taps, at most [`TAPS_MAX`], a place each, and removes all others. `tell` is called with the bits
    /// of the places that programs may use. If anything changes, waits for running programs, some tens of
    /// milliseconds. A tap that has a place already keeps it, and misses nothing.
    pub(crate) fn set(&mut self, taps: &[&ReflexTap], tell: impl Fn(u64)) -> Result<(), SteerError> {
        let wanted = &taps[..taps.len().min(TAPS_MAX)];
        for place in 0..TAPS_MAX {
            let is_wanted =
                |missed: &mut Arc<Mapped>| wanted.iter().any(|tap| Arc::ptr_eq(&tap.missed, missed));
            if self.taken[place].take_if(|missed| !is_wanted(missed)).is_some() {
                tell(self.bits());
                self.rings.set(place as u32, &self.none, 0).map_err(wrote("tap_rings"))?;
            }
        }
        for tap in wanted {
            let has_place = |missed: &Arc<Mapped>| Arc::ptr_eq(&tap.missed, missed);
            if self.taken.iter().flatten().any(has_place) {
                continue;
            }
            let free = self.taken.iter().position(Option::is_none);
            let Some(place) = free else { break };
            self.missed.set(place as u32, tap.missed.map(), 0).map_err(wrote("tap_missed"))?;
            self.rings.set(place as u32, &tap.ring, 0).map_err(wrote("tap_rings"))?;
            self.taken[place] = Some(Arc::clone(&tap.missed));
            tell(self.bits());
        }
        Ok(())
    }

    fn bits(&self) -> u64 {
        self.taken.iter().enumerate().fold(0, |bits, (place, tap)| bits | u64::from(tap.is_some()) << place)
    }
}
