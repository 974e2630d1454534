//! Reflexes while processes stop and are killed, modes and rules change, and senders forge.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::{XDP_CLSACT, ask_until_reflex, figure, nothing_waits, with_modes};
use crate::fail_open::{FAIL_OPEN_MS, waiting_in_the_kernel};
use crate::reload::{reloaded, until_nobody_has};
use crate::rig::{CLIENT, CLSACT, PACKET, PORT, Rig, SERVER, Server, XDP, ask, kill, receive, until};
use crate::root_or_skip;
use crate::several::serve;
use crate::trouble::{OTHER_PORT, RATE, forged};

/// Says, if the test fails, where its requests have gone.
pub(super) struct Tells<'a>(pub(super) &'a Server);

impl Drop for Tells<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for topic in ["drops", "workers", "services", "interfaces", "rules"] {
                eprintln!("{topic}: {}", self.0.try_show(topic));
            }
        }
    }
}

/// All requests that were counted, by whom they were answered.
pub(super) fn counted(server: &Server) -> u64 {
    ["reflex_replies", "fast_requests", "kernel_requests"].map(|name| figure(server, name)).iter().sum()
}

/// Takes the answers that are there, or come within the socket's time, and counts them by the request's number.
fn listen(socket: &UdpSocket, answers: &mut BTreeMap<u32, u32>) {
    let mut buffer = [0; 64];
    while let Ok((4, _)) = socket.recv_from(&mut buffer) {
        *answers.entry(u32::from_be_bytes(*buffer.first_chunk().unwrap())).or_default() += 1;
    }
}

