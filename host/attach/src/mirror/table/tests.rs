use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(ifindex: u32, name: &str) -> Link {
    Link {
        ifindex,
        name: name.to_owned(),
        mac: Some(Mac([2, 0, 0, 0, 0, ifindex as u8])),
        mtu: 1500,
        has_queue: false,
        up: true,
        running: true,
        ethernet: true,
        loopback: name == "lo",
        kind: "veth".to_owned(),
        master: None,
        port_kind: String::new(),
        lower: None,
        xdp_program: None,
        rx_queues: 1,
        tx_queues: 1,
        gro_max: 65_536,
    }
}

fn address(ifindex: u32, text: &str) -> Change {
    Change::Address { ifindex, address: ip(text), prefix: 24 }
}

fn neighbour(ifindex: u32, text: &str, state: NeighbourState) -> Change {
    let neighbour = Neighbour { mac: Some(Mac([2, 0, 0, 0, 1, 1])), state, kept_by_other: false };
    Change::Neighbour { ifindex, address: ip(text), neighbour }
}

fn tables(changes: impl IntoIterator<Item = Change>) -> Tables {
    let mut tables = Tables::new(2);
    for change in changes {
        tables.apply(change, &mut Vec::new());
    }
    tables
}

fn effects(tables: &mut Tables, change: Change) -> Vec<Effect> {
    let mut effects = Vec::new();
    tables.apply(change, &mut effects);
    effects
}

#[test]
fn what_changes_nothing_means_nothing() {
    let changes = [
        Change::Link(link(2, "eth0")),
        address(2, "10.0.0.1"),
        neighbour(2, "10.0.0.2", NeighbourState::Reachable),
    ];
    let mut tables = tables(changes.clone());
    for change in changes {
        assert_eq!(effects(&mut tables, change), []);
    }
    for gone in [
        Change::LinkGone(9),
        Change::AddressGone { ifindex: 2, address: ip("10.0.0.9"), prefix: 24 },
        Change::NeighbourGone { ifindex: 2, address: ip("10.0.0.9") },
    ] {
        assert_eq!(effects(&mut tables, gone), []);
    }
}

#[test]
fn super_frames_leave_by_a_veth_alone_and_only_where_nothing_holds_them() {
    let veth = link(2, "near");
    assert!(veth.for_ports().takes_super_frames);
    let held = Link { has_queue: true, ..veth.clone() };
    let card = Link { kind: String::new(), ..veth };
    assert!([held, card].iter().all(|link| !link.for_ports().takes_super_frames));
}

#[test]
fn a_rename_is_no_other_change_and_leads_nowhere_else() {
    let mut tables = tables([Change::Link(link(2, "eth0"))]);
    let renamed = Effect::Renamed { ifindex: 2, from: "eth0".to_owned(), to: "wan0".to_owned() };
    assert_eq!(effects(&mut tables, Change::Link(link(2, "wan0"))), [renamed]);
    let program = Link { xdp_program: Some(7), ..link(2, "wan0") };
    assert_eq!(effects(&mut tables, Change::Link(program.clone())), [Effect::Link(program.clone())]);
    let without_carrier = Link { running: false, ..program };
    assert_eq!(without_carrier.state(), "down");
    let expected = [Effect::Routes, Effect::Link(without_carrier.clone())];
    assert_eq!(effects(&mut tables, Change::Link(without_carrier)), expected);
}

#[test]
fn a_link_takes_its_addresses_and_neighbours_with_it() {
    let mut tables = tables([
        Change::Link(link(1, "lo")),
        Change::Link(link(2, "eth0")),
        address(1, "127.0.0.1"),
        address(2, "10.0.0.1"),
        neighbour(2, "10.0.0.2", NeighbourState::Reachable),
    ]);
    assert_eq!(tables.host_addresses().collect::<Vec<_>>(), [ip("10.0.0.1")]);
    let gone = Effect::LinkGone { ifindex: 2, name: "eth0".to_owned() };
    assert_eq!(effects(&mut tables, Change::LinkGone(2)), [gone, Effect::Routes]);
    assert_eq!((tables.host_addresses().count(), tables.neighbours_len()), (0, 0));
}

