//! Frames between learned addresses, forwarded by the kernel: what makes entries void, and which of them give room to others. The
//! test plays the worker and control, and says what time it is to both; the programs have the kernel's clock.

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SocketFlags, SocketType};
use rustix::time::Timespec;
use twinpath_bpf::{PortPrograms, TcAttach, Unserved};
use twinpath_forwarding::learning::{
    Arrival, CAPACITY, OnMove, PortConfig, Shared, Snapshot, Switch, SwitchConfig,
};
use twinpath_switch::offload::{KernelPort, Learned, Moves, PortForwarded};
use twinpath_sys::{clock, packet_socket};
use twinpath_time::{Duration, Instant};

use crate::rig::{Hosts, MTU, mac};

const MARK: u32 = 0x7477_7377;
const AGEING: Duration = Duration::from_secs(300);
/// Entries that there may be; those for frames of one port take a quarter of them.
const ENTRIES: u32 = 64;
const SHARE: u8 = 16;

/// Ports 1 and 2, which lead to the hosts of those numbers, and port 3, which is nowhere.
struct Learning {
    learned: Learned,
    snapshot: Arc<Snapshot>,
    worker: Switch,
    /// The worker's.
    socket: OwnedFd,
    /// The hosts'.
    udp: [UdpSocket; 2],
    ifindexes: [u32; 2],
    _programs: PortPrograms,
}

impl Learning {
    fn new(hosts: &Hosts) -> Self {
        let made = hosts.switch.run(|| {
            let mut programs = PortPrograms::load(MARK, 1, Duration::ZERO, ENTRIES).unwrap();
            let socket = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).unwrap();
            programs.attach_socket_filter(0, socket.as_fd()).unwrap();
            packet_socket::bind(&socket, 0, 3).unwrap();
            for ifindex in hosts.ifindexes {
                programs.hold(ifindex, Unserved::Dropped, TcAttach::here()).unwrap();
            }
            (programs, socket)
        });
        let (mut programs, socket) = made.unwrap();
        let ports = (1..=3).map(PortConfig::new).collect();
        let config = SwitchConfig {
            vlans: false,
            ports,
            static_entries: Vec::new(),
            ageing: AGEING,
            loop_guard: None,
        };
        let snapshot = Arc::new(Snapshot::compile(config).unwrap());
        let moves = Arc::new(Moves::new([1, 2]));
        let shared = Shared::new(CAPACITY, [3, 4]).unwrap();
        let shared = Arc::new(shared.heard_by(Arc::clone(&moves) as Arc<dyn OnMove>));
        let worker = Switch::new(Arc::clone(&snapshot), Arc::clone(&shared), Arc::default());
        let mut learned = Learned::new(shared, moves);
        learned.add(0, programs.take_offload().unwrap());
        let udp = [hosts.udp(0), hosts.udp(1)];
        let ifindexes = hosts.ifindexes;
        let mut learning = Self { learned, snapshot, worker, socket, udp, ifindexes, _programs: programs };
        learning.set_ports([true, true]);
        learning
    }

    fn port(&self, at: usize) -> KernelPort {
        KernelPort {
            ifindex: self.ifindexes[at],
            peer: None,
            frame_len_max: MTU + 14,
            has_xdp: false,
            takes_xdp: false,
        }
    }

    /// Says which of the ports are there.
    fn set_ports(&mut self, are_there: [bool; 2]) {
        let ports = [0, 1].map(|at| (at as u32 + 1, are_there[at].then(|| (0, self.port(at)))));
        self.learned.set_ports(&ports, clock::now(), &self.snapshot);
    }

    /// A worker gets a frame by a port, between addresses of these numbers.
    fn comes(&mut self, now: Instant, port: u16, from: u8, to: u8) -> [u8; 60] {
        let mut head = [0; 60];
        head[..6].copy_from_slice(&mac(to));
        head[6..12].copy_from_slice(&mac(from));
        head[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        self.worker.judge(now, &Arrival::read(port, &head, None, 1));
        head
    }

    /// The worker gets one and shows it. Returns whether the kernel forwards such frames, and did not before.
    fn shows(&mut self, now: Instant, port: u16, from: u8, to: u8) -> bool {
        let head = self.comes(now, port, from, to);
        self.learned.sampled(now, &self.snapshot, port, &head, None)
    }

    /// Both hosts are known, and the kernel forwards what the first one sends to the other.
    fn forwards(hosts: &Hosts) -> Self {
        let mut learning = Self::new(hosts);
        let now = clock::now();
        learning.comes(now, 2, 2, 1);
        assert!(learning.shows(now, 1, 1, 2));
        learning
    }

    /// Host 1 sends a datagram to host 2. Returns whether it is the worker that gets it.
    fn goes_to_the_worker(&self) -> bool {
        let [one, two] = &self.udp;
        while rustix::net::recv(&self.socket, &mut [0_u8; 64][..], RecvFlags::empty()).is_ok() {}
        one.send_to(b"which way?", "10.0.0.2:7000").unwrap();
        let mut sockets = [PollFd::new(two, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(poll(&mut sockets, Some(&patience)).unwrap(), 1, "one of both gets it");
        if sockets[0].revents().is_empty() {
            return true;
        }
        two.recv(&mut [0; 64]).unwrap();
        false
    }
}

#[test]
fn an_address_that_moves_has_its_frames_go_to_workers_at_once() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let hosts = Hosts::new();
    let mut learning = Learning::forwards(&hosts);
    assert!(!learning.goes_to_the_worker());
    learning.comes(clock::now(), 3, 2, 1);
    assert!(learning.goes_to_the_worker(), "control has done nothing yet");
    // Where it is now, the kernel cannot forward to.
    let now = clock::now();
    assert!(!learning.shows(now, 1, 1, 2));
    learning.learned.look_after(now + AGEING, &learning.snapshot);
    assert_eq!((learning.learned.entries(), learning.learned.deadline()), (0, Instant::NEVER));
}

#[test]
fn a_port_that_has_the_number_of_a_former_one_begins_with_no_counts() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let hosts = Hosts::new();
    let mut learning = Learning::forwards(&hosts);
    assert!(!learning.goes_to_the_worker());
    // What its entry has counted is read only when the entry is void.
    let only_first = [(1, Some((0, learning.port(0))))];
    learning.learned.set_ports(&only_first, clock::now(), &learning.snapshot);
    learning.set_ports([true, true]);
    let of = |learning: &Learning, port| learning.learned.forwarded(port);
    assert_eq!(of(&learning, 2), PortForwarded::default());
    assert!(of(&learning, 1).packets_in > 0, "the other one has its counts still");
}

