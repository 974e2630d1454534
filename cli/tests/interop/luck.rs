//! Tests of changes of namespaces, and of lost notifications.

use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};
use twinpath_sys::Namespace;
use twinpath_test_rig::within;

use crate::changes::served_fast;
use crate::rig::{CLIENT, PORT, Rig, SERVER, SERVER_V6, SETUPS, answered, ask, move_link, udp_in, until};
use crate::root_or_skip;

/// A path that `ip` accepts for a namespace without a name.
#[test]
fn an_interface_that_is_moved_away_is_the_other_namespaces_and_comes_back() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        served_fast(&rig, &server, CLIENT, SERVER);
        let away = Namespace::new().unwrap();
        move_link(&rig.server, "vs", &away);
        until("the link is seen gone", || server.show("interfaces")[0]["link"] == "gone");
        let local = rig.server_udp("127.0.0.1", 0);
        assert_eq!(ask(&local, "127.0.0.1", PORT, b"local"), b"local", "{path}: the kernel path goes on");
        // There it is an ordinary interface again.
        crate::rig::ip(&away, &["address", "add", "10.7.0.2/24", "dev", "vs"]);
        crate::rig::ip(&away, &["link", "set", "vs", "up"]);
        let client = rig.client_udp(CLIENT, 0);
        let plain = udp_in(&away, (SERVER.parse::<std::net::IpAddr>().unwrap(), PORT).into());
        for _ in 0..100 {
            client.send_to(b"plain", (SERVER, PORT)).unwrap();
            assert_eq!(plain.recv_from(&mut [0; 64]).unwrap().0, 5, "{path}: nothing is claimed there");
        }
        assert!(!answered(&client, SERVER, b"nobody answers"), "{path}");
        drop(plain);
        move_link(&away, "vs", &rig.server);
        rig.ip_server(&["address", "add", "10.7.0.2/24", "dev", "vs"]);
        rig.ip_server(&["link", "set", "vs", "up"]);
        until("the fast path is back", || server.path() != "kernel");
        served_fast(&rig, &server, CLIENT, SERVER);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_namespace_that_is_deleted_under_traffic_takes_only_itself_along() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let mut rig = Rig::of_workers();
        let server = rig.serve(way);
        let load = |rig: &Rig| {
            let target = format!("{SERVER}:{PORT}");
            let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
            command.args(["bench", "echo", &target, "--duration", "600", "--inflight", "64", "--json"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            within(&rig.client, &mut command);
            command.spawn().unwrap()
        };
        let mut peer = load(&rig);
        until("the load has begun", || server.worker("frames_in") > 1_000);
        // The peer's namespace is removed, and the link with it.
        rig.client = Namespace::new().unwrap();
        peer.kill().unwrap();
        peer.wait().unwrap();
        until("the link is seen gone", || server.show("interfaces")[0]["link"] == "gone");
        let local = rig.server_udp("127.0.0.1", 0);
        assert_eq!(ask(&local, "127.0.0.1", PORT, b"local"), b"local", "{path}");
        drop(local);
        rig.join("vs", &[(CLIENT, 24)], &[(SERVER, 24)]);
        until("the fast path is back", || server.path() != "kernel");
        served_fast(&rig, &server, CLIENT, SERVER);
        // Our own namespace is removed, and we are killed in it: the peer's end of the link disappears too.
        let mut peer = load(&rig);
        let before = server.worker("frames_in");
        until("the load runs again", || server.worker("frames_in") > before + 1_000);
        rig.server = Namespace::new().unwrap();
        server.kill();
        until("the pair is gone", || {
            let show = || Command::new("ip").args(["link", "show", "dev", "vc"]).output();
            !rig.client.run(show).unwrap().unwrap().status.success()
        });
        peer.kill().unwrap();
        peer.wait().unwrap();
    }
}

#[test]
fn more_news_than_the_kernel_can_keep_are_read_anew() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--path", "packet"]);
    served_fast(&rig, &server, CLIENT, SERVER);
    // While it is stopped, the kernel drops notifications that do not fit into its socket, including the last ones.
    kill_process(server.pid(), Signal::STOP).unwrap();
    let mut batch = String::new();
    for number in 0..40_000u32 {
        let (high, low) = (number >> 8, number & 0xff);
        batch.push_str(&format!(
            "route add 10.{}.{}.{low}/32 via {CLIENT}\n",
            128 + (high >> 8),
            high & 0xff
        ));
    }
    let file = rig.directory.path().join("batch");
    std::fs::write(&file, batch).unwrap();
    rig.ip_server(&["-batch", file.to_str().unwrap()]);
    rig.ip_server(&["address", "del", "10.7.0.2/24", "dev", "vs"]);
    rig.ip_server(&["address", "add", "10.7.0.9/24", "dev", "vs"]);
    kill_process(server.pid(), Signal::CONT).unwrap();
    until("the overrun is noticed", || server.drops("netlink_overrun") > 0);
    served_fast(&rig, &server, CLIENT, "10.7.0.9");
    let client = rig.client_udp(CLIENT, 0);
    until("the address is no longer ours", || !answered(&client, SERVER, b"gone"));
    served_fast(&rig, &server, crate::rig::CLIENT_V6, SERVER_V6);
    assert_eq!(server.interrupt(), Some(0));
}
