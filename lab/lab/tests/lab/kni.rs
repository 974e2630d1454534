//! Tests of `twinpath-lab kni` with the real nfs-ganesha, on a tree so small that it takes seconds; and of its cleaning
//! up when it is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirEntry, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;
use twinpath_sys::Namespace;
use twinpath_sys::child::{Placement, place};
use twinpath_test_rig::{root_or_skip, skip};

/// Longest wait for an event. On a busy machine a lab takes half a minute to its last moment.
const PATIENCE: Duration = Duration::from_secs(120);
/// Marks the processes of a test's lab, because the environment is inherited.
const MARK: &str = "LAB_STRAY_TEST";

fn ganesha_or_skip() -> bool {
    if !root_or_skip() {
        return false;
    }
    let installed =
        ["/usr/bin", "/usr/sbin"].iter().any(|place| Path::new(place).join("ganesha.nfsd").is_file());
    if !installed {
        skip("nfs-ganesha is not installed");
    }
    installed
}

/// A namespace with a loopback interface, and a small tree served in it.
struct TestServer {
    namespace: Namespace,
    child: Child,
    ready: Value,
    _directory: TempDir,
}

const SHAPE: [&str; 4] = ["--files", "500", "--directories", "10"];

impl TestServer {
    fn start() -> Self {
        let namespace = Namespace::new().expect("a namespace");
        let directory = tempfile::tempdir().expect("a directory");
        let mut up = placed(&namespace, Command::new("ip"));
        assert!(up.args(["link", "set", "lo", "up"]).status().expect("ip runs").success());
        let mut server = placed(&namespace, Command::new(env!("CARGO_BIN_EXE_twinpath-lab")));
        server.args(["plain", "nfs-server"]).args(SHAPE).arg("--directory").arg(directory.path());
        let mut child = server.stdout(Stdio::piped()).spawn().expect("twinpath-lab runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { namespace, child, ready, _directory: directory }
    }

    fn export(&self) -> &Path {
        Path::new(self.ready["export"].as_str().expect("it says so"))
    }

    fn ganesha(&self) -> OwnedFd {
        pidfd(self.ready["ganesha_pid"].as_i64().expect("it says so") as i32).expect("it runs")
    }

    fn walk(&self, target: &str, more: &[&str]) -> Output {
        let mut walk = placed(&self.namespace, Command::new(env!("CARGO_BIN_EXE_twinpath-lab")));
        walk.args(["plain", "nfs-walk", target]).args(SHAPE).arg("--export").arg(self.export()).args(more);
        walk.output().expect("twinpath-lab runs")
    }
}

fn placed(namespace: &Namespace, mut command: Command) -> Command {
    place(&mut command, Placement { namespace: Some(namespace), ..Placement::default() }).expect("placed");
    command
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn ended(process: &OwnedFd, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)).expect("a descriptor") == 1
}

#[test]
fn a_walk_finds_every_name_of_the_tree_and_another_tree_is_noticed() {
    if !ganesha_or_skip() {
        return;
    }
    let mut served = TestServer::start();
    // The tree is on a file system that only the server sees.
    assert_eq!(std::fs::read_dir(served.export()).unwrap().count(), 0);
    let walked = served.walk("127.0.0.1:2049", &[]);
    assert!(walked.status.success(), "{}", String::from_utf8_lossy(&walked.stderr));
    let report: Value = serde_json::from_slice(&walked.stdout).unwrap();
    let number = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(number("names"), 510);
    // LOOKUP, GETATTR and ACCESS for each name; GETATTR, ACCESS and the pages for each directory, including the root.
    assert_eq!(number("calls"), 3 * 510 + 2 * 11 + number("pages"));
    assert!(number("pages") >= 11, "{report}");
    let refused = |walked: Output, why: &str| {
        let said = String::from_utf8_lossy(&walked.stderr).into_owned();
        assert!(walked.status.code() == Some(1) && said.contains(why) && said.lines().count() == 1, "{said}");
    };
    refused(served.walk("127.0.0.1:2049", &["--seed", "2"]), "other names than those of the directory");
    refused(served.walk("127.0.0.1:2", &[]), "cannot connect to the NFS server at 127.0.0.1:2");
    let ganesha = served.ganesha();
    kill_process(Pid::from_child(&served.child), Signal::TERM).unwrap();
    assert!(served.child.wait().unwrap().success());
    assert!(ended(&ganesha, Duration::ZERO), "its server waits for ganesha's end");
}

