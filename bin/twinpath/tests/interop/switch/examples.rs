//! Runs the examples of docs/examples.

use std::process::Command;

use super::Site;
use crate::root_or_skip;

/// The process of the example with a memory port, compiled into this one.
#[path = "../../../../../io/port_shm/examples/responder.rs"]
mod responder;

/// Runs a script in a namespace of its own; what it printed.
fn run(script: &str, environment: &[(&str, &str)]) -> String {
    let site = Site::new(0);
    let script = format!("{}/../../docs/examples/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(script);
    command.env("TWINPATH", env!("CARGO_BIN_EXE_twinpath")).envs(environment.iter().copied());
    let output = site.rig.server.run(|| command.output()).expect("entered").expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn two_containers() {
    if !root_or_skip() {
        return;
    }
    let said = run("switch-containers.sh", &[]);
    assert!(said.contains("one-") && said.contains("two-") && said.contains("s ago"), "{said}");
}

#[test]
fn two_hosts_by_vxlan() {
    if !root_or_skip() {
        return;
    }
    let said = run("switch-vxlan.sh", &[]);
    assert!(said.contains("vxlan:west") && said.contains("1000") && said.contains("s ago"), "{said}");
}

#[test]
fn a_virtual_machine() {
    if !root_or_skip() {
        return;
    }
    let said = run("switch-vm.sh", &[]);
    let runs = said.contains("02:00:00:00:00:99") && said.contains("s ago");
    assert!(runs || said.contains("QEMU is not installed"), "{said}");
}

/// Not a test but the process of the example below, which gives it two arguments.
#[test]
fn a_responder() {
    let last = std::env::args().next_back().unwrap_or_default();
    if last.parse::<std::net::Ipv4Addr>().is_err() {
        return;
    }
    // The switch may end first.
    let _ = responder::main();
}

#[test]
fn a_process_by_a_memory_port() {
    if !root_or_skip() {
        return;
    }
    let own = std::env::current_exe().expect("this program").display().to_string();
    let responder = format!("{own} switch::examples::a_responder --exact");
    let said = run("switch-memory.sh", &[("RESPONDER", &responder)]);
    assert!(said.contains("memory:app1") && said.contains("02:00:00:00:00:09"), "{said}");
}
