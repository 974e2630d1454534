//! Fuzzes the TCP engine: segments with any fields and options, ICMP errors and calls in any order, on connections in
//! every state. It does not panic, and what has to hold between two calls holds.

use core::net::SocketAddr;

use twinpath_tcp::{
    Config, ConnectionId, End, Host, IcmpError, ListenerId, Options, Outgoing, Segment, Sink, Stream, Tcp,
    Tuple, Unknown,
};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags, Header, Timestamps, UserTimeout, Writer};

use crate::fuzz;

/// Reads an input byte by byte; zeros follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number beside a known one: mostly near, as far ones are refused at once.
    fn beside(&mut self, known: u32) -> u32 {
        match self.byte() % 8 {
            0..=3 => known,
            4 => known.wrapping_add(self.byte().into()),
            5 => known.wrapping_sub(self.byte().into()),
            6 => known.wrapping_add(u32::from(self.byte()) << (self.byte() % 24)),
            _ => self.word(),
        }
    }
}

/// What the engine has sent last: its peer's view.
#[derive(Default)]
struct Seen {
    next: u32,
    acknowledged: u32,
    stamp: u32,
    full: bool,
}

impl Sink for Seen {
    fn send(&mut self, _: &Tuple, segment: &Outgoing<'_>) -> bool {
        if self.full {
            return false;
        }
        let header = &segment.header;
        let fills = u32::from(header.flags.0 & (Flags::SYN | Flags::FIN) != 0);
        assert!(segment.options.len() <= 40 && segment.options.len().is_multiple_of(4));
        let is_urgent = header.flags.0 & Flags::URG != 0;
        assert_eq!(is_urgent, header.urgent > 0, "URG says that the pointer has a meaning");
        assert!(!is_urgent || segment.unit == 0, "the pointer is that of one segment");
        self.next = header.sequence.wrapping_add(segment.payload.len() as u32 + fills);
        if header.flags.0 & Flags::ACK != 0 {
            self.acknowledged = header.acknowledgement;
        }
        if let Some(times) = tcp::Options::parse(segment.options).timestamps {
            self.stamp = times.value;
        }
        true
    }
}

/// A program that does with arriving bytes what the input says.
struct Program(u8);

impl Host for Program {
    fn received(&mut self, _: Instant, _: ConnectionId, stream: &mut Stream<'_>) {
        match self.0 % 4 {
            0 => {}
            1 => stream.consume(stream.received().len()),
            2 => stream.consume(stream.received().len() / 2),
            _ => {
                stream.write(&[7; 300]);
                stream.consume(1);
                stream.end();
            }
        }
    }
}

struct Engine {
    tcp: Tcp,
    now: Instant,
    seen: [Seen; 2],
    tuples: [Tuple; 2],
    ids: Vec<ConnectionId>,
    listener: ListenerId,
}

impl Engine {
    fn new(bits: u8) -> Self {
        let has = |bit: u8| bits >> bit & 1 != 0;
        let config = Config {
            mtu: if has(0) { 1500 } else { 300 },
            sack: has(1),
            timestamps: has(2),
            window_scale: has(3),
            receive_initial: if has(4) { 65_536 } else { 700 },
            receive_max: if has(4) { 1 << 20 } else { 2000 },
            memory: if has(5) { 1 << 20 } else { 16 << 10 },
            super_segment: if has(6) { 65_160 } else { 0 },
            ecn: if has(7) { twinpath_tcp::Ecn::Request } else { twinpath_tcp::Ecn::Accept },
            connections: 4,
            half_open: 2,
            time_wait: 2,
            ..Config::default()
        };
        let mut tcp = Tcp::new(config, Unknown::Reset, [1, 2]);
        let local = SocketAddr::from(([192, 0, 2, 1], 80));
        let tuples = [4000, 4001].map(|port| Tuple::new(local, SocketAddr::from(([192, 0, 2, 2], port))));
        let listener = tcp.listen(local, 2, Options::default());
        let now = Instant::from_nanos(1 << 40);
        Self { tcp, now, seen: Default::default(), tuples, ids: Vec::new(), listener }
    }

