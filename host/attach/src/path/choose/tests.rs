use twinpath_bpf::TcAttach;

use super::*;
use crate::path::facts::ForeignXdp;
use crate::path::privileges::Capabilities;

const NATIVE: XdpFeatures = XdpFeatures {
    basic: true,
    redirect: true,
    transmit: true,
    zero_copy: false,
    multi_buffer: false,
    zero_copy_segments: 0,
};
const NONE: XdpFeatures = XdpFeatures { basic: false, redirect: false, transmit: false, ..NATIVE };

/// A network card with native XDP that does not remove tags from frames, on a kernel that supports everything.
pub(crate) fn nic() -> InterfaceFacts {
    InterfaceFacts {
        name: "eth0".to_owned(),
        ifindex: 2,
        kind: "ice".to_owned(),
        software: false,
        loopback: false,
        ethernet: true,
        mtu: 1500,
        port_of: None,
        rx_queues: 8,
        tx_queues: 8,
        xdp_features: Some(NATIVE),
        vlan_rx_offload: Some(false),
        foreign_xdp: None,
        crossed: false,
        has_addresses: true,
        af_xdp: Support::Yes,
        tc: Ok(TcAttach::Tcx),
        capabilities: Capabilities::ALL,
        program: "twinpath".to_owned(),
    }
}

fn veth() -> InterfaceFacts {
    InterfaceFacts {
        name: "veth0".to_owned(),
        kind: "veth".to_owned(),
        software: true,
        vlan_rx_offload: Some(true),
        ..nic()
    }
}

fn foreign(name: Option<&str>) -> Option<ForeignXdp> {
    Some(ForeignXdp { id: 42, name: name.map(str::to_owned), ..ForeignXdp::default() })
}

fn no(reason: &str) -> Support {
    Support::No(reason.to_owned())
}

fn auto(facts: &InterfaceFacts) -> Choice {
    choose(facts, PathAsked::Auto).expect("auto is never refused")
}

fn why_not(choice: &Choice, path: Path) -> &str {
    choice.why_not.iter().find(|not| not.path == path).map_or("", |not| not.reason.as_str())
}

#[test]
fn auto_takes_the_path_that_the_device_and_the_kernel_allow() {
    let zero_copy = XdpFeatures { zero_copy: true, ..NATIVE };
    let no_redirect = XdpFeatures { redirect: false, ..NATIVE };
    let table: Vec<(&str, InterfaceFacts, Path)> = vec![
        ("NIC", nic(), Path::XdpNative),
        ("zero-copy is opt-in", InterfaceFacts { xdp_features: Some(zero_copy), ..nic() }, Path::XdpNative),
        ("NIC without redirect", InterfaceFacts { xdp_features: Some(no_redirect), ..nic() }, Path::Packet),
        ("NIC without XDP", InterfaceFacts { xdp_features: Some(NONE), ..nic() }, Path::Packet),
        ("features unknown", InterfaceFacts { xdp_features: None, ..nic() }, Path::Packet),
        ("tags hidden", InterfaceFacts { vlan_rx_offload: Some(true), ..nic() }, Path::Packet),
        ("tags perhaps hidden", InterfaceFacts { vlan_rx_offload: None, ..nic() }, Path::Packet),
        ("foreign program", InterfaceFacts { foreign_xdp: foreign(None), ..nic() }, Path::Packet),
        ("no AF_XDP", InterfaceFacts { af_xdp: no("old"), ..nic() }, Path::Packet),
        ("no tcx, XDP good", InterfaceFacts { tc: Err("old".to_owned()), ..nic() }, Path::XdpNative),
        (
            "no tcx, no native",
            InterfaceFacts { tc: Err("old".to_owned()), xdp_features: Some(NONE), ..nic() },
            Path::XdpGeneric,
        ),
        (
            "no tcx, no native, tags hidden",
            InterfaceFacts {
                tc: Err("old".to_owned()),
                xdp_features: Some(NONE),
                vlan_rx_offload: Some(true),
                ..nic()
            },
            Path::Kernel,
        ),
        (
            "no tcx, foreign",
            InterfaceFacts { tc: Err("old".to_owned()), foreign_xdp: foreign(None), ..nic() },
            Path::Kernel,
        ),
        ("veth", veth(), Path::Packet),
        ("veth, no tcx", InterfaceFacts { tc: Err("old".to_owned()), ..veth() }, Path::Kernel),
        ("tap", InterfaceFacts { kind: "tun".to_owned(), ..veth() }, Path::Packet),
        ("tap of a bridge", InterfaceFacts { kind: "tun".to_owned(), crossed: true, ..veth() }, Path::Kernel),
        (
            "virtio_net",
            InterfaceFacts { kind: "virtio_net".to_owned(), vlan_rx_offload: Some(false), ..nic() },
            Path::Packet,
        ),
        ("tunnel", InterfaceFacts { ethernet: false, ..veth() }, Path::Kernel),
        ("loopback", InterfaceFacts { loopback: true, ..nic() }, Path::Kernel),
        (
            "bridge port",
            InterfaceFacts { port_of: Some(("br0".to_owned(), "bridge".to_owned())), ..veth() },
            Path::Kernel,
        ),
        ("no capabilities", InterfaceFacts { capabilities: Capabilities::default(), ..nic() }, Path::Kernel),
    ];
    for (what, facts, path) in table {
        let choice = auto(&facts);
        assert_eq!(choice.path, path, "{what}: {choice:?}");
        // Every path that ranks above the chosen one has a reason.
        let ranked = [Path::XdpZeroCopy, Path::XdpNative, Path::XdpGeneric, Path::Packet, Path::Kernel];
        let better: Vec<Path> = match path {
            Path::XdpNative => vec![Path::XdpZeroCopy],
            Path::Packet => ranked[..3].to_vec(),
            Path::XdpGeneric => vec![Path::XdpZeroCopy, Path::XdpNative, Path::Packet],
            _ => ranked[..4].to_vec(),
        };
        assert_eq!(choice.why_not.iter().map(|not| not.path).collect::<Vec<_>>(), better, "{what}");
        assert!(choice.why_not.iter().all(|not| !not.reason.is_empty()), "{what}");
    }
}

