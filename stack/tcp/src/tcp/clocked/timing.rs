//! When what is due: time-outs and their number, probes, keepalives, and acknowledgements that wait.

use super::steps::{RTO, RTT, without_probe};
use super::*;
use crate::Ended;
use crate::state::Network;

const S: Duration = Duration::from_secs(1);

fn with_options(config: Config, options: Options) -> Rig {
    Rig::established(config, options, 0, &SACK)
}

fn user_timeout(time: Duration) -> Options {
    Options { user_timeout: time, ..Options::default() }
}

#[test]
fn a_connection_without_anything_to_do_has_no_deadline() {
    let mut rig = Rig::sacking(separate());
    assert_eq!(rig.wait(), None);
    rig.write(1000);
    assert!(rig.wait().is_some());
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!(rig.wait(), None);
    assert_eq!(rig.info().backoff, 0);
}

#[test]
fn the_time_out_doubles_up_to_its_maximum_until_the_retries_are_used_up() {
    let config = Config { retries: 4, rto_max: S, ..without_probe() };
    let mut rig = Rig::sacking(config);
    rig.write(1000);
    assert_eq!(rig.info().rto_us, 220_000);
    for (count, wait) in [RTO, 2 * RTO, 4 * RTO, S].into_iter().enumerate() {
        assert_eq!(rig.fires(wait), [(1, 1000)]);
        let (info, counters) = (rig.info(), rig.counters());
        let count = count + 1;
        assert_eq!((usize::from(info.retries), usize::from(info.backoff)), (count, count));
        assert_eq!((counters.timeouts, counters.retransmitted), (count as u64, count as u64));
        assert_eq!((info.network, info.cwnd, info.ssthresh), (Network::Loss, 1, 7));
    }
    assert_eq!(rig.counters().timed_out, 0);
    assert_eq!(rig.fires(S), []);
    assert_eq!((rig.ended(), rig.wait()), (Some(Ended::TimedOut), None));
    assert_eq!((rig.counters().timed_out, rig.counters().timeouts), (1, 4));
    assert_eq!(rig.told() & Events::ENDED, Events::ENDED);
}

#[test]
fn an_acknowledgement_of_something_new_begins_the_count_anew() {
    let mut rig = Rig::sacking(Config { retries: 2, ..without_probe() });
    rig.write(3000);
    rig.fires(RTO);
    rig.fires(2 * RTO);
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!((rig.info().retries, rig.info().backoff), (0, 0));
    rig.fires(RTO);
    rig.fires(2 * RTO);
    assert_eq!(rig.fires(4 * RTO), []);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
}

#[test]
fn the_time_out_begins_anew_with_an_acknowledgement_and_not_with_more_data() {
    let mut rig = Rig::sacking(without_probe());
    rig.write(1000);
    rig.now += milliseconds(100);
    rig.write(1000);
    assert_eq!(rig.wait(), Some(RTO - milliseconds(100)));
    rig.later(milliseconds(20)).say(1, 1001, 60_000, &[]);
    let rto = Duration::from_micros(u64::from(rig.info().rto_us));
    assert_eq!(rig.wait(), Some(rto));
    assert!(rto > RTO);
}

#[test]
fn a_connection_that_nobody_holds_has_retries_of_its_own() {
    let mut rig = Rig::sacking(Config { retries: 5, orphan_retries: 2, ..without_probe() });
    rig.write(1000);
    rig.close();
    assert_eq!(rig.fires(RTO), [(1, 1000)]);
    assert_eq!(rig.fires(2 * RTO), [(1, 1000)]);
    assert_eq!((rig.tcp.count(), rig.counters().timed_out), ((1, 0, 0), 0));
    rig.fire();
    assert_eq!((rig.tcp.count(), rig.counters().timed_out), ((0, 0, 0), 1));
}

