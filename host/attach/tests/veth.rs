//! Tests the facts found about a veth and loopback in a separate network namespace, and the resulting path.

use twinpath_attach::mirror::{Mirror, MirrorLimits};
use twinpath_attach::path::choose::choose;
use twinpath_attach::path::facts::{KernelSupport, Support, collect};
use twinpath_bpf::TcAttach;
use twinpath_config::{Path, PathAsked};
use twinpath_sys::Namespace;
use twinpath_test_rig::{ip_here, root_or_skip};

/// Runs `test` with a mirror of a namespace that has `veth0`, up and with an address.
fn with_veth(test: impl FnOnce(&mut Mirror) + Send) {
    let namespace = Namespace::new().expect("root may create a namespace");
    let work = || {
        ip_here("link add veth0 type veth peer name veth1");
        ip_here("addr add 10.0.0.1/24 dev veth0");
        for link in ["lo", "veth0", "veth1"] {
            ip_here(&format!("link set {link} up"));
        }
        let mut mirror = Mirror::open(MirrorLimits::default()).expect("the mirror opens");
        test(&mut mirror);
    };
    namespace.run(work).expect("the test holds");
}

fn everything() -> KernelSupport {
    KernelSupport { af_xdp: Support::Yes, tc: Ok(TcAttach::Tcx) }
}

#[test]
fn the_facts_of_a_veth_lead_to_the_packet_path_and_those_of_loopback_to_the_kernel() {
    if !root_or_skip() {
        return;
    }
    with_veth(|mirror| {
        let veth = mirror.tables().link_named("veth0").expect("veth0 is there");
        let facts = collect(veth, mirror.tables(), everything());
        assert_eq!((facts.kind.as_str(), facts.software, facts.foreign_xdp.clone()), ("veth", true, None));
        let features = facts.xdp_features.expect("this kernel has the netdev family");
        assert!(features.basic && features.redirect && !features.zero_copy);
        assert_eq!(facts.vlan_rx_offload, Some(true));
        assert_eq!((facts.rx_queues, facts.tx_queues), (1, 1));
        assert!(facts.has_addresses && facts.capabilities.net_admin);
        assert_eq!(choose(&facts, PathAsked::Auto).unwrap().path, Path::Packet);

        let lo = mirror.tables().link_named("lo").unwrap();
        let facts = collect(lo, mirror.tables(), everything());
        assert_eq!(choose(&facts, PathAsked::Auto).unwrap().path, Path::Kernel);
    });
}
