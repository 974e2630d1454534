//! What a user asks of `adaptive`, on real packets: a goal is obeyed, shown, changed and dropped while running.

use twinpath_sys::clock;

use crate::rig::{PORT, Rig, SERVER, Server};
use crate::root_or_skip;

/// The share of a core that the worker spins while packets come some 60 us apart, at random: no prediction helps, and a wake-up
/// without a latency request costs as much as the gap.
fn spun(rig: &Rig, server: &Server) -> f64 {
    let spun_ns = || server.show("workers")[0]["idle"]["spun_ns"].as_u64().unwrap();
    let load = ["--rate", "16000", "--arrivals", "poisson", "--mode", "poll", "--inflight", "1024"];
    // Time to learn in.
    rig.bench(&format!("{SERVER}:{PORT}"), &[&load[..], &["--duration", "0.6"]].concat());
    let (before, begun) = (spun_ns(), clock::now());
    rig.bench(&format!("{SERVER}:{PORT}"), &[&load[..], &["--duration", "1"]].concat());
    (spun_ns() - before) as f64 / clock::now().nanos_since(begun) as f64
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
    let rig = Rig::new();
    let goal = |server: &Server| server.show("workers")[0]["idle"]["goal"].as_str().unwrap().to_owned();
    let server = rig.serve(&["--latency-request", "never", "--cpu-budget", "2%"]);
    assert_eq!(goal(&server), "cpu 2%");
    let bounded = spun(&rig, &server);
    // What may be saved up is within the budget of a second; what others' time on its CPU adds is not its doing.
    assert!(bounded < 0.1, "{bounded:.3} of a core was spun");
    set(&rig, &server, &["0", "cpu", "90%"]);
    assert_eq!(goal(&server), "cpu 90%");
    let raised = spun(&rig, &server);
    assert!(raised > 0.15 && raised > 2.0 * bounded, "{raised:.3} of a core was spun, {bounded:.3} before");

    set(&rig, &server, &["all", "latency", "50us"]);
    assert_eq!(goal(&server), "latency 50us");
    set(&rig, &server, &["0", "latency", "none"]);
    assert_eq!(goal(&server), "latency and CPU are weighed");
}
