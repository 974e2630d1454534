//! The server over a simulated listener, without a descriptor: peers are values, and the test sets the time.

mod simulated;

use twinpath_inspect::Reason;
use twinpath_service::Chargen;
use twinpath_time::Duration;

use self::simulated::{LIMITS, Lines, Random, Rig};

#[test]
fn lines_in_pieces_are_answered_whole_in_order_and_once_on_each_connection() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut rig = Rig::new(Lines, LIMITS);
        let peers: Vec<_> = (0..random.below(12) + 1).map(|_| rig.connect()).collect();
        let mut said = vec![Vec::new(); peers.len()];
        let mut is_reset = vec![false; peers.len()];
        for peer in &peers {
            rig.peer(*peer).piece = [usize::MAX, 1 + random.below(300)][random.below(2)];
        }
        for _ in 0..random.below(200) {
            let at = random.below(peers.len());
            match random.below(9) {
                0..4 if !is_reset[at] => {
                    let bytes = random.text();
                    rig.say(peers[at], &bytes);
                    said[at].extend(bytes);
                }
                4 => rig.open_window(peers[at], random.below(500)),
                5 if random.below(20) == 0 => {
                    is_reset[at] = true;
                    rig.reset(peers[at]);
                }
                6 => rig.turns(),
                _ => drop(rig.turn()),
            }
        }
        for at in 0..peers.len() {
            if !is_reset[at] {
                rig.say(peers[at], b"\n");
                said[at].push(b'\n');
                rig.half_close(peers[at]);
            }
            rig.open_window(peers[at], usize::MAX / 2);
        }
        rig.turns();
        for ((peer, said), is_reset) in peers.iter().zip(&said).zip(is_reset) {
            let peer = rig.peer(*peer);
            assert!(peer.is_over, "seed {seed}: {} connections", peers.len());
            assert!(said.starts_with(&peer.taken) && (is_reset || said == &peer.taken), "seed {seed}");
        }
        rig.holds_nothing();
        assert!(!rig.server.spins(), "nobody is read unasked");
    }
}

const REQUEST: &[u8] = b"forty-four bytes that are asked and answered\n";
/// One that sends a request each 4.5 us while fewer than 128 are under way, and needs 1.5 us for each answer, whatever
/// it holds.
struct Pipelining {
    peer: usize,
    sends_at: u64,
    now: u64,
    said: usize,
    answers: usize,
}

impl Pipelining {
    fn new(peer: usize) -> Self {
        Self { peer, sends_at: 0, now: 0, said: 0, answers: 0 }
    }

    /// Requests answered within this time, and how many answers it were.
    fn play(&mut self, rig: &mut Rig<Lines>, time_ns: u64) -> (usize, usize) {
        let (end, taken, answers) = (self.now + time_ns, self.taken(rig), self.answers);
        let mut took = 0;
        while self.now < end {
            while self.sends_at <= self.now && self.said < self.taken(rig) + 128 {
                rig.say(self.peer, REQUEST);
                self.said += 1;
                self.sends_at += 4_500;
            }
            let before = self.taken(rig);
            rig.turn_after(Duration::from_nanos(500 + took));
            // An answer takes the worker its time.
            took = if self.taken(rig) > before { 6_500 } else { 0 };
            if took > 0 {
                self.answers += 1;
                self.sends_at = self.sends_at.max(self.now) + 1_500;
                rig.open_window(self.peer, 1_000_000);
            }
            self.now += 500 + took;
        }
        (self.taken(rig) - taken, self.answers - answers)
    }

    fn taken(&self, rig: &mut Rig<Lines>) -> usize {
        rig.peer(self.peer).taken.len() / REQUEST.len()
    }
}

/// A rig with a connection whose reads are delayed.
fn delayed() -> (Rig<Lines>, Pipelining) {
    let mut rig = Rig::new(Lines, LIMITS);
    let mut pipelining = Pipelining::new(rig.connect());
    let (first, _) = pipelining.play(&mut rig, 2_000_000);
    pipelining.play(&mut rig, 100_000_000);
    let (requests, answers) = pipelining.play(&mut rig, 20_000_000);
    assert!(requests > first * 11, "{requests} requests in 20 ms, {first} in 2 ms");
    assert!(requests > 3 * answers, "{requests} requests in {answers} answers");
    assert!(!rig.server.spins(), "events announce all");
    (rig, pipelining)
}

