//! What the twin found once, and then 75 s of new scripts.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use twinpath_test_rig::root_or_skip;
use twinpath_test_twin::soak::run;
use twinpath_test_twin::twin::{Script, Twin};
use twinpath_worker::idle::Mode;

/// What was found once. The end of a lease by an option put what was in the ring behind what came later. A child that had not used the
/// socket before did not find what was in its parent's ring. A set for one event had the same put behind what came later. A set told of
/// what is in a ring alone after a call that had room for less. It did not fail where events cannot be written. select did not fail for
/// a descriptor that is none, if it closed the ring of another one and that had a datagram. What was in the ring was lost at a fork if the
/// socket had been connected, bound to a device or given a filter since. It did not count where the receive buffer was made smaller. poll
/// went on with what another thread had opened at the number of a socket that it had closed, and was told of a datagram where the number is
/// none any more. An option waited for a thread that receives.
const FOUND: [&str; 14] = [
    "a0 socket s0 AF_INET 0
     a0 bind s0 10.9.0.11 7000
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4000 dport=7000 id=547331560 len=8
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4000 dport=7000 id=547331561 len=140
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4000 dport=7000 id=547331562 len=181
     a0 setsockopt s0 IPPROTO_IP IP_RECVFRAGSIZE 1
     a0 recv s0 2000 MSG_DONTWAIT
     a0 recv s0 2000 MSG_DONTWAIT
     a0 recv s0 2000 MSG_DONTWAIT",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 fork a1
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=860861576 len=118
     a1 recvmsg s0 16+281 MSG_DONTWAIT 0 256",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 socket s1 AF_INET 0
     a0 epoll_create e0
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=547331570 len=20
     a0 poll 3000 s1:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=547331571 len=21
     a0 epoll_ctl e0 EPOLL_CTL_ADD s0 EPOLLIN|EPOLLONESHOT 7000
     a0 epoll_wait e0 8 0
     a0 recv s0 2000 MSG_DONTWAIT
     a0 recv s0 2000 MSG_DONTWAIT
     a0 recv s0 2000 MSG_DONTWAIT",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 epoll_create e0
     a0 epoll_ctl e0 EPOLL_CTL_ADD s0 EPOLLIN|EPOLLOUT 7000
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4001 dport=7000 id=482250115 len=0
     a0 socket s1 AF_INET 0
     a0 bind s1 0.0.0.0 7001
     a0 poll 1000 s1:POLLIN
     a0 epoll_ctl e0 EPOLL_CTL_ADD s1 EPOLLIN|EPOLLET|EPOLLOUT 7001
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4001 dport=7001 id=482250117 len=122
     a0 epoll_pwait e0 1 1000
     a0 epoll_pwait2 e0 8 1000",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 epoll_create e0
     a0 epoll_ctl e0 EPOLL_CTL_ADD s0 EPOLLIN 7000
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4001 dport=7000 id=482250116 len=5
     a0 epoll_wait e0 1 0 wild",
    "a0 socket s0 AF_INET6 0
     a0 setsockopt s0 IPPROTO_IPV6 IPV6_RECVPKTINFO 0
     a0 bind s0 fe80::ff:fe00:1%in0 7000
     frame udp src=fe80::ff:fe00:2 dst=fe80::ff:fe00:1 sport=4001 dport=7000 id=1113027564 len=90 ttl=255
     a0 recvfrom s0 0 MSG_DONTWAIT 16
     a0 epoll_create e0
     frame udp src=fe80::ff:fe00:2 dst=fe80::ff:fe00:1 sport=4001 dport=7000 id=1113027567 len=174
     a0 epoll_ctl e0 EPOLL_CTL_ADD s0 EPOLLIN|EPOLLONESHOT 7000
     frame udp src=fe80::ff:fe00:2 dst=fe80::ff:fe00:1 sport=4000 dport=7000 id=1113027568 len=120
     a0 pselect 0 s0:POLLIN|POLLRDHUP 77:POLLIN",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540229 len=512
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4001 dport=7000 id=1566540230 len=4
     a0 connect s0 10.9.0.2 4000
     a0 fork a1
     a1 recv s0 2000 MSG_DONTWAIT
     a1 recv s0 2000 MSG_DONTWAIT",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540229 len=512
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4001 dport=7000 id=1566540230 len=4
     a0 setbytes s0 SOL_SOCKET SO_BINDTODEVICE in1
     a0 fork a1
     a1 recv s0 2000 MSG_DONTWAIT
     a1 recv s0 2000 MSG_DONTWAIT",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540229 len=512
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4001 dport=7000 id=1566540230 len=4
     a0 filter s0 attach 100
     a0 fork a1
     a1 recv s0 2000 MSG_DONTWAIT
     a1 recv s0 2000 MSG_DONTWAIT",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 poll 1000 s0:POLLIN
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540229 len=1400
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540230 len=1400
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540231 len=1400
     a0 setsockopt s0 SOL_SOCKET SO_RCVBUF 2304
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540232 len=1400
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540233 len=1400
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540234 len=1400
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=1566540235 len=20
     a0 recvmmsg s0 8 2000 MSG_DONTWAIT 5000",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 recv s0 2000 MSG_DONTWAIT
     a0 thread a1
     a0& ppoll null s0:POLLIN
     a1 close s0
     a1 open d0
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4001 dport=7000 id=1840257840 len=4
     join a0",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 thread a1
     a0& poll null s0:POLLIN
     a1 close s0
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=190142488 len=88 ttl=2
     join a0",
    "a0 socket s0 AF_INET 0
     a0 bind s0 0.0.0.0 7000
     a0 thread a1
     a0& ppoll 60000 s0:POLLIN
     a1 close s0
     a1 socket s1 AF_INET 0
     a1 bind s1 0.0.0.0 7001
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7000 id=190142490 len=8
     a1 poll 1000 77:POLLIN
     join a0
     frame udp src=10.9.0.2 dst=10.9.0.1 sport=4000 dport=7001 id=190142491 len=9
     a1 recv s1 2000 MSG_DONTWAIT",
    "a0 socket s0 AF_INET 0
     a0 bind s0 10.9.0.11 7000
     a0 thread a1 20480
     a0& recv_chk s0 6 0
     a1 setsockopt s0 SOL_SOCKET SO_RCVBUF 20000
     frame udp src=10.9.0.2 dst=10.9.0.11 sport=4000 dport=7000 id=190142489 len=88
     join a0",
];

