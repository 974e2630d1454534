use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nfs3_types::nfs3;
use proptest::prelude::*;
use twinpath_reflex::{Generations, NotKept, Publication, Table, WhyNot, generations};
use twinpath_service::{Beside, Duration, Keeper, Later, Name, Next, Version};

use super::*;
use crate::client::{Auth, Call, Reply, handle_arguments};
use crate::nfs3::{Nfs3, ROOT, Tree};
use crate::record::RecordReader;
use crate::{DuplicateLimits, Handled, Keepable, Program, Refusal, Request, Results};

const LIMITS: RecordLimits = RecordLimits { record_bytes: 1000, fragments: 8 };
/// Length of the reply to NULL as a record.
const NULL_REPLY: usize = 28;

fn service() -> RpcService {
    let programs: Vec<Box<dyn Program>> = vec![Box::new(Nfs3::new(Arc::new(Tree::small())))];
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    RpcService::new(Server::new(programs, limits, 0).expect("a table"), LIMITS)
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 900))
}

/// Alternating calls of NULL and GETATTR, each in this many fragments.
fn calls(fragments: &[usize]) -> Vec<u8> {
    let auth = Auth::sys("client", 1, 2, &[3]).expect("within limits");
    let args = handle_arguments(&Tree::small().handle(ROOT));
    let mut stream = Vec::new();
    for (xid, fragments) in (0..).zip(fragments) {
        let (procedure, args) = if xid % 2 == 0 { (0, &[][..]) } else { (1, args.as_slice()) };
        Call { xid, program: nfs3::PROGRAM, version: nfs3::VERSION, procedure, auth: &auth, args }
            .write_record(*fragments, &mut stream);
    }
    stream
}

/// Drives a connection as its host does: unconsumed input is passed again.
struct Driven {
    service: RpcService,
    connection: RpcConnection,
    unread: Vec<u8>,
    next: Next,
}

impl Driven {
    fn new() -> Self {
        let mut service = service();
        let connection = service.accept(Instant::ZERO, peer()).expect("nobody is refused");
        Self { service, connection, unread: Vec::new(), next: Next::Keep }
    }

    /// The output for `more` if `room` bytes are free.
    fn feed(&mut self, more: &[u8], room: usize) -> Vec<u8> {
        self.unread.extend(more);
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, room);
        let used = self.service.stream(Instant::ZERO, &mut self.connection, &self.unread, &mut output);
        self.next = output.next();
        self.unread.drain(..used);
        bytes
    }
}

/// The xids of the calls answered; checks each reply.
fn answered(replies: &[u8]) -> Vec<u32> {
    let mut reader = RecordReader::new(LIMITS);
    let mut rest = replies;
    let mut xids = Vec::new();
    while let Some(record) = reader.next(&mut rest).expect("within limits") {
        let reply = Reply::parse(record).expect("a reply");
        match reply.xid % 2 {
            0 => reply.verify_null().expect("NULL succeeds"),
            _ => drop(reply.verify_getattr().expect("GETATTR succeeds")),
        }
        xids.push(reply.xid);
    }
    assert!(!reader.is_unfinished());
    xids
}

#[test]
fn several_calls_of_one_read_are_answered_in_order() {
    let mut driven = Driven::new();
    let replies = driven.feed(&calls(&[1; 9]), 10_000);
    assert_eq!(answered(&replies), (0..9).collect::<Vec<_>>());
    assert_eq!((driven.next, driven.unread.len()), (Next::Keep, 0));
}

#[test]
fn without_room_for_a_reply_input_waits() {
    let mut driven = Driven::new();
    let room = driven.service.server.record_reply_max();
    let mut replies = driven.feed(&calls(&[1, 1, 1, 1]), room + NULL_REPLY);
    assert_eq!(answered(&replies), [0, 1]);
    assert!(driven.feed(&[], room - 1).is_empty(), "no room, no reply");
    assert!(!driven.unread.is_empty());
    replies.extend(driven.feed(&[], 10_000));
    assert_eq!(answered(&replies), [0, 1, 2, 3]);
}

