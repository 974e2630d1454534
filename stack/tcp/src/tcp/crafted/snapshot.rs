//! A connection as a value, in each state in which another implementation can go on with it.

use super::*;
use crate::connection::{Snapshot, Windows};
use crate::seq::Seq;

const FIN: u8 = Flags::ACK | Flags::FIN;

/// A connection with all options, on which the peer has sent 3 bytes: its next number is 4.
fn open() -> Rig {
    let offer = Offer { mss: 1000, sack: true, stamp: Some(100_000), scale: Some(3) };
    let mut rig = Rig::new(separate(), &offer.bytes());
    rig.take(Crafted { payload: b"abc", options: &stamps(100_001, 0), ..Crafted::default() });
    rig
}

/// A segment of that peer.
fn take(rig: &mut Rig, (seq, ack): (u32, u32), flags: u8, payload: &[u8]) {
    let stamps = stamps(100_002, 0);
    rig.take(Crafted { seq, ack, flags, payload, options: &stamps, ..Crafted::default() });
}

fn snapshot(rig: &Rig) -> Snapshot<'_> {
    rig.tcp.snapshot(rig.now, rig.id()).expect("it can go on elsewhere")
}

/// A number of the engine.
fn own(rig: &Rig, number: u32) -> Seq {
    Seq(rig.iss.wrapping_add(number))
}

#[test]
fn a_snapshot_has_numbers_options_and_windows_of_both_ends() {
    let mut rig = open();
    let said = rig.write(10).pop().expect("a segment");
    let snapshot = snapshot(&rig);
    let (stamp, _) = said.stamps().expect("stamps");
    assert_eq!(snapshot.timestamp, Some(stamp));
    assert_eq!((snapshot.tuple, snapshot.mss, snapshot.sack), (rig.tuple, 1000, true));
    let (send, receive) = snapshot.scales.expect("scaled");
    assert_eq!(send, 3);
    assert_eq!(u32::from(said.window) << receive, snapshot.windows.rcv_wnd);
    let expected = Windows {
        snd_wl1: Seq(1),
        snd_wnd: u32::from(WINDOW) << 3,
        max_window: u32::from(WINDOW) << 3,
        rcv_wnd: snapshot.windows.rcv_wnd,
        rcv_wup: Seq(4),
    };
    assert_eq!(snapshot.windows, expected);
    assert_eq!((snapshot.send_number, snapshot.receive_number), (own(&rig, 1), Seq(4)));
    assert_eq!((snapshot.received, snapshot.lent), (&b"abc"[..], 0));
    assert_eq!((snapshot.acknowledged, snapshot.gaps), (0, 0));
    assert!(!snapshot.is_finished && !snapshot.is_ended && !snapshot.is_orphan);
}

#[test]
fn a_snapshot_without_options_says_so() {
    let rig = Rig::new(separate(), &[]);
    let snapshot = snapshot(&rig);
    assert_eq!((snapshot.mss, snapshot.scales, snapshot.timestamp), (536, None, None));
    assert!(!snapshot.sack);
    assert_eq!(snapshot.windows.snd_wnd, u32::from(WINDOW));
}

#[test]
fn the_size_of_segments_is_what_the_path_carries_now() {
    let mut rig = open();
    let tuple = rig.tuple;
    rig.tcp.path_carries(&tuple, 640);
    assert_eq!(snapshot(&rig).mss, 600);
}

#[test]
fn bytes_are_those_sent_and_those_not_sent() {
    let mut rig = Rig::new(separate(), &SACK);
    // Ten segments are the first congestion window.
    rig.write(14_000);
    rig.end();
    let first = snapshot(&rig);
    assert_eq!((first.unacknowledged.len(), first.unsent.len()), (10_000, 4000));
    assert!(first.is_finished && !first.fin_sent);
    // Half a segment of them is acknowledged, and another two out of order.
    rig.say(1, 501, 0, &[]);
    rig.sack(501, 0, [2001, 4001]);
    let later = snapshot(&rig);
    assert_eq!(later.send_number, own(&rig, 501));
    assert_eq!((later.unacknowledged.len(), later.unsent.len()), (9500, 4000));
    assert_eq!((later.acknowledged, later.windows.snd_wnd), (500, 0));
    assert_eq!(later.windows.max_window, u32::from(WINDOW));
}

#[test]
fn what_is_out_of_order_stays_the_peers() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, WINDOW, b"in order");
    rig.say(20, 1, WINDOW, b"ahead");
    rig.say_with(40, 1, FIN, WINDOW, &[], b"last");
    let snapshot = snapshot(&rig);
    assert_eq!((snapshot.received, snapshot.receive_number), (&b"in order"[..], Seq(9)));
    assert_eq!((snapshot.gaps, snapshot.is_ended), (2, false));
}