#[test]
fn a_process_that_is_stopped_loses_its_reflexes_to_the_kernel_and_has_them_again() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes([PACKET, XDP]) {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--mode", mode, "--fail-open-ms", FAIL_OPEN_MS]].concat());
        let tells = Tells(&server);
        let first = rig.client_udp(CLIENT, 4000);
        ask_until_reflex(&first, SERVER, &server);
        let socket = rig.client_udp(CLIENT, 4001);
        // The time between two requests, long enough that all fit into the buffers of a stopped process.
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (mut asked, mut answers) = (0u32, BTreeMap::new());
        let dropped_before = server.drops("worker_stuck");
        // A worker that spins says only from time to time that nothing waits for it. If it is stopped before it does, the
        // programs find it stuck although nothing has been handed over since. Then nothing is dropped.
        until("what had been handed over is dropped", || {
            let mut asks = || {
                socket.send_to(&asked.to_be_bytes(), (SERVER, PORT)).unwrap();
                asked += 1;
                listen(&socket, &mut answers);
            };
            kill_process(server.pid(), Signal::STOP).unwrap();
            // Until a canary has waited for so long, the programs answer.
            until("the kernel's socket gets requests", || {
                asks();
                waiting_in_the_kernel(&rig) > 0
            });
            (0..20).for_each(|_| asks());
            kill_process(server.pid(), Signal::CONT).unwrap();
            let last = asked - 1;
            until("what the kernel took is answered", || {
                listen(&socket, &mut answers);
                answers.contains_key(&last)
            });
            ask_until_reflex(&first, SERVER, &server);
            let mut dropped = 0;
            until("nothing is lost unseen", || {
                listen(&socket, &mut answers);
                dropped = server.drops("worker_stuck") - dropped_before;
                answers.len() as u64 + dropped == u64::from(asked)
            });
            assert!(answers.values().all(|count| *count == 1), "{mode}: answered twice: {answers:?}");
            dropped > 0
        });
        drop(tells);
        let reasons = server.show("interfaces")[0]["reflexes"]["not_replied"].to_string();
        assert!(reasons.contains("worker_stuck"), "{mode}: {reasons}");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn several_workers_have_canaries_and_each_request_has_one_answer() {
    if !root_or_skip() {
        return;
    }
    for way in [PACKET, XDP] {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--workers", "2", "--mode", "interrupt"]].concat());
        let mut asked = 0;
        until("both workers have got some, and programs have answered", || {
            // The kernel distributes flows to them.
            let socket = rig.client_udp(CLIENT, 0);
            for _ in 0..16 {
                asked += 1;
                let number = u64::to_be_bytes(asked);
                assert_eq!(ask(&socket, SERVER, PORT, &number), number);
            }
            nothing_waits(&socket);
            let workers = server.show("workers");
            let got = |worker: usize| workers[worker]["frames_in"].as_u64().unwrap() > 0;
            got(0) && got(1) && figure(&server, "reflex_replies") > 200
        });
        until("each is counted once", || counted(&server) == asked);
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// The worker's direct ring is open while it spins, and its socket is there while it sleeps: the filter decides in one case, the
/// program at tc in the other.
#[test]
fn while_the_worker_changes_its_mode_under_load_each_request_has_one_answer() {
    if !root_or_skip() {
        return;
    }
    for way in [PACKET, CLSACT, XDP] {
        let rig = Rig::new();
        let server = rig.serve(way);
        let tells = Tells(&server);
        let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let sockets = [4000, 4001].map(|port| rig.client_udp(CLIENT, port));
        std::thread::scope(|scope| {
            for socket in &sockets {
                scope.spawn(|| asks_until(socket, &answered, &over));
            }
            let _ends = Ends(&over);
            for mode in ["poll", "interrupt", "poll", "adaptive"].repeat(5) {
                let target = server.socket.to_str().unwrap();
                let set =
                    rig.twinpath(&rig.server, &["set", "worker", "0", "mode", mode, "--socket", target]);
                assert_eq!(set.code, Some(0), "{}", set.stderr);
                let before = answered.load(Ordering::Relaxed);
                until("the load goes on", || answered.load(Ordering::Relaxed) > before + 100);
            }
        });
        sockets.iter().for_each(nothing_waits);
        assert!(figure(&server, "reflex_replies") > 0);
        until("each is counted once", || counted(&server) == answered.load(Ordering::Relaxed));
        drop(tells);
        assert_eq!(server.interrupt(), Some(0));
    }
}

pub(super) fn asks_until(socket: &UdpSocket, answered: &AtomicU64, over: &AtomicBool) {
    for number in 0u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        // A second answer would be taken for the next one.
        assert_eq!(ask(socket, SERVER, PORT, &number.to_be_bytes()), number.to_be_bytes());
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) struct Ends<'a>(pub(super) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_reflex_outlives_a_process_that_is_killed() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes([PACKET, CLSACT, XDP, XDP_CLSACT]) {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--mode", mode]].concat());
        let target = format!("{SERVER}:{PORT}");
        // Longer than any step takes on a slow machine: this test ends it.
        let load = ["bench", "echo", &target, "--duration", "600", "--timeout", "1", "--json"];
        let load = rig.run(&rig.client, env!("CARGO_BIN_EXE_twinpath"), &load);
        until("programs answer the load", || figure(&server, "reflex_replies") > 100);
        server.kill();
        // A plain kernel server on the same port gets all datagrams from now on.
        let plain = rig.server_udp(SERVER, PORT);
        for _ in 0..3 {
            receive(&plain, &mut [0; 2048]).expect("the flow is the kernel's again");
        }
        kill(load);
    }
}

#[test]
fn a_change_of_sources_or_of_services_ends_their_reflexes() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "xdp"] {
        let rig = Rig::new();
        rig.unlimited_icmp();
        let with = |more: &str| {
            format!(
                "[interface]\nname = \"vs\"\npath = \"{path}\"\n[worker]\nmode = \"interrupt\"\n\
             [[service]]\nname = \"echo\"\nkind = \"echo\"\nudp = {PORT}\n{more}"
            )
        };
        let server = serve(&rig, &with(""));
        let socket = rig.client_udp(CLIENT, 4000);
        ask_until_reflex(&socket, SERVER, &server);
        reloaded(&rig, &server, &with("sources = [\"10.7.0.0/24\"]\n"));
        ask_until_reflex(&socket, SERVER, &server);
        reloaded(&rig, &server, &with("sources = [\"192.0.2.0/24\"]\n"));
        let before = figure(&server, "reflex_replies");
        let refused = server.drops("source_not_allowed");
        for _ in 0..20 {
            socket.send_to(b"not any more", (SERVER, PORT)).unwrap();
        }
        until("each is refused", || server.drops("source_not_allowed") >= refused + 20);
        assert_eq!(figure(&server, "reflex_replies"), before);
        nothing_waits(&socket);
        reloaded(&rig, &server, &with(""));
        ask_until_reflex(&socket, SERVER, &server);
        // The service gets another port: nobody answers at the former one.
        reloaded(&rig, &server, &with("").replace(&PORT.to_string(), &OTHER_PORT.to_string()));
        let before = figure(&server, "reflex_replies");
        until_nobody_has(&rig, PORT);
        assert_eq!(figure(&server, "reflex_replies"), before);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn two_mirrors_that_one_forged_datagram_sets_on_each_other_stop() {
    if !root_or_skip() {
        return;
    }
    for path in ["packet", "xdp"] {
        let rig = Rig::new();
        let serve = |namespace, name, port: u16| {
            let (port, rate) = (port.to_string(), RATE.to_string());
            let arguments = ["serve", "echo", "--on", name, "--udp", &port, "--path", path];
            let limits = ["--mode", "interrupt", "--reply-rate", &rate];
            rig.try_launch_in(namespace, &[&arguments[..], &limits].concat()).expect("it serves")
        };
        let near = serve(&rig.server, "vs", PORT);
        let far = serve(&rig.client, "vc", OTHER_PORT);
        // Each needs to know the way to the other one.
        until("programs reply", || {
            let before = near.drops("reply_rate") + far.drops("reply_rate");
            rig.client_frames(0x0800).send(&forged(&rig)).unwrap();
            until("the loop is over, and counted", || {
                near.drops("reply_rate") + far.drops("reply_rate") > before
            });
            figure(&near, "reflex_replies") > 0 && figure(&far, "reflex_replies") > 0
        });
        let since = Instant::now();
        let before = counted(&near);
        let dropped = near.drops("reply_rate") + far.drops("reply_rate");
        rig.client_frames(0x0800).send(&forged(&rig)).unwrap();
        until("the loop is over, and counted", || {
            near.drops("reply_rate") + far.drops("reply_rate") > dropped
        });
        // Programs and the worker have a limit each, with a burst of a fifth of a second.
        let (over, allowed) = (counted(&near) - before, 2 * RATE * (since.elapsed().as_secs() + 2));
        assert!(over <= allowed, "{over} of {allowed}");
        assert_eq!((near.interrupt(), far.interrupt()), (Some(0), Some(0)));
    }
}

#[test]
fn a_flood_of_forged_sources_takes_no_reflexes_from_an_honest_peer() {
    if !root_or_skip() {
        return;
    }
    for way in [PACKET, XDP] {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--mode", "interrupt"]].concat());
        // More peers than there is room for, each of them silent afterwards.
        rig.ip_client(&["route", "add", "local", "10.128.0.0/16", "dev", "lo"]);
        rig.ip_server(&["route", "add", "10.128.0.0/16", "via", CLIENT]);
        let honest = rig.client_udp(CLIENT, 0);
        ask_until_reflex(&honest, SERVER, &server);
        for number in 0..6_000u32 {
            let from = format!("10.128.{}.{}", number >> 8, number & 0xff);
            rig.client_udp(&from, 0).send_to(b"x", (SERVER, PORT)).unwrap();
            if number % 100 == 0 {
                assert_eq!(ask(&honest, SERVER, PORT, b"honest"), b"honest");
            }
        }
        let kernel = figure(&server, "kernel_requests");
        (0..100).for_each(|_| assert_eq!(ask(&honest, SERVER, PORT, b"honest"), b"honest"));
        let by_kernel = figure(&server, "kernel_requests") - kernel;
        assert!(by_kernel <= 5, "it keeps its way: {by_kernel} of 100 by the kernel");
        // And a reply by reflex comes still, or again.
        ask_until_reflex(&honest, SERVER, &server);
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// A filter counts as memory of its socket: before Linux 6.8 one may have 20 KiB by default.
#[test]
fn the_filters_of_sockets_are_as_small_as_linux_6_1_wants_them() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let limit = || std::fs::write("/proc/sys/net/core/optmem_max", "20480");
    if rig.server.run(limit).expect("entered").is_err() {
        return twinpath_test_rig::skip("this kernel has one limit for all namespaces");
    }
    // With several workers each filter calls what it does, which makes it longer.
    for several in [&[][..], &["--workers", "2"]] {
        let server = rig.serve(&[PACKET, several].concat());
        let socket = rig.client_udp(CLIENT, 4000);
        ask_until_reflex(&socket, SERVER, &server);
        assert_eq!(server.interrupt(), Some(0));
    }
}
