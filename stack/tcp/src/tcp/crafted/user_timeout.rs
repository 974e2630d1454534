//! The user timeout option (RFC 5482): what is said, when, and what the peer's option changes.

use super::*;
use twinpath_wire::tcp::UserTimeout;

const SYN_ACK: u8 = Flags::SYN | Flags::ACK;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The program does not use the option. Small segments leave at once.
fn silent() -> Options {
    Options { no_delay: true, ..Options::default() }
}

/// This end advertises so many seconds.
fn advertising(count: u64) -> Options {
    Options { advertised_timeout: seconds(count), ..silent() }
}

/// The option alone.
fn option(count: u64) -> Vec<u8> {
    let mut options = Writer::default();
    options.user_timeout(UserTimeout::from_seconds(count).expect("a time"));
    options.bytes().to_vec()
}

/// The seconds that a segment says.
fn says(said: &Said) -> Option<u32> {
    said.parsed().user_timeout.map(UserTimeout::seconds)
}

/// What each of them says.
fn all_say(said: &[Said]) -> Vec<Option<u32>> {
    said.iter().map(says).collect()
}

/// An established connection that a peer has opened by a SYN with `syn_options`.
fn opened(config: Config, options: Options, syn_options: &[u8]) -> Rig {
    let mut rig = Rig::listening_with(config, options);
    rig.open(0, syn_options);
    rig
}

/// What the next timer makes the engine say.
fn fires(rig: &mut Rig) -> Vec<Said> {
    (0..100)
        .map(|_| rig.pass_to_deadline(seconds(10)))
        .find(|said| !said.is_empty())
        .expect("it says something")
}

/// The peer acknowledges, with options.
fn ack_with(rig: &mut Rig, options: &[u8]) -> Vec<Said> {
    rig.say_with(1, 1, Flags::ACK, WINDOW, options, &[])
}

#[test]
fn section_2_the_option_is_off_unless_the_program_enables_it() {
    let (mut rig, syn) = Rig::connecting(Config::default(), Options::default());
    assert_eq!(says(&syn), None);
    let said = rig.say_with(0, 1, SYN_ACK, WINDOW, &option(500), &[]);
    assert_eq!((all_say(&said), rig.info().user_timeout), (vec![None], Duration::MAX));
    let mut rig = Rig::listening(Config::default());
    assert_eq!(says(&rig.open(0, &option(500))), None);
    ack_with(&mut rig, &option(500));
    assert_eq!((all_say(&rig.write(100)), rig.info().user_timeout), (vec![None], Duration::MAX));
}

#[test]
fn section_2_syn_says_it_and_the_first_segment_without_syn() {
    let (mut rig, syn) = Rig::connecting(Config::default(), advertising(300));
    assert_eq!(says(&syn), Some(300));
    assert_eq!(all_say(&rig.pass(milliseconds(1001))), [Some(300)], "a SYN that is sent again");
    let said = rig.say_with(0, 1, SYN_ACK, WINDOW, &SACK, &[]);
    assert!(said.len() == 1 && said[0].is_ack(1) && says(&said[0]) == Some(300), "{said:?}");
    assert_eq!(all_say(&rig.write(100)), [None]);
}

#[test]
fn section_2_syn_ack_says_it_and_the_first_segment_behind_it() {
    let mut rig = Rig::listening_with(Config::default(), advertising(300));
    assert_eq!(says(&rig.open(0, &SACK)), Some(300));
    let said = rig.write(100);
    assert_eq!((all_say(&said), said[0].len), (vec![Some(300)], 100));
    assert_eq!(all_say(&rig.write(100)), [None]);
    // An acknowledgement may be the first.
    let mut rig = opened(Config::default(), advertising(300), &SACK);
    assert_eq!(all_say(&rig.data(1, 100)), [Some(300)]);
    assert_eq!(all_say(&rig.data(101, 100)), [None]);
}

#[test]
fn section_2_both_segments_of_a_crossing_open_say_it() {
    let (mut rig, syn) = Rig::connecting(Config::default(), advertising(300));
    assert_eq!(says(&syn), Some(300));
    let said = rig.say_with(0, 0, Flags::SYN, WINDOW, &option(400), &[]);
    assert_eq!((said[0].flags, says(&said[0])), (SYN_ACK, Some(300)));
    rig.say(1, 1, WINDOW, &[]);
    assert_eq!(rig.info().user_timeout, seconds(400));
    assert_eq!(all_say(&rig.write(100)), [Some(300)]);
}

#[test]
fn section_2_another_time_is_said_by_the_next_segment() {
    let mut rig = opened(Config::default(), silent(), &SACK);
    assert_eq!(all_say(&rig.write(100)), [None]);
    rig.set(advertising(300));
    assert!(rig.output().is_empty(), "it waits for a segment");
    assert_eq!(all_say(&rig.write(100)), [Some(300)]);
    rig.set(Options { quick_ack: true, ..advertising(300) });
    assert_eq!(all_say(&rig.write(100)), [None], "it is the same");
    rig.set(advertising(40_000));
    assert_eq!(all_say(&rig.write(100)), [Some(40_020)], "whole minutes");
    rig.set(advertising(200));
    rig.set(silent());
    assert_eq!(all_say(&rig.write(100)), [None], "zero is never sent");
}