#[test]
fn the_time_of_the_program_decides_whatever_the_number_of_retries_is() {
    let mut rig = with_options(Config { retries: 1, ..without_probe() }, user_timeout(S));
    rig.now += milliseconds(5000);
    rig.write(1000);
    for wait in [RTO, 2 * RTO] {
        assert_eq!(rig.fires(wait), [(1, 1000)]);
    }
    assert_eq!(rig.fires(S - 3 * RTO), []);
    assert_eq!((rig.ended(), rig.counters().timed_out), (Some(Ended::TimedOut), 1));
}

#[test]
fn the_time_of_the_program_begins_anew_with_each_acknowledgement() {
    let mut rig = with_options(without_probe(), user_timeout(S));
    rig.write(2000);
    rig.now += milliseconds(199);
    rig.say(1, 1001, 60_000, &[]);
    let began = rig.now;
    while rig.ended().is_none() {
        rig.fire();
    }
    assert_eq!(rig.now.since(began), S);
}

#[test]
fn what_the_network_said_is_why_it_has_ended() {
    let mut rig = Rig::sacking(Config { retries: 1, ..without_probe() });
    rig.write(1000);
    let (tuple, seq) = (rig.tuple, rig.iss.wrapping_add(1));
    rig.tcp.icmp(rig.now, &tuple, seq, IcmpError::Soft);
    rig.fires(RTO);
    rig.fires(2 * RTO);
    assert_eq!(rig.ended(), Some(Ended::Unreachable));
}

#[test]
fn a_peer_that_has_closed_its_window_and_answers_is_not_given_up() {
    let mut rig = Rig::sacking(Config { retries: 2, rto_max: 4 * S, ..without_probe() });
    rig.write(1000);
    rig.say(1, 1, 0, &[]);
    for _ in 0..200 {
        assert_eq!(rig.output(), []);
        let said = rig.fire();
        assert_eq!((rig.brief(&said), rig.info().retries), (vec![(1, 1000)], 0));
        rig.say(1, 1, 0, &[]);
    }
    assert_eq!((rig.ended(), rig.counters().timeouts), (None, 200));
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!((rig.info().unacked, rig.wait()), (0, None));
}

#[test]
fn a_peer_that_has_closed_its_window_and_is_silent_is_given_up() {
    let mut rig = Rig::sacking(Config { retries: 2, ..without_probe() });
    rig.write(1000);
    rig.say(1, 1, 0, &[]);
    assert_eq!(rig.fires(RTO - milliseconds(1)), [(1, 1000)]);
    for doubled in 1..10 {
        assert_eq!((rig.fires((1 << doubled) * RTO), rig.info().retries), (vec![(1, 1000)], 0));
    }
    // That was after 225 s, and this is after 345 s.
    assert_eq!(rig.fires(120 * S), []);
    assert_eq!((rig.ended(), rig.counters().timed_out), (Some(Ended::TimedOut), 1));
}

#[test]
fn no_silent_peer_is_given_up_within_100_s_however_short_the_longest_time_out_is() {
    let mut rig = Rig::sacking(Config { retries: 2, rto_max: S, ..without_probe() });
    rig.write(1000);
    rig.say(1, 1, 0, &[]);
    let heard = rig.now;
    while rig.ended().is_none() {
        rig.fire();
    }
    let silent = rig.now.since(heard);
    assert!(silent > 100 * S && silent <= 101 * S, "{silent:?}");
}

#[test]
fn a_closed_window_before_what_is_in_flight_holds_no_connection_that_nobody_holds() {
    let mut rig = Rig::sacking(Config { orphan_retries: 2, ..without_probe() });
    rig.write(1000);
    rig.close();
    for _ in 0..2 {
        rig.say(1, 1, 0, &[]);
        rig.fire();
        assert_eq!(rig.tcp.count(), (1, 0, 0));
    }
    rig.say(1, 1, 0, &[]);
    rig.fire();
    assert_eq!((rig.tcp.count(), rig.counters().timed_out), ((0, 0, 0), 1));
}

