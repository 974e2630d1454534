//! Services in a report: their claims, paths and counts.

use serde::{Deserialize, Serialize};

use crate::Count;
use crate::times::Times;

/// One service, on all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its name, e.g. `echo`.
    pub name: String,
    /// One entry per claim that it asks for.
    pub claims: Vec<ServiceClaim>,
    /// Requests served that came on the fast path.
    pub fast_requests: u64,
    /// Replies that left on the fast path.
    pub fast_replies: u64,
    /// Fast-path requests whose reply left through the kernel's socket, because its egress was not known or its MTU too
    /// small.
    pub fast_replies_by_kernel: u64,
    /// Requests that the kernel's programs replied to by themselves; no worker has seen them.
    pub reflex_replies: u64,
    /// Why workers give all replies, though the service allows others; empty: no such reason, or one of the interface.
    pub no_reflex: String,
    /// From which source ports datagrams are not answered, why, and what has them answered: one sentence; empty: they are
    /// answered from every port that there is.
    pub unanswered_ports: String,
    /// The replies that it keeps, if it does.
    pub kept: Option<ServiceKept>,
    /// Requests served that came through the kernel's sockets.
    pub kernel_requests: u64,
    /// Replies sent through the kernel's sockets, to requests of both paths.
    pub kernel_replies: u64,
    /// The service's own counters, if it has any.
    pub requests: Option<ServiceRequests>,
    /// What the service counts itself, by names of its own.
    pub own: Vec<OwnMetric>,
    /// TCP connections open now.
    pub connections: u64,
    /// TCP connections accepted so far.
    pub accepted: u64,
    /// UDP peers that have a session.
    pub sessions: u64,
    /// Sessions ended because of their age.
    pub sessions_aged: u64,
    /// Sessions ended to make room for others.
    pub sessions_displaced: u64,
    /// Requests that handler threads work on, or that wait for one.
    pub deferred: u64,
    /// Requests answered by handler threads.
    pub deferred_done: u64,
    /// How often a connection waited for room there.
    pub deferred_waits: u64,
    /// The present number of handler threads.
    pub deferred_threads: u64,
    /// Bytes that TCP connections hold: incomplete requests, and replies that the peer has not taken.
    pub queued_bytes: u64,
    /// Bytes received on TCP connections.
    pub stream_bytes_in: u64,
    /// Bytes sent on TCP connections.
    pub stream_bytes_out: u64,
    /// Peers whose egress is known or being resolved.
    pub peers: u64,
}

/// Replies that a service keeps for the kernel's programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceKept {
    /// Valid entries.
    pub entries: u64,
    /// How many replies were not kept, by reason.
    pub not_kept: Vec<Count>,
}

/// A service's own counts of requests, over all transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRequests {
    /// Answered, refusals included.
    pub answered: u64,
    /// The answered requests that were refused, with the reason in the reply.
    pub refused: u64,
    /// The answered requests whose reply was a kept one, sent again.
    pub repeated: u64,
    /// Kept replies dropped before their age to make room for others.
    pub forgotten: u64,
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
    /// Requests for this claim that came on the fast path.
    pub fast_requests: u64,
    /// Requests for this claim that came through the kernel's UDP sockets.
    pub kernel_requests: u64,
    /// Requests for this claim that the kernel's programs replied to by themselves.
    pub reflex_replies: u64,
}
