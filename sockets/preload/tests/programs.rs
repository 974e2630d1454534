//! Unmodified programs with the library, over a virtual link between two network namespaces.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "programs/earned.rs"]
mod earned;
#[path = "programs/edges.rs"]
mod edges;
#[path = "programs/filtered.rs"]
mod filtered;
#[path = "programs/late.rs"]
mod late;
#[path = "programs/left.rs"]
mod left;
#[path = "../../capi/tests/link/mod.rs"]
mod link;
#[path = "programs/others.rs"]
mod others;
#[path = "programs/processes.rs"]
mod processes;
#[path = "programs/sources.rs"]
mod sources;
#[path = "programs/threads.rs"]
mod threads;
#[path = "programs/tokio.rs"]
mod tokio;
#[path = "programs/weight.rs"]
mod weight;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use twinpath_config::Sandbox;
use twinpath_leases::rules::{EXPLAIN_VARIABLE, OWNER_VARIABLE, RULES_VARIABLE, Rule, Rules};
use twinpath_owner::{self as owner, OwnerPlan, ProgramLimits};
use twinpath_sys::Namespace;
use twinpath_test_rig::root_or_skip;
use twinpath_worker::idle::Mode;

use crate::link::{Echo, Link, PATIENCE, output_of, run};

/// The library with the hooks, in the same folder.
const HOOKS: &str = "libtwinpath_preload.so";

/// The library of this build that programs are started with: beside the tests, or a folder above.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folders = tests.ancestors().skip(1).take(2);
    let mut libraries = folders.map(|folder| folder.join("libtwinpath_preloader.so"));
    libraries.find(|library| library.is_file()).expect("cargo builds the library with the tests")
}

/// The socket of the owner, in the folder of a test.
const PROGRAMS: &str = "programs";

/// Its rule makes bind wait for the lease: what is tested is there from the first datagram on.
fn with_library<'a>(command: &'a mut Command, rule: Rule, explain: &Path) -> &'a mut Command {
    let rules = Rules { rules: vec![rule] };
    command
        .env("LD_PRELOAD", library())
        .env(RULES_VARIABLE, rules.to_line())
        .env(EXPLAIN_VARIABLE, explain)
        .env(OWNER_VARIABLE, explain.with_file_name(PROGRAMS))
}

fn peer_in(namespace: &Namespace) -> UdpSocket {
    let peer = namespace.run(|| UdpSocket::bind("10.9.0.2:0").unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

fn rule(mode: Mode) -> Rule {
    Rule { mode, at_bind: true, ..Rule::default() }
}

/// How many datagrams came by the ring, and how many by the kernel, by all lines of a file.
fn received(explain: &Path) -> (u64, u64) {
    let text = std::fs::read_to_string(explain).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(": received ").map(|(_, counts)| counts));
    lines.fold((0, 0), |(ring, kernel), counts| {
        let numbers: Vec<u64> = counts.split(' ').filter_map(|word| word.parse().ok()).collect();
        (ring + numbers[0], kernel + numbers[1])
    })
}

#[test]
fn an_unmodified_program_finds_the_semantics_of_the_c_library() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let _echo = Echo::new(&link);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/tests/c/semantics.c");
    let program = folder.path().join("plain");
    // Fortified, so that it calls the checked variants.
    let mut compiler = Command::new("cc");
    compiler.args(["-DPLAIN", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-D_FORTIFY_SOURCE=2"]);
    run(compiler.arg("-pthread").arg(source).arg("-o").arg(&program));
    let explain = folder.path().join("explain");
    for mode in [Mode::Poll, Mode::Interrupt, Mode::Adaptive] {
        let _ = std::fs::remove_file(&explain);
        let mut command = Command::new(&program);
        let output = output_of(link.within(with_library(command.arg("in0"), rule(mode), &explain)));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.stdout.as_slice(), &*said), (&b"passed\n"[..], ""), "{mode}");
        let text = std::fs::read_to_string(&explain).unwrap();
        assert!(text.contains("UDP 0.0.0.0:7011: fast path on in0, by the owner"), "{text}");
        assert!(text.contains("% by the ring"), "{text}");
    }
}