#[test]
fn a_syn_is_repeated_after_a_second_and_then_after_twice_the_time() {
    for (options, count) in [
        (Options::default(), 6),
        (Options { syn_retries: Some(2), ..Options::default() }, 2),
        (Options { syn_retries: Some(0), ..Options::default() }, 0),
    ] {
        let mut rig = Rig::opening(separate(), options);
        for retry in 0..count {
            assert_eq!(rig.fires((1 << retry) * S), [(0, 0)]);
            assert_eq!(u32::from(rig.info().retries), retry + 1);
        }
        assert_eq!((rig.ended(), rig.counters().failed_opens), (None, 0));
        assert_eq!(rig.fires((1 << count) * S), []);
        assert_eq!((rig.ended(), rig.wait()), (Some(Ended::TimedOut), None));
        let counters = rig.counters();
        assert_eq!((counters.failed_opens, counters.timed_out), (1, 1));
        assert_eq!((counters.retransmitted, counters.timeouts), (u64::from(count), 0));
    }
}

#[test]
fn a_syn_is_not_repeated_when_the_time_of_the_program_is_over() {
    let mut rig = Rig::opening(separate(), user_timeout(milliseconds(2500)));
    assert_eq!(rig.fires(S), [(0, 0)]);
    assert_eq!(rig.fires(milliseconds(1500)), []);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
    // And no later than its number says.
    let options = Options { syn_retries: Some(1), ..user_timeout(100 * S) };
    let mut rig = Rig::opening(separate(), options);
    rig.fires(S);
    rig.fires(2 * S);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
}

#[test]
fn a_syn_that_nobody_answers_ends_as_the_network_said() {
    let mut rig = Rig::opening(separate(), Options { syn_retries: Some(1), ..Options::default() });
    let (tuple, seq) = (rig.tuple, rig.iss);
    rig.tcp.icmp(rig.now, &tuple, seq, IcmpError::Soft);
    rig.fires(S);
    rig.fires(2 * S);
    assert_eq!(rig.ended(), Some(Ended::Unreachable));
}

#[test]
fn a_probe_goes_two_round_trips_after_the_last_of_several_segments() {
    let mut rig = Rig::sacking(separate());
    rig.write(2000);
    assert_eq!(rig.wait(), Some(milliseconds(42)));
    rig.now += milliseconds(10);
    rig.write(1000);
    assert_eq!(rig.fires(milliseconds(42)), [(2001, 1000)]);
    assert_eq!((rig.counters().probes, rig.counters().timeouts, rig.info().retries), (1, 0, 0));
    // The time-out begins with it, and there is one probe only.
    assert_eq!(rig.fires(RTO), [(1, 1000)]);
    assert_eq!((rig.counters().probes, rig.counters().timeouts), (1, 1));
    rig.fires(2 * RTO);
    assert_eq!((rig.counters().probes, rig.counters().timeouts), (1, 2));
}

#[test]
fn a_probe_of_a_single_segment_waits_for_a_delayed_acknowledgement() {
    let config = Config { rto_min: milliseconds(100), ..separate() };
    let mut rig = Rig::sacking(config);
    // The deviation is 10 ms: the time-out is 20 + 100.
    rig.write(1000);
    assert_eq!(rig.wait(), Some(milliseconds(120)), "no later than the time-out");
    assert_eq!(rig.fires(milliseconds(120)), [(1, 1000)]);
    assert_eq!((rig.counters().probes, rig.counters().timeouts), (1, 0));
}

#[test]
fn a_probe_is_no_later_than_the_time_out_of_the_first_segment() {
    let mut rig = Rig::sacking(separate());
    rig.write(1000);
    rig.now += milliseconds(200);
    rig.write(1000);
    assert_eq!(rig.wait(), Some(RTO - milliseconds(200)));
    rig.now += milliseconds(100);
    rig.write(1000);
    assert_eq!(rig.deadline(), rig.now, "at once");
}

