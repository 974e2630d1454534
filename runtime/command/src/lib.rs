//! The command socket: one request and one answer a line, as JSON, over a UNIX stream.
//!
//! Root and the user that the instance runs as may talk to it, for changes and for looking alike. The socket has mode 0600 in a
//! folder that nobody else can change, and each end asks the kernel for the user at the other one (`SO_PEERCRED`, unix(7)): the
//! server before it reads, a client before it sends, or takes descriptors.

mod client;
mod server;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twinpath_config::{CpuGoal, LatencyGoal, Mode, goal};
use twinpath_idle::Goal;
use twinpath_sys::trusted_dir::TrustError;

pub use self::client::{Found, ask, connect, find_instances, follow_drain, interpret};
pub use self::server::{Server, ServerCounters};

/// Longest request, bytes, with its newline.
pub const REQUEST_MAX: usize = 64 * 1024;
/// Longest answer that the client takes, bytes: 4096 peers and 64 workers are some 2 MiB.
pub const ANSWER_MAX: usize = 16 * 1024 * 1024;
/// Clients at once; the next is told so and let go.
pub const CLIENTS_MAX: usize = 16;
/// A client that says nothing, or does not read what it asked for, for so long is let go.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long a reload may take: programs and sockets come off after RCU grace periods of the kernel, which on a busy machine take seconds each.
pub const RELOAD_PATIENCE: Duration = Duration::from_secs(60);
/// How often who asked for a drain is told how far it is.
pub const DRAIN_PROGRESS: Duration = Duration::from_millis(200);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// A part of the report: `{"show":"workers"}`.
    Show(Topic),
    /// Copies of frames: `{"capture":{"interface":"eth0","filter":"udp port 7"}}`. After the answer the connection carries
    /// a pcapng file, until the client closes its writing half.
    Capture(Capture),
    /// What waking up costs, measured now: `"measure"`. The answer is the report's `machine`.
    Measure,
    /// The service's own sockets, for an instance that is to take over: `"sockets"`. Behind the answer, which names them, they come as
    /// descriptors; on the same connection it then says how far it is.
    Sockets,
    /// The same sockets, for an instance that is to stand by: `"standby"`. The connection then stays open as long as the instance serves these.
    #[serde(rename = "standby")]
    StandBy,
    /// Answer what was accepted, and end: `{"drain":{"timeout_ms":1000}}`. The answer, and every [`DRAIN_PROGRESS`] another one, is a
    /// [`Draining`](twinpath_report::Draining); the last one says that it is over.
    Drain(Drain),
    /// Read the configuration's file again, and do what it says: `"reload"`. The answer, once that is done, is what has changed, a line for
    /// each: `{"changed":["worker.mode: \"adaptive\" -> \"poll\""]}`.
    Reload,
    /// A change: `{"set":{"worker":0,"mode":"poll"}}`, `{"set":{"latency":"20us"}}`.
    Set(Set),
}

/// How the instance is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// After so long, what has not ended is closed; without it, `limits.drain_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
}

/// A change while running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Set {
    /// Which worker; all without it.
    pub worker: Option<u32>,
    /// Its new mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What `adaptive` is to reach from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyGoal>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuGoal>,
    /// It has no goal any more: latency and CPU are weighed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_goal: bool,
}

impl Set {
    /// Those of `workers` that it is for.
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

    /// What somebody who makes this change should know: a goal has no effect on a worker that is in one of `modes`, each with its number,
    /// but `adaptive`.
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

    /// What `adaptive` is to reach from now on, if that changes.
    #[must_use]
    pub fn goal(&self) -> Option<Goal> {
        let changes = self.latency.is_some() || self.cpu.is_some() || self.no_goal;
        changes.then(|| goal(self.latency, self.cpu))
    }
}

