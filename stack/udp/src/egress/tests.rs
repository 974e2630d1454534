use std::net::Ipv4Addr;

use super::*;

fn peer(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
}

const WAY: Egress = Egress {
    ifindex: 3,
    source_mac: Mac([2, 0, 0, 0, 0, 1]),
    next_hop_mac: Mac([2, 0, 0, 0, 0, 2]),
    mtu: 1500,
};

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn control_is_asked_about_a_peer_once_and_then_periodically() {
    let mut table = EgressTable::new(1);
    let unknown = |ask| Lookup { answer: Err(KernelReason::Unknown), ask, refused: false };
    assert_eq!(table.lookup(peer(1), at(0)), unknown(true));
    assert_eq!(table.lookup(peer(1), at(0)), unknown(false), "the answer is on its way");
    assert_eq!(table.lookup(peer(1), at(1)), unknown(true), "or it got lost");
    table.update(Update::Learn { peer: peer(1), answer: Ok(WAY) }, at(2));
    assert_eq!(table.lookup(peer(1), at(11)), Lookup { answer: Ok(WAY), ask: false, refused: false });
    assert_eq!(
        table.lookup(peer(1), at(12)),
        Lookup { answer: Ok(WAY), ask: true, refused: false },
        "still used: keep it fresh"
    );
    assert_eq!(table.lookup(peer(1), at(12)), Lookup { answer: Ok(WAY), ask: false, refused: false });
}

#[test]
fn a_question_that_could_not_be_posted_is_asked_again() {
    let mut table = EgressTable::new(1);
    assert!(table.lookup(peer(1), at(5)).ask);
    table.not_asked(peer(1));
    assert!(table.lookup(peer(1), at(5)).ask);
}

#[test]
fn forgotten_and_cleared_peers_are_unknown() {
    let mut table = EgressTable::new(1);
    for number in 0..3 {
        table.update(Update::Learn { peer: peer(number), answer: Ok(WAY) }, at(0));
    }
    table.update(Update::Forget { peer: peer(0) }, at(0));
    assert!(table.lookup(peer(0), at(0)).answer.is_err() && table.lookup(peer(1), at(0)).answer.is_ok());
    table.update(Update::Clear, at(0));
    assert!(table.is_empty());
}

#[test]
fn an_update_concerns_its_peer_or_all() {
    assert_eq!(Update::Learn { peer: peer(1), answer: Ok(WAY) }.peer(), Some(peer(1)));
    assert_eq!(Update::Forget { peer: peer(2) }.peer(), Some(peer(2)));
    assert_eq!(Update::Clear.peer(), None);
}

#[test]
fn the_reasons_have_names() {
    let all = [
        (KernelReason::Unknown, "unknown"),
        (KernelReason::Unresolved, "unresolved"),
        (KernelReason::UnresolvedPeer { prefix_len: 24 }, "unresolved"),
        (KernelReason::OtherInterface, "other_interface"),
        (KernelReason::NotPlain, "not_plain"),
        (KernelReason::NoRoute, "no_route"),
    ];
    all.iter().for_each(|(reason, name)| assert_eq!(reason.name(), *name));
}

#[test]
fn a_peer_without_an_egress_is_asked_about_every_second_and_one_with_every_ten() {
    for (answer, interval_s) in [(Err(KernelReason::NoRoute), 1), (Ok(WAY), 10)] {
        let mut table = EgressTable::new(1);
        table.update(Update::Learn { peer: peer(1), answer }, at(5));
        // Active peers are reported once; another test checks that.
        for _ in 0..PROVEN_USES {
            table.lookup(peer(1), at(5));
        }
        let start_s = 5;
        let asked: Vec<u64> = (start_s..start_s + 31).filter(|s| table.lookup(peer(1), at(*s)).ask).collect();
        let expected: Vec<u64> = (start_s + interval_s..start_s + 31).step_by(interval_s as usize).collect();
        assert_eq!(asked, expected, "{answer:?}");
    }
}

#[test]
fn a_known_peer_whose_question_could_not_be_posted_is_asked_about_again() {
    let mut table = EgressTable::new(1);
    answer(&mut table, 1, at(5));
    assert!(!table.lookup(peer(1), at(6)).ask);
    table.not_asked(peer(1));
    assert_eq!(table.lookup(peer(1), at(6)), Lookup { answer: Ok(WAY), ask: true, refused: false });
    assert!(!table.lookup(peer(1), at(6)).ask);
    // A new answer takes effect, and the peer stays as active as it was.
    let other = Egress { mtu: 576, ..WAY };
    table.update(Update::Learn { peer: peer(1), answer: Ok(other) }, at(7));
    let asks: Vec<bool> = (0..3).map(|_| table.lookup(peer(1), at(7)).ask).collect();
    assert_eq!((asks, table.lookup(peer(1), at(7)).answer), (vec![true, false, false], Ok(other)));
}