#[test]
fn a_program_with_the_library_does_what_it_does_without() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let _echo = Echo::new(&link);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/hooks.c");
    let (program, explain) = (folder.path().join("hooks"), folder.path().join("explain"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread"]);
    run(compiler.arg(source).arg("-o").arg(&program));
    let mut command = Command::new(&program);
    let output = output_of(link.within(with_library(&mut command, rule(Mode::Adaptive), &explain)));
    let text = std::fs::read_to_string(&explain).unwrap_or_default();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    for port in [7031, 7032, 7034, 7035, 7036] {
        assert!(
            text.contains(&format!("UDP 0.0.0.0:{port}: fast path on in0, by the owner")),
            "{port}: {text}"
        );
    }
    assert!(text.contains("UDP not bound: by the kernel: it was duplicated before"), "{text}");
    assert!(text.contains("UDP 0.0.0.0:7036: received "), "{text}");
}

#[test]
fn bad_luck_of_a_program_is_no_worse_with_the_library() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let _echo = Echo::new(&link);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/luck.c");
    let (program, explain) = (folder.path().join("luck"), folder.path().join("explain"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
    run(compiler.arg(source).arg("-o").arg(&program));
    let copy = folder.path().join("again.so");
    std::fs::copy(library().with_file_name(HOOKS), &copy).unwrap();
    for mode in [Mode::Poll, Mode::Adaptive] {
        let _ = std::fs::remove_file(&explain);
        let mut command = Command::new(&program);
        let output = output_of(link.within(with_library(command.arg(&copy), rule(mode), &explain)));
        let text = std::fs::read_to_string(&explain).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.stdout.as_slice(), &*said), (&b"passed\n"[..], ""), "{mode}: {text}");
        for port in [7052, 7056, 7058, 7059, 7060, 7061, 7062, 7063] {
            assert!(
                text.contains(&format!("UDP 0.0.0.0:{port}: fast path on in0, by the owner")),
                "{port}: {text}"
            );
        }
        for (port, why) in [
            (7053, "by the kernel: a BPF program distributes"),
            (7055, "by the kernel from now on: a BPF program distributes"),
            (7064, "by the kernel: a BPF program distributes"),
            (7066, "by the kernel from now on: a BPF program distributes"),
            (7057, "by the kernel: there is no interface but the loopback"),
            (7059, "by the kernel: it is in a set of epoll that is in another one"),
        ] {
            assert!(text.contains(&format!("UDP 0.0.0.0:{port}: {why}")), "{port}: {text}");
        }
    }
}

/// What has more rights than its user is left alone, whatever the environment says.
#[test]
fn a_setuid_program_does_not_have_the_library() {
    use std::os::unix::fs::PermissionsExt as _;
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let (source, program) = (folder.path().join("who.c"), folder.path().join("who"));
    let text = "#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\nint main(void)\n{\n\tchar line[4096];\n\tFILE *maps = fopen(\"/proc/self/maps\", \"r\");\n\t\
        int has = 0;\n\twhile (maps && fgets(line, sizeof line, maps))\n\t\thas |= strstr(line, \"library.so\") != 0;\n\t\
        printf(\"%d %d\\n\", (int)geteuid(), has);\n\treturn 0;\n}\n";
    std::fs::write(&source, text).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    let explain = folder.path().join("explain");
    std::fs::write(&explain, "").unwrap();
    let said = |mode: u32| {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = as_nobody(folder.path(), &program, rule(Mode::Poll), &explain);
        String::from_utf8(output_of(link.within(&mut command)).stdout).unwrap()
    };
    assert_eq!(said(0o755), "65534 1\n");
    match said(0o4755).as_str() {
        "0 0\n" => {}
        "65534 1\n" => eprintln!("not tested: the folder is on a file system that is mounted with nosuid"),
        other => panic!("{other}"),
    }
}

/// A program that echoes datagrams, and ends at an empty one.
const SERVER: &str = "\
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7021) }, from;
	char buffer[2048];
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0)
		return 1;
	/* As a daemon does that closes what it may have inherited. */
	for (int other = fd + 1; other < 1024; other++)
		close(other);
	puts(\"ready\");
	fflush(stdout);
	for (;;) {
		socklen_t len = sizeof from;
		ssize_t got = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len);
		if (got <= 0)
			_exit(got < 0);
		sendto(fd, buffer, got, 0, (struct sockaddr *)&from, len);
	}
}
";

#[test]
fn datagrams_come_by_the_ring_also_after_a_program_has_closed_all_other_descriptors() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    own(&link, &folder.path().join(PROGRAMS));
    let (source, program) = (folder.path().join("server.c"), folder.path().join("server"));
    std::fs::write(&source, SERVER).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    let explain = folder.path().join("explain");
    let mut command = Command::new(&program);
    command.stdout(Stdio::piped());
    let mut child = link.within(with_library(&mut command, rule(Mode::Poll), &explain)).spawn().unwrap();
    let ready = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(ready, "ready");
    let peer = peer_in(&link.peers);
    let mut buffer = [0; 8];
    // So many that the ring takes some, however busy the machine is.
    for number in 0..20_000u32 {
        peer.send_to(&number.to_ne_bytes(), "10.9.0.1:7021").unwrap();
        assert_eq!((peer.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &number.to_ne_bytes()[..]));
    }
    peer.send_to(&[], "10.9.0.1:7021").unwrap();
    assert!(child.wait().unwrap().success());
    let (by_ring, by_kernel) = received(&explain);
    println!("{by_ring} by the ring, {by_kernel} by the kernel");
    assert_eq!(by_ring + by_kernel, 20_001);
    assert!(by_ring > 0, "{}", std::fs::read_to_string(&explain).unwrap());
}