#[test]
fn a_stream_that_breaks_a_limit_ends_after_what_was_right() {
    let right = calls(&[1]);
    let endless = [0; 400];
    let cases: [(&[u8], Reason); 4] = [
        (&endless, Reason::TooManyFragments),
        (&[0x80, 0, 3, 0xe9], Reason::RecordTooLarge),
        (&[0x80, 0, 0, 0], Reason::RpcHeader),
        (&[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1], Reason::RpcHeader),
    ];
    for (wrong, reason) in cases {
        let mut driven = Driven::new();
        let replies = driven.feed(&[&right, wrong].concat(), 10_000);
        assert_eq!((answered(&replies), driven.next), (vec![0], Next::Refuse(reason)));
    }
}

#[test]
fn an_incomplete_record_stays_in_the_input() {
    let call = calls(&[1]);
    for len in 1..call.len() {
        let mut driven = Driven::new();
        assert!(driven.feed(&call[..len], 1000).is_empty());
        assert_eq!(driven.unread.len(), len);
        assert_eq!(answered(&driven.feed(&call[len..], 1000)), [0]);
        assert!(driven.unread.is_empty());
    }
}

#[test]
fn a_datagram_is_answered_in_its_buffer() {
    let call = &calls(&[1])[4..];
    let mut buffer = [0; 200];
    buffer[..call.len()].copy_from_slice(call);
    let mut datagram = Datagram::new(Instant::ZERO, peer(), peer(), &mut buffer, call.len());
    assert_eq!(service().datagram(&mut datagram), Answer::Reply { len: 24 });
    let mut short = Datagram::new(Instant::ZERO, peer(), peer(), &mut buffer, 3);
    assert_eq!(service().datagram(&mut short), Answer::Drop(Reason::RpcHeader));
    let reply = Reply::parse(&buffer[..24]).expect("a reply");
    assert_eq!((reply.xid, reply.verify_null()), (0, Ok(())));
}

/// A program that answers everything later, with its argument.
struct Slow;

impl Program for Slow {
    fn number(&self) -> u32 {
        0x2000_0001
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        1..=1
    }

    fn results_max(&self) -> usize {
        4
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &[(1, 1)]
    }

    fn call(&mut self, request: &Request<'_>, _: &mut Results<'_>) -> Result<Handled, Refusal> {
        let argument = request.args.to_vec();
        Ok(Handled::later(move |results| {
            results.write(&argument);
            Ok(())
        }))
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self)
    }
}

#[test]
fn calls_answered_later_are_handed_over_while_there_is_room_and_wait_otherwise() {
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let server = Server::new(vec![Box::new(Slow)], limits, 0).expect("a table");
    let mut service = RpcService::new(server, LIMITS);
    let mut connection = service.accept(Instant::ZERO, peer()).expect("nobody is refused");
    let auth = Auth::none();
    let mut stream = Vec::new();
    // NULL is answered immediately, whatever is waiting.
    for (xid, procedure, args) in [(0, 1, &[0, 0, 0, 7][..]), (1, 0, &[]), (2, 1, &[0, 0, 0, 8]), (3, 1, &[])]
    {
        Call { xid, program: 0x2000_0001, version: 1, procedure, auth: &auth, args }
            .write_record(2, &mut stream);
    }
    let (mut bytes, mut later) = (Vec::new(), Later::default());
    later.allow(2);
    let mut output = Output::with_later(&mut bytes, 1000, &mut later);
    let used = service.stream(Instant::ZERO, &mut connection, &stream, &mut output);
    assert_eq!(stream.len() - used, 48, "the last call waits, its record untouched");
    assert!(later.is_refused(), "and comes again when there is room");
    later.give(&stream);
    let jobs: Vec<_> = later.take().map(|job| (job.at, job.order, job.work.run())).collect();
    assert_eq!(
        jobs.iter().map(|job| (job.0, job.1)).collect::<Vec<_>>(),
        [(0, Order::AsDone), (28, Order::AsDone)]
    );
    let xid = |record: &[u8]| {
        Reply::parse(&record[4..]).map(|reply| (reply.xid, reply.outcome.map(<[u8]>::to_vec)))
    };
    assert_eq!(xid(&bytes), Ok((1, Ok(vec![]))));
    assert_eq!(xid(&jobs[0].2), Ok((0, Ok(vec![0, 0, 0, 7]))));
    assert_eq!(xid(&jobs[1].2), Ok((2, Ok(vec![0, 0, 0, 8]))));
}

