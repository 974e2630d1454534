//! Tests a connection's answers to its host: whether it is idle, what it waits for and until when, and why
//! it is closed.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_service::{Closed, Order, Output, Service};
use twinpath_time::{Duration, Instant};

use crate::simulated::{LIMITS, Rig};

/// Answers a line with itself: immediately, or later if it begins with `?`. `.` ends the connection; a
/// single `+` is used as a part of a request.
#[derive(Default)]
struct Lines {
    /// The number of calls that told it of room.
    told: u32,
}

impl Service for Lines {
    type Connection = ();

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        if input[0] == b'+' {
            output.unfinished();
            return 1;
        }
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        let line = input[..=end].to_vec();
        let taken = match line[0] {
            b'.' => {
                output.end();
                true
            }
            b'?' => output.may_defer() && output.later(Order::AsAsked, || line),
            _ => output.write(&line),
        };
        if taken { end + 1 } else { 0 }
    }

    fn writable(&mut self, _now: Instant, _: &mut (), _output: &mut Output<'_>) {
        self.told += 1;
    }

    fn defers(&self) -> bool {
        true
    }
}

fn rig() -> Rig<Lines> {
    Rig::new(Lines::default(), LIMITS, Some(4))
}

/// The state after the input `said`, if the peer takes the first `window` bytes of the replies.
fn after(said: &str, window: usize) -> Rig<Lines> {
    let mut rig = rig();
    rig.pass(Duration::from_secs(5));
    rig.transport.close_window();
    rig.transport.open_window(window);
    rig.say(said);
    rig
}

#[test]
fn each_state_has_its_deadline_and_the_reason_for_closing_it_then() {
    use Closed::{Broken, Ended, For};

    // What was said, the window; whether it is plain, and idle; what it waits for and for how long.
    for (said, window, plain, idle, seconds, why) in [
        ("", 100, true, true, Some(95), For(Reason::IdleTimeout)),
        ("a\nb\n", 100, true, true, Some(100), For(Reason::IdleTimeout)),
        ("a\nb", 100, false, false, Some(10), For(Reason::RequestTimeout)),
        ("+", 100, false, false, Some(10), For(Reason::RequestTimeout)),
        ("a\nb\n", 3, false, false, Some(20), For(Reason::PeerNotReading)),
        ("a\nb\n", 0, false, false, Some(20), For(Reason::PeerNotReading)),
        ("?a\nb", 100, false, false, None, Broken),
        (".\n", 100, false, true, Some(2), Ended),
    ] {
        let mut rig = after(said, window);
        let (now, limits, held) = (rig.now, rig.limits, rig.held());
        let connection = rig.connection();
        assert_eq!((connection.is_plain(), connection.is_idle()), (plain, idle), "{said:?}");
        let deadline = seconds.map_or(Instant::NEVER, |seconds| now + Duration::from_secs(seconds));
        assert_eq!((connection.deadline(&limits), connection.expired(&limits)), (deadline, why), "{said:?}");
        assert_eq!(connection.awaited(), usize::from(seconds.is_none()), "{said:?}");
        assert_eq!(held > 0, !plain && !idle && said != "+", "{said:?}: {held}");
        let since = if said.is_empty() { now - Duration::from_secs(5) } else { now };
        assert_eq!(connection.touched(), since, "{said:?}");
        let cut_off = if said == ".\n" { Ended } else { For(Reason::DrainTimeout) };
        assert_eq!(connection.cut_off(), cut_off, "{said:?}");
    }
}

#[test]
fn there_may_be_more_after_an_edge_and_after_a_read_that_filled_its_room() {
    let mut rig = rig();
    rig.connection().woken(false);
    assert!(rig.connection().may_have_more());
    rig.work();
    assert!(!rig.connection().may_have_more(), "there was nothing");
    for (len, more) in [(LIMITS.bytes - 2, false), (LIMITS.bytes, true), (LIMITS.bytes + 2, true)] {
        rig.transport.arrive(&b"a\n".repeat(len / 2));
        assert!(rig.turn());
        assert_eq!(rig.connection().may_have_more(), more, "{len} bytes");
        rig.turns();
        assert_eq!(rig.heard().len(), len);
        assert!(!rig.connection().may_have_more());
    }
    // The same behind a part of a request.
    for (len, more) in [(LIMITS.bytes - 6, false), (LIMITS.bytes - 5, true)] {
        let mut rig = self::rig();
        rig.say("part ");
        rig.transport.arrive(&[vec![b'b'; len - 1], b"\n".to_vec()].concat());
        assert!(rig.turn());
        assert_eq!(rig.connection().may_have_more(), more, "{len} bytes");
    }
    // The last edge also announces the bytes before the end.
    rig.transport.arrive(b"a\n");
    rig.transport.end();
    assert!(rig.turn() && rig.connection().may_have_more());
    rig.turns();
    assert_eq!(rig.closed, Some(Closed::Ended));
}

