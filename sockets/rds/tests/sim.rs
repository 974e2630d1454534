//! Two hosts, connections between them that are cut at any byte, and messages that must arrive once and in order.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use twinpath_rds::{
    Config, ConnId, Delivered, Delivery, Host, Outgoing, Pair, Piece, Position, Rds, Reason, SendError,
    Stamp, Token,
};
use twinpath_rds_wire::{CongestionMap, Header};
use twinpath_time::{Duration, Instant};

/// What an engine has asked for.
enum Asked {
    Connect(ConnId, u16),
    Finish(ConnId),
    Reset(ConnId),
}

/// What outlives an engine: messages and positions.
#[derive(Default)]
struct Kept {
    messages: BTreeMap<Token, (Outgoing, Vec<u8>, Option<Stamp>)>,
    positions: BTreeMap<(Pair, u16), Position>,
    next: u64,
    /// What programs have received: from port, to port, number.
    received: Vec<(u16, u16, u64)>,
    congested: bool,
}

#[derive(Default)]
struct Programs {
    kept: Kept,
    asked: VecDeque<Asked>,
    reads: Vec<ConnId>,
    paused: Vec<ConnId>,
}

impl Host for Programs {
    fn connect(&mut self, conn: ConnId, _pair: Pair, path: u16) {
        self.asked.push_back(Asked::Connect(conn, path));
    }

    fn read(&mut self, conn: ConnId) {
        self.reads.push(conn);
    }

    fn pause(&mut self, conn: ConnId) {
        self.paused.push(conn);
    }

    fn write(&mut self, _conn: ConnId) {}

    fn finish(&mut self, conn: ConnId) {
        self.asked.push_back(Asked::Finish(conn));
    }

    fn reset(&mut self, conn: ConnId) {
        self.asked.push_back(Asked::Reset(conn));
    }

    fn placed(&mut self, token: Token, stamp: Stamp) {
        self.kept.messages.get_mut(&token).expect("sent").2 = Some(stamp);
    }

    fn moved(&mut self, pair: Pair, path: u16, position: Position) {
        self.kept.positions.insert((pair, path), position);
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let number = delivery.payload.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.kept.received.push((delivery.source, delivery.port, number));
        Delivered::Yes
    }

    fn released(&mut self, token: Token) {
        self.kept.messages.remove(&token).expect("released once");
    }

    fn congestion(&mut self, _pair: Pair, ports: &CongestionMap) {
        self.kept.congested = ports.has(7);
    }
}

struct Side {
    engine: Rds,
    programs: Programs,
    pair: Pair,
    config: Config,
    sent: BTreeMap<u16, u64>,
}

impl Side {
    fn new(pair: Pair, config: Config) -> Self {
        Self { engine: Rds::new(config), programs: Programs::default(), pair, config, sent: BTreeMap::new() }
    }

    /// The process was killed, and the next one begins.
    fn kill(&mut self, now: Instant) {
        let mut kept = std::mem::take(&mut self.programs.kept);
        self.engine = Rds::new(self.config);
        self.programs = Programs::default();
        for ((pair, path), position) in &kept.positions {
            self.engine.recover(*pair, *path, position);
        }
        kept.messages.retain(|_, (_, _, stamp)| stamp.is_some());
        let placed: Vec<_> = kept.messages.values().map(|(outgoing, _, stamp)| (*outgoing, *stamp)).collect();
        self.programs.kept = kept;
        for (outgoing, stamp) in placed {
            self.engine.restore(now, &outgoing, stamp.expect("retained"), &mut self.programs);
        }
    }

