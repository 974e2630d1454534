//! Ports have names that stay, whichever come and go beside them; the engine hears of each.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Pool};
use twinpath_inspect::Reason;
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{PortId, PortQueue};
use twinpath_time::Instant;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
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
            io.send(port(frame.bytes()[0].into()), frame);
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
