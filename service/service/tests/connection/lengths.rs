//! Tests of requests that are answered immediately: limits, deadlines, ends.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_service::{Closed, Output, Service};
use twinpath_time::{Duration, Instant};

use crate::simulated::{LIMITS, Rig};

/// Answers a line with as many bytes as it says; `end` and `bad` end the connection with and without a fault, and
/// `fail` panics. A `+` alone is used and declared to be part of a request.
#[derive(Default)]
struct Lengths {
    closes: Vec<Closed>,
}

impl Service for Lengths {
    type Connection = ();

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        if input.first() == Some(&b'+') {
            output.unfinished();
            return 1;
        }
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        match std::str::from_utf8(&input[..end]).unwrap() {
            "end" => output.end(),
            "bad" => output.refuse(Reason::ProtocolError),
            "fail" => panic!("as it was told to"),
            line if !output.write(&vec![b'x'; line.parse().unwrap()]) => return 0,
            _ => {}
        }
        end + 1
    }

    fn close(&mut self, _connection: (), why: Closed) {
        self.closes.push(why);
    }
}

fn rig() -> Rig<Lengths> {
    Rig::new(Lengths::default(), LIMITS, None)
}

/// A connection whose peer takes nothing of its replies.
fn deaf() -> Rig<Lengths> {
    let mut rig = rig();
    rig.transport.close_window();
    rig.say("60000\n".repeat(1_000));
    assert!(rig.held() > 0);
    rig
}

#[test]
fn requests_in_pieces_and_in_numbers_are_answered_once_each() {
    let mut rig = rig();
    for byte in b"12\n" {
        rig.say([*byte]);
    }
    rig.hears([b'x'; 12]);
    rig.say("7\n".repeat(3_000) + "1000");
    rig.hears([b'x'; 21_000]);
    rig.say("0\n");
    rig.hears([b'x'; 10_000]);
    assert_eq!(rig.held(), 0, "an idle connection holds nothing");
    assert_eq!((rig.received, rig.sent), (3 + 6_000 + 4 + 2, 12 + 21_000 + 10_000));
    rig.half_close();
    assert_eq!((rig.closed, &*rig.hosting.service.closes), (Some(Closed::Ended), &[Closed::Ended][..]));
}

#[test]
fn a_peer_that_does_not_read_is_not_read_and_gets_everything_once_it_does() {
    let mut rig = deaf();
    assert!(rig.held() <= 2 * LIMITS.bytes + 1_000);
    let mut got = 0;
    while got < 60_000_000 {
        rig.transport.open_window(100_000);
        rig.turns();
        let heard = rig.heard();
        assert!(heard.iter().all(|byte| *byte == b'x') && !heard.is_empty(), "after {got}");
        got += heard.len();
    }
    assert_eq!((got, rig.held()), (60_000_000, 0));
    rig.transport.open_window(5);
    rig.say("5\n");
    rig.hears("xxxxx");
}

#[test]
fn each_time_out_comes_at_its_time_under_its_name() {
    let at = |mut rig: Rig<Lengths>, seconds, reason| {
        rig.pass(Duration::from_secs(seconds) - Duration::from_nanos(1));
        assert_eq!(rig.closed, None);
        rig.pass(Duration::from_nanos(1));
        assert_eq!(rig.closed, Some(Closed::For(reason)));
    };
    at(rig(), 100, Reason::IdleTimeout);
    at(deaf(), 20, Reason::PeerNotReading);
    for part in ["12", "+"] {
        let mut rig = rig();
        rig.pass(Duration::from_secs(50));
        rig.say(part);
        at(rig, 10, Reason::RequestTimeout);
    }
}

#[test]
fn progress_puts_a_time_out_off() {
    let mut rig = rig();
    for _ in 0..50 {
        // There is always half a request behind a whole one.
        rig.say("3\n3");
        rig.pass(Duration::from_secs(6));
        rig.say("\n+");
        rig.pass(Duration::from_secs(6));
        rig.say("0\n");
    }
    for _ in 0..5 {
        rig.pass(Duration::from_secs(90));
        rig.say("1\n");
    }
    assert!(rig.is_open());
    // A byte that the peer takes also counts as activity.
    let mut deaf = deaf();
    for _ in 0..50 {
        deaf.pass(Duration::from_secs(19));
        deaf.transport.open_window(1);
        deaf.turns();
    }
    assert_eq!(deaf.heard().len(), 50);
    deaf.pass(Duration::from_secs(20));
    assert_eq!(deaf.closed, Some(Closed::For(Reason::PeerNotReading)));
}

