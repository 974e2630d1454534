//! Tests of `twinpath sockets`: the owner of an interface, and programs without rights that have rings from it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::UdpSocket as KernelSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};
use twinpath_leases::lending::message::{ANSWER_MAX, Answer, Request};
use twinpath_leases::sockets::{Access, LentBy, SocketPath, UdpSocket};
use twinpath_sys::{EventFd, fd_passing, fork};
use twinpath_worker::idle::Mode;

use crate::other_users::as_nobody;
use crate::rig::{CLIENT, PATIENCE, Rig, SERVER, Server, until};
use crate::root_or_skip;

/// Datagrams that have to come by the ring before a test goes on.
const BY_RING: u64 = 3;

struct Owned {
    rig: Rig,
    owner: Server,
    path: PathBuf,
}

fn start(rig: &Rig, path: &Path, options: &[&str]) -> Server {
    let arguments = ["sockets", "--on", "vs", "--listen", path.to_str().unwrap()];
    rig.try_launch(&[&arguments, options].concat()).unwrap_or_else(|said| panic!("no owner: {said}"))
}

impl Owned {
    /// `None` without root.
    fn new(options: &[&str]) -> Option<Self> {
        if !root_or_skip() {
            return None;
        }
        let rig = Rig::new();
        // Every user may enter.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(rig.directory.path(), open).unwrap();
        let path = rig.directory.path().join("programs");
        let owner = start(&rig, &path, options);
        Some(Self { rig, owner, path })
    }

    fn access(&self) -> Access {
        Access::Owner(self.path.clone())
    }

    /// Does something as a user without rights, in the owner's network namespace.
    fn as_nobody<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.rig.server.run(|| as_nobody(work)).unwrap()
    }

    /// A socket of such a user, with what the owner gives it.
    fn socket(&self, port: u16) -> UdpSocket {
        let socket = self.as_nobody(|| bound(port).on_by("vs", &self.access()));
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_mode(Mode::Poll);
        socket
    }

    fn fast_socket(&self, port: u16) -> UdpSocket {
        let socket = self.socket(port);
        let by = LentBy::Owner(self.path.clone());
        assert_eq!(socket.path(), &SocketPath::Fast { interface: "vs".to_owned(), by });
        socket
    }

    /// How many sockets with a lease the programs have, from most to least.
    fn sockets(&self) -> Vec<usize> {
        let programs = self.owner.show("programs");
        let of = |program: &serde_json::Value| program["sockets"].as_array().unwrap().len();
        let mut counts: Vec<_> = programs.as_array().unwrap().iter().map(of).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }
}

fn bound(port: u16) -> UdpSocket {
    UdpSocket::from(kernel_socket(port))
}

/// A port that another test's process still has for a moment, until it runs its program.
fn kernel_socket(port: u16) -> KernelSocket {
    let begun = Instant::now();
    loop {
        match KernelSocket::bind((SERVER, port)) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                std::thread::yield_now();
            }
            bound => return bound.unwrap(),
        }
    }
}

/// A peer that numbers what it sends.
struct Peer {
    socket: KernelSocket,
    to: u16,
    number: u64,
}

impl Peer {
    fn new(rig: &Rig, to: u16) -> Self {
        Self { socket: rig.client_udp(CLIENT, 0), to, number: 0 }
    }

    /// One there and back. What comes is the next number: nothing is lost, doubled or another's.
    fn round_trip(&mut self, socket: &UdpSocket) {
        let (mut buffer, sent) = ([0; 64], self.number.to_ne_bytes());
        self.number += 1;
        self.socket.send_to(&sent, (SERVER, self.to)).unwrap();
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], sent, "{:?}", socket.counts());
        socket.send_to(&sent, from).unwrap();
        assert_eq!((self.socket.recv(&mut buffer).unwrap(), &buffer[..8]), (8, &sent[..]));
    }

    /// Round trips until so many more came by the ring.
    fn until_by_ring(&mut self, socket: &UdpSocket, more: u64) {
        let (begun, before) = (Instant::now(), socket.counts().by_ring);
        while socket.counts().by_ring < before + more {
            self.round_trip(socket);
            assert!(begun.elapsed() < PATIENCE, "{:?}", socket.counts());
        }
    }
}

