use std::ops::RangeInclusive;

use nfs3_types::rpc::auth_stat;
use proptest::prelude::*;
use twinpath_time::Duration;

use super::*;
use crate::client::{Auth, Call, Reply};
use crate::duplicates::WORKING_MAX;
use crate::xdr::Reader;

const NUMBER: u32 = 0x2000_0001;
/// A procedure that doubles its argument.
const DOUBLE: u32 = 1;
/// A procedure that fails.
const FAIL: u32 = 2;
/// A procedure that counts its runs and must run once.
const COUNT: u32 = 3;
/// A procedure that doubles its argument later; it refuses an argument above a hundred.
const DOUBLE_LATER: u32 = 4;
/// A procedure that counts its runs later and must run once.
const COUNT_LATER: u32 = 5;
/// How long replies are kept.
const AGE: Duration = Duration::from_secs(60);

/// A program with one procedure for every outcome.
#[derive(Default)]
struct Sample {
    runs: u32,
}

impl Program for Sample {
    fn number(&self) -> u32 {
        NUMBER
    }

    fn versions(&self) -> RangeInclusive<u32> {
        2..=4
    }

    fn results_max(&self) -> usize {
        4
    }

    fn run_once(&self) -> &[(u32, u32)] {
        &[(4, COUNT), (4, COUNT_LATER)]
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &[(4, DOUBLE_LATER), (4, COUNT_LATER)]
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        let mut args = Reader::new(request.args);
        match request.procedure {
            DOUBLE => results.write_u32(args.u32()?.wrapping_mul(2)),
            FAIL => {
                results.write_u32(0xdead_beef);
                return Err(Refusal::SystemError);
            }
            COUNT => {
                self.runs += 1;
                results.write_u32(self.runs);
            }
            DOUBLE_LATER => {
                results.write_u32(0xdead_beef);
                let number = args.u32()?;
                return Ok(Handled::later(move |results| {
                    results.write_u32(2 * number);
                    if number > 100 { Err(Refusal::SystemError) } else { Ok(()) }
                }));
            }
            COUNT_LATER => {
                self.runs += 1;
                let runs = self.runs;
                return Ok(Handled::later(move |results| {
                    assert!(runs < 3, "the third one fails");
                    results.write_u32(runs);
                    Ok(())
                }));
            }
            _ => return Err(Refusal::ProcedureUnavailable),
        }
        Ok(Handled::Now)
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self::default())
    }
}

fn server() -> Server {
    let limits = DuplicateLimits { calls: 64, age: AGE };
    Server::new(vec![Box::new(Sample::default())], limits, 7).expect("a table")
}

fn by_stream() -> Arrival {
    Arrival { now: Instant::ZERO, peer: peer(), transport: Transport::Stream }
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 900))
}

fn message(version: u32, procedure: u32, auth: &Auth, args: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    Call { xid: 77, program: NUMBER, version, procedure, auth, args }.write(&mut message);
    message
}

/// The reply to a datagram; checks that a record gets the same reply, with its mark.
fn reply(server: &mut Server, message: &[u8]) -> Vec<u8> {
    let reply = server.datagram(Instant::ZERO, peer(), message).expect("a call").to_vec();
    let mut stream = b"before".to_vec();
    let served = server.record(&by_stream(), false, message, &mut stream).expect("a call");
    assert!(matches!(served, Outcome::Done));
    assert_eq!(stream[..6], *b"before");
    assert_eq!(stream[6..10], mark(reply.len() as u32, true));
    assert_eq!(stream[10..], reply);
    assert!(stream.len() - 6 <= server.record_reply_max());
    reply
}

fn outcome(server: &mut Server, message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let reply = reply(server, message);
    let reply = Reply::parse(&reply).expect("a reply of RPC version 2");
    assert_eq!(reply.xid, 77);
    reply.outcome.map(<[u8]>::to_vec)
}

#[test]
fn a_call_is_answered_with_its_results() {
    let auth = Auth::sys("client", 1, 2, &[3]).expect("within limits");
    let args = 21_u32.to_be_bytes();
    for version in 2..=4 {
        let results = outcome(&mut server(), &message(version, DOUBLE, &auth, &args));
        assert_eq!(results, Ok(42_u32.to_be_bytes().to_vec()));
    }
}

