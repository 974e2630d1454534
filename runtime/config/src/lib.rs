//! The configuration of an instance: a TOML file, overridden by the command line.
//!
//! All mistakes are told at once, each with the file, the line, the key and what to do. docs/config.md describes every key; its example is
//! [`EXAMPLE`], which a test reads.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::path::{Path as FilePath, PathBuf};

use serde::{Deserialize, Serialize};

pub use twinpath_worker::idle::{Mode, RequestSetting as LatencyRequest};
pub use twinpath_worker::priority::Priority;
pub use twinpath_worker::request::RequestScope;

pub use changes::{Changes, Difference, Origin};
pub use control::{AddressError, Control, MetricsAddress, Sandbox};
pub use fault::{ConfigError, Fault, Mistake};
pub use goal::{CpuGoal, LatencyGoal, goal};
pub use limits::{LimitOverrides, Limits};
pub use path::{AttachAsked, Path, PathAsked, UnknownAttach, UnknownPath};
pub use pool::Pool;
pub use rpc::{Rpc, RpcOverrides};
pub use service::{FlowText, Service, ServiceKind, SourceText};

use self::reading::{Read, Unread};

mod changes;
mod control;
mod fault;
mod goal;
mod limits;
mod path;
mod pool;
mod reading;
mod rpc;
mod service;

/// A complete configuration with every key, as shown in docs/config.md.
pub const EXAMPLE: &str = include_str!("example.toml");

/// Longest name of an interface: `IFNAMSIZ` of linux/if.h, less its terminator.
const INTERFACE_NAME_MAX: usize = 15;
/// Workers: one per queue on the largest common NICs.
const WORKERS_MAX: u32 = 64;
/// A second of spinning is a core burnt; who wants that asks for `poll`.
const SPIN_US_MAX: u64 = 1_000_000;
/// An hour after the last frame nothing lingers.
const LINGER_MS_MAX: u64 = 3_600_000;
/// Percent: none at all would be mode interrupt, and more than that no worker runs (`twinpath_worker::guard::RUN_PERMILLE`).
const SPIN_SHARES: RangeInclusive<u32> = 1..=90;
/// Of `worker.fail_open_ms`, but for 0: two ticks of the kernel's coarsest clock, and what nobody waits for.
const FAIL_OPEN_MS: RangeInclusive<u32> = 20..=60_000;
/// A share in percent.
const LOSS_MAX_PERCENT: u32 = 100;
/// `interface.ring_frames`: what AF_XDP takes, and 16 MiB per ring at most.
const RING_FRAMES: RangeInclusive<u32> = 64..=8192;
/// Longest path of a UNIX socket: `sun_path` of linux/un.h, less its terminator.
const SOCKET_PATH_MAX: usize = 107;

/// What one instance does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The services: `[service]`, or `[[service]]` for each of several.
    #[serde(rename = "service", with = "service::one_or_several")]
    pub services: Vec<Service>,
    /// Where they are served.
    pub interface: Interface,
    /// Who serves.
    pub worker: Worker,
    /// Bounds.
    pub limits: Limits,
    /// Threads for work that may block.
    pub pool: Pool,
    /// Of RPC.
    pub rpc: Rpc,
    /// How it is asked and told.
    pub control: Control,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            services: vec![Service::default()],
            interface: Interface::default(),
            worker: Worker::default(),
            limits: Limits::default(),
            pool: Pool::default(),
            rpc: Rpc::default(),
            control: Control::default(),
        }
    }
}

/// `[interface]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Interface {
    /// Name, as `ip link` shows it.
    pub name: Option<String>,
    /// The path asked for.
    pub path: PathAsked,
    /// How the packet path's program at tc ingress is attached.
    pub attach: AttachAsked,
    /// Measure at start what attaching costs the kernel's own traffic.
    pub measure_fallback: bool,
    /// The share that it may cost, in percent, before `auto` goes on to the next path.
    pub fallback_loss_max: u32,
    /// Frames that a receive ring holds while its worker is kept from it; per queue.
    pub ring_frames: u32,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            name: None,
            path: PathAsked::default(),
            attach: AttachAsked::default(),
            measure_fallback: false,
            fallback_loss_max: 10,
            // Twice what a kernel socket's default buffer holds of small datagrams, and few enough that the slots in use stay in the
            // cache: with 2048 a round trip took 2 % longer.
            ring_frames: 512,
        }
    }
}

