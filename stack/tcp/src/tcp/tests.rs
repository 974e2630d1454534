//! The straight way of `fast.rs` beside the general one.

use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp;

use super::*;
use crate::marks::End;
use crate::segment::Outgoing;

/// What a connection has sent: every byte of it.
#[derive(Default)]
struct Log(Vec<Vec<u8>>);

impl Sink for Log {
    fn send(&mut self, _: &Tuple, segment: &Outgoing<'_>) -> bool {
        let mut bytes = vec![0; tcp::HEADER_LEN + segment.options.len() + segment.payload.len()];
        let len = segment.header.emit(segment.options, &mut bytes).expect("a header");
        bytes[len..].copy_from_slice(segment.payload);
        self.0.push(bytes);
        true
    }
}

/// Answers some requests at once, and reads others later.
struct Program(fastrand::Rng);

impl Host for Program {
    fn received(&mut self, _: Instant, _: ConnectionId, stream: &mut Stream<'_>) {
        let used = self.0.usize(..=stream.received().len());
        if self.0.u8(..4) > 0 {
            let reply = vec![7; self.0.usize(..2000)];
            stream.write_as(&reply, if self.0.u8(..8) == 0 { End::Urgent } else { End::Piece });
        }
        stream.consume(if self.0.bool() { stream.received().len() } else { used });
    }
}

/// Two engines exchange what two programs write; returns all segments of both.
fn run(seed: u64, straight: bool) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let config = Config {
        timestamps: random.bool(),
        sack: random.bool(),
        ecn: if random.bool() { crate::Ecn::Request } else { crate::Ecn::Accept },
        ..Config::default()
    };
    let ends: [SocketAddr; 2] = [([192, 0, 2, 1], 4000).into(), ([192, 0, 2, 2], 80).into()];
    let tuples = [Tuple::new(ends[0], ends[1]), Tuple::new(ends[1], ends[0])];
    let mut engines = [1, 2].map(|secret| {
        let mut engine = Tcp::new(config.clone(), Unknown::Reset, [secret, seed]);
        engine.straight = straight;
        engine
    });
    let mut programs = [Program(random.fork()), Program(random.fork())];
    let mut now = Instant::from_nanos(1 << 40);
    let options = Options {
        no_delay: random.bool(),
        advertised_timeout: Duration::from_secs(if random.bool() { 300 } else { 0 }),
        ..Options::default()
    };
    engines[1].listen(ends[1], 4, options);
    let id = engines[0].connect(now, ends[0], ends[1], options).expect("connects");
    let mut all = Vec::new();
    let mut queue = VecDeque::new();
    for _ in 0..300 {
        now += Duration::from_micros(random.u64(1..60_000));
        if random.u8(..4) == 0
            && let Some(mut stream) = engines[0].stream(now, id)
        {
            stream.write(&vec![3; random.usize(1..3000)]);
            let len = stream.received().len();
            stream.consume(len);
        }
        for (index, engine) in engines.iter_mut().enumerate() {
            let mut log = Log::default();
            engine.advance(now, 100, &mut log);
            queue.extend(log.0.into_iter().map(|bytes| (1 - index, bytes)));
        }
        while let Some((to, bytes)) = queue.pop_front() {
            all.push(bytes.clone());
            if random.u8(..60) == 0 {
                continue;
            }
            let view = tcp::Segment::parse(&bytes).expect("a segment");
            let mut log = Log::default();
            let segment = Segment::new(&view, false, 0);
            engines[to].segment(now, &tuples[to], &segment, &mut programs[to], &mut log);
            queue.extend(log.0.into_iter().map(|bytes| (1 - to, bytes)));
        }
    }
    all
}

#[test]
fn the_straight_way_sends_what_the_general_one_sends() {
    for seed in 0..150 {
        let (straight, general) = (run(seed, true), run(seed, false));
        let differs = straight.iter().zip(&general).position(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}: {:?}", differs.map(|at| (&straight[at], &general[at])));
        assert_eq!(straight.len(), general.len(), "seed {seed}");
        assert!(straight.len() > 50);
    }
}