#[test]
fn every_refusal_is_the_rfcs() {
    let auth = Auth::none();
    let double = |args: &[u8]| message(4, DOUBLE, &auth, args);
    let other_program = {
        let mut message = double(&[0; 4]);
        message[12] ^= 1;
        message
    };
    let other_rpc = {
        let mut message = double(&[0; 4]);
        message[11] = 3;
        message
    };
    let mismatch = Refusal::ProgramMismatch { low: 2, high: 4 };
    let cases = [
        (other_program, Refusal::ProgramUnavailable),
        (other_rpc, Refusal::RpcMismatch { low: 2, high: 2 }),
        (message(1, DOUBLE, &auth, &[0; 4]), mismatch),
        (message(5, DOUBLE, &auth, &[0; 4]), mismatch),
        (message(0, NULL, &auth, &[]), mismatch),
        (message(4, 99, &auth, &[]), Refusal::ProcedureUnavailable),
        (message(4, FAIL, &auth, &[]), Refusal::SystemError),
        (double(&[]), Refusal::GarbageArguments),
        (double(&[0; 3]), Refusal::GarbageArguments),
    ];
    for (message, refusal) in cases {
        let mut server = server();
        assert_eq!(outcome(&mut server, &message), Err(refusal));
        let counters = server.counters();
        assert_eq!(counters.refused.get(refusal.reason()), 2, "as a datagram and as a record");
        assert_eq!((counters.answered.get(), counters.refused.happened().count()), (2, 1));
    }
}

/// A flavour and its body.
type Part<'a> = (u32, &'a [u8]);

/// Like libtirpc and nfs-ganesha, which serve all of these.
#[test]
fn bytes_behind_arguments_or_a_credential_and_other_verifiers_are_ignored() {
    let (none, sys) = (Auth::none(), Auth::sys("client", 1, 2, &[3]).expect("within limits"));
    let long = [&21_u32.to_be_bytes()[..], &[9; 8]].concat();
    for auth in [&none, &sys] {
        assert_eq!(
            outcome(&mut server(), &message(4, DOUBLE, auth, &long)),
            Ok(42_u32.to_be_bytes().to_vec())
        );
        assert_eq!(outcome(&mut server(), &message(4, NULL, auth, &[0; 4])), Ok(vec![]));
    }
    let body = [&[0; 4][..], &0_u32.to_be_bytes(), &[0; 8], &0_u32.to_be_bytes()].concat();
    let longer = [&body[..], &[0; 12]].concat();
    let cases: [(Part<'_>, Part<'_>); 5] = [
        ((1, &longer), (0, &[])),
        ((0, &[]), (1, &body)),
        ((0, &[]), (6, &[])),
        ((1, &body), (1, &body)),
        ((0, &[]), (0, &[7; 8])),
    ];
    for (credential, verifier) in cases {
        let call = with_auth(COUNT, credential, verifier);
        assert!(outcome(&mut server(), &call).is_ok(), "{credential:?} {verifier:?}");
        let null = with_auth(NULL, credential, verifier);
        let same = server().keepable(Instant::ZERO, peer(), &null);
        assert!(same.is_none(), "{credential:?} {verifier:?}: nothing is kept for what is unusual");
    }
    for credential in [(1, &body[..]), (0, &[])] {
        let usual = with_auth(NULL, credential, (0, &[]));
        assert!(server().keepable(Instant::ZERO, peer(), &usual).is_some(), "{credential:?}");
    }
}

/// A call with the given credential and verifier.
fn with_auth(procedure: u32, credential: (u32, &[u8]), verifier: (u32, &[u8])) -> Vec<u8> {
    let mut message = message(4, procedure, &Auth::none(), &[]);
    message.truncate(24);
    for (flavour, body) in [credential, verifier] {
        message.extend(flavour.to_be_bytes());
        crate::xdr::write_opaque(body, &mut message);
    }
    message
}

#[test]
fn bad_credentials_are_refused_but_for_null() {
    let none: (u32, &[u8]) = (0, &[]);
    let cases = [
        (with_auth(COUNT, (1, &[0; 16]), none), auth_stat::AUTH_BADCRED),
        (with_auth(COUNT, (2, &[0; 4]), none), auth_stat::AUTH_REJECTEDCRED),
        (with_auth(COUNT, (6, &[0; 20]), none), auth_stat::AUTH_REJECTEDCRED),
        (with_auth(COUNT, (0, &[0; 401]), none), auth_stat::AUTH_BADCRED),
        (with_auth(COUNT, none, (0, &[0; 401])), auth_stat::AUTH_BADVERF),
    ];
    for (mut message, status) in cases {
        let mut server = server();
        assert_eq!(outcome(&mut server, &message), Err(Refusal::Auth(status)));
        assert_eq!(server.counters().refused.get(Reason::RpcAuth), 2);
        // A credential that is too long cannot be skipped, whatever procedure is called.
        let long = message.len() > 440;
        message[23] = NULL as u8;
        let expected = if long { Err(Refusal::Auth(status)) } else { Ok(Vec::new()) };
        assert_eq!(outcome(&mut server, &message), expected, "NULL needs no authentication");
    }
}

