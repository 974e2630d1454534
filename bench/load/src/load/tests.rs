use std::collections::HashMap;

use proptest::prelude::*;

use twinpath_time::Duration;

use super::*;
use crate::pattern::Echo;

const MS: u64 = 1_000_000;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const ECHO_LEN: usize = 64;

fn echo() -> Box<dyn Codec> {
    Box::new(Echo::new(ECHO_LEN, 0).unwrap())
}

fn payload_of(load: &Load, id: RequestId) -> Vec<u8> {
    let mut payload = vec![0; load.codec().request_len(id)];
    load.write(id, &mut payload);
    payload
}

#[test]
fn a_closed_loop_keeps_its_window_full_and_ends_with_its_count() {
    let config = LoadConfig { inflight: 2, limit: Limit::Count(3), ..LoadConfig::default() };
    let mut load = Load::new(config, echo(), at(100)).unwrap();
    let first = load.due(at(100)).unwrap();
    let second = load.due(at(100)).unwrap();
    assert_eq!(load.due(at(100)), None);
    load.sent(first, at(110));
    load.sent(second, at(120));
    assert_eq!(load.reply(&payload_of(&load, second), at(1120)), Reply::Matched);
    let third = load.due(at(1120)).unwrap();
    load.sent(third, at(1120));
    assert_eq!(load.reply(&payload_of(&load, first), at(1110)), Reply::Matched);
    assert_eq!(load.due(at(1200)), None);
    assert!(!load.done(at(1200)));
    assert_eq!(load.reply(&payload_of(&load, third), at(2100)), Reply::Matched);
    assert!(load.done(at(2100)));
    let summary = load.summary();
    assert_eq!((summary.sent, summary.received, summary.unanswered), (3, 3, 0));
    assert_eq!(summary.elapsed.as_nanos(), 2000);
    assert_eq!((summary.histogram.min(), summary.histogram.max()), (980, 1000));
}

#[test]
fn the_warm_up_is_sent_and_not_counted() {
    let config = LoadConfig {
        limit: Limit::Duration(Duration::from_millis(1)),
        warmup: Duration::from_millis(1),
        ..LoadConfig::default()
    };
    let mut load = Load::new(config, echo(), at(0)).unwrap();
    let warm = load.due(at(0)).unwrap();
    load.sent(warm, at(0));
    assert_eq!(load.reply(&[0; 64], at(1)), Reply::Corrupt);
    assert_eq!(load.reply(&payload_of(&load, warm), at(MS + 5)), Reply::Matched);
    assert_eq!(load.reply(&payload_of(&load, warm), at(MS + 6)), Reply::Duplicate);
    let warm = Summary { elapsed: Duration::from_nanos(6), warmup_replies: 1, ..Summary::empty() };
    assert_eq!(load.summary(), warm);
    let counted = load.due(at(MS + 6)).unwrap();
    load.sent(counted, at(MS + 6));
    assert!(load.due(at(2 * MS)).is_none());
    assert_eq!(load.reply(&payload_of(&load, counted), at(2 * MS + 9)), Reply::Matched);
    assert!(load.done(at(2 * MS + 9)));
    let summary = load.summary();
    assert_eq!((summary.sent, summary.received, summary.corrupt), (1, 1, 0));
    assert_eq!(summary.elapsed, Duration::from_millis(1));
}

