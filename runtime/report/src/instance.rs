//! What an instance says of itself as a whole.

use serde::{Deserialize, Serialize};

/// The program that answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Instance {
    /// Process id.
    pub pid: u32,
    /// Version of twinpath.
    pub version: String,
    /// The service, e.g. `echo`.
    pub service: String,
    /// Ports of the service: `udp/7`, `tcp/7`.
    pub ports: Vec<String>,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Frame memory of all workers, MiB.
    pub pool_mib: f64,
    /// How far it is, if it drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<Draining>,
    /// What it has given up since it started.
    pub sandbox: Sandbox,
    /// The file of its configuration, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// Set while it stands by for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing_by: Option<StandingBy>,
}

/// An instance that stands by for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StandingBy {
    /// The other one's process.
    pub pid: u32,
    /// Serving in its place, as it is stuck.
    pub serves: bool,
    /// Times that it has.
    pub times: u64,
}

/// A configuration that can be read again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configuration {
    /// The file.
    pub file: String,
    /// Seconds since what is in force was read.
    pub read_s: f64,
    /// Times that it was read again and done.
    pub reloads: u64,
    /// Times that it was read again and refused.
    pub refused: u64,
    /// Why it was refused, if the last time it was.
    pub refusal: Option<String>,
}

/// How a running instance is confined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    /// `on` or `off`.
    pub setting: String,
    /// No program that it might run gains rights (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privs: bool,
    /// Capabilities that it has.
    pub capabilities: Vec<Capability>,
    /// Which files it may open, and by what that holds, or what the kernel lacks.
    pub files: String,
    /// Which system calls are refused, likewise.
    pub calls: String,
}

/// A capability that an instance has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capability {
    /// As `CAP_NET_RAW`.
    pub name: String,
    /// What for; empty if it is not needed.
    pub needed_for: String,
}

/// An instance that answers what it has accepted, and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Draining {
    /// Connections that have not ended.
    pub connections: u64,
    /// Requests that threads which may block still work on, by whatever they came.
    pub deferred: u64,
    /// Until those that have not ended by then are closed, ms.
    pub left_ms: u64,
    /// Connections that were so closed, and datagrams not answered: `drain_timeout` in `drops`.
    pub cut_off: u64,
    /// It is done, and ends.
    pub over: bool,
}