#[test]
fn null_is_answered_whatever_its_verifier_holds() {
    for verifier in [&[][..], &[7; 4], &[7; 400]] {
        let call = with_auth(NULL, (6, &[1; 8]), (6, verifier));
        assert_eq!(outcome(&mut server(), &call), Ok(vec![]), "{} bytes", verifier.len());
    }
}

#[test]
fn a_value_is_packed_as_the_library_packs_it() {
    use nfs3_types::nfs3::nfstime3;
    use nfs3_types::xdr_codec::Pack as _;

    let value = nfstime3 { seconds: 1, nseconds: 2 };
    let (mut out, mut expected) = (b"before".to_vec(), b"before".to_vec());
    assert_eq!(Results(&mut out).pack(&value), Ok(()));
    value.pack(&mut expected).expect("memory");
    assert_eq!((&out, out.len()), (&expected, 14));
}

#[test]
fn messages_that_are_no_calls_are_not_answered() {
    let whole = message(4, DOUBLE, &Auth::none(), &[0; 4]);
    let mut reply = whole.clone();
    reply[7] = 1;
    let cut = (0..40).map(|len| whole[..len].to_vec());
    for message in cut.chain([reply]) {
        let mut server = server();
        assert_eq!(server.datagram(Instant::ZERO, peer(), &message), Err(Reason::RpcHeader));
        let mut out = Vec::new();
        let served = server.record(&by_stream(), true, &message, &mut out);
        assert_eq!(served.err(), Some(Reason::RpcHeader));
        assert_eq!((out.len(), server.counters().answered.get()), (0, 0));
    }
}

#[test]
fn a_datagram_that_comes_twice_runs_once() {
    let mut server = server();
    let call = message(4, COUNT, &Auth::none(), &[]);
    let datagram = |server: &mut Server, xid: u8| {
        let mut call = call.clone();
        call[3] = xid;
        let reply = server.datagram(Instant::ZERO, peer(), &call).expect("a call");
        let reply = Reply::parse(reply).expect("a reply");
        reply.outcome.map(|results| results[3])
    };
    assert_eq!([1, 1, 2, 1, 2, 3].map(|xid| datagram(&mut server, xid)), [1, 1, 2, 1, 2, 3].map(Ok));
    assert_eq!((server.counters().repeated.get(), server.counters().answered.get()), (3, 6));
    // Version 2 of the procedure may run again.
    let older = message(2, COUNT, &Auth::none(), &[]);
    let first = server.datagram(Instant::ZERO, peer(), &older).expect("a call").to_vec();
    let second = server.datagram(Instant::ZERO, peer(), &older).expect("a call").to_vec();
    assert_ne!(first, second);
}

/// Serves a call of [`DOUBLE_LATER`] that came as a record.
fn double_later(server: &mut Server, may_defer: bool, number: u32) -> Outcome {
    let call = message(4, DOUBLE_LATER, &Auth::none(), &number.to_be_bytes());
    let mut out = b"others".to_vec();
    let served = server.record(&by_stream(), may_defer, &call, &mut out).expect("a call");
    assert_eq!(out, b"others", "nothing yet");
    served
}

#[test]
fn a_deferred_reply_is_a_record_of_its_own() {
    let mut server = server();
    assert!(server.defers() && matches!(double_later(&mut server, false, 21), Outcome::NoRoom));
    assert_eq!(server.counters().answered.get(), 0, "it comes again");
    let outcomes = [21, 101].map(|number| {
        let Outcome::Later(call) = double_later(&mut server, true, number) else {
            panic!("answered at once")
        };
        let record = call.run(&[]);
        assert_eq!(record[..MARK_LEN], mark(record.len() as u32 - 4, true));
        let reply = Reply::parse(&record[MARK_LEN..]).expect("a reply");
        assert_eq!(reply.xid, 77);
        reply.outcome.map(<[u8]>::to_vec)
    });
    assert_eq!(outcomes, [Ok(vec![0, 0, 0, 42]), Err(Refusal::SystemError)]);
    let counters = server.counters();
    assert_eq!(counters.refusals().collect::<Vec<_>>(), [(Reason::RpcFailed, 1)]);
    assert_eq!(counters.answered.get(), 2);
}

