//! Tests over loopback; they wait for the kernel with poll(2).

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// A socket and the peer's end of its connection.
fn pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_nodelay(true).unwrap();
    (Socket::new(listener.accept().unwrap().0.into()), peer)
}

/// Waits until the peer's bytes, or its end, have arrived.
fn wait_for(socket: &Socket) {
    let mut fds = [PollFd::new(&socket.fd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&PATIENCE)), Ok(1), "nothing has arrived");
}

#[test]
fn what_is_not_consumed_is_lent_again_with_what_follows() {
    let ((mut socket, mut peer), mut buffers) = (pair(), Buffers::new(CHUNK));
    let mut receive = |socket: &mut Socket, bytes_max: usize, used: usize| {
        let mut stream = socket.with(&mut buffers);
        let received = stream.receive(bytes_max);
        let lent = stream.received().to_vec();
        stream.consume(used);
        (received, lent)
    };
    let bytes = |len| Ok(Received::Bytes { len, more: false });
    assert_eq!(receive(&mut socket, CHUNK, 0), (Ok(Received::Nothing), vec![]));
    peer.write_all(b"abc").unwrap();
    wait_for(&socket);
    assert_eq!(receive(&mut socket, CHUNK, 3), (bytes(3), b"abc".to_vec()));
    assert_eq!(socket.held(), 0, "all of it is used");
    peer.write_all(b"def").unwrap();
    wait_for(&socket);
    assert_eq!(receive(&mut socket, CHUNK, 1), (bytes(3), b"def".to_vec()));
    assert_eq!(receive(&mut socket, CHUNK, 0), (Ok(Received::Nothing), b"ef".to_vec()));
    peer.write_all(b"ghi").unwrap();
    wait_for(&socket);
    assert_eq!(receive(&mut socket, CHUNK, 4), (bytes(3), b"efghi".to_vec()));
    assert!(socket.held() >= 1);
    peer.write_all(&[b'x'; 10]).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    wait_for(&socket);
    let (received, lent) = receive(&mut socket, 6, 0);
    assert_eq!((received, lent.as_slice()), (Ok(Received::Bytes { len: 5, more: true }), &b"ixxxxx"[..]));
    assert_eq!(receive(&mut socket, CHUNK, 11).0, bytes(5));
    assert_eq!(receive(&mut socket, CHUNK, 0), (Ok(Received::End), vec![]));
    assert_eq!(socket.held(), 0);
}

#[test]
fn a_long_request_is_moved_to_those_who_keep_it_and_a_short_one_copied() {
    /// As a WRITE of NFS.
    const LONG: usize = (1 << 20) + 200;
    let ((mut socket, mut peer), mut buffers) = (pair(), Buffers::new(CHUNK));
    let sent: Vec<u8> = (0..LONG + 100).map(|at| (at % 251) as u8).collect();
    let expected = sent.clone();
    let mut capacities = Vec::new();
    for behind in [0, 0, 100] {
        let bytes = sent[..LONG + behind].to_vec();
        let sends = std::thread::spawn(move || {
            peer.write_all(&bytes).unwrap();
            peer
        });
        let mut len = 0;
        while len < LONG + behind {
            wait_for(&socket);
            let mut stream = socket.with(&mut buffers);
            if let Ok(Received::Bytes { len: more, .. }) = stream.receive(4 << 20) {
                len += more;
            }
            stream.consume(0);
        }
        peer = sends.join().unwrap();
        let mut stream = socket.with(&mut buffers);
        let place = stream.received().as_ptr();
        capacities.push(stream.socket.held());
        let (taken, from) = stream.take(100, LONG);
        assert!(taken[from..] == expected[100..LONG]);
        assert_eq!((taken.as_ptr(), from), (place, 100), "it is the buffer");
        assert_eq!(stream.received().len(), behind);
        let (taken, from) = stream.take(10.min(behind), behind);
        assert_eq!(taken[from..], expected[LONG + 10.min(behind)..LONG + behind]);
        assert_eq!((from, socket.held()), (0, 0));
    }
    assert_eq!(capacities[1], LONG, "the second one had as much room as the one before, at once");
}

