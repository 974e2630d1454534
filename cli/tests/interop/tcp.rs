//! Tests of TCP on the fast path, with the kernel's clients. The server's kernel never sends a reset, and nothing that
//! the client receives is one, unless a test says so.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddrV6, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;
use twinpath_sys::{Namespace, PacketSocket, StoppedThread};
use twinpath_test_rig::run;

use crate::claims::next;
use crate::fail_open::{FAIL_OPEN_MS, thread_of};
use crate::reload::reloaded;
use crate::rig::{PATIENCE, PORT, Rig, SERVER, SERVER_V6, Server, link, until};
use crate::root_or_skip;
use crate::several::file;

pub(crate) const FAST: [&str; 4] = ["--path", "packet", "--tcp-path", "fast"];

/// The flag RST (RFC 9293 section 3.1).
pub(crate) const RST: u8 = 4;

pub(crate) fn connect(rig: &Rig, server: &str) -> TcpStream {
    let server: IpAddr = server.parse().unwrap();
    let stream = rig.client.run(|| TcpStream::connect((server, PORT))).unwrap().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub(crate) fn echoes(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).unwrap();
    assert!(heard == text);
}

/// Ends the client's side, and hears the server's end.
fn ends(mut stream: TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
}

pub(crate) fn service(server: &Server, figure: &str) -> u64 {
    server.show("services")[0][figure].as_u64().unwrap_or_else(|| panic!("no figure {figure}"))
}

/// Resets that the kernel of a namespace has sent.
pub(crate) fn resets_of_kernel(namespace: &Namespace) -> u64 {
    count_of_kernel(namespace, "OutRsts")
}

/// A count of the TCP of a namespace's kernel (RFC 4022).
pub(crate) fn count_of_kernel(namespace: &Namespace, name: &str) -> u64 {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut rows = text.lines().filter(|line| line.starts_with("Tcp:"));
    let at = rows.next().unwrap().split(' ').position(|found| found == name).unwrap();
    rows.next().unwrap().split(' ').nth(at).unwrap().parse().unwrap()
}

/// Looks at all that reaches the client.
pub(crate) struct Capture {
    ends: Arc<AtomicBool>,
    resets: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    pub(crate) fn of(rig: &Rig) -> Self {
        let (ends, resets, seen) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let (ifindex, _) = link(&rig.client, "vc");
        let mut threads = Vec::new();
        for ethertype in [0x0800, 0x86dd] {
            let open = || PacketSocket::open(ifindex, ethertype);
            let socket = rig.client.run(open).unwrap().unwrap();
            let (ends, resets, seen) = (Arc::clone(&ends), Arc::clone(&resets), Arc::clone(&seen));
            threads.push(std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let Some(frame) = next(&socket, 20) else { continue };
                    let (protocol, flags) = if ethertype == 0x0800 { (23, 47) } else { (20, 67) };
                    if frame.get(protocol) == Some(&6) {
                        seen.fetch_add(1, Ordering::Relaxed);
                        let is_reset = frame.get(flags).is_some_and(|flags| flags & RST != 0);
                        resets.fetch_add(u64::from(is_reset), Ordering::Relaxed);
                    }
                }
            }));
        }
        Self { ends, resets, seen, threads }
    }

    /// How many resets there were.
    fn resets(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(self.seen.load(Ordering::Relaxed) > 0, "it has seen nothing");
        self.resets.load(Ordering::Relaxed)
    }
}

pub(crate) fn no_reset(rig: &Rig, capture: Capture) {
    assert_eq!((resets_of_kernel(&rig.server), capture.resets()), (0, 0));
}

