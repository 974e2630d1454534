//! The peer `twinpath-lab plain mirror`: an echo by a program at tc of some thirty lines.

use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_test_plain::TcMirror;

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
    super::on_event_loop(async {
        let mut told = super::EndSignals::new()?;
        let attach = if args.drop { TcMirror::drop_all } else { TcMirror::attach };
        let _program = attach(interface_index(&args.on)?, args.port)?;
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        told.come().await;
        Ok(())
    })
}
