//! When an acknowledgement goes, and what it says: at once or late, windows, congestion marks, challenges.

use super::*;
use crate::config::Acks;

/// Challenges and other answers are not limited.
fn unlimited() -> Config {
    Config { challenge_interval: Duration::ZERO, super_segment: 0, ..Config::default() }
}

/// A connection that is not new any more: 16 segments of `len` bytes have come, and none is read.
fn used(config: Config, len: u32) -> (Rig, u32) {
    let mut rig = Rig::new(config, &SACK);
    for number in 0..16 {
        assert!(rig.data(1 + number * len, len as usize)[0].is_ack(1 + (number + 1) * len));
    }
    (rig, 1 + 16 * len)
}

/// Congestion notification was agreed on.
fn notified(config: Config) -> Rig {
    let mut rig = Rig::listening(config);
    rig.syn(0, Flags::SYN | Flags::ECE | Flags::CWR, &SACK);
    rig.say(1, 1, WINDOW, &[]);
    rig.id = rig.tcp.accept(ListenerId(0));
    assert!(rig.info().has_ecn);
    rig
}

#[test]
fn the_first_sixteen_acknowledgements_go_at_once_and_the_next_waits_40_ms() {
    for straight in [true, false] {
        let mut rig = Rig::new(Config::default(), &SACK);
        rig.tcp.straight = straight;
        for number in 0..16 {
            let said = rig.data(1 + number * 100, 100);
            assert!(said.len() == 1 && said[0].is_ack(101 + number * 100), "{number}: {said:?}");
        }
        assert!(rig.data(1601, 100).is_empty());
        assert!(rig.pass(milliseconds(39)).is_empty());
        let said = rig.pass(milliseconds(3));
        assert!(said.len() == 1 && said[0].is_ack(1701), "{said:?}");
        assert_eq!(rig.counters().delayed_acks, 1);
    }
}

#[test]
fn a_second_small_segment_does_not_put_the_acknowledgement_off() {
    let (mut rig, seq) = used(Config::default(), 100);
    assert!(rig.data(seq, 100).is_empty());
    rig.pass(milliseconds(30));
    assert!(rig.data(seq + 100, 100).is_empty());
    assert!(rig.pass(milliseconds(8)).is_empty());
    assert!(rig.pass(milliseconds(3))[0].is_ack(seq + 200));
    // The next one has a time of its own.
    assert!(rig.data(seq + 200, 100).is_empty());
    assert!(rig.pass(milliseconds(39)).is_empty());
    assert!(rig.pass(milliseconds(3))[0].is_ack(seq + 300));
    assert_eq!(rig.counters().delayed_acks, 2);
}

#[test]
fn more_than_one_full_segment_is_acknowledged_at_once() {
    let (mut rig, seq) = used(Config::default(), 1000);
    assert!(rig.data(seq, 1000).is_empty());
    assert!(rig.data(seq + 1000, 1000)[0].is_ack(seq + 2000));
    // To the byte.
    assert!(rig.data(seq + 2000, 999).is_empty());
    assert!(rig.data(seq + 2999, 1).is_empty());
    assert!(rig.data(seq + 3000, 1)[0].is_ack(seq + 3001));
    // Several that came as one.
    let payload = [7; 2000];
    let said = rig.take(Crafted { seq: seq + 3001, payload: &payload, unit: 1000, ..Crafted::default() });
    assert!(said[0].is_ack(seq + 5001));
    assert_eq!(rig.counters().delayed_acks, 0);
}

#[test]
fn every_second_segment_of_any_size_is_acknowledged_if_the_program_wants_it() {
    let mut rig = Rig::listening(Config::default());
    let options = Options { acks: Acks::EverySecond, ..Options::default() };
    rig.tcp.set_listener_options(ListenerId(0), options);
    rig.open(0, &SACK);
    for number in 0..4 {
        assert!(rig.data(1 + 2 * number, 1).is_empty(), "{number}");
        assert!(rig.data(2 + 2 * number, 1)[0].is_ack(3 + 2 * number), "{number}");
    }
    // A duplicate is answered at once, and makes nothing quicker.
    assert!(rig.data(8, 1)[0].is_ack(9));
    assert!(rig.data(9, 1).is_empty());
}

