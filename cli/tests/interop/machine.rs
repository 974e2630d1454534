//! Tests of the workers' use of the machine: latency requests, priority, their share of a CPU.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use twinpath_sys::affinity::allowed_cpus;
use twinpath_sys::child::{Placement, cpu_time, place};
use twinpath_test_rig::within;

use crate::rig::{CLIENT, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// The CPU of the worker: the last one, which the kernel uses least.
fn a_cpu() -> usize {
    *allowed_cpus().unwrap().last().unwrap()
}

fn held(server: &Server) -> bool {
    server.show("workers")[0]["latency_request"]["held"].as_bool().unwrap()
}

#[test]
fn what_waking_up_costs_is_shown() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let server = rig.serve(&["--cpu", &a_cpu().to_string()]);
    let costs = server.show("machine");
    assert_eq!(costs["cpu"], a_cpu());
    assert!(costs["timer"]["without"]["p50_ns"].as_u64().unwrap() > 0, "{costs}");
    assert!(costs["syscall_ns"].as_u64().unwrap() > 0, "{costs}");
    if allowed_cpus().unwrap().len() > 1 {
        assert!(costs["wake"]["without"]["p50_ns"].as_u64().unwrap() > 0, "{costs}");
    }
    // The same again, on command.
    let socket = server.socket.display().to_string();
    let said = rig.twinpath(&rig.server, &["show", "machine", "--measure", "--json", "--socket", &socket]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let again: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_ne!(again["machine"], costs);
    assert_eq!(again["machine"], server.show("machine"));
    let said = rig.twinpath(&rig.server, &["show", "rules", "--measure", "--socket", &socket]);
    assert_eq!((said.code, said.stderr.contains("show machine")), (Some(1), true), "{}", said.stderr);
}

#[test]
fn a_request_for_one_cpu_is_withdrawn_at_exit_and_after_a_kill() {
    if !root_or_skip() {
        return;
    }
    let cpu = a_cpu().to_string();
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    let now = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let rig = Rig::of_workers();
    let arguments = ["--cpu", &cpu, "--latency-request", "always", "--latency-request-scope", "cpu"];
    let arguments =
        [&arguments[..], &["--latency-request-max-exit-us", "0", "--linger-ms", "600000"]].concat();
    let serve_one = || {
        let server = rig.serve(&arguments);
        ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"hold it");
        until("the request is held", || held(&server));
        assert_eq!(now(), "n/a", "the kernel's word for no time at all");
        server
    };
    serve_one().kill();
    // The next instance restores the value, and can use the CPU.
    let server = serve_one();
    assert_eq!(server.interrupt(), Some(0));
    assert_eq!(now(), "0", "the kernel's word for no request");
}

#[test]
fn arrivals_on_the_kernel_path_are_work_and_the_request_is_held_for_them() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    for mode in ["interrupt", "adaptive"] {
        let arguments =
            ["--path", "kernel", "--mode", mode, "--latency-request", "always", "--linger-ms", "300"];
        let server = rig.serve(&arguments);
        let idle = server.worker("turns_busy");
        let socket = rig.client_udp(CLIENT, 0);
        for _ in 0..20 {
            ask(&socket, SERVER, PORT, b"by the kernel");
        }
        until("the request is held", || {
            ask(&socket, SERVER, PORT, b"by the kernel");
            held(&server)
        });
        // Several may be served in one turn.
        assert!(server.worker("turns_busy") > idle && server.worker("kernel_requests") > 20, "{mode}");
        assert_eq!(server.worker("frames_in"), 0);
        until("the request is let go", || !held(&server));
        assert_eq!(server.interrupt(), Some(0));
    }
}

/// A process that always wants one CPU.
struct BusyProcess(Child);

