//! Ports have names that stay, whichever come and go beside them; the engine hears of each.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Pool};
use twinpath_inspect::Reason;
use twinpath_port::loopback::{LoopbackCarrier, LoopbackPort, pair};
use twinpath_port::{LinkState, PORTS_MAX, PortId, PortQueue};
use twinpath_time::Instant;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::{Command, Engine, Event, Io, Worker, WorkerConfig, WorkerCounters};

const fn port(port: u16) -> PortId {
    PortId { port, queue: 0 }
}

/// Sends every frame by the port whose number is its first byte.
#[derive(Default)]
struct Sends {
    attached: Vec<PortId>,
    detached: Vec<PortId>,
}

impl Engine for Sends {
    type Command = ();
    type Event = (Vec<PortId>, Vec<PortId>);

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, Self::Event>) -> Result<(), Errno> {
        Ok(())
    }

    fn attached(&mut self, port: PortId, io: &mut Io<'_, Self::Event>) {
        assert!(io.port(port).is_some(), "it can be used at once");
        self.attached.push(port);
    }

    fn detached(&mut self, port: PortId, io: &mut Io<'_, Self::Event>) {
        assert!(io.port(port).is_none());
        self.detached.push(port);
    }

    fn receive(&mut self, _now: Instant, _: PortId, frames: &mut Burst, io: &mut Io<'_, Self::Event>) {
        for frame in frames.drain(usize::MAX) {
            io.forward_to(frame.bytes()[0].into(), Some(frame));
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, Self::Event>) -> bool {
        false
    }

    fn run(&mut self, _now: Instant, _io: &mut Io<'_, Self::Event>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _now: Instant, (): (), io: &mut Io<'_, Self::Event>) {
        let heard = (std::mem::take(&mut self.attached), std::mem::take(&mut self.detached));
        assert!(io.tell(heard).is_ok());
    }
}

#[test]
fn a_port_keeps_its_name_when_others_go_and_the_engine_hears_of_all() {
    let (commands, inbox) = mailbox(16).unwrap();
    let (outbox, events) = mailbox(64).unwrap();
    let (mut commands, mut events) = (commands, events);
    let counters = Arc::new(WorkerCounters::default());
    let config = WorkerConfig { idle: IdleConfig::default() };
    let pool = Pool::new(64).unwrap();
    let engine = Sends::default();
    let mut worker = Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).unwrap();
    let mut outside = Pool::new(64).unwrap();
    let mut wires: Vec<LoopbackPort> = (0..3)
        .map(|number| {
            let (inner, wire) = pair(port(number), port(9)).unwrap();
            worker.attach(Box::new(inner));
            wire
        })
        .collect();
    let mut now = 0;
    // What arrives at each wire, of one frame for each port that comes by the last one.
    let mut send = |worker: &mut Worker<Sends>| {
        now += 1;
        let mut burst = Burst::new();
        for number in 0..3 {
            let mut frame = outside.take().unwrap();
            frame.copy_from(&[number; 60]).unwrap();
            assert!(burst.push(frame).is_ok());
        }
        wires[2].transmit(&mut outside, &mut burst);
        worker.turn(Instant::from_nanos(now));
        wires.iter_mut().fold(Vec::new(), |mut came, wire| {
            wire.receive(Instant::ZERO, &mut outside, &mut burst);
            came.push(burst.frames().iter().map(|frame| frame.bytes()[0]).collect::<Vec<_>>());
            burst.release(usize::MAX, &mut outside);
            came
        })
    };
    assert_eq!(send(&mut worker), [[0], [1], [2]]);
    assert!(commands.send(Command::DetachQueue(port(0))).is_ok());
    worker.turn(Instant::from_nanos(100));
    assert_eq!(send(&mut worker), [vec![], vec![1], vec![2]]);
    assert_eq!(counters.drops.get(Reason::PortDown), 1, "that for the port that has gone");
    assert!(commands.send(Command::Engine(())).is_ok());
    worker.turn(Instant::from_nanos(200));
    let heard = std::iter::from_fn(|| events.take()).find_map(|event| match event {
        Event::Engine(heard) => Some(heard),
        _ => None,
    });
    assert_eq!(heard, Some(([0, 1, 2].map(port).to_vec(), vec![port(0)])));
}

/// The queue that carries several ports.
const CARRIER: PortId = PortId { port: PORTS_MAX as u16, queue: 2 };

/// A worker with the engine above, and its mailboxes.
struct Rig {
    worker: Worker<Sends>,
    commands: Sender<Command<()>>,
    events: Receiver<Event<(Vec<PortId>, Vec<PortId>)>>,
    counters: Arc<WorkerCounters>,
    outside: Pool,
    now: u64,
}

impl Rig {
    fn new() -> Self {
        let (commands, inbox) = mailbox(16).unwrap();
        let (outbox, events) = mailbox(64).unwrap();
        let counters = Arc::new(WorkerCounters::default());
        let config = WorkerConfig { idle: IdleConfig::default() };
        let pool = Pool::new(256).unwrap();
        let worker =
            Worker::new(&config, Sends::default(), pool, inbox, outbox, Arc::clone(&counters)).unwrap();
        Self { worker, commands, events, counters, outside: Pool::new(256).unwrap(), now: 0 }
    }

    fn tell(&mut self, command: Command<()>) {
        assert!(self.commands.send(command).is_ok());
        self.turn();
    }

