//! `plain l2-lookup`: looks addresses up in the MAC table of a switch, which nobody else uses meanwhile.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::ensure;
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_forwarding::learning::{AGEING, Arrival, PortConfig, Shared, Snapshot, Switch, SwitchConfig};
use twinpath_sys::{affinity, clock};
use twinpath_wire::Mac;

const PORTS: u16 = 64;
/// Addresses that the switch knows.
const ADDRESSES: u32 = 1_000_000;
/// Addresses that are looked up together, as a worker does with those of a burst.
const BURST: usize = 64;
/// Addresses that are looked up between two looks at the clock: many times what caches hold.
const LOOKUPS: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// The CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let duration = super::seconds(args.duration)?;
    if let Some(cpu) = args.cpu {
        affinity::pin_current_thread(cpu)?;
    }
    let mut random = fastrand::Rng::with_seed(7);
    let switch = switch(ADDRESSES, [random.u64(..), random.u64(..)])?;
    let table = &switch.shared().table;
    let macs: Vec<Mac> = (0..LOOKUPS).map(|_| mac(random.u32(..ADDRESSES))).collect();
    let begun = clock::now();
    let (mut looked_up, mut known) = (0, 0);
    let elapsed = loop {
        for macs in macs.chunks(BURST) {
            table.ports_of(black_box(macs), 0, begun, AGEING, |port| known += u64::from(port.is_some()));
        }
        looked_up += macs.len() as u64;
        let elapsed = clock::now().since(begun);
        if elapsed >= duration {
            break elapsed;
        }
    };
    // A table that is as full as it may be does not learn one address in 2,000.
    ensure!(known > looked_up / 100 * 99, "only {known} of {looked_up} addresses were known");
    Ok(print(json!({
        "lookups_per_s": looked_up as f64 / elapsed.as_secs_f64(),
        "table_mib": table.memory_bytes() as f64 / f64::from(1 << 20),
        "huge_mib": huge_mib(),
    }))?)
}

/// The address of a station: all different, without an order.
fn mac(station: u32) -> Mac {
    let [a, b, c, d] = station.wrapping_mul(0x9e37_79b1).to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

/// A switch that has learned so many stations.
fn switch(stations: u32, seed: [u64; 2]) -> anyhow::Result<Switch> {
    let ports = (0..PORTS).map(PortConfig::new).collect();
    let snapshot = Snapshot::compile(SwitchConfig { ports, ..SwitchConfig::default() })?;
    let shared = Shared::new(stations, seed)?;
    let mut switch = Switch::new(Arc::new(snapshot), Arc::new(shared), Arc::default());
    let now = clock::now();
    for station in 0..stations {
        let head = [[0xff; 6], mac(station).0].concat();
        let head = [&head, [8, 0].as_slice()].concat();
        black_box(
            switch.judge(now, &Arrival::read((station % u32::from(PORTS)) as u16, &head, None, 1)).dropped,
        );
    }
    Ok(switch)
}

/// MiB of the process that the kernel has put on huge pages.
fn huge_mib() -> f64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
