//! Tests of `serve --standby`: an instance that holds another one's sockets, and serves on them only when that one is
//! stopped or killed.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use twinpath_sys::StoppedThread;

use crate::connections::{connect, echoes};
use crate::fail_open::{FAIL_OPEN_MS, thread_of};
use crate::rig::{CLIENT, PATIENCE, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;
use crate::several::{file, service};

fn pair(rig: &Rig, arguments: &[&str]) -> (Server, Server) {
    let arguments = [arguments, &["--fail-open-ms", FAIL_OPEN_MS]].concat();
    let first = rig.serve(&arguments);
    let standby = rig.serve(&[&arguments[..], &["--standby", first.socket.to_str().unwrap()]].concat());
    (first, standby)
}

/// Its report as a standby instance; null once it is none.
fn standing_by(rig: &Rig, server: &Server) -> Value {
    let shown = rig.twinpath(&rig.server, &["show", "--json", "--socket", server.socket.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&shown.stdout).unwrap();
    report["instance"]["standing_by"].clone()
}

fn stop(server: &Server) {
    kill_process(server.pid(), Signal::STOP).unwrap();
    // Until all of its threads have stopped.
    waitpid(Some(server.pid()), WaitOptions::UNTRACED).unwrap();
}

fn requests(server: &Server) -> u64 {
    let echo = service(server, "echo");
    echo["fast_requests"].as_u64().unwrap() + echo["kernel_requests"].as_u64().unwrap()
}

/// Requests with numbers, and how often each was answered.
struct Counted {
    socket: UdpSocket,
    asked: u64,
    answers: BTreeMap<u64, u32>,
}

impl Counted {
    fn new(rig: &Rig) -> Self {
        let socket = rig.client_udp(CLIENT, 0);
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Self { socket, asked: 0, answers: BTreeMap::new() }
    }

    /// Sends a new request, and takes the answers that come soon.
    fn ask(&mut self) {
        self.socket.send_to(&self.asked.to_be_bytes(), (SERVER, PORT)).unwrap();
        self.asked += 1;
        self.hear();
    }

    fn hear(&mut self) {
        let mut answer = [0; 8];
        while let Ok((8, _)) = self.socket.recv_from(&mut answer) {
            *self.answers.entry(u64::from_be_bytes(answer)).or_default() += 1;
        }
    }

    /// Sends requests until the last ones of them, so many, are answered, however late.
    fn until_answered(&mut self, many: u64) {
        let (begun, first) = (Instant::now(), self.asked);
        let are_answered =
            |it: &Self| (it.asked - many..it.asked).all(|number| it.answers.contains_key(&number));
        while self.asked < first + many || !are_answered(self) {
            self.ask();
            assert!(begun.elapsed() < PATIENCE, "no answers: {:?}", self.answers);
        }
    }

    /// Checks that none was answered twice.
    fn end(mut self) {
        self.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        self.hear();
        assert!(self.answers.values().all(|count| *count == 1), "answered twice: {:?}", self.answers);
    }
}

#[test]
fn a_stopped_instance_is_stood_in_for_and_goes_on_where_it_was() {
    if !root_or_skip() {
        return;
    }
    for (path, workers) in [("packet", "1"), ("kernel", "2")] {
        let rig = Rig::of_workers();
        let (first, standby) = pair(&rig, &["--path", path, "--workers", workers]);
        let mut counted = Counted::new(&rig);
        counted.until_answered(50);
        let mut kept = connect(&rig);
        echoes(&mut kept, b"the first one's");
        assert_eq!(requests(&standby), 0, "it serves nothing");
        let waiting = standing_by(&rig, &standby);
        assert_eq!(
            (&waiting["pid"], &waiting["serves"]),
            (&first.child.id().into(), &false.into()),
            "{path}"
        );
        for round in 1..=2 {
            stop(&first);
            counted.until_answered(20);
            echoes(&mut connect(&rig), b"the second one's");
            let serving = standing_by(&rig, &standby);
            assert_eq!((&serving["serves"], &serving["times"]), (&true.into(), &round.into()), "{path}");
            assert!(requests(&standby) >= 20);
            kill_process(first.pid(), Signal::CONT).unwrap();
            until("it steps back", || standing_by(&rig, &standby)["serves"] == false);
            until("the first one serves alone again", || {
                let before = (requests(&standby), requests(&first));
                counted.until_answered(20);
                requests(&standby) == before.0 && requests(&first) >= before.1 + 20
            });
            echoes(&mut kept, b"the first one's, still");
        }
        counted.end();
        assert_eq!(first.path(), path);
        let shown = rig.twinpath(&rig.server, &["show", "--socket", standby.socket.to_str().unwrap()]);
        let said = format!("standing by for PID {}: serving nothing, 2 times", first.child.id());
        assert!(shown.stdout.contains(&said), "{}", shown.stdout);
        // Its end has no effect on the first one.
        assert_eq!(standby.interrupt(), Some(0));
        asks_first(&rig);
        assert_eq!(first.interrupt(), Some(0));
    }
}

fn asks_first(rig: &Rig) {
    assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"alone"), b"alone");
}

