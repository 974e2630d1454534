//! Tests with both ends in one process: frames across, limits, and errors when the other side violates the protocol.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use twinpath_frame::{Burst, Checksum, Pool, leaked};
use twinpath_inspect::Reason;
use twinpath_port::{PortId, PortQueue, WaitSource};
use twinpath_rings::slots::Refused;
use twinpath_sys::fd_passing;
use twinpath_time::{Duration, Instant};

use super::*;

const SLOTS: u32 = 4;

fn connection() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
}

/// Port and application, the owner's end of their connection, and a pool.
fn both() -> (ShmPort, Application, OwnedFd, Pool) {
    let config = ShmConfig { id: PortId { port: 3, queue: 1 }, slots: SLOTS };
    let (port, offer) = ShmPort::create(&config).expect("a port");
    let (near, far) = connection();
    let application = std::thread::scope(|scope| {
        let application = scope.spawn(|| Application::over(far));
        while let Err(OfferError::Silent) = offer.answer(&near) {
            std::thread::yield_now();
        }
        application.join().expect("no panic").expect("connected")
    });
    (port, application, near, Pool::new(8).expect("pool"))
}

fn transmit(port: &mut ShmPort, pool: &mut Pool, frames: &[&[u8]]) {
    let mut burst = Burst::new();
    for bytes in frames {
        let mut frame = pool.take().expect("free");
        frame.copy_from(bytes).expect("fits");
        let meta = frame.meta_mut();
        (meta.arrival, meta.vlan, meta.checksum) = (Instant::from_nanos(7), Some(5), Checksum::Partial);
        burst.push(frame).expect("room");
    }
    port.transmit(pool, &mut burst);
    port.flush(pool);
}

/// Receives everything and returns it as bytes; the frames are released.
fn receive(port: &mut ShmPort, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    port.receive(Instant::from_nanos(9), pool, &mut burst);
    let seen = burst.frames().iter().map(|frame| frame.bytes().to_vec()).collect();
    burst.release(usize::MAX, pool);
    seen
}

fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::time::Timespec::default())).expect("poll") > 0
}

#[test]
fn frames_cross_in_both_directions_with_their_metadata() {
    let (mut port, mut application, _near, mut pool) = both();
    transmit(&mut port, &mut pool, &[&[1; 60], &[2; 1514]]);
    let mut into = [0; 2048];
    let packet = application.receive(&mut into).expect("a frame").expect("sound");
    let known =
        Packet { len: 60, arrival: Instant::from_nanos(7), vlan: Some(5), checksum: Checksum::Partial };
    assert_eq!((packet, &into[..60]), (known, &[1; 60][..]));
    assert_eq!(application.receive(&mut into).expect("a frame").expect("sound").len, 1514);
    assert!(application.receive(&mut into).is_none());

    application.send(&[3; 1514]).expect("room");
    application.send(&[4; 14]).expect("room");
    application.send(&[5; 13]).expect("room, though it is no frame");
    application.flush();
    assert!(port.look());
    assert_eq!(receive(&mut port, &mut pool), [vec![3; 1514], vec![4; 14]]);
    assert_eq!(port.counters().drops.get(Reason::Truncated), 1);
    assert_eq!((pool.free(), leaked()), (pool.frames(), 0));
}

#[test]
fn an_application_takes_a_burst_in_order_and_as_much_of_each_frame_as_it_has_room_for() {
    let (mut port, mut application, _near, mut pool) = both();
    let long: Vec<u8> = (0..200).collect();
    let frames = [&[1; 14][..], &long[..60], &long[..59], &long];
    for room in [2048, 64, 61, 60, 59, 16, 3] {
        transmit(&mut port, &mut pool, &frames);
        let (mut into, mut seen) = ([0; 2048], Vec::new());
        let mut take = |most, seen: &mut Vec<(usize, Vec<u8>)>| {
            application.receive_each(most, &mut into[..room], |packet| {
                let (packet, bytes) = packet.expect("sound");
                assert_eq!((packet.arrival, packet.vlan), (Instant::from_nanos(7), Some(5)));
                seen.push((packet.len, bytes.to_vec()));
            })
        };
        assert_eq!([take(3, &mut seen), take(usize::MAX, &mut seen), take(1, &mut seen)], [3, 1, 0]);
        let expected = frames.map(|frame| (frame.len(), frame[..frame.len().min(room)].to_vec()));
        assert_eq!(seen, expected, "room for {room}");
    }
}