#[test]
fn a_program_that_wants_acknowledgements_at_once_gets_them() {
    let (mut rig, seq) = used(Config::default(), 100);
    assert!(rig.data(seq, 10).is_empty());
    rig.set(Options { quick_ack: true, ..Options::default() });
    assert!(rig.output()[0].is_ack(seq + 10));
    for number in 1..4 {
        assert!(rig.data(seq + 10 * number, 10)[0].is_ack(seq + 10 + 10 * number));
    }
    rig.set(Options::default());
    assert!(rig.data(seq + 40, 10).is_empty());
}

#[test]
fn data_out_of_order_and_what_fills_a_gap_are_acknowledged_at_once() {
    let (mut rig, seq) = used(Config::default(), 100);
    let said = rig.data(seq + 20, 10);
    assert!(said[0].is_ack(seq) && said[0].blocks() == [(seq + 20, seq + 30)], "{said:?}");
    // The gap is still there; it is filled.
    let said = rig.data(seq, 10);
    assert!(said[0].is_ack(seq + 10) && said[0].blocks() == [(seq + 20, seq + 30)], "{said:?}");
    let said = rig.data(seq + 10, 10);
    assert!(said[0].is_ack(seq + 30) && said[0].blocks().is_empty(), "{said:?}");
    assert!(rig.data(seq + 30, 10).is_empty());
}

#[test]
fn a_program_that_answers_takes_the_acknowledgement_along() {
    for straight in [true, false] {
        let mut rig = Rig::new(Config::default(), &SACK);
        rig.tcp.straight = straight;
        assert!(rig.data(1, 10)[0].is_ack(11));
        assert_eq!(rig.write(10).len(), 1);
        // The next one waits for the answer; a late acknowledgement says that none comes.
        assert!(rig.say(11, 11, WINDOW, &[7; 10]).is_empty());
        assert_eq!(rig.write(10)[0].ack, 21);
        assert!(rig.pass(milliseconds(39)).is_empty());
        assert!(rig.say(21, 21, WINDOW, &[7; 10]).is_empty());
        assert!(rig.pass(milliseconds(42))[0].is_ack(31));
        assert!(rig.say(31, 21, WINDOW, &[7; 10])[0].is_ack(41));
        assert_eq!(rig.counters().delayed_acks, 1);
    }
}

#[test]
fn what_is_written_later_than_40_ms_after_data_is_no_answer() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.data(1, 10);
    rig.pass(milliseconds(40));
    rig.write(10);
    assert!(rig.say(11, 11, WINDOW, &[7; 10])[0].is_ack(21));
}

#[test]
fn a_small_segment_that_is_read_without_an_answer_is_acknowledged() {
    let (mut rig, seq) = used(Config::default(), 100);
    rig.read(1600);
    assert!(rig.data(seq, 100).is_empty());
    assert!(rig.read(50).is_empty());
    assert!(rig.read(50)[0].is_ack(seq + 100));
}

#[test]
fn a_duplicate_makes_the_next_two_acknowledgements_quick() {
    let (mut rig, seq) = used(Config::default(), 100);
    assert!(rig.data(seq, 100).is_empty());
    let said = rig.data(seq, 100);
    assert!(said[0].is_ack(seq + 100) && said[0].blocks() == [(seq, seq + 100)], "{said:?}");
    assert!(rig.data(seq + 100, 100)[0].is_ack(seq + 200));
    assert!(rig.data(seq + 200, 100).is_empty());
}

#[test]
fn a_duplicate_ends_the_waiting_for_answers() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.data(1, 10);
    rig.write(10);
    assert!(rig.say(11, 11, WINDOW, &[7; 10]).is_empty());
    assert!(rig.say(1, 11, WINDOW, &[7; 10])[0].is_ack(21));
    assert!(rig.say(21, 11, WINDOW, &[7; 10])[0].is_ack(31));
}