#[test]
fn a_silent_peer_gives_way_after_a_second_and_a_proven_one_after_a_minute() {
    let with = |answer, uses| Peer { uses, ..Peer::new(answer, at(100)) };
    for (peer, silent_s) in [
        (with(Ok(WAY), 0), 1),
        (with(Ok(WAY), PROVEN_USES - 1), 1),
        (with(Ok(WAY), PROVEN_USES), 60),
        (with(Err(KernelReason::NoRoute), PROVEN_USES), 1),
    ] {
        let nearly = Instant::from_nanos((100 + silent_s) * 1_000_000_000 - 1);
        assert_eq!([nearly, at(100 + silent_s)].map(|now| peer.gives_way(now)), [false, true], "{peer:?}");
    }
}

#[test]
fn a_full_table_takes_the_answer_to_its_own_question_if_another_peer_gives_way() {
    let mut table = EgressTable::new(1);
    (0..PEERS_MAX as u32).for_each(|number| answer(&mut table, number, at(10)));
    assert_eq!((table.len(), table.is_empty()), (PEERS_MAX, false));
    // Nobody asked here.
    answer(&mut table, 5_000, at(20));
    assert_eq!((table.known.get_mut(&peer(5_000)).is_some(), table.overflows()), (false, 0));
    assert!(table.lookup(peer(5_000), at(20)).ask);
    assert_eq!(table.len(), PEERS_MAX + 1, "known and pending");
    answer(&mut table, 5_000, at(20));
    assert_eq!((table.lookup(peer(5_000), at(20)).answer, table.len()), (Ok(WAY), PEERS_MAX));
    // All others have just been used: there is no room, and that is counted.
    (0..PEERS_MAX as u32).for_each(|number| {
        table.known.get_mut(&peer(number)).into_iter().for_each(|known| known.used_at = at(20));
    });
    assert!(table.lookup(peer(6_000), at(20)).ask);
    answer(&mut table, 6_000, at(20));
    assert_eq!((table.known.get_mut(&peer(6_000)).is_some(), table.overflows()), (false, 1));
}

/// Control's answer.
fn answer(table: &mut EgressTable, number: u32, now: Instant) {
    table.update(Update::Learn { peer: peer(number), answer: Ok(WAY) }, now);
}

fn after_ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn the_table_is_bounded_and_never_allocates() {
    let mut table = EgressTable::new(1);
    let room = (table.known.capacity(), table.pending.capacity());
    // Peers come and go far more often than there is room for, as in a flood of forged sources.
    for number in 0..20 * PEERS_MAX as u32 {
        let now = after_ms(u64::from(number));
        if table.lookup(peer(number), now).ask && number % 3 != 0 {
            answer(&mut table, number, now);
        }
        if number % 2 == 0 {
            table.update(Update::Forget { peer: peer(number / 2) }, now);
        }
        assert!(table.known.len() <= PEERS_MAX && table.pending.len() <= PENDING_MAX);
    }
    // Tombstones of deleted peers do not count as capacity until they are removed; growing would double it.
    let now = (table.known.capacity(), table.pending.capacity());
    assert!(now.0.0 <= room.0.0 && now.1.0 <= room.1.0, "no growth, so no allocation");
    assert_eq!((now.0.1, now.1.1), (room.0.1, room.1.1));
}

#[test]
fn questions_that_all_get_lost_cost_new_peers_a_second() {
    let mut table = EgressTable::new(1);
    // No question is answered.
    for number in 0..100_000 {
        table.lookup(peer(number), at(1));
    }
    assert_eq!(table.len(), PENDING_MAX);
    assert_eq!(table.overflows(), 100_000 - PENDING_MAX as u64);
    let honest = 0x00ff_ffff;
    assert!(!table.lookup(peer(honest), after_ms(1999)).ask, "there is no room yet");
    assert!(table.lookup(peer(honest), at(2)).ask, "those without an answer give way");
    answer(&mut table, honest, at(2));
    assert_eq!(table.lookup(peer(honest), at(2)), Lookup { answer: Ok(WAY), ask: false, refused: false });
}

