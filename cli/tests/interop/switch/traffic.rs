//! Tests of traffic through a switch.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::learned::until_by_kernel;
use super::ports::change;
use super::{BY_WORKERS, Site, address, address_v6, figure, ip_of, port, terminate};
use crate::rig::{PATIENCE, Server, ip, until};
use crate::root_or_skip;

/// Bytes of a bulk transfer: some hundred of the largest packets.
const BULK: usize = 8 << 20;

/// A byte that is determined by its position in the stream, with a period that no packet length has.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 16) as u8
}

/// A TCP connection between two hosts, full of known bytes in both directions at once.
pub(super) fn bulk(site: &Site, from: usize, to: usize, target: &str) {
    let bind = || TcpListener::bind((target, 0));
    let listener = site.hosts[to - 1].run(bind).expect("entered").expect("bound");
    let address = listener.local_addr().expect("bound");
    let client =
        site.hosts[from - 1].run(|| TcpStream::connect(address)).expect("entered").expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    let bytes: Vec<u8> = (0..BULK).map(pattern).collect();
    std::thread::scope(|scope| {
        for mut stream in [&client, &server] {
            let bytes = &bytes;
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            scope.spawn(move || stream.write_all(bytes).expect("written"));
            scope.spawn(move || {
                let mut received = vec![0; BULK];
                stream.read_exact(&mut received).expect("all of it");
                assert!(received == *bytes, "what was sent is what came");
            });
        }
    });
}

/// A datagram of this length to a host and back.
pub(super) fn echo(site: &Site, from: usize, to: usize, len: usize) {
    let (here, there) = (site.udp(from, 0), site.udp(to, 9001));
    let payload: Vec<u8> = (0..len).map(pattern).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 65_536];
            let (len, peer) = there.recv_from(&mut buffer).expect("came");
            there.send_to(&buffer[..len], peer).expect("sent");
        });
        here.send_to(&payload, SocketAddr::new(ip_of(to), 9001)).expect("sent");
        let mut buffer = vec![0; 65_536];
        let (len, _) = here.recv_from(&mut buffer).expect("an answer in time");
        assert!(buffer[..len] == payload);
    });
}

#[test]
fn hosts_reach_each_other_and_bulk_crosses_in_super_frames() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let ports = ["sw0", "--port", "p1", "--port", "p2", "--port", "p3"];
    let adaptive = [&["--mode", "adaptive"][..], &BY_WORKERS].concat();
    let poll = [&["--mode", "poll"][..], &BY_WORKERS].concat();
    for mode in [&[][..], &BY_WORKERS, &adaptive, &poll] {
        let switch = site.switch(&[&ports, mode].concat());
        for (from, to) in [(1, 2), (2, 3), (3, 1)] {
            site.passes(from, to);
            for len in [1, 1_400, 20_000, 60_000] {
                echo(&site, from, to, len);
            }
        }
        if mode.is_empty() {
            until_by_kernel(&switch, "p1", || echo(&site, 1, 2, 100));
        }
        let before = ["frames_in", "bytes_in"].map(|it| figure(&switch, "p1", it));
        let drops = switch.show("drops");
        bulk(&site, 1, 2, &address(2));
        bulk(&site, 2, 1, &address_v6(1));
        let [frames, bytes] = ["frames_in", "bytes_in"].map(|it| figure(&switch, "p1", it));
        if mode.is_empty() {
            assert_eq!(terminate(switch), Some(0));
            continue;
        }
        let average = (bytes - before[1]) / (frames - before[0]).max(1);
        assert!(average > 1_514, "segments cross coalesced: {average} bytes a frame");
        assert_eq!(switch.show("drops"), drops, "{mode:?}");
        assert_eq!(terminate(switch), Some(0));
    }
}

