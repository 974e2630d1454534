//! What a hostile peer, or an unlucky one, once made of the engine: endless loops, memory held for ever, silence.

use twinpath_stream::{Received, Transport};

use super::*;
use crate::IcmpError;
use crate::state::Ended;

#[test]
fn a_lost_segment_behind_a_window_that_has_shrunk_waits() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, WINDOW, &[7]);
    assert_eq!(rig.write(8000).len(), 8);
    // The last three have arrived, and there is room for the first only.
    let said = rig.sack(1, 1000, [5001, 8001]);
    assert!(said.iter().all(|said| said.seq == 1), "{said:?}");
    let said = rig.sack(1001, WINDOW, [5001, 8001]);
    assert!(!said.is_empty(), "the window has opened");
}

/// Ten thousand idle connections that each had one bad moment would hold the memory for it.
#[test]
fn what_is_rare_is_given_back_once_it_is_over() {
    let has_rare = |rig: &Rig| {
        let slot = &rig.tcp.slots[rig.id().index as usize];
        slot.connection.as_ref().is_some_and(|connection| connection.has_rare())
    };
    // A segment is lost, and sent again.
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, WINDOW, &[7]);
    rig.read(1);
    assert_eq!(rig.write(4000).len(), 4);
    rig.sack(1, WINDOW, [1001, 4001]);
    let repeated = |rig: &mut Rig| rig.pass_to_deadline(milliseconds(500)).iter().any(|said| said.seq == 1);
    assert!((0..10).any(|_| repeated(&mut rig)));
    rig.say(2, 4001, WINDOW, &[]);
    assert!(has_rare(&rig), "a duplicate may be reported yet");
    rig.write(10);
    rig.say(2, 4011, WINDOW, &[]);
    assert!(!has_rare(&rig));
    // A segment that cannot be the peer's.
    rig.take(Crafted { seq: 2, ack: 4011, flags: Flags::SYN, ..Crafted::default() });
    assert!(has_rare(&rig), "the next one is answered later");
    rig.pass(milliseconds(1000));
    rig.say(2, 4011, WINDOW, &[7]);
    rig.read(1);
    rig.say(3, 4011, WINDOW, &[]);
    assert!(!has_rare(&rig));
    // Urgent data.
    rig.take(Crafted {
        seq: 3,
        ack: 4011,
        urgent: 1,
        flags: Flags::ACK | Flags::URG,
        payload: &[7],
        ..Crafted::default()
    });
    assert!(has_rare(&rig));
    rig.read(1);
    rig.say(4, 4011, WINDOW, &[7]);
    assert!(!has_rare(&rig));
}

#[test]
fn blocks_of_sack_make_no_segment_longer_than_the_path_takes() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(5001, 1, WINDOW, &[7; 100]);
    for said in rig.write(3500) {
        assert!(said.options.len() + said.len <= 1000, "{said:?}");
    }
    // An acknowledgement alone has them.
    assert_eq!(rig.say(7001, 1, WINDOW, &[7; 100])[0].options.len(), 20);
}

#[test]
fn a_request_longer_than_the_first_window_is_lent_in_one_piece() {
    let config = Config { receive_initial: 8192, ..separate() };
    let mut rig = Rig::new(config, &[2, 4, 3, 232, 1, 3, 3, 7]);
    let (mut seq, mut edge) = (1_u32, 1 + 8192_u32);
    let id = rig.id.expect("accepted");
    for _ in 0..200 {
        while seq + 1000 <= edge {
            for said in rig.say(seq, 1, WINDOW, &[7; 1000]) {
                edge = edge.max(said.ack + (u32::from(said.window) << 7));
            }
            seq += 1000;
        }
        let mut stream = rig.tcp.stream(rig.now, id).expect("is there");
        let received = stream.receive(100_000).expect("works");
        let lent = stream.lend(0).received.len();
        // The service waits for all of it.
        stream.consume(0);
        assert!(received != Received::End && lent <= 100_000);
        if lent == 100_000 {
            return;
        }
        for said in rig.pass(milliseconds(50)) {
            edge = edge.max(said.ack + (u32::from(said.window) << 7));
        }
    }
    panic!("{} bytes came, and the window ends at {edge}", seq - 1);
}

