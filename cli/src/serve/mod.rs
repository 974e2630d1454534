//! `twinpath serve`: a service on two paths, from the command line or a file.

mod nfs;
mod services;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use twinpath_config::{Command, Config, Control, Overrides, Sandbox, ServiceKind};
use twinpath_host::{Ready, Signals};
use twinpath_instance::plan::Plan;
use twinpath_instance::{self as instance, InstanceError, Loaded, Parts, Source};
use twinpath_serve::Prototype;
use twinpath_sys::descriptors;

use self::nfs::NfsHost;
use self::services::{prototype, registrations};
use crate::log::{LogArgs, Voice};
use crate::options::{HasKeys, KeyOptions};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "twinpath serve --config FILE [OPTIONS]\n       twinpath serve <echo|discard|chargen|reflect|rpc|nfs> [OPTIONS]"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    service: Option<Service>,
    #[command(flatten)]
    options: Options<FromFile>,
}

#[derive(clap::Subcommand)]
enum Service {
    /// Sends back every byte (RFC 862).
    Echo(Options<Echo>),
    /// Drops every byte (RFC 863), and reports how much arrived of a stream of `bench stream`.
    Discard(Options<Discard>),
    /// Sends characters for as long as the peer reads (RFC 864); TCP only.
    Chargen(Options<Chargen>),
    /// Sends frames of one EtherType back to their sender, addresses swapped; fast path only.
    Reflect(Options<Reflect>),
    /// Answers ONC RPC version 2: NFSv3 (NULL, GETATTR) and MOUNT, on a small fixed tree in memory.
    Rpc(Options<Rpc>),
    /// Serves directories of this host by NFS version 3, to clients that mount them.
    Nfs(Options<Nfs>),
}

