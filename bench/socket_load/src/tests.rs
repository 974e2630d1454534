use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

use twinpath_load::{Codec, Echo as Pattern, Limit, LoadConfig, Summary};
use twinpath_time::Duration;

use super::*;
use crate::burst::{Burst, receive_coalesced};
use crate::socket::Source;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOCAL_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
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

#[test]
fn requests_leave_at_once_unless_they_may_wait() {
    let (_listener, address) = crate::socket::listen_tcp(SocketAddr::new(LOCAL, 0)).unwrap();
    for nagle in [false, true] {
        let socket = crate::socket::connect_tcp(address, Source::Any, nagle).unwrap();
        assert_eq!(rustix::net::sockopt::tcp_nodelay(socket).unwrap(), !nagle);
    }
}

/// Only with the right to bind it; whoever has none is told so.
#[test]
fn a_reserved_port_is_below_1024() {
    let listener = std::net::TcpListener::bind((LOCAL, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    let tcp =
        || crate::socket::tcp_from(target, Source::Reserved)?.local_addr().map_err(SocketError::Receive);
    let udp =
        || crate::socket::udp_from(target, Source::Reserved)?.local_addr().map_err(SocketError::Receive);
    for local in [tcp(), udp()] {
        match local {
            Ok(local) => assert!((600..1024).contains(&local.port()), "{local}"),
            Err(SocketError::Bind { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied, "{source}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn every_udp_server_answers_every_request_once() {
    for wait in WAITS {
        for method in [EchoMethod::Single, EchoMethod::Batch(64), EchoMethod::Segments(64)] {
            for (peers, ip) in [(Peers::Any, LOCAL), (Peers::First, LOCAL), (Peers::Any, LOCAL_V6)] {
                let server = udp_server(ip, wait, method, peers);
                let config = client(server.address(), wait, 16, 200);
                let (counts, outcome) = beside(
                    |stop| server.run(stop),
                    || udp_client(&config, echo(64), &Stop::new(), &Progress::default()).unwrap(),
                );
                let what = format!("{wait:?} {method:?} {peers:?} {ip}");
                let Summary { sent, received, lost, corrupt, duplicates, .. } = outcome.summary;
                assert_eq!((sent, received, lost, corrupt, duplicates), (200, 200, 0, 0, 0), "{what}");
                assert_eq!(counts, EchoCounts { received: 200, sent: 200, refused: 0 }, "{what}");
            }
        }
    }
}

#[test]
fn a_client_of_segments_gets_each_reply_once() {
    for (len, ip, inflight) in [(64, LOCAL, 200), (1200, LOCAL_V6, 1), (1200, LOCAL, 128)] {
        for method in [EchoMethod::Single, EchoMethod::Batch(64), EchoMethod::Segments(64)] {
            let server = udp_server(ip, Wait::Sleep, method, Peers::Any);
            let mut config = client(server.address(), Wait::SpinThenSleep(Duration::ZERO), inflight, 300);
            (config.batch, config.segments) = (true, true);
            let progress = Progress::default();
            let (_, outcome) = beside(
                |stop| server.run(stop),
                || udp_client(&config, echo(len), &Stop::new(), &progress).unwrap(),
            );
            let Summary { sent, received, lost, corrupt, duplicates, .. } = outcome.summary;
            let what = format!("{method:?} {len} {ip} {inflight}");
            assert_eq!((sent, received, lost, corrupt, duplicates), (300, 300, 0, 0, 0), "{what}");
            assert_eq!(progress.answered(), 300, "{what}");
        }
    }
}

#[test]
fn segments_cross_as_one_message_each_way() {
    let (socket, address) = crate::socket::bind_udp(SocketAddr::new(LOCAL, 0)).unwrap();
    receive_coalesced(&socket).unwrap();
    crate::socket::set_receive_timeout(&socket, Duration::from_secs(10)).unwrap();
    let mut config = client(address, Wait::Sleep, 64, 64);
    (config.batch, config.segments) = (true, true);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut burst = Burst::new(1, DATAGRAM_BYTES);
            assert_eq!(burst.receive(socket.as_fd(), false, true, true), Ok(1));
            assert_eq!((burst.payload(0).len(), burst.segment_size(0)), (64 * 100, 100));
            burst.send_segmented(socket.as_fd(), 0..1, 100, true).unwrap();
        });
        let outcome = udp_client(&config, echo(100), &Stop::new(), &Progress::default()).unwrap();
        assert_eq!(outcome.summary.received, 64);
    });
}

#[test]
fn an_open_loop_keeps_its_rate() {
    for wait in WAITS {
        let server = udp_server(LOCAL, Wait::Sleep, EchoMethod::Single, Peers::Any);
        let mut config = client(server.address(), wait, 64, 200);
        config.load.rate_per_s = Some(2000.0);
        let progress = Progress::default();
        let (_, outcome) = beside(
            |stop| server.run(stop),
            || udp_client(&config, echo(64), &Stop::new(), &progress).unwrap(),
        );
        assert_eq!((outcome.summary.received, progress.answered()), (200, 200));
        // The last of 200 is due after 99.5 ms. On a busy machine it may take longer, but never less.
        assert!(outcome.summary.elapsed >= Duration::from_micros(99_500), "{:?}", outcome.summary.elapsed);
    }
}

/// Consecutive datagrams of equal size are coalesced; another size, another peer, an empty or a large datagram is
/// not.
#[test]
fn segments_keep_datagrams_apart() {
    let server = udp_server(LOCAL, Wait::Sleep, EchoMethod::Segments(64), Peers::Any);
    let target = server.address();
    let peers: Vec<UdpSocket> = (0..2)
        .map(|_| {
            let socket = UdpSocket::bind((LOCAL, 0)).unwrap();
            socket.connect(target).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        })
        .collect();
    let sizes = [100, 100, 40, 40, 40, 0, 0, 2000, 2000, 60_000, 7, 100, 99, 99];
    // All are sent before the server reads, so that it receives them in one burst.
    for (index, size) in sizes.iter().enumerate() {
        for (peer, socket) in peers.iter().enumerate() {
            socket.send(&vec![(2 * index + peer) as u8; *size]).unwrap();
        }
    }
    let (counts, ()) = beside(
        |stop| server.run(stop),
        || {
            let mut buffer = vec![0; 65_536];
            for (peer, socket) in peers.iter().enumerate() {
                for (index, size) in sizes.iter().enumerate() {
                    let len = socket.recv(&mut buffer).unwrap();
                    assert_eq!(buffer[..len], vec![(2 * index + peer) as u8; *size], "datagram {index}");
                }
            }
        },
    );
    assert_eq!(counts, EchoCounts { received: 28, sent: 28, refused: 0 });
}

#[test]
fn a_closed_port_is_reported_at_once() {
    let closed = UdpSocket::bind((LOCAL, 0)).unwrap().local_addr().unwrap();
    let config = client(closed, Wait::Sleep, 1, 1);
    let refused = format!("nothing listens on {closed}");
    for outcome in [
        udp_client(&config, echo(64), &Stop::new(), &Progress::default()),
        tcp_client(&config, echo(64), &Stop::new(), &Progress::default()),
    ] {
        assert!(outcome.unwrap_err().to_string().starts_with(&refused));
    }
}

#[test]
fn a_silent_server_is_given_up() {
    let silent = UdpSocket::bind((LOCAL, 0)).unwrap();
    let mut config = client(silent.local_addr().unwrap(), Wait::Sleep, 1, 1_000_000);
    config.load.loss_timeout = Duration::from_millis(10);
    let outcome = udp_client(&config, echo(64), &Stop::new(), &Progress::default()).unwrap();
    assert_eq!(outcome.summary.received, 0);
    // A client that was kept off its CPU for three loss time-outs ends before it counts the request as lost.
    assert!(outcome.summary.lost + outcome.summary.unanswered >= 1);
}

/// A faulty server: wrong bytes, a byte too many, an answer twice.
#[test]
fn wrong_answers_are_counted() {
    let liar = UdpSocket::bind((LOCAL, 0)).unwrap();
    let mut config = client(liar.local_addr().unwrap(), Wait::Sleep, 2, 2);
    config.load.loss_timeout = Duration::from_secs(10);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let mut request = [0; 65];
            for _ in 0..2 {
                let (_, client) = liar.recv_from(&mut request).unwrap();
                let mut wrong = request;
                wrong[40] ^= 1;
                liar.send_to(&wrong[..64], client).unwrap();
                liar.send_to(&request, client).unwrap();
                liar.send_to(&request[..64], client).unwrap();
                liar.send_to(&request[..64], client).unwrap();
            }
        });
        udp_client(&config, echo(64), &Stop::new(), &Progress::default()).unwrap()
    });
    let Summary { received, corrupt, lost, .. } = outcome.summary;
    assert_eq!((received, corrupt, lost), (2, 4, 0));
}

