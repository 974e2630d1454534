use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::limits::REPLY_MAX;
use crate::name::{Generations, Name, generations, withdraw};

const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
const STAMPED: Shape = Shape::EXACT.copying(0, 2, 2).ignoring(4, 2);
const SHAPES: [Shape; 3] = [BY_ID, STAMPED, Shape::EXACT];

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_reason() {
    let (mut table, words) = (Table::new(64, 1), generations());
    let words = words.words();
    let version = Version::now(words, Name::of(b"name"));
    let (long_request, long_reply) = ([0; REQUEST_MAX + 1], [0; REPLY_MAX + 1]);
    let right = Publication { request: b"idrest", reply: b"idreply", shape: &BY_ID, version, until: at(9) };
    let other = Shape::EXACT.copying(0, 2, 1);
    let cases = [
        (Publication { shape: &other, ..right }, NotKept::Shape),
        (Publication { request: &long_request, ..right }, NotKept::RequestTooLong),
        (Publication { request: b"i", ..right }, NotKept::RequestTooShort),
        (Publication { reply: &long_reply, ..right }, NotKept::ReplyTooLong),
        (Publication { reply: b"IDreply", ..right }, NotKept::Copy),
        (Publication { reply: b"i", ..right }, NotKept::Copy),
        (Publication { until: at(5), ..right }, NotKept::Expired),
    ];
    for (publication, why) in cases {
        assert_eq!(table.publish(at(5), 0, &SHAPES, words, &publication), Err(why));
    }
    assert!(table.is_empty());
    assert_eq!(table.publish(at(5), 0, &SHAPES, words, &right), Ok(Kept::New));
    assert_eq!(table.publish(at(5), 0, &SHAPES, words, &right), Ok(Kept::Covered));
    withdraw(words, Name::of(b"name"));
    assert_eq!(table.publish(at(5), 0, &SHAPES, words, &right), Err(NotKept::Withdrawn));
    assert_eq!(table.len(), 1);
}

#[test]
fn the_longest_request_and_reply_are_kept() {
    let (mut table, words) = (Table::new(64, 1), generations());
    let words = words.words();
    let (request, reply) = ([7; REQUEST_MAX], [7; REPLY_MAX]);
    let version = Version::now(words, Name::numbered(3));
    let kept = Publication { request: &request, reply: &reply, shape: &BY_ID, version, until: at(1) };
    assert_eq!(table.publish(at(0), 0, &SHAPES, words, &kept), Ok(Kept::New));
    let (mut asked, mut found) = (request, Vec::new());
    asked[1] = 8;
    assert_eq!(table.find(at(0), 0, &SHAPES, words, &asked, &mut found), Ok(()));
    assert_eq!((found.len(), &found[..3]), (REPLY_MAX, &[7, 8, 7][..]));
    assert_eq!(table.find(at(1), 0, &SHAPES, words, &asked, &mut found), Err(WhyNot::Expired));
    assert_eq!(
        table.find(at(0), 1, &SHAPES, words, &asked, &mut found),
        Err(WhyNot::Unknown),
        "of a service"
    );
    for byte in 2..REQUEST_MAX {
        asked[byte] ^= 1;
        assert_eq!(table.find(at(0), 0, &SHAPES, words, &asked, &mut found), Err(WhyNot::Unknown));
        asked[byte] ^= 1;
    }
    let why = table.find(at(0), 0, &SHAPES, words, &[7; REQUEST_MAX + 1], &mut found);
    assert_eq!(why, Err(WhyNot::RequestTooLong));
    assert_eq!(
        table.find(at(0), 0, &SHAPES, words, &request[1..], &mut found),
        Err(WhyNot::Unknown),
        "shorter"
    );
}

#[test]
fn entries_that_are_asked_for_stay_while_others_come_and_go() {
    let (mut table, words) = (Table::new(256, 1), generations());
    let words = words.words();
    let version = Version::now(words, Name::numbered(3));
    let publish = |table: &mut Table, number: u32| {
        let request = [&[0; 2][..], &number.to_be_bytes()].concat();
        let kept = Publication {
            request: &request,
            reply: b"\0\0..",
            shape: &BY_ID,
            version,
            until: Instant::NEVER,
        };
        table.publish(at(0), 0, &SHAPES, words, &kept).expect("it can be kept")
    };
    (0..64).for_each(|number| assert_eq!(publish(&mut table, number), Kept::New));
    let mut reply = Vec::new();
    for flood in 0..10_000 {
        let asked = [&[5; 2][..], &(flood % 64_u32).to_be_bytes()].concat();
        assert_eq!(table.find(at(0), 0, &SHAPES, words, &asked, &mut reply), Ok(()), "{flood}");
        publish(&mut table, 1_000 + flood);
        assert!(table.len() <= table.capacity());
    }
    assert_eq!((table.len(), table.capacity()), (256, 256));
}

#[test]
fn the_number_of_entries_is_rounded_and_bounded() {
    for (asked, capacity) in [(0, 8), (1, 8), (9, 16), (4096, 4096), (5000, 8192), (u32::MAX, 65_536)] {
        assert_eq!(Table::new(asked, 0).capacity(), capacity);
    }
}

