//! Tests of what watches and limits traffic: mirrored ports, storm limits, the loop guard, `top`.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde_json::Value;
use twinpath_sys::PacketSocket;
use twinpath_sys::packet_socket::interface_index;

use super::ports::{StopAtEnd, echo_until};
use super::{Site, figure, ip_of, terminate};
use crate::rig::{PATIENCE, Server, ip, until};
use crate::root_or_skip;

/// IPv4.
const IPV4: u16 = 0x0800;
/// An EtherType for experiments (IEEE 802, table 3).
const EXPERIMENT: u16 = 0x88b5;

/// A packet socket of a host, which waits for a tenth of a second.
fn frames(site: &Site, host: usize, ethertype: u16) -> PacketSocket {
    let open = || PacketSocket::open(interface_index("eth0")?, ethertype);
    let socket = site.hosts[host - 1].run(open).expect("entered").expect("a packet socket");
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100))).expect("set");
    socket
}

/// A port in `show ports`.
fn shown(switch: &Server, name: &str) -> Value {
    let ports = switch.show("ports");
    ports.as_array().expect("a list").iter().find(|port| port["name"] == name).cloned().expect("shown")
}

#[test]
fn a_monitor_port_gets_one_copy_of_each_frame_of_a_mirrored_port_and_sends_nothing() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(4);
    for workers in ["1", "2"] {
        let ports = ["p1,mirror_to=p4", "p2", "p3", "p4,mode=monitor"];
        let mut arguments = vec!["sw0", "--workers", workers];
        ports.iter().for_each(|port| arguments.extend(["--port", port]));
        let switch = site.switch(&arguments);
        site.passes(1, 2);
        site.passes(2, 3);
        let monitor = frames(&site, 4, IPV4);
        let (there, done) = (site.udp(2, 9400), AtomicBool::new(false));
        let (mirrored, apart) = (site.udp(1, 9401), site.udp(3, 9402));
        std::thread::scope(|scope| {
            scope.spawn(|| echo_until(&there, &done));
            for number in 0..50_u8 {
                for socket in [&mirrored, &apart] {
                    socket.send_to(&[number; 40], (ip_of(2), 9400)).expect("sent");
                    socket.recv_from(&mut [0; 64]).expect("an answer in time");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        // Each datagram of host 1 when it came and each answer when it left; none of host 3.
        let (mut asked, mut answered, mut buffer) = ([0; 50], [0; 50], [0; 2048]);
        while let Ok(len) = monitor.receive(&mut buffer) {
            let [source, target] = [34, 36].map(|at| u16::from_be_bytes([buffer[at], buffer[at + 1]]));
            assert!(source != 9402 && target != 9402, "a frame of a port that is not mirrored");
            match (source, target) {
                (9401, 9400) if len >= 82 => asked[usize::from(buffer[42])] += 1,
                (9400, 9401) if len >= 82 => answered[usize::from(buffer[42])] += 1,
                _ => {}
            }
        }
        assert_eq!((asked, answered.len()), ([1; 50], 50), "with {workers} workers");
        // What `echo_until` sends back has another content.
        assert_eq!(answered.iter().sum::<u32>(), 50);
        assert_eq!(
            (shown(&switch, "p1")["mirror_to"].as_str(), shown(&switch, "p4")["mode"].as_str()),
            (Some("p4"), Some("monitor"))
        );
        assert!(!site.tries(4, 2), "a monitor port has no part in the traffic");
        assert_eq!(shown(&switch, "p4")["addresses"], 0);
        assert_eq!(terminate(switch), Some(0));
    }
}

#[test]
fn each_kind_of_flooding_has_its_limit() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let kinds = [
        ("broadcast_limit", [0xff; 6]),
        ("multicast_limit", [1, 0, 0x5e, 0, 0, 9]),
        ("unknown_limit", [2, 0, 0, 0, 0, 0x99]),
    ];
    for (key, target) in kinds {
        let switch = site.switch(&["sw0", "--port", &format!("p1,{key}=100"), "--port", "p2"]);
        site.passes(1, 2);
        let (sender, listener) = (frames(&site, 1, 0), frames(&site, 2, EXPERIMENT));
        let (dropped, began) = (switch.drops("storm_limit"), Instant::now());
        let mut frame = [&target[..], &[2, 0, 0, 0, 0, 7]].concat();
        frame.extend(EXPERIMENT.to_be_bytes());
        frame.extend([0x5a; 46]);
        // A queue of a veth holds 256 frames, and a busy machine empties it late.
        for sent in 1..=5 {
            (0..100).for_each(|_| sender.send(&frame).expect("sent"));
            until("those beyond the limit were dropped", || {
                let allowed = 10 + began.elapsed().as_millis() as u64 / 10 + 1;
                switch.drops("storm_limit") - dropped + allowed >= sent * 100
            });
        }
        let (mut came, mut buffer) = (0, [0; 128]);
        while listener.receive(&mut buffer).is_ok() {
            came += 1;
        }
        // A tenth of a second's frames at once, and then the rate. What has passed just before may have taken two of these:
        // a question for an address, and the first frame to one that was not learned yet.
        let most = 10 + began.elapsed().as_millis() as u64 / 10 + 1;
        assert!((8..=most).contains(&came), "{key}: {came} of at most {most}");
        until("each frame passed or was counted", || switch.drops("storm_limit") - dropped + came >= 500);
        assert!(shown(&switch, "p1")["dropped"].as_u64().unwrap() >= 500 - came);
        site.passes(1, 2);
        assert_eq!(terminate(switch), Some(0));
    }
}

#[test]
fn a_loop_is_found_and_both_of_its_ports_are_named() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    ip(&site.rig.server, &["link", "add", "l1", "type", "veth", "peer", "name", "l2"]);
    for port in ["l1", "l2"] {
        ip(&site.rig.server, &["link", "set", port, "up"]);
    }
    let mut arguments = vec!["sw0", "--loop-block-s", "3600"];
    ["p1", "p2", "l1", "l2"].iter().for_each(|port| arguments.extend(["--port", port]));
    let switch = site.switch(&arguments);
    let sender = frames(&site, 1, 0);
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 7]].concat();
    frame.extend(EXPERIMENT.to_be_bytes());
    frame.extend([0x5a; 46]);
    sender.send(&frame).expect("sent");
    switch.wait_until_said("are a loop: a frame that was sent by the one has come back by the other");
    switch.wait_until_said("find the other connection between them");
    let blocked = |name: &str| shown(&switch, name)["blocked_for"].as_str().map(str::to_owned);
    assert_eq!((blocked("l2").as_deref(), blocked("l1")), (Some("l1"), None));
    switch.wait_until_said("l2 and l1 are a loop");
    switch.wait_until_said("Nothing is flooded by l2");
    // What went around has been dropped, and everything else goes on.
    site.passes(1, 2);
    until("nothing goes around any more", || {
        let before = figure(&switch, "l1", "frames_in");
        site.passes(1, 2);
        figure(&switch, "l1", "frames_in") < before + 100
    });
    assert!(switch.drops("looped") > 0);
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn top_shows_the_rates_of_a_switchs_ports_and_workers() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--workers", "2"]);
    site.passes(1, 2);
    let (there, done) = (site.udp(2, 9500), AtomicBool::new(false));
    let here = site.udp(1, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| echo_until(&there, &done));
        let _at_end = StopAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                here.send_to(&[1; 60], (ip_of(2), 9500)).expect("sent");
                let _ = here.recv_from(&mut [0; 64]);
            }
        });
        let top = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
            command.arg("top").args(arguments).arg("--socket").arg(&switch.socket);
            let output = command.output().expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let text = top(&["--once", "--interval", "0.3"]);
        for part in ["switch on sw0", "p1 (up)", "p2 (up)", "workers"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let began = Instant::now();
        loop {
            let line = top(&["--once", "--json", "--interval", "0.3"]);
            let rates: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
            let of_p1 = rates["interfaces"].as_array().expect("a list").iter().find(|it| it["name"] == "p1");
            let of_p1 = of_p1.expect("p1");
            let queues = of_p1["queues"].as_array().expect("a list").clone();
            // Most of them go by the kernel.
            let of_all = queues.iter().chain([&of_p1["crossed"]]);
            let rate: f64 = of_all.filter_map(|queue| queue["frames_in_per_s"].as_f64()).sum();
            assert_eq!((queues.len(), rates["workers"].as_array().map(Vec::len)), (2, Some(2)), "{line}");
            if rate > 10.0 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "no traffic is seen: {line}");
        }
    });
    assert_eq!(terminate(switch), Some(0));
}