#[test]
fn section_2_a_part_of_a_second_is_rounded_up() {
    for (time, said) in [(1, 1), (999, 1), (1000, 1), (1001, 2)] {
        let options = Options { advertised_timeout: milliseconds(time), ..Options::default() };
        assert_eq!(says(&Rig::connecting(Config::default(), options).1), Some(said), "{time} ms");
    }
    let options = Options { advertised_timeout: Duration::MAX, ..Options::default() };
    let (_, syn) = Rig::connecting(Config::default(), options);
    assert_eq!(says(&syn), Some(60 * 32_767));
}

#[test]
fn section_3_1_the_longer_time_of_both_ends_applies_within_the_limits() {
    let limits =
        Config { user_timeout_min: seconds(100), user_timeout_max: seconds(1000), ..Config::default() };
    for (own, peer, applies) in [
        (300, None, 300),
        (300, Some(200), 300),
        (300, Some(400), 400),
        (10, Some(20), 100),
        (10, None, 100),
        (300, Some(5000), 1000),
        (5000, Some(300), 1000),
    ] {
        let mut rig = opened(limits.clone(), advertising(own), &SACK);
        if let Some(peer) = peer {
            ack_with(&mut rig, &option(peer));
        }
        assert_eq!(rig.info().user_timeout, seconds(applies), "{own} {peer:?}");
    }
}

#[test]
fn section_3_1_the_time_leaves_room_for_a_retransmission() {
    let limits = Config { user_timeout_min: Duration::ZERO, ..Config::default() };
    let rig = opened(limits, Options { advertised_timeout: milliseconds(1), ..Options::default() }, &SACK);
    assert_eq!(rig.info().user_timeout, 2 * Duration::from_micros(u64::from(rig.info().rto_us)));
}

#[test]
fn section_2_a_time_that_the_program_has_set_is_not_changed_by_the_peer() {
    let options = Options { user_timeout: seconds(7), ..advertising(300) };
    let mut rig = opened(Config::default(), options, &option(400));
    assert_eq!(rig.info().user_timeout, seconds(7));
    ack_with(&mut rig, &option(500));
    assert_eq!(rig.info().user_timeout, seconds(7));
    assert_eq!(all_say(&rig.write(100)), [Some(300)], "it is said all the same");
    // What the peer has said last counts as soon as it may.
    rig.set(advertising(300));
    assert_eq!(rig.info().user_timeout, seconds(500));
}

#[test]
fn section_3_the_option_is_taken_from_every_segment_and_the_last_one_counts() {
    let mut rig = opened(Config::default(), advertising(200), &option(300));
    assert_eq!(rig.info().user_timeout, seconds(300), "SYN, kept by a half-open connection");
    ack_with(&mut rig, &option(400));
    assert_eq!(rig.info().user_timeout, seconds(400), "an acknowledgement");
    rig.say_with(1, 1, Flags::ACK, WINDOW, &option(500), &[7; 10]);
    assert_eq!(rig.info().user_timeout, seconds(500), "data in order");
    rig.say_with(21, 1, Flags::ACK, WINDOW, &option(600), &[7; 10]);
    assert_eq!(rig.info().user_timeout, seconds(600), "data behind a gap");
    rig.data(11, 10);
    assert_eq!(rig.info().user_timeout, seconds(600), "a segment without it says nothing");
    rig.say_with(31, 1, Flags::ACK | Flags::FIN, WINDOW, &option(250), &[]);
    assert_eq!(rig.info().user_timeout, seconds(250), "FIN");
    let (mut rig, _) = Rig::connecting(Config::default(), advertising(200));
    rig.say_with(0, 1, SYN_ACK, WINDOW, &option(300), &[]);
    assert_eq!(rig.info().user_timeout, seconds(300), "SYN-ACK");
}

#[test]
fn section_2_a_value_of_zero_and_a_wrong_length_are_ignored() {
    let mut rig = opened(Config::default(), advertising(200), &option(300));
    for bytes in [[28, 4, 0, 0], [28, 4, 0x80, 0], [28, 3, 1, 0], [28, 2, 1, 1], [28, 5, 2, 0], [28, 1, 2, 0]]
    {
        let said = rig.say_with(1, 1, Flags::ACK, WINDOW, &bytes, &[]);
        assert!(said.is_empty(), "{bytes:?}: {said:?}");
        assert_eq!(rig.info().user_timeout, seconds(300), "{bytes:?}");
    }
}

