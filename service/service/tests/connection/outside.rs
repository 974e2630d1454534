//! Tests what a service does on a connection without input: it greets, is woken, and sends outside of a
//! reply.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_service::{Closed, ConnectionId, Order, Output, Service};
use twinpath_time::{Duration, Instant};

use crate::simulated::{LIMITS, Rig};

/// Greets, and sends every second the number of wakes. A line is a number of bytes to be answered in
/// capitals and in pieces, `later` for work, or `quiet` for no more wakes.
#[derive(Default)]
struct Clock {
    left: usize,
    woken: u32,
    end_at: u32,
}

const SECOND: Duration = Duration::from_secs(1);

impl Service for Clock {
    type Connection = ();

    fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn opened(&mut self, now: Instant, _: &mut (), output: &mut Output<'_>) {
        assert_eq!(output.connection(), ConnectionId::new(0, 1));
        assert!(output.write(b"hello "));
        output.wake_at(now + SECOND);
    }

    fn woken(&mut self, now: Instant, _: &mut (), output: &mut Output<'_>) {
        self.woken += 1;
        assert!(output.write(format!("{} ", self.woken).as_bytes()));
        output.wake_at(now + SECOND);
        if self.woken == self.end_at {
            output.end();
        }
    }

    fn stream(&mut self, _: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        if self.left > 0 {
            return 0;
        }
        match input {
            b"quiet" => output.wake_at(Instant::NEVER),
            b"later" => assert!(output.later(Order::AsAsked, || b"done ".to_vec())),
            number => {
                self.left = String::from_utf8_lossy(number).parse().expect("a number");
                self.writable(Instant::ZERO, &mut (), output);
            }
        }
        input.len()
    }

    fn writable(&mut self, _: Instant, _: &mut (), output: &mut Output<'_>) {
        let len = self.left.min(output.room()).min(10);
        assert!(output.write(&b"AAAAAAAAAA"[..len]));
        self.left -= len;
    }
}

fn begun() -> Rig<Clock> {
    let mut rig = Rig::new(Clock::default(), LIMITS, Some(4));
    rig.aside(|connection, transport, turn| connection.begin(transport, turn));
    rig.hears("hello ");
    rig
}

fn push(rig: &mut Rig<Clock>, bytes: &[u8]) -> Result<(), Reason> {
    let now = rig.now;
    rig.connection().push(now, bytes, &LIMITS)
}

#[test]
fn a_service_speaks_first_and_is_woken_when_it_wants_to_be() {
    let mut rig = begun();
    for woken in ["1 ", "2 ", "3 "] {
        rig.pass(SECOND / 2);
        rig.hears("");
        rig.pass(SECOND / 2);
        rig.hears(woken);
    }
    rig.say("quiet");
    rig.pass(LIMITS.idle - SECOND);
    rig.hears("");
    assert!(rig.is_open());
    rig.pass(SECOND);
    assert_eq!(rig.closed, Some(Closed::For(Reason::IdleTimeout)));
}

#[test]
fn bytes_of_its_own_are_no_request_of_the_peer() {
    let mut rig = begun();
    rig.hosting.service.end_at = 3;
    (0..3).for_each(|_| rig.pass(SECOND));
    rig.hears("1 2 3 ");
    rig.half_close();
    assert_eq!(rig.closed, Some(Closed::Ended));
}

#[test]
fn neither_a_wake_nor_a_push_comes_in_the_middle_of_a_reply() {
    let mut rig = begun();
    rig.transport.close_window();
    rig.say("25");
    rig.pass(SECOND);
    let pushed = |rig: &mut Rig<Clock>, bytes: &[u8]| {
        let pushed = push(rig, bytes);
        rig.work();
        rig.turns();
        pushed
    };
    assert_eq!(pushed(&mut rig, b"pushed "), Ok(()));
    rig.hears("");
    rig.transport.open_window(5);
    rig.turns();
    rig.hears("AAAAA");
    rig.transport.open_window(1000);
    rig.turns();
    let rest = String::from_utf8(rig.heard()).expect("text");
    assert!(rest.starts_with(&"A".repeat(20)), "{rest}");
    let mut others: Vec<_> = rest[20..].split_whitespace().collect();
    others.sort_unstable();
    assert_eq!(others, ["1", "pushed"]);
    assert_eq!(pushed(&mut rig, b"at once "), Ok(()));
    rig.hears("at once ");
}

#[test]
fn a_wake_waits_for_the_reply_that_is_awaited_in_order() {
    let mut rig = begun();
    rig.say("later");
    rig.pass(SECOND);
    rig.hears("");
    rig.do_work(0);
    rig.turns();
    rig.hears("done 1 ");
}

#[test]
fn what_is_pushed_is_bounded_and_ends_with_the_connection() {
    let mut rig = begun();
    rig.transport.close_window();
    let mut taken = 0;
    while push(&mut rig, &[7; 1000]).is_ok() {
        taken += 1000;
        rig.work();
    }
    assert_eq!(push(&mut rig, &[7; 1000]), Err(Reason::OutboxFull));
    assert!(taken <= LIMITS.bytes && taken + 1000 > LIMITS.bytes, "{taken}");
    rig.transport.open_window(usize::MAX / 2);
    rig.turns();
    assert_eq!(rig.heard().len(), taken);
    rig.connection().end(Closed::Ended);
    assert_eq!(push(&mut rig, b"x"), Err(Reason::LateReply));
}

#[test]
fn what_is_pushed_comes_behind_the_reply_that_is_awaited_in_order() {
    let mut rig = begun();
    rig.say("later");
    assert_eq!(push(&mut rig, b"pushed "), Ok(()));
    rig.work();
    rig.turns();
    rig.hears("");
    rig.do_work(0);
    rig.turns();
    rig.hears("done pushed ");
}

#[test]
fn a_peer_that_was_only_told_something_ends_with_a_drain() {
    let mut rig = begun();
    rig.stop();
    rig.half_close();
    assert_eq!(rig.closed, Some(Closed::Stopped));
}

#[test]
fn a_silent_peer_has_the_whole_time_to_take_what_it_is_told() {
    let mut rig = begun();
    rig.transport.close_window();
    rig.say("quiet");
    rig.pass(LIMITS.send + SECOND);
    assert_eq!(push(&mut rig, b"news "), Ok(()));
    rig.work();
    rig.turns();
    rig.pass(LIMITS.send - SECOND);
    assert!(rig.is_open());
    rig.pass(SECOND);
    assert_eq!(rig.closed, Some(Closed::For(Reason::PeerNotReading)));
}
