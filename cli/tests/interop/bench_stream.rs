//! Tests of `bench stream`, with our services and with far ends that are none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use twinpath_test_rig::{few_or_all, within};

use crate::rig::{CLSACT, PACKET, Rig, SERVER, SERVER_V6, Server, XDP, until};
use crate::root_or_skip;

const DISCARD: &str = "7009";
const CHARGEN: &str = "7019";

fn serve_discard(rig: &Rig, path: &[&str]) -> Server {
    rig.start(&[&["discard", "--on", "vs", "--udp", DISCARD, "--tcp", DISCARD], path].concat())
}

/// A measurement that succeeds.
fn stream(rig: &Rig, target: &str, arguments: &str) -> Value {
    let words = [&["bench", "stream", target, "--json"], &words(arguments)[..]].concat();
    let finished = rig.twinpath(&rig.client, &words);
    assert_eq!(finished.code, Some(0), "{words:?}: {}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("JSON")
}

fn words(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().collect()
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("no {field}: {report}"))
}

/// A measurement that fails: what it says.
fn complaint(rig: &Rig, target: &str, arguments: &str) -> String {
    let finished = rig.twinpath(&rig.client, &[&["bench", "stream", target], &words(arguments)[..]].concat());
    assert_eq!(finished.code, Some(1), "{target} {arguments}: {}", finished.stdout);
    finished.stderr
}

#[test]
fn bytes_are_measured_in_both_directions() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let discard = serve_discard(&rig, PACKET);
    let chargen = rig.start(&["chargen", "--on", "vs", "--tcp", CHARGEN]);
    for (target, arguments) in [
        (format!("{SERVER}:{DISCARD}"), "--duration 1.3"),
        (format!("[{SERVER_V6}]:{DISCARD}"), "--duration 0.2 -j 3 --size 1000"),
        (format!("{SERVER}:{CHARGEN}"), "--duration 1.3 --reverse"),
        (SERVER.to_owned(), "--duration 0.2 -R -p 7019 -j 2"),
    ] {
        let report = stream(&rig, &target, arguments);
        let sum = |field: &str| -> u64 {
            report[field].as_array().expect("a list").iter().map(|part| number(part, "bytes")).sum()
        };
        let bytes = number(&report, "bytes");
        assert!(bytes > 0 && report["bits_per_s"].as_f64() > Some(0.0), "{report}");
        assert_eq!((sum("intervals"), sum("streams")), (bytes, bytes), "{report}");
        let calls = &report["system_calls"];
        let connections = &report["connections"];
        if report["direction"] == "to" {
            assert_eq!(number(calls, "bytes_sent"), bytes, "everything was read: {report}");
            assert_eq!(connections["is_closed"], true);
            assert!(connections["retransmits"].is_u64(), "{report}");
        } else {
            assert_eq!(number(calls, "bytes_received"), bytes);
            assert!(connections["retransmits"].is_null(), "those are the other end's: {report}");
        }
        assert!(connections["rtt_us"].as_f64() > Some(0.0) && report["cpu_ns_per_byte"].is_f64(), "{report}");
        assert_eq!((&report["path"], &report["partial"]), (&"kernel".into(), &false.into()));
    }
    let table =
        rig.twinpath(&rig.client, &words(&format!("bench stream {SERVER} -p {DISCARD} --duration 0.2 -x")));
    assert!(table.stdout.contains("retransmits") && table.stdout.contains("stream 0: "), "{}", table.stdout);
    assert_eq!((discard.interrupt(), chargen.interrupt()), (Some(0), Some(0)));
}

