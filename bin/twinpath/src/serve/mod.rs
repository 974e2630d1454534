//! `twinpath serve`: a service on two paths, from the command line or a file.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod limits;
mod rpc;

use anyhow::bail;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use twinpath_config::{
    AttachAsked, Config, CpuGoal, FlowText, LatencyGoal, LatencyRequest, MetricsAddress, Mode, Overrides,
    PathAsked, Priority, RequestScope, Sandbox, ServiceKind, SourceText,
};
use twinpath_control::instance::{self, Loaded, Plan, Source};
use twinpath_host::Ready;
use twinpath_serve::Prototype;
use twinpath_sys::affinity;
use twinpath_wire::EtherType;

use crate::log::{LogArgs, Voice};

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "twinpath serve --config FILE [OPTIONS]\n       twinpath serve <echo|reflect|rpc> [OPTIONS]"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    service: Option<Service>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Subcommand)]
enum Service {
    /// Sends back every byte (RFC 862).
    Echo(EchoArgs),
    /// Sends frames of one EtherType back to their sender, addresses swapped; fast path only.
    Reflect(ReflectArgs),
    /// Answers ONC RPC version 2: NFSv3 (NULL, GETATTR) and MOUNT, on a small fixed tree in memory.
    Rpc(rpc::RpcArgs),
}

