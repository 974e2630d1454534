//! `plain hammer`: clients of memcached that change and read few keys without end, over datagrams and a connection, and compare
//! each answer with what was acknowledged to anybody before its request was sent.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use twinpath_clients::measure::print;
use twinpath_sys::clock;
use twinpath_time::Instant;

use super::datagrams::Datagrams;

/// Keys with an even number are changed over UDP, the others over TCP: what a key has only grows.
const KEYS: usize = 6;
const READERS: u64 = 3;
/// A request that has no answer by then has none. No datagram is sent again.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// Requests after which a client looks, on average, whether anything comes that must not; meanwhile workers sleep.
const PAUSE_EACH: u32 = 200;
const PAUSE_US: std::ops::Range<u64> = 1..3000;
/// Most values that are read between two changes.
const READ_BETWEEN: u64 = 64;

#[derive(clap::Args)]
pub(crate) struct HammerArgs {
    /// The server
    target: SocketAddr,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Draws keys and pauses
    #[arg(long, default_value_t = 18)]
    seed: u64,
}

/// What was seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct HammerReport {
    pub(crate) read: u64,
    pub(crate) changed: u64,
    /// Answers older than what was acknowledged before their requests.
    pub(crate) stale: u64,
    /// Answers to requests that had one before.
    pub(crate) twice: u64,
    /// Requests without an answer.
    pub(crate) never: u64,
}

impl HammerReport {
    fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.changed += other.changed;
        self.stale += other.stale;
        self.twice += other.twice;
        self.never += other.never;
    }
}

/// What all clients know.
struct Shared {
    /// By key, what was acknowledged.
    told: [AtomicU64; KEYS],
    read: AtomicU64,
    /// A client has failed.
    over: AtomicBool,
    end: Instant,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed) && clock::now() < self.end
    }

    /// Runs a client; one that fails ends the others, too.
    fn run(&self, client: impl FnOnce() -> anyhow::Result<HammerReport>) -> anyhow::Result<HammerReport> {
        let seen = client();
        if seen.is_err() {
            self.over.store(true, Ordering::Relaxed);
        }
        seen
    }
}

/// A client with one request in flight over UDP.
struct Client<'a> {
    shared: &'a Shared,
    datagrams: Datagrams,
    /// Requests that were given up.
    given_up: BTreeSet<u16>,
    random: fastrand::Rng,
    seen: HammerReport,
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared, target: SocketAddr, seed: u64) -> anyhow::Result<Self> {
        let random = fastrand::Rng::with_seed(seed);
        let datagrams = Datagrams::to(target)?;
        Ok(Self { shared, datagrams, given_up: BTreeSet::new(), random, seen: HammerReport::default() })
    }

    /// What comes within a time: a request's number and its answer.
    fn receive(&mut self, within: Duration) -> anyhow::Result<Option<(u16, Vec<u8>)>> {
        self.datagrams.wait(Some(within))?;
        Ok(self.datagrams.receive()?.map(|(number, said)| (number, said.to_vec())))
    }

    /// An answer to a former request.
    fn late(&mut self, number: u16) {
        // One that was given up has been counted.
        if !self.given_up.remove(&number) {
            self.seen.twice += 1;
        }
    }

    fn call(&mut self, text: &str) -> anyhow::Result<Option<String>> {
        let asked = self.datagrams.ask(text)?;
        self.given_up.remove(&asked);
        let end = clock::now() + twinpath_time::Duration::from_secs(ANSWER_DEADLINE.as_secs());
        while clock::now() < end {
            match self.receive(ANSWER_DEADLINE)? {
                Some((number, said)) if number == asked => return Ok(Some(String::from_utf8(said)?)),
                Some((number, _)) => self.late(number),
                None => {}
            }
        }
        self.given_up.insert(asked);
        self.seen.never += 1;
        Ok(None)
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let key = self.random.usize(..KEYS);
        let before = self.shared.told[key].load(Ordering::Acquire);
        if let Some(said) = self.call(&format!("get key{key}\r\n"))? {
            let value = said.strip_prefix(&format!("VALUE key{key} 0 20\r\n"));
            let value = value
                .and_then(|rest| rest.strip_suffix("\r\nEND\r\n"))
                .and_then(|text| text.parse::<u64>().ok());
            let value = value.with_context(|| format!("key{key} was answered by {said:?}"))?;
            self.seen.stale += u64::from(value < before);
            self.seen.read += 1;
            self.shared.read.fetch_add(1, Ordering::Relaxed);
        }
        self.pause()
    }

    fn change(&mut self, key: usize, value: u64) -> anyhow::Result<()> {
        // Without an answer it is not known whether it was made, and nobody was told of it.
        if let Some(said) = self.call(&set(key, value))? {
            ensure!(said == "STORED\r\n", "a set was answered by {said:?}");
            self.shared.told[key].store(value, Ordering::Release);
            self.seen.changed += 1;
        }
        self.pause()
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        if self.random.u32(..PAUSE_EACH) == 0 {
            let within = Duration::from_micros(self.random.u64(PAUSE_US));
            self.receive(within)?.into_iter().for_each(|(number, _)| self.late(number));
        }
        Ok(())
    }

    /// Nothing may come any more.
    fn end(mut self) -> anyhow::Result<HammerReport> {
        while let Some((number, _)) = self.receive(Duration::from_millis(100))? {
            self.late(number);
        }
        Ok(self.seen)
    }
}