    /// A segment on one of the connections.
    fn segment(&mut self, input: &mut Input<'_>) {
        let place = usize::from(input.byte() & 1);
        let kinds = [
            Flags::ACK,
            Flags::ACK | Flags::PSH,
            Flags::SYN,
            Flags::SYN | Flags::ACK,
            Flags::FIN | Flags::ACK,
            Flags::RST,
            Flags::ACK | Flags::ECE | Flags::CWR,
        ];
        let kind = input.byte();
        let flags = kinds.get(usize::from(kind % 8)).copied().unwrap_or(kind);
        let seen = &self.seen[place];
        let sequence = input.beside(seen.acknowledged);
        let acknowledgement = input.beside(seen.next);
        let mut options = Writer::default();
        let wanted = input.byte();
        if wanted & 1 != 0 {
            let value = (self.now.as_nanos() / 1_000_000) as u32;
            options
                .timestamps(Timestamps { value: input.beside(value), echo: input.beside(seen.stamp) }, true);
        }
        if flags & Flags::SYN != 0 {
            options.mss(input.beside(1460) as u16);
            options.scale(input.byte() % 16);
            options.sack_permitted(true);
        } else if wanted & 2 != 0 {
            let blocks: Vec<(u32, u32)> = (0..wanted >> 2 & 3)
                .map(|_| {
                    let start = input.beside(seen.next.wrapping_sub(1000));
                    (start, input.beside(start.wrapping_add(100)))
                })
                .collect();
            options.sack(&blocks);
        }
        if wanted & 8 != 0
            && let Some(timeout) = UserTimeout::from_seconds(u64::from(input.byte()) << (wanted & 7))
        {
            options.user_timeout(timeout);
        }
        let padded = options.len().next_multiple_of(4);
        let mut bytes = [0; 40];
        bytes[..options.len()].copy_from_slice(options.bytes());
        let header = Header {
            source_port: self.tuples[place].remote().port(),
            destination_port: 80,
            sequence,
            acknowledgement,
            flags: Flags(flags),
            window: if wanted & 0x40 != 0 { 0 } else { u16::from(input.byte()) << (wanted >> 5) },
            urgent: if flags & Flags::URG != 0 { input.beside(1) as u16 } else { 0 },
        };
        let len = if wanted & 0x10 != 0 { usize::from(input.byte()) * 8 } else { 0 };
        let mut packet = vec![0; tcp::HEADER_LEN + padded + len];
        header.emit(&bytes[..padded], &mut packet).expect("room");
        let view = tcp::Segment::parse(&packet).expect("a whole segment");
        let unit = if wanted & 0x20 != 0 { u16::from(input.byte()) } else { 0 };
        let segment = Segment::new(&view, wanted & 0x80 != 0, unit);
        let mut program = Program(input.byte());
        self.tcp.segment(self.now, &self.tuples[place], &segment, &mut program, &mut self.seen[place]);
    }

    /// Something that a program does.
    fn call(&mut self, input: &mut Input<'_>) {
        let (kind, amount) = (input.byte(), usize::from(input.byte()));
        let Some(id) = self.ids.get(amount % self.ids.len().max(1)).copied() else { return };
        match kind % 8 {
            0 => self.tcp.close(self.now, id),
            1 => self.tcp.abort(self.now, id),
            2 => self.tcp.finish_reading(id),
            3 => {
                let options = Options {
                    no_delay: amount & 1 != 0,
                    cork: amount & 2 != 0,
                    quick_ack: amount & 4 != 0,
                    keepalive: if amount & 8 != 0 { Duration::from_secs(1) } else { Duration::MAX },
                    user_timeout: if amount & 16 != 0 { Duration::from_secs(5) } else { Duration::MAX },
                    advertised_timeout: Duration::from_secs((amount & 24) as u64),
                    receive_buffer: (amount & 32 != 0).then_some(amount as u32),
                    mss: if amount & 64 != 0 { amount as u16 } else { 0 },
                    ..Options::default()
                };
                self.tcp.set_options(self.now, id, options);
            }
            _ => {
                let Some(mut stream) = self.tcp.stream(self.now, id) else { return };
                // What lies ahead is at most a pointer's reach behind a window.
                assert!(stream.urgent_bytes() <= (1 << 20) + 65_535);
                match kind % 4 {
                    0 => stream.consume(amount * 10),
                    1 => stream.end(),
                    2 => {
                        stream.reserve_exactly(amount * 30);
                        stream.commit_bytes(0);
                    }
                    _ => {
                        let end = if amount & 32 != 0 { End::Urgent } else { End::Piece };
                        stream.write_as(&vec![9; amount * 30], end);
                    }
                }
            }
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        self.seen.iter_mut().for_each(|seen| seen.full = kind >> 5 == 7);
        match kind % 8 {
            0..=2 => self.segment(input),
            3 => self.call(input),
            4 => {
                self.now += Duration::from_nanos(1 << (input.byte() % 40));
                self.tcp.advance(self.now, 3, &mut self.seen[0]);
            }
            5 => {
                let errors = [IcmpError::TooBig(input.word() as u16), IcmpError::Hard, IcmpError::Soft];
                let place = usize::from(input.byte() & 1);
                let seq = input.beside(self.seen[place].next.wrapping_sub(1));
                self.tcp.icmp(self.now, &self.tuples[place], seq, errors[usize::from(input.byte()) % 3]);
            }
            6 => {
                self.ids.extend(self.tcp.accept(self.listener));
                while self.tcp.next_event().is_some() {}
            }
            _ => {
                let tuple = self.tuples[usize::from(input.byte() & 1)];
                let opened = self.tcp.connect(self.now, tuple.local(), tuple.remote(), Options::default());
                self.ids.extend(opened.ok());
            }
        }
        self.tcp.check();
    }
}

fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut engine = Engine::new(input.byte());
    while !input.0.is_empty() {
        engine.step(&mut input);
    }
    // All programs give up: nothing is left, once all times have passed.
    engine.seen.iter_mut().for_each(|seen| seen.full = false);
    engine.ids.extend(core::iter::from_fn(|| engine.tcp.accept(engine.listener)));
    for id in std::mem::take(&mut engine.ids) {
        engine.tcp.abort(engine.now, id);
    }
    engine.tcp.stop_listening(engine.now, engine.listener);
    for _ in 0..50 {
        engine.now += Duration::from_secs(10);
        engine.tcp.advance(engine.now, 100, &mut engine.seen[0]);
    }
    assert_eq!((engine.tcp.count(), engine.tcp.memory()), ((0, 0, 0), 0));
    assert_eq!(engine.tcp.next_deadline(), Instant::NEVER);
}

#[test]
fn segments_and_calls() {
    fuzz!("tcp__segments_and_calls", |input: &[u8]| check(input));
}
