//! Runs the examples of docs/examples.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Site;
use crate::root_or_skip;

/// The process of the example with a memory port, compiled into this one.
#[path = "../../../../ports/shm/examples/responder.rs"]
mod responder;

/// Runs a script in a namespace of its own; what it printed.
fn run(script: &str, environment: &[(&str, &str)]) -> String {
    let site = Site::new(0);
    let script = format!("{}/../docs/examples/{script}", env!("CARGO_MANIFEST_DIR"));
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
fn offloads_on_and_off() {
    if !root_or_skip() {
        return;
    }
    let said = run("offloads.sh", &[("ROUNDS", "1"), ("COUNT", "200")]);
    let row = |words: &str| said.lines().any(|line| line.starts_with(words) && !line.contains("| 0.0 |"));
    assert!(row("| checksum | kernel |") && row("| TSO, GSO, GRO | packet |"), "{said}");
}

/// Two switches of mininet's, each with a host: mininet's own program would also remove what others have in /tmp.
const MININET: &str = "
import sys
sys.path.insert(0, sys.argv[1])
from mininet.net import Mininet
from mininet.topo import LinearTopo
from mininet_twinpath import TwinpathSwitch
net = Mininet(topo=LinearTopo(2), switch=TwinpathSwitch, controller=None)
net.start()
assert net.waitConnected(timeout=5)
print('lost', net.pingAll(timeout='5'))
net.stop()
";

#[test]
fn a_network_of_mininet() {
    if !root_or_skip() {
        return;
    }
    let needed = "import mininet, shutil; assert shutil.which('mnexec') and shutil.which('ping')";
    let found = Command::new("/usr/bin/python3").args(["-c", needed]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        return twinpath_test_rig::skip("needs mininet and ping (Debian's packages mininet, iputils-ping)");
    }
    let site = Site::new(0);
    let (examples, program) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples"), Path::new(env!("CARGO_BIN_EXE_twinpath")));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().expect("a directory").display());
    // Its hosts and switches end with the first process of a namespace, whatever becomes of the test.
    let script = "mount -t tmpfs tmpfs /run && ip link set lo up && exec /usr/bin/python3 -c \"$0\" \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
    command.args([MININET, examples]).env("PATH", path).stdin(Stdio::null());
    let output = site.rig.server.run(|| command.output()).expect("entered").expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("lost 0.0"), "{said}{}", String::from_utf8_lossy(&output.stderr));
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
