//! Tests of `bench` with connections of its own on the fast path. Neither kernel ever sends a reset, and none passes by on
//! the wire, unless a test says so.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use twinpath_sys::{FrameTap, PacketSocket};
use twinpath_test_rig::{run, within};

use crate::rig::{PATIENCE, PORT, Rig, SERVER, SERVER_V6, Server, link, until};
use crate::root_or_skip;
use crate::tcp::{RST, count_of_kernel, resets_of_kernel, service};

/// Bytes of a frame that are looked at: up to the flags of TCP over IPv6.
const HEADERS: usize = 68;

/// Looks at all that reaches both ends of the link, whoever takes it there.
struct Watch<'a> {
    rig: &'a Rig,
    ends: Arc<AtomicBool>,
    threads: [JoinHandle<(u64, u64)>; 2],
}

impl<'a> Watch<'a> {
    fn of(rig: &'a Rig) -> Self {
        let ends = Arc::<AtomicBool>::default();
        let threads = [(&rig.client, "vc"), (&rig.server, "vs")].map(|(namespace, name)| {
            let tap = namespace.run(|| FrameTap::open(name)).unwrap().unwrap();
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || watch(&tap, &ends))
        });
        Self { rig, ends, threads }
    }

    fn saw_no_reset(self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let (segments, resets) = thread.join().unwrap();
            assert!(segments > 0 && resets == 0, "{resets} resets among {segments} segments");
        }
        assert_eq!([&self.rig.client, &self.rig.server].map(resets_of_kernel), [0, 0]);
    }
}

/// Counts the segments that have arrived, and the resets among them, to the end and what has arrived by then.
fn watch(tap: &FrameTap, ends: &AtomicBool) -> (u64, u64) {
    let (mut segments, mut resets) = (0, 0);
    let mut frame = [0; HEADERS];
    loop {
        let is_last = ends.load(Ordering::Relaxed);
        while let Ok(tapped) = tap.next(&mut frame) {
            let ipv4 = || (23, 14 + 4 * usize::from(frame[14] & 15) + 13);
            let (protocol, flags) = if frame[12..14] == [8, 0] { ipv4() } else { (20, 67) };
            if !tapped.outgoing && frame[protocol] == 6 {
                segments += 1;
                resets += u64::from(frame[flags] & RST != 0);
            }
        }
        if is_last {
            return (segments, resets);
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::new(tap, PollFlags::IN)], Some(&timeout)).unwrap();
    }
}

fn target(server: &str) -> String {
    SocketAddr::new(server.parse::<IpAddr>().unwrap(), PORT).to_string()
}

fn serve(rig: &Rig, kind: &str, tcp_path: &str) -> Server {
    let port = PORT.to_string();
    rig.start(&[kind, "--on", "vs", "--tcp", &port, "--path", "packet", "--tcp-path", tcp_path])
}