/// The same, but its calls without arguments are answered at once, and are passed to it without room too.
struct Cached;

impl Program for Cached {
    fn number(&self) -> u32 {
        Slow.number()
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        Slow.versions()
    }

    fn results_max(&self) -> usize {
        Slow.results_max()
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &[(1, 1), (1, 2)]
    }

    fn called_without_room(&self) -> &[(u32, u32)] {
        &[(1, 1)]
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        match request.args {
            [] => Ok(Handled::Now),
            _ if !request.may_defer => Ok(Handled::Busy(0)),
            _ => Slow.call(request, results),
        }
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self)
    }
}

#[test]
fn calls_that_need_no_thread_are_answered_without_room_for_work() {
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let server = Server::new(vec![Box::new(Cached)], limits, 0).expect("a table");
    let mut service = RpcService::new(server, LIMITS);
    let mut connection = service.accept(Instant::ZERO, peer()).expect("nobody is refused");
    let auth = Auth::none();
    let call =
        |procedure, args| Call { xid: 6, program: 0x2000_0001, version: 1, procedure, auth: &auth, args };
    for (procedure, args, is_answered) in [(1, &[][..], true), (1, &[0; 4], false), (2, &[], false)] {
        let mut buffer = [0; 200];
        let len = call(procedure, args).write_to(&mut buffer).expect("short");
        let mut beside = Beside::default();
        let datagram = Datagram::new(Instant::ZERO, peer(), peer(), &mut buffer, len);
        let answer = service.datagram(&mut datagram.with(&mut beside));
        let wanted = if is_answered { Answer::Reply { len: 24 } } else { Answer::Drop(Reason::HandlersBusy) };
        assert_eq!(answer, wanted, "procedure {procedure}");

        let (mut stream, mut bytes, mut later) = (Vec::new(), Vec::new(), Later::default());
        call(procedure, args).write_record(2, &mut stream);
        let mut output = Output::with_later(&mut bytes, 1000, &mut later);
        let used = service.stream(Instant::ZERO, &mut connection, &stream, &mut output);
        assert_eq!(used == stream.len(), is_answered, "procedure {procedure}");
        assert_eq!(later.is_refused(), !is_answered, "it is passed again only if it waits");
    }
}

/// A program whose calls say their lane. Lanes have room, which the test gives and takes.
struct Lanes(Arc<Mutex<[u32; 3]>>);

impl Program for Lanes {
    fn number(&self) -> u32 {
        Slow.number()
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        Slow.versions()
    }

    fn results_max(&self) -> usize {
        Slow.results_max()
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &[(1, 1)]
    }

    fn lanes(&self) -> u32 {
        3
    }