#[test]
fn bulk_counts_agree_at_both_ends() {
    let sink = TcpSink::bind(SocketAddr::new(LOCAL, 0)).unwrap();
    let target = sink.address();
    let stop = Stop::new();
    let (finished, counts) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| sink.run(&stop, |counts| finished.send(counts).unwrap()).unwrap());
        let times = [Duration::ZERO, Duration::from_millis(20)];
        let sent = tcp_bulk(target, times, None, &Stop::new()).unwrap();
        let received = counts.recv().unwrap();
        stop.request();
        assert!(sent.bytes > 0 && sent.bytes == received.bytes, "{sent:?} {received:?}");
        assert!(sent.bytes_per_s() > 0.0);
    });
}

#[test]
fn a_stop_wakes_sleeping_threads() {
    let silent = UdpSocket::bind((LOCAL, 0)).unwrap();
    let config = client(silent.local_addr().unwrap(), Wait::Sleep, 4, 1);
    let config =
        ClientConfig { load: LoadConfig { loss_timeout: Duration::from_secs(60), ..config.load }, ..config };
    let stop = Stop::new();
    let (asleep, is_asleep) = mpsc::channel();
    thread::scope(|scope| {
        for wait in WAITS {
            for method in [EchoMethod::Single, EchoMethod::Batch(8), EchoMethod::Segments(8)] {
                for peers in [Peers::Any, Peers::First] {
                    let (stop, asleep) = (&stop, asleep.clone());
                    scope.spawn(move || {
                        let server = udp_server(LOCAL, wait, method, peers);
                        asleep.send(()).unwrap();
                        assert_eq!(server.run(stop).unwrap(), EchoCounts::default());
                    });
                }
            }
        }
        scope.spawn(|| {
            let outcome = udp_client(&config, echo(64), &stop, &Progress::default()).unwrap();
            assert_eq!(outcome.summary.received, 0);
        });
        scope.spawn(|| TcpSink::bind(SocketAddr::new(LOCAL, 0)).unwrap().run(&stop, |_| {}).unwrap());
        // The client sleeps after its first request.
        silent.recv(&mut [0; 64]).unwrap();
        (0..18).for_each(|_| is_asleep.recv().unwrap());
        stop.request();
    });
    assert!(stop.is_requested());
}

/// Each of several coalesced datagrams is replaced by a reply, and shrinks to the reply's length.
#[test]
fn coalesced_datagrams_are_each_rewritten() {
    let write = |reply: &mut [u8]| reply[1..24].fill(7);
    let requests: Vec<u8> = (0..30).flat_map(|number| [number; 40]).collect();
    let mut burst = crate::burst::Burst::new(1, 4096);
    burst.payload_mut(0, requests.len()).copy_from_slice(&requests);
    burst.mark_coalesced(0, 40);
    burst.rewrite(0, 24, write);
    let replies: Vec<u8> = (0..30).flat_map(|number| [&[number][..], &[7; 23]].concat()).collect();
    assert_eq!(burst.payload(0), replies);
    assert_eq!(burst.segment_size(0), 24);
    // Segments smaller than a reply are no requests, and nothing is written beyond the received bytes.
    burst.payload_mut(0, 4090);
    burst.mark_coalesced(0, 8);
    burst.rewrite(0, 24, write);
    assert_eq!((burst.payload(0).len(), burst.segment_size(0)), (24, 0));
}