/// What to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// On which interface.
    pub interface: String,
    /// Which frames, as `twinpath_filter` reads it; empty: all.
    #[serde(default)]
    pub filter: String,
    /// Bytes of a frame to keep; without it, all.
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
    /// What is served, by which path, and why.
    Services,
    /// Interfaces, their paths and queues.
    Interfaces,
    /// Claims and verdicts.
    Rules,
    /// What waking up costs on the machine.
    Machine,
    /// Workers.
    Workers,
    /// Next hops in use.
    Neighbours,
    /// Everything dropped or refused.
    Drops,
    /// Configuration keys and their values.
    Config,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::All,
        Self::Instance,
        Self::Services,
        Self::Interfaces,
        Self::Rules,
        Self::Machine,
        Self::Workers,
        Self::Neighbours,
        Self::Drops,
        Self::Config,
    ];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Instance => "instance",
            Self::Services => "services",
            Self::Interfaces => "interfaces",
            Self::Rules => "rules",
            Self::Machine => "machine",
            Self::Workers => "workers",
            Self::Neighbours => "neighbours",
            Self::Drops => "drops",
            Self::Config => "config",
        }
    }

    /// Whether the next hops in use belong to it. There may be thousands, so they are listed for no other topic.
    #[must_use]
    pub const fn has_neighbours(self) -> bool {
        matches!(self, Self::All | Self::Neighbours)
    }

    /// That part of a report: the report itself, or an object with the one topic.
    ///
    /// # Errors
    /// In one sentence, if the report cannot be written as JSON (it always can).
    pub fn of(self, report: &twinpath_report::Report) -> Result<serde_json::Value, String> {
        let whole = serde_json::to_value(report).map_err(|error| error.to_string())?;
        match whole {
            serde_json::Value::Object(mut fields) if self != Self::All => {
                fields.retain(|name, _| name == self.name());
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

/// One line back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// The line that says yes, with something.
pub fn answer_line(value: serde_json::Value) -> Vec<u8> {
    server::line(&Answer::Ok(value))
}

/// The line that says no.
pub fn refusal(sentence: &str) -> Vec<u8> {
    server::line(&Answer::Error(sentence.to_owned()))
}

/// An answer that has nothing to say but what one should know.
pub fn with_notes(notes: Vec<String>) -> serde_json::Value {
    if notes.is_empty() { serde_json::json!({}) } else { serde_json::json!({ "notes": notes }) }
}

/// The line that says yes, and nothing more.
pub fn agreement() -> Vec<u8> {
    server::line(&Answer::Ok(serde_json::json!({})))
}

/// What went wrong with a command socket.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The folder cannot be made, or somebody else could change what is in it.
    #[error("no command socket: {0}; another one is named with --socket")]
    Folder(#[from] TrustError),
    /// The listener at the other end is somebody else's.
    #[error(
        "{} is listened on by user {uid}, not by root or this user ({own}): it is not believed; ask as that user",
        path.display()
    )]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// Whose listener it is.
        uid: u32,
        /// Our effective user.
        own: u32,
    },
    /// Something else than a socket is there.
    #[error("{} exists and is not a socket: it stays; name another socket with --socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Somebody listens there.
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
    /// The socket cannot be made.
    #[error("cannot listen on {}: {error}; name another socket with --socket, where this user may write", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Nobody answers there.
    #[error("no instance answers on {}: {error}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The conversation broke.
    #[error("the instance at {} stopped answering: {error}", path.display())]
    Talk {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The instance said no.
    #[error("{0}")]
    Refused(String),
}

/// Where root's instances are, and units have folders of their own.
const SYSTEM_DIRECTORY: &str = "/run/twinpath";

/// Where sockets are made by default: `/run/twinpath` for root, `$XDG_RUNTIME_DIR/twinpath` for everybody else; a folder of the
/// user's in the temporary directory where there is neither.
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

/// Where instances are looked for: this user's own folder, and the system's.
#[must_use]
pub fn run_directories() -> Vec<PathBuf> {
    let mut directories = vec![run_directory(), PathBuf::from(SYSTEM_DIRECTORY)];
    directories.dedup();
    directories
}

/// Root and this user: nobody else is answered, or believed.
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
