//! Tests that what the kernel learns of a peer is in force at once: another link-layer address, another MTU of the path, another
//! gateway. The kernel's own server is the measure.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind};
use twinpath_sys::Namespace;

use crate::rig::{
    CLIENT, CLIENT_V6, Lateness, PATIENCE, PORT, Rig, SERVER, SERVER_V6, Server, ip, name_of, udp_in, until,
};
use crate::root_or_skip;
use crate::tcp::{echoes, service};
use crate::twin_services::Plain;

/// Asks again and again, until there is an answer; how long that took.
fn until_answered(socket: &UdpSocket, target: IpAddr, payload: &[u8]) -> Duration {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let begun = Instant::now();
    until("an answer", || {
        socket.send_to(payload, (target, PORT)).unwrap();
        // A late answer to an earlier request is none to this one.
        let mut answer = [0; 2048];
        loop {
            match socket.recv_from(&mut answer) {
                Ok((len, _)) if len == payload.len() => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    });
    begun.elapsed()
}

/// How long a client is without answers after its link-layer address has changed, of which nobody tells the server.
fn moved_client(rig: &Rig) -> Duration {
    let quick = || {
        let settings =
            [("base_reachable_time_ms", "1000"), ("delay_first_probe_time", "1"), ("retrans_time_ms", "100")];
        settings.iter().try_for_each(|(name, value)| {
            std::fs::write(format!("/proc/sys/net/ipv4/neigh/vs/{name}"), value)
        })
    };
    rig.server.run(quick).unwrap().unwrap();
    let socket = rig.client_udp(CLIENT, 0);
    let server = SERVER.parse().unwrap();
    // Long enough for the programs to answer.
    (0..50).for_each(|_| _ = until_answered(&socket, server, b"until then"));
    let (_, mac) = rig.macs();
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    rig.ip_client(&["link", "set", "vc", "address", "02:00:00:00:00:77"]);
    // It asks for nobody's address, or the server would learn its own by that.
    rig.ip_client(&["neigh", "replace", SERVER, "lladdr", &mac, "dev", "vc", "nud", "permanent"]);
    until_answered(&socket, server, b"moved")
}

/// The kernel finds out after 0.5 to 1.5 s in which the entry counts as confirmed, 1 s of waiting for a sign of life, and three
/// questions each 0.1 s. Replies of the fast path are none of its own, so it has to be told that the entry is in use.
#[test]
fn a_client_whose_address_has_changed_is_found_as_soon_as_by_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let by_kernel = {
        let rig = Rig::new();
        let _plain = Plain::serve(&rig);
        moved_client(&rig)
    };
    for by_workers in [true, false] {
        let rig = Rig { by_workers, ..Rig::new() };
        let _server = rig.serve(&[]);
        let lateness = Lateness::measure();
        let by_us = moved_client(&rig);
        println!(
            "by the kernel's server after {by_kernel:?}, by ours after {by_us:?} (workers alone: {by_workers})"
        );
        let most = lateness.allows(by_kernel + Duration::from_secs(3));
        assert!(by_us < most, "{by_us:?} of {most:?}, the kernel {by_kernel:?}");
    }
}

/// A host behind the client's, which is a router: its addresses.
const FAR: &str = "10.9.0.1";
const FAR_V6: &str = "fd09::1";

/// A further host on the link of client and server, which a bridge of the client's host makes up; it has the address of
/// [`FAR`] besides. The server reaches that by the client's host.
fn with_far(rig: &Rig) -> Namespace {
    let far = Namespace::new().unwrap();
    let client = |arguments: &[&str]| rig.ip_client(arguments);
    client(&["link", "add", "vb", "type", "veth", "peer", "name", "far0", "netns", &name_of(&far)]);
    client(&["link", "add", "lan0", "type", "bridge"]);
    client(&["address", "flush", "dev", "vc", "scope", "global"]);
    for name in ["vc", "vb"] {
        client(&["link", "set", name, "master", "lan0", "up"]);
    }
    client(&["address", "add", &format!("{CLIENT}/24"), "dev", "lan0"]);
    client(&["address", "add", &format!("{CLIENT_V6}/64"), "dev", "lan0", "nodad"]);
    client(&["link", "set", "lan0", "up"]);
    for address in ["10.7.0.3/24", "10.9.0.1/32", "fd07::3/64", "fd09::1/128"] {
        let more: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        ip(&far, &[&["address", "add", address, "dev", "far0"], more].concat());
    }
    ip(&far, &["link", "set", "far0", "up"]);
    let forward = || {
        ["ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"]
            .iter()
            .try_for_each(|name| std::fs::write(format!("/proc/sys/net/{name}"), "1"))
    };
    rig.client.run(forward).unwrap().unwrap();
    rig.ip_server(&["route", "add", "10.9.0.0/24", "via", CLIENT]);
    rig.ip_server(&["route", "add", "fd09::/64", "via", CLIENT_V6]);
    far
}

fn neighbour(server: &Server, peer: &str, what: &str) -> serde_json::Value {
    let all = server.show("neighbours");
    let found = all.as_array().unwrap().iter().find(|row| row["peer"] == peer);
    found.map(|row| row[what].clone()).unwrap_or_default()
}

/// Replies to a host behind a router get too long for a link behind that; the router says so, to the kernel.
#[test]
fn a_path_whose_mtu_has_shrunk_loses_next_to_nothing() {
    if !root_or_skip() {
        return;
    }
    for by_workers in [true, false] {
        let rig = Rig { by_workers, ..Rig::new() };
        let far = with_far(&rig);
        let no_redirects = || {
            ["all", "lan0"].iter().try_for_each(|of| {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{of}/send_redirects"), "0")
            })
        };
        rig.client.run(no_redirects).unwrap().unwrap();
        let server = rig.serve(&[]);
        for (peer, target, via) in [(FAR, SERVER, "10.7.0.3"), (FAR_V6, SERVER_V6, "fd07::3")] {
            let bits = if peer == FAR { 32 } else { 128 };
            let route = format!("{peer}/{bits}");
            rig.ip_client(&["route", "replace", &route, "via", via, "dev", "lan0"]);
            let socket = udp_in(&far, SocketAddr::new(peer.parse().unwrap(), 0));
            let target: IpAddr = target.parse().unwrap();
            until("the peer is answered by the fast path", || {
                until_answered(&socket, target, &[7; 1400]);
                neighbour(&server, peer, "egress") == "fast"
            });
            (0..20).for_each(|_| _ = until_answered(&socket, target, &[7; 1400]));
            rig.ip_client(&["route", "replace", &route, "via", via, "dev", "lan0", "mtu", "lock", "1300"]);
            let lateness = Lateness::measure();
            let took = until_answered(&socket, target, &[7; 1400]);
            let most = lateness.allows(Duration::from_secs(2));
            println!("{peer}: answered again after {took:?} (workers alone: {by_workers})");
            assert!(took < most, "{peer}: {took:?} of {most:?}");
            assert_eq!(neighbour(&server, peer, "mtu"), 1300, "{peer}");
        }
    }
}

fn connect_from(own: SocketAddr, server: IpAddr) -> std::io::Result<TcpStream> {
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    bind(&socket, &own)?;
    rustix::net::connect(&socket, &SocketAddr::new(server, PORT))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The kernel's own tables do not follow from such a message: it does not know the connection.
#[test]
fn a_router_tells_a_connection_on_the_fast_path_that_its_segments_are_too_long() {
    if !root_or_skip() {
        return;
    }
    for (peer, target, via) in [(FAR, SERVER, "10.7.0.3"), (FAR_V6, SERVER_V6, "fd07::3")] {
        let rig = Rig::new();
        let far = with_far(&rig);
        let server = rig.serve(&["--path", "packet", "--tcp-path", "fast"]);
        let route = format!("{peer}/{}", if peer == FAR { 32 } else { 128 });
        rig.ip_client(&["route", "replace", &route, "via", via, "dev", "lan0", "mtu", "lock", "1300"]);
        let (peer, target): (IpAddr, IpAddr) = (peer.parse().unwrap(), target.parse().unwrap());
        let mut stream = far.run(|| connect_from(SocketAddr::new(peer, 0), target)).unwrap().unwrap();
        echoes(&mut stream, b"short");
        assert_eq!((service(&server, "fast_accepted"), service(&server, "fast_path_told")), (1, 0));
        let text: Vec<u8> = (0..100_000u32).map(|at| (at * 7 + at / 251) as u8).collect();
        echoes(&mut stream, &text);
        until("the word was heard", || service(&server, "fast_path_told") > 0);
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// A router that knows of a better gateway on the same link says so, to the kernel. (Of IPv6 redirects a kernel's server makes
/// nothing in this arrangement either.)
#[test]
fn a_redirect_is_followed() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let far = with_far(&rig);
    let server = rig.serve(&[]);
    rig.ip_client(&["route", "replace", FAR, "via", "10.7.0.3", "dev", "lan0"]);
    let socket = udp_in(&far, SocketAddr::new(FAR.parse().unwrap(), 0));
    let (begun, lateness) = (Instant::now(), Lateness::measure());
    until("replies leave by the better gateway", || {
        until_answered(&socket, SERVER.parse().unwrap(), b"by whom?");
        neighbour(&server, FAR, "next_hop") == "10.7.0.3"
    });
    let (took, most) = (begun.elapsed(), lateness.allows(Duration::from_secs(4)));
    println!("{FAR}: after {took:?}");
    assert!(took < most, "{took:?} of {most:?}");
}
