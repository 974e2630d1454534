//! Tests of deferred replies, from work that may block.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_service::{Closed, Order, Output, Service};
use twinpath_time::{Duration, Instant};

use crate::simulated::{LIMITS, Rig};

/// Answers a line with itself, later: in order or, for `!N`, as soon as it is done. A line that begins with
/// `=` is answered immediately, `~` in any order by work that gets it from the input, and one with `#` immediately with 60,000 bytes. `fail` panics in the work,
/// and `now` in the call that handed it over. `*` is answered with 200,000 bytes of `*`, more than an
/// output holds, and `.` ends the connection.
#[derive(Default)]
struct Later;

impl Later {
    fn go_on(left: &mut usize, output: &mut Output<'_>) {
        let len = output.room().min(*left);
        *left -= len;
        assert!(output.write(&vec![b'*'; len]));
    }
}

impl Service for Later {
    type Connection = usize;

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<usize, Reason> {
        Ok(0)
    }

    fn stream(&mut self, _: Instant, left: &mut usize, input: &[u8], output: &mut Output<'_>) -> usize {
        let end = input.iter().position(|byte| *byte == b'\n').filter(|_| *left == 0);
        let Some(end) = end else { return 0 };
        let line = input[..=end].to_vec();
        match line[0] {
            b'=' => return if output.write(&line) { end + 1 } else { 0 },
            b'#' => return if output.write(&[b'#'; 60_000]) { end + 1 } else { 0 },
            b'*' => {
                *left = 200_000;
                Self::go_on(left, output);
                return end + 1;
            }
            b'.' => {
                output.end();
                return end + 1;
            }
            _ => {}
        }
        if !output.may_defer() {
            return 0;
        }
        if line[0] == b'~' {
            assert!(output.later_with(0, Order::AsDone, 0..end + 1, <[u8]>::to_vec), "it was asked for");
            return end + 1;
        }
        let order = if line[0] == b'!' { Order::AsDone } else { Order::AsAsked };
        let fails = line == b"now\n";
        let taken = output.later(order, move || {
            assert_ne!(line, b"fail\n");
            line
        });
        assert!(taken && !fails, "it was asked for");
        end + 1
    }

    fn writable(&mut self, _: Instant, left: &mut usize, output: &mut Output<'_>) {
        Self::go_on(left, output);
    }

    fn defers(&self) -> bool {
        true
    }
}

fn rig(workers: usize) -> Rig<Later> {
    Rig::new(Later, LIMITS, Some(workers))
}

fn do_all_work(rig: &mut Rig<Later>) {
    while !rig.hosting.work.is_empty() {
        rig.do_work(0);
        rig.turns();
    }
}

#[test]
fn replies_leave_in_order_unless_they_need_none() {
    let mut rig = rig(4);
    rig.say("=a\nwait\n=b\n1\n!2\n=c\n");
    rig.hears("=a\n");
    rig.do_work(2);
    rig.hears("!2\n");
    rig.do_work(1);
    rig.hears("");
    rig.do_work(0);
    rig.hears("wait\n=b\n1\n=c\n");
    assert_eq!(rig.held(), 0);
    // Replies arrive in order, whichever work is done first, and no more work is handed over than there is
    // room for.
    let mut rng = fastrand::Rng::with_seed(7);
    let asked: String = (0..500).map(|number| format!("{number}\n")).collect();
    rig.say(&asked);
    while !rig.hosting.work.is_empty() {
        rig.do_work(rng.usize(..rig.hosting.work.len()));
        rig.turns();
    }
    rig.hears(asked);
    assert_eq!(rig.held(), 0);
}