#[test]
fn a_datagram_is_answered_later_if_there_is_room_and_non_idempotent_calls_run_once() {
    let mut server = server();
    let mut call = message(4, DOUBLE_LATER, &Auth::none(), &21_u32.to_be_bytes());
    assert_eq!(server.datagram(Instant::ZERO, peer(), &call), Err(Reason::HandlersBusy));
    let later = |server: &mut Server, call: &[u8]| match server.datagram_or_later(Instant::ZERO, peer(), call)
    {
        Ok(Err(deferred)) => Ok(deferred),
        Ok(Ok(kept)) => Err(kept.to_vec()),
        Err(reason) => panic!("{reason:?}"),
    };
    let later_run =
        |server: &mut Server, call: &[u8]| later(server, call).map(|deferred| deferred.run_datagram(&[]));
    assert_eq!(results(&later_run(&mut server, &call).expect("later")), Ok(vec![0, 0, 0, 42]));
    // That procedure may run twice; this one may not, neither while a call is in progress nor afterwards.
    call = message(4, COUNT_LATER, &Auth::none(), &[]);
    let work = later(&mut server, &call).expect("later");
    let again = server.datagram_or_later(Instant::ZERO, peer(), &call).map(|_| ());
    assert_eq!(again, Err(Reason::NoReply), "its reply is on its way");
    let reply = work.run_datagram(&[]);
    assert_eq!(later_run(&mut server, &call), Err(reply.clone()), "kept");
    assert_eq!(results(&reply), Ok(vec![0, 0, 0, 1]));
    // A call that still waits does not run twice. One whose work was lost runs again, and one whose work panics has
    // failed.
    call[3] = 9;
    let waits = later(&mut server, &call).expect("later");
    let much_later = Instant::ZERO + AGE;
    let again = server.datagram_or_later(much_later, peer(), &call).map(|_| ());
    assert_eq!(again, Err(Reason::NoReply), "it is still in progress");
    drop(waits);
    let Ok(Err(deferred)) = server.datagram_or_later(much_later, peer(), &call) else { panic!("forgotten") };
    assert_eq!(results(&deferred.run_datagram(&[])), Err(Refusal::SystemError));
}

fn results(reply: &[u8]) -> Result<Vec<u8>, Refusal> {
    Reply::parse(reply).expect("a reply").outcome.map(<[u8]>::to_vec)
}

/// A datagram whose call is answered later.
fn deferred(server: &mut Server, call: &[u8]) -> Box<Deferred> {
    try_deferred(server, call).expect("there is room")
}

fn try_deferred(server: &mut Server, call: &[u8]) -> Option<Box<Deferred>> {
    match server.datagram_or_later(Instant::ZERO, peer(), call) {
        Ok(Err(deferred)) => Some(deferred),
        Err(Reason::HandlersBusy) => None,
        outcome => panic!("{:?}", outcome.map(|reply| reply.map_err(|_| "later"))),
    }
}

#[test]
fn a_restarted_client_that_reuses_an_xid_gets_no_reply_to_its_earlier_call() {
    let mut server = server();
    // The same peer and xid with another credential is another call.
    let former = message(4, COUNT_LATER, &Auth::none(), &[]);
    let anew = message(4, COUNT_LATER, &Auth::sys("b", 2, 3, &[]).expect("short"), &[]);
    let first = deferred(&mut server, &former);
    let second = deferred(&mut server, &anew);
    let second = second.run_datagram(&[]);
    assert_eq!(results(&second), Ok(vec![0, 0, 0, 2]));
    // The second call ended first.
    assert_eq!(server.datagram(Instant::ZERO, peer(), &former), Err(Reason::NoReply), "still worked on");
    assert_eq!(server.datagram(Instant::ZERO, peer(), &anew), Ok(&second[..]));
    let first = first.run_datagram(&[]);
    assert_eq!(results(&first), Ok(vec![0, 0, 0, 1]));
    assert_eq!(server.datagram(Instant::ZERO, peer(), &former), Ok(&first[..]));
    assert_eq!(server.datagram(Instant::ZERO, peer(), &anew), Ok(&second[..]));
}

#[test]
fn a_repeated_call_is_answered_again_with_or_without_room() {
    let mut server = server();
    let call = message(4, COUNT_LATER, &Auth::none(), &[]);
    assert_eq!(server.datagram(Instant::ZERO, peer(), &call), Err(Reason::HandlersBusy), "not seen before");
    let work = deferred(&mut server, &call);
    assert_eq!(server.datagram(Instant::ZERO, peer(), &call), Err(Reason::NoReply), "being worked on");
    let reply = work.run_datagram(&[]);
    assert_eq!(server.datagram(Instant::ZERO, peer(), &call), Ok(&reply[..]), "kept");
    assert_eq!((server.counters().repeated.get(), server.counters().answered.get()), (2, 2));
}

