//! Connections of the fast path while their link changes: no byte is lost, and no reset is sent.

use crate::foreign_programs::{Tools, named};
use crate::rig::{CLIENT, CLIENT_V6, Rig, SERVER, SERVER_V6, Server, until};
use crate::root_or_skip;
use crate::tcp::{Capture, FAST, Traffic, connect, echoes, no_reset, service};

/// Two connections with traffic, one of each family.
struct Two<'a> {
    rig: &'a Rig,
    server: Server,
    capture: Capture,
    traffic: [Traffic; 2],
}

impl<'a> Two<'a> {
    fn of(rig: &'a Rig) -> Self {
        let server = rig.serve(&FAST);
        let capture = Capture::of(rig);
        let traffic = [SERVER, SERVER_V6].map(|address| Traffic::over(connect(rig, address)));
        let two = Self { rig, server, capture, traffic };
        two.flows();
        assert_eq!(service(&two.server, "fast_accepted"), 2);
        two
    }

    fn flows(&self) {
        self.traffic.iter().for_each(Traffic::flows);
    }

    /// They end on the fast path, to which they have kept.
    fn end(self) {
        self.traffic.into_iter().for_each(Traffic::ends);
        let moved = (service(&self.server, "fast_moved"), service(&self.server, "fast_not_moved"));
        assert_eq!(moved, (0, 0));
        no_reset(self.rig, self.capture);
        assert_eq!(self.server.interrupt(), Some(0));
    }
}

#[test]
fn connections_outlive_a_link_that_is_down_for_a_while_and_another_name_and_mtu_of_it() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let two = Two::of(&rig);
    rig.ip_server(&["link", "set", "vs", "down"]);
    until("the link is seen down", || two.server.show("interfaces")[0]["link"] == "down");
    rig.ip_server(&["link", "set", "vs", "name", "renamed0"]);
    rig.ip_server(&["link", "set", "renamed0", "up"]);
    // The kernel has taken this one off.
    rig.ip_server(&["address", "replace", &format!("{SERVER_V6}/64"), "dev", "renamed0", "nodad"]);
    two.flows();
    for mtu in ["1300", "1500"] {
        rig.ip_client(&["link", "set", "vc", "mtu", mtu]);
        rig.ip_server(&["link", "set", "renamed0", "mtu", mtu]);
        two.flows();
    }
    two.end();
}

#[test]
fn a_foreign_xdp_program_that_comes_and_goes_cuts_no_connection() {
    if !root_or_skip() {
        return;
    }
    for mode in ["native", "skb"] {
        let rig = Rig::of_workers();
        let tools = Tools::new(&rig);
        let two = Two::of(&rig);
        tools.load_filter(mode);
        assert!(named(&two.server).is_some());
        two.flows();
        tools.must("xdp-filter", &["unload", "vs"]);
        assert_eq!(named(&two.server), None);
        two.flows();
        two.end();
    }
}

#[test]
fn connections_outlive_their_interface() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    let mut streams = [SERVER, SERVER_V6].map(|address| connect(&rig, address));
    streams.iter_mut().for_each(|stream| echoes(stream, b"before"));
    rig.ip_server(&["link", "del", "vs"]);
    until("the link is seen gone", || server.show("interfaces")[0]["link"] == "gone");
    rig.join("vs", &[(CLIENT, 24), (CLIENT_V6, 64)], &[(SERVER, 24), (SERVER_V6, 64)]);
    let capture = Capture::of(&rig);
    streams.iter_mut().for_each(|stream| echoes(stream, b"after"));
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}
