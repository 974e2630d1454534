//! A client of memcached with one request in flight: over UDP or TCP as soon as the last one was answered, asleep until the answer is there;
//! or over UDP at a pace, one request each 250 to 500 us, spinning.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use twinpath_sys::clock;
use twinpath_time::Instant;

use super::datagrams::Datagrams;

/// A request that has no answer by then is lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
const RTT_MAX_NS: u64 = 10_000_000_000;
/// Keys that are stored and read, and those at a pace.
const KEYS: usize = 16;
const PACED_KEYS: usize = 1000;
/// The gaps between requests at a pace, ns.
const GAP_NS: std::ops::RangeInclusive<u64> = 250_000..=500_000;
/// One of so many requests at a pace is a set.
const SETS: u32 = 10;

/// What is asked for, and for how long.
pub(super) struct Asks {
    pub(super) target: SocketAddr,
    pub(super) tcp: bool,
    /// At a pace, of which the seed draws the times and keys.
    pub(super) paced: Option<u64>,
    /// Bytes of a value
    pub(super) bytes: usize,
    pub(super) warmup: twinpath_time::Duration,
    pub(super) duration: twinpath_time::Duration,
}

/// What was answered.
pub(super) struct Answered {
    /// Latencies, ns; at a pace, from when each request was due.
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
    bytes: usize,
    /// What each key has, by the sets that were acknowledged.
    values: Vec<u64>,
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
            datagrams.wait(asks.paced.is_none().then_some(ANSWER_DEADLINE))?;
            Wire::Udp(datagrams)
        };
        let keys = if asks.paced.is_some() { PACED_KEYS } else { KEYS };
        Ok(Self { wire, answer: Vec::new(), bytes: asks.bytes, values: vec![0; keys] })
    }

    /// The text of a key's value.
    fn value(&self, key: usize) -> String {
        let number = self.values[key].to_string();
        "0".repeat(self.bytes.saturating_sub(number.len())) + &number
    }

    /// Asks, and waits for the answer; returns when it was asked and when the answer came, if it did.
    fn call(&mut self, text: &str, wanted: &str) -> anyhow::Result<Option<[Instant; 2]>> {
        match &mut self.wire {
            Wire::Udp(datagrams) => {
                let sent = clock::now();
                let asked = datagrams.ask(text)?;
                loop {
                    match datagrams.receive()? {
                        Some((number, said)) if number == asked => {
                            let came = clock::now();
                            verify(text, said, wanted)?;
                            return Ok(Some([sent, came]));
                        }
                        _ if clock::now() >= sent + ANSWER_DEADLINE => return Ok(None),
                        _ => {}
                    }
                }
            }
            Wire::Tcp(stream) => {
                self.answer.resize(wanted.len(), 0);
                let sent = clock::now();
                stream.write_all(text.as_bytes())?;
                // A stream that lacks an answer is of no use any more.
                stream.read_exact(&mut self.answer).context("no answer over TCP")?;
                let came = clock::now();
                verify(text, &self.answer, wanted)?;
                Ok(Some([sent, came]))
            }
        }
    }

    fn get(&mut self, key: usize) -> anyhow::Result<Option<[Instant; 2]>> {
        let wanted = format!("VALUE key{key} 0 {}\r\n{}\r\nEND\r\n", self.bytes, self.value(key));
        self.call(&format!("get key{key}\r\n"), &wanted)
    }

    fn set(&mut self, key: usize) -> anyhow::Result<Option<[Instant; 2]>> {
        self.values[key] += 1;
        let text = format!("set key{key} 0 0 {}\r\n{}\r\n", self.bytes, self.value(key));
        let stored = self.call(&text, "STORED\r\n")?;
        // Whether a set without an answer was made is not known.
        ensure!(stored.is_some(), "no answer to a set");
        Ok(stored)
    }
}

fn verify(asked: &str, said: &[u8], wanted: &str) -> anyhow::Result<()> {
    if said != wanted.as_bytes() {
        let shown = String::from_utf8_lossy(&said[..said.len().min(100)]);
        bail!("{:?} was answered by {shown:?}", asked.lines().next().unwrap_or_default());
    }
    Ok(())
}

/// Asks until the time is over. Each answer must be what was stored last.
pub(super) fn memcached(asks: &Asks) -> anyhow::Result<Answered> {
    let mut client = Client::new(asks)?;
    let keys = client.values.len();
    for key in 0..keys {
        client.set(key).with_context(|| format!("storing key {key}"))?;
    }
    let mut random = fastrand::Rng::with_seed(asks.paced.unwrap_or_default());
    let mut histogram = Histogram::<u64>::new_with_bounds(1, RTT_MAX_NS, 3)?;
    let mut due = clock::now();
    let (warm, mut lost) = (due + asks.warmup, 0);
    let end = warm + asks.duration;
    loop {
        let mut is_set = false;
        if asks.paced.is_some() {
            due += Duration::from_nanos(random.u64(GAP_NS));
            is_set = random.u32(..SETS) == 0;
            while clock::now() < due.min(end) {
                std::hint::spin_loop();
            }
        } else {
            due = clock::now();
        }
        if due >= end {
            return Ok(Answered { histogram, lost });
        }
        let key = random.usize(..keys);
        match if is_set { client.set(key)? } else { client.get(key)? } {
            Some([sent, came]) if due >= warm => {
                histogram.saturating_record(came.nanos_since(if asks.paced.is_some() { due } else { sent }));
            }
            Some(_) => {}
            None => lost += 1,
        }
    }
}
