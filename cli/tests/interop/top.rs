//! Tests of `twinpath top` as other programs read it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::rig::{CLIENT, PORT, Rig, SERVER, ask, until};
use crate::root_or_skip;

#[test]
fn top_tells_rates_and_says_when_an_instance_has_gone() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    let client = rig.client_udp(CLIENT, 0);
    let mut top = Command::new(env!("CARGO_BIN_EXE_twinpath"))
        .args(["top", "--json", "-i", "0.1", "--socket"])
        .arg(&server.socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("twinpath runs");
    let mut lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a line").unwrap()).expect("JSON") };
    until("a busy interval is seen", || {
        for _ in 0..50 {
            assert_eq!(ask(&client, SERVER, PORT, b"rate"), b"rate");
        }
        let rates = next();
        let service = &rates["services"][0];
        let (requests, frames) =
            (&service["requests_per_s"], &rates["interfaces"][0]["queues"][0]["frames_in_per_s"]);
        // Not equal: frames and requests are counted one after the other, and may be read in between.
        [requests, frames].iter().all(|rate| rate.as_f64().unwrap() > 100.0)
            && service["p99_ns"].as_u64().is_some_and(|p99| p99 > 0)
    });
    server.kill();
    until("it says so", || next()["note"].as_str().is_some_and(|note| note.contains("is gone")));
    top.kill().unwrap();
    top.wait().unwrap();
}

#[test]
fn without_an_instance_batch_output_ends_with_a_sentence() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let nowhere = rig.directory.path().join("nowhere.sock");
    let finished = rig.twinpath(&rig.server, &["top", "--once", "--socket", nowhere.to_str().unwrap()]);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("nowhere.sock"), "{}", finished.stderr);
}
