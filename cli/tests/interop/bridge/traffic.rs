//! Tests of traffic through a bridge.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, ipproto, socket_with};
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use twinpath_sys::Namespace;
use twinpath_sys::ethtool::{Offload, set_offload};

use super::{KERNEL, PORT, add_addresses, bridge, passes, rig, try_bridge};
use crate::rig::{CLIENT, CLIENT_V6, PATIENCE, Rig, SERVER, SERVER_V6, Server, ask, until};
use crate::root_or_skip;

/// Bytes of a bulk transfer: some hundred of the largest packets.
const BULK: usize = 8 << 20;

/// A byte that is determined by its position in the stream, with a period that no packet length has.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 16) as u8
}

/// A TCP connection from one namespace to an address in the other, full of known bytes in both directions at once.
fn bulk_in_both_directions(from: &Namespace, to: &Namespace, target: &str) {
    let listener = to.run(|| TcpListener::bind((target, 0))).expect("entered").expect("bound");
    let address = listener.local_addr().expect("bound");
    let client = from.run(|| TcpStream::connect(address)).expect("entered").expect("connected");
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

/// A datagram to the echo of `rig`'s server and back, of a length that takes fragments.
fn echo_udp(rig: &Rig, client: &str, server: &str, len: usize) {
    let there = rig.server_udp(server, 9001);
    let here = rig.client_udp(client, 0);
    let payload: Vec<u8> = (0..len).map(pattern).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 65_536];
            let (len, peer) = there.recv_from(&mut buffer).expect("came");
            there.send_to(&buffer[..len], peer).expect("sent");
        });
        assert!(ask(&here, server, 9001, &payload) == payload);
    });
}

/// An ICMP echo request to the server's kernel, and its reply.
fn ping(rig: &Rig, len: usize) {
    let icmp = rig
        .client
        .run(|| socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP)))
        .expect("entered")
        .expect("root");
    let mut request = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    request.extend((0..len).map(pattern));
    let checksum = rfc_1071(&request).to_be_bytes();
    request[2..4].copy_from_slice(&checksum);
    let target = std::net::SocketAddrV4::new(SERVER.parse().expect("an address"), 0);
    rustix::net::sendto(&icmp, &request, SendFlags::empty(), &target).expect("sent");
    rustix::net::sockopt::set_socket_timeout(&icmp, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))
        .expect("set");
    let mut reply = vec![0; 65_536];
    loop {
        let (got, _) = rustix::net::recv(&icmp, &mut reply[..], RecvFlags::empty()).expect("a reply in time");
        // Behind the IPv4 header: an echo reply with our identifier and payload.
        if got == 20 + request.len() && reply[20] == 0 && reply[24..got] == request[4..] {
            return;
        }
    }
}

fn rfc_1071(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) as u16 + sum as u16)
}

/// Frames and bytes of the device so far, in and out, through its queues and past them.
fn carried(server: &Server) -> [u64; 4] {
    let interfaces = server.show("interfaces");
    assert_eq!(interfaces[0]["name"], PORT);
    let queues = interfaces[0]["queues"].as_array().expect("a list").iter();
    let all: Vec<&serde_json::Value> = queues.chain([&interfaces[0]["crossed"]]).collect();
    ["frames_in", "bytes_in", "frames_out", "bytes_out"]
        .map(|figure| all.iter().filter_map(|queue| queue[figure].as_u64()).sum())
}

/// Packets of the device so far, in and out, as they are on a wire.
fn packets(server: &Server) -> [u64; 2] {
    let interfaces = server.show("interfaces");
    let queues = interfaces[0]["queues"].as_array().expect("a list");
    ["packets_in", "packets_out"].map(|figure| queues.iter().filter_map(|queue| queue[figure].as_u64()).sum())
}

