//! The network between two hosts: each way has its own loss, order, delay, rate, queue and packet size.

use std::collections::BTreeMap;

use twinpath_tcp::{Outgoing, Tuple};
use twinpath_time::{Duration, Instant};
use twinpath_wire::checksum::Sum;
use twinpath_wire::{ChecksumTrust, tcp};

/// A segment on its way, without its IP header.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// The connection, as its receiver sees it.
    pub(crate) tuple: Tuple,
    /// TCP header and payload.
    pub(crate) bytes: Vec<u8>,
    /// Payload bytes of each segment, if it is several.
    pub(crate) unit: u16,
    /// Whether it may be marked instead of dropped, and whether it is.
    pub(crate) capable: bool,
    pub(crate) marked: bool,
}

/// Bytes of an IP header.
fn ip_header(tuple: &Tuple) -> usize {
    if tuple.is_ipv4() { 20 } else { 40 }
}

impl Packet {
    pub(crate) fn new(tuple: &Tuple, segment: &Outgoing<'_>) -> Self {
        let mut bytes = vec![0; tcp::HEADER_LEN + segment.options.len() + segment.payload.len()];
        let len = segment.header.emit(segment.options, &mut bytes).expect("a header with its options");
        bytes[len..].copy_from_slice(segment.payload);
        let tuple = Tuple::new(tuple.remote(), tuple.local());
        Self { tuple, bytes, unit: segment.unit, capable: segment.capable, marked: false }
    }

    pub(crate) fn view(&self) -> tcp::Segment<'_> {
        tcp::Segment::parse(&self.bytes).expect("a whole segment")
    }

    /// Bytes of the IP packet.
    fn len(&self) -> usize {
        ip_header(&self.tuple) + self.bytes.len()
    }

    /// What segmentation below the stack makes of several segments in one.
    fn cut(self) -> Vec<Self> {
        let view = self.view();
        let (unit, payload) = (usize::from(self.unit), view.payload());
        if unit == 0 || payload.len() <= unit {
            return vec![Self { unit: 0, ..self }];
        }
        let header_len = self.bytes.len() - payload.len();
        let count = payload.len().div_ceil(unit);
        let one = |(index, chunk): (usize, &[u8])| {
            let mut bytes = self.bytes[..header_len].to_vec();
            let seq = view.sequence().wrapping_add((index * unit) as u32);
            bytes[4..8].copy_from_slice(&seq.to_be_bytes());
            if index + 1 < count {
                bytes[13] &= !(tcp::Flags::FIN | tcp::Flags::PSH);
            }
            if index > 0 {
                bytes[13] &= !tcp::Flags::CWR;
            }
            bytes.extend_from_slice(chunk);
            Self { bytes, unit: 0, tuple: self.tuple, capable: self.capable, marked: self.marked }
        };
        payload.chunks(unit).enumerate().map(one).collect()
    }

    /// Glues the next packet to this one, as an interface does it. False if they do not belong together.
    pub(crate) fn glue(&mut self, next: &Self) -> bool {
        let (one, other) = (self.view(), next.view());
        let unit = if self.unit == 0 { one.payload().len() } else { usize::from(self.unit) };
        let ends = tcp::Flags::PSH | tcp::Flags::FIN;
        let same = self.tuple == next.tuple
            && next.unit == 0
            && self.marked == next.marked
            && one.flags().0 & !tcp::Flags::CWR == other.flags().0 & !ends
            && one.acknowledgement() == other.acknowledgement()
            && one.window() == other.window()
            && one.options() == other.options()
            && other.sequence() == one.sequence().wrapping_add(one.payload().len() as u32);
        let sizes = unit > 0
            && one.payload().len() % unit == 0
            && (1..=unit).contains(&other.payload().len())
            && one.payload().len() + other.payload().len() <= 65_000;
        if !same || !sizes {
            return false;
        }
        let flags = other.flags().0;
        self.bytes.extend_from_slice(other.payload());
        self.bytes[13] |= flags & ends;
        self.unit = unit as u16;
        true
    }

    /// Turns one bit over, and says whether the checksum would let it pass.
    fn passes_with_one_bit_turned(&self, random: &mut fastrand::Rng) -> bool {
        let mut bytes = self.bytes.clone();
        // The sum that the sender writes; a pseudo header of zeros is as good as any.
        let filled = Sum::ZERO.bytes(&bytes).checksum();
        bytes[16..18].copy_from_slice(&filled.to_be_bytes());
        let bit = random.usize(..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        tcp::Segment::parse(&bytes).is_ok_and(|view| view.verify(Sum::ZERO, ChecksumTrust::Verify).is_ok())
    }
}

/// For some time packets of more than `mtu` bytes do not pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrow {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    pub(crate) mtu: u16,
    /// Whether the router says so.
    pub(crate) says_so: bool,
}

