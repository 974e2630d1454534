#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::sync::Arc;

use twinpath_forwarding::learning::{Mode, PortConfig, Shared, Snapshot, SwitchConfig, VlanSet};
use twinpath_frame::{Frame, Meta, Pool};
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{Capabilities, PortQueue};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::{Command, Event, Worker, WorkerConfig, WorkerCounters};

use super::*;

/// The outer end of a port's wire, with a pool of its own.
struct Outside {
    wire: LoopbackPort,
    pool: Pool,
}

impl Outside {
    fn send(&mut self, bytes: &[u8], vlan: Option<u16>) {
        self.send_with(bytes, |meta| meta.vlan = vlan);
    }

    fn send_with(&mut self, bytes: &[u8], change: impl FnOnce(&mut Meta)) {
        let mut frame = self.pool.copy_of([bytes]).unwrap();
        change(frame.meta_mut());
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.wire.transmit(&mut self.pool, &mut burst);
    }

    /// The frames that have come, each with the tag beside it.
    fn received(&mut self) -> Vec<(Vec<u8>, Option<u16>)> {
        let mut burst = Burst::new();
        self.wire.receive(Instant::ZERO, &mut self.pool, &mut burst);
        let of = |frame: &Frame| (frame.bytes().to_vec(), frame.meta().vlan);
        let frames = burst.frames().iter().map(of).collect();
        burst.release(usize::MAX, &mut self.pool);
        frames
    }
}

struct Rig {
    worker: Worker<SwitchEngine>,
    outside: Vec<Outside>,
    commands: Sender<Command<SwitchCommand>>,
    events: Receiver<Event<SwitchEvent>>,
    counters: Arc<WorkerCounters>,
    port_counters: Vec<Arc<twinpath_port::PortCounters>>,
    turns: u64,
}

fn config(modes: &[Mode]) -> SwitchConfig {
    let port = |(number, mode): (u16, &Mode)| PortConfig { mode: mode.clone(), ..PortConfig::new(number) };
    SwitchConfig { vlans: true, ports: (0..).zip(modes).map(port).collect(), ..SwitchConfig::default() }
}

/// A switch with these ports, of which those in `tags` send tags beside frames.
fn rig(modes: &[Mode], tags: &[bool]) -> Rig {
    let capable =
        tags.iter().map(|tags| move |port| Capabilities { tags: *tags, ..port }).collect::<Vec<_>>();
    rig_with(config(modes), &capable, None)
}

/// A switch of this configuration, with the capabilities that its ports have.
fn rig_with(
    config: SwitchConfig,
    capable: &[impl Fn(Capabilities) -> Capabilities],
    tables: Option<twinpath_forwarding::openflow::pipeline::Worker>,
) -> Rig {
    let numbers: Vec<u16> = config.ports.iter().map(|port| port.number).collect();
    let snapshot = Arc::new(Snapshot::compile(config).unwrap());
    let shared = Arc::new(Shared::new(4096, [1, 2]).expect("memory"));
    let engine = SwitchEngine::new(Switch::new(snapshot, shared, Arc::default()), tables);
    let (commands, inbox) = mailbox(16).unwrap();
    let (outbox, events) =
        twinpath_worker::mailbox::mailbox_with_reserve(16, twinpath_worker::ENGINE_RESERVE).unwrap();
    let counters = Arc::new(WorkerCounters::default());
    let config = WorkerConfig { idle: IdleConfig::default() };
    let pool = Pool::new(256).unwrap();
    let mut worker = Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).unwrap();
    let (mut outside, mut port_counters) = (Vec::new(), Vec::new());
    for (number, capable) in numbers.into_iter().zip(capable) {
        let id = PortId { port: number, queue: 0 };
        let (inner, wire) = pair(id, PortId { port: 99, queue: 0 }).unwrap();
        let capabilities = capable(inner.capabilities());
        let inner = inner.with_capabilities(capabilities);
        port_counters.push(Arc::clone(inner.counters()));
        worker.attach(Box::new(inner));
        outside.push(Outside { wire, pool: Pool::new(64).unwrap() });
    }
    Rig { worker, outside, commands, events, counters, port_counters, turns: 0 }
}

impl Rig {
    /// Has a frame come by a port; what leaves by each.
    fn pass(&mut self, port: usize, bytes: &[u8], vlan: Option<u16>) -> Vec<Vec<(Vec<u8>, Option<u16>)>> {
        self.outside[port].send(bytes, vlan);
        self.turn();
        self.outside.iter_mut().map(Outside::received).collect()
    }

