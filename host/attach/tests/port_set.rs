//! Interfaces of a namespace as ports of two workers; the test plays the workers.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_attach::{PlacedQueue, PortSet, PortSetPlan};
use twinpath_bpf::{TcAttach, Unserved};
use twinpath_frame::{Burst, Pool};
use twinpath_port::{CarriedPort, GsoKinds, PortQueue};
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::{PacketSocket, interface_index};
use twinpath_test_rig::ip;
use twinpath_time::{Duration, Instant};
use twinpath_vnet::carrier::QUEUE_FRAMES;

const FLOWS: u8 = 64;

/// A UDP packet of one of many flows.
fn datagram(flow: u8) -> Vec<u8> {
    let mut bytes =
        vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17];
    bytes.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, flow, 0x10, 0xe1, 0, 26, 0, 0]);
    bytes.resize(60, flow);
    bytes
}

/// A worker's queue and memory.
struct Worker {
    queue: Box<dyn PortQueue>,
    pool: Pool,
}

impl Worker {
    /// The flows and ports of the frames that have arrived.
    fn take(&mut self) -> Vec<(u8, u16)> {
        let mut burst = Burst::new();
        self.queue.receive(Instant::from_nanos(7), &mut self.pool, &mut burst);
        let seen = burst.frames().iter().map(|frame| (frame.bytes()[35], frame.meta().port)).collect();
        burst.release(usize::MAX, &mut self.pool);
        seen
    }
}

/// Makes each worker carry a port. If there are other ports, whose frames need them, each port comes with
/// as many spare sockets.
fn add_port(workers: &mut [Worker], ports: Vec<CarriedPort>) {
    for (worker, port) in workers.iter_mut().zip(ports) {
        assert_eq!(port.spares.len(), 2 * usize::from(port.port));
        assert!(worker.queue.carrier().unwrap().add(port).is_ok());
    }
}

#[test]
fn the_frames_of_all_ports_are_shared_among_workers_until_a_port_is_detached() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    namespace.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap()).unwrap();
    for number in 0..2 {
        ip(&namespace, &format!("link add far{number} type veth peer name near{number}"));
        ip(&namespace, &format!("link set far{number} up"));
        ip(&namespace, &format!("link set near{number} up"));
    }
    let plan = PortSetPlan {
        number: 0,
        workers: 2,
        ring_frames: 256,
        ports_max: 8,
        fail_open: Duration::ZERO,
        offloaded: 0,
        tc: TcAttach::here(),
        segmentation: GsoKinds::ALL,
    };
    let (mut set, placed) = namespace.run(|| PortSet::open(plan, None).unwrap()).unwrap();
    assert!(set.stuck().is_none(), "no worker is ever taken to be stuck");
    let workers = placed.into_iter().map(|PlacedQueue { mut queue, .. }| {
        let mut pool = Pool::new(2 * QUEUE_FRAMES).unwrap();
        queue.prepare(&mut pool);
        Worker { queue, pool }
    });
    let mut workers: Vec<_> = workers.collect();
    let index = |name: String| namespace.run(|| interface_index(&name).unwrap()).unwrap();
    let mut far = Vec::new();
    for number in 0..2 {
        let [near, ifindex] = ["near", "far"].map(|end| index(format!("{end}{number}")));
        namespace.run(|| set.attach(near).unwrap()).unwrap();
        add_port(&mut workers, namespace.run(|| set.ports(number, near).unwrap()).unwrap());
        far.push(namespace.run(|| PacketSocket::open(ifindex, 0).unwrap()).unwrap());
        far[usize::from(number)].send(&datagram(FLOWS)).unwrap(); // The kernel's: no worker sees it.
        namespace.run(|| set.claim(near, Unserved::Dropped).unwrap()).unwrap();
    }
    for flow in 0..FLOWS {
        far[usize::from(flow % 2)].send(&datagram(flow)).unwrap();
    }
    let mut seen = [Vec::new(), Vec::new()];
    while seen.iter().map(Vec::len).sum::<usize>() < usize::from(FLOWS) {
        let fds: Vec<_> = workers.iter().map(|worker| worker.queue.fd().unwrap()).collect();
        let mut wanted: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let ready = poll(&mut wanted, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
        assert!(ready > 0, "{seen:?}");
        for (seen, worker) in seen.iter_mut().zip(&mut workers) {
            seen.extend(worker.take());
        }
    }
    assert!(seen.iter().all(|seen| !seen.is_empty()), "both workers take part: {seen:?}");
    let mut all = seen.concat();
    all.sort_unstable();
    let wanted: Vec<_> = (0..FLOWS).map(|flow| (flow, u16::from(flow % 2))).collect();
    assert_eq!(all, wanted, "each frame comes once, from its port");

    // After detaching, frames go to the kernel again, and the other port is still served.
    let gone = index("near0".to_owned());
    namespace.run(|| set.detach(gone).unwrap()).unwrap();
    far[0].send(&datagram(0)).unwrap();
    far[1].send(&datagram(1)).unwrap();
    let mut seen = Vec::new();
    while seen.is_empty() {
        seen.extend(workers.iter_mut().flat_map(Worker::take));
    }
    assert_eq!(seen, [(1, 1)]);
    workers.into_iter().for_each(|Worker { queue, mut pool }| {
        queue.close().into_iter().for_each(|frame| pool.release(frame));
    });
}
