//! Tests which frames the sockets of a port receive, and what happens to frames that cannot leave: on a veth pair
//! without any BPF program.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::convert::Infallible;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use twinpath_frame::{Burst, Pool};
use twinpath_packet::xdp::{CopyMode, XdpConfig, XdpPort};
use twinpath_packet::{PacketConfig, PacketPort};
use twinpath_port::{PortId, PortQueue, WaitSource};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::{FanoutGroup, interface_index};
use twinpath_test_rig::ip_here;

/// Makes a pair in the current namespace. Packets to 10.1.0.9 leave through `near`, packets to 10.2.0.9 arrive there.
fn pair() -> u32 {
    ip_here("link add near address 02:00:00:00:00:01 type veth peer name far address 02:00:00:00:00:02");
    for (name, subnet, peer) in [("near", 1, 2), ("far", 2, 1)] {
        ip_here(&format!("link set {name} addrgenmode none"));
        ip_here(&format!("addr add 10.{subnet}.0.1/24 dev {name}"));
        ip_here(&format!("link set {name} up"));
        ip_here(&format!("neigh add 10.{subnet}.0.9 lladdr 02:00:00:00:00:0{peer} dev {name} nud permanent"));
    }
    interface_index("near").unwrap()
}

fn config(ifindex: u32, fanout_group: Option<&FanoutGroup>) -> PacketConfig<'_> {
    PacketConfig {
        id: PortId::default(),
        ifindex,
        ring_slots: 128,
        fanout_group,
        binds_late: false,
        bypass_qdisc: true,
        super_frames: false,
        datagrams: false,
    }
}

/// Without a filter: the socket takes every frame it receives.
fn open(config: &PacketConfig, queue: Option<XdpPort>) -> PacketPort {
    let filter = |_: BorrowedFd<'_>| Ok::<(), Infallible>(());
    PacketPort::open(config, filter, queue, None).unwrap()
}

/// Empties the ports until a frame that holds `last` has come; returns how many held `word`.
fn count(ports: &mut [PacketPort], word: &[u8], last: &[u8]) -> usize {
    let (mut pool, mut burst) = (Pool::new(128).unwrap(), Burst::new());
    let (begun, mut found, mut over) = (Instant::now(), 0, false);
    let holds = |frame: &[u8], word: &[u8]| frame.windows(word.len()).any(|part| part == word);
    while !over && begun.elapsed() < twinpath_test_rig::PATIENCE {
        for port in &mut *ports {
            port.receive(twinpath_time::Instant::ZERO, &mut pool, &mut burst);
            found += burst.frames().iter().filter(|frame| holds(frame.bytes(), word)).count();
            over |= burst.frames().iter().any(|frame| holds(frame.bytes(), last));
            burst.release(usize::MAX, &mut pool);
        }
    }
    assert!(over, "nothing arrived");
    found
}

#[test]
fn outgoing_frames_reach_neither_a_single_socket_nor_a_group() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    Namespace::new().unwrap().run(outgoing).unwrap();
}

fn outgoing() {
    let ifindex = pair();
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    for workers in [1, 2] {
        let group = FanoutGroup::default();
        let group = (workers > 1).then_some(&group);
        let mut ports: Vec<_> = (0..workers).map(|_| open(&config(ifindex, group), None)).collect();
        for _ in 0..50 {
            sender.send_to(b"outgoing", "10.1.0.9:7").unwrap();
        }
        sender.send_to(b"incoming", "10.2.0.9:7").unwrap();
        sender.send_to(b"the last", "10.2.0.9:7").unwrap();
        assert_eq!(count(&mut ports, b"outgoing", b"the last"), 0, "{workers} workers");
        sender.send_to(b"incoming", "10.2.0.9:7").unwrap();
        sender.send_to(b"the last", "10.2.0.9:7").unwrap();
        assert_eq!(count(&mut ports, b"incoming", b"the last"), 1, "{workers} workers: each frame once");
    }
}

#[test]
fn groups_on_one_interface_each_have_every_frame() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    Namespace::new().unwrap().run(two_groups).unwrap();
}

/// As two processes are that have the same process ID, each in a PID namespace of its own.
fn two_groups() {
    let ifindex = pair();
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    let groups = [FanoutGroup::default(), FanoutGroup::default()];
    let mut members =
        groups.each_ref().map(|group| [(); 2].map(|()| open(&config(ifindex, Some(group)), None)));
    sender.send_to(b"incoming", "10.2.0.9:7").unwrap();
    sender.send_to(b"the last", "10.2.0.9:7").unwrap();
    for members in &mut members {
        assert_eq!(count(members, b"incoming", b"the last"), 1);
    }
}

#[test]
fn frames_that_wait_for_the_link_keep_the_worker_from_sleeping_once_it_is_back() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    Namespace::new().unwrap().run(stuck).unwrap();
}

fn stuck() {
    let ifindex = pair();
    let mut pool = Pool::new(64).unwrap();
    let xdp = XdpConfig {
        id: PortId::default(),
        ifindex,
        ring_frames: 16,
        receives: false,
        copy_mode: CopyMode::Copy,
        virtual_device: true,
    };
    let queue = XdpPort::open(&xdp, None, pool.region()).unwrap();
    let mut port = open(&config(ifindex, None), Some(queue));
    ip_here("link set near down");
    let mut burst = Burst::new();
    let mut frame = pool.take().unwrap();
    frame.copy_from(&[2; 64]).unwrap();
    burst.push(frame).unwrap();
    port.transmit(&mut pool, &mut burst);
    port.flush(&mut pool);
    assert!(port.arm(), "nothing can leave: sleeping is right");
    port.disarm();
    ip_here("link set near up");
    assert!(!port.arm(), "it can leave now: another turn comes first");
    port.disarm();
    port.flush(&mut pool);
    assert!(port.arm(), "it has left");
}