#[test]
fn short_connections_are_served_whole_on_the_fast_path() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    let capture = Capture::of(&rig);
    for (at, address) in [SERVER, SERVER_V6].into_iter().cycle().take(400).enumerate() {
        let mut stream = connect(&rig, address);
        echoes(&mut stream, format!("hello {at}").as_bytes());
        ends(stream);
    }
    assert_eq!((service(&server, "fast_accepted"), service(&server, "accepted")), (400, 400));
    until("all have ended", || service(&server, "fast_connections") == 0);
    assert!(server.claim("tcp port")["path"].as_str().unwrap().starts_with("packet"));
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn many_bytes_go_both_ways_at_once() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    for (address, offload) in [(SERVER, "on"), (SERVER_V6, "on"), (SERVER, "off"), (SERVER_V6, "off")] {
        // With it, segments of up to 64 KiB reach the server.
        run(&rig.client, "ethtool", &["-K", "vc", "tso", offload, "gso", offload]);
        let stream = connect(&rig, address);
        let text: Vec<u8> = (0..1u32 << 20).map(|at| (at * 7 + at / 251) as u8).collect();
        let (said, mut writes) = (text.clone(), stream.try_clone().unwrap());
        let writer = std::thread::spawn(move || {
            writes.write_all(&said).unwrap();
            writes.shutdown(Shutdown::Write).unwrap();
        });
        let mut heard = Vec::new();
        let mut reads = stream;
        reads.read_to_end(&mut heard).unwrap();
        writer.join().unwrap();
        assert!(heard == text, "{address}: {} bytes", heard.len());
    }
    assert_eq!((service(&server, "fast_accepted"), service(&server, "accepted")), (4, 4));
    assert_eq!(resets_of_kernel(&rig.server), 0);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_client_that_resets_is_gone_at_once() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    let capture = Capture::of(&rig);
    let mut stream = connect(&rig, SERVER);
    echoes(&mut stream, b"hello");
    set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(stream);
    until("it is gone", || service(&server, "fast_connections") == 0);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_drain_answers_what_has_come_and_ends_connections_orderly() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let mut server = rig.serve(&FAST);
    let capture = Capture::of(&rig);
    let mut stream = connect(&rig, SERVER);
    echoes(&mut stream, b"hello");
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "the server ends first");
    drop(stream);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    no_reset(&rig, capture);
}

