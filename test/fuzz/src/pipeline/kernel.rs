//! Passes frames through the programs that forward flows in the kernel (BPF_PROG_TEST_RUN): what they forward leaves by the
//! port that the interpreter says, unchanged, and is counted by the same flows; everything else goes to the worker.

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use twinpath_bpf::{PortPrograms, TcAttach, Unserved};
use twinpath_forwarding::openflow::pipeline::{Flow, Ingress};
use twinpath_openflow_wire::{Instruction, Match};
use twinpath_switch::offload::{KernelPort, Lifetime, NotOffloaded, Offloaded};
use twinpath_sys::netns::Namespace;

use super::*;

/// `lo` of a new namespace, which test runs arrive at.
pub(crate) const IFINDEX: u32 = 1;

/// Interfaces that no frame reaches in a test run, by the number of their ports.
pub(crate) const OUT: u32 = 100;

pub(crate) const TC_ACT_REDIRECT: u32 = 7;
const XDP_REDIRECT: u32 = 4;

/// Where `priority` is in `struct __sk_buff`.
const PRIORITY_AT: usize = 32;

/// The programs at `lo`, and the entries.
struct Kernel {
    programs: PortPrograms,
    offloaded: Offloaded,
}

/// Where a frame meets the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Tc,
    Xdp,
}

impl Kernel {
    fn load() -> Self {
        let mut programs = PortPrograms::load(7, 1, Duration::ZERO, 64).expect("loaded");
        programs.hold(IFINDEX, Unserved::Kernel, TcAttach::here()).expect("held");
        for number in 1..=4 {
            // Programs at XDP send frames to interfaces that are there.
            let ifindex = OUT + number;
            let add = format!("link add out{number} index {ifindex} type veth peer name back{number}");
            twinpath_test_rig::ip_here(&add);
            programs.hold(ifindex, Unserved::Kernel, TcAttach::here()).expect("held");
        }
        let offloaded = Offloaded::new(programs.take_offload().expect("asked for"));
        Self { programs, offloaded }
    }

    fn set_ports(&mut self) {
        for number in 1..=4 {
            let port = KernelPort {
                ifindex: OUT + number,
                peer: None,
                frame_len_max: 1 << 16,
                has_xdp: true,
                takes_xdp: true,
            };
            self.offloaded.set_port(number, Some(port)).expect("no map fails");
        }
    }

    /// The entry by which a frame that came in by a port is forwarded. What is forwarded at one hook is forwarded at the
    /// other; `first` has it if both would.
    fn pass(&mut self, made: &Made, first: Hook) -> Option<u32> {
        let other = if first == Hook::Tc { Hook::Xdp } else { Hook::Tc };
        if let Some(number) = self.pass_at(made, first).flatten() {
            return Some(number);
        }
        let number = self.pass_at(made, other).flatten();
        let comes_to_both = made.beside.is_none() && made.bytes.len() >= 14 + 40;
        assert!(number.is_none() || !comes_to_both, "{first:?} passes on {made:02x?}");
        number
    }

    /// The same at one hook; `None`: it cannot come there.
    fn pass_at(&mut self, made: &Made, hook: Hook) -> Option<Option<u32>> {
        if !may_be_at(made, hook) {
            return None;
        }
        let in_port = made.ingress.in_port;
        let masks = self.offloaded.entries().masks_of(in_port);
        let offload = self.offloaded.offload_mut();
        offload.look_for_entries(IFINDEX, in_port as u16, masks).expect("no map fails");
        let before = self.counts();
        let forwarded = match hook {
            Hook::Tc => run_tc(&mut self.programs, &made.bytes, made.beside)? == TC_ACT_REDIRECT,
            Hook::Xdp => self.run_xdp(made) == XDP_REDIRECT,
        };
        let after = self.counts();
        let counted: Vec<u32> = (0..)
            .zip(before.iter().zip(&after))
            .filter(|(_, (one, two))| one != two)
            .map(|(number, _)| number)
            .collect();
        if !forwarded {
            assert_eq!(counted, [] as [u32; 0], "nothing is counted that is not forwarded");
            return Some(None);
        }
        let [number] = counted[..] else { panic!("one entry counts, not {counted:?}") };
        let number_of = number as usize;
        assert_eq!(after[number_of].0, before[number_of].0 + 1);
        assert_eq!(after[number_of].1, before[number_of].1 + made.bytes.len() as u64);
        Some(Some(number))
    }

