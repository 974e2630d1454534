//! Tests connections of TCP that a worker has, beside those that the kernel has on the same port. What must never be seen: a
//! reset of the kernel for one of the worker's.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_bpf::{
    Datagrams, Features, KeptMaps, Opening, Path, ReflexPlan, SteerError, Steering, TCP_WORKERS_MAX,
    TcAttach, TcpClaims, TcpFlows,
};
use twinpath_claims::{Claim, Table};
use twinpath_sys::socket_filter;
use twinpath_test_rig::{Lateness, PATIENCE, ip_here, until};
use twinpath_time::Duration;
use twinpath_wire::{ChecksumTrust, Mac, tcp_frame};

use crate::direct::ring;
use crate::lab::{Lab, NEAR, PacketSocket, first_word, wait_for};
use crate::segments::{ACK, FIN, Made, PLAIN, PSH, RST, SYN, seen};
use crate::{counter, each_way, fence};

/// Less than the interface's MTU, so that a frame can be too long.
const FRAME_LEN_MAX: u32 = 1514;

const SYN_PLAIN: Made<'_> = Made { flags: SYN, ..PLAIN };
const BOTH: [bool; 2] = [false, true];

/// The way to peers that do not exist.
fn add_peers() {
    for peer in ["10.0.0.9", "fd00::9"] {
        ip_here(&format!("neigh replace {peer} lladdr 02:00:00:00:00:01 dev {NEAR} nud permanent"));
    }
}

/// A worker's side and the kernel's on port 7.
struct Rig {
    lab: Lab,
    steering: Steering,
    /// The worker's socket.
    socket: PacketSocket,
    flows: Arc<TcpFlows>,
    worker: TcpClaims,
    listener: TcpListener,
    injector: PacketSocket,
    /// All that arrives at the far end.
    answers: PacketSocket,
    sender: UdpSocket,
    fences: Cell<u16>,
}

fn table() -> Table {
    let mut table = Table::new(Mac([2, 0, 0, 0, 0, 2]), FRAME_LEN_MAX).unwrap();
    for address in ["10.0.0.2", "fd00::2"] {
        table.add_address(address.parse().unwrap()).unwrap();
    }
    table.add_claim(Claim::connections(7)).unwrap();
    table
}

fn guarded_listener(flows: &TcpFlows) -> TcpListener {
    let listener = TcpListener::bind("[::]:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    flows.guard(listener.as_fd()).unwrap();
    listener
}

/// A connection of the far end's kernel to the listener. Neither it nor its reads wait for programs that do not do what they are to.
fn connect(lab: &Lab) -> TcpStream {
    let listener = "10.0.0.2:7".parse().unwrap();
    let client = lab.in_far(|| TcpStream::connect_timeout(&listener, PATIENCE)).expect("the kernel answers");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

impl Rig {
    fn new(lab: Lab, how: TcAttach) -> Self {
        Self::of(lab, how, TcpFlows::load(2).unwrap(), Duration::ZERO, false)
    }

    fn of(lab: Lab, how: TcAttach, flows: TcpFlows, fail_open: Duration, large: bool) -> Self {
        Self::with(lab, how, flows, fail_open, Features { large, ..Features::default() })
    }

    fn with(lab: Lab, how: TcAttach, flows: TcpFlows, fail_open: Duration, features: Features<'_>) -> Self {
        add_peers();
        let flows = Arc::new(flows);
        let features = Features { connections: Some(&flows), ..features };
        let mut steering = Steering::load_with(Path::Packet, 2, fail_open, features).unwrap();
        steering.attach_tc(lab.ifindex, how).unwrap();
        let filter = |socket: std::os::fd::BorrowedFd<'_>| steering.attach_socket_filter(0, socket).unwrap();
        let socket = PacketSocket::receiver(lab.ifindex, filter);
        steering.apply(&table()).unwrap();
        Self {
            worker: flows.claims(0).unwrap(),
            listener: guarded_listener(&flows),
            injector: lab.injector(),
            answers: lab.far_listener(),
            sender: lab.far_udp("10.0.0.1:4999"),
            fences: Cell::new(100),
            lab,
            steering,
            socket,
            flows,
        }
    }

    fn inject(&self, made: &Made<'_>) {
        made.frames().iter().for_each(|frame| self.injector.send(frame));
    }

    /// The flags of the kernel's segments to this port, to everything that was injected before.
    fn answers(&self, port: u16) -> Vec<u8> {
        answers(&self.answers, &self.sender, self.fences.replace(self.fences.get() + 1), port)
    }

    /// What waits in the ring of SYNs.
    fn syns(&mut self) -> Vec<Vec<u8>> {
        let mut syns = Vec::new();
        self.worker.next_syns(&mut |handed| match handed {
            Opening::Syn(frame) => syns.push(frame.to_vec()),
            Opening::Leaked(frame) => panic!("{frame:?} was not asked for"),
        });
        syns
    }

    /// What has leaked of half-open connections: the peer's number, the flags, and the bytes of options.
    fn leaked(&mut self) -> Vec<(u32, u8, usize)> {
        let mut leaked = Vec::new();
        self.worker.next_syns(&mut |handed| {
            let Opening::Leaked(frame) = handed else { panic!("{handed:?}") };
            let found = tcp_frame::parse(frame, ChecksumTrust::Trusted).unwrap();
            assert_eq!((found.destination.port(), found.segment.payload().len()), (7, 0));
            let header = found.segment;
            leaked.push((header.sequence(), header.flags().0, header.options().len()));
        });
        leaked
    }

    /// The frames that the worker's socket has.
    fn taken(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.socket.take()).collect()
    }

    fn count(&self, name: &str) -> u64 {
        counter(&self.steering, name)
    }

    /// Makes the tuple of a segment the worker's.
    fn own(&self, made: &Made<'_>) {
        let (near, far) = made.ends();
        self.worker.insert(near, far).unwrap();
    }

    fn waits(&self) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(self.worker.fd(), PollFlags::IN)], Some(&none)).unwrap() > 0
    }
}

