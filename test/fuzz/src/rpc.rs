//! Fuzzes ONC RPC: how a stream is divided changes nothing, and any input gets an answer that a client can decode, or
//! none.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_rpc::client::{Refusal, Reply, root_handle};
use twinpath_rpc::mount3::Mount3;
use twinpath_rpc::nfs3::{Nfs3, Tree};
use twinpath_rpc::nfs3_types::nfs3::GETATTR3args;
use twinpath_rpc::nfs3_types::xdr_codec::Unpack;
use twinpath_rpc::nfs3_types::{mount, nfs3};
use twinpath_rpc::record::{RecordError, RecordLimits, RecordReader};
use twinpath_rpc::{DuplicateLimits, Program, RpcService, Server};
use twinpath_service::{Next, Output, Reason, Service};
use twinpath_time::{Duration, Instant};

use crate::{fuzz, seed};

const LIMITS: RecordLimits = RecordLimits { record_bytes: 600, fragments: 5 };
/// Room in a connection's output: a few replies, bytes.
const OUTPUT_MAX: usize = 300;

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], 900))
}

fn server() -> Server {
    let tree = Arc::new(Tree::small());
    let programs: Vec<Box<dyn Program>> =
        vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))];
    let duplicates = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    Server::new(programs, duplicates, 7).expect("two programs of different numbers")
}

/// The records of a stream that arrives in pieces of that length, and what ends it.
fn records(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let mut reader = RecordReader::new(LIMITS);
    let mut records = Vec::new();
    for mut piece in stream.chunks(piece) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
    }
    (records, None)
}

/// The answers on a connection, and how it ends, if its bytes arrive in such pieces and replies are sent each time.
fn served(stream: &[u8], piece: usize) -> (Vec<u8>, Next) {
    let mut service = RpcService::new(server(), LIMITS);
    let mut connection = service.accept(Instant::ZERO, peer()).expect("nobody is refused");
    let (mut unread, mut replies) = (Vec::new(), Vec::new());
    for piece in stream.chunks(piece) {
        unread.extend(piece);
        loop {
            let mut bytes = Vec::new();
            let mut output = Output::new(&mut bytes, OUTPUT_MAX);
            let used = service.stream(Instant::ZERO, &mut connection, &unread, &mut output);
            let next = output.next();
            unread.drain(..used);
            replies.extend(bytes);
            if next != Next::Keep {
                return (replies, next);
            }
            if used == 0 {
                break;
            }
        }
        // The mark of one fragment too many tells that it is one.
        let most = LIMITS.record_bytes as usize + 4 * (LIMITS.fragments as usize + 1);
        assert!(unread.len() < most, "{} bytes wait, which may be one record", unread.len());
    }
    (replies, Next::Keep)
}

fn check_stream(stream: &[u8], piece: usize) {
    let whole = records(stream, usize::MAX);
    assert_eq!(records(stream, piece), whole);
    let (replies, end) = served(stream, usize::MAX);
    assert_eq!(served(stream, piece), (replies.clone(), end));
    let (replies, error) = records(&replies, usize::MAX);
    assert_eq!(error, None, "replies are records");
    for reply in &replies {
        Reply::parse(reply).expect("a reply of RPC version 2");
    }
    let reason = match whole.1 {
        Some(RecordError::TooLarge { .. }) => Next::Refuse(Reason::RecordTooLarge),
        Some(RecordError::TooManyFragments { .. }) => Next::Refuse(Reason::TooManyFragments),
        None => Next::Keep,
    };
    // A record that is no call ends the stream before a record that exceeds a limit.
    assert!(end == reason || end == Next::Refuse(Reason::RpcHeader), "{end:?}, not {reason:?}");
    if end == reason {
        assert_eq!(replies.len(), whole.0.len(), "each call has a reply");
    }
}

/// The first byte of the input is the length of pieces, the others are the stream.
#[test]
fn streams() {
    fuzz!("rpc__streams", |input: &[u8]| {
        let Some((piece, stream)) = input.split_first() else { return };
        check_stream(stream, usize::from(*piece).max(1));
    });
}

/// The first byte is the length of pieces, then four bytes per call: its kind, its number of fragments, and one edit.
#[test]
fn damaged_streams() {
    fuzz!("rpc__damaged_streams", |input: &[u8]| {
        let Some((piece, rest)) = input.split_first() else { return };
        let calls = seed::calls();
        let mut stream = Vec::new();
        for [call, edit @ ..] in rest.as_chunks::<4>().0 {
            let message = &calls[usize::from(call & 0x3f) % calls.len()];
            let mut record = seed::record(message, usize::from(call >> 6) + 1);
            seed::damage(&mut record, edit);
            stream.extend(record);
        }
        check_stream(&stream, usize::from(*piece).max(1));
    });
}

