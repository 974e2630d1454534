//! Frames, flows and what they lead to, from bytes; and the checksums of frames.

use std::collections::HashMap;

use twinpath_forwarding::openflow::pipeline::{
    Flow, FlowId, GroupConfig, Ingress, MeterConfig, MeterUnit, Pipeline, Port,
};
use twinpath_openflow_wire::number::{self, port};
use twinpath_openflow_wire::{Action, Band, Bucket, Field, GroupType, Instruction, Match, MatchField};
use twinpath_time::Instant;

use super::checksums::complete;
use super::fields;
use super::naive::{self, Naive};

/// Bytes that are taken one by one. When there are no more, it goes on with what the input is a seed of: so a short input
/// describes as many frames as a long one.
pub(super) struct Bytes<'a> {
    input: &'a [u8],
    state: u64,
    /// Whether a fragment was made since [`frame`] began: its checksum is over what is not there.
    has_fragment: bool,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        let mix = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self { input, state: input.iter().fold(0xcbf2_9ce4_8422_2325, mix), has_fragment: false }
    }

    pub(super) fn next(&mut self) -> u8 {
        if let Some((first, rest)) = self.input.split_first() {
            self.input = rest;
            return *first;
        }
        // Splitmix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).to_be_bytes()[3]
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.next()) % from.len()]
    }
}

/// A frame, and how it comes.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) bytes: Vec<u8>,
    pub(super) beside: Option<u16>,
    pub(super) ingress: Ingress,
    pub(super) packets: u64,
    /// Whether it is whole, and its checksums are right.
    pub(super) has_checksums: bool,
}

impl Made {
    /// With the tag that is beside the bytes.
    pub(super) fn on_wire(&self) -> Vec<u8> {
        let mut wire = self.bytes.clone();
        if let Some(control) = self.beside {
            wire.splice(12..12, [[0x81, 0], control.to_be_bytes()].concat());
        }
        wire
    }
}

fn transport(bytes: &mut Bytes<'_>, version: u8) -> (u8, Vec<u8>) {
    let (from, to) = (bytes.pick(&[80_u8, 81, 0]), bytes.pick(&[53_u8, 54, 255]));
    let mut ports = vec![from, 1, to, 2];
    let payload = [bytes.next(), 7, 9];
    match bytes.next() % 7 {
        0 | 1 => {
            // Over IPv4, a datagram may have no checksum.
            ports.extend([0, 11, 0, bytes.next() & 1 | u8::from(version == 6)]);
            ports.extend(payload);
            (17, ports)
        }
        2 | 3 => {
            ports.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
            ports.extend(payload);
            (6, ports)
        }
        4 => {
            ports.extend([1, 2, 3, 4, 0, 0, 0, 0]);
            ports.extend(payload);
            (132, ports)
        }
        5 if version == 6 => {
            let kind = bytes.pick(&[135, 136, 128]);
            let mut nd = vec![kind, bytes.next() & 1, 0, 0, 0, 0, 0, 0];
            nd.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, bytes.next() & 3]);
            for _ in 0..bytes.next() % 3 {
                nd.extend([
                    bytes.pick(&[1, 2, 3]),
                    bytes.pick(&[1, 1, 1, 0]),
                    2,
                    0,
                    0,
                    0,
                    0,
                    bytes.next() & 1,
                ]);
            }
            (58, nd)
        }
        5 => (1, vec![bytes.pick(&[8, 0]), bytes.next() & 1, 0, 0, 1, 2, 3, 4]),
        _ => (bytes.pick(&[47, 1, 6, 58]), payload.to_vec()),
    }
}

fn ipv4(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let (mut protocol, mut inner) = transport(bytes, 4);
    if bytes.next().is_multiple_of(8) {
        (protocol, inner) = (4, ipv4_around(bytes, protocol, &inner));
    }
    ipv4_around(bytes, protocol, &inner)
}

