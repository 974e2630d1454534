//! Changes, reads and late publications over both paths and both transports: no reply is older than a
//! change that was acknowledged before its request was sent, each request is answered, and none is answered
//! twice. On the packet path the kernel's programs answer, in modes in which the worker has a direct ring
//! always, never, or sometimes.
//!
//! `TWINPATH_HAMMER_SECONDS` sets the duration; the default is short.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use twinpath::{
    Answer, Datagram, Instant, Keep, KeptReplies, Mode, Output, Path, Reason, Reflex, Service, Shape,
};
use twinpath_sys::Namespace;
use twinpath_test_rig::{End, PATIENCE, pair, root_or_skip, within};

const SERVER: &str = "10.7.0.2";
const PORT: u16 = 7018;
const KEYS: usize = 5;
const READERS: u64 = 3;

/// The reply has the request's ID.
const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);

/// Minimum number of replies that the kernel's programs must send.
const BY_PROGRAMS: u64 = 100;

/// Values that only grow, by key. Datagrams are an ID, `get` or `add`, and a key. Lines are keys to be
/// added to, or `got` for the number of `get` requests that reached workers.
#[derive(Clone)]
struct Counters {
    values: Arc<[AtomicU64; KEYS]>,
    got: Arc<AtomicU64>,
    kept: KeptReplies,
    random: fastrand::Rng,
}

impl Counters {
    fn add(&self, key: usize) -> u64 {
        let value = self.values[key].fetch_add(1, Ordering::Relaxed) + 1;
        self.kept.withdraw(key as u64);
        value
    }

