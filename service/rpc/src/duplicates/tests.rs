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

struct Table(Arc<Duplicates>);

impl Table {
    fn new(calls: u32) -> Self {
        let table = Duplicates::new(DuplicateLimits { calls, ..LIMITS }, 7);
        table.make_room(8);
        Self(Arc::new(table))
    }

    fn key(&self, peer: u16, message: &[u8]) -> Key {
        let header = Header::parse(message).expect("a call");
        self.0.key(SocketAddr::from(([192, 0, 2, 1], peer)), &header, message)
    }

    fn begin(&self, at_s: u64, peer: u16, message: &[u8]) -> (Known, Vec<u8>) {
        let mut out = Vec::new();
        let now = Instant::ZERO + Duration::from_secs(at_s);
        (self.0.begin(now, self.key(peer, message), &mut out), out)
    }

    /// Runs an unknown call and keeps its reply; returns whether another one was replaced.
    fn keep(&self, at_s: u64, peer: u16, message: &[u8], reply: &[u8]) -> bool {
        let (Known::New(mut ticket), _) = self.begin(at_s, peer, message) else { panic!("known already") };
        ticket.start();
        ticket.finish(None, reply)
    }

    fn find(&self, at_s: u64, peer: u16, message: &[u8]) -> Option<Vec<u8>> {
        let (known, reply) = self.begin(at_s, peer, message);
        matches!(known, Known::Answered).then_some(reply)
    }
}

#[test]
fn a_repeated_call_gets_the_first_reply_until_its_age() {
    let table = Table::new(16);
    let call = message(1, b"name");
    assert_eq!(table.find(0, 1, &call), None);
    assert!(!table.keep(0, 1, &call, b"reply"));
    assert_eq!(table.find(59, 1, &call), Some(b"reply".to_vec()));
    assert_eq!(table.find(60, 1, &call), None);
}

#[test]
fn another_peer_number_length_or_byte_is_another_call() {
    let table = Table::new(1024);
    let calls = [message(1, b"name"), message(2, b"name"), message(1, b"name0000"), message(1, b"mane")];
    for (call, reply) in calls.iter().zip([b"1", b"2", b"3", b"4"]) {
        assert_eq!(table.find(0, 1, call), None);
        table.keep(0, 1, call, reply);
    }
    let replies = calls.each_ref().map(|call| table.find(1, 1, call));
    assert_eq!(replies, [b"1", b"2", b"3", b"4"].map(|reply| Some(reply.to_vec())));
    assert_eq!(table.find(0, 2, &calls[0]), None);
    // Calls that differ only after the hashed part of their arguments are told apart by their length alone.
    let mut long = message(3, &[7; 400]);
    table.keep(0, 1, &long, b"5");
    assert_eq!(table.find(0, 1, &message(3, &[7; 404])), None);
    *long.last_mut().expect("bytes") = 8;
    assert_eq!(table.find(0, 1, &long), Some(b"5".to_vec()));
}

#[test]
fn every_byte_of_the_credential_the_verifier_and_the_first_arguments_tells_calls_apart() {
    let table = Table::new(16);
    // The longest credential there is: all of it is hashed.
    let auth = Auth::sys(&"m".repeat(255), 1, 2, &[3; 16]).expect("within limits");
    let mut call = Vec::new();
    let args = [5; 300];
    Call { xid: 1, program: 100_003, version: 3, procedure: 12, auth: &auth, args: &args }.write(&mut call);
    let (first, args_at) = (table.key(1, &call), call.len() - args.len());
    // The words before the credential decide whether it is this call at all.
    for at in (0..4).chain(32..args_at + HASHED_ARGS_MAX) {
        for bit in 0..8 {
            let mut other = call.clone();
            other[at] ^= 1 << bit;
            let Ok(header) = Header::parse(&other) else { continue };
            let key = table.0.key(SocketAddr::from(([192, 0, 2, 1], 1)), &header, &other);
            // A length that reaches further changes where the arguments begin.
            assert!(key != first, "byte {at}, bit {bit}");
        }
    }
    assert!(table.key(2, &call) != first);
    let unlike = Duplicates::new(LIMITS, 8);
    let peer = SocketAddr::from(([192, 0, 2, 1], 1));
    assert!(unlike.key(peer, &Header::parse(&call).expect("a call"), &call) != first, "the seed is its key");
}

#[test]
fn an_unstarted_call_is_forgotten_and_one_whose_code_panicked_is_not_rerun() {
    let table = Table::new(16);
    let call = message(1, b"name");
    assert!(matches!(table.begin(0, 1, &call), (Known::New(_), _)));
    let (Known::New(mut ticket), _) = table.begin(0, 1, &call) else { panic!("forgotten") };
    ticket.start();
    assert!(matches!(table.begin(0, 1, &call), (Known::Working, _)));
    drop(ticket);
    assert!(matches!(table.begin(59, 1, &call), (Known::Working, _)), "its code panicked half-way");
    assert!(matches!(table.begin(60, 1, &call), (Known::New(_), _)));
}

#[test]
fn the_oldest_reply_is_replaced_and_expired_ones_are_forgotten() {
    let (table, mut shard) = (Table::new(1), Shard::new(DuplicateLimits { calls: 1, ..LIMITS }, 8));
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let key = |xid: u32| table.key(1, &message(xid, b""));
    for xid in 0..SET_ENTRIES as u32 {
        assert!(!shard.keep(at(xid.into()), key(xid), &[xid as u8]));
    }
    assert!(shard.keep(at(10), key(99), b"new"));
    assert_eq!(shard.find(at(10), &key(0)), None);
    assert_eq!(shard.find(at(10), &key(1)), Some(&[1][..]));
    assert_eq!(shard.find(at(10), &key(99)), Some(&b"new"[..]));
    assert!(!shard.keep(at(61), key(100), b"newer"), "one was a minute old");
}

