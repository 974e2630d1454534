//! What acknowledgements change: the window, what is in flight, round trips, and the congestion window.

use super::steps::{RTT, STAMPS, without_probe};
use super::*;
use crate::state::Network;
use crate::{CongestionKind, Ended};

/// The smoothed round trip after one of `second_us` has followed the handshake's.
fn smoothed(second_us: u32) -> u32 {
    (7 * 20_000 + second_us) / 8
}

/// A connection with ECN and SACK.
fn with_ecn() -> Rig {
    Rig::established(without_probe(), Options::default(), Flags::ECE | Flags::CWR, &SACK)
}

fn with_options(options: Options) -> Rig {
    Rig::established(without_probe(), options, 0, &SACK)
}

#[test]
fn an_old_acknowledgement_is_answered_only_if_it_is_older_than_the_largest_window() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(1000);
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!(rig.say(1, 1, 60_000, &[]), []);
    assert_eq!(rig.say(1, 1001_u32.wrapping_sub(60_000), 60_000, &[]), []);
    assert_eq!(rig.counters().ack_out_of_range, 0);
    let said = rig.say(1, 1001_u32.wrapping_sub(60_001), 60_000, &[]);
    assert_eq!(rig.brief(&said), [(1001, 0)]);
    assert_eq!((rig.counters().ack_out_of_range, rig.counters().challenges), (1, 1));
    assert_eq!(rig.info().unacked, 0);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_takes_its_data_along() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(1000);
    let said = rig.say(1, 1002, 60_000, &[7; 10]);
    assert_eq!((said.len(), said[0].ack), (1, 1), "{said:?}");
    assert_eq!((rig.counters().ack_out_of_range, rig.info().unacked), (1, 1));
    rig.say(1, 1001, 60_000, &[7; 10]);
    assert_eq!((rig.counters().ack_out_of_range, rig.info().unacked, rig.info().queued), (1, 0, 10));
}

#[test]
fn an_old_acknowledgement_brings_its_data_and_its_blocks_but_no_window() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.say(1, 2001, 60_000, &[]);
    rig.say(1, 1, 5000, &[7; 10]);
    assert_eq!((rig.info().queued, rig.info().send_window, rig.info().network), (10, 60_000, Network::Open));
    rig.blocks(11, 1, &[[6001, 8001]], &[]);
    let info = rig.info();
    assert_eq!((info.sacked, info.network, info.unacked), (2, Network::Disorder, 6));
}

#[test]
fn a_segment_that_is_not_newer_may_open_or_close_the_window_and_nothing_between() {
    let mut rig = Rig::sacking(without_probe());
    rig.say(1, 1, 60_001, &[]);
    assert_eq!((rig.info().send_window, rig.info().peak_window), (60_001, 60_001));
    rig.say(1, 1, 59_000, &[]);
    assert_eq!(rig.info().send_window, 60_001, "a smaller one may be an older one");
    rig.say(1, 1, 0, &[]);
    assert_eq!(rig.info().send_window, 0);
    rig.say(1, 1, 10, &[]);
    assert_eq!((rig.info().send_window, rig.info().peak_window), (10, 60_001));
}

#[test]
fn a_newer_segment_may_make_the_window_smaller() {
    let mut rig = Rig::sacking(without_probe());
    rig.say(1, 1, 59_000, &[7; 10]);
    assert_eq!(rig.info().send_window, 60_000, "its number is that of the last one");
    rig.say(11, 1, 58_000, &[]);
    assert_eq!(rig.info().send_window, 58_000);
    rig.say(1, 1, 60_000, &[7; 10]);
    assert_eq!(rig.info().send_window, 58_000, "this one is older");
    rig.write(1000);
    rig.say(11, 1001, 57_000, &[]);
    assert_eq!((rig.info().send_window, rig.info().peak_window), (57_000, 60_000));
}

