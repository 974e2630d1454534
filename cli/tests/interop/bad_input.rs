//! Tests of `serve rpc` with peers that break the protocol, over real sockets: each gets the reply that RFC 5531
//! specifies, or is closed or dropped for a reason that is counted, and costs no memory permanently.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};

use twinpath_rpc::client::{Auth, Call, Refusal, Reply};
use twinpath_rpc::nfs3_types::nfs3;
use twinpath_rpc::nfs3_types::rpc::auth_stat;

use crate::rig::{CLIENT, DATAGRAM_MAX, PATIENCE, PORT, Rig, SERVER, SERVER_V6, Server, lengths, until};
use crate::root_or_skip;

/// The limit of connections of the server under test.
const CONNECTIONS: usize = 32;
/// The permitted growth of a worker's heap: buffers that are allocated once.
const HEAP_GROWTH_MAX: u64 = 256 << 10;
/// Bytes of a NULL call without a credential.
const NULL_LEN: usize = 40;

fn serve(rig: &Rig, path: &str) -> Server {
    let (port, most) = (PORT.to_string(), CONNECTIONS.to_string());
    let limits =
        ["--connections", &most, "--request-timeout-s", "1", "--idle-timeout-s", "3", "--fragments", "8"];
    rig.start(&[&["rpc", "--on", "vs", "--path", path, "--udp", &port, "--tcp", &port], &limits[..]].concat())
}

fn connect(rig: &Rig) -> TcpStream {
    connect_to(rig, SERVER)
}

fn connect_to(rig: &Rig, server: &str) -> TcpStream {
    let stream = rig.client.run(|| TcpStream::connect((server, PORT))).unwrap().expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A call of NFS without a credential, as a message.
fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid, program: nfs3::PROGRAM, version: 3, procedure, auth: &Auth::none(), args }
        .write(&mut message);
    message
}

/// The same with the word at `place` (counted in words) changed.
fn with(mut message: Vec<u8>, place: usize, word: u32) -> Vec<u8> {
    message[place * 4..][..4].copy_from_slice(&word.to_be_bytes());
    message
}

/// One record in one fragment.
fn record(message: &[u8]) -> Vec<u8> {
    let mark = message.len() as u32 | 1 << 31;
    [&mark.to_be_bytes()[..], message].concat()
}

/// The next reply, read byte by byte.
fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("a reply in time");
    let len = u32::from_be_bytes(mark) & !(1 << 31);
    (0..len)
        .map(|_| {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the rest of it");
            byte[0]
        })
        .collect()
}

/// Sends a NULL call, and gets its reply.
fn is_served(stream: &mut TcpStream, xid: u32) {
    stream.write_all(&record(&call(xid, 0, &[]))).expect("it is open");
    let reply = reply(stream);
    let reply = Reply::parse(&reply).expect("a reply");
    assert_eq!((reply.xid, reply.verify_null()), (xid, Ok(())));
}

fn is_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0; 16]) {
        Ok(0) => {}
        // Unread input may turn the close into a reset.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("closed, but: {other:?}"),
    }
}

/// Calls for which RFC 5531 has a specific answer: the answer, and the reason under which it is counted.
fn refused_calls() -> Vec<(Vec<u8>, Refusal, &'static str)> {
    let mismatch = Refusal::RpcMismatch { low: 2, high: 2 };
    let handle = |len: u32, bytes: usize| [&len.to_be_bytes()[..], &vec![7; bytes]].concat();
    let long_credential = [&with(call(1, 1, &[]), 7, 404)[..], &[0; 404]].concat();
    let long_verifier = [&with(call(1, 1, &[]), 9, 404)[..], &[0; 404]].concat();
    vec![
        (with(call(1, 0, &[]), 2, 3), mismatch, "rpc_version"),
        (with(call(1, 0, &[]), 2, 0xffff_ffff), mismatch, "rpc_version"),
        (with(call(1, 0, &[]), 3, 99), Refusal::ProgramUnavailable, "rpc_program"),
        (with(call(1, 0, &[]), 4, 4), Refusal::ProgramMismatch { low: 3, high: 3 }, "rpc_program_version"),
        (call(1, 21, &[]), Refusal::ProcedureUnavailable, "rpc_procedure"),
        (with(call(1, 1, &[]), 6, 99), Refusal::Auth(auth_stat::AUTH_REJECTEDCRED), "rpc_auth"),
        (long_credential, Refusal::Auth(auth_stat::AUTH_BADCRED), "rpc_auth"),
        (long_verifier, Refusal::Auth(auth_stat::AUTH_BADVERF), "rpc_auth"),
        // AUTH_SYS of no bytes.
        (with(call(1, 1, &[]), 6, 1), Refusal::Auth(auth_stat::AUTH_BADCRED), "rpc_auth"),
        // A handle that is too long, an incomplete one, one with a wrong length, none.
        (call(1, 1, &handle(65, 68)), Refusal::GarbageArguments, "rpc_arguments"),
        (call(1, 1, &handle(64, 60)), Refusal::GarbageArguments, "rpc_arguments"),
        (call(1, 1, &handle(u32::MAX, 8)), Refusal::GarbageArguments, "rpc_arguments"),
        (call(1, 1, &[]), Refusal::GarbageArguments, "rpc_arguments"),
    ]
}

