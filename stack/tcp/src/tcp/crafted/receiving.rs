//! What is accepted: the checks of RFC 9293 section 3.10.7.4 with those of RFC 5961 and RFC 7323, data and FIN.

use super::*;
use crate::state::Ended;

/// The states of a connection in which segments are checked.
const STATES: [TcpState; 7] = [
    TcpState::SynRecv,
    TcpState::Established,
    TcpState::FinWait1,
    TcpState::FinWait2,
    TcpState::CloseWait,
    TcpState::Closing,
    TcpState::LastAck,
];

const FIN: u8 = Flags::ACK | Flags::FIN;

/// Challenges and other answers are not limited.
fn unlimited() -> Config {
    Config { challenge_interval: Duration::ZERO, super_segment: 0, ..Config::default() }
}

/// A connection without SACK and timestamps in a state; the next number of the peer, and what the peer has
/// acknowledged.
fn reach(state: TcpState) -> (Rig, u32, u32) {
    if state == TcpState::SynRecv {
        let (mut rig, _) = Rig::connecting(unlimited(), Options::default());
        rig.say_with(0, 0, Flags::SYN, WINDOW, &[], &[]);
        return (rig, 1, 1);
    }
    let mut rig = Rig::new(unlimited(), &[]);
    let (mut next, mut ack) = (1, 1);
    if matches!(state, TcpState::CloseWait | TcpState::LastAck) {
        rig.say_with(1, 1, FIN, WINDOW, &[], &[]);
        next = 2;
    }
    if matches!(state, TcpState::FinWait1 | TcpState::FinWait2 | TcpState::Closing | TcpState::LastAck) {
        rig.end();
    }
    if state == TcpState::FinWait2 {
        rig.say(1, 2, WINDOW, &[]);
        ack = 2;
    }
    if state == TcpState::Closing {
        rig.say_with(1, 1, FIN, WINDOW, &[], &[]);
        next = 2;
    }
    assert_eq!(rig.state(), state);
    (rig, next, ack)
}

/// A connection whose peer has said the time 100,000 in its SYN.
fn stamped() -> Rig {
    let offer = Offer { mss: 1000, sack: true, stamp: Some(100_000), scale: Some(1) };
    Rig::new(unlimited(), &offer.bytes())
}

/// A segment with timestamps; the window is that of the handshake.
fn at_time(rig: &mut Rig, value: u32, crafted: Crafted<'_>) -> Vec<Said> {
    rig.take(Crafted { options: &stamps(value, 0), ..crafted })
}

/// Both ways of the engine must do the same: `fast.rs`, and the general one.
fn both(config: &Config, syn_options: &[u8], test: impl Fn(Rig)) {
    for straight in [true, false] {
        let mut rig = Rig::new(config.clone(), syn_options);
        rig.tcp.straight = straight;
        test(rig);
    }
}

#[test]
fn a_reset_with_the_next_number_ends_every_state_without_an_answer() {
    for state in STATES {
        let (mut rig, next, ack) = reach(state);
        assert!(rig.say_with(next, ack, Flags::RST, WINDOW, &[], &[]).is_empty());
        let ended = if state == TcpState::SynRecv { Ended::Refused } else { Ended::Reset };
        assert_eq!((rig.info().ended, rig.state()), (Some(ended), TcpState::Close), "{state:?}");
        assert_eq!((rig.counters().resets, rig.counters().challenges), (1, 0));
        assert_eq!(rig.tcp.count().2, 0);
    }
}

#[test]
fn a_reset_with_another_number_of_the_window_is_challenged_in_every_state() {
    for state in STATES {
        let (mut rig, next, ack) = reach(state);
        let edge = next + rig.info().receive_window;
        for (count, seq) in [(1, next + 1), (2, edge)] {
            let said = rig.say_with(seq, ack, Flags::RST, WINDOW, &[], &[]);
            assert!(said.len() == 1 && said[0].is_ack(next), "{state:?} {seq}: {said:?}");
            assert_eq!((rig.state(), rig.counters().challenges), (state, count));
        }
        assert_eq!(rig.counters().out_of_window, 0);
    }
}

