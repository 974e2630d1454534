//! Requests that programs do not reply to, though their peer is known: too long, in fragments, or several in one frame.

use super::trouble::counted;
use super::{ask_until_reflex, figure, nothing_waits};
use crate::rig::{CLIENT, DATAGRAM_MAX, PACKET, PORT, Rig, SERVER, ask, lengths};
use crate::root_or_skip;

#[test]
fn a_datagram_of_any_length_comes_back_once() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&[PACKET, &["--mode", "interrupt"]].concat());
    let socket = rig.client_udp(CLIENT, 4000);
    ask_until_reflex(&socket, SERVER, &server);
    let (reflex, all) = (figure(&server, "reflex_replies"), counted(&server));
    let bytes: Vec<u8> = (0..DATAGRAM_MAX).map(|at| (at ^ at >> 8) as u8).collect();
    for len in lengths() {
        let back = ask(&socket, SERVER, PORT, &bytes[..len]);
        assert!(back == bytes[..len], "{len} bytes: {} came back", back.len());
    }
    nothing_waits(&socket);
    assert_eq!(counted(&server) - all, lengths().count() as u64, "each is counted once");
    let reflex = figure(&server, "reflex_replies") - reflex;
    assert!((700..=1473).contains(&reflex), "what fits into a frame, less the canaries: {reflex}");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn datagrams_that_come_as_one_super_frame_are_each_answered_once_and_by_no_program() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&[PACKET, &["--mode", "interrupt"]].concat());
    let socket = rig.client_udp(CLIENT, 4000);
    ask_until_reflex(&socket, SERVER, &server);
    let before = ["reflex_replies", "fast_requests"].map(|name| figure(&server, name));
    // One send of 40 datagrams crosses a veth as one frame.
    twinpath_sys::udp_socket::set_segment_size(&socket, 100).unwrap();
    let all: Vec<u8> = (0..40u8).flat_map(|number| [number; 100]).collect();
    socket.send_to(&all, (SERVER, PORT)).unwrap();
    let mut answered: Vec<_> = (0..40)
        .map(|_| {
            let mut room = [0; 200];
            let (len, _) = socket.recv_from(&mut room).expect("each is answered");
            assert!(len == 100 && room[..100] == [room[0]; 100]);
            room[0]
        })
        .collect();
    nothing_waits(&socket);
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..40));
    let after = ["reflex_replies", "fast_requests"].map(|name| figure(&server, name));
    assert_eq!(after, [before[0], before[1] + 40]);
    assert_eq!(server.interrupt(), Some(0));
}
