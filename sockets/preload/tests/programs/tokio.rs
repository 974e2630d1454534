//! A program of tokio, whose loop waits by an edge-triggered set.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::Link;
use crate::threads::{DATAGRAMS, exchange};
use crate::{PROGRAMS, own, peer_in, received, rule, with_library};

#[test]
fn a_tokio_program_that_knows_nothing_of_it_has_the_fast_path() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/tokio_echo");
    for mode in [Mode::Poll, Mode::Adaptive, Mode::Interrupt] {
        let explain = folder.path().join(mode.name());
        let mut command = Command::new(&program);
        command.arg("0.0.0.0:7071").stdout(Stdio::piped());
        let mut child = link.within(with_library(&mut command, rule(mode), &explain)).spawn().unwrap();
        let ready = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        assert_eq!(ready, "ready");
        exchange(&link, 7071);
        peer_in(&link.peers).send_to(&[], "10.9.0.1:7071").unwrap();
        assert!(child.wait().unwrap().success(), "{mode}");
        let text = std::fs::read_to_string(&explain).unwrap();
        assert!(text.contains("UDP 0.0.0.0:7071: fast path on in0, by the owner"), "{text}");
        let (by_ring, by_kernel) = received(&explain);
        println!("{mode}: {by_ring} by the ring, {by_kernel} by the kernel");
        assert_eq!(by_ring + by_kernel, u64::from(DATAGRAMS) + 1, "{text}");
        // Otherwise the policy decides, and the machine may be slow.
        assert!(by_ring > 0 || mode != Mode::Poll, "{text}");
    }
}
