//! Tests of an instance's output.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use twinpath_test_rig::within;

use crate::rig::{PATIENCE, PORT, Rig, until};
use crate::root_or_skip;

/// Starts an echo server from a shell, with redirections and variables; it ends with the thread that started it.
fn by_shell(rig: &Rig, options: &str, variables: &[(&str, &str)]) -> Child {
    let socket = rig.directory.path().join("said.sock");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(
        "exec {} serve echo --on vs --udp {PORT} --path kernel --socket {} {options}",
        env!("CARGO_BIN_EXE_twinpath"),
        socket.display()
    ));
    command.envs(variables.iter().copied()).current_dir(rig.directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    within(&rig.server, &mut command);
    command.spawn().unwrap()
}

fn end(mut child: Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    assert!(child.wait().unwrap().success());
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap_or_default()
}

#[test]
fn ready_comes_by_a_descriptor_of_its_own_and_the_log_as_json_or_without_colours() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let at = rig.directory.path();
    let said = |name| read(at, name);
    let child = by_shell(
        &rig,
        "--log-format json --ready-fd 3 3>ready >out 2>log",
        &[("RUST_LOG", "=not=understood=")],
    );
    until("it is ready", || said("ready").ends_with('\n'));
    let ready = said("ready");
    let facts: Value = serde_json::from_str(ready.strip_prefix("ready ").unwrap()).unwrap();
    assert_eq!(facts["path"], "kernel");
    end(child);
    assert_eq!(said("out"), "");
    let log = said("log");
    assert!(
        log.lines().count() > 0 && log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()),
        "{log}"
    );

    let child = by_shell(&rig, ">out 2>log", &[("RUST_LOG", "=not=understood=")]);
    until("it is ready", || said("out").contains("ask with"));
    end(child);
    let (out, log) = (said("out"), said("log"));
    assert!(
        out.starts_with("ready {") && log.contains("not understood") && !log.contains('\x1b'),
        "{out}{log}"
    );

    let child = by_shell(&rig, "--quiet >quiet 2>log", &[]);
    until("it is ready", || said("quiet").ends_with('\n'));
    end(child);
    assert_eq!(said("quiet").lines().count(), 1);

    let mut child = by_shell(&rig, "--ready-fd 9 9>&- 2>log", &[]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(said("log").contains("--ready-fd 9: open a pipe or a file there"), "{}", said("log"));
}

#[test]
fn the_service_manager_is_told() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let at = rig.directory.path().join("notify");
    let manager = UnixDatagram::bind(&at).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = |word: &str| {
        let mut buffer = [0; 256];
        let len = manager.recv(&mut buffer).unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..len]).trim(), word);
    };
    let child = by_shell(&rig, "", &[("NOTIFY_SOCKET", at.to_str().unwrap())]);
    hears("READY=1");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    hears("STOPPING=1");
    let mut child = child;
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_claim_at_an_address_that_is_not_there_is_not_called_claimed() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    rig.allow_absent_addresses();
    let socket = rig.directory.path().join("absent.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
    let port = PORT.to_string();
    command.args([
        "serve",
        "echo",
        "--on",
        "vs",
        "--path",
        "packet",
        "--address",
        "10.7.0.99",
        "--udp",
        &port,
    ]);
    command.arg("--socket").arg(&socket).stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(std::fs::File::create(rig.directory.path().join("out")).unwrap());
    within(&rig.server, &mut command);
    let child = command.spawn().unwrap();
    until("it is ready", || read(rig.directory.path(), "out").contains("ask with"));
    let out = read(rig.directory.path(), "out");
    assert!(!out.contains("  claimed:") && out.contains("not claimed: udp port 7007 to 10.7.0.99"), "{out}");
    let show =
        |topic| rig.twinpath(&rig.server, &["show", topic, "--socket", socket.to_str().unwrap()]).stdout;
    assert!(show("rules").contains("claims: none"), "{}", show("rules"));
    rig.ip_server(&["address", "add", "10.7.0.99/24", "dev", "vs"]);
    until("it is claimed", || show("rules").contains("udp port 7007 to 10.7.0.99"));
    end(child);
}

#[test]
fn a_goal_for_a_worker_that_polls_is_said_to_have_no_effect() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let server = rig.serve(&["--path", "kernel", "--mode", "poll"]);
    let set = |value: &[&str]| {
        let socket = ["--socket", server.socket.to_str().unwrap()];
        let finished = rig.twinpath(&rig.server, &[&["set", "worker", "0"], value, &socket].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stderr
    };
    let said = set(&["latency", "20us"]);
    assert!(said.contains("mode poll") && said.contains("set worker 0 mode adaptive"), "{said}");
    set(&["mode", "adaptive"]);
    until("it is adaptive", || server.show("workers")[0]["mode"] == "adaptive");
    assert_eq!(set(&["latency", "20us"]), "");
    assert_eq!(server.interrupt(), Some(0));
}