#[test]
fn work_gets_its_input_wherever_that_begins_and_ends() {
    let mut rig = rig(8);
    let long = format!("~{}\n", "x".repeat(50_000));
    // Behind other input, before a part of a line, and the rest of that.
    rig.say(format!("=a\n~b\n!c\n{long}~d"));
    rig.hears("=a\n");
    assert_eq!(rig.transport.unread(), 2, "only the part is still to be used");
    rig.say("\n~e\n");
    assert_eq!((rig.hosting.work.len(), rig.transport.unread()), (5, 0));
    for at in [4, 3, 0, 0, 0] {
        rig.do_work(at);
        rig.turns();
    }
    rig.hears(format!("~e\n~d\n~b\n!c\n{long}"));
    assert_eq!(rig.held(), 0);
    // A request whose bytes went to work is used: what follows has its own time.
    rig.say("~f");
    rig.pass(LIMITS.request / 2);
    rig.say("\n~g");
    do_all_work(&mut rig);
    rig.hears("~f\n");
    rig.pass(LIMITS.request - LIMITS.request / 4);
    assert!(rig.is_open());
    rig.pass(LIMITS.request / 2);
    assert_eq!(rig.closed, Some(Closed::For(Reason::RequestTimeout)));
}

#[test]
fn what_waits_behind_a_reply_to_come_is_bounded_and_leaves_after_it() {
    let mut rig = rig(4);
    rig.say(format!("wait\n{}wait\n=x\n", "#\n".repeat(100)));
    assert!(rig.held() < 3 * LIMITS.bytes, "{}", rig.held());
    do_all_work(&mut rig);
    rig.hears(format!("wait\n{}wait\n=x\n", "#".repeat(6_000_000)));
    assert_eq!(rig.held(), 0);
}

#[test]
fn a_reply_in_no_order_waits_for_the_end_of_a_longer_one() {
    for window in [0, 1, 65_536, 100_000, 131_072, 199_999] {
        let mut rig = rig(4);
        rig.transport.close_window();
        rig.transport.open_window(window);
        rig.say("!1\n!2\n*\n=a\n");
        rig.do_work(1);
        rig.turns();
        rig.do_work(0);
        rig.transport.open_window(usize::MAX);
        rig.turns();
        let heard = rig.heard();
        let longer = heard.iter().position(|byte| *byte == b'*').unwrap();
        assert!(heard[longer..].starts_with(&[b'*'; 200_000]), "{window}: in pieces");
        assert_eq!(heard.len(), 200_000 + 9, "{window}");
        assert_eq!(rig.held(), 0);
    }
}

#[test]
fn time_for_work_is_not_the_peers_and_an_end_waits_for_all_replies() {
    let mut rigs: Vec<_> = (0..3).map(|_| rig(4)).collect();
    for rig in &mut rigs {
        rig.say("1\n!2\n");
        // Half a request after them does not count against its peer either.
        rig.say("3");
        rig.pass(Duration::from_secs(1_000_000));
        assert!(rig.is_open());
    }
    rigs[0].half_close();
    rigs[1].say("\n.\n");
    rigs[2].stop();
    for (rig, (heard, why)) in rigs.iter_mut().zip([
        ("!2\n1\n", Closed::Broken),
        ("3\n!2\n1\n", Closed::Ended),
        ("!2\n1\n", Closed::Stopped),
    ]) {
        assert!(rig.is_open() && !rig.transport.finished);
        while !rig.hosting.work.is_empty() {
            rig.do_work(rig.hosting.work.len() - 1);
            rig.turns();
        }
        let mut expected: Vec<_> = heard.split_inclusive('\n').collect();
        expected.sort_unstable();
        let got = String::from_utf8(rig.heard()).unwrap();
        let mut got: Vec<_> = got.split_inclusive('\n').collect();
        got.sort_unstable();
        assert_eq!(got, expected);
        if rig.is_open() {
            assert!(rig.transport.finished);
            rig.half_close();
        }
        assert_eq!(rig.closed, Some(why));
    }
}

#[test]
fn a_panic_in_work_closes_it_and_one_after_handing_over_forgets_the_work() {
    let mut rig = rig(4);
    rig.say("1\nfail\n");
    rig.do_work(1);
    assert_eq!(rig.closed, Some(Closed::For(Reason::HandlerFailed)));
    let mut rig = self::rig(4);
    rig.say("now\n");
    assert_eq!((rig.closed, rig.hosting.work.len()), (Some(Closed::For(Reason::HandlerFailed)), 0));
}