#[test]
fn bytes_that_the_program_has_left_are_counted_apart() {
    use twinpath_stream::{Received, Transport as _};
    let mut rig = open();
    let mut stream = rig.stream();
    assert_eq!(stream.receive(2), Ok(Received::Bytes { len: 2, more: true }));
    twinpath_stream::Transport::consume(&mut stream, 1);
    let snapshot = snapshot(&rig);
    assert_eq!((snapshot.received, snapshot.lent), (&b"bc"[..], 1));
}

#[test]
fn each_half_closed_state_says_whose_half_is_closed() {
    let mut rig = open();
    take(&mut rig, (4, 1), FIN, b"");
    let peers = snapshot(&rig);
    assert_eq!((rig.state(), peers.receive_number), (TcpState::CloseWait, Seq(5)));
    assert!(peers.is_ended && !peers.is_finished);

    let mut rig = open();
    rig.write(5);
    rig.end();
    let ours = snapshot(&rig);
    assert_eq!((rig.state(), ours.send_number), (TcpState::FinWait1, own(&rig, 1)));
    assert_eq!((ours.unacknowledged.len(), ours.unsent.len()), (5, 0));
    assert!(ours.is_finished && ours.fin_sent && !ours.is_ended);
    take(&mut rig, (4, 6), Flags::ACK, b"");
    let ours = snapshot(&rig);
    assert_eq!((rig.state(), ours.send_number), (TcpState::FinWait1, own(&rig, 6)), "FIN is next");
    take(&mut rig, (4, 7), Flags::ACK, b"");
    let ours = snapshot(&rig);
    assert_eq!((rig.state(), ours.send_number), (TcpState::FinWait2, own(&rig, 6)), "the number of FIN");
    assert!(ours.is_finished && ours.fin_sent && ours.unacknowledged.is_empty() && !ours.is_ended);
}

#[test]
fn each_state_with_both_ends_closed_can_go_on() {
    let mut rig = open();
    rig.end();
    take(&mut rig, (4, 1), FIN, b"");
    let closing = snapshot(&rig);
    assert_eq!((rig.state(), closing.send_number), (TcpState::Closing, own(&rig, 1)));
    assert!(closing.is_finished && closing.is_ended);

    let mut rig = open();
    take(&mut rig, (4, 1), FIN, b"");
    rig.write(5);
    rig.end();
    let last = snapshot(&rig);
    assert_eq!((rig.state(), last.send_number), (TcpState::LastAck, own(&rig, 1)));
    assert!(last.is_finished && last.is_ended && last.unacknowledged.len() == 5);
    take(&mut rig, (5, 7), Flags::ACK, b"");
    assert!(rig.tcp.snapshot(rig.now, rig.id()).is_none(), "it is over");
}

#[test]
fn an_orphan_has_only_what_is_to_be_delivered() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.write(100);
    rig.close();
    assert_eq!((rig.tcp.connection_at(0), rig.tcp.indices()), (Some((rig.id(), true)), 1));
    let snapshot = snapshot(&rig);
    assert!(snapshot.is_orphan && snapshot.is_finished);
    assert_eq!((snapshot.unacknowledged.len(), snapshot.received.len()), (100, 0));
}

#[test]
fn a_handshake_cannot_go_on_elsewhere() {
    let (rig, _) = Rig::connecting(separate(), Options::default());
    assert!(rig.tcp.snapshot(rig.now, rig.id()).is_none());
}

#[test]
fn a_forgotten_connection_says_nothing_and_its_tuple_is_told_once() {
    let mut rig = open();
    rig.tcp.gone = Some(VecDeque::new());
    rig.write(10);
    take(&mut rig, (10, 1), Flags::ACK, b"ahead");
    rig.tcp.forget(rig.id());
    assert_eq!(rig.output(), [], "no reset");
    assert!(rig.tcp.has_gone());
    assert_eq!((rig.tcp.next_gone(), rig.tcp.next_gone()), (Some(rig.tuple), None));
    assert!(!rig.tcp.has_gone());
    assert!(rig.tcp.snapshot(rig.now, rig.id()).is_none());
    assert_eq!((rig.tcp.count(), rig.tcp.connection_at(0)), ((0, 0, 0), None));
    rig.tcp.check();
    assert_eq!(rig.tcp.next_deadline(), Instant::NEVER);
}