#[test]
fn what_is_delivered_counts_once_however_it_is_acknowledged() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.blocks(1, 1, &[[2001, 4001]], &[]);
    assert_eq!((rig.info().delivered, rig.info().sacked, rig.info().unacked), (2, 2, 8));
    rig.blocks(1, 1, &[[2001, 4001]], &[]);
    assert_eq!((rig.info().delivered, rig.info().sacked), (2, 2), "nothing new");
    rig.blocks(1, 4001, &[[6001, 7001]], &[]);
    let info = rig.info();
    assert_eq!((info.delivered, info.sacked, info.unacked, info.bytes_acked), (5, 1, 4, 4000));
    rig.say(1, 8001, 60_000, &[]);
    let info = rig.info();
    assert_eq!((info.delivered, info.sacked, info.unacked, info.bytes_acked), (8, 0, 0, 8000));
    assert_eq!((info.unacknowledged, info.network), (0, Network::Open));
}

#[test]
fn of_a_super_segment_only_whole_segments_are_delivered() {
    let mut rig = Rig::sacking(Config { tail_loss_probe: false, ..Config::default() });
    let said = rig.write(4000);
    assert_eq!((rig.brief(&said), said[0].unit), (vec![(1, 2000), (2001, 2000)], 1000));
    rig.say(1, 1501, 60_000, &[]);
    let info = rig.info();
    assert_eq!((info.delivered, info.unacked, info.bytes_acked, info.unacknowledged), (1, 3, 1500, 2500));
    rig.say(1, 1801, 60_000, &[]);
    assert_eq!((rig.info().delivered, rig.info().unacked), (1, 3));
    rig.say(1, 4001, 60_000, &[]);
    assert_eq!((rig.info().delivered, rig.info().unacked), (4, 0));
}

#[test]
fn blocks_that_lie_mark_nothing() {
    for lie in [[3001, 3001], [4001, 3001], [7001, 9001], [0, 1001], [1, 3001], [1001, 2001], [8001, 8001]] {
        let mut rig = Rig::sacking(without_probe());
        rig.write(8000);
        rig.say(1, 2001, 60_000, &[]);
        rig.blocks(1, 2001, &[[5001, 6001], lie], &[]);
        assert_eq!((rig.info().sacked, rig.counters().dsacks_in), (1, 0), "{lie:?}");
    }
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.say(1, 2001, 60_000, &[]);
    rig.blocks(1, 2001, &[[5001, 6001], [7001, 8001], [3001, 4001]], &[]);
    assert_eq!(rig.info().sacked, 3, "the last number that was sent may be reported");
}

#[test]
fn blocks_mean_nothing_to_a_connection_without_sack() {
    let mut rig = Rig::plain(without_probe());
    rig.write(8000);
    rig.blocks(1, 1, &[[5001, 6001]], &[7]);
    assert_eq!((rig.info().sacked, rig.info().network), (0, Network::Open));
}

#[test]
fn a_block_behind_data_is_doubtful_at_once() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(3000);
    rig.blocks(1, 1, &[[2001, 3001]], &[7; 10]);
    assert_eq!((rig.info().network, rig.info().queued), (Network::Disorder, 10));
    rig.say(11, 3001, 60_000, &[7; 10]);
    assert_eq!(rig.info().network, Network::Open);
}

#[test]
fn a_duplicate_is_reported_by_a_first_block_that_is_old_or_within_the_second() {
    for (ack, blocks, duplicates, sacked) in [
        // Below the acknowledgement, and right at it.
        (2001, &[[1, 1001]][..], 1, 0),
        (2001, &[[1001, 2001]], 1, 0),
        (2001, &[[1001, 2001], [3001, 4001]], 1, 1),
        (2001, &[[2001, 3001]], 0, 1),
        // Within the second, at its ends, and beside it on either side.
        (2001, &[[4001, 5001], [3001, 6001]], 1, 3),
        (2001, &[[3001, 4001], [3001, 6001]], 1, 3),
        (2001, &[[5001, 6001], [3001, 6001]], 1, 3),
        (2001, &[[3001, 4001], [6001, 7001]], 0, 2),
        (2001, &[[6001, 7001], [3001, 4001]], 0, 2),
        (2001, &[[3001, 5001], [4001, 5001]], 0, 2),
        (2001, &[[4001, 6001], [4001, 5001]], 0, 2),
    ] {
        let mut rig = Rig::sacking(without_probe());
        rig.write(8000);
        rig.say(1, 2001, 60_000, &[]);
        rig.blocks(1, ack, blocks, &[]);
        let found = (rig.counters().dsacks_in, rig.info().duplicates, rig.info().sacked);
        assert_eq!(found, (u64::from(duplicates), duplicates, sacked), "{blocks:?}");
    }
}

