//! Tests of `twinpath tune` on a real interface: a veth in a namespace, whose settings differ from the advice.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use twinpath_test_rig::within;
use twinpath_tune::{At, Host, Parameter, System as _};

use crate::rig::{Finished, Rig};

/// The settings of a veth; settings of the machine are not touched.
const ONLY: &str = "coalescing,deferred-irqs,gro-flush-timeout,irq-suspension,threaded-napi,rps,xps";

/// All of them differ from the advice.
const SETTINGS: [(&str, &str); 6] = [
    ("napi_defer_hard_irqs", "2"),
    ("gro_flush_timeout", "20000"),
    ("threaded", "1"),
    ("queues/rx-0/rps_cpus", "1"),
    ("queues/rx-3/rps_cpus", "1"),
    ("queues/tx-1/xps_cpus", "1"),
];

impl Rig {
    /// Runs `work` in the directory of `vs` in /sys.
    fn in_sysfs<R: Send>(&self, work: impl Fn(PathBuf) -> R + Send + Sync) -> R {
        let inside = || {
            let sys = twinpath_sys::mounts::own_sysfs().expect("root");
            work(PathBuf::from(format!("/proc/self/fd/{}/class/net", sys.as_raw_fd())))
        };
        self.server.run(inside).expect("entered")
    }

    fn put_out_of_order(&self) -> Vec<String> {
        // With GRO a veth receives through NAPI, and has its settings.
        let mut child = self.run(&self.server, "ethtool", &["-K", "vs", "gro", "on"]);
        assert!(child.wait().expect("ends").success());
        self.in_sysfs(|net| {
            for (file, value) in SETTINGS {
                std::fs::write(net.join("vs").join(file), value).expect(file);
            }
        });
        let suspend = || {
            let mut host = Host::open(Some("vs")).expect("root");
            let at = suspension(&host, "vs");
            // Linux 6.13 has it; the number needs 64 bits.
            if host.read(&at).is_ok() {
                host.write(&at, "5000000000").expect("settable");
            }
        };
        self.server.run(suspend).expect("entered");
        self.settings("vs")
    }

    fn settings(&self, name: &str) -> Vec<String> {
        let read = |net: PathBuf| {
            let read = |(file, _)| std::fs::read_to_string(net.join(name).join(file)).expect(file);
            SETTINGS.map(read).map(|text| text.trim().to_owned()).to_vec()
        };
        let mut settings = self.in_sysfs(read);
        let suspension = || {
            let host = Host::open(Some(name)).expect("root");
            host.read(&suspension(&host, name)).unwrap_or_else(|_| "0".to_owned())
        };
        settings.insert(0, self.server.run(suspension).expect("entered"));
        settings
    }

    fn tune_command(&self, arguments: &[&str]) -> Command {
        let journal = self.directory.path().join("tune.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.arg("tune").args(arguments).args(["--only", ONLY, "--journal"]).arg(journal);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        within(&self.server, &mut command);
        command
    }

    fn tune(&self, arguments: &[&str]) -> Finished {
        let output = self.tune_command(arguments).output().expect("twinpath runs");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The report, and the exit code.
    fn tune_json(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let finished = self.tune(&[arguments, &["--json"]].concat());
        let report = serde_json::from_str(&finished.stdout);
        (report.unwrap_or_else(|error| panic!("{error}: {}", finished.stderr)), finished.code)
    }
}

fn suspension(host: &Host, name: &str) -> At {
    let index = host.file(&format!("sys/class/net/{name}/ifindex")).expect("it is there");
    napi(name, index.parse().expect("a number"), Parameter::IrqSuspendTimeout)
}

fn napi(name: &str, ifindex: u32, parameter: Parameter) -> At {
    At::Napi { interface: name.to_owned(), ifindex, parameter }
}

fn count(report: &Value, list: &str, key: &str, value: &str) -> usize {
    report[list].as_array().expect("a list").iter().filter(|entry| entry[key] == value).count()
}

#[test]
fn what_is_applied_to_an_interface_is_in_force_and_comes_back() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let before = rig.put_out_of_order();
    let (report, code) = rig.tune_json(&["vs", "--cpu", "0"]);
    assert_eq!(code, Some(3), "{report}");
    // For xps, one queue is the worker's and three are for all other CPUs: how many of them change depends on the CPUs.
    assert!(count(&report, "lines", "state", "change") >= 6, "{report}");
    assert_eq!(rig.settings("vs"), before, "looking changes nothing");

    let (report, code) = rig.tune_json(&["vs", "--cpu", "0", "--apply"]);
    assert_eq!((code, count(&report, "outcomes", "what", "failed")), (Some(0), 0), "{report}");
    assert_eq!(count(&report, "lines", "state", "change"), 0, "{report}");
    let applied = rig.settings("vs");
    assert_eq!(applied[..6], ["0"; 6], "{applied:?}");
    assert_eq!(rig.tune_json(&["vs", "--cpu", "0"]).1, Some(0));

    // Renamed meanwhile: it is recognised by its index.
    rig.ip_server(&["link", "set", "vs", "name", "renamed"]);
    let (report, code) = rig.tune_json(&["--restore"]);
    assert_eq!((code, count(&report, "outcomes", "what", "failed")), (Some(0), 0), "{report}");
    assert_eq!(rig.settings("renamed"), before);
    assert_eq!(report["journal"]["entries"], 0);
}

#[test]
fn killed_in_the_middle_of_an_apply_it_leaves_nothing_behind() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let before = rig.put_out_of_order();
    let start = Instant::now();
    assert_eq!(rig.tune(&["vs", "--cpu", "0", "--apply"]).code, Some(0));
    let whole = start.elapsed();
    assert_eq!(rig.tune(&["vs", "--restore"]).code, Some(0));
    assert_eq!(rig.settings("vs"), before);
    for step in 0..24 {
        let child = rig.tune_command(&["vs", "--cpu", "0", "--apply"]).spawn().expect("twinpath runs");
        kill_after(child, whole * step / 20);
        let restored = rig.tune(&["--restore"]);
        assert_eq!(restored.code, Some(0), "{}", restored.stderr);
        assert_eq!(rig.settings("vs"), before, "killed at {step}/20: {}", restored.stdout);
    }
}

