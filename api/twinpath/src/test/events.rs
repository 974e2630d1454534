//! Everything under way in a simulation, in order of arrival.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::SocketAddr;

use twinpath_time::{Duration, Instant};

use super::Network;
use super::connection::{Client, Side};

/// An event that happens at its arrival.
pub(super) enum Happening {
    Request { peer: SocketAddr, bytes: Vec<u8> },
    Reply { peer: SocketAddr, bytes: Vec<u8> },
    Late { peer: SocketAddr, number: u64, reply: Vec<u8> },
    Bytes { client: Client, side: Side, bytes: Vec<u8> },
    End { client: Client },
    Reset { client: Client },
    Finished { client: Client },
    Done { client: Client, number: u64, reply: Vec<u8> },
}

pub(super) struct Events {
    random: Random,
    /// Arrival times with event numbers; of equal times, the event sent first comes first.
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,
    /// When the last bytes of a stream arrive, for each direction.
    streams: HashMap<(Client, Side), Instant>,
}

impl Events {
    pub(super) fn new(network: &Network) -> Self {
        Self {
            // The state must not be zero. Seeds that differ in one bit give states that differ in most.
            random: Random(network.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            order: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            streams: HashMap::new(),
        }
    }

    /// When the next thing arrives.
    pub(super) fn next(&self) -> Instant {
        self.order.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at)
    }

    /// Takes the next event that has arrived by `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Happening> {
        if self.next() > now {
            return None;
        }
        let Reverse((_, number)) = self.order.pop()?;
        self.happenings.remove(&number)
    }

    pub(super) fn at(&mut self, at: Instant, happening: Happening) {
        self.order.push(Reverse((at, self.next)));
        self.happenings.insert(self.next, happening);
        self.next += 1;
    }

    /// Sends a datagram; it may be lost, or arrive twice.
    pub(super) fn datagram(&mut self, now: Instant, network: &Network, make: impl Fn() -> Happening) {
        if self.random.is(network.loss) {
            return;
        }
        let copies = if self.random.is(network.duplicates) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.random.delay(network);
            self.at(now + delay, make());
        }
    }

    /// Sends bytes of a stream to one of its sides, in pieces.
    pub(super) fn stream(
        &mut self,
        now: Instant,
        network: &Network,
        client: Client,
        side: Side,
        bytes: &[u8],
    ) {
        for piece in bytes.chunks(network.segment_bytes.max(1)) {
            let at = self.behind(now, network, client, side);
            self.at(at, Happening::Bytes { client, side, bytes: piece.to_vec() });
        }
    }

    /// Sends an event that arrives after all bytes that the client has sent.
    pub(super) fn after_stream(&mut self, now: Instant, network: &Network, client: Client, what: Happening) {
        let at = self.behind(now, network, client, Side::Service);
        self.at(at, what);
    }

    /// Sends an event that arrives after all bytes that the service has sent.
    pub(super) fn after_reply(&mut self, now: Instant, network: &Network, client: Client, what: Happening) {
        let at = self.behind(now, network, client, Side::Client);
        self.at(at, what);
    }

    fn behind(&mut self, now: Instant, network: &Network, client: Client, side: Side) -> Instant {
        let earliest = now + self.random.delay(network);
        let last = self.streams.entry((client, side)).or_insert(earliest);
        *last = earliest.max(*last);
        *last
    }
}

/// A generator of pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// True for this share of calls.
    fn is(&mut self, share: f64) -> bool {
        share > 0.0 && ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }

    fn delay(&mut self, network: &Network) -> Duration {
        let Network { delay_min, delay_max, .. } = network;
        let spread = delay_max.saturating_sub(*delay_min).as_nanos() as u64;
        if spread == 0 { *delay_min } else { *delay_min + Duration::from_nanos(self.next() % (spread + 1)) }
    }
}