#[test]
fn a_segment_below_one_that_was_reported_has_been_overtaken() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.blocks(1, 1, &[[7001, 8001]], &[]);
    assert_eq!((rig.info().reordering, rig.info().reorderings), (3, 0));
    rig.blocks(1, 1, &[[2001, 3001], [7001, 8001]], &[]);
    assert_eq!((rig.info().reordering, rig.info().reorderings), (6, 1), "from 2001 to 8001");
}

#[test]
fn a_cumulative_acknowledgement_below_a_reported_segment_tells_of_reordering() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.blocks(1, 1, &[[6001, 7001]], &[]);
    rig.say(1, 2001, 60_000, &[]);
    assert_eq!((rig.info().reordering, rig.info().reorderings), (7, 1), "from 1 to 7001");
    rig.say(1, 7001, 60_000, &[]);
    assert_eq!((rig.info().reordering, rig.info().reorderings), (7, 2));
    rig.say(1, 8001, 60_000, &[]);
    assert_eq!((rig.info().reordering, rig.info().reorderings), (7, 2), "nothing was above it");
}

#[test]
fn an_acknowledgement_in_order_tells_of_no_reordering() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    for ack in [1001, 3001, 8001] {
        rig.say(1, ack, 60_000, &[]);
        assert_eq!((rig.info().reordering, rig.info().reorderings), (3, 0));
    }
}

#[test]
fn after_a_time_out_blocks_tell_of_no_reordering() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.blocks(1, 1, &[[7001, 8001]], &[]);
    while rig.info().network != Network::Loss {
        rig.fire();
    }
    rig.blocks(1, 1, &[[5001, 6001], [7001, 8001]], &[]);
    assert_eq!((rig.info().sacked, rig.info().reorderings), (2, 0));
}

#[test]
fn a_round_trip_is_that_of_the_first_segment_acknowledged() {
    let mut rig = Rig::sacking(without_probe());
    assert_eq!((rig.info().srtt_us, rig.info().rto_us), (20_000, 220_000));
    rig.write(1000);
    rig.now += milliseconds(10);
    rig.write(1000);
    rig.later(milliseconds(50)).say(1, 2001, 60_000, &[]);
    assert_eq!(rig.info().srtt_us, smoothed(60_000));
}

#[test]
fn a_round_trip_is_that_of_a_reported_segment_if_nothing_else_is_acknowledged() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(3000);
    rig.later(milliseconds(60)).blocks(1, 1, &[[2001, 3001]], &[]);
    assert_eq!(rig.info().srtt_us, smoothed(60_000));
}

#[test]
fn a_segment_sent_twice_gives_no_round_trip() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(1000);
    rig.fire();
    rig.later(milliseconds(60)).say(1, 1001, 60_000, &[]);
    assert_eq!((rig.info().srtt_us, rig.info().unacked), (20_000, 0));
}

#[test]
fn the_echo_of_a_timestamp_tells_which_of_two_was_acknowledged() {
    // The echo shows how old the answered segment is: less than a millisecond, 60 ms, and longer than a second.
    for (age_ms, rtt_us) in [(0, 1000), (1, 1000), (60, 60_000), (1500, 1_500_000)] {
        let mut rig = Rig::established(without_probe(), Options::default(), 0, &STAMPS);
        rig.write(988);
        rig.fire();
        rig.now += milliseconds(2000);
        rig.echo(989, age_ms);
        assert_eq!(rig.info().unacked, 0);
        let known = rig.info().srtt_us;
        let exact = (7 * 20_000 + rtt_us) / 8;
        assert_eq!(known, exact, "{age_ms} ms");
    }
}

#[test]
fn an_echo_of_no_segment_gives_no_round_trip() {
    let open = || {
        let mut rig = Rig::established(without_probe(), Options::default(), 0, &STAMPS);
        rig.write(988);
        rig.fire();
        rig
    };
    // From the future, and none.
    let mut rig = open();
    rig.echo(989, 100_u32.wrapping_neg());
    assert_eq!((rig.info().srtt_us, rig.info().unacked), (20_000, 0));
    let mut rig = open();
    rig.stamped(989, 0);
    assert_eq!((rig.info().srtt_us, rig.info().unacked), (20_000, 0));
    // Of a part of a segment, and of nothing.
    let mut rig = open();
    rig.echo(500, 60);
    assert_eq!((rig.info().srtt_us, rig.info().unacked), (20_000, 1));
    let mut rig = open();
    rig.echo(1, 60);
    assert_eq!((rig.info().srtt_us, rig.info().unacked), (20_000, 1));
}