/// A command that runs the program as a user without rights, to whom the folder is open from now on.
fn as_nobody(folder: &Path, program: &Path, rule: Rule, explain: &Path) -> Command {
    use std::os::unix::fs::PermissionsExt as _;
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder, all.clone()).unwrap();
    std::fs::set_permissions(explain, all.clone()).unwrap();
    // So have the libraries to be.
    let copy = folder.join("library.so");
    for (from, to) in [(library(), copy.clone()), (library().with_file_name(HOOKS), folder.join(HOOKS))] {
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, all.clone()).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "--inh-caps=-all"]).arg(program);
    with_library(&mut command, rule, explain).env("LD_PRELOAD", copy);
    command
}

/// Starts the owner of the link's interface, on a thread that ends with this process.
fn own(link: &Link, listen: &Path) {
    own_with(link, listen, ProgramLimits { sockets_per_program: 16, ..ProgramLimits::default() });
}

fn own_with(link: &Link, listen: &Path, limits: ProgramLimits) {
    let plan = OwnerPlan {
        interface: "in0".to_owned(),
        listen: listen.to_owned(),
        rules: None,
        limits,
        sandbox: Sandbox::Off,
        socket: Some(listen.with_extension("sock")),
        metrics: None,
        passed: None,
        take_over: None,
    };
    let (tell, told) = std::sync::mpsc::channel();
    // A thread that is started in the namespace stays there.
    let start = move || std::thread::spawn(move || owner::run(plan, |_| tell.send(()).unwrap()));
    let owner = link.ours.run(start).unwrap();
    if told.recv_timeout(PATIENCE).is_err() {
        panic!("no owner: {:?}", owner.join());
    }
}

#[test]
fn a_program_without_rights_has_the_fast_path_by_the_owner() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let (source, program) = (folder.path().join("server.c"), folder.path().join("server"));
    std::fs::write(&source, SERVER).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    let (explain, listen) = (folder.path().join("explain"), folder.path().join("programs"));
    std::fs::write(&explain, "").unwrap();
    own(&link, &listen);
    let mut command = as_nobody(folder.path(), &program, rule(Mode::Poll), &explain);
    command.stdout(Stdio::piped()).env(OWNER_VARIABLE, &listen);
    let mut child = link.within(&mut command).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(said.next().map(Result::unwrap).as_deref(), Some("ready"));
    let peer = peer_in(&link.peers);
    let mut buffer = [0; 8];
    // So many that the ring takes some, however busy the machine is. The program has closed every descriptor that it does not know.
    for number in 0..20_000u32 {
        peer.send_to(&number.to_ne_bytes(), "10.9.0.1:7021").unwrap();
        assert_eq!((peer.recv(&mut buffer).unwrap(), &buffer[..4]), (4, &number.to_ne_bytes()[..]));
    }
    peer.send_to(&[], "10.9.0.1:7021").unwrap();
    assert!(child.wait().unwrap().success());
    let text = std::fs::read_to_string(&explain).unwrap();
    let by = format!("UDP 0.0.0.0:7021: fast path on in0, by the owner at {}", listen.display());
    assert!(text.contains(&by), "{text}");
    let (by_ring, by_kernel) = received(&explain);
    assert!(by_ring > 0 && by_ring + by_kernel == 20_001, "{by_ring}, {by_kernel}: {text}");
}

#[test]
fn sockets_without_a_rule_and_without_rights_stay_with_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let (folder, link) = (tempfile::tempdir().unwrap(), Link::new());
    let (source, program) = (folder.path().join("server.c"), folder.path().join("server"));
    std::fs::write(&source, SERVER).unwrap();
    run(Command::new("cc").arg(&source).arg("-o").arg(&program));
    let other = Rule { program: Some("another".to_owned()), ..Rule::default() };
    let explain = folder.path().join("explain");
    for (rule, user, why) in [
        (other, None, "by the kernel: no rule matches"),
        (rule(Mode::Poll), Some(()), "by the kernel: no owner answers at"),
    ] {
        std::fs::File::create(&explain).unwrap().write_all(b"").unwrap();
        let mut command = match user {
            Some(()) => as_nobody(folder.path(), &program, rule, &explain),
            None => {
                let mut command = Command::new(&program);
                with_library(&mut command, rule, &explain);
                command
            }
        };
        command.stdout(Stdio::piped());
        let mut child = link.within(&mut command).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.next().map(Result::unwrap);
        assert_eq!(ready.as_deref(), Some("ready"));
        let peer = peer_in(&link.peers);
        peer.send_to(b"hello", "10.9.0.1:7021").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(peer.recv(&mut buffer).unwrap(), 5);
        peer.send_to(&[], "10.9.0.1:7021").unwrap();
        assert!(child.wait().unwrap().success());
        let text = std::fs::read_to_string(&explain).unwrap();
        assert!(text.contains(why) && !text.contains(": fast path on"), "{text}");
    }
}