    fn run_xdp(&mut self, made: &Made) -> u32 {
        let program: &Xdp = self.programs.xdp_program().expect("loads");
        let options = TestRunOptions { data_in: Some(&made.bytes), ..TestRunOptions::default() };
        match program.test_run(options) {
            Ok(ran) => ran.return_value,
            Err(error) => panic!("{error:?} for {made:02x?}"),
        }
    }

    fn counts(&self) -> Vec<(u64, u64)> {
        let offload = self.offloaded.offload();
        let count = |number| offload.count(number);
        (0..offload.capacity()).map(count).map(|count| (count.packets, count.bytes)).collect()
    }
}

/// What the program at tc says of a frame that arrives at `lo`, with a tag beside it or without; `None`: the kernel takes no such
/// frame.
pub(crate) fn run_tc(programs: &mut PortPrograms, bytes: &[u8], beside: Option<u16>) -> Option<u32> {
    let mut context = [0; PRIORITY_AT + 4];
    context[PRIORITY_AT..].copy_from_slice(&u32::from(beside.unwrap_or(0)).to_ne_bytes());
    let name = if beside.is_some() { "twinpath_test_tagged" } else { "twinpath_serve_in" };
    let program: &SchedClassifier = programs.program(name).expect("loads");
    let options =
        TestRunOptions { data_in: Some(bytes), ctx_in: Some(&context), ..TestRunOptions::default() };
    match program.test_run(options) {
        Ok(ran) => Some(ran.return_value),
        // Newer kernels run nothing with an IP packet that is shorter than its header.
        Err(_) if bytes.len() < 14 + 40 => None,
        Err(error) => panic!("{error:?} for {bytes:02x?}"),
    }
}

/// A frame with a tag beside it does not come to XDP, and newer kernels run nothing at tc with an IP packet that is shorter than
/// its header.
const fn may_be_at(made: &Made, hook: Hook) -> bool {
    match hook {
        Hook::Tc => true,
        Hook::Xdp => made.beside.is_none(),
    }
}

/// Frames that the kernel has forwarded at each hook when it came there first, and all.
#[derive(Default)]
struct Passed {
    tc: u32,
    xdp: u32,
    all: u32,
}

fn pass(pair: &mut Pair, kernel: &mut Kernel, made: &Made, passed: &mut Passed) {
    let in_port = made.ingress.in_port % 3 + 1;
    let ingress = Ingress { in_port, in_phy_port: in_port, tunnel_id: 0 };
    let made = Made { bytes: made.bytes.clone(), packets: 1, ingress, ..*made };
    passed.all += 1;
    // Test runs take no frame without payload.
    let may_be = made.bytes.len() > 14;
    let traced = pair.pipeline.trace(&made.bytes, made.beside, &ingress);
    let first = if passed.all.is_multiple_of(2) { Hook::Tc } else { Hook::Xdp };
    let Some(number) = may_be.then(|| kernel.pass(&made, first)).flatten() else {
        pair.pass(&made, None);
        if may_be {
            let offered = kernel.offloaded.offer(pair.now, &traced, Lifetime::default());
            assert!(matches!(offered, Ok(_) | Err(NotOffloaded::WhyNot(_))), "{offered:?}");
        }
        return;
    };
    *(if first == Hook::Tc { &mut passed.tc } else { &mut passed.xdp }) += 1;
    let entry = kernel.offloaded.entries().get(number).expect("there");
    assert_eq!(traced.verdict(), Ok(entry.output));
    assert_eq!(entry.path, *traced.path());
    let wire = made.on_wire();
    pair.naive.now = pair.now;
    pair.naive.sent.clear();
    pair.naive.receive(&wire, ingress, (1, made.bytes.len() as u64));
    assert_eq!(pair.naive.sent, [(Destination::Port(entry.output), wire)]);
}

/// Adds a flow; most of them do what the kernel can.
fn add_flow(bytes: &mut Bytes<'_>, samples: &[Made], pair: &mut Pair) {
    made::add_flow(bytes, samples, &mut pair.pipeline, &mut pair.naive, &mut pair.flows);
    let (Some(flow), Some(id)) = (pair.naive.flows.last_mut(), pair.flows.last()) else { return };
    let output = [Action::Output { port: u32::from(bytes.next() % 5), max_len: 0 }].into();
    let goes_on = Instruction::GotoTable(flow.table + 1 + bytes.next() % 2);
    flow.instructions = match bytes.next() % 8 {
        0..=3 => vec![Instruction::ApplyActions(output)],
        4 => vec![Instruction::WriteActions(output), goes_on],
        5 => vec![Instruction::WriteMetadata { metadata: 1, mask: 3 }, goes_on],
        6 => vec![Instruction::ApplyActions([Action::Group(1)].into())],
        _ => return,
    };
    pair.pipeline.change_flow(*id, &flow.instructions, flow.cookie);
}

