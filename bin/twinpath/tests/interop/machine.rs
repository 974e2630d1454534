//! What workers ask of the machine under them: latency requests, priority, their share of a CPU.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use twinpath_sys::affinity::allowed_cpus;
use twinpath_sys::child::{Placement, cpu_time, place};

use crate::rig::{CLIENT, PORT, Rig, SERVER, Server, ask, until};
use crate::root_or_skip;

/// The CPU of the worker: the last one, where the kernel puts the least.
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
    let rig = Rig::new();
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

    let workers = server.show("workers");
    assert_eq!(workers[0]["priority"], "normal");
    assert!(workers[0]["guard"].is_null(), "the scheduler is fair to normal threads: {workers}");
}

#[test]
fn a_request_for_one_cpu_is_withdrawn_at_exit_and_after_a_kill() {
    if !root_or_skip() {
        return;
    }
    let cpu = a_cpu().to_string();
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    let now = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let rig = Rig::new();
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
    // Whoever starts next puts it right, and can have the CPU.
    let server = serve_one();
    assert_eq!(server.interrupt(), Some(0));
    assert_eq!(now(), "0", "the kernel's word for no request");
}

#[test]
fn arrivals_on_the_kernel_path_are_work_and_the_request_is_held_for_them() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
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

/// A process that always has something to do, on one CPU.
struct Neighbour(Child);

impl Neighbour {
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

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_time_worker_that_spins_leaves_its_cpu_to_a_busy_neighbour() {
    if !root_or_skip() {
        return;
    }
    let cpu = a_cpu();
    let rig = Rig::new();
    let arguments = ["--mode", "poll", "--priority", "fifo:1", "--cpu", &cpu.to_string()];
    let server = match rig.try_serve(&arguments) {
        Ok(server) => server,
        Err(said) if said.contains("SCHED_FIFO") => return twinpath_test_skip::skip(said),
        Err(said) => panic!("{said}"),
    };
    let worker = server.show("workers")[0].clone();
    assert_eq!(
        (worker["priority"].as_str(), worker["guard"]["spin_share_max"].as_f64()),
        (Some("fifo:1"), Some(0.1))
    );
    let neighbour = Neighbour::on(cpu);
    let stops = || server.show("workers")[0]["guard"]["sleeps"].as_u64().unwrap();
    let (wall, cpu_before, stops_before) = (Instant::now(), server.worker("cpu_ns"), stops());
    let neighbour_before = neighbour.cpu_ns();
    let socket = rig.client_udp(CLIENT, 0);
    let mut asked = 0;
    until("it has stopped spinning many times", || {
        asked += 1;
        ask(&socket, SERVER, PORT, b"beside a busy neighbour");
        stops() > stops_before + 200
    });
    let spent = (server.worker("cpu_ns") - cpu_before) as f64;
    let share = spent / wall.elapsed().as_nanos() as f64;
    assert!(share < 0.3, "it took {share:.2} of its CPU in mode poll, {asked} requests among them");
    until("the neighbour gets on", || neighbour.cpu_ns() > neighbour_before);
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_priority_that_does_not_exist_or_is_not_granted_is_told() {
    if !root_or_skip() {
        return;
    }
    let rig = Rig::new();
    let said =
        rig.twinpath(&rig.server, &["serve", "echo", "--on", "vs", "--udp", "7", "--priority", "fifo:100"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("choose normal, auto, nice:N"), "{}", said.stderr);
    let said = rig.twinpath(
        &rig.server,
        &["serve", "echo", "--on", "vs", "--udp", "7", "--latency-request-scope", "cpu"],
    );
    assert!(said.stderr.contains("--cpu"), "{}", said.stderr);
    let server = rig.serve(&["--priority", "auto"]);
    let priority = server.show("workers")[0]["priority"].as_str().unwrap().to_owned();
    assert!(["fifo:1", "nice:-20", "normal"].contains(&priority.as_str()), "{priority}");
    assert_eq!(server.interrupt(), Some(0));
}