#[test]
fn a_program_without_rights_has_its_datagrams_by_the_ring() {
    let Some(owned) = Owned::new(&[]) else { return };
    let socket = owned.fast_socket(7101);
    let mut peer = Peer::new(&owned.rig, 7101);
    peer.until_by_ring(&socket, BY_RING);
    let programs = owned.owner.show("programs");
    assert_eq!((&programs[0]["user"], &programs[0]["sockets"][0]), (&65_534.into(), &"10.7.0.2:7101".into()));
    assert!(programs[0]["by_ring"].as_u64().unwrap() >= BY_RING, "{programs}");
    // Another socket of this process, by the same connection; and the first one's ring for a third.
    let second = owned.fast_socket(7102);
    assert_eq!(owned.sockets(), [2]);
    drop(socket);
    until("the lease of a closed socket is given back", || owned.sockets() == [1]);
    let third = owned.fast_socket(7103);
    for (socket, port) in [(&second, 7102), (&third, 7103)] {
        Peer::new(&owned.rig, port).until_by_ring(socket, BY_RING);
    }
    drop((second, third));
    until("a program without sockets disconnects", || owned.sockets().is_empty());
    // Nobody is there: the kernel has it, and the reason is said.
    let nobody = owned.rig.directory.path().join("nobody");
    let socket = owned.as_nobody(|| bound(7104).on_by("vs", &Access::Owner(nobody)));
    assert!(socket.path().to_string().contains("no owner answers at"), "{}", socket.path());
}

#[test]
fn a_lease_outlives_neither_its_socket_nor_its_program() {
    let Some(owned) = Owned::new(&[]) else { return };
    let socket = owned.fast_socket(7111);
    let mut peer = Peer::new(&owned.rig, 7111);
    peer.until_by_ring(&socket, BY_RING);
    // Another process, which is killed while it spins.
    let child = owned.rig.server.run(|| {
        fork::fork(|| {
            let uid = rustix::fs::Uid::from_raw(65_534);
            if rustix::thread::set_thread_res_uid(uid, uid, uid).is_err() {
                return 1;
            }
            let socket = bound(7112).on_by("vs", &owned.access());
            socket.set_mode(Mode::Poll);
            while socket.recv_from(&mut [0; 64]).is_ok() {}
            2
        })
    });
    let child = child.unwrap().unwrap();
    until("the child has a lease", || owned.sockets() == [1, 1]);
    peer.until_by_ring(&socket, BY_RING);
    rustix::process::kill_process(child.pid(), rustix::process::Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap(), None, "it was killed");
    until("the lease of a killed program is taken back", || owned.sockets() == [1]);
    peer.until_by_ring(&socket, BY_RING);
    // Its port is free, and what is sent there is somebody else's.
    let other = owned.fast_socket(7112);
    Peer::new(&owned.rig, 7112).until_by_ring(&other, BY_RING);
}

#[test]
fn sockets_go_on_by_the_kernel_when_the_owner_is_killed() {
    let Some(owned) = Owned::new(&[]) else { return };
    let socket = owned.fast_socket(7121);
    let mut peer = Peer::new(&owned.rig, 7121);
    peer.until_by_ring(&socket, BY_RING);
    let Owned { rig, owner, path } = owned;
    // Round trips meanwhile, each of which is checked.
    let killed = std::thread::scope(|scope| {
        let killing = scope.spawn(|| owner.kill());
        while !killing.is_finished() {
            peer.round_trip(&socket);
        }
        killing.join()
    });
    killed.unwrap();
    // The kernel takes the program off the interface a little later.
    let (begun, mut before) = (Instant::now(), socket.counts());
    loop {
        (0..BY_RING).for_each(|_| peer.round_trip(&socket));
        let counts = socket.counts();
        if counts.by_ring == before.by_ring && counts.leases == before.leases {
            break;
        }
        before = counts;
        assert!(begun.elapsed() < PATIENCE, "{counts:?}");
    }
    // The next owner clears up, and gives rings to sockets that come then.
    let owned = Owned { owner: start(&rig, &path, &[]), rig, path };
    let second = owned.fast_socket(7122);
    Peer::new(&owned.rig, 7122).until_by_ring(&second, BY_RING);
    peer.round_trip(&socket);
}