#[test]
fn a_mark_is_echoed_at_once_until_the_peer_says_that_it_sends_less() {
    let mut rig = notified(Config::default());
    for number in 0..16 {
        assert!(!rig.data(1 + number * 10, 10)[0].has(Flags::ECE));
    }
    assert!(rig.data(161, 10).is_empty());
    let marked = Crafted { seq: 171, payload: &[7; 10], marked: true, ..Crafted::default() };
    let said = rig.take(marked);
    assert!(said.len() == 1 && said[0].is_ack(181) && said[0].has(Flags::ECE), "{said:?}");
    // One more is quick; then the echo waits with its acknowledgement, marked or not.
    assert!(rig.data(181, 10)[0].has(Flags::ECE));
    assert!(rig.take(Crafted { seq: 191, ..marked }).is_empty());
    assert_eq!(rig.info().delivered_ce, 2);
    assert!(rig.pass(milliseconds(42))[0].has(Flags::ECE));
    // Data has it, too, and says that it is capable.
    let said = rig.write(10);
    assert!(said[0].has(Flags::ECE) && said[0].capable, "{said:?}");

    let reduced =
        Crafted { ack: 11, flags: Flags::ACK | Flags::CWR, payload: &[7; 600], ..Crafted::default() };
    let said = rig.take(Crafted { seq: 201, marked: true, ..reduced });
    assert!(said[0].is_ack(801) && said[0].has(Flags::ECE), "{said:?}");
    let said = rig.take(Crafted { seq: 801, ..reduced });
    assert!(said[0].is_ack(1401) && !said[0].has(Flags::ECE), "{said:?}");
    assert!(!rig.write(10)[0].has(Flags::ECE));
    assert_eq!(rig.info().delivered_ce, 3);
}

#[test]
fn marks_mean_nothing_where_they_were_not_agreed_on() {
    let mut rig = Rig::new(Config::default(), &SACK);
    let said = rig.take(Crafted { payload: &[7; 10], marked: true, ..Crafted::default() });
    assert!(said[0].is_ack(11) && !said[0].has(Flags::ECE), "{said:?}");
    assert_eq!(rig.info().delivered_ce, 0);
    assert!(!rig.write(10)[0].capable);
}

#[test]
fn the_window_closes_with_what_is_not_read_and_opens_in_large_steps() {
    let mut rig = Rig::new(Config { receive_initial: 4000, ..Config::default() }, &SACK);
    rig.set(Options { quick_ack: true, ..Options::default() });
    for (seq, window) in [(1, 3000), (1001, 2000), (2001, 1000), (3001, 0)] {
        assert_eq!(rig.data(seq, 1000)[0].window, window);
    }
    // Half of a segment is not worth an update (RFC 9293 section 3.8.6.2.2); nor is less than twice the window.
    for (len, window) in
        [(999, None), (1, Some(1000)), (999, None), (1, Some(2000)), (1999, None), (1, Some(4000))]
    {
        let said = rig.read(len);
        assert_eq!(said.first().map(|said| said.window), window, "{len}");
        assert!(said.iter().all(|said| said.is_ack(4001)), "{said:?}");
    }
}

#[test]
fn a_window_smaller_than_a_segment_is_said_to_be_closed_but_never_shrinks() {
    let mut rig = Rig::new(Config { receive_initial: 4000, ..Config::default() }, &SACK);
    rig.set(Options { quick_ack: true, ..Options::default() });
    for (seq, window) in [(1, 3100), (901, 2200), (1801, 1300), (2701, 400)] {
        assert_eq!(rig.data(seq, 900)[0].window, window);
    }
    // What was offered is taken.
    assert_eq!(rig.data(3601, 400)[0].window, 0);
    assert!(rig.read(899).is_empty());
    // A probe is answered by no small window.
    assert_eq!(rig.data(4001, 1)[0].window, 0);
    assert_eq!(rig.read(1)[0].window, 900);
}