#[test]
fn requests_that_are_under_way_together_are_answered_together_if_that_is_faster() {
    let (mut rig, Pipelining { peer, said, .. }) = delayed();
    // One that comes alone is read at once, and the next one when its delay is over, although no event announces it.
    rig.turn_after(Duration::from_micros(100));
    for is_first in [true, false] {
        rig.say(peer, REQUEST);
        rig.turn_after(Duration::from_nanos(1));
        let wait = rig.may_wait();
        assert_eq!(wait > Duration::from_micros(40), is_first, "{wait:?}");
        if !is_first {
            rig.turn_after(wait);
        }
    }
    assert_eq!(rig.peer(peer).taken.len(), (said + 2) * REQUEST.len());
    assert!(rig.may_wait() > Duration::from_secs(1), "nothing is left: {:?}", rig.may_wait());
}

#[test]
fn a_connection_whose_read_is_delayed_gives_way_and_ends_like_others() {
    // Another one is busy, too: nothing is delayed any more.
    let (mut rig, mut pipelining) = delayed();
    let other = rig.connect();
    for round in 0..40 {
        rig.say(pipelining.peer, REQUEST);
        rig.say(other, REQUEST);
        rig.turn_after(Duration::from_micros(5));
        assert_eq!(rig.peer(other).taken.len(), (round + 1) * REQUEST.len(), "the other one never waits");
        rig.open_window(other, REQUEST.len());
    }
    pipelining.said += 40;
    rig.turn();
    assert_eq!(pipelining.taken(&mut rig), pipelining.said);
    // It is closed, or reset, while it waits.
    for is_reset in [true, false] {
        let (mut rig, Pipelining { peer, .. }) = delayed();
        for _ in 0..2 {
            rig.say(peer, REQUEST);
            rig.turn_after(Duration::from_nanos(1));
        }
        if is_reset {
            rig.reset(peer);
        } else {
            rig.half_close(peer);
        }
        rig.turns();
        assert!(rig.peer(peer).is_over);
        rig.holds_nothing();
        let next = rig.connect();
        rig.say(next, REQUEST);
        rig.turns();
        assert_eq!(rig.peer(next).taken, REQUEST);
    }
}

#[test]
fn a_request_in_progress_is_held_where_it_arrived_and_counts_until_the_rest_comes() {
    let mut rig = Rig::new(Lines, LIMITS);
    let peer = rig.connect();
    rig.say(peer, b"abc\nde");
    rig.turns();
    assert_eq!(rig.peer(peer).taken, b"abc\n");
    assert_eq!((rig.counters.queued_bytes.get(), rig.totals.bytes()), (2, 2));
    rig.say(peer, b"f\n");
    rig.turns();
    assert_eq!(rig.peer(peer).taken, b"abc\ndef\n");
    assert_eq!((rig.counters.queued_bytes.get(), rig.totals.bytes()), (0, 0));
    rig.say(peer, b"never finished");
    rig.turns();
    rig.pass(LIMITS.request);
    assert!(rig.peer(peer).is_over);
    assert_eq!(rig.drops.get(Reason::RequestTimeout), 1);
    rig.holds_nothing();
}

#[test]
fn a_peer_that_takes_nothing_is_not_read_and_is_closed_in_time() {
    for piece in [usize::MAX, 100] {
        let mut rig = Rig::new(Lines, LIMITS);
        let peer = rig.connect();
        rig.peer(peer).piece = piece;
        rig.peer(peer).window = 10;
        rig.say(peer, &b"line\n".repeat(30_000));
        rig.turns();
        assert_eq!(rig.peer(peer).taken, b"line\nline\n");
        assert!(rig.peer(peer).arrived.len() > 60_000, "not more than the output holds");
        rig.pass(LIMITS.send - Duration::from_secs(1));
        rig.open_window(peer, 5);
        rig.turns();
        assert_eq!(rig.peer(peer).taken.len(), 15);
        rig.pass(LIMITS.send - Duration::from_secs(1));
        assert!(!rig.peer(peer).is_over, "it has taken something");
        rig.pass(Duration::from_secs(1));
        assert!(rig.peer(peer).is_over);
        assert_eq!(rig.drops.get(Reason::PeerNotReading), 1);
        rig.holds_nothing();
    }
}

#[test]
fn a_service_without_end_fills_what_the_peer_takes_and_others_have_their_turn() {
    let mut rig = Rig::new(Chargen, LIMITS);
    let peers = [rig.connect(), rig.connect(), rig.connect()];
    for (peer, piece) in peers.into_iter().zip([usize::MAX, 1_000, 70_000]) {
        rig.peer(peer).piece = piece;
        rig.open_window(peer, 2_000_000 - 1_000);
    }
    rig.turns();
    for peer in peers {
        let peer = rig.peer(peer);
        assert_eq!(peer.taken.len(), 2_000_000);
        assert!(
            peer.taken.starts_with(b" !\"#")
                && peer.taken.chunks(7_030).map(|part| part[0]).all(|it| it == b' ')
        );
    }
}

