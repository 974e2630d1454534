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
use std::thread::yield_now;
use std::time::Instant;

use twinpath_leases::sockets::{LentBy, SocketPath, UdpSocket};
use twinpath_sys::netns::Namespace;
use twinpath_test_rig::{End, PATIENCE, ip_here, pair};

/// Two namespaces: the socket's, with `10.9.0.1` on `in0`, and the peer's, with `10.9.0.2`.
struct Link {
    ours: Namespace,
    peers: Namespace,
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
        if !twinpath_test_rig::root_or_skip() {
            return None;
        }
        let [ours, peers] = [(); 2].map(|()| Namespace::new().unwrap());
        pair(
            End::new(&ours, "in0", &["10.9.0.1/24", "fd00:9::1/64"]),
            End::new(&peers, "out0", &["10.9.0.2/24", "fd00:9::2/64"]),
        );
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
