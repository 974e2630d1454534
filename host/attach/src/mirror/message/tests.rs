use twinpath_netlink::Body;
use twinpath_netlink::route::LINK_HEADER_LEN;

use super::*;

const AF_BRIDGE: u8 = 7;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn octets(text: &str) -> Vec<u8> {
    match ip(text) {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn change(kind: u16, body: &Body) -> Option<Change> {
    super::change(&Message::new(kind, body.as_slice())).expect("it is not cut short")
}

/// Link 5, an Ethernet device that is up.
fn link_header(family: u8) -> Body {
    let mut header = [0; LINK_HEADER_LEN];
    (header[0], header[2], header[4], header[8]) = (family, 1, 5, 1);
    Body::new(header)
}

/// An address of link 5.
fn address_header(flags: u8) -> Body {
    Body::new([AF_INET, 24, flags, 0, 5, 0, 0, 0])
}

/// A neighbour at link 5.
fn neighbour_header(family: u8, flags: u8) -> Body {
    Body::new([family, 0, 0, 0, 5, 0, 0, 0, 2, 0, flags, 0])
}

fn route_header(kind: u8) -> Body {
    let mut header = [0; ROUTE_HEADER_LEN];
    header[7] = kind;
    Body::new(header)
}

#[test]
fn a_bridge_port_that_leaves_its_bridge_is_not_gone() {
    assert_eq!(change(RTM_DELLINK, &link_header(AF_UNSPEC)), Some(Change::LinkGone(5)));
    assert_eq!(change(RTM_DELLINK, &link_header(AF_BRIDGE)), None);
    assert_eq!(change(RTM_NEWLINK, &link_header(AF_BRIDGE).text(IFLA_IFNAME, "x")), None);
}

#[test]
fn a_link_is_read_with_its_kind_master_and_program() {
    let info = Body::new([]).text(IFLA_INFO_KIND, "vlan").text(IFLA_INFO_SLAVE_KIND, "bridge");
    let xdp = Body::new([]).bytes(2, [1]).u32(4, 0).u32(5, 44);
    let message = link_header(AF_UNSPEC)
        .text(IFLA_IFNAME, "v100")
        .bytes(IFLA_ADDRESS, [2, 0, 0, 0, 0, 1])
        .u32(IFLA_MTU, 1400)
        .u32(IFLA_MASTER, 9)
        .u32(IFLA_LINK, 3)
        .text(IFLA_QDISC, "noqueue")
        .u32(IFLA_NUM_RX_QUEUES, 4)
        .u32(IFLA_GRO_MAX_SIZE, 200_000)
        .u32(IFLA_GRO_IPV4_MAX_SIZE, 65_536)
        .nested(IFLA_LINKINFO, &info)
        .nested(IFLA_XDP, &xdp);
    let Some(Change::Link(link)) = change(RTM_NEWLINK, &message) else { panic!("a link expected") };
    assert_eq!((link.name.as_str(), link.kind.as_str(), link.mtu), ("v100", "vlan", 1400));
    assert_eq!((link.port_kind.as_str(), link.has_queue), ("bridge", false));
    assert_eq!((link.rx_queues, link.tx_queues, link.gro_max), (4, 1, 200_000));
    assert_eq!((link.master, link.lower, link.xdp_program), (Some(9), Some(3), Some(44)));
    assert_eq!((link.mac, link.up, link.running), (Some(Mac([2, 0, 0, 0, 0, 1])), true, false));
    // In this case the lower index belongs to another namespace.
    let elsewhere = change(RTM_NEWLINK, &message.u32(IFLA_LINK_NETNSID, 0));
    assert!(matches!(elsewhere, Some(Change::Link(Link { lower: None, .. }))));
}

#[test]
fn an_address_counts_once_it_may_be_used() {
    let said = |flags| {
        let message = address_header(flags).bytes(IFA_ADDRESS, octets("fd00::1"));
        matches!(change(RTM_NEWADDR, &message), Some(Change::Address { .. }))
    };
    let permanent = 0x80;
    assert!(said(permanent));
    assert!(!said(IFA_F_TENTATIVE));
    assert!(!said(IFA_F_DADFAILED | permanent));
    assert!(said(IFA_F_TENTATIVE | IFA_F_OPTIMISTIC));
    // On a point-to-point link the first one is the other end's.
    let message =
        address_header(0).bytes(IFA_ADDRESS, octets("10.0.0.2")).bytes(IFA_LOCAL, octets("10.0.0.1"));
    let ours = (5, ip("10.0.0.1"), 24);
    let (ifindex, address, prefix) = ours;
    assert_eq!(change(RTM_NEWADDR, &message), Some(Change::Address { ifindex, address, prefix }));
    assert_eq!(change(RTM_DELADDR, &message), Some(Change::AddressGone { ifindex, address, prefix }));
}

#[test]
fn proxied_and_bridged_entries_are_no_neighbours() {
    let said = |family, flags| {
        let message = neighbour_header(family, flags).bytes(NDA_DST, octets("10.0.0.2"));
        change(RTM_NEWNEIGH, &message)
    };
    assert_eq!(said(AF_BRIDGE, 0), None);
    assert_eq!(said(AF_INET, NTF_PROXY), None);
    let kept = |message: Option<Change>| match message {
        Some(Change::Neighbour { neighbour, .. }) => neighbour.kept_by_other,
        other => panic!("a neighbour expected, not {other:?}"),
    };
    assert!(!kept(said(AF_INET, 0)));
    assert!(kept(said(AF_INET, NTF_EXT_LEARNED)));
    let managed = neighbour_header(AF_INET, 0)
        .bytes(NDA_DST, octets("10.0.0.2"))
        .bytes(NDA_LLADDR, [2, 0, 0, 0, 0, 2])
        .u32(NDA_FLAGS_EXT, NTF_EXT_MANAGED);
    assert!(kept(change(RTM_NEWNEIGH, &managed)));
    let Some(Change::Neighbour { neighbour, .. }) = change(RTM_NEWNEIGH, &managed) else {
        panic!("a neighbour")
    };
    assert_eq!((neighbour.mac, neighbour.state), (Some(Mac([2, 0, 0, 0, 0, 2])), NeighbourState::Reachable));
    let gone = Some(Change::NeighbourGone { ifindex: 5, address: ip("10.0.0.2") });
    assert_eq!(change(RTM_DELNEIGH, &managed), gone);
}

#[test]
fn only_a_frame_to_one_neighbour_is_a_plain_route() {
    let peer = ip("10.9.9.9");
    let unicast = || route_header(RTN_UNICAST).u32(RTA_OIF, 5);
    let plain = |next_hop| Ok(Route { ifindex: 5, next_hop, mtu: None });
    let metrics = Body::new([]).u32(10, 3).u32(RTAX_MTU, 1300);
    let via = [&10_u16.to_ne_bytes()[..], &octets("fe80::1")].concat();
    let [local, broadcast, prohibit] = [2, 3, 8].map(|kind| route_header(kind).u32(RTA_OIF, 5));
    for (number, (message, expected)) in [
        (unicast(), plain(peer)),
        (unicast().bytes(RTA_GATEWAY, octets("10.0.0.254")), plain(ip("10.0.0.254"))),
        (unicast().bytes(RTA_VIA, via), plain(ip("fe80::1"))),
        (unicast().nested(RTA_METRICS, &metrics), Ok(Route { ifindex: 5, next_hop: peer, mtu: Some(1300) })),
        (route_header(RTN_UNICAST), Err(KernelReason::NoRoute)),
        (unicast().bytes(RTA_GATEWAY, [1; 5]), Err(KernelReason::NotPlain)),
        (unicast().bytes(RTA_MULTIPATH, []), Err(KernelReason::NotPlain)),
        (unicast().bytes(RTA_ENCAP, []), Err(KernelReason::NotPlain)),
        (local, Err(KernelReason::NotPlain)),
        (broadcast, Err(KernelReason::NotPlain)),
        (prohibit, Err(KernelReason::NoRoute)),
    ]
    .into_iter()
    .enumerate()
    {
        let message = Message::new(RTM_NEWROUTE, message.as_slice());
        assert_eq!(route(peer, &message), expected, "case {number}");
    }
}

#[test]
fn a_change_of_the_source_check_is_read_for_one_link_or_all() {
    let netconf = |ifindex: i32, told| {
        let body = Body::new([2]).bytes(NETCONFA_IFINDEX, ifindex.to_ne_bytes()).u32(told, 1);
        change(RTM_NEWNETCONF, &body)
    };
    assert_eq!(netconf(7, NETCONFA_RP_FILTER), Some(Change::SourceCheck { ifindex: Some(7) }));
    let all = Some(Change::SourceCheck { ifindex: None });
    assert_eq!(netconf(NETCONFA_IFINDEX_ALL, NETCONFA_RP_FILTER), all);
    assert_eq!(netconf(-2, NETCONFA_RP_FILTER), None, "of links to come");
    assert_eq!(netconf(7, 2), None, "forwarding");
}

#[test]
fn a_change_of_traffic_control_names_its_link() {
    let body = Body::new([[0; 4], 7_u32.to_ne_bytes(), [0; 4], [0; 4], [0; 4]].concat());
    for kind in [36, 45] {
        assert_eq!(change(kind, &body), Some(Change::TrafficControl { ifindex: 7 }));
    }
}

#[test]
fn a_message_that_ends_within_its_header_is_counted_and_not_read() {
    for (kind, len) in [
        (RTM_NEWLINK, LINK_HEADER_LEN),
        (RTM_DELADDR, ADDRESS_HEADER_LEN),
        (RTM_NEWNEIGH, NEIGHBOUR_HEADER_LEN),
        (44, 8),
        (RTM_NEWNETCONF, 1),
    ] {
        let body = vec![0; len - 1];
        assert_eq!(super::change(&Message::new(kind, &body)), Err(CutShort), "{kind}");
    }
    assert_eq!(super::change(&Message::new(RTM_NEWROUTE, &[])), Ok(Some(Change::Routes)));
    assert_eq!(super::change(&Message::new(1000, &[])), Ok(None), "a message of another table");
}