impl Interface {
    fn loss_fault(&self) -> Option<(&'static str, String)> {
        let percent = self.fallback_loss_max;
        let sentence = || format!("{percent} % is more than there is: give 0 to {LOSS_MAX_PERCENT}");
        (percent > LOSS_MAX_PERCENT).then(|| ("interface.fallback_loss_max", sentence()))
    }

    fn ring_fault(&self) -> Option<(&'static str, String)> {
        let (frames, most) = (self.ring_frames, RING_FRAMES.end());
        let fits = frames.is_power_of_two() && RING_FRAMES.contains(&frames);
        let sentence = || format!("{frames}: give a power of two, {} to {most}", RING_FRAMES.start());
        (!fits).then(|| ("interface.ring_frames", sentence()))
    }
}

/// `[worker]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// Number of workers.
    pub count: u32,
    /// CPUs to pin them to, in their order; empty: not pinned.
    pub cpus: Vec<u32>,
    /// What they do when there is no work.
    pub mode: Mode,
    /// What `adaptive` is to reach: how late packets may be found.
    pub latency: Option<LatencyGoal>,
    /// Or how much of a core may be spent waiting.
    pub cpu: Option<CpuGoal>,
    /// For experts: how long `adaptive` spins before it sleeps, us; learnt without it.
    pub spin_us: Option<u64>,
    /// For experts: how long after the last traffic the CPU latency request is held, ms; learnt by `adaptive` without it.
    pub linger_ms: Option<u64>,
    /// The CPU latency request.
    pub latency_request: LatencyRequest,
    /// For which CPUs it is made.
    pub latency_request_scope: RequestScope,
    /// The longest time to leave an idle state that it allows, us; none: chosen by measuring.
    pub latency_request_max_exit_us: Option<u32>,
    /// The threads' priority.
    pub priority: Priority,
    /// The share of a shared CPU that they spin at most, where others could not keep them from it, percent.
    pub spin_share_max: u32,
    /// How long frames may wait for one of them before the kernel serves instead, ms; 0: for ever.
    pub fail_open_ms: u32,
}

/// What is wrong with a time after which a worker is stuck, if anything is.
#[must_use]
pub fn fail_open_fault(ms: u32) -> Option<String> {
    let (least, most) = (FAIL_OPEN_MS.start(), FAIL_OPEN_MS.end());
    let is_odd = ms != 0 && !FAIL_OPEN_MS.contains(&ms);
    is_odd.then(|| format!("{ms} ms: give {least} to {most}, or 0 for never"))
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            count: 1,
            cpus: Vec::new(),
            mode: Mode::default(),
            latency: None,
            cpu: None,
            spin_us: None,
            linger_ms: None,
            latency_request: LatencyRequest::default(),
            latency_request_scope: RequestScope::default(),
            latency_request_max_exit_us: None,
            priority: Priority::default(),
            spin_share_max: twinpath_worker::guard::SPIN_PERMILLE / 10,
            fail_open_ms: 100,
        }
    }
}

impl Worker {
    fn sharing_faults(&self) -> impl Iterator<Item = (&'static str, String)> {
        let long = self.linger_ms.filter(|linger| *linger > LINGER_MS_MAX);
        let long =
            long.map(|linger| ("worker.linger_ms", format!("{linger} ms is more than {LINGER_MS_MAX}")));
        let unknown = self.latency_request_scope == RequestScope::Cpu && self.cpus.is_empty();
        let sentence = "a request for the workers' CPUs alone needs to know them: name them in worker.cpus or with --cpu";
        let unknown = unknown.then(|| ("worker.latency_request_scope", sentence.to_owned()));
        let share = self.spin_share_max;
        let much = (!SPIN_SHARES.contains(&share)).then(|| {
            let (least, most) = (SPIN_SHARES.start(), SPIN_SHARES.end());
            ("worker.spin_share_max", format!("{share} %: give {least} to {most}, the rest is for others"))
        });
        let odd = fail_open_fault(self.fail_open_ms).map(|fault| ("worker.fail_open_ms", fault));
        long.into_iter().chain(unknown).chain(much).chain(odd).chain(self.goal_faults())
    }
}

