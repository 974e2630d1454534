//! The plan of an instance: its services, its interface, its workers, their limits. A value, made from a configuration.

mod config;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
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

/// What an instance is to do.
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
    /// Replies per second that they give, to all sources together; 0: none.
    pub reflex_rate: u32,
    /// Replies that services may keep for them; 0: none.
    pub kept_replies: u32,
    /// Measure at start what attaching costs the kernel's own traffic, and let `auto` mind it.
    pub measure_fallback: bool,
    /// The share that it may cost: 0.1 is a tenth.
    pub fallback_loss_max: f64,
    /// Workers.
    pub workers: u32,
    /// CPUs for them, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// How they idle; `request` is set by what is measured.
    pub idle: IdleConfig,
    /// Latency requests and priority.
    pub machine: twinpath_host::machine::Wanted,
    /// How long connections may take to end when it stops.
    pub drain: Duration,
    /// Peers answered on the fast path at once.
    pub peers_max: u32,
    /// Entries per ring.
    pub ring_frames: u32,
    /// How long something may wait for a worker before the kernel stops claiming for it; zero: for ever.
    pub fail_open: Duration,
    /// The command socket of the instance to take over from.
    pub take_over: Option<PathBuf>,
    /// The command socket of the instance to stand by for; not together with the one before.
    pub stand_by: Option<PathBuf>,
    /// How long an instance that takes over may be silent before it serves.
    pub take_over_patience: Duration,
    /// Whether it confines the calling thread, and those that it starts, once it has started.
    pub sandbox: Sandbox,
    /// The command socket.
    pub socket: Option<PathBuf>,
    /// Where metrics are offered.
    pub metrics: Option<SocketAddr>,
    /// The configuration keys with their values, for `show config`.
    pub settings: Vec<twinpath_config::Setting>,
}

/// What one service of an instance is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// Its name, for `show` and metrics.
    pub name: String,
    /// What is registered with rpcbind while it serves.
    pub rpcbind: Vec<Registration>,
    /// UDP port, on both paths; 0: the kernel chooses one.
    pub udp: Option<u16>,
    /// TCP port, on the kernel path; 0: the kernel chooses one.
    pub tcp: Option<u16>,
    /// EtherType whose frames are served whole: on the fast path only, as the kernel has no socket for them.
    pub ethertype: Option<u16>,
    /// Own addresses that the ports are served at; empty: all.
    pub addresses: Vec<IpAddr>,
    /// UDP flows that are claimed instead of the port.
    pub flows: Vec<FlowKey>,
    /// Senders served at the ports; empty: everybody.
    pub sources: Vec<Prefix>,
    /// What TCP connections may take.
    pub tcp_limits: TcpLimits,
    /// Replies per second to one source that are as large as their requests, per worker; 0: no limit.
    pub reply_rate: u32,
    /// Whether requests from every source port are answered, though a reply could loop.
    pub any_source_port: bool,
    /// Threads of each worker for what may block, if the service has such work.
    pub pool: PoolLimits,
    /// What the kernel's programs may answer, if anything; see [`Plan::allow_reflexes`].
    pub reflex: Option<ServiceReflex>,
    /// Why they may answer nothing, though the service allows it and they are asked for; empty: no such reason.
    pub no_reflex: String,
}

/// What the kernel's programs may answer for a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceReflex {
    /// Its number among the services that have reflexes.
    pub number: u8,
    /// Which requests they may answer.
    pub answers: Answers,
    /// Replies per second to one source that are as large as their requests; 0: no limit.
    pub source_rate: u32,
}

/// What a service lets the kernel's programs answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Which requests.
    pub answers: Answers,
    /// Whether two such services could answer each other's replies without end. Those that cannot have no limit of replies
    /// to one source, as they have none at their workers.
    pub may_loop: bool,
}

