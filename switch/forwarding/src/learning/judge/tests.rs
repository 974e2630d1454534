//! What becomes of single frames.

use std::sync::Arc;

use twinpath_wire::Mac;

use super::*;
use crate::learning::config::{LoopGuard, Mode, PortConfig, StaticEntry, StormLimits, SwitchConfig};
use crate::learning::outputs::Tagging;
use crate::learning::switch::{Notice, Probe, Switch};

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const ALL: [u8; 6] = [0xff; 6];

fn at(ms: u64) -> Instant {
    Instant::from_nanos((1 << 40) + ms * 1_000_000)
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

fn switch_of(config: SwitchConfig) -> Switch {
    let snapshot = Snapshot::compile(config).expect("right");
    let shared = Shared::new(0, [1, 2]).expect("memory");
    shared.adopt(None, &snapshot).expect("places");
    Switch::new(Arc::new(snapshot), Arc::new(shared), Arc::default())
}

fn switch(vlans: bool, ports: Vec<PortConfig>) -> Switch {
    switch_of(SwitchConfig { vlans, ports, ..SwitchConfig::default() })
}

/// Two access ports of VLAN 10, one of VLAN 20, and a trunk with both, 20 being native.
fn with_vlans() -> Switch {
    switch(true, vec![access(1, 10), access(2, 10), access(3, 20), trunk(4, Some(20), &[10, 30])])
}

/// A frame with the tags that are given.
fn frame(destination: [u8; 6], source: [u8; 6], tags: &[u16]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|tag| [0x81, 0, (tag >> 8) as u8, *tag as u8]);
    destination.into_iter().chain(source).chain(tags).chain([0x08, 0, 1, 2, 3]).collect()
}

/// What becomes of a frame: its ports and what is done to the tag, or the reason to drop it.
fn judge_at(
    switch: &mut Switch,
    ms: u64,
    port: u16,
    bytes: &[u8],
    beside: Option<u16>,
) -> Result<Vec<(u16, Tagging)>, Reason> {
    let judgement = switch.judge(at(ms), &Arrival::read(port, bytes, beside, 1));
    let outputs = judgement.outputs.map(|output| (output.port, output.tagging)).collect();
    judgement.dropped.map_or(Ok(outputs), Err)
}

fn judge(switch: &mut Switch, port: u16, bytes: &[u8]) -> Result<Vec<(u16, Tagging)>, Reason> {
    judge_at(switch, 0, port, bytes, None)
}

#[test]
fn an_unknown_address_is_flooded_and_a_known_one_has_one_port() {
    let mut switch = switch(false, (1..=3).map(PortConfig::new).collect());
    let keep = |ports: &[u16]| Ok(ports.iter().map(|port| (*port, Tagging::Keep)).collect());
    assert_eq!(judge(&mut switch, 1, &frame(B, A, &[])), keep(&[2, 3]));
    assert_eq!(judge(&mut switch, 2, &frame(A, B, &[7])), keep(&[1]), "without VLANs a tag means nothing");
    assert_eq!(judge(&mut switch, 1, &frame(B, A, &[])), keep(&[2]));
    assert_eq!(judge(&mut switch, 1, &frame(ALL, A, &[])), keep(&[2, 3]));
    assert_eq!(judge(&mut switch, 2, &frame(B, A, &[])), Err(Reason::SamePort));
    assert_eq!(
        judge(&mut switch, 3, &frame(A, A, &[])),
        Err(Reason::SamePort),
        "learned before it is looked up"
    );
}

#[test]
fn frames_that_no_bridge_forwards_are_dropped_and_not_learned_from() {
    let mut switch = with_vlans();
    let bad = [
        (1, frame(ALL, A, &[])[..13].to_vec(), Reason::Truncated),
        (1, frame(ALL, A, &[10])[..17].to_vec(), Reason::Truncated),
        (9, frame(ALL, A, &[]), Reason::PortDown),
        (1, frame(B, ALL, &[]), Reason::MartianSource),
        (1, frame(B, [0; 6], &[]), Reason::MartianSource),
        (1, frame([1, 0x80, 0xc2, 0, 0, 1], A, &[]), Reason::ReservedAddress),
        (1, frame(B, A, &[10]), Reason::VlanTag),
        (4, frame(B, A, &[40]), Reason::VlanNotMember),
        (4, frame(B, A, &[4095]), Reason::VlanNotMember),
    ];
    for (port, bytes, reason) in bad {
        assert_eq!(judge(&mut switch, port, &bytes), Err(reason));
    }
    assert!((0..5).all(|port| switch.shared().table.learned_on(port) == 0));
}

