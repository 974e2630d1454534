use netlink_packet_route::link::{InfoKind, LinkHeader};
use netlink_packet_route::neighbour::NeighbourHeader;
use netlink_packet_route::route::RouteHeader;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link_message(family: AddressFamily, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header = LinkHeader { interface_family: family, index: 5, ..LinkHeader::default() };
    message.header.link_layer_type = LinkLayerType::Ether;
    message.header.flags = LinkFlags::Up;
    message.attributes = attributes;
    message
}

fn address_message(flags: AddressHeaderFlags, attributes: Vec<AddressAttribute>) -> AddressMessage {
    let mut message = AddressMessage::default();
    (message.header.index, message.header.prefix_len, message.header.flags) = (5, 24, flags);
    message.attributes = attributes;
    message
}

fn neighbour_message(header: NeighbourHeader, attributes: Vec<NeighbourAttribute>) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    (message.header, message.attributes) = (header, attributes);
    message
}

fn route_message(kind: RouteType, attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader { kind, ..RouteHeader::default() };
    message.attributes = attributes;
    message
}

#[test]
fn a_bridge_port_that_leaves_its_bridge_is_not_gone() {
    let gone = |family| change(RouteNetlinkMessage::DelLink(link_message(family, Vec::new())));
    assert_eq!(gone(AddressFamily::Unspec), Some(Change::LinkGone(5)));
    assert_eq!(gone(AddressFamily::Bridge), None);
    let port = link_message(AddressFamily::Bridge, vec![LinkAttribute::IfName("x".to_owned())]);
    assert_eq!(change(RouteNetlinkMessage::NewLink(port)), None);
}

#[test]
fn a_link_is_read_with_its_kind_master_and_program() {
    let attributes = vec![
        LinkAttribute::IfName("v100".to_owned()),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        LinkAttribute::Mtu(1400),
        LinkAttribute::Controller(9),
        LinkAttribute::Link(3),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vlan)]),
        LinkAttribute::Xdp(vec![LinkXdp::ProgId(0), LinkXdp::DrvProgId(44)]),
    ];
    let Some(Change::Link(link)) =
        change(RouteNetlinkMessage::NewLink(link_message(AddressFamily::Unspec, attributes.clone())))
    else {
        panic!("a link expected");
    };
    assert_eq!((link.name.as_str(), link.kind.as_str(), link.mtu), ("v100", "vlan", 1400));
    assert_eq!((link.master, link.lower, link.xdp_program), (Some(9), Some(3), Some(44)));
    assert_eq!((link.mac, link.up, link.running), (Some(Mac([2, 0, 0, 0, 0, 1])), true, false));
    // In this case the lower index belongs to another namespace.
    let elsewhere = [attributes, vec![LinkAttribute::LinkNetNsId(0)]].concat();
    let message = link_message(AddressFamily::Unspec, elsewhere);
    assert!(matches!(
        change(RouteNetlinkMessage::NewLink(message)),
        Some(Change::Link(Link { lower: None, .. }))
    ));
}

#[test]
fn an_address_counts_once_it_may_be_used() {
    let said = |flags| {
        let message = address_message(flags, vec![AddressAttribute::Address(ip("fd00::1"))]);
        matches!(change(RouteNetlinkMessage::NewAddress(message)), Some(Change::Address { .. }))
    };
    assert!(said(AddressHeaderFlags::Permanent));
    assert!(!said(AddressHeaderFlags::Tentative));
    assert!(!said(AddressHeaderFlags::Dadfailed | AddressHeaderFlags::Permanent));
    assert!(said(AddressHeaderFlags::Tentative | AddressHeaderFlags::Optimistic));
    // On a point-to-point link the first one is the other end's.
    let both = vec![AddressAttribute::Address(ip("10.0.0.2")), AddressAttribute::Local(ip("10.0.0.1"))];
    let message = address_message(AddressHeaderFlags::empty(), both);
    let ours = Change::Address { ifindex: 5, address: ip("10.0.0.1"), prefix: 24 };
    assert_eq!(change(RouteNetlinkMessage::NewAddress(message)), Some(ours));
}

