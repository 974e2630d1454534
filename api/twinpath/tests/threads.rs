//! Runs the examples of a socket in a tokio program and of sockets in threads, over loopback.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use twinpath_sys::Namespace;
use twinpath_test_rig::{End, PATIENCE, loopback, pair, root_or_skip, within};

struct Example {
    namespace: Namespace,
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Example {
    /// Starts it in a namespace with nothing but a loopback device.
    fn start(name: &str) -> Option<Self> {
        if !root_or_skip() {
            return None;
        }
        Some(Self::start_in(loopback(), name, &[]))
    }

    fn start_in(namespace: Namespace, name: &str, arguments: &[&str]) -> Self {
        let tests = std::env::current_exe().unwrap();
        let mut example = Command::new(tests.ancestors().nth(2).unwrap().join("examples").join(name));
        within(&namespace, &mut example).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = example.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { namespace, child, said }
    }

    fn line(&mut self) -> String {
        self.said.next().unwrap().unwrap()
    }

    fn client(&self) -> UdpSocket {
        let client = self.namespace.run(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_tokio_program_answers_in_tasks() {
    let Some(mut example) = Example::start("with_tokio") else { return };
    // There is no fast path on loopback, and the example says why.
    assert!(example.line().starts_with("UDP by the kernel: "));
    let client = example.client();
    let mut buffer = [0; 64];
    for number in 0..100 {
        let text = format!("number {number}");
        client.send_to(text.as_bytes(), "127.0.0.1:7010").unwrap();
        let len = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], text.to_ascii_uppercase().as_bytes());
    }
    example.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(example.line(), "100 answered");
    example.end();
}

#[test]
fn a_tokio_program_has_the_fast_path_on_a_link() {
    if !root_or_skip() {
        return;
    }
    let [ours, peers] = [(); 2].map(|()| Namespace::new().unwrap());
    pair(End::new(&ours, "in0", &["10.9.0.1/24"]), End::new(&peers, "out0", &["10.9.0.2/24"]));
    let mut example = Example::start_in(ours, "with_tokio", &["in0"]);
    assert_eq!(example.line(), "UDP by the fast path on in0");
    let client = peers.run(|| UdpSocket::bind("10.9.0.2:0").unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 64];
    for number in 0..2_000 {
        let text = format!("number {number}");
        client.send_to(text.as_bytes(), "10.9.0.1:7010").unwrap();
        let len = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], text.to_ascii_uppercase().as_bytes());
    }
    example.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(example.line(), "2000 answered");
    example.end();
}

#[test]
fn threads_answer_with_a_socket_each_and_with_one_for_all() {
    let Some(mut example) = Example::start("threads") else { return };
    for said in ["socket 0 by the kernel: ", "socket 1 by the kernel: ", "shared socket by the kernel: "] {
        let line = example.line();
        assert!(line.starts_with(said), "{line}");
    }
    let answer = |client: &UdpSocket, port: u16| {
        let mut buffer = [0; 64];
        client.send_to(b"who?", ("127.0.0.1", port)).unwrap();
        let len = client.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    // Each peer stays with one socket of the group, and both sockets have peers.
    let (begun, mut names) = (Instant::now(), BTreeSet::new());
    while names.len() < 2 {
        let client = example.client();
        let name = answer(&client, 7011);
        assert_eq!(answer(&client, 7011), name);
        names.insert(name);
        assert!(begun.elapsed() < PATIENCE, "{names:?}");
    }
    assert_eq!(names, BTreeSet::from(["own-0".to_owned(), "own-1".to_owned()]));
    let client = example.client();
    for _ in 0..100 {
        assert!(answer(&client, 7012).starts_with("shared-"));
    }
    example.end();
}
