use super::*;
use crate::client::{Auth, Call};
use crate::program::Transport;

const LIMITS: DuplicateLimits = DuplicateLimits { calls: 16, age: Duration::from_secs(60) };

fn message(xid: u32, args: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid, program: 100_003, version: 3, procedure: 12, auth: &Auth::none(), args }.write(&mut message);
    message
}

struct Table {
    duplicates: Duplicates,
    counters: ServiceCounters,
}

impl Table {
    fn new(limits: DuplicateLimits) -> Self {
        Self { duplicates: Duplicates::new(limits, 8, 7), counters: ServiceCounters::default() }
    }

    fn look_up(&mut self, at_s: u64, peer: u16, message: &[u8]) -> Known<'_> {
        let arrival = Arrival {
            now: Instant::ZERO + Duration::from_secs(at_s),
            peer: SocketAddr::from(([192, 0, 2, 1], peer)),
            transport: Transport::Datagram,
        };
        let header = Header::parse(message).expect("a call");
        self.duplicates.look_up(arrival, &header, message, &self.counters)
    }

    fn slot(&mut self, at_s: u64, peer: u16, message: &[u8]) -> Slot {
        match self.look_up(at_s, peer, message) {
            Known::New(slot) => slot,
            known => panic!("known already: {known:?}"),
        }
    }
}

#[test]
fn a_repeated_call_gets_the_first_reply_until_its_age() {
    let mut table = Table::new(LIMITS);
    let call = message(1, b"name");
    let slot = table.slot(0, 1, &call);
    assert_eq!(table.look_up(1, 1, &call), Known::Running);
    table.duplicates.answered(slot, b"reply");
    assert_eq!(table.look_up(59, 1, &call), Known::Answered(b"reply"));
    assert_eq!(table.counters.repeated.get(), 1);
    table.slot(60, 1, &call);
    assert_eq!(table.counters.forgotten.get(), 0, "what is too old makes room unasked");
}

#[test]
fn another_peer_number_length_or_byte_is_another_call() {
    let mut table = Table::new(DuplicateLimits { calls: 1024, ..LIMITS });
    let calls = [message(1, b"name"), message(2, b"name"), message(1, b"name0000"), message(1, b"mane")];
    for call in &calls {
        table.slot(0, 1, call);
    }
    table.slot(0, 2, &calls[0]);
    // Beyond the bytes summed, only the length tells.
    let (mut long, longer) = (message(3, &[7; 400]), message(3, &[7; 404]));
    table.slot(0, 1, &long);
    table.slot(0, 1, &longer);
    *long.last_mut().expect("bytes") = 8;
    assert_eq!(table.look_up(0, 1, &long), Known::Running);
}

#[test]
fn the_oldest_makes_room_and_a_late_reply_finds_its_place_taken() {
    let mut table = Table::new(DuplicateLimits { calls: 1, ..LIMITS });
    let first = table.slot(0, 1, &message(0, b""));
    let second = table.slot(1, 1, &message(1, b""));
    for xid in 2..=WAYS as u32 {
        table.slot(u64::from(xid), 1, &message(xid, b""));
    }
    assert_eq!(table.counters.forgotten.get(), 1);
    table.duplicates.answered(first, b"late");
    assert_eq!(table.look_up(9, 1, &message(WAYS as u32, b"")), Known::Running, "not what was late");
    table.duplicates.answered(second, b"second");
    assert_eq!(table.look_up(9, 1, &message(1, b"")), Known::Answered(b"second"));
}

#[test]
fn memory_is_what_the_limits_say() {
    let table = Table::new(DuplicateLimits { calls: 100, ..LIMITS });
    assert_eq!((table.duplicates.places.len(), table.duplicates.replies.len()), (128, 128 * 8));
}