    /// Lets frames arrive at a port in one burst; returns what leaves by each port.
    fn pass_burst(&mut self, port: usize, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        frames.iter().for_each(|bytes| self.outside[port].send(bytes, None));
        self.turn();
        let bytes = |outside: &mut Outside| outside.received().into_iter().map(|(bytes, _)| bytes).collect();
        self.outside.iter_mut().map(bytes).collect()
    }

    fn turn(&mut self) {
        self.turns += 1;
        assert!(self.worker.turn(Instant::from_nanos(self.turns)));
    }

    fn tell(&mut self, command: SwitchCommand) {
        assert!(self.commands.send(Command::Engine(command)).is_ok());
        self.turn();
    }

    /// What the engine has told control.
    fn told(&mut self) -> Vec<SwitchEvent> {
        let mut told = Vec::new();
        while let Some(event) = self.events.take() {
            if let Event::Engine(event) = event {
                told.push(event);
            }
        }
        told
    }
}

fn frame(to: u8, from: u8, tag: Option<u16>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
    if let Some(control) = tag {
        frame.extend([0x81, 0]);
        frame.extend(control.to_be_bytes());
    }
    frame.extend([8, 0, 0x5a, 0x5b]);
    frame
}

fn access(vlan: u16) -> Mode {
    Mode::Access { vlan }
}

fn trunk(native: Option<u16>) -> Mode {
    Mode::Trunk { native, vlans: VlanSet::all() }
}

#[test]
fn an_unknown_address_is_flooded_and_a_known_one_is_not() {
    let mut rig = rig(&[access(1), access(1), access(1)], &[true, true, true]);
    let (there, back) = (frame(2, 1, None), frame(1, 2, None));
    let came = (there.clone(), None);
    assert_eq!(rig.pass(0, &there, None), [vec![], vec![came.clone()], vec![came.clone()]]);
    assert_eq!(rig.pass(1, &back, None), [vec![(back.clone(), None)], vec![], vec![]]);
    assert_eq!(rig.pass(0, &there, None), [vec![], vec![came], vec![]], "learned");
    assert_eq!(rig.counters.drops.happened().count(), 0);
}

#[test]
fn tags_are_put_changed_and_taken_off_beside_frames_and_within_them() {
    // A trunk that takes tags beside frames, one that does not, and an access port of VLAN 10.
    let mut rig = rig(&[trunk(Some(1)), trunk(None), access(10)], &[true, false, true]);
    let untagged = frame(9, 3, None);
    let within = frame(9, 3, Some(10));
    let beside = (untagged.clone(), Some(10));
    assert_eq!(
        rig.pass(2, &untagged, None),
        [vec![beside.clone()], vec![(within.clone(), None)], vec![]],
        "both trunks send the tag of the VLAN"
    );
    let (tagged, plain) = (frame(8, 4, Some(0x600a)), frame(8, 4, None));
    assert_eq!(
        rig.pass(1, &tagged, None),
        [vec![(tagged.clone(), None)], vec![], vec![(plain.clone(), None)]],
        "the tag within the frame is kept with its priority, or taken off"
    );
    let came = rig.pass(0, &plain, Some(0x200a));
    assert_eq!(
        came,
        [vec![], vec![(frame(8, 4, Some(0x200a)), None)], vec![(plain, None)]],
        "the tag beside it"
    );
    // A frame with a priority alone is of the native VLAN.
    let came = rig.pass(0, &frame(7, 5, Some(0xe000)), None);
    assert_eq!(came, [vec![], vec![(frame(7, 5, Some(0xe001)), None)], vec![]]);
}

#[test]
fn what_is_dropped_is_counted_at_the_port_that_it_came_by() {
    let mut rig = rig(&[access(1), access(2)], &[true, true]);
    assert_eq!(rig.pass(0, &frame(2, 1, Some(2)), None), [vec![], vec![]]);
    assert_eq!(rig.pass(0, &[2, 0, 0], None), [vec![], vec![]]);
    let drops = |reason| rig.port_counters[0].drops.get(reason);
    assert_eq!((drops(Reason::VlanTag), drops(Reason::Truncated)), (1, 1));
}

#[test]
fn a_snapshot_is_in_force_at_once_and_the_former_one_goes_back() {
    let mut rig = rig(&[access(1), access(1)], &[true, true]);
    let bytes = frame(2, 1, None);
    assert_eq!(rig.pass(0, &bytes, None)[1].len(), 1);
    let apart = Arc::new(Snapshot::compile(config(&[access(1), access(2)])).unwrap());
    rig.tell(SwitchCommand::Adopt(7, apart));
    assert_eq!(rig.pass(0, &bytes, None)[1].len(), 0);
    let adopted = rig.told().into_iter().find_map(|event| match event {
        SwitchEvent::Adopted(number, former) => Some((number, former.config().ports[1].mode.clone())),
        _ => None,
    });
    assert_eq!(adopted, Some((7, access(1))));
}

