//! The command lines of servers and clients, which anyone could type.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;

use crate::lab::model::How;
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

pub(crate) fn twinpath() -> SocketAddr {
    server(TWINPATH_PORT)
}

/// The options of `twinpath serve rpc` for its ports.
pub(super) fn twinpath_ports() -> String {
    format!("--udp {TWINPATH_PORT} --tcp {TWINPATH_PORT}")
}

pub(super) fn ganesha() -> SocketAddr {
    server(NFS_PORT)
}

pub(crate) fn plain() -> SocketAddr {
    server(PLAIN_PORT)
}

/// The bare server over TCP.
pub(crate) fn tcp_null(mode: &str) -> Vec<String> {
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

/// A client. `how` has its transport (`client=tcp`, `udp`, `segments`, which is UDP in super-frames, or on the fast path `tcp-fast` or `fast`, which is UDP), `mode=`, calls in flight (`inflight=`),
/// `batch` if several calls may share a send, `threads=` for as many connections, `fragments=` for calls with AUTH_SYS in so many, and `getattr` for GETATTR of the file that the option `file` names instead of
/// NULL. `rate`: calls per second.
pub(crate) fn bench(
    target: SocketAddr,
    how: How,
    rate: Option<f64>,
    file: &str,
    time: Duration,
) -> anyhow::Result<Vec<String>> {
    let word = |name: &str| how.get(name).with_context(|| format!("a row names no {name}: {}", how.0));
    let (mode, inflight) = (word("mode")?, word("inflight")?);
    let transport = match word("client")? {
        "tcp" => "--tcp --path kernel".to_owned(),
        "udp" => "--udp --path kernel".to_owned(),
        "segments" => "--udp --path kernel --batch --segments".to_owned(),
        "tcp-fast" => format!("--tcp --path packet --on {}", CLIENT.interface),
        _ if inflight == "1" => format!("--udp --path auto --on {}", CLIENT.interface),
        _ => format!("--udp --path xdp --on {}", CLIENT.interface),
    };
    let mut line = format!("bench rpc {target} {transport} --mode {mode} --inflight {inflight}");
    if how.has("getattr") {
        line += &format!(" --proc getattr {file}");
    }
    if let Some(threads) = how.get("threads") {
        line += &format!(" --threads {threads}");
    }
    if let Some(fragments) = how.get("fragments") {
        line += &format!(" --auth sys --fragments {fragments}");
    }
    if how.has("batch") {
        line += " --batch";
    }
    if let Some(rate) = rate {
        // As for the clients whose rate it is half of: with a segment for each call, half would be too much for the client.
        line += &format!(" --rate {rate:.0} --nagle on");
    }
    Ok(words(&format!("{line} --duration {:.3} --warmup {WARMUP_S} --json", time.as_secs_f64())))
}

/// The root of twinpath's tree.
pub(super) const TWINPATH_FILE: &str = "--export /";
