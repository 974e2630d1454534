//! Tests of killed instances, floods, and replies in loops.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use twinpath_sys::Namespace;
use twinpath_wire::Mac;
use twinpath_wire::udp_frame::{UdpFrameRepr, write_headers};

use crate::rig::{
    CLIENT, Lateness, PATIENCE, PORT, Rig, SERVER, SETUPS, ask, kill, link, receive, udp_in, until,
};
use crate::root_or_skip;

/// Longest time after a flood until a new peer has the fast path: a question that found no room is repeated after a
/// second, and a forged source is replaced after another one.
const NEW_PEER_PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn kill_9_under_load_gives_every_flow_back_and_a_restart_works_at_once() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::of_workers();
        let server = rig.serve(&[way, &["--mode", "poll"]].concat());
        let target = format!("{SERVER}:{PORT}");
        // Longer than any step takes on a slow machine: this test ends it.
        let load = ["bench", "echo", &target, "--duration", "600", "--timeout", "1", "--json"];
        let mut load = rig.run(&rig.client, env!("CARGO_BIN_EXE_twinpath"), &load);
        until("the load has begun", || server.worker("frames_in") > 100);
        server.kill();
        // A plain kernel server on the same port gets all datagrams from now on.
        let plain = rig.server_udp(SERVER, PORT);
        let mut buffer = [0; 2048];
        let (len, peer) = receive(&plain, &mut buffer).expect("the flow is the kernel's again");
        plain.send_to(&buffer[..len], peer).unwrap();
        drop(plain);
        let again = rig.serve(way);
        until("the same flow is on the fast path again", || again.worker("frames_in") > 100);
        assert!(load.try_wait().expect("a child").is_none(), "the same load goes on");
        kill(load);
        assert_eq!(again.interrupt(), Some(0));
        // Nothing is left on the interface.
        let plain = rig.server_udp(SERVER, PORT);
        echo_once(&rig, &plain);
    }
}

#[test]
fn an_interrupt_leaves_nothing_on_the_interface() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        let socket = server.socket.clone();
        assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"up"), b"up");
        assert_eq!(server.interrupt(), Some(0));
        assert!(!socket.exists(), "the command socket is gone");
        let plain = rig.server_udp(SERVER, PORT);
        echo_once(&rig, &plain);
    }
}

fn echo_once(rig: &Rig, plain: &UdpSocket) {
    let client = rig.client_udp(CLIENT, 0);
    client.send_to(b"plain", (SERVER, PORT)).unwrap();
    let (len, _) = receive(plain, &mut [0; 64]).expect("the kernel serves the port");
    assert_eq!(len, 5);
}

#[test]
fn a_flood_of_forged_sources_does_not_starve_an_honest_peer() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    // More peers than there is room for, each of them silent afterwards.
    rig.ip_client(&["route", "add", "local", "10.128.0.0/16", "dev", "lo"]);
    rig.ip_server(&["route", "add", "10.128.0.0/16", "via", CLIENT]);
    let honest = rig.client_udp(CLIENT, 0);
    let asks_fast = |socket: &UdpSocket| {
        let before = server.worker("frames_out");
        assert_eq!(ask(socket, SERVER, PORT, b"honest"), b"honest");
        server.worker("frames_out") > before
    };
    until("the honest peer has the fast path", || asks_fast(&honest));
    // Often enough to count as an active peer.
    assert!((0..8).filter(|_| asks_fast(&honest)).count() >= 4);
    for number in 0..6_000u32 {
        let from = format!("10.128.{}.{}", number >> 8, number & 0xff);
        rig_send(&rig, &from);
    }
    let fast = (0..100).filter(|_| asks_fast(&honest)).count();
    assert!(fast >= 95, "it keeps the fast path: {fast} of 100");
    // A new peer gets the fast path, too.
    let new_peer = rig.client_udp("10.128.255.1", 0);
    let (since, lateness) = (Instant::now(), Lateness::measure());
    until("a new peer has the fast path", || asks_fast(&new_peer));
    let (took, most) = (since.elapsed(), lateness.allows(NEW_PEER_PATIENCE));
    assert!(took < most, "after {took:?} of {most:?}");
    let fast = (0..20).filter(|_| asks_fast(&new_peer)).count();
    assert!(fast >= 15, "and keeps it: {fast} of 20");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn forged_neighbours_take_few_entries_of_the_kernel_and_real_ones_are_answered() {
    if !root_or_skip() {
        return;
    }
    let ipv4 = Forged { own: "10.9.0.2/16", real: "10.9.255.1/16", first: "10.9.1.0", begins: "10.9." };
    // Of the link alone.
    let ipv6 = Forged { own: "fe80::2/64", real: "fe80::f:1/64", first: "fe80::1:0:0", begins: "fe80::1:" };
    for (path, forged) in [(SETUPS[0], &ipv4), (SETUPS[2], &ipv4), (SETUPS[0], &ipv6)] {
        forged_neighbours(path, forged);
    }
}

/// Addresses of a network.
struct Forged {
    /// The server's, with the length of the prefix.
    own: &'static str,
    /// A client's that comes later.
    real: &'static str,
    /// The first one that is forged, and how all those begin.
    first: &'static str,
    begins: &'static str,
}

