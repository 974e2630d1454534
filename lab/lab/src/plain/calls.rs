//! `plain tcp-calls`: a TCP client on kernel sockets that spins. Each NULL call has a connection of its own; calls of echo have one
//! together.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_sys::clock;
use twinpath_test_plain::null_call;
use twinpath_time::{Duration, Instant};

/// What has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(1);
const RTT_MAX_NS: u64 = 10_000_000_000;
/// Calls of echo under way.
const WINDOW: u64 = 4;
/// The reply to a NULL call: 28 bytes, which begin with the mark of its only fragment and the xid of the call (RFC 5531,
/// sections 9 and 11).
const REPLY_BYTES: usize = 28;
const REPLY_MARK: [u8; 4] = [0x80, 0, 0, 24];
const XID: u32 = 7;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server: of ONC RPC, or with --bytes of echo
    target: SocketAddr,
    /// Send calls of so many bytes on one connection, several at a time, instead of NULL calls that each connect and close
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    bytes: Option<u32>,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Seconds before that do not count
    #[arg(long, default_value_t = 0.05)]
    warmup: f64,
}

/// What it prints.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CallsReport {
    pub(crate) calls_per_s: f64,
    pub(crate) duration_s: f64,
    /// Of a call with its connection, until the reply was there.
    pub(crate) rtt_us: Option<RttUs>,
    pub(crate) histogram: Vec<(u64, u64)>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let duration = super::seconds(args.duration)?;
    let begin = clock::now() + super::seconds(args.warmup)?;
    let end = begin + duration;
    let (calls, histogram) = match args.bytes {
        None => {
            let histogram = connections(args.target, begin, end)?;
            (histogram.len() as f64, histogram)
        }
        Some(bytes) => (echoes(args.target, bytes as usize, begin, end)?, histogram()?),
    };
    ensure!(calls > 0.0, "no call was answered");
    let report = CallsReport {
        calls_per_s: calls / duration.as_secs_f64(),
        duration_s: duration.as_secs_f64(),
        rtt_us: RttUs::of(&histogram),
        histogram: buckets(&histogram),
    };
    Ok(print(json!(report))?)
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, RTT_MAX_NS, 3)?)
}

/// Asks again as long as the kernel says "not yet".
fn spin<T>(what: &str, mut ask: impl FnMut() -> Result<T, Errno>) -> anyhow::Result<T> {
    let mut give_up = None;
    loop {
        match ask() {
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {
                let now = clock::now();
                ensure!(now < *give_up.get_or_insert(now + PATIENCE), "{what}: nothing within a second");
            }
            done => return done.with_context(|| what.to_owned()),
        }
    }
}

fn connected(target: SocketAddr) -> anyhow::Result<OwnedFd> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_tcp_nodelay(&socket, true)?;
    spin("cannot connect", || match connect(&socket, &target) {
        Err(Errno::ISCONN) => Ok(()),
        other => other,
    })?;
    Ok(socket)
}

/// Connects, calls and closes, one after the other.
fn connections(target: SocketAddr, begin: Instant, end: Instant) -> anyhow::Result<Histogram<u64>> {
    let (call, mut histogram) = (null_call(XID), histogram()?);
    let wanted = [REPLY_MARK, XID.to_be_bytes()].concat();
    loop {
        let begun = clock::now();
        if begun >= end {
            return Ok(histogram);
        }
        let socket = connected(target)?;
        let sent = spin("cannot send", || send(&socket, &call, SendFlags::NOSIGNAL))?;
        ensure!(sent == call.len(), "a new connection took {sent} bytes of a call");
        let (mut reply, mut len) = ([0; REPLY_BYTES], 0);
        while len < REPLY_BYTES {
            let (more, _) = spin("no reply", || recv(&socket, &mut reply[len..], RecvFlags::empty()))?;
            ensure!(more > 0, "the server closed a connection before its reply");
            len += more;
        }
        ensure!(reply.starts_with(&wanted), "a NULL call was answered by {reply:?}");
        drop(socket);
        if begun >= begin {
            histogram.saturating_record(clock::now().nanos_since(begun));
        }
    }
}

/// Sends and receives on one connection; returns how many calls came back meanwhile.
fn echoes(target: SocketAddr, bytes: usize, begin: Instant, end: Instant) -> anyhow::Result<f64> {
    let socket = connected(target)?;
    let call: Vec<u8> = (0..bytes).map(|at| ((at * 167) >> 3) as u8).collect();
    let (mut sent, mut heard, mut before) = (0, 0, None);
    let mut reply = vec![0; bytes];
    let place = |count: u64| (count % bytes as u64) as usize;
    loop {
        let now = clock::now();
        if now >= end {
            return Ok((heard - before.unwrap_or(heard)) as f64 / bytes as f64);
        }
        if now >= begin {
            before.get_or_insert(heard);
        }
        if sent - heard < WINDOW * bytes as u64 {
            match send(&socket, &call[place(sent)..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more as u64,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        // No reply reaches beyond the end of a call, so that it can be compared in one piece.
        let at = place(heard);
        match recv(&socket, &mut reply[at..], RecvFlags::empty()) {
            Ok((0, _)) => anyhow::bail!("the server closed the connection"),
            Ok((more, _)) => {
                ensure!(reply[at..at + more] == call[at..at + more], "what came back is not what was sent");
                heard += more as u64;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}
