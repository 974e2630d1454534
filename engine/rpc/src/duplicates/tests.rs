use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::client::{Auth, Call};

const LIMITS: DuplicateLimits = DuplicateLimits { calls: 16, age: Duration::from_secs(60) };

fn message(xid: u32, args: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid, program: 100_003, version: 3, procedure: 12, auth: &Auth::none(), args }.write(&mut message);
    message
}

struct Table(Duplicates);

impl Table {
    fn new(calls: u32) -> Self {
        Self(Duplicates::new(DuplicateLimits { calls, ..LIMITS }, 8, 7))
    }

    fn key(&self, peer: u16, message: &[u8]) -> Key {
        let header = Header::parse(message).expect("a call");
        self.0.key(SocketAddr::from(([192, 0, 2, 1], peer)), &header, message)
    }

    fn keep(&mut self, at_s: u64, peer: u16, message: &[u8], reply: &[u8]) -> bool {
        let key = self.key(peer, message);
        self.0.keep(Instant::ZERO + Duration::from_secs(at_s), key, reply)
    }

    fn find(&self, at_s: u64, peer: u16, message: &[u8]) -> Option<&[u8]> {
        self.0.find(Instant::ZERO + Duration::from_secs(at_s), &self.key(peer, message))
    }
}

#[test]
fn a_repeated_call_gets_the_first_reply_until_its_age() {
    let mut table = Table::new(16);
    let call = message(1, b"name");
    assert_eq!(table.find(0, 1, &call), None);
    assert!(!table.keep(0, 1, &call, b"reply"));
    assert_eq!(table.find(59, 1, &call), Some(&b"reply"[..]));
    assert_eq!(table.find(60, 1, &call), None);
}

#[test]
fn another_peer_number_length_or_byte_is_another_call() {
    let mut table = Table::new(1024);
    let calls = [message(1, b"name"), message(2, b"name"), message(1, b"name0000"), message(1, b"mane")];
    for (call, reply) in calls.iter().zip([b"1", b"2", b"3", b"4"]) {
        assert_eq!(table.find(0, 1, call), None);
        table.keep(0, 1, call, reply);
    }
    let replies = calls.each_ref().map(|call| table.find(1, 1, call));
    assert_eq!(replies, [b"1", b"2", b"3", b"4"].map(|reply| Some(&reply[..])));
    assert_eq!(table.find(0, 2, &calls[0]), None);
    // Beyond the bytes summed, only the length tells.
    let mut long = message(3, &[7; 400]);
    table.keep(0, 1, &long, b"5");
    assert_eq!(table.find(0, 1, &message(3, &[7; 404])), None);
    *long.last_mut().expect("bytes") = 8;
    assert_eq!(table.find(0, 1, &long), Some(&b"5"[..]));
}

#[test]
fn the_oldest_makes_room_and_what_is_too_old_makes_it_unasked() {
    let mut table = Table::new(1);
    for xid in 0..WAYS as u32 {
        assert!(!table.keep(xid.into(), 1, &message(xid, b""), &[xid as u8]));
    }
    assert!(table.keep(10, 1, &message(99, b""), b"new"));
    assert_eq!(table.find(10, 1, &message(0, b"")), None);
    assert_eq!(table.find(10, 1, &message(1, b"")), Some(&[1][..]));
    assert_eq!(table.find(10, 1, &message(99, b"")), Some(&b"new"[..]));
    assert!(!table.keep(61, 1, &message(100, b""), b"newer"), "one was a minute old");
}

#[test]
fn memory_is_what_the_limits_say() {
    let Table(duplicates) = Table::new(100);
    assert_eq!((duplicates.places.len(), duplicates.replies.len()), (128, 128 * 8));
}

proptest! {
    /// Whatever comes in whatever order: what is found is what was kept last for that call, and not too old.
    #[test]
    fn what_is_found_is_what_was_kept(steps in proptest::collection::vec((0..30_u32, 0..3_u16, 0..20_u64), 0..200)) {
        let mut table = Table::new(16);
        let mut model: HashMap<(u32, u16), (u64, u8)> = HashMap::new();
        let (mut now_s, mut found) = (0, 0);
        for (step, (xid, peer, later_s)) in steps.iter().enumerate() {
            now_s += later_s;
            let call = message(*xid, b"args");
            match table.find(now_s, *peer, &call) {
                Some(reply) => {
                    let (kept_s, expected) = model[&(*xid, *peer)];
                    prop_assert_eq!(reply, &[expected]);
                    prop_assert!(now_s - kept_s < 60);
                    found += 1;
                }
                None => {
                    table.keep(now_s, *peer, &call, &[step as u8]);
                    model.insert((*xid, *peer), (now_s, step as u8));
                    prop_assert!(table.find(now_s, *peer, &call).is_some());
                }
            }
        }
        prop_assert!(found + model.len() <= steps.len());
    }
}
