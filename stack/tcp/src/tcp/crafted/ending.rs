//! What the last byte of a write ends: a piece, nothing, or a record.

use super::*;
use crate::marks::End;

/// A connection whose small segments do not wait for each other.
fn eager(config: Config) -> Rig {
    let mut rig = Rig::new(config, &SACK);
    rig.set(Options { no_delay: true, ..Options::default() });
    rig
}

fn write(rig: &mut Rig, len: usize, end: End) -> Vec<Said> {
    assert_eq!(rig.stream().write_as(&vec![7; len], end), len);
    rig.output()
}

/// Where each segment begins, its length, and whether it has PSH.
fn shape(said: &[Said]) -> Vec<(u32, usize, bool)> {
    said.iter().map(|it| (it.seq, it.len, it.has(Flags::PSH))).collect()
}

#[test]
fn more_to_come_is_waited_for_and_leaves_with_it() {
    let mut rig = eager(separate());
    assert!(write(&mut rig, 40, End::More).is_empty());
    assert!(write(&mut rig, 100, End::More).is_empty());
    assert_eq!(shape(&write(&mut rig, 5, End::Piece)), [(1, 145, true)]);
    rig.say(1, 146, WINDOW, &[]);
    // Nothing of it is left.
    assert_eq!(shape(&rig.write(10)), [(146, 10, true)]);
}

#[test]
fn more_that_does_not_come_is_not_waited_for_longer_than_200_ms() {
    let mut rig = eager(separate());
    assert!(write(&mut rig, 40, End::More).is_empty());
    assert!(rig.pass(milliseconds(199)).is_empty());
    assert_eq!(shape(&rig.pass(milliseconds(3))), [(1, 40, true)]);
    rig.say(1, 41, WINDOW, &[]);
    assert_eq!(shape(&rig.write(10)), [(41, 10, true)]);
}

#[test]
fn an_acknowledgement_ends_the_waiting_for_more_and_not_that_of_a_cork() {
    for cork in [false, true] {
        let mut rig = eager(separate());
        rig.set(Options { no_delay: true, cork, ..Options::default() });
        assert_eq!(shape(&write(&mut rig, 2100, End::More)), [(1, 1000, false), (1001, 1000, false)]);
        let said = rig.say(1, 2001, WINDOW, &[]);
        // Nothing is ended, so PSH does not go with it.
        assert_eq!(shape(&said), if cork { vec![] } else { vec![(2001, 100, false)] });
        let rest = rig.pass(milliseconds(203));
        assert_eq!(shape(&rest).last(), Some(&(2001, 100, cork)));
    }
}

#[test]
fn options_that_are_set_meanwhile_leave_the_waiting_as_it_is() {
    let mut rig = eager(separate());
    assert!(write(&mut rig, 40, End::More).is_empty());
    rig.set(Options { no_delay: true, keepalive_count: 3, ..Options::default() });
    assert!(rig.output().is_empty());
    // A program that ends its cork wants what waits to leave.
    rig.set(Options { no_delay: true, cork: true, ..Options::default() });
    rig.set(Options { no_delay: true, ..Options::default() });
    assert_eq!(shape(&rig.output()), [(1, 40, false)]);
}

#[test]
fn what_comes_behind_a_record_leaves_by_itself_and_the_record_waits_for_nothing() {
    // The first window is full, so all the rest is sent at once.
    let mut rig = Rig::new(separate(), &SACK);
    assert_eq!(rig.write(10_000).len(), 10);
    for _ in 0..3 {
        assert!(write(&mut rig, 400, End::Record).is_empty());
    }
    assert!(rig.write(1500).is_empty());
    let said = rig.say(1, 10_001, WINDOW, &[]);
    let records = [(10_001, 400, true), (10_401, 400, true), (10_801, 400, true), (11_201, 1000, false)];
    // The last segment is small, and waits for the acknowledgement of small ones (RFC 9293 section 3.7.4).
    assert_eq!(shape(&said), records);
    assert_eq!(shape(&rig.say(1, 12_201, WINDOW, &[])), [(12_201, 500, true)]);
    rig.tcp.check();
}

#[test]
fn a_record_alone_waits_for_the_acknowledgement_of_a_small_segment() {
    let mut rig = Rig::new(separate(), &SACK);
    assert_eq!(shape(&write(&mut rig, 100, End::Record)), [(1, 100, true)]);
    assert!(write(&mut rig, 100, End::Record).is_empty());
    // Nothing can be added to it once another follows.
    assert_eq!(shape(&write(&mut rig, 100, End::Record)), [(101, 100, true)]);
    assert_eq!(shape(&rig.say(1, 201, WINDOW, &[])), [(201, 100, true)]);
}

