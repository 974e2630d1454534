//! `twinpath bridge`: an interface that user space owns completely, with another one in its place for the
//! kernel's own stack.

use std::fmt::Write as _;
use std::process::ExitCode;

use twinpath_bridge::{self as bridge, BridgePlan, Carrier};
use twinpath_config::Setting;
use twinpath_config::{
    Command, Config, Control, Given, Key, Mode, Overrides, Priority, Sandbox, Worker, keys,
};
use twinpath_host::Ready;
use twinpath_instance::plan::{idle_config, wanted};
use twinpath_time::Duration;

use crate::log::{LogArgs, Voice};
use crate::options::{HasKeys, KeyOptions};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device to own; the kernel must hold no address there
    #[arg(value_name = "PORT")]
    port: String,
    /// The TAP interface to create for the kernel's own stack
    #[arg(long, value_name = "NAME")]
    kernel: String,
    /// Who carries frames: kernel (if both interfaces are in one network namespace) or workers
    #[arg(long, default_value_t = Carrier::Kernel)]
    carrier: Carrier,
    /// Pairs of queues, each with a worker of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    queues: u32,
    #[command(flatten)]
    keys: KeyOptions<Bridge>,
    #[command(flatten)]
    log: LogArgs,
}

struct Bridge;

impl HasKeys for Bridge {
    const COMMAND: Command = Command::Bridge;

    /// A worker of a bridge has no ring to check: it spins by reading both descriptors, which takes CPU time from the
    /// programs that communicate through it. So it sleeps by default, and has no priority over them.
    fn usual() -> Config {
        let worker = Worker { mode: Mode::Interrupt, priority: Priority::Normal, ..Worker::default() };
        let control = Control { sandbox: Some(Sandbox::On), ..Control::default() };
        Config { worker, control, ..Config::default() }
    }

    fn help(key: &Key) -> Option<(&'static str, &'static str)> {
        (key.path == "worker.mode").then_some((
            "How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps)",
            "interrupt; adaptive if it has a goal",
        ))
    }
}

/// The configuration from the command line, and the values of keys that it does not give.
fn config(overrides: &Overrides) -> (Config, Config) {
    let mut usual = Bridge::usual();
    let worker = &overrides.worker;
    if worker.latency.is_some() || worker.cpu.is_some() || worker.spin_us.is_some() {
        // A goal, or a fixed spin, has no meaning in mode `interrupt`.
        usual.worker.mode = Mode::Adaptive;
    }
    let mut config = usual.clone();
    config.apply(overrides);
    (config, usual)
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let voice = crate::log::start(&args.log)?;
    crate::tune::start::undo_what_died();
    let (config, usual) = config(&args.keys.overrides);
    let Config { worker, control, .. } = &config;
    let plan = BridgePlan {
        port: args.port,
        kernel: args.kernel,
        carrier: args.carrier,
        queues: args.queues,
        fail_open: Duration::from_millis(worker.fail_open_ms.into()),
        cpus: worker.cpus.iter().map(|cpu| *cpu as usize).collect(),
        idle: idle_config(worker),
        machine: wanted(worker),
        sandbox: control.sandbox.unwrap_or(Sandbox::On),
        socket: control.socket.clone(),
        metrics: control.metrics.map(|address| address.0),
        settings: settings(&config, &usual, &args.keys.overrides),
    };
    let left = bridge::run(plan, |ready| announce(ready, voice))?;
    Ok(crate::ended(&left))
}

/// The keys for which a bridge has options, with their values.
fn settings(config: &Config, usual: &Config, overrides: &Overrides) -> Vec<Setting> {
    let has_option = |key: &Key| key.option.is_some_and(|option| option.of.contains(&Command::Bridge));
    let known: Vec<_> = keys().filter(|key| has_option(key)).map(|key| key.path).collect();
    let mut settings = config.settings(usual, &Given::of_command_line(overrides));
    settings.retain(|setting| known.contains(&setting.key.as_str()));
    settings
}

/// Prints that frames are carried: one line for programs, the rest for people.
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
