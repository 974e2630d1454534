//! Many connections at the same time: more bytes than sockets hold, and numbers that are reused while
//! requests are under way.

use std::collections::VecDeque;

use super::*;

/// A generator of random choices. A run depends on its seed only.
struct Choices(u64);

impl Choices {
    fn below(&mut self, most: u64) -> u64 {
        // Numerical Recipes' constants; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[test]
fn many_connections_with_more_than_one_read_each_are_all_answered() {
    let mut rig = Rig::new(LIMITS);
    let mut streams: Vec<_> = (0..150).map(|_| rig.connect()).collect();
    let lines = "3\n".repeat(20_000);
    for stream in &mut streams {
        stream.write_all(lines.as_bytes()).unwrap();
    }
    for stream in &mut streams {
        assert_eq!(rig.read(stream, 60_000), (60_000, false));
    }
    assert_eq!((rig.closes().len(), rig.totals.bytes()), (0, 0));
    streams[0].write_all(b"9\n").unwrap();
    assert_eq!(rig.read(&mut streams[0], 9), (9, false));
}

/// A peer, and the number of bytes that it still expects.
struct Peer {
    stream: TcpStream,
    due: u64,
}

impl Peer {
    fn ask(&mut self, choices: &mut Choices) {
        let mut asked = String::new();
        for _ in 0..=choices.below(30) {
            let bytes = choices.below(700);
            self.due += bytes;
            asked += &format!("{bytes}\n");
        }
        self.stream.write_all(asked.as_bytes()).unwrap();
    }

    /// Reads the bytes that have arrived, and checks that they were requested, and are correct.
    fn take(&mut self) {
        let mut buffer = [0; 1 << 16];
        while let Ok(len) = self.stream.read(&mut buffer)
            && len > 0
        {
            assert!(buffer[..len].iter().all(|byte| *byte == b'x'));
            self.due = self.due.checked_sub(len as u64).expect("no more than was asked for");
        }
    }
}

#[test]
fn numbers_that_change_hands_give_nobody_what_another_asked_for() {
    for seed in 0..10 {
        let mut rig = Rig::new(LIMITS);
        let mut choices = Choices(seed);
        let mut peers = VecDeque::new();
        for _ in 0..600 {
            match choices.below(8) {
                0 | 1 if peers.len() < 40 => {
                    let stream = TcpStream::connect(rig.server).unwrap();
                    stream.set_nonblocking(true).unwrap();
                    peers.push_back(Peer { stream, due: 0 });
                }
                // The peer closes or resets the connection while its requests are under way.
                2 => {
                    if let Some(peer) = peers.pop_front()
                        && choices.below(2) == 0
                    {
                        let linger = Some(std::time::Duration::ZERO);
                        rustix::net::sockopt::set_socket_linger(&peer.stream, linger).unwrap();
                    }
                }
                3 => drop(rig.turn()),
                _ => {
                    let count = peers.len().max(1) as u64;
                    if let Some(peer) = peers.get_mut(choices.below(count) as usize) {
                        peer.ask(&mut choices);
                        peer.take();
                    }
                }
            }
        }
        for _ in 0..1_000 {
            rig.turns();
            peers.iter_mut().for_each(Peer::take);
            if peers.iter().all(|peer| peer.due == 0) {
                break;
            }
        }
        assert!(peers.iter().all(|peer| peer.due == 0), "seed {seed}: everything asked for comes");
        drop(peers);
        rig.turns();
        assert_eq!((rig.serve.tcp.connections.get(), rig.totals.bytes()), (0, 0), "seed {seed}");
    }
}

/// A connection requests varying amounts, and sends the next request a microsecond after each answer.
/// Returns how often a request was not answered in the turn in which it arrived.
fn held_back(rig: &mut Rig, stream: &mut TcpStream) -> u32 {
    let (mut held, mut buffer) = (0, [0; 64]);
    for round in 0..1_000 {
        stream.write_all(&b"1\n1\n1\n1\n"[..2 + 6 * (round % 2)]).unwrap();
        rig.turn();
        while stream.read(&mut buffer).is_ok() {}
        stream.write_all(b"1\n").unwrap();
        rig.now += Duration::from_micros(1);
        let busy = rig.worker.turn(rig.now);
        let answered = stream.read(&mut buffer).is_ok();
        assert_eq!(busy, answered, "waiting is no work");
        held += u32::from(!answered);
    }
    held
}

#[test]
fn a_busy_connection_is_let_ask_more_also_beside_an_idle_one() {
    for open in 1..=2 {
        let mut rig = Rig::new(LIMITS);
        let mut streams: Vec<_> = (0..open).map(|_| rig.connect()).collect();
        let held = held_back(&mut rig, &mut streams[0]);
        assert!(held > 0, "beside {} idle ones", open - 1);
    }
}

#[test]
fn nothing_is_allocated_but_by_the_service_while_requests_come_and_go() {
    let mut rig = Rig::new(LIMITS);
    let mut streams: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    let mut buffer = [0; 4096];
    let mut round = |rig: &mut Rig| {
        for stream in &mut streams {
            stream.write_all(b"100\n7\n").unwrap();
        }
        for stream in &mut streams {
            let mut got = 0;
            while got < 107 {
                rig.turn();
                got += stream.read(&mut buffer).unwrap_or(0);
            }
        }
    };
    (0..50).for_each(|_| round(&mut rig));
    let before = allocations::of_this_thread();
    (0..200).for_each(|_| round(&mut rig));
    // `Lengths` makes a vector for each answer.
    assert_eq!(allocations::of_this_thread() - before, 200 * 20 * 2);
}
