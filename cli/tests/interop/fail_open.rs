//! Tests of a stuck worker: the kernel serves instead, and no request is served twice.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use twinpath_sys::child::cpu_time;
use twinpath_sys::{StoppedThread, clock};
use twinpath_worker::thread::sleep::Sleeper;

use crate::changes::served_fast;
use crate::connections::{connect, echoes};
use crate::rig::{CLIENT, PORT, Rig, SERVER, Server, until};
use crate::root_or_skip;

/// The setting in the tests, ms: long enough for a worker that has lost its CPU to others, but for moments. What is sent meanwhile
/// fits into the ring of a worker that is stopped.
pub(crate) const FAIL_OPEN_MS: &str = "200";

/// The thread of a worker.
pub(crate) fn thread_of(server: &Server, worker: u32) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).expect("it runs");
    let named = |task: &std::path::Path| {
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        name.trim() == format!("worker-{worker}")
    };
    let mut found = tasks.filter_map(Result::ok).map(|task| task.path()).filter(|task| named(task));
    let task = found.next().expect("each worker has a thread");
    task.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("a number")
}

/// Claimed frames that the programs passed to the kernel because their worker was stuck.
fn passed(server: &Server) -> u64 {
    let rules = server.show("rules");
    let counts = rules["verdicts"].as_array().expect("a list");
    counts
        .iter()
        .find(|count| count["name"] == "worker_stuck")
        .map_or(0, |count| count["count"].as_u64().unwrap())
}

/// A client that numbers its requests, and counts the answers to each number.
struct Client {
    socket: UdpSocket,
    asked: u32,
    answers: BTreeMap<u32, u32>,
}

impl Client {
    fn new(rig: &Rig) -> Self {
        let socket = rig.client_udp(CLIENT, 0);
        // The time between two requests, long enough that they fit into the ring of a stopped worker.
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        Self { socket, asked: 0, answers: BTreeMap::new() }
    }

    fn ask(&mut self) -> u32 {
        self.socket.send_to(&self.asked.to_be_bytes(), (SERVER, PORT)).unwrap();
        self.asked += 1;
        self.asked - 1
    }

    fn listen(&mut self) {
        let mut buffer = [0; 64];
        while let Ok((4, _)) = self.socket.recv_from(&mut buffer) {
            let number = u32::from_be_bytes(*buffer.first_chunk().unwrap());
            *self.answers.entry(number).or_default() += 1;
        }
    }

    fn is_answered(&mut self, number: u32) -> bool {
        self.listen();
        self.answers.contains_key(&number)
    }
}

/// Bytes that wait in the kernel's UDP sockets of the server's namespace.
pub(crate) fn waiting_in_the_kernel(rig: &Rig) -> u64 {
    let tables = ["udp", "udp6"].map(|table| format!("/proc/thread-self/net/{table}"));
    let text = rig.server.run(|| tables.map(std::fs::read_to_string).map(Result::unwrap).concat()).unwrap();
    // The fifth column: bytes to be sent, and to be received.
    let received =
        |line: &str| u64::from_str_radix(line.split_whitespace().nth(4)?.split_once(':')?.1, 16).ok();
    text.lines().filter_map(received).sum()
}

/// Calls `stop` until its result is dropped, and `meanwhile` in between; afterwards everything is as before. Requests
/// that were handed over before the kernel took over are dropped and counted, every other one is answered once.
///
/// A worker that spins says only from time to time that nothing waits for it. If it is stopped before it does, the programs find it
/// stuck although nothing has been handed over since. Then nothing is dropped, and all is done again.
fn stuck_and_back<T>(rig: &Rig, server: &Server, stop: impl Fn() -> T, meanwhile: impl Fn(&mut Client)) {
    served_fast(rig, server, CLIENT, SERVER);
    until("what had been handed over is dropped", || {
        let mut client = Client::new(rig);
        let (passed_before, dropped_before) = (passed(server), server.drops("worker_stuck"));
        let stopped = stop();
        meanwhile(&mut client);
        let last = (0..10).map(|_| client.ask()).last().unwrap();
        drop(stopped);
        until("what the kernel took is answered", || client.is_answered(last));
        served_fast(rig, server, CLIENT, SERVER);
        let mut dropped = 0;
        until("nothing is lost unseen", || {
            client.listen();
            dropped = server.drops("worker_stuck") - dropped_before;
            client.answers.len() as u64 + dropped == u64::from(client.asked)
        });
        assert!(client.answers.values().all(|count| *count == 1), "answered twice: {:?}", client.answers);
        assert!(passed(server) > passed_before);
        dropped > 0
    });
}

