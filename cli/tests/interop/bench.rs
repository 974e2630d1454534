//! Tests of `bench` with our services, and with servers that send wrong replies, fall silent or disappear.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use twinpath_test_rig::within;

use crate::rig::{Rig, SERVER, SERVER_V6, Server, link, udp_in, until};
use crate::root_or_skip;

const RPC_PORT: &str = "62049";

fn twinpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpath")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no report: {}", said(output)))
}

fn serve_rpc(rig: &Rig, path: &str) -> Server {
    rig.start(&["rpc", "--on", "vs", "--path", path, "--udp", RPC_PORT, "--tcp", RPC_PORT])
}

/// `bench rpc` from the client's namespace: 200 calls, each with a correct answer.
fn bench_rpc(rig: &Rig, target: &str, arguments: &str) -> Value {
    let base = ["bench", "rpc", target, "--json", "--count", "200", "--warmup", "0"];
    let words: Vec<&str> = base.into_iter().chain(arguments.split_whitespace()).collect();
    let finished = rig.twinpath(&rig.client, &words);
    assert_eq!(finished.code, Some(0), "{words:?}: {}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let counts = ["sent", "received", "refused", "corrupt", "duplicates"].map(|field| report[field].clone());
    assert_eq!(counts, [200, 200, 0, 0, 0], "{words:?}");
    report
}

#[test]
fn rpc_is_measured_by_every_way_it_is_served() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = serve_rpc(&rig, "packet");
    for arguments in ["", "-a 32", "-a 32 -f -A sys", "-a 32 --fragments 16 -A unix"] {
        let report = bench_rpc(&rig, SERVER, arguments);
        assert_eq!((&report["transport"], &report["procedure"]), (&"tcp".into(), &"null".into()));
        // One call per send, one reply per receive, never partial: the size of a reply is known beforehand.
        let calls = &report["system_calls"];
        assert_eq!((&calls["sends"], &calls["receives"]), (&200.into(), &200.into()), "{arguments}: {calls}");
    }
    let batched = bench_rpc(&rig, SERVER, "-a 32 --batch");
    assert!(batched["system_calls"]["sends"].as_u64().unwrap() < 200, "{}", batched["system_calls"]);
    let v6 = bench_rpc(&rig, &format!("[{SERVER_V6}]:{RPC_PORT}"), "-u -a 4 -j 2");
    assert_eq!(v6["runs"][0]["threads"].as_array().unwrap().len(), 2);
    let fast = bench_rpc(&rig, SERVER, "-u -a 8 --on vc --path packet");
    assert_eq!((&fast["path"], &fast["allocations_per_packet"]), (&"packet".into(), &0.0.into()), "{fast}");
    for path in ["packet", "xdp"] {
        // Each run attaches again.
        let base =
            ["bench", "rpc", SERVER, "-u", "--on", "vc", "--path", path, "-i", "3", "-c", "20", "--json"];
        let finished = rig.twinpath(&rig.client, &base);
        assert_eq!(finished.code, Some(0), "{path}: {}", finished.stderr);
        let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
        assert_eq!(
            (&report["received"], report["runs"].as_array().unwrap().len()),
            (&60.into(), 3),
            "{path}"
        );
    }
    let before = server.worker("frames_in");
    for way in ["", "-u", "-u --on vc --path packet"] {
        for export in ["--export /", "--export /directory -A sys"] {
            let report = bench_rpc(&rig, SERVER, &format!("--proc getattr {export} {way}"));
            assert_eq!(report["procedure"], "getattr");
        }
    }
    assert!(server.worker("frames_in") >= before + 800, "UDP calls came by the fast path");
    let refused = rig.twinpath(
        &rig.client,
        &["bench", "rpc", SERVER, "--proc", "getattr", "--handle", "0123", "--count", "5", "--json"],
    );
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("refused 5 of 5 requests; the first: GETATTR failed"),
        "{}",
        refused.stderr
    );
    let no_export = rig.twinpath(
        &rig.client,
        &["bench", "rpc", SERVER, "--proc", "getattr", "--export", "/nowhere", "--count", "5"],
    );
    assert!(no_export.stderr.contains("does not mount /nowhere: MNT failed"), "{}", no_export.stderr);
    assert_eq!(server.interrupt(), Some(0));
}

/// A TCP server of one connection, which ends when `serve` does.
fn tcp_server(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        // A second connection is refused from here on, instead of being accepted and never served. A process that another test starts
        // at this moment has the descriptor, too, until it runs its program.
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        drop(listener);
        stream.set_nodelay(true).unwrap();
        serve(stream);
    });
    target
}