    fn send(&mut self, now: Instant, source: u16, destination: u16, len: usize) -> Result<(), SendError> {
        let number = self.sent.entry(source).or_default();
        let mut payload = vec![0; len.max(8)];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        let token = Token(self.programs.kept.next);
        let outgoing = Outgoing { pair: self.pair, source, destination, token, len: payload.len() as u32 };
        self.programs.kept.messages.insert(token, (outgoing, payload, None));
        let sent = self.engine.send(now, &outgoing, &mut self.programs);
        if sent.is_ok() {
            *number += 1;
            self.programs.kept.next += 1;
        } else {
            self.programs.kept.messages.remove(&token);
        }
        sent
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// Written, and not arrived.
    flying: VecDeque<u8>,
    /// Arrived, which TCP acknowledges, and not read.
    arrived: Vec<u8>,
    /// Bytes that have arrived ever.
    total: u64,
    has_ended: bool,
}

impl Pipe {
    /// It ends: some of what is on its way arrives, the rest is lost.
    fn end(&mut self, random: &mut fastrand::Rng, is_read: bool) {
        let arrives = if is_read { random.usize(0..=self.flying.len()) } else { 0 };
        self.arrived.extend(self.flying.drain(..arrives));
        self.total += arrives as u64;
        self.flying.clear();
        self.has_ended = true;
    }
}

struct Conn {
    /// The names of both sides; `None`: it has none there, or none any more.
    names: [Option<ConnId>; 2],
    /// By sender.
    pipes: [Pipe; 2],
    is_open: [bool; 2],
    may_read: [bool; 2],
    port: u16,
}

impl Conn {
    fn end(&mut self, random: &mut fastrand::Rng) {
        for side in 0..2 {
            self.pipes[side].end(random, self.is_open[1 - side]);
        }
    }
}

struct World {
    random: fastrand::Rng,
    now: Instant,
    sides: [Side; 2],
    conns: Vec<Conn>,
    /// Connections by their connecting side, until they are accepted.
    calls: Vec<(usize, ConnId, u16)>,
    cuts: u64,
}

impl World {
    fn new(seed: u64, config: Config) -> Self {
        let small: IpAddr = [10, 0, 0, 1].into();
        let large: IpAddr = [10, 0, 0, 2].into();
        let side = |local, remote, generation| {
            let config = Config { generation, ..config };
            Side::new(Pair { local, remote }, config)
        };
        Self {
            random: fastrand::Rng::with_seed(seed),
            now: Instant::ZERO,
            sides: [side(small, large, 11), side(large, small, 22)],
            conns: Vec::new(),
            calls: Vec::new(),
            cuts: 0,
        }
    }

    fn obey(&mut self) {
        for side in 0..2 {
            while let Some(asked) = self.sides[side].programs.asked.pop_front() {
                match asked {
                    Asked::Connect(conn, path) => self.calls.push((side, conn, path)),
                    Asked::Reset(conn) => {
                        self.calls.retain(|call| (call.0, call.1) != (side, conn));
                        self.cut_named(side, conn);
                    }
                    Asked::Finish(conn) => {
                        if let Some(conn) =
                            self.conns.iter_mut().find(|other| other.names[side] == Some(conn))
                        {
                            conn.pipes[side].has_ended = true;
                        }
                    }
                }
            }
            for conn in std::mem::take(&mut self.sides[side].programs.paused) {
                if let Some(conn) = self.conns.iter_mut().find(|other| other.names[side] == Some(conn)) {
                    conn.may_read[side] = false;
                }
            }
            for conn in std::mem::take(&mut self.sides[side].programs.reads) {
                if let Some(conn) = self.conns.iter_mut().find(|other| other.names[side] == Some(conn)) {
                    conn.may_read[side] = true;
                }
            }
        }
    }

    fn cut_named(&mut self, side: usize, name: ConnId) {
        for conn in self.conns.iter_mut().filter(|conn| conn.names[side] == Some(name)) {
            conn.names[side] = None;
            conn.is_open[side] = false;
            conn.end(&mut self.random);
        }
    }