fn set(key: usize, value: u64) -> String {
    format!("set key{key} 0 0 20\r\n{value:0>20}\r\n")
}

/// Lets others read, so that values are asked for more than once.
fn let_read(shared: &Shared, random: &mut fastrand::Rng) {
    let until = shared.read.load(Ordering::Relaxed) + random.u64(..READ_BETWEEN);
    while shared.read.load(Ordering::Relaxed) < until && shared.goes_on() {
        std::thread::yield_now();
    }
}

fn read_over_udp(shared: &Shared, target: SocketAddr, seed: u64) -> anyhow::Result<HammerReport> {
    let mut client = Client::new(shared, target, seed)?;
    while shared.goes_on() {
        client.read()?;
    }
    client.end()
}

fn change_over_udp(shared: &Shared, target: SocketAddr, seed: u64) -> anyhow::Result<HammerReport> {
    let mut client = Client::new(shared, target, seed)?;
    let mut value = 0;
    while shared.goes_on() {
        value += 1;
        let key = client.random.usize(..KEYS / 2) * 2;
        client.change(key, value)?;
        let_read(shared, &mut client.random);
    }
    client.end()
}

fn change_over_tcp(
    shared: &Shared,
    lines: &mut BufReader<TcpStream>,
    seed: u64,
) -> anyhow::Result<HammerReport> {
    let (mut random, mut value, mut said) = (fastrand::Rng::with_seed(seed), 0, String::new());
    while shared.goes_on() {
        value += 1;
        let key = random.usize(..KEYS / 2) * 2 + 1;
        store(lines, key, value, &mut said)?;
        shared.told[key].store(value, Ordering::Release);
        let_read(shared, &mut random);
    }
    Ok(HammerReport { changed: value, ..HammerReport::default() })
}

fn store(lines: &mut BufReader<TcpStream>, key: usize, value: u64, said: &mut String) -> anyhow::Result<()> {
    lines.get_mut().write_all(set(key, value).as_bytes())?;
    said.clear();
    lines.read_line(said).context("no answer to a set over TCP")?;
    ensure!(said == "STORED\r\n", "a set over TCP was answered by {said:?}");
    Ok(())
}

/// Hammers for a time.
pub(crate) fn hammer(args: &HammerArgs) -> anyhow::Result<()> {
    ensure!(args.duration.is_finite() && args.duration > 0.0, "a client needs a time");
    let stream = TcpStream::connect(args.target).context("no connection")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
    let mut lines = BufReader::new(stream);
    for key in 0..KEYS {
        store(&mut lines, key, 0, &mut String::new())?;
    }
    let end = clock::now() + twinpath_time::Duration::from_nanos((args.duration * 1e9) as u64);
    let (told, read, over) = (Default::default(), AtomicU64::new(0), AtomicBool::new(false));
    let (target, seed, shared) = (args.target, args.seed, &Shared { told, read, over, end });
    let seen = std::thread::scope(|scope| {
        let readers = (0..READERS)
            .map(|reader| scope.spawn(move || shared.run(|| read_over_udp(shared, target, seed + reader))));
        let mut all: Vec<_> = readers.collect();
        all.push(scope.spawn(|| shared.run(|| change_over_udp(shared, target, seed + READERS))));
        let lines = &mut lines;
        all.push(scope.spawn(|| shared.run(|| change_over_tcp(shared, lines, seed + READERS + 1))));
        let mut seen = HammerReport::default();
        for thread in all {
            let one = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            seen.add(&one);
        }
        anyhow::Ok(seen)
    })?;
    ensure!(seen.read > 0 && seen.changed > 0, "nothing was read or changed");
    Ok(print(serde_json::to_value(seen)?)?)
}
