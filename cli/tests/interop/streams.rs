//! Tests of the services for streams, discard and chargen, on both paths.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::rig::{CLIENT, CLSACT, PACKET, PATIENCE, Rig, SERVER, ask};
use crate::root_or_skip;

const PORT: u16 = 7009;

/// A datagram of a measured stream: kind 1 is data, 2 a question.
fn datagram(kind: u8, session: u64, number: u64, len: usize) -> Vec<u8> {
    let mut datagram = b"twinpath stream".to_vec();
    datagram.push(kind);
    datagram.extend(session.to_be_bytes());
    datagram.extend(number.to_be_bytes());
    datagram.resize(len, 0);
    datagram
}

fn connect(rig: &Rig, port: u16) -> TcpStream {
    let stream = rig.client.run(|| TcpStream::connect((SERVER, port))).expect("entered").expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

#[test]
fn discard_drops_everything_and_says_what_arrived_of_a_stream() {
    if !root_or_skip() {
        return;
    }
    for path in [PACKET, CLSACT, &["--path", "xdp"], &["--path", "kernel"]] {
        let rig = Rig::new();
        let port = PORT.to_string();
        let base = ["discard", "--on", "vs", "--udp", &port, "--tcp", &port];
        let server = rig.start(&[&base, path].concat());
        let socket = rig.client_udp(CLIENT, 0);
        for sequence in [0, 1, 3, 2] {
            socket.send_to(&datagram(1, 7, sequence, 100), (SERVER, PORT)).expect("sent");
        }
        socket.send_to(b"anything", (SERVER, PORT)).expect("sent");
        let answer = ask(&socket, SERVER, PORT, &datagram(2, 7, 5, 72));
        assert_eq!(answer[..32], datagram(3, 7, 5, 32), "{path:?}");
        let words: Vec<u64> =
            answer[32..].chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[..4], [4, 400, 3, 1], "{path:?}: datagrams, bytes, highest, out of order");
        let mut stream = connect(&rig, PORT);
        stream.write_all(&vec![0; 1 << 20]).expect("taken");
        stream.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(stream.read(&mut [0; 8]).expect("closed in time"), 0, "{path:?}: nothing comes back");
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn chargen_sends_for_as_long_as_the_peer_reads() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.start(&["chargen", "--on", "vs", "--tcp", "7019"]);
    let mut stream = connect(&rig, 7019);
    let mut bytes = vec![0; 4 << 20];
    stream.read_exact(&mut bytes).expect("as much as is read");
    assert!(bytes.starts_with(b" !\"#$%&'()*+,-./0123456789"));
    let (period, repeats) = (74 * 95, bytes.len() / (74 * 95));
    assert!((1..repeats).all(|at| bytes[at * period..][..period] == bytes[..period]));
    drop(stream);
    assert_eq!(server.interrupt(), Some(0));
    let refused = rig.try_start(&["chargen", "--on", "vs", "--tcp", "7019", "--udp", "7019"]);
    assert!(refused.err().is_some_and(|said| said.contains("chargen is served over TCP only")));
}
