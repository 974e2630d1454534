//! The plan of an instance: its services, interface, workers and limits. A plain value, made from a
//! configuration.

mod config;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use twinpath_claims::{Answers, Claim, ClaimKind, Prefix, REFLEX_CLAIMS_MAX, REFLEX_SERVICES_MAX, Reflex};
use twinpath_config::{AttachAsked, Origin, PathAsked, ReflexAsked, Sandbox};
use twinpath_observe::command::{default_socket, run_directory};
use twinpath_serve::{Served, ServedPort};
use twinpath_stream::TcpLimits;
use twinpath_time::Duration;
use twinpath_wire::{FlowKey, Protocol};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::thread::PoolLimits;

use crate::rpcbind::Registration;

pub use config::{idle_config, wanted};

/// The plan of an instance. Nothing is written to a plan that is in use: what becomes known later, such as a port that
/// the kernel chose, makes another plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The services, at least one.
    pub services: Vec<ServicePlan>,
    /// Name of the interface.
    pub interface: String,
    /// The path asked for.
    pub path: PathAsked,
    /// How the program at tc ingress is to be attached.
    pub attach: AttachAsked,
    /// Whether the kernel's programs answer by themselves.
    pub reflex: ReflexAsked,
    /// Maximum number of replies per second by the kernel's programs, to all sources together; 0: none.
    pub reflex_rate: u32,
    /// Maximum number of replies that services may keep for the kernel's programs; 0: none.
    pub kept_replies: u32,
    /// Whether to measure at the start what attaching costs the kernel's own traffic, so that `auto` takes
    /// it into account.
    pub measure_fallback: bool,
    /// The share of that traffic that attaching may cost: 0.1 is a tenth.
    pub fallback_loss_max: f64,
    /// Number of workers.
    pub workers: u32,
    /// CPUs for them, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// How the workers idle; `request` is set from a measurement.
    pub idle: IdleConfig,
    /// Latency requests and priority.
    pub machine: twinpath_host::machine::Wanted,
    /// How long connections may take to end when it stops.
    pub drain: Duration,
    /// Maximum number of peers answered on the fast path at the same time.
    pub peers_max: u32,
    /// Entries per ring.
    pub ring_frames: u32,
    /// How long packets may wait for a worker before the kernel stops claiming for it; zero: for ever.
    pub fail_open: Duration,
    /// The command socket of the instance to take over from.
    pub take_over: Option<PathBuf>,
    /// The command socket of the instance to stand by for; excludes `take_over`.
    pub stand_by: Option<PathBuf>,
    /// How long an instance that takes over may be silent before it serves.
    pub take_over_patience: Duration,
    /// Whether it confines the calling thread, and those that it starts, once it has started.
    pub sandbox: Sandbox,
    /// The command socket.
    pub socket: Option<PathBuf>,
    /// The address of the metrics endpoint.
    pub metrics: Option<SocketAddr>,
    /// The configuration keys with their values, for `show config`.
    pub settings: Vec<twinpath_config::Setting>,
}

/// The plan of one service of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// Its name, for `show` and metrics.
    pub name: String,
    /// What is registered with rpcbind while it serves.
    pub rpcbind: Vec<Registration>,
    /// Directories whose files it serves.
    pub exports: Vec<PathBuf>,
    /// UDP port, on both paths; 0: the kernel chooses one.
    pub udp: Option<u16>,
    /// TCP port, on the kernel path; 0: the kernel chooses one.
    pub tcp: Option<u16>,
    /// Whether connections to it are served on the fast path as well, where that is possible.
    pub fast_tcp: bool,
    /// EtherType whose frames are served whole: on the fast path only, as the kernel has no socket for them.
    pub ethertype: Option<u16>,
    /// Own addresses that the ports are served at; empty: all.
    pub addresses: Vec<IpAddr>,
    /// UDP flows that are claimed instead of the port.
    pub flows: Vec<FlowKey>,
    /// Senders served at the ports; empty: everybody.
    pub sources: Vec<Prefix>,
    /// Limits of TCP connections.
    pub tcp_limits: TcpLimits,
    /// Maximum number of replies per second to one source that are as large as their requests, per worker;
    /// 0: no limit.
    pub reply_rate: u32,
    /// Whether requests from every source port are answered, even if a reply could loop.
    pub any_source_port: bool,
    /// Number of threads of each worker for work that may block, if the service has such work.
    pub pool: PoolLimits,
    /// Which requests the kernel's programs may answer, if any; see [`Plan::with_reflexes`].
    pub reflex: Option<ServiceReflex>,
    /// Why the kernel's programs may answer nothing although the service and the configuration allow it;
    /// empty: no such reason.
    pub no_reflex: String,
}

