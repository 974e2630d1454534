//! SYN-SENT, and SYN-RECEIVED of two ends that open at once (RFC 9293 sections 3.10.7.3 and 3.10.7.4).

use super::*;
use crate::Ecn;
use crate::state::Ended;

const SYN_ACK: u8 = Flags::SYN | Flags::ACK;

fn connecting() -> (Rig, Said) {
    Rig::connecting(Config::default(), Options::default())
}

/// Both have sent a SYN. Challenges are not limited.
fn crossing(config: Config, flags: u8, options: &[u8]) -> (Rig, Vec<Said>) {
    let config = Config { challenge_interval: Duration::ZERO, ..config };
    let (mut rig, _) = Rig::connecting(config, Options::default());
    let said = rig.say_with(0, 0, Flags::SYN | flags, WINDOW, options, &[]);
    assert_eq!(rig.state(), TcpState::SynRecv);
    (rig, said)
}

#[test]
fn what_acknowledges_another_number_than_that_of_the_syn_is_answered_by_a_reset() {
    for (ack, flags) in [(0, Flags::ACK), (2, Flags::ACK), (0, SYN_ACK), (2, SYN_ACK), (u32::MAX, SYN_ACK)] {
        let (mut rig, _) = connecting();
        let said = rig.say_with(0, ack, flags, WINDOW, &[], &[]);
        assert!(said.len() == 1 && (said[0].flags, said[0].seq) == (Flags::RST, ack), "{ack}: {said:?}");
        assert!(rig.say_with(0, ack, Flags::RST | flags, WINDOW, &[], &[]).is_empty());
        assert_eq!((rig.state(), rig.info().ended), (TcpState::SynSent, None));
        assert_eq!((rig.counters().ack_out_of_range, rig.counters().resets_out), (2, 1));
    }
}

#[test]
fn first_numbers_follow_a_clock_that_ticks_each_64_ns() {
    let mut rig = Rig::listening(Config::default());
    let mut first = || {
        let id = rig.tcp.connect(rig.now, SERVER.into(), PEER.into(), Options::default()).expect("opens");
        let number = rig.output()[0].seq;
        rig.tcp.abort(rig.now, id);
        rig.output();
        rig.now += Duration::from_nanos(6400);
        number
    };
    let numbers = [first(), first(), first()];
    assert_eq!([1, 2].map(|index| numbers[index].wrapping_sub(numbers[index - 1])), [100, 100]);
}

/// This end has closed a connection of its own first: it is in TIME_WAIT. Returns the number behind its FIN.
fn waiting(syn_options: &[u8]) -> (Rig, u32) {
    let (mut rig, syn) = connecting();
    let stamped = syn_options.len() > SACK.len();
    let echo = |rig: &Rig| if stamped { stamps(7, rig.tcp.clock_offset(&rig.tuple)) } else { Vec::new() };
    assert!(syn.stamps().is_some());
    rig.say_with(0, 1, SYN_ACK, WINDOW, syn_options, &[]);
    assert_eq!(rig.state(), TcpState::Established);
    assert!(rig.end()[0].has(Flags::FIN));
    let options = echo(&rig);
    let said = rig.say_with(1, 2, Flags::FIN | Flags::ACK, WINDOW, &options, &[]);
    assert!(said[0].is_ack(2), "{said:?}");
    rig.close();
    assert_eq!(rig.tcp.count(), (0, 0, 1));
    let next = rig.iss.wrapping_add(2);
    (rig, next)
}

fn connect(rig: &mut Rig) -> Result<ConnectionId, ConnectError> {
    rig.tcp.connect(rig.now, SERVER.into(), PEER.into(), Options::default())
}

/// MSS 1000, SACK, and a timestamp.
fn stamped() -> Vec<u8> {
    Offer { mss: 1000, sack: true, stamp: Some(7), scale: None }.bytes()
}

