//! What a switch does for a frame: looks an address up, and judges a frame between known stations.

use std::hint::black_box;
use std::sync::Arc;

use twinpath_forwarding::learning::{
    AGEING, Arrival, PortConfig, Runs, Shared, Snapshot, Switch, SwitchConfig,
};
use twinpath_time::Instant;
use twinpath_wire::Mac;

/// Stations of the switch, on as many ports as fit.
const STATIONS: u32 = 4096;
const PORTS: u16 = 16;

/// Addresses that are looked up together, and frames that are judged together.
const BURST: usize = 50;

const NOW: Instant = Instant::from_nanos(1 << 40);

/// Addresses without an order, as those of many makers' cards.
pub(crate) fn mac(station: u32) -> Mac {
    let [a, b, c, d] = station.wrapping_mul(0x9e37_79b1).to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

fn arrival(from: u32, to: u32) -> Arrival {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&mac(to).0);
    frame[6..12].copy_from_slice(&mac(from).0);
    frame[12] = 8;
    Arrival::read((from % u32::from(PORTS)) as u16, &frame, None, 1)
}

/// A switch that has learned all stations.
pub(crate) fn switch() -> Switch {
    let ports = (0..PORTS).map(PortConfig::new).collect();
    let snapshot = Snapshot::compile(SwitchConfig { ports, ..SwitchConfig::default() }).expect("valid");
    let mut switch = Switch::new(
        Arc::new(snapshot),
        Arc::new(Shared::new(STATIONS, [1, 2]).expect("memory")),
        Arc::default(),
    );
    for station in 0..STATIONS {
        let judgement = switch.judge(NOW, &arrival(station, station + 1));
        assert_eq!(judgement.dropped, None, "the next station is on another port");
    }
    switch
}

/// Looks this many addresses up, in bursts.
pub(crate) fn look_up(count: u64) {
    let switch = switch();
    let macs: Vec<_> = (0..BURST as u32).map(|station| mac(station * 63)).collect();
    let mut found = 0;
    for _ in 0..count / BURST as u64 {
        let table = &switch.shared().table;
        table.ports_of(black_box(&macs), 0, NOW, AGEING, |port| found += u64::from(port.is_some()));
    }
    assert_eq!(found, count, "every station is known");
}

/// Judges this many frames, in bursts.
pub(crate) fn judge(count: u64) {
    let mut switch = switch();
    let arrivals: Vec<_> = (0..BURST as u32).map(|station| arrival(station * 63, station * 63 + 1)).collect();
    let (mut forwarded, mut runs) = (0, Runs::default());
    for _ in 0..count / BURST as u64 {
        runs.clear();
        black_box(&arrivals).iter().for_each(|arrival| runs.push(*arrival).expect("room"));
        switch.judge_each(NOW, &mut runs, |numbers, _, judgement| {
            forwarded += numbers.len() as u64 * judgement.outputs.count() as u64
        });
    }
    assert_eq!(forwarded, count, "every frame has one output");
}