#[test]
fn a_reset_outside_of_the_window_is_left_in_every_state() {
    for state in STATES {
        let (mut rig, next, ack) = reach(state);
        let edge = next + rig.info().receive_window;
        for (count, seq) in [(1, next - 1), (2, edge + 1)] {
            assert!(rig.say_with(seq, ack, Flags::RST, WINDOW, &[], &[]).is_empty(), "{state:?} {seq}");
            assert_eq!((rig.state(), rig.counters().out_of_window), (state, count));
        }
    }
}

#[test]
fn a_syn_is_challenged_in_every_state_wherever_it_lies() {
    for state in STATES {
        let (mut rig, next, ack) = reach(state);
        let edge = next + rig.info().receive_window;
        let seqs = [(next, 0), (next + 5, 0), (edge + 1, 1), (next.wrapping_sub(2), 2)];
        for (count, (seq, outside)) in (1..).zip(seqs) {
            let said = rig.say_with(seq, ack, Flags::SYN | Flags::ACK, WINDOW, &[], &[]);
            assert!(said.len() == 1 && said[0].is_ack(next), "{state:?} {seq}: {said:?}");
            assert_eq!((rig.state(), rig.counters().challenges), (state, count));
            assert_eq!(rig.counters().out_of_window, outside, "{state:?} {seq}");
        }
        // That of the handshake once more.
        if state != TcpState::SynRecv {
            let said = rig.say_with(0, 1, Flags::SYN | Flags::ACK, WINDOW, &[], &[]);
            assert!(said.len() == 1 && said[0].is_ack(next), "{state:?}: {said:?}");
            assert_eq!((rig.state(), rig.counters().challenges), (state, 5));
        }
    }
}

#[test]
fn a_segment_without_an_acknowledgement_is_counted_and_left_in_every_state() {
    for state in STATES {
        let (mut rig, next, ack) = reach(state);
        assert!(rig.say_with(next, ack, Flags::PSH, WINDOW, &[], b"x").is_empty());
        assert_eq!((rig.state(), rig.counters().bad_flags, rig.info().queued), (state, 1, 0), "{state:?}");
    }
}

#[test]
fn a_reset_at_the_end_of_what_came_last_is_exact_for_an_end_that_reports_it() {
    let mut rig = Rig::new(unlimited(), &SACK);
    rig.data(101, 50);
    assert!(rig.say_with(151, 1, Flags::RST, WINDOW, &[], &[]).is_empty());
    assert_eq!(rig.info().ended, Some(Ended::Reset));

    let mut rig = Rig::new(unlimited(), &[]);
    rig.data(101, 50);
    assert!(rig.say_with(151, 1, Flags::RST, WINDOW, &[], &[])[0].is_ack(1));
    assert_eq!(rig.info().ended, None);
}

#[test]
fn data_is_taken_up_to_the_edge_of_the_window_and_not_behind_it() {
    let config = Config { receive_initial: 2000, ..unlimited() };
    both(&config, &SACK, |mut rig| {
        // It begins at the edge; behind it.
        for (count, seq) in [(1, 2001), (2, 2002)] {
            let said = rig.data(seq, 10);
            assert!(said[0].is_ack(1) && said[0].blocks().is_empty(), "{said:?}");
            assert_eq!(rig.counters().out_of_window, count);
        }
        // The last byte of the window.
        assert_eq!(rig.data(2000, 10)[0].blocks(), [(2000, 2001)]);
        // All but that byte, and more than there is room for.
        let said = rig.data(1, 3000);
        assert!(said[0].is_ack(2001) && said[0].window == 0, "{said:?}");
        assert_eq!((rig.info().queued, rig.info().bytes_received), (2000, 2000));
    });
}