#[test]
fn our_own_time_wait_makes_room_once_both_clocks_have_moved_for_numbers_above_all_before() {
    let (mut rig, next) = waiting(&stamped());
    assert_eq!(connect(&mut rig), Err(ConnectError::InUse));
    rig.pass(milliseconds(999));
    assert_eq!(connect(&mut rig), Err(ConnectError::InUse));
    rig.pass(milliseconds(1));
    assert!(connect(&mut rig).is_ok());
    assert_eq!((rig.tcp.count(), rig.counters().time_wait_reused), ((1, 0, 0), 1));
    let above = Seq(next) + 65_537;
    assert!(!Seq(rig.output()[0].seq.wrapping_add(rig.iss)).before(above));
}

#[test]
fn a_fin_that_comes_again_keeps_our_own_time_wait_closed_for_another_second() {
    let (mut rig, _) = waiting(&stamped());
    rig.pass(milliseconds(900));
    let options = stamps(8, rig.tcp.clock_offset(&rig.tuple));
    assert_eq!(rig.say_with(1, 2, Flags::FIN | Flags::ACK, WINDOW, &options, &[]).len(), 1);
    rig.pass(milliseconds(999));
    assert_eq!(connect(&mut rig), Err(ConnectError::InUse));
    rig.pass(milliseconds(1));
    assert!(connect(&mut rig).is_ok());
}

#[test]
fn without_timestamps_our_own_time_wait_lasts_to_its_end() {
    let (mut rig, _) = waiting(&SACK);
    rig.pass(milliseconds(59_990));
    assert_eq!(connect(&mut rig), Err(ConnectError::InUse));
    rig.pass(milliseconds(20));
    assert_eq!(rig.tcp.count(), (0, 0, 0));
    assert!(connect(&mut rig).is_ok());
    // Nor if timestamps were taken back in between.
    let (mut rig, _) = waiting(&stamped());
    rig.tcp.set_config(Config { timestamps: false, ..Config::default() });
    rig.pass(milliseconds(2000));
    assert_eq!(connect(&mut rig), Err(ConnectError::InUse));
}

#[test]
fn data_on_the_syn_for_a_listener_is_taken_when_it_comes_again() {
    let mut rig = Rig::listening(Config::default());
    let said = rig.say_with(0, 0, Flags::SYN, WINDOW, &SACK, b"abc");
    rig.iss = said[0].seq;
    // Nothing is kept for a peer that may not exist, and nothing but its SYN is acknowledged.
    assert!(said.len() == 1 && said[0].flags == SYN_ACK && said[0].ack == 1, "{said:?}");
    assert_eq!(rig.tcp.memory(), 0);
    rig.say_with(1, 1, Flags::ACK | Flags::PSH, WINDOW, &[], b"abc");
    rig.id = rig.tcp.accept(ListenerId(0));
    assert_eq!(rig.stream().received(), b"abc");
}

#[test]
fn a_reset_refuses_the_connection_only_if_it_acknowledges_the_syn() {
    let (mut rig, _) = connecting();
    assert!(rig.say_with(0, 1, Flags::RST, WINDOW, &[], &[]).is_empty());
    assert_eq!(rig.state(), TcpState::SynSent);
    assert!(rig.say_with(0, 1, Flags::RST | Flags::ACK, WINDOW, &[], &[]).is_empty());
    assert_eq!((rig.info().ended, rig.counters().failed_opens), (Some(Ended::Refused), 1));
}

#[test]
fn what_is_neither_syn_nor_reset_is_counted_and_left() {
    let (mut rig, _) = connecting();
    for (count, flags) in [(1, Flags::ACK), (2, Flags::ACK | Flags::FIN), (3, Flags::PSH)] {
        assert!(rig.say_with(0, 1, flags, WINDOW, &[], b"x").is_empty());
        assert_eq!((rig.state(), rig.counters().bad_flags), (TcpState::SynSent, count));
    }
}

