//! Fuzzes the switch: what becomes of frames is the same as with a naive switch, whatever comes in between, and the MAC table
//! is the same as a map.

mod kernel;
mod naive;

use std::collections::HashMap;
use std::sync::Arc;

use twinpath_forwarding::learning::{
    AGEING, Arrival, FRAMES_MAX, LoopGuard, Mode, Output, PortConfig, Probe, Runs, Shared, Snapshot,
    StaticEntry, StormLimits, Switch, SwitchConfig, Tagging,
};
use twinpath_inspect::Reason;
use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use self::naive::{Frame, Naive};
use crate::fuzz;

const SEED: [u64; 2] = [3, 4];
const START: Instant = Instant::from_nanos(1 << 45);

/// Station 0 has the address zero, station 1 that of a group; no frame comes from either.
fn station(number: u8) -> Mac {
    match number % 10 {
        0 => Mac([0; 6]),
        1 => Mac([3, 0, 0, 0, 0, 1]),
        number => Mac([2, number, 0, 0, 0, number]),
    }
}

fn destination(number: u8) -> Mac {
    match number % 14 {
        10 => Mac::BROADCAST,
        11 => Mac([1, 0, 0x5e, 0, 0, 1]),
        12 => Mac([1, 0x80, 0xc2, 0, 0, number % 16]),
        13 => Mac([1, 0x80, 0xc2, 0, 0, 0x10]),
        other => station(other),
    }
}

fn access(number: u16, vlan: u16) -> PortConfig {
    PortConfig { mode: Mode::Access { vlan }, ..PortConfig::new(number) }
}

fn trunk(number: u16, native: Option<u16>, vlans: &[u16]) -> PortConfig {
    PortConfig {
        mode: Mode::Trunk { native, vlans: vlans.iter().copied().collect() },
        ..PortConfig::new(number)
    }
}

/// Configurations that a switch changes between. Whether limits of addresses are among them is `limited`: their result
/// depends on when places are freed.
fn configs(limited: bool) -> Vec<SwitchConfig> {
    let storm = StormLimits { broadcast_per_s: Some(3), unknown_per_s: Some(50), multicast_per_s: Some(0) };
    let limit = |most| limited.then_some(most);
    let base = SwitchConfig {
        vlans: true,
        ports: vec![
            PortConfig { mac_limit: limit(2), mirror_ingress: Some(6), ..access(0, 10) },
            access(1, 10),
            PortConfig { storm, ..access(2, 20) },
            PortConfig { flood: false, mirror_egress: Some(6), ..trunk(3, Some(20), &[10, 30]) },
            PortConfig { mac_limit: limit(0), ..trunk(4, None, &[10, 20, 30, 4094]) },
            PortConfig { mode: Mode::Monitor, ..PortConfig::new(6) },
        ],
        static_entries: vec![StaticEntry { mac: station(9), vlan: 10, port: 1 }],
        ageing: Duration::from_secs(40),
        loop_guard: Some(LoopGuard { moves_per_s: 2, block: Duration::from_secs(3) }),
    };
    let mut fewer = base.clone();
    fewer.ports.retain(|port| port.number != 1);
    fewer.ports[0].mode = Mode::Access { vlan: 30 };
    fewer.static_entries = vec![StaticEntry { mac: station(8), vlan: 30, port: 0 }];
    let plain = SwitchConfig { vlans: false, static_entries: Vec::new(), loop_guard: None, ..base.clone() };
    vec![base, fewer, plain]
}

/// The frame that five bytes describe.
fn frame([port, source, to, tags, kind]: [u8; 5]) -> Frame {
    const VLANS: [u16; 8] = [0, 10, 20, 30, 40, 4094, 4095, 0];
    let tag = |bits: u8| VLANS[usize::from(bits % 8)] | u16::from(bits & 0x30) << 9;
    let tags = match kind % 4 {
        0 | 1 => Vec::new(),
        2 => vec![tag(tags)],
        _ => vec![tag(tags), tag(tags >> 3)],
    };
    Frame {
        port: u16::from(port % 8),
        destination: destination(to),
        source: station(source),
        beside: kind & 4 != 0,
        tags,
        packets: 1 + u32::from(kind >> 5),
        cut: (kind & 0x18 == 0x18).then_some(usize::from(to) % 19),
    }
}

/// What leaves by a port: the port, the tags, and whether it is a mirror's copy.
type Sent = (u16, Vec<u16>, bool);