#[test]
fn calls_in_progress_are_limited_and_none_is_replaced() {
    // Far fewer replies are kept.
    let limits = DuplicateLimits { calls: 8, age: AGE };
    let mut server = Server::new(vec![Box::new(Sample::default())], limits, 7).expect("a table");
    let call = |xid: u32| {
        let mut call = message(4, COUNT_LATER, &Auth::none(), &[]);
        call[..4].copy_from_slice(&xid.to_be_bytes());
        call
    };
    let mut works: Vec<_> = (0..100).map(|xid| deferred(&mut server, &call(xid))).collect();
    // The other calls, up to the limit.
    let most = WORKING_MAX as u32;
    let more: Vec<_> = (100..most + 1).map_while(|xid| try_deferred(&mut server, &call(xid))).collect();
    assert!(more.len() < most as usize - 100, "it is bounded");
    let full = 100 + more.len() as u32;
    let refused = server.datagram_or_later(Instant::ZERO, peer(), &call(full)).map(|_| ());
    assert_eq!(refused, Err(Reason::HandlersBusy), "rather than being run unremembered");
    for xid in 0..100 {
        assert_eq!(server.datagram(Instant::ZERO, peer(), &call(xid)), Err(Reason::NoReply));
    }
    // Calls that end make room.
    let tenth = works.remove(9).run_datagram(&[]);
    assert_eq!(server.datagram(Instant::ZERO, peer(), &call(9)), Ok(&tenth[..]));
    drop(more);
    deferred(&mut server, &call(full));
    assert_eq!(server.counters().forgotten_in_all(), 0);
}

/// Passes a call of [`Sample`] that must run once to a worker as a datagram; returns its result if it is answered.
fn count(server: &mut Server, call: &[u8]) -> Result<Vec<u8>, Reason> {
    server.datagram(Instant::ZERO, peer(), call).map(<[u8]>::to_vec)
}

/// The same as a record of a connection.
fn count_in_stream(server: &mut Server, call: &[u8]) -> Vec<u8> {
    let arrival = Arrival { now: Instant::ZERO, peer: peer(), transport: Transport::Stream };
    let mut out = Vec::new();
    assert!(matches!(server.record(&arrival, true, call, &mut out), Ok(Outcome::Done)));
    out.get(MARK_LEN..).unwrap_or_default().to_vec()
}

#[test]
fn a_non_idempotent_call_runs_once_whichever_worker_or_transport_repeats_it() {
    let mut first = server();
    let mut second = first.for_worker();
    let call = message(4, COUNT, &Auth::none(), &[]);
    let reply = count(&mut first, &call).expect("answered");
    assert_eq!(results(&reply), Ok(vec![0, 0, 0, 1]));
    // To another worker, on a connection of that one, and on a connection of the first.
    assert_eq!(count(&mut second, &call), Ok(reply.clone()));
    assert_eq!(count_in_stream(&mut second, &call), reply);
    assert_eq!(count_in_stream(&mut first, &call), reply);
    assert_eq!((first.counters().repeated.get(), second.counters().repeated.get()), (1, 2));
    // The other way round: first on a connection.
    let call = message(4, COUNT, &Auth::sys("b", 2, 3, &[]).expect("short"), &[]);
    let reply = count_in_stream(&mut second, &call);
    assert_eq!(count(&mut first, &call), Ok(reply));
}

#[test]
fn a_call_that_is_being_worked_on_is_not_run_by_another_worker_either() {
    let mut first = server();
    let mut second = first.for_worker();
    let call = message(4, COUNT_LATER, &Auth::none(), &[]);
    let work = deferred(&mut first, &call);
    assert_eq!(count(&mut second, &call), Err(Reason::NoReply));
    // In a stream nothing is dropped: the caller gets the reply when it repeats the call.
    assert_eq!(count_in_stream(&mut second, &call), []);
    let reply = work.run_datagram(&[]);
    assert_eq!(count(&mut second, &call), Ok(reply.clone()));
    assert_eq!(count_in_stream(&mut first, &call), reply);
    // After its work was dropped, the call is as unknown as before.
    let call = message(4, COUNT_LATER, &Auth::sys("b", 2, 3, &[]).expect("short"), &[]);
    drop(deferred(&mut first, &call));
    deferred(&mut second, &call);
}

