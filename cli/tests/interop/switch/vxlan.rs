//! Tests of VXLAN ports: with the kernel's own VXLAN interface at the other end, and with another switch.

use std::net::{SocketAddr, UdpSocket};

use twinpath_openflow_wire::{Action, Field, Match, MatchField, Message, number};

use super::controller::{Controller, flow, output};
use super::traffic::{bulk, echo};
use super::{Site, address, address_v6, figure, port, terminate};
use crate::rig::{Server, ip, udp_in, until};
use crate::root_or_skip;

/// The addresses of two hosts, and what is joined there.
const UNDERLAY: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

/// Two hosts, whose ports are in namespaces of their own that an underlay joins: the rig's server and its client.
fn site() -> Site {
    let site = Site::new(2);
    let [(v4, v4_there), (v6, v6_there)] = UNDERLAY;
    site.rig.join("u0", &[(v4_there, 24), (v6_there, 64)], &[(v4, 24), (v6, 64)]);
    crate::rig::move_link(&site.rig.server, "p2", &site.rig.client);
    ip(&site.rig.client, &["link", "set", "p2", "up"]);
    for namespace in &site.hosts {
        // What an underlay of 1,500 bytes leaves to them over IPv6, with a tag.
        ip(namespace, &["link", "set", "eth0", "mtu", "1426"]);
    }
    site
}

/// The kernel's bridge and VXLAN interface at the second host.
fn kernels_end(site: &Site, (to, from): (&str, &str), more: &[&str], port: &str) {
    let there = &site.rig.client;
    let vxlan =
        ["link", "add", "vx0", "type", "vxlan", "id", "100", "remote", to, "local", from, "dstport", "4789"];
    ip(there, &[&vxlan[..], more].concat());
    ip(there, &["link", "add", "br0", "type", "bridge"]);
    for name in ["vx0", port] {
        ip(there, &["link", "set", name, "master", "br0", "up"]);
    }
    ip(there, &["link", "set", "br0", "up"]);
}

fn remove_kernels_end(site: &Site) {
    for name in ["vx0", "br0"] {
        ip(&site.rig.client, &["link", "delete", name]);
    }
}

/// Datagrams and streams of both IP versions between the hosts.
fn traffic(site: &Site) {
    for (from, to) in [(1, 2), (2, 1)] {
        site.passes(from, to);
        for len in [1, 1_400, 20_000, 60_000] {
            echo(site, from, to, len);
        }
    }
    bulk(site, 1, 2, &address(2));
    bulk(site, 2, 1, &address_v6(1));
}

fn drops(switch: &Server) -> Vec<String> {
    let drops = switch.show("drops");
    let drops = drops.as_array().expect("a list").iter().map(ToString::to_string);
    // A host's own frames may come before a worker has the port.
    drops.filter(|drop| !drop.contains("port_down")).collect()
}

#[test]
fn the_kernels_vxlan_interface_is_the_other_end() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    let [v4, v6] = UNDERLAY;
    for (addresses, more) in [
        (v4, &["udpcsum"][..]),
        (v4, &["noudpcsum"]),
        (v6, &["udp6zerocsumtx", "udp6zerocsumrx"]),
        (v6, &["noudp6zerocsumtx"]),
    ] {
        kernels_end(&site, addresses, more, "p2");
        let tunnel = format!("vxlan:b,vni=100,remotes={},local={}", addresses.1, addresses.0);
        let switch = site.switch(&["sw0", "--port", "p1", "--port", &tunnel]);
        traffic(&site);
        assert_eq!(drops(&switch), [""; 0], "{more:?}");
        let overhead = if addresses == v4 { 50 } else { 70 };
        let shown = port(&switch, "vxlan:b");
        assert_eq!((shown["mtu"].as_u64(), shown["link"].as_str()), (Some(1500 - overhead), Some("up")));
        assert_eq!(terminate(switch), Some(0));
        remove_kernels_end(&site);
    }
}

