//! What leaves, and what waits: the congestion window, probes.

use super::*;
use crate::segment::Outgoing;

/// Two segments may be in flight.
fn narrow() -> Config {
    Config { initial_window: 2, ..separate() }
}

#[test]
fn the_last_segment_waits_for_the_congestion_window_as_others_do() {
    let mut rig = Rig::new(narrow(), &SACK);
    assert_eq!(rig.write(2500).len(), 2);
    assert!(rig.end().is_empty());
    let said = rig.say(1, 2001, WINDOW, &[]);
    assert!(
        said.len() == 1 && said[0].has(Flags::FIN) && (said[0].seq, said[0].len) == (2001, 500),
        "{said:?}"
    );
}

#[test]
fn a_fin_alone_has_no_octets_that_the_congestion_window_could_count() {
    let mut rig = Rig::new(narrow(), &SACK);
    assert_eq!(rig.write(2000).len(), 2);
    let said = rig.end();
    assert!(
        said.len() == 1 && said[0].has(Flags::FIN) && (said[0].seq, said[0].len) == (2001, 0),
        "{said:?}"
    );
}

#[test]
fn a_probe_that_found_no_room_is_not_sent_once_its_answer_has_come() {
    for sacks in [false, true] {
        let mut rig = Rig::new(separate(), &SACK);
        assert_eq!(rig.write(3000).len(), 3);
        assert!(rig.pass_with(milliseconds(100), true).is_empty());
        assert_eq!(rig.counters().probes, 0);
        let said = if sacks { rig.sack(1, WINDOW, [2001, 3001]) } else { rig.say(1, 2001, WINDOW, &[]) };
        // The last segment was not lost, and nothing else takes its place.
        assert!(said.iter().all(|said| said.seq < 2001), "{said:?}");
        assert_ne!(rig.tcp.next_deadline(), Instant::NEVER);
    }
}

/// Has no room for segments that leave as one.
#[derive(Default)]
struct Narrow(Log);

impl Sink for Narrow {
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        segment.unit == 0 && self.0.send(tuple, segment)
    }
}

#[test]
fn where_there_is_never_room_for_several_segments_as_one_they_leave_one_by_one() {
    let mut rig = Rig::new(Config::default(), &SACK);
    assert_eq!(rig.stream().write(&[7; 8000]), 8000);
    let turn = |rig: &mut Rig| {
        let mut sink = Narrow(Log { iss: rig.iss, ..Log::default() });
        rig.tcp.output(rig.now, &mut sink);
        sink.0.said.iter().map(|said| (said.seq, said.len)).collect::<Vec<_>>()
    };
    for number in 0..6 {
        assert_eq!(turn(&mut rig), [(1 + number * 1000, 1000)]);
        // The next one waits for the acknowledgement of this one: others may need the room.
        assert_eq!(turn(&mut rig), []);
        rig.take_with(Crafted { ack: 1001 + number * 1000, ..Crafted::default() }, &mut Later, true);
    }
    // Two are left, and then a single one.
    assert_eq!([turn(&mut rig), turn(&mut rig)], [[(6001, 1000)], [(7001, 1000)]]);
}
