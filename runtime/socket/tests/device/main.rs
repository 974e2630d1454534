//! Tests of sockets over a virtual link between two network namespaces.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod lessee;
mod order;
mod poll;
mod semantics;
mod sending;
mod sharing;

use std::io::ErrorKind;
use std::net::UdpSocket as KernelSocket;
use std::process::Command;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use twinpath_socket::{LentBy, SocketPath, UdpSocket};
use twinpath_sys::netns::Namespace;

/// Longer than any test waits for something that comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two namespaces: the socket's, with `10.9.0.1` on `in0`, and the peer's, with `10.9.0.2`.
struct Link {
    ours: Namespace,
    peers: Namespace,
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

/// A process that another test starts at this moment has the descriptors of this one until it runs its program: a port that was
/// closed is then in use for a little longer.
fn bind(address: &str) -> UdpSocket {
    let begun = Instant::now();
    loop {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => yield_now(),
            bound => return bound.unwrap(),
        }
    }
}

impl Link {
    /// `None` without root.
    fn new() -> Option<Self> {
        if !twinpath_test_skip::root_or_skip() {
            return None;
        }
        let [ours, peers] = [(); 2].map(|()| Namespace::new().unwrap());
        let peers_pid = peers
            .run(|| {
                // A process that stays in the namespace, to name it to `ip`.
                Command::new("sleep").arg("60").spawn().unwrap()
            })
            .unwrap();
        let mut peers_pid = peers_pid;
        ours.run(|| {
            ip(&format!("link add in0 type veth peer name out0 netns {}", peers_pid.id()));
            ip("addr add 10.9.0.1/24 dev in0");
            ip("-6 addr add fd00:9::1/64 dev in0 nodad");
            ip("link set in0 up");
            ip("link set lo up");
        })
        .unwrap();
        peers
            .run(|| {
                ip("addr add 10.9.0.2/24 dev out0");
                ip("-6 addr add fd00:9::2/64 dev out0 nodad");
                ip("link set out0 up");
            })
            .unwrap();
        peers_pid.kill().unwrap();
        peers_pid.wait().unwrap();
        Some(Self { ours, peers })
    }

    /// A socket of ours with the fast path.
    fn socket(&self, address: &str) -> UdpSocket {
        let socket = self.ours.run(|| bind(address).on("in0")).unwrap();
        assert_eq!(socket.path(), &SocketPath::Fast { interface: "in0".to_owned(), by: LentBy::Own });
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// A kernel socket of the peer.
    fn peer(&self, address: &str) -> KernelSocket {
        let socket = self.peers.run(|| KernelSocket::bind(address).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}
