//! Urgent data (RFC 9293 section 3.8.5): MUST-30 to MUST-33, MUST-62 and MUST-66.

use super::*;
use crate::marks::End;

const URG: u8 = Flags::ACK | Flags::URG;

/// A connection whose peer has a large window; its SYN has the number `seq`.
fn wide(config: Config, seq: u32) -> Rig {
    let offer = Offer { mss: 1000, sack: true, stamp: None, scale: Some(7) };
    let mut rig = Rig::listening(config);
    rig.open(seq, &offer.bytes());
    told(&mut rig);
    rig
}

fn urge(rig: &mut Rig, len: usize) -> Vec<Said> {
    assert_eq!(rig.stream().write_as(&vec![7; len], End::Urgent), len);
    rig.output()
}

/// Where each segment begins, its length, and its pointer; `None` without URG.
fn pointers(said: &[Said]) -> Vec<(u32, usize, Option<u16>)> {
    said.iter()
        .map(|it| {
            assert_eq!(it.has(Flags::URG), it.urgent > 0, "{it:?}");
            assert!(it.unit == 0 || !it.has(Flags::URG), "{it:?}");
            (it.seq, it.len, it.has(Flags::URG).then_some(it.urgent))
        })
        .collect()
}

/// A segment of the peer with URG.
fn point(rig: &mut Rig, seq: u32, urgent: u16, payload: &[u8]) -> Vec<Said> {
    rig.take(Crafted { seq, urgent, flags: URG, payload, ..Crafted::default() })
}

/// How often the program was told of urgent data, and of bytes to read.
fn told(rig: &mut Rig) -> (usize, usize) {
    let all: Vec<_> = core::iter::from_fn(|| rig.tcp.next_event()).map(|(_, events)| events).collect();
    let count = |bit: u8| all.iter().filter(|events| events.has(bit)).count();
    (count(Events::URGENT), count(Events::READABLE))
}

/// MUST-30, MUST-62.
#[test]
fn the_pointer_says_the_number_behind_the_last_urgent_byte() {
    let mut rig = wide(separate(), 0);
    // The first 50 bytes are on their way: those behind them do not wait for their acknowledgement.
    assert_eq!(pointers(&rig.write(50)), [(1, 50, None)]);
    assert_eq!(pointers(&urge(&mut rig, 100)), [(51, 100, Some(100))]);
    // What follows is not urgent.
    assert_eq!(pointers(&rig.write(1000)), [(151, 1000, None)]);
    rig.say(1, 1151, WINDOW, &[]);
    // A later mark takes the place of the former.
    assert_eq!(pointers(&urge(&mut rig, 1500)), [(1151, 1000, Some(1500)), (2151, 500, Some(500))]);
    assert_eq!(pointers(&urge(&mut rig, 10)), [(2651, 10, Some(10))]);
}

/// MUST-30.
#[test]
fn segments_before_the_end_of_urgent_data_say_it_until_it_is_acknowledged() {
    let mut rig = wide(separate(), 0);
    rig.write(1000);
    assert_eq!(pointers(&urge(&mut rig, 10)), [(1001, 10, Some(10))]);
    // The first segment was sent without it: now it has it.
    let mut again = rig.pass(milliseconds(3000));
    again.extend(rig.pass(milliseconds(3000)));
    assert!(pointers(&again).contains(&(1, 1000, Some(1010))), "{again:?}");
    // Acknowledgements have numbers that no urgent data lies behind.
    assert_eq!(pointers(&rig.data(1, 1)).last().map(|it| it.2), Some(None));
    assert_eq!(pointers(&rig.say(2, 1001, WINDOW, &[])), [(1001, 10, Some(10))]);
    rig.say(2, 1011, WINDOW, &[]);
    assert_eq!(pointers(&rig.write(1000)), [(1011, 1000, None)]);
}

