//! Look-ups and judged frames per second, by the number of known addresses:
//! `cargo run --release -p twinpath-forwarding --example l2_lookup`.
//!
//! One thread, addresses in no particular order, and tables that no other thread uses. The figures are medians of
//! several rounds; the sizes alternate within each.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use twinpath_forwarding::learning::{
    AGEING, Arrival, MacTable, PortConfig, Runs, Shared, Snapshot, Switch, SwitchConfig,
};
use twinpath_time::Instant;
use twinpath_wire::Mac;

const SIZES: [u32; 4] = [1_000, 32_000, 1_000_000, 2_000_000];
const PORTS: u16 = 64;
const ROUNDS: usize = 9;
/// Look-ups per size and round.
const LOOKUPS: usize = 2_000_000;
/// Addresses or frames per burst.
const BURST: usize = 64;
const NOW: Instant = Instant::from_nanos(1 << 40);
/// The station that most frames of the row with one sender come from.
const SENDER: u32 = 0;

/// The address of a station: all different, without an order.
fn mac(station: u32) -> Mac {
    let [a, b, c, d] = station.wrapping_mul(0x9e37_79b1).to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

fn port(station: u32) -> u16 {
    (station % u32::from(PORTS)) as u16
}

fn arrival(from: u32, to: u32) -> Arrival {
    let mut head = [0; 14];
    head[..6].copy_from_slice(&mac(to).0);
    head[6..12].copy_from_slice(&mac(from).0);
    Arrival::read(port(from), &head, None, 1)
}

/// A switch that knows this number of stations, and work for it.
struct Case {
    stations: u32,
    switch: Switch,
    macs: Vec<Mac>,
    /// Between any two stations.
    frames: Vec<Arrival>,
    /// From one station to any.
    frames_of_one: Vec<Arrival>,
}

impl Case {
    fn new(stations: u32, random: &mut fastrand::Rng) -> Self {
        let ports = (0..PORTS).map(PortConfig::new).collect();
        let snapshot = Snapshot::compile(SwitchConfig { ports, ..SwitchConfig::default() }).expect("valid");
        let shared = Shared::new(stations, [random.u64(..), random.u64(..)]).expect("memory");
        let mut switch = Switch::new(Arc::new(snapshot), Arc::new(shared), Arc::default());
        for station in 0..stations {
            black_box(switch.judge(NOW, &arrival(station, SENDER)).dropped);
        }
        let mut any = || random.u32(..stations);
        let macs = (0..LOOKUPS).map(|_| mac(any())).collect();
        let frames = (0..LOOKUPS).map(|_| arrival(any(), any())).collect();
        let frames_of_one = (0..LOOKUPS).map(|_| arrival(SENDER, any())).collect();
        Self { stations, switch, macs, frames, frames_of_one }
    }

    /// Million per second: look-ups one by one, look-ups in bursts, judged frames, judged frames of one sender.
    fn measure(&mut self) -> [f64; 4] {
        let table = &self.switch.shared().table;
        let look_up = |burst| {
            per_second(self.macs.len(), || self.macs.chunks(burst).map(|macs| found(table, macs)).sum())
        };
        [
            look_up(1),
            look_up(BURST),
            Self::judge(&mut self.switch, &self.frames),
            Self::judge(&mut self.switch, &self.frames_of_one),
        ]
    }

    fn judge(switch: &mut Switch, frames: &[Arrival]) -> f64 {
        per_second(frames.len(), || {
            let (mut sent, mut runs) = (0, Runs::default());
            for burst in frames.chunks(BURST) {
                runs.clear();
                burst.iter().for_each(|frame| runs.push(*frame).expect("room"));
                switch.judge_each(NOW, &mut runs, |numbers, _, judgement| {
                    sent += numbers.len() as u64 * u64::from(judgement.dropped.is_none());
                });
            }
            sent
        })
    }
}

/// How many of these addresses are known.
fn found(table: &MacTable, macs: &[Mac]) -> u64 {
    let mut found = 0;
    table.ports_of(macs, 0, NOW, AGEING, |port| found += u64::from(port.is_some()));
    found
}

/// Million per second.
fn per_second(count: usize, work: impl FnOnce() -> u64) -> f64 {
    let start = Clock::now();
    black_box(work());
    count as f64 / start.elapsed().max(Duration::from_nanos(1)).as_secs_f64() / 1e6
}

/// What the kernel has put on huge pages, from `/proc/self/smaps_rollup`.
fn huge_mib() -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn main() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut cases: Vec<Case> = SIZES.iter().map(|size| Case::new(*size, &mut random)).collect();
    let mut figures = vec![[const { Vec::new() }; 4]; SIZES.len()];
    for _ in 0..ROUNDS {
        for (case, figures) in cases.iter_mut().zip(&mut figures) {
            case.measure().into_iter().zip(figures).for_each(|(figure, of_row)| of_row.push(figure));
        }
    }
    println!("million per second, median (least, most) of {ROUNDS} rounds of {LOOKUPS}; {PORTS} ports");
    println!(
        "{:>10}{:>10}{:>26}{:>26}{:>26}{:>26}",
        "addresses",
        "MiB",
        "look-ups, one by one",
        "look-ups, bursts of 64",
        "frames, bursts of 64",
        "frames of one sender"
    );
    for (case, mut figures) in cases.iter().zip(figures) {
        let mib = case.switch.shared().table.memory_bytes() >> 20;
        print!("{:>10}{mib:>10}", case.stations);
        for row in &mut figures {
            row.sort_by(f64::total_cmp);
            let text = format!("{:.1} ({:.1}, {:.1})", row[row.len() / 2], row[0], row[row.len() - 1]);
            print!("{text:>26}");
        }
        println!();
    }
    println!("{} MiB of this process are on huge pages", huge_mib());
    println!("a judged frame is two look-ups: its source is learned, and its destination found");
}