#[test]
fn bulk_in_a_tunnel_between_hosts_crosses() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    // Each host has an end of one tunnel over IPv4, without checksums, and of one over IPv6, with them.
    for (host, other) in [(1, 2), (2, 1)] {
        let namespace = &site.hosts[host - 1];
        for (name, id, local, remote) in [
            ("over4", "4", address(host), address(other)),
            ("over6", "6", address_v6(host), address_v6(other)),
        ] {
            let ends = ["local", &local, "remote", &remote, "dstport", "4789", "dev", "eth0"];
            ip(namespace, &[&["link", "add", name, "type", "vxlan", "id", id][..], &ends].concat());
            ip(namespace, &["address", "add", &format!("10.9.{id}.{host}/24"), "dev", name]);
            ip(namespace, &["link", "set", name, "up"]);
        }
    }
    let switch = site.switch(&[&["sw0", "--port", "p1", "--port", "p2"][..], &BY_WORKERS].concat());
    site.passes(1, 2);
    for id in [4, 6] {
        let before = ["frames_in", "bytes_in"].map(|it| figure(&switch, "p1", it));
        bulk(&site, 1, 2, &format!("10.9.{id}.2"));
        let [frames, bytes] = ["frames_in", "bytes_in"].map(|it| figure(&switch, "p1", it));
        let average = (bytes - before[1]) / (frames - before[0]).max(1);
        assert!(average > 1_514, "the hosts send super-frames: {average} bytes a frame");
    }
    assert_eq!(switch.drops("offload_refused"), 0);
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_slow_port_loses_only_its_own_frames() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    // Host 3 is a bridge, behind which is a shaper with a long queue.
    let slow = &site.hosts[2];
    ip(slow, &["link", "add", "br0", "type", "bridge"]);
    ip(slow, &["link", "add", "shaped", "type", "veth", "peer", "name", "beyond"]);
    for port in ["eth0", "shaped"] {
        ip(slow, &["link", "set", port, "master", "br0"]);
    }
    for name in ["beyond", "shaped", "br0"] {
        ip(slow, &["link", "set", name, "up"]);
    }
    let tbf = ["rate", "64kbit", "burst", "16k", "limit", "1g"];
    let shape = [&["qdisc", "add", "dev", "shaped", "root", "tbf"][..], &tbf].concat();
    assert!(site.rig.run(slow, "tc", &shape).wait().expect("it ends").success());

    let ports = ["sw0", "--port", "p1", "--port", "p2", "--port", "p3"];
    let switch = site.switch(&[&ports[..], &BY_WORKERS].concat());
    site.passes(1, 2);
    // To an address that only the slow port can have. No IP, of which the slow host's filters would take another copy.
    let mut frame = [[2, 0, 0, 0, 0, 0xaa], site.mac(1)].concat();
    frame.extend([0x88, 0xb6]);
    frame.resize(1_514, 0x5a);
    let sender = site.listen(1);
    let flood = |frames: usize| {
        for _ in 0..frames {
            // One that does not fit into the sender's own queue is no matter.
            let _ = sender.send(&frame);
        }
    };
    until("the slow port has all queued that it may", || {
        flood(200);
        port_full(&switch, "p3") > 0
    });
    let (here, there) = (site.udp(1, 0), site.udp(2, 9003));
    there.set_read_timeout(Some(PATIENCE)).expect("set");
    for number in 0..20_u8 {
        flood(20);
        here.send_to(&[number], SocketAddr::new(ip_of(2), 9003)).expect("sent");
        let mut buffer = [0; 8];
        assert_eq!(there.recv(&mut buffer).map(|len| buffer[..len].to_vec()).ok(), Some(vec![number]));
    }
    assert_eq!([port_full(&switch, "p1"), port_full(&switch, "p2")], [0, 0]);
    assert_eq!(terminate(switch), Some(0));
}

/// Frames that a port has lost as the kernel still held too much of it.
fn port_full(switch: &Server, name: &str) -> u64 {
    let drops = switch.show("drops");
    let of_port = drops.as_array().expect("a list").iter().filter(|drop| {
        drop["place"].as_str().is_some_and(|place| place.starts_with(name)) && drop["reason"] == "port_full"
    });
    of_port.filter_map(|drop| drop["count"].as_u64()).sum()
}

