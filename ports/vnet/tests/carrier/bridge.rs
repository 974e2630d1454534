//! Beside a kernel bridge to which the interfaces belong: it is idle while workers serve, and carries the frames
//! when they are stuck or gone.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Instant as Clock;

use twinpath_test_rig::{ip_here, name_of, within as within_namespace};

use super::*;

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.0.0.2:4000";
/// Set for the process that plays the switch.
const CHILD: &str = "TWINPATH_TEST_SWITCH_FAILS_OPEN_MS";

/// Two hosts on a switch whose interfaces belong to a kernel bridge.
struct Lab {
    middle: Namespace,
    _hosts: [Namespace; 2],
    client: UdpSocket,
    server: UdpSocket,
}

impl Lab {
    fn new() -> Self {
        let middle = quiet();
        ip(&middle, "link add br0 type bridge");
        let hosts = [quiet(), quiet()];
        for (number, host) in hosts.iter().enumerate() {
            let there = name_of(host);
            ip(&middle, &format!("link add near{number} type veth peer name eth0 netns {there}"));
            ip(&middle, &format!("link set near{number} master br0 up"));
            ip(host, &format!("address add 10.0.0.{}/24 dev eth0", number + 1));
            ip(host, "link set eth0 up");
        }
        ip(&middle, "link set br0 up");
        let bind = |host: &Namespace, address: &str| {
            let socket = host.run(|| UdpSocket::bind(address).unwrap()).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
            socket
        };
        let (client, server) = (bind(&hosts[0], CLIENT), bind(&hosts[1], SERVER));
        Self { middle, _hosts: hosts, client, server }
    }

    /// Asks once a millisecond, and lets `turn` work in between, until the server's answer is there.
    fn ask_until_answered(&self, mut turn: impl FnMut()) {
        let deadline = Clock::now() + std::time::Duration::from_secs(20);
        let mut buffer = [0; 16];
        while Clock::now() < deadline {
            let _ = self.client.send_to(b"question", SERVER);
            turn();
            if let Ok((_, from)) = self.server.recv_from(&mut buffer) {
                self.server.send_to(b"answer", from).unwrap();
            }
            turn();
            match self.client.recv(&mut buffer) {
                Ok(_) => return,
                Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            }
        }
        panic!("nobody answers");
    }

    /// Takes what is in the sockets.
    fn drain(&self) {
        let mut buffer = [0; 16];
        while self.client.recv(&mut buffer).is_ok() || self.server.recv(&mut buffer).is_ok() {}
    }

    /// Whether the kernel bridge has learnt an address: it saw a frame of a host.
    fn bridge_has_learnt(&self) -> bool {
        !run(&self.middle, "bridge", "fdb show br br0 dynamic").is_empty()
    }
}

#[test]
fn while_workers_serve_the_bridge_sees_nothing_and_when_one_is_stuck_it_carries() {
    if !can_run() {
        return;
    }
    let lab = Lab::new();
    // Longer than this test may have to wait for a CPU.
    let fail_open = Duration::from_secs(1);
    let mut switch = Switch::new(&lab.middle, &["near0", "near1"], Unserved::Kernel, fail_open);
    lab.ask_until_answered(|| switch.forward());
    assert!(!lab.bridge_has_learnt());
    // What the kernel sends through the bridge does not leave.
    let kernel = lab.middle.run(|| {
        ip_here("address add 10.0.0.3/24 dev br0");
        let socket = UdpSocket::bind("10.0.0.3:4000").unwrap();
        socket.set_broadcast(true).unwrap();
        socket
    });
    let kernel = kernel.unwrap();
    kernel.send_to(b"from the kernel", "10.0.0.1:4000").unwrap();
    lab.ask_until_answered(|| switch.forward());
    assert!(!lab.bridge_has_learnt());

    // The worker stops looking. Soon the bridge carries, until the worker looks again.
    lab.ask_until_answered(|| {});
    assert!(lab.bridge_has_learnt());
    assert!(switch.queue.is_withdrawn());
    switch.receive();
    assert!(!switch.queue.is_withdrawn() && switch.waiting.is_empty(), "what waited is discarded");
    assert_eq!(switch.queue.counters().times_stuck.get(), 1);
    lab.drain();
    let before = switch.counters(0).frames_in.get();
    lab.ask_until_answered(|| switch.forward());
    assert!(switch.counters(0).frames_in.get() > before);
}

/// Not a test by itself: the process that is killed below.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    twinpath_sys::descriptors::set_aside(8);
    let fail_open = Duration::from_secs(1);
    let mut switch = Switch::in_namespace(None, &["near0", "near1"], Unserved::Kernel, fail_open);
    println!("serving");
    loop {
        wait_for(&switch.queue);
        switch.forward();
    }
}

#[test]
fn when_the_process_is_killed_the_bridge_carries() {
    if !can_run() {
        return;
    }
    let lab = Lab::new();
    let mut times = Vec::new();
    for _ in 0..5 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "bridge::child", "--nocapture"]).env(CHILD, "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        within_namespace(&lab.middle, &mut command);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("serving")));
        ip(&lab.middle, "link set br0 type bridge fdb_flush");
        lab.ask_until_answered(|| {});
        assert!(!lab.bridge_has_learnt(), "the process carries");
        lab.drain();
        let killed = Clock::now();
        child.kill().unwrap();
        lab.ask_until_answered(|| {});
        times.push(killed.elapsed());
        child.wait().unwrap();
        lab.drain();
        lab.ask_until_answered(|| {});
        assert!(lab.bridge_has_learnt());
    }
    println!("from kill -9 to the client's answer: {times:?}");
}