#[test]
fn a_server_that_follows_another_one_knows_what_that_has_run() {
    let duplicates = Arc::new(Duplicates::new(DuplicateLimits { calls: 64, age: AGE }, 7));
    let next = || Server::sharing(vec![Box::new(Sample::default())], &duplicates).expect("a table");
    let mut former = next();
    let [done, working] =
        [message(4, COUNT, &Auth::none(), &[]), message(4, COUNT_LATER, &Auth::none(), &[])];
    let reply = count(&mut former, &done).expect("answered");
    let work = deferred(&mut former, &working);
    let mut server = next();
    assert_eq!(count(&mut server, &done), Ok(reply));
    assert_eq!(count(&mut server, &working), Err(Reason::NoReply), "the former one still carries it out");
    let reply = work.run_datagram(&[]);
    drop(former);
    assert_eq!(count(&mut server, &working), Ok(reply));
}

#[test]
fn conflicting_programs_are_refused() {
    let limits = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let twice: Vec<Box<dyn Program>> = vec![Box::new(Sample::default()), Box::new(Sample::default())];
    assert_eq!(Server::new(twice, limits, 0).err(), Some(TableError::Twice(NUMBER)));
}

#[test]
fn a_program_without_a_version_is_refused() {
    /// Like [`Sample`], except for its versions.
    struct Empty;

    impl Program for Empty {
        fn number(&self) -> u32 {
            NUMBER
        }

        #[expect(clippy::reversed_empty_ranges, reason = "that is what it is about")]
        fn versions(&self) -> RangeInclusive<u32> {
            2..=1
        }

        fn results_max(&self) -> usize {
            100
        }

        fn call(&mut self, _: &Request<'_>, _: &mut Results<'_>) -> Result<Handled, Refusal> {
            Err(Refusal::ProcedureUnavailable)
        }

        fn for_worker(&self) -> Box<dyn Program> {
            Box::new(Self)
        }
    }

    let limits = DuplicateLimits { calls: 8, age: AGE };
    let error = Server::new(vec![Box::new(Empty)], limits, 0).err();
    assert_eq!(error, Some(TableError::NoVersion(NUMBER)));
}

#[test]
fn room_is_asked_for_the_longest_reply_of_all_programs() {
    use crate::mount3::Mount3;
    use crate::nfs3::{Nfs3, Tree};

    let tree = Arc::new(Tree::small());
    let limits = DuplicateLimits { calls: 8, age: AGE };
    let of = |programs: Vec<Box<dyn Program>>| Server::new(programs, limits, 0).expect("a table");
    // A mark and a header of 24 bytes. The results are a word, but a refusal with two versions is longer.
    assert_eq!(of(vec![Box::new(Sample::default())]).record_reply_max(), 4 + 32);
    // Status, handle and its length, two flavours and their count.
    assert_eq!(of(vec![Box::new(Mount3::new(Arc::clone(&tree)))]).record_reply_max(), 4 + 24 + 36);
    // Status and attributes.
    let mut both = of(vec![Box::new(Mount3::new(Arc::clone(&tree))), Box::new(Nfs3::new(tree))]).for_worker();
    assert_eq!(both.record_reply_max(), 4 + 24 + 88);
    assert!(!both.defers() && server().defers() && server().for_worker().defers());
    // Of those two, none keeps a reply.
    assert!(both.duplicates.is_none());
    both.scratch.clear();
    assert_eq!(both.scratch.capacity(), both.record_reply_max());
}

/// A call of `procedure` by its number.
fn numbered(procedure: u32, xid: u32) -> Vec<u8> {
    let mut call = message(4, procedure, &Auth::none(), &[]);
    call[..4].copy_from_slice(&xid.to_be_bytes());
    call
}

#[test]
fn kept_replies_that_made_room_for_others_are_counted() {
    const CALLS: u32 = 300;
    for later in [false, true] {
        let limits = DuplicateLimits { calls: 8, age: AGE };
        let program = KeepsAll { later };
        let mut server = Server::new(vec![Box::new(program)], limits, 7).expect("a table");
        let mut answer = |xid| match server.datagram_or_later(Instant::ZERO, peer(), &numbered(1, xid)) {
            Ok(Ok(_)) => {}
            Ok(Err(deferred)) => drop(deferred.run_datagram(&[])),
            Err(reason) => panic!("{reason:?}"),
        };
        (0..CALLS).for_each(&mut answer);
        let forgotten = server.counters().forgotten_in_all();
        assert_eq!(server.counters().repeated.get(), 0);
        // Those still kept are answered again, without a further run: the newest ones first.
        let repeated = |server: &mut Server, xid| {
            let before = server.counters().repeated.get();
            let answered = server.datagram(Instant::ZERO, peer(), &numbered(1, xid)).is_ok();
            answered && server.counters().repeated.get() > before
        };
        let mut unchanged = server.for_worker();
        let kept = match later {
            // A call that is not known is not run: there is no room for work.
            true => (0..CALLS).filter(|xid| repeated(&mut unchanged, *xid)).count() as u64,
            false => u64::from(CALLS) - forgotten,
        };
        assert_eq!(kept + forgotten, u64::from(CALLS), "later: {later}");
        assert!(forgotten >= u64::from(CALLS) - 16 * 8, "{forgotten}: no more than 8 in each of 16 shards");
        let counters = server.counters();
        assert_eq!((counters.forgotten.get() == 0, counters.forgotten_later.get() == 0), (later, !later));
    }
}

