//! Sockets earn their lease.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use twinpath_leases::rules::Rule;
use twinpath_test_rig::root_or_skip;
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

/// Answers each datagram after some 20 us: the peer is faster.
const SLOW_SERVER: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7021) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char buffer[8];

	inet_pton(AF_INET, "10.9.0.1", &own.sin_addr);
	if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct sockaddr_storage from;
		socklen_t len = sizeof from;
		ssize_t got = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len);

		if (got <= 0)
			return got < 0;
		for (volatile int turn = 0; turn < 20000; turn++)
			;
		sendto(fd, buffer, got, 0, (struct sockaddr *)&from, len);
	}
}
"#;

/// While the next datagram always waits in the kernel's socket, a lease costs and saves nothing: it ends, and another one is earned later.
#[test]
fn a_lease_that_does_not_pay_ends_and_another_one_is_earned() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let (source, program) = (folder.path().join("slow.c"), folder.path().join("slow"));
    std::fs::write(&source, SLOW_SERVER).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    let explain = folder.path().join("explain");
    let mut command = Command::new(&program);
    let mut child = started(link.within(with_library(&mut command, Rule::default(), &explain)));
    let text = || std::fs::read_to_string(&explain).unwrap_or_default();
    let (peer, began, mut buffer) = (peer_in(&link.peers), Instant::now(), [0; 8]);
    let (mut sent, mut heard) = (0u32, 0u32);
    while text().matches("fast path on in0").count() < 2 {
        while sent - heard < 32 {
            peer.send_to(&sent.to_ne_bytes(), "10.9.0.1:7021").unwrap();
            sent += 1;
        }
        assert_eq!((peer.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &heard.to_ne_bytes()[..]));
        heard += 1;
        assert!(began.elapsed() < PATIENCE, "{}", text());
    }
    for expected in heard..sent {
        assert_eq!((peer.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &expected.to_ne_bytes()[..]));
    }
    peer.send_to(&[], "10.9.0.1:7021").unwrap();
    assert!(child.wait().unwrap().success());
    println!("{sent} sent: {}", text());
    assert!(text().contains("does not pay"), "{}", text());
}