/// The flags of segments to this port that have arrived at the far end before a datagram that the near end sends now, after it has
/// received all that was sent before.
fn answers(far: &PacketSocket, sender: &UdpSocket, fence_port: u16, port: u16) -> Vec<u8> {
    let near = fence(sender, fence_port);
    near.send_to(b"last", sender.local_addr().unwrap()).unwrap();
    let mut found = Vec::new();
    loop {
        let Some(frame) = far.take() else {
            wait_for(&[far.as_fd()]);
            continue;
        };
        if frame.get(23) == Some(&17) && frame[34..36] == fence_port.to_be_bytes() {
            return found;
        }
        found.extend(seen(&frame).filter(|(to, _)| *to == port).map(|(_, flags)| flags));
    }
}

#[test]
fn a_syn_goes_to_its_worker_once_and_never_to_the_kernel() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        rig.worker.set_room(3);
        let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        for (number, v6) in BOTH.into_iter().enumerate() {
            let syn = Made { v6, options: &options, ..SYN_PLAIN };
            assert!(!rig.waits());
            rig.inject(&syn);
            assert_eq!(rig.answers(4000), []);
            assert!(rig.waits());
            assert_eq!(rig.syns(), syn.frames());
            assert!(!rig.waits());
            assert_eq!((rig.worker.room(), rig.taken().len()), (2 - number as u32, 0));
            // Sent again, it is a segment of a known connection, like those that follow.
            rig.inject(&syn);
            rig.inject(&Made { v6, sequence: 1001, payload: b"data", ..PLAIN });
            rig.inject(&Made { v6, sequence: 1005, flags: ACK | FIN, ..PLAIN });
            assert_eq!((rig.answers(4000), rig.syns().len(), rig.taken().len()), (vec![], 0, 3));
        }
        assert_eq!((rig.worker.room(), rig.count("tcp_opening"), rig.count("claimed")), (1, 2, 6));
        assert!(rig.listener.accept().is_err());
        // Once the worker has released it, the tuple is free, and a segment in the middle is the kernel's.
        let (near, far) = PLAIN.ends();
        rig.worker.release(near, far).unwrap();
        rig.worker.release(near, far).unwrap();
        rig.inject(&PLAIN);
        assert_eq!(rig.answers(4000), [RST]);
        rig.inject(&SYN_PLAIN);
        assert_eq!((rig.answers(4000), rig.syns().len(), rig.worker.room()), (vec![], 1, 0));
    });
}

