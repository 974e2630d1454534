//! Tests of TCP connections on real sockets: limits, peers that send nothing or never read, many idle ones, and
//! stopping under load.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::rig::{CLIENT, PATIENCE, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// A figure of the service as a whole.
pub(crate) fn service(server: &Server, figure: &str) -> u64 {
    let services = server.show("services");
    services[0][figure].as_u64().unwrap_or_else(|| panic!("no figure {figure}: {services}"))
}

pub(crate) fn connect(rig: &Rig) -> TcpStream {
    let stream = rig.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends something and expects it back.
pub(crate) fn echoes(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).expect("an echo in time");
    assert_eq!(heard, words);
}

/// Waits for the server to close it.
fn is_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0; 16]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("closed, but: {other:?}"),
    }
}

/// Sends until the buffers of both sides are full; returns the bytes sent.
pub(crate) fn fill(stream: &mut TcpStream) -> u64 {
    stream.set_nonblocking(true).unwrap();
    let (chunk, mut sent, mut refused) = ([7; 65_536], 0, 0);
    while refused < 200 {
        match stream.write(&chunk) {
            Ok(len) => (sent, refused) = (sent + len as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::yield_now();
            }
            // It was closed, because its bytes had waited longest.
            Err(_) => break,
        }
    }
    sent
}

#[test]
fn connections_that_say_nothing_have_a_limit_and_an_end() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&["--connections", "20", "--idle-timeout-s", "1"]);
    let mut silent: Vec<_> = (0..40).map(|_| connect(&rig)).collect();
    until("half of them have made room", || server.drops("connection_displaced") == 20);
    assert_eq!((service(&server, "connections"), service(&server, "accepted")), (20, 40));
    silent.iter_mut().for_each(is_closed);
    until("the others' time is over", || server.drops("idle_timeout") == 20);
    let mut polite = connect(&rig);
    echoes(&mut polite, b"there is room again");
    assert_eq!(service(&server, "connections"), 1);
}