mod openflow;

#[test]
fn frames_with_the_same_head_are_of_one_flow_if_all_else_is_the_same() {
    let mut pool = Pool::new(16).unwrap();
    let mut burst = Burst::new();
    let mut add = |change: &dyn Fn(&mut Vec<u8>, &mut Meta)| {
        let (mut bytes, mut meta) = (vec![2; 60], Meta { port: 1, ..Meta::default() });
        bytes[11] = 9;
        change(&mut bytes, &mut meta);
        let mut frame = pool.copy_of([&*bytes]).unwrap();
        (frame.meta_mut().port, frame.meta_mut().vlan) = (meta.port, meta.vlan);
        burst.push(frame).unwrap();
    };
    add(&|_, _| ());
    add(&|bytes, _| bytes[40] = 1);
    add(&|bytes, _| bytes[16] = 1);
    add(&|_, meta| meta.port = 2);
    add(&|_, meta| (meta.port, meta.vlan) = (2, Some(5)));
    add(&|bytes, meta| (bytes[0], meta.port) = (4, 2));
    add(&|bytes, _| bytes.truncate(15));
    add(&|bytes, _| bytes.truncate(13));
    add(&|bytes, _| bytes.truncate(13));
    let mut runs = Runs::default();
    read(burst.frames(), &mut runs);
    let ports = (1..3).map(PortConfig::new).collect();
    let snapshot = Snapshot::compile(SwitchConfig { ports, ..SwitchConfig::default() }).unwrap();
    let shared = Arc::new(Shared::new(0, [1, 2]).unwrap());
    let mut switch = Switch::new(Arc::new(snapshot), shared, Arc::default());
    let mut judged = Vec::new();
    switch.judge_each(Instant::from_nanos(1 << 40), &mut runs, |numbers, _, judgement| {
        judged.extend(numbers.map(|number| (number, judgement.dropped)));
    });
    let numbers: Vec<_> = judged.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..burst.len()).collect::<Vec<_>>(), "each once, in order");
    let runts = judged.iter().filter(|(_, dropped)| *dropped == Some(Reason::Truncated)).count();
    assert_eq!(runts, 2);
    burst.release(usize::MAX, &mut pool);
}

#[test]
fn a_burst_of_one_flow_leaves_in_order_and_none_of_it_is_longer_than_its_port_takes() {
    let short = |port| Capabilities { frame_len_max: 64, ..port };
    let mut rig = rig_with(config(&[access(1), access(1), access(1)]), &[short; 3], None);
    let burst = |to, from, len: usize| -> Vec<Vec<u8>> {
        let one = |number| {
            let mut bytes = frame(to, from, None);
            bytes.extend([number, 0, 0, 0]);
            bytes.resize(len, number);
            bytes
        };
        (0..40).map(one).collect()
    };
    let (there, back) = (burst(2, 1, 60), burst(1, 2, 64));
    assert_eq!(rig.pass_burst(0, &there), [vec![], there.clone(), there.clone()], "flooded");
    assert_eq!(rig.pass_burst(1, &back), [back.clone(), vec![], vec![]]);
    assert_eq!(rig.pass_burst(0, &there), [vec![], there.clone(), vec![]], "learned");
    let mut mixed = burst(2, 1, 60);
    mixed[20] = burst(2, 1, 65)[20].clone();
    let fit: Vec<_> = mixed.iter().filter(|frame| frame.len() <= 64).cloned().collect();
    assert_eq!(rig.pass_burst(0, &mixed), [vec![], fit, vec![]]);
    assert_eq!(rig.port_counters[1].drops.get(Reason::FrameTooLarge), 1);
    // Bursts of two ports meet in that of a third, which is full with 64.
    let both: Vec<_> = there.iter().chain(&burst(2, 3, 60)).cloned().collect();
    there.iter().for_each(|bytes| rig.outside[0].send(bytes, None));
    assert_eq!(rig.pass_burst(2, &both[40..]), [vec![], both[..64].to_vec(), vec![]]);
    let rest: Vec<_> = rig.outside[1].received().into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(rest, both[64..]);
    // Frames of two flows by turns.
    let two: Vec<_> =
        there.iter().zip(burst(2, 9, 60)).flat_map(|(one, other)| [one.clone(), other]).collect();
    assert_eq!(rig.pass_burst(0, &two[..64]), [vec![], two[..64].to_vec(), vec![]]);
    assert_eq!(rig.counters.drops.happened().count(), 0);
}