    fn call(&mut self, request: &Request<'_>, _: &mut Results<'_>) -> Result<Handled, Refusal> {
        let lane = u32::from(request.args[3]);
        match &mut self.0.lock().expect("no panic")[lane as usize] {
            0 => Ok(Handled::Busy(lane)),
            room => {
                *room -= 1;
                Ok(Handled::Later { lane, work: Box::new(|_, _| Ok(())) })
            }
        }
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

#[test]
fn calls_of_other_lanes_go_past_those_whose_lane_has_no_room() {
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let room = Arc::new(Mutex::new([1, 0, 0]));
    let server = Server::new(vec![Box::new(Lanes(Arc::clone(&room)))], limits, 0).expect("a table");
    let mut service = RpcService::new(server, LIMITS);
    let mut connection = service.accept(Instant::ZERO, peer()).expect("nobody is refused");
    let call = |xid, procedure, lane| {
        let (mut record, auth) = (Vec::new(), Auth::none());
        Call { xid, program: 0x2000_0001, version: 1, procedure, auth: &auth, args: &[0, 0, 0, lane] }
            .write_record(1 + xid as usize % 3, &mut record);
        record
    };
    let mut unread = Vec::new();
    // What it answers and hands over, by xid; the peer has sent `more`.
    let mut serve = |more: &[u8]| {
        unread.extend_from_slice(more);
        let (mut bytes, mut later) = (Vec::new(), Later::default());
        later.allow(100);
        let mut output = Output::with_later(&mut bytes, 10_000, &mut later);
        let used = service.stream(Instant::ZERO, &mut connection, &unread, &mut output);
        let (is_woken, next) = (output.wakes_at() == Some(Instant::ZERO + BUSY_INTERVAL), output.next());
        assert_eq!(next, Next::Keep);
        later.give(&unread);
        unread.drain(..used);
        let mut replies = bytes;
        later.take().for_each(|job| replies.extend(job.work.run()));
        let (mut reader, mut rest, mut xids) = (RecordReader::new(LIMITS), replies.as_slice(), Vec::new());
        while let Some(record) = reader.next(&mut rest).expect("within limits") {
            xids.push(Reply::parse(record).expect("a reply").xid);
        }
        (xids, unread.len(), is_woken)
    };
    let give = |lane: usize, calls| room.lock().expect("no panic")[lane] += calls;
    // Of lane 0 the first one has room. NULL is answered at once, and needs none.
    let calls = [(0, 1, 0), (1, 1, 0), (2, 1, 1), (3, 0, 0), (4, 1, 0), (5, 1, 2)];
    let calls = calls.map(|(xid, procedure, lane)| call(xid, procedure, lane));
    let whole: usize = calls[1..].iter().map(Vec::len).sum();
    assert_eq!(serve(&calls.concat()), (vec![3, 0], whole, true), "the rest waits where it is");
    give(1, 1);
    assert_eq!(serve(&[]), (vec![2], whole, true));
    // A part of a record behind those that wait.
    let last = call(6, 1, 2);
    assert_eq!(serve(&last[..30]), (vec![], whole + 30, true));
    give(2, 2);
    assert_eq!(serve(&last[30..]), (vec![5, 6], whole + last.len(), true));
    // The first of a lane comes first.
    give(0, 1);
    let after_second = whole - calls[1].len() - calls[2].len() - calls[3].len() + last.len();
    assert_eq!(serve(&[]), (vec![1], after_second, true));
    give(0, 1);
    assert_eq!(serve(&[]), (vec![4], 0, false));
    // As many as have a place wait. Behind them all do.
    let many: Vec<u8> = (10..100).flat_map(|xid| call(xid, 1, 0)).collect();
    give(1, 1);
    assert_eq!(serve(&[many, call(101, 1, 1)].concat()).0, []);
    give(0, 80);
    assert_eq!(serve(&[]).0, (10..90).chain([101]).collect::<Vec<_>>());
    give(0, 10);
    assert_eq!(serve(&[]).0, (90..100).collect::<Vec<_>>());
}

#[test]
fn a_datagram_is_answered_later_if_its_program_may_and_there_is_room() {
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let mut service =
        RpcService::new(Server::new(vec![Box::new(Slow)], limits, 0).expect("a table"), LIMITS).clone();
    assert!(service.defers() && !service.may_loop());
    let auth = Auth::none();
    let mut answer = |procedure, beside: Option<&mut Beside>| {
        let call =
            Call { xid: 6, program: 0x2000_0001, version: 1, procedure, auth: &auth, args: &[0, 0, 0, 9] };
        let mut buffer = [0; 200];
        let len = call.write_to(&mut buffer).expect("short");
        let datagram = Datagram::new(Instant::ZERO, peer(), peer(), &mut buffer, len);
        match beside {
            Some(beside) => service.datagram(&mut datagram.with(beside)),
            None => service.datagram(&mut { datagram }),
        }
    };
    assert_eq!(answer(1, None), Answer::Drop(Reason::HandlersBusy));
    let mut beside = Beside::default();
    assert_eq!(answer(1, Some(&mut beside)), Answer::Drop(Reason::HandlersBusy), "none is allowed");
    beside.later.allow(1);
    // Calls that can be answered immediately are, whatever else could wait.
    assert_eq!(answer(7, Some(&mut beside)), Answer::Later, "this program answers all of them later");
    let reply: Vec<_> = beside.later.take().map(|job| job.work.run()).collect();
    let reply = Reply::parse(&reply[0]).expect("a reply");
    assert_eq!((reply.xid, reply.outcome), (6, Ok(&[0, 0, 0, 9][..])));
    beside.later.allow(1);
    assert_eq!(
        answer(0, Some(&mut beside)),
        Answer::Reply { len: 24 },
        "NULL is answered at once, whatever follows"
    );
    assert!(beside.later.is_empty());
    let counters = service.counters().expect("it counts");
    assert_eq!(counters.refusals().collect::<Vec<_>>(), []);
    assert_eq!(counters.answered.get(), 2);
}

#[test]
fn a_service_of_quick_programs_defers_nothing_and_each_clone_counts_by_itself() {
    let mut first = service();
    let mut second = first.clone();
    assert!(!first.defers());
    for (service, answered) in [(&mut first, 2), (&mut second, 1)] {
        let call = &calls(&[1])[4..];
        let mut buffer = [0; 200];
        for _ in 0..answered {
            buffer[..call.len()].copy_from_slice(call);
            let mut datagram = Datagram::new(Instant::ZERO, peer(), peer(), &mut buffer, call.len());
            assert_eq!(service.datagram(&mut datagram), Answer::Reply { len: 24 });
        }
        assert_eq!(service.counters().map(|counters| counters.answered.get()), Some(answered));
    }
}

proptest! {
    /// However calls are divided into fragments, reads, and turns with little room, the replies have the
    /// same bytes.
    #[test]
    fn any_cut_gives_the_same_replies(
        fragments in proptest::collection::vec(1..8_usize, 1..12),
        cuts in proptest::collection::vec(1..90_usize, 1..20),
        spare in 0..300_usize,
    ) {
        let stream = calls(&fragments);
        let expected = Driven::new().feed(&stream, 100_000);
        prop_assert_eq!(answered(&expected).len(), fragments.len());

        let mut one_by_one = Driven::new();
        let replies: Vec<u8> = stream.iter().flat_map(|byte| one_by_one.feed(&[*byte], 1000)).collect();
        prop_assert_eq!(&replies, &expected);

        let mut driven = Driven::new();
        let room = driven.service.server.record_reply_max() + spare;
        let (mut rest, mut replies) = (stream.as_slice(), Vec::new());
        for cut in cuts.iter().cycle() {
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            rest = left;
            let more = driven.feed(piece, room);
            if piece.is_empty() && more.is_empty() {
                break;
            }
            replies.extend(more);
        }
        prop_assert_eq!(replies, expected);
    }
}

/// An instance that keeps replies, and the program that repeats them: the reference model.
#[derive(Clone)]
struct Local {
    table: Arc<Mutex<Table>>,
    words: Arc<dyn Generations>,
}

impl Local {
    fn new(kept: &KeptReplies) -> Self {
        let words: Arc<dyn Generations> = Arc::new(generations());
        kept.bind(&words).expect("room");
        Self { table: Arc::new(Mutex::new(Table::new(64, 0))), words }
    }

    fn find(&self, request: &[u8]) -> Result<Vec<u8>, WhyNot> {
        let mut reply = Vec::new();
        let mut table = self.table.lock().expect("no panic");
        let found = table.find(Instant::ZERO, 0, &SHAPES, self.words.words(), request, &mut reply);
        found.map(|()| reply)
    }
}

impl Keeper for Local {
    fn version_of(&self, name: Name) -> Version {
        Version::now(self.words.words(), name)
    }

    fn keep(&mut self, now: Instant, reply: &Publication<'_>) {
        let kept = self.table.lock().expect("no panic").publish(now, 0, &SHAPES, self.words.words(), reply);
        kept.expect("a reply that can be kept");
    }

    fn not_kept(&mut self, why: NotKept) {
        panic!("{why}");
    }
}

fn ask(service: &mut RpcService, beside: &mut Beside, message: &[u8]) -> Vec<u8> {
    let mut buffer = [0; 1500];
    buffer[..message.len()].copy_from_slice(message);
    let mut datagram = Datagram::new(Instant::ZERO, peer(), peer(), &mut buffer, message.len()).with(beside);
    let Answer::Reply { len } = service.datagram(&mut datagram) else { panic!("no reply") };
    buffer[..len].to_vec()
}

fn message(xid: u32, procedure: u32, auth: &Auth, args: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid, program: nfs3::PROGRAM, version: nfs3::VERSION, procedure, auth, args }.write(&mut message);
    message
}

#[test]
fn null_and_getattr_are_kept_for_any_xid_and_stamp() {
    let mut service = service();
    let local = Local::new(service.kept_replies());
    let mut beside = Beside { keeper: Some(Box::new(local.clone())), ..Beside::default() };
    let handle = handle_arguments(&Tree::small().handle(ROOT));
    let stale = handle_arguments(&[7; 16]);
    let (none, sys) = (Auth::none(), Auth::sys("client", 1, 2, &[3]).expect("within limits"));
    let other = Auth::sys("client", 9, 2, &[3]).expect("within limits");
    for auth in [&none, &sys] {
        for (procedure, args) in [(0, &[][..]), (1, handle.as_slice())] {
            let first = message(1, procedure, auth, args);
            assert_eq!(local.find(&first), Err(WhyNot::Unknown));
            let mut answered = ask(&mut service, &mut beside, &first);
            assert_eq!(local.find(&first), Ok(answered.clone()));
            let mut second = message(0xdead_beef, procedure, auth, args);
            if auth == &sys {
                // The stamp.
                second[32..36].copy_from_slice(b"time");
            }
            answered[..4].copy_from_slice(&second[..4]);
            assert_eq!(local.find(&second), Ok(answered.clone()));
            assert_eq!(ask(&mut service, &mut Beside::default(), &second), answered, "as the service says");
            assert_eq!(local.find(&message(1, procedure, &other, args)), Err(WhyNot::Unknown), "of a caller");
        }
        for (procedure, args) in [(0, &[0; 4][..]), (1, stale.as_slice()), (1, &[]), (2, &handle)] {
            let refused = message(1, procedure, auth, args);
            let _ = ask(&mut service, &mut beside, &refused);
            assert_eq!(local.find(&refused), Err(WhyNot::Unknown), "a refusal is not kept");
        }
    }
}

/// A program whose procedure 1 returns a number that changes.
struct Number(Arc<AtomicU32>);

impl Program for Number {
    fn number(&self) -> u32 {
        nfs3::PROGRAM
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        nfs3::VERSION..=nfs3::VERSION
    }