/// A program whose only procedure must run once and returns nothing.
struct KeepsAll {
    later: bool,
}

impl Program for KeepsAll {
    fn number(&self) -> u32 {
        NUMBER
    }

    fn versions(&self) -> RangeInclusive<u32> {
        4..=4
    }

    fn results_max(&self) -> usize {
        0
    }

    fn run_once(&self) -> &[(u32, u32)] {
        &[(4, 1)]
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        if self.later { &[(4, 1)] } else { &[] }
    }

    fn call(&mut self, _: &Request<'_>, _: &mut Results<'_>) -> Result<Handled, Refusal> {
        Ok(if self.later { Handled::later(|_| Ok(())) } else { Handled::Now })
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Self { later: self.later })
    }
}

#[test]
fn the_reply_to_a_record_that_comes_later_is_kept_too() {
    let mut server = server();
    let call = numbered(COUNT_LATER, 5);
    let mut out = Vec::new();
    let Ok(Outcome::Later(deferred)) = server.record(&by_stream(), true, &call, &mut out) else {
        panic!("answered at once")
    };
    assert_eq!(count_in_stream(&mut server, &call), [], "in progress");
    let record = deferred.run(&[]);
    assert_eq!(count_in_stream(&mut server, &call), record[MARK_LEN..]);
    assert_eq!((server.counters().repeated.get(), server.counters().answered.get()), (2, 2));
}

#[test]
fn work_that_panics_is_answered_and_counted_as_a_failure() {
    let mut server = server();
    let works: Vec<_> = (0..3).map(|xid| deferred(&mut server, &numbered(COUNT_LATER, xid))).collect();
    let replies: Vec<_> = works.into_iter().map(|work| results(&work.run_datagram(&[])).is_ok()).collect();
    assert_eq!(replies, [true, true, false]);
    assert_eq!(server.counters().refusals().collect::<Vec<_>>(), [(Reason::HandlerFailed, 1)]);
}

#[test]
fn a_marked_datagram_that_would_need_work_is_dropped_without_room_for_it() {
    let mut server = server();
    let later = message(4, DOUBLE_LATER, &Auth::none(), &21_u32.to_be_bytes());
    assert_eq!(server.datagram(Instant::ZERO, peer(), &marked(&later)), Err(Reason::HandlersBusy));
    // Only the last four bytes of a mark matter: a call of a small program number is not ours.
    let mut small = message(4, NULL, &Auth::none(), &[]);
    for (program, taken) in [(BODY_MAX, false), (BODY_MAX + 1, true)] {
        small[12..16].copy_from_slice(&program.to_be_bytes());
        assert_eq!(without_mark(&marked(&small)).is_some(), taken, "program {program}");
    }
}

#[test]
fn each_worker_has_its_own_counters() {
    let mut server = server();
    let mut other = server.for_worker();
    let call = message(4, NULL, &Auth::none(), &[]);
    reply(&mut server, &call);
    reply(&mut server, &call);
    reply(&mut other, &call);
    assert_eq!((server.counters().answered.get(), other.counters().answered.get()), (4, 2));
}

#[test]
fn datagrams_of_every_length_are_answered_or_refused() {
    let mut server = server();
    let mut message = message(4, DOUBLE, &Auth::none(), &[0; 4]);
    message.resize(65_507, 0);
    for len in 0..=message.len() {
        let answer = server.datagram(Instant::ZERO, peer(), &message[..len]).map(<[u8]>::len);
        let expected = match len {
            0..40 => Err(Reason::RpcHeader),
            40..44 => Ok(24),
            // What follows the arguments is ignored.
            _ => Ok(28),
        };
        assert_eq!(answer, expected, "{len} bytes");
    }
    assert_eq!(server.scratch.capacity(), server.record_reply_max(), "no reply made it grow");
}

/// A message with a record mark in front.
fn marked(message: &[u8]) -> Vec<u8> {
    [&mark(message.len() as u32, true)[..], message].concat()
}

