//! A switch whose frames OpenFlow's tables judge.

use twinpath_forwarding::openflow::pipeline::{Flow, FlowId, PacketInReason, Pipeline, Port};
use twinpath_frame::{Checksum, Gso, GsoKind};
use twinpath_openflow_wire::number::port::{ALL, CONTROLLER, FLOOD, IN_PORT, LOCAL, NORMAL, TABLE};
use twinpath_openflow_wire::{Action, Field, Instruction, Match, MatchField};
use twinpath_port::GsoKinds;
use twinpath_sys::allocations::{self, Counting};
use twinpath_wire::offload::Headers;

use super::*;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A switch with access ports of VLAN 1, and control's end of its tables. Ports are 1, 2 and so on; the rig counts them
/// from 0.
struct Bench {
    pipeline: Pipeline,
    rig: Rig,
}

fn bench(ports: u16) -> Bench {
    bench_of(SwitchConfig {
        vlans: true,
        ports: (1..=ports).map(PortConfig::new).collect(),
        ..Default::default()
    })
}

fn bench_of(config: SwitchConfig) -> Bench {
    let mut pipeline = Pipeline::new(1, [3, 4]);
    pipeline.set_ports(config.ports.iter().map(|port| Port::new(port.number.into())).collect());
    let worker = pipeline.worker(0).expect("one worker");
    // Ports that take neither super-frames nor partial checksums.
    let capable = vec![|port| Capabilities { checksum: false, ..port }; config.ports.len()];
    let mut bench = Bench { pipeline, rig: rig_with(config, &capable, Some(worker)) };
    bench.publish();
    bench
}

fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0xffff }
}

fn apply(actions: &[Action]) -> Instruction {
    Instruction::ApplyActions(actions.into())
}

impl Bench {
    fn add(&mut self, priority: u16, fields: &[(Field, u128)], actions: &[Action]) -> FlowId {
        let fields = fields.iter().map(|(field, value)| MatchField::exact(*field, *value));
        let fields = Match::new(fields.collect::<Vec<_>>()).expect("valid");
        let instructions = [apply(actions)];
        let flow = Flow { table: 0, priority, fields: &fields, instructions: &instructions, cookie: 7 };
        self.pipeline.add_flow(&flow).expect("room")
    }

