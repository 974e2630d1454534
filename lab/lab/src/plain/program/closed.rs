//! A client of memcached with one request in flight, over UDP or TCP: it sleeps until the answer is there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use twinpath_sys::clock;

use super::datagrams::Datagrams;

/// A request that has no answer by then is lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
const RTT_MAX_NS: u64 = 10_000_000_000;
/// Keys that are stored, and read by turns.
const KEYS: usize = 16;

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
    Udp(Datagrams),
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
            let datagrams = Datagrams::to(asks.target)?;
            datagrams.wait(Some(ANSWER_DEADLINE))?;
            Wire::Udp(datagrams)
        };
        Ok(Self { wire, answer: Vec::new() })
    }

    /// Asks, and waits for the answer; returns the time that took, if it came.
    fn call(&mut self, text: &str, wanted: &str) -> anyhow::Result<Option<u64>> {
        let (rtt_ns, said) = match &mut self.wire {
            Wire::Udp(datagrams) => {
                let sent = clock::now();
                let asked = datagrams.ask(text)?;
                loop {
                    let Some((number, said)) = datagrams.receive()? else { return Ok(None) };
                    if number == asked {
                        let rtt_ns = clock::now().nanos_since(sent);
                        self.answer.clear();
                        self.answer.extend(said);
                        break (rtt_ns, &self.answer[..]);
                    }
                }
            }
            Wire::Tcp(stream) => {
                let answer = &mut self.answer;
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
