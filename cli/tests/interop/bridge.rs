//! Tests of the exception port: the kernel's stack behind `twinpath bridge`, with another kernel stack as its peer.

mod luck;
mod refusals;
mod stuck;
mod traffic;

use serde_json::Value;
use twinpath_sys::Namespace;

use crate::rig::{CLIENT, CLIENT_V6, Rig, SERVER, SERVER_V6, Server, until};

/// The device that user space owns; its other end is `vc` in the client's namespace.
const PORT: &str = "vp";
/// The kernel's interface in its place.
const KERNEL: &str = "kn";

/// A client's namespace joined by a veth to the server's, which holds no address.
fn rig() -> Rig {
    let client = Namespace::new().expect("a namespace");
    let server = Namespace::new().expect("a namespace");
    let rig = Rig { client, server, directory: tempfile::tempdir().expect("a directory"), by_workers: false };
    rig.join(PORT, &[(CLIENT, 24), (CLIENT_V6, 64)], &[]);
    rig
}

/// A bridge with the server's addresses on its kernel interface.
fn bridge(rig: &Rig, arguments: &[&str]) -> Server {
    let server = try_bridge(rig, arguments).unwrap_or_else(|stderr| panic!("no bridge: {stderr}"));
    add_addresses(rig);
    server
}

fn try_bridge(rig: &Rig, arguments: &[&str]) -> Result<Server, String> {
    rig.try_launch(&[&["bridge", PORT, "--kernel", KERNEL], arguments].concat())
}

fn add_addresses(rig: &Rig) {
    rig.ip_server(&["address", "add", &format!("{SERVER}/24"), "dev", KERNEL]);
    rig.ip_server(&["address", "add", &format!("{SERVER_V6}/64"), "dev", KERNEL, "nodad"]);
    until("the kernel's interface is up", || is_up(&rig.link_server(KERNEL)));
}

fn has_flag(link: &Value, flag: &str) -> bool {
    link["flags"].as_array().is_some_and(|flags| flags.iter().any(|known| known == flag))
}

/// Set up, and with carrier.
fn is_up(link: &Value) -> bool {
    has_flag(link, "UP") && has_flag(link, "LOWER_UP")
}

/// A round trip of a datagram from the client to the kernel's stack behind the bridge. The first one may wait for ARP.
fn passes(rig: &Rig) {
    let server = rig.server_udp(SERVER, 9000);
    let client = rig.client_udp(CLIENT, 0);
    client.set_read_timeout(Some(std::time::Duration::from_millis(100))).expect("set");
    server.set_read_timeout(Some(std::time::Duration::from_millis(100))).expect("set");
    until("a datagram passes in both directions", || {
        let Ok(9) = client.send_to(b"there and", (SERVER, 9000)) else { return false };
        let mut buffer = [0; 64];
        let Ok((_, peer)) = server.recv_from(&mut buffer) else { return false };
        server.send_to(b"back", peer).is_ok() && client.recv_from(&mut buffer).is_ok_and(|(len, _)| len == 4)
    });
}
