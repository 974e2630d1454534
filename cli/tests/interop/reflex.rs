//! Tests of replies that the kernel's programs give by themselves: between two kernels over a veth pair, where requests
//! come with checksums that are left to hardware.

mod at_xdp;
mod captures;
mod odd;
mod trouble;

use std::io::ErrorKind;
use std::net::UdpSocket;

use twinpath_rpc::nfs3_types::nfs3;
use twinpath_test_rig::few_or_all;

use crate::claims::next;
use crate::rig::{
    CLIENT, CLIENT_V6, CLSACT, PACKET, PATIENCE, PORT, Rig, SERVER, SERVER_V6, Server, XDP, ask, until,
};
use crate::{root_or_skip, rpc};

/// On the XDP path too the programs at tc are attached by links, or by filters.
const XDP_CLSACT: &[&str] = &["--path", "xdp", "--attach", "clsact"];

/// The modes in which on the packet path the program at tc decides, as the worker never has a socket, and in which its
/// socket's filter does. On the XDP path the XDP program always does.
const MODES: [&str; 2] = ["poll", "interrupt"];

/// Setups, each with the modes in which another program decides. Outside of the packet path with links the same one always does: there
/// the other mode is only tried in full.
fn with_modes<const N: usize>(
    setups: [&'static [&'static str]; N],
) -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    let all = setups.into_iter().flat_map(|way| MODES.map(|mode| (way, mode)));
    all.filter(|(way, mode)| *way == PACKET || *mode == MODES[1] || few_or_all(false, true))
}

/// A figure of the service.
fn figure(server: &Server, name: &str) -> u64 {
    server.show("services")[0][name].as_u64().unwrap_or_else(|| panic!("no figure {name}"))
}

/// Requests until the programs know the way to the peer, and reply; returns how many.
fn ask_until_reflex(socket: &UdpSocket, target: &str, server: &Server) -> u64 {
    let (mut asked, before) = (0, figure(server, "reflex_replies"));
    until("a reply by reflex", || {
        asked += 1;
        assert_eq!(ask(socket, target, PORT, b"first"), b"first");
        figure(server, "reflex_replies") > before
    });
    asked
}

/// Nothing more comes: each request has had one reply.
fn nothing_waits(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let error = socket.recv_from(&mut [0; 9]).expect_err("each request is answered once");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn an_echo_comes_from_the_kernel_once_and_workers_get_canaries() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes([PACKET, CLSACT, XDP, XDP_CLSACT]) {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--reflex", "auto", "--mode", mode]].concat());
        let mut asked = 0;
        for (local, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
            let socket = rig.client_udp(local, 4000);
            asked += ask_until_reflex(&socket, target, &server);
            for len in (0..64).chain([511, 512, 513, 1024, 1300, 1400, 1452]) {
                let payload: Vec<u8> = (0..len).map(|at: u32| (at * 7 + len) as u8).collect();
                assert_eq!(ask(&socket, target, PORT, &payload), payload, "{mode} {target}");
                asked += 1;
            }
            nothing_waits(&socket);
        }
        let [reflex, fast, kernel] =
            ["reflex_replies", "fast_requests", "kernel_requests"].map(|name| figure(&server, name));
        assert_eq!(reflex + fast + kernel, asked, "{way:?} {mode}: each request was counted once");
        // A machine that is busy takes long for them, and a canary is due each second.
        assert!(reflex > 30 && fast > 0, "{way:?} {mode}: {reflex} by reflex, {fast} by the worker");
        let claim = server.claim("udp port");
        assert_eq!(claim["reflex_replies"].as_u64(), Some(reflex), "{claim}");
        let interface = &server.show("interfaces")[0];
        assert_eq!(interface["reflexes"]["off"], "", "{interface}");
        let reasons = interface["reflexes"]["not_replied"].to_string();
        assert!(reasons.contains("canary") && reasons.contains("peer_unknown"), "{reasons}");
        assert!(!reasons.contains("failed") && !reasons.contains("checksum"), "{reasons}");
    }
}