    /// A connection that was asked for reaches the other side.
    fn answer_call(&mut self, number: usize) {
        let (from, name, path) = self.calls.swap_remove(number);
        let to = 1 - from;
        let (now, port) = (self.now, 1024 + path);
        let mut conn = Conn {
            names: [None, None],
            pipes: [Pipe::default(), Pipe::default()],
            is_open: [true; 2],
            may_read: [false; 2],
            port,
        };
        let side = &mut self.sides[to];
        let accepted = side.engine.accepted(now, side.pair, port, &mut side.programs);
        let Some(accepted) = accepted else {
            let side = &mut self.sides[from];
            side.engine.closed(now, name, &mut side.programs);
            return self.obey();
        };
        (conn.names[from], conn.names[to]) = (Some(name), Some(accepted));
        self.conns.push(conn);
        let side = &mut self.sides[from];
        side.engine.connected(name, &mut side.programs);
        self.obey();
    }

    /// Some bytes are written, arrive, are read.
    fn step(&mut self, index: usize, side: usize, at_most: usize) {
        let conn = &mut self.conns[index];
        let (now, other) = (self.now, 1 - side);
        let Some(name) = conn.names[side].filter(|_| conn.is_open[side]) else { return };
        let Side { engine, programs, .. } = &mut self.sides[side];
        let mut left = self.random.usize(1..=at_most);
        let mut wrote = 0;
        if !conn.pipes[side].has_ended {
            for piece in engine.pieces(name) {
                let bytes = match piece {
                    Piece::Bytes(bytes) => bytes,
                    Piece::Payload { token, from } => &programs.kept.messages[&token].1[from..],
                };
                let took = bytes.len().min(left);
                conn.pipes[side].flying.extend(&bytes[..took]);
                (left, wrote) = (left - took, wrote + took);
                if left == 0 {
                    break;
                }
            }
        }
        engine.advance(name, wrote);
        let pipe = &mut conn.pipes[side];
        let arrives = if conn.is_open[other] { self.random.usize(0..=pipe.flying.len()) } else { 0 };
        pipe.arrived.extend(pipe.flying.drain(..arrives));
        pipe.total += arrives as u64;
        if self.random.bool() {
            let total = pipe.total;
            engine.acknowledged(name, total, programs);
        }
        if conn.may_read[side] {
            let pipe = &mut conn.pipes[other];
            let all = pipe.arrived.len();
            let sees = if self.random.bool() { all } else { self.random.usize(0..=all) };
            let used = engine.received(now, name, &pipe.arrived[..sees], programs);
            pipe.arrived.drain(..used);
            // What is left is a part of a message.
            let is_over = pipe.has_ended && pipe.flying.is_empty() && sees == pipe.arrived.len() + used;
            if is_over {
                conn.is_open[side] = false;
                conn.names[side] = None;
                conn.pipes[side].end(&mut self.random, conn.is_open[other]);
                engine.closed(now, name, programs);
            }
        }
        self.obey();
    }

    /// A connection breaks: what has arrived can be read, what has not is lost. One side may notice it late.
    fn cut(&mut self, index: usize) {
        self.cuts += 1;
        self.conns[index].end(&mut self.random);
    }

    fn turn(&mut self) {
        self.now += Duration::from_micros(self.random.u64(1..300));
        let now = self.now;
        for side in &mut self.sides {
            side.engine.timeout(now, &mut side.programs);
        }
        self.obey();
        if !self.calls.is_empty() && self.random.bool() {
            let number = self.random.usize(..self.calls.len());
            self.answer_call(number);
        }
        for index in 0..self.conns.len() {
            for side in 0..2 {
                self.step(index, side, 20_000);
            }
        }
        self.conns.retain(|conn| conn.is_open.contains(&true));
    }

    fn describe(&self) -> String {
        let side = |side: &Side| {
            let paths = side.engine.peers().flat_map(|peer| peer.paths).collect::<Vec<_>>();
            let received = side.programs.kept.received.len();
            format!("sent {:?}, received {received}, {:?}, {paths:?}", side.sent, side.engine.drops())
        };
        let conns = self.conns.iter().map(|conn| {
            let pipes =
                conn.pipes.each_ref().map(|pipe| (pipe.flying.len(), pipe.arrived.len(), pipe.has_ended));
            format!(
                "{:?} open {:?} read {:?} from {} {pipes:?}",
                conn.names, conn.is_open, conn.may_read, conn.port
            )
        });
        let conns = conns.collect::<Vec<_>>();
        format!("{}; {}; {conns:?}", side(&self.sides[0]), side(&self.sides[1]))
    }