    /// A pause of random length, so that some publications are late.
    fn dawdle(&mut self) {
        match self.random.u32(..16) {
            0 => std::thread::yield_now(),
            1 => (0..self.random.u32(..4000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

impl Service for Counters {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let [high, low, verb @ .., key] = datagram.request() else { return Answer::Nothing };
        let (id, key, adds) = ([*high, *low], usize::from(*key), verb == b"add");
        if key >= KEYS {
            return Answer::Drop(Reason::ProtocolError);
        }
        if adds {
            let value = self.add(key);
            return datagram.answer(&[&id[..], &value.to_be_bytes()].concat());
        }
        self.got.fetch_add(1, Ordering::Relaxed);
        let version = datagram.version_of(key as u64);
        self.dawdle();
        let value = self.values[key].load(Ordering::Relaxed);
        self.dawdle();
        let reply = [&id[..], &value.to_be_bytes()].concat();
        datagram.answer_and_keep(&reply, &Keep { shape: &BY_ID, version, hold: Duration::from_secs(60) })
    }

    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.kept.clone())
    }

    fn may_loop(&self) -> bool {
        false
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        if &input[..end] == b"got" {
            let got = self.got.load(Ordering::Relaxed);
            return if output.write(format!("{got}\n").as_bytes()) { end + 1 } else { 0 };
        }
        let key = std::str::from_utf8(&input[..end]).ok().and_then(|key| key.parse().ok());
        let Some(key) = key.filter(|key| *key < KEYS) else {
            output.refuse(Reason::ProtocolError);
            return 0;
        };
        let value = self.add(key);
        if output.write(format!("{value}\n").as_bytes()) { end + 1 } else { 0 }
    }
}

/// The server of the other test, which starts this program again to run it. On its own it tests nothing.
#[test]
fn serves() {
    let (Ok(path), Ok(mode)) = (std::env::var("HAMMER_PATH"), std::env::var("HAMMER_MODE")) else { return };
    let kept = KeptReplies::new(&[BY_ID]);
    let random = fastrand::Rng::with_seed(18);
    let service = Counters { values: Arc::default(), got: Arc::default(), kept, random };
    let (path, mode) = (path.parse::<Path>().unwrap(), mode.parse::<Mode>().unwrap());
    // With several workers, each has a socket all the time; a worker that polls has none.
    let workers = if mode == Mode::Adaptive { 2 } else { 1 };
    let serve = twinpath::serve(service).on("vs").udp(PORT).tcp(PORT).path(path);
    serve.mode(mode).workers(workers).run().unwrap();
}

struct Rig {
    client: Namespace,
    child: Child,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rig {
    fn start(path: &str, mode: &str) -> Self {
        let (client, server) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        pair(End::new(&client, "vc", &["10.7.0.1/24"]), End::new(&server, "vs", &[&format!("{SERVER}/24")]));
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["serves", "--exact", "--nocapture"]).env("HAMMER_PATH", path).env("HAMMER_MODE", mode);
        within(&server, child.stdin(Stdio::null()));
        Self { child: child.spawn().unwrap(), client }
    }

    fn tcp(&self) -> TcpStream {
        let begun = Clock::now();
        loop {
            match self.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap() {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    stream.set_nodelay(true).unwrap();
                    return stream;
                }
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    fn udp(&self) -> Asker {
        let socket = self.client.run(|| UdpSocket::bind(("10.7.0.1", 0))).unwrap().unwrap();
        socket.connect((SERVER, PORT)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Asker { socket, id: 0, twice: 0 }
    }
}

/// A socket with one request in flight.
struct Asker {
    socket: UdpSocket,
    id: u16,
    /// Replies to requests for which there had been a reply before.
    twice: u64,
}

impl Asker {
    fn ask(&mut self, verb: &[u8], key: usize) -> u64 {
        self.id = self.id.wrapping_add(1);
        let id = self.id.to_be_bytes();
        self.socket.send(&[&id[..], verb, &[key as u8]].concat()).unwrap();
        loop {
            let mut reply = [0; 64];
            let len = self.socket.recv(&mut reply).expect("a reply: every request is answered");
            let (own, value) = reply[..len].split_first_chunk::<2>().unwrap();
            if *own == id {
                return u64::from_be_bytes(value.try_into().unwrap());
            }
            self.twice += 1;
        }
    }

    /// Sometimes waits for a reply that must not arrive, so that workers sleep, and their rings are closed
    /// and opened again.
    fn pause(&mut self, random: &mut fastrand::Rng) {
        if random.u32(..200) == 0 {
            self.socket.set_read_timeout(Some(Duration::from_micros(random.u64(1..3000)))).unwrap();
            self.twice += u64::from(self.socket.recv(&mut [0; 64]).is_ok());
            self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
    }
}

/// One line over TCP, and the number that comes back.
fn tell(lines: &mut BufReader<TcpStream>, line: &str) -> u64 {
    let mut reply = String::new();
    lines.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    assert!(lines.read_line(&mut reply).unwrap() > 0, "closed");
    reply.trim().parse().unwrap()
}

/// Waits until readers have read this many more values. Otherwise nearly every value is requested only
/// once, and answered by a worker.
fn let_read(read: &AtomicU64, more: u64, is_over: impl Fn() -> bool) {
    let before = read.load(Ordering::Relaxed);
    while read.load(Ordering::Relaxed) < before + more && !is_over() {
        std::thread::yield_now();
    }
}

fn hammer(path: &str, mode: &str, time: Duration) {
    let rig = Rig::start(path, mode);
    let mut lines = BufReader::new(rig.tcp());
    // By key, the values that clients have been told.
    let told: [AtomicU64; KEYS] = Default::default();
    let (over, done, read) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let (stale, twice, begun) = (AtomicU64::new(0), AtomicU64::new(0), Clock::now());
    let by_programs = AtomicU64::new(0);
    let mut asker = rig.udp();
    let added = std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (mut asker, mut random) = (rig.udp(), fastrand::Rng::with_seed(reader));
            let (told, done, read, stale, twice) = (&told, &done, &read, &stale, &twice);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let key = random.usize(..KEYS);
                    let before = told[key].load(Ordering::Acquire);
                    if asker.ask(b"get", key) < before {
                        stale.fetch_add(1, Ordering::Relaxed);
                    }
                    read.fetch_add(1, Ordering::Relaxed);
                    asker.pause(&mut random);
                }
                // One more request by the same path, after which nothing can be left.
                asker.ask(b"get", 0);
                twice.fetch_add(asker.twice, Ordering::Relaxed);
            });
        }
        let over_tcp = scope.spawn(|| {
            let (mut random, mut added) = (fastrand::Rng::with_seed(100), 0);
            loop {
                let key = random.usize(..KEYS);
                told[key].fetch_max(tell(&mut lines, &key.to_string()), Ordering::Release);
                added += 1;
                let_read(&read, random.u64(..64), || begun.elapsed() >= time);
                if begun.elapsed() < time || added % 16 != 0 {
                    continue;
                }
                // Those that workers have had may include some that were not yet counted as read.
                let read = read.load(Ordering::Relaxed);
                by_programs.store(read.saturating_sub(tell(&mut lines, "got")), Ordering::Relaxed);
                if path == "kernel" || by_programs.load(Ordering::Relaxed) >= BY_PROGRAMS {
                    break;
                }
                assert!(begun.elapsed() < time + PATIENCE, "the programs answer, {mode}: {by_programs:?}");
            }
            over.store(true, Ordering::Relaxed);
            added
        });
        let mut random = fastrand::Rng::with_seed(101);
        let mut added = 0;
        while !over.load(Ordering::Relaxed) {
            let key = random.usize(..KEYS);
            told[key].fetch_max(asker.ask(b"add", key), Ordering::Release);
            asker.pause(&mut random);
            added += 1;
            let_read(&read, random.u64(..64), || over.load(Ordering::Relaxed));
        }
        let added = added + over_tcp.join().unwrap();
        done.store(true, Ordering::Relaxed);
        added
    });
    let last: u64 = (0..KEYS).map(|key| asker.ask(b"get", key)).sum();
    let (stale, twice) = (stale.into_inner(), twice.into_inner() + asker.twice);
    let read = read.into_inner();
    println!(
        "{path}, {mode}: {read} read, {by_programs:?} by programs, {added} changed, {stale} stale, {twice} twice"
    );
    assert_eq!((stale, twice), (0, 0), "of {read} and {added}, on path {path}");
    assert_eq!(last, added, "each change was made once");
    assert!(read > 0 && added > 0);
}

#[test]
fn no_reply_is_older_than_what_was_acknowledged_before_its_request() {
    if !root_or_skip() {
        return;
    }
    let seconds = std::env::var("TWINPATH_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = seconds.map_or(Duration::from_secs(1), Duration::from_secs);
    hammer("kernel", "adaptive", time);
    for mode in ["poll", "interrupt", "adaptive"] {
        hammer("packet", mode, time);
    }
}