/// Which requests of a service the kernel's programs may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceReflex {
    /// Its number among the services that have reflexes.
    pub number: u8,
    /// Which requests they may answer.
    pub answers: Answers,
    /// Maximum number of replies per second to one source that are as large as their requests; 0: no limit.
    pub source_rate: u32,
}

/// Which requests a service lets the kernel's programs answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Which requests.
    pub answers: Answers,
    /// Whether two such services could answer each other's replies without end. If not, replies to one
    /// source are not limited, as at the workers.
    pub may_loop: bool,
}

impl ServicePlan {
    /// The claims on the interface; none if the service has only the kernel path.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let served = self.served();
        let flows = served.flows().iter().map(|flow| Claim::flow(*flow));
        // If flows are named, the port is still held for all other peers, on the kernel path.
        let ports = if self.flows.is_empty() { served.ports() } else { &[] };
        let ports = ports.iter().filter(|port| port.protocol == Protocol::Udp);
        let ports = ports.map(|port| port_claim(*port, &self.sources));
        let claims = flows.chain(ports).map(|claim| (0, claim));
        // EtherType entries are numbered after all ports, including those that are not claimed.
        let skipped = served.ethertype_entry() - served.flows().len();
        let skipped = if self.flows.is_empty() { 0 } else { skipped };
        let claims = claims.chain(self.ethertype.map(|ethertype| (skipped, Claim::ethertype(ethertype))));
        let claims = claims.enumerate();
        let claims =
            claims.map(|(at, (skipped, claim))| Claim { reflex: self.reflex_of(at + skipped), ..claim });
        // No program answers on a connection.
        let connections = served.ports().iter().filter(|port| port.protocol == Protocol::Tcp);
        claims.chain(connections.map(|port| port_claim(*port, &self.sources))).collect()
    }

    /// Which requests the kernel's programs may answer for an entry of [`Self::served`].
    #[must_use]
    pub fn reflex_of(&self, entry: usize) -> Option<Reflex> {
        let ServiceReflex { number, answers, source_rate } = self.reflex?;
        let place = usize::from(number) * REFLEX_CLAIMS_MAX + entry;
        let place = u8::try_from(place).ok().filter(|_| entry < REFLEX_CLAIMS_MAX)?;
        Some(Reflex { place, answers, source_rate })
    }

    /// Everything that is served for this service, on either path.
    #[must_use]
    pub fn served(&self) -> Served {
        let served = Served::new().with_flows(&self.flows).with_sources(&self.sources);
        let mut served = served.with_ethertype(self.ethertype);
        if let Some(port) = self.udp {
            served = served.with_port(Protocol::Udp, port, &self.addresses);
        }
        match self.tcp.filter(|_| self.fast_tcp) {
            Some(port) => served.with_port(Protocol::Tcp, port, &self.addresses),
            None => served,
        }
    }

    /// The ends at which connections are accepted on the fast path.
    #[must_use]
    pub fn fast_ends(&self) -> Vec<SocketAddr> {
        let Some(port) = self.tcp.filter(|_| self.fast_tcp) else { return Vec::new() };
        // At the unspecified address of IPv6, both families are accepted.
        let all = self.addresses.is_empty().then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        all.into_iter().chain(self.addresses.iter().copied()).map(|ip| SocketAddr::new(ip, port)).collect()
    }

    /// A short description of what is served: `udp/7`.
    #[must_use]
    pub fn ports(&self) -> Vec<String> {
        let mut flow_ports: BTreeSet<u16> = self.flows.iter().map(|flow| flow.destination.port()).collect();
        flow_ports.extend(self.udp);
        let udp = flow_ports.into_iter().map(|port| format!("udp/{port}"));
        let tcp = self.tcp.map(|port| format!("tcp/{port}"));
        let frames = self.ethertype.map(|ethertype| format!("ethertype/{ethertype:#06x}"));
        udp.chain(tcp).chain(frames).collect()
    }
}

/// The service numbers of the plan before this one; empty for the first plan.
#[derive(Clone, Debug, Default)]
pub struct FormerReflexes {
    /// For each service of the new plan, the number that it had.
    same: Vec<Option<u8>>,
    /// For each service, whether it continues, with or without a number.
    goes_on: Vec<bool>,
    /// All numbers that were in use.
    used: Vec<u8>,
}