#[test]
fn a_call_with_a_record_mark_in_a_datagram_is_answered_in_kind() {
    let mut server = server();
    for (procedure, args) in [(NULL, &[][..]), (DOUBLE, &[0, 0, 0, 21]), (FAIL, &[]), (COUNT, &[])] {
        let call = message(4, procedure, &Auth::none(), args);
        let plain = server.datagram(Instant::ZERO, peer(), &call).expect("a call").to_vec();
        assert_eq!(server.datagram(Instant::ZERO, peer(), &marked(&call)), Ok(&marked(&plain)[..]));
    }
    assert_eq!(server.counters().repeated.get(), 1, "what runs once does, with a mark or without");
    let later = message(4, DOUBLE_LATER, &Auth::none(), &21_u32.to_be_bytes());
    let reply = deferred(&mut server, &marked(&later)).run_datagram(&[]);
    assert_eq!(reply[..MARK_LEN], mark(reply.len() as u32 - 4, true));
    assert_eq!(results(&reply[MARK_LEN..]), Ok(vec![0, 0, 0, 42]));
    // Any xid is possible: 0 makes it look like a call of another RPC version.
    for xid in [0, 1, 2, 0x8000_0028, u32::MAX] {
        let mut call = message(4, DOUBLE, &Auth::none(), &[0, 0, 0, 21]);
        call[..4].copy_from_slice(&xid.to_be_bytes());
        let reply = server.datagram(Instant::ZERO, peer(), &marked(&call)).expect("a call").to_vec();
        assert_eq!(Reply::parse(&reply[MARK_LEN..]).map(|reply| reply.xid), Ok(xid));
    }
    // A mark with another length, or one of a fragment that is not the last, is not a record mark.
    let call = message(4, NULL, &Auth::none(), &[]);
    for mark in [mark(call.len() as u32 - 1, true), mark(call.len() as u32, false)] {
        let other = [&mark[..], &call].concat();
        assert_eq!(server.datagram(Instant::ZERO, peer(), &other), Err(Reason::RpcHeader));
    }
}

#[test]
fn no_call_without_a_mark_and_no_reply_is_taken_for_a_call_with_one() {
    // The xid has the value of a record mark.
    let mut call = message(4, DOUBLE, &Auth::none(), &[0, 0, 0, 21]);
    let like_mark = mark(call.len() as u32 - 4, true);
    call[..4].copy_from_slice(&like_mark);
    assert_eq!(without_mark(&call), None);
    let mut server = server();
    let reply =
        Reply::parse(server.datagram(Instant::ZERO, peer(), &call).expect("a call")).expect("a reply");
    assert_eq!((reply.xid, reply.outcome), (u32::from_be_bytes(like_mark), Ok(&[0, 0, 0, 42][..])));
    // Replies: an accepted one, with the only verifier whose flavour is 2; and one with a mark, to a call
    // of any xid.
    for verifier_len in 0..=BODY_MAX {
        let words = [0, 1, 0, 2, verifier_len];
        let mut reply: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        reply.resize(20 + verifier_len as usize + 4, 0);
        let like_mark = mark(reply.len() as u32 - 4, true);
        reply[..4].copy_from_slice(&like_mark);
        assert_eq!(server.datagram(Instant::ZERO, peer(), &reply), Err(Reason::RpcHeader));
    }
    let reply = server
        .datagram(Instant::ZERO, peer(), &message(4, NULL, &Auth::none(), &[]))
        .expect("a call")
        .to_vec();
    assert_eq!(server.datagram(Instant::ZERO, peer(), &marked(&reply)), Err(Reason::RpcHeader));
}

proptest! {
    /// Whatever the bytes of a call are, its answer can be decoded by a client, or there is none.
    #[test]
    fn a_damaged_call_gets_a_readable_answer(
        procedure in 0..6_u32,
        edits in proptest::collection::vec((0..80_usize, any::<u8>()), 0..6),
        len in 0..100_usize,
    ) {
        let auth = Auth::sys("client", 1, 2, &[3]).expect("within limits");
        let mut message = message(4, procedure, &auth, &[0; 8]);
        for (at, byte) in edits {
            if let Some(place) = message.get_mut(at) {
                *place = byte;
            }
        }
        message.truncate(len);
        let mut server = server();
        match server.datagram(Instant::ZERO, peer(), &message) {
            Ok(reply) => {
                let reply = Reply::parse(reply).expect("a reply");
                prop_assert_eq!(&reply.xid.to_be_bytes(), &message[..4]);
            }
            // Calls that would be answered later are refused: there are no threads for them.
            Err(Reason::HandlersBusy) => prop_assert!(procedure >= DOUBLE_LATER || message[23] >= 4),
            Err(reason) => prop_assert_eq!(reason, Reason::RpcHeader),
        }
    }
}
