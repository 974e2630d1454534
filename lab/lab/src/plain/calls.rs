//! `plain tcp-calls`: a TCP client on kernel sockets that spins. Each NULL call has a connection of its own, or calls go over many
//! connections by turns; calls of echo, and gets of a memcached, have one connection together.

use std::collections::VecDeque;
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
/// The reply to a NULL call: 28 bytes, which begin with the mark of its only fragment, the xid of the call and REPLY; the rest is 0
/// (RFC 5531, sections 9 and 11).
const REPLY_BYTES: usize = 28;
const REPLY_MARK: [u8; 4] = [0x80, 0, 0, 24];
const XID: u32 = 7;
/// Bytes of the value that a memcached is asked for.
const VALUE_BYTES: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server: of ONC RPC, with --bytes of echo, or with --gets a memcached
    target: SocketAddr,
    /// Send calls of so many bytes on one connection, several at a time, instead of NULL calls that each connect and close
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    bytes: Option<u32>,
    /// Get a value on one connection, with so many gets under way, which may share a segment
    #[arg(long, value_name = "N", conflicts_with = "bytes", value_parser = clap::value_parser!(u32).range(1..))]
    gets: Option<u32>,
    /// Open so many connections first, for NULL calls
    #[arg(long, value_name = "N", conflicts_with_all = ["bytes", "gets"])]
    connections: Option<usize>,
    /// Call on so many of them by turns [default: on all]
    #[arg(long, value_name = "N", requires = "connections")]
    busy: Option<usize>,
    /// With so many calls under way, each on a connection of its own [default: one on each]
    #[arg(long, value_name = "N", requires = "connections")]
    under_way: Option<usize>,
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
    /// Of a call, with its connection if that is its own, until the reply was there.
    pub(crate) rtt_us: Option<RttUs>,
    pub(crate) histogram: Vec<(u64, u64)>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let duration = super::seconds(args.duration)?;
    let warmup = super::seconds(args.warmup)?;
    let target = args.target;
    let (calls, histogram) = if let Some(bytes) = args.bytes {
        stream(&connected(target)?, &Exchange::echo(bytes as usize), WINDOW, warmup, duration)?
    } else if let Some(gets) = args.gets {
        let socket = connected(target)?;
        let exchange = Exchange::get(&socket, gets as usize)?;
        stream(&socket, &exchange, gets.into(), warmup, duration)?
    } else {
        let histogram = match args.connections {
            None => connections(target, warmup, duration)?,
            Some(connections) => {
                let busy = args.busy.unwrap_or(connections);
                by_turns(target, [connections, busy, args.under_way.unwrap_or(busy)], warmup, duration)?
            }
        };
        (histogram.len() as f64, histogram)
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

/// The reply to a NULL call.
fn null_reply() -> Vec<u8> {
    let mut reply = [&REPLY_MARK[..], &XID.to_be_bytes(), &[0, 0, 0, 1]].concat();
    reply.resize(REPLY_BYTES, 0);
    reply
}

/// Connects, calls and closes, one after the other.
fn connections(target: SocketAddr, warmup: Duration, duration: Duration) -> anyhow::Result<Histogram<u64>> {
    let (call, wanted, mut histogram) = (null_call(XID), null_reply(), histogram()?);
    let begin = clock::now() + warmup;
    let end = begin + duration;
    loop {
        let begun = clock::now();
        if begun >= end {
            return Ok(histogram);
        }
        let socket = connected(target)?;
        send_call(&socket, &call)?;
        let (mut reply, mut len) = ([0; REPLY_BYTES], 0);
        while len < REPLY_BYTES {
            let (more, _) = spin("no reply", || recv(&socket, &mut reply[len..], RecvFlags::empty()))?;
            ensure!(more > 0, "the server closed a connection before its reply");
            len += more;
        }
        ensure!(reply == *wanted, "a NULL call was answered by {reply:?}");
        drop(socket);
        if begun >= begin {
            histogram.saturating_record(clock::now().nanos_since(begun));
        }
    }
}

fn send_call(socket: &OwnedFd, call: &[u8]) -> anyhow::Result<()> {
    let sent = spin("cannot send", || send(socket, call, SendFlags::NOSIGNAL))?;
    ensure!(sent == call.len(), "a connection took {sent} bytes of a call");
    Ok(())
}

/// A call that waits for its reply.
struct UnderWay {
    socket: OwnedFd,
    since: Instant,
    reply: [u8; REPLY_BYTES],
    len: usize,
}

impl UnderWay {
    fn call(socket: OwnedFd, call: &[u8]) -> anyhow::Result<Self> {
        let since = clock::now();
        send_call(&socket, call)?;
        Ok(Self { socket, since, reply: [0; REPLY_BYTES], len: 0 })
    }

    /// Whether the reply is there.
    fn look(&mut self, wanted: &[u8]) -> anyhow::Result<bool> {
        match recv(&self.socket, &mut self.reply[self.len..], RecvFlags::empty()) {
            Ok((0, _)) => anyhow::bail!("the server closed a connection before its reply"),
            Ok((more, _)) => self.len += more,
            Err(Errno::AGAIN | Errno::INTR) => {
                ensure!(clock::now() < self.since + PATIENCE, "no reply within a second");
            }
            Err(error) => return Err(error).context("cannot receive"),
        }
        let is_whole = self.len == REPLY_BYTES;
        ensure!(!is_whole || self.reply == *wanted, "a NULL call was answered by {:?}", self.reply);
        Ok(is_whole)
    }
}

/// Opens connections, and calls on some of them by turns: `[opened, busy, calls under way]`.
fn by_turns(
    target: SocketAddr,
    [opened, busy, under_way]: [usize; 3],
    warmup: Duration,
    duration: Duration,
) -> anyhow::Result<Histogram<u64>> {
    ensure!(
        (1..=opened).contains(&busy) && (1..=busy).contains(&under_way),
        "of {opened} connections {busy} cannot be busy with {under_way} calls"
    );
    super::hold::raise_descriptors();
    let mut idle = (0..opened).map(|_| connected(target)).collect::<anyhow::Result<VecDeque<_>>>()?;
    // Those that say nothing stay open until the end.
    let mut ready = idle.split_off(opened - busy);
    let (call, wanted, mut histogram) = (null_call(XID), null_reply(), histogram()?);
    let begin = clock::now() + warmup;
    let end = begin + duration;
    let mut waiting = VecDeque::with_capacity(under_way);
    while clock::now() < end {
        while waiting.len() < under_way
            && let Some(socket) = ready.pop_front()
        {
            waiting.push_back(UnderWay::call(socket, &call)?);
        }
        for _ in 0..waiting.len() {
            let Some(mut asked) = waiting.pop_front() else { break };
            if !asked.look(&wanted)? {
                waiting.push_back(asked);
                continue;
            }
            if asked.since >= begin {
                histogram.saturating_record(clock::now().nanos_since(asked.since));
            }
            ready.push_back(asked.socket);
        }
    }
    Ok(histogram)
}

/// Requests on one connection that are all the same, and their replies, several times over.
struct Exchange {
    requests: Vec<u8>,
    replies: Vec<u8>,
    /// How often.
    times: usize,
}

impl Exchange {
    fn echo(bytes: usize) -> Self {
        let call: Vec<u8> = (0..bytes).map(|at| ((at * 167) >> 3) as u8).collect();
        Self { requests: call.clone(), replies: call, times: 1 }
    }

    /// Stores a value, which it then gets, up to `times` by one system call.
    fn get(socket: &OwnedFd, times: usize) -> anyhow::Result<Self> {
        let value = "v".repeat(VALUE_BYTES);
        send_call(socket, format!("set key 0 0 {VALUE_BYTES}\r\n{value}\r\n").as_bytes())?;
        let (mut said, wanted) = ([0; 8], b"STORED\r\n");
        let (len, _) = spin("nothing is stored", || recv(socket, &mut said, RecvFlags::empty()))?;
        ensure!(
            said[..len] == wanted[..],
            "a set was answered by {:?}",
            String::from_utf8_lossy(&said[..len])
        );
        let reply = format!("VALUE key 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n");
        let requests = b"get key\r\n".repeat(times);
        Ok(Self { requests, replies: reply.repeat(times).into_bytes(), times })
    }
}

/// Sends and receives on one connection, with so many requests under way; returns how many were answered meanwhile, and how long
/// each took.
fn stream(
    socket: &OwnedFd,
    exchange: &Exchange,
    window: u64,
    warmup: Duration,
    duration: Duration,
) -> anyhow::Result<(f64, Histogram<u64>)> {
    let Exchange { requests, replies, times } = exchange;
    let [request, reply] = [requests, replies].map(|all| (all.len() / times) as u64);
    let place = |count: u64, of: &[u8]| (count % of.len() as u64) as usize;
    let (mut sent, mut heard, mut before) = (0_u64, 0_u64, None);
    let (mut begun, mut histogram) = (VecDeque::new(), histogram()?);
    let mut buffer = vec![0; replies.len()];
    let begin = clock::now() + warmup;
    let end = begin + duration;
    loop {
        let now = clock::now();
        if now >= end {
            return Ok(((heard - before.unwrap_or(heard)) as f64 / reply as f64, histogram));
        }
        if now >= begin {
            before.get_or_insert(heard);
        }
        let room = (window * request + heard * request / reply).saturating_sub(sent);
        if room > 0 {
            let at = place(sent, requests);
            // To the end of a request at least, and of no more than there is room for.
            let most = request - sent % request + (room - 1) / request * request;
            let piece = &requests[at..requests.len().min(at + most as usize)];
            match send(socket, piece, SendFlags::NOSIGNAL) {
                Ok(more) => {
                    let first = sent.div_ceil(request);
                    sent += more as u64;
                    begun.extend((first..sent.div_ceil(request)).map(|_| now));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        // Nothing reaches beyond the end of the replies, so that it can be compared in one piece.
        let at = place(heard, replies);
        match recv(socket, &mut buffer[at..], RecvFlags::empty()) {
            Ok((0, _)) => anyhow::bail!("the server closed the connection"),
            Ok((more, _)) => {
                ensure!(
                    buffer[at..at + more] == replies[at..at + more],
                    "what came back is not what was asked for"
                );
                let first = heard / reply;
                heard += more as u64;
                let now = clock::now();
                for since in begun.drain(..begun.len().min((heard / reply - first) as usize)) {
                    if since >= begin {
                        histogram.saturating_record(now.nanos_since(since));
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Serves connections until each is closed, by `serve` for what has come.
    fn server(count: usize, serve: impl Fn(&[u8]) -> Vec<u8> + Copy + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..count {
            let listener = listener.try_clone().unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut came = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut came) {
                    if stream.write_all(&serve(&came[..len])).is_err() {
                        return;
                    }
                }
            });
        }
        address
    }

    const SHORT: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(200)];

    #[test]
    fn what_is_not_the_reply_is_an_error() {
        let [warmup, duration] = SHORT;
        let calls = |serve: fn(&[u8]) -> Vec<u8>| by_turns(server(3, serve), [3, 2, 1], warmup, duration);
        // Calls do not overlap on a connection, so that each is read alone.
        assert!(!calls(|_| null_reply()).unwrap().is_empty());
        assert!(calls(|call| call.to_vec()).is_err());
        assert!(by_turns(([127, 0, 0, 1], 9).into(), [3, 4, 1], warmup, duration).is_err());
    }

    #[test]
    fn echoes_of_several_calls_under_way_are_compared() {
        let [warmup, duration] = SHORT;
        let echo = |serve: fn(&[u8]) -> Vec<u8>| {
            let socket = connected(server(1, serve)).unwrap();
            stream(&socket, &Exchange::echo(10_000), WINDOW, warmup, duration)
        };
        let (calls, histogram) = echo(|came| came.to_vec()).unwrap();
        assert!(calls > 0.0 && !histogram.is_empty());
        assert!(echo(|came| vec![0; came.len()]).is_err());
    }
}
