//! Captures while the kernel's programs reply: these go on, and what they reply to is shown.

use std::io::Read as _;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use twinpath_rpc::nfs3_types::nfs3;

use super::trouble::{Ends, Tells, asks_until, counted};
use super::{ask_until_reflex, figure, nothing_waits, with_modes};
use crate::capture::{INBOUND, OUTBOUND, Seen, capture, has_right_checksum, read};
use crate::rig::{CLIENT, PACKET, PORT, Rig, SERVER, SETUPS, Server, XDP, ask, until};
use crate::{root_or_skip, rpc};

/// Where a datagram's bytes begin in a frame over IPv4.
const PAYLOAD_AT: usize = 42;
const SERIES: u32 = 400;

/// A capture that is read as it comes.
struct Capturing {
    child: Child,
    reading: JoinHandle<(Vec<Seen>, Option<u64>)>,
}

impl Capturing {
    /// Returns when the programs fill it.
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = capture(server, arguments);
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 4];
        stdout.read_exact(&mut first).unwrap();
        let reading = std::thread::spawn(move || read(first.as_slice().chain(stdout)));
        // Control answers one request after the other.
        figure(server, "reflex_replies");
        Self { child, reading }
    }

    fn end(mut self) -> Vec<Seen> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let (frames, missed) = self.reading.join().unwrap();
        assert_eq!((self.child.wait().unwrap().code(), missed), (Some(0), Some(0)));
        frames
    }
}

/// Asks until the worker has had a request: it has the tap of a capture then, as the canary that follows comes in a later turn.
fn until_canary(server: &Server, mut asks: impl FnMut()) {
    let before = figure(server, "fast_requests");
    until("a canary", || {
        (0..40).for_each(|_| asks());
        figure(server, "fast_requests") > before
    });
}

/// Looks for requests and replies of a series, which have the number `number_of` them; and returns how many requests were marked.
fn judge(frames: &[Seen], asked: &[(Vec<u8>, Vec<u8>)], number_of: impl Fn(&[u8]) -> Option<u32>) -> u64 {
    let (mut by_reflex, mut marked) = (0, Vec::new());
    for (number, (request, reply)) in (0..).zip(asked) {
        let of_it: Vec<_> =
            frames.iter().filter(|seen| number_of(&seen.bytes[PAYLOAD_AT..]) == Some(number)).collect();
        let [first, second] = &of_it[..] else { panic!("{} frames of request {number}", of_it.len()) };
        assert_eq!((first.direction, second.direction), (INBOUND, OUTBOUND), "request {number}");
        assert_eq!((&first.bytes[PAYLOAD_AT..], &second.bytes[PAYLOAD_AT..]), (&request[..], &reply[..]));
        assert!(first.time <= second.time, "request {number}");
        for frame in [first, second] {
            assert!(has_right_checksum(&frame.bytes), "request {number}: {:02x?}", frame.bytes);
            assert_eq!(frame.original_len as usize, frame.bytes.len());
        }
        for (from, to, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            assert_eq!(first.bytes[from..from + len], second.bytes[to..to + len]);
            assert_eq!(first.bytes[to..to + len], second.bytes[from..from + len]);
        }
        match [&first.comment, &second.comment].map(Option::as_deref) {
            [Some("answered by reflex"), Some("reply by reflex")] => by_reflex += 1,
            [None, None] => {}
            other => panic!("request {number}: {other:?}"),
        }
    }
    for seen in frames.iter().filter(|seen| seen.comment.is_some()) {
        marked.extend(number_of(&seen.bytes[PAYLOAD_AT..]).map(|number| (number, seen.direction)));
    }
    assert!(marked.is_sorted(), "requests in their order, each before its reply: {marked:?}");
    by_reflex
}

fn no_reflex_was_suspended(server: &Server) {
    let reflexes = &server.show("interfaces")[0]["reflexes"];
    assert!(!reflexes["not_replied"].to_string().contains("suspended"), "{reflexes}");
    assert_eq!(reflexes["off"], "", "{reflexes}");
}