fn ipv4_around(bytes: &mut Bytes<'_>, protocol: u8, inner: &[u8]) -> Vec<u8> {
    let options = if bytes.next().is_multiple_of(8) { vec![1, 1, 1, 0] } else { Vec::new() };
    let len = (20 + options.len() + inner.len()) as u16;
    let fragment = bytes.pick(&[0_u16, 0, 0, 0, 0x2000, 0x0010]).to_be_bytes();
    bytes.has_fragment |= fragment != [0, 0];
    let first = 0x45 + (options.len() / 4) as u8;
    let mut ip = vec![first, bytes.pick(&[0, 10 << 2, 46 << 2 | 1])];
    ip.extend(len.to_be_bytes());
    ip.extend([0, 1, fragment[0], fragment[1], bytes.pick(&[64, 1, 0, 2]), protocol, 0, 0]);
    ip.extend([10, 0, bytes.next() & 1, bytes.next() & 3, 10, 1, 0, bytes.next() & 3]);
    ip.extend(options);
    ip.extend(inner);
    completed(ip, [8, 0])
}

/// A packet with its checksums.
fn completed(packet: Vec<u8>, ethertype: [u8; 2]) -> Vec<u8> {
    let mut frame = [&[0; 12], &ethertype[..], &packet].concat();
    complete(&mut frame);
    frame.split_off(14)
}

fn ipv6(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let (mut protocol, mut inner) = transport(bytes, 6);
    for _ in 0..bytes.pick(&[0, 0, 1, 2, 3]) {
        let kind = bytes.pick(&[0, 43, 44, 51, 60, 50, 59]);
        bytes.has_fragment |= kind == 44;
        let last = if kind == 44 { bytes.pick(&[0, 8, 1]) } else { 0 };
        let len = u8::from(kind == 51) * 2;
        let mut header = vec![protocol, len, 0, last, 0, 0, 0, bytes.next() & 1];
        header.extend(vec![0; usize::from(kind == 51) * 8]);
        header.extend(inner);
        (protocol, inner) = (kind, header);
    }
    let mut ip = vec![0x60 | bytes.pick(&[0, 2]), bytes.pick(&[0, 0x85]), 0, bytes.next() & 1];
    ip.extend((inner.len() as u16).to_be_bytes());
    ip.extend([protocol, bytes.pick(&[64, 1, 2])]);
    for _ in 0..2 {
        ip.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, bytes.next() & 1, bytes.next() & 3]);
    }
    ip.extend(inner);
    completed(ip, [0x86, 0xdd])
}

fn arp(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut arp = vec![0, 1, 8, 0, 6, bytes.pick(&[4, 4, 4, 5]), 0, bytes.pick(&[1, 2])];
    for _ in 0..2 {
        arp.extend([2, 0, 0, 0, 0, bytes.next() & 3, 10, 0, 0, bytes.next() & 3]);
    }
    arp
}

fn payload(bytes: &mut Bytes<'_>) -> (u16, Vec<u8>) {
    match bytes.next() % 10 {
        0..=2 => (0x800, ipv4(bytes)),
        3 | 4 => (0x86dd, ipv6(bytes)),
        5 => (0x806, arp(bytes)),
        6 => {
            let count = 1 + bytes.next() % 2;
            let mut stack = Vec::new();
            for number in 1..=count {
                stack.extend([
                    0,
                    bytes.next() & 3,
                    bytes.next() & 6 | u8::from(number == count),
                    bytes.pick(&[64, 1]),
                ]);
            }
            stack.extend(if bytes.next() & 1 == 0 { ipv4(bytes) } else { ipv6(bytes) });
            (bytes.pick(&[0x8847, 0x8848]), stack)
        }
        7 => {
            let mut tag = vec![bytes.pick(&[0, 0xe0]), 0, 0, bytes.next() & 3];
            tag.extend([2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 8, 0]);
            tag.extend(ipv4(bytes));
            (0x88e7, tag)
        }
        8 => {
            let mut llc =
                vec![bytes.pick(&[0xaa, 0xaa, 0xaa, 0x42]), 0xaa, 3, 0, 0, bytes.pick(&[0, 0, 0, 0xc])];
            let (kind, inner) = match bytes.next() % 4 {
                0 | 1 => (0x800, ipv4(bytes)),
                2 => (0x806, arp(bytes)),
                _ => (bytes.pick(&[0x88b5, 0x8847, 0x88e7, 0x05ff]), vec![bytes.next(), 1, 2]),
            };
            llc.extend(u16::to_be_bytes(kind));
            llc.extend(inner);
            (llc.len() as u16, llc)
        }
        _ => (bytes.pick(&[0x88b5, 0x0100, 0x0800]), vec![bytes.next(), 1, 2]),
    }
}

