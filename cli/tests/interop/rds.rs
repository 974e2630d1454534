//! Tests of `twinpath rds`: programs of two hosts that send each other Reliable Datagram Sockets' messages.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use twinpath_rds_socket::{RdsError, RdsSocket};

use crate::rig::{CLIENT, PATIENCE, Rig, SERVER, SERVER_V6, Server, until};
use crate::root_or_skip;

/// Two hosts with a daemon each.
struct Hosts {
    rig: Rig,
    client: Server,
    server: Server,
}

fn daemon(rig: &Rig, is_client: bool, options: &[&str]) -> Result<Server, String> {
    let (namespace, interface) = if is_client { (&rig.client, "vc") } else { (&rig.server, "vs") };
    let path = programs(rig, is_client);
    let arguments = ["rds", "--on", interface, "--listen", path.to_str().unwrap()];
    rig.try_launch_in(namespace, &[&arguments, options].concat())
}

fn programs(rig: &Rig, is_client: bool) -> PathBuf {
    rig.directory.path().join(if is_client { "client" } else { "server" })
}

impl Hosts {
    /// `None` without root.
    fn new(options: &[&str]) -> Option<Self> {
        if !root_or_skip() {
            return None;
        }
        let rig = Rig::new();
        let client = daemon(&rig, true, options).unwrap();
        let server = daemon(&rig, false, options).unwrap();
        Some(Self { rig, client, server })
    }

    fn client(&self, port: u16) -> RdsSocket {
        bound(&programs(&self.rig, true), CLIENT, port)
    }

    fn server(&self, port: u16) -> RdsSocket {
        bound(&programs(&self.rig, false), SERVER, port)
    }

    /// Cuts all connections, as a host does that has forgotten them.
    fn cut(&self) {
        twinpath_test_rig::run(
            &self.rig.client,
            "ss",
            &["-K", "dport", "=", "16385", "or", "sport", "=", "16385"],
        );
    }
}

fn open(path: &Path) -> RdsSocket {
    RdsSocket::open(path).unwrap()
}

fn bound(path: &Path, address: &str, port: u16) -> RdsSocket {
    let mut socket = open(path);
    socket.bind(to(address, port)).unwrap();
    socket
}

fn to(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Waits until there is something to receive.
fn wait(socket: &RdsSocket) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "nothing has come");
}

fn receive(socket: &RdsSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 1 << 20];
    wait(socket);
    let received = socket.receive(&mut bytes).unwrap();
    assert!(!received.is_cut);
    (bytes[..received.len].to_vec(), received.from)
}

fn errno(outcome: Result<(), RdsError>) -> Option<Errno> {
    match outcome {
        Err(RdsError::Call(error)) => Some(error),
        _ => None,
    }
}

fn paths(server: &Server) -> Vec<Value> {
    server.show("rds")["paths"].as_array().unwrap().clone()
}

#[test]
fn messages_of_all_lengths_go_both_ways_and_to_several_peers_of_one_socket() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    let local = hosts.client(4001);
    for len in [0, 1, 100, 1400, 8192, 65_536, 100_000] {
        let text: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        client.send_to(&text, to(SERVER, 4000)).unwrap();
        assert_eq!(receive(&server), (text.clone(), to(CLIENT, 4000)));
        server.send_to(&text, to(CLIENT, 4000)).unwrap();
        assert_eq!(receive(&client), (text.clone(), to(SERVER, 4000)));
        // Another program of the same host.
        client.send_to(&text, to(CLIENT, 4001)).unwrap();
        assert_eq!(receive(&local), (text, to(CLIENT, 4000)));
    }
    // A ping is answered by the host, from port 0.
    for host in [SERVER, CLIENT] {
        client.send_to(b"", to(host, 0)).unwrap();
        assert_eq!(receive(&client), (Vec::new(), to(host, 0)));
    }
    client.connect(to(SERVER, 4000)).unwrap();
    client.send(b"there").unwrap();
    assert_eq!(receive(&server).0, b"there");
    let known = paths(&hosts.client);
    assert_eq!((known.len(), &known[0]["link"], &known[0]["reconnects"]), (1, &"up".into(), &0.into()));
    assert_eq!(known[0]["generation"], hosts.server.show("rds")["generation"]);
}

#[test]
fn the_larger_address_may_send_first() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    server.send_to(b"first", to(CLIENT, 4000)).unwrap();
    assert_eq!(receive(&client).0, b"first");
}

