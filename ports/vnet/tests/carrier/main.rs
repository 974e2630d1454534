//! A queue that carries several interfaces, on real veth pairs in namespaces of its own.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod bridge;
mod fair;
mod frames;
mod marks;
mod slow;

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_bpf::{PortPrograms, QUEUES_MAX, TcAttach, Unserved};
use twinpath_frame::{Burst, Frame, Mapping, Pool};
use twinpath_port::{CarriedPort, Carrier, GsoKinds, PORTS_MAX, PortId, PortQueue, WaitSource};
use twinpath_rings::pending::{Pending, STRIDE};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::interface_index;
use twinpath_test_rig::{ifindex, ip, quiet, run};
use twinpath_time::{Duration, Instant};
use twinpath_vnet::carrier::{CarrierConfig, CarrierPort, QUEUE_FRAMES, capabilities, spare};

const MARK: u32 = 0x7477_6967;
const QUEUE: PortId = PortId { port: PORTS_MAX as u16, queue: 0 };

/// Runs `work` in a namespace, or in that of this process.
fn within<R: Send>(namespace: Option<&Namespace>, work: impl FnOnce() -> R + Send) -> R {
    match namespace {
        Some(namespace) => namespace.run(work).unwrap(),
        None => work(),
    }
}

/// Whether tests can run: as root, on a kernel with BPF links at tc.
fn can_run() -> bool {
    if !twinpath_test_rig::root_or_skip() {
        return false;
    }
    if TcAttach::here() == TcAttach::Tcx {
        return true;
    }
    println!("skipped: the kernel has no BPF links at tc (tcx)");
    false
}

/// The ports of a namespace with one worker, which the test plays.
struct Switch {
    programs: PortPrograms,
    queue: CarrierPort,
    pool: Pool,
    /// Frames that have come and were not taken yet.
    waiting: Burst,
}

impl Switch {
    /// Makes the interfaces `names` of the namespace the ports 0, 1 and so on.
    fn new(namespace: &Namespace, names: &[&str], unserved: Unserved, fail_open: Duration) -> Self {
        Self::in_namespace(Some(namespace), names, unserved, fail_open)
    }

    fn in_namespace(
        namespace: Option<&Namespace>,
        names: &[&str],
        unserved: Unserved,
        fail_open: Duration,
    ) -> Self {
        let config =
            CarrierConfig { id: QUEUE, ring_slots: 1024, ports_max: 8, fanout_group: None, mark: MARK };
        let mut programs = PortPrograms::load(MARK, 1, fail_open, 0).unwrap();
        let open = || CarrierPort::open(&config, |socket| programs.attach_socket_filter(0, socket)).unwrap();
        let queue = within(namespace, open);
        let word = programs.pending().map(|words| {
            let words = Mapping::of_fd(words, QUEUES_MAX as usize * STRIDE, 0).unwrap();
            Pending::new(Arc::new(words), 0, fail_open).unwrap()
        });
        let mut queue = queue.failing_open(word);
        let mut pool = Pool::new(2 * QUEUE_FRAMES).unwrap();
        queue.prepare(&mut pool);
        for (number, name) in names.iter().enumerate() {
            let ifindex = within(namespace, || interface_index(name).unwrap());
            let port = CarriedPort {
                port: number as u16,
                ifindex,
                capabilities: capabilities(GsoKinds::ALL),
                bypass_qdisc: true,
                spares: vec![Arc::new(within(namespace, || spare(MARK)).unwrap())],
                counters: Arc::default(),
            };
            assert!(queue.add(port).is_ok());
            within(namespace, || programs.hold(ifindex, unserved, TcAttach::Tcx).unwrap());
        }
        Self { programs, queue, pool, waiting: Burst::new() }
    }

    fn receive(&mut self) {
        let now = twinpath_sys::clock::now();
        self.queue.receive(now, &mut self.pool, &mut self.waiting);
    }

    /// Waits for the next frame.
    fn next(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.waiting.drain(1).next() {
                return frame;
            }
            self.receive();
            if self.waiting.is_empty() {
                wait_for(&self.queue);
            }
        }
    }

    /// Sends a frame through a port.
    fn send(&mut self, port: u16, mut frame: Frame) {
        frame.meta_mut().port = port;
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.queue.transmit(&mut self.pool, &mut burst);
    }

    /// Passes every frame on to the other of two ports, until there is none.
    fn forward(&mut self) {
        loop {
            self.receive();
            if self.waiting.is_empty() {
                return;
            }
            for frame in self.waiting.frames_mut() {
                frame.meta_mut().port ^= 1;
            }
            self.queue.transmit(&mut self.pool, &mut self.waiting);
        }
    }

    fn counters(&self, port: u16) -> &twinpath_port::PortCounters {
        &self.queue.ports().get(port).unwrap().counters
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }
}

fn wait_for(source: &impl WaitSource) {
    let fd = source.fd().unwrap();
    let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)), Ok(1), "a frame");
}

fn bytes(frame: &Frame) -> Vec<u8> {
    frame.chain().flat_map(Frame::bytes).copied().collect()
}