pub(super) fn frame(bytes: &mut Bytes<'_>) -> Made {
    let mut frame = vec![2, 0, 0, 0, 0, bytes.next() & 3, 2, 0, 0, 0, 1, bytes.next() & 3];
    let beside = (bytes.next().is_multiple_of(4)).then(|| u16::from(bytes.next() & 3) | 0x2000);
    for _ in 0..bytes.pick(&[0, 0, 0, 1, 1, 2, 9]) {
        frame.extend(bytes.pick(&[[0x81, 0], [0x88, 0xa8]]));
        frame.extend([bytes.pick(&[0, 0x60]), bytes.next() & 3]);
    }
    bytes.has_fragment = false;
    let (kind, payload) = payload(bytes);
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    let cut = bytes.next();
    let is_cut = cut.is_multiple_of(16);
    if is_cut {
        frame.truncate(usize::from(bytes.next()));
    }
    let in_port = bytes.pick(&[1, 2, 3, port::LOCAL, port::CONTROLLER]);
    let ingress = Ingress { in_port, in_phy_port: in_port, tunnel_id: u64::from(bytes.next() & 1) };
    let packets = if bytes.next().is_multiple_of(8) { 5 } else { 1 };
    // A frame that has lost its head has no place for a tag beside it either.
    let beside = beside.filter(|_| frame.len() >= 14);
    Made { bytes: frame, beside, ingress, packets, has_checksums: !is_cut && !bytes.has_fragment }
}

/// Whether nothing is done after which a checksum is over other bytes than before, or over none.
pub(super) fn keeps_checksums(
    flows: &[naive::Flow],
    groups: &HashMap<u32, GroupConfig>,
    actions: Option<&[Action]>,
) -> bool {
    let keeps = |action: &Action| {
        !matches!(
            action,
            Action::SetField {
                field: Field::EthType | Field::IpProto | Field::Icmpv4Type | Field::Icmpv6Type,
                ..
            } | Action::PopMpls(_)
        )
    };
    let of_flow = |flow: &naive::Flow| {
        flow.instructions.iter().all(|instruction| match instruction {
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                actions.iter().all(keeps)
            }
            _ => true,
        })
    };
    flows.iter().all(of_flow)
        && groups.values().flat_map(|group| &group.buckets).all(|bucket| bucket.actions.iter().all(keeps))
        && actions.is_none_or(|actions| actions.iter().all(keeps))
}

/// A field's value of few bits.
fn value(bytes: &mut Bytes<'_>, field: Field) -> u128 {
    let low = u128::from(bytes.next());
    let pattern = 0x0203_0a00_0000_0000_1122_0000_0000_0000_u128.rotate_left(u32::from(bytes.next()) & 0x18);
    match field {
        Field::VlanVid => low & 3 | 0x1000,
        Field::IpDscp => bytes.pick(&[10, 12, 46, 0]),
        _ if low & 0x80 != 0 => pattern & field.full_mask(),
        _ => low & 7 & field.full_mask(),
    }
}