/// Kills at a given time within its work; it spins, because the exact moment matters.
fn kill_after(mut child: Child, delay: Duration) {
    let start = Instant::now();
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
    child.kill().expect("ours");
    child.wait().expect("ended");
}

#[test]
fn coalescing_is_set_as_the_device_has_it() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    rig.ip_server(&["tuntap", "add", "tp", "mode", "tap"]);
    let frames = |count: &str| {
        let mut child = rig.run(&rig.server, "ethtool", &["-C", "tp", "rx-frames", count]);
        child.wait().expect("ends").success()
    };
    let tune = |action: &str| {
        let (report, code) = rig.tune_json(&["tp", action]);
        let line = report["lines"].as_array().expect("a list").iter().find(|line| line["id"] == "coalescing");
        (line.map(|line| line["now"].clone()).unwrap_or_default(), code)
    };
    assert_eq!(tune("--check"), ("rx-frames 0".into(), Some(0)), "a device that does not wait is left alone");
    assert!(frames("32"));
    assert_eq!(tune("--check"), ("rx-frames 32".into(), Some(3)));
    assert_eq!(tune("--apply"), ("rx-frames 1".into(), Some(0)));
    assert_eq!(tune("--restore"), ("rx-frames 32".into(), Some(0)));
    assert_eq!(tune("--apply"), ("rx-frames 1".into(), Some(0)));
    assert!(frames("5"), "somebody else");
    assert_eq!(tune("--restore"), ("rx-frames 5".into(), Some(0)));
}

#[test]
fn an_instance_that_differs_from_its_device_comes_back_different() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    rig.put_out_of_order();
    let parameters = [Parameter::DeferHardIrqs, Parameter::GroFlushTimeout];
    let read = || {
        let host = Host::open(Some("vs")).unwrap();
        let At::Napi { ifindex, .. } = suspension(&host, "vs") else { unreachable!() };
        parameters.map(|parameter| (ifindex, host.read(&napi("vs", ifindex, parameter)).unwrap()))
    };
    let write = |ifindex, each: &str| {
        let mut host = Host::open(Some("vs")).unwrap();
        host.write(&napi("vs", ifindex, Parameter::DeferHardIrqs), each).unwrap();
    };
    let [(ifindex, defer), _] = rig.server.run(read).unwrap();
    assert_eq!(defer, "2");
    if before_6_13(&rig) {
        twinpath_test_rig::skip("NAPI instances have settings of their own since Linux 6.13");
        return;
    }
    rig.server.run(|| write(ifindex, "2, by instance 2,0,5,2")).unwrap();
    let before = rig.server.run(read).unwrap();
    assert_eq!(before[0].1, "2, by instance 2,0,5,2");
    assert_eq!(rig.tune(&["vs", "--apply", "--cpu", "0"]).code, Some(0));
    assert_eq!(rig.server.run(read).unwrap().map(|(_, value)| value), ["0", "0"]);
    assert_eq!(rig.tune(&["vs", "--restore"]).code, Some(0));
    assert_eq!(rig.server.run(read).unwrap(), before);
}