#[test]
fn a_reply_that_nobody_awaits_is_none_of_this_connection() {
    let mut rig = rig();
    assert!(!rig.connection().done(1, b"no\n".to_vec()));
    rig.say("?a\n");
    assert!(!rig.connection().done(99, b"no\n".to_vec()));
    assert_eq!(rig.connection().awaited(), 1);
    rig.do_work(0);
    rig.turns();
    rig.hears("?a\n");
    assert_eq!((rig.connection().awaited(), rig.held()), (0, 0));
}

#[test]
fn a_service_is_not_told_of_room_while_an_earlier_reply_is_still_to_come() {
    let mut rig = rig();
    rig.say("a\n");
    assert_eq!(rig.hosting.service.told, 1);
    rig.say("?b\nc\n");
    assert_eq!(rig.hosting.service.told, 1, "`c` has not left");
    rig.do_work(0);
    rig.turns();
    rig.hears("a\n?b\nc\n");
    assert_eq!(rig.hosting.service.told, 2);
    // The same while its peer takes nothing.
    rig.transport.close_window();
    rig.say("d\n");
    assert_eq!(rig.hosting.service.told, 2);
    rig.transport.open_window(2);
    rig.turns();
    assert_eq!(rig.hosting.service.told, 3);
}

#[test]
fn what_comes_after_a_stop_is_not_answered() {
    let mut rig = rig();
    rig.say("?a\n");
    rig.stop();
    rig.say("late\n");
    rig.do_work(0);
    rig.turns();
    rig.hears("?a\n");
    assert!(rig.transport.finished);
    rig.half_close();
    assert_eq!(rig.closed, Some(Closed::Stopped));
}

#[test]
fn a_full_buffer_is_too_large_a_request_only_once_nothing_else_is_awaited() {
    let mut rig = rig();
    rig.say("?a\n");
    rig.say("b".repeat(100_000));
    assert!(rig.is_open(), "it may continue when the reply is there");
    rig.do_work(0);
    rig.turns();
    rig.hears("?a\n");
    assert_eq!(rig.closed, Some(Closed::For(Reason::RequestTooLarge)));
}

/// Uses nothing until a minute has passed, and says so.
struct Patient;

impl Service for Patient {
    type Connection = Instant;

    fn accept(&mut self, now: Instant, _peer: SocketAddr) -> Result<Instant, Reason> {
        Ok(now + Duration::from_secs(60))
    }

    fn stream(&mut self, now: Instant, at: &mut Instant, input: &[u8], output: &mut Output<'_>) -> usize {
        if now >= *at {
            return input.len();
        }
        output.wake_at(*at);
        0
    }
}

#[test]
fn a_full_buffer_is_no_too_large_request_of_a_service_that_waits_for_a_time() {
    let mut rig = Rig::new(Patient, LIMITS, None);
    rig.say("b".repeat(100_000));
    assert!(rig.is_open(), "it goes on then");
    rig.now += Duration::from_secs(60);
    rig.work();
    rig.turns();
    assert_eq!((rig.is_open(), rig.received), (true, 100_000));
}

#[test]
fn memory_held_for_replies_to_come_is_accounted_for() {
    let mut rig = rig();
    rig.say("?a\n");
    let awaiting = rig.held();
    let lines = [30_000, 20_000].map(|len| format!("{}\n", "b".repeat(len)));
    rig.say(&lines[0]);
    assert_eq!(rig.held(), awaiting + lines[0].len());
    rig.say(format!("?c\n{}", lines[1]));
    assert_eq!(rig.held(), awaiting + lines[0].len() + lines[1].len());
    // A reply in its place waits for those before it.
    rig.do_work(1);
    rig.turns();
    assert_eq!(rig.held(), awaiting + lines[0].len() + "?c\n".len() + lines[1].len());
    rig.hears("");
    rig.do_work(0);
    rig.turns();
    rig.hears(format!("?a\n{}?c\n{}", lines[0], lines[1]));
    assert_eq!(rig.held(), 0);
    rig.say(format!("?a\n{}?c\n{}", lines[0], lines[1]));
    rig.do_work(0);
    rig.turns();
    assert_eq!(rig.held(), awaiting + lines[1].len(), "what has left is held no more");
}
