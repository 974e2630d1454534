//! Tests leases on kernel sockets, by test runs of the program: which frames it puts into a ring, and which it
//! leaves to the kernel.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aya::programs::SchedClassifier;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use twinpath_bpf::{Assigned, LEASE_SLOTS, Leases, TcAttach};
use twinpath_claims::{Claim, Table};
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectFrame, DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_rings::lease::{LEASE, Lease, Next, Room};
use twinpath_sys::netns::Namespace;
use twinpath_sys::packet_socket::interface_index;
use twinpath_sys::{PacketSocket, clock};
use twinpath_test_rig::ip_here;
use twinpath_time::Instant;
use twinpath_wire::checksum::Sum;
use twinpath_wire::udp_frame::parse;
use twinpath_wire::{ChecksumFound, ChecksumTrust, Mac, Protocol};

use crate::common::run;

const TCX_NEXT: u32 = u32::MAX;
const TCX_DROP: u32 = 2;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PORT: u16 = 7777;

/// The holder's time is ahead of the program's, so that a lease does not expire while other processes have the CPU.
const AHEAD: Duration = Duration::from_secs(3600);

fn now() -> Instant {
    clock::now() + AHEAD
}

/// Addresses of the device of test runs, and of a sender: the kernel would let its datagrams in.
const OWN: &str = "198.51.100.1";
const SENDER: &str = "198.51.100.2";

/// A claim on the port, at addresses that the loopback device has too.
fn table() -> Table {
    let mut table = Table::new(Mac(MAC), 1514).unwrap();
    for address in [OWN, "::1"] {
        table.add_address(address.parse().unwrap()).unwrap();
    }
    table.add_claim(Claim::port(Protocol::Udp, PORT)).unwrap();
    table
}

/// The programs with one process.
fn leases() -> Leases {
    let mut leases = Leases::load(2, 4, true).unwrap();
    assert_eq!(leases.admit().unwrap(), Some(0));
    leases.apply_and_settle(&table()).unwrap();
    leases
}

/// A lease of the first process.
const fn first(number: u32) -> Assigned {
    Assigned { process: 0, number, lent: 1 }
}

fn lease_of(leases: &Leases, number: u32) -> Lease {
    lease_of_process(leases, 0, number)
}

fn lease_of_process(leases: &Leases, process: u32, number: u32) -> Lease {
    let [states, slots] = leases.rings(process).unwrap();
    let bytes = LEASE_SLOTS as usize * SLOT_LEN;
    let slots = Mapping::of_fd(slots, bytes, u64::from(number) * bytes as u64).unwrap();
    let states = Mapping::of_fd(states, leases.capacity() as usize * STATE_LEN, 0).unwrap();
    Lease::new(DirectRing::new(Arc::new(states), number, slots, LEASE_SLOTS as usize).unwrap())
}