#[test]
fn a_probe_without_a_known_round_trip_waits_for_a_second() {
    let mut rig = Rig::unanswered(separate(), &SACK);
    assert_eq!((rig.info().srtt_us, rig.info().rto_us, rig.info().cwnd), (0, 3_000_000, 1));
    rig.write(1000);
    assert_eq!(rig.fires(S), [(1, 1000)]);
    assert_eq!(rig.counters().probes, 1);
}

#[test]
fn no_probe_goes_where_it_is_not_allowed() {
    let mut rig = Rig::plain(separate());
    rig.write(2000);
    assert_eq!(rig.wait(), Some(RTO), "without SACK");
    let mut rig = Rig::sacking(without_probe());
    rig.write(2000);
    assert_eq!(rig.wait(), Some(RTO), "switched off");
    let mut rig = Rig::sacking(separate());
    rig.write(2000);
    rig.fire();
    rig.fire();
    assert_eq!((rig.info().network, rig.wait()), (Network::Loss, Some(2 * RTO)));
    let mut rig = Rig::sacking(separate());
    rig.write(3000);
    rig.later(RTT).blocks(1, 1, &[[1, 1001]], &[]);
    assert_eq!((rig.info().network, rig.info().sacked), (Network::Disorder, 1));
    rig.write(1000);
    assert_eq!(rig.wait(), Some(RTO - RTT), "something was reported");
}

#[test]
fn a_segment_is_lost_a_quarter_of_a_round_trip_after_a_later_one_has_arrived() {
    let mut rig = Rig::sacking(separate());
    rig.write(5000);
    rig.later(RTT).blocks(1, 1, &[[2001, 3001]], &[]);
    assert_eq!((rig.info().lost, rig.info().network), (0, Network::Disorder));
    assert_eq!(rig.fires(milliseconds(5)), [(1, 1000)]);
    assert_eq!((rig.info().lost, rig.info().network), (2, Network::Recovery));
    assert_eq!((rig.counters().recoveries, rig.counters().timeouts), (1, 0));
}

#[test]
fn a_segment_sent_later_is_not_lost_for_an_earlier_one() {
    let mut rig = Rig::sacking(separate());
    rig.write(1000);
    rig.now += milliseconds(10);
    rig.write(1000);
    rig.now += milliseconds(2);
    rig.write(1000);
    // The second has arrived: the first was sent 10 ms before it, and the third after it.
    let said = rig.later(RTT).blocks(1, 1, &[[1001, 2001]], &[]);
    assert_eq!(rig.brief(&said), [(1, 1000)]);
    assert_eq!((rig.info().lost, rig.info().network), (1, Network::Recovery));
}

#[test]
fn a_closed_window_is_probed_until_the_retries_are_used_up() {
    let mut rig = Rig::sacking(Config { retries: 3, rto_max: S, ..separate() });
    rig.say(1, 1, 0, &[]);
    assert_eq!(rig.wait(), None);
    assert_eq!(rig.write(1000), []);
    for (count, wait) in [RTO, 2 * RTO, 4 * RTO].into_iter().enumerate() {
        assert_eq!(rig.fires(wait), [(0, 0)]);
        let info = rig.info();
        assert_eq!((usize::from(info.probes), usize::from(info.backoff)), (count + 1, count + 1));
        assert_eq!((rig.counters().window_probes, info.retries), (count as u64 + 1, 0));
    }
    assert_eq!(rig.fires(S), []);
    assert_eq!((rig.ended(), rig.counters().timed_out), (Some(Ended::TimedOut), 1));
}