#[test]
fn new_peers_are_asked_about_at_a_bounded_rate() {
    // 200,000 new peers a second for two seconds, each sending `times` times; control answers every question
    // immediately.
    for (times, per_s, burst) in
        [(1, FIRST_QUESTIONS_PER_S, FIRST_QUESTIONS_BURST), (2, QUESTIONS_PER_S, QUESTIONS_BURST)]
    {
        let mut table = EgressTable::new(1);
        let mut asked = 0;
        for number in 0..400_000 {
            let now = Instant::from_nanos(1_000_000_000 + u64::from(number) * 5_000);
            let ask = (0..times).any(|_| table.lookup(peer(number), now).ask);
            if ask {
                asked += 1;
                answer(&mut table, number, now);
            }
        }
        let allowed = 2 * per_s + u64::from(burst);
        assert!((allowed - 8..=allowed).contains(&asked), "{asked} of {allowed}");
        // A clock that goes back does not stop the questions.
        assert!(table.lookup(peer(0x00ff_ffff), at(0)).ask);
    }
}

/// A peer that sends ten times a second is asked about within half a second, though 20,000 forged sources a second
/// use up all questions about peers that have sent once.
#[test]
fn a_new_peer_that_sends_again_is_asked_about_in_a_flood() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = EgressTable::new(seed);
        let mut forged = 1_000_000;
        let mut asked_at = None;
        for millis in 0..12_000 {
            let now = after_ms(millis);
            for _ in 0..20 {
                forged += 1;
                if table.lookup(peer(forged), now).ask && random.u8(0..10) > 0 {
                    answer(&mut table, forged, now);
                }
            }
            if millis >= 10_000 && millis % 100 == 0 && table.lookup(peer(1), now).ask {
                asked_at = Some(millis);
                break;
            }
        }
        assert!(asked_at.is_some_and(|millis| millis <= 10_500), "seed {seed}: {asked_at:?}");
    }
}

#[test]
fn control_is_told_at_once_that_a_peer_became_active() {
    let mut table = EgressTable::new(1);
    assert!(table.lookup(peer(1), at(0)).ask);
    answer(&mut table, 1, at(0));
    let asks: Vec<bool> = (0..8).map(|_| table.lookup(peer(1), at(0)).ask).collect();
    let expected: Vec<bool> = (1..=8).map(|uses| uses == PROVEN_USES).collect();
    assert_eq!(asks, expected, "control learns once that it talks");
}

/// Simulates a server under forged sources, from a seed: every formerly active peer keeps the fast path throughout,
/// and a new one gets it soon after the flood, whatever control lost meanwhile.
#[test]
fn forged_sources_displace_no_active_peer() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = EgressTable::new(1);
        let honest = 0..500;
        for round in 0..8 {
            for number in honest.clone() {
                let now = after_ms(round * 1_000 + u64::from(number));
                if table.lookup(peer(number), now).ask {
                    answer(&mut table, number, now);
                }
            }
        }
        let (mut now, mut overflowed) = (at(10), false);
        // A flood for one minute at 20,000 sources a second, some of them seen twice; control loses some of the
        // questions.
        for tick in 0..60_000u32 {
            now += Duration::from_millis(1);
            for _ in 0..20 {
                let forged = 1_000_000 + random.u32(0..4_000_000);
                if table.lookup(peer(forged), now).ask && random.u8(0..10) > 0 {
                    answer(&mut table, forged, now);
                }
            }
            overflowed |= table.overflows() > 0;
            // Each honest peer sends a request every 500 ms.
            let number = tick % 500;
            let found = table.lookup(peer(number), now);
            assert_eq!(found.answer, Ok(WAY), "seed {seed}: peer {number} at {tick} ms");
            if found.ask {
                answer(&mut table, number, now);
            }
        }
        assert!(overflowed, "it was more than the table takes");
        // After the flood, control is asked about a new peer within a second.
        let new_peer = peer(600);
        let waited = (0..1_100).find(|millis| {
            let now = now + Duration::from_millis(*millis);
            let found = table.lookup(new_peer, now);
            if found.ask {
                answer(&mut table, 600, now);
            }
            table.lookup(new_peer, now).answer.is_ok()
        });
        assert!(waited.is_some_and(|millis| millis <= 1_001), "seed {seed}: {waited:?}");
    }
}