/// Follows which tuples an engine has, by what it tells.
#[derive(Default)]
struct Follower(std::collections::HashSet<u16>);

impl Follower {
    fn look(&mut self, tcp: &mut Tcp, tuples: &[Tuple], seed: u64) {
        while let Some(tuple) = tcp.next_gone() {
            assert!(!tcp.has(&tuple), "seed {seed}");
            assert!(self.0.remove(&tuple.remote_port()), "seed {seed}: it was told twice, or never there");
        }
        for tuple in tuples {
            assert!(!self.0.contains(&tuple.remote_port()) || tcp.has(tuple), "seed {seed}: it was not told");
            if tcp.has(tuple) {
                self.0.insert(tuple.remote_port());
            }
        }
    }
}

#[test]
fn every_tuple_that_is_gone_is_told_once() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let config = Config { time_wait: 3, time_wait_time: Duration::from_secs(2), ..Config::default() };
        let server: SocketAddr = ([192, 0, 2, 2], 80).into();
        let client = |port: u16| SocketAddr::from(([192, 0, 2, 1], 4000 + port));
        let tuples: Vec<_> = (0..8).map(|port| Tuple::new(server, client(port))).collect();
        let [mut peers, told] =
            [1, 2].map(|secret| Tcp::new(config.clone(), Unknown::LeaveToKernel, [secret, seed]));
        let mut told = told.telling_what_is_gone();
        let listener = told.listen(server, 3, Options::default());
        let (mut now, mut follower) = (Instant::from_nanos(1 << 40), Follower::default());
        let (mut open, mut accepted) = (Vec::new(), Vec::new());
        for round in 0..400 {
            now += Duration::from_micros(random.u64(1..400_000));
            if round < 300
                && let Ok(id) = peers.connect(now, client(random.u16(..8)), server, Options::default())
            {
                open.push(id);
            }
            accepted.extend(told.accept(listener));
            for (engine, ids) in [(&mut peers, &mut open), (&mut told, &mut accepted)] {
                if !ids.is_empty() && (random.bool() || round >= 300) {
                    let id = ids.swap_remove(random.usize(..ids.len()));
                    if random.bool() { engine.close(now, id) } else { engine.abort(now, id) }
                }
            }
            follower.look(&mut told, &tuples, seed);
            let (mut to_us, mut to_peers) = (Log::default(), Log::default());
            peers.advance(now, 100, &mut to_us);
            told.advance(now, 100, &mut to_peers);
            follower.look(&mut told, &tuples, seed);
            while !to_us.0.is_empty() || !to_peers.0.is_empty() {
                for bytes in std::mem::take(&mut to_us.0) {
                    let view = tcp::Segment::parse(&bytes).expect("a segment");
                    let tuple = tuples[usize::from(view.source_port() - 4000)];
                    if random.u8(..10) > 0 {
                        let segment = Segment::new(&view, false, 0);
                        let verdict = told.segment(now, &tuple, &segment, &mut Later, &mut to_peers);
                        if verdict == Verdict::Declined {
                            follower.0.remove(&tuple.remote_port());
                        }
                    }
                    follower.look(&mut told, &tuples, seed);
                }
                for bytes in std::mem::take(&mut to_peers.0) {
                    let view = tcp::Segment::parse(&bytes).expect("a segment");
                    let tuple = Tuple::new(client(view.destination_port() - 4000), server);
                    if random.u8(..10) > 0 {
                        peers.segment(now, &tuple, &Segment::new(&view, false, 0), &mut Later, &mut to_us);
                    }
                }
            }
        }
        told.stop_listening(now, listener);
        for _ in 0..200 {
            now += Duration::from_secs(10);
            told.advance(now, 1000, &mut Log::default());
            follower.look(&mut told, &tuples, seed);
        }
        assert!(follower.0.is_empty(), "seed {seed}: {:?}", follower.0);
    }
}