/// A stall of the server must show in every request that was due meanwhile, not only in the one that it delayed.
#[test]
fn an_open_loop_charges_a_late_send() {
    let config = LoadConfig {
        rate_per_s: Some(1000.0),
        limit: Limit::Count(11),
        loss_timeout: Duration::from_secs(1),
        ..LoadConfig::default()
    };
    let mut load = Load::new(config, echo(), at(0)).unwrap();
    let mut now = at(0);
    let mut answered = 0;
    while !load.done(now) {
        let Some(id) = load.due(now) else {
            assert!(load.next_deadline() > now);
            now = load.next_deadline();
            continue;
        };
        load.sent(id, now);
        // The first reply takes 10 ms, the others no time.
        now = if answered == 0 { at(10 * MS) } else { now };
        assert_eq!(load.reply(&payload_of(&load, id), now), Reply::Matched);
        answered += 1;
    }
    let histogram = load.summary().histogram;
    let pacing = load.summary().pacing;
    assert_eq!((pacing.len(), pacing.min()), (11, 0));
    assert!((9 * MS..=10 * MS).contains(&pacing.max()), "{}", pacing.max());
    let waited_ms: Vec<u64> =
        histogram.iter_recorded().map(|bucket| bucket.value_iterated_to() / MS).collect();
    assert_eq!(waited_ms, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(now, at(10 * MS));
}

#[test]
fn a_client_wakes_once_the_last_request_is_lost() {
    let limit = Limit::Duration(Duration::from_millis(10));
    let config = LoadConfig { rate_per_s: Some(1000.0), limit, inflight: 64, ..LoadConfig::default() };
    let mut load = Load::new(config, echo(), at(0)).unwrap();
    let mut now = at(0);
    while !load.done(now) {
        while let Some(id) = load.due(now) {
            load.sent(id, now);
        }
        load.expire(now);
        // The client checks for the end before the last losses and then waits for this deadline.
        let deadline = load.next_deadline();
        assert!(deadline < Instant::NEVER, "it would wait for ever at {now:?}");
        now = now.max(deadline);
    }
    assert_eq!(load.summary().lost, 10);
}

#[test]
fn an_open_loop_neither_bursts_nor_drifts() {
    let config = LoadConfig { rate_per_s: Some(3.0), inflight: 8, ..LoadConfig::default() };
    let config = LoadConfig { limit: Limit::Duration(Duration::from_secs(1000)), ..config };
    let mut load = Load::new(config, echo(), at(0)).unwrap();
    let mut sent = 0;
    let mut now = at(0);
    while !load.done(now) {
        while let Some(id) = load.due(now) {
            load.sent(id, now);
            assert_eq!(load.reply(&payload_of(&load, id), now), Reply::Matched);
            sent += 1;
        }
        load.expire(now);
        now = load.next_deadline();
    }
    assert_eq!(sent, 3000);
}

#[test]
fn a_lost_request_frees_its_place_and_its_answer_is_late() {
    let config = LoadConfig { loss_timeout: Duration::from_millis(1), ..LoadConfig::default() };
    let mut load = Load::new(config, echo(), at(0)).unwrap();
    let id = load.due(at(0)).unwrap();
    load.sent(id, at(0));
    assert_eq!(load.next_deadline(), at(MS));
    assert_eq!(load.expire(at(MS - 1)), 0);
    assert_eq!(load.expire(at(MS)), 1);
    assert!(load.due(at(MS)).is_some());
    assert_eq!(load.reply(&payload_of(&load, id), at(MS)), Reply::Late);
    assert_eq!(load.reply(&payload_of(&load, id), at(MS)), Reply::Duplicate);
    let summary = load.summary();
    assert_eq!((summary.sent, summary.lost, summary.late, summary.duplicates), (1, 1, 1, 1));
}

#[test]
fn a_reply_to_no_request_is_corrupt() {
    let mut load = Load::new(LoadConfig::default(), echo(), at(0)).unwrap();
    let id = load.due(at(0)).unwrap();
    for unknown in [id, id + 1, id + (1 << SLOT_BITS), NO_REQUEST] {
        assert_eq!(
            load.reply(&payload_of(&load, unknown), at(1)),
            Reply::Corrupt,
            "{unknown:x}, not sent yet"
        );
    }
    load.sent(id, at(1));
    let payload = payload_of(&load, id);
    assert_eq!(load.reply(&payload[..63], at(2)), Reply::Corrupt);
    assert_eq!(load.reply(&[], at(2)), Reply::Corrupt);
    assert_eq!(load.reply(&payload, at(2)), Reply::Matched);
    assert_eq!(load.summary().corrupt, 6);
}

#[test]
fn fields_out_of_range_are_named() {
    assert!(Echo::new(15, 0).unwrap_err().to_string().contains("at least 16"));
    assert!(Echo::new(65_508, 0).unwrap_err().to_string().contains("at most 65507"));
    let good = LoadConfig::default();
    for (config, word) in [
        (LoadConfig { inflight: 0, ..good }, "1 to 1024"),
        (LoadConfig { inflight: 1025, ..good }, "1 to 1024"),
        (LoadConfig { rate_per_s: Some(0.0), ..good }, "rate"),
        (LoadConfig { rate_per_s: Some(f64::NAN), ..good }, "rate"),
        (LoadConfig { limit: Limit::Count(0), ..good }, "nothing to measure"),
        (LoadConfig { loss_timeout: Duration::ZERO, ..good }, "loss timeout"),
    ] {
        let error = Load::new(config, echo(), at(0)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(word), "{error:?} lacks {word:?}");
    }
}

#[test]
fn summaries_of_threads_add_up() {
    let mut one =
        Summary { sent: 3, received: 2, lost: 1, elapsed: Duration::from_secs(2), ..Summary::empty() };
    one.histogram.saturating_record(10);
    let mut other = Summary { sent: 4, received: 4, elapsed: Duration::from_secs(1), ..Summary::empty() };
    other.histogram.saturating_record(1000);
    one.merge(&other);
    assert_eq!((one.sent, one.received, one.lost, one.histogram.len()), (7, 6, 1, 2));
    assert!((one.requests_per_s() - 3.0).abs() < 1e-9);
}

/// The next event in the simulated network.
#[derive(Clone, Debug)]
enum Step {
    /// Sends the requests that are due.
    Send,
    /// Delivers one of the datagrams in transit.
    Deliver(prop::sample::Index),
    /// Delivers one and leaves a copy in transit.
    Copy(prop::sample::Index),
    /// Loses one.
    Drop(prop::sample::Index),
    /// Delivers one with a bit flipped.
    Corrupt(prop::sample::Index, prop::sample::Index),
    /// Advances the time.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        4 => Just(Step::Send),
        4 => index().prop_map(Step::Deliver),
        1 => index().prop_map(Step::Copy),
        1 => index().prop_map(Step::Drop),
        1 => (index(), index()).prop_map(|(datagram, bit)| Step::Corrupt(datagram, bit)),
        2 => (0_u64..40).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..200)
}