    fn turn(&mut self) {
        self.now += 1;
        self.worker.turn(Instant::from_nanos(self.now));
    }

    /// Sends a frame for each of these ports by `wire`, and has the worker pass them on.
    fn send(&mut self, wire: &mut LoopbackPort, ports: &[u8]) {
        let mut burst = Burst::new();
        for port in ports {
            let mut frame = self.outside.take().unwrap();
            frame.copy_from(&[*port; 60]).unwrap();
            assert!(burst.push(frame).is_ok());
        }
        wire.transmit(&mut self.outside, &mut burst);
        self.turn();
    }

    /// What has arrived at these wires.
    fn came(&mut self, wires: &mut [LoopbackPort]) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        let came = wires.iter_mut().map(|wire| {
            wire.receive(Instant::ZERO, &mut self.outside, &mut burst);
            let came = burst.frames().iter().map(|frame| frame.bytes()[0]).collect();
            burst.release(usize::MAX, &mut self.outside);
            came
        });
        came.collect()
    }

    /// The names in the events about ports: attached, and removed.
    fn heard(&mut self) -> (Vec<PortId>, Vec<PortId>) {
        let (mut attached, mut removed) = (Vec::new(), Vec::new());
        while let Some(event) = self.events.take() {
            match event {
                Event::Attached(id) => attached.push(id),
                Event::PortRemoved(id) => removed.push(id),
                _ => {}
            }
        }
        (attached, removed)
    }
}

#[test]
fn a_queue_carries_several_ports_that_come_and_go() {
    let mut rig = Rig::new();
    let mut queue = LoopbackCarrier::new(CARRIER, 8).unwrap();
    let mut wires: Vec<_> = (0..3).map(|number| queue.far_end(number, port(9)).unwrap()).collect();
    rig.tell(Command::Attach(Box::new(queue)));
    let (alone, far) = pair(port(7), port(9)).unwrap();
    rig.tell(Command::Attach(Box::new(alone)));
    wires.push(far);
    let carried = |number: u16| PortId { port: number, queue: CARRIER.queue };
    for number in [0, 1, 1] {
        let port = Box::new(LoopbackCarrier::port(number, 10 + u32::from(number)));
        rig.tell(Command::AddPort { carrier: CARRIER, port });
    }
    assert_eq!(rig.heard(), (vec![CARRIER, port(7), carried(0), carried(1)], vec![carried(1)]));
    // From one of its ports to another, to itself, to a port with a queue of its own, and to one that is not carried.
    let mut outside = wires.remove(0);
    rig.send(&mut outside, &[1, 0, 7, 2, 1]);
    assert_eq!(rig.came(std::slice::from_mut(&mut outside)), [[0]]);
    assert_eq!(rig.came(&mut wires), [vec![1, 1], vec![], vec![7]]);
    assert_eq!(rig.counters.drops.get(Reason::PortDown), 2, "for port 2, and the port that was refused");
    // And from the port with a queue of its own into the carrier.
    let mut alone = wires.remove(2);
    rig.send(&mut alone, &[1, 0]);
    assert_eq!(rig.came(std::slice::from_mut(&mut outside)), [[0]]);
    assert_eq!(rig.came(&mut wires), [vec![1], vec![]]);
    // A change concerns one port, and a port that is removed is found no more.
    rig.tell(Command::LinkChanged { ifindex: 11, link: LinkState { mtu: 40, takes_super_frames: false } });
    rig.send(&mut outside, &[0, 1]);
    assert_eq!(rig.came(std::slice::from_mut(&mut outside)), [[0]]);
    assert_eq!(rig.came(&mut wires), [[0_u8; 0]; 2], "too long for the MTU of port 1");
    rig.tell(Command::RemovePort(1));
    assert_eq!(rig.heard(), (vec![], vec![carried(1)]));
    rig.send(&mut outside, &[1, 0]);
    assert_eq!(rig.came(std::slice::from_mut(&mut outside)), [[0]]);
    assert_eq!(rig.counters.drops.get(Reason::PortDown), 3);
    // The queue goes with the ports that it still carries.
    rig.tell(Command::DetachQueue(CARRIER));
    rig.send(&mut alone, &[0, 7]);
    assert_eq!(rig.came(std::slice::from_mut(&mut alone)), [[7]]);
    assert_eq!(rig.counters.drops.get(Reason::PortDown), 4);
    rig.tell(Command::Engine(()));
    let heard = std::iter::from_fn(|| rig.events.take()).find_map(|event| match event {
        Event::Engine((_, detached)) => Some(detached),
        _ => None,
    });
    assert_eq!(heard, Some(vec![carried(1), carried(0)]));
}

#[test]
fn as_many_ports_are_found_as_there_are_numbers() {
    let mut rig = Rig::new();
    let mut queue = LoopbackCarrier::new(CARRIER, PORTS_MAX).unwrap();
    let mut far = queue.far_end(200, port(9)).unwrap();
    for number in 0..PORTS_MAX as u16 {
        let port = LoopbackCarrier::port(number, u32::from(number) + 1);
        assert!(queue.carrier().unwrap().add(port).is_ok());
    }
    rig.tell(Command::Attach(Box::new(queue)));
    rig.send(&mut far, &[200]);
    assert_eq!(rig.came(std::slice::from_mut(&mut far)), [[200]]);
}