#[test]
fn unknown_segments_and_what_has_no_room_are_the_kernels() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        for v6 in BOTH {
            rig.inject(&Made { v6, port: 4001, ..PLAIN });
            assert_eq!(rig.answers(4001), [RST]);
            // No room at first.
            rig.inject(&Made { v6, port: 4002, ..SYN_PLAIN });
            assert_eq!(rig.answers(4002), [SYN | ACK]);
        }
        assert_eq!((rig.count("tcp_no_room"), rig.count("tcp_not_opening"), rig.worker.room()), (2, 2, 0));
        // The kernel has a request for this one, although there is room now.
        rig.worker.set_room(5);
        rig.inject(&Made { port: 4002, ..SYN_PLAIN });
        assert_eq!((rig.answers(4002), rig.count("tcp_syn_of_kernel")), (vec![SYN | ACK], 1));
        // What a worker cannot serve.
        let md5 = [1, 1, 19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        rig.inject(&Made { port: 4003, options: &md5, ..SYN_PLAIN });
        rig.inject(&Made { port: 4004, payload: b"early", ..SYN_PLAIN });
        assert_eq!(rig.answers(4004), [SYN | ACK]);
        assert_eq!((rig.count("tcp_authenticated"), rig.count("tcp_syn_data")), (1, 1));
        assert_eq!((rig.worker.room(), rig.syns().len()), (5, 0));
        // Nobody listens any more: the peer is refused.
        let (listener, port) = (rig.listener.try_clone().unwrap(), 4005);
        drop(listener);
        rig.listener = TcpListener::bind("[::]:8").unwrap();
        rig.inject(&Made { port, ..SYN_PLAIN });
        assert_eq!((rig.answers(port), rig.count("tcp_syn_of_kernel")), (vec![RST | ACK], 2));
    });
}

/// A mapped source would make a tuple under a key that the worker never releases.
#[test]
fn a_syn_from_an_address_that_no_peer_has_is_the_kernels() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        rig.worker.set_room(50);
        let v4 = ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.0.0.2"];
        let v6 = ["::", "::1", "ff02::1", "::ffff:10.0.0.9", "::ffff:127.0.0.1", "fd00::2"];
        for from in v4.into_iter().chain(v6) {
            let from: IpAddr = from.parse().unwrap();
            rig.inject(&Made { v6: from.is_ipv6(), from: Some(from), ..SYN_PLAIN });
            rig.answers(0);
            assert_eq!((rig.syns().len(), rig.worker.room()), (0, 50), "{from}");
        }
        assert_eq!(rig.count("tcp_martian"), 12);
        for from in ["1.0.0.1", "223.255.255.255", "::ffff:0:10.0.0.9", "::2", "fd00::3"] {
            let from: IpAddr = from.parse().unwrap();
            rig.inject(&Made { v6: from.is_ipv6(), from: Some(from), ..SYN_PLAIN });
            rig.answers(0);
            assert_eq!(rig.syns().len(), 1, "{from}");
        }
        assert_eq!((rig.count("tcp_martian"), rig.worker.room()), (12, 45));
    });
}

#[test]
fn a_syn_with_a_wrong_checksum_is_the_kernels_unless_it_may_be_partial() {
    each_way(true, |lab, how| {
        let features = Features { verifies_syns: true, ..Features::default() };
        let mut rig = Rig::with(lab, how, TcpFlows::load(2).unwrap(), Duration::ZERO, features);
        rig.worker.set_room(9);
        let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        for (v6, options) in BOTH.into_iter().flat_map(|v6| [(v6, &[][..]), (v6, &options)]) {
            let syn = Made { v6, options, port: 4000 + options.len() as u16, ..SYN_PLAIN };
            let mut frame = syn.frames().remove(0);
            let checksum_at = if v6 { 70 } else { 50 };
            frame[checksum_at] ^= 1;
            rig.injector.send(&frame);
            assert_eq!((rig.answers(syn.port), rig.syns().len()), (vec![], 0));
            rig.inject(&syn);
            assert_eq!((rig.answers(syn.port), rig.syns()), (vec![], syn.frames()));
        }
        assert_eq!((rig.count("tcp_bad_checksum"), rig.worker.room()), (4, 5));
    });
}