#[test]
fn a_killed_servers_peer_gets_its_reset_at_its_next_segment() {
    if !root_or_skip() {
        return;
    }
    for has_standby in [false, true] {
        let rig = Rig::of_workers();
        let server = rig.serve(&FAST);
        let standby = has_standby
            .then(|| rig.serve(&[&FAST[..], &["--standby", server.socket.to_str().unwrap()]].concat()));
        let mut stream = connect(&rig, SERVER);
        echoes(&mut stream, b"hello");
        assert_eq!(resets_of_kernel(&rig.server), 0);
        server.kill();
        let _ = stream.write_all(b"is anybody there?");
        let heard = stream.read(&mut [0; 8]);
        assert!(
            heard.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
            "standby: {has_standby}"
        );
        if let Some(standby) = standby {
            until("the standby serves", || standby.claim("tcp port")["path"] != "kernel");
            let mut stream = connect(&rig, SERVER);
            echoes(&mut stream, b"hello again");
            until("on the fast path", || service(&standby, "fast_accepted") > 0);
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_served_on_the_kernel_path() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[&FAST[..], &["--connections", "5"]].concat());
    let mut streams: Vec<_> = (0..5).map(|_| connect(&rig, SERVER)).collect();
    streams.iter_mut().for_each(|stream| echoes(stream, b"fast"));
    assert_eq!(service(&server, "fast_accepted"), 5);
    let mut late = connect(&rig, SERVER);
    echoes(&mut late, b"by the kernel");
    assert_eq!((service(&server, "fast_accepted"), service(&server, "accepted")), (5, 6));
    assert_eq!(service(&server, "connections"), 5, "the idlest one made room");
    assert_eq!(streams[0].read(&mut [0; 8]).unwrap(), 0, "its peer hears an end");
    assert_eq!(resets_of_kernel(&rig.server), 0);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_service_without_room_leaves_that_of_others_on_the_fast_path() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let service = |port: u16| {
        format!("[[service]]\nname = \"at-{port}\"\nkind = \"echo\"\ntcp = {port}\ntcp_path = \"fast\"\n")
    };
    let rest = "[interface]\nname = \"vs\"\npath = \"packet\"\n[limits]\nconnections = 3\n";
    let path = file(&rig, &format!("{rest}{}{}", service(PORT), service(PORT + 1)));
    let server = rig.start(&["--config", path.to_str().unwrap()]);
    let accepted = |at: usize| server.show("services")[at]["fast_accepted"].as_u64().unwrap();
    let mut streams: Vec<_> = (0..3).map(|_| connect(&rig, SERVER)).collect();
    streams.iter_mut().for_each(|stream| echoes(stream, b"they take all room"));
    assert_eq!(accepted(0), 3);
    let other = rig.client.run(|| TcpStream::connect((SERVER, PORT + 1))).unwrap();
    echoes(&mut other.expect("connected"), b"there is room for this one");
    assert_eq!(accepted(1), 1);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_reload_that_keeps_the_service_keeps_its_connections() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let text = |port: u16, idle_s: u32| {
        format!(
            "[interface]\nname = \"vs\"\npath = \"packet\"\n[limits]\nidle_timeout_s = {idle_s}\n\
             [service]\nkind = \"echo\"\ntcp = {port}\ntcp_path = \"fast\"\n"
        )
    };
    let path = file(&rig, &text(PORT, 600));
    let server = rig.start(&["--config", path.to_str().unwrap()]);
    let capture = Capture::of(&rig);
    let mut stream = connect(&rig, SERVER);
    echoes(&mut stream, b"before");
    reloaded(&rig, &server, &text(PORT, 500));
    echoes(&mut stream, b"after");
    assert_eq!(service(&server, "fast_connections"), 1);
    // The service is replaced by one at the same port: this connection is ended in order.
    let named = text(PORT, 500).replace("kind", "name = \"new\"\nkind");
    reloaded(&rig, &server, &named);
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    drop(stream);
    let mut stream = connect(&rig, SERVER);
    echoes(&mut stream, b"the new one");
    assert_eq!(service(&server, "fast_accepted"), 1);
    // And by one at another.
    reloaded(&rig, &server, &text(PORT + 1, 500));
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    drop(stream);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_reload_that_changes_the_sources_is_taken() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let text = |sources: &str| {
        format!(
            "[interface]\nname = \"vs\"\npath = \"packet\"\n\
             [service]\nkind = \"echo\"\ntcp = {PORT}\ntcp_path = \"fast\"\n{sources}"
        )
    };
    let path = file(&rig, &text(""));
    let server = rig.start(&["--config", path.to_str().unwrap()]);
    let mut stream = connect(&rig, SERVER);
    echoes(&mut stream, b"before");
    for sources in ["sources = [\"10.0.0.0/8\"]\n", "sources = [\"10.0.0.0/9\", \"2000::/3\"]\n", ""] {
        reloaded(&rig, &server, &text(sources));
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "it ends in order");
        stream = connect(&rig, SERVER);
        echoes(&mut stream, b"after");
        assert_eq!(service(&server, "fast_accepted"), 1);
    }
    assert_eq!(server.interrupt(), Some(0));
}

/// Forbids claims on the server's interface, or permits them again.
pub(crate) fn permit_claims(rig: &Rig, permitted: bool) {
    let strictness = if permitted { "0" } else { "1" };
    let write = || std::fs::write("/proc/sys/net/ipv4/conf/vs/rp_filter", strictness);
    rig.server.run(write).unwrap().unwrap();
}