#[test]
fn the_last_timestamp_is_that_of_the_segment_next_in_order() {
    // What comes before, what it shows, and whether a segment that shows 150 is of the past.
    for (before, old) in
        [(&[(1, 151)][..], 1), (&[(1, 150)], 0), (&[(11, 200)], 0), (&[(1, 200), (11, 210)], 1)]
    {
        let mut rig = Rig::established(without_probe(), Options::default(), 0, &STAMPS);
        for (seq, value) in before {
            rig.shows(*seq, *value, &[]);
        }
        rig.shows(1, 150, &[7; 5]);
        assert_eq!(
            (rig.counters().paws_rejected, rig.info().queued),
            (old, 5 - 5 * old as u32),
            "{before:?}"
        );
    }
}

#[test]
fn a_timestamp_of_24_days_ago_is_compared_no_more() {
    for (days, old) in [(23, 1), (24, 0)] {
        let mut rig = Rig::established(without_probe(), Options::default(), 0, &STAMPS);
        rig.shows(1, 200, &[]);
        rig.later(Duration::from_secs(days * 24 * 3600)).shows(1, 150, &[7; 5]);
        assert_eq!(rig.counters().paws_rejected, old);
        // From now on it is the last one.
        rig.shows(6, 149, &[7; 5]);
        assert_eq!((rig.counters().paws_rejected, rig.info().queued), (old + 1, 5 - 5 * old as u32));
    }
}

#[test]
fn the_program_hears_of_room_when_a_third_is_free() {
    let mut rig = with_options(Options { send_buffer: Some(9000), ..Options::default() });
    rig.told();
    let id = rig.id.expect("accepted");
    assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").write(&[7; 10_000]), 9000);
    rig.output();
    assert_eq!(rig.told(), 0);
    rig.say(1, 3000, 60_000, &[]);
    assert_eq!(rig.told(), 0);
    rig.say(1, 3001, 60_000, &[]);
    assert_eq!(rig.told(), Events::WRITABLE);
    rig.say(1, 9001, 60_000, &[]);
    assert_eq!(rig.told(), 0, "nobody waits any more");
}

#[test]
fn the_program_hears_of_no_room_while_too_much_is_unsent() {
    let options = Options { send_buffer: Some(9000), unsent_low: 2000, ..Options::default() };
    let mut rig = with_options(options);
    rig.told();
    rig.say(1, 1, 0, &[]);
    rig.say(1, 1, 3000, &[]);
    let id = rig.id.expect("accepted");
    assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").write(&[7; 10_000]), 9000);
    rig.output();
    // Of 5000 bytes, 2001 are not sent when the acknowledgement comes; then 2000 of 4999.
    rig.say(1, 3001, 3000, &[]);
    assert_eq!((rig.info().unsent, rig.told()), (3000, 0));
    rig.say(1, 4001, 3000, &[]);
    assert_eq!((rig.info().unsent, rig.told()), (2000, 0));
    rig.say(1, 5001, 3000, &[]);
    assert_eq!((rig.info().unsent, rig.told()), (1000, Events::WRITABLE));
}

#[test]
fn the_send_buffer_grows_with_the_window_if_the_program_has_filled_it() {
    let config = Config { send_initial: 4000, send_max: 15_000, ..without_probe() };
    for (written, buffer, limit) in [(5000, None, 15_000), (4000, None, 4000), (5000, Some(4000), 4000)] {
        let options = Options { send_buffer: buffer, ..Options::default() };
        let mut rig = Rig::established(config.clone(), options, 0, &SACK);
        let id = rig.id.expect("accepted");
        assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").write(&vec![7; written]), 4000);
        rig.output();
        rig.say(1, 1001, 60_000, &[]);
        let room = rig.tcp.stream(rig.now, id).expect("is there").room();
        assert_eq!(room, limit - 3000, "{written} {buffer:?}");
    }
}