/// What a service does, and what its clients ask.
#[derive(Clone, Debug)]
enum Step {
    /// A reply is made: the version is read, then the state.
    Read {
        key: u8,
        id: u16,
        shape: usize,
    },
    /// A reply that was made is published; the oldest or the newest that was not.
    Publish {
        oldest: bool,
        hold: u64,
    },
    /// The state changes, and its name is withdrawn.
    Change {
        key: u8,
    },
    /// Somebody asks.
    Ask {
        key: u8,
        id: u16,
        shape: usize,
    },
    Wait {
        nanos: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (key, id, shape) = (0..12_u8, any::<u16>(), 0..3_usize);
    let step = prop_oneof![
        4 => (key.clone(), id, shape.clone()).prop_map(|(key, id, shape)| Step::Read { key, id, shape }),
        4 => (any::<bool>(), 0..50_u64).prop_map(|(oldest, hold)| Step::Publish { oldest, hold }),
        1 => key.clone().prop_map(|key| Step::Change { key }),
        6 => (key, id, shape).prop_map(|(key, id, shape)| Step::Ask { key, id, shape }),
        1 => (0..20_u64).prop_map(|nanos| Step::Wait { nanos }),
    ];
    prop::collection::vec(step, 1..300)
}

/// A request for a key; the shape says which of its bytes come from `id`.
fn request(key: u8, id: u16, shape: usize) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    match shape {
        0 => vec![high, low, b'a', key],
        1 => vec![high, low, b'b', key, low, high, b'x'],
        _ => vec![0, 0, b'c', key, b'y'],
    }
}

/// The reply that the service gives while the state of the key is this.
fn reply(key: u8, id: u16, shape: usize, state: u32) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let start = match shape {
        0 => vec![high, low],
        1 => vec![0, 0, high, low],
        _ => Vec::new(),
    };
    [start, vec![key], state.to_be_bytes().to_vec()].concat()
}

proptest! {
    /// For any order of reading, changing and publishing: a reply that is found is the one that the service would
    /// give now, and a published reply that was neither withdrawn nor has expired is found.
    #[test]
    fn a_reply_that_is_found_is_what_the_service_would_answer(steps in steps(), entries in 8..64_u32) {
        let (mut table, words) = (Table::new(entries, 7), generations());
        let words = words.words();
        let (mut states, mut made) = (HashMap::<u8, u32>::new(), Vec::new());
        // Until when a reply to a request is valid, by shape and key, if nothing was evicted.
        let mut valid = HashMap::<(usize, u8), Instant>::new();
        let (mut now, mut evicted) = (at(100), false);
        for step in steps {
            match step {
                Step::Read { key, id, shape } => {
                    let version = Version::now(words, Name::numbered(u64::from(key)));
                    let state = states.get(&key).copied().unwrap_or_default();
                    made.push((key, shape, request(key, id, shape), reply(key, id, shape, state), version));
                }
                Step::Publish { oldest, hold } => {
                    if made.is_empty() { continue }
                    let (key, shape, request, reply, version) =
                        if oldest { made.remove(0) } else { made.pop().expect("one") };
                    let until = now + twinpath_time::Duration::from_nanos(hold);
                    let kept = Publication { request: &request, reply: &reply, shape: &SHAPES[shape], version, until };
                    match table.publish(now, 0, &SHAPES, words, &kept) {
                        Ok(Kept::Evicting) => evicted = true,
                        Ok(_) => {}
                        Err(NotKept::Withdrawn) => { prop_assert!(!version.is_current(words)); continue }
                        Err(NotKept::Expired) => { prop_assert_eq!(hold, 0); continue }
                        Err(other) => prop_assert!(false, "{}", other),
                    }
                    // An entry that has half of that time left, and not more than all of it, is not written again.
                    let left = |until: Instant| until.as_nanos().saturating_sub(now.as_nanos());
                    let covers = |former: &Instant| left(*former) > 0 && left(*former) >= hold / 2 && *former <= until;
                    if !valid.get(&(shape, key)).is_some_and(covers) {
                        valid.insert((shape, key), until);
                    }
                }
                Step::Change { key } => {
                    *states.entry(key).or_default() += 1;
                    withdraw(words, Name::numbered(u64::from(key)));
                    valid.retain(|(_, of), _| *of != key);
                }
                Step::Ask { key, id, shape } => {
                    let mut found = Vec::new();
                    let answer = table.find(now, 0, &SHAPES, words, &request(key, id, shape), &mut found);
                    let state = states.get(&key).copied().unwrap_or_default();
                    match answer {
                        Ok(()) => prop_assert_eq!(found, reply(key, id, shape, state)),
                        Err(why) => {
                            let missed = valid.get(&(shape, key)).is_some_and(|until| *until > now);
                            prop_assert!(evicted || !missed, "{}", why.name());
                        }
                    }
                }
                Step::Wait { nanos } => now += twinpath_time::Duration::from_nanos(nanos),
            }
            prop_assert!(table.len() <= table.capacity());
        }
    }
}
