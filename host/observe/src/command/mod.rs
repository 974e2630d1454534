//! The command socket: requests and answers as lines of JSON over a UNIX stream socket, for both ends.
//!
//! Only root and the user that the instance runs as may use it, for changes and for reading alike. The socket has mode
//! 0600 in a folder that others cannot change, and each end asks the kernel for the user at the other end
//! (`SO_PEERCRED`, unix(7)): the server before it reads, a client before it sends or accepts descriptors.

mod client;
mod server;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twinpath_config::{CpuGoal, LatencyGoal, Mode, SourceText, goal};
use twinpath_idle::Goal;
use twinpath_sys::trusted_dir::TrustError;

use crate::report::ConnectionPath;

pub use self::client::{FoundInstances, ask, connect, find_instances, follow_drain, interpret, receive};
pub use self::server::{Server, ServerCounters};

/// Longest request, bytes, with its newline.
pub const REQUEST_MAX: usize = 64 * 1024;
/// Longest answer that a client accepts, bytes: 4096 peers and 64 workers take about 2 MiB.
pub const ANSWER_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of clients at a time; a further one gets an error and is disconnected.
pub const CLIENTS_MAX: usize = 16;
/// A client that sends nothing, or does not read its answer, is disconnected after this time.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client waits for a part of an answer. On a busy machine control has had no CPU for most of a take-over's time.
/// It answers nothing while it attaches or detaches, as for a reload or a take-over: loading programs takes CPU time, and
/// closing sockets and programs waits for RCU grace periods of the kernel.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// The interval of progress reports of a drain.
pub const DRAIN_PROGRESS: Duration = Duration::from_millis(200);

/// The answer of programs without services to a question for their connections.
pub const NO_SERVICES: &str =
    "this program has no services, and so no connections: name another instance's socket with --socket";

/// The answer of programs other than switches to a change of ports.
pub const NO_SWITCH: &str =
    "this is no switch, and has no ports to change: name a switch's socket with --socket";

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// A part of the report: `{"show":"workers"}`.
    Show(Topic),
    /// Copies of frames: `{"capture":{"interface":"eth0","filter":"udp port 7"}}`. After the answer the
    /// connection carries a pcapng file, until the client closes its writing half.
    Capture(Capture),
    /// Measure the cost of a wake-up now: `"measure"`. The answer is the report's `machine`.
    Measure,
    /// The service's own sockets, for an instance that takes over: `"sockets"`. The descriptors follow the answer,
    /// which names them; then the new instance reports its progress on the same connection.
    Sockets,
    /// The same sockets, for a standby instance: `"standby"`. The connection stays open while the instance
    /// serves these sockets.
    #[serde(rename = "standby")]
    StandBy,
    /// Answer all accepted requests, and end: `{"drain":{"timeout_ms":1000}}`. The answer, repeated every
    /// [`DRAIN_PROGRESS`], is a [`Draining`](crate::report::Draining); the last one reports the end.
    Drain(Drain),
    /// Reload the configuration's file: `"reload"`. When the reload is complete, the answer lists the
    /// changes, one line for each: `{"changed":["worker.mode: \"adaptive\" -> \"poll\""]}`.
    Reload,
    /// A change of a switch's ports: `{"port":{"add":"veth3,vlan=10"}}`, `{"port":{"remove":"veth3"}}`,
    /// `{"port":{"set":{"port":"veth3","keys":["vlan=20"]}}}`. The answer, once that is complete, is as a reload's.
    Port(PortChange),
    /// Connections of services: `{"connections":{"peer":"10.0.0.0/8","limit":10}}`. The answer is a
    /// [`Connections`](crate::report::Connections).
    Connections(WhichConnections),
    /// A change: `{"set":{"worker":0,"mode":"poll"}}`, `{"set":{"latency":"20us"}}`.
    Set(Set),
}

/// Maximum number of connections in a list.
pub const CONNECTIONS_MAX: u32 = 10_000;

/// Which connections are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhichConnections {
    /// Only those of these peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SourceText>,
    /// Only those with this port at either end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Only those on this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<ConnectionPath>,
    /// How many at most, up to [`CONNECTIONS_MAX`].
    pub limit: u32,
}

impl Default for WhichConnections {
    fn default() -> Self {
        Self { peer: None, port: None, path: None, limit: 100 }
    }
}

/// The parameters of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// After this time the remaining connections are closed; the default is `limits.drain_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
}