#[test]
fn auto_continues_with_the_next_best_path_as_each_is_ruled_out() {
    let ranking = |facts: &InterfaceFacts| {
        let (mut ruled_out, mut paths) = (Vec::new(), Vec::new());
        loop {
            let choice = choose_without(facts, PathAsked::Auto, &ruled_out).expect("auto is never refused");
            paths.push(choice.path);
            assert!(ruled_out.iter().all(|not: &WhyNot| why_not(&choice, not.path) == not.reason));
            if choice.path == Path::Kernel {
                return paths;
            }
            ruled_out.push(WhyNot { path: choice.path, reason: format!("{} failed", choice.path) });
        }
    };
    assert_eq!(ranking(&nic()), [Path::XdpNative, Path::Packet, Path::XdpGeneric, Path::Kernel]);
    assert_eq!(ranking(&veth()), [Path::Packet, Path::Kernel]);
    let without_tc = InterfaceFacts { tc: Err("no tcx".to_owned()), ..nic() };
    assert_eq!(ranking(&without_tc), [Path::XdpNative, Path::XdpGeneric, Path::Kernel]);
}

#[test]
fn auto_says_on_a_veth_what_the_packet_path_spares_the_peer() {
    let choice = auto(&veth());
    assert_eq!(
        choice.why,
        "on a veth the packet ring has the lowest latency and leaves the peer's segmentation offload alone"
    );
    assert_eq!(
        why_not(&choice, Path::XdpNative),
        "on a veth it has more latency than the packet ring, and takes the peer's segmentation offload away"
    );
    assert_eq!(
        why_not(&choice, Path::XdpGeneric),
        "on a veth generic XDP can be handed a sender's unsegmented frames, which it cannot tell from ordinary ones"
    );
}

#[test]
fn a_foreign_program_is_named_and_stays() {
    let facts = InterfaceFacts { foreign_xdp: foreign(Some("xdp_dispatcher")), ..nic() };
    let choice = auto(&facts);
    assert_eq!(
        choice.why,
        "the XDP program xdp_dispatcher of libxdp (id 42) is on the interface and stays there; the packet ring works \
         beside it: every packet passes it first; how long it takes is told once sysctl kernel.bpf_stats_enabled is 1"
    );
    let refusal = choose(&facts, PathAsked::Xdp).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "--path xdp on eth0 is not possible: the XDP program xdp_dispatcher of libxdp (id 42) is on the interface, and we \
         replace no program"
    );
    assert_eq!(choose(&facts, PathAsked::Packet).unwrap().path, Path::Packet);
    let held_by = Some("firewall (pid 12)".to_owned());
    let foreign = ForeignXdp { id: 7, held_by, ..ForeignXdp::default() };
    assert_eq!(foreign.to_string(), "the XDP program with id 7 of firewall (pid 12)");
    let dispatcher = ForeignXdp {
        id: 9,
        name: Some("xdp_dispatcher".to_owned()),
        mode: "native",
        parts: vec!["xdpfilt_alw_all".to_owned(), "count".to_owned()],
        run_ns: Some(80),
        ..ForeignXdp::default()
    };
    assert_eq!(
        dispatcher.to_string(),
        "the XDP program xdp_dispatcher of libxdp (id 9, native), which runs xdpfilt_alw_all of xdp-filter, count,"
    );
    assert_eq!(dispatcher.cost(), "every packet passes it first, and it takes 80 ns of each");
}