#[test]
fn everything_passes_whole_in_every_mode_and_nothing_is_dropped() {
    if !root_or_skip() {
        return;
    }
    let workers = ["--carrier", "workers"];
    for (arguments, mode) in [
        (&["--carrier", "kernel"][..], "interrupt"),
        (&[&workers[..], &["--mode", "adaptive"]].concat(), "adaptive"),
        (&[&workers[..], &["--latency", "50us"]].concat(), "adaptive"),
        (&[&workers[..], &["--mode", "poll"]].concat(), "poll"),
        (&[&workers[..], &["--queues", "2"]].concat(), "interrupt"),
    ] {
        let rig = rig();
        let server = bridge(&rig, arguments);
        assert_eq!(server.show("workers")[0]["mode"], mode, "{arguments:?}");
        passes(&rig);
        // Frames that the device's peer sent before the kernel's interface was up went to a port that was down.
        let dropped = server.show("drops");
        for len in [0, 64, 1_400, 20_000, 60_000] {
            ping(&rig, len);
            echo_udp(&rig, CLIENT, SERVER, len.max(1));
            echo_udp(&rig, CLIENT_V6, SERVER_V6, len.max(1));
        }
        let before = carried(&server);
        for target in [SERVER, SERVER_V6] {
            bulk_in_both_directions(&rig.client, &rig.server, target);
        }
        let [frames_in, bytes_in, frames_out, bytes_out] = carried(&server);
        let average = |bytes: u64, frames: u64| bytes / frames.max(1);
        // The average includes acknowledgements: data alone come in super-frames of tens of thousands of bytes.
        assert!(average(bytes_in - before[1], frames_in - before[0]) > 1_514, "segments arrive coalesced");
        assert!(average(bytes_out - before[3], frames_out - before[2]) > 1_514, "segments leave coalesced");
        if arguments.contains(&"workers") {
            let [packets_in, packets_out] = packets(&server);
            assert!(average(bytes_in, packets_in) <= 1_514, "{bytes_in} bytes in {packets_in} packets");
            assert!(average(bytes_out, packets_out) <= 1_514, "{bytes_out} bytes in {packets_out} packets");
            assert!(packets_in > frames_in && packets_out > frames_out, "super-frames are several packets");
        }
        // The other way round as well: connections that the server opens.
        bulk_in_both_directions(&rig.server, &rig.client, CLIENT);
        assert_eq!(server.show("drops"), dropped, "{arguments:?}");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn super_frames_leave_by_a_device_that_cannot_segment_them() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let server = bridge(&rig, &["--carrier", "workers"]);
    passes(&rig);
    let dropped = server.show("drops");
    for offload in [Offload::Segmentation, Offload::Checksum] {
        rig.server.run(|| set_offload(PORT, offload, false)).expect("entered").expect("switched off");
        bulk_in_both_directions(&rig.server, &rig.client, CLIENT);
    }
    assert_eq!(server.show("drops"), dropped);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn several_queues_share_the_flows() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let server = bridge(&rig, &["--carrier", "workers", "--queues", "2", "--mode", "interrupt"]);
    for port in 0..64 {
        let there = rig.server_udp(SERVER, 9100 + port);
        let here = rig.client_udp(CLIENT, 0);
        here.send_to(b"one flow of many", (SERVER, 9100 + port)).unwrap();
        there.recv_from(&mut [0; 64]).expect("came");
    }
    let queues = server.show("interfaces")[0]["queues"].clone();
    for queue in queues.as_array().expect("a list") {
        assert!(queue["frames_in"].as_u64().expect("a count") > 8, "{queues}");
    }
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn the_kernels_stack_does_not_act_on_the_device_as_well() {
    if !root_or_skip() {
        return;
    }
    for carrier in ["kernel", "workers"] {
        stays_out(carrier);
    }
}

fn stays_out(carrier: &str) {
    let rig = rig();
    let server = bridge(&rig, &["--carrier", carrier]);
    passes(&rig);
    // All nodes of the link: every stack that receives it answers, and each would with the same link-local address.
    let icmp = rig
        .client
        .run(|| {
            socket_with(AddressFamily::INET6, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMPV6))
        })
        .unwrap()
        .unwrap();
    let scope = rig.link_client("vc")["ifindex"].as_u64().unwrap() as u32;
    let all_nodes = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, scope);
    let ours: std::net::Ipv6Addr = CLIENT_V6.parse().unwrap();
    let timeout = |time| {
        rustix::net::sockopt::set_socket_timeout(&icmp, rustix::net::sockopt::Timeout::Recv, Some(time))
            .unwrap();
    };
    let replies = |number: u8| {
        let request = [128, 0, 0, 0, 0x43, 0x21, 0, number];
        rustix::net::sendto(&icmp, &request, SendFlags::empty(), &all_nodes).unwrap();
        let (mut replies, mut buffer) = (0, [0; 256]);
        timeout(Duration::from_millis(300));
        while let Ok((len, _, from)) = rustix::net::recvfrom(&icmp, &mut buffer[..], RecvFlags::empty()) {
            let from = from.and_then(|from| std::net::SocketAddrV6::try_from(from).ok());
            let other = from.is_some_and(|from| *from.ip() != ours);
            if other && len == 8 && buffer[0] == 129 && buffer[7] == number {
                replies += 1;
            }
        }
        replies
    };
    // The client's own stack is a node of the link, too.
    let mut number = 0;
    until("the other stack answers", || {
        number += 1;
        replies(number) > 1
    });
    assert_eq!(replies(number + 1), 2, "the client itself and one stack behind the cable");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn an_idle_bridge_waits_for_its_descriptors_and_no_timer() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    let idle = ["--carrier", "workers", "--mode", "interrupt", "--latency-request", "never"];
    let server = bridge(&rig, &idle);
    passes(&rig);
    // Attaching its two queues took some.
    let allocations = server.worker("allocations");
    passes(&rig);
    let pid = server.child.id();
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
    // The only timer in its epoll is not armed.
    let armed = std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .unwrap()
        .filter_map(|fd| std::fs::read_to_string(fd.unwrap().path()).ok())
        .filter(|info| info.contains("it_value"))
        .filter(|info| !info.contains("it_value: (0, 0)"))
        .count();
    assert_eq!(armed, 0);
    assert_eq!(server.worker("allocations"), allocations, "none while frames are carried");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn addresses_may_be_there_before_the_first_frame_is() {
    if !root_or_skip() {
        return;
    }
    let rig = rig();
    rig.ip_server(&["link", "set", PORT, "down"]);
    let server = try_bridge(&rig, &[]).expect("a bridge");
    // The device was down, so the kernel's interface is; setting that up sets the device up.
    assert!(!super::has_flag(&rig.link_server(KERNEL), "UP"));
    rig.ip_server(&["link", "set", KERNEL, "up"]);
    add_addresses(&rig);
    passes(&rig);
    assert_eq!(server.interrupt(), Some(0));
}