#[derive(clap::Args)]
struct EchoArgs {
    /// UDP port, served on the fast path and on the kernel path
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    udp: Option<NonZeroU16>,
    /// TCP port, served on the kernel path
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    tcp: Option<NonZeroU16>,
    /// Serve the ports only at this address of ours; may be given again [default: all]
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// Claim only this UDP flow, peer first: udp,10.9.0.1:4444,10.9.0.2:7; may be given again [default: the whole port]
    #[arg(long = "flow", value_name = "FLOW")]
    flows: Vec<FlowText>,
    /// Serve the ports only to senders in this prefix; may be given again [default: everybody]
    #[arg(long = "source", value_name = "PREFIX")]
    sources: Vec<SourceText>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
struct ReflectArgs {
    /// The type of the frames, such as 0x88b5
    #[arg(long, value_name = "TYPE")]
    ethertype: Option<EtherType>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// Interface to serve on
    #[arg(long, value_name = "IFACE")]
    on: Option<String>,
    /// auto (the default), xdp, xdp-zerocopy, packet or kernel
    #[arg(long)]
    path: Option<PathAsked>,
    /// How the packet path attaches at tc: auto (the default), tcx (BPF links) or clsact (classic filters)
    #[arg(long, value_name = "HOW")]
    attach: Option<AttachAsked>,
    /// Measure at start what attaching costs the kernel's own traffic (some 3 s), and let `--path auto` mind it
    #[arg(long)]
    measure_fallback: bool,
    /// The share it may cost before `--path auto` goes on to the next path, % [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    fallback_loss_max: Option<u32>,
    /// Frames that each receive ring holds while its worker is kept from it, 2 KiB each [default: 512]
    #[arg(long, value_name = "N")]
    ring_frames: Option<u32>,
    /// How a worker idles: adaptive (the default), interrupt or poll
    #[arg(long)]
    mode: Option<Mode>,
    /// Workers [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// CPUs for the workers, in turn, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    cpu: Option<Cpus>,
    /// Hold a CPU latency request while traffic lasts: auto (where it helps), always or never
    #[arg(long)]
    latency_request: Option<LatencyRequest>,
    /// For which CPUs: auto (the default), cpu (the workers' alone) or machine (all)
    #[arg(long, value_name = "SCOPE")]
    latency_request_scope: Option<RequestScope>,
    /// Idle states that take longer to leave are forbidden meanwhile, us; 0: all but the shallowest [default: measured]
    #[arg(long, value_name = "US")]
    latency_request_max_exit_us: Option<u32>,
    /// Priority of the workers: auto (before others on a CPU while they take little of it; the default), normal, slice:US, nice:N or
    /// fifo:N (real time)
    #[arg(long)]
    priority: Option<Priority>,
    /// Where others could not keep them from it: the share of a CPU that they share which they spin at most, % [default: 10]
    #[arg(long, value_name = "PERCENT")]
    spin_share_max: Option<u32>,
    /// When frames have waited so long for a worker, the kernel serves instead, ms; 0: never [default: 100]
    #[arg(long, value_name = "MS")]
    fail_open_ms: Option<u32>,
    #[command(flatten)]
    goal: GoalArgs,
    /// Take the sockets over from the running instance with this command socket, which then drains and ends
    #[arg(long, value_name = "PATH")]
    take_over: Option<PathBuf>,
    /// Hold the sockets of the running instance with this command socket, and serve only when it is stuck as a whole, or gone
    #[arg(long, value_name = "PATH", conflicts_with = "take_over")]
    standby: Option<PathBuf>,
    /// Give up rights, files and system calls that are not needed any more once it runs: on (the default) or off
    #[arg(long)]
    sandbox: Option<Sandbox>,
    /// The command socket [default: in /run/twinpath]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Offer metrics for Prometheus over HTTP at /metrics, on loopback unless told otherwise
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    metrics: Option<MetricsAddress>,
    /// Read the configuration from a TOML file; options given here override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    limits: limits::LimitArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// What a worker is to reach by idling, and how experts say it; the same for every command that has workers.
#[derive(clap::Args)]
pub(crate) struct GoalArgs {
    /// How long after the last traffic it is held, ms [default: learnt; 1000 in interrupt]
    #[arg(long, value_name = "MS")]
    pub(crate) linger_ms: Option<u64>,
    /// What adaptive is to reach: 99 % of the packets found within this, as 20us
    #[arg(long, value_name = "TIME", conflicts_with_all = ["cpu_budget", "spin_us"])]
    pub(crate) latency: Option<LatencyGoal>,
    /// What adaptive is to reach: at most this of a core spent waiting, as 5%
    #[arg(long, value_name = "PERCENT", conflicts_with = "spin_us")]
    pub(crate) cpu_budget: Option<CpuGoal>,
    /// For experts: adaptive spins for just so long after the last packet, us [default: learnt]
    #[arg(long, value_name = "US")]
    pub(crate) spin_us: Option<u64>,
}

/// A newtype, as clap would take a plain list for a repeated option.
#[derive(Clone)]
pub(crate) struct Cpus(pub(crate) Vec<u32>);

pub(crate) fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let cpus = affinity::parse_cpu_list(text).map_err(|error| error.to_string())?;
    // The kernel knows no more than 1024.
    Ok(Cpus(cpus.into_iter().map(|cpu| cpu as u32).collect()))
}

/// A port that can be served.
fn parse_port(text: &str) -> Result<NonZeroU16, String> {
    text.parse().map_err(|_| "ports are 1 to 65535".to_owned())
}

impl Args {
    /// How it speaks.
    const fn log(&self) -> &LogArgs {
        let common = match &self.service {
            None => &self.common,
            Some(Service::Echo(args)) => &args.common,
            Some(Service::Reflect(args)) => &args.common,
            Some(Service::Rpc(args)) => &args.common,
        };
        &common.log
    }

