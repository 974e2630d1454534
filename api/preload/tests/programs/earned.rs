//! Sockets earn their lease.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use twinpath_rules::Rule;
use twinpath_test_skip::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Link, PATIENCE, run};
use crate::{PROGRAMS, SERVER, own, peer_in, received, with_library};

fn started(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let ready = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(ready, "ready");
    child
}

/// A program that lives for a few answers never asks; one that has many gets the lease while it works, and no datagram is lost meanwhile.
#[test]
fn a_socket_gets_its_lease_when_it_has_received_enough() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let (source, program) = (folder.path().join("server.c"), folder.path().join("server"));
    std::fs::write(&source, SERVER).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    for (number, count) in [("few", 40u32), ("many", u32::MAX)] {
        let explain = folder.path().join(number);
        let rule = Rule { mode: Mode::Poll, ..Rule::default() };
        let mut command = Command::new(&program);
        let mut child = started(link.within(with_library(&mut command, rule, &explain)));
        let text = || std::fs::read_to_string(&explain).unwrap_or_default();
        let (peer, began, mut buffer, mut sent) = (peer_in(&link.peers), Instant::now(), [0; 8], 0u32);
        let mut goes_on = 2_000;
        while sent < count && goes_on > 0 {
            peer.send_to(&sent.to_ne_bytes(), "10.9.0.1:7021").unwrap();
            assert_eq!((peer.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &sent.to_ne_bytes()[..]));
            sent += 1;
            assert!(began.elapsed() < PATIENCE, "{}", text());
            if text().contains("fast path on in0, by the owner") {
                goes_on -= 1;
            }
        }
        peer.send_to(&[], "10.9.0.1:7021").unwrap();
        assert!(child.wait().unwrap().success());
        let (by_ring, by_kernel) = received(&explain);
        println!("{number}: {sent} sent, {by_ring} by the ring, {by_kernel} by the kernel: {}", text());
        if count == u32::MAX {
            assert!(by_ring > 0, "{}", text());
        } else {
            assert!(text().contains("have received too little for a ring to pay"), "{}", text());
        }
    }
}