#[test]
fn the_send_buffer_holds_two_windows() {
    let config = Config { send_initial: 4000, ..without_probe() };
    let mut rig = Rig::sacking(config);
    let id = rig.id.expect("accepted");
    assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").write(&[7; 5000]), 4000);
    rig.output();
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").room(), 2 * 10 * 1000 - 3000);
}

#[test]
fn the_send_buffer_does_not_grow_while_memory_is_short() {
    let config = Config { send_initial: 4000, memory: 8 << 10, ..without_probe() };
    let mut rig = Rig::sacking(config);
    let hoarder = rig
        .tcp
        .connect(rig.now, super::PEER.into(), super::SERVER.into(), Options::default())
        .expect("opens");
    assert_eq!(rig.tcp.stream(rig.now, hoarder).expect("is there").write(&[1; 1000]), 1000);
    let id = rig.id.expect("accepted");
    assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").write(&[7; 5000]), 4000);
    rig.output();
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!(rig.tcp.stream(rig.now, id).expect("is there").room(), 1000);
}

#[test]
fn a_fin_is_acknowledged_by_its_own_number() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(1000);
    let said = rig.end();
    assert_eq!(rig.brief(&said), [(1001, 0)]);
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!((rig.info().state, rig.info().bytes_acked), (TcpState::FinWait1, 1000));
    rig.say(1, 1002, 60_000, &[]);
    assert_eq!((rig.info().state, rig.info().bytes_acked), (TcpState::FinWait2, 1000));
    assert_eq!(rig.deadline(), Instant::NEVER, "the program may still read");
    let said = rig.say_with(1, 1002, Flags::ACK | Flags::FIN, 60_000, &[], &[]);
    assert_eq!((said.len(), said[0].ack, rig.ended()), (1, 2, Some(Ended::Finished)));
    assert_eq!(rig.tcp.count().2, 1);
}

#[test]
fn ends_that_finish_at_once_wait_until_both_fins_are_acknowledged() {
    let mut rig = Rig::sacking(without_probe());
    rig.end();
    rig.say_with(1, 1, Flags::ACK | Flags::FIN, 60_000, &[], &[]);
    assert_eq!((rig.info().state, rig.tcp.count().2), (TcpState::Closing, 0));
    rig.say(2, 2, 60_000, &[]);
    assert_eq!((rig.info().state, rig.ended()), (TcpState::Close, Some(Ended::Finished)));
    assert_eq!(rig.tcp.count().2, 1, "late segments are answered");
}

#[test]
fn the_last_acknowledgement_leaves_no_record_where_the_peer_has_finished_first() {
    let mut rig = Rig::sacking(without_probe());
    rig.say_with(1, 1, Flags::ACK | Flags::FIN, 60_000, &[], &[]);
    rig.end();
    assert_eq!(rig.info().state, TcpState::LastAck);
    rig.say(2, 2, 60_000, &[]);
    assert_eq!((rig.info().state, rig.ended()), (TcpState::Close, Some(Ended::Finished)));
    assert_eq!(rig.tcp.count().2, 0);
}

#[test]
fn in_slow_start_the_window_grows_by_what_arrives_once_half_of_it_is_used() {
    for (used, cwnd) in [(5, 10), (6, 16), (10, 20)] {
        let mut rig = Rig::sacking(without_probe());
        rig.write(used * 1000);
        rig.say(1, 1 + used as u32 * 1000, 60_000, &[]);
        assert_eq!(rig.info().cwnd, cwnd, "{used} segments");
    }
}

#[test]
fn a_window_update_and_an_acknowledgement_of_nothing_leave_the_window_alone() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(10_000);
    rig.say(1, 1, 60_001, &[]);
    rig.say(1, 1, 60_001, &[]);
    assert_eq!((rig.info().cwnd, rig.info().delivered), (10, 0));
}

#[test]
fn reported_segments_let_the_window_grow_only_on_a_path_that_reorders() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(10_000);
    rig.blocks(1, 1, &[[9001, 10_001]], &[]);
    assert_eq!((rig.info().cwnd, rig.info().network), (10, Network::Disorder));
    // From 5001 to 10,001: five segments.
    rig.blocks(1, 1, &[[5001, 6001], [9001, 10_001]], &[]);
    assert_eq!((rig.info().reordering, rig.info().cwnd, rig.info().network), (5, 11, Network::Disorder));
    rig.blocks(1, 1, &[[5001, 6001], [9001, 10_001]], &[]);
    assert_eq!(rig.info().cwnd, 11, "nothing new");
}