/// A change while running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Set {
    /// The number of a worker; all workers without it.
    pub worker: Option<u32>,
    /// Its new mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The new goal of `adaptive`: a latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyGoal>,
    /// The new goal of `adaptive`: a share of CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuGoal>,
    /// Removes the goal: latency and CPU are weighed against each other.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_goal: bool,
    /// Whether the CPU time of each turn is measured, as `turn_cpu` of `show workers`. It costs two system calls per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_times: Option<bool>,
}

impl Set {
    /// The workers, out of `workers`, to which it applies.
    ///
    /// # Errors
    /// A sentence: there is no such worker, or the change contradicts itself.
    pub fn meant<'a, W>(&self, workers: &'a mut [W]) -> Result<&'a mut [W], String> {
        let goals = [self.latency.is_some(), self.cpu.is_some(), self.no_goal];
        if goals.into_iter().filter(|given| *given).count() > 1 {
            return Err(
                "a latency and a share of a core are two goals: give one of latency, cpu and no_goal"
                    .to_owned(),
            );
        }
        let count = workers.len();
        match self.worker {
            None => Ok(workers),
            Some(number) => workers.get_mut(number as usize).map(std::slice::from_mut).ok_or_else(|| {
                format!("there is no worker {number}: the last one is {}", count.saturating_sub(1))
            }),
        }
    }

    /// Hints for the user: a goal has no effect on a worker in a mode other than `adaptive`. `modes`: the numbers and
    /// modes of the workers.
    pub fn notes(&self, modes: impl Iterator<Item = (usize, Mode)>) -> Vec<String> {
        let goes = self.latency.is_some() || self.cpu.is_some();
        let idle = modes.filter(|(number, mode)| {
            let meant = self.worker.is_none_or(|worker| worker as usize == *number);
            goes && meant && self.mode.unwrap_or(*mode) != Mode::Adaptive
        });
        idle.map(|(number, mode)| {
            format!(
                "worker {number} is in mode {}, which has no goal to reach: this takes effect when it is in mode adaptive \
                 (twinpath set worker {number} mode adaptive)",
                self.mode.unwrap_or(mode).name()
            )
        })
        .collect()
    }

    /// The new goal of `adaptive`, if it changes.
    #[must_use]
    pub fn goal(&self) -> Option<Goal> {
        let changes = self.latency.is_some() || self.cpu.is_some() || self.no_goal;
        changes.then(|| goal(self.latency, self.cpu))
    }
}

/// A change of a switch's ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortChange {
    /// Adds a port, given as for `--port`.
    Add(String),
    /// Removes a port, by its name.
    Remove(String),
    /// Changes keys of a port.
    Set {
        /// Its name.
        port: String,
        /// Keys with their values, as `vlan=10`.
        keys: Vec<String>,
    },
}

