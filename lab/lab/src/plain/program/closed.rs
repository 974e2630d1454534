//! A client of memcached with one request in flight, over UDP or TCP: it sleeps until the answer is there.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use twinpath_sys::clock;

/// A request that has no answer by then is lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
const RTT_MAX_NS: u64 = 10_000_000_000;
/// Keys that are stored, and read by turns.
const KEYS: usize = 16;
/// The longest datagram.
const DATAGRAM_MAX: usize = 2048;
/// The header of a datagram.
const HEADER_LEN: usize = 8;

/// What is asked for, and for how long.
pub(super) struct Asks {
    pub(super) target: SocketAddr,
    pub(super) tcp: bool,
    /// Bytes of a value
    pub(super) bytes: usize,
    pub(super) warmup: twinpath_time::Duration,
    pub(super) duration: twinpath_time::Duration,
}

/// The latencies, and requests that had no answer.
pub(super) struct Closed {
    pub(super) histogram: Histogram<u64>,
    pub(super) lost: u64,
}

enum Wire {
    Udp { socket: UdpSocket, number: u16 },
    Tcp(TcpStream),
}

struct Client {
    wire: Wire,
    answer: Vec<u8>,
}

impl Client {
    fn new(asks: &Asks) -> anyhow::Result<Self> {
        let wire = if asks.tcp {
            let stream = TcpStream::connect(asks.target)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
            Wire::Tcp(stream)
        } else {
            let any: SocketAddr = if asks.target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
            let socket = UdpSocket::bind(any)?;
            socket.connect(asks.target)?;
            socket.set_read_timeout(Some(ANSWER_DEADLINE))?;
            Wire::Udp { socket, number: 0 }
        };
        Ok(Self { wire, answer: Vec::new() })
    }

    /// Asks, and waits for the answer; returns the time that took, if it came.
    fn call(&mut self, text: &str, wanted: &str) -> anyhow::Result<Option<u64>> {
        let answer = &mut self.answer;
        let (rtt_ns, said) = match &mut self.wire {
            Wire::Udp { socket, number } => {
                *number = number.wrapping_add(1);
                // The number of the request, 0 of 1 datagrams, reserved.
                let mut request = [&number.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0]].concat();
                request.extend(text.as_bytes());
                answer.resize(DATAGRAM_MAX, 0);
                let sent = clock::now();
                socket.send(&request)?;
                loop {
                    let len = match socket.recv(answer) {
                        Ok(len) => len,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                        Err(error) => return Err(error.into()),
                    };
                    if answer[..2] == number.to_be_bytes() {
                        let rtt_ns = clock::now().nanos_since(sent);
                        break (rtt_ns, answer.get(HEADER_LEN..len).unwrap_or_default());
                    }
                }
            }
            Wire::Tcp(stream) => {
                answer.resize(wanted.len(), 0);
                let sent = clock::now();
                stream.write_all(text.as_bytes())?;
                // A stream that lacks an answer is of no use any more.
                stream.read_exact(answer).context("no answer over TCP")?;
                (clock::now().nanos_since(sent), &answer[..])
            }
        };
        if said != wanted.as_bytes() {
            let shown = String::from_utf8_lossy(&said[..said.len().min(100)]);
            bail!("{:?} was answered by {shown:?}", text.lines().next().unwrap_or_default());
        }
        Ok(Some(rtt_ns))
    }
}

/// Asks until the time is over. Each answer must be what was stored.
pub(super) fn memcached(asks: &Asks) -> anyhow::Result<Closed> {
    let &Asks { bytes, .. } = asks;
    let mut client = Client::new(asks)?;
    let value = "x".repeat(bytes);
    let mut calls = Vec::new();
    for key in 0..KEYS {
        let set = format!("set key{key} 0 0 {bytes}\r\n{value}\r\n");
        let stored = client.call(&set, "STORED\r\n")?;
        ensure!(stored.is_some(), "no answer to a set");
        calls.push((format!("get key{key}\r\n"), format!("VALUE key{key} 0 {bytes}\r\n{value}\r\nEND\r\n")));
    }
    let mut histogram = Histogram::<u64>::new_with_bounds(1, RTT_MAX_NS, 3)?;
    let warm = clock::now() + asks.warmup;
    let end = warm + asks.duration;
    let mut lost = 0;
    for (get, wanted) in calls.iter().cycle() {
        let now = clock::now();
        if now >= end {
            break;
        }
        match client.call(get, wanted)? {
            Some(rtt_ns) if now >= warm => histogram.saturating_record(rtt_ns),
            Some(_) => {}
            None => lost += 1,
        }
    }
    Ok(Closed { histogram, lost })
}
