//! What kernel sockets in different network namespaces send each other, forwarded by the kernel and counted exactly.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod learned;
mod rig;

use std::io::{Read as _, Write as _};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_openflow_wire::{Field, Match, MatchField};

use rig::{Hosts, Switch, mac};
use twinpath_switch::offload::peer_of;

const DATAGRAMS: u64 = 1000;
const HEADERS: u64 = 14 + 20 + 8;
const BULK: usize = 8 << 20;

/// Packets that have come to a host's IP layer, each part of a super-frame counted.
fn packets_in(hosts: &Hosts, host: usize) -> u64 {
    let text =
        hosts.hosts[host].run(|| std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap()).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let of = |wanted: &str| {
        let at = names.split(' ').position(|name| name == wanted).unwrap();
        values.split(' ').nth(at).unwrap().parse::<u64>().unwrap()
    };
    of("InNoECTPkts") + of("InECT0Pkts") + of("InECT1Pkts") + of("InCEPkts")
}

fn forwarded(to_peer: bool) {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let hosts = Hosts::new();
    let peers = hosts.ifindexes.map(|ifindex| hosts.switch.run(|| peer_of(ifindex).unwrap()).unwrap());
    assert_eq!(peers, [Some(mac(1)), Some(mac(2))]);
    assert_eq!(hosts.switch.run(|| peer_of(1).unwrap()).unwrap(), None, "lo has no other end");
    let mut switch = Switch::new(&hosts, to_peer);
    let (one, two) = (hosts.udp(0), hosts.udp(1));
    let mut bytes = 0;
    for number in 0..DATAGRAMS {
        let payload = vec![number as u8; number as usize % 1400];
        one.send_to(&payload, "10.0.0.2:7000").unwrap();
        let mut buffer = [0; 2048];
        let (len, from) = two.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..len], payload);
        two.send_to(&[1], from).unwrap();
        one.recv_from(&mut buffer).unwrap();
        bytes += payload.len() as u64 + HEADERS;
    }
    assert_eq!(switch.count(2), (DATAGRAMS, bytes));
    assert_eq!(switch.count(1), (DATAGRAMS, DATAGRAMS * (HEADERS + 1)));

    let before = [packets_in(&hosts, 0), packets_in(&hosts, 1)];
    let (mut client, mut server) = hosts.tcp();
    let sender = std::thread::spawn(move || {
        client.write_all(&vec![7; BULK]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
    });
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert!(got.len() == BULK && got.iter().all(|byte| *byte == 7));
    drop(server);
    sender.join().unwrap();
    // The last acknowledgement may be on its way: with one each way more, everything before it has arrived.
    for (from, to, address) in [(&one, &two, "10.0.0.2:7000"), (&two, &one, "10.0.0.1:7000")] {
        from.send_to(b"last", address).unwrap();
        to.recv_from(&mut [0; 8]).unwrap();
    }
    for host in [1, 2_u8] {
        let came = packets_in(&hosts, usize::from(host) - 1) - before[usize::from(host) - 1];
        assert_eq!(switch.count(host).0, DATAGRAMS + came, "to host {host}");
        assert!(came > 100 || host == 1, "{came} packets");
    }
    assert_eq!(switch.take(), None, "the worker has got nothing");
    changed(&hosts, &mut switch);
}

/// What a change makes void goes to the worker from then on, until it is offered again.
fn changed(hosts: &Hosts, switch: &mut Switch) {
    let (counted, one, two) = (switch.count(2).0, hosts.udp_on(0, 7001), hosts.udp_on(1, 7001));
    let wait = |switch: &Switch| {
        let mut wanted = [PollFd::new(&switch.socket, PollFlags::IN)];
        let ready = poll(&mut wanted, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
        assert_eq!(ready, 1, "the worker gets the frame");
    };
    let other = Match::new([MatchField::exact(Field::EthDst, 0x0200_0000_0009)]).unwrap();
    switch.offloaded.flow_added(0, 9, &other).unwrap();
    assert_eq!(switch.offloaded.entries().len(), 2, "it has nothing to do with them");
    let from = Match::new([MatchField::exact(Field::InPort, 1)]).unwrap();
    switch.offloaded.flow_added(0, 9, &from).unwrap();
    assert_eq!(switch.offloaded.entries().len(), 1);
    one.send_to(b"by the worker", "10.0.0.2:7001").unwrap();
    wait(switch);
    assert!(switch.take().unwrap().ends_with(b"by the worker"));
    switch.offloaded.settle(&mut switch.pipeline).unwrap();
    assert_eq!(switch.count(2).0, counted);
    switch.offer(2).unwrap();
    one.send_to(b"by the kernel", "10.0.0.2:7001").unwrap();
    let mut buffer = [0; 64];
    assert_eq!(two.recv(&mut buffer).unwrap(), 13);
    assert_eq!((switch.count(2).0, switch.take()), (counted + 1, None));
    // An interface that is no port any more takes the entries of both directions with it.
    switch.offloaded.set_port(1, None).unwrap();
    assert!(switch.offloaded.entries().is_empty());
}

#[test]
fn sockets_of_two_namespaces_reach_each_other_past_the_interface() {
    forwarded(true);
}

#[test]
fn sockets_of_two_namespaces_reach_each_other_through_the_interface() {
    forwarded(false);
}
