//! An engine beside a kernel that takes what the engine leaves to it.

use twinpath_wire::tcp::{self, Header};

use super::*;

/// Listens for one connection; the kernel takes the rest.
fn beside_a_kernel() -> Rig {
    let mut rig = Rig::listening(Config { connections: 1, ..separate() });
    rig.tcp.unknown = Unknown::LeaveToKernel;
    rig.tcp.gone = Some(VecDeque::new());
    rig
}

fn verdict(rig: &mut Rig, seq: u32, ack: u32, flags: u8) -> Verdict {
    let header = Header {
        source_port: rig.tuple.remote_port(),
        destination_port: rig.tuple.local_port(),
        sequence: seq,
        acknowledgement: rig.iss.wrapping_add(ack),
        flags: Flags(flags),
        window: WINDOW,
        urgent: 0,
    };
    let mut bytes = [0; tcp::HEADER_LEN];
    header.emit(&[], &mut bytes).expect("a header");
    let view = tcp::Segment::parse(&bytes).expect("a segment");
    let (now, tuple) = (rig.now, rig.tuple);
    let mut log = Log::default();
    let verdict = rig.tcp.segment(now, &tuple, &Segment::new(&view, false, 0), &mut Later, &mut log);
    assert!(
        !matches!(verdict, Verdict::LeftToKernel | Verdict::Declined) || log.said.is_empty(),
        "{:?}",
        log.said
    );
    verdict
}

/// The peer has ended first, and its connection is in TIME_WAIT.
fn in_time_wait() -> Rig {
    let mut rig = beside_a_kernel();
    rig.open(0, &SACK);
    rig.end();
    rig.say_with(1, 2, Flags::ACK | Flags::FIN, WINDOW, &[], &[]);
    rig.close();
    assert_eq!((rig.tcp.count(), rig.tcp.next_gone()), ((0, 0, 1), None));
    rig
}

#[test]
fn an_acknowledgement_of_the_kernels_answer_leaves_the_connection_to_it() {
    let mut rig = beside_a_kernel();
    rig.syn(0, Flags::SYN, &SACK);
    assert_eq!(verdict(&mut rig, 1, 5000, Flags::ACK), Verdict::Declined);
    assert_eq!((rig.tcp.count(), rig.counters().resets_out), ((0, 0, 0), 0));
    assert_eq!((rig.tcp.next_gone(), rig.tcp.has(&rig.tuple)), (None, false));
    assert_eq!(verdict(&mut rig, 1, 1, Flags::ACK), Verdict::LeftToKernel);
}

#[test]
fn a_syn_after_time_wait_without_room_leaves_the_tuple_to_the_kernel() {
    let mut rig = in_time_wait();
    let first = rig.tuple;
    rig.peer(1);
    rig.open(0, &SACK);
    rig.tuple = first;
    assert_eq!(verdict(&mut rig, 1000, 0, Flags::SYN), Verdict::Declined);
    assert_eq!((rig.tcp.count(), rig.tcp.next_gone()), ((1, 0, 0), None));
    assert_eq!(rig.counters().overflows, 1);
}

#[test]
fn time_wait_gives_way_only_to_a_new_connection() {
    let mut rig = in_time_wait();
    let tuple = rig.tuple;
    for (seq, flags, gives_way) in [
        (1, Flags::SYN, false),
        (1000, Flags::ACK, false),
        (1000, Flags::SYN, true),
        (1000, Flags::SYN, false),
    ] {
        let header = Header {
            source_port: PEER.1,
            destination_port: SERVER.1,
            sequence: seq,
            acknowledgement: 0,
            flags: Flags(flags),
            window: WINDOW,
            urgent: 0,
        };
        let mut bytes = [0; tcp::HEADER_LEN];
        header.emit(&[], &mut bytes).expect("a header");
        let view = tcp::Segment::parse(&bytes).expect("a segment");
        assert_eq!(rig.tcp.give_way(&tuple, &Segment::new(&view, false, 0)), gives_way, "{seq} {flags}");
    }
    // It is told, unless it begins again before.
    assert!(rig.tcp.take_back(&tuple) && !rig.tcp.take_back(&tuple));
    assert_eq!((rig.tcp.next_gone(), rig.tcp.count()), (None, (0, 0, 0)));
}

#[test]
fn what_is_given_up_is_reset_and_told_to_its_program() {
    let mut rig = beside_a_kernel();
    rig.open(0, &SACK);
    rig.write(100);
    while rig.tcp.next_event().is_some() {}
    let tuple = rig.tuple;
    rig.tcp.give_up(&tuple);
    let said = rig.output();
    assert!(said.len() == 1 && said[0].has(Flags::RST) && said[0].seq == 101, "{said:?}");
    let (id, events) = rig.tcp.next_event().expect("its end");
    assert!(id == rig.id() && events.has(Events::ENDED));
    assert_eq!(rig.tcp.next_gone(), Some(tuple));

    // One that its program has closed is reset, too.
    let mut rig = beside_a_kernel();
    rig.open(0, &SACK);
    rig.write(100);
    rig.close();
    rig.tcp.give_up(&tuple);
    assert!(rig.output().iter().all(|it| it.has(Flags::RST)));
    assert_eq!(rig.tcp.count(), (0, 0, 0));
}