fn forged_neighbours(path: &[&str], addresses: &Forged) {
    let ip_of = |text: &str| text.split('/').next().unwrap().parse::<IpAddr>().unwrap();
    let (own, real, first) = (ip_of(addresses.own), ip_of(addresses.real), ip_of(addresses.first));
    let add = |address, interface| [&["address", "add", address, "dev", interface][..], nodad(own)].concat();
    let rig = Rig::new();
    rig.ip_server(&add(addresses.own, "vs"));
    let server = rig.serve(path);
    let (macs, frames) = (rig.macs(), rig.client_frames(if own.is_ipv4() { 0x0800 } else { 0x86dd }));
    let mut numbers = 0..;
    let mut flood = |datagrams| {
        for number in numbers.by_ref().take(datagrams) {
            let from: IpAddr = match first {
                IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + number).into(),
                IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(number)).into(),
            };
            frames.send(&datagram(macs, (from, 4000), own)).unwrap();
        }
    };
    let refused = || server.drops("unresolved_peers");
    // Control finds out that these do not resolve.
    flood(200);
    until("replies to unknown neighbours are refused", || {
        flood(1);
        refused() > 0
    });
    let before = refused();
    until("most of them are refused", || {
        flood(100);
        refused() > before + 1_500
    });
    let entries = neighbours_of(&rig.server, addresses.begins);
    assert!(entries < 800, "{path:?}: {entries} entries for more than 1,500 forged addresses");

    // One that comes now asks the kernel for our address, and so the kernel knows it.
    rig.ip_client(&add(addresses.real, "vc"));
    let on_client = |address, port| match address {
        IpAddr::V4(address) => SocketAddr::from((address, port)),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, link(&rig.client, "vc").0).into(),
    };
    let socket = udp_in(&rig.client, on_client(real, 0));
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let target = on_client(own, PORT);
    let mut answers = || {
        flood(20);
        socket.send_to(b"real", target).unwrap();
        socket.recv_from(&mut [0; 64]).is_ok()
    };
    until("a new neighbour is answered", &mut answers);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let answered = (0..20).filter(|_| answers()).count();
    assert_eq!(answered, 20, "{path:?}: and from then on each time");
    assert_eq!(server.interrupt(), Some(0));
}

/// The option of `ip address add` for addresses that are to be usable at once.
fn nodad(address: IpAddr) -> &'static [&'static str] {
    if address.is_ipv4() { &[] } else { &["nodad"] }
}

/// How many entries the kernel has for addresses that begin so.
fn neighbours_of(namespace: &Namespace, begins: &str) -> usize {
    let list = || Command::new("ip").args(["neighbour", "show", "nud", "all"]).output();
    let output = namespace.run(list).expect("entered").expect("iproute2 is installed");
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with(begins)).count()
}

/// The other echo service, on another port, to which the rule against source ports of services does not apply.
pub(crate) const OTHER_PORT: u16 = PORT + 1;

#[test]
fn two_echo_services_that_one_forged_datagram_sets_on_each_other_stop() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "kernel"] {
        let rig = Rig::of_workers();
        let serve = |namespace, name, port: u16| {
            let port = port.to_string();
            let rate = RATE.to_string();
            let arguments =
                ["serve", "echo", "--on", name, "--udp", &port, "--path", path, "--reply-rate", &rate];
            rig.try_launch_in(namespace, &arguments).expect("it serves")
        };
        let near = serve(&rig.server, "vs", PORT);
        let far = serve(&rig.client, "vc", OTHER_PORT);
        let requests = || near.worker("frames_in") + near.worker("kernel_requests");
        let since = Instant::now();
        rig.client_frames(0x0800).send(&forged(&rig)).unwrap();
        until("the loop is over, and counted", || near.drops("reply_rate") + far.drops("reply_rate") > 0);
        let (over, allowed) = (requests(), RATE * since.elapsed().as_secs() + 2 * RATE);
        assert!(over > RATE / 10, "{path}: it was a loop: {over}");
        assert!(over <= allowed, "{path}: {over} of {allowed}");
        // The loop has ended: only requests come. The answers wait until the source has a share again.
        let honest = rig.client_udp(CLIENT, 0);
        honest.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (before, mut asked) = (requests(), 0);
        until("an honest peer of the same address is answered", || {
            asked += 1;
            honest.send_to(b"honest", (SERVER, PORT)).unwrap();
            honest.recv_from(&mut [0; 64]).is_ok()
        });
        assert_eq!(requests() - before, asked, "{path}");
        assert_eq!((near.interrupt(), far.interrupt()), (Some(0), Some(0)));
    }
}

/// Replies per second to one source, of that test: a loop over a veth makes far more.
pub(crate) const RATE: u64 = 1_000;

/// A datagram to one echo service with the other one's address as its source.
pub(crate) fn forged(rig: &Rig) -> Vec<u8> {
    datagram(rig.macs(), (CLIENT.parse().unwrap(), OTHER_PORT), SERVER.parse().unwrap())
}

/// A datagram to our service; link-layer addresses of its client and server.
fn datagram((client, server): ([u8; 6], [u8; 6]), from: (IpAddr, u16), to: IpAddr) -> Vec<u8> {
    const PAYLOAD: &[u8] = b"round and round";
    let repr = UdpFrameRepr {
        source_mac: Mac(client),
        destination_mac: Mac(server),
        tag: None,
        source: from.into(),
        destination: SocketAddr::new(to, PORT),
        hop_limit: 64,
        identification: 0,
    };
    let header = repr.header_len();
    let mut frame = vec![0; header + PAYLOAD.len()];
    frame[header..].copy_from_slice(PAYLOAD);
    write_headers(&mut frame, &repr, PAYLOAD.len()).unwrap();
    frame
}

fn rig_send(rig: &Rig, from: &str) {
    rig.client_udp(from, 0).send_to(b"x", (SERVER, PORT)).unwrap();
}