impl FormerReflexes {
    /// Whether a service with this number continues.
    #[must_use]
    pub fn continues(&self, number: u8) -> bool {
        self.same.contains(&Some(number))
    }

    /// Whether a service of the new plan was in the former one, by its place in the new one.
    #[must_use]
    pub fn goes_on(&self, at: usize) -> bool {
        self.goes_on.get(at).copied().unwrap_or_default()
    }

    /// The number that it had in the former plan.
    #[must_use]
    pub fn number(&self, at: usize) -> Option<u8> {
        self.same.get(at).copied().flatten()
    }

    /// The numbers of services that do not continue.
    pub fn ended(&self) -> impl Iterator<Item = u8> {
        self.used.iter().copied().filter(|number| !self.continues(*number))
    }
}

impl Plan {
    /// This plan, in which the kernel's programs answer for services, as each of them allows. `former` has the
    /// numbers of the former plan. A service that continues keeps its number, and so its counts and kept replies.
    /// A new service gets a number that no other one still uses.
    #[must_use]
    pub fn with_reflexes(
        mut self,
        allowed: impl Iterator<Item = Option<Allowed>>,
        former: &FormerReflexes,
    ) -> Self {
        if self.reflex == ReflexAsked::Off {
            return self;
        }
        let mut free = (0..REFLEX_SERVICES_MAX as u8).filter(|number| !former.used.contains(number));
        for (at, (service, allowed)) in self.services.iter_mut().zip(allowed).enumerate() {
            let Some(Allowed { answers, may_loop }) = allowed else { continue };
            let number = former.number(at).or_else(|| free.next());
            let source_rate = if may_loop { service.reply_rate } else { 0 };
            service.reflex = number.map(|number| ServiceReflex { number, answers, source_rate });
            if number.is_none() {
                service.no_reflex = format!("{REFLEX_SERVICES_MAX} services have reflexes already");
            }
        }
        self
    }

    /// The limit of replies per second by the programs, if they may send any.
    #[must_use]
    pub fn reflexes_per_second(&self) -> Option<u32> {
        (self.reflex != ReflexAsked::Off && self.reflex_rate > 0).then_some(self.reflex_rate)
    }

    /// The service numbers of this plan, for a following plan whose services have these origins.
    #[must_use]
    pub fn former_reflexes(&self, origins: &[Origin]) -> FormerReflexes {
        let number = |at: usize| self.services.get(at)?.reflex.map(|reflex| reflex.number);
        let same = |origin: &Origin| match origin {
            Origin::Kept(former, _) => number(*former),
            Origin::Replaces(..) | Origin::New => None,
        };
        let used = (0..self.services.len()).filter_map(number).collect();
        let goes_on = origins.iter().map(|origin| matches!(origin, Origin::Kept(..))).collect();
        FormerReflexes { same: origins.iter().map(same).collect(), goes_on, used }
    }

    /// The claims of all services on the interface.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        self.services.iter().flat_map(ServicePlan::claims).collect()
    }

    /// The services by name: `echo`, `echo, rpc`.
    #[must_use]
    pub fn names(&self) -> String {
        self.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The registrations with rpcbind while the services are served.
    #[must_use]
    pub fn registrations(&self) -> Vec<Registration> {
        self.services.iter().flat_map(|service| service.rpcbind.iter().copied()).collect()
    }

    /// The first EtherType that is served: such frames have only the fast path.
    #[must_use]
    pub fn ethertype(&self) -> Option<u16> {
        self.services.iter().find_map(|service| service.ethertype)
    }

    /// The command socket if none is named; with several services its name contains none of theirs.
    #[must_use]
    pub fn default_socket(&self) -> PathBuf {
        let name = match self.services.as_slice() {
            [only] => only.name.as_str(),
            _ => "services",
        };
        default_socket(&run_directory(), name, &self.interface)
    }
}

/// The claim on a port, limited to these senders; of TCP, on its connections.
#[must_use]
pub fn port_claim(served: ServedPort, sources: &[Prefix]) -> Claim {
    let ServedPort { protocol, port, address } = served;
    let kind = ClaimKind::Port { protocol, port, address };
    let connections = protocol == Protocol::Tcp;
    Claim { sources: sources.to_vec(), connections, ..Claim::of(kind) }
}