pub(super) fn actions(bytes: &mut Bytes<'_>, may_go_to_tables: bool) -> Vec<Action> {
    let mut all = Vec::new();
    for _ in 0..bytes.next() % 6 {
        all.push(match bytes.next() % 24 {
            0..=5 => {
                let port = bytes.pick(&[
                    1,
                    2,
                    3,
                    4,
                    9,
                    port::IN_PORT,
                    port::ALL,
                    port::FLOOD,
                    port::NORMAL,
                    port::LOCAL,
                    port::CONTROLLER,
                ]);
                Action::Output { port, max_len: 128 }
            }
            6 if may_go_to_tables => Action::Output { port: port::TABLE, max_len: 0 },
            6 | 7 => Action::Group(u32::from(bytes.next() % 5)),
            8 => Action::PushVlan(bytes.pick(&[0x8100, 0x88a8])),
            9 => Action::PopVlan,
            10 => Action::PushMpls(bytes.pick(&[0x8847, 0x8848])),
            11 => Action::PopMpls(bytes.pick(&[0x800, 0x86dd, 0x8847, 0x8100])),
            12 => Action::PushPbb(0x88e7),
            13 => Action::PopPbb,
            14 => Action::CopyTtlIn,
            15 => Action::CopyTtlOut,
            16 => Action::SetNwTtl(bytes.next()),
            17 => Action::SetMplsTtl(bytes.next()),
            18 => Action::DecNwTtl,
            19 => Action::DecMplsTtl,
            _ => {
                let settable: Vec<Field> =
                    Field::ALL.iter().copied().filter(|field| field.settable()).collect();
                let field = bytes.pick(&settable);
                Action::SetField { field, value: value(bytes, field) }
            }
        });
    }
    all
}

fn instructions(bytes: &mut Bytes<'_>, table: u8) -> Vec<Instruction> {
    let kinds = bytes.next();
    let mut all = Vec::new();
    if kinds & 1 != 0 && table < 7 {
        all.push(Instruction::GotoTable(table + 1 + bytes.next() % (7 - table).min(2)));
    }
    if kinds & 2 != 0 {
        all.push(Instruction::WriteActions(actions(bytes, false).into()));
    }
    if kinds & 0x0c != 0 {
        all.push(Instruction::ApplyActions(actions(bytes, false).into()));
    }
    if kinds & 0x10 != 0 {
        let mask = bytes.pick(&[u64::MAX, 1, 0xff00]);
        all.push(Instruction::WriteMetadata { metadata: u64::from(bytes.next()) << 4 & mask, mask });
    }
    if kinds & 0x60 == 0x60 {
        all.push(Instruction::ClearActions);
    }
    if kinds & 0x80 != 0 {
        all.push(Instruction::Meter(u32::from(bytes.next() % 5)));
    }
    all
}

/// A match of fields that a frame has, so that some frames match.
fn fields(bytes: &mut Bytes<'_>, sample: &Made) -> Match {
    let wire = sample.on_wire();
    let mut wanted = 0_u64;
    for _ in 0..bytes.next() % 5 {
        wanted |= 1 << (bytes.next() % 40);
    }
    let helpers = [Field::EthType, Field::IpProto, Field::VlanVid, Field::InPort, Field::Icmpv6Type];
    let is_helper = |field: &Field| wanted != 0 && helpers.contains(field);
    let mut entries = Vec::new();
    for field in Field::ALL.iter().filter(|field| wanted >> field.number() & 1 == 1 || is_helper(field)) {
        let Some(value) = fields::get(&wire, &sample.ingress, 0, *field) else { continue };
        let is_masked = field.maskable() && !is_helper(field) && bytes.next() & 1 == 1;
        let bits =
            u128::from(bytes.next()) | u128::from(bytes.next()) << 24 | u128::MAX << (bytes.next() & 127);
        entries.push(if is_masked {
            let mask = bits & field.full_mask();
            MatchField::masked(*field, value & mask, mask)
        } else {
            MatchField::exact(*field, value)
        });
    }
    Match::new(entries).unwrap_or_default()
}

