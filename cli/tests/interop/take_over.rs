//! Tests of `serve --take-over`: if either of the two instances fails, at any step, the other one serves.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Signal, kill_process, setpriority_process};
use twinpath_sys::fd_passing;

use crate::connections::{ask_until_ended, connect, echoes, service};
use crate::rig::{CLIENT, PATIENCE, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// A proxy between a new instance and the former one, to hold the exchange at a step.
struct Between {
    listener: UnixListener,
    path: PathBuf,
}

/// An exchange that is held.
struct Held {
    new: UnixStream,
    former: UnixStream,
}

impl Between {
    fn new(rig: &Rig) -> Self {
        let number = std::fs::read_dir(rig.directory.path()).unwrap().count();
        let path = rig.directory.path().join(format!("between-{number}.sock"));
        Self { listener: UnixListener::bind(&path).unwrap(), path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Forwards messages until the new instance sends `step`, which is held back; `None`: it ended before.
    fn hold_at(&self, former: &Path, step: &str) -> Option<Held> {
        let (new, _) = self.listener.accept().unwrap();
        let former = UnixStream::connect(former).unwrap();
        let (from, to) = (former.try_clone().unwrap(), new.try_clone().unwrap());
        std::thread::spawn(move || while carry(&from, &to).is_some() {});
        let mut reader = BufReader::new(new.try_clone().unwrap());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if line.contains(step) {
                return Some(Held { new, former });
            }
            (&former).write_all(line.as_bytes()).unwrap();
        }
    }
}

/// Forwards a byte with the descriptors attached to it, so that they stay together; `None`: there are no more.
fn carry(from: &UnixStream, to: &UnixStream) -> Option<()> {
    let mut bytes = [0; 1];
    let received = fd_passing::receive(from, &mut bytes).ok().filter(|received| received.len > 0)?;
    let fds: Vec<_> = received.fds.iter().map(AsFd::as_fd).collect();
    fd_passing::send(to, &bytes[..received.len], &fds).ok()
}

impl Held {
    /// Kills the new instance, and closes the connection to the former one.
    fn kill_new(self) {
        kill_process(socket_peercred(&self.new).unwrap().pid, Signal::KILL).unwrap();
        while let 1.. = (&self.new).read(&mut [0; 64]).unwrap_or(0) {}
        self.former.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

/// Load on one server during an event: connections that stay, others that come and go, and datagrams.
struct Load {
    answered: AtomicU64,
    lost: AtomicBool,
    over: AtomicBool,
}

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Dropping it ends the load, also after a failure.
struct EndsLoad<'a>(&'a Load);

/// Leaves the CPUs to the instances and the test first: a load that never pauses would take them from what it tests,
/// until a step takes longer than the test waits.
fn give_way() {
    let lowest = 19;
    setpriority_process(None, lowest).expect("a thread may lower its own priority");
}

impl Load {
    /// Runs `during` under load; `coming`: with new connections all the time. No client may miss an answer.
    fn on(rig: &Rig, server: &Server, coming: bool, datagrams: bool, during: impl FnOnce()) {
        let load =
            Self { answered: AtomicU64::new(0), lost: AtomicBool::new(false), over: AtomicBool::new(false) };
        let before = service(server, "accepted");
        std::thread::scope(|scope| {
            let _ends = EndsLoad(&load);
            for _ in 0..4 {
                let stream = connect(rig);
                let Self { answered, lost, over } = &load;
                scope.spawn(move || {
                    give_way();
                    ask_until_ended(stream, answered, lost, over);
                    // They should last until the load is over.
                    lost.fetch_or(!over.load(Ordering::Relaxed), Ordering::Relaxed);
                });
            }
            let load = &load;
            if coming {
                scope.spawn(move || {
                    give_way();
                    while !load.over.load(Ordering::Relaxed) {
                        echoes(&mut connect(rig), b"just come");
                    }
                });
            }
            let socket = rig.client_udp(CLIENT, 0);
            scope.spawn(move || {
                give_way();
                while datagrams && !load.over.load(Ordering::Relaxed) {
                    assert_eq!(ask(&socket, SERVER, PORT, b"datagram"), b"datagram");
                }
            });
            let busy = |more| {
                let before = load.answered.load(Ordering::Relaxed);
                until("the load goes on", || load.answered.load(Ordering::Relaxed) > before + more);
            };
            busy(200);
            during();
            busy(200);
        });
        assert!(!load.lost.load(Ordering::Relaxed), "an answer was cut off, or a connection");
        assert!(coming || service(server, "accepted") == before + 4, "nobody had to come again");
    }
}

#[test]
fn a_new_instance_that_is_killed_at_any_step_leaves_the_former_one_serving_and_nothing_lost() {
    if !root_or_skip() {
        return;
    }
    for (path, step) in [("kernel", "aside"), ("packet", "aside"), ("packet", "serving"), ("xdp", "serving")]
    {
        let rig = Rig::new();
        let former = rig.serve(&["--path", path, "--workers", "2"]);
        let serving_path = former.path();
        let between = Between::new(&rig);
        // At the last step the new one serves, and its unfinished requests are lost with it.
        let held_alone = step == "aside";
        Load::on(&rig, &former, held_alone, held_alone && path == "kernel", || {
            std::thread::scope(|scope| {
                let arguments = ["--path", path, "--workers", "2", "--take-over", between.path()];
                let rig = &rig;
                let new = scope.spawn(move || rig.try_serve(&arguments).err());
                let Some(held) = between.hold_at(&former.socket, step) else {
                    panic!("{path}: it ended before {step}: {:?}", new.join().unwrap())
                };
                assert_eq!(former.path() == "kernel", path == "kernel" || step == "serving", "{path} {step}");
                held.kill_new();
                assert!(new.join().unwrap().is_some(), "it never said that it was ready");
            });
            until("it is counted", || former.drops("take_over_failed") == 1);
            until("the former is as it was", || former.path() == serving_path);
        });
        let socket = rig.client_udp(CLIENT, 0);
        assert_eq!(ask(&socket, SERVER, PORT, b"still here"), b"still here");
        // The next one takes over all the same.
        let next = rig.serve(&["--path", path, "--take-over", former.socket.to_str().unwrap()]);
        let mut former = former;
        assert_eq!(former.child.wait().unwrap().code(), Some(0), "{path} {step}");
        echoes(&mut connect(&rig), b"the next one");
        assert_eq!((next.interrupt(), path, step), (Some(0), path, step));
    }
}

#[test]
fn a_new_instance_that_finds_fault_with_something_leaves_the_former_one_serving() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let former = rig.serve(&["--path", "packet"]);
    let from = former.socket.to_str().unwrap();
    let mut stays = connect(&rig);
    echoes(&mut stays, b"before");
    let said =
        rig.try_serve(&["--path", "xdp-zerocopy", "--take-over", from]).err().expect("a veth has none");
    assert!(said.contains("zero"), "{said}");
    until("the former is as it was", || former.path() == "packet");
    // It cannot ask at a wrong path: reported before anything is changed.
    let port = PORT.to_string();
    let base = ["serve", "echo", "--on", "vs", "--udp", &port, "--tcp", &port];
    let refused = rig.twinpath(&rig.server, &[&base[..], &["--socket", from, "--take-over", from]].concat());
    assert!(refused.stderr.contains("another instance listens on"), "{}", refused.stderr);
    assert_eq!((refused.code, former.drops("take_over_failed")), (Some(1), 1));
    echoes(&mut stays, b"after");
    assert_eq!(service(&former, "accepted"), 1);
    let refused = rig.try_serve(&["--take-over-ms", "10"]).err().expect("too short");
    assert!(refused.contains("limits.take_over_ms: 10: give 100 to 600000"), "{refused}");
    assert_eq!(former.interrupt(), Some(0));
}

#[test]
fn a_new_instance_that_is_silent_for_too_long_is_given_up_and_told() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let former = rig.serve(&["--path", "packet", "--take-over-ms", "1500"]);
    let say = |words: &str| {
        let mut stream = UnixStream::connect(&former.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        stream
    };
    // The names in a line, then the sockets with a byte.
    let given = || {
        let mut stream = say("\"sockets\"\n");
        let (mut names, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            stream.read_exact(&mut byte).unwrap();
            names.push(byte[0]);
        }
        assert!(String::from_utf8(names).unwrap().contains("\"socket\":\"tcp\""));
        let received = fd_passing::receive(&stream, &mut byte).unwrap();
        assert!(received.fds.len() >= 2);
        stream
    };
    let mut silent = given();
    silent.write_all(b"\"aside\"\n").unwrap();
    let mut answers = BufReader::new(silent);
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert_eq!((line.trim(), former.path().as_str()), ("{\"ok\":{}}", "kernel"));
    let mut refused = String::new();
    say("\"sockets\"\n").read_to_string(&mut refused).unwrap();
    assert!(refused.contains("another instance is taking over already"), "{refused}");
    echoes(&mut connect(&rig), b"served by the former");
    line.clear();
    answers.read_line(&mut line).unwrap();
    assert!(line.contains("it took longer than 1500 ms; this one goes on"), "{line}");
    until("the former is as it was", || former.path() == "packet");
    assert_eq!(former.drops("take_over_failed"), 1);
    // One that another one replaces is told: it must not take the end of its connection for the former one's.
    let replaced = given();
    let replacing = given();
    line.clear();
    BufReader::new(replaced).read_line(&mut line).unwrap();
    assert!(line.contains("another instance has asked for the sockets after it"), "{line}");
    drop(replacing);
    // Steps out of order are refused.
    let mut hasty = given();
    hasty.write_all(b"\"serving\"\n").unwrap();
    let mut said = String::new();
    hasty.read_to_string(&mut said).unwrap();
    assert!(said.contains("Serving is not the next step"), "{said}");
    assert_eq!((former.path().as_str(), former.interrupt()), ("packet", Some(0)));
}

#[test]
fn a_port_that_the_new_instance_does_not_serve_is_free() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let mut former = rig.serve(&["--path", "packet"]);
    let (port, from) = (PORT.to_string(), former.socket.to_str().unwrap().to_owned());
    let new = rig.start(&["echo", "--on", "vs", "--udp", &port, "--take-over", &from]);
    assert_eq!(former.child.wait().unwrap().code(), Some(0));
    assert!(rig.client.run(|| std::net::TcpStream::connect((SERVER, PORT))).unwrap().is_err());
    assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"udp"), b"udp");
    assert_eq!(new.interrupt(), Some(0));
}

#[test]
fn a_former_instance_that_dies_while_it_is_taken_over_leaves_the_new_one_serving() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let former = rig.serve(&["--path", "packet"]);
    let between = Between::new(&rig);
    std::thread::scope(|scope| {
        let rig = &rig;
        let arguments = ["--path", "packet", "--take-over", between.path()];
        // In this thread, because the child ends with the thread that starts it.
        let socket = former.socket.clone();
        let between = &between;
        scope.spawn(move || {
            let held = between.hold_at(&socket, "serving").expect("it is about to serve");
            former.kill();
            held.new.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let new = rig.serve(&arguments);
        new.wait_until_said("has ended before it was taken over");
        echoes(&mut connect(rig), b"the new one");
        assert_eq!((new.path().as_str(), new.interrupt()), ("packet", Some(0)));
    });
}