    /// Has the worker judge by what has changed.
    fn publish(&mut self) {
        let Some(snapshot) = self.pipeline.publish() else { return };
        let number = snapshot.number();
        self.rig.tell(SwitchCommand::Tables(snapshot));
        let told = self.rig.told();
        let [SwitchEvent::TablesAdopted { version, former }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((*version, former.number()), (number, number - 1), "the former one goes back");
        self.pipeline.taken(number);
    }

    /// A switch in which every frame has these actions.
    fn always(ports: u16, actions: &[Action]) -> Self {
        let mut bench = bench(ports);
        bench.add(1, &[], actions);
        bench.publish();
        bench
    }

    /// The ports that a frame leaves by if it comes by this one, each by its number.
    fn ports(&mut self, from: u16, bytes: &[u8]) -> Vec<u16> {
        let left = self.rig.pass(usize::from(from) - 1, bytes, None);
        (1..).zip(left).flat_map(|(port, frames)| frames.into_iter().map(move |_| port)).collect()
    }

    fn drops(&self, port: u16, reason: Reason) -> u64 {
        self.rig.port_counters[usize::from(port) - 1].drops.get(reason)
    }

    fn lend(&mut self, count: usize, capacity: usize) {
        for _ in 0..count {
            self.rig.tell(SwitchCommand::Lend(Box::new(PacketInBuffer::new(capacity))));
        }
        assert!(self.rig.told().is_empty());
    }

    #[allow(clippy::vec_box, reason = "as they come")]
    fn packet_ins(&mut self) -> Vec<Box<PacketInBuffer>> {
        let told = self.rig.told().into_iter();
        told.map(|event| match event {
            SwitchEvent::PacketIn(buffer) => buffer,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// Has a controller's frame go through actions. The ports that it leaves by, or why it was refused.
    fn packet_out(&mut self, in_port: u32, actions: &[Action], bytes: &[u8]) -> Result<Vec<u16>, Reason> {
        let packet = PacketOut::new(in_port, actions.into(), bytes.into());
        self.rig.tell(SwitchCommand::PacketOut(Box::new(packet)));
        let done = |event: &SwitchEvent| matches!(event, SwitchEvent::PacketOutDone(_));
        assert!(!self.rig.told().iter().any(done), "barriers wait until it has left, at the end of the turn");
        self.rig.turn();
        let told = self.rig.told();
        let done = told.into_iter().find_map(|event| match event {
            SwitchEvent::PacketOutDone(packet) => Some(packet),
            _ => None,
        });
        let left = self.rig.outside.iter_mut().map(Outside::received);
        let left = (1..).zip(left).flat_map(|(port, frames)| frames.into_iter().map(move |_| port)).collect();
        done.expect("its memory comes back").refused.map_or(Ok(left), Err)
    }
}

#[test]
fn each_output_leads_where_openflow_says() {
    let bytes = frame(2, 1, None);
    for (to, from, wanted) in [
        (output(2), 1, &[2][..]),
        (output(IN_PORT), 1, &[1]),
        (output(ALL), 2, &[1, 3]),
        (output(FLOOD), 2, &[1, 3]),
        (output(NORMAL), 3, &[1, 2]),
    ] {
        let mut bench = Bench::always(3, std::slice::from_ref(&to));
        assert_eq!(bench.ports(from, &bytes), wanted, "{to:?}");
        assert_eq!(bench.rig.counters.drops.happened().count(), 0);
    }
    let mut several =
        Bench::always(3, &[output(3), Action::SetField { field: Field::EthDst, value: 9 }, output(2)]);
    let left = several.rig.pass(0, &bytes, Some(0x2007));
    assert_eq!(left[2], [(bytes.clone(), Some(0x2007))], "as it came, with the tag beside it");
    assert_eq!((left[1][0].0[..6].to_vec(), left[1][0].1), (vec![0, 0, 0, 0, 0, 9], Some(0x2007)));
}

#[test]
fn what_goes_nowhere_is_counted_at_its_port() {
    let mut bench = Bench::always(2, &[output(1)]);
    assert!(bench.ports(1, &frame(2, 1, None)).is_empty());
    assert_eq!(bench.drops(1, Reason::SamePort), 1);
    assert_eq!(bench.ports(2, &frame(2, 1, None)), [1]);
    bench.ports(2, &[1, 2, 3]);
    assert_eq!(bench.drops(2, Reason::Truncated), 1);
}

#[test]
fn local_is_the_port_that_control_says() {
    let mut bench = bench(3);
    bench.add(2, &[(Field::InPort, LOCAL.into())], &[output(2)]);
    bench.add(1, &[], &[output(LOCAL)]);
    let ports = [1, 2, LOCAL].map(Port::new).to_vec();
    bench.pipeline.set_ports(ports);
    bench.publish();
    assert!(bench.ports(1, &frame(2, 1, None)).is_empty(), "none is");
    assert_eq!(bench.rig.counters.drops.get(Reason::PortDown), 1);
    bench.rig.tell(SwitchCommand::LocalPort(Some(3)));
    assert_eq!(bench.ports(1, &frame(2, 1, None)), [3]);
    assert_eq!(bench.ports(3, &frame(2, 1, None)), [2]);
}

#[test]
fn normal_learns_and_forwards_the_frame_as_the_tables_left_it() {
    let mut bench = bench(3);
    let to_2 = Action::SetField { field: Field::EthDst, value: 0x0200_0000_0002 };
    bench.add(1, &[], &[output(NORMAL)]);
    bench.add(2, &[(Field::EthDst, 0x0200_0000_0009)], &[to_2, output(NORMAL)]);
    bench.publish();
    assert_eq!(bench.ports(2, &frame(1, 2, None)), [1, 3]);
    assert_eq!(bench.ports(1, &frame(2, 1, None)), [2], "learned");
    assert_eq!(bench.ports(3, &frame(9, 3, None)), [2], "by its new address");
    assert_eq!(bench.ports(2, &frame(3, 2, None)), [3]);
    assert!(bench.ports(2, &frame(2, 2, None)).is_empty());
    assert_eq!(bench.drops(2, Reason::SamePort), 1);
}

#[test]
fn normal_and_flood_leave_out_ports_that_openflow_has_closed() {
    for to in [NORMAL, FLOOD] {
        let mut bench = Bench::always(3, &[output(to)]);
        let port = |number, no_forward| Port { no_forward, ..Port::new(number) };
        bench.pipeline.set_ports(vec![port(1, false), port(2, true), port(3, false)]);
        bench.publish();
        assert_eq!(bench.ports(1, &frame(9, 1, None)), [3]);
        bench.pipeline.set_ports(vec![port(1, false), port(2, true), port(3, true)]);
        bench.publish();
        assert!(bench.ports(1, &frame(9, 1, None)).is_empty());
        assert_eq!(bench.drops(1, Reason::PortDown), 1);
    }
}

#[test]
fn mirrors_get_what_comes_and_what_leaves_once() {
    for to in [2, NORMAL] {
        let monitor = PortConfig { mode: Mode::Monitor, ..PortConfig::new(3) };
        let mirrored = |number| PortConfig { mirror_ingress: Some(3), ..PortConfig::new(number) };
        let to_mirror = PortConfig { mirror_egress: Some(3), ..PortConfig::new(2) };
        let config = |ports| SwitchConfig { ports, ..SwitchConfig::default() };
        let mut bench = bench_of(config(vec![mirrored(1), to_mirror, monitor]));
        bench.add(1, &[], &[output(to)]);
        bench.publish();
        assert_eq!(bench.ports(1, &frame(9, 1, None)), [2, 3, 3], "{to}");
    }
}

#[test]
fn a_controller_gets_the_frame_as_on_a_wire_in_memory_that_was_lent() {
    let mut bench = Bench::always(2, &[output(CONTROLLER)]);
    bench.rig.tell(SwitchCommand::PacketInRate(1000));
    bench.lend(2, 16);
    assert_eq!(bench.rig.pass(0, &frame(2, 1, None), Some(0x2007)), [vec![], vec![]]);
    let [packet_in] = &bench.packet_ins()[..] else { panic!("one") };
    assert_eq!(packet_in.bytes(), &frame(2, 1, Some(0x2007))[..16], "its start, with its tag");
    let about = packet_in.about.expect("full");
    assert_eq!((packet_in.total_len, about.cookie, about.ingress.in_port), (20, 7, 1));
    assert_eq!(about.reason, PacketInReason::Action);
    bench.ports(1, &frame(2, 1, None));
    bench.ports(2, &frame(2, 1, None));
    assert_eq!(bench.packet_ins().len(), 1);
    assert_eq!(bench.drops(2, Reason::PacketInFull), 1, "control was lent nothing more");
}

#[test]
fn a_port_sends_controllers_no_more_than_it_may() {
    let mut bench = Bench::always(2, &[output(CONTROLLER)]);
    bench.lend(60, 64);
    bench.ports(1, &frame(2, 1, None));
    assert_eq!(bench.drops(1, Reason::PacketInRate), 1, "none before control has said how many");
    bench.rig.tell(SwitchCommand::PacketInRate(100));
    (0..20).for_each(|_| drop(bench.ports(1, &frame(2, 1, None))));
    bench.ports(2, &frame(2, 1, None));
    assert_eq!(bench.packet_ins().len(), 11, "a tenth of a second's, and another port's");
    assert_eq!(bench.drops(1, Reason::PacketInRate), 11);
    assert_eq!(bench.drops(2, Reason::PacketInRate), 0);
    bench.rig.turns += 1_000_000_000;
    bench.ports(1, &frame(2, 1, None));
    assert_eq!(bench.packet_ins().len(), 1);
}

#[test]
fn memory_beyond_what_a_worker_may_have_comes_back_empty() {
    let mut bench = bench(1);
    bench.lend(LENT_MAX, 1);
    bench.rig.tell(SwitchCommand::Lend(Box::new(PacketInBuffer::new(1))));
    let [returned] = &bench.packet_ins()[..] else { panic!("one") };
    assert!(returned.about.is_none());
}

#[test]
fn a_controllers_frame_goes_through_its_actions() {
    let mut bench = bench(3);
    bench.add(1, &[(Field::InPort, 1)], &[output(2)]);
    bench.publish();
    let bytes = frame(9, 8, None);
    assert_eq!(bench.packet_out(CONTROLLER, &[output(3)], &bytes), Ok(vec![3]));
    assert_eq!(bench.packet_out(CONTROLLER, &[output(FLOOD)], &bytes), Ok(vec![1, 2, 3]));
    assert_eq!(bench.packet_out(2, &[output(FLOOD)], &bytes), Ok(vec![1, 3]));
    assert_eq!(bench.packet_out(1, &[output(TABLE)], &bytes), Ok(vec![2]));
    assert_eq!(bench.packet_out(3, &[output(IN_PORT)], &bytes), Ok(vec![3]));
    assert_eq!(bench.packet_out(2, &[output(TABLE)], &bytes), Ok(vec![]));
    assert_eq!(bench.drops(2, Reason::TableMiss), 1);
    assert_eq!(bench.packet_out(CONTROLLER, &[output(9)], &[1]), Ok(vec![]));
    assert_eq!(bench.rig.counters.drops.get(Reason::Truncated), 1);
}

#[test]
fn a_controllers_frame_for_which_the_pool_has_no_room_is_refused() {
    let mut bench = bench(2);
    let pool_bytes = 256 * 2048;
    assert_eq!(bench.packet_out(1, &[output(2)], &vec![0; pool_bytes]), Err(Reason::PoolEmpty));
    assert_eq!(bench.rig.counters.drops.get(Reason::PoolEmpty), 1);
    assert_eq!(bench.packet_out(1, &[output(2)], &frame(2, 1, None)), Ok(vec![2]), "nothing is lost");
}

#[test]
fn without_tables_control_gets_its_memory_back() {
    let mut rig = rig(&[access(1)], &[true]);
    rig.tell(SwitchCommand::Lend(Box::new(PacketInBuffer::new(1))));
    rig.tell(SwitchCommand::PacketOut(Box::new(PacketOut::new(1, [].into(), [].into()))));
    rig.tell(SwitchCommand::Forward(Forwarding::Tables));
    let told = rig.told();
    let [SwitchEvent::PacketIn(_), SwitchEvent::PacketOutDone(packet)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(packet.refused, Some(Reason::TableMiss));
}

#[test]
fn without_controllers_the_switch_learns_and_with_them_the_tables_judge_again() {
    let mut bench = Bench::always(3, &[output(3)]);
    let bytes = frame(9, 1, None);
    assert_eq!(bench.ports(1, &bytes), [3]);
    bench.rig.tell(SwitchCommand::Forward(Forwarding::Learning));
    assert_eq!(bench.ports(1, &bytes), [2, 3]);
    bench.rig.tell(SwitchCommand::Forward(Forwarding::Tables));
    assert_eq!(bench.ports(1, &bytes), [3]);
}

/// A UDP super-frame of this many datagrams of 100 bytes, with what a sender leaves to hardware not done.
fn super_frame(datagrams: u16) -> (Vec<u8>, Gso) {
    let len = 100 * datagrams;
    let mut bytes = frame(2, 1, None)[..12].to_vec();
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((28 + len).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = bytes[14..34]
        .as_chunks::<2>()
        .0
        .iter()
        .fold(0u32, |sum, pair| sum + u32::from(u16::from_be_bytes(*pair)));
    let fold = |sum: u32| ((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[24..26].copy_from_slice(&(!fold(sum)).to_be_bytes());
    bytes.extend([0, 53, 0, 53]);
    bytes.extend((8 + len).to_be_bytes());
    // The sum of the pseudo-header alone.
    bytes.extend(fold(0x0a00 + 1 + 0x0a00 + 2 + 17 + 8 + u32::from(len)).to_be_bytes());
    bytes.extend((0..len).map(|at| at as u8));
    (bytes, Gso { kind: GsoKind::UdpSegments, ecn: false, size: 100 })
}

fn send_super_frame(bench: &mut Bench, datagrams: u16, is_known: bool) {
    let (bytes, gso) = super_frame(datagrams);
    let wire = &mut bench.rig.outside[0];
    wire.send_with(&bytes, |meta| {
        (meta.gso, meta.checksum) = (gso, Checksum::Partial);
        if is_known {
            (meta.checksum_start, meta.checksum_offset) = (34, 6);
        }
    });
    bench.rig.turn();
}

/// As [`bench`], where the outer end of the first port sends super-frames.
fn bench_for_super_frames(actions: &[Action]) -> Bench {
    let mut bench = Bench::always(2, actions);
    let outside = bench.rig.outside.remove(0);
    let all = GsoKinds { tcp: true, udp: true };
    let wire = outside.wire;
    let capable =
        Capabilities { segmentation: all, frame_len_max: 65_550, chains: true, ..wire.capabilities() };
    bench.rig.outside.insert(0, Outside { wire: wire.with_capabilities(capable), pool: outside.pool });
    bench
}

#[test]
fn a_super_frame_counts_as_its_packets_and_what_is_rewritten_keeps_its_checksums_right() {
    for is_known in [false, true] {
        let rewrite = [
            Action::SetField { field: Field::Ipv4Dst, value: 0x0a09_0807 },
            Action::SetField { field: Field::UdpSrc, value: 4000 },
            Action::PushVlan(0x8100),
            Action::SetField { field: Field::VlanVid, value: 0x1005 },
            output(2),
        ];
        let mut bench = bench_for_super_frames(&[]);
        let flow = bench.add(2, &[(Field::EthType, 0x800), (Field::IpProto, 17)], &rewrite);
        bench.publish();
        send_super_frame(&mut bench, 10, is_known);
        let left = bench.rig.outside[1].received();
        assert_eq!(left.len(), 10);
        for (bytes, tag) in left {
            let headers = Headers::find(&bytes).expect("UDP");
            assert!(headers.has_right_checksum(&bytes));
            assert_eq!((&bytes[30..36], tag), (&[10, 9, 8, 7, 0x0f, 0xa0][..], Some(5)));
        }
        let count = bench.pipeline.flow_count(flow).expect("there").count;
        assert_eq!((count.packets, count.bytes), (10, 42 + 1000));
    }
}

#[test]
fn a_controller_gets_the_packets_of_a_super_frame() {
    let mut bench = bench_for_super_frames(&[output(CONTROLLER)]);
    bench.rig.tell(SwitchCommand::PacketInRate(1000));
    bench.lend(7, 200);
    send_super_frame(&mut bench, 10, true);
    let packet_ins = bench.packet_ins();
    assert_eq!(packet_ins.len(), 7);
    for packet_in in packet_ins {
        assert_eq!((packet_in.bytes().len(), packet_in.total_len), (142, 142));
        let headers = Headers::find(packet_in.bytes()).expect("UDP");
        assert!(headers.has_right_checksum(packet_in.bytes()));
    }
    assert_eq!(bench.drops(1, Reason::PacketInFull), 3);
}

#[test]
fn tables_allocate_nothing_while_frames_pass() {
    // The wires of the rig allocate as well: as often as without tables.
    let made = |bench: &mut Bench| {
        let before = allocations::of_this_thread();
        for from in [0, 1] {
            bench.rig.outside[from].send(&frame(2, 1, None), None);
            bench.rig.turn();
        }
        let made = allocations::of_this_thread() - before;
        bench.rig.outside.iter_mut().for_each(|outside| assert_eq!(outside.received().len(), 1));
        made
    };
    let mut bench = Bench::always(2, &[output(NORMAL)]);
    bench.rig.tell(SwitchCommand::PacketInRate(1000));
    bench.lend(8, 64);
    // The first frames make room in the wires.
    made(&mut bench);
    bench.rig.tell(SwitchCommand::Forward(Forwarding::Learning));
    let learning = made(&mut bench);
    bench.rig.tell(SwitchCommand::Forward(Forwarding::Tables));
    assert_eq!(made(&mut bench), learning);
    for (priority, actions) in [(2, &[output(ALL)][..]), (3, &[output(CONTROLLER), output(ALL)])] {
        bench.add(priority, &[], actions);
        bench.publish();
        assert_eq!(made(&mut bench), learning, "{actions:?}");
    }
}

#[test]
fn a_turn_takes_fewer_frames_of_a_port_while_look_ups_for_them_can_take_long() {
    let mut bench = Bench::always(2, &[output(2)]);
    let frames = |bench: &mut Bench| {
        (0..BURST_MAX).for_each(|_| bench.rig.outside[0].send(&frame(2, 1, None), None));
        bench.rig.turn();
        let mut passed = vec![bench.rig.outside[1].received().len()];
        while passed.iter().sum::<usize>() < BURST_MAX {
            bench.rig.turn();
            passed.push(bench.rig.outside[1].received().len());
        }
        passed
    };
    assert_eq!(frames(&mut bench), [BURST_MAX]);
    // A mask of its own for each pair of lengths.
    for (source, destination) in (1..=32_u32).flat_map(|source| (1..=32).map(move |of| (source, of))) {
        let of = |field, bits: u32| MatchField::masked(field, 0, (u32::MAX << (32 - bits)).into());
        let kind = MatchField::exact(Field::EthType, 0x0800);
        let fields = [kind, of(Field::Ipv4Src, source), of(Field::Ipv4Dst, destination)];
        let fields = Match::new(fields.to_vec()).expect("valid");
        let instructions = [apply(&[output(2)])];
        let flow = Flow { table: 0, priority: 2, fields: &fields, instructions: &instructions, cookie: 7 };
        bench.pipeline.add_flow(&flow).expect("room");
    }
    bench.publish();
    assert_eq!(frames(&mut bench), [BURST_MAX / 2; 2]);
}