/// One way through the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) delay: Duration,
    /// Each packet takes up to so much longer, and overtakes others.
    pub(crate) jitter: Duration,
    /// Some take so much longer.
    pub(crate) late: Duration,
    pub(crate) late_share: f64,
    pub(crate) loss: f64,
    /// The chance that a run of losses begins, and that it ends.
    pub(crate) burst: (f64, f64),
    pub(crate) duplicate: f64,
    pub(crate) corrupt: f64,
    /// Bytes per second; 0: no limit.
    pub(crate) rate: u64,
    /// Bytes that wait at most, and above how many a capable packet is marked.
    pub(crate) queue: u64,
    pub(crate) mark_above: u64,
    pub(crate) narrow: Option<Narrow>,
    /// From these times on, the delay is another one.
    pub(crate) changes: Vec<(Instant, Duration)>,
    pub(crate) in_burst: bool,
    pub(crate) free_at: Instant,
}

/// What arrives.
#[derive(Debug)]
pub(crate) enum Arrival {
    Segment(Packet),
    /// A router says that a packet was too big: the connection as its sender sees it, and the first number.
    TooBig(Tuple, u32, u16),
}

/// Both ways, and what is on them.
#[derive(Debug)]
pub(crate) struct Network {
    random: fastrand::Rng,
    /// Towards each host.
    links: [Link; 2],
    /// Whether segments that left as one travel as one.
    pub(crate) keeps_whole: bool,
    on_the_way: BTreeMap<(Instant, u64), (usize, Arrival)>,
    number: u64,
    /// Packets sent, and those that did not arrive.
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

impl Network {
    pub(crate) fn new(random: fastrand::Rng, links: [Link; 2]) -> Self {
        let on_the_way = BTreeMap::new();
        Self { random, links, keeps_whole: false, on_the_way, number: 0, sent: 0, lost: 0 }
    }

    fn put(&mut self, at: Instant, to: usize, arrival: Arrival) {
        self.number += 1;
        self.on_the_way.insert((at, self.number), (to, arrival));
    }

    /// Sends a packet to a host.
    pub(crate) fn send(&mut self, now: Instant, to: usize, packet: Packet) {
        if self.keeps_whole {
            self.carry(now, to, packet);
        } else {
            for packet in packet.cut() {
                self.carry(now, to, packet);
            }
        }
    }

    fn carry(&mut self, now: Instant, to: usize, mut packet: Packet) {
        self.sent += 1;
        let len = packet.len();
        let (link, random) = (&mut self.links[to], &mut self.random);
        if let Some(narrow) = link.narrow
            && (narrow.from..narrow.until).contains(&now)
            && (packet.unit == 0 && len > usize::from(narrow.mtu)
                || usize::from(packet.unit) + 60 + ip_header(&packet.tuple) > usize::from(narrow.mtu))
        {
            self.lost += 1;
            if narrow.says_so {
                let tuple = Tuple::new(packet.tuple.remote(), packet.tuple.local());
                let seq = packet.view().sequence();
                let at = now + link.delay;
                self.put(at, 1 - to, Arrival::TooBig(tuple, seq, narrow.mtu));
            }
            return;
        }
        link.in_burst =
            if link.in_burst { random.f64() >= link.burst.1 } else { random.f64() < link.burst.0 };
        let corrupted = random.f64() < link.corrupt;
        if corrupted {
            assert!(!packet.passes_with_one_bit_turned(random), "the checksum finds every single bit");
        }
        if link.in_burst || corrupted || random.f64() < link.loss {
            self.lost += 1;
            return;
        }
        let mut leaves = now;
        if link.rate > 0 {
            let waits = link.free_at.nanos_since(now).saturating_mul(link.rate) / 1_000_000_000;
            if waits > link.queue {
                self.lost += 1;
                return;
            }
            packet.marked |= packet.capable && waits > link.mark_above;
            let takes = Duration::from_nanos(len as u64 * 1_000_000_000 / link.rate);
            link.free_at = link.free_at.max(now) + takes;
            leaves = link.free_at;
        }
        let delay =
            link.changes.iter().rev().find(|(from, _)| *from <= now).map_or(link.delay, |(_, to)| *to);
        let copies = 1 + u32::from(random.f64() < link.duplicate);
        let times: Vec<Instant> = (0..copies)
            .map(|_| {
                let late = if random.f64() < link.late_share { link.late } else { Duration::ZERO };
                leaves + delay + late.mul_f64(random.f64()) + link.jitter.mul_f64(random.f64())
            })
            .collect();
        for at in times {
            self.put(at, to, Arrival::Segment(packet.clone()));
        }
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Instant {
        self.on_the_way.first_key_value().map_or(Instant::NEVER, |((at, _), _)| *at)
    }

    /// What arrives by now, and where.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(usize, Arrival)> {
        let first = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }
}