/// Runs `bench` on the fast path to its end: 500 requests, each with a right answer.
fn bench(rig: &Rig, kind: &str, server: &str, arguments: &str) -> Value {
    let target = target(server);
    let base = ["bench", kind, &target, "--tcp", "--on", "vc", "-c", "500", "--warmup", "0", "--json"];
    let words: Vec<&str> = base.into_iter().chain(arguments.split_whitespace()).collect();
    let finished = rig.twinpath(&rig.client, &words);
    assert_eq!(finished.code, Some(0), "{words:?}: {}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let counts = ["sent", "received", "refused", "corrupt", "lost"].map(|field| report[field].clone());
    assert_eq!(counts, [500, 500, 0, 0, 0], "{words:?}");
    assert_eq!((&report["path"], &report["transport"]), (&"packet".into(), &"tcp".into()));
    report
}

/// A server of one connection on the kernel's TCP, which the test writes.
fn listen(rig: &Rig) -> TcpListener {
    let address: IpAddr = SERVER.parse().unwrap();
    rig.server.run(|| TcpListener::bind((address, PORT))).unwrap().unwrap()
}

/// Starts a `bench` that would not end by itself.
fn start(rig: &Rig, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
    command.args(["bench", "echo", &target(SERVER), "--tcp", "--on", "vc", "--size", "64"]).args(arguments);
    command.args(["--duration", "1000", "--timeout", "60", "--warmup", "0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    within(&rig.client, &mut command);
    command.spawn().unwrap()
}

/// Takes the connection of a `bench`, and echoes some requests.
fn accept(listener: &TcpListener, requests: usize) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut request = [0; 64];
    for _ in 0..requests {
        stream.read_exact(&mut request).unwrap();
        stream.write_all(&request).unwrap();
    }
    stream
}

#[test]
fn calls_reach_a_kernel_server_and_ours() {
    if !root_or_skip() {
        return;
    }
    for path in ["kernel", "fast"] {
        let rig = Rig::of_workers();
        let server = serve(&rig, "rpc", path);
        let watch = Watch::of(&rig);
        for (address, arguments) in [
            (SERVER, ""),
            (SERVER_V6, "-a 32 --mode interrupt"),
            (SERVER, "-a 8 -f -A sys --nagle off"),
            (SERVER_V6, "-a 4 -j 2 --rate 5000"),
        ] {
            bench(&rig, "rpc", address, arguments);
        }
        assert_eq!(service(&server, "accepted"), 5, "{path}");
        if path == "fast" {
            assert!(service(&server, "fast_accepted") > 0);
        }
        until("all have ended in order", || service(&server, "connections") == 0);
        watch.saw_no_reset();
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn large_requests_and_replies_pass_whole() {
    if !root_or_skip() {
        return;
    }
    for path in ["kernel", "fast"] {
        let rig = Rig::of_workers();
        let server = serve(&rig, "echo", path);
        let watch = Watch::of(&rig);
        // With it, segments of up to 64 KiB reach the client.
        for (offload, address) in [("on", SERVER), ("off", SERVER_V6)] {
            run(&rig.server, "ethtool", &["-K", "vs", "tso", offload, "gso", offload]);
            bench(&rig, "echo", address, "-l 65000 -a 8 --timeout 20");
        }
        bench(&rig, "echo", SERVER_V6, "-l 3000");
        watch.saw_no_reset();
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn an_interrupted_client_ends_its_connection_in_order() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let listener = listen(&rig);
    let watch = Watch::of(&rig);
    for mode in ["adaptive", "interrupt", "poll"] {
        let client = start(&rig, &["--mode", mode]);
        let mut stream = accept(&listener, 100);
        kill_process(Pid::from_child(&client), Signal::INT).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("an end, and no reset");
        assert!(rest.len() <= 64, "{mode}: the request that was under way");
        drop(stream);
        assert!(client.wait_with_output().unwrap().status.success(), "{mode}");
    }
    watch.saw_no_reset();
}

#[test]
fn a_killed_clients_peer_gets_its_reset_at_its_next_segment() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let listener = listen(&rig);
    let mut client = start(&rig, &[]);
    let mut stream = accept(&listener, 100);
    let mut request = [0; 64];
    stream.read_exact(&mut request).unwrap();
    assert_eq!(resets_of_kernel(&rig.client), 0);
    client.kill().unwrap();
    client.wait().unwrap();
    stream.write_all(&request).unwrap();
    assert_eq!(stream.read(&mut request).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(resets_of_kernel(&rig.client), 1);
}

#[test]
fn what_the_fast_path_leaves_to_the_kernel_is_not_answered() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    // Checksums of what is captured are complete.
    run(&rig.server, "ethtool", &["-K", "vs", "tx", "off"]);
    let listener = listen(&rig);
    let watch = Watch::of(&rig);
    let tap = rig.client.run(|| FrameTap::open("vc")).unwrap().unwrap();
    let client = start(&rig, &[]);
    // It has sent a reply, and the client has answered that with its next request.
    let mut stream = accept(&listener, 1);
    stream.read_exact(&mut [0; 64]).unwrap();
    let port = stream.peer_addr().unwrap().port();
    let mut buffer = [0; 256];
    let segment = loop {
        // It arrived before the client's next request.
        let tapped = tap.next(&mut buffer).expect("a segment with the reply");
        let frame = &buffer[..tapped.kept];
        if !tapped.outgoing && frame[23] == 6 && frame[36..38] == port.to_be_bytes() && frame.len() > 66 + 60
        {
            break frame.to_vec();
        }
    };
    let (ifindex, _) = link(&rig.server, "vs");
    let raw = rig.server.run(|| PacketSocket::open(ifindex, 0)).unwrap().unwrap();
    let taken = count_of_kernel(&rig.client, "InSegs");
    raw.send(&with_options(&segment)).unwrap();
    let drops = || count_of_kernel(&rig.client, "InSegs") > taken;
    until("the kernel has the segment with options", drops);
    // The port is nobody else's.
    let held = rig.client.run(|| TcpListener::bind(stream.peer_addr().unwrap())).unwrap();
    assert_eq!(held.unwrap_err().kind(), ErrorKind::AddrInUse);
    watch.saw_no_reset();
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    drop(stream);
    assert!(client.wait_with_output().unwrap().status.success());
}

/// The same IPv4 packet with four bytes of options (RFC 791 section 3.1): no operation, and the end.
fn with_options(frame: &[u8]) -> Vec<u8> {
    let (headers, segment) = frame.split_at(34);
    let mut packet = [headers, &[1, 1, 1, 0], segment].concat();
    packet[14] = 0x46;
    let len = u16::from_be_bytes([packet[16], packet[17]]) + 4;
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    packet[24..26].fill(0);
    let words = packet[14..38].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !(folded as u16 + (folded >> 16) as u16);
    packet[24..26].copy_from_slice(&checksum.to_be_bytes());
    packet
}

#[test]
fn a_client_without_a_server_says_so() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let target = target(SERVER);
    let base = ["bench", "rpc", &target, "--tcp", "--on", "vc", "--count", "100"];
    let finished = rig.twinpath(&rig.client, &base);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains(&format!("nothing listens on {target}")), "{}", finished.stderr);
    let finished = rig.twinpath(&rig.client, &[&base[..], &["--path", "xdp"]].concat());
    assert!(finished.stderr.contains("--path xdp has no TCP"), "{}", finished.stderr);

    let listener = listen(&rig);
    let closes = std::thread::spawn(move || {
        drop(accept(&listener, 0));
        let stream = accept(&listener, 50);
        drop(stream);
        // Somebody who accepts, and then is silent.
        accept(&listener, 0)
    });
    let base = ["bench", "echo", &target, "--tcp", "--on", "vc", "--count", "100", "--warmup", "0"];
    let finished = rig.twinpath(&rig.client, &base);
    assert!(finished.stderr.contains("closed the connection and answered nothing"), "{}", finished.stderr);
    let finished = rig.twinpath(&rig.client, &base);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("closed the connection after 50 replies"), "{}", finished.stderr);
    let finished = rig.twinpath(&rig.client, &[&base[..], &["--timeout", "0.05"]].concat());
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    drop(closes.join().unwrap());
    assert_eq!(resets_of_kernel(&rig.client), 0);
}
