//! Formats the cost of a wake-up on this machine, for `show machine` and `tune --check`.

use std::fmt::Write as _;

use twinpath_worker::costs::{Costs, Pair, Spread};

use super::grid::table;

/// A paragraph and a table.
pub(crate) fn render(costs: &Costs) -> String {
    let mut text = match costs.from_cpu {
        Some(from) => format!("waking up on CPU {}, from CPU {from}:", costs.cpu),
        None => format!("waking up on CPU {}, the only one:", costs.cpu),
    };
    let _ = write!(text, "\n  idle CPUs: {}", idle(costs));
    let _ = write!(text, "\n  latency request: {}", request(costs));
    let mut table = table(&["median / 99 %, us", "without request", "with request"], 1);
    let us = |spread: Option<Spread>| match spread {
        Some(Spread { p50_ns, p99_ns, .. }) => {
            format!("{:.1} / {:.1}", p50_ns as f64 / 1e3, p99_ns as f64 / 1e3)
        }
        None => "-".to_owned(),
    };
    let mut row = |name: &str, pair: Pair| {
        table.add_row([name.to_owned(), us(pair.without), us(pair.with)]);
    };
    row("wake-up from another CPU", costs.wake);
    row("wake-up from the same CPU", Pair { without: costs.wake_same_cpu, with: None });
    row("timer: how late", costs.timer);
    let _ = write!(text, "\n{table}");
    let _ = write!(
        text,
        "\n  CPU time of a sleep and a wake-up {:.1} us; a system call {:.2} us; a look at the clock {:.2} us",
        costs.wake_cpu_ns as f64 / 1e3,
        costs.syscall_ns as f64 / 1e3,
        costs.clock_ns as f64 / 1e3
    );
    let _ = write!(text, "\n  measured in {:.0} ms with {:.1} ms of CPU time", costs.took_ms, costs.cpu_ms);
    if let Some(share) = costs.idle_share.filter(|_| costs.is_disturbed()) {
        let _ = write!(
            text,
            "\n  the CPU was idle for {:.0} % of that time: other work hides what idle states cost",
            share * 100.0
        );
    }
    text
}

fn idle(costs: &Costs) -> String {
    let Some(driver) = &costs.idle_driver else {
        return "no cpuidle driver, so a latency request changes nothing".to_owned();
    };
    let mut text = format!("driver {driver}");
    if let Some(governor) = &costs.idle_governor {
        let _ = write!(text, ", governor {governor}");
    }
    let states = costs.idle_states.iter().map(|state| {
        let off = if state.disabled { ", off" } else { "" };
        format!("{} ({} us to leave{off})", state.name, state.exit_us)
    });
    let _ = write!(text, "; states, as it says: {}", states.collect::<Vec<_>>().join(", "));
    match costs.halt_poll_ns {
        Some(0) => text.push_str("; no polling before a halt"),
        Some(ns) => {
            let _ = write!(text, "; polls up to {} us before a halt", ns / 1000);
        }
        None => {}
    }
    text
}

fn request(costs: &Costs) -> String {
    let request = &costs.request;
    if let Some(refused) = &request.refused {
        return format!("refused: {refused}");
    }
    if request.tried.is_empty() {
        return "not tried".to_owned();
    }
    let who = if request.scope == "cpu" { "for this CPU alone" } else { "for all CPUs" };
    let tried = request
        .tried
        .iter()
        .map(|cap| format!("up to {} us: {:.1} us", cap.max_exit_us, cap.wake.p50_ns as f64 / 1e3));
    let tried = tried.collect::<Vec<_>>().join(", ");
    if request.helps {
        let cap = request.max_exit_us;
        format!(
            "shortens a wake-up, {who}; idle states of up to {cap} us serve best (wake-up with states of {tried})"
        )
    } else {
        format!("does not shorten a wake-up, {who} (wake-up with idle states of {tried})")
    }
}

#[cfg(test)]
mod tests {
    use twinpath_worker::costs::{Cap, IdleState, RequestCosts};

    use super::*;

    #[test]
    fn a_virtual_machine_where_the_request_helps() {
        let spread = |us: u64| Some(Spread { p50_ns: us * 1000, p99_ns: us * 2000, count: 60 });
        let state = |name: &str, exit_us| IdleState { name: name.to_owned(), exit_us, disabled: false };
        let costs = Costs {
            cpu: 1,
            from_cpu: Some(0),
            idle_driver: Some("haltpoll".to_owned()),
            idle_governor: Some("haltpoll".to_owned()),
            idle_states: vec![state("POLL", 0), state("haltpoll idle", 1)],
            halt_poll_ns: Some(0),
            wake: Pair { without: spread(40), with: spread(3) },
            wake_same_cpu: spread(2),
            timer: Pair { without: spread(45), with: spread(2) },
            request: RequestCosts {
                scope: "machine".to_owned(),
                helps: true,
                tried: vec![Cap { max_exit_us: 0, wake: spread(3).unwrap(), helps: true }],
                ..RequestCosts::default()
            },
            ..Costs::default()
        };
        let text = render(&costs);
        for said in [
            "waking up on CPU 1, from CPU 0:",
            "driver haltpoll, governor haltpoll; states, as it says: POLL (0 us to leave), haltpoll idle (1 us to leave); \
             no polling before a halt",
            "shortens a wake-up, for all CPUs; idle states of up to 0 us serve best (wake-up with states of up to 0 us: 3.0 us)",
            "40.0 / 80.0",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        let nothing = render(&Costs::default());
        assert!(nothing.contains("no cpuidle driver") && nothing.contains("not tried"), "{nothing}");
    }
}
