//! What is said of frames between learned addresses, compared with what becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use twinpath_time::Duration;

use super::*;
use crate::learning::config::{Mode, PortConfig, StaticEntry, SwitchConfig};
use crate::learning::outputs::{Judgement, Output};
use crate::learning::shared::OnMove;
use crate::learning::switch::Switch;

const PORTS: u16 = 4;
const STATIC: Mac = Mac([2, 0, 0, 0, 0, 7]);

#[derive(Debug, Default)]
struct Moves(AtomicU64);

impl OnMove for Moves {
    fn moved(&self, _: Mac, _: u16, _: u16) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn config(random: &mut Rng) -> SwitchConfig {
    let vlans = random.bool();
    let mut port = |number| {
        let vlans_of = |random: &mut Rng| (1..4_u16).filter(|_| random.bool()).collect();
        let mode = match random.u8(..5) {
            0 => Mode::Trunk { native: Some(random.u16(1..4)), vlans: vlans_of(random) },
            1 => Mode::Trunk { native: None, vlans: (1..4).collect() },
            _ => Mode::Access { vlan: random.u16(1..3) },
        };
        let mirror = |random: &mut Rng| (random.u8(..8) == 0).then_some((number + 1) % PORTS);
        let mac_limit = (random.u8(..4) == 0).then_some(1);
        let (mirror_ingress, mirror_egress) = (mirror(random), mirror(random));
        PortConfig { mode, mac_limit, mirror_ingress, mirror_egress, ..PortConfig::new(number) }
    };
    let ports: Vec<_> = (0..PORTS).map(&mut port).collect();
    let entry = StaticEntry { mac: STATIC, vlan: 0, port: 2 };
    let static_entries = if vlans { Vec::new() } else { vec![entry] };
    let ageing = Duration::from_secs(random.u64(10..40));
    SwitchConfig { vlans, ports, static_entries, ageing, loop_guard: None }
}

/// A frame between a few addresses, with a tag or without.
fn frame(random: &mut Rng) -> (Vec<u8>, Option<u16>, u16) {
    let mut bytes = Vec::new();
    for _ in 0..2 {
        bytes.extend([2, 0, 0, 0, 0, random.u8(4..9)]);
    }
    if random.u8(..16) == 0 {
        bytes[0] |= 1;
    }
    let tag = random.u16(..5) | u16::from(random.bool()) << 13;
    let beside = (random.u8(..3) == 0).then_some(tag);
    if beside.is_none() && random.u8(..3) == 0 {
        bytes.extend([0x81, 0, (tag >> 8) as u8, tag as u8]);
    }
    bytes.extend([0x88, 0xb5, 0, 0, 0, 0]);
    (bytes, beside, random.u16(..PORTS))
}

fn outputs(judgement: Judgement<'_>) -> Result<Vec<Output>, twinpath_inspect::Reason> {
    judgement.dropped.map_or_else(|| Ok(judgement.outputs.collect()), Err)
}

/// How many frames something was said of.
fn run(seed: u64) -> u32 {
    let mut random = Rng::with_seed(seed);
    let snapshot = Arc::new(Snapshot::compile(config(&mut random)).expect("right"));
    let moves = Arc::<Moves>::default();
    let shared = Shared::new(0, [1, 2]).expect("memory").heard_by(Arc::clone(&moves) as Arc<dyn OnMove>);
    shared.adopt(None, &snapshot).expect("places");
    let shared = Arc::new(shared);
    let mut switch = Switch::new(Arc::clone(&snapshot), Arc::clone(&shared), Arc::default());
    let (mut now, mut said) = (Instant::from_nanos(1 << 40), 0);
    for _ in 0..400 {
        now += Duration::from_millis(if random.u8(..20) == 0 { 8_000 } else { random.u64(..500) });
        let (bytes, beside, port) = frame(&mut random);
        let arrival = Arrival::read(port, &bytes, beside, 1);
        let way = snapshot
            .stations(&arrival)
            .and_then(|stations| Some((stations, shared.way(&snapshot, now, &arrival, &stations)?)));
        let counts = |switch: &Switch| {
            let counters = switch.counters();
            [&counters.learned, &counters.moved, &counters.flooded_unknown]
                .map(twinpath_inspect::Counter::get)
        };
        let before = counts(&switch);
        let judged = outputs(switch.judge(now, &arrival));
        let Some((stations, Way { port: to, until })) = way else { continue };
        said += 1;
        assert_eq!(judged, Ok(vec![Output { port: to, tagging: Tagging::Keep, mirrored: false }]), "{seed}");
        assert_eq!(counts(&switch), before, "nothing is learned from it");
        let destination = (stations.destination, stations.vlan);
        assert_eq!(shared.known_until(&snapshot, destination, to, now), Some(until));
        if until == Instant::NEVER {
            assert_eq!(stations.destination, STATIC);
            continue;
        }
        assert!(until > now && until.since(now) <= snapshot.ageing() * 2);
        let last = Instant::from_nanos(until.as_nanos() - 1);
        let judged_at = |time, switch: &mut Switch| outputs(switch.judge(time, &arrival));
        if random.u8(..8) == 0 {
            assert_eq!(judged_at(last, &mut switch), judged, "it is known until then");
            assert_eq!(shared.known_until(&snapshot, destination, to, last), Some(until));
            assert_eq!(shared.known_until(&snapshot, destination, to, until), None, "and no longer");
            assert_eq!(shared.way(&snapshot, until, &arrival, &stations), None);
            now = until;
        }
    }
    assert!(
        moves.0.load(Ordering::Relaxed) >= switch.counters().moved.get(),
        "others were too old to have moved"
    );
    said
}

#[test]
fn what_is_said_of_frames_between_known_addresses_becomes_of_them() {
    let said: u32 = (0..200).map(run).sum();
    assert!(said > 2_000, "{said}");
}

#[test]
fn frames_that_no_worker_sees_keep_their_source_known() {
    let ports = vec![PortConfig::new(1), PortConfig::new(2)];
    let ageing = Duration::from_secs(60);
    let snapshot =
        Arc::new(Snapshot::compile(SwitchConfig { ports, ageing, ..SwitchConfig::default() }).unwrap());
    let shared = Arc::new(Shared::new(0, [1, 2]).expect("memory"));
    let mut switch = Switch::new(Arc::clone(&snapshot), Arc::clone(&shared), Arc::default());
    let at = |seconds: u64| Instant::from_nanos(1 << 40) + Duration::from_secs(seconds);
    let mut bytes = [2; 60];
    bytes[11] = 9;
    let station = (Mac([2, 2, 2, 2, 2, 9]), 0);
    let first = Arrival::read(1, &bytes, None, 1);
    let _ = switch.judge(at(0), &first);
    assert!(!shared.heard(&snapshot, station, 2, at(1), at(1)), "it is on port 1");
    for seconds in (30..600).step_by(30) {
        assert!(shared.heard(&snapshot, station, 1, at(seconds), at(seconds + 5)), "after {seconds} s");
    }
    let until = shared.known_until(&snapshot, station, 1, at(600)).expect("known");
    assert!(until > at(570 + 60) && until < at(570 + 70), "its last frame came at 570 s");
    // A report of an older frame takes nothing back.
    assert!(shared.heard(&snapshot, station, 1, at(500), at(600)));
    assert_eq!(shared.known_until(&snapshot, station, 1, at(600)), Some(until));
    assert!(!shared.heard(&snapshot, station, 1, at(800), at(800)), "that was too late");
    // It has moved: what comes late of its former port changes nothing.
    let _ = switch.judge(at(801), &Arrival::read(2, &bytes, None, 1));
    assert!(!shared.heard(&snapshot, station, 1, at(802), at(802)));
    assert!(shared.heard(&snapshot, station, 2, at(802), at(802)));
}