#[test]
fn proxied_and_bridged_entries_are_no_neighbours() {
    let said = |family, flags| {
        let header = NeighbourHeader { family, flags, ifindex: 5, ..NeighbourHeader::default() };
        let address = NeighbourAttribute::Destination(NeighbourAddress::Inet([10, 0, 0, 2].into()));
        change(RouteNetlinkMessage::NewNeighbour(neighbour_message(header, vec![address])))
    };
    assert_eq!(said(AddressFamily::Bridge, NeighbourFlags::empty()), None);
    assert_eq!(said(AddressFamily::Inet, NeighbourFlags::Proxy), None);
    let kept = |flags| match said(AddressFamily::Inet, flags) {
        Some(Change::Neighbour { neighbour, .. }) => neighbour.kept_by_other,
        other => panic!("a neighbour expected, not {other:?}"),
    };
    assert!(!kept(NeighbourFlags::empty()));
    assert!(kept(NeighbourFlags::ExtLearned));
}

#[test]
fn only_a_frame_to_one_neighbour_is_a_plain_route() {
    let peer = ip("10.9.9.9");
    let oif = RouteAttribute::Oif(5);
    let plain = |next_hop| Ok(Route { ifindex: 5, next_hop, mtu: None });
    let gateway = RouteAttribute::Gateway(RouteAddress::Inet([10, 0, 0, 254].into()));
    let via = RouteAttribute::Via(RouteVia::Inet6("fe80::1".parse().unwrap()));
    let mtu = RouteAttribute::Metrics(vec![RouteMetric::Hoplimit(3), RouteMetric::Mtu(1300)]);
    for (kind, attributes, expected) in [
        (RouteType::Unicast, vec![oif.clone()], plain(peer)),
        (RouteType::Unicast, vec![oif.clone(), gateway], plain(ip("10.0.0.254"))),
        (RouteType::Unicast, vec![oif.clone(), via], plain(ip("fe80::1"))),
        (
            RouteType::Unicast,
            vec![oif.clone(), mtu],
            Ok(Route { ifindex: 5, next_hop: peer, mtu: Some(1300) }),
        ),
        (RouteType::Unicast, vec![], Err(KernelReason::NoRoute)),
        (
            RouteType::Unicast,
            vec![oif.clone(), RouteAttribute::MultiPath(vec![])],
            Err(KernelReason::NotPlain),
        ),
        (RouteType::Unicast, vec![oif.clone(), RouteAttribute::Encap(vec![])], Err(KernelReason::NotPlain)),
        (RouteType::Local, vec![oif.clone()], Err(KernelReason::NotPlain)),
        (RouteType::Broadcast, vec![oif.clone()], Err(KernelReason::NotPlain)),
        (RouteType::Prohibit, vec![oif], Err(KernelReason::NoRoute)),
    ] {
        assert_eq!(
            route(peer, &route_message(kind, attributes.clone())),
            expected,
            "{kind:?} {attributes:?}"
        );
    }
}

#[test]
fn a_change_of_the_source_check_is_read_for_one_link_or_all() {
    let attribute =
        |kind: u16, value: i32| [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat();
    let netconf = |ifindex, told| {
        let body = [&[2, 0, 0, 0][..], &attribute(NETCONFA_IFINDEX, ifindex), &attribute(told, 1)].concat();
        change_by_kind(NETCONF, &body)
    };
    assert_eq!(netconf(7, NETCONFA_RP_FILTER), Some(Some(Change::SourceCheck { ifindex: Some(7) })));
    assert_eq!(
        netconf(NETCONFA_IFINDEX_ALL, NETCONFA_RP_FILTER),
        Some(Some(Change::SourceCheck { ifindex: None }))
    );
    assert_eq!(netconf(-2, NETCONFA_RP_FILTER), Some(None), "of links to come");
    assert_eq!(netconf(7, 2), Some(None), "forwarding");
    assert_eq!(change_by_kind(NETCONF, &[]), Some(None), "cut short");
}

#[test]
fn a_change_of_traffic_control_names_its_link() {
    let body = [&[0; 4][..], &7u32.to_ne_bytes(), &[0; 12]].concat();
    for kind in [36, 45] {
        assert_eq!(change_by_kind(kind, &body), Some(Some(Change::TrafficControl { ifindex: 7 })));
    }
    assert_eq!(change_by_kind(44, &body[..6]), Some(None), "cut short");
    assert_eq!(change_by_kind(16, &body), None, "a link is decoded");
}