#[test]
fn records_of_time_wait_that_were_replaced_leave_nothing() {
    let mut rig = Rig::new(separate(), &SACK);
    let mut seq = 1_u32;
    for _ in 0..50 {
        let id = rig.id.expect("accepted");
        rig.tcp.stream(rig.now, id).expect("is there").end();
        rig.output();
        rig.say_with(seq, 2, Flags::ACK | Flags::FIN, WINDOW, &[], &[]);
        rig.tcp.close(rig.now, id);
        rig.output();
        assert_eq!(rig.tcp.count(), (0, 0, 1));
        // A new connection takes its place (RFC 6191).
        seq = seq.wrapping_add(100_000);
        rig.open(seq, &SACK);
        seq += 1;
    }
    let id = rig.id.expect("accepted");
    rig.tcp.abort(rig.now, id);
    rig.pass(Duration::from_secs(70));
    assert_eq!(rig.tcp.count(), (0, 0, 0));
    assert!(rig.tcp.time_wait_order.is_empty());
    assert_eq!(rig.tcp.next_deadline(), Instant::NEVER);
}

#[test]
fn a_program_that_found_no_memory_is_told_when_there_is_some() {
    let mut rig = Rig::new(Config { memory: 8 << 10, ..separate() }, &SACK);
    let id = rig.id.expect("accepted");
    let hoarder = rig.tcp.connect(rig.now, PEER.into(), SERVER.into(), Options::default()).expect("opens");
    let mut stream = rig.tcp.stream(rig.now, hoarder).expect("is there");
    assert_eq!(stream.write(&[1; 8000]), 8000);
    while rig.tcp.next_event().is_some() {}
    let mut stream = rig.tcp.stream(rig.now, id).expect("is there");
    assert_eq!(stream.write(&[1; 100]), 0);
    rig.output();
    assert_eq!(rig.tcp.next_event(), None);
    rig.tcp.abort(rig.now, hoarder);
    rig.output();
    let (told, events) = rig.tcp.next_event().expect("an event");
    assert!(told == id && events.has(Events::WRITABLE));
}

#[test]
fn blocks_of_sack_make_no_part_of_a_long_segment_longer_than_the_path_takes() {
    let offer = Offer { mss: 1460, sack: true, stamp: Some(5), scale: Some(7) };
    let mut rig = Rig::new(Config::default(), &offer.bytes());
    rig.data(101, 100);
    let said = rig.write(1448 * 8);
    assert!(said.iter().any(|said| said.unit > 0), "{said:?}");
    for said in said {
        let each = if said.unit > 0 { said.unit } else { said.len };
        assert!(said.options.len() + each <= 1460, "{said:?}");
    }
}

#[test]
fn small_segments_do_not_push_the_window_of_a_program_that_does_not_read() {
    for scale in [None, Some(14)] {
        let offer = Offer { mss: 1460, sack: true, scale: Some(7), ..Offer::default() };
        let mut rig = Rig::new(Config { scale, ..Config::default() }, &offer.bytes());
        let unit = 1 << scale.unwrap_or(7);
        for _ in 0..1500 {
            let seq = 1 + rig.info().queued;
            rig.data(seq, (unit - 1).min(1459));
            rig.pass(milliseconds(50));
        }
        let queued = rig.info().queued as usize;
        assert!(queued <= (64 << 10) + unit, "scale {scale:?}: {queued} bytes are queued");
    }
}

#[test]
fn a_connection_that_nobody_holds_ends_though_its_peer_answers_every_probe_of_its_closed_window() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.say(1, 1, 0, &[]);
    rig.write(100_000);
    rig.close();
    let start = rig.now;
    while rig.tcp.count().0 > 0 && rig.now.since(start) < Duration::from_secs(48 * 3600) {
        if !rig.pass_to_deadline(Duration::MAX).is_empty() {
            rig.say(1, 1, 0, &[]);
        }
    }
    assert_eq!((rig.tcp.count().0, rig.tcp.memory()), (0, 0));
}

