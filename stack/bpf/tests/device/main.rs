//! Tests of the programs on a real device: a veth pair between namespaces.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod changes;
mod clsact;
mod connections;
mod corpus;
mod direct;
mod exclusive;
mod foreign;
mod lab;
#[path = "../common/mirrors.rs"]
mod mirrors;
mod reflex;
mod segments;
mod xdp;

use std::net::UdpSocket;
use std::os::fd::AsFd;

use aya::programs::{SchedClassifier, TcAttachType};
use lab::{Lab, NEAR, PacketSocket, near_udp, set_option, take, tc, wait_for};
use twinpath_bpf::{Path, Steering, TcAttach};
use twinpath_claims::{Claim, Table};
use twinpath_wire::{Mac, Protocol};

/// Offset of the payload in an IPv4 UDP frame without options.
const PAYLOAD_AT: usize = 42;

fn empty_table() -> Table {
    let mut table = Table::new(Mac([2, 0, 0, 0, 0, 2]), 3014).unwrap();
    table.add_address("10.0.0.2".parse().unwrap()).unwrap();
    table.add_address("fd00::2".parse().unwrap()).unwrap();
    table
}

fn table_of(claims: &[Claim]) -> Table {
    let mut table = empty_table();
    for claim in claims {
        table.add_claim(claim.clone()).unwrap();
    }
    table
}

/// Sets up the packet path on the near end as the product does.
fn packet_path(lab: &Lab, how: TcAttach, claims: &[Claim]) -> (Steering, PacketSocket) {
    let mut steering = Steering::load(Path::Packet).unwrap();
    steering.apply(&table_of(claims)).unwrap();
    steering.attach_tc(lab.ifindex, how).unwrap();
    let socket =
        PacketSocket::receiver(lab.ifindex, |socket| steering.attach_socket_filter(0, socket).unwrap());
    (steering, socket)
}

