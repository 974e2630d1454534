//! Programs whose threads all wait for one socket.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Link, PATIENCE, run};
use crate::{PROGRAMS, own, peer_in, received, rule, with_library};

/// Datagrams of a run, each numbered.
pub(crate) const DATAGRAMS: u32 = 12_000;
/// Maximum number of them that are in flight at a time, by turns.
const IN_FLIGHT: [u32; 2] = [1, 4];
const TURN: u32 = 500;

/// The program of several threads, compiled.
fn threads(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/threads.c");
    let program = folder.join("threads");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread"]);
    run(compiler.arg(source).arg("-o").arg(&program));
    program
}

fn started(link: &Link, command: &mut Command) -> Child {
    command.stdout(Stdio::piped());
    let mut child = link.within(command).spawn().unwrap();
    let ready = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(ready, "ready");
    child
}

/// Sends numbered datagrams: each comes back, once. Nothing is sent again, so one that is left somewhere is missed.
pub(crate) fn exchange(link: &Link, port: u16) {
    let peer = peer_in(&link.peers);
    peer.connect(("10.9.0.1", port)).unwrap();
    let (mut buffer, mut under_way, mut next) = ([0; 8], Vec::new(), 0);
    while next < DATAGRAMS || !under_way.is_empty() {
        let most = IN_FLIGHT[(next / TURN) as usize % IN_FLIGHT.len()] as usize;
        if next < DATAGRAMS && under_way.len() < most {
            peer.send(&u32::to_ne_bytes(next)).unwrap();
            under_way.push(next);
            next += 1;
            continue;
        }
        let got = peer.recv(&mut buffer);
        let got = got
            .unwrap_or_else(|error| panic!("of {under_way:?} none came back within {PATIENCE:?}: {error}"));
        assert_eq!(got, 4);
        let number = u32::from_ne_bytes(buffer[..4].try_into().unwrap());
        let at = under_way.iter().position(|sent| *sent == number);
        under_way.remove(at.unwrap_or_else(|| panic!("{number} came back twice: {under_way:?}")));
    }
}

/// Runs it in all modes that spin.
fn threads_that_come_and_go(how: &str) {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let program = threads(folder.path());
    let mut by_ring_in_all = 0;
    for mode in [Mode::Adaptive, Mode::Poll] {
        let explain = folder.path().join(mode.name());
        let mut command = Command::new(&program);
        let mut child = started(&link, with_library(command.arg(how), rule(mode), &explain));
        exchange(&link, 7041);
        peer_in(&link.peers).send_to(&[], "10.9.0.1:7041").unwrap();
        assert!(child.wait().unwrap().success());
        let (by_ring, by_kernel) = received(&explain);
        println!("{how}, {mode}: {by_ring} by the ring, {by_kernel} by the kernel");
        let text = std::fs::read_to_string(&explain).unwrap();
        assert_eq!(by_ring + by_kernel, u64::from(DATAGRAMS) + 1, "{text}");
        by_ring_in_all += by_ring;
    }
    assert!(by_ring_in_all > 0);
}

#[test]
fn threads_with_edge_triggered_sets_leave_no_datagram_either() {
    threads_that_come_and_go("edge");
}

#[test]
fn threads_that_wait_for_one_socket_leave_no_datagram_whichever_blocks_or_ends() {
    threads_that_come_and_go("level");
}
