//! Does one kind of work repeatedly, such as serving a call, for counting instructions: `cargo run -p xtask --
//! instructions` runs it under valgrind with two numbers of calls and takes the difference.
//!
//! `twinpath-test-instructions CASE CALLS`; without arguments it lists the cases.

mod flow_mods;
mod switch;
mod tables;
mod tcp;

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use twinpath_rpc::client::{Auth, Call, handle_arguments};
use twinpath_rpc::mount3::Mount3;
use twinpath_rpc::nfs3::{Nfs3, ROOT, Tree};
use twinpath_rpc::nfs3_types::nfs3;
use twinpath_rpc::record::RecordLimits;
use twinpath_rpc::{DuplicateLimits, Program, RpcService, Server};
use twinpath_service::{Answer, Datagram, Duration, Instant, Output, Service};
use twinpath_udp::reply_limit::ReplyLimit;

/// Room in a connection's output: more than any reply, bytes.
const OUTPUT_MAX: usize = 65_536;

/// How a call arrives.
#[derive(Clone, Copy)]
enum By {
    Datagram,
    /// As a record of this many fragments.
    Record(usize),
    /// In one read with this many records.
    Records(u64),
    /// Not at all: measures what the rate limit adds to a reply over UDP.
    ReplyLimit,
    /// Not at all: a switch looks an address up.
    LookUp,
    /// Not at all: a switch judges a frame.
    Judge,
    /// Not at all: a frame goes through OpenFlow's tables, a controller changes them, or TCP has a request answered.
    Own(fn(u64)),
}

/// Name of the case, the procedure, whether the call has an AUTH_SYS credential, and how it arrives.
type Case = (&'static str, u32, bool, By);

const CASES: [Case; 16] = [
    ("null-record", 0, false, By::Record(1)),
    ("null-record-sys", 0, true, By::Record(1)),
    ("null-record-3-fragments", 0, false, By::Record(3)),
    ("null-record-of-100", 0, false, By::Records(100)),
    ("null-datagram", 0, false, By::Datagram),
    ("getattr-record-sys", 1, true, By::Record(1)),
    ("getattr-datagram-sys", 1, true, By::Datagram),
    ("reply-limit", 0, false, By::ReplyLimit),
    ("l2-lookup", 0, false, By::LookUp),
    ("l2-judge", 0, false, By::Judge),
    ("tables-exact", 0, false, By::Own(tables::exact)),
    ("tables-8-masks", 0, false, By::Own(tables::masks)),
    ("tables-normal", 0, false, By::Own(tables::normal)),
    ("flow-mod", 0, false, By::Own(flow_mods::add_flows)),
    ("tcp-request-reply", 0, false, By::Own(tcp::request_reply)),
    ("tcp-request-reply-smoltcp", 0, false, By::Own(tcp::request_reply_smoltcp)),
];

fn service() -> RpcService {
    let tree = Arc::new(Tree::small());
    let programs: Vec<Box<dyn Program>> =
        vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))];
    let duplicates = DuplicateLimits { calls: 8, age: Duration::from_secs(1) };
    let server = Server::new(programs, duplicates, 7).expect("two programs of different numbers");
    RpcService::new(server, RecordLimits { record_bytes: 65_536, fragments: 32 })
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(calls)) = (arguments.next(), arguments.next()) else {
        CASES.iter().for_each(|(name, ..)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let case = CASES.iter().find(|(known, ..)| *known == name);
    let (Some((_, procedure, sys, by)), Ok(calls)) = (case, calls.parse::<u64>()) else {
        eprintln!(
            "twinpath-test-instructions CASE CALLS: one of the cases that it lists without arguments, and a number"
        );
        return ExitCode::FAILURE;
    };
    let auth =
        if *sys { Auth::sys("client", 1000, 100, &[4, 24]).expect("within limits") } else { Auth::none() };
    let args = if *procedure == 0 { Vec::new() } else { handle_arguments(&Tree::small().handle(ROOT)) };
    let (program, version, procedure) = (nfs3::PROGRAM, nfs3::VERSION, *procedure);
    let call = Call { xid: 7, program, version, procedure, auth: &auth, args: &args };
    match *by {
        By::Datagram => serve_datagrams(&call, calls),
        By::Record(fragments) => serve_records(&call, fragments, 1, calls),
        By::Records(each) => serve_records(&call, 1, each, calls / each),
        By::ReplyLimit => limit_replies(calls),
        By::LookUp => switch::look_up(calls),
        By::Judge => switch::judge(calls),
        By::Own(pass) => pass(calls),
    }
    ExitCode::SUCCESS
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 900))
}

/// Serves this many records per read: one, as from a client that waits for each reply, or more.
fn serve_records(call: &Call<'_>, fragments: usize, each: u64, reads: u64) {
    let (mut service, mut stream, mut out) = (service(), Vec::new(), Vec::with_capacity(OUTPUT_MAX));
    (0..each).for_each(|_| call.write_record(fragments, &mut stream));
    let mut connection = service.accept(Instant::ZERO, peer()).expect("nobody is refused");
    for _ in 0..reads {
        out.clear();
        let mut output = Output::new(&mut out, OUTPUT_MAX);
        let used = service.stream(Instant::ZERO, &mut connection, black_box(&stream), &mut output);
        assert_eq!(used, stream.len());
        black_box(&out);
    }
    assert!(reads == 0 || !out.is_empty(), "answered");
}

fn limit_replies(replies: u64) {
    let mut limit = ReplyLimit::new(50_000, 1);
    for number in 0..replies {
        black_box(limit.allows(black_box(peer().ip()), Instant::from_nanos(number * 1_000)));
    }
}

fn serve_datagrams(call: &Call<'_>, calls: u64) {
    let (mut service, mut buffer) = (service(), [0; 2048]);
    let len = call.write_to(&mut buffer).expect("a call is short");
    let request = buffer;
    for _ in 0..calls {
        // The reply is built over the request.
        buffer[..len].copy_from_slice(&request[..len]);
        let mut datagram = Datagram::new(Instant::ZERO, peer(), peer(), black_box(&mut buffer), len);
        let answer = service.datagram(&mut datagram);
        assert!(matches!(black_box(answer), Answer::Reply { .. }), "answered");
    }
}