#[test]
fn the_echo_of_a_stamp_that_was_never_sent_is_refused() {
    for (ahead, taken) in [(0, true), (1, true), (2, false), (1000, false)] {
        let (mut rig, syn) = connecting();
        let (value, _) = syn.stamps().expect("timestamps");
        let options = stamps(5, value.wrapping_add(ahead));
        if !taken {
            let reset = Flags::RST | Flags::ACK;
            assert!(rig.say_with(0, 1, reset, WINDOW, &options, &[]).is_empty());
            rig.now = Instant::from_nanos(rig.now.as_nanos() - 1_000_000);
        }
        let said = rig.say_with(0, 1, SYN_ACK, WINDOW, &options, &[]);
        let state = if taken { TcpState::Established } else { TcpState::SynSent };
        assert_eq!((rig.state(), said[0].has(Flags::RST)), (state, !taken), "{ahead}");
        assert_eq!(rig.counters().paws_rejected, if taken { 0 } else { 2 });
    }
}

#[test]
fn an_echo_of_nothing_or_without_an_offer_is_not_judged() {
    let (mut rig, _) = connecting();
    assert!(rig.say_with(0, 1, SYN_ACK, WINDOW, &stamps(5, 0), &[])[0].is_ack(1));
    let config = Config { timestamps: false, ..Config::default() };
    let (mut rig, syn) = Rig::connecting(config, Options::default());
    assert_eq!(syn.stamps(), None);
    assert!(rig.say_with(0, 1, SYN_ACK, WINDOW, &stamps(5, u32::MAX / 2), &[])[0].is_ack(1));
    assert!(!rig.info().has_timestamps);
}

#[test]
fn a_syn_ack_is_acknowledged_at_once_with_the_data_that_comes_on_it() {
    let (mut rig, syn) = connecting();
    assert_eq!((syn.flags, syn.parsed().mss), (Flags::SYN, Some(1460)));
    let said = rig.say_with(0, 1, SYN_ACK, WINDOW, &SACK, b"abc");
    assert!(said.len() == 1 && said[0].is_ack(4) && said[0].seq == 1, "{said:?}");
    let info = rig.info();
    assert_eq!((info.state, info.mss, info.send_window), (TcpState::Established, 1000, u32::from(WINDOW)));
    assert_eq!((info.queued, info.segments_in), (3, 1));
    assert_eq!((rig.counters().active_opens, rig.counters().failed_opens), (1, 0));
    let (_, events) = rig.tcp.next_event().expect("an event");
    assert!(events.has(Events::CONNECTED));
}

#[test]
fn a_fin_on_a_syn_ack_is_taken_with_the_data_before_it() {
    for (payload, next) in [(&b"abc"[..], 5), (b"", 2)] {
        let (mut rig, _) = connecting();
        let said = rig.say_with(0, 1, SYN_ACK | Flags::FIN, WINDOW, &[], payload);
        assert!(said.len() == 1 && said[0].is_ack(next), "{said:?}");
        assert_eq!((rig.state(), rig.stream().received()), (TcpState::CloseWait, payload));
    }
    // Nothing is taken of what does not open the connection, and nothing is missed if it holds nothing.
    let (mut rig, _) = connecting();
    rig.say_with(0, 2, SYN_ACK | Flags::FIN, WINDOW, &[], b"abc");
    assert_eq!((rig.state(), rig.info().queued), (TcpState::SynSent, 0));
    rig.say_with(0, 1, SYN_ACK, WINDOW, &[], b"");
    assert_eq!((rig.state(), rig.counters().duplicates_in), (TcpState::Established, 0));
}