/// Opens the ring of a socket that has nothing.
fn open(lease: &mut Lease, room: Room) {
    loop {
        match lease.next(now()) {
            Next::Socket => lease.socket_was_empty(now()),
            Next::Idle if lease.open(now(), room) => return,
            Next::Idle => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A frame to the port from a port of the sender, with the number as its payload.
fn frame(from: u16, number: u32) -> Vec<u8> {
    let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 2], &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 198, 51, 100, 2, 198, 51, 100, 1]);
    frame.extend([from.to_be_bytes(), PORT.to_be_bytes(), 12u16.to_be_bytes(), [0, 0]].concat());
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn fragment() -> Vec<u8> {
    let mut frame = frame(9, 0);
    frame[20] = 0x20;
    frame
}

fn take(lease: &mut Lease) -> Option<(u16, u32)> {
    let numbers = |bytes: &[u8]| {
        let from = u16::from_be_bytes(bytes[34..36].try_into().unwrap());
        (from, u32::from_be_bytes(bytes[42..46].try_into().unwrap()))
    };
    matches!(lease.next(now()), Next::Ring).then(|| lease.take(|frame| numbers(frame.bytes)).unwrap())
}

/// Runs the program; returns whether the frame was put into a ring.
fn put(program: &SchedClassifier, frame: &[u8]) -> bool {
    match run(program, frame, None, 1).return_value {
        TCX_DROP => true,
        TCX_NEXT => false,
        other => panic!("{other}"),
    }
}

/// In a network namespace of its own, with its loopback device up: test runs use that device.
fn alone(test: impl FnOnce() + Send) {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    Namespace::new()
        .unwrap()
        .run(|| {
            for arguments in
                ["link set lo up", "addr add 198.51.100.1 dev lo", "addr add 198.51.100.2 dev lo"]
            {
                ip_here(arguments);
            }
            test();
        })
        .unwrap();
}

#[test]
fn frames_are_put_into_the_ring_while_the_lease_is_held_and_looked_after() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        let mut lease = lease_of(&leases, 2);
        open(&mut lease, Room::All);
        assert!(!put(leases.program().unwrap(), &frame(9, 1)), "the socket has no lease yet");
        leases.assign(socket.as_fd(), first(2)).unwrap();
        assert!(put(leases.program().unwrap(), &frame(9, 2)));
        // Given back: what was taken is still there, and nothing more is.
        lease.close();
        assert!(!put(leases.program().unwrap(), &frame(9, 3)));
        assert_eq!((take(&mut lease), take(&mut lease)), (Some((9, 2)), None));
        assert_eq!(lease.next(now()), Next::Socket, "one was passed");
        assert!(!lease.open(now(), Room::All));
        // Nothing arrives, because a test run does not pass it on. So the socket has to settle.
        lease.socket_was_empty(now());
        open(&mut lease, Room::All);
        // Nobody has looked for this long, so the lease has expired. The count tells the holder.
        lease.close();
        assert!(lease.open(clock::now(), Room::All));
        let lapses = clock::now() + LEASE;
        while clock::now() <= lapses {}
        assert!(!put(leases.program().unwrap(), &frame(9, 4)));
        assert_eq!((lease.view().ends().by_program, lease.view().ends().lapsed), (1, 1));
        assert_eq!((lease.next(now()), lease.is_open()), (Next::Socket, false));
        leases.withdrawal().withdraw(socket.as_fd()).unwrap();
        open(&mut lease, Room::All);
        assert!(!put(leases.program().unwrap(), &frame(9, 5)));
        assert_eq!(lease.view().ends().by_program, 1, "it is another socket's frame now");
    });
}

#[test]
fn a_lease_of_one_frame_ends_with_it() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("::", PORT)).unwrap();
        leases.assign(socket.as_fd(), first(0)).unwrap();
        let mut lease = lease_of(&leases, 0);
        for number in 0..1000 {
            open(&mut lease, Room::One);
            assert!(put(leases.program().unwrap(), &frame(9, number)));
            if number % 100 == 0 {
                assert!(!put(leases.program().unwrap(), &frame(9, u32::MAX)));
            }
            assert_eq!((take(&mut lease), lease.is_open()), (Some((9, number)), false));
        }
        assert_eq!(lease.view().ends().by_program, 0);
    });
}

#[test]
fn a_socket_whose_leases_number_was_given_to_another_is_the_kernels() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        let (former, other) =
            (UdpSocket::bind(("0.0.0.0", 0)).unwrap(), |lent| Assigned { lent, ..first(1) });
        leases.assign(socket.as_fd(), other(5)).unwrap();
        assert_eq!(leases.assigned(socket.as_fd()), Some(other(5)));
        let mut lease = lease_of(&leases, 1);
        open(&mut lease, Room::All);
        for (lent, is_put) in [(4, false), (5, true), (6, false), (0, false)] {
            leases.assign(former.as_fd(), other(lent)).unwrap();
            assert_eq!(put(leases.program().unwrap(), &frame(9, lent)), is_put);
            assert_eq!(take(&mut lease), is_put.then_some((9, lent)));
        }
        assert_eq!(lease.view().ends().by_program, 0, "it is another socket's lease");
        leases.withdrawal().withdraw(socket.as_fd()).unwrap();
        assert_eq!(leases.assigned(socket.as_fd()), None);
    });
}