#[test]
fn the_acknowledgements_of_one_connection_are_half_a_second_apart_if_they_refuse() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.data(1, 10);
    let probe = |rig: &mut Rig| rig.data(10, 0).len();
    assert_eq!((probe(&mut rig), probe(&mut rig)), (1, 0));
    rig.pass(milliseconds(497));
    assert_eq!((probe(&mut rig), probe(&mut rig)), (0, 1));
    assert_eq!((rig.counters().challenges, rig.counters().challenges_suppressed), (0, 0));
    // Data and FIN are answered each time.
    for _ in 0..3 {
        assert_eq!(rig.data(1, 5).len(), 1);
        assert_eq!(rig.say_with(1, 1, Flags::ACK | Flags::FIN, WINDOW, &[], &[]).len(), 1);
    }
    // Challenges have the same limit.
    assert!(rig.say_with(20, 1, Flags::RST, WINDOW, &[], &[]).is_empty());
    assert_eq!((rig.counters().challenges, rig.counters().challenges_suppressed), (0, 1));
    rig.pass(milliseconds(492));
    assert_eq!(rig.say_with(20, 1, Flags::RST, WINDOW, &[], &[]).len(), 1);
    assert!(rig.say_with(20, 1, Flags::SYN, WINDOW, &[], &[]).is_empty());
    assert_eq!((rig.counters().challenges, rig.counters().challenges_suppressed), (1, 2));
}

#[test]
fn the_challenges_of_a_second_are_drawn_between_half_of_the_limit_and_all_of_it() {
    let mut rig = Rig::new(Config { challenges_per_second: 4, ..unlimited() }, &SACK);
    let (mut seen, mut asked) = (Vec::new(), 0);
    for _ in 1..20 {
        let begin = rig.now;
        let answers: Vec<usize> =
            (0..40).map(|_| rig.say_with(20, 1, Flags::RST, WINDOW, &[], &[]).len()).collect();
        let count = answers.iter().sum::<usize>();
        assert!(answers[..count].iter().all(|answers| *answers == 1), "{answers:?}");
        assert_eq!(rig.counters().challenges + rig.counters().challenges_suppressed, asked + 40);
        seen.push(count);
        // Exactly a second after the first one the next are drawn.
        rig.now = begin + milliseconds(999);
        assert!(rig.say_with(20, 1, Flags::SYN, WINDOW, &[], &[]).is_empty());
        asked += 41;
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [2, 3, 4]);
}

#[test]
fn the_receiver_takes_the_time_of_a_window_for_a_round_trip() {
    let mut rig = Rig::new(Config { receive_initial: 4000, ..Config::default() }, &SACK);
    let mut seq = 1;
    let mut next = |rig: &mut Rig, len: usize, wait_ms: u64| {
        rig.now += milliseconds(wait_ms - 1);
        rig.data(seq, len);
        seq += len as u32;
        rig.read(len);
    };
    // The first window ends at 4001; time counts from the handshake.
    for _ in 0..4 {
        next(&mut rig, 1000, 2);
        assert_eq!(rig.info().receive_rtt_us, 0);
    }
    next(&mut rig, 1, 2);
    assert_eq!(rig.info().receive_rtt_us, 10_000);
    // An eighth of the change, or all of it if the time is shorter.
    for (wait_ms, rtt_us) in [(8, 13_750), (1, 5000), (40, 29_375)] {
        for _ in 0..4 {
            let known_us = rig.info().receive_rtt_us;
            next(&mut rig, 1000, wait_ms);
            assert_eq!(rig.info().receive_rtt_us, known_us);
        }
        next(&mut rig, 1000, wait_ms);
        assert_eq!(rig.info().receive_rtt_us, rtt_us);
    }
}