/// The bytes after the record mark, if the message begins with one.
fn without_mark(bytes: &[u8]) -> Option<&[u8]> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*first) == 1 << 31 | rest.len() as u32).then_some(rest)
}

/// A call with a record mark gets the same answer as without, with a mark; and no call of this RPC version without a
/// mark is taken for one with a mark.
fn check_mark(message: &[u8]) {
    let marked = [&(1 << 31 | message.len() as u32).to_be_bytes()[..], message].concat();
    let word = |at: usize| Some(u32::from_be_bytes(*message.get(4 * at..)?.first_chunk()?));
    let is_call = word(1) == Some(0) && word(2) == Some(2) && word(3).is_some_and(|program| program > 400);
    let plain = server().datagram(Instant::ZERO, peer(), message).map(<[u8]>::to_vec);
    let mut server = server();
    let in_kind = server.datagram(Instant::ZERO, peer(), &marked);
    match (is_call, &plain, in_kind) {
        (true, Ok(plain), Ok(reply)) => assert_eq!(without_mark(reply), Some(&plain[..])),
        (true, Err(plain), Err(reason)) => assert_eq!(*plain, reason),
        (true, ..) => panic!("answered with a mark, or without, alone"),
        (false, ..) => {}
    }
}

/// The results for a datagram, or the refusal; `None` if it is no call.
fn outcome(message: &[u8]) -> Option<Result<Vec<u8>, Refusal>> {
    check_mark(message);
    let mut server = server();
    // In a call without a mark the RPC version is in the place of the message type of a call with one.
    let has_mark = message.get(8..16) == Some(&[0, 0, 0, 0, 0, 0, 0, 2]);
    let marked = without_mark(message).filter(|_| has_mark);
    match server.datagram(Instant::ZERO, peer(), message) {
        Ok(reply) => {
            let in_kind = marked.zip(without_mark(reply));
            let (message, reply) = in_kind.unwrap_or((message, reply));
            let reply = Reply::parse(reply).expect("a reply");
            assert_eq!(reply.xid.to_be_bytes(), message[..4], "under its number");
            Some(reply.outcome.map(<[u8]>::to_vec))
        }
        Err(reason) => {
            assert_eq!(reason, Reason::RpcHeader);
            None
        }
    }
}

#[test]
fn calls() {
    fuzz!("rpc__calls", |message: &[u8]| drop(outcome(message)));
}

/// The first byte selects a call, the others are edits.
#[test]
fn damaged_calls() {
    fuzz!("rpc__damaged_calls", |input: &[u8]| {
        let Some((call, edits)) = input.split_first() else { return };
        let calls = seed::calls();
        let mut message = calls[usize::from(*call) % calls.len()].clone();
        seed::damage(&mut message, edits);
        drop(outcome(&message));
    });
}

/// Whether the library decodes the arguments of GETATTR to their end. It allocates the announced length before it
/// checks it, so it is not given a length that no handle has.
fn is_getattr(args: &[u8]) -> bool {
    let length = args.first_chunk::<4>().map_or(u32::MAX, |length| u32::from_be_bytes(*length));
    let mut rest = args;
    length as usize <= nfs3::NFS3_FHSIZE && GETATTR3args::unpack(&mut rest).is_ok()
}

/// The first byte selects a procedure, the others are its arguments.
#[test]
fn arguments() {
    fuzz!("rpc__arguments", |input: &[u8]| {
        let Some((procedure, args)) = input.split_first() else { return };
        let (program, number) = seed::procedure(*procedure);
        let outcome = outcome(&seed::call(program, number, args)).expect("a call");
        let taken = !matches!(outcome, Err(Refusal::GarbageArguments));
        match (program, number, outcome) {
            (_, 0, outcome) => assert_eq!(outcome, Ok(Vec::new()), "NULL, whatever follows"),
            (nfs3::PROGRAM, 1, outcome) => {
                assert_eq!(taken, is_getattr(args), "the library reads alike: {outcome:?}");
            }
            (mount::PROGRAM, 1, Ok(results)) => drop(root_handle(&results)),
            (mount::PROGRAM, 2..=5, outcome) => assert!(outcome.is_ok() || !taken),
            (_, _, outcome) => {
                assert!(!taken || outcome == Err(Refusal::ProcedureUnavailable), "{outcome:?}")
            }
        }
    });
}

/// A client takes any bytes for an answer or for a named error.
#[test]
fn replies() {
    fuzz!("rpc__replies", |message: &[u8]| {
        let Ok(reply) = Reply::parse(message) else { return };
        assert_eq!(reply.xid.to_be_bytes(), message[..4]);
        if let Ok(results) = reply.outcome {
            assert_eq!(reply.verify_null().is_ok(), results.is_empty());
            // The length is fixed, so any other one is an error.
            assert!(reply.verify_getattr().is_err() || results.len() == 88);
            let _ = root_handle(results);
        }
    });
}
