//! Tests that each datagram is answered once, and that the kernel serves each flow again after a kill, as `lab kni`
//! measures at length.

use std::net::SocketAddr;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use twinpath_socket_load::{EchoCounts, EchoMethod, Peers, Stop, UdpEcho, Wait};
use twinpath_test_plain::TcpEcho;
use twinpath_test_plain::fragments::{FragmentsConfig, FragmentsOutcome, ask_in_fragments};
use twinpath_test_plain::kill_watch::{KillWatch, KillWatchConfig};

use crate::rig::{Lateness, PORT, Rig, SERVER, SERVER_V6, SETUPS, kill, until};
use crate::root_or_skip;

#[test]
fn fragments_in_any_order_and_whole_datagrams_of_one_flow_are_answered_once() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        let server = rig.serve(way);
        let mut whole = 0;
        for (seed, target) in [(1, SERVER), (2, SERVER_V6)] {
            let target = SocketAddr::new(target.parse().unwrap(), PORT);
            let (_, mac) = rig.macs();
            let config = FragmentsConfig { interface: "vc", mac, target, datagrams: 60, seed };
            let outcome = rig.client.run(|| ask_in_fragments(&config)).unwrap().unwrap();
            let expected = FragmentsOutcome {
                sent: 60,
                frames: outcome.frames,
                answered_once: 60,
                whole_sent: 30,
                whole_answered_once: 30,
                ..FragmentsOutcome::default()
            };
            assert_eq!(outcome, expected, "{path} {target}");
            whole += outcome.whole_sent;
        }
        assert_eq!(server.worker("frames_in"), whole, "{path}: whole datagrams came by the fast path");
        assert_eq!(server.worker("kernel_requests"), 120, "{path}: the others by the kernel");
    }
}

/// Plain kernel servers of echo in the server's namespace, until dropped.
struct Plain {
    stop: Stop,
    serving: Vec<JoinHandle<EchoCounts>>,
}

impl Plain {
    fn serve(rig: &Rig, udp: SocketAddr, tcp: SocketAddr) -> Self {
        let stop = Stop::new();
        let method = EchoMethod::Single;
        let udp = rig.server.run(|| UdpEcho::bind(udp, Wait::Sleep, method, Peers::Any)).unwrap().unwrap();
        let tcp = rig.server.run(|| TcpEcho::bind(tcp, Wait::Sleep)).unwrap().unwrap();
        let (for_udp, for_tcp) = (stop.clone(), stop.clone());
        let serving =
            vec![spawn(move || udp.run(&for_udp).unwrap()), spawn(move || tcp.run(&for_tcp).unwrap())];
        Self { stop, serving }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.stop.request();
        self.serving.drain(..).for_each(|thread| _ = thread.join());
    }
}

#[test]
fn a_kill_under_load_gives_every_flow_to_the_kernel_and_resets_nothing() {
    if !root_or_skip() {
        return;
    }
    for way in SETUPS {
        let path = way[1];
        let rig = Rig::of_workers();
        rig.unlimited_icmp();
        let plain = |port: u16| SocketAddr::new(SERVER.parse().unwrap(), port);
        let (udp, tcp) = (plain(PORT + 1), plain(PORT + 2));
        let _plain = Plain::serve(&rig, udp, tcp);
        let claimed = [SERVER, SERVER_V6].map(|ip| SocketAddr::new(ip.parse().unwrap(), PORT)).to_vec();
        let config = KillWatchConfig { claimed, udp, tcp };
        let mut watch = rig.client.run(|| KillWatch::open(&config)).unwrap().unwrap();
        let target = format!("{SERVER}:{PORT}");
        // Longer than any step takes on a slow machine, which it would give up otherwise: this test ends it.
        let load = ["bench", "echo", &target, "--duration", "600", "--timeout", "60", "--json"];
        for _ in 0..3 {
            let mut server = rig.serve(&[way, &["--mode", "poll"]].concat());
            let load = rig.run(&rig.client, env!("CARGO_BIN_EXE_twinpath"), &load);
            until("the load has begun", || server.worker("frames_in") > 100);
            let lateness = Lateness::measure();
            let felt = watch.kill(server.child.id()).unwrap();
            let most = lateness.allows(Duration::from_secs(2));
            assert_eq!(felt.flows.len(), 4);
            // The target is 50 ms on a quiet machine; here other tests run at the same time.
            assert!(felt.worst() < most, "{path}: {felt:?} of {most:?}");
            kill(load);
            server.child.wait().unwrap();
        }
    }
}