#[test]
fn a_program_that_has_ended_before_the_syn_ack_came_still_gets_the_data_on_it() {
    let (mut rig, _) = connecting();
    rig.end();
    let said = rig.say_with(0, 1, SYN_ACK, WINDOW, &[], b"abc");
    assert!(
        said.iter().any(|said| said.has(Flags::FIN)) && said.iter().all(|said| said.ack == 4),
        "{said:?}"
    );
    assert_eq!((rig.state(), rig.stream().received()), (TcpState::FinWait1, &b"abc"[..]));
}

#[test]
fn congestion_notification_is_agreed_on_by_ece_alone_if_it_was_asked_for() {
    let both = Flags::ECE | Flags::CWR;
    let cases = [
        (Ecn::Request, Flags::ECE, true),
        (Ecn::Request, both, false),
        (Ecn::Request, Flags::CWR, false),
        (Ecn::Request, 0, false),
        (Ecn::Accept, Flags::ECE, false),
        (Ecn::Off, Flags::ECE, false),
    ];
    for (ecn, answer, agreed) in cases {
        let (mut rig, syn) = Rig::connecting(Config { ecn, ..Config::default() }, Options::default());
        assert_eq!(syn.has(both), ecn == Ecn::Request);
        rig.say_with(0, 1, SYN_ACK | answer, WINDOW, &[], &[]);
        assert_eq!(rig.info().has_ecn, agreed, "{ecn:?} {answer:#x}");
    }
}

#[test]
fn a_peer_that_opens_at_once_asks_for_congestion_notification_by_both_bits() {
    let both = Flags::ECE | Flags::CWR;
    let cases = [
        (Ecn::Request, both, true),
        (Ecn::Accept, both, true),
        (Ecn::Accept, Flags::ECE, false),
        (Ecn::Accept, Flags::CWR, false),
        (Ecn::Accept, 0, false),
        (Ecn::Off, both, false),
    ];
    for (ecn, flags, agreed) in cases {
        let (rig, said) = crossing(Config { ecn, ..Config::default() }, flags, &[]);
        assert_eq!((rig.info().has_ecn, said[0].has(Flags::ECE)), (agreed, agreed), "{ecn:?} {flags:#x}");
    }
}

#[test]
fn the_handshake_gives_the_first_round_trip_to_the_microsecond() {
    for with_stamps in [true, false] {
        let (mut rig, syn) = connecting();
        let (value, _) = syn.stamps().expect("timestamps");
        let options = if with_stamps { stamps(5, value) } else { Vec::new() };
        rig.now += Duration::from_micros(700);
        rig.say_with(0, 1, SYN_ACK, WINDOW, &options, &[]);
        assert_eq!(rig.info().srtt_us, 1700);
    }
}

#[test]
fn only_timestamps_give_the_round_trip_of_a_syn_that_was_repeated() {
    for (with_stamps, echoes, srtt_us) in [(true, true, 21_000), (true, false, 0), (false, false, 0)] {
        let (mut rig, _) = connecting();
        let said = rig.pass(milliseconds(1010));
        let (value, _) = said[0].stamps().expect("timestamps");
        rig.now += milliseconds(20);
        let options = if with_stamps { stamps(5, if echoes { value } else { 0 }) } else { Vec::new() };
        rig.say_with(0, 1, SYN_ACK, WINDOW, &options, &[]);
        assert_eq!((rig.info().srtt_us, rig.info().cwnd), (srtt_us, 1), "{with_stamps} {echoes}");
    }
}

#[test]
fn two_ends_that_open_at_once_meet() {
    let offer = Offer { mss: 1000, scale: Some(3), ..Offer::default() }.bytes();
    let (mut rig, said) = crossing(Config::default(), 0, &offer);
    assert!(said.len() == 1 && said[0].flags == SYN_ACK && (said[0].seq, said[0].ack) == (0, 1), "{said:?}");
    // The window of a SYN has no scale.
    let said = rig.say_with(0, 1, SYN_ACK, 500, &offer, b"abc");
    assert!(said.len() == 1 && said[0].is_ack(1) && said[0].seq == 1, "{said:?}");
    let info = rig.info();
    assert_eq!((info.state, info.send_window, info.queued), (TcpState::Established, 500, 0));
    assert_eq!(rig.counters().active_opens, 1);

    let (mut rig, _) = crossing(Config::default(), 0, &offer);
    rig.say(1, 1, 500, b"abc");
    let info = rig.info();
    assert_eq!((info.state, info.send_window), (TcpState::Established, 4000));
    assert_eq!((info.queued, rig.counters().active_opens), (3, 1));
}

