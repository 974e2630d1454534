//! Property tests of events in any order: replies arrive whole, in order and once, within limits and
//! deadlines.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use twinpath_inspect::Reason;
use twinpath_service::connections::ConnectionLimits;
use twinpath_service::{Closed, Order, Output, Service};
use twinpath_time::{Duration, Instant};

use crate::simulated::{Lends, Rig};

const LIMITS: ConnectionLimits = ConnectionLimits {
    bytes: 1_000,
    idle: Duration::from_secs(100),
    request: Duration::from_secs(10),
    send: Duration::from_secs(20),
};
/// Maximum length of a reply, immediate or from work.
const REPLY_MAX: usize = 800;
const WORKERS_MAX: usize = 4;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// This many bytes, immediately.
    Now(usize),
    /// This many bytes, possibly more than an output holds.
    Long(usize),
    /// This many bytes from work, in the order of requests or in any order.
    Ordered(usize),
    AnyOrder(usize),
    /// No reply; the request arrives in several parts, each of which is used when it arrives.
    InParts,
    /// The end.
    End,
    Refuse,
}

/// Answers `KIND NUMBER LENGTH` with `NUMBER:LENGTH;` and as many bytes.
struct Script;

/// A long reply in progress.
#[derive(Default)]
struct Longer {
    number: usize,
    left: usize,
}

fn reply(number: usize, length: usize) -> Vec<u8> {
    let mut reply = format!("{number}:{length};").into_bytes();
    reply.resize(reply.len() + length, number as u8 | 128);
    reply
}

impl Longer {
    fn go_on(&mut self, output: &mut Output<'_>) {
        let len = output.room().min(self.left);
        assert!(output.write(&vec![self.number as u8 | 128; len]));
        self.left -= len;
    }
}

impl Service for Script {
    type Connection = Longer;

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<Longer, Reason> {
        Ok(Longer::default())
    }

    fn stream(&mut self, _: Instant, longer: &mut Longer, input: &[u8], output: &mut Output<'_>) -> usize {
        if longer.left > 0 {
            return 0;
        }
        if input[0] == b'+' {
            output.unfinished();
            return 1;
        }
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        let line = std::str::from_utf8(&input[..end]).unwrap();
        let mut words = line.split(' ');
        let kind = words.next().unwrap();
        let [number, length] = [(); 2].map(|()| words.next().map_or(0, |word| word.parse().unwrap()));
        match kind {
            "now" if !output.write(&reply(number, length)) => return 0,
            "long" => {
                if !output.write(&reply(number, length)[..format!("{number}:{length};").len()]) {
                    return 0;
                }
                *longer = Longer { number, left: length };
                longer.go_on(output);
            }
            "ordered" | "any" => {
                if !output.may_defer() {
                    return 0;
                }
                let order = if kind == "any" { Order::AsDone } else { Order::AsAsked };
                assert!(output.later(order, move || reply(number, length)));
            }
            "end" => output.end(),
            "refuse" => output.refuse(Reason::ProtocolError),
            _ => {}
        }
        end + 1
    }

    fn writable(&mut self, _now: Instant, longer: &mut Longer, output: &mut Output<'_>) {
        longer.go_on(output);
    }

    fn defers(&self) -> bool {
        true
    }
}

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ask(Kind),
    /// This many more bytes of the requests arrive.
    Arrive(usize),
    /// The transport takes this many more bytes, or no more.
    Open(usize),
    Shut,
    /// One of the pieces of work is completed.
    Done(usize),
    /// This many pieces of work may be in progress at a time.
    Workers(usize),
    /// An edge without any change.
    Nudge,
    /// All work that is due is done, or only the first piece.
    Turn,
    Turns,
    Pass(u64),
    HalfClose,
    Stop,
    Reset,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => (0..REPLY_MAX).prop_map(Kind::Now),
        4 => (0..5_000usize).prop_map(Kind::Long),
        5 => (0..REPLY_MAX).prop_map(Kind::Ordered),
        4 => (0..REPLY_MAX).prop_map(Kind::AnyOrder),
        2 => Just(Kind::InParts),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        24 => kind().prop_map(Event::Ask),
        24 => (1..60usize).prop_map(Event::Arrive),
        14 => (0..1_500usize).prop_map(Event::Open),
        3 => Just(Event::Shut),
        10 => any::<usize>().prop_map(Event::Done),
        4 => (0..=WORKERS_MAX).prop_map(Event::Workers),
        4 => Just(Event::Nudge),
        14 => Just(Event::Turn),
        14 => Just(Event::Turns),
        3 => (1..9_000u64).prop_map(Event::Pass),
        1 => prop_oneof![
            6 => Just(Event::HalfClose),
            4 => Just(Event::Stop),
            2 => Just(Event::Reset),
            2 => Just(Event::Ask(Kind::End)),
            1 => Just(Event::Ask(Kind::Refuse)),
        ],
    ]
}