#[test]
fn the_peer_gets_what_was_committed_and_the_rest_stays_in_the_room() {
    let ((mut socket, mut peer), mut buffers) = (pair(), Buffers::new(1 << 20));
    let mut stream = socket.with(&mut buffers);
    assert_eq!(stream.reserve(10).len(), 10);
    assert_eq!(stream.reserve(usize::MAX).len(), 1 << 20);
    let mut number = 0_u8;
    let (mut committed, mut kept) = (Vec::new(), Vec::new());
    while kept.is_empty() {
        let room = stream.reserve(usize::MAX);
        room.fill(number);
        let sent = stream.commit(1 << 20).unwrap();
        kept = stream.reserve(1 << 20)[sent..].to_vec();
        committed.extend(vec![number; sent]);
        number += 1;
    }
    assert!(kept.iter().all(|byte| *byte == number - 1));
    assert_eq!(stream.send(&kept), Ok(0), "the peer reads nothing");
    assert!(stream.acknowledged() < committed.len() as u64, "its window is closed");
    let mut heard = vec![0; committed.len()];
    peer.read_exact(&mut heard).unwrap();
    assert!(heard == committed, "the bytes, in order");
    let mut fds = [PollFd::new(&stream.socket.fd, PollFlags::OUT)];
    assert_eq!(poll(&mut fds, Some(&PATIENCE)), Ok(1), "it takes no more");
    assert!(stream.send(b"the end").is_ok_and(|sent| sent == 7));
    stream.finish().unwrap();
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"the end");
    // The peer ends, too: with that, it acknowledges all that it has received.
    drop(peer);
    wait_for(stream.socket);
    assert_eq!(stream.receive(CHUNK), Ok(Received::End));
    assert_eq!(stream.acknowledged(), committed.len() as u64 + 7);
}

#[test]
fn a_reset_breaks_it() {
    let ((mut socket, peer), mut buffers) = (pair(), Buffers::new(CHUNK));
    let mut stream = socket.with(&mut buffers);
    stream.reserve(1)[0] = 1;
    assert_eq!(stream.commit(1), Ok(1));
    // A peer that closes with unread bytes sends a reset (RFC 2525, 2.17).
    let mut fds = [PollFd::new(&peer, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&PATIENCE)), Ok(1));
    drop(peer);
    wait_for(stream.socket);
    assert_eq!(stream.receive(CHUNK), Err(Broken));
}

#[test]
fn a_socket_that_goes_on_lends_first_what_had_arrived_before() {
    let ((socket, mut peer), mut buffers) = (pair(), Buffers::new(CHUNK));
    let former = Former {
        unread: b"ab".to_vec(),
        arrived: b"cdefg".to_vec(),
        is_ended: false,
        sent: 9,
        is_finished: false,
    };
    let mut socket = Socket::going_on(socket.fd, former);
    peer.write_all(b"hi").unwrap();
    wait_for(&socket);
    assert!(socket.has_bytes() && socket.has_something() && socket.held() >= 7);
    let mut stream = socket.with(&mut buffers);
    assert_eq!(stream.acknowledged(), 9);
    assert_eq!(stream.received(), b"ab");
    assert_eq!(stream.receive(4), Ok(Received::Bytes { len: 2, more: true }));
    assert_eq!(stream.received(), b"abcd");
    assert_eq!(stream.receive(4), Ok(Received::Nothing), "there is no room");
    stream.consume(3);
    assert_eq!(stream.receive(CHUNK), Ok(Received::Bytes { len: 3, more: true }));
    assert_eq!(stream.received(), b"defg");
    stream.consume(4);
    assert_eq!(stream.receive(CHUNK), Ok(Received::Bytes { len: 2, more: false }));
    assert_eq!(stream.received(), b"hi");
    stream.consume(2);
    assert_eq!(stream.receive(CHUNK), Ok(Received::Nothing));
    assert_eq!(socket.held(), 0);
}

#[test]
fn an_end_that_came_before_is_told_behind_the_bytes_and_again() {
    let ((socket, _peer), mut buffers) = (pair(), Buffers::new(CHUNK));
    let former = Former { arrived: b"last".to_vec(), is_ended: true, ..Former::default() };
    let mut socket = Socket::going_on(socket.fd, former);
    let mut stream = socket.with(&mut buffers);
    assert_eq!(stream.receive(CHUNK), Ok(Received::Bytes { len: 4, more: true }));
    stream.consume(4);
    assert_eq!(stream.receive(CHUNK), Ok(Received::End));
    assert_eq!(stream.receive(CHUNK), Ok(Received::End));
}
