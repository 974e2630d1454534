//! Tests of `twinpath drain`: it ends an instance without losing accepted requests, reports its progress, and keeps its
//! deadline.

use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use twinpath_test_rig::within;

use crate::connections::{ask_until_ended, connect, fill, service};
use crate::rig::{Rig, Server, until};
use crate::root_or_skip;

/// Starts `drain` for this server; returns its output.
fn drain(rig: &Rig, server: &Server, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
    command.arg("drain").args(arguments).arg("--socket").arg(&server.socket);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    within(&rig.server, &mut command);
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    (child, said)
}

/// The exit code, and the remaining output.
fn end((mut child, mut said): (Child, BufReader<ChildStderr>)) -> (Option<i32>, String) {
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    (child.wait().unwrap().code(), rest)
}

/// The tables of `show`.
fn show(server: &Server) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
    let output = command.arg("show").arg("--socket").arg(&server.socket).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A connection whose peer reads nothing: the server holds replies for it, and requests.
fn stuck(rig: &Rig) -> TcpStream {
    let mut stream = connect(rig);
    fill(&mut stream);
    stream.set_nonblocking(false).unwrap();
    stream
}

#[test]
fn a_drain_under_load_loses_nothing_that_was_accepted_and_says_so() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    for mode in ["poll", "interrupt"] {
        let mut server = rig.serve(&["--mode", mode, "--workers", "2", "--path", "packet"]);
        let (answered, broken, over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let mut deaf = stuck(&rig);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let stream = connect(&rig);
                let (answered, broken, over) = (&answered, &broken, &over);
                scope.spawn(move || ask_until_ended(stream, answered, broken, over));
            }
            until("all are busy", || answered.load(Ordering::Relaxed) > 400);
            let draining = drain(&rig, &server, &["--timeout-ms", "60000"]);
            until("only the deaf one is left", || service(&server, "connections") == 1);
            // The requests that were read are answered once the peer reads, to the last byte, and no further byte is
            // read.
            let accepted = service(&server, "stream_bytes_in") - 3_000 * answered.load(Ordering::Relaxed);
            deaf.shutdown(Shutdown::Write).unwrap();
            let (mut heard, mut buffer) = (0, vec![0; 1 << 20]);
            while let len @ 1.. = deaf.read(&mut buffer).expect("no reset") {
                heard += len as u64;
            }
            assert_eq!(heard, accepted, "{mode}");
            let (code, said) = end(draining);
            assert_eq!(code, Some(0), "{mode}: {said}");
            assert!(said.contains("everything accepted was answered"), "{said}");
        });
        assert!(!broken.load(Ordering::Relaxed), "{mode}: an answer was cut off");
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{mode}");
    }
}

#[test]
fn a_drain_is_followed_left_joined_and_ended_at_its_bound() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let mut server = rig.serve(&[]);
    let deaf = stuck(&rig);
    let (mut first, mut said) = drain(&rig, &server, &["--timeout-ms", "600000"]);
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let left =
        line.strip_prefix("draining: 1 connections left, ").and_then(|rest| rest.split_once(" s until"));
    let left: f64 = left.unwrap_or_else(|| panic!("{line}")).0.parse().unwrap();
    assert!(left > 300.0 && left <= 600.0, "{line}");
    assert!(line.contains("it goes on if this command ends"), "{line}");
    assert!(show(&server).contains("draining: 1 connections left, "), "{}", show(&server));
    // No new connection is accepted, and the draining command may end: the drain continues.
    assert!(rig.client.run(|| TcpStream::connect((crate::rig::SERVER, crate::rig::PORT))).unwrap().is_err());
    // A background job of a shell without job control ignores SIGINT, and so would this child of a test that runs there.
    kill_process(Pid::from_child(&first), Signal::TERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), None);
    assert!(show(&server).contains("draining: 1 connections left, "), "{}", show(&server));
    // A second command joins the same drain; the last deadline counts.
    let mut second = drain(&rig, &server, &[]);
    second.1.read_line(&mut line).unwrap();
    let third = drain(&rig, &server, &["--timeout-ms", "0"]);
    for draining in [second, third] {
        let (code, said) = end(draining);
        assert!(
            said.contains("1 connections had not ended in time and were closed (drain_timeout)"),
            "{said}"
        );
        assert_eq!(code, Some(3));
    }
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    drop(deaf);
    let (code, said) = end(drain(&rig, &server, &[]));
    assert!(said.contains("no instance answers on"), "{said}");
    assert_eq!(code, Some(1));
}