#[test]
fn a_known_address_is_not_flooded_to_the_others() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 2);
    let seen = site.listen(3);
    for _ in 0..100 {
        echo(&site, 1, 2, 100);
    }
    // What the hosts send to all by themselves is no matter.
    let known = [site.mac(1), site.mac(2)];
    let flooded = |frame: &Vec<u8>| known.iter().any(|mac| frame.starts_with(mac));
    assert_eq!(site.seen_before(&seen, 1, 3).into_iter().filter(flooded).count(), 0, "of 200 frames");
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn vlans_are_apart_and_a_trunk_carries_them() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(4);
    // Two switches, joined by a trunk.
    ip(&site.rig.server, &["link", "add", "t1", "type", "veth", "peer", "name", "t2"]);
    ip(&site.rig.server, &["link", "set", "t1", "up"]);
    ip(&site.rig.server, &["link", "set", "t2", "up"]);
    let trunk = |name| format!("{name},mode=trunk,vlans=10+20");
    let first =
        ["one", "--port", "p1,vlan=10", "--port", "p2,vlan=20", "--port", &trunk("t1")].map(str::to_owned);
    let second =
        ["two", "--port", "p3,vlan=10", "--port", "p4,vlan=20", "--port", &trunk("t2")].map(str::to_owned);
    let start = |arguments: &[String]| site.switch(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (first, second) = (start(&first), start(&second));
    site.passes(1, 3);
    site.passes(2, 4);
    bulk(&site, 1, 3, &address(3));
    for len in [1, 1_400, 20_000] {
        echo(&site, 2, 4, len);
    }
    let seen = site.listen(2);
    assert!(!site.tries(1, 2) && !site.tries(3, 2));
    let others = [site.mac(1), site.mac(3)];
    let of_others = |frame: &Vec<u8>| others.iter().any(|mac| frame[6..12] == *mac);
    assert_eq!(site.seen_before(&seen, 4, 2).into_iter().filter(of_others).count(), 0, "frames of VLAN 10");
    assert_eq!((terminate(first), terminate(second)), (Some(0), Some(0)));
}

#[test]
fn two_switches_of_a_host_are_apart() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(4);
    let first = site.switch(&["one", "--port", "p1", "--port", "p2"]);
    let second = site.switch(&["two", "--port", "p3", "--port", "p4"]);
    site.passes(1, 2);
    site.passes(3, 4);
    assert!(!site.tries(1, 3));
    // Neither gets an interface of the other one, which loses nothing by it.
    let refused = site.try_switch(&["three", "--port", "p1"]).err().expect("refused");
    assert!(refused.contains("p1 is held already"), "{refused}");
    let refused = change(&site, &second, &["add", "p2"]).expect_err("refused");
    assert!(refused.contains("p2 is held already"), "{refused}");
    site.passes(1, 2);
    site.passes(3, 4);
    assert_eq!((terminate(first), terminate(second)), (Some(0), Some(0)));
}

#[test]
fn a_killed_switch_leaves_nothing_and_the_next_one_starts() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let arguments = ["sw0", "--port", "p1", "--port", "p2", "--local", "sw0-host"];
    let switch = site.switch(&arguments);
    site.passes(1, 2);
    switch.kill();
    // The kernel takes descriptors back after the process has ended.
    until("the host's own interface is gone", || site.rig.link_server("sw0-host").is_null());
    let switch = site.switch(&arguments);
    site.passes(1, 2);
    assert_eq!(port(&switch, "sw0-host")["kind"], "tun");
    assert_eq!(terminate(switch), Some(0));
    assert!(site.rig.link_server("sw0-host").is_null());
}

#[test]
fn an_idle_switch_makes_no_system_calls() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let idle = ["--mode", "interrupt", "--latency-request", "never"];
    let switch = site.switch(&[&["sw0", "--port", "p1", "--port", "p2"][..], &idle].concat());
    site.passes(1, 2);
    let allocations = switch.worker("allocations");
    site.passes(1, 2);
    let pid = switch.child.id();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let task = tasks
        .map(|task| task.unwrap().path())
        .find(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-0"))
        })
        .expect("a worker");
    // Number and arguments of its current system call, proc(5).
    until("the worker sleeps without an end", || {
        let call = std::fs::read_to_string(task.join("syscall")).unwrap();
        let words: Vec<&str> = call.split_whitespace().collect();
        match words.first() {
            // epoll_wait, epoll_pwait: a timeout of -1; epoll_pwait2: none given.
            Some(&"232" | &"281") => words[4].ends_with("ffffffff"),
            Some(&"441") => words[4] == "0x0",
            _ => false,
        }
    });
    let armed = std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .unwrap()
        .filter_map(|fd| std::fs::read_to_string(fd.unwrap().path()).ok())
        .filter(|info| info.contains("it_value"))
        .filter(|info| !info.contains("it_value: (0, 0)"))
        .count();
    assert_eq!(armed, 0, "no timer is armed");
    assert_eq!(switch.worker("allocations"), allocations, "none while frames are carried");
    assert_eq!(terminate(switch), Some(0));
}