#[test]
fn an_opened_window_is_told_while_the_window_of_the_peer_is_closed() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.say(1, 1, 0, &[]);
    rig.write(5000);
    let mut seq = 1;
    while seq < 65_536 {
        let len = (65_536 - seq).min(1460);
        rig.say(seq, 1, 0, &vec![1; len as usize]);
        seq += len;
    }
    for _ in 0..200 {
        if !rig.pass_to_deadline(Duration::MAX).is_empty() {
            rig.say(seq, 1, 0, &[]);
        }
    }
    let said = rig.read(65_535);
    assert!(said.len() == 1 && said[0].is_ack(65_536) && said[0].window == 65_535, "{said:?}");
}

#[test]
fn bytes_at_the_far_ends_of_windows_leave_memory_to_write() {
    let offer = Offer { mss: 1460, sack: true, scale: Some(7), ..Offer::default() };
    let mut rig = Rig::listening(Config { memory: 32 << 20, ..Config::default() });
    for number in 0..600 {
        rig.peer(number);
        rig.open(0, &offer.bytes());
        rig.data(65_001, 1);
    }
    assert!(rig.counters().no_memory > 0, "the memory is not short");
    assert_eq!(rig.write(100).len(), 1);
}

#[test]
fn a_fin_out_of_order_holds_no_memory() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.say_with(65_001, 1, Flags::ACK | Flags::FIN, WINDOW, &[], &[]);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.tcp.memory(), 0);
}

#[test]
fn a_fin_is_sent_again_after_the_data_before_it_was_acknowledged_alone() {
    let mut rig = Rig::new(Config::default(), &SACK);
    assert_eq!(rig.stream().write(&[1; 1000]), 1000);
    let said = rig.close();
    assert!(said.len() == 1 && said[0].has(Flags::FIN), "{said:?}");
    let mut options = Writer::default();
    options.sack(&[(rig.iss.wrapping_add(1), rig.iss.wrapping_add(1001))]);
    rig.take(Crafted { options: options.bytes(), ..Crafted::default() });
    rig.say(1, 1001, WINDOW, &[]);
    let fins = (0..40).flat_map(|_| rig.pass(milliseconds(500))).filter(|said| said.has(Flags::FIN)).count();
    assert!(fins > 3, "{fins}");
}

#[test]
fn a_syn_that_comes_a_thousand_times_is_answered_as_often_as_time_outs_would() {
    let mut rig = Rig::listening(Config::default());
    let answers = (0..1000).map(|_| rig.say_with(0, 0, Flags::SYN, WINDOW, &[], &[]).len()).sum::<usize>();
    assert_eq!(answers, 1 + usize::from(rig.tcp.config().syn_ack_retries));
}

#[test]
fn more_keepalive_probes_than_a_byte_can_count_are_sent() {
    let mut rig = Rig::new(Config::default(), &SACK);
    let second = Duration::from_secs(1);
    rig.set(Options {
        keepalive: second,
        keepalive_interval: second,
        user_timeout: Duration::from_secs(600),
        ..Options::default()
    });
    let probes = (0..599).map(|_| rig.pass(second).len()).sum::<usize>();
    assert!(probes > 256 && rig.info().ended.is_none(), "{probes}");
    for _ in 0..5 {
        rig.pass(second);
    }
    assert_eq!(rig.info().ended, Some(Ended::TimedOut));
}

#[test]
fn free_blocks_of_every_size_stay_within_the_limit_of_memory() {
    const MEMORY: usize = 32 << 20;
    let mut rig = Rig::listening(Config { memory: MEMORY as u64, ..Config::default() });
    let options = Options { send_buffer: Some(8 << 20), ..Options::default() };
    let (mut size, mut peers) = (4_usize << 20, 0);
    while size >= 64 << 10 {
        let mut ids = Vec::new();
        for _ in 0..(MEMORY / size).min(64) {
            peers += 1;
            rig.peer(peers);
            rig.open(0, &SACK);
            rig.set(options);
            let mut stream = rig.stream();
            if stream.reserve_exactly(size * 2 / 3).is_some() {
                stream.commit_bytes(size * 2 / 3);
            }
            ids.push(rig.id());
        }
        for id in ids {
            rig.tcp.abort(rig.now, id);
        }
        rig.output();
        assert_eq!(rig.tcp.memory(), 0);
        let spare = rig.tcp.shared.pool.spare();
        assert!(spare > 0 && spare <= MEMORY as u64, "{spare}");
        size /= 2;
    }
}

/// Looks at all that has come, and uses nothing.
#[derive(Default)]
struct Keeps(Vec<(usize, usize)>);