#[test]
fn a_syn_that_does_not_cross_is_challenged() {
    let syns = [(0, 1, Flags::SYN), (0, 0, SYN_ACK), (5, 1, SYN_ACK), (0, 2, SYN_ACK)];
    for (seq, ack, flags) in syns {
        let (mut rig, _) = crossing(Config::default(), 0, &[]);
        let said = rig.say_with(seq, ack, flags, WINDOW, &[], &[]);
        assert!(said.len() == 1 && said[0].is_ack(1), "{seq} {ack} {flags:#x}: {said:?}");
        assert_eq!((rig.state(), rig.counters().challenges), (TcpState::SynRecv, 1));
        assert_eq!((rig.counters().bad_flags, rig.counters().ack_out_of_range), (0, 0));
    }
}

#[test]
fn in_syn_received_a_wrong_acknowledgement_is_reset_and_none_at_all_is_left() {
    let (mut rig, _) = crossing(Config::default(), 0, &[]);
    for (count, ack) in [(1, 0), (2, 2)] {
        let said = rig.say(1, ack, WINDOW, b"x");
        assert!(said.len() == 1 && (said[0].flags, said[0].seq) == (Flags::RST, ack), "{said:?}");
        assert_eq!(rig.counters().ack_out_of_range, count);
    }
    assert!(rig.say_with(1, 1, Flags::PSH, WINDOW, &[], b"x").is_empty());
    assert_eq!((rig.counters().bad_flags, rig.state(), rig.info().queued), (1, TcpState::SynRecv, 0));
}

#[test]
fn a_listener_forgets_a_handshake_by_an_exact_reset_only() {
    let mut rig = Rig::listening(Config { challenge_interval: Duration::ZERO, ..Config::default() });
    rig.syn(0, Flags::SYN, &[]);
    for (seq, said) in [(2, 1), (65_535, 1), (0, 0), (65_536, 0)] {
        let answers = rig.say_with(seq, 1, Flags::RST, WINDOW, &[], &[]);
        assert_eq!((answers.len(), rig.tcp.count().1), (said, 1), "{seq}");
    }
    assert!(rig.say_with(1, 1, Flags::RST, WINDOW, &[], &[]).is_empty());
    assert_eq!((rig.tcp.count().1, rig.counters().failed_opens), (0, 1));
}

#[test]
fn data_on_a_crossing_syn_is_there_also_if_a_syn_ends_the_handshake() {
    let (mut rig, _) = Rig::connecting(separate(), Options::default());
    rig.say_with(0, 0, Flags::SYN, WINDOW, &SACK, &[7; 10]);
    let said = rig.say_with(0, 1, Flags::SYN | Flags::ACK, WINDOW, &SACK, &[]);
    rig.tcp.check();
    assert!(said.iter().any(|said| said.is_ack(11)), "{said:?}");
    assert_eq!(rig.stream().received(), [7; 10]);
}