#[test]
fn a_connection_of_the_kernel_stays_the_kernels() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        let mut client = connect(&rig.lab);
        let (mut served, _) = rig.listener.accept().unwrap();
        socket_filter::detach(&served).unwrap();
        served.set_nonblocking(false).unwrap();
        served.set_read_timeout(Some(PATIENCE)).unwrap();
        rig.worker.set_room(5);
        let port = client.local_addr().unwrap().port();
        client.write_all(b"request").unwrap();
        let mut request = [0; 7];
        served.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"request");
        // A SYN for it as well: the kernel knows what to say.
        rig.inject(&Made { host: 1, port, ..SYN_PLAIN });
        assert!(rig.answers(port).iter().all(|flags| flags & RST == 0));
        assert_eq!((rig.count("tcp_syn_of_kernel"), rig.syns().len(), rig.worker.room()), (1, 0, 5));
        served.write_all(b"reply").unwrap();
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        // In TIME_WAIT, which this end has because it closes first, too.
        drop(served);
        assert_eq!(client.read(&mut reply).unwrap(), 0);
        drop(client);
        rig.answers(port);
        rig.inject(&Made { host: 1, port, ..SYN_PLAIN });
        rig.answers(port);
        assert_eq!((rig.count("tcp_syn_of_kernel"), rig.syns().len(), rig.worker.room()), (2, 0, 5));
    });
}

#[test]
fn when_the_ring_of_syns_or_the_table_is_full_the_kernel_serves() {
    each_way(true, |lab, how| {
        let mut rig = Rig::of(lab, how, TcpFlows::load_for(2, 2_500).unwrap(), Duration::ZERO, false);
        rig.worker.set_room(4_000);
        let flood = |rig: &Rig, ports: std::ops::Range<u16>| {
            for port in ports {
                rig.inject(&Made { port, ..SYN_PLAIN });
                if port % 64 == 0 {
                    rig.answers(0);
                }
            }
            rig.answers(0);
        };
        flood(&rig, 10_000..12_000);
        let waiting = rig.syns();
        let full = rig.count("tcp_syns_full");
        assert!((1_800..2_000).contains(&waiting.len()), "{}", waiting.len());
        assert_eq!(
            (full as usize, rig.worker.room() as usize),
            (2_000 - waiting.len(), 4_000 - waiting.len())
        );
        // The worker has made room in the ring, but there is none in the table.
        flood(&rig, 12_000..13_000);
        let more = rig.syns().len();
        assert!(rig.count("tcp_table_full") > 0 && waiting.len() + more <= 2_500 + 64, "{more}");
        assert_eq!(rig.worker.room() as usize, 4_000 - waiting.len() - more);
        assert_eq!(rig.count("tcp_opening") as usize, waiting.len() + more);
    });
}

#[test]
fn a_syn_to_a_port_without_room_is_the_kernels_and_others_are_the_workers() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        rig.worker.set_room(100);
        let others: Vec<u16> = (2000..2023).collect();
        rig.worker.set_full(&[&others[..], &[7]].concat());
        rig.inject(&SYN_PLAIN);
        assert_eq!(rig.answers(SYN_PLAIN.port), [SYN | ACK]);
        assert_eq!((rig.count("tcp_no_room"), rig.worker.room(), rig.syns().len()), (1, 100, 0));
        rig.worker.set_full(&others);
        rig.inject(&Made { port: 4002, ..SYN_PLAIN });
        assert_eq!((rig.answers(4002), rig.syns().len(), rig.worker.room()), (vec![], 1, 99));
    });
}

#[test]
fn a_declined_connection_is_the_kernels_until_it_is_released() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        rig.worker.set_room(5);
        rig.inject(&SYN_PLAIN);
        assert_eq!((rig.answers(4000), rig.syns().len()), (vec![], 1));
        let (near, far) = PLAIN.ends();
        rig.worker.decline(near, far).unwrap();
        rig.inject(&SYN_PLAIN);
        assert_eq!((rig.answers(4000), rig.count("tcp_declined")), (vec![SYN | ACK], 1));
        assert_eq!((rig.taken().len(), rig.syns().len()), (0, 0));
        rig.worker.release(near, far).unwrap();
        // The kernel has a request for it now.
        rig.inject(&SYN_PLAIN);
        assert_eq!((rig.answers(4000), rig.count("tcp_syn_of_kernel")), (vec![SYN | ACK], 1));
    });
}

/// Segments that reach the listener, or would if the programs passed them.
fn leaking(v6: bool) -> [Made<'static>; 3] {
    const LONG: [u8; 2000] = [b'x'; 2000];
    let ip_options: &[u8] = if v6 { &[6, 0, 1, 4, 0, 0, 0, 0] } else { &[1, 1, 1, 0] };
    let data = Made { v6, flags: ACK | PSH, payload: b"a segment that is cut", ..PLAIN };
    [Made { fragmented: true, ..data }, Made { ip_options, ..data }, Made { payload: &LONG, ..data }]
}