/// The simple model: it remembers everything for ever, except what the load is documented to forget.
#[derive(Default)]
struct Model {
    open: HashMap<RequestId, Instant>,
    lost: HashMap<RequestId, Vec<RequestId>>,
    fed: u64,
}

impl Model {
    fn expect(&mut self, id: RequestId) -> Reply {
        if self.open.remove(&id).is_some() {
            return Reply::Matched;
        }
        let lost = self.lost.entry(id & SLOT_MASK).or_default();
        match lost.iter().position(|lost| *lost == id) {
            Some(position) => {
                lost[position] = NO_REQUEST;
                Reply::Late
            }
            None => Reply::Duplicate,
        }
    }

    fn expire(&mut self, now: Instant, timeout: Duration) -> u32 {
        let mut expired: Vec<RequestId> =
            self.open.iter().filter(|(_, sent)| **sent + timeout <= now).map(|(id, _)| *id).collect();
        expired.sort_unstable();
        for id in &expired {
            self.open.remove(id);
            let lost = self.lost.entry(id & SLOT_MASK).or_default();
            lost.insert(0, *id);
            lost.truncate(LOST_MEMORY);
        }
        expired.len() as u32
    }
}

proptest! {
    #[test]
    fn counts_agree_with_a_naive_model(
        steps in steps(),
        inflight in 1_u32..9,
        payload_len in 16_usize..80,
        rate in prop::option::of(1e7..1e9),
        seed in any::<u64>(),
    ) {
        let timeout = Duration::from_nanos(50);
        let config = LoadConfig {
            inflight, rate_per_s: rate, loss_timeout: timeout,
            limit: Limit::Count(100), ..LoadConfig::default()
        };
        let mut now = at(0);
        let mut load = Load::new(config, Box::new(Echo::new(payload_len, seed).unwrap()), now).unwrap();
        let mut model = Model::default();
        let mut under_way: Vec<RequestId> = Vec::new();
        for step in steps {
            match step {
                Step::Send => while let Some(id) = load.due(now) {
                    load.sent(id, now);
                    prop_assert!(model.open.insert(id, now).is_none(), "{:x} issued twice", id);
                    under_way.push(id);
                },
                Step::Wait(nanos) => {
                    now += Duration::from_nanos(nanos);
                    prop_assert_eq!(load.expire(now), model.expire(now, timeout));
                }
                _ if under_way.is_empty() => {}
                Step::Deliver(index) => {
                    let id = under_way.swap_remove(index.index(under_way.len()));
                    model.fed += 1;
                    prop_assert_eq!(load.reply(&payload_of(&load, id), now), model.expect(id));
                }
                Step::Copy(index) => {
                    let id = *index.get(&under_way);
                    model.fed += 1;
                    prop_assert_eq!(load.reply(&payload_of(&load, id), now), model.expect(id));
                }
                Step::Drop(index) => {
                    under_way.swap_remove(index.index(under_way.len()));
                }
                Step::Corrupt(index, bit) => {
                    let mut payload = payload_of(&load, *index.get(&under_way));
                    let bit = bit.index(payload_len * 8);
                    payload[bit / 8] ^= 1 << (bit % 8);
                    model.fed += 1;
                    prop_assert_eq!(load.reply(&payload, now), Reply::Corrupt);
                }
            }
            prop_assert_eq!(load.open_requests(), model.open.len());
            prop_assert!(model.open.len() <= inflight as usize);
            prop_assert!(model.open.values().all(|sent| load.next_deadline() <= *sent + timeout));
        }
        let summary = load.summary();
        prop_assert_eq!(summary.sent, summary.received + summary.lost + summary.unanswered);
        prop_assert_eq!(summary.unanswered, model.open.len() as u64);
        prop_assert_eq!(summary.histogram.len(), summary.received);
        prop_assert_eq!(model.fed, summary.received + summary.duplicates + summary.late + summary.corrupt);
    }
}
