use proptest::prelude::*;
use twinpath_rpc::record::{RecordLimits, RecordReader};
use twinpath_time::{Duration, Instant};

use super::*;
use crate::{Limit, Load, LoadConfig, Reply as Verdict};

const HANDLE: &[u8] = b"a handle";

fn null(framing: Framing) -> Calls {
    Calls::new(&NfsProcedure::Null, Auth::none(), framing, 0x1234_5678_9abc_def0)
}

fn getattr(framing: Framing) -> Calls {
    let auth = Auth::sys("client", 1000, 100, &[4]).unwrap();
    Calls::new(&NfsProcedure::GetAttr { handles: vec![HANDLE.to_vec()] }, auth, framing, 7)
}

fn request(calls: &Calls, id: RequestId) -> Vec<u8> {
    let mut request = vec![0xee; calls.request_len(id)];
    calls.write(id, &mut request);
    request
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A reply to request `id`: accepted, with `rest` after the verifier.
fn accepted(calls: &Calls, id: RequestId, rest: &[u32]) -> Vec<u8> {
    words(&[&[id as u32 ^ calls.xids, 1, 0, 0, 0], rest].concat())
}

/// A successful GETATTR reply for the file with this number.
fn attributes(calls: &Calls, id: RequestId, file: u32) -> Vec<u8> {
    let mut rest = [0; 23];
    // accept_stat, status, ftype3 NF3REG, ..., fileid's lower half.
    rest[2] = 1;
    rest[16] = file;
    accepted(calls, id, &rest)
}

fn record(message: &[u8], pieces: &[usize]) -> Vec<u8> {
    let (mut stream, mut at) = (Vec::new(), 0);
    for (index, &piece) in pieces.iter().enumerate() {
        stream.extend(mark(piece as u32, index + 1 == pieces.len()));
        stream.extend(&message[at..at + piece]);
        at += piece;
    }
    assert_eq!(at, message.len());
    stream
}

#[test]
fn a_call_is_the_same_message_in_any_number_of_fragments() {
    for id in [0, 1, 1 << 20, u64::from(u32::MAX), (1 << 40) + 5] {
        let message = request(&getattr(Framing::Datagram), id);
        for fragments in 1..=FRAGMENTS_MAX {
            let calls = getattr(Framing::Record { fragments });
            let stream = request(&calls, id);
            assert_eq!(stream.len(), message.len() + fragments * MARK_LEN);
            let limits = RecordLimits { record_bytes: message.len() as u32, fragments: fragments as u32 };
            let mut input = stream.as_slice();
            assert_eq!(
                RecordReader::new(limits).next(&mut input),
                Ok(Some(message.as_slice())),
                "{fragments}"
            );
        }
    }
}

#[test]
fn three_fragments_carry_one_byte_all_but_two_and_one() {
    let stream = request(&null(Framing::Record { fragments: 3 }), 0);
    assert_eq!(stream.len(), 40 + 12);
    assert_eq!(stream[..4], mark(1, false));
    assert_eq!(stream[5..9], mark(38, false));
    assert_eq!(stream[47..51], mark(1, true));
}

#[test]
fn a_reply_of_any_shape_is_cut_and_read() {
    let mut calls = null(Framing::Record { fragments: 1 });
    assert_eq!(calls.cut(&[]), Cut::Partial { missing: 28 });
    let message = accepted(&calls, 3, &[0]);
    for pieces in [&[24][..], &[1, 22, 1], &[0, 24], &[12, 12, 0]] {
        let mut stream = record(&message, pieces);
        let len = stream.len();
        stream.extend([0x80, 0, 0]);
        for known in 0..len {
            let Cut::Partial { missing } = calls.cut(&stream[..known]) else {
                panic!("{known} of {pieces:?}")
            };
            assert!(
                missing >= 1 && (known == 0 || known + missing <= len),
                "{known} of {pieces:?}: {missing}"
            );
        }
        assert_eq!(calls.cut(&stream), Cut::Whole(len));
        assert_eq!(calls.check(&stream[..len]), Answer::Right(3));
        assert_eq!(calls.cut(&[]), Cut::Partial { missing: len }, "the next is as long, as far as is known");
    }
    assert_eq!(calls.complaint(), None);
}

#[test]
fn bytes_that_are_no_record_break_the_stream() {
    let calls = null(Framing::Record { fragments: 1 });
    assert_eq!(calls.cut(b"HTTP/1.1 400 Bad Request"), Cut::Broken);
    assert_eq!(calls.cut(&words(&[fragment_header::EOF_FLAG | 4000])), Cut::Broken);
    assert_eq!(calls.cut(&[0; 4 * FRAGMENTS_MAX]), Cut::Broken, "empty fragments without end");
    let mut calls = null(Framing::Record { fragments: 1 });
    assert_eq!(calls.check(&words(&[fragment_header::EOF_FLAG | 8, 0])), Answer::Wrong);
    assert_eq!(calls.complaint(), Some(CallError::Fragments.to_string()));
}

#[test]
fn refusals_name_their_request_and_the_first_is_remembered() {
    let mut calls = null(Framing::Datagram);
    let unavailable = accepted(&calls, 9, &[3]);
    assert_eq!(calls.check(&unavailable), Answer::Refused(9));
    let denied = words(&[11 ^ calls.xids, 1, 1, 1, 5]);
    assert_eq!(calls.check(&denied), Answer::Refused(11));
    assert_eq!(calls.check(&accepted(&calls, 9, &[0, 7])), Answer::Wrong, "NULL returns nothing");
    assert_eq!(calls.check(&[]), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("PROC_UNAVAIL"), "{:?}", calls.complaint());
}

#[test]
fn attributes_are_of_the_file_of_the_first_reply() {
    let mut calls = getattr(Framing::Datagram);
    assert_eq!(calls.check(&attributes(&calls, 1, 77)), Answer::Right(1));
    assert_eq!(calls.check(&attributes(&calls, 2, 77)), Answer::Right(2));
    assert_eq!(calls.complaint(), None);
    assert_eq!(calls.check(&attributes(&calls, 3, 78)), Answer::Wrong);
    assert!(calls.complaint().unwrap().contains("file 78, and before of file 77"));
    let mut calls = getattr(Framing::Datagram);
    assert_eq!(calls.check(&accepted(&calls, 4, &[0, 70])), Answer::Refused(4));
    assert!(calls.complaint().unwrap().contains("STALE"), "{:?}", calls.complaint());
}

/// A reply carries 32 bits of a request's number; the load remembers the others.
#[test]
fn replies_find_their_requests_beyond_32_bits() {
    let config = LoadConfig { limit: Limit::Count(1 << 40), ..LoadConfig::default() };
    let calls = null(Framing::Datagram);
    let xids = calls.xids;
    let mut load = Load::new(config, Box::new(calls), Instant::ZERO).unwrap();
    let reply_to = |id: RequestId| words(&[id as u32 ^ xids, 1, 0, 0, 0, 0]);
    let mut last = 0;
    // The xid wraps after 2^22 sequence numbers.
    load.made_before((1 << 22) - 2);
    for turn in 0..5 {
        let now = Instant::from_nanos(turn);
        let id = load.due(now).unwrap();
        load.sent(id, now);
        assert_eq!(load.reply(&reply_to(id), now), Verdict::Matched, "{id:x}");
        last = id;
    }
    assert_ne!(last, u64::from(last as u32));
    let now = Instant::from_nanos(1 << 30);
    assert_eq!(load.reply(&reply_to(last), now), Verdict::Duplicate);
    assert_eq!(load.reply(&reply_to(last + (1 << 10)), now), Verdict::Duplicate, "one of 2^22 ago");
    let lost = load.due(now).unwrap();
    load.sent(lost, now);
    let later = now + Duration::from_secs(2);
    assert_eq!(load.expire(later), 1);
    assert_eq!(load.reply(&reply_to(lost), later), Verdict::Late);
    let refused = load.due(later).unwrap();
    load.sent(refused, later);
    assert_eq!(load.reply(&words(&[refused as u32 ^ xids, 1, 0, 0, 0, 3]), later), Verdict::Refused);
    let summary = load.summary();
    assert_eq!(
        (summary.refused, summary.lost, summary.duplicates, summary.late),
        (1, 1, 1, 1),
        "what was made before is not counted"
    );
    assert_eq!(summary.sent, summary.received + summary.refused + summary.lost + summary.unanswered);
}

#[test]
fn a_reply_before_any_call_is_corrupt() {
    let calls = null(Framing::Datagram);
    let xids = calls.xids;
    let mut load = Load::new(LoadConfig::default(), Box::new(calls), Instant::ZERO).unwrap();
    for id in [0, 1, 1023, u32::MAX] {
        assert_eq!(
            load.reply(&words(&[id ^ xids, 1, 0, 0, 0, 0]), Instant::ZERO),
            Verdict::Corrupt,
            "{id:x}"
        );
    }
}

proptest! {
    /// Arbitrary bytes are cut within their bounds, and taken for an answer only if they are one.
    #[test]
    fn arbitrary_streams_are_cut_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        let mut stream = bytes;
        if small && stream.len() >= 4 {
            // A valid record mark.
            stream[..3].copy_from_slice(&[0x80, 0, 0]);
        }
        let mut calls = getattr(Framing::Record { fragments: 1 });
        match calls.cut(&stream) {
            Cut::Whole(len) => {
                prop_assert!(len >= MARK_LEN && len <= stream.len());
                prop_assert_eq!(calls.check(&stream[..len]), Answer::Wrong);
            }
            Cut::Partial { missing } => prop_assert!(missing >= 1 && stream.len() + missing <= calls.reply_len_max() + MARK_LEN),
            Cut::Broken => {}
        }
        let mut calls = getattr(Framing::Datagram);
        prop_assert_eq!(calls.check(&stream), Answer::Wrong);
    }
}
