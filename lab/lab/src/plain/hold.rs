//! `plain tcp-hold`: opens connections that are a burden to a server, and holds them until a signal.

use std::net::SocketAddr;
use std::sync::Mutex;

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_test_plain::{Held, Holding, tcp_hold};

/// Other descriptors of the process: those at its start, the epoll, and the one that stops it.
const OTHER_DESCRIPTORS: u64 = 32;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server
    target: SocketAddr,
    /// How many
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Each sends NULL calls as long as the kernel takes any, and reads no reply; without this they say nothing
    #[arg(long)]
    never_read: bool,
}

/// The line printed when all are open and no more bytes can be sent, and the one at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HeldReport {
    pub(crate) connections: usize,
    /// Connections that the server has closed.
    pub(crate) closed: usize,
    pub(crate) sent_bytes: u64,
}

impl HeldReport {
    fn of(held: &Held) -> Self {
        Self { connections: held.connections, closed: held.closed, sent_bytes: held.sent_bytes }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let needed = args.connections as u64 + OTHER_DESCRIPTORS;
    let allowed = raise_descriptors();
    ensure!(
        allowed.is_none_or(|allowed| needed <= allowed),
        "--connections {} needs {needed} descriptors, and this process may have {}: raise the limit (ulimit -Hn), or ask for fewer",
        args.connections,
        allowed.unwrap_or_default()
    );
    let holding = if args.never_read { Holding::NeverReads } else { Holding::Idle };
    let stop = Stop::new();
    let printed = Mutex::new(Ok(()));
    let (held, _) = attend(&stop, None, || {
        tcp_hold(args.target, args.connections, holding, &stop, |held| {
            let mut ready = json!(HeldReport::of(held));
            ready["ready"] = json!(true);
            ready["pid"] = json!(std::process::id());
            if let (Err(error), Ok(mut printed)) = (print(ready), printed.lock()) {
                *printed = Err(error);
            }
        })
    })?;
    let held = held.with_context(|| format!("cannot hold {} connections", args.connections))?;
    if let Ok(printed) = printed.into_inner() {
        printed?;
    }
    Ok(print(serde_json::to_string(&HeldReport::of(&held))?)?)
}

/// Raises the limit of descriptors as far as permitted; returns it, `None` without a limit.
pub(super) fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, the old limit stays, and opening connections fails with an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current
}