#[test]
fn no_segment_of_a_workers_connection_is_answered_by_a_reset() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        for v6 in BOTH {
            for made in leaking(v6) {
                // Of an unknown connection, each is.
                rig.inject(&Made { port: 4001, ..made });
                assert_eq!(rig.answers(4001), [RST], "{v6}, {:?}, {}", made.ip_options, made.fragmented);
                rig.own(&made);
                rig.inject(&made);
                assert_eq!(rig.answers(4000), [], "{} bytes", made.payload.len());
            }
        }
        assert_eq!((rig.count("tcp_too_large"), rig.taken().len()), (2, 0));
        // Without programs as well, and without claims.
        rig.steering.apply(&crate::empty_table()).unwrap();
        rig.inject(&PLAIN);
        assert_eq!(rig.answers(4000), []);
        rig.steering.detach();
        for v6 in BOTH {
            for made in leaking(v6).into_iter().chain([Made { v6, ..PLAIN }, Made { v6, ..SYN_PLAIN }]) {
                rig.inject(&made);
                assert_eq!(rig.answers(4000), []);
            }
        }
        assert_eq!(rig.answers(4000), []);
    });
}

#[test]
fn what_leaks_of_a_half_open_connection_is_shown_to_its_worker_and_not_answered() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        let times = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        for v6 in BOTH {
            let of_peer = Made { v6, sequence: 1001, options: &times, ..PLAIN };
            let (near, far) = of_peer.ends();
            rig.worker.half_open(near, far).unwrap();
            for made in leaking(v6).into_iter().take(2) {
                rig.inject(&Made { sequence: 1001, options: &times, ..made });
                assert_eq!((rig.answers(4000), rig.leaked()), (vec![], vec![(1001, ACK | PSH, 12)]));
            }
            assert_eq!(rig.syns().len(), 0);
        }
        rig.steering.detach();
        for v6 in BOTH {
            let of_peer = Made { v6, sequence: 1001, options: &times, payload: b"hello", ..PLAIN };
            // Its FIN is behind the payload, which the worker does not get.
            for flags in [ACK, ACK | PSH, ACK | FIN, RST] {
                rig.inject(&Made { flags, ..of_peer });
                assert_eq!((rig.answers(4000), rig.leaked()), (vec![], vec![(1001, flags & !FIN, 12)]));
            }
            let syn = Made { flags: SYN, sequence: 1000, payload: &[], ..of_peer };
            rig.inject(&syn);
            assert_eq!((rig.answers(4000), rig.leaked()), (vec![], vec![(1000, SYN, 12)]));
            for _ in 0..300 {
                rig.inject(&of_peer);
            }
            rig.answers(4000);
            assert_eq!((rig.leaked().len(), rig.leaked().len()), (256, 44), "some in each call");
            let (near, far) = of_peer.ends();
            rig.worker.decline(near, far).unwrap();
            rig.inject(&syn);
            assert_eq!((rig.answers(4000), rig.leaked()), (vec![SYN | ACK], vec![]));
        }
    });
}

#[test]
fn what_the_peer_of_a_connection_in_time_wait_repeats_is_not_answered_until_it_begins_anew() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        for has_programs in [true, false] {
            if !has_programs {
                rig.steering.detach();
            }
            for v6 in BOTH {
                let port = 4000 + u16::from(has_programs);
                let of_peer = Made { v6, port, ..PLAIN };
                let (near, far) = of_peer.ends();
                rig.worker.end(near, far).unwrap();
                for flags in [ACK | FIN, ACK, ACK | PSH] {
                    rig.inject(&Made { flags, ..of_peer });
                    assert_eq!(rig.answers(port), [], "{v6}, {flags}");
                }
                rig.inject(&Made { flags: SYN, ..of_peer });
                assert_eq!(rig.answers(port), [SYN | ACK], "{v6}");
                rig.inject(&of_peer);
                assert_eq!(
                    rig.answers(port),
                    [RST],
                    "it is the kernel's now: this acknowledges another answer"
                );
                rig.worker.release(near, far).unwrap();
            }
        }
        assert_eq!((rig.syns().len(), rig.taken().len()), (0, 0));
    });
}