#[test]
fn a_fin_behind_the_edge_of_the_window_is_cut_off_with_the_data_before_it() {
    let config = Config { receive_initial: 2000, ..unlimited() };
    both(&config, &SACK, |mut rig| {
        let said = rig.say_with(1, 1, FIN, WINDOW, &[], &[7; 2001]);
        assert!(said[0].is_ack(2001), "{said:?}");
        assert_eq!(rig.state(), TcpState::Established);
        // A closed window takes no byte, but FIN alone.
        let said = rig.say_with(2001, 1, FIN, WINDOW, &[], &[7]);
        assert!(said[0].is_ack(2001), "{said:?}");
        assert_eq!((rig.state(), rig.counters().out_of_window), (TcpState::Established, 1));
        let said = rig.say_with(2001, 1, FIN, WINDOW, &[], &[]);
        assert!(said[0].is_ack(2002), "{said:?}");
        assert_eq!((rig.state(), rig.counters().out_of_window), (TcpState::CloseWait, 1));
    });
}

#[test]
fn a_probe_of_a_closed_window_is_answered_and_left() {
    let config = Config { receive_initial: 2000, ..unlimited() };
    both(&config, &SACK, |mut rig| {
        rig.data(1, 2000);
        for count in 1..4 {
            let said = rig.data(2001, 1);
            assert!(said.len() == 1 && said[0].is_ack(2001) && said[0].window == 0, "{said:?}");
            assert_eq!((rig.counters().out_of_window, rig.info().queued), (count, 2000));
        }
    });
}

#[test]
fn what_is_known_is_skipped_and_reported() {
    both(&unlimited(), &SACK, |mut rig| {
        rig.say(1, 1, WINDOW, b"abcdef");
        // All of it; its end.
        let said = rig.say(3, 1, WINDOW, b"cdef");
        assert!(said[0].is_ack(7) && said[0].blocks() == [(3, 7)], "{said:?}");
        assert_eq!(rig.counters().duplicates_in, 1);
        let said = rig.say(4, 1, WINDOW, b"defgh");
        assert!(said[0].is_ack(9) && said[0].blocks() == [(4, 7)], "{said:?}");
        assert_eq!((rig.counters().duplicates_in, rig.counters().out_of_window), (2, 0));
        // It ends before what was acknowledged last.
        let said = rig.say(2, 1, WINDOW, b"bcd");
        assert!(said[0].is_ack(9) && said[0].blocks() == [(2, 5)], "{said:?}");
        assert_eq!((rig.counters().duplicates_in, rig.counters().out_of_window), (3, 1));
        assert_eq!(rig.stream().received(), b"abcdefgh");
        assert_eq!(rig.info().bytes_received, 8);
    });
}

#[test]
fn a_refused_segment_of_the_future_or_without_data_is_no_duplicate() {
    let mut rig = Rig::new(unlimited(), &SACK);
    rig.data(1, 10);
    // A keepalive probe; behind the window.
    for (count, seq, len) in [(1, 10, 0), (2, 70_000, 5)] {
        let said = rig.data(seq, len);
        assert!(said.len() == 1 && said[0].is_ack(11) && said[0].blocks().is_empty(), "{said:?}");
        assert_eq!((rig.counters().out_of_window, rig.counters().duplicates_in), (count, 0));
    }
}

#[test]
fn duplicates_are_not_reported_unless_that_is_wanted_and_sack_was_agreed_on() {
    let silent = Config { dsack: false, ..unlimited() };
    for (config, options) in [(silent, &SACK[..]), (unlimited(), &SACK[..4])] {
        both(&config, options, |mut rig| {
            rig.data(1, 10);
            let said = rig.data(1, 10);
            assert!(said.len() == 1 && said[0].is_ack(11) && said[0].blocks().is_empty(), "{said:?}");
        });
    }
}

#[test]
fn what_came_out_of_order_twice_is_reported_before_the_block_that_holds_it() {
    let mut rig = Rig::new(unlimited(), &SACK);
    assert_eq!(rig.data(101, 100)[0].blocks(), [(101, 201)]);
    assert_eq!(rig.data(301, 100)[0].blocks(), [(301, 401), (101, 201)]);
    assert_eq!(rig.data(151, 100)[0].blocks(), [(151, 201), (101, 251), (301, 401)]);
    assert_eq!((rig.counters().out_of_order, rig.info().out_of_order), (3, 3));
    // In order, over a part of the first block.
    let said = rig.data(1, 120);
    assert!(said[0].is_ack(251), "{said:?}");
    assert_eq!(said[0].blocks(), [(101, 121), (301, 401)]);
    // All of the second, and more.
    let said = rig.data(251, 300);
    assert!(said[0].is_ack(551), "{said:?}");
    assert_eq!(said[0].blocks(), [(301, 401)]);
    assert_eq!((rig.info().queued, rig.info().bytes_received), (550, 550));
}