/// The frame's tags as an output has them.
fn sent(frame: &Frame, output: Output) -> Sent {
    let mut tags = frame.tags.clone();
    match output.tagging {
        Tagging::Keep => {}
        Tagging::Strip => drop(tags.remove(0)),
        Tagging::Put(tag) if tags.is_empty() => tags.push(tag),
        Tagging::Put(tag) => tags[0] = tag,
    }
    (output.port, tags, output.mirrored)
}

/// Both switches, and the frames that wait to be judged together.
struct Pair {
    now: Instant,
    configs: Vec<SwitchConfig>,
    switch: Switch,
    naive: Naive,
    waiting: Vec<Frame>,
    /// What the switch has asked last: ports, and the source of what was sent through each.
    probes: Vec<(u16, Mac)>,
    limited: bool,
}

impl Pair {
    fn new(limited: bool) -> Self {
        Self::of(configs(limited), limited, Shared::new(0, SEED).expect("memory"))
    }

    fn of(configs: Vec<SwitchConfig>, limited: bool, shared: Shared) -> Self {
        let snapshot = Snapshot::compile(configs[0].clone()).expect("valid");
        shared.adopt(None, &snapshot).expect("places");
        let switch = Switch::new(Arc::new(snapshot), Arc::new(shared), Arc::default());
        let naive = Naive::new(configs[0].clone());
        Self { now: START, configs, switch, naive, waiting: Vec::new(), probes: Vec::new(), limited }
    }

    /// Both judge the frames that wait.
    fn judge(&mut self) {
        let read = |frame: &Frame| {
            let (bytes, beside) = frame.bytes();
            Arrival::read(frame.port, &bytes, beside, frame.packets)
        };
        let arrivals: Vec<_> = self.waiting.iter().map(read).collect();
        let mut judged: Vec<(Option<Reason>, Vec<Sent>)> = Vec::new();
        for (burst, arrivals) in arrivals.chunks(FRAMES_MAX).enumerate() {
            let mut runs = Runs::default();
            arrivals.iter().for_each(|arrival| runs.push(*arrival).expect("room"));
            let before = burst * FRAMES_MAX;
            self.switch.judge_each(self.now, &mut runs, |numbers, _, judgement| {
                for number in numbers {
                    let number = before + number;
                    assert_eq!(number, judged.len(), "in order");
                    let outputs: Vec<_> = judgement.outputs.clone().collect();
                    let only = judgement.outputs.only().map(|port| vec![port]);
                    let as_it_came = |output: &Output| output.tagging == Tagging::Keep && !output.mirrored;
                    let ports = || outputs.iter().map(|output| output.port).collect::<Vec<_>>();
                    assert!(only.is_none_or(|only| only == ports() && outputs.iter().all(as_it_came)));
                    let outputs = outputs.into_iter().map(|output| sent(&self.waiting[number], output));
                    judged.push((judgement.dropped, outputs.collect()));
                }
            });
        }
        for (frame, (dropped, mut outputs)) in self.waiting.drain(..).zip(judged) {
            let mut expected = self.naive.judge(self.now, &frame);
            expected.1.sort();
            outputs.sort();
            assert_eq!((dropped, outputs), expected, "{frame:?}");
        }
        let mut asked = Vec::new();
        while let Some(Probe { bytes, mut outputs }) = self.switch.take_probe() {
            let [_, _, _, _, _, _, source @ .., _, _] = bytes.first_chunk::<14>().expect("a header");
            asked.push((outputs.next().map(|output| output.port), Mac(*source)));
        }
        if !asked.is_empty() {
            // A port that is gone gets none.
            self.probes = asked.iter().filter_map(|(port, source)| Some(((*port)?, *source))).collect();
            let ports: Vec<u16> = self.probes.iter().map(|(port, _)| *port).collect();
            let is_suspected = |pair: &[u16; 2]| ports.iter().all(|port| pair.contains(port));
            assert!(self.naive.suspected.iter().any(is_suspected), "{ports:?}");
        }
    }

    /// A frame that the switch has sent comes in by some port.
    fn probe_comes(&mut self, argument: u8) {
        let Some((sent_by, source)) = self.probes.get(usize::from(argument >> 3 & 1)).copied() else {
            return;
        };
        let frame = Frame {
            port: u16::from(argument % 8),
            destination: Mac::BROADCAST,
            source,
            beside: false,
            tags: Vec::new(),
            packets: 1,
            cut: None,
        };
        let judgement = self.switch.judge(self.now, &Arrival::read(frame.port, &frame.bytes().0, None, 1));
        assert_eq!(judgement.dropped, Some(self.naive.probe(self.now, sent_by, &frame)));
    }