/// Adds a flow that all frames match.
fn add_miss(pair: &mut Pair) {
    let fields = Match::default();
    let instructions = vec![Instruction::ApplyActions([Action::Output { port: 4, max_len: 0 }].into())];
    let flow = Flow { table: 0, priority: 0, fields: &fields, instructions: &instructions, cookie: 0 };
    pair.flows.push(pair.pipeline.add_flow(&flow).expect("room"));
    pair.naive.flows.push(naive::Flow {
        table: 0,
        priority: 0,
        fields,
        instructions,
        cookie: 0,
        counted: (0, 0),
        used: Instant::ZERO,
    });
}

/// A change of flows or ports, of which the kernel's entries are told.
fn change(bytes: &mut Bytes<'_>, samples: &[Made], pair: &mut Pair, kernel: &mut Kernel) {
    let Kernel { offloaded, .. } = kernel;
    match bytes.next() % 4 {
        0 | 1 => {
            add_flow(bytes, samples, pair);
            let flow = pair.naive.flows.last().expect("added");
            offloaded.flow_added(flow.table, flow.priority, &flow.fields).expect("no map fails");
        }
        2 => {
            let key = |flow: &naive::Flow| (flow.instructions.clone(), flow.cookie);
            let before: Vec<_> = pair.flows.iter().copied().zip(pair.naive.flows.iter().map(key)).collect();
            made::change_flow(bytes, &mut pair.pipeline, &mut pair.naive, &mut pair.flows);
            for (id, key_before) in before {
                let now = pair.flows.iter().position(|own| *own == id);
                if now.is_none_or(|now| key(&pair.naive.flows[now]) != key_before) {
                    offloaded.flow_changed(id).expect("no map fails");
                }
            }
        }
        _ => {
            made::set_ports(bytes, &mut pair.pipeline, &mut pair.naive);
            offloaded.clear().expect("no map fails");
        }
    }
    offloaded.settle(&mut pair.pipeline).expect("settles");
}

fn run(seed: u64, kernel: &mut Kernel, passed: &mut Passed) {
    let input = seed.to_le_bytes();
    let mut bytes = Bytes::new(&input);
    let mut pair = Pair::new();
    kernel.set_ports();
    made::configure(&mut bytes, &mut pair.pipeline, &mut pair.naive);
    let samples: Vec<Made> = (0..4).map(|_| made::frame(&mut bytes)).collect();
    add_miss(&mut pair);
    for _ in 0..4 + bytes.next() % 8 {
        add_flow(&mut bytes, &samples, &mut pair);
    }
    for _ in 0..60 {
        match bytes.next() % 8 {
            0 => change(&mut bytes, &samples, &mut pair, kernel),
            1..=5 => {
                let sample = &samples[usize::from(bytes.next()) % samples.len()];
                pair.publish();
                pass(&mut pair, kernel, sample, passed);
            }
            _ => {
                let frame = made::frame(&mut bytes);
                pair.publish();
                pass(&mut pair, kernel, &frame, passed);
            }
        }
    }
    kernel.offloaded.record_all(&mut pair.pipeline);
    pair.compare_counted();
    kernel.offloaded.clear().expect("no map fails");
    kernel.offloaded.settle(&mut pair.pipeline).expect("settles");
    pair.compare_counted();
}

#[test]
fn what_the_kernel_forwards_is_what_the_interpreter_forwards() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let namespace = Namespace::new().expect("a namespace");
    let ran = namespace.run(|| {
        let (mut kernel, mut passed) = (Kernel::load(), Passed::default());
        for seed in 0..400 {
            run(seed, &mut kernel, &mut passed);
        }
        assert_eq!(kernel.offloaded.offload().grace_periods(), 0);
        passed
    });
    let passed = ran.expect("ran");
    let Passed { tc, xdp, all } = passed;
    println!("forwarded at tc {tc}, at XDP {xdp}, of {all} frames");
    assert!(tc > 500 && xdp > 500, "{tc} and {xdp} of {all} frames");
}
