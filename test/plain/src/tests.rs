mod null;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread;

use twinpath_load::{Codec, Echo as Pattern, Limit, LoadConfig, Summary};
use twinpath_socket_load::socket::Source;
use twinpath_socket_load::{
    ClientConfig, EchoCounts, EchoMethod, Peers, Progress, SocketError, Stop, UdpEcho, Wait, tcp_client,
    udp_client,
};
use twinpath_sys::{Namespace, clock};
use twinpath_time::Duration;

use super::*;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAITS: [Wait; 3] = [Wait::Sleep, Wait::Spin, Wait::SpinThenSleep(Duration::from_micros(50))];

fn udp_server(ip: IpAddr, wait: Wait, method: EchoMethod, peers: Peers) -> UdpEcho {
    UdpEcho::bind(SocketAddr::new(ip, 0), wait, method, peers).unwrap()
}

fn client(target: SocketAddr, wait: Wait, inflight: u32, count: u64) -> ClientConfig {
    let load = LoadConfig { inflight, limit: Limit::Count(count), ..LoadConfig::default() };
    ClientConfig {
        target,
        wait,
        load,
        batch: false,
        segments: false,
        nagle: false,
        source: Source::Any,
        cpu: None,
    }
}

fn echo(len: usize) -> Box<dyn Codec> {
    Box::new(Pattern::new(len, 42).unwrap())
}

/// Runs a server while `ask` runs, then stops it; returns what it counted.
fn beside<T>(
    run: impl FnOnce(&Stop) -> Result<EchoCounts, SocketError> + Send,
    ask: impl FnOnce() -> T,
) -> (EchoCounts, T) {
    let stop = Stop::new();
    thread::scope(|scope| {
        let server = scope.spawn(|| run(&stop).unwrap());
        let asked = ask();
        stop.request();
        (server.join().unwrap(), asked)
    })
}

/// Loopback has no queue that could be polled. The server answers nevertheless, spinning or sleeping, and stops on
/// request.
#[test]
fn a_busy_polling_server_answers_without_a_pollable_device() {
    for busy_poll_us in [0, 50] {
        let server = match BusyPollEcho::bind(SocketAddr::new(LOCAL, 0), busy_poll_us) {
            Err(SocketError::Option { option: "EPIOCSPARAMS", source }) => {
                return twinpath_test_rig::skip(source);
            }
            server => server.unwrap(),
        };
        let config = client(server.address(), Wait::Sleep, 16, 200);
        let (counts, outcome) = beside(
            |stop| server.run(stop),
            || udp_client(&config, echo(64), &Stop::new(), &Progress::default()).unwrap(),
        );
        assert_eq!((outcome.summary.received, outcome.summary.corrupt), (200, 0));
        assert_eq!(counts, EchoCounts { received: 200, sent: 200, refused: 0 });
    }
}

#[test]
fn a_paced_wake_up_is_recorded_once_per_signal_after_the_warm_up() {
    let allowed = twinpath_sys::affinity::allowed_cpus().unwrap();
    let [Some(from), Some(to)] = [allowed.first(), allowed.get(1)].map(|cpu| cpu.copied()) else {
        return twinpath_test_rig::skip("one CPU only");
    };
    let pace = Pace {
        rate_per_s: 1000.0,
        arrivals: twinpath_load::Arrivals::Jittered(0.03),
        seed: 1,
        warmup: Duration::from_millis(50),
        length: Duration::from_millis(100),
    };
    // On a busy machine the signalling thread may be late: several signals become one wake-up, or none of a run finds
    // the other thread asleep. So this asks for one wake-up in any of the runs until the deadline.
    let deadline = clock::now() + Duration::from_secs(60);
    let woken = loop {
        let woken = paced_wake(from, to, &pace, &Stop::new()).unwrap();
        assert!(woken.len() <= 101, "{}", woken.len());
        if !woken.is_empty() {
            break woken;
        }
        assert!(clock::now() < deadline, "no signal woke the thread");
    };
    assert!(woken.max() < 10_000_000_000);
    let stopped = Stop::new();
    stopped.request();
    assert!(paced_wake(from, to, &pace, &stopped).unwrap().is_empty());
}

