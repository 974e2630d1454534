//! `twinpath tidy`: removes what killed instances have left behind, and nothing of a live one.
//!
//! Only classic filters at tc are left behind, on kernels without BPF links there. They have no effect, but are called
//! for each frame.

use std::process::ExitCode;

use twinpath_steer_bpf::{Leftover, leftovers, tidy};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only say what there is
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = if args.dry_run { leftovers(None)? } else { tidy(None)? };
    for Leftover { interface, program, pid } in &found {
        let done = if args.dry_run { "there is" } else { "removed" };
        println!("{interface}: {done} {program}, left behind by process {pid}, which was killed");
    }
    if found.is_empty() {
        println!("nothing was left behind in this network namespace");
    }
    Ok(ExitCode::SUCCESS)
}

/// A hint for the error that no instance runs.
pub(crate) fn hint() -> String {
    let found = leftovers(None).unwrap_or_default();
    let line = |Leftover { interface, program, pid }: &Leftover| {
        format!(
            "\n  process {pid}, which was killed, has left {program} on {interface}: `twinpath tidy` removes it"
        )
    };
    found.iter().map(line).collect()
}