/// A worker and the kernel's table of neighbours in a flood with forged sources of the connected network, from a seed.
#[test]
fn forged_neighbours_cost_few_entries_and_no_resolved_peer_anything() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = EgressTable::new(1);
        (0..100).for_each(|number| answer(&mut table, number, at(1)));
        let unresolved = Err(KernelReason::UnresolvedPeer { prefix_len: 8 });
        let (mut made, mut refused) = (0, 0);
        // 20 questions at a time are on their way to control, which answers them a millisecond later.
        let mut asked = Vec::new();
        for millis in 0..20_000 {
            let now = after_ms(1_000 + millis);
            for peer in asked.drain(..) {
                table.update(Update::Learn { peer, answer: unresolved }, now);
            }
            for _ in 0..20 {
                let forged = peer(1_000_000 + random.u32(0..60_000));
                let found = table.lookup(forged, now);
                assert!(found.answer.is_err() && !(found.refused && found.ask), "seed {seed}");
                asked.extend(found.ask.then_some(forged));
                // The kernel's socket sends it, and the kernel looks for the address.
                made += u32::from(!found.refused);
                refused += u32::from(found.refused);
            }
            let honest = table.lookup(peer(random.u32(0..100)), now);
            assert!(honest.answer == Ok(WAY) && !honest.refused, "seed {seed}, {millis} ms");
        }
        // Within the three seconds that the kernel keeps an entry, these are far fewer than its table takes.
        assert!(made < 1_500 && refused > 398_000, "seed {seed}: {made} and {refused}");
        // A peer whose neighbour the kernel knows is told to all workers, and is served at once.
        assert!(table.lookup(peer(500), at(21)).refused);
        answer(&mut table, 500, at(21));
        assert_eq!(table.lookup(peer(500), at(21)).answer, Ok(WAY));
    }
}

#[test]
fn a_peer_that_control_wants_to_hear_of_is_asked_about_at_its_next_use() {
    let mut table = EgressTable::new(1);
    table.lookup(peer(1), at(0));
    table.update(Update::Learn { peer: peer(1), answer: Ok(WAY) }, at(0));
    (0..PROVEN_USES).for_each(|_| _ = table.lookup(peer(1), at(0)));
    assert!(!table.lookup(peer(1), at(1)).ask);
    table.update(Update::AskAgain { peer: peer(1) }, at(1));
    table.update(Update::AskAgain { peer: peer(2) }, at(1));
    let asks: Vec<bool> = (0..3).map(|_| table.lookup(peer(1), at(1)).ask).collect();
    assert_eq!(asks, [true, false, false]);
    assert_eq!(table.len(), 1, "one that is not known stays so");
}

#[test]
fn an_answer_and_a_question_do_not_void_each_other() {
    let (learn, ask) =
        (|n| Update::Learn { peer: peer(n), answer: Ok(WAY) }, |n| Update::AskAgain { peer: peer(n) });
    let forget = Update::Forget { peer: peer(1) };
    assert!(
        learn(1).voids(&learn(1))
            && ask(1).voids(&ask(1))
            && forget.voids(&ask(1))
            && learn(1).voids(&forget)
    );
    assert!(!learn(1).voids(&ask(1)) && !ask(1).voids(&learn(1)) && !ask(1).voids(&forget));
    assert!(!learn(1).voids(&learn(2)) && !ask(2).voids(&ask(1)));
    assert!(Update::Clear.voids(&ask(1)) && !ask(1).voids(&Update::Clear));
}

#[test]
fn what_leaves_to_a_source_that_may_be_forged_does_not_keep_its_entry() {
    let mut table = EgressTable::new(1);
    assert!(table.lookup_unproven(peer(1), at(0)).ask);
    assert!(table.is_pending(peer(1)) && !table.is_pending(peer(2)));
    for number in 0..PEERS_MAX as u32 {
        table.update(Update::Learn { peer: peer(number), answer: Ok(WAY) }, at(0));
    }
    for number in 0..PEERS_MAX as u32 {
        (0..2 * PROVEN_USES).for_each(|_| _ = table.lookup_unproven(peer(number), at(0)));
    }
    assert!(table.lookup(peer(5_000), at(2)).ask);
    table.update(Update::Learn { peer: peer(5_000), answer: Ok(WAY) }, at(2));
    assert_eq!(table.lookup(peer(5_000), at(2)).answer, Ok(WAY));
}

#[test]
fn it_says_how_many_questions_about_new_peers_are_left() {
    let mut table = EgressTable::new(1);
    assert_eq!(table.questions_left(at(10)), FIRST_QUESTIONS_BURST);
    for number in 0..FIRST_QUESTIONS_BURST {
        assert!(table.lookup(peer(number), at(10)).ask);
        assert_eq!(table.questions_left(at(10)), FIRST_QUESTIONS_BURST - number - 1);
    }
    assert!(!table.lookup(peer(FIRST_QUESTIONS_BURST), at(10)).ask);
    assert_eq!(u64::from(table.questions_left(at(11))), FIRST_QUESTIONS_PER_S);
}