#[test]
fn tagged_frames_cross_to_the_kernels_vxlan_interface_and_back() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    // Behind the kernel's bridge, which leaves tags alone, another switch takes them off.
    let there = &site.rig.client;
    ip(there, &["link", "add", "k0", "type", "veth", "peer", "name", "k1"]);
    ip(there, &["link", "set", "k1", "up"]);
    kernels_end(&site, UNDERLAY[0], &[], "k0");
    let behind = ["switch", "behind", "--port", "k1,mode=trunk,vlans=10", "--port", "p2,vlan=10"];
    let behind = site.rig.try_launch_in(there, &behind).unwrap_or_else(|stderr| panic!("{stderr}"));
    let tunnel = "vxlan:b,vni=100,remotes=192.0.2.2,mode=trunk,vlans=10";
    let switch = site.switch(&["sw0", "--port", "p1,vlan=10", "--port", tunnel]);
    traffic(&site);
    // What the bridge sends for itself has no tag.
    let others = drops(&switch).into_iter().filter(|drop| !drop.contains("vlan_not_member"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
    assert_eq!((terminate(switch), terminate(behind)), (Some(0), Some(0)));
}

#[test]
fn controllers_see_the_network_of_a_tunnel() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    let path = site.rig.directory.path().join("of");
    let listen = format!("unix:{}", path.display());
    let here = "vxlan:b,vni=100,remotes=192.0.2.2";
    let first = site.switch(&["one", "--port", "p1", "--port", here, "--listen", &listen]);
    let there = ["switch", "two", "--port", "p2", "--port", "vxlan:b,vni=100,remotes=192.0.2.1"];
    let second = site.rig.try_launch_in(&site.rig.client, &there).unwrap_or_else(|stderr| panic!("{stderr}"));
    let mut controller = Controller::connect(&path);
    let of = |field, value| Match::new([MatchField::exact(field, value)]).expect("a match");
    controller.add(flow(of(Field::InPort, 1), &[output(2)]));
    controller.add(flow(of(Field::TunnelId, 100), &[output(1)]));
    controller.barrier();
    site.passes(1, 2);
    // Why the kernel does not forward them is said of the flow that they match.
    until("a worker has shown a frame of the tunnel", || {
        site.tries(1, 2);
        let flows = first.show("flows");
        let mut flows = flows.as_array().expect("a list").iter();
        flows.any(|flow| flow["matches"].to_string().contains("tunnel_id") && flow["why_not"].is_string())
    });
    // A frame of the second host goes to the controller with what the flow says of its network.
    let set = Action::SetField { field: Field::TunnelId, value: 7 };
    controller.add(flow(of(Field::TunnelId, 100), &[output(number::port::CONTROLLER)]));
    controller.barrier();
    assert!(!site.tries(1, 2));
    let mut told = |network| {
        let came = controller.expect("a packet-in", |message| {
            matches!(message, Message::PacketIn(packet)
            if packet.matches.get(Field::TunnelId).is_some_and(|entry| entry.value == network))
        });
        let Message::PacketIn(came) = came else { panic!("{came:?}") };
        assert_eq!(came.matches.get(Field::InPort).map(|entry| entry.value), Some(2));
    };
    told(100);
    let mut other = Controller::connect(&path);
    other.add(flow(of(Field::TunnelId, 100), &[set, output(number::port::CONTROLLER)]));
    other.barrier();
    assert!(!site.tries(1, 2));
    told(7);
    other.add(flow(of(Field::TunnelId, 101), &[output(1)]));
    other.barrier();
    assert!(!site.tries(1, 2), "there is no such network");
    assert_eq!((terminate(first), terminate(second)), (Some(0), Some(0)));
}

/// A switch at each end, the first with `here`, the second with `there`.
fn switches(site: &Site, here: &str, there: &str) -> (Server, Server) {
    // The first one has the VXLAN port at one of its workers, and interfaces at both.
    let first = site.switch(&["one", "--port", "p1", "--port", here, "--workers", "2"]);
    let second =
        site.rig.try_launch_in(&site.rig.client, &["switch", "two", "--port", "p2", "--port", there]);
    (first, second.unwrap_or_else(|stderr| panic!("no switch: {stderr}")))
}

#[test]
fn switches_join_hosts_and_frames_leave_joined() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    for (here, there) in UNDERLAY {
        let (first, second) = switches(
            &site,
            &format!("vxlan:b,vni=7,remotes={there},udp_port=8472"),
            &format!("vxlan:a,vni=7,remotes={here},udp_port=8472"),
        );
        traffic(&site);
        for (switch, name) in [(&first, "vxlan:b"), (&second, "vxlan:a")] {
            assert_eq!(drops(switch), [""; 0]);
            let joined = figure(switch, name, "frames_joined");
            assert!(joined > 1000, "{joined} of {} frames left joined", figure(switch, name, "frames_out"));
        }
        assert_eq!((terminate(first), terminate(second)), (Some(0), Some(0)));
    }
}

