//! Two engines, a network between them that loses, delays, repeats and reorders, and bytes that must arrive.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use twinpath_tcp::{
    Config, ConnectionId, Ended, Events, Later, ListenerId, Options, Outgoing, Segment, Sink, Tcp, Tuple,
    Unknown,
};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp;

/// A segment on its way.
#[derive(Clone)]
struct Packet {
    bytes: Vec<u8>,
    unit: u16,
}

#[derive(Default)]
struct Wire {
    out: Vec<Packet>,
}

impl Sink for Wire {
    fn send(&mut self, _tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let mut bytes = vec![0; tcp::HEADER_LEN + segment.options.len() + segment.payload.len()];
        let len = segment.header.emit(segment.options, &mut bytes).expect("a header");
        bytes[len..].copy_from_slice(segment.payload);
        self.out.push(Packet { bytes, unit: segment.unit });
        true
    }
}

struct Network {
    random: fastrand::Rng,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    delay: Duration,
    /// Cut super-segments into frames.
    cut: bool,
    inflight: BTreeMap<(Instant, u64), (usize, Packet)>,
    sent: u64,
    packets: u64,
}

impl Network {
    fn new(random: fastrand::Rng, [loss, duplicate, reorder]: [f64; 3], delay: Duration, cut: bool) -> Self {
        let inflight = BTreeMap::new();
        Self { random, loss, duplicate, reorder, delay, cut, inflight, sent: 0, packets: 0 }
    }

    /// Packets that are to arrive by `now`.
    fn arrived(&mut self, now: Instant) -> Option<(usize, Packet)> {
        let first = self.inflight.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn send(&mut self, now: Instant, to: usize, packet: Packet) {
        let packets = if self.cut { cut(&packet) } else { vec![packet] };
        for packet in packets {
            self.packets += 1;
            if self.random.f64() < self.loss {
                continue;
            }
            let copies = 1 + usize::from(self.random.f64() < self.duplicate);
            for _ in 0..copies {
                let mut delay = self.delay;
                if self.random.f64() < self.reorder {
                    delay += self.delay.mul_f64(self.random.f64() * 2.0);
                }
                self.sent += 1;
                self.inflight.insert((now + delay, self.sent), (to, packet.clone()));
            }
        }
    }
}

/// What segmentation below the stack makes of a super-segment.
fn cut(packet: &Packet) -> Vec<Packet> {
    let view = tcp::Segment::parse(&packet.bytes).expect("a segment");
    let (unit, payload) = (usize::from(packet.unit), view.payload());
    if unit == 0 || payload.len() <= unit {
        return vec![Packet { unit: 0, ..packet.clone() }];
    }
    let header_len = packet.bytes.len() - payload.len();
    let count = payload.len().div_ceil(unit);
    payload
        .chunks(unit)
        .enumerate()
        .map(|(index, chunk)| {
            let mut bytes = packet.bytes[..header_len].to_vec();
            let seq = view.sequence().wrapping_add((index * unit) as u32);
            bytes[4..8].copy_from_slice(&seq.to_be_bytes());
            if index + 1 < count {
                bytes[13] &= !(tcp::Flags::FIN | tcp::Flags::PSH);
            }
            bytes.extend(chunk);
            Packet { bytes, unit: 0 }
        })
        .collect()
}

struct End {
    tcp: Tcp,
    id: Option<ConnectionId>,
    to_send: u64,
    sent: u64,
    received: u64,
    expected: u64,
    finished: bool,
    ended: bool,
}

fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

impl End {
    fn new(config: Config, secret: u64, to_send: u64, expected: u64) -> Self {
        Self {
            tcp: Tcp::new(config, Unknown::Reset, [secret, !secret]),
            id: None,
            to_send,
            sent: 0,
            received: 0,
            expected,
            finished: false,
            ended: false,
        }
    }

