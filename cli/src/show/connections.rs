//! `twinpath show connections`: lists TCP connections of an instance's services.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use twinpath_config::SourceText;
use twinpath_observe::command::{Request, WhichConnections, ask};
use twinpath_observe::report::{Connection, ConnectionPath, Connections};

use super::grid::table;

/// Which connections are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(super) struct Which {
    /// For `show connections`: only those of these peers, as `10.0.0.0/8`.
    #[arg(long, value_name = "PREFIX")]
    peer: Option<SourceText>,
    /// For `show connections`: only those with this port at either end.
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// For `show connections`: only those on this path.
    #[arg(long, value_name = "PATH")]
    path: Option<OnPath>,
    /// For `show connections`: at most so many, 1 to 10000; 100 without it.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnPath {
    /// Those that workers have.
    Fast,
    /// Those of the kernel's sockets.
    Kernel,
}

impl From<Which> for WhichConnections {
    fn from(which: Which) -> Self {
        let path = which.path.map(|path| match path {
            OnPath::Fast => ConnectionPath::Fast,
            OnPath::Kernel => ConnectionPath::Kernel,
        });
        let limit = which.limit.unwrap_or_else(|| Self::default().limit);
        Self { peer: which.peer, port: which.port, path, limit }
    }
}

pub(super) fn run(socket: &Path, which: Which, json: bool) -> anyhow::Result<ExitCode> {
    let answer = ask(socket, &Request::Connections(which.into()))?;
    let text = if json {
        serde_json::to_string_pretty(&answer).context("the answer cannot be written as JSON")?
    } else {
        let found: Connections =
            serde_json::from_value(answer).context("the instance is another version: show it with --json")?;
        render(&found)
    };
    // A closed pipe (`| head`) is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
    Ok(ExitCode::SUCCESS)
}

fn render(found: &Connections) -> String {
    let header = [
        "peer", "local", "service", "path", "state", "why", "worker", "rtt us", "cwnd", "mss", "unacked",
        "retrans", "acked", "received",
    ];
    let mut connections = table(&header, 6);
    for connection in &found.connections {
        connections.add_row(row(connection));
    }
    let mut text =
        if found.connections.is_empty() { "no connections".to_owned() } else { connections.to_string() };
    if found.has_more {
        text.push_str("\nthere are more: ask for some by --peer, --port or --path, or for more by --limit");
    }
    for worker in &found.silent_workers {
        text.push_str(&format!("\nworker {worker} has not answered: its connections are missing"));
    }
    text
}

fn row(connection: &Connection) -> [String; 14] {
    let path = match connection.path {
        ConnectionPath::Fast => "fast",
        ConnectionPath::Kernel => "kernel",
    };
    [
        connection.peer.to_string(),
        connection.local.to_string(),
        connection.service.clone(),
        path.to_owned(),
        connection.state.clone(),
        connection.why.clone(),
        connection.worker.to_string(),
        connection.rtt_us.to_string(),
        connection.snd_cwnd.to_string(),
        connection.snd_mss.to_string(),
        connection.unacked.to_string(),
        connection.total_retrans.to_string(),
        connection.bytes_acked.to_string(),
        connection.bytes_received.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_in_a_list_is_said() {
        let found = Connections { has_more: true, silent_workers: vec![2], ..Connections::default() };
        let text = render(&found);
        assert!(text.starts_with("no connections\nthere are more: "), "{text}");
        assert!(text.ends_with("worker 2 has not answered: its connections are missing"), "{text}");
    }
}
