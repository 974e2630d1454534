//! Tests of goals for `adaptive` on real packets: a goal is obeyed, shown, changed and removed while running.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use twinpath_sys::clock;
use twinpath_worker::thread::sleep::Sleeper;

use crate::rig::{PATIENCE, PORT, Rig, SERVER, Server, Started};
use crate::root_or_skip;

/// Held by each test here, because one measures the CPU time that another one's busy processes would take.
static ALONE: Mutex<()> = Mutex::new(());

/// The most that is spun with a budget of 2 %, as a share of a core: time saved before may be spun as well.
const SPUN_BY_BUDGET: f64 = 0.06;

/// The share of a core that the worker spins while packets come randomly about 60 us apart: no prediction helps, and a
/// wake-up without a latency request costs as much as the gap.
fn spun(rig: &Rig, server: &Server) -> f64 {
    let spun_ns = || server.show("workers")[0]["idle"]["spun_ns"].as_u64().unwrap();
    let load = ["--rate", "16000", "--arrivals", "poisson", "--mode", "poll", "--inflight", "1024"];
    // Time for learning.
    rig.bench(&format!("{SERVER}:{PORT}"), &[&load[..], &["--duration", "0.6"]].concat());
    let (before, begun) = (spun_ns(), clock::now());
    rig.bench(&format!("{SERVER}:{PORT}"), &[&load[..], &["--duration", "1"]].concat());
    (spun_ns() - before) as f64 / clock::now().nanos_since(begun) as f64
}

/// Measures until `so` holds of the share, or patience ends. While others want the CPUs (a worker whose CPU is shared
/// sleeps at once), or the hypervisor takes them, a share says nothing about the goal.
fn spun_until(rig: &Rig, server: &Server, so: impl Fn(f64) -> bool) -> f64 {
    let begun = clock::now();
    loop {
        let share = spun(rig, server);
        if so(share) || clock::now().since(begun) > PATIENCE {
            return share;
        }
    }
}

fn set(rig: &Rig, server: &Server, arguments: &[&str]) {
    let socket = server.socket.to_str().unwrap();
    let said = rig.twinpath(&rig.server, &[&["set", "worker"], arguments, &["--socket", socket]].concat());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn a_share_of_a_core_bounds_what_is_spun_until_it_is_raised() {
    if !root_or_skip() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::of_workers();
    let goal = |server: &Server| server.show("workers")[0]["idle"]["goal"].as_str().unwrap().to_owned();
    let server = rig.serve(&["--latency-request", "never", "--cpu-budget", "2%"]);
    assert_eq!(goal(&server), "cpu 2%");
    let bounded = spun_until(&rig, &server, |share| share < SPUN_BY_BUDGET);
    assert!(bounded < SPUN_BY_BUDGET, "{bounded:.3} of a core was spun");
    set(&rig, &server, &["0", "cpu", "90%"]);
    assert_eq!(goal(&server), "cpu 90%");
    let is_raised = |share| share > SPUN_BY_BUDGET.max(2.0 * bounded);
    let raised = spun_until(&rig, &server, is_raised);
    assert!(is_raised(raised), "{raised:.3} of a core was spun, {bounded:.3} before");

    set(&rig, &server, &["all", "latency", "50us"]);
    assert_eq!(goal(&server), "latency 50us");
    set(&rig, &server, &["0", "latency", "none"]);
    assert_eq!(goal(&server), "latency and CPU are weighed");
}

/// A process that always wants a CPU. It ends with this value, and with the thread that started it.
struct Busy {
    _process: Started,
}

impl Busy {
    fn new(rig: &Rig) -> Self {
        Self { _process: rig.run(&rig.server, "sh", &["-c", "while :; do :; done"]) }
    }
}

/// The share of a core that the worker uses during the next two seconds, in which no packet comes.
fn silent_share(server: &Server) -> f64 {
    let worker = || {
        let worker = server.show("workers")[0].clone();
        let woken = worker["idle"]["woken_by_packet"].as_u64().unwrap();
        (worker["cpu_ns"].as_u64().unwrap(), worker["service_time"]["count"].as_u64().unwrap(), woken)
    };
    let (before, begun) = (worker(), clock::now());
    // No event to wait for: the test measures this silence.
    Sleeper::new().expect("a timer").sleep(begun + Duration::from_secs(2));
    let (after, passed) = (worker(), clock::now().nanos_since(begun));
    assert_eq!((after.1, after.2), (before.1, before.2), "no packet came");
    (after.0 - before.0) as f64 / passed as f64
}

#[test]
fn silence_after_load_beside_busy_processes_is_slept_through() {
    if !root_or_skip() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::of_workers();
    let server = rig.serve(&[]);
    let busy = [Busy::new(&rig), Busy::new(&rig)];
    rig.bench(&format!("{SERVER}:{PORT}"), &["--rate", "20000", "--duration", "4"]);
    let beside = silent_share(&server);
    drop(busy);
    let alone = silent_share(&server);
    assert!(beside <= 0.05 && alone <= 0.05, "{beside:.3} of a core beside busy processes, {alone:.3} alone");
    let idle = server.show("workers")[0]["idle"].clone();
    assert_eq!(idle["spin_limit_sleeps"], 0, "the policy keeps its bound by itself: {idle}");
    let decided = idle["decided"].as_str().unwrap();
    assert!(decided.starts_with("nothing has come for"), "{decided}");
}