/// Far more changes than there is room for entries, also of those that come while another one is under way.
#[test]
fn claims_that_end_without_waiting_make_room() {
    alone(|| {
        let mut leases = leases();
        let less = table();
        let mut more = table();
        for port in 1000..1200 {
            more.add_claim(Claim::port(Protocol::Udp, port)).unwrap();
        }
        for _ in 0..60 {
            leases.apply_and_settle(&more).unwrap();
            for _ in 0..3 {
                leases.apply_unless_waits(&less).unwrap();
            }
        }
        let socket = UdpSocket::bind((OWN, PORT)).unwrap();
        leases.assign(socket.as_fd(), first(1)).unwrap();
        leases.apply_and_settle(&more).unwrap();
        let mut lease = lease_of(&leases, 1);
        open(&mut lease, Room::All);
        assert!(put(leases.program().unwrap(), &frame(9, 1)));
        leases.free(0, 1);
        leases.apply_unless_waits(&less).unwrap();
        assert!(!put(leases.program().unwrap(), &frame(9, 2)), "nobody has the lease");
    });
}

/// The holder of a ring may write anything there, at any time: frames go into its ring or to the kernel. Meanwhile
/// the ring of another process gets its own frames, and so does another ring in the same memory once it is left
/// alone.
#[test]
#[allow(unsafe_code, reason = "the memory of a ring is written as a hostile process could")]
fn whatever_is_written_into_a_ring_is_its_holders_own_loss() {
    alone(|| {
        let mut leases = leases();
        assert_eq!(leases.admit().unwrap(), Some(1));
        leases.apply_and_settle(&table()).unwrap();
        let sockets = [OWN, "::1"].map(|address| UdpSocket::bind((address, PORT)).unwrap());
        leases.assign(sockets[0].as_fd(), first(0)).unwrap();
        let [states, slots] = leases.rings(0).unwrap();
        let states = Mapping::of_fd(states, leases.capacity() as usize * STATE_LEN, 0).unwrap();
        let slots = Mapping::of_fd(slots, LEASE_SLOTS as usize * SLOT_LEN, 0).unwrap();
        let over = AtomicBool::new(false);
        let (outcomes, others) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = 1u64;
                while !over.load(Ordering::SeqCst) {
                    // xorshift64
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let (of, len) =
                        if random & 1 == 0 { (&states, STATE_LEN) } else { (&slots, slots.len()) };
                    let at = (random >> 8) as usize % (len / 8) * 8;
                    // Numbers that mean something: open, a place far away, the lease's own count.
                    let value = match random >> 60 {
                        0..4 => 1 << 63 | random >> 40,
                        4..8 => 0,
                        8..12 => u64::MAX,
                        _ => random,
                    };
                    // SAFETY: the place is within the mapping, aligned to eight.
                    let word = unsafe { of.base().add(at).cast::<AtomicU64>().as_ref() };
                    word.store(value, Ordering::SeqCst);
                }
            });
            let mut outcomes = [0u32; 2];
            let program = leases.program().unwrap();
            for number in 0..20_000 {
                outcomes[usize::from(put(program, &frame(9, number)))] += 1;
            }
            leases.assign(sockets[0].as_fd(), Assigned { process: 1, ..first(0) }).unwrap();
            let mut other = lease_of_process(&leases, 1, 0);
            open(&mut other, Room::All);
            let program = leases.program().unwrap();
            let others = (0..1_000)
                .filter(|number| put(program, &frame(9, *number)) && take(&mut other) == Some((9, *number)));
            let others = others.count();
            over.store(true, Ordering::SeqCst);
            (outcomes, others)
        });
        assert_eq!(outcomes.iter().sum::<u32>(), 20_000, "each was put into the ring, or is the kernel's");
        assert_eq!(others, 1_000);
        // The other ring.
        leases.assign(sockets[0].as_fd(), first(2)).unwrap();
        let mut lease = lease_of(&leases, 2);
        open(&mut lease, Room::All);
        let program = leases.program().unwrap();
        for number in 0..100 {
            assert!(put(program, &frame(9, number)));
            assert_eq!(take(&mut lease), Some((9, number)));
        }
    });
}