/// MUST-31.
#[test]
fn urgent_data_of_any_length_is_said_as_far_as_the_field_reaches() {
    let mut rig = wide(separate(), 0);
    rig.set(Options { send_buffer: Some(1 << 20), ..Options::default() });
    let len = 200_000;
    let mut said = urge(&mut rig, len);
    let mut ack = 1;
    while ack as usize <= len {
        ack = said.last().map(|last| last.seq + last.len as u32).expect("something was sent");
        let more = rig.say(1, ack, WINDOW, &[]);
        said.extend(more);
    }
    assert_eq!(said.iter().map(|it| it.len).sum::<usize>(), len);
    for (seq, len_here, pointer) in pointers(&said) {
        let left = len as u32 + 1 - seq;
        assert_eq!(pointer, Some(left.min(65_535) as u16), "{seq}: {len_here} bytes");
    }
}

/// MUST-30: whoever cuts a super-segment copies its pointer, which would be wrong behind the first part.
#[test]
fn no_super_segment_has_a_pointer() {
    let mut rig = wide(Config { initial_window: 20, ..Config::default() }, 0);
    let lost = rig.write(4000);
    assert_eq!((lost.len(), lost[0].len, lost[0].unit), (1, 4000, 1000), "{lost:?}");
    let said = urge(&mut rig, 2500);
    assert_eq!(pointers(&said), [(4001, 1000, Some(2500)), (5001, 1000, Some(1500)), (6001, 500, Some(500))]);
    // What has left as one comes again piece by piece, as the pointer is ahead of it.
    let mut again = rig.sack(1, WINDOW, [4001, 6501]);
    again.extend(rig.pass_to_deadline(milliseconds(1000)));
    again.extend(rig.sack(2001, WINDOW, [4001, 6501]));
    let expected = [1_u32, 1001, 2001, 3001].map(|seq| (seq, 1000, Some((6501 - seq) as u16)));
    assert_eq!(pointers(&again), expected);
    rig.say(2, 6501, WINDOW, &[]);
    let said = rig.write(4000);
    assert!(pointers(&said).iter().all(|it| it.2.is_none()) && said.iter().any(|it| it.unit > 0), "{said:?}");
}

/// MUST-32.
#[test]
fn the_program_is_told_when_urgent_data_is_said_and_when_its_end_advances() {
    let mut rig = wide(separate(), u32::MAX - 20);
    let seq = |behind: u32| (u32::MAX - 19).wrapping_add(behind);
    // Before any of it has arrived.
    point(&mut rig, seq(0), 100, &[]);
    assert_eq!((told(&mut rig), rig.stream().urgent_bytes()), ((1, 0), 100));
    // The same end, from another number.
    point(&mut rig, seq(0), 100, &[7; 10]);
    point(&mut rig, seq(10), 90, &[]);
    // One that is nearer, or invalid.
    point(&mut rig, seq(10), 20, &[]);
    point(&mut rig, seq(10), 0, &[]);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (0, 100));
    point(&mut rig, seq(10), 91, &[]);
    assert_eq!((told(&mut rig), rig.stream().urgent_bytes()), ((1, 0), 101));
    // All of it is read: a pointer into what was read says nothing, the next one does.
    rig.say(seq(10), 1, WINDOW, &[7; 91]);
    rig.read(101);
    assert_eq!(rig.stream().urgent_bytes(), 0);
    point(&mut rig, seq(100), 1, &[]);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (0, 0));
    point(&mut rig, seq(101), 1, &[7; 5]);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (1, 1));
}

/// MUST-32: of bytes that have arrived and were not read, the end may be said later.
#[test]
fn an_end_before_the_next_number_counts_while_its_bytes_are_unread() {
    let mut rig = wide(separate(), 0);
    rig.data(1, 50);
    told(&mut rig);
    point(&mut rig, 1, 20, &[7; 50]);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (1, 20));
    point(&mut rig, 51, 1, &[]);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (1, 51));
}

