//! Tests of `twinpath-lab` as its users run it. They do not judge the measured values, which is left to the labs.

mod kni;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use twinpath_test_rig::root_or_skip;

const NOBODY: u32 = 65534;
/// How long a busy machine may keep a row from being measured.
const MEASURED_WITHIN: Duration = Duration::from_secs(180);

fn lab(args: &[&str]) -> Command {
    lab_named("quick", args)
}

fn lab_named(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath-lab"));
    command.arg(name).args(args);
    command
}

/// Runs a lab with these options for one round; returns its report, and what it said.
fn measured(name: &str, args: &[&str]) -> (Value, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let (json, html) = (directory.path().join("report.json"), directory.path().join("report.html"));
    let mut command = lab_named(name, &["--repeat", "1"]);
    command.args(args).arg("--json").arg(&json).arg("--html").arg(&html);
    let output = command.output().expect("twinpath-lab runs");
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("report: {}", html.display())), "{said}");
    (serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON"), said)
}

/// The same, again until no row was skipped: on a busy machine a short row may not have had the CPU at all. A row that is never
/// measured is in the last report.
fn measured_at_last(name: &str, args: &[&str]) -> (Value, String) {
    let deadline = Instant::now() + MEASURED_WITHIN;
    loop {
        let (report, said) = measured(name, args);
        let rows = report["rows"].as_array().expect("rows");
        if rows.iter().all(|row| row["skipped"].is_null()) || Instant::now() > deadline {
            return (report, said);
        }
    }
}

/// The rows of a report, each of which was measured once.
fn rows(report: &Value) -> &[Value] {
    let rows = report["rows"].as_array().expect("rows");
    for row in rows {
        assert_eq!((&row["n"], &row["skipped"]), (&Value::from(1), &Value::Null), "{row}");
    }
    rows
}

