//! A client of memcached that asks at a pace: one request each 250 to 500 us, whatever the answers do.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use twinpath_sys::clock;
use twinpath_time::Instant;

/// A request that has no answer by then is lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
const RTT_MAX_NS: u64 = 10_000_000_000;
/// The gaps between requests, ns.
const GAP_NS: std::ops::RangeInclusive<u64> = 250_000..=500_000;
/// Keys that are stored and read.
const KEYS: usize = 1000;
/// One request in so many is a set.
const SETS: u32 = 10;
/// The header of a datagram.
const HEADER_LEN: usize = 8;

/// What was asked, and what of it was answered.
pub(super) struct Paced {
    /// Latencies, ns, from when each request was due.
    pub(super) histogram: Histogram<u64>,
    pub(super) lost: u64,
}

struct Client {
    socket: UdpSocket,
    number: u16,
    /// What each key has, by the sets that were acknowledged.
    values: Vec<u64>,
    random: fastrand::Rng,
}

impl Client {
    /// Asks, and spins until the answer is there; returns whether it came.
    fn call(&mut self, text: &str, wanted: &str) -> anyhow::Result<bool> {
        self.number = self.number.wrapping_add(1);
        // 0 of 1 datagrams, reserved.
        let mut request = [&self.number.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0]].concat();
        request.extend(text.as_bytes());
        self.socket.send(&request)?;
        let (end, mut answer) = (clock::now() + ANSWER_DEADLINE, [0; 2048]);
        while clock::now() < end {
            let len = match self.socket.recv(&mut answer) {
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            if answer[..2] == self.number.to_be_bytes() {
                let said = answer.get(HEADER_LEN..len).unwrap_or_default();
                let said = String::from_utf8_lossy(said);
                ensure!(said == wanted, "{text:?} was answered by {said:?} instead of {wanted:?}");
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn set(&mut self, key: usize) -> anyhow::Result<bool> {
        let value = self.values[key] + 1;
        let stored = self.call(&format!("set key{key} 0 0 32\r\n{value:0>32}\r\n"), "STORED\r\n")?;
        // Whether a set without an answer was made is not known.
        ensure!(stored, "no answer to a set");
        self.values[key] = value;
        Ok(stored)
    }

    fn ask(&mut self) -> anyhow::Result<bool> {
        let key = self.random.usize(..KEYS);
        if self.random.u32(..SETS) == 0 {
            return self.set(key);
        }
        let wanted = format!("VALUE key{key} 0 32\r\n{:0>32}\r\nEND\r\n", self.values[key]);
        self.call(&format!("get key{key}\r\n"), &wanted)
    }
}

/// Asks for `duration`, after as many requests as there are keys, and `warmup`. Each answer must be what was stored last.
pub(super) fn memcached(
    target: SocketAddr,
    warmup: Duration,
    duration: Duration,
    seed: u64,
) -> anyhow::Result<Paced> {
    let any: SocketAddr = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    let random = fastrand::Rng::with_seed(seed);
    let mut client = Client { socket, number: 0, values: vec![0; KEYS], random };
    for key in 0..KEYS {
        client.set(key).with_context(|| format!("storing key {key}"))?;
    }
    let mut histogram = Histogram::<u64>::new_with_bounds(1, RTT_MAX_NS, 3)?;
    let (warm, mut lost) = (clock::now() + warmup, 0);
    let end = warm + duration;
    let mut due = clock::now();
    loop {
        due += Duration::from_nanos(client.random.u64(GAP_NS));
        if due >= end {
            return Ok(Paced { histogram, lost });
        }
        while clock::now() < due {
            std::hint::spin_loop();
        }
        let answered = client.ask()?;
        let now: Instant = clock::now();
        if !answered {
            lost += 1;
        } else if due >= warm {
            histogram.saturating_record(now.nanos_since(due));
        }
    }
}