#[test]
fn records_are_sent_again_each_by_itself() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.set(Options { no_delay: true, ..Options::default() });
    for number in 0..3 {
        assert_eq!(shape(&write(&mut rig, 100, End::Record)), [(1 + 100 * number, 100, true)]);
    }
    let again = rig.pass(Duration::from_secs(2));
    assert!(again.iter().all(|said| said.len == 100 && said.seq % 100 == 1), "{again:?}");
    assert!(!again.is_empty());
}

#[test]
fn a_probe_ends_where_a_record_does() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, 0, &[]);
    assert!(write(&mut rig, 100, End::Record).is_empty());
    assert!(rig.write(100).is_empty());
    rig.say(1, 1, 60, &[]);
    let said = rig.pass(Duration::from_secs(2));
    assert_eq!(shape(&said), [(1, 60, false)]);
    rig.tcp.check();
}

#[test]
fn of_a_long_write_in_parts_each_half_of_the_largest_window_ends_with_push() {
    // Half of the window is 30,000 bytes.
    let mut rig = eager(Config { initial_window: 100, ..Config::default() });
    assert!(write(&mut rig, 900, End::More).is_empty());
    for _ in 0..2 {
        rig.stream().write_as(&[7; 14_550], End::More);
    }
    // To the byte: 30,000 are not more than a half, and the mark is behind the part that passes it.
    rig.stream().write_as(&[7; 1], End::More);
    rig.stream().write_as(&[7; 5000], End::Piece);
    let said = rig.output();
    let ends: Vec<_> = said.iter().filter(|it| it.has(Flags::PSH)).map(|it| it.seq + it.len as u32).collect();
    // PSH goes with the segment that holds the byte.
    assert!(ends.contains(&31_001) && ends.contains(&35_002), "{ends:?}");
}

#[test]
fn marks_are_bounded() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, 0, &[]);
    for _ in 0..3000 {
        assert_eq!(rig.stream().write_as(&[7], End::Record), 1);
    }
    let mut sent = 0;
    for _ in 0..3000 {
        sent += rig.say(1, 1 + sent, WINDOW, &[]).iter().map(|it| it.len as u32).sum::<u32>();
        rig.tcp.check();
    }
    assert_eq!(sent, 3000);
}

/// A connection whose peer takes nothing, with `count` records of a byte.
fn records(config: Config, count: usize) -> Rig {
    let mut rig = Rig::new(config, &SACK);
    rig.say(1, 1, 0, &[]);
    for _ in 0..count {
        assert_eq!(rig.stream().write_as(&[7], End::Record), 1);
    }
    rig.tcp.check();
    rig
}

#[test]
fn the_memory_of_marks_is_counted_until_they_are_sent_or_the_connection_ends() {
    // A block of 4 KiB, and 8 bytes for each mark.
    for (count, marks) in [(1, 16), (16, 16), (17, 32), (1000, 1024), (1500, 1024)] {
        let mut rig = records(Config { initial_window: 2000, ..separate() }, count);
        assert_eq!(rig.tcp.memory(), 4096 + 8 * marks, "{count}");
        let mut sent = 0;
        while sent < count as u32 {
            sent += rig.say(1, 1 + sent, WINDOW, &[]).iter().map(|it| it.len as u32).sum::<u32>();
            rig.tcp.check();
        }
        rig.say(1, 1 + sent, WINDOW, &[]);
        // A list that was long holds nothing when it is empty.
        assert_eq!(rig.tcp.memory(), if marks > 16 { 0 } else { 8 * 16 }, "{count}");
    }
    let mut rig = records(separate(), 1000);
    rig.say_with(1, 1, Flags::RST, 0, &[], &[]);
    assert_eq!(rig.tcp.memory(), 0);
}

#[test]
fn without_memory_for_marks_records_are_not_told_apart() {
    let mut rig = records(Config { memory: 4096 + 8 * 16, initial_window: 100, ..separate() }, 40);
    assert_eq!(rig.tcp.memory(), 4096 + 8 * 16);
    let marked = rig.say(1, 1, WINDOW, &[]);
    assert_eq!(marked.iter().map(|it| it.len).collect::<Vec<_>>(), [1; 16]);
    let others = rig.say(1, 17, WINDOW, &[]);
    assert_eq!(others.iter().map(|it| it.len).collect::<Vec<_>>(), [24]);
}
