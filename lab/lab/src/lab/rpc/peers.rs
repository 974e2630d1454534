//! The command lines of servers and clients, which anyone could type.

use std::net::SocketAddr;
use std::time::Duration;

use super::cases::{Client, ClientSpec};
use crate::lab::peers::server;
use crate::lab::process::words;
use crate::lab::topology::CLIENT;
use crate::plain::nfs::NFS_PORT;

/// The port of `twinpath serve rpc`: that of ksf.
const TWINPATH_PORT: u16 = 62_049;
/// The port of the bare servers.
const PLAIN_PORT: u16 = 7005;

/// Enough to learn neighbours and fill caches.
const WARMUP_S: f64 = 0.05;

pub(super) fn twinpath() -> SocketAddr {
    server(TWINPATH_PORT)
}

/// The options of `twinpath serve rpc` for its ports.
pub(super) fn twinpath_ports() -> String {
    format!("--udp {TWINPATH_PORT} --tcp {TWINPATH_PORT}")
}

pub(super) fn ganesha() -> SocketAddr {
    server(NFS_PORT)
}

pub(super) fn plain() -> SocketAddr {
    server(PLAIN_PORT)
}

/// The bare server over TCP.
pub(super) fn tcp_null(mode: &str) -> Vec<String> {
    words(&format!("plain tcp-null --listen {} --mode {mode}", plain()))
}

/// The bare server over UDP.
pub(super) fn udp_null(method: &str, mode: &str) -> Vec<String> {
    words(&format!("plain udp-null --listen {} --method {method} --mode {mode}", plain()))
}

/// Opens `connections` to `target` that send nothing, or never read.
pub(super) fn hold(target: SocketAddr, connections: usize, never_read: bool) -> Vec<String> {
    let mut args = words(&format!("plain tcp-hold {target} --connections {connections}"));
    args.extend(never_read.then(|| "--never-read".to_owned()));
    args
}

/// A client. `rate`: calls per second; `file`: the option that names the file of GETATTR.
pub(super) fn bench(
    target: SocketAddr,
    asked: &ClientSpec,
    rate: Option<f64>,
    file: &str,
    time: Duration,
) -> Vec<String> {
    let mut args = words(&format!("bench rpc {target}"));
    args.extend(words(match asked.client {
        Client::Tcp => "--tcp --path kernel",
        Client::Udp => "--udp --path kernel",
        Client::Fast if asked.inflight == 1 => "--udp --path auto",
        Client::Fast => "--udp --path xdp",
    }));
    if asked.client == Client::Fast {
        args.extend(words(&format!("--on {}", CLIENT.interface)));
    }
    args.extend(words(&format!("--mode {} --inflight {}", asked.mode, asked.inflight)));
    if asked.getattr {
        args.extend(words(&format!("--proc getattr {file}")));
    }
    args.extend(asked.batch.then(|| "--batch".to_owned()));
    // As for the clients whose rate it is half of: with a segment for each call, half would be too much for the client.
    args.extend(rate.into_iter().flat_map(|rate| words(&format!("--rate {rate:.0} --nagle on"))));
    args.extend(words(&format!("--duration {:.3} --warmup {WARMUP_S} --json", time.as_secs_f64())));
    args
}

/// The root of twinpath's tree.
pub(super) const TWINPATH_FILE: &str = "--export /";