/// The reply to a NULL call with a verifier of this many bytes, in fragments of some 32 bytes if requested.
fn null_reply(call: &[u8], verifier: u32, is_scattered: bool) -> Vec<u8> {
    let mut message = call[4..8].to_vec();
    [1, 0, 0, verifier].iter().for_each(|word| message.extend(word.to_be_bytes()));
    message.resize(message.len() + verifier as usize + 4, 0);
    let pieces = if is_scattered { message.len().div_ceil(32) } else { 1 };
    let size = message.len().div_ceil(pieces);
    let mut record = Vec::new();
    for (index, piece) in message.chunks(size).enumerate() {
        let is_last = (index + 1) * size >= message.len();
        record.extend((piece.len() as u32 | u32::from(is_last) << 31).to_be_bytes());
        record.extend(piece);
    }
    record
}

/// Replies differ in length, so none is as long as the one before suggests.
#[test]
fn replies_of_any_length_are_told_apart() {
    for arguments in [&["-a", "16"][..], &["-a", "16", "--batch"], &["-a", "16", "-f", "--mode", "poll"]] {
        let call_len = if arguments.contains(&"-f") { 52 } else { 44 };
        let target = tcp_server(move |mut stream| {
            let mut call = vec![0; call_len];
            for number in 0..400 {
                stream.read_exact(&mut call).unwrap();
                // The xid of a call in three fragments: its first byte, a mark, the others.
                if call_len == 52 {
                    call.copy_within(9..12, 5);
                }
                let verifier = [0, 400, 4, 4, 40, 0, 0, 200][number % 8];
                stream.write_all(&null_reply(&call, verifier, number % 5 == 4)).unwrap();
            }
        });
        let base = ["bench", "rpc", &target, "-c", "400", "--warmup", "0", "--json"];
        let output = twinpath(&[&base, arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        assert_eq!(report(&output)["received"], 400, "{arguments:?}");
    }
}

/// A NULL call's record is 44 bytes, a reply's 28.
fn answer_null(stream: &mut TcpStream) -> bool {
    let mut call = [0; 44];
    if stream.read_exact(&mut call).is_err() {
        return false;
    }
    let mut reply = [0; 28];
    reply[..4].copy_from_slice(&[0x80, 0, 0, 24]);
    reply[4..8].copy_from_slice(&call[4..8]);
    reply[11] = 1;
    // In two pieces, because a reply may be divided anywhere.
    stream.write_all(&reply[..9]).is_ok() && stream.write_all(&reply[9..]).is_ok()
}

#[test]
fn what_was_measured_before_a_server_closed_is_reported() {
    let target = tcp_server(|mut stream| (0..50).for_each(|_| assert!(answer_null(&mut stream))));
    let output = twinpath(&["bench", "rpc", &target, "--count", "1000", "--warmup", "0", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = report(&output);
    assert_eq!((&report["received"], &report["runs"][0]["received"]), (&50.into(), &50.into()));
    assert!(
        said(&output).contains(&format!("{target} closed the connection after 50 replies")),
        "{}",
        said(&output)
    );
}

#[test]
fn a_later_run_that_fails_leaves_the_former_ones() {
    let target = tcp_server(|mut stream| while answer_null(&mut stream) {});
    let output = twinpath(&["bench", "rpc", &target, "-c", "20", "--warmup", "0", "-i", "3", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report(&output)["runs"].as_array().unwrap().len(), 1);
    assert!(said(&output).contains("run 2 of 3 failed: nothing listens on"), "{}", said(&output));
}

#[test]
fn another_service_and_none_are_told_apart() {
    // It does not send a record.
    let target = tcp_server(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 64]);
    });
    let output = twinpath(&["bench", "rpc", &target, "--count", "10"]);
    assert!(said(&output).contains("does another service listen there?"), "{}", said(&output));
    // An echo server returns the calls.
    let echo = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let target = echo.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut call = [0; 512];
        while let Ok((len, peer)) = echo.recv_from(&mut call) {
            let _ = echo.send_to(&call[..len], peer);
        }
    });
    let output = twinpath(&["bench", "rpc", &target, "-u", "-c", "3", "--timeout", "5", "--warmup", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("the first: a message of type 0 where a reply (1) is due"),
        "{}",
        said(&output)
    );
    // Half a reply, a reply to an unknown call, and no reply at all.
    let target = tcp_server(|mut stream| {
        let mut call = [0; 44];
        let _ = stream.read_exact(&mut call);
        let _ = stream.write_all(&null_reply(&call, 0, false)[..12]);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let output = twinpath(&["bench", "rpc", &target, "--timeout", "5", "--duration", "60"]);
    assert!(said(&output).contains("a reply that ends after 12 bytes, 16 too early"), "{}", said(&output));
    let target = tcp_server(|mut stream| {
        let mut call = [0; 44];
        let _ = stream.read_exact(&mut call);
        call[4] ^= 0x80;
        let _ = stream.write_all(&null_reply(&call, 0, false));
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let output = twinpath(&["bench", "rpc", &target, "--timeout", "5", "--duration", "60"]);
    assert!(said(&output).contains("requests that were never made: 1: does another"), "{}", said(&output));
    let target = tcp_server(drop);
    let output = twinpath(&["bench", "rpc", &target]);
    assert!(said(&output).contains("closed the connection and answered nothing"), "{}", said(&output));
    // A server that accepts and sends nothing, and one that does not exist.
    let target = tcp_server(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let output = twinpath(&["bench", "rpc", &target, "--timeout", "0.05", "--duration", "60"]);
    assert!(said(&output).contains("nobody answers on port"), "{}", said(&output));
    let gone = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string();
    let output = twinpath(&["bench", "rpc", &gone]);
    assert!(said(&output).contains(&format!("nothing listens on {gone}")), "{}", said(&output));
    let output = twinpath(&["bench", "rpc", &gone, "--proc", "getattr", "--export", "/"]);
    assert!(said(&output).contains(&format!("cannot ask {gone} to mount /")), "{}", said(&output));
}

/// An echo service that limits the replies to one source looks to an unlimited load like one that has stopped.
#[test]
fn a_service_that_falls_silent_may_have_a_limit_and_bench_says_so() {
    let echo = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let target = echo.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut request = [0; 512];
        for _ in 0..10 {
            let (len, peer) = echo.recv_from(&mut request).unwrap();
            echo.send_to(&request[..len], peer).unwrap();
        }
        while echo.recv_from(&mut request).is_ok() {}
    });
    // Ten requests are answered while it warms up.
    let output =
        twinpath(&["bench", "echo", &target, "--timeout", "0.5", "--warmup", "1", "--duration", "0.1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(said.contains("answered 10 requests while warming up, and then no more"), "{said}");
    assert!(said.contains("--reply-rate 0"), "{said}");
}

/// A server that sends every datagram back but each tenth, until the test ends.
fn forgetful(socket: UdpSocket) {
    std::thread::spawn(move || {
        let mut request = [0; 512];
        for number in 1_u64.. {
            let Ok((len, peer)) = socket.recv_from(&mut request) else { return };
            if !number.is_multiple_of(10) {
                let _ = socket.send_to(&request[..len], peer);
            }
        }
    });
}

#[test]
fn what_is_lost_fails_only_beyond_the_share_that_is_said() {
    let echo = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let target = echo.local_addr().unwrap().to_string();
    forgetful(echo);
    for (bound, code) in [(&[][..], 0), (&["--loss-max", "20"], 0), (&["--loss-max", "5"], 1)] {
        let base =
            ["bench", "echo", &target, "--count", "100", "--warmup", "0", "--timeout", "0.2", "--json"];
        let output = twinpath(&[&base, bound].concat());
        assert_eq!(output.status.code(), Some(code), "{bound:?}: {}", said(&output));
        assert!(report(&output)["lost"].as_u64().unwrap() >= 9, "the report is printed all the same");
        assert_eq!(said(&output).contains("more than --loss-max 5"), code == 1, "{}", said(&output));
    }
}

#[test]
fn a_link_local_target_is_reached_by_the_name_or_number_of_its_interface() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    rig.ip_server(&["address", "add", "fe80::7/64", "dev", "vs", "nodad"]);
    forgetful(udp_in(&rig.server, "[::]:7010".parse().unwrap()));
    let (number, _) = link(&rig.client, "vc");
    for zone in ["vc".to_owned(), number.to_string()] {
        let report = rig.bench(&format!("[fe80::7%{zone}]:7010"), &["--count", "4", "--warmup", "0"]);
        assert_eq!(report["received"], 4, "{zone}: {report}");
    }
}

/// A load on the fast path ends after silence, or on a signal, asleep or not.
#[test]
fn silence_on_the_fast_path_has_an_end() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let mut silent = rig.server_udp(SERVER, RPC_PORT.parse().unwrap());
    for mode in ["interrupt", "adaptive", "poll"] {
        let base = ["bench", "rpc", SERVER, "-u", "--on", "vc", "--path", "packet", "--mode", mode];
        let limits = ["--duration", "1000", "--timeout", "0.05"];
        let finished = rig.twinpath(&rig.client, &[&base, &limits[..]].concat());
        assert_eq!(finished.code, Some(1), "{mode}: {}", finished.stderr);
        assert!(finished.stderr.contains("nobody answers on port 62049"), "{mode}: {}", finished.stderr);
        // The time ends while a request is lost, without a reply.
        let short = ["--duration", "0.1", "--timeout", "0.06", "--warmup", "0"];
        let finished = rig.twinpath(&rig.client, &[&base, &short[..]].concat());
        assert!(finished.stderr.contains("nobody answers on port 62049"), "{mode}: {}", finished.stderr);
        let long = ["--duration", "1000", "--timeout", "60", "--warmup", "0"];
        drop(silent);
        silent = rig.server_udp(SERVER, RPC_PORT.parse().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.args(base).args(long).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        within(&rig.client, &mut command);
        let child = command.spawn().unwrap();
        silent.recv_from(&mut [0; 512]).expect("its first request");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(said(&output).contains("interrupted before"), "{mode}: {}", said(&output));
    }
}

#[test]
fn an_interrupt_reports_the_runs_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let target = rpc_over_and_over();
    let child = Command::new(env!("CARGO_BIN_EXE_twinpath"))
        .args(["bench", "rpc", &target, "--iterations", "500", "--duration", "0.05", "--json", "-d"])
        .arg(&out)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("two runs are done", || out.join("run-002.svg").exists());
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let printed = report(&output);
    let runs = printed["runs"].as_array().unwrap().len();
    assert!((2..500).contains(&runs), "{runs}");
    assert_eq!((&printed["summarised"], &printed["partial"]), (&"median".into(), &true.into()));
    let saved: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(saved, printed);
}

/// A server that accepts one connection after the other.
fn rpc_over_and_over() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || while answer_null(&mut stream) {});
        }
    });
    target
}