#[test]
fn a_duplicate_is_reported_by_the_first_acknowledgement_that_leaves() {
    let mut rig = Rig::new(unlimited(), &SACK);
    rig.data(1, 10);
    let again = Crafted { payload: &[7; 10], ..Crafted::default() };
    assert!(rig.take_with(again, &mut Later, true).is_empty());
    let said = rig.output();
    assert!(said[0].is_ack(11) && said[0].blocks() == [(1, 11)], "{said:?}");
    // And once.
    assert!(rig.data(11, 10)[0].blocks().is_empty());
}

#[test]
fn an_old_stamp_is_refused_and_what_it_came_with_is_a_duplicate_if_it_is_old() {
    both(
        &unlimited(),
        &Offer { mss: 1000, sack: true, stamp: Some(100_000), scale: None }.bytes(),
        |mut rig| {
            let new = Crafted { payload: b"abc", ..Crafted::default() };
            let said = at_time(&mut rig, 99_999, new);
            assert!(said[0].is_ack(1) && said[0].blocks().is_empty(), "{said:?}");
            assert_eq!((rig.counters().paws_rejected, rig.counters().duplicates_in), (1, 0));
            assert!(at_time(&mut rig, 100_000, new)[0].is_ack(4));
            let said = at_time(&mut rig, 99_999, new);
            assert!(said[0].is_ack(4) && said[0].blocks() == [(1, 4)], "{said:?}");
            assert_eq!((rig.counters().paws_rejected, rig.counters().duplicates_in), (2, 1));
            // Without the option it is taken, and so is a reset of any time.
            assert!(rig.say(4, 1, WINDOW, b"d")[0].is_ack(5));
            at_time(&mut rig, 99_999, Crafted { seq: 5, flags: Flags::RST, ..Crafted::default() });
            assert_eq!((rig.info().ended, rig.counters().paws_rejected), (Some(Ended::Reset), 2));
        },
    );
}

#[test]
fn stamps_that_were_not_agreed_on_are_not_compared() {
    both(&unlimited(), &SACK, |mut rig| {
        at_time(&mut rig, 100_000, Crafted { payload: b"a", ..Crafted::default() });
        at_time(&mut rig, 1, Crafted { seq: 2, payload: b"b", ..Crafted::default() });
        assert_eq!((rig.info().queued, rig.counters().paws_rejected), (2, 0));
    });
}

#[test]
fn an_acknowledgement_that_was_overtaken_is_taken_if_it_says_nothing_new() {
    let mut rig = stamped();
    let window = (rig.info().send_window >> 1) as u16;
    let late_ms = rig.info().rto_us / 1000;
    let plain = Crafted { window, ..Crafted::default() };
    assert!(at_time(&mut rig, 100_000 - late_ms, plain).is_empty());
    assert_eq!(rig.counters().paws_rejected, 0);
    rig.write(10);
    let others = [
        (late_ms + 1, plain),
        (1, Crafted { ack: 5, ..plain }),
        (1, Crafted { seq: 2, ..plain }),
        (1, Crafted { window: window + 1, ..plain }),
        (1, Crafted { payload: b"x", ..plain }),
        (1, Crafted { flags: FIN, ..plain }),
        (1, Crafted { flags: Flags::PSH, ..plain }),
    ];
    for (count, (age, crafted)) in (1..).zip(others) {
        let said = at_time(&mut rig, 100_000 - age, crafted);
        assert!(said.len() == 1 && said[0].is_ack(1), "{count}: {said:?}");
        assert_eq!(rig.counters().paws_rejected, count);
    }
}