#[test]
fn two_networks_share_a_udp_port_each_as_a_port_of_its_own() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    let there = &site.rig.client;
    kernels_end(&site, UNDERLAY[0], &[], "p2");
    let of = |vni| format!("vxlan:n{vni},vni={vni},remotes=192.0.2.2");
    let ports = ["--port", "p1", "--port", &of(100), "--port", &of(200)];
    let switch = site.switch(&[&["sw0", "--workers", "2"], &ports[..]].concat());
    traffic(&site);
    let came = |switch: &Server, vni: u32| figure(switch, &format!("vxlan:n{vni}"), "frames_in");
    assert!(came(&switch, 100) > 0);
    assert_eq!(came(&switch, 200), 0, "a frame of the other network");
    // The other network, with the first one's port, and without.
    ip(there, &["link", "delete", "vx0"]);
    let vxlan = "link add vx0 type vxlan id 200 remote 192.0.2.1 local 192.0.2.2 dstport 4789";
    ip(there, &vxlan.split(' ').collect::<Vec<_>>());
    ip(there, &["link", "set", "vx0", "master", "br0", "up"]);
    traffic(&site);
    assert!(came(&switch, 200) > 0);
    set(&site, &switch, &["remove", "vxlan:n100"]).expect("removed");
    traffic(&site);
    let refused = set(&site, &switch, &["add", &of(200).replace("n200", "again")]).expect_err("refused");
    assert!(refused.contains("network 200 at UDP port 4789 is another port's"), "{refused}");
    set(&site, &switch, &["add", &of(100)]).expect("added again");
    traffic(&site);
    assert_eq!(drops(&switch), [""; 0]);
    assert_eq!(terminate(switch), Some(0));
}

/// Changes a port by command; what was said.
fn set(site: &Site, switch: &Server, arguments: &[&str]) -> Result<String, String> {
    let socket = switch.socket.display().to_string();
    let said = site.rig.twinpath(&site.rig.server, &[&["port"], arguments, &["--socket", &socket]].concat());
    if said.code == Some(0) { Ok(said.stdout) } else { Err(said.stderr) }
}

#[test]
fn remotes_that_go_links_that_fail_and_hostile_datagrams_end_nothing() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    let (first, second) =
        switches(&site, "vxlan:b,vni=7,remotes=192.0.2.2", "vxlan:a,vni=7,remotes=192.0.2.1");
    site.passes(1, 2);

    // Another remote, which nobody has, and back.
    let said = set(&site, &first, &["set", "vxlan:b", "remotes=192.0.2.9+192.0.2.10"]).expect("changed");
    assert_eq!(said, "port vxlan:b: remotes \"192.0.2.2\" -> \"192.0.2.9,192.0.2.10\"\n");
    assert!(!site.tries(1, 2));
    until("frames of a remote that is none any more are counted", || {
        site.tries(2, 1);
        first.drops("source_not_allowed") > 0
    });
    set(&site, &first, &["set", "vxlan:b", "remotes=192.0.2.2"]).expect("changed");
    site.passes(1, 2);

    // The underlay fails, and is back.
    ip(&site.rig.server, &["link", "set", "u0", "down"]);
    assert!(!site.tries(1, 2));
    until("frames without a way are counted", || {
        site.tries(1, 2);
        first.drops("port_down") > 0
    });
    ip(&site.rig.server, &["link", "set", "u0", "up"]);
    site.passes(1, 2);

    // The other switch is killed, and started again: the kernel there answers with ICMP messages meanwhile.
    second.kill();
    assert!(!site.tries(1, 2));
    let again = ["switch", "two", "--port", "p2", "--port", "vxlan:a,vni=7,remotes=192.0.2.1"];
    let second = site.rig.try_launch_in(&site.rig.client, &again).unwrap_or_else(|stderr| panic!("{stderr}"));
    site.passes(1, 2);

    // Frames that are too long are dropped, and the hosts are told nothing.
    ip(&site.hosts[0], &["link", "set", "eth0", "mtu", "1500"]);
    let (here, there) = (site.udp(1, 0), site.udp(2, 9300));
    here.send_to(&[1; 1450], (super::ip_of(2), 9300)).expect("sent");
    until("a frame that is too long is counted", || first.drops("frame_too_large") == 1);
    here.send_to(&[2; 1400], (super::ip_of(2), 9300)).expect("sent");
    let mut buffer = [0; 2000];
    assert_eq!(there.recv_from(&mut buffer).expect("the next one comes").0, 1400);

    // Datagrams of others, and those of the remote that are no frames of the network.
    ip(&site.rig.client, &["address", "add", "192.0.2.66/24", "dev", "vc"]);
    let target: SocketAddr = "192.0.2.1:4789".parse().expect("an address");
    let from = |address: &str| -> UdpSocket {
        udp_in(&site.rig.client, SocketAddr::new(address.parse().expect("an address"), 0))
    };
    let (other, remote) = (from("192.0.2.66"), from("192.0.2.2"));
    let broadcast =
        [&[8, 0, 0, 0, 0, 0, 7, 0][..], &[0xff; 6], &[2, 0, 0, 0, 0, 0x66, 0x88, 0xb5], &[0; 46]].concat();
    let (before, learned) = (first.drops("source_not_allowed"), figure(&first, "p1", "frames_out"));
    for _ in 0..1000 {
        other.send_to(&broadcast, target).expect("sent");
    }
    until("all frames of a peer that is no remote are counted", || {
        first.drops("source_not_allowed") >= before + 1000
    });
    let mut other_network = broadcast.clone();
    other_network[6] = 8;
    let mut no_network = broadcast.clone();
    no_network[0] = 0;
    for payload in [&other_network[..], &no_network, &broadcast[..21], b""] {
        remote.send_to(payload, target).expect("sent");
    }
    until("each is counted under its reason", || {
        ["vxlan_network", "vxlan_flags"].iter().all(|reason| first.drops(reason) == 1)
            && first.drops("truncated") == 2
    });
    let shown = first.show("macs").to_string();
    assert!(!shown.contains("02:00:00:00:00:66"), "nothing of them is learned: {shown}");
    let out = figure(&first, "p1", "frames_out");
    assert!(out < learned + 100, "{} of them reached a host", out - learned);
    site.passes(1, 2);
    assert_eq!((terminate(first), terminate(second)), (Some(0), Some(0)));
}