impl ServicePlan {
    /// What is claimed on the interface; nothing, if the service has the kernel path only.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let served = self.served();
        let flows = served.flows().iter().map(|flow| Claim::flow(*flow));
        // Where flows are named, the port is held for everybody else, on the kernel path.
        let ports = if self.flows.is_empty() { served.ports() } else { &[] };
        let ports = ports.iter().map(|port| port_claim(*port, &self.sources));
        let claims = flows.chain(ports).map(|claim| (0, claim));
        // The number of an EtherType's entry counts ports that are not claimed as well.
        let skipped = served.ethertype_entry() - served.flows().len();
        let skipped = if self.flows.is_empty() { 0 } else { skipped };
        let claims = claims.chain(self.ethertype.map(|ethertype| (skipped, Claim::ethertype(ethertype))));
        let claims = claims.enumerate();
        claims.map(|(at, (skipped, claim))| Claim { reflex: self.reflex_of(at + skipped), ..claim }).collect()
    }

    /// What the kernel's programs may answer for an entry of [`Self::served`].
    #[must_use]
    pub fn reflex_of(&self, entry: usize) -> Option<Reflex> {
        let ServiceReflex { number, answers, source_rate } = self.reflex?;
        let place = usize::from(number) * REFLEX_CLAIMS_MAX + entry;
        let place = u8::try_from(place).ok().filter(|_| entry < REFLEX_CLAIMS_MAX)?;
        Some(Reflex { place, answers, source_rate })
    }

    /// What the service is given, by whichever path.
    #[must_use]
    pub fn served(&self) -> Served {
        let served = Served::new().with_flows(&self.flows).with_sources(&self.sources);
        let served = served.with_ethertype(self.ethertype);
        match self.udp {
            Some(port) => served.with_port(Protocol::Udp, port, &self.addresses),
            None => served,
        }
    }

    /// What is served, in words: `udp/7`.
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

/// The numbers of services in a plan that another one follows; of the first one, none.
#[derive(Clone, Debug, Default)]
pub struct FormerReflexes {
    /// For each service of the new plan, the number that it had.
    same: Vec<Option<u8>>,
    /// For each, whether it goes on, with a number or without one.
    goes_on: Vec<bool>,
    /// All that were in use.
    used: Vec<u8>,
}

impl FormerReflexes {
    /// Whether a service with this number goes on.
    #[must_use]
    pub fn continues(&self, number: u8) -> bool {
        self.same.contains(&Some(number))
    }

    /// Whether a service of the new plan was in the former one, by its place in the new one.
    #[must_use]
    pub fn goes_on(&self, at: usize) -> bool {
        self.goes_on.get(at).copied().unwrap_or_default()
    }

    /// The number that it had there.
    #[must_use]
    pub fn number(&self, at: usize) -> Option<u8> {
        self.same.get(at).copied().flatten()
    }

    /// The numbers of services that do not go on.
    pub fn ended(&self) -> impl Iterator<Item = u8> {
        self.used.iter().copied().filter(|number| !self.continues(*number))
    }
}

impl Plan {
    /// Lets the kernel's programs answer for services, as each allows. `former` says what the services had that this plan
    /// continues, and which numbers are in use: a service that goes on has the number that it had, so its counts and its
    /// kept replies go on, and a new one has none that another still uses.
    pub fn allow_reflexes(
        &mut self,
        allowed: impl Iterator<Item = Option<Allowed>>,
        former: &FormerReflexes,
    ) {
        if self.reflex == ReflexAsked::Off {
            return;
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
    }

    /// How many replies the programs may give a second, if they may give any.
    #[must_use]
    pub fn reflexes_per_second(&self) -> Option<u32> {
        (self.reflex != ReflexAsked::Off && self.reflex_rate > 0).then_some(self.reflex_rate)
    }

    /// What services of this plan have, for one that follows it, whose services have these origins.
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

    /// What all services claim on the interface.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        self.services.iter().flat_map(ServicePlan::claims).collect()
    }

    /// The services by name: `echo`, `echo, rpc`.
    #[must_use]
    pub fn names(&self) -> String {
        self.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// What is registered with rpcbind while the services are served.
    #[must_use]
    pub fn registrations(&self) -> Vec<Registration> {
        self.services.iter().flat_map(|service| service.rpcbind.iter().copied()).collect()
    }

    /// The first EtherType that is served: such frames have no path but the fast one.
    #[must_use]
    pub fn ethertype(&self) -> Option<u16> {
        self.services.iter().find_map(|service| service.ethertype)
    }

    /// The command socket, unless one is named: for several services it is called by none of them.
    #[must_use]
    pub fn default_socket(&self) -> PathBuf {
        let name = match self.services.as_slice() {
            [only] => only.name.as_str(),
            _ => "services",
        };
        default_socket(&run_directory(), name, &self.interface)
    }
}

/// The claim on a port, for these senders.
#[must_use]
pub fn port_claim(served: ServedPort, sources: &[Prefix]) -> Claim {
    let ServedPort { protocol, port, address } = served;
    let kind = ClaimKind::Port { protocol, port, address };
    Claim { sources: sources.to_vec(), ..Claim::of(kind) }
}
