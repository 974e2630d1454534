//! The report of a running instance: the answer to `twinpath show`, as tables for people and JSON for programs. Field
//! names are stable.

use serde::{Deserialize, Serialize};

pub use twinpath_config::Setting;
pub use twinpath_inspect::{
    ClaimCounts, FastTcpCounts, ProcedureCounts, RequestCounts, ServeCounts, SessionCounts, SwitchCounts,
    TcpCounts, Times,
};
pub use twinpath_port::PortCounts;
pub use twinpath_worker::{GuardCounts, IdleCounts, WorkerCounts};

pub use self::connection::{Connection, ConnectionPath, Connections};
pub use self::instance::{Capability, Configuration, Draining, Instance, InstanceKind, Sandbox, StandingBy};
pub use self::interface::{
    Crossed, Device, Fallback, FallbackMeasure, FallbackProgram, Interface, KeptReplies, LeftBehind, Offload,
    Queue, Reflexes, WhyNot,
};
pub use self::openflow::{Band, Bucket, Controller, Flow, FlowTable, Group, Meter, OpenFlow};
pub use self::program::Program;
pub use self::rds::{Rds, RdsPath, RdsSocket};
pub use self::service::{OwnMetric, Procedure, Service, ServiceClaim, ServiceKept};
pub use self::switch::{Mac, Switch, SwitchPort};
pub use self::worker::{Guard, Idle, LatencyRequest, Worker};

mod connection;
mod instance;
mod interface;
mod openflow;
mod program;
mod rds;
mod service;
mod switch;
mod worker;

#[cfg(test)]
mod tests;

/// The whole report. A topic (`interfaces`, `rules`, ...) is one field of it; an answer about one topic leaves out the
/// others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The program that answers.
    pub instance: Instance,
    /// The services, their paths, and the reasons for not using a faster one.
    pub services: Vec<Service>,
    /// The procedures that services count: all of them, also those that nobody has called.
    pub rpc: Vec<Procedure>,
    /// One entry per interface served.
    pub interfaces: Vec<Interface>,
    /// The claims, and how often each verdict was given.
    pub rules: Rules,
    /// The cost of a wake-up on this machine, as measured last.
    pub machine: Option<twinpath_worker::costs::Costs>,
    /// One entry per worker.
    pub workers: Vec<Worker>,
    /// Next hops in use, as mirrored from the kernel.
    pub neighbours: Vec<Neighbour>,
    /// All frames and requests dropped or refused, by reason; only counters that are not zero.
    pub drops: Vec<Drop>,
    /// Every configuration key with its value.
    pub config: Vec<Setting>,
    /// The switch, if the program is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// Its ports.
    pub ports: Vec<SwitchPort>,
    /// The addresses that it knows: only in an answer about these.
    pub macs: Vec<Mac>,
    /// The flows of its OpenFlow tables, by table and priority: only in an answer about these.
    pub flows: Vec<Flow>,
    /// Their groups, likewise.
    pub groups: Vec<Group>,
    /// Their meters, likewise.
    pub meters: Vec<Meter>,
    /// Its controllers.
    pub controllers: Vec<Controller>,
    /// The programs to which the owner of an interface gives rings.
    pub programs: Vec<Program>,
    /// Reliable Datagram Sockets, if the program serves them.
    pub rds: Option<Rds>,
}

/// Claims and verdicts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    /// The claims in force, as text: `udp port 7 to 10.0.0.1`.
    pub claims: Vec<String>,
    /// Verdicts given so far: name and count, summed over interfaces and CPUs.
    pub verdicts: Vec<Count>,
}

/// A named count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Stable name.
    pub name: String,
    /// The count.
    pub count: u64,
}

/// A next hop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Neighbour {
    /// The peer.
    pub peer: String,
    /// The next hop towards it.
    pub next_hop: String,
    /// The interface through which it is reached.
    pub interface: String,
    /// Link-layer address, if known.
    pub mac: Option<String>,
    /// `reachable`, `stale`, `incomplete`, ...
    pub state: String,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// `fast`, or the reason for sending replies through the kernel.
    pub egress: String,
}

/// Frames or requests dropped or refused for one reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drop {
    /// The place: `worker 0`, `port veth0`, ...
    pub place: String,
    /// Stable reason name.
    pub reason: String,
    /// The count.
    pub count: u64,
}
