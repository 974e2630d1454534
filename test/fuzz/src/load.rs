//! Fuzzes replies to the load generator: only the exact bytes of an outstanding request are an answer.

use twinpath_load::{Answer, Calls, Codec, Cut, Echo, Framing, Limit, Load, LoadConfig, NfsProcedure, Reply};
use twinpath_rpc::client::{Auth, Reply as RpcReply};
use twinpath_rpc::record::{RecordLimits, RecordReader, mark};
use twinpath_time::{Duration, Instant};

use crate::{fuzz, seed};

/// Odd, so that the last word of the pattern is truncated.
const PAYLOAD_LEN: usize = 27;
const REQUESTS: u32 = 4;

/// A load with its requests sent, and their payloads.
fn load_in_flight() -> (Load, Vec<Vec<u8>>) {
    let config = LoadConfig {
        inflight: REQUESTS,
        limit: Limit::Count(u64::from(REQUESTS)),
        loss_timeout: Duration::from_secs(1),
        ..LoadConfig::default()
    };
    let echo = Echo::new(PAYLOAD_LEN, 7).expect("a valid length");
    let mut load = Load::new(config, Box::new(echo), Instant::ZERO).expect("a valid configuration");
    let mut requests = Vec::new();
    while let Some(id) = load.due(Instant::ZERO) {
        let mut payload = vec![0; PAYLOAD_LEN];
        load.write(id, &mut payload);
        load.sent(id, Instant::ZERO);
        requests.push(payload);
    }
    assert_eq!(requests.len(), REQUESTS as usize);
    (load, requests)
}

/// Passes `replies` in and checks each result, and the sums, against what was sent.
fn check(replies: impl Iterator<Item = Vec<u8>>) {
    let (mut load, requests) = load_in_flight();
    let mut answered = vec![false; requests.len()];
    let mut counted = 0;
    for (turn, reply) in replies.enumerate() {
        let now = Instant::from_nanos(turn as u64);
        let found = load.reply(&reply, now);
        counted += 1;
        let expected = match requests.iter().position(|request| *request == reply) {
            Some(request) if !std::mem::replace(&mut answered[request], true) => Reply::Matched,
            Some(_) => Reply::Duplicate,
            None => Reply::Corrupt,
        };
        assert_eq!(found, expected, "{reply:02x?}");
    }
    let summary = load.summary();
    assert_eq!(summary.sent, summary.received + summary.lost + summary.unanswered);
    assert_eq!(summary.received + summary.duplicates + summary.late + summary.corrupt, counted);
}

#[test]
fn replies() {
    fuzz!("load__replies", |input: &[u8]| check(input.chunks(PAYLOAD_LEN).map(<[u8]>::to_vec)));
}

/// Cuts a stream as a client does, and compares each record and its result with the server's reader and a simple
/// decoder.
fn check_stream(mut stream: &[u8]) {
    let mut calls = Calls::new(&NfsProcedure::Null, Auth::none(), Framing::Record { fragments: 1 }, 7);
    let limits = RecordLimits { record_bytes: 4096, fragments: 64 };
    loop {
        let len = match calls.cut(stream) {
            Cut::Whole(len) => len,
            Cut::Partial { missing } => {
                assert!(missing > 0);
                return;
            }
            Cut::Broken => return,
        };
        for known in 0..len {
            assert!(!matches!(calls.cut(&stream[..known]), Cut::Whole(_)), "{known} of {len}");
        }
        let (record, rest) = stream.split_at(len);
        let mut input = record;
        let mut reader = RecordReader::new(limits);
        let message = reader.next(&mut input).expect("within the limits").expect("whole").to_vec();
        assert!(input.is_empty());
        let is_right = RpcReply::parse(&message).is_ok_and(|reply| reply.verify_null().is_ok());
        assert_eq!(matches!(calls.check(record), Answer::Right(_)), is_right, "{message:02x?}");
        stream = rest;
    }
}

/// A successful reply to NULL.
const NULL_REPLY: [u8; 24] = [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn rpc_streams() {
    fuzz!("load__rpc_streams", check_stream);
}

/// Three right replies, in one, three and two fragments, with edits.
#[test]
fn damaged_rpc_streams() {
    fuzz!("load__damaged_rpc_streams", |input: &[u8]| {
        let mut stream = Vec::new();
        for pieces in [&[24][..], &[1, 22, 1], &[12, 12]] {
            let mut message = NULL_REPLY.as_slice();
            for (index, &piece) in pieces.iter().enumerate() {
                stream.extend(mark(piece as u32, index + 1 == pieces.len()));
                stream.extend(message.split_off(..piece).expect("as long as its pieces"));
            }
        }
        seed::damage(&mut stream, input);
        check_stream(&stream);
    });
}

/// Four bytes per reply: its request and one edit; an edit that changes nothing leaves the reply right.
#[test]
fn damaged_replies() {
    fuzz!("load__damaged_replies", |input: &[u8]| {
        let (_, requests) = load_in_flight();
        check(input.as_chunks::<4>().0.iter().map(|[request, edit @ ..]| {
            let mut reply = requests[usize::from(*request) % requests.len()].clone();
            seed::damage(&mut reply, edit);
            reply
        }));
    });
}