/// What the command line says; it wins over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `serve KIND`
    pub kind: Option<ServiceKind>,
    /// `--udp`
    pub udp: Option<NonZeroU16>,
    /// `--tcp`
    pub tcp: Option<NonZeroU16>,
    /// `--ethertype`
    pub ethertype: Option<u16>,
    /// `--address`, each
    pub addresses: Vec<IpAddr>,
    /// `--flow`, each
    pub flows: Vec<FlowText>,
    /// `--source`, each
    pub sources: Vec<SourceText>,
    /// `--on`
    pub interface: Option<String>,
    /// `--path`
    pub path: Option<PathAsked>,
    /// `--attach`
    pub attach: Option<AttachAsked>,
    /// `--measure-fallback`
    pub measure_fallback: bool,
    /// `--fallback-loss-max`
    pub fallback_loss_max: Option<u32>,
    /// `--ring-frames`
    pub ring_frames: Option<u32>,
    /// `--workers`
    pub workers: Option<u32>,
    /// `--cpu`
    pub cpus: Option<Vec<u32>>,
    /// `--mode`
    pub mode: Option<Mode>,
    /// `--latency`
    pub latency: Option<LatencyGoal>,
    /// `--cpu-budget`
    pub cpu: Option<CpuGoal>,
    /// `--spin-us`
    pub spin_us: Option<u64>,
    /// `--linger-ms`
    pub linger_ms: Option<u64>,
    /// `--latency-request`
    pub latency_request: Option<LatencyRequest>,
    /// `--latency-request-scope`
    pub latency_request_scope: Option<RequestScope>,
    /// `--latency-request-max-exit-us`
    pub latency_request_max_exit_us: Option<u32>,
    /// `--priority`
    pub priority: Option<Priority>,
    /// `--spin-share-max`
    pub spin_share_max: Option<u32>,
    /// `--fail-open-ms`
    pub fail_open_ms: Option<u32>,
    /// `--socket`
    pub socket: Option<PathBuf>,
    /// `--metrics`
    pub metrics: Option<MetricsAddress>,
    /// `--sandbox`
    pub sandbox: Option<Sandbox>,
    /// Options of `[limits]`.
    pub limits: LimitOverrides,
    /// Options of `[rpc]`.
    pub rpc: RpcOverrides,
}

