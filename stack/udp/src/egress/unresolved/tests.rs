use twinpath_wire::Mac;

use super::*;

const WAY: Egress = Egress { ifindex: 3, source_mac: Mac([2; 6]), next_hop_mac: Mac([4; 6]), mtu: 1500 };
const UNRESOLVED: Result<Egress, KernelReason> = Err(KernelReason::UnresolvedPeer { prefix_len: 16 });

fn peer(network: u8, number: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + (u32::from(network) << 16) + number).into()
}

fn after_ms(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + millis * 1_000_000)
}

#[test]
fn a_network_with_too_many_unresolved_peers_is_refused_and_no_other_is() {
    let mut networks = UnresolvedNetworks::default();
    for number in 0..BURST {
        assert!(!networks.refuses(peer(1, 5000), after_ms(0)), "after {number}");
        networks.answered(peer(1, number), None, UNRESOLVED, after_ms(0));
    }
    assert!(networks.refuses(peer(1, 5000), after_ms(0)));
    assert!(!networks.refuses(peer(2, 5000), after_ms(0)));
    assert!(!networks.refuses("2001:db8::1".parse().unwrap(), after_ms(0)));
    // One more is allowed each 1/16 s.
    assert!(networks.refuses(peer(1, 5000), after_ms(0)));
    assert!(!networks.refuses(peer(1, 5000), after_ms(63)));
}

#[test]
fn peers_that_resolve_count_no_more() {
    let mut networks = UnresolvedNetworks::default();
    // A thousand clients that the kernel has to ask for first, as after a restart of the host.
    for number in 0..1_000 {
        networks.answered(peer(1, number), None, UNRESOLVED, after_ms(0));
        networks.answered(peer(1, number), Some(UNRESOLVED), Ok(WAY), after_ms(1));
        assert!(!networks.refuses(peer(1, 5000), after_ms(1)));
    }
    // They are switched off: this is not a flood.
    for number in 0..1_000 {
        networks.answered(peer(1, number), Some(Ok(WAY)), UNRESOLVED, after_ms(2));
    }
    assert!(!networks.refuses(peer(1, 5000), after_ms(2)));
}

#[test]
fn reasons_that_make_no_entries_do_not_count() {
    let mut networks = UnresolvedNetworks::default();
    let others = [KernelReason::Unknown, KernelReason::Unresolved, KernelReason::NoRoute];
    for number in 0..300 {
        networks.answered(peer(1, number), None, Err(others[number as usize % 3]), after_ms(0));
        networks.answered(peer(1, number), Some(UNRESOLVED), UNRESOLVED, after_ms(0));
    }
    assert!(!networks.refuses(peer(1, 5000), after_ms(0)));
}

/// Answers that were on their way when the network became full, however many, and a clock that goes back.
#[test]
fn it_is_allowed_again_after_four_seconds_at_most() {
    let mut networks = UnresolvedNetworks::default();
    for number in 0..10_000 {
        networks.answered(peer(1, number), None, UNRESOLVED, after_ms(10_000));
    }
    assert!(networks.refuses(peer(1, 5000), after_ms(13_000)));
    assert!(!networks.refuses(peer(1, 5000), after_ms(14_001)));
    assert!(!networks.refuses(peer(1, 5000), after_ms(0)), "the clock went back");
}

#[test]
fn a_flood_of_networks_replaces_those_that_count_the_least() {
    let mut networks = UnresolvedNetworks::default();
    for number in 0..BURST {
        networks.answered(peer(1, number), None, UNRESOLVED, after_ms(0));
    }
    for network in 2..200 {
        networks.answered(peer(network, 1), None, UNRESOLVED, after_ms(0));
    }
    assert!(networks.refuses(peer(1, 5000), after_ms(0)));
}