    fn results_max(&self) -> usize {
        4
    }

    fn run_once(&self) -> &[(u32, u32)] {
        &[(nfs3::VERSION, 2)]
    }

    fn keep(&self, _request: &Request<'_>) -> Option<Keepable> {
        Some(Keepable { name: Name::numbered(5), hold: Duration::from_secs(1) })
    }

    fn call(&mut self, _request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        results.write_u32(self.0.load(Ordering::Relaxed));
        Ok(Handled::Now)
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

#[test]
fn what_changes_results_withdraws_them_and_what_runs_once_is_never_kept() {
    let number = Arc::new(AtomicU32::new(1));
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let programs: Vec<Box<dyn Program>> = vec![Box::new(Number(Arc::clone(&number)))];
    let mut service = RpcService::new(Server::new(programs, limits, 0).expect("a table"), LIMITS);
    let local = Local::new(service.clone().kept_replies());
    let mut beside = Beside { keeper: Some(Box::new(local.clone())), ..Beside::default() };
    let call = message(7, 1, &Auth::none(), b"");
    for value in 1..4_u32 {
        number.store(value, Ordering::Relaxed);
        service.kept_replies().withdraw(Name::numbered(5));
        assert!(local.find(&call).is_err());
        assert!(ask(&mut service, &mut beside, &call).ends_with(&value.to_be_bytes()));
        assert!(local.find(&call).is_ok_and(|reply| reply.ends_with(&value.to_be_bytes())));
    }
    let once = message(8, 2, &Auth::none(), b"");
    let _ = ask(&mut service, &mut beside, &once);
    assert_eq!(local.find(&once), Err(WhyNot::Unknown));
}
