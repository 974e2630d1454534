use std::net::Ipv4Addr;

use super::*;

fn peer(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
}

const WAY: Egress = Egress {
    ifindex: 3,
    source_mac: Mac([2, 0, 0, 0, 0, 1]),
    next_hop_mac: Mac([2, 0, 0, 0, 0, 2]),
    mtu: 1500,
};

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn a_peer_is_asked_about_once_then_now_and_then() {
    let mut table = EgressTable::new();
    let unknown = |ask| Lookup { answer: Err(KernelReason::Unknown), ask };
    assert_eq!(table.lookup(peer(1), at(0)), unknown(true));
    assert_eq!(table.lookup(peer(1), at(0)), unknown(false), "the answer is on its way");
    assert_eq!(table.lookup(peer(1), at(1)), unknown(true), "or it got lost");
    table.update(Update::Learn { peer: peer(1), answer: Ok(WAY) }, at(2));
    assert_eq!(table.lookup(peer(1), at(11)), Lookup { answer: Ok(WAY), ask: false });
    assert_eq!(
        table.lookup(peer(1), at(12)),
        Lookup { answer: Ok(WAY), ask: true },
        "still used: keep it fresh"
    );
    assert_eq!(table.lookup(peer(1), at(12)), Lookup { answer: Ok(WAY), ask: false });
}

#[test]
fn a_question_that_could_not_be_posted_is_asked_again() {
    let mut table = EgressTable::new();
    assert!(table.lookup(peer(1), at(5)).ask);
    table.not_asked(peer(1));
    assert!(table.lookup(peer(1), at(5)).ask);
}

#[test]
fn what_is_forgotten_or_cleared_is_unknown() {
    let mut table = EgressTable::new();
    for number in 0..3 {
        table.update(Update::Learn { peer: peer(number), answer: Ok(WAY) }, at(0));
    }
    table.update(Update::Forget { peer: peer(0) }, at(0));
    assert!(table.lookup(peer(0), at(0)).answer.is_err() && table.lookup(peer(1), at(0)).answer.is_ok());
    table.update(Update::Clear, at(0));
    assert!(table.is_empty());
}

#[test]
fn the_table_is_bounded_and_says_when_it_is_full() {
    let mut table = EgressTable::new();
    let room = table.peers.capacity();
    // Peers come and go far more often than there is room for, as under a flood of forged sources.
    for number in 0..10 * PEERS_MAX as u32 {
        table.lookup(peer(number), at(0));
        if number % 2 == 0 {
            table.update(Update::Forget { peer: peer(number) }, at(0));
        }
    }
    assert_eq!(table.len(), PEERS_MAX);
    assert!(table.overflows() > 0);
    // Places of deleted peers don't count as room until they are swept; growing would double it.
    assert!(table.peers.capacity() <= room, "no growth, so no allocation");
    let known = table.lookup(peer(1), at(0));
    assert!(!known.ask, "those already known are still served");
    assert_eq!(
        table.lookup(peer(u32::MAX / 512), at(0)),
        Lookup { answer: Err(KernelReason::Unknown), ask: false }
    );
}