#[test]
fn what_a_stopped_worker_claims_is_served_through_the_kernel_until_it_goes_on() {
    if !root_or_skip() {
        return;
    }
    // The direct ring without a socket, and with one; the packet socket; both alternately; AF_XDP.
    let setups: [&[&str]; 5] = [
        &["packet", "--mode", "poll"],
        &["packet", "--mode", "poll", "--attach", "clsact"],
        &["packet", "--mode", "interrupt"],
        &["packet", "--mode", "adaptive", "--spin-us", "20000"],
        &["xdp", "--mode", "interrupt"],
    ];
    for setup in setups {
        let rig = Rig::of_workers();
        let server = rig.serve(&[&["--fail-open-ms", FAIL_OPEN_MS, "--path"], setup].concat());
        let mut before = connect(&rig);
        echoes(&mut before, b"before");
        for time in 1..=2 {
            let stop = || {
                // A worker that spins opens its ring meanwhile.
                let mut client = Client::new(&rig);
                for _ in 0..40 {
                    let number = client.ask();
                    until("an answer", || client.is_answered(number));
                }
                StoppedThread::stop(thread_of(&server, 0)).unwrap()
            };
            stuck_and_back(&rig, &server, stop, |client| {
                until("somebody else answers", || {
                    client.ask();
                    client.listen();
                    !client.answers.is_empty()
                });
                let worker = &server.show("workers")[0];
                assert!(
                    worker["stuck_ms"].as_u64().unwrap() >= 100 && times_stuck(&server) >= time,
                    "{worker}"
                );
                for _ in 0..3 {
                    echoes(&mut connect(&rig), b"accepted by somebody else");
                }
            });
            until("it is known to have moved on", || server.show("workers")[0]["stuck_ms"].is_null());
            echoes(&mut before, b"its own connections are still its own");
        }
        server.wait_until_said("worker 0 is stuck");
        server.wait_until_said("worker 0 moves on");
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// How often it was. Beside load it may be once more than it was stopped: it had no CPU for so long.
fn times_stuck(server: &Server) -> u64 {
    server.worker("times_stuck")
}

/// The worker is checked again only once there is a fast path again: until then control has nothing to do.
#[test]
fn while_the_interface_of_a_stuck_worker_is_gone_nobody_looks_at_it() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--path", "packet", "--mode", "interrupt", "--fail-open-ms", FAIL_OPEN_MS]);
    let stopped = StoppedThread::stop(thread_of(&server, 0)).unwrap();
    let mut client = Client::new(&rig);
    until("somebody else answers", || {
        client.ask();
        client.listen();
        !client.answers.is_empty()
    });
    until("it is known to be stuck", || !server.show("workers")[0]["stuck_ms"].is_null());
    rig.ip_server(&["link", "delete", "vs"]);
    until("the interface is known to be gone", || server.path() == "kernel");
    let before = cpu_time(server.child.id()).unwrap();
    // No event to wait for: the test measures this silence.
    const SILENCE: Duration = Duration::from_millis(500);
    Sleeper::new().expect("a timer").sleep(clock::now() + SILENCE);
    let used = cpu_time(server.child.id()).unwrap() - before;
    assert!(used < SILENCE / 4, "it used {used:?} of {SILENCE:?}");
    drop(stopped);
    assert_eq!(server.interrupt(), Some(0));
}

/// Dropping it lets the process continue.
struct StoppedProcess<'a>(&'a Server);

impl Drop for StoppedProcess<'_> {
    fn drop(&mut self) {
        kill_process(self.0.pid(), Signal::CONT).unwrap();
    }
}