#[test]
fn a_port_that_is_not_there_and_a_suspension_leave_all_to_workers() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let hosts = Hosts::new();
    let mut learning = Learning::forwards(&hosts);
    for without in [[true, false], [false, true]] {
        learning.set_ports(without);
        assert_eq!(learning.learned.entries(), 0);
        assert!(learning.goes_to_the_worker());
        assert!(!learning.shows(clock::now(), 1, 1, 2), "with its port away nothing is made");
        learning.set_ports([true, true]);
        assert!(learning.goes_to_the_worker(), "until a worker shows a frame again");
        assert!(learning.shows(clock::now(), 1, 1, 2));
        assert!(!learning.goes_to_the_worker());
    }
    let (now, snapshot) = (clock::now(), Arc::clone(&learning.snapshot));
    learning.learned.suspend(true, now, &snapshot);
    assert!(learning.goes_to_the_worker());
    assert!(!learning.shows(now, 1, 1, 2));
    learning.learned.suspend(false, now, &snapshot);
    assert!(learning.shows(now, 1, 1, 2));
    assert!(!learning.goes_to_the_worker());
}

#[test]
fn sources_that_send_by_the_kernel_stay_known_and_their_entries_end_when_they_do_not() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let hosts = Hosts::new();
    let mut learning = Learning::forwards(&hosts);
    let snapshot = Arc::clone(&learning.snapshot);
    // Both were heard of long ago, as far as the table knows.
    let long_ago = clock::now();
    assert!(!learning.goes_to_the_worker());
    let age = |learning: &Learning, now: Instant, wanted: u8| {
        let (table, mut found) = (&learning.worker.shared().table, None);
        table.visit(0..table.parts(), now, AGEING, |entry| {
            if entry.mac.0 == mac(wanted) {
                found = entry.age;
            }
        });
        found
    };
    // The programs note the time when an entry was used last in steps of some ms, so this is not before the frame.
    let later = long_ago + Duration::from_secs(100);
    learning.learned.tell(later, &snapshot);
    assert!(
        age(&learning, later, 1).is_some_and(|age| age >= Duration::from_secs(90)),
        "it is as old as its frame"
    );
    assert!(
        age(&learning, long_ago + AGEING + Duration::from_secs(30), 2).is_none(),
        "this one is too old by then"
    );
    assert_eq!(learning.learned.entries(), 1);
    // The entry has been idle long enough to end.
    learning.learned.look_after(later, &snapshot);
    assert_eq!((learning.learned.entries(), learning.learned.deadline()), (0, Instant::NEVER));
    assert!(learning.goes_to_the_worker());
}

#[test]
fn a_port_with_ever_new_addresses_leaves_room_and_idle_entries_give_theirs_back() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let hosts = Hosts::new();
    let mut learning = Learning::new(&hosts);
    let (now, snapshot) = (clock::now(), Arc::clone(&learning.snapshot));
    learning.comes(now, 2, 2, 1);
    for source in 10..10 + SHARE {
        assert!(learning.shows(now, 1, source, 2), "{source}");
    }
    assert!(!learning.shows(now, 1, 100, 2), "its share is taken");
    learning.comes(now, 1, 1, 2);
    assert!(learning.shows(now, 2, 2, 1), "and another port has its own");
    assert_eq!(learning.learned.entries(), usize::from(SHARE) + 1);
    // Where there is no room, entries that are not used end after a second.
    let later = now + Duration::from_secs(2);
    assert!(learning.learned.deadline() <= later);
    learning.learned.look_after(later, &snapshot);
    assert_eq!(learning.learned.entries(), 0);
    assert!(learning.shows(later, 1, 100, 2));
}