#[test]
fn a_new_owner_takes_all_programs_over() {
    let Some(mut owned) = Owned::new(&[]) else { return };
    let socket = owned.fast_socket(7171);
    let mut peer = Peer::new(&owned.rig, 7171);
    peer.until_by_ring(&socket, BY_RING);
    for port in [7172, 7173] {
        let from = owned.owner.socket.to_str().unwrap().to_owned();
        // Command sockets are named by the number of files.
        std::fs::write(owned.rig.directory.path().join(port.to_string()), "").unwrap();
        // Of another interface it is refused, and the former one goes on.
        let refused = owned.rig.try_launch(&["sockets", "--on", "lo", "--take-over", &from]);
        assert!(refused.is_err_and(|said| !said.is_empty()));
        // Round trips meanwhile, each of which is checked. The new owner ends with the thread that starts it.
        let arguments = ["sockets", "--on", "vs", "--take-over", &from];
        let is_over = AtomicBool::new(false);
        let next = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    peer.round_trip(&socket);
                }
            });
            let next = owned.rig.try_launch(&arguments);
            is_over.store(true, Ordering::Relaxed);
            next.unwrap_or_else(|said| panic!("no owner: {said}"))
        });
        let mut former = std::mem::replace(&mut owned.owner, next);
        until("the former owner ends", || former.child.try_wait().unwrap().is_some());
        assert!(former.child.wait().unwrap().success());
        assert_eq!(owned.sockets(), [1]);
        // What the first owner has given, and nothing of those between.
        assert_eq!(links(owned.owner.child.id()), LINKS);
        peer.until_by_ring(&socket, BY_RING);
        // By the same connection, from the new owner.
        let second = owned.fast_socket(port);
        Peer::new(&owned.rig, port).until_by_ring(&second, BY_RING);
        assert_eq!(owned.sockets(), [2]);
        drop(second);
        until("the lease of a closed socket is given back", || owned.sockets() == [1]);
    }
    drop(socket);
    until("a program without sockets disconnects", || owned.sockets().is_empty());
    let _another = owned.fast_socket(7174);
}

/// Of the program at ingress, and of the one at egress that turns around what is handed over.
const LINKS: usize = 2;

/// Links of BPF programs that a process has.
fn links(process: u32) -> usize {
    let folder = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let is_link =
        |file: &Path| std::fs::read_link(file).is_ok_and(|name| name.to_string_lossy().contains("bpf_link"));
    folder.filter(|file| is_link(&file.as_ref().unwrap().path())).count()
}

/// A program that speaks to the owner itself.
struct Hostile {
    connection: OwnedFd,
}

impl Hostile {
    fn new(owned: &Owned) -> Self {
        owned.as_nobody(|| Self::of_this_user(owned))
    }

    fn of_this_user(owned: &Owned) -> Self {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let connection = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        connect(&connection, &SocketAddrUnix::new(&owned.path).unwrap()).unwrap();
        Self { connection }
    }

    fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        // The owner may have closed the connection already.
        let _ = fd_passing::send(&self.connection, bytes, descriptors);
    }

    /// `None` if the owner has closed the connection.
    fn hear(&self) -> Option<(Answer, Vec<OwnedFd>)> {
        let mut bytes = vec![0; ANSWER_MAX];
        let received = fd_passing::receive(&self.connection, &mut bytes).ok()?;
        (received.len > 0).then(|| (Answer::decode(&bytes[..received.len]).unwrap(), received.fds))
    }

    /// The last answer to a request for a lease. The descriptor is shown again if the program had no rings.
    fn asks(&self, interface: &str, descriptors: &[BorrowedFd<'_>]) -> Option<(Answer, Vec<OwnedFd>)> {
        let request = Request::Lend { request: 5, interface: interface.to_owned() };
        self.say(&request.encode(), descriptors);
        loop {
            match self.hear()? {
                (Answer::Opened { request: 5 }, _) => self.say(&request.encode(), descriptors),
                (Answer::Seen { request: 5 }, _) => {}
                last => return Some(last),
            }
        }
    }

    fn ask(&self, interface: &str, descriptors: &[BorrowedFd<'_>]) -> (Answer, Vec<OwnedFd>) {
        self.asks(interface, descriptors).expect("the owner answers")
    }

    fn is_refused(&self, interface: &str, descriptors: &[BorrowedFd<'_>], why: &str) {
        match self.ask(interface, descriptors) {
            (Answer::Refused { request: 5, why: said }, fds) if fds.is_empty() => {
                assert!(said.contains(why), "{said}");
            }
            (other, _) => panic!("not refused for `{why}`: {other:?}"),
        }
    }
}

#[test]
fn a_program_gets_nothing_but_rings_for_udp_sockets_of_its_own() {
    let Some(owned) = Owned::new(&[]) else { return };
    let hostile = Hostile::new(&owned);
    let (socket, other) = owned.as_nobody(|| (kernel_socket(7131), kernel_socket(7132)));
    let no_port =
        owned.as_nobody(|| rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)).unwrap();
    let elsewhere = owned.rig.client_udp(CLIENT, 0);
    let event = EventFd::new().unwrap();
    let tcp = owned.as_nobody(|| std::net::TcpListener::bind((SERVER, 0)).unwrap());
    let raw =
        rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::UDP)).unwrap();
    for (descriptor, why) in [
        (event.as_fd(), "no UDP socket"),
        (tcp.as_fd(), "no UDP socket"),
        (raw.as_fd(), "no UDP socket"),
        (no_port.as_fd(), "bound to no port"),
        (elsewhere.as_fd(), "another network namespace"),
    ] {
        hostile.is_refused("vs", &[descriptor], why);
    }
    hostile.is_refused("vs", &[], "one socket");
    hostile.is_refused("vs", &[socket.as_fd(), other.as_fd()], "one socket");
    hostile.is_refused("lo", &[socket.as_fd()], "it has vs, not lo");
    assert_eq!(owned.owner.drops("leases_refused"), 8);
    // A port is one program's: the second one is refused it.
    let taken = owned.as_nobody(|| KernelSocket::bind((SERVER, 7131)));
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    // What it may have, once for each socket; the end of what it does not have is nothing.
    let (answer, memory) = hostile.ask("vs", &[socket.as_fd()]);
    assert!(matches!(answer, Answer::Lent { request: 5, ring: 0, .. }) && memory.len() == 2, "{answer:?}");
    hostile.is_refused("vs", &[socket.as_fd()], "has a lease already");
    hostile.say(&Request::end(77, false), &[]);
    hostile.say(&Request::end(0, false), &[event.as_fd()]);
    let (answer, _) = hostile.ask("vs", &[socket.as_fd()]);
    assert!(matches!(answer, Answer::Lent { ring: 0, .. }), "{answer:?}");
    // A child that has the connection has no part in it: its message is read before the next one, and is nothing.
    let child = fork::fork(|| {
        let request = Request::Lend { request: 6, interface: "vs".to_owned() };
        hostile.say(&request.encode(), &[other.as_fd()]);
        0
    });
    assert_eq!(child.unwrap().wait().unwrap(), Some(0));
    hostile.is_refused("vs", &[socket.as_fd()], "has a lease already");
    assert_eq!(owned.sockets(), [1]);
}

