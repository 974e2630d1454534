//! Programs of several processes that have one socket.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Link, PATIENCE, run};
use crate::threads::exchange;
use crate::{PROGRAMS, own, peer_in, rule, with_library};

const AT: (&str, u16) = ("10.9.0.1", 7042);
/// Sent again until it is answered.
const AGAIN: Duration = Duration::from_millis(50);

/// What the ring of a process has that is killed is lost, and its last datagrams may come while the kernel still knows it.
fn await_answer(link: &Link) {
    let peer = peer_in(&link.peers);
    peer.set_read_timeout(Some(AGAIN)).unwrap();
    let begun = Instant::now();
    loop {
        peer.send_to(&u32::MAX.to_ne_bytes(), AT).unwrap();
        match peer.recv(&mut [0; 8]) {
            Ok(_) => return,
            Err(error) => {
                assert!(error.kind() == ErrorKind::WouldBlock && begun.elapsed() < PATIENCE, "{error}")
            }
        }
    }
}

#[test]
fn processes_that_use_one_socket_leave_no_datagram_and_one_alone_has_the_ring_to_itself() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/family.c");
    let program = folder.path().join("family");
    let mut compiler = Command::new("cc");
    run(compiler
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"])
        .arg(source)
        .arg("-o")
        .arg(&program));
    for mode in [Mode::Adaptive, Mode::Poll] {
        let explain = folder.path().join(mode.name());
        let mut command = Command::new(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = link.within(with_library(&mut command, rule(mode), &explain)).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(said.next().as_deref(), Some("ready"));
        exchange(&link, AT.1);
        writeln!(child.stdin.take().unwrap(), "kill").unwrap();
        assert_eq!(said.next().as_deref(), Some("killed"));
        await_answer(&link);
        exchange(&link, AT.1);
        peer_in(&link.peers).send_to(&[], AT).unwrap();
        assert!(child.wait().unwrap().success(), "{mode}");
        let text = std::fs::read_to_string(&explain).unwrap();
        println!("{mode}: {text}");
        assert!(text.contains(": fast path on in0, by the owner"), "{text}");
    }
}
