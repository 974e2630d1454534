//! An engine against smoltcp, which shares no line with it, in both roles.

use std::net::SocketAddr;

use smoltcp::socket::tcp as other;
use twinpath_tcp::{Later, Options, Segment, Tuple};
use twinpath_test_sim::smoltcp_end::{SmoltcpEnd, ip_header};
use twinpath_time::{Duration, Instant};

use crate::host::{Host, Ledger};
use crate::network::{Arrival, Network, Packet};
use crate::plan;
use crate::program::{Ends, Outcome, Side, byte};

const OURS: [u8; 4] = [192, 0, 2, 1];
const THEIRS: [u8; 4] = [192, 0, 2, 2];
const STEPS_MAX: u64 = 200_000;

/// The other stack with its program.
struct Other {
    end: SmoltcpEnd,
    bytes: u64,
    sent: u64,
    received: u64,
    salts: [u64; 2],
    ended: bool,
}

impl Other {
    fn new(random: &mut fastrand::Rng, bytes: u64, salts: [u64; 2]) -> Self {
        let seed = random.u64(..);
        let mut buffer = || other::SocketBuffer::new(vec![0; random.usize(1000..200_000)]);
        let mut socket = other::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(random.bool());
        if random.bool() {
            socket.set_tsval_generator(Some(|| 1));
        }
        let end = SmoltcpEnd::new(Instant::ZERO, THEIRS, seed, socket);
        Self { end, bytes, sent: 0, received: 0, salts, ended: false }
    }

    fn socket(&mut self) -> &mut other::Socket<'static> {
        self.end.socket()
    }

    fn work(&mut self) {
        let (salts, bytes) = (self.salts, self.bytes);
        let (mut sent, mut received) = (self.sent, self.received);
        let socket = self.socket();
        while socket.can_recv() {
            let read = socket.recv(|found| {
                for (index, found) in found.iter().enumerate() {
                    let place = received + index as u64;
                    assert_eq!(*found, byte(salts[0], place), "byte {place} of the engine");
                }
                (found.len(), found.len() as u64)
            });
            received += read.expect("it can be read");
        }
        while sent < bytes && socket.can_send() {
            let chunk: Vec<u8> = (sent..bytes.min(sent + 5000)).map(|place| byte(salts[1], place)).collect();
            sent += socket.send_slice(&chunk).expect("it can be written") as u64;
        }
        if sent == bytes && !self.ended && self.socket().may_send() {
            self.socket().close();
            self.ended = true;
        }
        (self.sent, self.received) = (sent, received);
    }
}

/// A simulation against the other stack.
struct Against {
    seed: u64,
    now: Instant,
    random: fastrand::Rng,
    host: Host,
    other: Other,
    network: Network,
    ledger: Ledger,
    side: Side,
    /// The connection as each end sees it.
    tuples: [Tuple; 2],
    listener: Option<twinpath_tcp::ListenerId>,
}