#[test]
fn ganesha_ends_with_its_server_also_by_kill_9() {
    if !ganesha_or_skip() {
        return;
    }
    let mut served = TestServer::start();
    let ganesha = served.ganesha();
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    assert!(ended(&ganesha, PATIENCE));
}

#[test]
fn a_walk_by_every_way_is_measured_on_a_small_tree() {
    if !ganesha_or_skip() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (json, html) = (directory.path().join("kni.json"), directory.path().join("kni.html"));
    let only =
        "walk-exception,walk-exception-workers,walk-attached-idle,walk-attached-busy,exception-queue-us";
    let output = super::lab_named("kni", &["--files", "500", "--repeat", "1", "--only", only])
        .args([Path::new("--json"), &json, Path::new("--html"), &html])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let ids: BTreeSet<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    let walks = [
        "nfs-plain",
        "nfs-attached",
        "nfs-busy",
        "nfs-busy-kernel",
        "nfs-exception",
        "nfs-exception-workers",
    ];
    assert_eq!(ids, walks.into_iter().chain(["transit-exception-workers"]).collect());
    for row in rows {
        // An unoptimised build on a busy machine does not answer the whole load, which is reported.
        if row["id"].as_str().unwrap().starts_with("nfs-busy")
            && row["skipped"].as_str().is_some_and(|why| why.contains("50000 requests/s"))
        {
            continue;
        }
        assert_eq!((&row["n"], &row["skipped"]), (&1.into(), &Value::Null), "{row}");
        if walks.contains(&row["id"].as_str().unwrap()) {
            // 20,000 files are in 300 directories, 500 in 7.
            assert_eq!(row["values"]["names"]["median"], 507.0, "{row}");
        }
    }
    let ratio =
        |id: &str| report["ratios"].as_array().unwrap().iter().find(|ratio| ratio["id"] == id).unwrap();
    for id in ["walk-exception", "walk-attached-idle", "exception-queue-us"] {
        assert_eq!(ratio(id)["pairs"], 1, "{id}");
    }
}

#[test]
fn a_tree_too_small_to_be_judged_and_a_lab_without_a_tree_are_refused() {
    for (name, args, why) in [
        ("kni", &["--check", "--files", "19999"][..], "at least 20000 files"),
        ("quick", &["--files", "500"][..], "--files is for lab kni"),
    ] {
        let output = super::lab_named(name, args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    }
}

/// The processes that a lab has started and that still run.
fn marked(mark: &str) -> Vec<i32> {
    let mark = format!("{MARK}={mark}\0");
    let pids = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The environment of a zombie is empty.
    let environ = |pid: &i32| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let holds = |pid: &i32| environ(pid).windows(mark.len()).any(|bytes| bytes == mark.as_bytes());
    pids.filter(holds).collect()
}

/// Every network and mount namespace that any other process uses or holds, with that process.
fn namespaces() -> BTreeMap<PathBuf, String> {
    let links = |directory: PathBuf| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| std::fs::read_link(entry.path()).ok())
    };
    let processes = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    // Not /proc/self, either.
    let pid = |entry: &DirEntry| entry.file_name().to_str()?.parse().ok();
    let others = processes.filter(|entry| pid(entry).is_some_and(|pid: u32| pid != std::process::id()));
    let all = others.map(|entry| entry.path()).flat_map(|process| {
        let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        let name = format!("{} {}", process.display(), name.trim());
        let links = links(process.join("ns")).chain(links(process.join("fd")));
        links.map(move |link| (link, name.clone()))
    });
    all.filter(|(link, _)| ["net:[", "mnt:["].iter().any(|kind| link.to_string_lossy().starts_with(kind)))
        .collect()
}