impl Config {
    /// The configuration of a file, if one is named, with the command line's overrides, validated. `open_files` is how many files
    /// this process may have open, if there is a limit.
    ///
    /// # Errors
    /// Everything that is wrong in the file, on the command line and with the values.
    pub fn load(
        file: Option<&FilePath>,
        overrides: &Overrides,
        open_files: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let text = match file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| ConfigError::Read { file: file.to_owned(), error })?,
            None => String::new(),
        };
        let Read { mut config, mut mistakes, unread } =
            reading::read(&text, file.unwrap_or_else(|| FilePath::new("the command line")));
        let mut faults: Vec<Fault> =
            file.and_then(|file| config.kind_fault(overrides, file)).into_iter().collect();
        config.apply(overrides);
        if unread != Unread::Everything {
            faults.extend(config.validate());
            faults.extend(config.check_kinds());
            faults.extend(open_files.and_then(|limit| config.check_open_files(limit)));
        }
        // Of a key that could not be read it is known what is wrong.
        let known = faults.into_iter().filter(|fault| !unread.has(&fault.key));
        mistakes.extend(known.map(|fault| Mistake {
            place: file.and_then(|file| Some((file.to_owned(), reading::line_of(&text, &fault.key)?))),
            fault,
        }));
        mistakes.sort_by_key(|mistake| mistake.place.as_ref().map_or(usize::MAX, |(_, line)| *line));
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(mistakes)) }
    }

    /// Reads the text of a file; `file` is for the message only.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]: all that is not TOML, not a known key, or not a value for it.
    pub fn parse(text: &str, file: &FilePath) -> Result<Self, ConfigError> {
        let Read { config, mistakes, .. } = reading::read(text, file);
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(mistakes)) }
    }

    /// Whether a command that serves one kind is given a file that says another, or several.
    fn kind_fault(&self, overrides: &Overrides, file: &FilePath) -> Option<Fault> {
        let (asked, file) = (overrides.kind?, file.display());
        match self.services.as_slice() {
            [Service { kind: Some(kind), .. }] if *kind != asked => Some(Fault::new(
                "service.kind",
                format!(
                    "the file says {kind} and the command line says {asked}: run `twinpath serve --config {file}` for \
                     what the file says"
                ),
            )),
            [] | [_] => None,
            several => Some(Fault::new(
                "",
                format!(
                    "{file} has {} services and `serve {asked}` serves one: run `twinpath serve --config {file}`",
                    several.len()
                ),
            )),
        }
    }

    /// The limits of TCP connections, and whatever else has limits, of one service.
    #[must_use]
    pub fn limits_of(&self, service: &Service) -> Limits {
        let mut limits = self.limits.clone();
        limits.apply(&service.limits);
        limits
    }

    /// The bounds of ONC RPC of one service.
    #[must_use]
    pub fn rpc_of(&self, service: &Service) -> Rpc {
        let mut rpc = self.rpc.clone();
        rpc.apply(&service.rpc);
        rpc
    }

    /// Lets the command line win.
    pub fn apply(&mut self, overrides: &Overrides) {
        let Overrides {
            interface,
            path,
            attach,
            measure_fallback,
            fallback_loss_max,
            ring_frames,
            workers,
            cpus,
            mode,
            latency,
            cpu,
            spin_us,
            linger_ms,
            latency_request,
            latency_request_scope,
            latency_request_max_exit_us,
            priority,
            spin_share_max,
            fail_open_ms,
            socket,
            metrics,
            sandbox,
            limits,
            rpc,
            ..
        } = overrides.clone();
        self.apply_to_services(overrides);
        self.interface.name = interface.or(self.interface.name.take());
        self.interface.path = path.unwrap_or(self.interface.path);
        self.interface.attach = attach.unwrap_or(self.interface.attach);
        self.interface.measure_fallback |= measure_fallback;
        self.interface.fallback_loss_max = fallback_loss_max.unwrap_or(self.interface.fallback_loss_max);
        self.interface.ring_frames = ring_frames.unwrap_or(self.interface.ring_frames);
        self.worker.count = workers.unwrap_or(self.worker.count);
        self.worker.cpus = cpus.unwrap_or(std::mem::take(&mut self.worker.cpus));
        self.worker.mode = mode.unwrap_or(self.worker.mode);
        // One way to say it on the command line is all of it: what the file says of the others is not meant then.
        if latency.is_some() || cpu.is_some() || spin_us.is_some() {
            (self.worker.latency, self.worker.cpu, self.worker.spin_us) = (latency, cpu, spin_us);
        }
        self.worker.linger_ms = linger_ms.or(self.worker.linger_ms);
        self.worker.latency_request = latency_request.unwrap_or(self.worker.latency_request);
        self.worker.latency_request_scope =
            latency_request_scope.unwrap_or(self.worker.latency_request_scope);
        self.worker.latency_request_max_exit_us =
            latency_request_max_exit_us.or(self.worker.latency_request_max_exit_us);
        self.worker.priority = priority.unwrap_or(self.worker.priority);
        self.worker.spin_share_max = spin_share_max.unwrap_or(self.worker.spin_share_max);
        self.worker.fail_open_ms = fail_open_ms.unwrap_or(self.worker.fail_open_ms);
        self.control.socket = socket.or(self.control.socket.take());
        self.control.metrics = metrics.or(self.control.metrics);
        self.control.sandbox = sandbox.or(self.control.sandbox);
        self.limits.apply(&limits);
        self.rpc.apply(&rpc);
    }

    fn apply_to_services(&mut self, overrides: &Overrides) {
        // What one service is given is named on the command line only for one.
        if let [service] = self.services.as_mut_slice() {
            let Overrides { kind, udp, tcp, ethertype, addresses, flows, sources, .. } = overrides;
            // Naming a port on the command line names the whole set: the file's other port is not meant then.
            if udp.is_some() || tcp.is_some() {
                (service.udp, service.tcp) = (*udp, *tcp);
            }
            service.kind = kind.or(service.kind);
            service.ethertype = ethertype.or(service.ethertype);
            replace_if_any(&mut service.addresses, addresses);
            replace_if_any(&mut service.flows, flows);
            replace_if_any(&mut service.sources, sources);
        }
        for service in &mut self.services {
            service.limits.without(&overrides.limits);
            service.rpc.without(&overrides.rpc);
        }
    }

    /// Everything that cannot work, whatever the host; empty if nothing is wrong.
    #[must_use]
    pub fn validate(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut check = |wrong: bool, key: &str, sentence: String| {
            if wrong {
                faults.push(Fault::new(key, sentence));
            }
        };
        match &self.interface.name {
            None => check(true, "interface.name", "which interface? Set it here or give --on IFACE".into()),
            Some(name) => check(
                name.is_empty() || name.len() > INTERFACE_NAME_MAX || name.contains(['/', ' ', '\0']),
                "interface.name",
                format!("`{name}` is no name of an interface: see `ip link`"),
            ),
        }
        for Fault { key, sentence } in self.service_faults() {
            check(true, &key, sentence);
        }
        for (key, sentence) in self.interface.loss_fault().into_iter().chain(self.interface.ring_fault()) {
            check(true, key, sentence);
        }
        let worker = &self.worker;
        check(
            !(1..=WORKERS_MAX).contains(&worker.count),
            "worker.count",
            format!("{} workers: give 1 to {WORKERS_MAX}", worker.count),
        );
        check(
            !worker.cpus.is_empty() && worker.cpus.len() != worker.count as usize,
            "worker.cpus",
            format!("{} CPUs for {} workers: name one for each, or none", worker.cpus.len(), worker.count),
        );
        let twice = worker.cpus.iter().enumerate().find(|(at, cpu)| worker.cpus[..*at].contains(cpu));
        check(twice.is_some(), "worker.cpus", {
            format!("CPU {} twice: two workers would take turns on it", twice.map_or(0, |(_, cpu)| *cpu))
        });
        let spin = worker.spin_us.unwrap_or(0);
        check(
            spin > SPIN_US_MAX,
            "worker.spin_us",
            format!(
                "{spin} us is more than {SPIN_US_MAX}: for a worker that never sleeps set mode = \"poll\""
            ),
        );
        for (key, sentence) in worker.sharing_faults() {
            check(true, key, sentence);
        }
        // What other services hold of a request is no business of rpc's.
        let own = |service: &Service| {
            service.limits == LimitOverrides::default() && service.rpc == RpcOverrides::default()
        };
        let served = self.services.iter().any(|it| it.kind == Some(ServiceKind::Rpc) && own(it));
        let rpc = self.rpc.faults(if served { self.limits.connection_bytes } else { u32::MAX });
        let pool = self.pool.faults();
        for (key, sentence) in
            self.limits.faults(worker.count.min(WORKERS_MAX)).into_iter().chain(rpc).chain(pool)
        {
            check(true, key, sentence);
        }
        if let Some(socket) = &self.control.socket {
            let length = socket.as_os_str().len();
            check(
                length > SOCKET_PATH_MAX || length == 0,
                "control.socket",
                format!("a path of {length} bytes: a UNIX socket takes 1 to {SOCKET_PATH_MAX}"),
            );
        }
        faults
    }

    /// What this host's limit of open files (the hard one) means for the connections configured.
    #[must_use]
    pub fn check_open_files(&self, hard_limit: u64) -> Option<Fault> {
        // Besides connections: per worker its sockets, rings, event and timer descriptors; the control thread's.
        let others = 64 + 32 * u64::from(self.worker.count);
        let served = self.services.iter().filter(|service| service.tcp.is_some());
        let connections: u64 =
            served.clone().map(|service| u64::from(self.limits_of(service).connections)).sum();
        let needed = connections + others;
        let each = match served.count() {
            0 | 1 => "",
            _ => " in all for their services",
        };
        (needed > hard_limit).then(|| {
            let sentence = format!(
                "{connections} connections need {needed} open files and this process may have {hard_limit}: set it to {} \
                 or less{each}, or raise the hard limit (ulimit -Hn, LimitNOFILE=)",
                hard_limit.saturating_sub(others)
            );
            Fault::new("limits.connections", sentence)
        })
    }
}

/// A list named on the command line is the whole list.
fn replace_if_any<T: Clone>(list: &mut Vec<T>, named: &[T]) {
    if !named.is_empty() {
        *list = named.to_vec();
    }
}

#[cfg(test)]
mod tests;