#[test]
fn after_24_days_stamps_are_not_compared() {
    let days = |count: u64| Duration::from_secs(count * 86_400);
    for (age, taken) in [(days(2), false), (days(24) - milliseconds(1), false), (days(24), true)] {
        let mut rig =
            Rig::new(unlimited(), &Offer { mss: 1000, stamp: Some(100_000), ..Offer::default() }.bytes());
        // The stamp came with the SYN, a millisecond before the connection was there.
        rig.now = Instant::from_nanos(1 << 40) + milliseconds(1) + age;
        let said = at_time(&mut rig, 99_999, Crafted { payload: b"abc", ..Crafted::default() });
        assert_eq!(rig.info().queued, if taken { 3 } else { 0 }, "{age:?}: {said:?}");
        assert_eq!(rig.counters().paws_rejected, u64::from(!taken));
    }
}

#[test]
fn stamps_are_compared_across_the_wrap_of_their_clock() {
    let offer = Offer { mss: 1000, stamp: Some(u32::MAX), ..Offer::default() };
    both(&unlimited(), &offer.bytes(), |mut rig| {
        at_time(&mut rig, 5, Crafted { payload: b"a", ..Crafted::default() });
        at_time(&mut rig, u32::MAX, Crafted { seq: 2, payload: b"b", ..Crafted::default() });
        assert_eq!((rig.info().queued, rig.counters().paws_rejected), (1, 1));
    });
}

#[test]
fn a_fin_is_acknowledged_at_once_in_every_state_that_waits_for_one() {
    let after = [
        (TcpState::Established, TcpState::CloseWait, 0),
        (TcpState::FinWait1, TcpState::Closing, 0),
        (TcpState::FinWait2, TcpState::Close, 1),
    ];
    for (before, after, waiting) in after {
        let (mut rig, next, ack) = reach(before);
        let said = rig.say_with(next, ack, FIN, WINDOW, &[], b"abc");
        assert!(said.len() == 1 && said[0].is_ack(next + 4), "{before:?}: {said:?}");
        assert_eq!((rig.state(), rig.tcp.count().2), (after, waiting), "{before:?}");
        let events = core::iter::from_fn(|| rig.tcp.next_event()).fold(0, |all, (_, events)| all | events.0);
        assert!(Events(events).has(Events::READABLE));
        assert_eq!(rig.stream().received(), b"abc");
        rig.read(3);
        assert!(rig.stream().is_at_end());
    }
}

#[test]
fn a_fin_that_acknowledges_that_of_the_engine_ends_both_directions() {
    let (mut rig, ..) = reach(TcpState::FinWait1);
    assert!(rig.say_with(1, 2, FIN, WINDOW, &[], &[])[0].is_ack(2));
    assert_eq!((rig.state(), rig.info().ended), (TcpState::Close, Some(Ended::Finished)));
    assert_eq!(rig.tcp.count().2, 1);
    // The record answers a copy.
    assert!(rig.say_with(1, 2, FIN, WINDOW, &[], &[])[0].is_ack(2));
}

#[test]
fn the_acknowledgement_of_the_last_fin_ends_the_connection() {
    for (state, waiting) in [(TcpState::Closing, 1), (TcpState::LastAck, 0)] {
        let (mut rig, next, _) = reach(state);
        assert!(rig.say(next, 2, WINDOW, &[]).is_empty());
        assert_eq!((rig.state(), rig.info().ended), (TcpState::Close, Some(Ended::Finished)), "{state:?}");
        assert_eq!(rig.tcp.count().2, waiting, "{state:?}");
    }
}

#[test]
fn in_time_wait_a_reset_changes_nothing_and_a_syn_opens_only_behind_all_that_came() {
    let (mut rig, ..) = reach(TcpState::FinWait2);
    rig.say_with(1, 2, FIN, WINDOW, &[], &[]);
    rig.close();
    for seq in [1, 2, 3] {
        assert!(rig.say_with(seq, 2, Flags::RST, WINDOW, &[], &[]).is_empty(), "{seq}");
    }
    for (seq, flags) in [(2, Flags::SYN), (1, Flags::SYN), (0, Flags::SYN | Flags::ACK), (1, FIN)] {
        let said = rig.say_with(seq, 2, flags, WINDOW, &[], &[]);
        assert!(said.len() == 1 && said[0].is_ack(2) && said[0].seq == 2, "{seq} {flags:#x}: {said:?}");
        assert_eq!(rig.tcp.count(), (0, 0, 1));
    }
    let said = rig.say_with(3, 0, Flags::SYN, WINDOW, &[], &[]);
    assert!(said.len() == 1 && said[0].flags == Flags::SYN | Flags::ACK && said[0].ack == 4, "{said:?}");
    // Its numbers begin above those of the connection before (RFC 6191).
    assert!(said[0].seq > 65_536 && said[0].seq < 1 << 31, "{said:?}");
    assert_eq!(rig.tcp.count(), (0, 1, 0));
}