#[test]
fn in_congestion_avoidance_a_window_that_is_not_full_does_not_grow() {
    let config = Config { congestion: CongestionKind::NewReno, ..without_probe() };
    for (used, cwnd) in [(4, 5), (5, 6)] {
        let mut rig = Rig::sacking(config.clone());
        rig.write(10_000);
        rig.blocks(1, 1, &[[1001, 10_001]], &[]);
        assert_eq!((rig.info().network, rig.info().ssthresh), (Network::Recovery, 5));
        rig.say(1, 10_001, 60_000, &[]);
        assert_eq!((rig.info().network, rig.info().cwnd), (Network::Open, 5));
        // One more than the window takes is what makes it the limit.
        rig.write(used * 1000 + usize::from(used == 5));
        rig.later(RTT).say(1, 10_001 + used as u32 * 1000, 60_000, &[]);
        assert_eq!(rig.info().cwnd, cwnd, "{used} segments");
    }
}

#[test]
fn in_recovery_the_window_follows_what_arrives() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(10_000);
    // Three of ten have arrived, and two before them are lost.
    rig.later(RTT).blocks(1, 1, &[[2001, 5001]], &[]);
    let info = rig.info();
    assert_eq!((info.network, info.ssthresh, info.lost, info.retransmitted), (Network::Recovery, 7, 2, 2));
    // In flight: ten, less three and two, and two again.
    assert_eq!((info.cwnd, info.unacked - info.sacked - info.lost + info.retransmitting), (7, 7));
}

#[test]
fn a_congestion_mark_means_nothing_where_it_was_not_agreed_on() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(10_000);
    rig.say_with(1, 2001, Flags::ACK | Flags::ECE, 60_000, &[], &[]);
    assert_eq!((rig.info().network, rig.info().cwnd), (Network::Open, 12));
}

#[test]
fn without_sack_only_acknowledgements_that_say_nothing_else_are_duplicates() {
    let mut rig = Rig::plain(without_probe());
    rig.write(10_000);
    // Data, and windows.
    rig.say(1, 1, 60_000, &[7; 10]);
    for window in [60_001, 60_002, 60_003] {
        rig.say(11, 1, window, &[]);
    }
    assert_eq!((rig.info().network, rig.info().sacked), (Network::Open, 0));
    rig.say(11, 1, 60_003, &[]);
    rig.say(11, 1, 60_003, &[]);
    assert_eq!((rig.info().network, rig.info().sacked), (Network::Disorder, 2));
    let said = rig.say(11, 1, 60_003, &[]);
    assert_eq!((rig.brief(&said), rig.info().network), (vec![(1, 1000)], Network::Recovery));
    assert_eq!((rig.info().delivered, rig.counters().recoveries), (3, 1));
}

#[test]
fn without_sack_duplicates_count_as_delivered_only_once() {
    let mut rig = Rig::plain(without_probe());
    rig.write(10_000);
    for _ in 0..2 {
        rig.say(1, 1, 60_000, &[]);
    }
    // Reordering: all four have arrived, of which two were counted.
    rig.say(1, 4001, 60_000, &[]);
    assert_eq!((rig.info().network, rig.info().delivered), (Network::Open, 4));
}

#[test]
fn a_segment_that_arrives_after_the_time_out_undoes_it() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(5000);
    rig.fire();
    assert_eq!((rig.info().network, rig.info().lost, rig.info().cwnd), (Network::Loss, 5, 1));
    // The second was sent once only.
    rig.say(1, 2001, 60_000, &[]);
    let info = rig.info();
    assert_eq!((info.network, info.lost, rig.counters().undos), (Network::Open, 0, 1));
    assert_eq!(info.ssthresh, 0x7fff_ffff);
}

#[test]
fn a_retransmission_acknowledged_too_soon_says_nothing_of_what_was_sent_before_it() {
    for (answer, lost) in [(milliseconds(5), 0), (milliseconds(20), 1)] {
        let mut rig = Rig::sacking(without_probe());
        rig.write(5000);
        rig.now += milliseconds(10);
        rig.write(1000);
        let said = rig.later(milliseconds(10)).blocks(1, 1, &[[1001, 5001]], &[]);
        assert_eq!(rig.brief(&said), [(1, 1000)]);
        rig.later(answer).say(1, 5001, 60_000, &[]);
        assert_eq!(rig.info().lost, lost, "{answer:?}");
    }
}