/// What becomes of a child that has the socket, and the steps.
const CHILDREN: [(&str, &str); 4] = [
    ("lives", "a0 fork a1"),
    ("is killed", "a0 fork a1\na0 signal a1 SIGKILL\na0 wait"),
    ("becomes another program", "a0 fork a1\na1 exec"),
    ("is not made", "a0 setuid\na0 no_forks\na0 fork a1"),
];
/// Looks after which a process knows of others that are gone.
const LOOKS: usize = 40;
/// Datagrams that come between two calls. On a machine that others use, some come when the ring is closed again.
const BETWEEN: u32 = 20;

/// For how long new scripts are begun; several run in a second.
const TIME: Duration = Duration::from_secs(75);

/// Seeds that are run at the same time: mostly they wait.
const WORKERS: usize = 3;

/// The library of this build: beside the tests, or a folder above.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folders = tests.ancestors().skip(1).take(2);
    let mut libraries = folders.map(|folder| folder.join("libtwinpath_preloader.so"));
    libraries.find(|library| library.is_file()).expect("cargo builds the library with the tests")
}

#[test]
fn a_ring_is_open_between_calls_if_no_child_has_the_socket() {
    if !root_or_skip() {
        return;
    }
    let mut twin = Twin::new(&library()).unwrap();
    for (how, fork) in CHILDREN {
        let mut steps = format!("a0 socket s0 AF_INET 0\na0 bind s0 0.0.0.0 7000\n{fork}\n");
        steps += &"a0 recv s0 2000 MSG_DONTWAIT\n".repeat(LOOKS);
        for id in 0..BETWEEN {
            steps += &format!("a0 poll 1000 s0:POLLIN\nframe udp dport=7000 id={id} len=20\n");
            steps += "a0 recv s0 2000 MSG_DONTWAIT\n";
        }
        let steps = steps.lines().map(str::to_owned).collect();
        let outcome = twin.run(&Script { mode: Mode::Poll, steps }, false).unwrap();
        assert!(outcome.difference.is_none() && !outcome.is_ended, "{how}: {outcome:#?}");
        println!("the child {how}: {} by the ring, {} by the kernel", outcome.by_ring, outcome.by_kernel);
        let expected = if how == "lives" { 0..1 } else { 1..u64::MAX };
        assert!(expected.contains(&outcome.by_ring), "{how}: {outcome:#?}");
    }
}

#[test]
fn a_program_sees_no_difference_between_a_plain_socket_and_a_leased_one() {
    if !root_or_skip() {
        return;
    }
    let mut twins: Vec<Twin> = (0..WORKERS).map(|_| Twin::new(&library()).unwrap()).collect();
    for steps in FOUND {
        let steps = steps.lines().map(str::trim).filter(|step| !step.is_empty()).map(str::to_owned).collect();
        let script = Script { mode: Mode::Poll, steps };
        let mut runs = std::iter::repeat_with(|| twins[0].run(&script, true).unwrap()).take(5);
        // On a busy machine, datagrams may wait where none is meant to, which an exception is for.
        let outcome = runs.find(|outcome| outcome.difference.is_some() || !outcome.is_ended);
        let outcome = outcome.expect("no exception ends it five times");
        assert!(outcome.difference.is_none() && !outcome.is_ended, "{outcome:#?}");
    }
    let totals = run(&mut twins, 0..u64::MAX, Some(Instant::now() + TIME), &[]).unwrap();
    println!("{totals}");
    // 1 in 300 scripts still differed in 20,000, each for a reason that is not found yet. Here, the machine is busy with other tests. This
    // bound is to fall, and never to rise. Few scripts have their share by chance.
    assert!(totals.failed <= 3 + totals.seeds / 100, "what differs is said above");
    assert!(
        totals.left.is_empty(),
        "owners hold descriptors for programs that have ended: {:?}",
        totals.left
    );
    // Otherwise nothing was compared with anything.
    let received = totals.by_ring + totals.by_kernel;
    assert!(totals.by_ring * 20 > received, "{} of {received} datagrams came by the ring", totals.by_ring);
}