#[test]
fn behind_a_fin_everything_is_answered_and_nothing_taken() {
    for state in [TcpState::CloseWait, TcpState::Closing, TcpState::LastAck] {
        let (mut rig, next, ack) = reach(state);
        for (seq, flags, payload) in
            [(next - 1, FIN, &b""[..]), (next, FIN, b""), (next, Flags::ACK, b"abc"), (next, FIN, b"abc")]
        {
            let said = rig.say_with(seq, ack, flags, WINDOW, &[], payload);
            assert!(said.len() == 1 && said[0].is_ack(next), "{state:?} {seq}: {said:?}");
            assert_eq!((rig.state(), rig.info().queued), (state, 0));
        }
    }
}

#[test]
fn a_fin_that_came_too_early_is_taken_when_all_before_it_is_there() {
    for early in [&b""[..], b"xyz"] {
        for read in [true, false] {
            both(&unlimited(), &SACK, |mut rig| {
                let end = 11 + early.len() as u32;
                if !read {
                    rig.data(1, 2);
                }
                let said = rig.say_with(11, 1, FIN, WINDOW, &[], early);
                let first = if read { 1 } else { 3 };
                assert!(said.len() == 1 && said[0].is_ack(first), "{said:?}");
                // A part of what is missing, and all.
                assert!(rig.data(first, 4)[0].is_ack(first + 4));
                assert_eq!(rig.state(), TcpState::Established);
                let said = rig.data(first + 4, (7 - first) as usize);
                assert!(said.len() == 1 && said[0].is_ack(end + 1), "{said:?}");
                assert_eq!((rig.state(), rig.info().queued), (TcpState::CloseWait, end - 1));
            });
        }
    }
}

#[test]
fn a_fin_alone_that_came_too_early_holds_with_all_data_read() {
    both(&unlimited(), &SACK, |mut rig| {
        assert!(rig.say_with(21, 1, FIN, WINDOW, &[], &[])[0].is_ack(1));
        rig.data(1, 10);
        rig.read(10);
        assert_eq!(rig.state(), TcpState::Established);
        assert!(rig.data(11, 10)[0].is_ack(22));
        assert_eq!(rig.state(), TcpState::CloseWait);
    });
}

#[test]
fn a_fin_is_taken_behind_bytes_that_nobody_has_read() {
    for payload in [&b""[..], b"abc"] {
        both(&unlimited(), &SACK, |mut rig| {
            rig.data(1, 10);
            let said = rig.say_with(11, 1, FIN, WINDOW, &[], payload);
            assert!(said[0].is_ack(12 + payload.len() as u32), "{said:?}");
            assert_eq!(rig.state(), TcpState::CloseWait);
        });
    }
}

#[test]
fn data_without_its_fin_ends_nothing() {
    let mut rig = Rig::new(unlimited(), &SACK);
    rig.data(1, 10);
    rig.data(21, 10);
    assert!(rig.data(11, 10)[0].is_ack(31));
    rig.say_with(41, 1, FIN, WINDOW, &[], &[]);
    // It holds the number before that FIN.
    assert!(rig.data(31, 9)[0].is_ack(40));
    assert_eq!(rig.state(), TcpState::Established);
}