#[test]
fn full_rings_refuse_on_one_side_and_drop_with_a_count_on_the_other() {
    let (mut port, mut application, _near, mut pool) = both();
    transmit(&mut port, &mut pool, &[[0; 60].as_slice(); SLOTS as usize + 2]);
    assert_eq!(port.counters().drops.get(Reason::PortFull), 2);
    for _ in 0..SLOTS {
        application.send(&[0; 60]).expect("room");
    }
    assert_eq!(application.send(&[0; 60]), Err(Refused::Full));
    assert_eq!(application.send(&[0; FRAME_LEN_MAX as usize + 1]), Err(Refused::TooLarge));
    // A port whose pool is empty drops and counts received frames, so that the ring does not stay full for ever.
    let held: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert!(receive(&mut port, &mut pool).is_empty());
    assert_eq!(port.counters().drops.get(Reason::PoolEmpty), u64::from(SLOTS));
    held.into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
}

#[test]
fn both_sides_sleep_and_are_woken_once() {
    let (mut port, mut application, _near, mut pool) = both();
    assert_eq!(application.wait(Some(Duration::ZERO)), Ok(Woken::Timeout));
    application.arm();
    assert!(!is_readable(application.fd()));
    transmit(&mut port, &mut pool, &[&[0; 60], &[0; 60]]);
    transmit(&mut port, &mut pool, &[&[0; 60]]);
    assert_eq!(port.counters().kicks.get(), 1, "one signal per sleep");
    assert!(is_readable(application.fd()));
    assert_eq!(application.disarm(), Ok(false));
    assert!(!is_readable(application.fd()));
    assert_eq!(application.wait(None), Ok(Woken::Frames), "they are still there");

    let fd = port.fd().expect("an fd").try_clone_to_owned().expect("a copy");
    assert!(port.arm() && !port.look() && !is_readable(&fd));
    application.send(&[0; 60]).expect("room");
    application.flush();
    assert!(is_readable(&fd) && port.look());
    port.disarm();
    assert!(!is_readable(&fd));
}

#[test]
fn an_unannounced_signal_is_drained_after_some_wake_ups() {
    let (mut port, _application, _near, _pool) = both();
    let fd = port.fd().expect("an fd").try_clone_to_owned().expect("a copy");
    rustix::io::write(&fd, &1u64.to_ne_bytes()).expect("signalled");
    let woken = (0..64).take_while(|_| {
        port.arm();
        port.disarm();
        is_readable(&fd)
    });
    assert!(woken.count() < 32);
}

#[test]
fn an_application_cannot_block_its_owner_through_a_descriptor() {
    let (mut port, mut application, _near, mut pool) = both();
    let fd = port.fd().expect("an fd").try_clone_to_owned().expect("a copy");
    // The application may set a descriptor that it shares to blocking, and drain it at any time.
    rustix::fs::fcntl_setfl(&fd, rustix::fs::OFlags::empty()).expect("set");
    port.arm();
    application.send(&[0; 60]).expect("room");
    application.flush();
    rustix::io::read(&fd, &mut [0; 8]).expect("stolen");
    port.disarm();
    port.on_error();
    // It has the eventfd that the owner signals only inside a set, so it can neither read nor write it.
    let mut held = [0u8; 8];
    assert_eq!(rustix::io::read(application.fd(), &mut held), Err(Errno::INVAL));
    assert_eq!(rustix::io::write(application.fd(), &held), Err(Errno::INVAL));
    assert_eq!(receive(&mut port, &mut pool).len(), 1);
}

#[test]
fn a_sleeping_application_notices_the_owners_end() {
    let (port, mut application, near, _pool) = both();
    drop((port, near));
    assert_eq!(application.wait(None), Ok(Woken::OwnerGone));
}

#[test]
fn the_memory_cannot_be_cut_short() {
    let (_port, offer) = ShmPort::create(&ShmConfig { id: PortId::default(), slots: SLOTS }).expect("a port");
    assert_eq!(rustix::fs::ftruncate(&offer.memfd, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&offer.memfd, 1 << 30), Err(Errno::PERM));
    let unseal = rustix::fs::fcntl_add_seals(&offer.memfd, rustix::fs::SealFlags::WRITE);
    assert_eq!(unseal, Err(Errno::PERM));
}