#[test]
fn a_window_that_opens_while_time_outs_are_backed_off_leaves_them_so() {
    let mut rig = Rig::new(separate(), &[]);
    rig.write(2000);
    rig.pass(milliseconds(300));
    rig.pass(milliseconds(600));
    assert_eq!((rig.counters().timeouts, rig.info().backoff), (2, 2));
    assert!(rig.say(1, 1, WINDOW + 10, &[]).is_empty());
    assert_eq!((rig.info().backoff, rig.info().send_window), (2, u32::from(WINDOW) + 10));
}

#[test]
fn a_window_that_opens_while_it_is_probed_begins_the_time_of_probes_anew() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, 0, &[]);
    assert!(rig.write(2000).is_empty());
    rig.pass(milliseconds(300));
    rig.pass(milliseconds(600));
    assert_eq!((rig.counters().window_probes, rig.info().backoff), (2, 2));
    // Not wide enough for a segment.
    assert!(rig.say(1, 1, 10, &[]).is_empty());
    assert_eq!(rig.info().backoff, 0);
}

#[test]
fn blocks_that_find_no_room_beside_data_leave_by_themselves() {
    let mut rig = Rig::new(separate(), &SACK);
    assert_eq!(rig.write(20_000).len(), 10);
    // New data may leave, in full-sized segments, and a gap is to be reported.
    let said = rig.say(5001, 2001, WINDOW, &[7; 100]);
    assert!(said.iter().any(|said| said.len == 1000 && said.blocks().is_empty()), "{said:?}");
    let told: Vec<_> = said.iter().filter(|said| said.len == 0).map(Said::blocks).collect();
    assert_eq!(told, [[(5001, 5101)]]);
}

#[test]
fn by_rfc_793_resets_and_syns_within_the_window_end_the_connection() {
    for (flags, own) in
        [(Flags::RST, 0), (Flags::RST | Flags::ACK, 0), (Flags::SYN, 1), (Flags::SYN | Flags::ACK, 1)]
    {
        for (seq, ends) in [(1, true), (500, true), (65_535, true), (70_000, false), (0, false)] {
            let config = Config { challenge_resets: false, challenge_syns: false, ..unlimited() };
            let mut rig = Rig::new(config, &SACK);
            let said = rig.say_with(seq, 1, flags, WINDOW, &[], &[]);
            assert_eq!(rig.state() == TcpState::Close, ends, "{flags} {seq} {said:?}");
            let resets = said.iter().filter(|it| it.has(Flags::RST | Flags::ACK) && it.seq == 1).count();
            assert_eq!(resets, if ends { own } else { 0 }, "{flags} {seq} {said:?}");
        }
    }
}

#[test]
fn by_rfc_793_a_syn_within_the_window_ends_time_wait() {
    for (seq, ends) in [(2, true), (40_000, true), (1, false)] {
        let config = Config { challenge_syns: false, ..unlimited() };
        let mut rig = Rig::new(config, &SACK);
        rig.end();
        rig.say_with(1, 2, Flags::ACK | Flags::FIN, WINDOW, &[], &[]);
        assert_eq!(rig.tcp.count().2, 1);
        let said = rig.say_with(seq, 0, Flags::SYN, WINDOW, &[], &[]);
        assert_eq!(rig.tcp.count().2, usize::from(!ends), "{seq}");
        assert!(said.len() == 1 && said[0].has(Flags::RST | Flags::ACK) == ends, "{seq} {said:?}");
        assert_eq!((said[0].seq, said[0].ack), (2, 2));
    }
}

#[test]
fn by_the_rule_of_bsd_reading_a_small_segment_does_not_acknowledge_it() {
    for (acks, said) in [(Acks::Adaptive, 1), (Acks::EverySecond, 0)] {
        let (mut rig, seq) = used(Config::default(), 100);
        rig.set(Options { acks, ..Options::default() });
        rig.read(1600);
        assert!(rig.data(seq, 100).is_empty());
        assert_eq!(rig.read(100).len(), said, "{acks:?}");
    }
}