/// Two processes, of which one goes. The other one's leases stay, and a process that then gets the first one's
/// number gets nothing from its sockets.
#[test]
fn processes_have_rings_of_their_own_and_one_that_goes_takes_only_these_along() {
    alone(|| {
        let mut leases = leases();
        assert_eq!((leases.admit().unwrap(), leases.admit().unwrap()), (Some(1), None));
        let mut table = Table::new(Mac(MAC), 1514).unwrap();
        table.add_address(OWN.parse().unwrap()).unwrap();
        table.add_claim(Claim::port(Protocol::Udp, PORT)).unwrap();
        leases.apply_and_settle(&table).unwrap();
        let group = [in_group(), in_group()];
        let of = |process| Assigned { process, ..first(3) };
        for (process, socket) in (0..).zip(&group) {
            leases.assign(socket.as_fd(), of(process)).unwrap();
        }
        let mut held = [0, 1].map(|process| lease_of_process(&leases, process, 3));
        held.iter_mut().for_each(|lease| open(lease, Room::All));
        let by = |leases: &mut Leases, held: &mut [Lease; 2], from| {
            let is_put = put(leases.program().unwrap(), &frame(from, 1));
            let by = held.each_mut().map(|lease| take(lease).is_some());
            assert_eq!(is_put, by[0] || by[1]);
            by
        };
        let senders: Vec<_> = (5000..5040).map(|from| (from, by(&mut leases, &mut held, from))).collect();
        assert!([[true, false], [false, true]].iter().all(|one| senders.iter().any(|(_, by)| by == one)));
        let put: u64 = senders.len() as u64;
        assert_eq!(leases.put_for(0) + leases.put_for(1), put);
        // A fragment may be for either.
        assert!(!self::put(leases.program().unwrap(), &fragment()));
        assert!(held.iter().all(|lease| lease.view().ends().by_program == 1));
        // The first one goes, and lives on in nothing but its socket and its memory.
        leases.release(0, Some(&table));
        let after = |by: [bool; 2]| [false, by[1]];
        open(&mut held[1], Room::All);
        for (from, was) in &senders {
            assert_eq!(by(&mut leases, &mut held, *from), after(*was), "from {from}");
        }
        assert_eq!(leases.admit().unwrap(), Some(0));
        leases.apply_and_settle(&table).unwrap();
        held[0] = lease_of(&leases, 3);
        open(&mut held[0], Room::All);
        leases.assign(UdpSocket::bind((OWN, 0)).unwrap().as_fd(), Assigned { lent: 2, ..of(0) }).unwrap();
        for (from, was) in &senders {
            assert_eq!(by(&mut leases, &mut held, *from), after(*was), "from {from}");
        }
    });
}

#[test]
fn a_full_ring_ends_the_lease_and_loses_nothing() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        leases.assign(socket.as_fd(), first(0)).unwrap();
        let mut lease = lease_of(&leases, 0);
        open(&mut lease, Room::All);
        let program = leases.program().unwrap();
        assert!((0..LEASE_SLOTS).all(|number| put(program, &frame(9, number))));
        assert!(!put(program, &frame(9, u32::MAX)));
        assert_eq!(lease.view().ends().full, 1);
        // One slot is free again, but the frame that was passed has to be read before.
        assert_eq!(take(&mut lease), Some((9, 0)));
        assert!(!put(program, &frame(9, u32::MAX)));
        assert!((1..LEASE_SLOTS).all(|number| take(&mut lease) == Some((9, number))));
        assert_eq!(lease.next(now()), Next::Socket);
    });
}

/// Runs the program with a frame of datagrams of `segment` bytes each; returns whether it was put into a ring.
fn put_coalesced(leases: &mut Leases, payload: &[u8], segment: u32) -> bool {
    let mut frame = frame(9, 0);
    frame.truncate(42);
    frame.extend(payload);
    let udp_len = (8 + payload.len()) as u16;
    frame[16..18].copy_from_slice(&(20 + udp_len).to_be_bytes());
    let ip_checksum = Sum::ZERO.bytes(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&ip_checksum.to_be_bytes());
    frame[38..40].copy_from_slice(&udp_len.to_be_bytes());
    let left = Sum::ZERO.bytes(&frame[26..34]).field(17).field(udp_len).fold();
    frame[40..42].copy_from_slice(&left.to_be_bytes());
    // `struct __sk_buff` of linux/bpf.h.
    let mut context = [0; 180];
    context[164..168].copy_from_slice(&(payload.len() as u32).div_ceil(segment).to_ne_bytes());
    context[176..].copy_from_slice(&segment.to_ne_bytes());
    match run(leases.program().unwrap(), &frame, Some(&context), 1).return_value {
        TCX_DROP => true,
        TCX_NEXT => false,
        other => panic!("{other}"),
    }
}

