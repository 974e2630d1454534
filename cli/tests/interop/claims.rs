//! Tests that exactly the claimed frames are taken.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_sys::PacketSocket;

use crate::rig::{
    CLIENT, CLIENT_V6, CLSACT, PACKET, PORT, Rig, SERVER, SERVER_V6, SETUPS, XDP, answered, ask, until,
};
use crate::root_or_skip;

/// For local experiments (IEEE 802, Local Experimental EtherType 1).
const ETHERTYPE: u16 = 0x88b5;

fn frame(destination: [u8; 6], source: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype.to_be_bytes(), payload].concat()
}

/// The next frame, if one comes within that time.
pub(crate) fn next(socket: &PacketSocket, millis: i64) -> Option<Vec<u8>> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    if poll(&mut fds, Some(&timeout)).unwrap() == 0 {
        return None;
    }
    let mut buffer = vec![0; 4096];
    let len = socket.receive(&mut buffer).unwrap();
    buffer.truncate(len);
    Some(buffer)
}

#[test]
fn a_port_under_an_ipsec_policy_is_the_kernels_and_claimed_again_when_that_is_gone() {
    if !root_or_skip() {
        return;
    }
    let port = PORT.to_string();
    let policies = [
        ["dir", "in", "src", "0.0.0.0/0", "dst", SERVER, "proto", "udp", "dport", &port],
        ["dir", "out", "src", SERVER, "dst", "10.7.0.0/24", "proto", "udp", "sport", &port],
    ];
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let policy =
            |action: &str, policy: &[&str]| rig.ip_server(&[&["xfrm", "policy", action], policy].concat());
        // One that existed before, and one that does not apply.
        policy("add", &policies[0]);
        policy("add", &["dir", "in", "src", "0.0.0.0/0", "dst", SERVER, "proto", "udp", "dport", "9"]);
        let server = rig.serve(way);
        let socket = rig.client_udp(CLIENT, 0);
        let held = || {
            until("the policy is why", || {
                let claim = server.claim("udp port");
                claim["path"] == "kernel" && claim["why"].as_str().unwrap().contains("IPsec policy")
            });
            let before = server.claim("udp port")["kernel_requests"].as_u64().unwrap();
            assert_eq!(ask(&socket, SERVER, PORT, b"by the kernel"), b"by the kernel");
            until("it is counted", || server.claim("udp port")["kernel_requests"].as_u64().unwrap() > before);
        };
        let claimed = || {
            until("it is claimed", || server.path().starts_with(path));
            until("by the fast path", || {
                let before = server.worker("frames_in");
                assert_eq!(ask(&socket, SERVER, PORT, b"by the fast path"), b"by the fast path");
                server.worker("frames_in") > before
            });
        };
        held();
        policy("delete", &policies[0]);
        claimed();
        policy("add", &policies[1]);
        until("it is the kernel's", || server.path() == "kernel");
        held();
        policy("delete", &policies[1]);
        claimed();
        rig.ip_server(&["xfrm", "policy", "setdefault", "in", "block"]);
        until("it is the kernel's", || server.path() == "kernel");
        assert!(!answered(&socket, SERVER, b"blocked"), "{path}");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn with_a_strict_check_of_sources_the_kernel_decides_who_is_answered() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let strictness = |value: &str| {
        let write = || std::fs::write("/proc/sys/net/ipv4/conf/vs/rp_filter", value);
        rig.server.run(write).unwrap().unwrap();
    };
    // A sender whose address is routed through another interface of the server.
    let elsewhere = "10.99.0.1";
    rig.ip_client(&["address", "add", "10.99.0.1/32", "dev", "vc"]);
    rig.ip_server(&["link", "add", "other", "type", "veth", "peer", "name", "end"]);
    rig.ip_server(&["link", "set", "end", "up"]);
    rig.ip_server(&["link", "set", "other", "up"]);
    rig.ip_server(&["route", "add", "10.99.0.0/24", "dev", "other"]);
    strictness("1");
    let server = rig.serve(&["--path", "packet"]);
    let claim = server.claim("udp port");
    assert!(claim["path"] == "kernel" && claim["why"].as_str().unwrap().contains("rp_filter"), "{claim}");
    let (spoofed, honest) = (rig.client_udp(elsewhere, 0), rig.client_udp(CLIENT, 0));
    assert!(!answered(&spoofed, SERVER, b"from elsewhere"));
    assert_eq!(ask(&honest, SERVER, PORT, b"from here"), b"from here");
    assert_eq!((server.worker("frames_in"), server.worker("kernel_requests")), (0, 1));
    strictness("2");
    until("it is claimed", || server.path() == "packet");
    until("by the fast path", || {
        assert_eq!(ask(&honest, SERVER, PORT, b"from here"), b"from here");
        server.worker("frames_in") > 0
    });
    strictness("1");
    until("it is the kernel's", || server.path() == "kernel");
    assert!(!answered(&spoofed, SERVER, b"from elsewhere"));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn frames_of_the_type_are_reflected_and_no_others() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let server = rig.start(&[&["reflect", "--on", "vs", "--ethertype", "0x88b5"], way].concat());
        let socket = rig.client_frames(ETHERTYPE);
        let (client_mac, server_mac) = rig.macs();
        for number in 0..200usize {
            let payload: Vec<u8> = (0..46 + number * 7).map(|at| (at ^ number) as u8).collect();
            socket.send(&frame(server_mac, client_mac, ETHERTYPE, &payload)).unwrap();
            let back = next(&socket, 20_000).expect("reflected");
            assert_eq!(back, frame(client_mac, server_mac, ETHERTYPE, &payload), "{path} {number}");
        }
        assert_eq!(server.worker("frames_in"), 200, "{path}");
        // Another type, another host, a group, a sender that is a group, no sender: not ours, or not to be answered.
        let other = rig.client_frames(ETHERTYPE + 1);
        other.send(&frame(server_mac, client_mac, ETHERTYPE + 1, &[1; 46])).unwrap();
        let unknown_mac = [2, 0xfe, 0, 0, 0, 9];
        for (destination, source) in [
            (unknown_mac, client_mac),
            ([0xff; 6], client_mac),
            (server_mac, [3, 0, 0, 0, 0, 1]),
            (server_mac, server_mac),
        ] {
            socket.send(&frame(destination, source, ETHERTYPE, &[2; 46])).unwrap();
        }
        until("what must not be answered was seen", || server.drops("martian_source") == 2);
        assert_eq!((next(&other, 50), next(&socket, 50)), (None, None), "{path}");
        assert_eq!(server.worker("frames_in"), 202, "{path}");
        let claims = server.show("rules")["claims"].clone();
        assert!(claims[0].as_str().unwrap().contains("ethertype 0x88b5"), "{claims}");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn frames_are_answered_up_to_the_present_mtu() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let server = rig.start(&[&["reflect", "--on", "vs", "--ethertype", "0x88b5"], way].concat());
        let socket = rig.client_frames(ETHERTYPE);
        let (client_mac, server_mac) = rig.macs();
        let reflected = |len: usize| {
            socket.send(&frame(server_mac, client_mac, ETHERTYPE, &vec![7; len])).unwrap();
            next(&socket, 200).is_some()
        };
        until("the interface is attached", || reflected(1004));
        // A veth receives four bytes more than its MTU, for a tag.
        rig.ip_server(&["link", "set", "vs", "mtu", "1000"]);
        until("the MTU is known", || !reflected(1004));
        assert!(server.drops("frame_too_large") > 0, "{path}");
        assert!(reflected(1000), "{path}");
        rig.ip_server(&["link", "set", "vs", "mtu", "1500"]);
        until("longer frames are answered again", || reflected(1004));
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_type_without_a_fast_path_is_refused() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let refused = |arguments: &[&str]| rig.try_start(&[&["reflect"], arguments].concat()).err().unwrap();
    let said = refused(&["--on", "vs", "--ethertype", "0x88b5", "--path", "kernel"]);
    assert!(said.contains("0x88b5") && said.contains("fast path only"), "{said}");
    let said = refused(&["--on", "lo", "--ethertype", "0x88b5"]);
    assert!(said.contains("kernel path") && said.contains("lo"), "{said}");
    for (ethertype, name) in
        [("0x0800", "IP is claimed by port"), ("0x0806", "ARP"), ("0x888e", "EAPOL"), ("0x8864", "PPPoE")]
    {
        assert!(refused(&["--on", "vs", "--ethertype", ethertype]).contains(name), "{ethertype}");
    }
    assert!(refused(&["--on", "vs", "--ethertype", "nonsense"]).contains("write 0x88b5"));
    assert!(refused(&["--on", "vs"]).contains("--ethertype"));
}