#[test]
fn what_comes_to_a_stopped_process_waits_in_the_kernel_and_is_answered() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "xdp"] {
        let rig = Rig::of_workers();
        let server = rig.serve(&["--path", path, "--fail-open-ms", FAIL_OPEN_MS]);
        let stop = || {
            kill_process(server.pid(), Signal::STOP).unwrap();
            StoppedProcess(&server)
        };
        stuck_and_back(&rig, &server, stop, |client| {
            until("the kernel has taken over", || {
                client.ask();
                client.listen();
                waiting_in_the_kernel(&rig) > 0
            });
        });
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// A client whose frames go to worker `worker`: the kernel distributes them by flow.
fn client_of(rig: &Rig, server: &Server, worker: usize) -> Client {
    let frames_in = || server.show("workers")[worker]["frames_in"].as_u64().unwrap();
    let mut found = None;
    until("a flow of that worker", || {
        let mut client = Client::new(rig);
        let before = frames_in();
        let number = client.ask();
        until("an answer", || client.is_answered(number));
        found = Some(client).filter(|_| frames_in() > before);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn of_several_workers_the_stuck_one_alone_loses_its_claims() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let arguments = ["--path", "packet", "--workers", "2", "--fail-open-ms", FAIL_OPEN_MS];
    let server = rig.serve(&arguments);
    let mut clients = [0, 1].map(|worker| client_of(&rig, &server, worker));
    let stopped = StoppedThread::stop(thread_of(&server, 1)).unwrap();
    let mut number = clients[1].ask();
    until("the other worker answers, through the kernel", || {
        if !clients[1].is_answered(number) {
            number = clients[1].ask();
        }
        clients[1].is_answered(number)
    });
    let fast = |server: &Server| server.show("workers")[0]["frames_in"].as_u64().unwrap();
    // Beside load it may have no CPU for so long that it is stuck as well.
    until("the other worker serves all of its own flows", || {
        let (before, passed_before) = (fast(&server), passed(&server));
        for _ in 0..20 {
            let number = clients[0].ask();
            until("its own flows are served as before", || clients[0].is_answered(number));
        }
        (fast(&server) - before, passed(&server) - passed_before) == (20, 0)
    });
    drop(stopped);
    until("it has its flows again", || {
        let before = server.show("workers")[1]["frames_in"].as_u64().unwrap();
        let number = clients[1].ask();
        until("an answer", || clients[1].is_answered(number));
        server.show("workers")[1]["frames_in"].as_u64().unwrap() > before
    });
    assert!(clients.iter().all(|client| client.answers.values().all(|count| *count == 1)));
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_worker_that_sleeps_is_not_stuck_and_fail_open_can_be_off() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    for fail_open_ms in ["20", "0"] {
        let server = rig.serve(&["--path", "packet", "--mode", "interrupt", "--fail-open-ms", fail_open_ms]);
        served_fast(&rig, &server, CLIENT, SERVER);
        let mut client = Client::new(&rig);
        let stuck = || (passed(&server), server.drops("worker_stuck"));
        // Beside load it may have no CPU for so long when it is woken.
        until("no silence is taken for a stuck worker", || {
            let before = stuck();
            for _ in 0..3 {
                // Silence of several times that, which ends with a read that finds nothing.
                client.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                client.listen();
                let number = client.ask();
                until("an answer", || client.is_answered(number));
            }
            stuck() == before
        });
        if fail_open_ms == "0" {
            assert_eq!(stuck(), (0, 0));
            let stopped = StoppedThread::stop(thread_of(&server, 0)).unwrap();
            let last = (0..100).map(|_| client.ask()).last().unwrap();
            client.listen();
            assert_eq!((waiting_in_the_kernel(&rig), passed(&server)), (0, 0), "it keeps its claims");
            drop(stopped);
            until("all are answered", || client.is_answered(last));
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// No frames are claimed for it, so no program detects it: its sockets show it.
#[test]
fn a_worker_that_leaves_what_waits_in_its_sockets_is_stuck_too() {
    if !root_or_skip() {
        return;
    }
    for (path, workers) in [("packet", "1"), ("kernel", "1"), ("kernel", "2")] {
        let rig = Rig::of_workers();
        let server = rig.serve(&["--path", path, "--workers", workers, "--fail-open-ms", FAIL_OPEN_MS]);
        let mut before = connect(&rig);
        echoes(&mut before, b"before");
        for time in 1..=2 {
            let stopped = StoppedThread::stop(thread_of(&server, 0)).unwrap();
            // With several workers each connection belongs to one of them, some to the stuck one.
            for _ in 0..8 {
                echoes(&mut connect(&rig), b"accepted by another thread");
            }
            until("it is known to be stuck", || {
                echoes(&mut connect(&rig), b"still");
                !server.show("workers")[0]["stuck_ms"].is_null()
            });
            let worker = &server.show("workers")[0];
            assert!(times_stuck(&server) >= time, "{path}: {worker}");
            if path == "kernel" {
                let mut client = Client::new(&rig);
                let number = client.ask();
                until("an answer", || client.is_answered(number));
            }
            drop(stopped);
            until("it is known to have moved on", || server.show("workers")[0]["stuck_ms"].is_null());
            echoes(&mut before, b"its own connections are still its own");
        }
        server.wait_until_said("worker 0 is stuck");
        server.wait_until_said("worker 0 moves on");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn a_worker_that_sleeps_over_its_sockets_is_not_stuck() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--path", "kernel", "--mode", "interrupt", "--fail-open-ms", "20"]);
    let mut client = Client::new(&rig);
    // Beside load it may have no CPU for so long when it is woken.
    until("no silence is taken for a stuck worker", || {
        let before = times_stuck(&server);
        for _ in 0..10 {
            // Silence of twice that, which ends with a read that finds nothing.
            client.socket.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
            client.listen();
            let number = client.ask();
            until("an answer", || client.is_answered(number));
            echoes(&mut connect(&rig), b"and a connection");
        }
        times_stuck(&server) == before
    });
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn an_instance_that_leaves_a_stuck_worker_behind_ends_with_exit_code_1() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&["--path", "packet", "--drain-ms", "0"]);
    let worker = thread_of(&server, 0);
    std::thread::scope(|threads| {
        let (stopped, has_stopped) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        // The kernel keeps the process until the thread that stopped its worker has ended.
        threads.spawn(move || {
            let _stopped = StoppedThread::stop(worker).unwrap();
            stopped.send(()).unwrap();
            let _ = ends.recv();
        });
        has_stopped.recv().unwrap();
        kill_process(server.pid(), Signal::INT).unwrap();
        server.wait_until_said("worker 0 is left behind");
        drop(end);
        assert_eq!(server.interrupt(), Some(1));
    });
    assert_eq!(rig.serve(&["--path", "packet"]).interrupt(), Some(0), "the next one finds nothing of it");
}