    /// Something other than a frame.
    fn change(&mut self, [what, argument]: [u8; 2]) {
        self.judge();
        let shared = Arc::clone(self.switch.shared());
        let every = 0..shared.table.parts();
        match what % 7 {
            0 => self.now += Duration::from_millis(u64::from(argument) * 10),
            1 => self.now += Duration::from_secs(u64::from(argument)),
            2 => {
                shared.table.flush_port(u16::from(argument % 8));
                self.naive.forget(|_, port| port == u16::from(argument % 8));
            }
            3 => {
                let ageing = self.switch.snapshot().ageing();
                shared.table.sweep(every.clone(), self.now, ageing, |entry| entry.vlan != 10);
                self.naive.forget(|(_, vlan), _| vlan == 10);
            }
            4 => {
                let vlan = [0, 10, 20, 30][usize::from(argument >> 4) % 4];
                shared.table.forget(station(argument), vlan);
                self.naive.forget(|key, _| key == (station(argument), vlan));
            }
            5 => self.probe_comes(argument),
            _ => {
                let new = self.configs[usize::from(argument) % 3].clone();
                let snapshot = Arc::new(Snapshot::compile(new.clone()).expect("valid"));
                let former = self.switch.replace(Arc::clone(&snapshot));
                shared.adopt(Some(&former), &snapshot).expect("places");
                self.naive.adopt(new);
            }
        }
        if self.limited {
            // Addresses that are too old count for a port's limit until their places are freed.
            shared.table.sweep(every, self.now, self.switch.snapshot().ageing(), |_| true);
        }
        self.naive.age(self.now);
    }
}

#[test]
fn frames() {
    fuzz!("switch__frames", |input: &[u8]| {
        let (first, mut rest) = input.split_first().unwrap_or((&0, &[]));
        let mut pair = Pair::new(first & 1 != 0);
        while let Some((kind, more)) = rest.split_first() {
            rest = more;
            if kind % 8 == 0 {
                let Some((change, more)) = rest.split_first_chunk() else { break };
                pair.change(*change);
                rest = more;
            } else {
                let Some((described, more)) = rest.split_first_chunk() else { break };
                pair.waiting.push(frame(*described));
                rest = more;
            }
        }
        pair.judge();
    });
}

/// Three bytes each: a frame from a station on a port, or another change. The stations are many more than of a bucket.
#[test]
fn table() {
    const PORTS: u16 = 5;
    let mac = |number: u8| Mac([2, 0, number, 0, number & 7, 0]);
    let ports = (0..PORTS).map(PortConfig::new).collect();
    let config = SwitchConfig { ports, loop_guard: None, ..SwitchConfig::default() };
    let snapshot = Arc::new(Snapshot::compile(config).expect("valid"));
    fuzz!("switch__table", |input: &[u8]| {
        let shared = Arc::new(Shared::new(0, SEED).expect("memory"));
        let mut switch = Switch::new(Arc::clone(&snapshot), Arc::clone(&shared), Arc::default());
        let mut model: HashMap<Mac, u16> = HashMap::new();
        for [kind, number, port] in input.as_chunks::<3>().0.iter().copied() {
            let port = u16::from(port) % PORTS;
            match kind % 16 {
                0 => {
                    shared.table.flush_port(port);
                    model.retain(|_, on| *on != port);
                }
                1 => {
                    shared.table.forget(mac(number), 0);
                    model.remove(&mac(number));
                }
                2 => {
                    shared.table.sweep(0..usize::MAX, START, AGEING, |entry| entry.mac.0[2] % 2 == 0);
                    model.retain(|mac, _| mac.0[2] % 2 == 0);
                }
                _ => {
                    let Mac(source) = mac(number);
                    let head = [[0xff; 6], source, [8, 0, 0, 0, 0, 0]].concat();
                    let judgement = switch.judge(START, &Arrival::read(port, &head, None, 1));
                    assert_eq!(judgement.dropped, None);
                    model.insert(mac(number), port);
                }
            }
        }
        let mut shown: HashMap<Mac, u16> = HashMap::new();
        shared.table.visit(0..shared.table.parts(), START, AGEING, |entry| {
            assert_eq!(shown.insert(entry.mac, entry.port), None, "once");
        });
        assert_eq!(shown, model);
        let macs: Vec<Mac> = (0..=u8::MAX).map(mac).collect();
        let mut found = Vec::new();
        shared.table.ports_of(&macs, 0, START, AGEING, |port| found.push(port));
        assert_eq!(found, macs.iter().map(|mac| model.get(mac).copied()).collect::<Vec<_>>());
        shared.table.sweep(0..usize::MAX, START, AGEING, |_| true);
        for port in 0..PORTS {
            let count = model.values().filter(|on| **on == port).count();
            assert_eq!(shared.table.learned_on(port) as usize, count);
        }
    });
}