    /// What the command line says, the file it names, and the instances to take over from, or to stand by for.
    fn overrides(self) -> (Overrides, Option<PathBuf>, [Option<PathBuf>; 2]) {
        let (own, common) = match self.service {
            None => (Overrides::default(), self.common),
            Some(Service::Echo(EchoArgs { udp, tcp, addresses, flows, sources, common })) => {
                let kind = Some(ServiceKind::Echo);
                (Overrides { kind, udp, tcp, addresses, flows, sources, ..Overrides::default() }, common)
            }
            Some(Service::Reflect(ReflectArgs { ethertype, common })) => {
                let (kind, ethertype) = (Some(ServiceKind::Reflect), ethertype.map(|ethertype| ethertype.0));
                (Overrides { kind, ethertype, ..Overrides::default() }, common)
            }
            Some(Service::Rpc(rpc::RpcArgs { udp, tcp, addresses, flows, sources, own, common })) => {
                let (kind, rpc) = (Some(ServiceKind::Rpc), own.into());
                (Overrides { kind, udp, tcp, addresses, flows, sources, rpc, ..Overrides::default() }, common)
            }
        };
        let overrides = Overrides {
            interface: common.on,
            path: common.path,
            attach: common.attach,
            measure_fallback: common.measure_fallback,
            fallback_loss_max: common.fallback_loss_max,
            ring_frames: common.ring_frames,
            workers: common.workers,
            cpus: common.cpu.map(|cpus| cpus.0),
            mode: common.mode,
            latency: common.goal.latency,
            cpu: common.goal.cpu_budget,
            spin_us: common.goal.spin_us,
            linger_ms: common.goal.linger_ms,
            latency_request: common.latency_request,
            latency_request_scope: common.latency_request_scope,
            latency_request_max_exit_us: common.latency_request_max_exit_us,
            priority: common.priority,
            spin_share_max: common.spin_share_max,
            fail_open_ms: common.fail_open_ms,
            sandbox: common.sandbox,
            socket: common.socket,
            metrics: common.metrics,
            limits: common.limits.into(),
            ..own
        };
        (overrides, common.config, [common.take_over, common.standby])
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let voice = crate::log::start(args.log())?;
    crate::tune::start::undo_what_died();
    if args.service.is_none() && args.common.config.is_none() {
        bail!(
            "what is to be served? Name a service, as in `twinpath serve echo --on eth0 --udp 7`, or a file that says it: \
             `twinpath serve --config FILE` (docs/config.md shows one)"
        );
    }
    let (overrides, file, [take_over, stand_by]) = args.overrides();
    let open_files = raise_open_files();
    let Loaded { config, plan, services } = load(file.as_deref(), &overrides, open_files)?;
    let source = file.map(|file| {
        let read_from = file.clone();
        let read = move || {
            load(Some(&read_from), &overrides, open_files)
                .map_err(|error| twinpath_measure::in_words(error.as_ref()))
        };
        Source { file, config, read: Box::new(read) }
    });
    instance::run(Plan { take_over, stand_by, ..plan }, &services, source, |ready| announce(ready, voice))?;
    Ok(ExitCode::SUCCESS)
}

/// What is to be done, from the file and the command line.
fn load(file: Option<&Path>, overrides: &Overrides, open_files: Option<u64>) -> anyhow::Result<Loaded> {
    let mut config = Config::load(file, overrides, open_files)?;
    config.control.sandbox.get_or_insert(Sandbox::On);
    let (plan, services) = plan(&config)?;
    Ok(Loaded { config, plan, services })
}

/// Takes as many open files as the process may have; that many, or `None` if there is no limit.
fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    // Refused: then the soft limit stays what it was, and running out of files is counted where it happens.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    limit.maximum
}

/// What the configuration asks for, and the services themselves.
fn plan(config: &Config) -> anyhow::Result<(Plan, Vec<Box<dyn Prototype>>)> {
    let Some(mut plan) = Plan::of(config) else {
        bail!("which interface? add --on IFACE, or name it under [interface] in the configuration");
    };
    for (planned, asked) in plan.services.iter_mut().zip(&config.services) {
        planned.rpcbind = twinpath_services::registrations(config, asked);
    }
    let services = config.services.iter().map(|asked| twinpath_services::prototype(config, asked));
    Ok((plan, services.collect::<Result<_, _>>()?))
}

/// Says that it serves: a line for programs, the rest for people.
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
        let _ = writeln!(out, "serving {} ({ports}) on {}", report.instance.service, interface.name);
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