fn lends() -> impl Strategy<Value = Lends> {
    prop_oneof![Just(Lends::All), (1..1_500usize).prop_map(Lends::InPieces)]
}

/// The peer's view of the bytes that it gets: the numbers of the replies that arrived whole.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    numbers: Vec<usize>,
}

impl Heard {
    fn hear(&mut self, bytes: &[u8], asked: &[Kind]) {
        self.bytes.extend_from_slice(bytes);
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b';') {
            let head = std::str::from_utf8(&self.bytes[..end]).expect("a reply begins where one has ended");
            let (number, length) = head.split_once(':').expect("a reply begins where one has ended");
            let (number, length): (usize, usize) = (number.parse().unwrap(), length.parse().unwrap());
            let (Kind::Now(asked) | Kind::Long(asked) | Kind::Ordered(asked) | Kind::AnyOrder(asked)) =
                asked[number]
            else {
                panic!("number {number} has no reply")
            };
            assert_eq!(length, asked);
            let Some(body) = self.bytes.get(end + 1..end + 1 + length) else { return };
            assert!(body.iter().all(|byte| *byte == number as u8 | 128), "of one reply");
            assert!(!self.numbers.contains(&number), "once");
            self.numbers.push(number);
            self.bytes.drain(..end + 1 + length);
        }
    }
}

struct Run {
    rig: Rig<Script>,
    /// All requests, by number; their bytes, and how many of these have arrived.
    asked: Vec<Kind>,
    bytes: Vec<u8>,
    arrived: usize,
    heard: Heard,
    /// Possible reasons of an end.
    half_closed: bool,
    stopped: bool,
    reset: bool,
}

impl Run {
    fn new() -> Self {
        Self {
            rig: Rig::new(Script, LIMITS, Some(WORKERS_MAX)),
            asked: Vec::new(),
            bytes: Vec::new(),
            arrived: 0,
            heard: Heard::default(),
            half_closed: false,
            stopped: false,
            reset: false,
        }
    }

