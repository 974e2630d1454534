//! Measures what a verdict costs: nanoseconds per frame of the programs as they run in production.
//!
//! `cargo run --release -p twinpath-steer-bpf --example speed`, as root. A test run's own cost, some 20 to 30 ns, is
//! in every figure: the column `tcx, no note` is little else. `direct ring` is the program at tc ingress while it
//! fills the worker's direct ring. A second table shows the cost of checking whether the worker is stuck.

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::time::Duration;

use common::{direct_ring, filter, ingress, run, xdp};
use twinpath_rings::direct::DirectRing;
use twinpath_steer::corpus::{self, Corpus};
use twinpath_steer_bpf::{DIRECT_SLOTS, Path, Steering};

const REPEAT: u32 = 1_000_000;
const PASSES: usize = 7;
/// Passes over the direct ring. A pass can be no longer than the ring.
const RING_PASSES: usize = 2001;

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
    let corpus = corpus::all()?;
    let case_of = |name: &str| corpus.cases.iter().find(|case| case.name == name).ok_or("no such case");
    let mut redirect = Steering::load(Path::Xdp)?;
    let mut packet = Steering::load(Path::Packet)?;
    let mut ring = direct_ring(&packet);
    println!(
        "{:32} {:8} {:>6} {:>8} {:>12} {:>11}",
        "frame", "table", "XDP", "filter", "tcx, no note", "direct ring"
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
        ring.set_on(true);
        let at_ring = at_ring(&packet, &mut ring, frame);
        ring.set_on(false);
        println!("{name:32} {table:8} {at_xdp:6} {at_filter:8} {at_tcx:12} {at_ring:11}");
    }
    fail_open(&corpus)
}

/// Measures what the check for a stuck worker costs a frame on the packet path: medians of the differences of both
/// programs, measured in turns. The word of the queue is set, as it is for all frames of a burst but the first.
fn fail_open(corpus: &Corpus) -> Result<(), Box<dyn Error>> {
    let mut without = Steering::load(Path::Packet)?;
    let mut with = Steering::load_to_fail_open(Path::Packet, Duration::from_secs(3600))?;
    for steering in [&mut without, &mut with] {
        steering.apply(&corpus.tables["basic"])?;
    }
    let mut rings = [direct_ring(&without), direct_ring(&with)];
    rings.iter().for_each(|ring| ring.set_on(true));
    println!("\nfail-open: ns more per frame at the filter, and with the direct ring");
    for (what, name) in [("claimed-frame-ns", "ipv4_udp_claimed"), ("kernel-frame-ns", "tcp_ack")] {
        let frame = &corpus.cases.iter().find(|case| case.name == name).ok_or("no such case")?.frame;
        let doubled = [&frame[..14], frame].concat();
        // While the ring is on, the filter passes every frame.
        rings.iter().for_each(|ring| ring.set_on(false));
        let at_filter = |steering| run(filter(steering), &doubled, None, REPEAT).duration.as_nanos() as i128;
        let more_at_filter = median_of(|| at_filter(&with) - at_filter(&without));
        rings.iter().for_each(|ring| ring.set_on(true));
        let more_at_ring =
            at_ring(&with, &mut rings[1], frame) as i128 - at_ring(&without, &mut rings[0], frame) as i128;
        println!("{what:32} {more_at_filter:6} {more_at_ring:6}");
    }
    Ok(())
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
fn at_ring(steering: &Steering, ring: &mut DirectRing, frame: &[u8]) -> u128 {
    let mut passes: Vec<_> = (0..RING_PASSES)
        .map(|_| {
            let duration = run(ingress(steering), frame, None, DIRECT_SLOTS).duration.as_nanos();
            while ring.take(|_| ()).is_some() {}
            duration
        })
        .collect();
    passes.sort_unstable();
    passes[RING_PASSES / 2]
}
