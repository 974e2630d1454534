//! Replies to the load generator: only the exact bytes of an open request are an answer.

use twinpath_load::{Echo, Limit, Load, LoadConfig, Reply};
use twinpath_time::{Duration, Instant};

use crate::{fuzz, seed};

/// Odd, so that the last word of the pattern is cut.
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
    let mut load = Load::new(config, echo, Instant::ZERO).expect("a valid configuration");
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

/// Hands in `replies` and holds each verdict, and the sums, to what was sent.
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

/// Four bytes a reply: which request, and one edit of it; an edit of nothing leaves the reply right.
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