#[test]
fn new_data_for_a_connection_that_nobody_holds_resets_it() {
    for end in [false, true] {
        let (mut rig, next, ack) = reach(TcpState::Established);
        rig.say(next, ack, WINDOW, b"abc");
        rig.read(3);
        rig.close();
        // What was read, and an end without data, are no reason.
        let said = rig.say(next, ack, WINDOW, b"abc");
        assert!(said.len() == 1 && said[0].is_ack(4), "{said:?}");
        if end {
            assert!(rig.say_with(4, 2, FIN, WINDOW, &[], &[])[0].is_ack(5));
            assert_eq!((rig.counters().resets_out, rig.tcp.count()), (0, (0, 0, 1)));
            continue;
        }
        let said = rig.say(3, 1, WINDOW, b"cd");
        assert!(said.len() == 1 && (said[0].flags, said[0].seq) == (Flags::RST, 1), "{said:?}");
        assert_eq!((rig.counters().resets_out, rig.counters().resets), (1, 1));
        assert_eq!(rig.tcp.count(), (0, 0, 0));
    }
}

#[test]
fn until_the_reset_of_a_connection_has_left_its_segments_are_answered_by_resets() {
    let (mut rig, ..) = reach(TcpState::Established);
    rig.tcp.abort(rig.now, rig.id());
    let full = Crafted { payload: b"abc", ..Crafted::default() };
    assert!(rig.take_with(full, &mut Later, true).is_empty());
    let said = rig.say(1, 1, WINDOW, b"abc");
    let found: Vec<_> = said.iter().map(|said| (said.flags, said.seq)).collect();
    assert_eq!(found, [(Flags::RST, 1), (Flags::RST | Flags::ACK, 1)]);
    assert_eq!(rig.tcp.count().0, 0);

    let (mut rig, ..) = reach(TcpState::Established);
    rig.tcp.abort(rig.now, rig.id());
    let said = rig.say_with(1, 1, Flags::RST, WINDOW, &[], &[]);
    assert!(said.len() == 1 && said[0].flags == Flags::RST | Flags::ACK, "{said:?}");
}

#[test]
fn a_segment_of_several_counts_as_so_many() {
    both(&unlimited(), &SACK, |mut rig| {
        let before = rig.info();
        rig.take(Crafted { payload: &[7; 2500], unit: 1000, ..Crafted::default() });
        let info = rig.info();
        assert_eq!((info.segments_in - before.segments_in, info.data_segments_in), (3, 3));
        assert_eq!((info.receive_mss, info.bytes_received), (1000, 2500));
        // An acknowledgement alone is one segment.
        rig.take(Crafted { seq: 2501, unit: 1000, ..Crafted::default() });
        rig.take(Crafted { seq: 2501, payload: &[7; 10], ..Crafted::default() });
        let info = rig.info();
        assert_eq!((info.segments_in - before.segments_in, info.data_segments_in), (5, 4));
    });
}

#[test]
fn the_size_of_the_segments_of_the_peer_is_the_largest_or_one_that_comes_twice() {
    let push = Flags::ACK | Flags::PSH;
    // Length, unit, flags, and the size that is known then.
    let steps = [
        (1, 0, Flags::ACK, 536),
        (700, 0, push, 700),
        (3000, 0, Flags::ACK, 1460),
        (700, 0, Flags::ACK, 1460),
        (800, 0, Flags::ACK, 1460),
        (700, 0, Flags::ACK, 1460),
        (700, 0, push, 1460),
        (700, 0, Flags::ACK, 700),
        (1000, 0, push, 1000),
        (535, 0, Flags::ACK, 1000),
        (535, 0, Flags::ACK, 1000),
        (536, 0, Flags::ACK, 1000),
        (536, 0, Flags::ACK, 536),
        (2896, 1448, push, 1448),
        (1800, 600, Flags::ACK, 1448),
        (1800, 600, Flags::ACK, 600),
        (9000, 9000, Flags::ACK, 9000),
    ];
    both(&unlimited(), &SACK, |mut rig| {
        let mut seq = 1;
        for (at, (len, unit, flags, size)) in steps.into_iter().enumerate() {
            rig.take(Crafted { seq, flags, payload: &vec![7; len], unit, ..Crafted::default() });
            seq += len as u32;
            assert_eq!(rig.info().receive_mss, size, "{at}: {len} of {unit}");
            rig.read(len);
        }
    });
}