impl BusyProcess {
    fn on(cpu: usize) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        place(&mut command, Placement { cpus: &[cpu], ..Placement::default() }).unwrap();
        Self(command.spawn().unwrap())
    }

    fn cpu_ns(&self) -> u128 {
        cpu_time(self.0.id()).unwrap().as_nanos()
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_time_worker_that_spins_leaves_its_cpu_to_a_busy_process() {
    if !root_or_skip() {
        return;
    }
    let cpu = a_cpu();
    let rig = Rig::of_workers();
    let arguments = ["--mode", "poll", "--priority", "fifo:1", "--cpu", &cpu.to_string()];
    let server = match rig.try_serve(&arguments) {
        Ok(server) => server,
        Err(said) if said.contains("SCHED_FIFO") => return twinpath_test_rig::skip(said),
        Err(said) => panic!("{said}"),
    };
    let worker = server.show("workers")[0].clone();
    assert_eq!(
        (worker["priority"].as_str(), worker["guard"]["spin_share_max"].as_f64()),
        (Some("fifo:1"), Some(0.1))
    );
    let busy = BusyProcess::on(cpu);
    let stops = || server.show("workers")[0]["guard"]["sleeps"].as_u64().unwrap();
    let (wall, cpu_before, stops_before) = (Instant::now(), server.worker("cpu_ns"), stops());
    let busy_before = busy.cpu_ns();
    let socket = rig.client_udp(CLIENT, 0);
    let mut asked = 0;
    until("it has stopped spinning many times", || {
        asked += 1;
        ask(&socket, SERVER, PORT, b"beside a busy process");
        stops() > stops_before + 200
    });
    let spent = (server.worker("cpu_ns") - cpu_before) as f64;
    let share = spent / wall.elapsed().as_nanos() as f64;
    assert!(share < 0.3, "it took {share:.2} of its CPU in mode poll, {asked} requests among them");
    until("the busy process makes progress", || busy.cpu_ns() > busy_before);
    assert_eq!(server.interrupt(), Some(0));
}

/// The priorities that `auto` may use to run before others.
const BEFORE: [&str; 2] = ["fifo:1", "nice:-20"];
const BESIDE: [&str; 2] = ["slice:100", "normal"];

fn priority(server: &Server) -> String {
    server.show("workers")[0]["priority"].as_str().unwrap().to_owned()
}

#[test]
fn by_default_a_worker_is_before_others_while_it_takes_little_and_never_in_mode_poll() {
    if !root_or_skip() {
        return;
    }
    let cpu = a_cpu();
    let rig = Rig::of_workers();
    let server = rig.serve(&["--cpu", &cpu.to_string()]);
    let worker = server.show("workers")[0].clone();
    let before = worker["priority"].as_str().unwrap().to_owned();
    if !BEFORE.contains(&before.as_str()) {
        return twinpath_test_rig::skip(&worker["priority_why"]);
    }
    let guard = &worker["guard"];
    assert_eq!((guard["spin_share_max"].as_f64(), guard["run_share_max"].as_f64()), (Some(0.1), Some(0.5)));
    let set = |mode: &str| {
        let socket = server.socket.display().to_string();
        let said = rig.twinpath(&rig.server, &["set", "worker", "0", "mode", mode, "--socket", &socket]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    };
    set("poll");
    until("it is beside others", || BESIDE.contains(&priority(&server).as_str()));
    let worker = server.show("workers")[0].clone();
    assert!(worker["priority_why"].as_str().unwrap().contains("mode poll"), "{worker}");
    // The busy process gets its fair share beside one that always runs.
    let busy = BusyProcess::on(cpu);
    let begun = server.worker("cpu_ns");
    until("both have had 100 ms", || {
        busy.cpu_ns() > 100_000_000 && server.worker("cpu_ns") > begun + 100_000_000
    });
    drop(busy);
    set("adaptive");
    until("it is before others again", || priority(&server) == before);
    assert!(server.show("workers")[0]["guard"]["steps"].as_u64().unwrap() >= 2);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_busy_worker_is_beside_others_by_default() {
    if !root_or_skip() {
        return;
    }
    let cpu = a_cpu();
    let rig = Rig::of_workers();
    // It spins through every gap, which costs a competing process most.
    let server = rig.serve(&["--cpu", &cpu.to_string(), "--spin-us", "1000000"]);
    if !BEFORE.contains(&priority(&server).as_str()) {
        return twinpath_test_rig::skip(&server.show("workers")[0]["priority_why"]);
    }
    let busy = BusyProcess::on(cpu);
    let socket = rig.client_udp(CLIENT, 0);
    until("it shares the CPU with the busy process, which makes progress", || {
        ask(&socket, SERVER, PORT, b"beside a busy process");
        BESIDE.contains(&priority(&server).as_str()) && busy.cpu_ns() > 100_000_000
    });
    let why = server.show("workers")[0]["priority_why"].as_str().unwrap().to_owned();
    assert!(why.contains("it would spin more than 10 %") || why.contains("as it spins at most"), "{why}");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn without_the_privilege_a_worker_says_that_it_is_beside_others() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let socket = rig.directory.path().join("plain.sock");
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set=-sys_nice",
        "--inh-caps=-sys_nice",
        env!("CARGO_BIN_EXE_twinpath"),
        "serve",
    ]);
    command.args(["echo", "--on", "vs", "--udp", &PORT.to_string(), "--socket"]).arg(&socket);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    within(&rig.server, &mut command);
    let mut child = command.spawn().unwrap();
    let mut workers = serde_json::Value::Null;
    until("it tells", || {
        let args = ["show", "workers", "--json", "--socket", &socket.display().to_string()];
        let said = rig.twinpath(&rig.server, &args);
        workers = serde_json::from_str(&said.stdout).unwrap_or_default();
        said.code == Some(0)
    });
    assert_eq!(ask(&rig.client_udp(CLIENT, 0), SERVER, PORT, b"without"), b"without");
    child.kill().unwrap();
    child.wait().unwrap();
    let worker = &workers["workers"][0];
    assert!(BESIDE.contains(&worker["priority"].as_str().unwrap()), "{worker}");
    assert!(worker["priority_why"].as_str().unwrap().contains("CAP_SYS_NICE"), "{worker}");
    assert!(worker["guard"].is_null(), "the scheduler is fair to it: {worker}");
}

#[test]
fn a_priority_that_does_not_exist_or_is_not_granted_is_told() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::of_workers();
    let said =
        rig.twinpath(&rig.server, &["serve", "echo", "--on", "vs", "--udp", "7", "--priority", "fifo:100"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("choose normal, auto, slice:US"), "{}", said.stderr);
    let said = rig.twinpath(
        &rig.server,
        &["serve", "echo", "--on", "vs", "--udp", "7", "--latency-request-scope", "cpu"],
    );
    assert!(said.stderr.contains("--cpu"), "{}", said.stderr);
    let server = rig.serve(&["--priority", "normal"]);
    let worker = server.show("workers")[0].clone();
    assert_eq!(
        (worker["priority"].as_str(), worker["priority_why"].as_str()),
        (Some("normal"), Some("as asked"))
    );
    assert!(worker["guard"].is_null(), "the scheduler is fair to normal threads: {worker}");
    assert_eq!(server.interrupt(), Some(0));
}