#[test]
fn a_peer_that_resets_is_closed_and_one_that_ends_gets_its_answers_first() {
    let mut rig = Rig::new(Lines, LIMITS);
    let (broken, ending) = (rig.connect(), rig.connect());
    rig.reset(broken);
    rig.say(ending, b"last\n");
    rig.half_close(ending);
    rig.turns();
    assert!(rig.peer(broken).is_over && !rig.peer(broken).is_finished);
    assert!(rig.peer(ending).is_over);
    assert_eq!(rig.peer(ending).taken, b"last\n");
    rig.holds_nothing();
}

#[test]
fn a_drain_answers_what_has_arrived_and_also_those_that_wait_to_be_accepted() {
    let mut rig = Rig::new(Lines, LIMITS);
    let peers: Vec<_> = (0..200).map(|_| rig.connect()).collect();
    let waiting = rig.connect_only();
    for peer in &peers {
        rig.say(*peer, b"one\ntwo\n");
    }
    rig.say(waiting, b"three\n");
    rig.drain(false);
    let refused = rig.connect_only();
    rig.turns();
    for peer in &peers {
        assert_eq!(rig.peer(*peer).taken, b"one\ntwo\n");
        assert!(rig.peer(*peer).is_finished && !rig.peer(*peer).is_over, "it waits for the peer's end");
    }
    assert_eq!(rig.peer(waiting).taken, b"three\n");
    assert!(rig.peer(refused).taken.is_empty() && !rig.server.is_drained());
    for peer in peers.into_iter().chain([waiting]) {
        rig.half_close(peer);
    }
    rig.turns();
    assert!(rig.server.is_drained());
    rig.holds_nothing();
}

#[test]
fn a_drain_that_takes_too_long_is_cut() {
    let mut rig = Rig::new(Lines, LIMITS);
    let peer = rig.connect();
    rig.peer(peer).window = 0;
    rig.say(peer, b"not taken\n");
    rig.drain(true);
    rig.turns();
    assert!(!rig.server.is_drained());
    rig.cut();
    assert!(rig.server.is_drained() && rig.peer(peer).is_over);
    assert_eq!(rig.drops.get(Reason::DrainTimeout), 1);
    rig.holds_nothing();
}

#[test]
fn limits_of_connections_and_of_bytes_hold_for_any_source() {
    let limits = twinpath_stream::TcpLimits { connections: 3, queued_bytes: 200_000, ..LIMITS };
    let mut rig = Rig::new(Lines, limits);
    let peers = [rig.connect(), rig.connect(), rig.connect()];
    rig.say(peers[0], b"in progress");
    rig.turns();
    let fourth = rig.connect();
    assert!(rig.peer(peers[1]).is_over, "the one that has been idle for longest");
    assert_eq!(rig.drops.get(Reason::ConnectionDisplaced), 1);
    for (peer, len) in [(peers[0], 40_000), (peers[2], 40_000), (fourth, 20_000)] {
        rig.say(peer, &vec![b'x'; len]);
        rig.turns();
    }
    assert_eq!(rig.drops.get(Reason::ServiceBytes), 1);
    assert!(rig.peer(peers[0]).is_over, "its bytes have waited for longest");
    assert!(!rig.peer(fourth).is_over && rig.totals.bytes() <= 200_000);
}

#[test]
fn listening_stops_and_goes_on_and_a_pause_ends_in_time() {
    let mut rig = Rig::new(Lines, LIMITS);
    rig.server.listen_no_more(&());
    let peer = rig.connect();
    assert_eq!(rig.counters.accepted.get(), 0);
    rig.server.listen(&()).unwrap();
    rig.turns();
    assert_eq!(rig.counters.accepted.get(), 1);
    rig.pause(Duration::from_millis(100));
    let other = rig.connect();
    assert_eq!(rig.counters.accepted.get(), 1);
    rig.pass(Duration::from_millis(100));
    assert_eq!(rig.counters.accepted.get(), 2);
    rig.pause(Duration::from_secs(100));
    let third = rig.connect();
    rig.half_close(other);
    rig.turns();
    assert_eq!(rig.counters.accepted.get(), 3, "a connection was closed");
    assert!(!rig.peer(peer).is_over && !rig.peer(third).is_over);
}