#[test]
fn a_closed_window_is_probed_for_ever_while_the_peer_answers() {
    let mut rig = Rig::sacking(Config { retries: 3, rto_max: S, ..separate() });
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    for wait in [RTO, 2 * RTO, 4 * RTO].into_iter().chain([S; 20]) {
        assert_eq!(rig.fires(wait), [(0, 0)]);
        assert_eq!(rig.info().probes, 1);
        rig.later(Duration::ZERO).say(1, 1, 0, &[]);
        assert_eq!(rig.info().probes, 0);
    }
    let said = rig.say(1, 1, 5000, &[]);
    assert_eq!((rig.brief(&said), rig.info().backoff), (vec![(1, 1000)], 0));
}

#[test]
fn a_closed_window_ends_a_connection_that_nobody_holds() {
    let mut rig = Rig::sacking(Config { retries: 9, orphan_retries: 2, ..separate() });
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    rig.close();
    for wait in [RTO, 2 * RTO] {
        assert_eq!(rig.fires(wait), [(0, 0)]);
        rig.later(Duration::ZERO).say(1, 1, 0, &[]);
    }
    rig.fire();
    assert_eq!((rig.tcp.count(), rig.counters().timed_out), ((0, 0, 0), 1));
}

#[test]
fn a_closed_window_ends_a_connection_whose_program_waits_no_longer() {
    let mut rig = with_options(Config { retries: 1, ..separate() }, user_timeout(S));
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    assert_eq!(rig.fires(RTO), [(0, 0)]);
    assert_eq!(rig.info().probes, 1);
    rig.later(Duration::ZERO).say(1, 1, 0, &[]);
    // Only what is not answered counts.
    assert_eq!(rig.fires(2 * RTO), [(0, 0)]);
    assert_eq!(rig.fires(4 * RTO), []);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
    let mut rig = with_options(separate(), user_timeout(S));
    rig.now += 5 * S;
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    assert_eq!(rig.fires(RTO), [(0, 0)], "its time begins with the first probe");
    rig.fires(2 * RTO);
    assert_eq!(rig.fires(S - 2 * RTO), []);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
}

#[test]
fn a_window_too_small_for_a_segment_is_used_when_the_probe_is_due() {
    let mut rig = Rig::sacking(separate());
    rig.say(1, 1, 0, &[]);
    rig.say(1, 1, 500, &[]);
    assert_eq!(rig.write(1000), []);
    assert_eq!(rig.fires(RTO), [(1, 500)]);
}

#[test]
fn the_probe_of_a_window_does_not_wait_longer_for_more_data() {
    let mut rig = Rig::sacking(separate());
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    rig.now += milliseconds(100);
    rig.write(1000);
    assert_eq!(rig.wait(), Some(RTO - milliseconds(100)));
    // A full segment needs no probe, and neither does the last byte.
    let said = rig.say(1, 1, 1000, &[]);
    assert_eq!(rig.brief(&said), [(1, 1000)]);
    let said = rig.say(1, 1001, 1000, &[]);
    assert_eq!(rig.brief(&said), [(1001, 1000)]);
}

#[test]
fn a_fin_waits_for_the_window_and_probes_it() {
    let mut rig = Rig::sacking(separate());
    rig.say(1, 1, 0, &[]);
    assert_eq!(rig.end(), []);
    assert_eq!(rig.fires(RTO), [(0, 0)]);
    let said = rig.say(1, 1, 1, &[]);
    assert_eq!((rig.brief(&said), said[0].flags), (vec![(1, 0)], Flags::ACK | Flags::FIN));
    rig.say(1, 2, 0, &[]);
    assert_eq!((rig.info().state, rig.wait()), (TcpState::FinWait2, None));
}

fn keepalive() -> Options {
    Options { keepalive: 10 * S, keepalive_interval: 3 * S, keepalive_count: 2, ..Options::default() }
}