#[test]
fn data_on_a_crossing_syn_is_there_once_the_handshake_has_ended() {
    for (config, seq) in [(Config::default(), 1), (Config::default(), 4), (separate(), 1)] {
        let (mut rig, _) = Rig::connecting(config, Options::default());
        let said = rig.say_with(0, 0, Flags::SYN, WINDOW, &[], b"abc");
        // Only SYN is acknowledged until then.
        assert!(said.len() == 1 && said[0].flags == SYN_ACK && said[0].ack == 1, "{said:?}");
        assert!(rig.stream().received().is_empty());
        let said = rig.say(seq, 1, WINDOW, &[]);
        assert!(said.iter().all(|it| it.is_ack(4)), "{said:?}");
        assert_eq!(rig.stream().received(), b"abc");
        assert_eq!(rig.info().bytes_received, 3);
        // What the peer sends again is a copy.
        assert!(rig.say(1, 1, WINDOW, b"abcd")[0].is_ack(5));
        assert_eq!(rig.stream().received(), b"abcd");
        rig.tcp.check();
    }
}

#[test]
fn data_on_a_crossing_syn_is_dropped_if_nobody_is_to_read_it() {
    let (mut rig, _) = Rig::connecting(Config::default(), Options::default());
    rig.say_with(0, 0, Flags::SYN, WINDOW, &[], b"abc");
    rig.close();
    let said = rig.say(1, 1, WINDOW, &[]);
    assert!(said.iter().any(|it| it.has(Flags::FIN) && it.ack == 1), "{said:?}");
    rig.tcp.check();
    assert!(rig.say(1, 1, WINDOW, b"abc").iter().any(|it| it.has(Flags::RST)));
    assert_eq!(rig.tcp.memory(), 0);
}

#[test]
fn congestion_notification_is_left_out_of_later_syns() {
    for ecn_syns in [1, 2] {
        let config = Config { ecn: Ecn::Request, ecn_syns, ..Config::default() };
        let (mut rig, syn) = Rig::connecting(config, Options::default());
        let mut syns = vec![syn];
        while syns.len() < 4 {
            syns.extend(rig.pass_to_deadline(Duration::from_secs(60)));
        }
        let asks = syns.iter().take_while(|it| it.has(Flags::ECE | Flags::CWR)).count();
        assert_eq!(asks, usize::from(ecn_syns));
        assert!(syns[asks..].iter().all(|it| it.flags == Flags::SYN));
    }
}

#[test]
fn what_a_syn_offers_does_not_follow_from_the_path() {
    let (mut rig, syn) = connecting();
    assert_eq!(syn.parsed().mss, Some(1460));
    rig.icmp(0, IcmpError::TooBig(1000));
    let again = rig.pass_to_deadline(Duration::from_secs(2));
    let again = if again.is_empty() { rig.pass(Duration::from_secs(2)) } else { again };
    assert_eq!(again[0].parsed().mss, Some(1460));
    assert_eq!(rig.info().advertised_mss, 1460);
}

#[test]
fn a_router_that_says_less_than_every_link_of_ipv6_carries_is_not_believed() {
    let mut rig = Rig::listening(separate());
    let [local, remote] = ["[2001:db8::1]:80", "[2001:db8::2]:4000"].map(|end| end.parse().expect("an end"));
    rig.id = rig.tcp.connect(rig.now, local, remote, Options::default()).ok();
    (rig.tuple, rig.iss) = (Tuple::new(local, remote), rig.output()[0].seq);
    for (mtu, [counted, refused]) in [(1279, [0, 1]), (0, [0, 2]), (1280, [1, 2])] {
        rig.icmp(0, IcmpError::TooBig(mtu));
        let counters = rig.counters();
        assert_eq!([counters.icmp_in, counters.icmp_refused], [counted, refused], "{mtu}");
    }
}

#[test]
fn by_rfc_793_a_reset_within_the_window_refuses_a_handshake() {
    let config = Config { challenge_resets: false, ..Config::default() };
    for (seq, refused) in [(1, true), (65_535, true), (65_537, false), (0, false)] {
        let mut rig = Rig::listening(config.clone());
        rig.syn(0, Flags::SYN, &SACK);
        assert!(rig.say_with(seq, 0, Flags::RST, WINDOW, &[], &[]).is_empty());
        assert_eq!(rig.counters().failed_opens, u64::from(refused), "{seq}");
    }
}