fn counter(steering: &Steering, name: &str) -> u64 {
    let counters = steering.counters().unwrap();
    counters.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Sends a datagram that arrives after everything sent before it: a frame that has not come by then will not come.
fn fence(sender: &UdpSocket, port: u16) -> UdpSocket {
    let fence = near_udp(&format!("10.0.0.2:{port}"));
    sender.send_to(b"fence", ("10.0.0.2", port)).unwrap();
    wait_for(&[fence.as_fd()]);
    fence
}

#[test]
fn a_claimed_datagram_arrives_once_and_the_kernel_takes_over_when_the_socket_goes() {
    each_way(true, |lab, how| {
        let (steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        for number in 0..100u8 {
            sender.send_to(&[number], "10.0.0.2:7").unwrap();
        }
        fence(&sender, 99);
        let taken: Vec<_> = std::iter::from_fn(|| socket.take()).map(|frame| frame[PAYLOAD_AT]).collect();
        assert_eq!(taken, (0..100).collect::<Vec<u8>>());
        assert_eq!(take(&kernel), None);
        assert_eq!((counter(&steering, "claimed"), counter(&steering, "withheld_from_kernel")), (100, 100));
        // The socket goes first, while the program at tc stays: no frame may be dropped.
        drop(socket);
        sender.send_to(b"after", "10.0.0.2:7").unwrap();
        fence(&sender, 98);
        assert_eq!(take(&kernel).unwrap().0, b"after");
        assert_eq!(counter(&steering, "withheld_from_kernel"), 100);
        assert_eq!(attached(how), 1);
        drop(steering);
        assert_eq!(attached(how), 0);
    });
}

/// Number of programs at the near end's tc ingress.
fn attached(how: TcAttach) -> usize {
    match how {
        TcAttach::Tcx => SchedClassifier::query_tcx(NEAR, TcAttachType::Ingress).unwrap().1.len(),
        TcAttach::Clsact => tc(&["filter", "show", "dev", NEAR, "ingress"]).matches(" handle 0x").count(),
    }
}

/// Whether the kernel has BPF links at tc, which some tests need; skips the test if not.
fn tcx_or_skip() -> bool {
    if TcAttach::here() == TcAttach::Tcx {
        return twinpath_test_rig::root_or_skip();
    }
    twinpath_test_rig::skip("this kernel has no BPF links at tc");
    false
}

/// Runs a test once for each way to attach at tc that this kernel has, each time with a new pair.
fn each_way(addresses: bool, test: impl Fn(Lab, TcAttach)) {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    for how in [TcAttach::Tcx, TcAttach::Clsact] {
        // A kernel with links has filters as well.
        if how == TcAttach::Clsact || TcAttach::here() == how {
            test(Lab::new(addresses), how);
        }
    }
}

#[test]
fn after_detach_the_socket_gets_nothing_and_the_kernel_everything() {
    each_way(true, |lab, how| {
        let (mut steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        steering.detach();
        sender.send_to(b"after", "10.0.0.2:7").unwrap();
        fence(&sender, 99);
        assert_eq!((socket.take(), take(&kernel).unwrap().0), (None, b"after".to_vec()));
        assert_eq!(attached(how), 0);
    });
}

#[test]
fn fragments_and_coalesced_segments_reach_the_kernel_only() {
    each_way(true, |lab, how| {
        let (steering, socket) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let (kernel, kernel6) = (near_udp("10.0.0.2:7"), near_udp("[fd00::2]:7"));
        let (sender, sender6) = (lab.far_udp("10.0.0.1:4000"), lab.far_udp("[fd00::1]:4000"));
        // The MTU is 3000, so this makes three fragments.
        let long: Vec<u8> = (0..8000u32).map(|i| i as u8).collect();
        sender.send_to(&long, "10.0.0.2:7").unwrap();
        sender6.send_to(&long, "[fd00::2]:7").unwrap();
        fence(&sender, 99);
        wait_for(&[kernel.as_fd()]);
        wait_for(&[kernel6.as_fd()]);
        assert_eq!(take(&kernel).unwrap().0, long);
        assert_eq!(take(&kernel6).unwrap().0, long);
        assert_eq!(counter(&steering, "fragment"), 6);

        // Four datagrams leave the sender as one super-frame, which the kernel segments for its own socket.
        for sender in [&sender, &sender6] {
            set_option(sender, libc::SOL_UDP, libc::UDP_SEGMENT, 64);
        }
        sender.send_to(&long[..256], "10.0.0.2:7").unwrap();
        sender6.send_to(&long[..256], "[fd00::2]:7").unwrap();
        fence(&lab.far_udp("10.0.0.1:4001"), 98);
        for kernel in [&kernel, &kernel6] {
            let parts: Vec<_> = std::iter::from_fn(|| take(kernel)).map(|(part, _)| part).collect();
            assert_eq!(parts.concat(), &long[..256]);
            assert_eq!(parts.len(), 4);
        }
        assert_eq!(counter(&steering, "coalesced"), 2);
        assert_eq!((socket.take(), counter(&steering, "claimed")), (None, 0));
    });
}

#[test]
fn two_instances_on_one_interface_coexist() {
    each_way(true, |lab, how| {
        let first = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let second = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 9)]);
        let kernels = [near_udp("10.0.0.2:7"), near_udp("10.0.0.2:9"), near_udp("10.0.0.2:11")];
        let sender = lab.far_udp("10.0.0.1:4000");
        for number in 0..50u8 {
            for port in [7, 9, 11] {
                sender.send_to(&[number, port as u8], ("10.0.0.2", port)).unwrap();
            }
        }
        fence(&sender, 99);
        for ((steering, socket), port) in [(&first, 7), (&second, 9)] {
            let taken: Vec<_> =
                std::iter::from_fn(|| socket.take()).map(|frame| frame[PAYLOAD_AT..][..2].to_vec()).collect();
            assert_eq!(taken, (0..50).map(|number| vec![number, port]).collect::<Vec<_>>());
            assert_eq!(counter(steering, "withheld_from_kernel"), 50);
            assert_eq!(counter(steering, "note_of_other_frame"), 0);
        }
        assert_eq!((take(&kernels[0]), take(&kernels[1])), (None, None));
        assert_eq!(std::iter::from_fn(|| take(&kernels[2])).count(), 50);
    });
}

#[test]
fn workers_in_a_fanout_group_share_one_verdict_per_frame() {
    each_way(true, |lab, how| {
        let (mut steering, first) = packet_path(&lab, how, &[Claim::port(Protocol::Udp, 7)]);
        let second =
            PacketSocket::receiver(lab.ifindex, |socket| steering.attach_socket_filter(0, socket).unwrap());
        first.join_fanout(7);
        second.join_fanout(7);
        let kernel = near_udp("10.0.0.2:7");
        let sender = lab.far_udp("10.0.0.1:4000");
        let before = counter(&steering, "claimed");
        for number in 0..100u8 {
            sender.send_to(&[number], "10.0.0.2:7").unwrap();
        }
        fence(&sender, 99);
        let counts = [&first, &second].map(|socket| std::iter::from_fn(|| socket.take()).count());
        assert_eq!(counts, [50, 50]);
        assert_eq!(take(&kernel), None);
        assert_eq!(counter(&steering, "claimed") - before, 100);
        assert_eq!(counter(&steering, "withheld_from_kernel"), 100);
    });
}
