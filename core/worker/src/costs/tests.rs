use super::*;

fn state(name: &str, exit_us: u32) -> IdleState {
    IdleState { name: name.to_owned(), exit_us, disabled: false }
}

#[test]
fn caps_are_the_states_but_the_deepest() {
    let intel = [state("POLL", 0), state("C1", 2), state("C1E", 10), state("C6", 133)];
    assert_eq!(caps(&intel), [10, 2, 0]);
    let mut without_c6 = intel.clone();
    without_c6[3].disabled = true;
    assert_eq!(caps(&without_c6), [2, 0]);
    assert_eq!(caps(&[state("POLL", 0), state("haltpoll idle", 1)]), [0]);
    assert_eq!(caps(&[]), [0]);
}

#[test]
fn spreads_of_few() {
    assert_eq!(Spread::of(Vec::new()), None);
    assert_eq!(Spread::of(vec![7]), Some(Spread { p50_ns: 7, p99_ns: 7, count: 1 }));
    let hundred = Spread::of((1..=100).rev().collect());
    assert_eq!(hundred, Some(Spread { p50_ns: 51, p99_ns: 100, count: 100 }));
}

#[test]
fn what_is_measured_is_told_the_policy_and_reads_back() {
    let cpu = affinity::allowed_cpus().expect("allowed CPUs")[0];
    let costs = measure(cpu, Duration::from_millis(1));
    assert_eq!(costs.cpu as usize, cpu);
    assert!(costs.syscall_ns > 0 && costs.clock_ns > 0 && costs.wake_cpu_ns > 0, "{costs:?}");
    let timer = costs.timer.without.expect("timers can always be measured");
    assert!(timer.count > 0 && timer.p50_ns <= timer.p99_ns);
    if costs.from_cpu.is_some() {
        let wake = costs.wake.without.expect("there is another CPU");
        assert!(0 < wake.p50_ns && wake.p50_ns <= wake.p99_ns, "{wake:?}");
        assert_eq!(costs.wake.with.is_none(), costs.request.refused.is_some(), "{costs:?}");
    }
    let machine = costs.machine(false);
    assert_eq!(machine.wake_held_us, None);
    assert!(machine.wake_us > 0.0 && machine.timer_cpu_us > 0.0);

    // The output of `show --json` can be read back.
    let tree: Costs =
        Deserialize::deserialize(serde_json::to_value(&costs).expect("plain data")).expect("reads back");
    assert_eq!(tree, costs);
}