#[test]
fn calls_are_spread_over_all_sets() {
    // 1024 places in 128 sets: nearly all of half as many calls find room.
    let table = Table::new(1024);
    let calls: Vec<_> = (0..512).map(|xid| message(xid, b"name")).collect();
    let displaced = calls.iter().filter(|call| table.keep(0, 1, call, b"reply")).count();
    let found = calls.iter().filter(|call| table.find(1, 1, call).is_some()).count();
    assert_eq!(found + displaced, 512);
    assert!(displaced < 40, "{displaced} displaced");
}

#[test]
fn a_call_in_progress_does_not_age_and_its_reply_ages_from_its_end() {
    let table = Table::new(16);
    let call = message(1, b"name");
    let (Known::New(mut ticket), _) = table.begin(5, 1, &call) else { panic!("known already") };
    ticket.start();
    assert!(matches!(table.begin(500, 1, &call), (Known::Working, _)), "it still runs");
    ticket.defer();
    assert!(matches!(table.begin(900, 1, &call), (Known::Working, _)), "it still waits for a thread");
    let ended = Instant::ZERO + Duration::from_secs(1000);
    assert!(!ticket.finish(Some(ended), b"reply"));
    assert_eq!(table.find(1059, 1, &call), Some(b"reply".to_vec()));
    assert_eq!(table.find(1060, 1, &call), None, "a minute after it ended");
}

#[test]
fn a_reply_whose_end_is_not_known_ages_from_its_arrival() {
    let table = Table::new(16);
    let call = message(1, b"name");
    assert!(!table.keep(5, 1, &call, b"reply"));
    assert_eq!(table.find(64, 1, &call), Some(b"reply".to_vec()));
    assert_eq!(table.find(65, 1, &call), None, "a minute after it came");
}

#[test]
fn a_reply_as_long_as_its_program_announced_is_kept_whole() {
    let table = Table::new(16);
    table.keep(0, 1, &message(1, b"name"), b"8 bytes.");
    table.keep(0, 1, &message(2, b"name"), b"");
    assert_eq!(table.find(1, 1, &message(1, b"name")), Some(b"8 bytes.".to_vec()));
    assert_eq!(table.find(1, 1, &message(2, b"name")), Some(vec![]));
}

#[test]
fn memory_is_bounded_by_the_limits() {
    let Table(table) = Table::new(1024);
    let shards: Vec<_> = (0..SHARDS).map(|at| table.shard(at)).collect();
    assert!(shards.iter().all(|shard| (shard.places.len(), shard.replies.len()) == (64, 64 * 8)));
}

#[test]
fn a_call_that_comes_to_many_workers_at_once_runs_on_one_of_them() {
    let table = Table::new(1024);
    for xid in 0..200 {
        let call = message(xid, b"name");
        let runs: usize = std::thread::scope(|scope| {
            let one = || match table.begin(0, 1, &call).0 {
                Known::New(mut ticket) => {
                    ticket.start();
                    ticket.finish(None, b"reply");
                    1
                }
                _ => 0,
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            workers.into_iter().map(|worker| worker.join().expect("it ends")).sum()
        });
        assert_eq!((runs, table.find(1, 1, &call)), (1, Some(b"reply".to_vec())));
    }
}

proptest! {
    /// For any sequence of calls: the reply found is the last one kept for that call, and not too old.
    #[test]
    fn the_reply_found_is_the_last_one_kept(steps in proptest::collection::vec((0..30_u32, 0..3_u16, 0..20_u64), 0..200)) {
        let table = Table::new(16);
        let mut model: HashMap<(u32, u16), (u64, u8)> = HashMap::new();
        let (mut now_s, mut found) = (0, 0);
        for (step, (xid, peer, later_s)) in steps.iter().enumerate() {
            now_s += later_s;
            let call = message(*xid, b"args");
            match table.find(now_s, *peer, &call) {
                Some(reply) => {
                    let (kept_s, expected) = model[&(*xid, *peer)];
                    prop_assert_eq!(reply, [expected]);
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

#[test]
fn other_limits_lose_nothing_that_still_has_room() {
    let table = Table::new(1024);
    let call = |xid| message(xid, b"name");
    let (Known::New(ticket), _) = table.begin(0, 1, &call(0)) else { panic!("known already") };
    (1..=64).for_each(|xid| assert!(!table.keep(u64::from(xid), 1, &call(xid), &xid.to_be_bytes())));
    let is_kept = |xid: u32| table.find(64, 1, &call(xid)) == Some(xid.to_be_bytes().to_vec());
    table.0.make_room(16);
    table.0.set_limits(DuplicateLimits { calls: 2048, age: Duration::from_secs(100) });
    assert!((1..=64).all(is_kept));
    assert!(matches!(table.begin(64, 1, &call(0)), (Known::Working, _)), "it is carried out");
    ticket.finish(None, &[7; 16]);
    assert_eq!(table.find(64, 1, &call(0)), Some(vec![7; 16]), "of those that were in progress as well");
    // One set of each shard: the newest ones have the room.
    table.0.set_limits(DuplicateLimits { calls: 1, ..LIMITS });
    let kept: Vec<_> = (1..=64).filter(|xid| is_kept(*xid)).collect();
    assert!(kept.contains(&64) && kept.len() <= 16 * SET_ENTRIES, "{kept:?}");
}