#[test]
fn a_duplicate_reported_by_an_old_acknowledgement_undoes_a_reduction() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(8000);
    rig.later(RTT).blocks(1, 1, &[[1001, 4001]], &[]);
    rig.say(1, 4001, 60_000, &[]);
    assert_eq!((rig.info().network, rig.info().ssthresh, rig.info().cwnd), (Network::Recovery, 7, 7));
    rig.blocks(1, 1001, &[[1, 1001]], &[]);
    let info = rig.info();
    assert_eq!((info.network, info.cwnd, rig.counters().undos), (Network::Open, 10, 1));
}

#[test]
fn a_duplicate_reported_when_nothing_is_in_flight_undoes_a_reduction() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(4000);
    rig.blocks(1, 1, &[[1001, 4001]], &[]);
    rig.say(1, 4001, 60_000, &[]);
    assert_eq!((rig.info().network, rig.info().cwnd), (Network::Open, 7));
    rig.blocks(1, 4001, &[[1, 1001]], &[]);
    assert_eq!((rig.info().network, rig.info().cwnd, rig.counters().undos), (Network::Open, 10, 1));
}

#[test]
fn a_duplicate_reported_with_an_acknowledgement_of_something_new_undoes_a_reduction() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(4000);
    rig.later(RTT).blocks(1, 1, &[[1001, 4001]], &[]);
    rig.say(1, 4001, 60_000, &[]);
    rig.write(1000);
    assert_eq!((rig.info().network, rig.info().cwnd), (Network::Open, 7));
    rig.blocks(1, 5001, &[[1, 1001]], &[]);
    assert_eq!((rig.info().network, rig.info().cwnd, rig.counters().undos), (Network::Open, 10, 1));
}

#[test]
fn slow_start_is_slower_once_the_round_trip_has_risen() {
    let growth = |second: Duration| {
        let mut rig = Rig::sacking(without_probe());
        let mut arrived = 1;
        rig.write(60_000);
        for (count, rtt) in [(10, RTT), (20, second)] {
            rig.now += rtt;
            for _ in 0..count {
                arrived += 1000;
                rig.later(Duration::ZERO).say(1, arrived, 60_000, &[]);
            }
        }
        rig.info().cwnd
    };
    // The rise shows at the eighth of twenty: a quarter of the other twelve counts.
    assert_eq!((growth(RTT), growth(milliseconds(30))), (40, 31));
}

#[test]
fn segments_of_one_burst_are_in_the_order_of_their_numbers() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(5000);
    rig.later(RTT).blocks(1, 1, &[[1001, 2001]], &[]);
    assert_eq!(
        (rig.info().lost, rig.info().network, rig.wait()),
        (0, Network::Disorder, Some(milliseconds(5)))
    );
    rig.blocks(1, 1, &[[1001, 2001], [3001, 4001]], &[]);
    assert_eq!((rig.info().lost, rig.wait()), (0, Some(milliseconds(5))));
    rig.fire();
    // The first and the third, and not the last.
    assert_eq!((rig.info().lost, rig.info().network), (2, Network::Recovery));
}

#[test]
fn a_partial_acknowledgement_in_recovery_is_safe_unless_it_echoes_a_mark() {
    for (flags, cwnd) in [(0, 4), (Flags::ECE, 3)] {
        let mut rig = with_ecn();
        rig.write(10_000);
        // Three have arrived: as many are sent again.
        rig.later(RTT).blocks(1, 1, &[[7001, 10_001]], &[]);
        let info = rig.info();
        assert_eq!((info.network, info.lost, info.retransmitting, info.cwnd), (Network::Recovery, 7, 3, 3));
        // One of these arrives: one more than it if all goes well (RFC 9937 section 6.2).
        rig.later(milliseconds(10)).say_with(1, 1001, Flags::ACK | flags, 60_000, &[], &[]);
        assert_eq!((rig.info().network, rig.info().lost, rig.info().cwnd), (Network::Recovery, 6, cwnd));
    }
}

