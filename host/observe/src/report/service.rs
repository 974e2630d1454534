//! Services in a report: their claims, paths and counts.

use serde::{Deserialize, Serialize};
use twinpath_config::Path;
use twinpath_inspect::{ClaimCounts, FastTcpCounts, RequestCounts, ServeCounts, SessionCounts, TcpCounts};
use twinpath_inspect::{ProcedureCounts, Times, counts};

use crate::report::Count;

/// One service, on all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its name, e.g. `echo`.
    pub name: String,
    /// One entry per claim that it asks for.
    pub claims: Vec<ServiceClaim>,
    /// Requests that the kernel's programs replied to by themselves; no worker has seen them.
    pub reflex_replies: u64,
    /// Why workers send all replies, although the service allows others; empty: no such reason, or one of
    /// the interface.
    pub no_reflex: String,
    /// One sentence: the source ports whose datagrams are not answered, why, and how to have them answered.
    /// Empty: datagrams from all ports are answered.
    pub unanswered_ports: String,
    /// The replies that it keeps, if it does.
    pub kept: Option<ServiceKept>,
    /// The counters of its engines.
    #[serde(flatten)]
    pub serve: ServeCounts,
    /// The counters of its TCP connections.
    #[serde(flatten)]
    pub tcp: TcpCounts,
    /// Those of its TCP connections that are on the fast path.
    #[serde(flatten)]
    pub fast_tcp: FastTcpCounts,
    /// The counters of its sessions.
    #[serde(flatten)]
    pub sessions: SessionCounts,
    /// The service's own counters, if it has any.
    pub requests: Option<RequestCounts>,
    /// The service's own metrics, with their names.
    pub own: Vec<OwnMetric>,
}

counts! {
    /// Replies that a service keeps for the kernel's programs.
    #[derive(PartialEq, Eq)]
    pub struct ServiceKept {
        /// How many replies were not kept, by reason.
        pub not_kept: Vec<Count>,
    } and {
        /// Valid replies that a service keeps for the kernel's programs.
        entries: u64 => gauge("twinpath_service_kept_replies");
    }
}

/// A metric that a service defines itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnMetric {
    /// Its name, such as `cache_hits`.
    pub name: String,
    /// `counter`, `reason` (for which the service refuses), or `histogram`.
    pub kind: String,
    /// What it means: one sentence.
    pub help: String,
    /// The count, of a histogram the number of its values.
    pub count: u64,
    /// The values of a histogram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// A procedure of a service, over all transports, paths and workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Procedure {
    /// The service.
    pub service: String,
    /// The program that the procedure belongs to, such as `nfs`.
    pub program: String,
    /// Its name in the specification, such as `GETATTR`.
    pub procedure: String,
    /// Its counters. The number of values of `took` is that of its calls.
    #[serde(flatten)]
    pub counts: ProcedureCounts,
}

impl Procedure {
    /// The number of its calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.counts.took.count()
    }

    /// Whether both are the same procedure of the same service.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let Self { service, program, procedure, .. } = self;
        (service, program, procedure) == (&other.service, &other.program, &other.procedure)
    }
}

/// A claim of a service, and the path of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceClaim {
    /// As text: `udp port 7`.
    pub claim: String,
    /// The path used now: a fast one, or `kernel`.
    pub path: String,
    /// The reason for that path: one sentence.
    pub why: String,
    /// Its counters.
    #[serde(flatten)]
    pub counts: ClaimCounts,
}

impl ServiceClaim {
    /// Whether its requests come by a fast path.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        self.path != Path::Kernel.name()
    }
}