#[test]
fn a_named_ratio_is_reported_with_what_it_needs_and_nothing_else() {
    if !root_or_skip() {
        return;
    }
    let (report, _) = measured("quick", &["--only", "tcp-rr-beside,pool-mib"]);
    let ids = |list: &str| -> Vec<String> {
        report[list].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("ratios"), ["tcp-rr-beside", "pool-mib"]);
    assert_eq!(ids("rows"), ["tcp-rr-without", "tcp-rr-with", "twinpath-poll"]);
    for row in rows(&report) {
        for name in ["median", "min", "max"] {
            assert!(row["values"]["p50_us"][name].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let beside = &report["rows"][1];
    assert!(beside["values"]["fast_path_frames_before"]["median"].as_f64().unwrap() >= 16.0, "{beside}");
    let ratio = &report["ratios"][0];
    assert_eq!(ratio["spread"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&ratio["target"], &ratio["better"], &ratio["pairs"]),
        (&1.05.into(), &"lower".into(), &1.into())
    );
    // One pair gives a value, but no verdict.
    assert!(report["ratios"][1]["value"].is_number(), "{report}");
    assert_eq!(
        (&report["ratios"][1]["holds"], &report["ratios"][1]["interval95"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn an_unknown_id_lists_the_known_ones() {
    let output = lab(&["--only", "udp-rtt"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no such id: udp-rtt\n") && said.contains("udp-rtt-poll"), "{said}");
}

#[test]
fn without_root_one_sentence_says_what_needs_it() {
    if !root_or_skip() {
        return;
    }
    for (args, code) in [(&[][..], 1), (&["--check"][..], 3)] {
        let mut command = lab(args);
        command.uid(NOBODY).gid(NOBODY);
        let output = match command.output() {
            Ok(output) => output,
            // The build directory may be closed to others.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return twinpath_test_rig::skip("others may not run the binary from its build directory");
            }
            Err(error) => panic!("{error}"),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            said.contains("needs root") && said.contains("CAP_NET_RAW") && said.lines().count() == 1,
            "{said}"
        );
    }
}

/// The application of the shared-memory rows is a process of its own: both modes of waiting, and the packet socket.
#[test]
fn frames_are_reflected_on_every_path_and_each_is_measured() {
    if !root_or_skip() {
        return;
    }
    let only = "shm-spin-extra-us,shm-sleep-vs-floor,direct-poll,direct-interrupt,packet-sleeping";
    let (report, _) = measured("three-rtts", &["--only", only]);
    let rows = rows(&report);
    assert_eq!(rows.len(), 7);
    // A difference of medians, of this round.
    let p50 = |id: &str| {
        let row = rows.iter().find(|row| row["id"] == id).unwrap();
        row["values"]["p50_us"]["median"].as_f64().unwrap()
    };
    let extra = report["ratios"][0]["value"].as_f64().unwrap();
    assert!((extra - (p50("shm-spinning") - p50("direct-one-thread"))).abs() < 1e-9, "{extra}");
    assert_eq!(report["ratios"][1]["pairs"], Value::from(1));
}

/// A row of each kind: a receiver, a floor, a competing process. The given seed is used.
#[test]
fn packets_now_and_then_are_measured_with_what_they_cost() {
    if !root_or_skip() {
        return;
    }
    let only = "wake350-cpu,neighbour-alone,floor-eventfd,kernel-request";
    let (report, said) = measured_at_last("wakeup", &["--seed", "7", "--only", only]);
    assert!(said.contains("seed 7") && said.contains("one packet per "), "{said}");
    let row = |id: &str| rows(&report).iter().find(|row| row["id"] == id).unwrap()["values"].clone();
    let value =
        |row: &Value, name: &str| row[name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
    let adaptive = row("twinpath-adaptive");
    for name in ["mean_us", "p99_9_us", "cpu_server", "voluntary_per_s", "request_held", "sent_late_p99_us"] {
        assert!(value(&adaptive, name) >= 0.0, "{name}");
    }
    assert!((2000.0..=4000.0).contains(&value(&adaptive, "offered_per_s")), "{adaptive}");
    assert_eq!(value(&row("kernel-request"), "request_held"), 1.0);
    assert!(value(&row("neighbour-alone"), "neighbour_per_s") > 0.0);
    assert!(value(&row("floor-eventfd"), "p50_us") > 0.0);
    assert_eq!(report["ratios"][0]["id"], "wake350-cpu");
}

/// A pair over TCP, with the server that spins, and the burdens, which start the program that holds connections.
#[test]
fn calls_are_measured_against_a_bare_server_and_beside_burdens() {
    if !root_or_skip() {
        return;
    }
    let only = "null-tcp-1-vs-spin,never-reads,idle-10k-bytes";
    let (report, _) = measured("rpc", &["--only", only]);
    let rows = rows(&report);
    let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let expected =
        ["null-tcp-1-spin", "null-tcp-1-twinpath-poll", "idle-10k-alone", "idle-10k-beside", "never-reads"];
    assert_eq!(ids, expected);
    for row in rows {
        for name in ["mean_us", "p50_us", "p99_9_us", "requests_per_s", "cpu_client"] {
            assert!(row["values"][name]["median"].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
    }
    assert!(rows[3]["values"]["connections"]["median"].as_f64().unwrap() >= 1000.0, "{}", rows[3]);
    assert!(rows[4]["values"]["memory_limit_bytes"]["median"].as_f64().unwrap() > 4096.0, "{}", rows[4]);
    let ratios = report["ratios"].as_array().unwrap();
    assert_eq!(ratios[0]["judged"], "lower end of interval95");
    for ratio in ratios {
        assert_eq!((&ratio["pairs"], &ratio["holds"]), (&Value::from(1), &Value::Null), "{ratio}");
        assert!(ratio["skipped"].as_str().unwrap().starts_with("only 1 of the "), "{ratio}");
    }
}

/// A row with each client: its connections were on the path that it names, or it would have failed.
#[test]
fn connections_are_measured_on_the_fast_path_and_on_the_kernels() {
    if !root_or_skip() {
        return;
    }
    let only = "one-fast,one-kernel,paced-fast,connect-plain,connect-fast,bulk-fast,bulk-kernel";
    let (report, said) = measured_at_last("tcp", &["--only", only]);
    assert!(said.contains("client cubic, server cubic"), "{said}");
    let rows = rows(&report);
    let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids.join(","), only);
    for row in rows {
        for name in ["requests_per_s", "cpu_server"] {
            assert!(row["values"][name]["median"].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
        let name = if row["id"].as_str().unwrap().starts_with("bulk") { "gbit_per_s" } else { "p50_us" };
        assert!(row["values"][name]["median"].as_f64().unwrap() > 0.0, "{name}: {row}");
    }
}