#[test]
fn a_silent_peer_is_asked_and_then_reset() {
    let mut rig = with_options(separate(), keepalive());
    assert_eq!(rig.fires(10 * S), [(0, 0)]);
    assert_eq!((rig.info().probes, rig.counters().keepalives), (1, 1));
    assert_eq!(rig.fires(3 * S), [(0, 0)]);
    assert_eq!((rig.info().probes, rig.counters().keepalives), (2, 2));
    assert_eq!(rig.wait(), Some(3 * S));
    let said = rig.fire();
    assert_eq!((rig.brief(&said), said[0].flags), (vec![(1, 0)], Flags::RST | Flags::ACK));
    assert_eq!((rig.ended(), rig.counters().timed_out), (Some(Ended::TimedOut), 1));
    assert_eq!((rig.wait(), rig.counters().keepalives), (None, 2));
}

#[test]
fn a_peer_that_answers_is_asked_again_after_the_idle_time() {
    let mut rig = with_options(separate(), keepalive());
    for _ in 0..3 {
        rig.fires(10 * S);
        rig.fires(3 * S);
        rig.say(1, 1, 60_000, &[]);
        assert_eq!((rig.info().probes, rig.wait()), (0, Some(10 * S)));
    }
    rig.now += S;
    rig.say(1, 1, 60_000, &[7]);
    rig.now += S;
    assert_eq!((rig.wait(), rig.ended()), (Some(9 * S), None));
}

#[test]
fn nobody_is_asked_while_data_is_under_way() {
    let mut rig = with_options(Config { rto_max: 60 * S, ..without_probe() }, keepalive());
    rig.write(1000);
    while rig.now < Instant::from_nanos(1 << 40) + 60 * S {
        rig.fire();
    }
    assert_eq!((rig.counters().keepalives, rig.ended()), (0, None));
    assert!(rig.counters().timeouts > 5);
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!(rig.fires(10 * S), [(1000, 0)]);
}

#[test]
fn nobody_is_asked_while_data_waits_for_the_window() {
    let mut rig = with_options(separate(), keepalive());
    rig.say(1, 1, 0, &[]);
    rig.write(1000);
    while rig.now < Instant::from_nanos(1 << 40) + 20 * S {
        rig.fire();
    }
    assert_eq!((rig.counters().keepalives, rig.ended()), (0, None));
}

#[test]
fn a_silent_peer_is_reset_when_the_time_of_the_program_is_over() {
    let options = Options { user_timeout: 15 * S, keepalive_count: 1, ..keepalive() };
    let mut rig = with_options(separate(), options);
    rig.fires(10 * S);
    assert_eq!(rig.fires(3 * S), [(0, 0)], "the number does not count");
    rig.fires(3 * S);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
    // That time itself is over.
    let mut rig = with_options(separate(), Options { user_timeout: 13 * S, ..keepalive() });
    rig.fires(10 * S);
    rig.fires(3 * S);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
    // A first question is asked, however long that takes.
    let mut rig = with_options(separate(), Options { user_timeout: 5 * S, ..keepalive() });
    assert_eq!(rig.fires(10 * S), [(0, 0)]);
    assert_eq!(rig.ended(), None);
    rig.fires(3 * S);
    assert_eq!(rig.ended(), Some(Ended::TimedOut));
}

#[test]
fn a_connection_is_asked_in_every_state_but_that_of_a_handshake() {
    let rig = Rig::opening(separate(), keepalive());
    assert_eq!(rig.wait(), Some(S), "that of SYN");
    let mut rig = with_options(separate(), keepalive());
    rig.say_with(1, 1, Flags::ACK | Flags::FIN, 60_000, &[], &[]);
    assert_eq!(rig.info().state, TcpState::CloseWait);
    assert_eq!(rig.fires(10 * S), [(0, 0)]);
    let mut rig = with_options(separate(), keepalive());
    rig.end();
    rig.say(1, 2, 60_000, &[]);
    assert_eq!(rig.info().state, TcpState::FinWait2);
    assert_eq!(rig.fires(10 * S), [(1, 0)]);
}

