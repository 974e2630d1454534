//! A worker on a thread of its own: a wire, and a port to another process.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Deadline};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use twinpath_frame::{Burst, Pool, leaked};
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{PortId, PortQueue, WaitSource};
use twinpath_shm::{ShmConfig, ShmPort};
use twinpath_time::Instant;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::{Attached, Command, Engine, Event, Io, Remains, Worker, WorkerConfig, WorkerCounters};

use crate::peer::{Kind, Peer};

/// Answered by the worker itself.
pub(crate) const DIRECT: u16 = 0x88b6;
/// Handed to the application.
pub(crate) const SHARED: u16 = 0x88b5;

/// Slots per direction.
pub(crate) const SLOTS: u32 = 64;

const WIRE: PortId = PortId { port: 0, queue: 0 };
const PATIENCE: Duration = Duration::from_secs(20);

/// Frames of one type go back, those of the other to the application; what comes from there goes out if it is of that type
/// too: what an application may send is its owner's business, and nonsense at full speed would fill the wire for all.
struct HandOver;

impl Engine for HandOver {
    type Command = ();
    type Event = ();

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, _now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        let is_wire = port == WIRE;
        let other = io.ports().iter().find(|port| (port.id() == WIRE) != is_wire).map(Attached::id);
        for frame in frames.drain(usize::MAX) {
            let is_of = |ethertype: u16| frame.bytes().get(12..14) == Some(&ethertype.to_be_bytes());
            match other {
                _ if is_wire && is_of(DIRECT) => io.send(port, frame),
                Some(other) if is_of(SHARED) => io.send(other, frame),
                _ => io.release(frame),
            }
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _now: Instant, (): (), _io: &mut Io<'_, ()>) {}
}

pub(crate) struct Rig {
    commands: Sender<Command<()>>,
    events: Receiver<Event<()>>,
    worker: JoinHandle<Remains<HandOver>>,
    wire: LoopbackPort,
    pool: Pool,
    next_port: u16,
    next_id: u32,
    asked: u32,
}

impl Rig {
    pub(crate) fn new(mode: Mode) -> Self {
        let (near, wire) = pair(WIRE, PortId { port: 99, queue: 0 }).expect("eventfds");
        let (commands, inbox) = mailbox(16).expect("eventfd");
        let (outbox, events) = mailbox(16).expect("eventfd");
        let worker = std::thread::spawn(move || {
            let config = WorkerConfig { idle: IdleConfig { mode, ..IdleConfig::default() } };
            let (pool, counters) = (Pool::new(256).expect("pool"), Arc::new(WorkerCounters::default()));
            let mut worker = Worker::new(&config, HandOver, pool, inbox, outbox, counters).expect("a worker");
            worker.attach(Box::new(near));
            worker.start().expect("started");
            worker.run()
        });
        let pool = Pool::new(256).expect("pool");
        let mut rig = Self { commands, events, worker, wire, pool, next_port: 1, next_id: 0, asked: 0 };
        assert!(matches!(rig.event(), Event::Attached(WIRE)));
        rig
    }

    /// Starts an application and gives it a port.
    pub(crate) fn attach(&mut self, kind: Kind, seed: u64) -> Peer {
        let id = PortId { port: self.next_port, queue: 0 };
        self.next_port += 1;
        let (port, offer) = ShmPort::create(&ShmConfig { id, slots: SLOTS }).expect("a port");
        let counters = Arc::clone(port.counters());
        assert!(self.commands.send(Command::Attach(Box::new(port))).is_ok());
        assert!(matches!(self.event(), Event::Attached(attached) if attached == id));
        Peer::start(kind, seed, id, counters, &offer)
    }

    /// Takes the port off the worker, then ends the application.
    pub(crate) fn detach(&mut self, peer: Peer) {
        assert!(self.commands.send(Command::DetachQueue(peer.id)).is_ok());
        let Event::Detached(queue) = self.event() else { panic!("another event") };
        assert_eq!(queue.id(), peer.id);
        assert!(queue.close().is_empty(), "it held no frame");
    }

    fn event(&mut self) -> Event<()> {
        let deadline = Deadline::now() + PATIENCE;
        loop {
            self.events.drain();
            if let Some(event) = self.events.take() {
                return event;
            }
            assert!(Deadline::now() < deadline, "the worker says nothing");
            wait_for(&self.events);
        }
    }

    /// Puts `count` frames on the wire, in bursts.
    pub(crate) fn offer(&mut self, ethertype: u16, count: u32) {
        let mut burst = Burst::new();
        for _ in 0..count {
            let mut bytes = [0; 64];
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
            bytes[14..18].copy_from_slice(&self.next_id.to_be_bytes());
            self.next_id += 1;
            let mut frame = self.pool.take().expect("free");
            frame.copy_from(&bytes).expect("fits");
            if burst.push(frame).is_ok() && burst.room() == 0 {
                self.wire.transmit(&mut self.pool, &mut burst);
                self.wire.flush(&mut self.pool);
            }
        }
        self.wire.transmit(&mut self.pool, &mut burst);
        self.wire.flush(&mut self.pool);
    }

    /// Sends `count` frames, one after the other's answer; says how many were answered, right.
    pub(crate) fn exchange(&mut self, ethertype: u16, count: u32) -> u32 {
        self.asked = count;
        for answered in 0..count {
            let id = self.next_id;
            self.offer(ethertype, 1);
            let deadline = Deadline::now() + PATIENCE;
            while !self.has_come(ethertype, id) {
                if Deadline::now() > deadline {
                    return answered;
                }
                assert!(self.wire.arm());
                if !self.wire.look() {
                    wait_for(self.wire.fd().expect("an fd"));
                }
                self.wire.disarm();
            }
        }
        count
    }

    /// How many frames the last exchange sent.
    pub(crate) const fn asked(&self) -> u32 {
        self.asked
    }

    /// Takes what is on the wire; whether the answer to frame `id` was there.
    fn has_come(&mut self, ethertype: u16, id: u32) -> bool {
        let mut burst = Burst::new();
        self.wire.receive(Instant::ZERO, &mut self.pool, &mut burst);
        let mut wanted = [0; 64];
        wanted[12..14].copy_from_slice(&ethertype.to_be_bytes());
        wanted[14..18].copy_from_slice(&id.to_be_bytes());
        let has_come = burst.frames().iter().any(|frame| frame.bytes() == wanted);
        burst.release(usize::MAX, &mut self.pool);
        has_come
    }

    pub(crate) fn until<R>(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> Option<R>) -> R {
        let deadline = Deadline::now() + PATIENCE;
        loop {
            if let Some(result) = holds(self) {
                return result;
            }
            assert!(Deadline::now() < deadline, "it does not come that {what}");
        }
    }

    /// Ends the worker: all its frames are home.
    pub(crate) fn finish(self) {
        drop(self.commands);
        let remains = self.worker.join().expect("the worker lives");
        assert_eq!(remains.ports.len(), 1);
        assert_eq!((remains.pool.free(), leaked()), (remains.pool.frames(), 0));
        assert_eq!(self.pool.free(), self.pool.frames());
    }
}

/// Until it is readable, or a moment has passed and the caller looks at its deadline.
pub(crate) fn wait_for(fd: impl AsFd) {
    let moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&moment));
}
