//! Runs the example of an application's own loop over loopback: its UDP socket, a TCP connection and its
//! pipe. Tests its file with io_uring and without.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use twinpath_test_rig::{loopback, root_or_skip, within};

#[test]
fn one_loop_serves_udp_tcp_a_pipe_and_a_file() {
    if root_or_skip() {
        serve(false);
    }
}

#[test]
fn a_kernel_that_refuses_io_uring_is_named_and_the_file_is_read() {
    if !root_or_skip() {
        return;
    }
    // A seccomp filter belongs to its thread, and the example inherits it.
    let thread = std::thread::spawn(|| {
        let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        serve(true);
    });
    thread.join().unwrap();
}

/// Runs the example in a separate namespace. `is_refused`: the test made the kernel refuse io_uring.
fn serve(is_refused: bool) {
    let namespace = loopback();
    let tests = std::env::current_exe().unwrap();
    let mut example = Command::new(tests.ancestors().nth(2).unwrap().join("examples/event_loop"));
    // Several parts, and the last one not full.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all("a line of text\n".repeat(20_000).as_bytes()).unwrap();
    example.arg("lo").arg(file.path());
    within(&namespace, &mut example).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = example.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // There is no fast path on loopback, and the example says why.
    assert!(said.next().unwrap().starts_with("UDP by the kernel: "));
    // This kernel may refuse io_uring on its own.
    let disk = said.next().unwrap();
    if is_refused || disk.starts_with("io_uring is refused") {
        assert!(disk.starts_with("io_uring is refused ("), "{disk}");
        assert_eq!(said.next().unwrap(), "file: 300000 bytes, 20000 lines by read()");
    } else {
        assert_eq!(disk, "file: 300000 bytes, 20000 lines by io_uring");
    }
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