impl Host for Keeps {
    fn received(&mut self, _: Instant, _: ConnectionId, stream: &mut Stream<'_>) {
        if let Ok(Received::Bytes { len, .. }) = stream.receive(1 << 16) {
            self.0.push((len, stream.lend(0).received.len()));
            Transport::consume(stream, 0);
        }
    }
}

#[test]
fn bytes_for_which_there_was_no_memory_are_lent_once() {
    let mut rig = Rig::new(Config { memory: 4 << 10, ..Config::default() }, &SACK);
    // The only block.
    rig.write(10);
    let mut keeps = Keeps::default();
    let mut take = |rig: &mut Rig, seq, ack, len| {
        let payload = vec![1; len];
        rig.take_with(Crafted { seq, ack, payload: &payload, ..Crafted::default() }, &mut keeps, false)
    };
    let said = take(&mut rig, 1, 1, 100);
    assert!(said[0].is_ack(1), "{said:?}");
    rig.say(1, 11, WINDOW, &[]);
    take(&mut rig, 1, 11, 60);
    take(&mut rig, 61, 11, 60);
    assert_eq!(keeps.0, [(60, 60)]);
    assert_eq!((rig.info().bytes_received, rig.info().queued), (120, 120));
}

#[test]
fn a_peer_that_answers_and_keeps_its_window_closed_is_not_given_up() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.write(5000);
    // It has no memory for them, says so, and answers everything.
    rig.say(1, 1, 0, &[]);
    let start = rig.now;
    while rig.now.since(start) < Duration::from_secs(4 * 3600) {
        let said = rig.pass_to_deadline(Duration::from_secs(3600));
        assert_eq!(rig.info().ended, None, "after {:?}", rig.now.since(start));
        if !said.is_empty() {
            rig.say(1, 1, 0, &[]);
        }
    }
}

#[test]
fn data_on_a_syn_ack_that_crosses_a_syn_shifts_nothing() {
    let (mut rig, _) = Rig::connecting(Config::default(), Options::default());
    rig.say_with(0, 0, Flags::SYN, WINDOW, &[], &[]);
    rig.say_with(0, 1, Flags::SYN | Flags::ACK, WINDOW, &[], b"abc");
    rig.say(1, 1, WINDOW, b"abcdef");
    assert_eq!(rig.stream().received(), b"abcdef");
}

#[test]
fn after_25_days_without_a_segment_the_stamp_of_the_next_one_is_echoed() {
    let offer = Offer { mss: 1000, stamp: Some(1000), ..Offer::default() };
    let mut rig = Rig::new(Config::default(), &offer.bytes());
    rig.now += Duration::from_secs(25 * 86_400);
    let value = 1000_u32.wrapping_add(25 * 86_400_000);
    let said = rig.take(Crafted { options: &stamps(value, 0), payload: &[1; 10], ..Crafted::default() });
    assert_eq!(said[0].stamps().map(|(_, echo)| echo), Some(value));
}

#[test]
fn small_segments_are_not_lost_by_a_path_that_carries_less() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.set(Options { no_delay: true, ..Options::default() });
    for _ in 0..5 {
        assert_eq!(rig.write(10).len(), 1);
    }
    let said = rig.icmp(1, IcmpError::TooBig(700));
    assert!(said.is_empty(), "{said:?}");
    assert_eq!((rig.info().mss, rig.info().lost), (660, 0));
}

fn lens(said: &[Said]) -> Vec<usize> {
    said.iter().map(|said| said.len).collect()
}

#[test]
fn what_a_router_says_is_believed_for_ten_minutes() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.set(Options { no_delay: true, ..Options::default() });
    assert_eq!(lens(&rig.write(1000)), [1000]);
    assert_eq!(lens(&rig.icmp(1, IcmpError::TooBig(700))), [660, 340]);
    rig.say(1, 1001, WINDOW, &[]);
    for (seconds, lens_then, mtu) in [(600, &[660, 340][..], 700), (60, &[1000], 1500)] {
        rig.now += Duration::from_secs(seconds);
        let before = rig.info().bytes_acked as u32;
        assert_eq!((lens(&rig.write(1000)).as_slice(), rig.info().mtu), (lens_then, mtu));
        rig.say(1, before + 1001, WINDOW, &[]);
    }
    assert_eq!(rig.info().mss, 1000);
}