#[test]
fn a_socket_that_the_owner_has_seen_is_closed_with_the_programs_own_descriptor() {
    let Some(owned) = Owned::new(&[]) else { return };
    let program = Hostile::new(&owned);
    let first = owned.as_nobody(|| kernel_socket(7135));
    assert!(matches!(program.ask("vs", &[first.as_fd()]), (Answer::Lent { .. }, _)));
    let (rounds, mut at_once) = (20, 0);
    for round in 0..rounds {
        let socket = owned.as_nobody(|| kernel_socket(7136));
        let request = Request::Lend { request: round, interface: "vs".to_owned() };
        program.say(&request.encode(), &[socket.as_fd()]);
        assert_eq!(program.hear().map(|(answer, _)| answer), Some(Answer::Seen { request: round }));
        drop(socket);
        // The owner is still busy with its lease.
        let again = owned.as_nobody(|| KernelSocket::bind((SERVER, 7136)));
        // A process that another test starts at this moment has the descriptor, too, until it runs its program.
        at_once += u32::from(again.is_ok());
        let answer = program.hear().map(|(answer, _)| answer);
        let Some(Answer::Lent { ring, .. }) = answer else { panic!("no lease: {answer:?}") };
        program.say(&Request::end(ring, false), &[]);
    }
    assert!(at_once > rounds / 2, "{at_once} of {rounds}");
}

#[test]
fn what_is_no_message_ends_the_connection_and_nothing_else() {
    let Some(owned) = Owned::new(&[]) else { return };
    let socket = owned.fast_socket(7141);
    let mut peer = Peer::new(&owned.rig, 7141);
    let (good, event) = (Request::end(1, false), EventFd::new().unwrap());
    let long = [&good[..], &[0; 4096]].concat();
    let mut other_version = good;
    other_version[4] ^= 1;
    let bad: [&[u8]; 5] = [b"GET / HTTP/1.0\r\n\r\n", &good[..31], &[0xff; 32], &long, &other_version];
    for (faults, bytes) in (1..).zip(bad) {
        let hostile = Hostile::new(&owned);
        hostile.say(bytes, &[event.as_fd()]);
        assert_eq!(hostile.hear().map(|(answer, _)| answer), None);
        assert_eq!(owned.owner.drops("program_fault"), faults);
    }
    // It sends without reading.
    let hostile = Hostile::new(&owned);
    for _ in 0..100_000 {
        let request = Request::Lend { request: 1, interface: "vs".to_owned() };
        if fd_passing::send(&hostile.connection, &request.encode(), &[]).is_err() {
            break;
        }
    }
    drop(hostile);
    peer.until_by_ring(&socket, BY_RING);
    until("all have gone", || owned.sockets() == [1]);
}

/// Both ends of a TCP connection. Closing the first waits for as long as the second reads nothing (SO_LINGER).
fn lingering() -> (OwnedFd, OwnedFd) {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &near, &[0; 65_536]).is_ok() {}
    near.set_nonblocking(false).unwrap();
    set_socket_linger(&near, Some(std::time::Duration::from_secs(1_000))).unwrap();
    (near.into(), far.into())
}

#[test]
fn descriptors_that_linger_and_requests_without_end_keep_no_other_program_waiting() {
    let Some(owned) = Owned::new(&[]) else { return };
    // More than a message of ours has, so that the kernel would close what there is no room for.
    let (lingering, _far) = lingering();
    let hostile = Hostile::new(&owned);
    let all = [lingering.as_fd(); 4 * fd_passing::FDS_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4 * fd_passing::FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&all)));
    let request = Request::Lend { request: 1, interface: "vs".to_owned() }.encode();
    sendmsg(&hostile.connection, &[IoSlice::new(&request)], &mut control, SendFlags::empty()).unwrap();
    drop(lingering);
    let mut fast = vec![owned.fast_socket(7146)];
    // From here on it asks, and ends what it got, for as long as the owner listens.
    let asking = Hostile::new(&owned);
    let socket = owned.as_nobody(|| kernel_socket(7147));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let (Answer::Lent { ring, .. }, _) = asking.ask("vs", &[socket.as_fd()]) {
                    asking.say(&Request::end(ring, false), &[]);
                }
            }
        });
        fast.extend((0..3).map(|more| owned.fast_socket(7148 + more)));
        stop.store(true, Ordering::Relaxed);
    });
    Peer::new(&owned.rig, 7146).until_by_ring(&fast[0], BY_RING);
}

