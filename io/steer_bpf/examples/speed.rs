//! What a verdict costs: nanoseconds per frame of the programs as they run in production.
//!
//! `cargo run --release -p twinpath-steer-bpf --example speed`, as root. A test run's own cost, some 20 to 30 ns, is
//! in every figure: the last column is little else.

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::time::Duration;

use common::{filter, ingress, run, xdp};
use twinpath_steer::corpus;
use twinpath_steer_bpf::{Path, Steering};

const REPEAT: u32 = 1_000_000;
const PASSES: usize = 7;

/// Cases of the corpus whose cost is of interest.
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
    println!("{:32} {:8} {:>6} {:>8} {:>12}", "frame", "table", "XDP", "filter", "tcx, no note");
    // The production filter reads from the data's start, which in a test run is the IP header: the same work needs a
    // frame with a second Ethernet header in front.
    let doubled = |frame: &[u8]| [&frame[..14], frame].concat();
    for (name, table) in CASES {
        let frame = &case_of(name)?.frame;
        redirect.apply(&corpus.tables[table])?;
        packet.apply(&corpus.tables[table])?;
        let at_xdp = median(|| run(xdp(&redirect), frame, None, REPEAT).duration);
        let at_filter = median(|| run(filter(&packet), &doubled(frame), None, REPEAT).duration);
        // An unclaimed frame through the filter clears the note.
        run(filter(&packet), &doubled(&case_of("arp_broadcast")?.frame), None, 1);
        let at_tcx = median(|| run(ingress(&packet), frame, None, REPEAT).duration);
        println!("{name:32} {table:8} {at_xdp:6} {at_filter:8} {at_tcx:12}");
    }
    Ok(())
}

fn median(measure: impl Fn() -> Duration) -> u128 {
    let mut passes: Vec<_> = (0..PASSES).map(|_| measure().as_nanos()).collect();
    passes.sort_unstable();
    passes[PASSES / 2]
}