#[test]
fn neighbours_beyond_the_limit_are_left_out_and_known_ones_still_change() {
    let mut tables = tables([
        neighbour(2, "10.0.0.2", NeighbourState::Reachable),
        neighbour(2, "10.0.0.3", NeighbourState::Reachable),
        neighbour(2, "10.0.0.4", NeighbourState::Reachable),
    ]);
    assert_eq!((tables.neighbours_len(), tables.neighbours_refused()), (2, 1));
    let changed = neighbour(2, "10.0.0.3", NeighbourState::Stale);
    assert_eq!(effects(&mut tables, changed), [Effect::Neighbour(2, ip("10.0.0.3"))]);
}

#[test]
fn a_fresh_dump_says_only_what_is_different() {
    let kept = [
        Change::Link(link(2, "eth0")),
        address(2, "10.0.0.1"),
        neighbour(2, "10.0.0.2", NeighbourState::Reachable),
    ];
    let mut tables = tables(kept.clone());
    let mut nothing_new = Vec::new();
    tables.replace(kept.to_vec(), &mut nothing_new);
    assert_eq!(nothing_new, [Effect::Routes]);

    tables.apply(Change::Link(link(3, "eth1")), &mut Vec::new());
    let mut effects = Vec::new();
    let dump = vec![
        Change::Link(link(2, "wan0")),
        address(2, "10.0.0.9"),
        neighbour(2, "10.0.0.2", NeighbourState::Stale),
        neighbour(2, "10.0.0.5", NeighbourState::Reachable),
    ];
    tables.replace(dump, &mut effects);
    assert_eq!(
        effects,
        [
            Effect::LinkGone { ifindex: 3, name: "eth1".to_owned() },
            Effect::Routes,
            Effect::Renamed { ifindex: 2, from: "eth0".to_owned(), to: "wan0".to_owned() },
            Effect::Addresses(2),
            Effect::Neighbour(2, ip("10.0.0.2")),
            Effect::Neighbour(2, ip("10.0.0.5")),
            Effect::Routes,
        ]
    );
    assert_eq!(tables.link_named("wan0").map(|link| link.ifindex), Some(2));
    assert_eq!(tables.host_addresses().collect::<Vec<_>>(), [ip("10.0.0.9")]);
}

#[test]
fn a_link_takes_what_is_for_this_hosts_other_addresses_in_its_routing_domain() {
    let vrf = |ifindex| Link { kind: "vrf".to_owned(), ..link(ifindex, "red") };
    let port = |ifindex, master| Link { master: Some(master), ..link(ifindex, "port") };
    let tables = tables([
        Change::Link(link(1, "lo")),
        Change::Link(link(2, "eth0")),
        Change::Link(link(3, "eth1")),
        Change::Link(Link { up: false, ..link(4, "eth2") }),
        Change::Link(vrf(5)),
        Change::Link(port(6, 5)),
        Change::Link(Link { kind: "bridge".to_owned(), ..port(7, 5) }),
        Change::Link(port(8, 7)),
        address(1, "127.0.0.1"),
        address(1, "::1"),
        address(1, "10.9.9.9"),
        address(2, "fe80::2"),
        address(2, "10.0.0.1"),
        address(3, "10.0.1.1"),
        address(3, "fe80::3"),
        address(3, "fd00::3"),
        address(3, "10.0.0.1"),
        address(4, "10.0.2.1"),
        address(4, "fd00::4"),
        address(5, "10.5.0.5"),
        address(6, "10.5.0.6"),
        address(8, "10.5.0.8"),
    ]);
    let taken =
        |ifindex| tables.addresses_taken_on(ifindex).iter().map(IpAddr::to_string).collect::<Vec<_>>();
    assert_eq!(taken(2), ["10.0.0.1", "10.0.1.1", "10.0.2.1", "10.9.9.9", "fd00::3", "fe80::2"]);
    assert_eq!(taken(6), ["10.5.0.5", "10.5.0.6", "10.5.0.8"], "those of its VRF, and no others");
    assert_eq!(taken(6), taken(8), "also as a port of a bridge there");
}