#[test]
fn a_program_without_leases_keeps_nothing_in_the_kernel() {
    let Some(owned) = Owned::new(&[]) else { return };
    let attached = || links(owned.owner.child.id());
    let (holder, refused) = (Hostile::new(&owned), Hostile::new(&owned));
    let (socket, other) = owned.as_nobody(|| (kernel_socket(7161), kernel_socket(7162)));
    assert!(matches!(holder.ask("vs", &[socket.as_fd()]), (Answer::Lent { ring: 0, .. }, _)));
    // What only the kernel can say is asked after the program has got the memory of its rings.
    refused.is_refused("vs", &[socket.as_fd()], "has a lease already");
    assert_eq!(attached(), LINKS);
    drop(holder);
    until("the kernel's program is detached, though one asked for a lease", || attached() == 0);
    for _ in 0..2 {
        let (answer, _) = refused.ask("vs", &[other.as_fd()]);
        let Answer::Lent { ring, .. } = answer else { panic!("no lease: {answer:?}") };
        assert_eq!(attached(), LINKS);
        refused.say(&Request::end(ring, false), &[]);
        until("it is detached when the last lease has ended", || attached() == 0);
    }
}

#[test]
fn programs_sockets_and_users_have_limits() {
    let limits = ["--programs", "2", "--programs-per-user", "1", "--sockets-per-program", "2"];
    let Some(owned) = Owned::new(&[&limits[..], &["--sockets-per-user", "1"]].concat()) else { return };
    let first = owned.fast_socket(7151);
    let second = owned.socket(7152);
    assert!(second.path().to_string().contains("--sockets-per-user"), "{}", second.path());
    // Of the same user, by another connection; of root; and then there are as many as may be.
    let is_refused = |hostile: &Hostile, limit: &str| {
        let refused = hostile.hear().map(|(answer, _)| answer);
        matches!(refused, Some(Answer::Refused { why, .. }) if why.contains(limit))
    };
    assert!(is_refused(&Hostile::new(&owned), "--programs-per-user"));
    let roots = Hostile::of_this_user(&owned);
    let socket = owned.rig.server.run(|| kernel_socket(7153)).unwrap();
    assert!(matches!(roots.ask("vs", &[socket.as_fd()]), (Answer::Lent { .. }, _)));
    assert!(is_refused(&Hostile::of_this_user(&owned), "--programs)"));
    assert_eq!(owned.owner.drops("programs_refused"), 2);
    Peer::new(&owned.rig, 7151).until_by_ring(&first, BY_RING);
    drop(first);
    until("a place is free again", || owned.sockets() == [1]);
    let again = owned.fast_socket(7154);
    Peer::new(&owned.rig, 7154).until_by_ring(&again, BY_RING);
}