#[test]
fn what_a_router_says_is_believed_no_longer_by_a_connection_that_is_always_busy() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.set(Options { no_delay: true, ..Options::default() });
    rig.write(1000);
    rig.icmp(1, IcmpError::TooBig(68));
    rig.say(1, 1001, WINDOW, &[]);
    // Each answer is a segment alone, and the next one follows within a time-out.
    let (mut ack, mut ids) = (1001, 0);
    for _ in 0..12 * 60 * 10 {
        rig.now += milliseconds(99);
        let said = rig.write(10);
        assert_eq!(lens(&said), [10]);
        ids = if said[0].id.is_some() { ids + 1 } else { 0 };
        ack += 10;
        rig.say(1, ack, WINDOW, &[]);
    }
    assert_eq!((ids, rig.info().mtu), (0, 1500));
}

#[test]
fn where_ipv4_carries_less_than_each_host_takes_routers_may_cut_what_is_sent() {
    // 0 says nothing of the size.
    for (mtu, is_cut) in [(0, false), (551, true), (68, true), (552, false)] {
        let mut rig = Rig::new(separate(), &SACK);
        assert_eq!(lens(&rig.write(1000)), [1000]);
        let said = rig.icmp(1, IcmpError::TooBig(mtu));
        assert_eq!((lens(&said), rig.info().mtu), (vec![512, 488], 552), "{mtu}");
        let ids: Vec<_> = said.iter().filter_map(|said| said.id).collect();
        match *ids {
            [first, second] => assert!(is_cut && second == first.wrapping_add(1)),
            _ => assert!(ids.is_empty() && !is_cut, "{mtu}"),
        }
        // What it took for the least was still too long.
        let again = rig.icmp(1, IcmpError::TooBig(400));
        assert_eq!(again.is_empty(), is_cut, "{mtu}");
        assert!(again.iter().all(|said| said.id.is_some()) && rig.info().mtu == 552);
    }
}

#[test]
fn the_time_from_the_first_answer_to_a_repeated_syn_is_no_round_trip() {
    let mut rig = Rig::listening(Config::default());
    rig.syn(0, Flags::SYN, &[]);
    rig.now += milliseconds(980);
    rig.say_with(0, 0, Flags::SYN, WINDOW, &[], &[]);
    rig.now += milliseconds(9);
    rig.say(1, 1, WINDOW, &[]);
    rig.id = rig.tcp.accept(ListenerId(0));
    assert_eq!(rig.info().srtt_us, 0);
}

#[test]
fn a_program_that_wants_no_unsent_bytes_is_told_of_room() {
    let mut rig = Rig::new(Config::default(), &SACK);
    rig.set(Options { unsent_low: 0, ..Options::default() });
    let written = rig.stream().write(&[7; 1_000_000]) as u32;
    rig.output();
    while rig.tcp.next_event().is_some() {}
    let mut ack = 1;
    while ack <= written {
        ack = (ack + 10_000).min(written + 1);
        rig.say(1, ack, WINDOW, &[]);
    }
    assert!(rig.tcp.next_event().is_some_and(|(_, events)| events.has(Events::WRITABLE)));
}

#[test]
fn the_scale_that_was_said_holds_if_the_limits_change_within_a_handshake() {
    let mut rig = Rig::listening(Config::default());
    let offer = Offer { mss: 1000, scale: Some(7), ..Offer::default() };
    let said = rig.syn(0, Flags::SYN, &offer.bytes());
    rig.tcp.set_config(Config { receive_max: 64 << 20, ..Config::default() });
    rig.say(1, 1, WINDOW, &[]);
    rig.id = rig.tcp.accept(ListenerId(0));
    assert_eq!(Some(rig.info().receive_scale), said[0].parsed().scale);
}

#[test]
fn a_host_that_takes_no_events_keeps_one_entry_for_each_connection() {
    let mut rig = Rig::new(separate(), &SACK);
    for number in 0..50 {
        rig.data(1 + number * 10, 10);
    }
    assert_eq!(rig.tcp.ready.len(), 1);
    while rig.tcp.next_event().is_some() {}
    rig.data(501, 10);
    assert_eq!(rig.tcp.ready.len(), 1);
}