#[test]
fn requests_to_a_stopped_instance_are_answered_once_by_either_instance() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let (first, standby) = pair(&rig, &["--path", "kernel"]);
    stop(&first);
    let mut counted = Counted::new(&rig);
    while counted.asked < 50 {
        counted.ask();
    }
    until("all that waited is answered", || {
        counted.hear();
        counted.answers.len() == 50
    });
    assert_eq!(requests(&standby), 50);
    kill_process(first.pid(), Signal::CONT).unwrap();
    until("it steps back", || standing_by(&rig, &standby)["serves"] == false);
    counted.end();
}

#[test]
fn the_place_of_a_killed_instance_is_taken_for_good_with_the_fast_path() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "xdp"] {
        let rig = Rig::of_workers();
        let (first, standby) = pair(&rig, &["--path", path, "--workers", "2"]);
        let fast = first.path();
        let mut counted = Counted::new(&rig);
        counted.until_answered(20);
        first.kill();
        counted.until_answered(20);
        echoes(&mut connect(&rig), b"the other one");
        until("it has the fast path", || standby.path() == fast);
        assert!(standing_by(&rig, &standby).is_null());
        let before = service(&standby, "echo")["fast_requests"].as_u64().unwrap();
        counted.until_answered(50);
        assert!(service(&standby, "echo")["fast_requests"].as_u64().unwrap() >= before + 40, "{path}");
        counted.end();
        // It is an ordinary instance by now, and may have a standby instance itself.
        let next = rig.serve(&["--path", path, "--standby", standby.socket.to_str().unwrap()]);
        assert_eq!(standing_by(&rig, &next)["pid"], standby.child.id());
        // An orderly end leaves no gap either.
        assert_eq!(standby.interrupt(), Some(0));
        counted_again(&rig, &next, &fast);
        assert_eq!(next.interrupt(), Some(0));
    }
}

#[test]
fn of_several_standbys_one_serves_and_none_beside_an_instance_that_takes_over() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let (first, standby) = pair(&rig, &["--path", "packet"]);
    let from = first.socket.to_str().unwrap();
    let other = rig.serve(&["--path", "packet", "--standby", from]);
    let lowest = standby.child.id().min(other.child.id());
    let (mut ends, stays) = if standby.child.id() == lowest { (other, standby) } else { (standby, other) };
    let mut counted = Counted::new(&rig);
    counted.until_answered(20);
    first.kill();
    assert_eq!(ends.child.wait().unwrap().code(), Some(1));
    ends.wait_until_said("another instance serves in its place");
    counted.until_answered(20);
    until("it has the fast path", || stays.path() == "packet");
    counted.until_answered(20);
    counted.end();
    // The instance that takes over goes before a standby.
    let from = stays.socket.to_str().unwrap();
    let mut standby = rig.serve(&["--path", "packet", "--standby", from]);
    let new = rig.serve(&["--path", "packet", "--take-over", from]);
    assert_eq!(standby.child.wait().unwrap().code(), Some(1));
    asks_first(&rig);
    assert_eq!((new.path().as_str(), new.interrupt()), ("packet", Some(0)));
}

