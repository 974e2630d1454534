//! Tests of the bare RPC servers, and of the connections that burden a server.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::rpc_null::{RECORD_BYTES, REPLY, null_call};

fn reply(xid: u32) -> Vec<u8> {
    [xid.to_be_bytes().as_slice(), &REPLY[4..]].concat()
}

fn replies(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * RECORD_BYTES];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn expected(xids: std::ops::Range<u32>) -> Vec<u8> {
    xids.flat_map(|xid| [&[0x80, 0, 0, 24], &reply(xid)[..]].concat()).collect()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream
}

#[test]
fn every_call_over_tcp_gets_its_reply_in_order() {
    for wait in WAITS {
        let server = TcpNull::bind(SocketAddr::new(LOCAL, 0), wait).unwrap();
        let address = server.address();
        let (counts, ()) = beside(
            |stop| server.run(stop),
            || {
                let mut bytewise = connect(address);
                for byte in null_call(5) {
                    bytewise.write_all(&[byte]).unwrap();
                }
                assert_eq!(replies(&mut bytewise, 1), expected(5..6));
                // More than the server reads at once, and more replies than the kernel buffers while nobody reads.
                let mut stream = connect(address);
                let calls: Vec<u8> = (0..50_000).flat_map(null_call).collect();
                let sender = stream.try_clone().unwrap();
                thread::scope(|scope| {
                    scope.spawn(|| (&sender).write_all(&calls).unwrap());
                    assert!(replies(&mut stream, 50_000) == expected(0..50_000), "{wait:?}");
                });
            },
        );
        assert_eq!(counts, EchoCounts { received: 50_001, sent: 50_001, refused: 0 }, "{wait:?}");
    }
}

#[test]
fn every_call_over_udp_gets_its_reply_once() {
    for wait in [Wait::Sleep, Wait::Spin] {
        for method in [EchoMethod::Single, EchoMethod::Batch(64), EchoMethod::Segments(64)] {
            for peers in [Peers::Any, Peers::First] {
                let server = UdpNull::bind(SocketAddr::new(LOCAL, 0), wait, method, peers).unwrap();
                let address = server.address();
                let (counts, seen) = beside(
                    |stop| server.run(stop),
                    || {
                        let socket = UdpSocket::bind((LOCAL, 0)).unwrap();
                        socket.connect(address).unwrap();
                        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
                        for xid in 0..40 {
                            // The sizes of calls with and without credentials.
                            let call = [&null_call(xid)[4..], &vec![0; (xid as usize / 7) * 12]].concat();
                            socket.send(&call).unwrap();
                        }
                        let mut seen = BTreeSet::new();
                        let mut buffer = [0; 2048];
                        for _ in 0..40 {
                            let len = socket.recv(&mut buffer).unwrap();
                            seen.insert(buffer[..len].to_vec());
                        }
                        seen
                    },
                );
                let what = format!("{wait:?} {method:?} {peers:?}");
                assert_eq!(seen, (0..40).map(reply).collect(), "{what}");
                assert_eq!(counts, EchoCounts { received: 40, sent: 40, refused: 0 }, "{what}");
            }
        }
    }
}

/// The server keeps replies for the connection that never reads, and serves the other one.
#[test]
fn burdening_connections_are_held_until_the_stop() {
    for (holding, connections) in [(Holding::Idle, 60), (Holding::NeverReads, 3)] {
        let server = TcpNull::bind(SocketAddr::new(LOCAL, 0), Wait::Sleep).unwrap();
        let address = server.address();
        let (_, held) = beside(
            |stop| server.run(stop),
            || {
                let stop = Stop::new();
                let (ready, is_ready) = mpsc::channel();
                thread::scope(|scope| {
                    let (ours, ready) = (&stop, ready);
                    let holder = scope.spawn(move || {
                        let note = |held: &Held| ready.send(*held).unwrap();
                        tcp_hold(address, connections, holding, ours, note).unwrap()
                    });
                    let begun = is_ready.recv().unwrap();
                    assert_eq!((begun.connections, begun.closed), (connections, 0));
                    assert_eq!(begun.sent_bytes > 1 << 16, holding == Holding::NeverReads, "{begun:?}");
                    let mut other = connect(address);
                    other.write_all(&null_call(9)).unwrap();
                    assert_eq!(replies(&mut other, 1), expected(9..10));
                    stop.request();
                    holder.join().unwrap()
                })
            },
        );
        assert_eq!((held.connections, held.closed), (connections, 0), "{holding:?}");
    }
}