#[test]
fn a_frame_to_a_reserved_address_is_dropped_and_says_where_its_sender_is() {
    let mut switch = switch(false, (1..=3).map(PortConfig::new).collect());
    for (port, low) in [(1, 0), (2, 2), (3, 0x0e), (1, 0x0f)] {
        let frame_to = frame([1, 0x80, 0xc2, 0, 0, low], A, &[]);
        assert_eq!(judge(&mut switch, port, &frame_to), Err(Reason::ReservedAddress), "{low}");
        let other = if port == 3 { 2 } else { 3 };
        assert_eq!(judge(&mut switch, other, &frame(A, B, &[])), Ok(vec![(port, Tagging::Keep)]), "{low}");
    }
}

#[test]
fn tags_are_put_on_and_taken_off_by_port() {
    let mut switch = with_vlans();
    let (keep, strip, put) = (Tagging::Keep, Tagging::Strip, Tagging::Put);
    assert_eq!(judge(&mut switch, 1, &frame(ALL, A, &[])), Ok(vec![(2, keep), (4, put(10))]));
    assert_eq!(judge(&mut switch, 3, &frame(ALL, A, &[])), Ok(vec![(4, keep)]));
    assert_eq!(judge(&mut switch, 4, &frame(ALL, B, &[10])), Ok(vec![(1, strip), (2, strip)]));
    assert_eq!(judge(&mut switch, 4, &frame(ALL, B, &[])), Ok(vec![(3, keep)]), "native");
    // A priority tag is no VLAN: it is taken off, or gets one.
    assert_eq!(judge(&mut switch, 1, &frame(ALL, A, &[0xe000])), Ok(vec![(2, strip), (4, put(0xe00a))]));
    // The outer tag decides, and the one beside the bytes is the outer one.
    assert_eq!(judge(&mut switch, 4, &frame(ALL, B, &[10, 20])), Ok(vec![(1, strip), (2, strip)]));
    let beside = judge_at(&mut switch, 0, 4, &frame(ALL, B, &[30]), Some(10));
    assert_eq!(beside, Ok(vec![(1, strip), (2, strip)]));
    assert_eq!(judge(&mut switch, 4, &frame(ALL, B, &[30])), Err(Reason::NoOutputPort));
}

#[test]
fn a_tag_behind_a_priority_tag_leads_into_no_vlan() {
    let mut switch = with_vlans();
    // Port 4 sends VLAN 20 without a tag: what is behind the priority tag would be the frame's VLAN at the next switch.
    for (port, tags) in [(1, [0, 30]), (3, [0xe000, 10]), (3, [0, 20]), (4, [0, 10]), (1, [0, 0])] {
        let [outer, inner] = tags;
        assert_eq!(judge(&mut switch, port, &frame(ALL, A, &tags)), Err(Reason::VlanTag), "{port} {tags:x?}");
        let beside = judge_at(&mut switch, 0, port, &frame(ALL, A, &[inner]), Some(outer));
        assert_eq!(beside, Err(Reason::VlanTag), "{port} {tags:x?}");
    }
    assert!((0..5).all(|port| switch.shared().table.learned_on(port) == 0));
}

#[test]
fn an_address_is_learned_by_vlan() {
    let mut switch = with_vlans();
    judge(&mut switch, 1, &frame(ALL, A, &[])).expect("flooded");
    assert_eq!(judge(&mut switch, 2, &frame(A, B, &[])), Ok(vec![(1, Tagging::Keep)]));
    assert_eq!(judge(&mut switch, 3, &frame(A, B, &[])), Ok(vec![(4, Tagging::Keep)]), "unknown in VLAN 20");
}

#[test]
fn limits_and_switches_of_a_port_hold() {
    let storm = StormLimits { broadcast_per_s: Some(20), ..StormLimits::default() };
    let one = PortConfig { storm, mac_limit: Some(1), ..PortConfig::new(1) };
    let three = PortConfig { flood: false, ..PortConfig::new(3) };
    let mut switch = switch(false, vec![one, PortConfig::new(2), three]);
    let passed = (0..100).filter(|_| judge(&mut switch, 1, &frame(ALL, A, &[])).is_ok()).count();
    assert_eq!(passed, 2, "a tenth of a second's");
    assert_eq!(judge(&mut switch, 1, &frame(ALL, A, &[])), Err(Reason::StormLimit));
    assert_eq!(judge(&mut switch, 1, &frame(B, B, &[])).map(|ports| ports.len()), Ok(1), "not flooded to 3");
    assert_eq!((switch.shared().table.learned_on(1), switch.counters().mac_limit.get()), (1, 1));
    assert_eq!((switch.take_notice(), switch.take_notice()), (Some(Notice::Sweep), None));
    assert_eq!(judge(&mut switch, 2, &frame(B, [2, 9, 9, 9, 9, 9], &[])).map(|ports| ports.len()), Ok(1));
}