#[test]
fn a_port_is_served_at_the_addresses_named_and_at_no_others() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        rig.ip_server(&["address", "add", "10.7.0.8/24", "dev", "vs"]);
        // The second address does not exist yet, which the host allows.
        rig.allow_absent_addresses();
        let server = rig.serve(&[way, &["--address", SERVER, "--address", "10.7.0.9"]].concat());
        let client = rig.client_udp(CLIENT, 0);
        assert_eq!(ask(&client, SERVER, PORT, b"named"), b"named");
        assert!(!answered(&client, "10.7.0.8", b"not named"), "{path}");
        // Any program may serve the port there.
        let other = rig.server_udp("10.7.0.8", PORT);
        client.send_to(b"to the other", ("10.7.0.8", PORT)).unwrap();
        assert_eq!(other.recv_from(&mut [0; 64]).unwrap().0, 12, "{path}");
        let missing = server.claim("udp port 7007 to 10.7.0.9");
        assert_eq!(missing["path"], "kernel", "{missing}");
        assert!(missing["why"].as_str().unwrap().contains("no address of vs or"), "{missing}");
        rig.ip_server(&["address", "add", "10.7.0.9/24", "dev", "vs"]);
        until("the new address is on the fast path", || {
            // Until the instance knows the address, no answer comes.
            answered(&client, "10.7.0.9", b"new")
                && server.claim("udp port 7007 to 10.7.0.9")["fast_requests"].as_u64() > Some(0)
        });
        assert_eq!(server.claim("udp port 7007 to 10.7.0.2")["fast_requests"], 1, "{path}");
        rig.ip_server(&["address", "del", "10.7.0.9/24", "dev", "vs"]);
        server.wait_until_said("10.7.0.9 is gone");
        assert_eq!(server.claim("udp port 7007 to 10.7.0.9")["path"], "kernel", "{path}");
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// As a server on a plain kernel socket does. By whom: what is claimed passes none of the host's firewall, which may have rules for
/// what comes to its other addresses by this interface.
#[test]
fn what_arrives_for_another_interfaces_address_or_one_on_lo_is_served() {
    if !root_or_skip() {
        return;
    }
    for way in [PACKET, XDP, &["--path", "kernel"]] {
        let path = way[1];
        let rig = Rig::of_workers();
        rig.ip_server(&["link", "add", "other", "type", "veth", "peer", "name", "peer"]);
        rig.ip_server(&["address", "add", "10.8.0.2/24", "dev", "other"]);
        rig.ip_server(&["address", "add", "fd08::2/64", "dev", "other", "nodad"]);
        rig.ip_server(&["link", "set", "peer", "up"]);
        rig.ip_server(&["link", "set", "other", "up"]);
        rig.ip_server(&["address", "add", "192.0.2.53/32", "dev", "lo"]);
        // Local by a route alone: no interface has it.
        rig.ip_server(&["route", "add", "local", "192.0.2.64/28", "dev", "lo"]);
        for net in ["10.8.0.0/24", "192.0.2.0/24"] {
            rig.ip_client(&["route", "add", net, "via", SERVER]);
        }
        rig.ip_client(&["route", "add", "fd08::/64", "via", SERVER_V6]);
        let server = rig.serve(way);
        let client = |target: &str| rig.client_udp(if target.contains(':') { CLIENT_V6 } else { CLIENT }, 0);
        let targets = ["10.8.0.2", "fd08::2", "192.0.2.53"];
        for target in targets {
            assert_eq!(ask(&client(target), target, PORT, b"other"), b"other", "{path} {target}");
            // In fragments it comes by the kernel's socket.
            assert_eq!(ask(&client(target), target, PORT, &[7; 3_000]), [7; 3_000], "{path} {target}");
        }
        assert_eq!(
            server.claim("udp port 7007")["fast_requests"],
            0,
            "{path}: no claim of other interfaces' addresses"
        );
        assert_eq!(server.drops("not_own_address"), 0, "{path}");
        // One that comes later, and one that goes.
        rig.ip_server(&["address", "add", "192.0.2.54/32", "dev", "lo"]);
        until("the new address is served", || answered(&client("192.0.2.54"), "192.0.2.54", b"new"));
        rig.ip_server(&["address", "del", "192.0.2.53/32", "dev", "lo"]);
        until("the former address is nobody's", || !answered(&client("192.0.2.53"), "192.0.2.53", b"gone"));
        assert_eq!(server.interrupt(), Some(0));
        if way != PACKET {
            continue;
        }
        // By name, all of them are served, and nothing else.
        let named = rig.serve(&[way, &["--address", "10.8.0.2", "--address", "192.0.2.70"]].concat());
        for target in ["10.8.0.2", "192.0.2.70"] {
            assert_eq!(ask(&client(target), target, PORT, b"named"), b"named", "{path} {target}");
        }
        assert!(!answered(&client(SERVER), SERVER, b"not named"), "{path}");
        let claimed = named.claim("udp port 7007 to 10.8.0.2");
        assert!(claimed["path"].as_str().unwrap().starts_with("packet"), "{claimed}");
        assert_eq!(claimed["fast_requests"], 1, "{claimed}");
        assert_eq!(named.claim("udp port 7007 to 192.0.2.70")["path"], "kernel");
        assert_eq!(named.interrupt(), Some(0));
    }
}