#[test]
fn both_tcp_servers_answer_pipelined_and_huge_requests() {
    for wait in WAITS {
        for (inflight, payload_len, batch) in
            [(1, 64, false), (64, 64, false), (64, 64, true), (64, 65_507, false), (64, 65_507, true)]
        {
            let server = TcpEcho::bind(SocketAddr::new(LOCAL, 0), wait).unwrap();
            let mut config = client(server.address(), wait, inflight, 300);
            config.batch = batch;
            config.load.loss_timeout = Duration::from_secs(30);
            let (_, outcome) = beside(
                |stop| server.run(stop),
                || tcp_client(&config, echo(payload_len), &Stop::new(), &Progress::default()).unwrap(),
            );
            let Summary { sent, received, corrupt, .. } = outcome.summary;
            assert_eq!((sent, received, corrupt), (300, 300, 0), "{wait:?} {inflight} of {payload_len}");
        }
    }
}

#[test]
fn a_stop_wakes_sleeping_threads() {
    let stop = Stop::new();
    let (asleep, is_asleep) = mpsc::channel();
    thread::scope(|scope| {
        for wait in WAITS {
            let (stop, asleep) = (&stop, asleep.clone());
            scope.spawn(move || {
                let server = TcpEcho::bind(SocketAddr::new(LOCAL, 0), wait).unwrap();
                asleep.send(()).unwrap();
                server.run(stop).unwrap();
            });
        }
        WAITS.iter().for_each(|_| is_asleep.recv().unwrap());
        stop.request();
    });
}

/// Results up to the stop are kept: an interrupted run is still a result.
#[test]
fn a_stop_in_mid_run_is_no_error() {
    for wait in WAITS {
        for is_udp in [true, false] {
            let udp = udp_server(LOCAL, Wait::Sleep, EchoMethod::Single, Peers::Any);
            let tcp = TcpEcho::bind(SocketAddr::new(LOCAL, 0), wait).unwrap();
            let target = if is_udp { udp.address() } else { tcp.address() };
            let config = client(target, wait, 4, u64::MAX);
            let ask = if is_udp { udp_client } else { tcp_client };
            let (stop, progress) = (Stop::new(), Progress::default());
            let run = |stop: &Stop| if is_udp { udp.run(stop) } else { tcp.run(stop) };
            let (_, outcome) = beside(run, || {
                thread::scope(|scope| {
                    let asking = scope.spawn(|| ask(&config, echo(64), &stop, &progress));
                    while progress.answered() < 100 && !asking.is_finished() {
                        thread::yield_now();
                    }
                    stop.request();
                    asking.join().unwrap()
                })
            });
            let summary = outcome.unwrap().summary;
            assert!(summary.received >= 100 && summary.corrupt == 0, "{wait:?} udp {is_udp}: {summary:?}");
            assert_eq!(summary.sent, summary.received + summary.lost + summary.unanswered);
        }
    }
}

#[test]
fn a_ping_pong_counts_its_rounds() {
    let cpus = twinpath_sys::affinity::allowed_cpus().unwrap();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let histogram = eventfd_pingpong(first, last, Limit::Count(100), Wait::Sleep, &Stop::new()).unwrap();
    assert_eq!(histogram.len(), 100);
    let stopped = Stop::new();
    stopped.request();
    let histogram = eventfd_pingpong(first, last, Limit::Count(u64::MAX / 2), Wait::Sleep, &stopped).unwrap();
    assert!(histogram.is_empty());
    for (cpu_a, cpu_b) in [(100_000, first), (first, 100_000)] {
        let refused = eventfd_pingpong(cpu_a, cpu_b, Limit::Count(1), Wait::Sleep, &Stop::new());
        assert!(matches!(refused, Err(PlainError::Affinity(_))), "{refused:?}");
    }
    assert_eq!(twinpath_sys::affinity::allowed_cpus().unwrap(), cpus);
}

#[test]
fn the_programs_at_tc_attach_beside_each_other_and_errors_name_the_interface() {
    const LOOPBACK: u32 = 1;
    let namespace = match Namespace::new() {
        Err(error) => return twinpath_test_rig::skip(error),
        Ok(namespace) => namespace,
    };
    let attach = || {
        let echo = TcMirror::attach(LOOPBACK, 7).unwrap();
        let drop_all = TcMirror::drop_all(LOOPBACK, 7).unwrap();
        let joined = [false, true].map(|past| TcRedirect::attach([LOOPBACK; 2], past).unwrap());
        drop((echo, drop_all, joined));
        let missing = [TcMirror::attach(9999, 7).err(), TcRedirect::attach([9999, LOOPBACK], false).err()];
        missing.map(|error| error.unwrap().to_string())
    };
    for error in namespace.run(attach).unwrap() {
        assert!(error.contains("tc of interface 9999: "), "{error}");
    }
}
