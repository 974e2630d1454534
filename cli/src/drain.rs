//! `twinpath drain`: drains a running instance, and shows the progress.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use twinpath_observe::command::{Drain, follow_drain};
use twinpath_observe::report::Draining;

/// The exit code if connections were closed before all their requests were answered.
const CUT_OFF: u8 = 3;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Close the remaining connections after this time, ms; 0: at once [default: the instance's limits.drain_ms]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(..=3_600_000))]
    timeout_ms: Option<u32>,
    /// The command socket of the instance, where more than one runs.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = crate::show::socket(args.socket)?;
    let wish = Drain { timeout_ms: args.timeout_ms };
    let (begun, mut told) = (Instant::now(), None);
    let last = follow_drain(&socket, wish, |now| {
        if told != Some(now.connections) && !now.over {
            let first = if told.is_none() { "; it goes on if this command ends" } else { "" };
            eprintln!("{}{first}", progress(now));
            told = Some(now.connections);
        }
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    if last.cut_off > 0 {
        eprintln!(
            "drained in {seconds:.1} s: {} connections had not ended in time and were closed (drain_timeout)",
            last.cut_off
        );
        return Ok(ExitCode::from(CUT_OFF));
    }
    eprintln!("drained in {seconds:.1} s: everything accepted was answered");
    Ok(ExitCode::SUCCESS)
}

fn progress(now: Draining) -> String {
    let Draining { connections, left_ms, .. } = now;
    format!("draining: {connections} connections left, {:.1} s until they are closed", left_ms as f64 / 1e3)
}