#[test]
fn an_owner_distinguishes_unknown_protocols_from_other_versions() {
    let (_port, offer) = ShmPort::create(&ShmConfig { id: PortId::default(), slots: SLOTS }).expect("a port");
    let answer = |message: &[u8]| {
        let (near, far) = connection();
        rustix::net::send(&far, message, rustix::net::SendFlags::empty()).expect("sent");
        (offer.answer(&near), far)
    };
    assert!(matches!(answer(b"GET / HTTP/1.0").0, Err(OfferError::UnknownProtocol { len: 14 })));
    assert!(matches!(answer(&[0; 4000]).0, Err(OfferError::UnknownProtocol { len: 4000 | 17 })));
    let (outcome, far) = answer(&offer::message(VERSION + 1));
    assert!(matches!(outcome, Err(OfferError::Version { theirs }) if theirs == VERSION + 1));
    let mut told = [0; 32];
    let received = fd_passing::receive(&far, &mut told).expect("told");
    assert_eq!((offer::version_of(&told[..received.len]), received.fds.len()), (Some(VERSION), 0));
    let (near, far) = connection();
    assert!(matches!(offer.answer(&near), Err(OfferError::Silent)));
    drop(far);
    assert!(matches!(offer.answer(&near), Err(OfferError::Closed)));
}

/// Connects to an owner that answers with `message` and `fds`.
fn answered_by(message: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> ConnectError {
    let (near, far) = connection();
    fd_passing::send(&near, message, fds).expect("answered in advance");
    Application::over(far).expect_err("no owner")
}

#[test]
fn an_application_reports_what_is_wrong_with_its_owner() {
    let (_port, offer) = ShmPort::create(&ShmConfig { id: PortId::default(), slots: SLOTS }).expect("a port");
    let [memfd, waits_on, signals] = [offer.memfd.as_fd(), offer.waits_on.as_fd(), offer.signals.as_fd()];
    let hello = offer::message(VERSION);
    assert!(matches!(answered_by(b"220 smtp", &[]), ConnectError::UnknownProtocol));
    assert!(matches!(answered_by(&offer::message(9), &[]), ConnectError::Version { theirs: 9 }));
    assert!(matches!(answered_by(&hello, &[memfd, waits_on]), ConnectError::Descriptors { found: 2 }));
    assert!(matches!(answered_by(&hello, &[signals, waits_on, memfd]), ConnectError::Socket { .. }));
    // Memory of another layout, and memory that is too short.
    for (bytes, len) in [(b"twinpshm\x09", 4096), (b"nonsense ", 1 << 20), (b"         ", 0)] {
        let other = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::io::pwrite(&other, bytes, 0).expect("written");
        rustix::fs::ftruncate(&other, len).expect("sized");
        assert!(matches!(answered_by(&hello, &[other.as_fd(), waits_on, signals]), ConnectError::Memory));
    }
    let (near, far) = connection();
    drop(near);
    assert!(matches!(Application::over(far), Err(ConnectError::Closed | ConnectError::Socket { .. })));
    let directory = tempfile::tempdir().expect("a directory");
    let nobody = Application::connect(&directory.path().join("nobody")).expect_err("nobody there");
    assert!(nobody.to_string().contains("does the owner run"), "{nobody}");
    let datagrams = directory.path().join("other");
    let _other = UnixDatagram::bind(&datagrams).expect("bound");
    assert!(matches!(Application::connect(&datagrams), Err(ConnectError::Connect { .. })));
}

#[test]
fn an_application_connects_to_a_path_and_the_file_goes_with_the_listener() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("shm.sock");
    let listener = Listener::bind(&path).expect("bound");
    assert!(Listener::bind(&path).is_err() && path.exists(), "somebody else's file stays");
    // The second `bind` has tested whether somebody listens there.
    assert!(listener.accept().expect("sound").is_some());
    assert!(listener.accept().expect("sound").is_none());
    let (mut port, offer) =
        ShmPort::create(&ShmConfig { id: PortId::default(), slots: SLOTS }).expect("a port");
    std::thread::scope(|scope| {
        let application = scope.spawn(|| Application::connect(&path));
        let connection = loop {
            if let Some(connection) = listener.accept().expect("sound") {
                break connection;
            }
            std::thread::yield_now();
        };
        while let Err(OfferError::Silent) = offer.answer(&connection) {
            std::thread::yield_now();
        }
        let mut application = application.join().expect("no panic").expect("connected");
        application.send(&[1; 60]).expect("room");
    });
    assert_eq!(receive(&mut port, &mut Pool::new(1).expect("pool")).len(), 1);
    drop(listener);
    assert!(!path.exists());
}