#[test]
fn mirrors_get_what_comes_and_what_leaves_and_a_monitor_port_nothing_else() {
    let one = PortConfig { mirror_ingress: Some(9), ..access(1, 10) };
    let four = PortConfig { mirror_egress: Some(9), ..trunk(4, None, &[10]) };
    let monitor = PortConfig { mode: Mode::Monitor, ..PortConfig::new(9) };
    let mut switch = switch(true, vec![one, four, monitor]);
    let put = Tagging::Put(10);
    let judged = judge(&mut switch, 1, &frame(ALL, A, &[]));
    assert_eq!(judged, Ok(vec![(4, put), (9, put), (9, Tagging::Keep)]));
    assert_eq!(judge(&mut switch, 9, &frame(ALL, A, &[])), Err(Reason::VlanNotMember));
    let judgement = switch.judge(at(0), &Arrival::read(1, &frame(B, ALL, &[]), None, 1));
    assert_eq!(judgement.dropped, Some(Reason::MartianSource));
    assert_eq!(judgement.outputs.map(|output| output.port).collect::<Vec<_>>(), [9], "dropped, but seen");
}

#[test]
fn a_static_entry_neither_moves_nor_ages() {
    let entry = StaticEntry { mac: Mac(A), vlan: 0, port: 1 };
    let ports = (1..=3).map(PortConfig::new).collect();
    let mut switch =
        switch_of(SwitchConfig { ports, static_entries: vec![entry], ..SwitchConfig::default() });
    judge(&mut switch, 2, &frame(ALL, A, &[])).expect("flooded");
    for hours in [0, 1, 1000] {
        let judged = judge_at(&mut switch, hours * 3_600_000, 3, &frame(A, B, &[]), None);
        assert_eq!(judged, Ok(vec![(1, Tagging::Keep)]));
    }
}

#[test]
fn a_loop_is_cut_and_both_ports_are_named() {
    let guard = LoopGuard { moves_per_s: 50, block: twinpath_time::Duration::from_secs(5) };
    let ports = (1..=3).map(PortConfig::new).collect();
    let mut switch = switch_of(SwitchConfig { ports, loop_guard: Some(guard), ..SwitchConfig::default() });
    // Ports 2 and 3 are joined: what is flooded to one comes in by the other.
    let broadcast = frame(ALL, A, &[]);
    let mut waiting = std::collections::VecDeque::from([(1, broadcast.clone())]);
    let mut judged = 0;
    while let Some((port, bytes)) = waiting.pop_front().filter(|_| judged < 10_000) {
        judged += 1;
        let mut sent: Vec<_> = judge(&mut switch, port, &bytes).unwrap_or_default();
        let mut probes = Vec::new();
        while let Some(Probe { bytes, outputs }) = switch.take_probe() {
            probes.extend(outputs.map(|output| (output.port, bytes.to_vec())));
        }
        let sent = sent.drain(..).map(|(to, _)| (to, bytes.clone())).chain(probes);
        waiting.extend(
            sent.filter_map(|(to, bytes)| Some((if to == 2 { 3 } else { (to == 3).then_some(2)? }, bytes))),
        );
    }
    let Some(Notice::Loop(found)) = switch.take_notice() else { panic!("no loop found") };
    assert_eq!((found.blocked, found.other, found.until), (3, 2, at(5000)));
    assert_eq!(judge(&mut switch, 3, &broadcast), Err(Reason::Looped));
    assert_eq!(judge(&mut switch, 1, &broadcast), Ok(vec![(2, Tagging::Keep)]));
    assert_eq!(judge_at(&mut switch, 5000, 1, &broadcast, None).map(|ports| ports.len()), Ok(2));
}

