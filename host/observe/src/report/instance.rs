//! The part of the report about the instance as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an instance is. It is written as one text: the names of its services, or the word for its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum InstanceKind {
    /// It has services, of these names: `echo`. By `twinpath serve` or the library.
    Serve(String),
    /// An exception port: `twinpath bridge`.
    Bridge,
    /// `twinpath switch`
    Switch,
    /// The owner of an interface, for sockets of programs: `twinpath sockets`.
    Sockets,
    /// The daemon of Reliable Datagram Sockets: `twinpath rds`.
    Rds,
}

impl InstanceKind {
    /// The kinds that have a word.
    const WORDS: [(Self, &'static str); 4] =
        [(Self::Bridge, "bridge"), (Self::Switch, "switch"), (Self::Sockets, "sockets"), (Self::Rds, "rds")];

    /// Its text in reports.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Serve(names) => names,
            other => Self::WORDS.iter().find(|(kind, _)| kind == other).map_or("", |(_, word)| word),
        }
    }
}

impl Default for InstanceKind {
    fn default() -> Self {
        Self::Serve(String::new())
    }
}

impl fmt::Display for InstanceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<String> for InstanceKind {
    fn from(text: String) -> Self {
        let known = Self::WORDS.into_iter().find(|(_, word)| *word == text);
        known.map_or_else(|| Self::Serve(text), |(kind, _)| kind)
    }
}

impl From<InstanceKind> for String {
    fn from(kind: InstanceKind) -> Self {
        kind.text().to_owned()
    }
}

/// The program that answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Instance {
    /// Process id.
    pub pid: u32,
    /// Version of twinpath.
    pub version: String,
    /// What it is.
    #[serde(rename = "service")]
    pub kind: InstanceKind,
    /// Ports of the service: `udp/7`, `tcp/7`.
    pub ports: Vec<String>,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Frame memory of all workers, MiB.
    pub pool_mib: f64,
    /// The progress of a drain, if the instance drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<Draining>,
    /// Its confinement since the start.
    pub sandbox: Sandbox,
    /// The file of its configuration, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// Set if it is a standby instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing_by: Option<StandingBy>,
}

/// A standby instance's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StandingBy {
    /// Process id of the instance that it stands by for.
    pub pid: u32,
    /// Whether it serves in place of that instance, which is stuck.
    pub serves: bool,
    /// How often it has done so.
    pub times: u64,
}

/// A configuration that can be reloaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configuration {
    /// Its path.
    pub file: String,
    /// Seconds since the configuration in force was read.
    pub read_s: f64,
    /// Successful reloads.
    pub reloads: u64,
    /// Refused reloads.
    pub refused: u64,
    /// The reason of the refusal, if the last reload was refused.
    pub refusal: Option<String>,
}

/// The confinement of a running instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    /// `on` or `off`.
    pub setting: String,
    /// Whether programs that it might execute cannot gain privileges (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privs: bool,
    /// The capabilities that it has.
    pub capabilities: Vec<Capability>,
    /// The files that it may open, and the mechanism that enforces this, or what the kernel lacks for it.
    pub files: String,
    /// The system calls that are refused, likewise.
    pub calls: String,
}

/// A capability that an instance has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capability {
    /// Its name, e.g. `CAP_NET_RAW`.
    pub name: String,
    /// The purpose; empty if it is not needed.
    pub needed_for: String,
}

/// An instance that answers all accepted requests, and then ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Draining {
    /// Connections that have not ended.
    pub connections: u64,
    /// Requests, over any transport, that handler threads still work on.
    pub deferred: u64,
    /// Time until the remaining connections are closed, ms.
    pub left_ms: u64,
    /// Connections closed at that time, and datagrams not answered: `drain_timeout` in `drops`.
    pub cut_off: u64,
    /// Whether the drain is complete.
    pub over: bool,
}
