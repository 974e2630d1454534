//! What only the XDP path has: two programs between which a request is on its way.

use std::net::UdpSocket;

use super::{XDP_CLSACT, ask_until_reflex, figure, nothing_waits};
use crate::foreign_programs::FOREIGN;
use crate::left_behind::filters;
use crate::rig::{CLIENT, CLIENT_V6, PORT, Rig, SERVER, SERVER_V6, XDP, answered, ask, until};
use crate::root_or_skip;

/// Datagrams that leave as one frame, and may be made one again behind the XDP program.
#[test]
fn datagrams_that_are_merged_behind_the_xdp_program_have_one_answer_each() {
    const SEGMENT: usize = 100;
    const SEGMENTS: usize = 40;
    if !root_or_skip() {
        return;
    }
    for on in [
        &["gro", "on"][..],
        &["gro", "on", "rx-udp-gro-forwarding", "on"],
        &["gro", "on", "rx-gro-list", "on"],
    ] {
        let rig = Rig::new();
        let mut ethtool = rig.run(&rig.server, "ethtool", &[&["-K", "vs"], on].concat());
        assert!(ethtool.wait().unwrap().success(), "{on:?}");
        let server = rig.serve(XDP);
        let mut asked = 0;
        for (local, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
            let socket = rig.client_udp(local, 4000);
            asked += ask_until_reflex(&socket, target, &server);
            twinpath_sys::udp_socket::set_segment_size(&socket, SEGMENT as u16).unwrap();
            // All alike, or each with its number.
            for numbered in [false, true] {
                let sent: Vec<u8> = (0..SEGMENTS * SEGMENT)
                    .map(|at| if numbered { (at / SEGMENT) as u8 } else { 7 })
                    .collect();
                socket.send_to(&sent, (target, PORT)).unwrap();
                let mut answers: Vec<u8> = (0..SEGMENTS).map(|_| segment(&socket, SEGMENT)).collect();
                answers.sort_unstable();
                assert_eq!(answers, sent.iter().copied().step_by(SEGMENT).collect::<Vec<_>>(), "{on:?}");
                asked += SEGMENTS as u64;
            }
            nothing_waits(&socket);
        }
        let names = ["reflex_replies", "fast_requests", "kernel_requests"];
        until("each is counted once", || {
            names.map(|name| figure(&server, name)).iter().sum::<u64>() == asked
        });
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// The first byte of an answer.
fn segment(socket: &UdpSocket, len: usize) -> u8 {
    let mut buffer = [0; 4_096];
    let (got, _) = socket.recv_from(&mut buffer).expect("each datagram is answered");
    assert_eq!(got, len);
    buffer[0]
}

#[test]
fn where_no_program_can_be_first_at_tc_workers_answer_and_the_interface_says_why() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    rig.tc_server(&["qdisc", "add", "dev", "vs", "clsact"]);
    let filter = ["filter", "add", "dev", "vs", "ingress", "protocol", "ip", "pref", "1"];
    rig.tc_server(&[&filter[..], &["bpf", "da", "obj", FOREIGN, "sec", "classifier/pass"]].concat());
    let server = rig.serve(XDP_CLSACT);
    let socket = rig.client_udp(CLIENT, 0);
    until("workers answer", || {
        assert_eq!(ask(&socket, SERVER, PORT, b"hello"), b"hello");
        figure(&server, "fast_requests") > 20
    });
    assert_eq!(figure(&server, "reflex_replies"), 0);
    let interface = &server.show("interfaces")[0];
    let off = interface["reflexes"]["off"].as_str().unwrap();
    assert!(off.contains("cannot be attached") && off.contains("at tc of vs"), "{off}");
    assert_eq!(interface["attach"], "", "nothing of ours is there");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_program_at_tc_that_goes_or_comes_behind_others_is_put_back_and_kernel_sockets_answer_meanwhile() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(XDP_CLSACT);
    let socket = rig.client_udp(CLIENT, 0);
    ask_until_reflex(&socket, SERVER, &server);
    rig.tc_server(&["qdisc", "del", "dev", "vs", "clsact"]);
    // What the XDP program hands over is the kernel's until then. While a discipline comes or goes, also one of ingress, the
    // kernel drops what the device is to send (dev_deactivate).
    let other = rig.client_udp(CLIENT, 0);
    until("an answer comes meanwhile", || answered(&other, SERVER, b"meanwhile"));
    server.wait_until_said("it is back");
    ask_until_reflex(&socket, SERVER, &server);
    nothing_waits(&socket);
    assert!(filters(&rig).contains("twinpath_ingress"));
    assert_eq!(server.interrupt(), Some(0));
    assert_eq!(filters(&rig), "");
}