#[test]
fn a_congestion_mark_reduces_the_window_once_for_each_window_of_data() {
    let mut rig = with_ecn();
    assert!(rig.info().has_ecn);
    rig.write(10_000);
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!((rig.info().network, rig.info().cwnd), (Network::Open, 11), "no mark");
    let mark = |rig: &mut Rig, ack| rig.say_with(1, ack, Flags::ACK | Flags::ECE, 60_000, &[], &[]);
    mark(&mut rig, 2001);
    assert_eq!((rig.info().network, rig.info().ssthresh, rig.info().cwnd), (Network::Reduced, 7, 9));
    let said = rig.write(1000);
    assert_eq!((rig.brief(&said), said[0].flags & Flags::CWR), (vec![(10_001, 1000)], Flags::CWR));
    mark(&mut rig, 3001);
    let said = rig.write(1000);
    assert!(said.iter().all(|said| said.flags & Flags::CWR == 0), "{said:?}");
    assert_eq!((rig.info().network, rig.info().ssthresh), (Network::Reduced, 7));
    rig.say(1, 10_001, 60_000, &[]);
    rig.say(1, 11_001, 60_000, &[]);
    assert_eq!((rig.info().network, rig.info().cwnd), (Network::Open, 7));
    // The next window.
    mark(&mut rig, 12_001);
    assert_eq!((rig.info().network, rig.info().ssthresh), (Network::Reduced, 4));
}

/// Three segments are in flight, and the last was sent again as a probe.
fn probed() -> Rig {
    let mut rig = Rig::sacking(separate());
    rig.write(3000);
    assert_eq!(rig.fires(milliseconds(42)), [(2001, 1000)]);
    assert_eq!(rig.counters().probes, 1);
    rig
}

#[test]
fn a_probe_that_has_repaired_a_loss_reduces_the_window() {
    let mut rig = probed();
    rig.say(1, 3001, 60_000, &[]);
    rig.write(1000);
    assert_eq!((rig.info().cwnd, rig.counters().probe_recoveries), (10, 0));
    rig.say(1, 4001, 60_000, &[]);
    assert_eq!((rig.info().cwnd, rig.counters().probe_recoveries), (7, 1));
    assert_eq!(rig.info().network, Network::Open);
}

#[test]
fn a_probe_that_was_not_needed_leaves_the_window_alone() {
    // What the peer says of the second copy: a duplicate's block, or nothing.
    for blocks in [&[[2001, 3001]][..], &[]] {
        for in_flight in [false, true] {
            let mut rig = probed();
            rig.say(1, 3001, 60_000, &[]);
            if in_flight {
                rig.write(1000);
            }
            if blocks.is_empty() {
                rig.say(1, 3001, 60_000, &[]);
            } else {
                rig.blocks(1, 3001, blocks, &[]);
            }
            if !in_flight {
                rig.write(1000);
            }
            rig.say(1, 4001, 60_000, &[]);
            let found = (rig.info().cwnd, rig.counters().probe_recoveries);
            assert_eq!(found, (10, 0), "{blocks:?} {in_flight}");
        }
    }
}

#[test]
fn what_says_more_than_that_a_probe_came_twice_is_no_answer_to_it() {
    // Data of the peer, and a larger window: either comes without a second copy.
    for (window, payload) in [(60_000, &[7][..]), (61_000, &[])] {
        let mut rig = probed();
        rig.say(1, 3001, 60_000, &[]);
        rig.say(1, 3001, window, payload);
        rig.write(1000);
        rig.say(1 + payload.len() as u32, 4001, window, &[]);
        let found = (rig.info().cwnd, rig.counters().probe_recoveries);
        assert_eq!(found, (7, 1), "{window} {payload:?}");
    }
}

#[test]
fn a_probe_of_new_data_says_nothing_of_a_loss() {
    let mut rig = Rig::sacking(separate());
    rig.write(11_000);
    assert_eq!(rig.fires(milliseconds(42)), [(10_001, 1000)]);
    rig.say(1, 10_001, 60_000, &[]);
    rig.write(1000);
    rig.say(1, 12_001, 60_000, &[]);
    assert_eq!((rig.info().ssthresh, rig.counters().probe_recoveries), (0x7fff_ffff, 0));
}