#[test]
fn a_request_that_trickles_in_is_timed_from_its_first_byte() {
    // A whole request in between restarts the time, even one without a reply.
    for (parts, open) in [(["1", "1"], false), (["+", "+"], false), (["0", "\n0"], true)] {
        let mut rig = rig();
        rig.say(parts[0]);
        rig.pass(Duration::from_secs(6));
        rig.say(parts[1]);
        rig.pass(Duration::from_secs(4));
        assert_eq!(rig.is_open(), open, "{parts:?}");
        rig.pass(Duration::from_secs(6));
        assert_eq!(rig.closed, Some(Closed::For(Reason::RequestTimeout)), "{parts:?}");
    }
}

#[test]
fn a_request_that_can_never_be_answered_is_too_large() {
    let mut rig = rig();
    rig.say([b'1'; 200_000]);
    assert_eq!(rig.closed, Some(Closed::For(Reason::RequestTooLarge)));
}

#[test]
fn a_service_ends_a_connection_after_its_last_words_and_waits_for_the_peer_a_moment() {
    for (word, why) in [("end", Closed::Ended), ("bad", Closed::For(Reason::ProtocolError))] {
        for peer_ends in [true, false] {
            let mut rig = rig();
            rig.transport.close_window();
            rig.say(format!("50000\n{word}\n{}", "7\n".repeat(100_000)));
            assert!(!rig.transport.finished, "there are words yet to be said");
            rig.transport.open_window(usize::MAX);
            rig.turns();
            rig.hears([b'x'; 50_000]);
            assert!(rig.transport.finished && rig.is_open(), "it waits for its peer");
            if peer_ends {
                rig.half_close();
            } else {
                rig.pass(Duration::from_secs(2));
            }
            assert_eq!(rig.closed, Some(why));
        }
    }
}

#[test]
fn a_stop_answers_what_has_come_and_then_ends() {
    let mut asked = rig();
    asked.transport.arrive(b"30\n5\n6");
    asked.stop();
    asked.hears([b'x'; 35]);
    assert!(asked.transport.finished);
    asked.half_close();
    assert_eq!(asked.closed, Some(Closed::Stopped));

    let mut deaf = deaf();
    deaf.stop();
    assert!(!deaf.transport.finished, "it has not taken its replies yet");
    assert_eq!(deaf.connection().cut_off(), Closed::For(Reason::DrainTimeout));
    deaf.transport.open_window(usize::MAX);
    deaf.turns();
    let got = deaf.heard().len();
    assert!(got.is_multiple_of(60_000) && got > 0, "whole replies, then the end: {got}");
    assert!(deaf.transport.finished);
    assert_eq!(deaf.connection().cut_off(), Closed::Stopped, "it is only the peer that has not ended");
}

#[test]
fn a_stop_leaves_a_connection_time_for_its_first_request() {
    for (before, after) in [("", "5\n"), ("", "5\n6"), ("1", "5\n"), ("+", "5\n")] {
        let mut rig = rig();
        rig.say(before);
        rig.stop();
        assert!(!rig.transport.finished && !rig.connection().is_plain(), "{before:?}");
        let why = if before.is_empty() { Closed::Stopped } else { Closed::For(Reason::DrainTimeout) };
        assert_eq!(rig.connection().cut_off(), why, "{before:?}");
        rig.say(after);
        rig.hears(vec![b'x'; if before == "1" { 15 } else { 5 }]);
        assert!(rig.transport.finished, "{before:?}: one that was answered ends");
        rig.half_close();
        assert_eq!(rig.closed, Some(Closed::Stopped));
    }
    let mut silent = rig();
    silent.stop();
    silent.half_close();
    assert_eq!(silent.closed, Some(Closed::Ended));
    let mut answered = rig();
    answered.say("5\n");
    answered.stop();
    assert!(answered.transport.finished, "a connection that is idle after its first ends at once");
}

#[test]
fn a_reset_breaks_it_in_any_state() {
    let mut half = rig();
    half.say("12");
    let mut ending = deaf();
    ending.connection().end(Closed::For(Reason::ConnectionLimit));
    let broken = [(rig(), Closed::Broken), (half, Closed::Broken), (deaf(), Closed::Broken)];
    for (mut rig, why) in broken.into_iter().chain([(ending, Closed::For(Reason::ConnectionLimit))]) {
        rig.transport.reset();
        rig.turns();
        assert_eq!(rig.closed, Some(why));
    }
}

#[test]
fn a_half_close_within_a_request_is_no_orderly_end() {
    for part in ["12", "+", "5\n1"] {
        let mut rig = rig();
        rig.say(part);
        rig.half_close();
        assert_eq!(rig.closed, Some(Closed::Broken), "{part}");
    }
}

#[test]
fn a_panic_of_the_service_ends_the_connection_under_its_name() {
    let mut rig = rig();
    rig.say("3\nfail\n4\n");
    assert_eq!(rig.closed, Some(Closed::For(Reason::HandlerFailed)));
}
