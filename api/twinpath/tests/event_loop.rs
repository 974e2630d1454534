//! Runs the example of an application's own loop: its UDP socket, a TCP connection, its pipe, over loopback.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use twinpath_sys::Namespace;
use twinpath_sys::child::{Placement, place};
use twinpath_test_skip::root_or_skip;

#[test]
fn one_loop_serves_udp_tcp_and_a_pipe() {
    if !root_or_skip() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let within = |command: &mut Command| {
        place(command, Placement { namespace: Some(&namespace), ..Placement::default() }).unwrap();
    };
    let mut up = Command::new("ip");
    within(up.args(["link", "set", "lo", "up"]));
    assert!(up.status().unwrap().success());
    let tests = std::env::current_exe().unwrap();
    let mut example = Command::new(tests.ancestors().nth(2).unwrap().join("examples/event_loop"));
    within(example.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut child = example.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // There is no fast path on loopback, and the example says why.
    assert!(said.next().unwrap().starts_with("UDP by the kernel: "));
    // The line is said once the loop runs.
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(b"hello\n").unwrap();
    assert_eq!(said.next().unwrap(), "read: hello");
    let client = namespace.run(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = namespace.run(|| TcpStream::connect("127.0.0.1:7008").unwrap()).unwrap();
    let mut buffer = [0; 8];
    for number in 0..100u32 {
        client.send_to(&number.to_ne_bytes(), "127.0.0.1:7008").unwrap();
        stream.write_all(&number.to_ne_bytes()).unwrap();
        assert_eq!((client.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &number.to_ne_bytes()[..]));
        stream.read_exact(&mut buffer[..4]).unwrap();
        assert_eq!(buffer[..4], number.to_ne_bytes());
    }
    drop(pipe);
    assert!(child.wait().unwrap().success());
}