impl Against {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut host, network, mut program) = plan::against(&mut random, seed);
        let salts = [random.u64(..), random.u64(..)];
        let bytes = if random.u8(..5) == 0 { 0 } else { random.u64(..100_000) };
        let mut other = Other::new(&mut random, bytes, salts);
        let connects = random.bool();
        let ports = if connects { [4000, 80] } else { [80, 4000] };
        let ends = [SocketAddr::from((OURS, ports[0])), SocketAddr::from((THEIRS, ports[1]))];
        let now = Instant::from_nanos(1_000_000_000);
        // A FIN of the peer makes the other stack forget what is in flight: so ours comes last.
        program.ends = Ends::AfterPeer;
        let mut side = Side::new(program, salts[0]);
        let mut listener = None;
        if connects {
            other.socket().listen(80).expect("a port");
            let id = host.tcp.connect(now, ends[0], ends[1], side.program.options).expect("connects");
            side.id = Some(id);
        } else {
            listener = Some(host.tcp.listen(ends[0], 4, Options::default()));
            other.end.connect((OURS, 80), 4000);
        }
        let tuples = [Tuple::new(ends[0], ends[1]), Tuple::new(ends[1], ends[0])];
        let ledger = Ledger::new();
        Self { seed, now, random, host, other, network, ledger, side, tuples, listener }
    }

    fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            self.turn_ours();
            self.turn_theirs();
            let theirs = self.other.end.next(self.now);
            let reads = if self.side.outcome.is_none() { self.side.reads_at } else { Instant::NEVER };
            let next = self.network.next().min(self.host.next()).min(theirs).min(reads);
            if next == Instant::NEVER || self.is_over() {
                break;
            }
            // The other stack counts in microseconds.
            self.now = self.now.max(next).max(self.now + Duration::from_nanos(1));
            self.deliver();
        }
        self.check_end();
    }

    fn is_over(&mut self) -> bool {
        self.other.socket().state() == other::State::Closed && self.host.tcp.count() == (0, 0, 0)
    }

    fn turn_ours(&mut self) {
        if let Some(listener) = self.listener
            && self.side.id.is_none()
            && let Some(id) = self.host.tcp.accept(listener)
        {
            self.side.id = Some(id);
            self.work();
        }
        while self.host.tcp.next_event().is_some() {
            self.work();
        }
        if self.side.reads_at <= self.now {
            self.work();
        }
        let Self { host, random, ledger, now, .. } = self;
        if host.again_at <= *now {
            host.again_at = Instant::NEVER;
        }
        host.call(*now, random, ledger, |tcp, clock, out| tcp.advance(clock, 100, out));
        self.flush();
    }

    fn work(&mut self) {
        let (clock, salt) = (self.host.clock(self.now), self.other.salts[1]);
        self.side.work(clock, self.now, &mut self.host.tcp, salt, &mut self.random);
    }

    fn flush(&mut self) {
        for packet in std::mem::take(&mut self.host.packets) {
            self.network.send(self.now, 1, packet);
        }
    }

    fn turn_theirs(&mut self) {
        let Self { other, ledger, network, tuples, now, .. } = self;
        other.end.poll(*now);
        other.work();
        other.end.poll(*now);
        other.end.sent(|segment| {
            let bytes = segment.to_vec();
            let packet = Packet { tuple: tuples[0], bytes, unit: 0, capable: false, marked: false };
            ledger.hear(&tuples[1], &packet.view());
            network.send(*now, 0, packet);
        });
    }

    fn deliver(&mut self) {
        while let Some((to, arrival)) = self.network.take(self.now) {
            let Arrival::Segment(packet) = arrival else { continue };
            if to == 0 {
                let view = packet.view();
                let segment = Segment::new(&view, packet.marked, packet.unit);
                let Self { host, random, ledger, now, tuples, .. } = self;
                host.call(*now, random, ledger, |tcp, clock, out| {
                    tcp.segment(clock, &tuples[0], &segment, &mut Later, out);
                });
                self.flush();
            } else {
                let header = ip_header(packet.bytes.len(), OURS, THEIRS);
                self.other.end.arrives(&[&header, &packet.bytes]);
            }
        }
    }

    fn describe(&mut self) -> String {
        let state = self.other.socket().state();
        let queue = self.other.socket().send_queue();
        format!(
            "{:?}\nseed {} at {:?}: {:?}: sent {} of {}, received {}; they: {state}: sent {} of {}, {queue} queued, received {}: {:?}",
            self.host.tcp.counters(),
            self.seed,
            self.now,
            self.side.outcome,
            self.side.sent,
            self.side.program.bytes,
            self.side.received,
            self.other.sent,
            self.other.bytes,
            self.other.received,
            self.side.id.map(|id| self.host.tcp.debug(id))
        )
    }

    fn check_end(&mut self) {
        let text = self.describe();
        assert_eq!(self.side.outcome, Some(Outcome::Closed), "{text}");
        assert_eq!(
            (self.side.received, self.other.received),
            (self.other.bytes, self.side.program.bytes),
            "{text}"
        );
        assert_eq!(self.host.tcp.count(), (0, 0, 0), "{text}");
        assert_eq!(self.host.tcp.memory(), 0, "{text}");
    }
}

#[test]
fn an_engine_and_smoltcp_bring_each_other_every_byte() {
    let mut failed = Vec::new();
    for seed in crate::seeds(300) {
        let mut against = Against::new(seed);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| against.run())).is_err() {
            eprintln!("seed {seed} failed: {}", against.describe());
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{} seeds fail, such as {:?}", failed.len(), &failed[..failed.len().min(20)]);
}
