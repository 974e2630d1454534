//! Tests of a running instance's confinement. All other tests show that everything works under it.

use serde_json::Value;
use twinpath_observe::command::{Request, Topic, ask};

use crate::rig::{Rig, Server};

/// A line of /proc/PID/status, or of one of its threads.
fn status(server: &Server, name: &str) -> Vec<String> {
    let pid = server.pid().as_raw_nonzero();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let line = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("there");
        line.trim_start_matches(':').trim().to_owned()
    };
    threads.map(|thread| line(thread.expect("it runs").path())).collect()
}

/// Numbers of linux/capability.h.
const KEPT: [(u32, &str); 7] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (14, "CAP_IPC_LOCK"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

fn said_by(server: &Server) -> Value {
    let answer = ask(&server.socket, &Request::Show(Topic::Instance)).expect("it answers");
    answer["instance"]["sandbox"].clone()
}

/// Checks that every thread is confined, and that `show` reports it.
fn is_confined(server: &Server) {
    let expected: u64 = KEPT.iter().map(|(number, _)| 1 << number).sum();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        for bits in status(server, set) {
            let bits = u64::from_str_radix(&bits, 16).expect("bits");
            assert_eq!(bits & !expected, 0, "{set} {bits:x}");
        }
    }
    for (line, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapAmb", "0000000000000000")] {
        let found = status(server, line);
        assert!(found.len() > 1 && found.iter().all(|found| found == value), "{line}: {found:?}");
    }
    let said = said_by(server);
    assert_eq!((&said["setting"], &said["no_new_privs"]), (&"on".into(), &true.into()), "{said}");
    let kept: Vec<&str> = said["capabilities"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|kept| kept["name"].as_str())
        .collect();
    assert!(kept.iter().all(|kept| KEPT.iter().any(|(_, name)| name == kept)), "{said}");
    assert!(kept.contains(&"CAP_NET_ADMIN"), "{said}");
    assert!(said["calls"].as_str().is_some_and(|calls| calls.starts_with("by seccomp")), "{said}");
    let files = said["files"].as_str().expect("words");
    if !files.starts_with("by Landlock") {
        assert!(files.contains("this kernel has no Landlock"), "{files}");
        twinpath_test_rig::skip(files);
    }
}

#[test]
fn a_running_instance_keeps_only_what_it_needs_again() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&["--workers", "2"]);
    is_confined(&server);
    let socket = server.socket.clone();
    assert_eq!(server.interrupt(), Some(0));
    assert!(!socket.exists(), "its socket can still be removed");
}

#[test]
fn an_exception_port_keeps_only_what_it_needs_again() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    rig.ip_server(&["address", "flush", "dev", "vs"]);
    let server = rig.try_launch(&["bridge", "vs", "--kernel", "k0"]).expect("starts");
    is_confined(&server);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn switched_off_everything_is_as_it_was_and_show_says_so() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&["--sandbox", "off"]);
    assert!(status(&server, "Seccomp").iter().all(|found| found == "0"));
    let own = std::fs::read_to_string("/proc/self/status").expect("readable");
    let own = own.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("there").trim().to_owned();
    assert!(status(&server, "CapEff").iter().all(|found| *found == own));
    let said = said_by(&server);
    assert_eq!((&said["setting"], &said["files"]), (&"off".into(), &"off, as asked".into()), "{said}");
}