#[test]
fn measurements_are_saved_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let target = rpc_over_and_over();
    let measure = |place: &str, more: &[&str]| {
        let base =
            ["bench", "rpc", &target, "-c", "100", "--warmup", "0", "-i", "5", "-q", "50,99.9", "-d", place];
        let output = twinpath(&[&base, more].concat());
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let lines = measure(&at("a"), &["-H", "-x"]);
    assert_eq!(lines.lines().count(), 5, "one line per run and nothing else: {lines}");
    let columns = lines.lines().map(|line| line.split_whitespace().count());
    assert!(columns.into_iter().all(|count| count == 7 + 2 + 1 + 12), "{lines}");
    measure(&at("b"), &["--running-average"]);
    measure(&at("c"), &["-a", "4"]);
    for file in ["report.json", "latency.hlog", "all.svg", "run-1.data", "run-5.data", "run-5.svg"] {
        assert!(Path::new(&at("a")).join(file).metadata().unwrap().len() > 50, "{file}");
    }
    let log = std::fs::read_to_string(Path::new(&at("a")).join("latency.hlog")).unwrap();
    let intervals = log.lines().filter(|line| line.contains(",HISTFAAA")).count();
    assert_eq!((intervals, log.contains("MaxValueDivisor")), (5, true), "{log}");
    let compared = report(&twinpath(&["bench", "compare", &at("a"), &at("b"), "--json"]));
    let rate = &compared["rows"][0];
    assert_eq!((&rate["figure"], &compared["a"]["runs"]), (&"requests_per_s".into(), &5.into()));
    assert!(rate["interval95"].is_array() && rate["verdict"] != "unknown", "{rate}");
    let itself = twinpath(&["bench", "compare", &at("a"), &format!("{}/report.json", at("a"))]);
    assert!(String::from_utf8_lossy(&itself.stdout).contains("within noise"), "{}", said(&itself));
    let refused = twinpath(&["bench", "compare", &at("a"), &at("c")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("different settings: inflight (1 and 4), nagle (false and true); --force"),
        "{}",
        said(&refused)
    );
    assert!(twinpath(&["bench", "compare", &at("a"), &at("c"), "--force"]).status.success());
    let again = twinpath(&["bench", "rpc", &target, "-c", "1", "-d", &at("a")]);
    assert!(said(&again).contains("holds a measurement already"), "{}", said(&again));
    let log = at("a") + "/latency.hlog";
    assert!(said(&twinpath(&["bench", "compare", &at("a"), &log])).contains("is no report of a measurement"));
    assert!(said(&twinpath(&["bench", "compare", &at("a"), &at("none")])).contains("cannot read"));
}