#[test]
fn ipv6_and_several_paths() {
    let Some(hosts) = Hosts::new(&["--paths", "4"]) else { return };
    let server = bound(&programs(&hosts.rig, false), SERVER_V6, 7);
    let address = crate::rig::CLIENT_V6;
    let clients: Vec<_> =
        (0..4).map(|port| bound(&programs(&hosts.rig, true), address, 4000 + port)).collect();
    for _ in 0..3 {
        for client in &clients {
            client.send_to(b"there", to(SERVER_V6, 7)).unwrap();
            let (text, from) = receive(&server);
            assert_eq!((text.as_slice(), from), (&b"there"[..], client.local().unwrap()));
            server.send_to(b"back", from).unwrap();
            assert_eq!(receive(client).0, b"back");
        }
    }
    until("all paths are up", || {
        paths(&hosts.client).iter().filter(|path| path["link"] == "up").count() == 4
    });
}

/// Sends numbered messages until it is over, then one that says so. Returns their number.
fn sends(socket: &RdsSocket, to: SocketAddr, is_over: &AtomicBool) -> u64 {
    let mut number = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        let len = if number.is_multiple_of(50) { 60_000 } else { 8 + number as usize % 900 };
        let mut text = vec![number as u8; len];
        text[..8].copy_from_slice(&number.to_le_bytes());
        socket.send_to(&text, to).unwrap();
        number += 1;
    }
    socket.send_to(&u64::MAX.to_le_bytes(), to).unwrap();
    number
}

/// Receives these messages, each once and in order. Returns their number, and how many were left out.
fn receives(socket: &RdsSocket) -> (u64, u64) {
    let (mut count, mut expected) = (0, 0);
    loop {
        let (text, _) = receive(socket);
        let number = u64::from_le_bytes(text[..8].try_into().unwrap());
        if number == u64::MAX {
            return (count, expected - count);
        }
        assert!(number >= expected, "{number} after {expected}");
        assert!(text[8..].iter().all(|byte| *byte == number as u8));
        (count, expected) = (count + 1, number + 1);
    }
}

#[test]
fn nothing_is_lost_doubled_or_reordered_by_cut_connections() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    let cuts: u64 = std::env::var("RDS_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(50);
    let is_over = AtomicBool::new(false);
    let reconnects = || {
        let paths = paths(&hosts.client);
        let counts = paths.iter().map(|path| path["reconnects"].as_u64().unwrap());
        counts.sum::<u64>() + u64::from(paths.iter().any(|path| path["link"] != "up")) * (1 << 32)
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| sends(&client, to(SERVER, 4000), &is_over));
        let other = scope.spawn(|| sends(&server, to(CLIENT, 4000), &is_over));
        let read = [scope.spawn(|| receives(&server).0), scope.spawn(|| receives(&client).0)];
        let mut before = 0;
        for _ in 0..cuts {
            until("all paths are up, some of them again", || {
                let now = reconnects();
                let is_new = now >> 32 == 0 && (before == 0 || now > before);
                before = if is_new { now } else { before };
                is_new
            });
            hosts.cut();
        }
        is_over.store(true, Ordering::Relaxed);
        let sent = [one.join().unwrap(), other.join().unwrap()];
        let read = read.map(|read| read.join().unwrap());
        let dropped = [&hosts.client, &hosts.server].map(|host| host.answer("drops")["drops"].clone());
        assert_eq!(read, sent, "dropped by the client, by the server: {dropped:?}");
        println!("{cuts} times all connections were cut; {sent:?} messages");
    });
}

#[test]
fn a_port_that_is_not_read_is_congested_until_it_is_read() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    let other = hosts.server(4001);
    server.set_receive_max(16_384).unwrap();
    rustix::io::ioctl_fionbio(client.as_fd(), true).unwrap();
    let mut sent = 0_u32;
    until("the port is congested", || {
        match client.send_to(&[&sent.to_le_bytes()[..], &[0; 1000]].concat(), to(SERVER, 4000)) {
            Ok(()) => sent += 1,
            Err(RdsError::Call(Errno::NOBUFS)) => return true,
            Err(RdsError::Call(Errno::AGAIN)) => {}
            Err(error) => panic!("{error}"),
        }
        false
    });
    assert_eq!(paths(&hosts.client)[0]["congested"], serde_json::json!([4000]));
    // Another port of the same host is not, and what was sent to the congested one does not delay it.
    client.send_to(b"there", to(SERVER, 4001)).unwrap();
    assert_eq!(receive(&other).0, b"there");
    for number in 0..sent {
        assert_eq!(receive(&server).0[..4], number.to_le_bytes());
    }
    until("the port is clear", || client.send_to(b"again", to(SERVER, 4000)).is_ok());
    assert_eq!(receive(&server).0, b"again");
}