#[test]
fn a_host_that_sends_with_addresses_of_others_blocks_no_port_but_its_own() {
    let ports = vec![access(1, 10), access(2, 1), trunk(4, None, &[10])];
    let mut switch = switch_of(SwitchConfig { vlans: true, ports, ..SwitchConfig::default() });
    // Three hosts behind the uplink, port 4, and one at port 1 that sends as if it were they.
    let hosts: Vec<_> = (1..=3).map(|host| [2, 0, 0, 0, 9, host]).collect();
    let mut probes = Vec::new();
    for ms in 0..1000 {
        for host in &hosts {
            judge_at(&mut switch, ms, 4, &frame(ALL, *host, &[10]), None).expect("flooded");
            judge_at(&mut switch, ms, 1, &frame(ALL, *host, &[]), None).expect("flooded");
        }
        while let Some(Probe { bytes, outputs }) = switch.take_probe() {
            probes.extend(outputs.map(|output| (ms, output.port, output.tagging, bytes)));
        }
    }
    assert_eq!(switch.take_notice(), None);
    assert_eq!(switch.shared().loops(at(1000)).count(), 0, "no port is blocked");
    let (untagged, tagged) = ((1, Tagging::Keep), (4, Tagging::Put(10)));
    let sent: Vec<_> = probes.iter().map(|(_, port, tagging, _)| (*port, *tagging)).collect();
    assert_eq!(sent, [untagged, tagged].repeat(sent.len() / 2));
    assert!((2..=8).contains(&sent.len()), "{} probes in a second", sent.len());
    // It sends back what was sent to it, and so is at both ends of a loop by itself.
    let (ms, _, _, bytes) = &probes[probes.len() - 2];
    assert_eq!(judge_at(&mut switch, *ms, 1, bytes, None), Err(Reason::Looped));
    let blocked: Vec<_> = switch.shared().loops(at(*ms)).map(|found| found.blocked).collect();
    assert_eq!(blocked, [1]);
}

/// The ports that an output of OpenFlow leads to.
fn ports_of(judgement: Judgement<'_>) -> Result<Vec<u16>, Reason> {
    let ports = judgement.outputs.map(|output| output.port).collect();
    judgement.dropped.map_or(Ok(ports), Err)
}

#[test]
fn openflow_floods_what_is_known_or_reserved_and_learns_nothing() {
    let mut switch = with_vlans();
    assert_eq!(judge(&mut switch, 2, &frame(ALL, B, &[])).map(|outputs| outputs.len()), Ok(2));
    let flood = |switch: &mut Switch, port, bytes: &[u8]| {
        ports_of(switch.flood(at(0), &Arrival::read(port, bytes, None, 1)))
    };
    assert_eq!(flood(&mut switch, 1, &frame(B, A, &[])), Ok(vec![2, 4]), "B is known");
    assert_eq!(flood(&mut switch, 1, &frame([1, 0x80, 0xc2, 0, 0, 0xe], A, &[])), Ok(vec![2, 4]));
    assert_eq!(flood(&mut switch, 1, &frame(B, A, &[10])), Err(Reason::VlanTag));
    let to_a = judge(&mut switch, 2, &frame(A, B, &[]));
    assert_eq!(to_a.map(|outputs| outputs.len()), Ok(2), "A is not known");
}

#[test]
fn a_controllers_frame_comes_by_no_port_and_is_in_the_vlan_of_its_tag() {
    let mut switch = switch(true, vec![access(1, 10), access(2, 1), trunk(4, Some(1), &[10])]);
    assert_eq!(judge(&mut switch, 1, &frame(ALL, B, &[])).map(|outputs| outputs.len()), Ok(1));
    let mut normal =
        |port, bytes: &[u8]| ports_of(switch.normal(at(0), &Arrival::read(port, bytes, None, 1)));
    assert_eq!(normal(NO_PORT, &frame(ALL, A, &[10])), Ok(vec![1, 4]));
    assert_eq!(normal(NO_PORT, &frame(ALL, A, &[])), Ok(vec![2, 4]), "the default VLAN");
    assert_eq!(normal(NO_PORT, &frame(B, A, &[10])), Ok(vec![1]));
    assert_eq!(normal(1, &frame(A, B, &[])), Ok(vec![4]), "A was not learned");
    assert_eq!(normal(9, &frame(ALL, A, &[])), Err(Reason::PortDown));
}

#[test]
fn openflow_makes_a_mirrors_copy_of_what_came_itself() {
    let mirrored = PortConfig { mirror_ingress: Some(3), ..PortConfig::new(1) };
    let monitor = PortConfig { mode: Mode::Monitor, ..PortConfig::new(3) };
    let to = PortConfig { mirror_egress: Some(3), ..PortConfig::new(2) };
    let mut switch = switch(false, vec![mirrored, to, monitor]);
    assert_eq!(judge(&mut switch, 1, &frame(ALL, A, &[])).map(|outputs| outputs.len()), Ok(3));
    let normal = switch.normal(at(0), &Arrival::read(1, &frame(ALL, A, &[]), None, 1));
    assert_eq!(ports_of(normal), Ok(vec![2, 3]));
    let snapshot = switch.snapshot();
    assert_eq!((snapshot.mirror_ingress(1), snapshot.mirror_egress(1)), (Some(3), None));
    assert_eq!((snapshot.mirror_ingress(2), snapshot.mirror_egress(2)), (None, Some(3)));
}