#[test]
fn coalesced_datagrams_are_put_into_the_ring_each_by_itself_and_all_or_none() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        leases.assign(socket.as_fd(), first(0)).unwrap();
        let mut lease = lease_of(&leases, 0);
        let payload: Vec<u8> = (0..100 * 10 + 3).map(|at| (at / 10) as u8).collect();
        open(&mut lease, Room::One);
        assert!(!put_coalesced(&mut leases, &payload, 10), "there is room for one");
        assert_eq!((lease.next(now()), lease.view().ends().by_program), (Next::Socket, 1));
        for lap in 0..5 {
            open(&mut lease, Room::All);
            // The third one has no room.
            let were_put: Vec<_> = (0..3).map(|_| put_coalesced(&mut leases, &payload, 10)).collect();
            assert_eq!(were_put, [true, true, false], "{lap}");
            for number in 0..2 {
                for sent in payload.chunks(10) {
                    assert_eq!(lease.next(now()), Next::Ring);
                    let check = |frame: DirectFrame<'_>| {
                        let datagram = parse(frame.bytes, ChecksumTrust::AcceptPartial).unwrap();
                        assert_eq!(datagram.checksum, ChecksumFound::Partial);
                        assert!(frame.is_cut && frame.bytes[datagram.payload] == *sent, "{number}");
                    };
                    lease.take(check).unwrap();
                }
            }
            assert_eq!(lease.next(now()), Next::Socket);
        }
        assert_eq!(lease.view().ends().full, 5);
    });
}

#[test]
fn what_may_come_by_another_way_ends_all_leases() {
    alone(|| {
        let mut leases = leases();
        let sockets = [OWN, "::1"].map(|address| UdpSocket::bind((address, PORT)).unwrap());
        let mut held = [0, 1].map(|number| lease_of(&leases, number));
        for (number, socket) in (0..).zip(&sockets) {
            leases.assign(socket.as_fd(), first(number)).unwrap();
        }
        let with_options = || {
            let mut frame = frame(9, 1);
            frame[14] = 0x46;
            frame
        };
        let mut ended = 0;
        for odd in [fragment(), with_options()] {
            held.iter_mut().for_each(|lease| open(lease, Room::All));
            assert!(!put(leases.program().unwrap(), &odd));
            ended += 1;
            assert!(held.iter().all(|lease| lease.view().ends().by_program == ended));
        }
        // A frame that is certainly not a datagram for the port does not close it.
        held.iter_mut().for_each(|lease| open(lease, Room::All));
        let [mut other_port, mut other_host] = [frame(9, 1), frame(9, 1)];
        other_port[36] ^= 1;
        other_host[5] ^= 7;
        assert!(!put(leases.program().unwrap(), &other_port) && !put(leases.program().unwrap(), &other_host));
        assert!(held.iter().all(|lease| lease.view().ends().by_program == ended));
    });
}

/// The same frame from another address.
fn frame_from(source: [u8; 4]) -> Vec<u8> {
    let mut frame = frame(9, 1);
    frame[26..30].copy_from_slice(&source);
    frame
}