#[test]
fn what_cannot_be_a_vxlan_port_is_refused() {
    if !root_or_skip() {
        return;
    }
    let site = site();
    let switch = site.switch(&["one", "--port", "p1", "--port", "vxlan:b,vni=7,remotes=192.0.2.2"]);
    for (arguments, why) in [
        (&["add", "vxlan:c,vni=7,remotes=192.0.2.2"][..], "network 7 at UDP port 4789 is another port's"),
        (&["add", "vxlan:c,vni=8,remotes=192.0.2.2,local=192.0.2.1"], "UDP port 4789 is in use"),
        (&["add", "vxlan:c,remotes=192.0.2.2"], "which network?"),
        (&["add", "vxlan:c,vni=8"], "which hosts?"),
        (&["add", "vxlan:c,vni=16777216,remotes=192.0.2.2"], "is more than 16777215"),
        (&["add", "vxlan:c,vni=8,remotes=239.0.0.1"], "is not the address of one host"),
        (&["add", "vxlan:c,vni=8,remotes=192.0.2.2,local=::1"], "one is IPv4, the other IPv6"),
        (&["add", "vxlan:c,vni=8,remotes=192.0.2.1,udp_port=4790"], "192.0.2.1 is an address of this host"),
        (&["set", "p1", "vni=8"], "only a port vxlan:NAME has it"),
    ] {
        let said = set(&site, &switch, arguments).expect_err("refused");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    let beside =
        site.try_switch(&["two", "--port", "vxlan:c,vni=8,remotes=192.0.2.2"]).err().expect("refused");
    assert!(beside.contains("UDP port 4789 is in use"), "{beside}");
    // Another switch beside it has its sockets in another namespace, named by a process in it.
    let holder = site.rig.run(&site.rig.client, "sleep", &["60"]);
    let elsewhere = format!("vxlan:c@/proc/{}/ns/net,vni=8,remotes=192.0.2.1", holder.id());
    let second = site.switch(&["two", "--port", &elsewhere]);
    crate::rig::kill(holder);
    let taken = || UdpSocket::bind("0.0.0.0:4789").map_err(|error| error.kind());
    let taken = site.rig.client.run(taken).expect("entered").map(drop);
    assert_eq!(taken, Err(std::io::ErrorKind::AddrInUse), "its socket is there");
    assert_eq!((terminate(switch), terminate(second)), (Some(0), Some(0)));
}
