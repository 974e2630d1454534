//! The peer `twinpath-lab plain mirror`: an echo by a program at tc of some thirty lines.

use anyhow::Context;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use twinpath_measure::print;
use twinpath_plain::TcMirror;

use super::reflect::interface_index;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface
    #[arg(long, value_name = "IFACE")]
    on: String,
    /// The UDP port, over IPv4
    #[arg(long)]
    port: u16,
    /// Drop the datagrams instead
    #[arg(long)]
    drop: bool,
}

/// Prints a line when the program is attached, and leaves it there until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start an event loop")?.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let attach = if args.drop { TcMirror::drop_all } else { TcMirror::attach };
        let _program = attach(interface_index(&args.on)?, args.port)?;
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}