/// Streams that contain no calls, and the reason for which each is closed.
fn broken_streams() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        // Longer than any permitted record, at once or in total.
        (vec![0xff; 4], "record_too_large"),
        ([&[0, 0, 0xff, 0xff][..], &[1; 65_535], &[0x80, 0, 0xff, 0xff]].concat(), "record_too_large"),
        // Endless fragments, empty and of one byte.
        (vec![0; 4096], "too_many_fragments"),
        ([0, 0, 0, 1, 7].repeat(100), "too_many_fragments"),
        // Too short for a header; a credential with a wrong length; a reply.
        (record(&call(1, 0, &[])[..NULL_LEN - 1]), "rpc_header"),
        (record(&with(call(1, 1, &[]), 7, 400)), "rpc_header"),
        (record(&with(call(1, 0, &[]), 1, 1)), "rpc_header"),
        (record(&[]), "rpc_header"),
    ]
}

#[test]
fn whatever_comes_is_answered_or_closed_for_a_reason_and_nothing_is_left_of_it() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, "packet");
    // From another source than the following ones, so that only those displace one another.
    let mut honest = connect_to(&rig, SERVER_V6);
    is_served(&mut honest, 1);
    let heap = server.worker("heap_bytes");
    for (number, (message, refusal, reason)) in (0..).zip(refused_calls()) {
        let before = server.drops(reason);
        // Byte by byte, as is the answer: the connection continues.
        for byte in record(&message) {
            honest.write_all(&[byte]).unwrap();
        }
        let reply = reply(&mut honest);
        assert_eq!(Reply::parse(&reply).unwrap().outcome, Err(refusal), "case {number}");
        until("it is counted", || server.drops(reason) == before + 1);
    }
    for (number, (bytes, reason)) in (0..).zip(broken_streams()) {
        let before = server.drops(reason);
        let mut stream = connect(&rig);
        is_served(&mut stream, number);
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        is_closed(&mut stream);
        drop(stream);
        until("it is counted", || server.drops(reason) == before + 1);
        is_served(&mut honest, number);
    }
    // Half a header, then silence; and twice as many connections as permitted that send nothing.
    let mut half = connect(&rig);
    half.write_all(&record(&call(1, 0, &[]))[..20]).unwrap();
    let mut silent: Vec<_> = (0..2 * CONNECTIONS).map(|_| connect(&rig)).collect();
    until("no more than the limit are in", || {
        server.drops("connection_displaced") as usize == 2 * CONNECTIONS + 2 - CONNECTIONS
    });
    is_served(&mut honest, 2);
    is_closed(&mut half);
    let mut served = 0;
    until("those that say nothing have had their time", || {
        served += 1;
        is_served(&mut honest, served);
        server.drops("idle_timeout") as usize == CONNECTIONS - 2
    });
    silent.iter_mut().for_each(is_closed);
    assert_eq!(server.drops("request_timeout"), 1);
    is_served(&mut connect(&rig), 3);
    let grown = server.worker("heap_bytes").saturating_sub(heap);
    assert!(grown <= HEAP_GROWTH_MAX, "{grown} bytes stayed");
    assert_eq!(server.interrupt(), Some(0));
}

/// Sends a datagram of `len` bytes: the beginning of a NULL call, or one followed by excess bytes.
fn send_cut_or_stretched(socket: &UdpSocket, whole: &[u8], len: usize, bytes: &mut [u8]) {
    bytes[..NULL_LEN].copy_from_slice(&with(whole.to_vec(), 0, len as u32));
    socket.send_to(&bytes[..len], (SERVER, PORT)).expect("sent");
}

#[test]
fn a_datagram_of_any_length_is_answered_or_counted() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = serve(&rig, "packet");
    let socket = rig.client_udp(CLIENT, 0);
    let (whole, mut bytes, mut heard) = (call(0, 0, &[]), vec![0xa5; DATAGRAM_MAX], [0; 512]);
    let mut heap = 0;
    for len in lengths() {
        send_cut_or_stretched(&socket, &whole, len, &mut bytes);
        if len < NULL_LEN {
            continue;
        }
        let (heard_len, _) =
            socket.recv_from(&mut heard).unwrap_or_else(|error| panic!("{len} bytes: {error}"));
        let reply = Reply::parse(&heard[..heard_len]).unwrap();
        // Bytes behind the arguments are ignored.
        assert_eq!(reply, Reply { xid: len as u32, outcome: Ok(&[][..]) }, "{len} bytes");
        if len == 2 * NULL_LEN {
            heap = server.worker("heap_bytes");
        }
    }
    assert_eq!(server.drops("rpc_header"), NULL_LEN as u64);
    assert_eq!(server.drops("rpc_arguments"), 0);
    let grown = server.worker("heap_bytes").saturating_sub(heap);
    assert!(grown <= HEAP_GROWTH_MAX, "{grown} bytes stayed");
    assert_eq!(server.interrupt(), Some(0));
}