#[test]
fn a_missing_capability_is_named_with_its_purpose() {
    let held = Capabilities { bpf: false, net_admin: false, ..Capabilities::ALL };
    let facts = InterfaceFacts { capabilities: held, ..veth() };
    let refusal = choose(&facts, PathAsked::Packet).unwrap_err();
    assert_eq!(
        refusal.reason,
        "CAP_NET_ADMIN is missing (to attach the claim at tc ingress) and CAP_BPF is missing (to load the claim's \
         program); run twinpath as root or grant it"
    );
    assert_eq!(why_not(&auto(&facts), Path::Packet), refusal.reason);
    let held = Capabilities { net_raw: false, ..Capabilities::ALL };
    let refusal = choose(&InterfaceFacts { capabilities: held, ..nic() }, PathAsked::Xdp).unwrap_err();
    assert_eq!(
        refusal.reason,
        "CAP_NET_RAW is missing (to open an AF_XDP socket); run twinpath as root or grant it"
    );
    assert_eq!(choose(&facts, PathAsked::Kernel).unwrap().path, Path::Kernel);
}

#[test]
fn an_asked_for_path_is_taken_or_refused_never_another() {
    let without_tcx = InterfaceFacts { tc: Err("old".to_owned()), ..nic() };
    assert_eq!(
        choose(&without_tcx, PathAsked::Packet).unwrap_err().reason,
        "the claim at tc ingress cannot be had: old"
    );
    assert_eq!(choose(&nic(), PathAsked::Packet).unwrap().path, Path::Packet);
    assert_eq!(choose(&nic(), PathAsked::Xdp).unwrap().path, Path::XdpNative);
    assert_eq!(choose(&nic(), PathAsked::XdpZeroCopy).unwrap_err().reason, "ice reports no zero-copy mode");
    let zero_copy = InterfaceFacts { xdp_features: Some(XdpFeatures { zero_copy: true, ..NATIVE }), ..nic() };
    assert_eq!(choose(&zero_copy, PathAsked::XdpZeroCopy).unwrap().path, Path::XdpZeroCopy);

    let generic = choose(&InterfaceFacts { xdp_features: Some(NONE), ..nic() }, PathAsked::Xdp).unwrap();
    assert_eq!((generic.path, generic.why_not[0].path), (Path::XdpGeneric, Path::XdpNative));
    let virtio = InterfaceFacts { kind: "virtio_net".to_owned(), xdp_features: Some(NONE), ..nic() };
    assert_eq!(
        choose(&virtio, PathAsked::Xdp).unwrap_err().reason,
        "virtio_net runs no XDP in its driver, and on a virtio_net generic XDP can be handed a sender's unsegmented \
         frames, which it cannot tell from ordinary ones"
    );
    let hidden = InterfaceFacts { xdp_features: Some(NONE), vlan_rx_offload: Some(true), ..nic() };
    assert!(
        choose(&hidden, PathAsked::Xdp)
            .unwrap_err()
            .reason
            .ends_with("(off: ethtool -K eth0 rxvlan off rx-vlan-stag-hw-parse off)")
    );
    assert!(choose(&InterfaceFacts { loopback: true, ..nic() }, PathAsked::Xdp).is_err());
}

#[test]
fn xdp_on_a_veth_is_possible_with_its_costs_said() {
    for features in [Some(NATIVE), None] {
        let choice = choose(&InterfaceFacts { xdp_features: features, ..veth() }, PathAsked::Xdp).unwrap();
        assert_eq!(choice.path, Path::XdpNative);
        assert!(choice.why.starts_with(
            "asked for; on a veth native XDP turns off the peer's segmentation offload while it is attached; beware: \
             VLAN receive offload hides tags from XDP"
        ));
    }
}

#[test]
fn without_an_address_nothing_is_claimed_and_that_is_said() {
    let facts = InterfaceFacts { has_addresses: false, ..veth() };
    assert!(auto(&facts).why.ends_with("so nothing is claimed until one is"));
}

#[test]
fn names_of_paths_are_read_back() {
    for path in PathAsked::ALL {
        assert_eq!(path.name().parse::<PathAsked>().unwrap(), path);
    }
    assert_eq!(
        "dpdk".parse::<PathAsked>().unwrap_err().to_string(),
        "`dpdk` is no path: use auto, xdp, xdp-zerocopy, packet or kernel"
    );
}
