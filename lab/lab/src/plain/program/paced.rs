//! A client of memcached that asks at a pace: one request each 250 to 500 us, whatever the answers do.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use twinpath_sys::clock;
use twinpath_time::Instant;

use super::datagrams::Datagrams;

/// A request that has no answer by then is lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
const RTT_MAX_NS: u64 = 10_000_000_000;
/// The gaps between requests, ns.
const GAP_NS: std::ops::RangeInclusive<u64> = 250_000..=500_000;
/// Keys that are stored and read.
const KEYS: usize = 1000;
/// One request in so many is a set.
const SETS: u32 = 10;

/// What was asked, and what of it was answered.
pub(super) struct Paced {
    /// Latencies, ns, from when each request was due.
    pub(super) histogram: Histogram<u64>,
    pub(super) lost: u64,
}

struct Client {
    datagrams: Datagrams,
    /// What each key has, by the sets that were acknowledged.
    values: Vec<u64>,
    random: fastrand::Rng,
}

impl Client {
    /// Asks, and spins until the answer is there; returns whether it came.
    fn call(&mut self, text: &str, wanted: &str) -> anyhow::Result<bool> {
        let asked = self.datagrams.ask(text)?;
        let end = clock::now() + ANSWER_DEADLINE;
        while clock::now() < end {
            let Some((number, said)) = self.datagrams.receive()? else { continue };
            if number == asked {
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
    let datagrams = Datagrams::to(target)?;
    datagrams.wait(None)?;
    let random = fastrand::Rng::with_seed(seed);
    let mut client = Client { datagrams, values: vec![0; KEYS], random };
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
