//! Tests of `twinpath switch`: hosts in namespaces, each at a port.

mod applications;
mod configured;
mod controller;
mod ending;
mod examples;
mod handshakes;
mod keeping;
mod learned;
mod luck;
mod many;
mod namespaces;
mod openflow;
mod os_ken;
mod ovs_ofctl;
mod ports;
mod receive;
mod shown;
mod traffic;
mod twin;
mod vxlan;
mod watched;
mod workers;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use twinpath_sys::{Namespace, PacketSocket};
use twinpath_test_rig::{End, pair};

use crate::rig::{PATIENCE, Rig, Server, ip, link, udp_in, until};

/// All EtherTypes, linux/if_ether.h.
const ETH_P_ALL: u16 = 3;

/// Has workers forward all frames, for tests of what workers do: otherwise the kernel soon forwards those between learned
/// addresses.
const BY_WORKERS: [&str; 2] = ["--offload", "off"];

/// A switch's namespace, and hosts, each in one of its own, with a veth pair to the switch's.
struct Site {
    /// Its server's namespace is the switch's; its client's is not used.
    rig: Rig,
    hosts: Vec<Namespace>,
}

/// The address of a host; they are counted from 1.
fn address(host: usize) -> String {
    format!("10.8.0.{host}")
}

fn address_v6(host: usize) -> String {
    format!("fd08::{host}")
}

impl Site {
    fn new(hosts: usize) -> Self {
        let namespace = || Namespace::new().expect("a namespace");
        let rig = Rig {
            client: namespace(),
            server: namespace(),
            directory: tempfile::tempdir().expect("a directory"),
            by_workers: false,
        };
        ip(&rig.server, &["link", "set", "lo", "up"]);
        let mut site = Self { rig, hosts: Vec::new() };
        (0..hosts).for_each(|_| site.add_host());
        site
    }

    /// Adds a host: `eth0` in its namespace, `p1` and so on in the switch's.
    fn add_host(&mut self) {
        let namespace = Namespace::new().expect("a namespace");
        let settle_at_once = || std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
        namespace.run(settle_at_once).expect("entered").expect("IPv6 addresses settle at once");
        self.hosts.push(namespace);
        self.plug_in(self.hosts.len());
    }

    /// Connects a host to the switch's namespace.
    fn plug_in(&self, host: usize) {
        let namespace = &self.hosts[host - 1];
        let addresses = [format!("{}/24", address(host)), format!("{}/64", address_v6(host))];
        pair(
            End::new(&self.rig.server, &format!("p{host}"), &[]),
            End::new(namespace, "eth0", &addresses.each_ref().map(String::as_str)),
        );
    }

    fn switch(&self, arguments: &[&str]) -> Server {
        self.try_switch(arguments).unwrap_or_else(|stderr| panic!("no switch: {stderr}"))
    }

    fn try_switch(&self, arguments: &[&str]) -> Result<Server, String> {
        self.rig.try_launch(&[&["switch"], arguments].concat())
    }

    /// A UDP socket of a host.
    fn udp(&self, host: usize, port: u16) -> UdpSocket {
        udp_in(&self.hosts[host - 1], SocketAddr::new(ip_of(host), port))
    }

    /// A packet socket that sees every frame of a host from now on.
    fn listen(&self, host: usize) -> PacketSocket {
        let namespace = &self.hosts[host - 1];
        let (ifindex, _) = link(namespace, "eth0");
        let open = || PacketSocket::open(ifindex, ETH_P_ALL);
        namespace.run(open).expect("entered").expect("a packet socket")
    }

    /// Sends a datagram from one host to another, and returns the frames that the latter has seen before it.
    fn seen_before(&self, seen: &PacketSocket, from: usize, to: usize) -> Vec<Vec<u8>> {
        const LAST: &[u8] = b"the last of these frames";
        self.udp(from, 0).send_to(LAST, (ip_of(to), 9002)).expect("sent");
        let mut frames = Vec::new();
        loop {
            let frame = next(seen).expect("the last one comes");
            if frame.ends_with(LAST) {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// The link-layer address of a host.
    fn mac(&self, host: usize) -> [u8; 6] {
        link(&self.hosts[host - 1], "eth0").1
    }

    /// Waits until a datagram passes from one host to another and back. The first ones may wait for ARP.
    fn passes(&self, from: usize, to: usize) {
        until(&format!("a datagram passes from host {from} to {to} and back"), || self.tries(from, to));
    }

    /// Whether a datagram passes at once.
    fn tries(&self, from: usize, to: usize) -> bool {
        let (here, there) = (self.udp(from, 0), self.udp(to, 9000));
        for socket in [&here, &there] {
            socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        }
        let mut buffer = [0; 64];
        if here.send_to(b"there and", (ip_of(to), 9000)).is_err() {
            return false;
        }
        let Ok((_, peer)) = there.recv_from(&mut buffer) else { return false };
        there.send_to(b"back", peer).is_ok() && here.recv_from(&mut buffer).is_ok_and(|(len, _)| len == 4)
    }
}

/// The next frame; `None` if none comes in time.
fn next(socket: &PacketSocket) -> Option<Vec<u8>> {
    let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)).expect("polled") == 0 {
        return None;
    }
    let mut buffer = vec![0; 65_536];
    let len = socket.receive(&mut buffer).expect("received");
    buffer.truncate(len);
    Some(buffer)
}

fn ip_of(host: usize) -> IpAddr {
    address(host).parse().expect("an address")
}

/// A port in the report.
fn port(server: &Server, name: &str) -> Value {
    let ports = server.show("interfaces");
    let found = ports.as_array().expect("a list").iter().find(|port| port["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("no port {name}: {ports}"))
}

/// A figure of a port's queues.
fn figure(server: &Server, name: &str, figure: &str) -> u64 {
    let port = port(server, name);
    port["queues"].as_array().expect("a list").iter().filter_map(|queue| queue[figure].as_u64()).sum()
}

/// Terminates it as a service manager does; returns its exit code.
fn terminate(mut server: Server) -> Option<i32> {
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).expect("it runs");
    server.child.wait().expect("it ends").code()
}