#[test]
fn where_the_kernel_may_not_let_a_datagram_in_it_decides() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        leases.assign(socket.as_fd(), first(0)).unwrap();
        let mut lease = lease_of(&leases, 0);
        let other = UdpSocket::bind(("::1", PORT)).unwrap();
        leases.assign(other.as_fd(), first(1)).unwrap();
        let mut other = lease_of(&leases, 1);
        open(&mut other, Room::All);
        let mut judged = |leases: &mut Leases, source: [u8; 4]| {
            open(&mut lease, Room::All);
            let is_put = put(leases.program().unwrap(), &frame_from(source));
            assert_eq!((take(&mut lease).is_some(), lease.next(now()) == Next::Socket), (is_put, !is_put));
            lease.socket_was_read(false);
            lease.socket_was_empty(now());
            lease.close();
            !is_put
        };
        for source in [[0, 0, 0, 0], [0, 1, 2, 3], [127, 9, 9, 9], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
            assert!(judged(&mut leases, source), "{source:?}");
        }
        let own: Vec<[u8; 4]> = (0..200).map(|number| [10, 1, number / 16, number]).collect();
        for source in own.iter().chain(&[[1, 0, 0, 0], [126, 1, 1, 1], [128, 0, 0, 1], [223, 255, 255, 255]])
        {
            assert!(!judged(&mut leases, *source), "{source:?}");
        }
        // Addresses of this host, as long as they are there.
        for there in [&own[..], &own[7..9], &[]] {
            leases.set_hosts(&there.iter().map(|address| (*address).into()).collect::<Vec<_>>()).unwrap();
            for source in &own {
                assert_eq!(judged(&mut leases, *source), there.contains(source), "{source:?}");
            }
        }
        assert_eq!(other.view().ends().by_program, 0, "it is not its datagram");
    });
}