#[test]
fn what_cannot_be_is_refused_with_the_errors_of_the_kernels_sockets() {
    let Some(hosts) = Hosts::new(&["--sockets", "6"]) else { return };
    let path = programs(&hosts.rig, true);
    let (first, mut second) = (hosts.client(4000), open(&path));
    assert_eq!(errno(second.bind(to(CLIENT, 4000))), Some(Errno::ADDRINUSE));
    assert_eq!(errno(second.bind(to(SERVER, 4001))), Some(Errno::ADDRNOTAVAIL));
    assert_eq!(errno(second.bind(to("0.0.0.0", 4001))), Some(Errno::INVAL));
    assert_eq!(errno(second.bind(to(CLIENT, 1))), Some(Errno::INVAL));
    assert_eq!(errno(second.send_to(b"", to(SERVER, 4000))), Some(Errno::NOTCONN));
    second.bind(to(CLIENT, 0)).unwrap();
    assert_ne!(second.local().unwrap().port(), 0);
    assert_eq!(errno(second.bind(to(CLIENT, 0))), Some(Errno::INVAL));
    assert_eq!(errno(first.send_to(&vec![0; 1 << 20], to(SERVER, 4000))), Some(Errno::MSGSIZE));
    let more: Vec<_> = (0..4).map(|_| open(&path)).collect();
    assert!(matches!(RdsSocket::open(&path), Err(RdsError::DaemonEnded)));
    drop((more, first));
    // Its port is free again, at once or after the daemon has noticed.
    until("the port is free", || {
        RdsSocket::open(&path).is_ok_and(|mut socket| socket.bind(to(CLIENT, 4000)).is_ok())
    });
    // A port without a program, and an address without a host that answers.
    second.send_to(b"nobody", to(SERVER, 9)).unwrap();
    until("it is counted", || hosts.server.drops("no_socket") == 1);
    let said = daemon(&hosts.rig, true, &[]).err().unwrap();
    assert!(said.contains("port 16385 of TCP is in use"), "{said}");
    let absent = hosts.rig.twinpath(&hosts.rig.client, &["rds", "--on", "nothing"]);
    assert!(absent.stderr.contains("nothing"), "{}", absent.stderr);
}

#[test]
fn what_was_sent_arrives_although_the_program_and_the_daemon_end_at_once() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    for number in 0..100_u32 {
        client.send_to(&number.to_le_bytes(), to(SERVER, 4000)).unwrap();
    }
    drop(client);
    let Hosts { client, .. } = hosts;
    assert_eq!(client.interrupt(), Some(0));
    for number in 0..100_u32 {
        assert_eq!(receive(&server).0, number.to_le_bytes());
    }
}

