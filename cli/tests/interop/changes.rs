//! Tests of changes to links, addresses and routes while serving.

use std::process::Command;

use twinpath_sys::Namespace;

use crate::rig::{CLIENT, CLIENT_V6, PORT, Rig, SERVER, SERVER_V6, SETUPS, Server, answered, ask, until};
use crate::root_or_skip;

/// Sends requests until an answer has used the fast path in both directions.
pub(crate) fn served_fast(rig: &Rig, server: &Server, from: &str, to: &str) {
    let socket = rig.client_udp(from, 0);
    until("the fast path serves", || {
        let (frames_in, frames_out) = (server.worker("frames_in"), server.worker("frames_out"));
        // A new address or link may not be known yet: then no answer comes.
        answered(&socket, to, b"fast?")
            && server.worker("frames_in") > frames_in
            && server.worker("frames_out") > frames_out
    });
}

#[test]
fn addresses_come_and_go() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        served_fast(&rig, &server, CLIENT, SERVER);
        rig.ip_server(&["address", "add", "10.7.0.9/24", "dev", "vs"]);
        served_fast(&rig, &server, CLIENT, "10.7.0.9");
        rig.ip_server(&["address", "del", "10.7.0.9/24", "dev", "vs"]);
        let socket = rig.client_udp(CLIENT, 0);
        until("the address is no longer ours", || !answered(&socket, "10.7.0.9", b"gone"));
        served_fast(&rig, &server, CLIENT_V6, SERVER_V6);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn the_interface_goes_down_and_up_and_changes_its_name() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        served_fast(&rig, &server, CLIENT, SERVER);
        rig.ip_server(&["link", "set", "vs", "down"]);
        until("the link is seen down", || server.show("interfaces")[0]["link"] == "down");
        rig.ip_server(&["link", "set", "vs", "name", "renamed0"]);
        rig.ip_server(&["link", "set", "renamed0", "up"]);
        served_fast(&rig, &server, CLIENT, SERVER);
        until("the new name is known", || server.show("interfaces")[0]["name"] == "renamed0");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn the_interface_is_removed_and_comes_back() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        served_fast(&rig, &server, CLIENT, SERVER);
        rig.ip_server(&["link", "del", "vs"]);
        until("the link is seen gone", || server.show("interfaces")[0]["link"] == "gone");
        let local = rig.server_udp("127.0.0.1", 0);
        assert_eq!(ask(&local, "127.0.0.1", PORT, b"local"), b"local", "the kernel path goes on");
        rig.join("vs", &[(CLIENT, 24)], &[(SERVER, 24)]);
        until("the fast path is back", || server.path() != "kernel");
        served_fast(&rig, &server, CLIENT, SERVER);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_route_that_moves_away_takes_replies_along() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    rig.ip_client(&["address", "add", "10.66.0.1/32", "dev", "vc"]);
    rig.ip_server(&["route", "add", "10.66.0.1", "via", CLIENT]);
    served_fast(&rig, &server, "10.66.0.1", SERVER);
    // A link to another place: replies must follow, through the kernel.
    rig.ip_server(&["link", "add", "away0", "type", "veth", "peer", "name", "away1"]);
    rig.ip_server(&["link", "set", "away0", "up"]);
    rig.ip_server(&["link", "set", "away1", "up"]);
    rig.ip_server(&["route", "replace", "10.66.0.1", "dev", "away0"]);
    let socket = rig.client_udp("10.66.0.1", 0);
    until("replies take the other route", || !answered(&socket, SERVER, b"away"));
    rig.ip_server(&["route", "replace", "10.66.0.1", "via", CLIENT]);
    served_fast(&rig, &server, "10.66.0.1", SERVER);
}

#[test]
fn a_smaller_path_mtu_sends_large_replies_through_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    served_fast(&rig, &server, CLIENT, SERVER);
    rig.ip_server(&["route", "replace", "10.7.0.1", "dev", "vs", "mtu", "900"]);
    let socket = rig.client_udp(CLIENT, 0);
    until("a reply of 1200 bytes is fragmented by the kernel", || {
        let replies = server.worker("kernel_replies");
        assert_eq!(ask(&socket, SERVER, PORT, &[5; 1200]), [5; 1200]);
        server.worker("kernel_replies") > replies
    });
    served_fast(&rig, &server, CLIENT, SERVER);
}

#[test]
fn the_number_of_queues_changes_on_the_xdp_path() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    // From few to many: the kernel refuses to remove a queue with a socket. A veth runs XDP only while its peer has no
    // more transmit queues than it has receive queues.
    set_queues(&rig.client, "vc", "tx", 1);
    set_queues(&rig.server, "vs", "rx", 1);
    let server = rig.serve(&["--path", "xdp"]);
    let queues = || server.show("interfaces")[0]["queues"].as_array().unwrap().len();
    assert_eq!(queues(), 1);
    set_queues(&rig.server, "vs", "rx", 2);
    let socket = rig.client_udp(CLIENT, 0);
    until("every queue has a socket", || {
        assert_eq!(ask(&socket, SERVER, PORT, b"meanwhile"), b"meanwhile", "nothing is lost meanwhile");
        queues() == 2
    });
    served_fast(&rig, &server, CLIENT, SERVER);
}

fn set_queues(namespace: &Namespace, name: &str, kind: &str, count: u32) {
    let ethtool = || Command::new("ethtool").args(["-L", name, kind, &count.to_string()]).output();
    let output = namespace.run(ethtool).unwrap().expect("ethtool is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
