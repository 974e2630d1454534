//! Measures the cost of a verdict: nanoseconds per frame of the programs as they run in production.
//!
//! `cargo run --release -p twinpath-bpf --example speed`, as root. A test run's own cost, about 20 to 30 ns, is in
//! every figure: the column `tcx, no note` is little else. `tcx, ring` is the program at tc ingress while it fills
//! the direct ring of a worker without a socket, and `filter, ring` is the socket's filter while it fills the ring.
//! A second table shows the cost of checking whether the worker is stuck. A third one shows the additional cost for
//! frames that go to the kernel or to a worker where the programs reply by themselves. A fourth one shows it for claims
//! on connections of TCP: of frames to other ports, of the kernel's connections at the claimed port, and of a worker's.
#![allow(unsafe_code, reason = "the example plays the worker: it writes the words shared with the programs")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{direct_ring, direct_ring_of, filter, ingress, run, xdp};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use twinpath_bpf::{DIRECT_SLOTS, Features, Path, QUEUES_MAX, ReflexPlan, Steering, TcpFlows, program_costs};
use twinpath_claims::corpus::{self, Corpus};
use twinpath_claims::{Answers, Claim, Reflex, Table};
use twinpath_frame::Mapping;
use twinpath_rings::direct::DirectRing;
use twinpath_rings::pending::STRIDE;
use twinpath_sys::affinity;

const REPEAT: u32 = 1_000_000;
const PASSES: usize = 7;
/// Passes over the direct ring. A pass can be no longer than the ring.
const RING_PASSES: usize = 2001;
/// Passes that start a thread each.
const PASSES_SHARED: usize = 501;