/// Connects from one of the client's addresses.
fn connect_from(rig: &Rig, source: &str) -> TcpStream {
    let connect = || {
        let own = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&own, &SocketAddr::new(source.parse().expect("an address"), 0))?;
        rustix::net::connect(&own, &SocketAddr::new(SERVER.parse().expect("an address"), PORT))?;
        rustix::io::Result::Ok(TcpStream::from(own))
    };
    let stream = rig.client.run(connect).unwrap().expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn one_source_cannot_take_all_connections_and_the_idlest_goes_when_many_do() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let sources: Vec<_> = (10..20).map(|last| format!("10.7.0.{last}")).collect();
    for source in &sources {
        rig.ip_client(&["address", "add", &format!("{source}/24"), "dev", "vc"]);
    }
    for workers in ["1", "2"] {
        let bounds = ["--connections", "16", "--connections-per-source", "5"];
        let server = rig.serve(&[&bounds[..], &["--path", "kernel", "--workers", workers]].concat());
        let mut greedy: Vec<_> = (0..5).map(|_| connect(&rig)).collect();
        greedy.iter_mut().for_each(|stream| echoes(stream, b"all that it may have"));
        is_closed(&mut connect(&rig));
        assert_eq!(server.drops("source_limit"), 1);
        // More than permitted, from many sources: first connections of the greedy source are closed, then the longest
        // idle ones.
        let mut others = Vec::new();
        for _ in 0..3 {
            for source in &sources {
                let mut stream = connect_from(&rig, source);
                echoes(&mut stream, b"there is room");
                others.push(stream);
                assert!(service(&server, "connections") <= 16);
            }
        }
        let displaced = 35 - service(&server, "connections");
        assert_eq!(server.drops("connection_displaced"), displaced, "{workers} workers");
        assert_eq!((server.drops("connection_limit"), server.drops("source_limit")), (0, 1));
        if workers == "1" {
            greedy.iter_mut().take(4).for_each(is_closed);
            others.iter_mut().take(10).for_each(is_closed);
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn half_a_record_and_then_silence_is_closed_in_its_time() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let port = PORT.to_string();
    let server = rig.start(&["rpc", "--on", "vs", "--tcp", &port, "--request-timeout-s", "1"]);
    let mut slow = connect(&rig);
    slow.write_all(&[0x80, 0, 0, 40, 1, 2, 3]).unwrap();
    is_closed(&mut slow);
    until("counted", || server.drops("request_timeout") == 1);
}

#[test]
fn clients_that_never_read_cost_no_more_than_the_limit_and_hold_up_nobody() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let limit = 1 << 20;
    let bounds = ["--connection-bytes", "65536", "--queued-bytes", &limit.to_string()];
    let server = rig.serve(&bounds);
    let mut polite = connect(&rig);
    let mut deaf = Vec::new();
    for _ in 0..60 {
        let mut stream = connect(&rig);
        assert!(fill(&mut stream) < 1 << 30, "back-pressure reaches the client");
        deaf.push(stream);
        assert!(service(&server, "queued_bytes") <= limit);
        echoes(&mut polite, b"polite");
    }
    // A busy machine reads what was sent later.
    until("much is held", || service(&server, "queued_bytes") > limit / 2);
    until("those who waited longest made room", || {
        for stream in &mut deaf {
            fill(stream);
        }
        server.drops("service_bytes") > 0
    });
    // In addition to queued bytes: buffers that connections share, and some bytes for each.
    assert!(server.worker("heap_bytes") < limit + (1 << 18), "{}", server.worker("heap_bytes"));
    drop(deaf);
    until("everything is given back", || service(&server, "queued_bytes") == 0);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn ten_thousand_idle_connections_take_little_and_the_next_one_is_served() {
    if !root_or_skip() {
        return;
    }
    let wanted = 10_000;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the hard limit");
    let count = maximum.map_or(wanted, |most| most.saturating_sub(500).min(wanted));
    let rig = Rig::new();
    // All of them are of one source.
    let most = (count + 10).to_string();
    let server =
        rig.serve(&["--connections", &most, "--connections-per-source", &most, "--mode", "interrupt"]);
    let mut first = connect(&rig);
    echoes(&mut first, b"first");
    let before = server.worker("heap_bytes");
    let idle: Vec<_> = (0..count).map(|_| connect(&rig)).collect();
    until("all are accepted", || service(&server, "accepted") == count + 1);
    // Counters are published when a worker goes to sleep.
    until("published", || {
        echoes(&mut first, b"again");
        server.worker("heap_bytes") > before
    });
    let each = (server.worker("heap_bytes") - before) / count;
    assert!(each <= 4096, "{each} bytes per idle connection");
    let mut last = connect(&rig);
    echoes(&mut last, b"last");
    drop(idle);
    until("all are closed", || service(&server, "connections") == 2);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn connections_spread_over_the_workers_that_accept() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&["--workers", "2", "--path", "kernel", "--mode", "interrupt"]);
    let mut all: Vec<_> = (0..64).map(|_| connect(&rig)).collect();
    all.iter_mut().for_each(|stream| echoes(stream, b"hello"));
    let workers = server.show("workers");
    let counts: Vec<_> = (0..2).filter_map(|worker| workers[worker]["connections"].as_u64()).collect();
    assert!(counts.iter().sum::<u64>() == 64 && counts.iter().all(|count| *count > 8), "{counts:?}");
    // No other process can bind in between.
    let refused = rig.try_serve(&["--workers", "2"]).err().expect("the port is held");
    assert!(refused.contains("cannot serve"), "{refused}");
    drop(all);
    assert_eq!(server.interrupt(), Some(0));
}