#[test]
fn many_addresses_of_other_interfaces_are_the_kernels() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let many: String =
        (0..300).map(|at| format!("address add 10.9.{}.{}/32 dev lo\n", at / 200, at % 200)).collect();
    let batch = rig.directory.path().join("many addresses");
    std::fs::write(&batch, many).unwrap();
    rig.ip_server(&["-batch", batch.to_str().unwrap()]);
    rig.ip_client(&["route", "add", "10.9.0.0/16", "via", SERVER]);
    let server = rig.serve(PACKET);
    let client = rig.client_udp(CLIENT, 0);
    for target in [SERVER, "10.9.0.0", "10.9.0.199", "10.9.1.99"] {
        assert_eq!(ask(&client, target, PORT, b"one of many"), b"one of many", "{target}");
    }
    let claim = server.claim("udp port 7007");
    assert_eq!((&claim["fast_requests"], &claim["kernel_requests"]), (&1.into(), &3.into()), "{claim}");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_flow_is_claimed_and_the_rest_of_its_port_is_the_kernels() {
    if !root_or_skip() {
        return;
    }
    let flow = format!("udp,{CLIENT}:4444,{SERVER}:{PORT}");
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let server = rig.serve(&[way, &["--flow", &flow]].concat());
        let (claimed, other) = (rig.client_udp(CLIENT, 4444), rig.client_udp(CLIENT, 4445));
        for round in 0..20u8 {
            assert_eq!(ask(&claimed, SERVER, PORT, &[round; 100]), [round; 100]);
            assert_eq!(ask(&other, SERVER, PORT, &[round; 100]), [round; 100]);
        }
        // In fragments the same flow comes through the kernel, once.
        assert_eq!(ask(&claimed, SERVER, PORT, &[7; 9_000]), [7; 9_000]);
        let counts = |claim: &str| {
            let claim = server.claim(claim);
            (claim["fast_requests"].as_u64().unwrap(), claim["kernel_requests"].as_u64().unwrap())
        };
        assert_eq!(counts("udp from 10.7.0.1:4444"), (20, 1), "{path}");
        assert_eq!(counts("udp port 7007"), (0, 20), "{path}");
        let why = server.claim("udp port 7007")["why"].clone();
        assert!(why.as_str().unwrap().contains("only the flows named"), "{why}");
        assert_eq!(server.interrupt(), Some(0));
        // Without the port, our end of the flow is reserved, and no other flow is answered.
        let server = rig.start(&[&["echo", "--on", "vs", "--flow", &flow], way].concat());
        assert_eq!(ask(&claimed, SERVER, PORT, b"alone"), b"alone");
        assert!(!answered(&other, SERVER, b"not named"), "{path}");
        assert_eq!((server.drops("not_claimed"), server.worker("frames_in")), (1, 1), "{path}");
    }
}