/// MUST-33.
#[test]
fn what_is_left_of_urgent_data_is_known_while_it_is_read_in_line() {
    struct Reader(Vec<(usize, usize)>);
    impl Host for Reader {
        fn received(&mut self, _: Instant, _: ConnectionId, stream: &mut Stream<'_>) {
            for _ in 0..3 {
                self.0.push((stream.received().len(), stream.urgent_bytes()));
                stream.consume(30);
            }
        }
    }
    let mut rig = wide(separate(), 0);
    let mut reader = Reader(Vec::new());
    let crafted = Crafted { urgent: 110, flags: URG, payload: &[7; 100], ..Crafted::default() };
    rig.take_with(crafted, &mut reader, false);
    assert_eq!(reader.0, [(100, 110), (70, 80), (40, 50)]);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (1, 20));
    // The bytes are those of the stream, all of them.
    rig.data(101, 40);
    assert_eq!(rig.stream().received(), [7; 50]);
    rig.read(15);
    assert_eq!(rig.stream().urgent_bytes(), 5);
    rig.read(35);
    assert_eq!(rig.stream().urgent_bytes(), 0);
}

/// MUST-33: what lies behind the end of the stream never comes.
#[test]
fn no_urgent_data_is_left_behind_the_end_of_the_stream() {
    let mut rig = wide(separate(), 0);
    point(&mut rig, 1, 500, &[7; 10]);
    assert_eq!(rig.stream().urgent_bytes(), 500);
    rig.say_with(11, 1, Flags::ACK | Flags::FIN, WINDOW, &[], &[]);
    assert_eq!(rig.stream().urgent_bytes(), 10);
    told(&mut rig);
    point(&mut rig, 12, 500, &[]);
    rig.read(10);
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (0, 0));
}

/// MUST-66.
#[test]
fn a_closed_window_keeps_no_pointer_out() {
    let mut rig = wide(Config { receive_initial: 3000, receive_max: 3000, ..separate() }, 0);
    rig.data(1, 3000);
    assert_eq!(rig.info().receive_window, 0);
    told(&mut rig);
    // Its byte is not taken.
    point(&mut rig, 3001, 1, &[7]);
    assert_eq!((told(&mut rig).0, rig.stream().received().len()), (1, 3000));
    assert_eq!(rig.stream().urgent_bytes(), 3001);
}

/// MUST-30: what MUST-66 asks of the receiver is of use only if the sender speaks.
#[test]
fn a_peer_with_a_closed_window_hears_of_urgent_data() {
    let mut rig = wide(separate(), 0);
    rig.say(1, 1, 0, &[]);
    assert_eq!(pointers(&urge(&mut rig, 100)), [(1, 0, Some(100))]);
    // So does each probe: by a number that the peer expects, as the probe's is an old one.
    let said = rig.pass(milliseconds(1500));
    assert_eq!(pointers(&said), [(1, 0, Some(100)), (0, 0, Some(101))]);
    assert_eq!(pointers(&rig.say(1, 1, WINDOW, &[])), [(1, 100, Some(100))]);
}

#[test]
fn urgent_data_does_not_wait_for_more() {
    let mut rig = wide(separate(), 0);
    rig.set(Options { cork: true, ..Options::default() });
    assert!(rig.write(10).is_empty());
    assert_eq!(pointers(&urge(&mut rig, 10)), [(1, 20, Some(20))]);
    assert!(rig.write(10).is_empty());
}

#[test]
fn urgent_data_that_finds_no_room_is_urgent_as_far_as_it_was_taken() {
    let mut rig = wide(separate(), 0);
    rig.set(Options { send_buffer: Some(1500), ..Options::default() });
    assert_eq!(rig.stream().write_as(&[7; 2000], End::Urgent), 1500);
    assert_eq!(pointers(&rig.output()), [(1, 1000, Some(1500)), (1001, 500, Some(500))]);
}

#[test]
fn the_answer_to_a_syn_may_have_urgent_data() {
    let (mut rig, _) = Rig::connecting(separate(), Options::default());
    rig.take(Crafted { seq: 0, urgent: 8, flags: Flags::SYN | URG, ..Crafted::default() });
    assert_eq!((told(&mut rig).0, rig.stream().urgent_bytes()), (1, 7));
}

#[test]
fn a_program_that_accepts_late_is_told() {
    let mut rig = Rig::listening(separate());
    rig.syn(0, Flags::SYN, &SACK);
    point(&mut rig, 1, 5, &[7; 5]);
    told(&mut rig);
    rig.id = rig.tcp.accept(rig.listener.expect("listens"));
    assert_eq!((told(&mut rig), rig.stream().urgent_bytes()), ((1, 1), 5));
}
