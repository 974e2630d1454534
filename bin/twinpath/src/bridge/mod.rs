//! `twinpath bridge`: an interface that user space owns wholly, and one for the kernel's own stack in its place.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use twinpath_config::{
    LatencyRequest, MetricsAddress, Mode, Priority, RequestScope, Sandbox, Worker, fail_open_fault, goal,
};
use twinpath_exception_port::{self as bridge, BridgePlan, Carrier};
use twinpath_host::Ready;
use twinpath_machine::Wanted;
use twinpath_time::Duration;
use twinpath_worker::idle::IdleConfig;

use crate::log::{LogArgs, Voice};
use crate::serve::{Cpus, GoalArgs, parse_cpus};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device to own; the kernel must hold no address there
    #[arg(value_name = "PORT")]
    port: String,
    /// The TAP interface to make, where the kernel's own stack lives
    #[arg(long, value_name = "NAME")]
    kernel: String,
    /// Who carries frames: kernel (where both interfaces are in one network namespace) or workers
    #[arg(long, default_value_t = Carrier::Kernel)]
    carrier: Carrier,
    /// Pairs of queues, each with a worker of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    queues: u32,
    /// When frames have waited so long for a worker, the kernel carries them, ms; 0: never
    #[arg(long, value_name = "MS", default_value_t = Worker::default().fail_open_ms, value_parser = parse_fail_open_ms)]
    fail_open_ms: u32,
    /// How a worker idles: adaptive, interrupt or poll [default: interrupt; adaptive if told what it is to reach]
    #[arg(long)]
    mode: Option<Mode>,
    /// CPUs for the workers, in turn, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    cpu: Option<Cpus>,
    /// Hold a CPU latency request while traffic lasts: auto (where it helps), always or never
    #[arg(long, default_value_t = LatencyRequest::Auto)]
    latency_request: LatencyRequest,
    /// For which CPUs: auto, cpu (the workers' alone) or machine (all)
    #[arg(long, value_name = "SCOPE", default_value_t = RequestScope::Auto)]
    latency_request_scope: RequestScope,
    /// Idle states that take longer to leave are forbidden meanwhile, us; 0: all but the shallowest [default: measured]
    #[arg(long, value_name = "US")]
    latency_request_max_exit_us: Option<u32>,
    /// Priority of the workers: normal, auto (before others on a CPU while they take little of it), slice:US, nice:N or fifo:N (real
    /// time)
    #[arg(long, default_value_t = Priority::Normal)]
    priority: Priority,
    /// Where others could not keep them from it: the share of a CPU that they share which they spin at most, % [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=90))]
    spin_share_max: Option<u32>,
    #[command(flatten)]
    goal: GoalArgs,
    /// Give up rights, files and system calls that are not needed any more once it runs: on or off
    #[arg(long, default_value = "on")]
    sandbox: Sandbox,
    #[command(flatten)]
    log: LogArgs,
    /// Offer metrics for Prometheus over HTTP at /metrics, on loopback unless told otherwise
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    metrics: Option<MetricsAddress>,
    /// The command socket [default: in /run/twinpath]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let voice = crate::log::start(&args.log)?;
    crate::tune::start::undo_what_died();
    let plan = BridgePlan {
        port: args.port,
        kernel: args.kernel,
        carrier: args.carrier,
        queues: args.queues,
        fail_open: Duration::from_millis(args.fail_open_ms.into()),
        cpus: args.cpu.map(|cpus| cpus.0.into_iter().map(|cpu| cpu as usize).collect()).unwrap_or_default(),
        idle: IdleConfig {
            mode: args.mode.unwrap_or_else(|| mode_for(&args.goal)),
            goal: goal(args.goal.latency, args.goal.cpu_budget),
            spin: args.goal.spin_us.map(Duration::from_micros),
            linger: args.goal.linger_ms.map(Duration::from_millis),
            ..IdleConfig::default()
        },
        machine: Wanted {
            request: args.latency_request,
            scope: args.latency_request_scope,
            max_exit_us: args.latency_request_max_exit_us,
            priority: args.priority,
            spin_share_max: args.spin_share_max,
        },
        sandbox: args.sandbox,
        socket: args.socket,
        metrics: args.metrics.map(|address| address.0),
    };
    bridge::run(plan, |ready| announce(ready, voice))?;
    Ok(ExitCode::SUCCESS)
}

fn parse_fail_open_ms(text: &str) -> Result<u32, String> {
    let ms = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    fail_open_fault(ms).map_or(Ok(ms), Err)
}

/// A carrier has no ring to look into: it spins by reading both fds, on CPU time that those who talk through it need for their next
/// frame. So it sleeps, unless it was told what spinning is to reach.
const fn mode_for(goal: &GoalArgs) -> Mode {
    match (goal.latency, goal.cpu_budget, goal.spin_us) {
        (None, None, None) => Mode::Interrupt,
        _ => Mode::Adaptive,
    }
}

/// Says that frames are carried: a line for programs, the rest for people.
fn announce(ready: &Ready, voice: Voice) {
    let report = &ready.report;
    let [port, kernel] = report.interfaces.as_slice() else { return };
    let mut out = String::new();
    let facts = serde_json::json!({
        "pid": report.instance.pid,
        "socket": ready.socket,
        "interface": port.name,
        "kernel": kernel.name,
        "path": port.path,
        "metrics": ready.metrics,
    });
    let _ =
        writeln!(out, "{} is the kernel's {} from here on, with its address and MTU", kernel.name, port.name);
    for interface in [port, kernel] {
        let _ = writeln!(out, "  {} ({}): {}", interface.name, interface.link, interface.why);
    }
    if let Some(worker) = report.workers.first() {
        let queues = report.workers.len();
        let _ = writeln!(
            out,
            "  queues {queues}; mode {}; CPU latency request {}",
            worker.mode, worker.latency_request.verdict
        );
    }
    let _ = writeln!(out, "  frame memory {:.1} MiB; ask with: twinpath show", report.instance.pool_mib);
    voice.ready(&[facts], &out);
}