#[test]
fn connections_go_on_in_the_kernel_when_the_fast_path_ends() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    let capture = Capture::of(&rig);
    permit_claims(&rig, true);
    let mut streams = [SERVER, SERVER_V6].map(|address| connect(&rig, address));
    streams.iter_mut().for_each(|stream| echoes(stream, b"fast"));
    permit_claims(&rig, false);
    // A worker shows these once it has moved all of its own.
    until("they have moved", || service(&server, "fast_in_kernel") == 2);
    assert_eq!((service(&server, "fast_connections"), service(&server, "fast_moved")), (0, 2));
    for _ in 0..3 {
        streams.iter_mut().for_each(|stream| echoes(stream, b"by the kernel"));
    }
    let mut late = connect(&rig, SERVER);
    echoes(&mut late, b"the kernel's own");
    assert_eq!((service(&server, "fast_accepted"), service(&server, "accepted")), (2, 3));
    permit_claims(&rig, true);
    // Loading the programs takes long on a busy machine, and it answers nothing meanwhile.
    server.wait_until_said("is back on packet");
    let mut again = connect(&rig, SERVER_V6);
    echoes(&mut again, b"fast again");
    streams.iter_mut().for_each(|stream| echoes(stream, b"still by the kernel"));
    assert_eq!(service(&server, "fast_connections"), 1);
    streams.into_iter().for_each(ends);
    until("they have ended", || service(&server, "fast_in_kernel") == 0);
    assert_eq!(service(&server, "fast_not_moved"), 0);
    ends(again);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn connections_of_a_stuck_worker_wait_for_it_and_nobody_else_answers_them() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[&FAST[..], &["--fail-open-ms", FAIL_OPEN_MS]].concat());
    let capture = Capture::of(&rig);
    let mut streams = [SERVER, SERVER_V6].map(|address| connect(&rig, address));
    streams.iter_mut().for_each(|stream| echoes(stream, b"before"));
    assert_eq!(service(&server, "fast_accepted"), 2);
    let stopped = StoppedThread::stop(thread_of(&server, 0)).unwrap();
    streams.iter_mut().for_each(|stream| stream.write_all(b"meanwhile").unwrap());
    until("it is stuck", || server.show("workers")[0]["stuck_ms"].as_u64().is_some_and(|ms| ms >= 100));
    // They say it again, to a kernel that has no such connection.
    let before = count_of_kernel(&rig.client, "RetransSegs");
    until("it comes again", || count_of_kernel(&rig.client, "RetransSegs") >= before + 2);
    let mut other = connect(&rig, SERVER);
    echoes(&mut other, b"accepted by somebody else");
    drop(stopped);
    for mut stream in streams {
        let mut heard = [0; 9];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"meanwhile");
        ends(stream);
    }
    ends(other);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn connections_between_addresses_of_the_link_go_on_in_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    rig.ip_server(&["address", "add", "fe80::7/64", "dev", "vs", "nodad"]);
    run(&rig.client, "ip", &["address", "add", "fe80::8/64", "dev", "vc", "nodad"]);
    let server = rig.serve(&FAST);
    let capture = Capture::of(&rig);
    permit_claims(&rig, true);
    let (ifindex, _) = link(&rig.client, "vc");
    let target = SocketAddrV6::new("fe80::7".parse().unwrap(), PORT, 0, ifindex);
    let mut stream = rig.client.run(|| TcpStream::connect(target)).unwrap().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    echoes(&mut stream, b"fast");
    assert_eq!(service(&server, "fast_accepted"), 1);
    permit_claims(&rig, false);
    until("it has moved", || service(&server, "fast_in_kernel") == 1);
    echoes(&mut stream, b"by the kernel");
    ends(stream);
    assert_eq!(service(&server, "fast_not_moved"), 0);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn connections_end_in_order_when_another_instance_takes_over() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    let capture = Capture::of(&rig);
    let mut taken = connect(&rig, SERVER_V6);
    echoes(&mut taken, b"fast");
    let next = rig.serve(&[&FAST[..], &["--take-over", server.socket.to_str().unwrap()]].concat());
    assert_eq!(taken.read(&mut [0; 8]).unwrap(), 0);
    drop(taken);
    let mut late = connect(&rig, SERVER);
    echoes(&mut late, b"by the next one");
    assert_eq!(service(&next, "fast_accepted"), 1);
    ends(late);
    no_reset(&rig, capture);
    assert_eq!(next.interrupt(), Some(0));
}

/// A client that writes an endless text and reads it back, until it is told to end.
pub(crate) struct Traffic {
    ends: Arc<AtomicBool>,
    heard: Arc<AtomicU64>,
    /// Each returns how many bytes it has written or read.
    threads: [JoinHandle<u64>; 2],
}