pub(super) fn add_flow(
    bytes: &mut Bytes<'_>,
    samples: &[Made],
    pipeline: &mut Pipeline,
    naive: &mut Naive,
    flows: &mut Vec<FlowId>,
) {
    let table = bytes.pick(&[0, 0, 0, 1, 2, 3]);
    let sample = &samples[usize::from(bytes.next()) % samples.len()];
    let fields = fields(bytes, sample);
    // All priorities of a table differ: which of two equal ones wins is not specified.
    let mut priority = u16::from(bytes.next()) * 8;
    if bytes.next().is_multiple_of(8) {
        priority = 0;
    }
    while naive.flows.iter().any(|flow| flow.table == table && flow.priority == priority) {
        priority += 1;
    }
    let instructions = instructions(bytes, table);
    let cookie = u64::from(priority) << 8 | u64::from(table);
    let flow = Flow { table, priority, fields: &fields, instructions: &instructions, cookie };
    flows.push(pipeline.add_flow(&flow).expect("room"));
    naive.flows.push(naive::Flow {
        table,
        priority,
        fields,
        instructions,
        cookie,
        counted: (0, 0),
        used: Instant::ZERO,
    });
}

/// Removes a flow, or gives it other instructions.
pub(super) fn change_flow(
    bytes: &mut Bytes<'_>,
    pipeline: &mut Pipeline,
    naive: &mut Naive,
    flows: &mut Vec<FlowId>,
) {
    if flows.is_empty() {
        return;
    }
    let number = usize::from(bytes.next()) % flows.len();
    if bytes.next() & 1 == 0 {
        pipeline.remove_flow(flows.remove(number), false);
        naive.flows.remove(number);
    } else {
        let instructions = instructions(bytes, naive.flows[number].table);
        let cookie = u64::from(bytes.next());
        pipeline.change_flow(flows[number], &instructions, cookie);
        (naive.flows[number].instructions, naive.flows[number].cookie) = (instructions, cookie);
    }
}

pub(super) fn set_ports(bytes: &mut Bytes<'_>, pipeline: &mut Pipeline, naive: &mut Naive) {
    let state = bytes.next();
    let make = |number: u32| Port {
        no_forward: state & 1 != 0 && number == 2,
        no_receive: state & 2 != 0 && number == 3,
        no_packet_in: state & 4 != 0 && number == 1,
        is_live: state >> 3 & number as u8 & 3 == 0,
        ..Port::new(number)
    };
    let ports: Vec<Port> = [1, 2, 3, 4, port::LOCAL].map(make).to_vec();
    naive.ports.clone_from(&ports);
    pipeline.set_ports(ports);
    naive.drop_fragments = state & 0x40 != 0;
    pipeline.set_drop_fragments(naive.drop_fragments);
}

/// Ports, meters and groups. A group leads only to groups with higher numbers.
pub(super) fn configure(bytes: &mut Bytes<'_>, pipeline: &mut Pipeline, naive: &mut Naive) {
    set_ports(bytes, pipeline, naive);
    let bands = [
        Band::Drop { rate: 0, burst: 0 },
        Band::Drop { rate: u32::MAX, burst: u32::MAX },
        Band::DscpRemark { rate: 0, burst: 0, prec_level: 1 },
    ];
    for (meter, band) in (1..).zip(bands) {
        let config = MeterConfig { unit: MeterUnit::Packets, has_burst: true, bands: vec![band] };
        pipeline.set_meter(meter, &config).expect("room");
        naive.meters.insert(meter, config);
    }
    for group in 1..=bytes.next() % 4 {
        let kind = bytes.pick(GroupType::ALL);
        let mut buckets = Vec::new();
        for number in 0..bytes.next() % 4 {
            let mut actions = actions(bytes, false);
            for action in &mut actions {
                if let Action::Group(next) = action {
                    *next = u32::from(group) + 1 + *next % 2;
                }
            }
            let is_chosen = kind == GroupType::Select && number == 0;
            buckets.push(Bucket {
                weight: u16::from(is_chosen) * 5,
                watch_port: bytes.pick(&[port::ANY, 1, 2]),
                watch_group: bytes.pick(&[number::group::ANY, 1, 2, 3]),
                actions: actions.into(),
            });
        }
        let config = GroupConfig { kind, buckets };
        pipeline.set_group(group.into(), config.clone()).expect("room");
        naive.groups.insert(group.into(), config);
    }
}