/// What a sender's offload has coalesced, which the sender's kernel passes on whole.
#[test]
fn coalesced_segments_of_a_workers_connection_are_dropped_and_counted() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        // The client believes that the kernel serves it, until its tuple becomes the worker's.
        let mut client = connect(&rig.lab);
        let (near, far) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
        drop(rig.listener.accept().unwrap());
        rig.listener = TcpListener::bind("[::]:8").unwrap();
        rig.answers(0);
        rig.worker.insert(near, far).unwrap();
        client.set_nonblocking(true).unwrap();
        assert!(client.write(&[1; 20_000]).unwrap() > 6_000);
        until("the super-segment came", || rig.count("tcp_too_large") > 0);
        assert!(rig.answers(far.port()).iter().all(|flags| flags & RST == 0));
    });
}

#[test]
fn a_socket_that_takes_large_segments_gets_them_and_the_ring_is_closed_for_what_follows() {
    each_way(true, |lab, how| {
        let rig = Rig::of(lab, how, TcpFlows::load(2).unwrap(), Duration::ZERO, true);
        let large = Made { flags: ACK | PSH, payload: &[b'x'; 2000], ..PLAIN };
        rig.own(&PLAIN);
        let mut ring = ring(&rig.steering, 0);
        ring.open();
        for made in [PLAIN, large, PLAIN, large] {
            rig.inject(&made);
        }
        // Of an unknown connection, it is the kernel's.
        rig.inject(&Made { port: 4001, ..large });
        assert_eq!(rig.answers(4001), [RST]);
        assert_eq!(std::iter::from_fn(|| ring.take(|_| ())).count(), 1);
        let expected: Vec<_> = [large, PLAIN, large].iter().flat_map(Made::frames).collect();
        assert!(rig.taken() == expected);
        assert_eq!((rig.count("claimed_large"), rig.count("tcp_too_large")), (2, 0));
    });
}

#[test]
fn an_accepted_socket_has_the_listeners_filter_until_it_is_removed() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        rig.steering.detach();
        let arrives = |removed: bool| {
            let mut client = connect(&rig.lab);
            let (mut served, _) = rig.listener.accept().unwrap();
            if removed {
                socket_filter::detach(&served).unwrap();
                socket_filter::detach(&served).unwrap();
            }
            // A filter that is left drops what it would drop at the listener.
            rig.worker.insert(client.peer_addr().unwrap(), client.local_addr().unwrap()).unwrap();
            client.write_all(b"data").unwrap();
            rig.answers(0);
            served.set_nonblocking(true).unwrap();
            served.read(&mut [0; 4]).is_ok_and(|len| len == 4)
        };
        assert_eq!([arrives(true), arrives(false)], [true, false]);
    });
}

#[test]
fn while_the_worker_is_stuck_the_kernel_gets_syns_and_nobody_the_known_tuples() {
    each_way(true, |lab, how| {
        let flows = TcpFlows::load(2).unwrap();
        let mut rig = Rig::of(lab, how, flows, Duration::from_millis(1), false);
        rig.worker.set_room(5);
        rig.own(&PLAIN);
        let word = first_word(rig.steering.pending().unwrap());
        rig.inject(&PLAIN);
        assert_eq!((rig.answers(4000), rig.taken().len()), (vec![], 1));
        // The worker has not looked for as long as the machine has been up.
        word.store(1);
        rig.inject(&PLAIN);
        rig.inject(&Made { port: 4001, ..SYN_PLAIN });
        assert_eq!((rig.answers(4001), rig.taken().len(), rig.syns().len()), (vec![SYN | ACK], 0, 0));
        rig.inject(&PLAIN);
        assert_eq!((rig.answers(4000), rig.worker.room()), (vec![], 5));
        assert_eq!((rig.count("tcp_stuck"), rig.count("worker_stuck")), (2, 1));
        // It goes on.
        word.store(0);
        rig.inject(&PLAIN);
        rig.inject(&Made { port: 4002, ..SYN_PLAIN });
        assert_eq!((rig.answers(4002), rig.taken().len(), rig.syns().len()), (vec![], 1, 1));
    });
}