/// Dropping it ends the load.
struct EndsLoad<'a>(&'a AtomicBool);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests until the server ends the connection, or the test does. Every answer is whole.
pub(crate) fn ask_until_ended(
    mut stream: TcpStream,
    answered: &AtomicU64,
    broken: &AtomicBool,
    over: &AtomicBool,
) {
    let words = [b'w'; 3_000];
    let mut heard = [0; 3_000];
    while !over.load(Ordering::Relaxed) {
        if stream.write_all(&words).is_err() {
            return;
        }
        let mut got = 0;
        while got < heard.len() {
            match stream.read(&mut heard[got..]) {
                Ok(0) => {
                    // Between two answers, or in the middle of one?
                    broken.fetch_or(got > 0, Ordering::Relaxed);
                    return;
                }
                Ok(len) => got += len,
                Err(_) => {
                    broken.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn stopping_under_load_answers_what_was_accepted_and_a_new_one_goes_on() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    for mode in ["poll", "interrupt", "adaptive"] {
        // Long enough for a busy machine, too.
        let drain_ms = "60000";
        let mut server =
            rig.serve(&["--mode", mode, "--workers", "2", "--path", "kernel", "--drain-ms", drain_ms]);
        let (answered, broken, over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let stream = connect(&rig);
                let (answered, broken, over) = (&answered, &broken, &over);
                scope.spawn(move || ask_until_ended(stream, answered, broken, over));
            }
            until("all are busy", || answered.load(Ordering::Relaxed) > 400);
            kill_process(server.pid(), Signal::TERM).unwrap();
        });
        assert!(!broken.load(Ordering::Relaxed), "{mode}: an answer was cut off");
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{mode}");
    }
}

#[test]
fn a_drain_waits_for_a_slow_reader_but_not_for_ever_and_a_second_signal_ends_it() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let stuck = |arguments: &[&str]| {
        let server = rig.serve(arguments);
        let mut stream = connect(&rig);
        fill(&mut stream);
        kill_process(server.pid(), Signal::TERM).unwrap();
        (server, stream)
    };
    let (mut server, _stream) = stuck(&["--drain-ms", "300"]);
    server.wait_until_said("had not ended in time");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let (mut server, _stream) = stuck(&["--drain-ms", "600000"]);
    server.wait_until_said("a second signal ends at once");
    kill_process(server.pid(), Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let (mut server, mut stream) = stuck(&["--drain-ms", "600000"]);
    stream.set_nonblocking(false).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    while stream.read(&mut [0; 65_536]).expect("no reset") > 0 {}
    assert_eq!(server.child.wait().unwrap().code(), Some(0), "everything was taken, and it ended");
}

#[test]
fn a_new_instance_takes_over_under_load_and_nobody_is_refused_or_left_without_an_answer() {
    if !root_or_skip() {
        return;
    }
    for path in ["kernel", "packet"] {
        let rig = Rig::new();
        let mut former = rig.serve(&["--path", path, "--workers", "2"]);
        let (answered, broken, over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Also after a failure here, as the other threads would never end.
            let _ends = EndsLoad(&over);
            for _ in 0..4 {
                let (rig, answered, broken, over) = (&rig, &answered, &broken, &over);
                // A client whose connection ends reconnects at once, and must be accepted.
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        ask_until_ended(connect(rig), answered, broken, over);
                    }
                });
            }
            let socket = rig.client_udp(CLIENT, 0);
            scope.spawn(|| {
                let socket = socket;
                while !over.load(Ordering::Relaxed) {
                    // On the fast path a frame may be in the ring that is closed; through the kernel none is lost.
                    if path == "kernel" {
                        assert_eq!(ask(&socket, SERVER, PORT, b"datagram"), b"datagram");
                    }
                }
            });
            until("all are busy", || answered.load(Ordering::Relaxed) > 200);
            let from = former.socket.to_str().expect("UTF-8").to_owned();
            let arguments = ["--path", path, "--workers", "2", "--take-over", &from];
            let next = rig.serve(&arguments);
            assert_eq!(former.child.wait().unwrap().code(), Some(0), "{path}: the former has drained");
            let before = answered.load(Ordering::Relaxed);
            until("all have come to the next one", || service(&next, "connections") == 4);
            until("it is busy", || answered.load(Ordering::Relaxed) > before + 200);
            assert_eq!(next.path(), path);
            over.store(true, Ordering::Relaxed);
            until("the load has ended", || service(&next, "connections") == 0);
            assert_eq!(next.interrupt(), Some(0));
        });
        assert!(!broken.load(Ordering::Relaxed), "{path}: an answer was cut off");
    }
    let rig = Rig::new();
    let refused =
        rig.try_serve(&["--take-over", "/nonexistent/twinpath.sock"]).err().expect("nobody is there");
    assert!(refused.contains("cannot take over from /nonexistent/twinpath.sock"), "{refused}");
}

#[test]
fn limits_that_cannot_work_are_refused_by_name() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    for (arguments, expected) in [
        (["--queued-bytes", "1000"], "limits.queued_bytes: 1000: give 1048576 or more"),
        (["--connection-bytes", "10"], "limits.connection_bytes: 10: give 65536 to 67108864"),
        (["--idle-timeout-s", "90000"], "limits.idle_timeout_s: 90000: give 1 to 86400, or 0 for none"),
    ] {
        let said = rig.try_serve(&arguments).err().expect("refused");
        assert!(said.contains(expected), "{said}");
    }
}