impl Traffic {
    pub(crate) fn over(stream: TcpStream) -> Self {
        let (ends, heard) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let (mut writes, mut reads) = (stream.try_clone().unwrap(), stream);
        let (is_over, counted) = (Arc::clone(&ends), Arc::clone(&heard));
        let writer = std::thread::spawn(move || {
            let mut said = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                writes.write_all(&text(said, 10_000)).unwrap();
                said += 10_000;
            }
            writes.shutdown(Shutdown::Write).unwrap();
            said
        });
        let reader = std::thread::spawn(move || {
            let (mut heard, mut buffer) = (0_u64, vec![0; 64 << 10]);
            loop {
                let len = reads.read(&mut buffer).unwrap();
                if len == 0 {
                    return heard;
                }
                assert!(buffer[..len] == text(heard, len), "other bytes behind {heard}");
                heard += len as u64;
                counted.store(heard, Ordering::Relaxed);
            }
        });
        Self { ends, heard, threads: [writer, reader] }
    }

    /// Waits until another MiB has come back.
    pub(crate) fn flows(&self) {
        let before = self.heard.load(Ordering::Relaxed);
        until("bytes come back", || self.heard.load(Ordering::Relaxed) > before + (1 << 20));
    }

    /// All that was written has come back.
    pub(crate) fn ends(self) {
        self.ends.store(true, Ordering::Relaxed);
        let [said, heard] = self.threads.map(|thread| thread.join().unwrap());
        assert_eq!(said, heard);
    }
}

#[test]
fn no_byte_is_lost_while_connections_with_traffic_move() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    permit_claims(&rig, true);
    let capture = Capture::of(&rig);
    let traffic = [SERVER, SERVER_V6, SERVER, SERVER_V6].map(|address| Traffic::over(connect(&rig, address)));
    traffic.iter().for_each(Traffic::flows);
    permit_claims(&rig, false);
    until("they have moved", || service(&server, "fast_moved") == 4);
    traffic.iter().for_each(Traffic::flows);
    traffic.into_iter().for_each(Traffic::ends);
    assert_eq!(service(&server, "fast_not_moved"), 0);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn half_closed_connections_move_with_what_their_peer_has_not_read() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&FAST);
    permit_claims(&rig, true);
    let capture = Capture::of(&rig);
    // The server has the end of the shorter ones and is done with them. The longer ones wait for room.
    let lens = [(SERVER, 200_000), (SERVER_V6, 200_000), (SERVER, 3_000_000), (SERVER_V6, 3_000_000)];
    let halves: Vec<_> = lens
        .into_iter()
        .map(|(address, len)| {
            let before = service(&server, "stream_bytes_in");
            let stream = connect(&rig, address);
            let mut writes = stream.try_clone().unwrap();
            let writer = std::thread::spawn(move || {
                writes.write_all(&text(0, len)).unwrap();
                writes.shutdown(Shutdown::Write).unwrap();
            });
            until("the first bytes", || service(&server, "stream_bytes_in") >= before + 200_000);
            (stream, writer, len)
        })
        .collect();
    permit_claims(&rig, false);
    until("they have moved", || service(&server, "fast_moved") == 4);
    for (mut stream, writer, len) in halves {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        writer.join().unwrap();
        assert!(heard == text(0, len), "{} bytes of {len}", heard.len());
    }
    until("they have ended", || service(&server, "connections") == 0);
    no_reset(&rig, capture);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn what_a_drain_has_no_time_for_is_delivered_after_its_end() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let mut server = rig.serve(&[&FAST[..], &["--drain-ms", "100"]].concat());
    let capture = Capture::of(&rig);
    let mut streams = [SERVER, SERVER_V6].map(|address| connect(&rig, address));
    for stream in &mut streams {
        stream.write_all(&text(0, 200_000)).unwrap();
    }
    until("it has read all", || service(&server, "stream_bytes_out") == 400_000);
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    for mut stream in streams {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard == text(0, 200_000), "{} bytes", heard.len());
    }
    no_reset(&rig, capture);
}

/// `len` bytes of an endless text, behind the first `at`.
fn text(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn calls_of_rpc_come_on_the_fast_path() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let port = PORT.to_string();
    let server = rig.start(&[&["rpc", "--on", "vs", "--tcp", &port][..], &FAST].concat());
    let target = format!("{SERVER}:{PORT}");
    let finished = rig.twinpath(&rig.client, &["bench", "rpc", &target, "--tcp", "-c", "1000", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(report.is_object());
    assert!(service(&server, "fast_accepted") > 0);
    assert_eq!(service(&server, "fast_accepted"), service(&server, "accepted"));
    assert_eq!(resets_of_kernel(&rig.server), 0);
    assert_eq!(server.interrupt(), Some(0));
}