    fn ask(&mut self, kind: Kind) {
        if self.half_closed {
            return;
        }
        let number = self.asked.len();
        self.asked.push(kind);
        let text = match kind {
            Kind::Now(length) => format!("now {number} {length}\n"),
            Kind::Long(length) => format!("long {number} {length}\n"),
            Kind::Ordered(length) => format!("ordered {number} {length}\n"),
            Kind::AnyOrder(length) => format!("any {number} {length}\n"),
            Kind::InParts => "+++part\n".to_owned(),
            Kind::End => "end\n".to_owned(),
            Kind::Refuse => "refuse\n".to_owned(),
        };
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn arrive(&mut self, len: usize) {
        let end = self.bytes.len().min(self.arrived.saturating_add(len));
        if !self.half_closed && end > self.arrived {
            self.rig.transport.arrive(&self.bytes[self.arrived..end]);
            self.arrived = end;
        }
    }

    fn happen(&mut self, event: Event) {
        let rig = &mut self.rig;
        match event {
            Event::Ask(kind) => self.ask(kind),
            Event::Arrive(len) => self.arrive(len),
            Event::Open(len) => rig.transport.open_window(len),
            Event::Shut => rig.transport.close_window(),
            Event::Done(which) if !rig.hosting.work.is_empty() => rig.do_work(which % rig.hosting.work.len()),
            Event::Done(_) => {}
            Event::Workers(workers) => rig.set_workers(workers),
            Event::Nudge => rig.transport.nudge(),
            Event::Turn => drop(rig.turn()),
            Event::Turns => rig.turns(),
            Event::Pass(ms) => self.pass(Duration::from_millis(ms)),
            Event::HalfClose => {
                self.half_closed = true;
                rig.transport.end();
                // Requests that had not arrived by then do not count.
                let arrived = &self.bytes[..self.arrived];
                self.asked.truncate(arrived.iter().filter(|byte| **byte == b'\n').count());
            }
            Event::Stop => {
                self.stopped = true;
                rig.stop();
            }
            Event::Reset => {
                self.reset = true;
                rig.transport.reset();
            }
        }
        self.check();
    }

    /// Lets time pass; a connection that is closed by a time-out must have had its full time.
    fn pass(&mut self, time: Duration) {
        self.rig.turns();
        let Some(touched) = self.rig.is_open().then(|| self.rig.connection().touched()) else { return };
        self.rig.pass(time);
        let since = u128::from(self.rig.now.nanos_since(touched));
        match self.rig.closed {
            Some(Closed::For(Reason::IdleTimeout)) => assert!(since >= LIMITS.idle.as_nanos()),
            Some(Closed::For(Reason::PeerNotReading)) => assert!(since >= LIMITS.send.as_nanos()),
            _ => {}
        }
    }

    /// Checks the invariants.
    fn check(&mut self) {
        let heard = self.rig.heard();
        self.heard.hear(&heard, &self.asked);
        let in_order = self.heard.numbers.iter().filter(|at| !matches!(self.asked[**at], Kind::AnyOrder(_)));
        assert!(in_order.is_sorted(), "in order: {:?}", self.heard.numbers);
        assert_eq!(self.rig.sent, self.total_heard());
        if !self.rig.is_open() {
            return;
        }
        let (now, deadline, awaited) = {
            let (now, limits) = (self.rig.now, self.rig.limits);
            let connection = self.rig.connection();
            (now, connection.deadline(&limits), connection.awaited())
        };
        assert!(awaited <= WORKERS_MAX);
        assert!(deadline <= now + LIMITS.idle || awaited > 0, "it ends at some time");
        // One request and replies within their limits, and replies from work, whose size the service
        // decides. They are in buffers that double in size.
        let most = 2 * (2 * LIMITS.bytes + WORKERS_MAX * (REPLY_MAX + 10)) + 1_024;
        assert!(self.rig.held() <= most, "holds {}", self.rig.held());
    }

    fn total_heard(&self) -> usize {
        let len = |number: &usize| match self.asked[*number] {
            Kind::Now(len) | Kind::Long(len) | Kind::Ordered(len) | Kind::AnyOrder(len) => {
                format!("{number}:{len};").len() + len
            }
            _ => 0,
        };
        self.heard.numbers.iter().map(len).sum::<usize>() + self.heard.bytes.len()
    }

    /// Everything arrives, everything is taken, and all work is completed.
    fn finish(&mut self) {
        self.rig.set_workers(WORKERS_MAX);
        self.happen(Event::Arrive(usize::MAX));
        self.happen(Event::Open(usize::MAX));
        self.happen(Event::Turns);
        while !self.rig.hosting.work.is_empty() {
            self.happen(Event::Done(0));
            self.happen(Event::Turns);
        }
    }

    /// How many of the first requests have been answered, if they were answered in order.
    fn answered(&self) -> usize {
        let replied = |kind: &Kind| !matches!(kind, Kind::InParts | Kind::End | Kind::Refuse);
        let mut numbers = self.heard.numbers.clone();
        numbers.sort_unstable();
        let expected: Vec<_> =
            (0..self.asked.len()).filter(|at| replied(&self.asked[*at])).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "none is left out");
        numbers.len()
    }

    fn judge(&mut self) {
        let ends = |kind: &Kind| matches!(kind, Kind::End | Kind::Refuse);
        let end = self.asked.iter().position(ends);
        let replies = |kinds: &[Kind]| kinds.iter().filter(|kind| !matches!(kind, Kind::InParts)).count();
        let ended = self.rig.closed.is_some() || self.rig.transport.finished;
        if !ended {
            // No request may be lost.
            assert_eq!(self.answered(), replies(&self.asked), "{:?}", self.heard.numbers);
            assert!(self.heard.bytes.is_empty() && self.rig.held() == 0);
            return;
        }
        let timed_out = matches!(
            self.rig.closed,
            Some(Closed::For(Reason::IdleTimeout | Reason::RequestTimeout | Reason::PeerNotReading))
        );
        if self.reset || timed_out {
            return;
        }
        // A peer that gets the end of stream has got whole replies to all earlier requests.
        assert!(self.heard.bytes.is_empty(), "in the middle of a reply");
        let answered = self.answered();
        match (end, self.rig.closed) {
            (_, Some(Closed::Broken)) => assert!(self.half_closed, "within a request"),
            (Some(end), _) if answered == replies(&self.asked[..end]) => {}
            (_, Some(Closed::Ended)) => assert!(self.half_closed),
            (_, Some(Closed::Stopped) | None) => assert!(self.stopped),
            (_, closed) => panic!("closed as {closed:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn replies_come_whole_in_order_and_once_within_limits_and_deadlines(
        lends in lends(),
        events in vec(event(), 1..150),
    ) {
        let mut run = Run::new();
        run.rig.transport.lends = lends;
        run.rig.transport.close_window();
        for event in events {
            run.happen(event);
        }
        run.finish();
        run.judge();
    }
}