#[test]
fn keepalives_that_are_switched_on_late_count_from_what_came_last() {
    let mut rig = Rig::sacking(separate());
    let id = rig.id.expect("accepted");
    rig.now += 4 * S;
    rig.tcp.set_options(rig.now, id, keepalive());
    assert_eq!(rig.wait(), Some(6 * S));
    rig.tcp.set_options(rig.now, id, Options::default());
    assert_eq!(rig.wait(), None);
}

/// The peer's data was answered: acknowledgements wait from now on.
fn interactive(options: Options) -> Rig {
    let mut rig = with_options(without_probe(), options);
    rig.say(1, 1, 60_000, &[7; 100]);
    rig.write(100);
    rig.say(101, 101, 60_000, &[]);
    assert_eq!(rig.wait(), None);
    rig
}

#[test]
fn an_acknowledgement_waits_for_40_ms() {
    let mut rig = interactive(Options::default());
    assert_eq!(rig.say(101, 101, 60_000, &[7; 100]), []);
    let said = {
        assert_eq!((rig.wait(), rig.counters().delayed_acks), (Some(milliseconds(40)), 0));
        rig.fire()
    };
    assert_eq!((said.len(), said[0].ack, said[0].len), (1, 201, 0));
    assert_eq!((rig.counters().delayed_acks, rig.wait()), (1, None));
    // The program has not answered: the next does not wait.
    assert_eq!(rig.say(201, 101, 60_000, &[7; 100]).len(), 1);
}

#[test]
fn an_acknowledgement_waits_no_longer_when_more_comes() {
    let mut rig = interactive(Options::default());
    rig.say(101, 101, 60_000, &[7; 100]);
    assert_eq!(rig.later(milliseconds(10)).say(201, 101, 60_000, &[7; 100]), []);
    assert_eq!(rig.wait(), Some(milliseconds(30)));
    // What the program writes takes it along.
    let said = rig.write(10);
    assert_eq!((said.len(), said[0].ack, rig.info().unacked), (1, 301, 1));
    assert_eq!(rig.counters().delayed_acks, 0);
}

#[test]
fn a_cork_lets_go_after_200_ms() {
    let mut rig = with_options(without_probe(), Options { cork: true, ..Options::default() });
    assert_eq!(rig.write(100), []);
    assert_eq!(rig.wait(), Some(milliseconds(200)));
    rig.now += milliseconds(50);
    assert_eq!(rig.write(100), []);
    assert_eq!(rig.fires(milliseconds(150)), [(1, 200)]);
    assert_eq!(rig.wait(), Some(RTO));
    // The next waits as long.
    rig.say(1, 201, 60_000, &[]);
    assert_eq!(rig.write(1500).len(), 1);
    rig.say(1, 1201, 60_000, &[]);
    assert_eq!(rig.fires(milliseconds(199)), [(1201, 500)]);
}

#[test]
fn bytes_that_only_a_cork_holds_probe_no_window() {
    let config = Config { rto_min: milliseconds(50), ..without_probe() };
    let mut rig = with_options(config, Options { cork: true, ..Options::default() });
    rig.say(1, 1, 0, &[]);
    rig.say(1, 1, 100, &[]);
    assert_eq!(rig.write(100), []);
    assert_eq!((rig.info().rto_us, rig.wait()), (70_000, Some(milliseconds(200))));
    assert_eq!(rig.fires(milliseconds(200)), [(1, 100)]);
}

#[test]
fn a_cork_that_holds_nothing_lets_the_next_wait() {
    let mut rig = with_options(without_probe(), Options { cork: true, ..Options::default() });
    rig.write(100);
    // A full segment leaves before.
    assert_eq!(rig.write(900).len(), 1);
    rig.say(1, 1001, 60_000, &[]);
    assert_eq!(rig.fires(milliseconds(199)), []);
    assert_eq!(rig.wait(), None);
    assert_eq!(rig.write(100), []);
    assert_eq!(rig.fires(milliseconds(200)), [(1001, 100)]);
}

