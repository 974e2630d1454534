//! The load over kernel sockets: one client thread per flow.

use std::thread;

use twinpath_load::Summary;
use twinpath_plain::{ClientConfig, ClientOutcome, PlainError, Progress, Stop, Wait, tcp_client, udp_client};
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

use super::Measured;
use super::plan::{Plan, Transport};

/// How long an adaptive client asks without sleeping after the last reply: some ten round trips between machines.
const ADAPTIVE_SPIN: Duration = Duration::from_micros(50);

/// Runs the plan to its end, or until `stop` is requested. `progress` has one entry per thread.
pub(crate) fn run(plan: &Plan, stop: &Stop, progress: &[Progress]) -> anyhow::Result<Measured> {
    let outcomes: Vec<Result<ClientOutcome, PlainError>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .zip(progress)
            .map(|(index, progress)| {
                let config = ClientConfig {
                    target: plan.target,
                    wait: wait_of(plan.mode),
                    load: plan.thread_load(index),
                    cpu: plan.thread_cpu(index),
                };
                scope.spawn(move || {
                    let outcome = match plan.transport {
                        Transport::Udp => udp_client(&config, stop, progress),
                        Transport::Tcp => tcp_client(&config, stop, progress),
                    };
                    if outcome.is_err() {
                        // What one thread cannot do, the others need not finish.
                        stop.request();
                    }
                    outcome
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut summary = Summary::empty();
    let mut cpu_time = Duration::ZERO;
    for outcome in outcomes {
        let outcome = outcome?;
        summary.merge(&outcome.summary);
        cpu_time += outcome.cpu_time;
    }
    let notes = match plan.mode {
        Mode::Adaptive => vec![format!(
            "adaptive on kernel sockets: asks without sleeping for {} us after each reply, then sleeps",
            ADAPTIVE_SPIN.as_micros()
        )],
        Mode::Interrupt | Mode::Poll => Vec::new(),
    };
    Ok(Measured { summary, cpu_time, path: "kernel".to_owned(), allocations_per_packet: None, notes })
}

fn wait_of(mode: Mode) -> Wait {
    match mode {
        Mode::Adaptive => Wait::SpinThenSleep(ADAPTIVE_SPIN),
        Mode::Interrupt => Wait::Sleep,
        Mode::Poll => Wait::Spin,
    }
}