/// A frame that was in a ring goes to its own socket, or to none.
#[test]
fn what_is_handed_over_reaches_the_socket_of_its_lease_alone() {
    alone(|| {
        for arguments in [
            "link add d0 address 02:00:00:00:00:01 type veth peer name d1",
            "link set d0 up",
            "link set d1 up",
        ] {
            ip_here(arguments);
        }
        let mut leases = leases();
        let device = interface_index("d0").unwrap();
        leases.attach_egress(device, TcAttach::here()).unwrap();
        leases.attach(device, TcAttach::here()).unwrap();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let sender = PacketSocket::open(device, 0).unwrap();
        sender.set_mark(leases.handing_mark()).unwrap();
        leases.assign(socket.as_fd(), first(2)).unwrap();
        let mut lease = lease_of(&leases, 2);
        let others = [Assigned { process: 1, ..first(2) }, first(1), Assigned { lent: 2, ..first(2) }];
        let mut came = 0;
        for (number, (of, is_its)) in
            (0u32..).zip(others.map(|of| (of, false)).into_iter().chain([(first(2), true)]))
        {
            leases.begin_handing(of).unwrap();
            let before = leases.handed();
            let mut frame = frame_from([10, 9, 8, 7]);
            frame[42..46].copy_from_slice(&number.to_be_bytes());
            let checksum = Sum::ZERO.bytes(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            sender.send(&frame).unwrap();
            came += 1;
            let until = clock::now() + Duration::from_secs(10);
            while leases.handed().came != came && clock::now() < until {}
            let handed = leases.handed();
            assert_eq!((handed.came, handed.passed - before.passed), (came, u64::from(is_its)), "{of:?}");
            let mut buffer = [0; 8];
            let got = socket.recv(&mut buffer);
            assert_eq!(got.is_ok(), is_its, "{of:?}: {got:?}");
            assert!(!is_its || buffer[..4] == number.to_be_bytes());
        }
        // The holder knows that something was passed, and that it has read it.
        assert_eq!(lease.next(now()), Next::Socket);
        lease.socket_was_read(false);
        assert!(lease.has_read_all());
    });
}

/// A socket of a group on one port.
fn in_group() -> UdpSocket {
    let fd = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    sockopt::set_socket_reuseport(&fd, true).unwrap();
    bind(&fd, &std::net::SocketAddrV4::new(OWN.parse().unwrap(), PORT)).unwrap();
    UdpSocket::from(fd)
}

#[test]
fn the_kernel_says_whose_datagram_it_is() {
    alone(|| {
        let mut leases = leases();
        // Two sockets of a group with a lease, one without; and one that is connected.
        let group = [in_group(), in_group(), in_group()];
        let connected = in_group();
        connected.connect((SENDER, 5000)).unwrap();
        let mut held = [0, 1].map(|number| lease_of(&leases, number));
        for (number, socket) in (0..).zip(&group[..2]) {
            leases.assign(socket.as_fd(), first(number)).unwrap();
            open(&mut held[number as usize], Room::All);
        }
        let sender = |port: u16| UdpSocket::bind((SENDER, port)).unwrap();
        let mut by_the_kernel = [0; 4];
        for from in 4990..5050 {
            // The kernel's decision on the datagram of this sender.
            sender(from).send_to(b"x", (OWN, PORT)).unwrap();
            let sockets = [&group[0], &group[1], &group[2], &connected];
            let reads = |socket: &&UdpSocket| {
                socket.set_nonblocking(true).unwrap();
                socket.recv(&mut [0; 8]).is_ok()
            };
            let at = sockets.iter().position(reads).expect("one of them has it");
            by_the_kernel[at] += 1;
            let is_put = put(leases.program().unwrap(), &frame(from, 0));
            assert_eq!(is_put, at < 2);
            for (number, lease) in held.iter_mut().enumerate() {
                assert_eq!(take(lease).is_some(), number == at, "from {from}");
            }
        }
        assert!(
            by_the_kernel[..3].iter().all(|count| *count > 0) && by_the_kernel[3] == 1,
            "{by_the_kernel:?}"
        );
    });
}

/// Four CPUs run the program while the holder closes and opens the ring without a pause. Each frame was put into
/// the ring once, or passed, and frames of one sender that were put into it came in order.
#[test]
fn each_frame_goes_one_way_while_the_lease_flaps() {
    alone(|| {
        let mut leases = leases();
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        leases.assign(socket.as_fd(), first(0)).unwrap();
        let mut lease = lease_of(&leases, 0);
        let (over, mut seen) = (AtomicBool::new(false), [(0u32, 0u32); 4]);
        let (mut opened, mut looks) = (0u32, 0u32);
        let program = leases.program().unwrap();
        let outcomes: Vec<[u32; 2]> = std::thread::scope(|scope| {
            let producers = [0, 1, 2, 3].map(|from: u16| {
                let over = &over;
                scope.spawn(move || {
                    let mut outcomes = [0, 0];
                    while !over.load(Ordering::SeqCst) {
                        let number = outcomes[0] + outcomes[1] + 1;
                        outcomes[usize::from(put(program, &frame(from + 1, number)))] += 1;
                    }
                    outcomes
                })
            });
            let until = now() + Duration::from_secs(60);
            while (opened < 10_000 || seen.iter().any(|(count, _)| *count == 0)) && now() < until {
                match lease.next(now()) {
                    Next::Ring => {
                        let Some((from, number)) = lease.take(|frame| {
                            (frame.bytes[35], u32::from_be_bytes(frame.bytes[42..46].try_into().unwrap()))
                        }) else {
                            continue;
                        };
                        let (count, last) = &mut seen[usize::from(from) - 1];
                        assert!(number > *last, "{number} of sender {from} came after {last}");
                        (*count, *last) = (*count + 1, number);
                    }
                    Next::Nowhere => {
                        looks += 1;
                        if looks % 256 == 0 {
                            lease.close();
                        }
                    }
                    // Passed frames arrive nowhere in a test run, so the holder is told that it has read them.
                    Next::Socket => {
                        while !lease.has_read_all() {
                            lease.socket_was_read(false);
                        }
                        lease.socket_was_empty(now());
                    }
                    Next::Idle => {
                        let room = if opened % 2 == 0 { Room::All } else { Room::One };
                        opened += u32::from(lease.open(now(), room));
                    }
                    Next::Soon => {}
                }
            }
            lease.close();
            over.store(true, Ordering::SeqCst);
            producers.into_iter().map(|producer| producer.join().unwrap()).collect()
        });
        while let Some((from, _)) = take(&mut lease) {
            seen[usize::from(from) - 1].0 += 1;
        }
        assert!(opened >= 10_000);
        assert_eq!(outcomes.iter().map(|[_, put]| *put).collect::<Vec<_>>(), seen.map(|(count, _)| count));
        println!("passed and put, by sender: {outcomes:?}; {:?}", lease.view().ends());
        assert!(outcomes.iter().all(|[passed, put]| *passed > 0 && *put > 0));
    });
}