#[test]
fn a_segment_that_reaches_another_worker_goes_to_its_own_if_that_one_looks() {
    each_way(true, |lab, how| {
        let rig = Rig::new(lab, how);
        let (near, far) = PLAIN.ends();
        rig.flows.claims(1).unwrap().insert(near, far).unwrap();
        let (mut own, mut other) = (ring(&rig.steering, 0), ring(&rig.steering, 1));
        rig.inject(&PLAIN);
        assert_eq!((rig.answers(4000), rig.taken().len()), (vec![], 1), "its own worker is asleep");
        own.open();
        other.open();
        rig.inject(&PLAIN);
        assert_eq!((rig.answers(4000), rig.taken().len()), (vec![], 0));
        assert_eq!((own.take(|_| ()).is_some(), other.take(|_| ()).is_some()), (false, true));
    });
}

/// Of two SYNs, the worker reads only the first one before it is stuck. The peers send theirs again.
fn stuck_with_a_syn(mut rig: Rig) {
    let word = first_word(rig.steering.pending().unwrap());
    // As if the worker had not looked for as long as the machine has been up, or had looked just now.
    let syn_to = |rig: &Rig, port, is_stuck: bool| {
        word.store(u64::from(is_stuck));
        rig.inject(&Made { port, ..SYN_PLAIN });
        rig.answers(port)
    };
    rig.worker.set_room(5);
    assert_eq!((syn_to(&rig, 4000, false), rig.syns().len()), (vec![], 1));
    assert_eq!(syn_to(&rig, 4001, false), []);
    assert_eq!((syn_to(&rig, 4000, true), rig.count("tcp_stuck")), (vec![], 1));
    assert_eq!((syn_to(&rig, 4001, true), rig.count("worker_stuck")), (vec![SYN | ACK], 1));
    // The worker goes on, and gives up what it has not read: some of it is the kernel's.
    assert_eq!((syn_to(&rig, 4002, false), rig.syns().len()), (vec![], 0));
    assert_eq!((syn_to(&rig, 4002, false), rig.syns().len()), (vec![], 1));
    assert_eq!((syn_to(&rig, 4001, false), rig.count("tcp_syn_of_kernel")), (vec![SYN | ACK], 1));
}

#[test]
fn a_syn_that_a_stuck_worker_has_not_read_is_the_kernels_when_it_is_sent_again() {
    each_way(true, |lab, how| {
        let flows = TcpFlows::load(2).unwrap();
        stuck_with_a_syn(Rig::of(lab, how, flows, Duration::from_millis(1), false));
    });
}

#[test]
fn the_same_without_a_socket() {
    each_way(true, |lab, how| {
        let flows = TcpFlows::load(2).unwrap();
        let mut rig = Rig::of(lab, how, flows, Duration::from_millis(1), false);
        rig.socket = rig.lab.injector();
        let mut ring = ring(&rig.steering, 0);
        ring.open();
        ring.set_without_socket(true);
        stuck_with_a_syn(rig);
    });
}

/// Nothing waits for the one that has the connection, so it must not be found stuck later.
#[test]
fn a_segment_that_its_worker_does_not_get_leaves_no_mark_at_it() {
    each_way(true, |lab, how| {
        let rig = Rig::of(lab, how, TcpFlows::load(2).unwrap(), Duration::from_secs(100), false);
        let (near, far) = PLAIN.ends();
        rig.flows.claims(1).unwrap().insert(near, far).unwrap();
        let word = first_word(rig.steering.pending().unwrap());
        rig.inject(&PLAIN);
        assert_eq!((rig.answers(4000), rig.taken().len()), (vec![], 1));
        assert_eq!((word.load_of(0) > 0, word.load_of(1)), (true, 0));
    });
}

#[test]
fn without_a_socket_the_program_at_tc_decides() {
    each_way(true, |lab, how| {
        let mut rig = Rig::new(lab, how);
        rig.socket = rig.lab.injector();
        let mut ring = ring(&rig.steering, 0);
        ring.open();
        ring.set_without_socket(true);
        rig.worker.set_room(1);
        for made in [SYN_PLAIN, PLAIN, SYN_PLAIN, Made { payload: &[1; 2000], ..PLAIN }] {
            rig.inject(&made);
        }
        rig.inject(&Made { port: 4001, ..SYN_PLAIN });
        assert_eq!((rig.answers(4000), rig.syns().len()), (vec![], 1));
        assert_eq!(std::iter::from_fn(|| ring.take(|_| ())).count(), 2);
        assert_eq!((rig.count("tcp_no_room"), rig.count("tcp_too_large")), (1, 1));
        // While the socket takes over, what is on its way is lost, not answered.
        ring.close();
        rig.inject(&PLAIN);
        assert_eq!((rig.answers(4000), rig.count("no_socket")), (vec![], 1));
    });
}