/// The parameters of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// The interface.
    pub interface: String,
    /// A filter in the language of `twinpath_wire::filter`; empty: all frames.
    #[serde(default)]
    pub filter: String,
    /// Bytes of each frame to keep; without it, all.
    #[serde(default)]
    pub snaplen: Option<u32>,
    /// Frames after which it ends.
    #[serde(default)]
    pub count: Option<u64>,
}

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// Everything.
    All,
    /// The program that answers.
    Instance,
    /// The services, their paths, and the reasons.
    Services,
    /// The procedures of services.
    Rpc,
    /// Interfaces, their paths and queues.
    Interfaces,
    /// Claims and verdicts.
    Rules,
    /// The cost of a wake-up on the machine.
    Machine,
    /// Workers.
    Workers,
    /// Next hops in use.
    Neighbours,
    /// All frames and requests dropped or refused.
    Drops,
    /// Configuration keys and their values.
    Config,
    /// The ports of a switch.
    Ports,
    /// The addresses that a switch knows. There may be many, so no other topic lists them.
    Macs,
    /// The flows of a switch's OpenFlow tables. There may be many, so no other topic lists them, as with what follows.
    Flows,
    /// Their groups.
    Groups,
    /// Their meters.
    Meters,
    /// The OpenFlow controllers of a switch.
    Controllers,
    /// The programs to which the owner of an interface gives rings.
    Programs,
    /// Reliable Datagram Sockets: paths to peers, and sockets of programs.
    Rds,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::All,
        Self::Instance,
        Self::Services,
        Self::Rpc,
        Self::Interfaces,
        Self::Rules,
        Self::Machine,
        Self::Workers,
        Self::Neighbours,
        Self::Drops,
        Self::Config,
        Self::Ports,
        Self::Macs,
        Self::Flows,
        Self::Groups,
        Self::Meters,
        Self::Controllers,
        Self::Programs,
        Self::Rds,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Instance => "instance",
            Self::Services => "services",
            Self::Rpc => "rpc",
            Self::Interfaces => "interfaces",
            Self::Rules => "rules",
            Self::Machine => "machine",
            Self::Workers => "workers",
            Self::Neighbours => "neighbours",
            Self::Drops => "drops",
            Self::Config => "config",
            Self::Ports => "ports",
            Self::Macs => "macs",
            Self::Flows => "flows",
            Self::Groups => "groups",
            Self::Meters => "meters",
            Self::Controllers => "controllers",
            Self::Programs => "programs",
            Self::Rds => "rds",
        }
    }

    /// Whether it includes the next hops in use. There may be thousands, so no other topic lists them.
    #[must_use]
    pub const fn has_neighbours(self) -> bool {
        matches!(self, Self::All | Self::Neighbours)
    }

    /// This part of a report: the whole report, or an object with the one topic.
    ///
    /// # Errors
    /// A sentence, if the report cannot be written as JSON (it always can).
    pub fn of(self, report: &crate::report::Report) -> Result<serde_json::Value, String> {
        let whole = serde_json::to_value(report).map_err(|error| error.to_string())?;
        match whole {
            serde_json::Value::Object(mut fields) if self != Self::All => {
                let of_switch = matches!(
                    self,
                    Self::Ports | Self::Macs | Self::Flows | Self::Groups | Self::Meters | Self::Controllers
                );
                fields.retain(|name, _| name == self.name() || (of_switch && name == "switch"));
                Ok(serde_json::Value::Object(fields))
            }
            whole => Ok(whole),
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// The line of a successful answer.
pub fn answer_line(value: serde_json::Value) -> Vec<u8> {
    server::line(&Answer::Ok(value))
}

/// The line of a refusal.
pub fn refusal(sentence: &str) -> Vec<u8> {
    server::line(&Answer::Error(sentence.to_owned()))
}

/// A successful answer that contains only hints.
pub fn with_notes(notes: Vec<String>) -> serde_json::Value {
    if notes.is_empty() { serde_json::json!({}) } else { serde_json::json!({ "notes": notes }) }
}

/// A successful answer without content.
pub fn agreement() -> Vec<u8> {
    server::line(&Answer::Ok(serde_json::json!({})))
}

/// An error of a command socket.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The folder cannot be created, or others may change its content.
    #[error("no command socket: {0}; another one is named with --socket")]
    Folder(#[from] TrustError),
    /// The listener at the other end belongs to another user.
    #[error(
        "{} is listened on by user {uid}, not by root or this user ({own}): it is not believed; ask as that user",
        path.display()
    )]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// The listener's user.
        uid: u32,
        /// Our effective user.
        own: u32,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket: it stays; name another socket with --socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Another process listens there.
    #[error("another instance listens on {}: name another socket with --socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A dead instance's socket cannot be removed.
    #[error("cannot remove the stale socket {}: {error}", path.display())]
    Stale {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {}: {error}; name another socket with --socket, where this user may write", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No instance answers there.
    #[error("no instance answers on {}: {error}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The connection failed.
    #[error("the instance at {} stopped answering: {error}", path.display())]
    Talk {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The instance refused the request.
    #[error("{0}")]
    Refused(String),
}

/// The folder of root's instances, with subfolders for systemd units.
const SYSTEM_DIRECTORY: &str = "/run/twinpath";

/// The default folder of sockets: `/run/twinpath` for root, `$XDG_RUNTIME_DIR/twinpath` for other users, or else a
/// folder of the user's in the temporary directory.
#[must_use]
pub fn run_directory() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from(SYSTEM_DIRECTORY);
    }
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    match base {
        Some(base) => PathBuf::from(base).join("twinpath"),
        None => std::env::temp_dir().join(format!("twinpath-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The folders in which instances are searched: this user's own, and the system's.
#[must_use]
pub fn run_directories() -> Vec<PathBuf> {
    let mut directories = vec![run_directory(), PathBuf::from(SYSTEM_DIRECTORY)];
    directories.dedup();
    directories
}

/// Whether a user is trusted: root or this user.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The default socket of an instance in `directory`: `SERVICE-INTERFACE-PID.sock`.
#[must_use]
pub fn default_socket(directory: &Path, service: &str, interface: &str) -> PathBuf {
    directory.join(format!("{service}-{interface}-{}.sock", std::process::id()))
}

#[cfg(test)]
mod tests;