/// The namespaces of these processes, except for this process's. Each is held open: the kernel gives the number of one that is
/// gone to the next one, which may be another test's.
fn namespaces_of(pids: &[i32]) -> BTreeMap<PathBuf, File> {
    let paths = |pid: &str| ["net", "mnt"].map(|kind| format!("/proc/{pid}/ns/{kind}"));
    let ours = paths("self").map(|path| std::fs::read_link(path).ok());
    let theirs = pids.iter().flat_map(|pid| paths(&pid.to_string()));
    let held = theirs.filter_map(|path| {
        let file = File::open(path).ok()?;
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some((name, file))
    });
    held.filter(|(name, _)| !ours.contains(&Some(name.clone()))).collect()
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A lab that was stopped while it ran.
struct Stopped {
    code: Option<i32>,
    /// What it wrote to its standard error.
    said: String,
    /// The processes at that moment, by their command lines, and their namespaces.
    processes: Vec<(String, OwnedFd)>,
    namespaces: BTreeMap<PathBuf, File>,
}

impl Stopped {
    /// The processes that use or hold its namespaces.
    fn holders(&self) -> BTreeMap<PathBuf, String> {
        let mut used = namespaces();
        used.retain(|namespace, _| self.namespaces.contains_key(namespace));
        used
    }

    fn still_running(&self, after: Duration) -> Vec<String> {
        let running = self.processes.iter().filter(|(_, process)| !ended(process, after));
        running.map(|(line, _)| line.clone()).collect()
    }
}

/// A lab, its arguments, and what a process that it starts has on its command line.
type Moment = (&'static str, &'static [&'static str], &'static str);

const KNI: &[&str] = &["--files", "500", "--only", "walk-exception,walk-attached-busy"];

/// A server starts; and in a walk ganesha, twinpath as a bridge, and the load beside it.
const MOMENTS: [Moment; 4] = [
    ("quick", &["--only", "udp-rtt-poll"], "serve echo"),
    ("kni", KNI, "ganesha.nfsd -F"),
    ("kni", KNI, "bridge owned0"),
    ("kni", KNI, "bench echo 10.112.0.1:7000"),
];

/// Those that are possible here.
fn moments() -> &'static [Moment] {
    if ganesha_or_skip() { &MOMENTS } else { &MOMENTS[..1] }
}

/// Runs a lab until that moment, and stops it by `signal`. Its directory for temporary files is its own.
fn stopped_at((name, args, word): Moment, mark: &str, temporary: &Path, signal: Signal) -> Stopped {
    let child = super::lab_named(name, &["--repeat", "50"])
        .args(args)
        .env(MARK, mark)
        .env("TMPDIR", temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("twinpath-lab runs");
    let line = |pid: i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    };
    until(&format!("no {word}"), || marked(mark).iter().any(|pid| line(*pid).contains(word)));
    let pids = marked(mark);
    let processes = pids.iter().filter_map(|pid| Some((line(*pid), pidfd(*pid)?))).collect();
    let namespaces = namespaces_of(&pids);
    assert!(!namespaces.is_empty());
    kill_process(Pid::from_child(&child), signal).expect("it runs");
    let output = child.wait_with_output().expect("it was started here");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Stopped { code: output.status.code(), said, processes, namespaces }
}

#[test]
fn ctrl_c_leaves_no_process_no_namespace_no_mount_and_no_file() {
    if !root_or_skip() {
        return;
    }
    for moment in moments().iter().copied() {
        let temporary = tempfile::tempdir().unwrap();
        let stopped = stopped_at(moment, "interrupted", temporary.path(), Signal::INT);
        let moment = moment.2;
        assert!(stopped.said.lines().last().is_some_and(|line| line.contains("stopped")), "{}", stopped.said);
        // At once, because the lab has reported that everything is gone.
        assert_eq!(stopped.still_running(Duration::ZERO), Vec::<String>::new(), "{moment}");
        assert_eq!((stopped.code, marked("interrupted")), (Some(130), Vec::new()), "{moment}");
        assert_eq!(stopped.holders(), BTreeMap::new(), "{moment}");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "{moment}");
    }
}

#[test]
fn kill_9_leaves_a_directory_that_the_next_lab_removes_and_nothing_else() {
    if !root_or_skip() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    for moment in moments().iter().copied() {
        let stopped = stopped_at(moment, "killed", temporary.path(), Signal::KILL);
        let moment = moment.2;
        assert_eq!(stopped.still_running(PATIENCE), Vec::<String>::new(), "{moment}");
        until("a process stays", || marked("killed").is_empty());
        let mut holders = stopped.holders();
        let deadline = Instant::now() + PATIENCE;
        while !holders.is_empty() {
            assert!(Instant::now() < deadline, "namespaces stay: {holders:?}");
            std::thread::yield_now();
            holders = stopped.holders();
        }
    }
    let left = || std::fs::read_dir(temporary.path()).unwrap().count();
    assert_eq!(left(), 1, "each lab has removed what the one before it left");
    let html = tempfile::NamedTempFile::new().unwrap();
    let mut next = super::lab_named("fallback", &["--only", "kernel-xdp-tax", "--html"]);
    let next = next.arg(html.path()).env("TMPDIR", temporary.path()).output().unwrap();
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    assert_eq!(left(), 0);
}
