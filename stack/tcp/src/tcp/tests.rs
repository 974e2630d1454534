//! The straight way of `fast.rs` beside the general one.

use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp;

use super::*;
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
            stream.write(&reply);
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
    let options = Options { no_delay: random.bool(), ..Options::default() };
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