fn counted_again(rig: &Rig, server: &Server, path: &str) {
    let mut counted = Counted::new(rig);
    counted.until_answered(20);
    until("it has the fast path", || server.path() == path);
    counted.end();
}

#[test]
fn both_have_the_same_ports_or_one_of_them_ends() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let port = PORT.to_string();
    let text = format!(
        "[interface]\nname = \"vs\"\npath = \"kernel\"\n[service]\nkind = \"echo\"\nudp = {port}\ntcp = {port}\n"
    );
    let config = file(&rig, &text);
    let config = config.to_str().unwrap();
    let first = rig.start(&["--config", config]);
    let from = first.socket.to_str().unwrap();
    let mut standby = rig.start(&["--config", config, "--standby", from]);
    for (more, why) in [
        (&["--udp", "7"][..], "does not serve all ports"),
        (&["--udp", &port], "serves more ports than this one"),
        (&["--udp", &port, "--tcp", &port, "--take-over", from], "cannot be used with"),
    ] {
        let base = ["serve", "echo", "--on", "vs", "--path", "kernel", "--standby", from];
        let socket = rig.directory.path().join("refused.sock");
        let refused =
            rig.twinpath(&rig.server, &[&base[..], more, &["--socket", socket.to_str().unwrap()]].concat());
        assert!(refused.code != Some(0) && refused.stderr.contains(why), "{}", refused.stderr);
    }
    // A standby instance cannot have a standby instance.
    let of = standby.socket.to_str().unwrap().to_owned();
    let refused = rig.try_start(&["--config", config, "--standby", &of]).err().expect("refused");
    assert!(refused.contains("standing by for pid"), "{refused}");
    // From here on the first one serves other ports, which the standby instance cannot serve.
    file(&rig, &text.replace(&format!("tcp = {port}"), "tcp = 7010"));
    let reloaded = rig.twinpath(&rig.server, &["reload", "--socket", from]);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    assert_eq!(standby.child.wait().unwrap().code(), Some(1));
    standby.wait_until_said("start this one again");
    assert_eq!(first.interrupt(), Some(0));
}

#[test]
fn the_watchdog_is_fed_while_every_worker_lives_and_not_while_one_is_stuck() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let at = rig.directory.path().join("notify");
    let manager = UnixDatagram::bind(&at).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = |manager: &UnixDatagram| {
        let mut buffer = [0; 256];
        manager.recv(&mut buffer).map(|len| String::from_utf8_lossy(&buffer[..len]).trim().to_owned())
    };
    let port = PORT.to_string();
    let server = rig.start_with_env(
        &[
            "echo",
            "--on",
            "vs",
            "--path",
            "kernel",
            "--workers",
            "2",
            "--udp",
            &port,
            "--fail-open-ms",
            FAIL_OPEN_MS,
        ],
        &[("NOTIFY_SOCKET", at.to_str().unwrap()), ("WATCHDOG_USEC", "200000")],
    );
    assert_eq!(heard(&manager).unwrap(), "READY=1");
    // Both sleep, with nothing to do.
    for _ in 0..12 {
        assert_eq!(heard(&manager).unwrap(), "WATCHDOG=1");
    }
    let stopped = StoppedThread::stop(thread_of(&server, 1)).expect("stopped");
    manager.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    until("nothing more is said", || heard(&manager).is_err());
    drop(stopped);
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(heard(&manager).unwrap(), "WATCHDOG=1");
    assert_eq!(server.interrupt(), Some(0));
}