#[test]
fn senders_that_are_not_listed_are_served_on_neither_path() {
    if !root_or_skip() {
        return;
    }
    let unlisted = "10.7.0.200";
    for way in [PACKET, CLSACT, &["--path", "kernel"]] {
        let path = way[1];
        let rig = Rig::of_workers();
        rig.ip_client(&["address", "add", "10.7.0.200/24", "dev", "vc"]);
        let server = rig.serve(&[way, &["--source", "10.7.0.0/25", "--source", "fd07::/64"]].concat());
        for payload in [&[1; 100][..], &[2; 5_000]] {
            assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, payload), payload, "{path}");
            assert!(!answered(&rig.client_udp(unlisted, 0), SERVER, payload), "{path}");
        }
        assert_eq!(server.drops("source_not_allowed"), 2, "{path}: the program passes such a frame on");
        let said = rig.bench(&format!("{SERVER}:{PORT}"), &["--tcp", "--count", "10"]);
        assert_eq!(said["received"].as_u64(), Some(10));
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_second_instance_works_beside_the_first_or_is_refused_by_name() {
    if !root_or_skip() {
        return;
    }
    for way in [PACKET, CLSACT] {
        let rig = Rig::of_workers();
        let (first, mut frames) =
            (rig.serve(way), rig.start(&[&["reflect", "--on", "vs", "--ethertype", "0x88b5"], way].concat()));
        let port = (PORT + 1).to_string();
        let second = rig.start(&[&["echo", "--on", "vs", "--udp", &port], way].concat());
        let client = rig.client_udp(CLIENT, 0);
        let socket = rig.client_frames(ETHERTYPE);
        let (client_mac, server_mac) = rig.macs();
        for round in 0..50u8 {
            assert_eq!(ask(&client, SERVER, PORT, &[round; 64]), [round; 64]);
            assert_eq!(ask(&client, SERVER, PORT + 1, &[round; 64]), [round; 64]);
            socket.send(&frame(server_mac, client_mac, ETHERTYPE, &[round; 46])).unwrap();
            let back = next(&socket, 20_000).expect("reflected");
            assert_eq!(back, frame(client_mac, server_mac, ETHERTYPE, &[round; 46]));
        }
        for (server, what) in
            [(&first, "udp port 7007"), (&second, "udp port 7008"), (&frames, "ethertype 0x88b5")]
        {
            assert_eq!(server.claim(what)["fast_requests"], 50, "{what}: each frame to one of them");
            assert_eq!(server.worker("frames_in"), 50, "{what}");
        }
        // The same claims a second time.
        let said = rig.try_serve(&[]).err().unwrap();
        assert!(said.contains(&format!("pid {}", first.child.id())), "{said}");
        let again = [&["reflect", "--on", "vs", "--ethertype", "0x88b5"], way].concat();
        let said = rig.try_start(&again).err().unwrap();
        assert!(said.contains("0x88b5") && said.contains(&format!("pid {}", frames.child.id())), "{said}");
        let another = rig.start(&[&["reflect", "--on", "vs", "--ethertype", "0x88b6"], way].concat());
        assert_eq!(another.interrupt(), Some(0));
        // Claims of a killed instance are free at once.
        frames.child.kill().unwrap();
        frames.child.wait().unwrap();
        let again = rig.start(&again);
        assert_eq!(again.interrupt(), Some(0));
        assert_eq!(ask(&client, SERVER, PORT, b"still"), b"still");
    }
}