/// The cases of the corpus to be measured.
const CASES: [(&str, &str); 8] = [
    ("tcp_ack", "empty"),
    ("tcp_syn_unclaimed_port", "basic"),
    ("ipv4_udp_unclaimed_port", "basic"),
    ("ipv6_udp_unclaimed_port", "basic"),
    ("arp_broadcast", "basic"),
    ("tcp_ack", "basic"),
    ("ipv4_udp_claimed", "basic"),
    ("ipv6_udp_claimed", "basic"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = affinity::allowed_cpus()?;
    affinity::pin_current_thread(*cpus.first().ok_or("no CPU")?)?;
    let corpus = corpus::all()?;
    let case_of = |name: &str| corpus.cases.iter().find(|case| case.name == name).ok_or("no such case");
    let mut redirect = Steering::load(Path::Xdp)?;
    let mut packet = Steering::load(Path::Packet)?;
    let mut ring = direct_ring_of(&packet, 0);
    println!(
        "{:32} {:8} {:>6} {:>8} {:>12} {:>10} {:>12}",
        "frame", "table", "XDP", "filter", "tcx, no note", "tcx, ring", "filter, ring"
    );
    // The production filter reads from the start of the data, which in a test run is the IP header: a frame with a
    // second Ethernet header in front makes it do the same work.
    let doubled = |frame: &[u8]| [&frame[..14], frame].concat();
    for (name, table) in CASES {
        let frame = &case_of(name)?.frame;
        redirect.apply(&corpus.tables[table])?;
        packet.apply(&corpus.tables[table])?;
        let at_xdp = median(|| run(xdp(&redirect), frame, None, REPEAT).duration);
        let at_filter = median(|| run(filter(&packet), &doubled(frame), None, REPEAT).duration);
        // The filter clears the note when it decides an unclaimed frame.
        run(filter(&packet), &doubled(&case_of("arp_broadcast")?.frame), None, 1);
        let at_tcx = median(|| run(ingress(&packet), frame, None, REPEAT).duration);
        ring.open();
        ring.set_without_socket(true);
        let tcx_ring = at_ring(&mut ring, || run(ingress(&packet), frame, None, DIRECT_SLOTS).duration);
        ring.set_without_socket(false);
        let twice = doubled(frame);
        let filter_ring = at_ring(&mut ring, || run(filter(&packet), &twice, None, DIRECT_SLOTS).duration);
        ring.close();
        println!("{name:32} {table:8} {at_xdp:6} {at_filter:8} {at_tcx:12} {tcx_ring:10} {filter_ring:12}");
    }
    fail_open(&corpus, *cpus.last().unwrap_or(&0))?;
    reflexes(&corpus)?;
    connections(&corpus)
}

/// Measures the cost of connections: medians of the differences of each program, without them and with a claim on the
/// connections to port 7, measured in turns.
fn connections(corpus: &Corpus) -> Result<(), Box<dyn Error>> {
    let flows = Arc::new(TcpFlows::load(1)?);
    let features = Features { connections: Some(&flows), ..Features::default() };
    let mut pair = [
        Steering::load(Path::Packet)?,
        Steering::load_with(Path::Packet, 1, twinpath_time::Duration::ZERO, features)?,
    ];
    for steering in &mut pair {
        steering.apply(&corpus.tables["connections"])?;
    }
    let worker = flows.claims(0)?;
    println!("\nconnections: ns more per frame {:>9} {:>12}", "filter", "tcx");
    for name in
        ["tcp_syn_unclaimed_port", "ipv4_udp_claimed", "connections_ack_unknown", "connections_known_data"]
    {
        let case = corpus.cases.iter().find(|case| case.name == name).ok_or("no such case")?;
        if let Some(known) = case.context.known {
            worker.insert(known.flow.destination, known.flow.source)?;
        }
        let twice = [&case.frame[..14], &case.frame].concat();
        let more = |measure: &dyn Fn(&Steering) -> Duration| {
            let ns = |steering| measure(steering).as_nanos() as i128;
            median_of(|| ns(&pair[1]) - ns(&pair[0]))
        };
        let at_filter = more(&|steering| run(filter(steering), &twice, None, REPEAT).duration);
        let arp = corpus.cases.iter().find(|case| case.name == "arp_broadcast").ok_or("no such case")?;
        for steering in &pair {
            run(filter(steering), &[&arp.frame[..14], &arp.frame].concat(), None, 1);
        }
        let at_tcx = more(&|steering| run(ingress(steering), &case.frame, None, REPEAT).duration);
        println!("{name:30} {at_filter:9} {at_tcx:12}");
    }
    Ok(())
}

/// Measures the cost of reflexes for frames without a reply: medians of the differences of each program, without
/// reflexes and with them, measured in turns. On the XDP path, the program at tc is only there for reflexes, so it
/// is compared with an empty one.
fn reflexes(corpus: &Corpus) -> Result<(), Box<dyn Error>> {
    let plan = ReflexPlan { partial_checksums: true, rate: 10_000_000, tries_worker: false };
    let fail_open = Duration::from_secs(3600);
    let plain = &corpus.tables["basic"];
    let load = |path| {
        let mut pair = [
            Steering::load_for(path, 1, fail_open)?,
            Steering::load_with_reflexes(path, 1, fail_open, &plan, None)?,
        ];
        pair[0].apply(plain)?;
        pair[1].apply(&mirrored(plain)?)?;
        Ok::<_, Box<dyn Error>>(pair)
    };
    let (packet, mut redirect) = (load(Path::Packet)?, load(Path::Xdp)?);
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    for steering in &mut redirect {
        steering.set_queue(0, socket.as_fd())?;
    }
    println!(
        "\nreflexes: ns more per frame {:>12} {:>12} {:>12} {:>12}",
        "filter", "tcx", "XDP", "tcx with XDP"
    );
    let frame_of = |name: &str| {
        let case = corpus.cases.iter().find(|case| case.name == name).ok_or("no such case")?;
        Ok::<_, Box<dyn Error>>(case.frame.clone())
    };
    let doubled = |frame: &[u8]| [&frame[..14], frame].concat();
    let arp = doubled(&frame_of("arp_broadcast")?);
    for (name, _) in CASES.iter().filter(|(_, table)| *table == "basic") {
        let frame = frame_of(name)?;
        let more = |pair: &[Steering; 2], measure: &dyn Fn(&Steering) -> Duration| {
            let ns = |steering| measure(steering).as_nanos() as i128;
            median_of(|| ns(&pair[1]) - ns(&pair[0]))
        };
        let at_filter =
            more(&packet, &|steering| run(filter(steering), &doubled(&frame), None, REPEAT).duration);
        // Without a note of the frame, as the filter leaves none of a frame that it has not claimed.
        for steering in &packet {
            run(filter(steering), &arp, None, 1);
        }
        let at_tcx = more(&packet, &|steering| run(ingress(steering), &frame, None, REPEAT).duration);
        let at_xdp = more(&redirect, &|steering| run(xdp(steering), &frame, None, REPEAT).duration);
        let empty = program_costs(Path::Packet, Features::default(), plain, &[&frame])?;
        let empty =
            empty.first().and_then(|programs| programs.last()).ok_or("no program was measured")?.empty_ns;
        let behind = median_of(|| run(ingress(&redirect[1]), &frame, None, REPEAT).duration.as_nanos());
        println!("{name:27} {at_filter:12} {at_tcx:12} {at_xdp:12} {:12.0}", behind as f64 - empty);
    }
    Ok(())
}

/// The same claims, whose services mirror. No peer is known, so workers get what is claimed.
fn mirrored(table: &Table) -> Result<Table, Box<dyn Error>> {
    let mut mirrored = Table::new(table.mac(), table.frame_len_max())?;
    for address in table.addresses() {
        mirrored.add_address(*address)?;
    }
    for (place, claim) in table.claims().iter().enumerate() {
        let reflex = Some(Reflex { place: place as u8, answers: Answers::Mirrored, source_rate: 0 });
        mirrored.add_claim(Claim { reflex, ..claim.clone() })?;
    }
    Ok(mirrored)
}

/// Measures the cost per frame of the check for a stuck worker: medians of the differences of two programs,
/// measured in turns. The first frame of a burst sets the word of its queue; all others find it set.
fn fail_open(corpus: &Corpus, other_cpu: usize) -> Result<(), Box<dyn Error>> {
    let mut setups = [Way::filter(corpus)?, Way::direct_ring(corpus)?, Way::xdp(corpus)?];
    setups.iter_mut().for_each(|way| way.other_cpu = other_cpu);
    println!(
        "\nfail-open: ns more per frame {:>12} {:>12} {:>12}",
        setups[0].name, setups[1].name, setups[2].name
    );
    let frame_of = |name: &str| {
        let case = corpus.cases.iter().find(|case| case.name == name).ok_or("no such case")?;
        Ok::<_, Box<dyn Error>>(case.frame.clone())
    };
    let (claimed, kernel) = (frame_of("ipv4_udp_claimed")?, frame_of("tcp_ack")?);
    let mut line = |what: &str, measure: fn(&mut Way, &[u8]) -> i128, frame: &[u8]| {
        let [filter, ring, xdp] = setups.each_mut().map(|way| measure(way, frame));
        println!("{what:28} {filter:12} {ring:12} {xdp:12}");
    };
    line("claimed-frame-ns", Way::more, &claimed);
    line("claimed-first-ns", Way::more_for_first, &claimed);
    line("claimed-first-shared-ns", Way::more_for_first_shared, &claimed);
    line("kernel-frame-ns", Way::more, &kernel);
    Ok(())
}

/// A way for frames to reach their worker: the programs without the check for a stuck worker, and with it.
struct Way {
    name: &'static str,
    steerings: [Steering; 2],
    /// The direct rings of both programs, if frames take that way.
    rings: Option<[DirectRing; 2]>,
    /// The AF_XDP socket, on the XDP path.
    _socket: Option<OwnedFd>,
    words: Mapping,
    /// The worker's CPU.
    other_cpu: usize,
}

impl Way {
    fn new(name: &'static str, path: Path, corpus: &Corpus) -> Result<Self, Box<dyn Error>> {
        let mut steerings = [Steering::load(path)?, Steering::load_for(path, 1, Duration::from_secs(3600))?];
        for steering in &mut steerings {
            steering.apply(&corpus.tables["basic"])?;
        }
        let words = steerings[1].pending().ok_or("it has words")?;
        let words = Mapping::of_fd(words, QUEUES_MAX as usize * STRIDE, 0)?;
        Ok(Self { name, steerings, rings: None, _socket: None, words, other_cpu: 0 })
    }

    fn filter(corpus: &Corpus) -> Result<Self, Box<dyn Error>> {
        Self::new("filter", Path::Packet, corpus)
    }

    fn direct_ring(corpus: &Corpus) -> Result<Self, Box<dyn Error>> {
        let mut way = Self::new("direct ring", Path::Packet, corpus)?;
        let rings = way.steerings.each_ref().map(direct_ring);
        way.rings = Some(rings);
        Ok(way)
    }

    /// The program checks the worker only where the queue has a socket.
    fn xdp(corpus: &Corpus) -> Result<Self, Box<dyn Error>> {
        let mut way = Self::new("XDP", Path::Xdp, corpus)?;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        for steering in &mut way.steerings {
            steering.set_queue(0, socket.as_fd())?;
        }
        way._socket = Some(socket);
        Ok(way)
    }

    /// The word of the first queue.
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is longer than this, and aligned to a page; a 64-bit atomic takes any bits.
        unsafe { self.words.base().cast::<AtomicU64>().as_ref() }
    }

    /// Nanoseconds per frame over `repeat` frames, without the check (`which` is 0) or with it (1).
    fn duration(&mut self, which: usize, frame: &[u8], repeat: u32) -> i128 {
        let steering = &self.steerings[which];
        let run = match (&mut self.rings, self.name) {
            (Some(rings), _) => {
                let duration = run(ingress(steering), frame, None, repeat).duration;
                while rings[which].take(|_| ()).is_some() {}
                duration
            }
            (None, "XDP") => run(xdp(steering), frame, None, repeat).duration,
            (None, _) => run(filter(steering), &[&frame[..14], frame].concat(), None, repeat).duration,
        };
        run.as_nanos() as i128
    }

    fn difference(&mut self, passes: usize, repeat: u32, frame: &[u8], before: fn(&Self)) -> i128 {
        let mut differences: Vec<_> = (0..passes)
            .map(|_| {
                before(self);
                let without = self.duration(0, frame, repeat);
                before(self);
                self.duration(1, frame, repeat) - without
            })
            .collect();
        differences.sort_unstable();
        differences[passes / 2]
    }

    /// A frame that finds the word set, or is not claimed.
    fn more(&mut self, frame: &[u8]) -> i128 {
        let (passes, repeat) =
            if self.rings.is_some() { (RING_PASSES, DIRECT_SLOTS) } else { (PASSES, REPEAT) };
        self.difference(passes, repeat, frame, |_| ())
    }

    /// The frame that sets the word, in runs of one frame.
    fn more_for_first(&mut self, frame: &[u8]) -> i128 {
        self.difference(RING_PASSES, 1, frame, |way| way.word().store(0, Ordering::SeqCst))
    }

    /// The same after a thread on another CPU has cleared the word, as a worker does. Starting that thread cools the
    /// caches for both programs alike.
    fn more_for_first_shared(&mut self, frame: &[u8]) -> i128 {
        let set_back = |way: &Self| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // With a single CPU the figure is that of the line above.
                    let _ = affinity::pin_current_thread(way.other_cpu);
                    way.word().store(0, Ordering::SeqCst);
                });
            });
        };
        self.difference(PASSES_SHARED, 1, frame, set_back)
    }
}

fn median_of<T: Ord + Copy>(measure: impl Fn() -> T) -> T {
    let mut passes: Vec<_> = (0..PASSES).map(|_| measure()).collect();
    passes.sort_unstable();
    passes[PASSES / 2]
}

fn median(measure: impl Fn() -> Duration) -> u128 {
    median_of(|| measure().as_nanos())
}

/// Each pass fills the whole ring, which is emptied in between.
fn at_ring(ring: &mut DirectRing, fill: impl Fn() -> Duration) -> u128 {
    let mut passes: Vec<_> = (0..RING_PASSES)
        .map(|_| {
            let duration = fill().as_nanos();
            while ring.take(|_| ()).is_some() {}
            duration
        })
        .collect();
    passes.sort_unstable();
    passes[RING_PASSES / 2]
}
