//! Tests of refused starts: one clear sentence each, and nothing left changed.

use crate::rig::{CLIENT, PORT, Rig, SERVER, ask};
use crate::root_or_skip;

/// The error of a refused start.
fn refused(rig: &Rig, arguments: &[&str]) -> String {
    let port = PORT.to_string();
    let socket = rig.directory.path().join("refused.sock");
    let base = ["serve", "echo", "--udp", &port, "--socket", socket.to_str().unwrap()];
    let finished = rig.twinpath(&rig.server, &[&base, arguments].concat());
    assert_ne!(finished.code, Some(0), "{arguments:?} started");
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    assert!(!socket.exists());
    finished.stderr
}

#[test]
fn an_interface_that_is_not_there() {
    if !root_or_skip() {
        return;
    }
    let said = refused(&Rig::new(), &["--on", "nosuch0"]);
    assert!(said.contains("no interface nosuch0") && said.contains("vs"), "{said}");
}

#[test]
fn a_port_that_another_process_holds_is_named_with_its_holder() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let _held = rig.server_udp(SERVER, PORT);
    let said = refused(&rig, &["--on", "vs"]);
    let pid = std::process::id().to_string();
    assert!(said.contains("udp port 7007") && said.contains(&format!("pid {pid}")), "{said}");
}

#[test]
fn an_address_that_this_host_does_not_have() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    // Nobody's, the broadcast address of the interface's network, and one of IPv6.
    for (address, sysctl) in [
        ("10.7.0.9", "net.ipv4.ip_nonlocal_bind"),
        ("10.7.0.255", "ipv4"),
        ("fd07::9", "net.ipv6.ip_nonlocal"),
    ] {
        let said = refused(&rig, &["--on", "vs", "--address", SERVER, "--address", address]);
        for word in [address, "vs has 10.7.0.2, fd07::2", "ip address add", sysctl] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    let flow = format!("udp,{CLIENT}:4444,10.7.0.9:{PORT}");
    let said = refused(&rig, &["--on", "vs", "--flow", &flow]);
    assert!(said.contains("10.7.0.9: vs has"), "{said}");
}

#[test]
fn nonsense_on_the_command_line_or_in_the_file() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    assert!(refused(&rig, &["--on", "vs", "--path", "fast"]).contains("fast"));
    assert!(refused(&rig, &["--on", "vs", "--cpu", "9999"]).contains("9999"));
    assert!(refused(&rig, &[]).contains("--on IFACE"));
    let file = rig.directory.path().join("bad.toml");
    std::fs::write(&file, "[interface]\nname = \"vs\"\n\n[worker]\nmoed = \"poll\"\n").unwrap();
    let said = refused(&rig, &["--config", file.to_str().unwrap()]);
    assert!(said.contains("bad.toml") && said.contains('5') && said.contains("moed"), "{said}");
}

#[test]
fn another_xdp_program_is_never_replaced() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let first = rig.serve(&["--path", "xdp"]);
    let port = (PORT + 1).to_string();
    let socket = rig.directory.path().join("second.sock");
    let arguments = [
        "serve",
        "echo",
        "--on",
        "vs",
        "--udp",
        &port,
        "--path",
        "xdp",
        "--socket",
        socket.to_str().unwrap(),
    ];
    let second = rig.twinpath(&rig.server, &arguments);
    assert_ne!(second.code, Some(0));
    assert!(second.stderr.contains("XDP program"), "{}", second.stderr);
    assert!(second.stderr.contains(&first.child.id().to_string()), "it names the process: {}", second.stderr);
    assert_eq!(first.path(), "xdp-native", "the first one is as it was");
    assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"still"), b"still");
}

#[test]
fn without_privileges_the_kernel_path_serves_and_says_why() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    // Without any capability, like an ordinary user; `setpriv` is in util-linux, which is essential.
    let socket = rig.directory.path().join("plain.sock");
    let program = env!("CARGO_BIN_EXE_twinpath");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", program, "serve", "echo", "--on", "vs", "--udp"]);
    command.arg(PORT.to_string()).arg("--socket").arg(&socket);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    twinpath_test_rig::within(&rig.server, &mut command);
    let mut child = command.spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    for _ in 0..6 {
        std::io::BufRead::read_line(&mut stdout, &mut said).unwrap();
    }
    assert!(said.contains("\"path\":\"kernel\"") && said.contains("CAP_NET_RAW"), "{said}");
    assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"plain"), b"plain");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A kernel that refuses a program may say so in megabytes. Whoever waits for the ready line has to read them meanwhile.
#[test]
fn the_rig_hears_a_program_that_says_a_lot_and_ends() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1"]);
    let said = rig.launch(command, &rig.server).err().expect("it ended");
    assert_eq!(said.len(), 1_000_000);
}
