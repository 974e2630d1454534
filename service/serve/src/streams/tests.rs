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