    fn work(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let Some(id) = self.id else { return };
        let Some(mut stream) = self.tcp.stream(now, id) else { return };
        let received = stream.received().to_vec();
        for byte_in in &received {
            assert_eq!(*byte_in, byte(self.received), "byte {}", self.received);
            self.received += 1;
        }
        stream.consume(received.len());
        while self.sent < self.to_send && stream.room() > 0 {
            let count = (self.to_send - self.sent).min(random.u64(1..9000));
            let bytes: Vec<u8> = (self.sent..self.sent + count).map(byte).collect();
            let taken = stream.write(&bytes);
            self.sent += taken as u64;
            if taken < bytes.len() {
                break;
            }
        }
        if self.sent == self.to_send && !self.finished {
            self.finished = true;
            stream.end();
        }
        if stream.is_at_end() && self.finished && !self.ended {
            assert_eq!(self.received, self.expected);
            self.ended = true;
            self.tcp.close(now, id);
        }
    }
}

fn run(seed: u64, config: &Config, loss: f64, duplicate: f64, reorder: f64, cut: bool) -> (Duration, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let delay = Duration::from_micros(random.u64(50..50_000));
    let (up, down) = (random.u64(0..300_000), random.u64(0..300_000));
    let mut network = Network::new(random.fork(), [loss, duplicate, reorder], delay, cut);
    let server: SocketAddr = "192.0.2.1:80".parse().expect("an address");
    let client: SocketAddr = "192.0.2.2:4000".parse().expect("an address");
    let mut ends = [End::new(config.clone(), seed, up, down), End::new(config.clone(), seed + 1, down, up)];
    let listener: ListenerId = ends[1].tcp.listen(server, 16, Options::default());
    let mut now = Instant::from_nanos(1_000_000_000);
    let start = now;
    ends[0].id = Some(ends[0].tcp.connect(now, client, server, Options::default()).expect("connects"));
    let tuples = [Tuple::new(client, server), Tuple::new(server, client)];
    let mut rounds = 0_u64;
    while !(ends[0].ended && ends[1].ended) {
        rounds += 1;
        assert!(
            rounds < 300_000,
            "seed {seed}: no end; {now:?} {} {} {}",
            ends[0].tcp.debug(ends[0].id.expect("id")),
            ends[1].tcp.debug(ends[1].id.expect("id")),
            ends[1].ended
        );
        for (index, end) in ends.iter_mut().enumerate() {
            let mut wire = Wire::default();
            if index == 1 && end.id.is_none() {
                end.id = end.tcp.accept(listener);
            }
            while let Some((id, events)) = end.tcp.next_event() {
                let why = end.tcp.info(now, id).and_then(|info| info.ended);
                assert!(
                    !events.has(Events::ENDED) || end.ended || why == Some(Ended::Finished),
                    "seed {seed}: ended at {} of {}: {why:?}",
                    end.received,
                    end.expected
                );
            }
            end.work(now, &mut random);
            end.tcp.advance(now, 1000, &mut wire);
            for packet in wire.out {
                network.send(now, 1 - index, packet);
            }
        }
        let next = network.inflight.keys().next().map_or(Instant::NEVER, |(at, _)| *at);
        let next = ends.iter().map(|end| end.tcp.next_deadline()).fold(next, Instant::min);
        assert!(
            next != Instant::NEVER,
            "seed {seed}: silence; {} {} of {} {}",
            ends[0].received,
            ends[1].received,
            down,
            up
        );
        now = now.max(next);
        while let Some((to, packet)) = network.arrived(now) {
            let view = tcp::Segment::parse(&packet.bytes).expect("a segment");
            let mut wire = Wire::default();
            let segment = Segment::new(&view, false, packet.unit);
            ends[to].tcp.segment(now, &tuples[to], &segment, &mut Later, &mut wire);
            for packet in wire.out {
                network.send(now, 1 - to, packet);
            }
        }
    }
    (now.since(start), network.packets)
}

#[test]
fn bytes_arrive_over_a_clean_network() {
    for seed in 0..200 {
        run(seed, &Config::default(), 0.0, 0.0, 0.0, seed % 2 == 0);
    }
}

#[test]
fn bytes_arrive_over_a_bad_network() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let config = Config {
            sack: random.bool(),
            timestamps: random.bool(),
            window_scale: random.bool(),
            rack: random.u8(..4) > 0,
            receive_max: 1 << random.u32(12..22),
            receive_initial: 1 << random.u32(12..17),
            send_initial: 1 << random.u32(12..18),
            send_max: 1 << random.u32(12..22),
            super_segment: if random.bool() { 65_160 } else { 0 },
            ..Config::default()
        };
        let (loss, duplicate, reorder) = (random.f64() * 0.1, random.f64() * 0.1, random.f64() * 0.3);
        run(seed, &config, loss, duplicate, reorder, random.bool());
    }
}