#[test]
fn checks_of_the_kernel_that_begin_later_end_the_leases_that_they_are_for() {
    let Some(owned) = Owned::new(&[]) else { return };
    let socket = owned.fast_socket(7201);
    let mut peer = Peer::new(&owned.rig, 7201);
    peer.until_by_ring(&socket, BY_RING);
    let other = Hostile::new(&owned);
    let others = owned.as_nobody(|| kernel_socket(7202));
    assert!(matches!(other.ask("vs", &[others.as_fd()]), (Answer::Lent { .. }, _)));
    let policy = |action: &str, port: &str| {
        let selector = ["src", "0.0.0.0/0", "dst", SERVER, "proto", "udp", "dport", port];
        owned.rig.ip_server(&[&["xfrm", "policy", action, "dir", "in"], &selector[..]].concat());
    };
    policy("add", "9");
    policy("add", "7201");
    until("a policy ends the leases of one program", || owned.sockets() == [1]);
    // Nothing is lost by that.
    (0..BY_RING).for_each(|_| peer.round_trip(&socket));
    let fresh = owned.socket(7203);
    assert_eq!(owned.sockets(), [1, 1], "{}", fresh.path());
    let again = owned.as_nobody(|| {
        drop(socket);
        bound(7201).on_by("vs", &owned.access())
    });
    assert!(again.path().to_string().contains("IPsec policy"), "{}", again.path());
    policy("delete", "7201");
    let strict = || std::fs::write("/proc/sys/net/ipv4/conf/vs/rp_filter", "1");
    owned.rig.server.run(strict).unwrap().unwrap();
    until("a strict source check ends all", || owned.sockets().is_empty());
}

#[test]
fn a_program_that_asks_for_nothing_keeps_no_other_out() {
    let Some(owned) = Owned::new(&["--programs-per-user", "2"]) else { return };
    let holder = owned.fast_socket(7181);
    let silent = Hostile::new(&owned);
    let mut fast = None;
    until("the silent program's place is another's", || {
        let socket = owned.as_nobody(|| (Hostile::of_this_user(&owned), kernel_socket(7182)));
        let (other, socket) = socket;
        match other.asks("vs", &[socket.as_fd()]) {
            Some((Answer::Lent { .. }, _)) => fast = Some((other, socket)),
            Some((Answer::Refused { request: 0, why }, _)) => {
                assert!(why.contains("--programs-per-user"), "{why}")
            }
            // It was refused before it asked.
            None => {}
            Some((other, _)) => panic!("{other:?}"),
        }
        fast.is_some()
    });
    assert!(matches!(silent.hear(), Some((Answer::Refused { request: 0, .. }, _))));
    assert!(silent.hear().is_none());
    // Those that have rings stay, however silent they are.
    Peer::new(&owned.rig, 7181).until_by_ring(&holder, BY_RING);
    assert_eq!(owned.sockets(), [1, 1]);
}

#[test]
fn programs_of_a_user_that_come_and_go_without_end_get_rings_now_and_then() {
    // Twice as many at once, before it counts.
    let Some(owned) = Owned::new(&["--programs-per-user", "1"]) else { return };
    let socket = owned.as_nobody(|| kernel_socket(7191));
    let asks = || {
        let hostile = Hostile::new(&owned);
        hostile.asks("vs", &[socket.as_fd()]).map(|(answer, _)| answer)
    };
    until(
        "it is refused for a while",
        || matches!(asks(), Some(Answer::Refused { why, .. }) if why.contains("came and went lately")),
    );
    until("it gets rings again", || matches!(asks(), Some(Answer::Lent { .. })));
    // Other users' programs have their own account.
    let roots = Hostile::of_this_user(&owned);
    let socket = owned.rig.server.run(|| kernel_socket(7192)).unwrap();
    assert!(matches!(roots.ask("vs", &[socket.as_fd()]), (Answer::Lent { .. }, _)));
}

#[test]
fn rules_of_the_owner_say_which_sockets_have_rings() {
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        rules.path(),
        "[[rule]]\nport = \"7162\"\npath = \"kernel\"\n[[rule]]\nport = \"7161-7163\"\n",
    )
    .unwrap();
    let Some(owned) = Owned::new(&["--rules", rules.path().to_str().unwrap()]) else { return };
    let _first = owned.fast_socket(7161);
    for (port, why) in [(7162, "a rule of the owner keeps"), (7164, "no rule of the owner")] {
        let socket = owned.socket(port);
        assert!(socket.path().to_string().contains(why), "{}", socket.path());
    }
}