#[test]
fn each_echo_by_reflex_is_captured_once_in_order_and_marked() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes(SETUPS) {
        let rig = Rig::new();
        let server = rig.serve(&[way, &["--reflex", "auto", "--mode", mode]].concat());
        let socket = rig.client_udp(CLIENT, 4000);
        ask_until_reflex(&socket, SERVER, &server);
        let all = Capturing::start(&server, &["udp"]);
        let replies = format!("udp src port {PORT}");
        let cut = Capturing::start(&server, &["--snaplen", "50", &replies]);
        until_canary(&server, || drop(ask(&socket, SERVER, PORT, b"not of the series")));
        let before = figure(&server, "reflex_replies");
        let asked: Vec<_> = (0..SERIES)
            .map(|number| {
                let len = 10 + number as usize * 3 % 1400;
                let payload = [b"number", &number.to_be_bytes()[..], &vec![7; len - 10]].concat();
                let reply = ask(&socket, SERVER, PORT, &payload);
                (payload, reply)
            })
            .collect();
        let number_of = |bytes: &[u8]| {
            let number = bytes.strip_prefix(b"number")?.first_chunk()?;
            Some(u32::from_be_bytes(*number))
        };
        let by_reflex = figure(&server, "reflex_replies") - before;
        assert!(by_reflex > u64::from(SERIES) / 2, "{way:?} {mode}: {by_reflex} by reflex");
        assert_eq!(judge(&all.end(), &asked, number_of), by_reflex, "{way:?} {mode}");
        let cut = cut.end();
        assert!(cut.len() >= asked.len() && cut.iter().any(|frame| frame.comment.is_some()));
        for frame in cut {
            assert_eq!((frame.direction, frame.bytes.len()), (OUTBOUND, 50), "{way:?} {mode}");
            assert!(frame.original_len > 50);
        }
        no_reflex_was_suspended(&server);
        nothing_waits(&socket);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn each_kept_reply_is_captured_with_the_call_that_it_has_overwritten() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes([PACKET, XDP]) {
        let rig = Rig::new();
        let server = rpc::serve(&rig, &[way, &["--reflex", "auto", "--mode", mode]].concat());
        let socket = rig.client_udp(CLIENT, 4000);
        let getattr = rpc::root_arguments(&socket, SERVER);
        let call = |xid| rpc::message(xid, nfs3::PROGRAM, 1, &getattr);
        let mut xid = u32::MAX;
        until("a reply by reflex", || {
            xid -= 1;
            ask(&socket, SERVER, PORT, &call(xid));
            figure(&server, "reflex_replies") > 0
        });
        let all = Capturing::start(&server, &["udp"]);
        until_canary(&server, || drop(ask(&socket, SERVER, PORT, &call(u32::MAX))));
        let before = figure(&server, "reflex_replies");
        let asked: Vec<_> = (0..SERIES)
            .map(|number| {
                let request = call(number);
                let reply = ask(&socket, SERVER, PORT, &request);
                (request, reply)
            })
            .collect();
        let by_reflex = figure(&server, "reflex_replies") - before;
        assert!(by_reflex > u64::from(SERIES) / 2, "{way:?} {mode}: {by_reflex} by reflex");
        let number_of = |bytes: &[u8]| {
            let xid = u32::from_be_bytes(*bytes.first_chunk()?);
            (xid < SERIES).then_some(xid)
        };
        assert_eq!(judge(&all.end(), &asked, number_of), by_reflex, "{way:?} {mode}");
        no_reflex_was_suspended(&server);
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn while_captures_begin_and_end_under_load_each_request_has_one_answer() {
    if !root_or_skip() {
        return;
    }
    for (way, mode) in with_modes([PACKET, XDP]) {
        let rig = Rig::new();
        // At any load, as this one is one at which the worker may be tried.
        let server = rig.serve(&[way, &["--reflex", "always", "--mode", mode]].concat());
        let tells = Tells(&server);
        let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let sockets = [4000, 4001].map(|port| rig.client_udp(CLIENT, port));
        std::thread::scope(|scope| {
            for socket in &sockets {
                scope.spawn(|| asks_until(socket, &answered, &over));
            }
            let _ends = Ends(&over);
            until("programs answer", || figure(&server, "reflex_replies") > 100);
            for number in 0..12 {
                let before = figure(&server, "reflex_replies");
                let mut child = capture(&server, &["--count", "200", "udp"]);
                // Every third one goes away without a word, others read, and some end while others run.
                if number % 3 == 0 {
                    until("the load goes on", || figure(&server, "reflex_replies") > before + 100);
                    child.kill().unwrap();
                    child.wait().unwrap();
                    continue;
                }
                let long = Capturing::start(&server, &["--snaplen", "60", "port 4000"]);
                let (frames, _) = read(child.stdout.take().unwrap());
                assert!(frames.len() == 200 && frames.iter().any(|frame| frame.comment.is_some()));
                assert_eq!(child.wait().unwrap().code(), Some(0));
                until("the load goes on", || figure(&server, "reflex_replies") > before + 100);
                drop(long.end());
            }
        });
        sockets.iter().for_each(nothing_waits);
        no_reflex_was_suspended(&server);
        until("each is counted once", || counted(&server) == answered.load(Ordering::Relaxed));
        drop(tells);
        assert_eq!(server.interrupt(), Some(0));
    }
}