#[test]
fn section_6_what_a_refused_segment_says_is_not_heeded() {
    let syn_options = Offer { mss: 1000, stamp: Some(100), ..Offer::default() }.bytes();
    let mut rig = opened(Config::default(), advertising(200), &syn_options);
    rig.say_with(1, 1, Flags::ACK, WINDOW, &stamps(200, 0), &[7; 10]);
    let before = rig.counters();
    let fresh = [stamps(201, 0), option(500)].concat();
    let old = [stamps(100, 0), option(500)].concat();
    for (seq, ack, flags, options) in [
        (70_000, 1, Flags::ACK, &fresh),
        (11, 5000, Flags::ACK, &fresh),
        (11, 1, 0, &fresh),
        (11, 1, Flags::ACK, &old),
        (11, 1, Flags::ACK | Flags::SYN, &fresh),
    ] {
        rig.say_with(seq, ack, flags, WINDOW, options, &[7]);
        assert_eq!(rig.info().user_timeout, seconds(200), "{seq} {ack} {flags}");
    }
    let after = rig.counters();
    assert_eq!(after.out_of_window - before.out_of_window, 1);
    assert_eq!(after.paws_rejected - before.paws_rejected, 1);
}

#[test]
fn a_full_sized_segment_has_no_room_and_an_acknowledgement_of_its_own_says_it() {
    for config in [separate(), Config::default()] {
        let mut rig = opened(config, advertising(300), &SACK);
        let said = rig.write(3000);
        let (last, data) = said.split_last().expect("it says something");
        assert_eq!(data.iter().map(|one| one.len).sum::<usize>(), 3000);
        assert!(data.iter().all(|one| says(one).is_none() && one.options.is_empty()), "{said:?}");
        assert!(last.is_ack(1) && last.seq == 3001 && says(last) == Some(300), "{said:?}");
        assert_eq!(all_say(&rig.write(100)), [None]);
    }
    // It fits to the byte.
    for (len, count) in [(996, 1), (997, 2)] {
        let said = opened(separate(), advertising(300), &SACK).write(len);
        assert_eq!((said.len(), says(&said[count - 1])), (count, Some(300)), "{len}");
    }
}

#[test]
fn blocks_of_sack_are_said_beside_it_where_both_fit() {
    let mut rig = opened(separate(), advertising(300), &SACK);
    let said = rig.data(101, 100);
    assert_eq!((all_say(&said), said[0].blocks()), (vec![Some(300)], vec![(101, 201)]));
    // Data and a block leave two bytes: an acknowledgement says it.
    rig.set(advertising(400));
    let said = rig.write(986);
    assert_eq!((all_say(&said), said[0].blocks().len()), (vec![None, Some(400)], 1));
    // Three gaps and timestamps take all of the room.
    let syn_options = Offer { mss: 1000, sack: true, stamp: Some(1), ..Offer::default() }.bytes();
    let mut rig = opened(separate(), silent(), &syn_options);
    for seq in [101, 301] {
        rig.say_with(seq, 1, Flags::ACK, WINDOW, &stamps(2, 0), &[7; 100]);
    }
    rig.set(advertising(300));
    let said = rig.say_with(501, 1, Flags::ACK, WINDOW, &stamps(2, 0), &[7; 100]);
    assert_eq!((all_say(&said), said[0].blocks().len()), (vec![None], 3));
    let said = rig.say_with(1, 1, Flags::ACK, WINDOW, &stamps(2, 0), &[7; 100]);
    assert_eq!((all_say(&said), said[0].blocks().len()), (vec![Some(300)], 2));
}

#[test]
fn what_found_no_room_below_is_said_later() {
    let mut rig = opened(Config::default(), advertising(300), &SACK);
    let data = Crafted { payload: &[7; 100], ..Crafted::default() };
    assert!(rig.take_with(data, &mut Later, true).is_empty());
    assert_eq!(all_say(&rig.output()), [Some(300)]);
    rig.set(advertising(400));
    rig.stream().write(&[7; 100]);
    assert!(rig.pass_with(milliseconds(1), true).is_empty());
    let said = rig.output();
    assert_eq!((all_say(&said), said[0].len), (vec![Some(400)], 100));
}

#[test]
fn segments_that_the_peer_drops_do_not_say_it() {
    let mut rig = opened(separate(), silent(), &SACK);
    rig.write(100);
    rig.set(advertising(300));
    let said = fires(&mut rig);
    assert!(said.len() == 1 && (said[0].seq, said[0].len) == (1, 100), "sent again: {said:?}");
    assert_eq!(all_say(&said), [None]);
    rig.say(1, 101, 0, &[]);
    assert!(rig.write(100).is_empty());
    let said = fires(&mut rig);
    assert!(said.len() == 1 && said[0].seq == 100, "a probe of the window: {said:?}");
    assert_eq!(all_say(&said), [None]);
    rig.tcp.abort(rig.now, rig.id());
    let said = rig.output();
    assert!(said[0].has(Flags::RST) && says(&said[0]).is_none(), "{said:?}");
}
