//! The committed answers of the twin of controllers (`twinpath_test_fuzz::seed::wrong`), against Open vSwitch itself, where it is
//! installed or unpacked. Its datapath is its own dummy, which needs no interfaces and no rights.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use twinpath_openflow_wire::{Frames, Header, MessageType};
use twinpath_test_fuzz::seed::wrong::{Answers, Case, Switch, ask, committed, greet, greetings, messages};
use twinpath_test_rig::skip_without;

/// How long any answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where its packages have programs.
const PLACES: [&str; 4] = ["usr/lib/openvswitch-switch", "usr/sbin", "usr/bin", "usr/share/openvswitch"];
/// The version whose answers are committed.
const VERSION: &str = "3.1.0";

/// A file of its packages, and the directory that these are in.
fn find(name: &str) -> Option<(PathBuf, PathBuf)> {
    let tests = std::env::current_exe().ok()?;
    let unpacked = tests.ancestors().nth(3)?.join("test-peers");
    let roots = [unpacked, PathBuf::from("/")];
    let files = roots.iter().flat_map(|root| PLACES.map(|place| (root.join(place).join(name), root.clone())));
    files.into_iter().find(|(file, _)| file.is_file())
}

/// Open vSwitch that runs until this is dropped.
struct OpenVSwitch {
    directory: tempfile::TempDir,
    stream: Option<UnixStream>,
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        // The switch before its database.
        for (control, command) in [("vs.ctl", "exit"), ("db.ctl", "exit")] {
            let directory = self.directory.path();
            let Some(mut stop) = Self::command(directory, "ovs-appctl") else { continue };
            let _ = stop.arg("--target").arg(directory.join(control)).arg(command).status();
        }
    }
}

impl OpenVSwitch {
    /// A program of it that keeps to files of its own.
    fn command(directory: &Path, name: &str) -> Option<Command> {
        let (file, root) = find(name)?;
        let mut command = Command::new(file);
        if root != Path::new("/") {
            let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
            command.env("LD_LIBRARY_PATH", root.join(libraries));
        }
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, directory);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(command)
    }

    /// `None` if it is not there, or another version.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().to_owned();
        let at = |name: &str| directory.join(name).display().to_string();
        let command = |name: &str| Self::command(&directory, name);
        let version = command("ovs-vswitchd")?.arg("--version").stdout(Stdio::piped()).output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains(VERSION) {
            return None;
        }
        let (schema, _) = find("vswitch.ovsschema")?;
        let made = command("ovsdb-tool")?.arg("create").arg(at("conf.db")).arg(schema).status().ok()?;
        assert!(made.success());
        let this = Self { directory: folder, stream: None };
        // Each is ready when it has gone into the background.
        let mut database = command("ovsdb-server")?;
        database.arg(at("conf.db")).arg(format!("--remote=punix:{}", at("db.sock")));
        database.args([
            &format!("--unixctl={}", at("db.ctl")),
            &format!("--pidfile={}", at("db.pid")),
            "--detach",
        ]);
        assert!(database.status().ok()?.success());
        let mut switch = command("ovs-vswitchd")?;
        switch.arg("--enable-dummy=override").arg(format!("unix:{}", at("db.sock")));
        switch.args([
            &format!("--unixctl={}", at("vs.ctl")),
            &format!("--pidfile={}", at("vs.pid")),
            "--detach",
        ]);
        assert!(switch.status().ok()?.success());
        let mut configure = command("ovs-vsctl")?;
        configure.args([&format!("--db=unix:{}", at("db.sock")), "--timeout=20", "add-br", "br0", "--"]);
        configure.args(["set", "bridge", "br0", "datapath_type=dummy", "protocols=OpenFlow13"]);
        configure.arg("fail-mode=secure");
        for port in 1..=3 {
            let name = format!("p{port}");
            configure.args([
                "--",
                "add-port",
                "br0",
                &name,
                "--",
                "set",
                "interface",
                &name,
                "type=internal",
            ]);
            configure.arg(format!("ofport_request={port}"));
            configure.arg(format!("mac=\"02:00:00:00:00:0{port}\""));
        }
        assert!(configure.status().ok()?.success());
        Some(this)
    }
}

impl Switch for OpenVSwitch {
    fn connect(&mut self) {
        let path = self.directory.path().join("br0.mgmt");
        let stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        self.stream = Some(stream);
    }

    fn exchange(&mut self, bytes: &[u8], barrier: u32) -> (Vec<Vec<u8>>, bool) {
        let stream = self.stream.as_mut().expect("connected");
        // If it has closed the connection, reading says so.
        let _ = stream.write_all(bytes);
        let (mut frames, mut heard, mut buffer) = (Frames::new(), Vec::<Vec<u8>>::new(), [0; 65536]);
        loop {
            let len = match stream.read(&mut buffer) {
                Ok(0) => return (heard, false),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return (heard, false),
                Err(error) => panic!("no answer: {error}"),
            };
            let mut rest = &buffer[..len];
            while let Some(message) = frames.next(&mut rest).expect("lengths are right") {
                heard.push(message.to_vec());
            }
            let is_reply = |header: Header| {
                header.xid == barrier && header.message_type == MessageType::BarrierReply.number()
            };
            if heard.iter().filter_map(|message| Header::of(message)).any(is_reply) {
                return (heard, true);
            }
        }
    }
}

#[test]
fn the_committed_answers_are_those_of_open_vswitch() {
    let Some(mut switch) = OpenVSwitch::start() else {
        skip_without(format!("Open vSwitch {VERSION} (Debian's openvswitch-switch)"));
        return;
    };
    let (table, mut others) = (committed(), BTreeSet::new());
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut note = |case: Case, answers: Answers| {
        let answer = format!("{}={}", case.value, answers.0);
        match lines.last_mut().filter(|(field, _)| *field == case.field) {
            Some((_, line)) => *line = format!("{line} {answer}"),
            None => lines.push((case.field.clone(), answer)),
        }
        if table.get(&(case.field.clone(), case.value)) != Some(&answers) {
            others.insert(case.field);
        }
    };
    let mut is_open = false;
    for case in messages().iter().flat_map(|layout| layout.cases()) {
        let answers = ask(&mut switch, &mut is_open, &case);
        note(case, answers);
    }
    for case in greetings().iter().flat_map(|layout| layout.cases()) {
        let answers = greet(&mut switch, &case);
        note(case, answers);
    }
    let is_known = others.is_empty()
        && lines.iter().map(|(_, line)| line.split(' ').count()).sum::<usize>() == table.len();
    if !is_known {
        let table: String = lines.iter().map(|(field, line)| format!("{field}\t{line}\n")).collect();
        let (_, path) = tempfile::NamedTempFile::new().and_then(|file| Ok(file.keep()?)).expect("a file");
        std::fs::write(&path, &table).expect("written");
        panic!(
            "{} is what to commit as test/fuzz/src/seed/wrong/answers.tsv, if that is meant; other answers: {others:?}",
            path.display()
        );
    }
}
