//! `twinpath switch`: an Ethernet switch between interfaces and processes, from the command line or a file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use twinpath_config::{Command, Config, Control, Given, Key, Mode, Overrides, Priority, Sandbox, Worker};
use twinpath_host::Ready;
use twinpath_instance::plan::{idle_config, wanted};
use twinpath_switch::{self as switching, Loaded, Source, SwitchPlan};
use twinpath_sys::descriptors;

use crate::log::{LogArgs, Voice};
use crate::options::{HasKeys, KeyOptions};

#[derive(clap::Args)]
#[command(
    override_usage = "twinpath switch NAME --port PORT [--port PORT]... [OPTIONS]\n       twinpath switch --config FILE [OPTIONS]"
)]
pub(crate) struct Args {
    /// Its name, for `twinpath show` and metrics
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    keys: KeyOptions<Switch>,
    /// Read the configuration from a TOML file; options given here override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

struct Switch;

impl HasKeys for Switch {
    const COMMAND: Command = Command::Switch;
    const CHECKS_RANGES: bool = false;

    /// Its ports have no ring to check. Spinning reads their descriptors, using CPU time that the programs
    /// communicating through them need for their next frame. So it sleeps, and has no priority over them.
    fn usual() -> Config {
        let worker = Worker { mode: Mode::Interrupt, priority: Priority::Normal, ..Worker::default() };
        let control = Control { sandbox: Some(Sandbox::On), ..Control::default() };
        let switch = Some(twinpath_config::Switch::default());
        Config { worker, control, switch, ..Config::default() }
    }

    fn help(key: &Key) -> Option<(&'static str, &'static str)> {
        (key.path == "worker.mode").then_some((
            "How a worker idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps)",
            "interrupt; adaptive if it has a goal",
        ))
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let voice = crate::log::start(&args.log)?;
    crate::tune::start::undo_what_died();
    // Each interface takes two descriptors.
    descriptors::raise_limit();
    let mut overrides = args.keys.overrides;
    overrides.switch.name = args.name.map(Some).or(overrides.switch.name);
    let (Loaded { config, given }, usual) = load(args.config.as_deref(), &overrides)?;
    let source = args.config.map(|file| {
        let read_from = file.clone();
        let read = move || {
            let loaded = load(Some(&read_from), &overrides);
            loaded
                .map(|(loaded, _)| loaded)
                .map_err(|error| twinpath_clients::measure::in_words(error.as_ref()))
        };
        Source { file, read: Box::new(read) }
    });
    let left = switching::run(plan(config, usual, given), source, |ready| announce(ready, voice))?;
    Ok(crate::ended(&left))
}

/// The values from the file and the command line, and those of keys that neither gives.
fn load(file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<(Loaded, Config)> {
    let (mut config, given) = Config::load_switch(file, overrides)?;
    let usual = usual(&mut config, &given);
    Ok((Loaded { config, given }, usual))
}

fn plan(config: Config, usual: Config, given: Given) -> SwitchPlan {
    let Config { worker, control, switch, .. } = &config;
    SwitchPlan {
        name: switch.as_ref().and_then(|switch| switch.name.clone()).unwrap_or_default(),
        cpus: worker.cpus.iter().map(|cpu| *cpu as usize).collect(),
        idle: idle_config(worker),
        machine: wanted(worker),
        sandbox: control.sandbox.unwrap_or(Sandbox::On),
        socket: control.socket.clone(),
        metrics: control.metrics.map(|address| address.0),
        config,
        usual,
        given,
    }
}

/// Gives keys that are not given their values for a switch; returns these.
fn usual(config: &mut Config, given: &Given) -> Config {
    let mut usual = Switch::usual();
    let worker = &mut config.worker;
    if worker.latency.is_some() || worker.cpu.is_some() || worker.spin_us.is_some() {
        // A goal, or a fixed spin, has no meaning in mode `interrupt`.
        usual.worker.mode = Mode::Adaptive;
    }
    if !given.has("worker.mode") {
        worker.mode = usual.worker.mode;
    }
    if !given.has("worker.priority") {
        worker.priority = usual.worker.priority;
    }
    if !given.has("control.sandbox") {
        config.control.sandbox = usual.control.sandbox;
    }
    usual
}

/// Prints that it carries frames: one line for programs, the rest for people.
fn announce(ready: &Ready, voice: Voice) {
    let report = &ready.report;
    let name = report.instance.ports.join("");
    let mut out = String::new();
    let facts = serde_json::json!({
        "pid": report.instance.pid,
        "socket": ready.socket,
        "switch": name,
        "ports": report.interfaces.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(),
        "metrics": ready.metrics,
    });
    let _ = writeln!(out, "switch {name} with {} ports", report.interfaces.len());
    for port in &report.interfaces {
        let _ = writeln!(out, "  {} ({}): {}", port.name, port.link, port.why);
    }
    if let Some(worker) = report.workers.first() {
        let workers = match report.workers.len() {
            1 => "1 worker".to_owned(),
            count => format!("{count} workers"),
        };
        let request = &worker.latency_request.verdict;
        let _ = writeln!(out, "  {workers}, mode {}; CPU latency request {request}", worker.mode);
    }
    if let Some(address) = ready.metrics {
        let _ = writeln!(out, "  metrics at http://{address}/metrics");
    }
    let _ = writeln!(out, "  frame memory {:.1} MiB; ask with: twinpath show", report.instance.pool_mib);
    voice.ready(&[facts], &out);
}