/// The options of one way to call `serve`.
#[derive(clap::Args)]
struct Options<C: HasKeys> {
    #[command(flatten)]
    keys: KeyOptions<C>,
    /// Take over the sockets of the running instance with this command socket, which then drains and ends
    #[arg(long, value_name = "PATH")]
    take_over: Option<PathBuf>,
    /// Hold the sockets of the running instance with this command socket, and serve only when it is stuck or has ended
    #[arg(long, value_name = "PATH", conflicts_with = "take_over")]
    standby: Option<PathBuf>,
    /// Read the configuration from a TOML file; options given here override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

/// Implements [`HasKeys`] for `serve` and its subcommands.
macro_rules! commands {
    ($($(#[$about:meta])+ $Name:ident = $COMMAND:ident;)+) => {
        $($(#[$about])+
        struct $Name;

        impl HasKeys for $Name {
            const COMMAND: Command = Command::$COMMAND;
            const CHECKS_RANGES: bool = false;

            fn usual() -> Config {
                usual()
            }
        })+
    };
}

commands! {
    /// `twinpath serve --config FILE`
    FromFile = Serve;
    /// `twinpath serve echo`
    Echo = ServeEcho;
    /// `twinpath serve discard`
    Discard = ServeDiscard;
    /// `twinpath serve chargen`
    Chargen = ServeChargen;
    /// `twinpath serve reflect`
    Reflect = ServeReflect;
    /// `twinpath serve rpc`
    Rpc = ServeRpc;
    /// `twinpath serve nfs`
    Nfs = ServeNfs;
}

/// The values from the command line.
struct Given {
    overrides: Overrides,
    file: Option<PathBuf>,
    take_over: Option<PathBuf>,
    stand_by: Option<PathBuf>,
    log: LogArgs,
}

impl<C: HasKeys> Options<C> {
    fn given(self, kind: Option<ServiceKind>) -> Given {
        let Self { keys, take_over, standby, config, log } = self;
        let mut overrides = keys.overrides;
        overrides.service.kind = kind.map(Some);
        Given { overrides, file: config, take_over, stand_by: standby, log }
    }
}

impl Args {
    fn given(self) -> Given {
        match self.service {
            None => self.options.given(None),
            Some(Service::Echo(options)) => options.given(Some(ServiceKind::Echo)),
            Some(Service::Discard(options)) => options.given(Some(ServiceKind::Discard)),
            Some(Service::Chargen(options)) => options.given(Some(ServiceKind::Chargen)),
            Some(Service::Reflect(options)) => options.given(Some(ServiceKind::Reflect)),
            Some(Service::Rpc(options)) => options.given(Some(ServiceKind::Rpc)),
            Some(Service::Nfs(options)) => options.given(Some(ServiceKind::Nfs)),
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Given { overrides, file, take_over, stand_by, log } = args.given();
    let voice = crate::log::start(&log)?;
    crate::tune::start::undo_what_died();
    if overrides.service.kind.is_none() && file.is_none() {
        bail!(
            "what is to be served? Name a service, as in `twinpath serve echo --on eth0 --udp 7`, or a file that says it: \
             `twinpath serve --config FILE` (docs/config.md shows one)"
        );
    }
    let open_files = descriptors::raise_limit();
    let nfs = Arc::new(NfsHost::default());
    let Loaded { config, plan, services, .. } = load(file.as_deref(), &overrides, open_files, &nfs)?;
    let source = file.map(|file| {
        let read_from = file.clone();
        let read = move || {
            load(Some(&read_from), &overrides, open_files, &nfs)
                .map_err(|error| twinpath_clients::measure::in_words(error.as_ref()))
        };
        Source { file, config, read: Box::new(read) }
    });
    let (_, signals) = Signals::of_program();
    let plan = Plan { take_over, stand_by, ..plan };
    let announce = |ready: &Ready, _: &Plan| announce(ready, voice);
    let parts = Parts {
        services: &services,
        measure_fallback: Some(twinpath_clients::fallback::measure_for_instance),
    };
    match instance::run(plan, parts, source, signals.with_those_of_process(), announce) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(InstanceError::LeftBehind(left)) => Ok(crate::ended(&left)),
        Err(error) => Err(error.into()),
    }
}

/// The values of keys that are not given: the program confines itself.
fn usual() -> Config {
    let control = Control { sandbox: Some(Sandbox::On), ..Control::default() };
    Config { control, ..Config::default() }
}

/// The plan from the file and the command line.
fn load(
    file: Option<&Path>,
    overrides: &Overrides,
    open_files: Option<u64>,
    nfs: &Arc<NfsHost>,
) -> anyhow::Result<Loaded> {
    let (mut config, given) = Config::load(file, overrides, open_files)?;
    config.control.sandbox.get_or_insert(Sandbox::On);
    nfs.begin();
    let (mut plan, services) = plan(&config, nfs)?;
    plan.settings = config.settings(&usual(), &given);
    let nfs = Arc::clone(nfs);
    Ok(Loaded { config, plan, services, applied: Some(Box::new(move || nfs.in_force())) })
}

/// The plan of a configuration, and the services themselves.
fn plan(config: &Config, nfs: &NfsHost) -> anyhow::Result<(Plan, Vec<Box<dyn Prototype>>)> {
    let Some(mut plan) = Plan::of(config) else {
        bail!("which interface? add --on IFACE, or name it under [interface] in the configuration");
    };
    for (planned, asked) in plan.services.iter_mut().zip(&config.services) {
        planned.rpcbind = registrations(config, asked);
    }
    let services = config.services.iter().map(|asked| prototype(config, asked, nfs));
    Ok((plan, services.collect::<Result<_, _>>()?))
}

/// Prints that it serves: one line for programs, the rest for people.
fn announce(ready: &Ready, voice: Voice) {
    let report = &ready.report;
    let (mut facts, mut out) = (Vec::new(), String::new());
    for interface in &report.interfaces {
        facts.push(serde_json::json!({
            "pid": report.instance.pid,
            "socket": ready.socket,
            "interface": interface.name,
            "path": interface.path,
            "metrics": ready.metrics,
        }));
        let ports = report.instance.ports.join(" and ");
        let _ = writeln!(out, "serving {} ({ports}) on {}", report.instance.kind, interface.name);
        let _ = writeln!(out, "  path {}: {}", interface.path, interface.why);
        for not in &interface.why_not {
            let _ = writeln!(out, "  not {}: {}", not.path, not.reason);
        }
        for line in interface.fallback.iter().flat_map(crate::show::fallback::lines) {
            let _ = writeln!(out, "  {line}");
        }
    }
    for claim in &report.rules.claims {
        let _ = writeln!(out, "  claimed: {claim}; it passes nftables, conntrack and cgroup programs by");
    }
    let claims = report.services.iter().flat_map(|service| &service.claims);
    for claim in claims.filter(|claim| claim.why.contains("is no address of")) {
        let _ = writeln!(out, "  not claimed: {}; {}", claim.claim, claim.why);
    }
    for service in report.services.iter().filter(|service| !service.unanswered_ports.is_empty()) {
        let _ = writeln!(out, "  not answered by {}: {}", service.name, service.unanswered_ports);
    }
    if let Some(worker) = report.workers.first() {
        let _ =
            writeln!(out, "  mode {}; CPU latency request {}", worker.mode, worker.latency_request.verdict);
    }
    if let Some(address) = ready.metrics {
        let open = if address.ip().is_loopback() { "" } else { ", open to everybody who can reach it" };
        let _ = writeln!(out, "  metrics at http://{address}/metrics{open}");
    }
    let _ = writeln!(out, "  frame memory {:.1} MiB; ask with: twinpath show", report.instance.pool_mib);
    voice.ready(&facts, &out);
}