    fn all_arrived(&self) -> bool {
        let count = |side: usize| self.sides[side].programs.kept.received.len() as u64;
        let sent = |side: usize| self.sides[side].sent.values().sum::<u64>();
        (count(1), count(0)) == (sent(0), sent(1))
    }

    /// Messages of each port have come once, in order, and as many as were sent unless some `may_be_lost`.
    fn check(&self, may_be_lost: bool) {
        (0..2).for_each(|side| self.check_side(side, may_be_lost));
    }

    fn check_side(&self, side: usize, may_be_lost: bool) {
        let mut next: BTreeMap<u16, u64> = BTreeMap::new();
        for &(source, destination, number) in &self.sides[side].programs.kept.received {
            assert_eq!(destination, 7, "to the port it was for");
            let expected = next.entry(source).or_default();
            assert!(number >= *expected, "port {source}: {number} after {expected}: twice or out of order");
            assert!(may_be_lost || number == *expected, "port {source}: {expected} is lost");
            *expected = number + 1;
        }
    }

    fn run_until_arrived(&mut self) {
        for _ in 0..20_000 {
            if self.all_arrived() {
                return;
            }
            self.turn();
        }
        panic!("not all has arrived: {}", self.describe());
    }
}

fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("RDS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

/// Traffic both ways over connections that are cut again and again.
fn traffic(world: &mut World, turns: usize, cut: f64, mut kill: impl FnMut(&mut World, usize)) {
    for turn in 0..turns {
        for side in 0..2 {
            let (now, source) = (world.now, world.random.u16(100..103));
            let len = if world.random.u8(..) == 0 { 100_000 } else { world.random.usize(8..600) };
            if world.random.bool() {
                match world.sides[side].send(now, source, 7, len) {
                    Ok(()) | Err(SendError::Full) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
        world.obey();
        if world.random.f64() < cut && !world.conns.is_empty() {
            let index = world.random.usize(..world.conns.len());
            world.cut(index);
        }
        kill(world, turn);
        world.turn();
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_by_cut_connections() {
    let mut cuts = 0;
    for seed in seeds() {
        let config = Config { paths: [1, 2, 8][seed as usize % 3], ..Config::default() };
        let mut world = World::new(seed, config);
        traffic(&mut world, 300, 0.05, |_, _| {});
        world.run_until_arrived();
        world.check(false);
        cuts += world.cuts;
    }
    println!("{cuts} connections were cut");
    assert!(cuts > 1000);
}

#[test]
fn a_connection_may_be_cut_at_every_byte() {
    // Long enough for the probe and its answer, a map, and three messages each way.
    // Within the two maps, one byte is like the next.
    for at in (0..700).chain((700..16_000).step_by(53)).chain(16_000..17_100) {
        let mut world = World::new(at, Config::default());
        for side in 0..2 {
            for len in [8, 30, 9] {
                world.sides[side].send(Instant::ZERO, 100, 7, len).expect("room");
            }
        }
        world.obey();
        let mut is_cut = false;
        for _ in 0..2_000 {
            world.now += Duration::from_millis(3);
            let now = world.now;
            for side in &mut world.sides {
                side.engine.timeout(now, &mut side.programs);
            }
            world.obey();
            if !world.calls.is_empty() {
                world.answer_call(0);
            }
            for index in 0..world.conns.len() {
                let total: u64 = world.conns[index].pipes.iter().map(|pipe| pipe.total).sum();
                let most = if is_cut { 20_000 } else { (at.saturating_sub(total) as usize).clamp(1, 9_000) };
                for side in 0..2 {
                    world.step(index, side, most);
                }
                let total: u64 = world.conns[index].pipes.iter().map(|pipe| pipe.total).sum();
                if !is_cut && total >= at {
                    world.cut(index);
                    is_cut = true;
                }
            }
            if world.all_arrived() {
                break;
            }
        }
        assert!(world.all_arrived(), "cut at byte {at}: {}", world.describe());
        world.check(false);
    }
}

#[test]
fn a_killed_host_goes_on_where_it_was() {
    let mut lost = 0;
    for seed in seeds() {
        let config = Config { paths: [1, 4][seed as usize % 2], ..Config::default() };
        let mut world = World::new(seed, config);
        traffic(&mut world, 300, 0.02, |world, turn| {
            if turn % 60 == 59 {
                let side = turn / 60 % 2;
                for index in 0..world.conns.len() {
                    // What has arrived and was not read is lost with the process.
                    world.conns[index].pipes[1 - side].arrived.clear();
                    world.conns[index].names[side] = None;
                    world.conns[index].is_open[side] = false;
                    world.cut(index);
                }
                world.calls.retain(|call| call.0 != side);
                let now = world.now;
                world.sides[side].kill(now);
                world.obey();
            }
        });
        for _ in 0..4_000 {
            world.turn();
        }
        world.check(true);
        for side in 0..2 {
            assert!(world.sides[side].programs.kept.messages.is_empty(), "seed {seed}: all is acknowledged");
            let sent: u64 = world.sides[1 - side].sent.values().sum();
            lost += sent - world.sides[side].programs.kept.received.len() as u64;
        }
    }
    println!("{lost} messages were acknowledged by TCP and not read before a kill");
}

#[test]
fn a_host_that_lost_its_state_is_heard_from_its_first_message() {
    for seed in seeds() {
        let mut world = World::new(seed, Config::default());
        traffic(&mut world, 100, 0.02, |_, _| {});
        world.run_until_arrived();
        let (now, before) = (world.now, world.sides[1].programs.kept.received.len());
        for index in 0..world.conns.len() {
            world.conns[index].names[0] = None;
            world.conns[index].is_open[0] = false;
            world.cut(index);
        }
        world.calls.clear();
        let pair = world.sides[0].pair;
        world.sides[0] = Side::new(pair, Config { generation: 99, ..Config::default() });
        world.sides[1].programs.kept.received.clear();
        world.sides[1].sent.clear();
        for _ in 0..200 {
            let _ = world.sides[0].send(now, 100, 7, 20);
            world.obey();
            let is_cut = world.random.u8(..) < 20 && !world.conns.is_empty();
            if is_cut {
                world.cut(0);
            }
            world.turn();
        }
        // What the other host has not known to be acknowledged comes again: to a host without state it is new.
        world.sides[0].programs.kept.received.clear();
        world.run_until_arrived();
        world.check_side(1, false);
        assert!(before > 0);
        let heard = world.sides[1].engine.peers().next().expect("a peer").paths[0].position.peer_generation;
        assert_eq!(heard, Some(99), "seed {seed}");
    }
}

#[test]
fn a_congested_port_is_known_to_the_peer_until_it_is_clear() {
    let mut world = World::new(1, Config::default());
    let local = world.sides[1].pair.local;
    let turns = |world: &mut World| (0..300).for_each(|_| world.turn());
    world.sides[0].send(Instant::ZERO, 100, 7, 8).expect("room");
    turns(&mut world);
    for is_congested in [true, false, true] {
        let Side { engine, programs, .. } = &mut world.sides[1];
        engine.set_congested(local, 7, is_congested, programs);
        turns(&mut world);
        assert_eq!(world.sides[0].programs.kept.congested, is_congested);
        let now = world.now;
        let expected = if is_congested { Err(SendError::Congested) } else { Ok(()) };
        assert_eq!(world.sides[0].send(now, 100, 7, 8), expected);
        assert_eq!(world.sides[0].send(now, 100, 8, 8), Ok(()), "another port");
        turns(&mut world);
    }
    // A connection that is new brings the whole map.
    world.cut(0);
    world.sides[0].programs.kept.congested = false;
    turns(&mut world);
    assert!(world.sides[0].programs.kept.congested);
}

#[test]
fn a_ping_is_answered_and_a_flood_of_them_is_bounded() {
    let mut world = World::new(1, Config { answers_max: 4, ..Config::default() });
    world.sides[0].send(Instant::ZERO, 100, 0, 8).expect("room");
    (0..300).for_each(|_| world.turn());
    // From port 0, without a payload.
    assert_eq!(world.sides[0].programs.kept.received, [(0, 100, 0)]);
    let conn = world.conns[0].names[1].expect("open");
    let ping = Header { sequence: 50, source: 100, len: 0, ..Header::default() };
    let Side { engine, programs, .. } = &mut world.sides[1];
    for number in 0..10 {
        let bytes = Header { sequence: 50 + number, ..ping }.to_bytes();
        assert_eq!(engine.received(world.now, conn, &bytes, programs), bytes.len());
    }
    assert_eq!(engine.drops().of(Reason::PingFlood), 6);
}

#[test]
fn peers_beyond_the_limit_take_the_room_of_idle_ones_only() {
    let config = Config { peers_max: 2, ..Config::default() };
    let (mut engine, mut programs) = (Rds::new(config), Programs::default());
    let local: IpAddr = [10, 0, 0, 9].into();
    let mut accept = |last: u8| {
        let pair = Pair { local, remote: [10, 0, 0, last].into() };
        engine.accepted(Instant::ZERO, pair, 1024, &mut programs)
    };
    let first = accept(1).expect("room");
    accept(2).expect("room");
    assert_eq!(accept(3), None);
    engine.closed(Instant::ZERO, first, &mut programs);
    let mut accept = |last: u8| {
        let pair = Pair { local, remote: [10, 0, 0, last].into() };
        engine.accepted(Instant::ZERO, pair, 1024, &mut programs)
    };
    assert!(accept(3).is_some(), "the first one has nothing to lose");
    assert_eq!(accept(4), None);
    assert_eq!(engine.drops().of(Reason::TooManyPeers), 2);
}

#[test]
fn a_peer_that_is_gone_is_not_called_for_ever() {
    let (mut engine, mut programs) = (Rds::new(Config::default()), Programs::default());
    let pair = Pair { local: [10, 0, 0, 1].into(), remote: [10, 0, 0, 2].into() };
    let outgoing = Outgoing { pair, source: 1, destination: 7, token: Token(0), len: 8 };
    programs.kept.messages.insert(Token(0), (outgoing, vec![0; 8], None));
    engine.send(Instant::ZERO, &outgoing, &mut programs).expect("room");
    let connect = |programs: &mut Programs| match programs.asked.pop_front() {
        Some(Asked::Connect(conn, 0)) => conn,
        _ => panic!("a connection was to be asked for"),
    };
    let conn = connect(&mut programs);
    engine.connected(conn, &mut programs);
    let written = engine.pieces(conn).map(|piece| match piece {
        Piece::Bytes(bytes) => bytes.len(),
        Piece::Payload { from, .. } => 8 - from,
    });
    let written = written.sum();
    engine.advance(conn, written);
    engine.acknowledged(conn, written as u64, &mut programs);
    assert!(programs.kept.messages.is_empty());
    // All is delivered. The peer may have something for this host, so it is called for a minute.
    let mut now = Instant::ZERO;
    let mut attempts = 0;
    engine.closed(now, conn, &mut programs);
    while engine.next_deadline() != Instant::NEVER {
        now = engine.next_deadline();
        engine.timeout(now, &mut programs);
        let conn = connect(&mut programs);
        engine.closed(now, conn, &mut programs);
        attempts += 1;
    }
    assert!((60..=140).contains(&attempts), "{attempts}");
    assert!(now.since(Instant::ZERO) <= Duration::from_secs(62));
}