fn before_6_13(rig: &Rig) -> bool {
    let has_none = || {
        let host = Host::open(Some("vs")).expect("root");
        host.read(&suspension(&host, "vs")).is_err()
    };
    rig.server.run(has_none).expect("entered")
}

/// Runs a test with its own /run/twinpath, so that the default journal and sockets of the host are not touched.
pub(crate) fn with_own_run_directory(test: impl FnOnce() + Send) {
    let directory = Path::new("/run/twinpath");
    std::fs::create_dir_all(directory).expect("root");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            twinpath_sys::mounts::hide(&[directory]).expect("root");
            test();
        });
    });
}

#[test]
fn serve_and_bridge_first_restore_what_a_dead_tune_changed() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    with_own_run_directory(|| {
        let rig = Rig::new();
        let before = rig.put_out_of_order();
        assert_eq!(rig.tune(&["vs", "--cpu", "0", "--apply"]).code, Some(0));
        assert_ne!(rig.settings("vs"), before);
        // The journal on disk during an apply.
        let journal = std::fs::read_to_string(rig.directory.path().join("tune.json")).unwrap();
        let died = journal.replace("\"done\"", "\"intended\"");
        std::fs::write("/run/twinpath/tune.json", died).unwrap();
        let server = rig.serve(&[]);
        assert_eq!(rig.settings("vs"), before);
        server.wait_until_said("died before it was through");
        assert!(!Path::new("/run/twinpath/tune.json").exists());
    });
}

#[test]
fn what_runs_on_the_interface_is_what_it_is_tuned_for() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    with_own_run_directory(|| {
        let rig = Rig::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.args(["serve", "echo", "--on", "vs", "--udp", "7007", "--mode", "interrupt", "--cpu", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        within(&rig.server, &mut command);
        let mut child = command.spawn().expect("twinpath runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        assert!(line.starts_with("ready"), "{line}");
        let (report, _) = rig.tune_json(&["vs"]);
        assert_eq!((&report["mode"], &report["cpus"]), (&"interrupt".into(), &serde_json::json!([0])));
        assert!(report["instance"].as_str().is_some_and(|name| name.starts_with("echo, pid")), "{report}");
        // The command line has priority.
        let (report, _) = rig.tune_json(&["vs", "--mode", "poll"]);
        assert_eq!((&report["mode"], &report["instance"]), (&"poll".into(), &Value::Null));
        child.kill().expect("ours");
        child.wait().expect("ended");
    });
}

#[test]
fn what_a_wake_up_costs_here_is_told_beside_the_settings() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let looked = |arguments: &[&str]| rig.twinpath(&rig.server, &[&["tune"], arguments].concat());
    let finished = looked(&["vs", "--cpu", "0", "--json"]);
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["wake_ups"]["cpu"], 0);
    assert!(report["wake_ups"]["wake_same_cpu"]["p50_ns"].as_u64().is_some_and(|ns| ns > 0), "{report}");
    let finished = looked(&[]);
    assert!(finished.stdout.contains("waking up on CPU"), "{}", finished.stdout);
    let widest = finished.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 120), "{}", finished.stdout);
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new();
    for (arguments, words) in [
        (&["vx"][..], "no interface \"vx\""),
        (&["vs", "--cpu", "4000"], "CPU 4000 does not run here"),
        (&["vs", "--apply", "--restore"], "cannot be used with"),
    ] {
        let finished = rig.tune(arguments);
        assert_ne!(finished.code, Some(0));
        assert!(finished.stderr.contains(words), "{arguments:?}: {}", finished.stderr);
    }
    rig.put_out_of_order();
    assert_eq!(rig.tune(&["vs", "--apply"]).code, Some(0));
    std::fs::write(rig.directory.path().join("tune.json"), "half a jour").unwrap();
    for arguments in [&["vs", "--restore"][..], &["vs", "--apply", "--cpu", "0"]] {
        let finished = rig.tune(arguments);
        assert_eq!(finished.code, Some(1));
        assert!(finished.stderr.contains("nothing was touched"), "{}", finished.stderr);
    }
    let looked = rig.tune(&["vs"]);
    assert!(looked.stdout.contains("cannot be understood"), "{}", looked.stdout);
}