#[test]
fn programs_notice_nothing_of_a_daemon_that_is_killed() {
    let Some(Hosts { rig, mut client, server }) = Hosts::new(&[]) else { return };
    let sockets = [
        bound(&programs(&rig, true), CLIENT, 4000),
        bound(&programs(&rig, false), SERVER, 4000),
        bound(&programs(&rig, true), CLIENT, 4001),
    ];
    let [at_client, at_server, idle] = &sockets;
    let kills: u64 = std::env::var("RDS_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8);
    let is_over = AtomicBool::new(false);
    let life = client.show("rds")["generation"].clone();
    let (sent, read, client) = std::thread::scope(|scope| {
        let sent = [
            scope.spawn(|| sends(at_client, to(SERVER, 4000), &is_over)),
            scope.spawn(|| sends(at_server, to(CLIENT, 4000), &is_over)),
        ];
        let read = [scope.spawn(|| receives(at_server)), scope.spawn(|| receives(at_client))];
        let mut before = 0;
        for kill in 0..kills {
            until("messages flow", || {
                let now = paths(&server).first().map_or(0, |path| path["next_in"].as_u64().unwrap());
                let flows = now > before + 50 + kill * 7 % 100;
                before = if flows { now } else { before };
                flows
            });
            client.kill();
            client = daemon(&rig, true, &[]).unwrap();
            assert_eq!(client.show("rds")["generation"], life, "it goes on where the former one was");
        }
        is_over.store(true, Ordering::Relaxed);
        (sent.map(|sent| sent.join().unwrap()), read.map(|read| read.join().unwrap()), client)
    });
    println!("{kills} kills; sent {sent:?}; received and left out {read:?}");
    assert_eq!(read[0], (sent[0], 0), "what programs of the killed daemon have sent is all there");
    // TCP had acknowledged it, and no program had it.
    assert_eq!(read[1].0 + read[1].1, sent[1]);
    at_server.send_to(b"still", to(CLIENT, 4001)).unwrap();
    assert_eq!(receive(idle).0, b"still");
    // After an orderly end nothing is kept.
    assert_eq!(client.interrupt(), Some(0));
    wait(idle);
    assert!(matches!(idle.receive(&mut [0; 8]), Err(RdsError::DaemonEnded)));
    until("the keeper has ended", || !programs(&rig, true).with_extension("kept").exists());
}

#[test]
fn messages_to_other_receivers_go_past_those_to_a_congested_one() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server, other) = (hosts.client(4000), hosts.server(4000), hosts.server(4001));
    let local = hosts.client(4001);
    server.set_receive_max(16_384).unwrap();
    // It blocks, so nothing tells it of congestion: all of this is accepted.
    let mut sent = 0_u32;
    until("the port is congested", || {
        client.send_to(&[&sent.to_le_bytes()[..], &[0; 1000]].concat(), to(SERVER, 4000)).unwrap();
        sent += 1;
        paths(&hosts.client)[0]["congested"] == serde_json::json!([4000])
    });
    for number in 0..20_u32 {
        client.send_to(&[&sent.to_le_bytes()[..], &[0; 1000]].concat(), to(SERVER, 4000)).unwrap();
        sent += 1;
        client.send_to(&number.to_le_bytes(), to(SERVER, 4001)).unwrap();
        assert_eq!(receive(&other).0, number.to_le_bytes());
        client.send_to(&number.to_le_bytes(), to(CLIENT, 4001)).unwrap();
        assert_eq!(receive(&local).0, number.to_le_bytes());
    }
    for number in 0..sent {
        assert_eq!(receive(&server).0[..4], number.to_le_bytes());
    }
}

#[test]
fn what_a_program_has_not_read_does_not_cost_what_it_has_sent() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    for number in 0..50_u32 {
        server.send_to(b"unread", to(CLIENT, 4000)).unwrap();
        client.send_to(&number.to_le_bytes(), to(SERVER, 4000)).unwrap();
    }
    wait(&client);
    drop(client);
    for number in 0..50_u32 {
        assert_eq!(receive(&server).0, number.to_le_bytes());
    }
}

#[test]
fn the_next_daemon_says_to_programs_which_ports_are_congested() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let (client, server) = (hosts.client(4000), hosts.server(4000));
    server.set_receive_max(16_384).unwrap();
    rustix::io::ioctl_fionbio(client.as_fd(), true).unwrap();
    let mut sent = 0_u32;
    let mut fills = |client: &RdsSocket| match client.send_to(&[0; 1000], to(SERVER, 4000)) {
        Ok(()) => {
            sent += 1;
            false
        }
        Err(RdsError::Call(Errno::NOBUFS)) => true,
        Err(RdsError::Call(Errno::AGAIN)) => false,
        Err(error) => panic!("{error}"),
    };
    until("the port is congested", || fills(&client));
    let Hosts { rig, client: daemon_of_client, server: _daemon_of_server } = hosts;
    daemon_of_client.kill();
    let _next = daemon(&rig, true, &[]).unwrap();
    // What the peer's map says when both are connected again.
    until("the port is congested for the same program", || fills(&client));
    (0..sent).for_each(|_| drop(receive(&server)));
    until("the port is clear", || client.send_to(b"again", to(SERVER, 4000)).is_ok());
    while receive(&server).0 != b"again" {}
}

#[test]
fn a_connection_of_this_host_is_no_peer() {
    let Some(hosts) = Hosts::new(&[]) else { return };
    let server = hosts.server(4000);
    let connect = || std::net::TcpStream::connect(to(SERVER, 16_385));
    let mut own = hosts.rig.server.run(connect).unwrap().unwrap();
    // It is closed without a byte.
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(std::io::Read::read(&mut own, &mut [0; 8]).unwrap_or(0), 0);
    until("it is counted", || hosts.server.drops("other_address") == 1);
    assert_eq!(paths(&hosts.server), Vec::<Value>::new());
    drop(server);
}