/// An engine of 20 KiB, of which a connection that waits for its SYN to be answered holds 16.
fn short() -> (Rig, ConnectionId) {
    let mut rig = Rig::new(Config { memory: 20 << 10, ..unlimited() }, &SACK);
    let hoarder = rig.tcp.connect(rig.now, PEER.into(), SERVER.into(), Options::default());
    let hoarder = hoarder.expect("opens");
    let mut stream = rig.tcp.stream(rig.now, hoarder).expect("is there");
    assert_eq!(stream.write(&[1; 16_000]), 16_000);
    rig.output();
    assert_eq!(rig.tcp.memory(), 16 << 10);
    (rig, hoarder)
}

#[test]
fn while_memory_is_short_only_what_is_in_order_is_taken() {
    let (mut rig, hoarder) = short();
    let said = rig.data(101, 100);
    assert!(said.len() == 1 && said[0].is_ack(1) && said[0].blocks().is_empty(), "{said:?}");
    assert_eq!((rig.counters().no_memory, rig.counters().out_of_order, rig.info().queued), (1, 0, 0));
    assert!(rig.data(1, 100)[0].is_ack(101));
    assert!(rig.data(101, 100)[0].is_ack(201));
    // What does not fit behind it.
    let said = rig.data(201, 4000);
    assert!(said.len() == 1 && said[0].is_ack(201), "{said:?}");
    assert_eq!((rig.counters().no_memory, rig.info().bytes_received, rig.info().queued), (2, 200, 200));
    rig.tcp.abort(rig.now, hoarder);
    rig.output();
    assert!(rig.data(201, 4000)[0].is_ack(4201));
    assert_eq!(rig.data(5001, 100)[0].blocks(), [(5001, 5101)]);
    assert_eq!((rig.counters().no_memory, rig.counters().out_of_order), (2, 1));
}

#[test]
fn what_finds_no_memory_has_not_arrived() {
    let (mut rig, hoarder) = short();
    let said = rig.data(1, 5000);
    assert!(said.len() == 1 && said[0].is_ack(1), "{said:?}");
    let info = rig.info();
    assert_eq!((info.bytes_received, info.queued, rig.counters().no_memory), (0, 0, 1));
    // FIN behind it has not come either.
    assert!(rig.say_with(1, 1, FIN, WINDOW, &[], &[7; 5000])[0].is_ack(1));
    assert_eq!(rig.state(), TcpState::Established);
    rig.tcp.abort(rig.now, hoarder);
    rig.output();
    assert!(rig.say_with(1, 1, FIN, WINDOW, &[], &[7; 5000])[0].is_ack(5002));
    assert_eq!((rig.state(), rig.info().bytes_received), (TcpState::CloseWait, 5000));
}

/// Answers by ten bytes, and uses nothing of what has come.
struct Answers;

impl Host for Answers {
    fn received(&mut self, _: Instant, _: ConnectionId, stream: &mut Stream<'_>) {
        assert_eq!(stream.write(&[7; 10]), 10);
    }
}

#[test]
fn what_the_program_leaves_has_not_arrived_if_its_answer_has_taken_the_last_memory() {
    for flags in [Flags::ACK, FIN] {
        let (mut rig, _) = short();
        let crafted = Crafted { flags, payload: b"abc", ..Crafted::default() };
        let said = rig.take_with(crafted, &mut Answers, false);
        assert!(said.len() == 1 && (said[0].len, said[0].ack) == (10, 1), "{said:?}");
        let info = rig.info();
        assert_eq!((info.bytes_received, info.queued, rig.counters().no_memory), (0, 0, 1));
        assert_eq!(rig.state(), TcpState::Established);
    }
}

#[test]
fn more_gaps_than_are_kept_are_refused() {
    let mut rig = Rig::new(unlimited(), &SACK);
    for gap in 0..128 {
        let seq = 3 + 2 * gap;
        assert_eq!(rig.data(seq, 1)[0].blocks()[0], (seq, seq + 1));
    }
    let said = rig.data(301, 1);
    assert!(said.len() == 1 && said[0].is_ack(1) && said[0].blocks()[0] == (257, 258), "{said:?}");
    assert_eq!(rig.counters().no_memory, 1);
    // What fills a gap is taken.
    assert_eq!(rig.data(4, 1)[0].blocks()[0], (3, 6));
    assert!(rig.data(1, 2)[0].is_ack(6));
    assert_eq!(rig.counters().no_memory, 1);
}