#[test]
fn a_closed_connection_waits_a_minute_for_the_peer_to_finish() {
    for (options, wait) in
        [(Options::default(), 60 * S), (Options { fin_wait: Some(5 * S), ..Options::default() }, 5 * S)]
    {
        // Closed before its FIN is acknowledged, and after.
        for late in [false, true] {
            let mut rig = with_options(separate(), options);
            if late {
                rig.end();
                rig.say(1, 2, 60_000, &[]);
                assert_eq!(rig.wait(), None);
                rig.close();
            } else {
                rig.close();
                rig.say(1, 2, 60_000, &[]);
            }
            assert_eq!(rig.wait(), Some(wait), "{late}");
            assert_eq!(rig.fire(), []);
            assert_eq!(rig.tcp.count(), (0, 0, 0));
        }
    }
}

#[test]
fn a_program_that_waits_for_no_fin_leaves_at_once() {
    let mut rig = with_options(separate(), Options { fin_wait: Some(Duration::ZERO), ..Options::default() });
    rig.end();
    rig.say(1, 2, 60_000, &[]);
    rig.close();
    assert_eq!(rig.tcp.count(), (0, 0, 0));
}

/// A peer that takes segments of 1460 bytes.
const WHOLE: [u8; 8] = [2, 4, 5, 180, 1, 1, 4, 2];

#[test]
fn a_path_that_loses_long_segments_without_a_word_gets_shorter_ones() {
    let config = Config { black_hole_detection: true, retries: 8, rto_max: S, ..without_probe() };
    let mut rig = Rig::established(config.clone(), Options::default(), 0, &WHOLE);
    rig.write(2920);
    for wait in [RTO, 2 * RTO] {
        assert_eq!(rig.fires(wait), [(1, 1460)]);
    }
    assert_eq!(rig.fires(4 * RTO), [(1, 1024)]);
    assert_eq!((rig.info().mtu, rig.info().mss, rig.info().cwnd), (1064, 1024, 1));
    for _ in 0..2 {
        assert_eq!(rig.fires(S), [(1, 1024)]);
    }
    assert_eq!(rig.fires(S), [(1, 512)]);
    assert_eq!((rig.info().mtu, rig.info().mss, rig.counters().black_holes), (552, 512, 2));
    // What arrives shows that the path works, and the size stays.
    let said = rig.say(1, 513, 60_000, &[]);
    assert!(!said.is_empty() && said.iter().all(|it| it.len <= 512), "{said:?}");
    let mut acknowledged = 513;
    while acknowledged < 2921 {
        acknowledged = (acknowledged + 512).min(2921);
        rig.say(1, acknowledged, 60_000, &[]);
    }
    assert_eq!((rig.info().unacked, rig.info().lost), (0, 0));
    assert!(rig.write(1460).iter().all(|it| it.len <= 512));

    // Linux's default: the path is asked nothing.
    let mut rig =
        Rig::established(Config { black_hole_detection: false, ..config }, Options::default(), 0, &WHOLE);
    rig.write(2920);
    for wait in [RTO, 2 * RTO, 4 * RTO, S, S, S, S] {
        assert_eq!(rig.fires(wait), [(1, 1460)]);
    }
    assert_eq!(rig.counters().black_holes, 0);
}

#[test]
fn short_segments_that_are_lost_say_nothing_about_the_path() {
    let config = Config { black_hole_detection: true, rto_max: S, ..without_probe() };
    let mut rig = Rig::established(config, Options::default(), 0, &WHOLE);
    rig.write(1000);
    for wait in [RTO, 2 * RTO, 4 * RTO, S, S] {
        assert_eq!(rig.fires(wait), [(1, 1000)]);
    }
    assert_eq!((rig.info().mtu, rig.counters().black_holes), (1500, 0));
}