/// Tells the test's own program to be the owner of connections.
const OWNER: &str = "TWINPATH_TEST_OWNS_CONNECTIONS";

/// Not a test by itself: the process that is killed. Its standard input is the listener, and it has one connection.
#[test]
fn owner_of_connections() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let flows = TcpFlows::load(1).unwrap();
    flows.guard(std::io::stdin().as_fd()).unwrap();
    let (near, far) = PLAIN.ends();
    flows.claims(0).unwrap().insert(near, far).unwrap();
    println!("owns");
    loop {
        std::thread::park();
    }
}

/// Starts the owner, and returns when it has the connection.
fn owner(listener: &TcpListener) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["connections::owner_of_connections", "--exact", "--nocapture"]).env(OWNER, "1");
    let input = OwnedFd::from(listener.try_clone().unwrap());
    command.stdin(Stdio::from(input)).stdout(Stdio::piped());
    twinpath_sys::child::place(&mut command, twinpath_sys::child::Placement::default()).unwrap();
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap().contains("owns")), "the owner has ended");
    child
}

#[test]
fn when_the_owner_is_killed_its_peers_get_their_reset_although_others_hold_the_listener() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let lab = Lab::new(true);
    add_peers();
    // This process is the stand-by.
    let listener = TcpListener::bind("[::]:7").unwrap();
    let mut owner = owner(&listener);
    let (injector, far, sender) = (lab.injector(), lab.far_listener(), lab.far_udp("10.0.0.1:4999"));
    let inject = |port, fence_port| {
        Made { port, ..PLAIN }.frames().iter().for_each(|frame| injector.send(frame));
        answers(&far, &sender, fence_port, port)
    };
    assert_eq!((inject(4000, 100), inject(4001, 101)), (vec![], vec![RST]));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let (lateness, begun, mut fence_port) = (Lateness::measure(), std::time::Instant::now(), 200);
    until("the peer got its reset", || {
        fence_port += 1;
        inject(4000, fence_port) == [RST]
    });
    let (took, most) = (begun.elapsed(), lateness.allows(std::time::Duration::from_secs(1)));
    assert!(took < most, "{took:?} of {most:?}");
    drop(listener);
}

#[test]
fn the_programs_load_with_all_that_they_can_do() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let flows = Arc::new(TcpFlows::load(1).unwrap());
    let kept = Arc::new(KeptMaps::create(64, 1).unwrap());
    let plan = ReflexPlan { partial_checksums: true, rate: 1000, tries_worker: true };
    let reflexes = Some((&plan, Some(&kept)));
    let features = Features {
        reflexes,
        connections: Some(&flows),
        large: true,
        datagrams: Datagrams::BySocket,
        verifies_syns: true,
    };
    assert!(Steering::load_with(Path::Packet, 64, Duration::from_millis(1), features).is_ok());
    let error = TcpFlows::load(TCP_WORKERS_MAX + 1).unwrap_err();
    assert!(matches!(error, SteerError::Queue { queue: 65, max: 64 }), "{error}");
    assert!(matches!(flows.claims(1), Err(SteerError::Queue { queue: 1, max: 1 })));
}

#[test]
fn control_finds_the_worker_that_has_a_connection() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let flows = TcpFlows::load(2).unwrap();
    let claims = flows.claims(1).unwrap();
    let (near, far) = PLAIN.ends();
    assert_eq!(flows.worker_of(near, far), None);
    claims.insert(near, far).unwrap();
    assert_eq!((flows.worker_of(near, far), flows.worker_of(far, near)), (Some(1), None));
    claims.decline(near, far).unwrap();
    assert_eq!(flows.worker_of(near, far), None, "it is the kernel's");
}

/// Before Linux 6.8 a socket's filter may have no more by default (net.core.optmem_max).
#[test]
fn the_filter_is_as_small_as_the_kernel_wants_it() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let flows = Arc::new(TcpFlows::load(1).unwrap());
    let features =
        Features { connections: Some(&flows), datagrams: Datagrams::BySocket, ..Features::default() };
    let steering = Steering::load_with(Path::Packet, 1, Duration::from_millis(1), features).unwrap();
    let program = steering.program("twinpath_filter").unwrap();
    let filter: &aya::programs::SocketFilter = program.try_into().unwrap();
    let size = filter.info().unwrap().size_translated().unwrap();
    assert!(size < 20 << 10, "{size}");
}