#[test]
fn datagrams_are_counted_where_they_arrive_on_every_path() {
    if !root_or_skip() {
        return;
    }
    for path in [PACKET, CLSACT, XDP, &["--path", "kernel"]] {
        let rig = Rig::of_workers();
        let server = serve_discard(&rig, path);
        // Each kind of datagram for each path of the service; each mode of sending for one of them, in full for all.
        let kinds = [
            (SERVER, "--size 40 --mode poll"),
            // Larger than the interface's packets.
            (SERVER, "--size 4000"),
            (SERVER_V6, "-j 2"),
            (SERVER_V6, "--on vc --path xdp"),
        ];
        let modes = [
            (SERVER, "--size 1000"),
            (SERVER_V6, ""),
            (SERVER, "--on vc --path packet --size 1000"),
            (SERVER, "--on vc --path packet -j 2 --mode interrupt"),
        ];
        let is_whole = path == PACKET || few_or_all(false, true);
        let modes = if is_whole { &modes[..] } else { &[] };
        for (target, arguments) in kinds.iter().chain(modes).copied() {
            let line = format!("-u -p {DISCARD} --rate 4M --duration 0.3 {arguments}");
            let report = stream(&rig, target, &line);
            let datagrams = &report["datagrams"];
            let count = |field: &str| number(datagrams, field);
            let size = number(&report, "size");
            let due = 4e6 * 0.3 / 8.0 / size as f64;
            let offered = count("sent") + count("lost_here") + count("left_out");
            assert!((offered as f64 - due).abs() <= 4.0, "{path:?} {line}: {due} were due: {report}");
            assert_eq!(count("received") + count("lost"), count("sent"), "{path:?} {line}: {report}");
            assert!(count("received") > 0, "{path:?} {line}: {report}");
            assert_eq!(number(&report, "bytes"), count("received") * size, "{path:?} {line}: {report}");
            let last = report["intervals"].as_array().expect("a list").last().expect("one");
            assert!(number(last, "received") > 0, "{report}");
            if arguments.contains("--on") {
                assert_eq!(report["allocations_per_packet"], 0.0, "{path:?} {line}: {report}");
                assert_ne!(report["path"], "kernel");
            }
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}

#[test]
fn what_leaves_is_told_from_what_arrives_when_too_much_is_sent() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = serve_discard(&rig, PACKET);
    for arguments in ["", "--on vc --path packet", "--on vc --path xdp"] {
        let report = stream(&rig, SERVER, &format!("-u -p {DISCARD} --duration 0.5 {arguments}"));
        let datagrams = &report["datagrams"];
        let count = |field: &str| number(datagrams, field);
        assert!(count("sent") >= count("received") && count("received") > 1000, "{arguments}: {report}");
        assert_eq!(number(&report, "size"), 1472, "what leaves in one packet");
        assert!(report["rate_bits_per_s"].is_null());
    }
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn far_ends_that_are_none_are_named() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    rig.unlimited_icmp();
    let nobody = format!("nothing listens on {SERVER}:7099");
    assert!(complaint(&rig, SERVER, "-p 7099").contains(&nobody));
    assert!(complaint(&rig, SERVER, "-p 7099 -R").contains(&nobody));
    assert!(complaint(&rig, SERVER, "-p 7099 -u").contains(&nobody));
    let said = complaint(&rig, SERVER, "-p 7099 -u --on vc --path packet --timeout 0.2");
    assert!(said.contains("nobody answers on port 7099") && said.contains("serve discard"), "{said}");
    let silent = rig.server_udp(SERVER, 7098);
    let said = complaint(&rig, SERVER, "-p 7098 -u --timeout 0.2");
    assert!(said.contains("nobody answers on port 7098 of 10.7.0.2: it was asked for 0.2 s"), "{said}");
    drop(silent);
    let echo = rig.serve(PACKET);
    let said = complaint(&rig, SERVER, "-p 7007 -u --timeout 0.2");
    assert!(said.contains("answers, but does not count the datagrams"), "{said}");
    let said = complaint(&rig, SERVER, "-p 7007 --duration 0.1");
    assert!(said.contains("bytes back instead of discarding them"), "{said}");
    let said = complaint(&rig, SERVER, "-p 7007 -R --duration 0.3 --timeout 0.2");
    assert!(said.contains("sends nothing: does another service than chargen"), "{said}");
    let said = complaint(&rig, SERVER, "-p 7007 -u --on vc --size 4000");
    assert!(said.contains("does not leave vc in one frame"), "{said}");
    assert_eq!(echo.interrupt(), Some(0));
}

/// A measurement that would take long, and its output once it was interrupted.
fn begin(rig: &Rig, arguments: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
    command.args(["bench", "stream", SERVER, "--json", "--duration", "1000"]).args(words(arguments));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    within(&rig.client, &mut command);
    command.spawn().unwrap()
}

fn interrupted(child: Child) -> (Output, Value) {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, report)
}

#[test]
fn an_interrupt_ends_it_with_a_report() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = serve_discard(&rig, PACKET);
    for arguments in ["", "--on vc --path packet --mode interrupt", "--on vc --path xdp"] {
        let before = server.worker("frames_in");
        let child = begin(&rig, &format!("-u -p {DISCARD} --rate 8M {arguments}"));
        until("something arrives", || server.worker("frames_in") > before + 200);
        let (output, report) = interrupted(child);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {said}");
        assert_eq!(report["partial"], true);
        assert!(number(&report["datagrams"], "received") >= 100, "{arguments}: {report}");
    }
    assert_eq!(server.interrupt(), Some(0));
    let listener = rig.server.run(|| TcpListener::bind((SERVER, 7008))).expect("entered").expect("bound");
    for arguments in ["-p 7008", "-p 7008 --reverse"] {
        let child = begin(&rig, arguments);
        let (mut connection, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 1 << 20];
        if arguments.contains("reverse") {
            connection.write_all(&bytes).unwrap();
        } else {
            connection.read_exact(&mut bytes).unwrap();
        }
        // In a thread of its own: it is read to its end while the measurement ends.
        let rest = std::thread::spawn(move || std::io::copy(&mut connection, &mut std::io::sink()));
        let (output, report) = interrupted(child);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {said}");
        assert_eq!(report["partial"], true);
        let rest = rest.join().unwrap().unwrap_or(0);
        if !arguments.contains("reverse") {
            assert_eq!(number(&report, "bytes"), (1 << 20) + rest, "every byte that was read");
        }
    }
}

#[test]
fn a_service_that_ends_is_told() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    for arguments in ["", "--on vc --path packet"] {
        let server = serve_discard(&rig, PACKET);
        let child = begin(&rig, &format!("-u -p {DISCARD} --rate 8M --timeout 0.1 {arguments}"));
        until("something arrives", || server.worker("frames_in") > 200);
        server.kill();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        let words = if arguments.is_empty() { "nothing listens on" } else { "answered no more" };
        assert!(said.contains(words), "{arguments}: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(number(&report["datagrams"], "sent") >= 100, "what was measured is reported: {report}");
    }
    let listener = rig.server.run(|| TcpListener::bind((SERVER, 7008))).expect("entered").expect("bound");
    let child = begin(&rig, "-p 7008");
    let (mut connection, _) = listener.accept().unwrap();
    connection.read_exact(&mut vec![0; 1 << 20]).unwrap();
    drop(connection);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("closed the connection: the measurement ended early"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