#[test]
fn requests_from_ports_that_answer_get_nothing_and_a_changed_neighbour_ends_reflexes() {
    if !root_or_skip() {
        return;
    }
    for way in [PACKET, XDP] {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--reflex", "auto", "--mode", "interrupt"]].concat());
        let socket = rig.client_udp(CLIENT, 4000);
        ask_until_reflex(&socket, SERVER, &server);
        let refused = rig.client_udp(CLIENT, 53);
        refused.send_to(b"forged", (SERVER, PORT)).unwrap();
        until("it is refused", || server.drops("service_source_port") == 1);
        nothing_waits(&refused);
        // The route now leaves through nothing: neither a program nor a worker sends to where it was.
        let before = figure(&server, "reflex_replies");
        rig.ip_server(&["neigh", "replace", CLIENT, "lladdr", "02:00:00:00:00:99", "dev", "vs"]);
        until("workers answer to the new neighbour", || {
            socket.send_to(b"to the other one", (SERVER, PORT)).unwrap();
            let neighbours = server.show("neighbours").to_string();
            neighbours.contains("02:00:00:00:00:99")
        });
        let since = figure(&server, "reflex_replies");
        for _ in 0..20 {
            socket.send_to(b"to the other one", (SERVER, PORT)).unwrap();
        }
        until("workers have got them", || figure(&server, "fast_requests") >= 20);
        assert_eq!(figure(&server, "reflex_replies"), since, "{before} before");
    }
}

#[test]
fn frames_of_a_claimed_type_come_back_from_the_kernel() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in [(PACKET, MODES[0]), (PACKET, MODES[1]), (XDP, MODES[1])] {
        let rig = Rig::new();
        let serve = ["reflect", "--on", "vs", "--ethertype", "0x88b5", "--mode", mode];
        let server = rig.start(&[&serve[..], way, &["--reflex", "auto"]].concat());
        let ((client, own), socket) = (rig.macs(), rig.client_frames(0x88b5));
        let mut asked = 0;
        until("50 frames by reflex", || {
            asked += 1;
            let payload = [asked as u8; 80];
            let frame = [&own[..], &client, &[0x88, 0xb5], &payload].concat();
            socket.send(&frame).unwrap();
            let back = [&client[..], &own, &[0x88, 0xb5], &payload].concat();
            assert_eq!(next(&socket, 20_000).expect("it comes back"), back);
            figure(&server, "reflex_replies") >= 50
        });
        assert_eq!(figure(&server, "reflex_replies") + figure(&server, "fast_requests"), asked);
    }
}

#[test]
fn a_reply_that_is_kept_comes_from_the_kernel_with_the_xid_of_its_call() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes([PACKET, CLSACT, XDP]) {
        let rig = Rig::new();
        // RPC cannot loop, so no limit of a source's replies holds, also for those that are larger than their calls.
        let more = ["--reflex", "auto", "--mode", mode, "--reply-rate", "1"];
        let server = rpc::serve(&rig, &[way, &more].concat());
        let mut xid = 0_u32;
        for (local, target) in [(CLIENT, SERVER), (CLIENT_V6, SERVER_V6)] {
            let socket = rig.client_udp(local, 4000);
            let getattr = rpc::root_arguments(&socket, target);
            for (procedure, arguments) in [(0, &[][..]), (1, &getattr)] {
                let (mut by_worker, before) = (Vec::new(), figure(&server, "reflex_replies"));
                until("30 replies by reflex", || {
                    // Asking for a figure takes a process: not after each call.
                    for _ in 0..40 {
                        xid += 0x0101;
                        let call = rpc::message(xid, nfs3::PROGRAM, procedure, arguments);
                        let reply = ask(&socket, target, PORT, &call);
                        if by_worker.is_empty() {
                            // None is kept yet.
                            by_worker.clone_from(&reply);
                        }
                        assert_eq!(reply[..4], xid.to_be_bytes());
                        assert_eq!(reply[4..], by_worker[4..], "{mode} {target}");
                    }
                    figure(&server, "reflex_replies") >= before + 30
                });
                nothing_waits(&socket);
            }
        }
        let service = &server.show("services")[0];
        assert!(service["kept"]["entries"].as_u64() >= Some(2), "{service}");
        let interface = &server.show("interfaces")[0];
        assert_eq!(interface["reflexes"]["kept"]["off"], "", "{interface}");
        let memory = interface["reflexes"]["kept"]["memory_bytes"].as_u64();
        assert!(memory >= Some(4096 * 1300), "{interface}");
    }
}
