//! `twinpath tidy`: removes what killed instances have left behind, and nothing of a live one.
//!
//! Classic filters at tc are left behind on kernels without BPF links for tc. They have no effect, but are
//! called for each frame. A switch with `on_exit = "keep=SECONDS"` leaves the programs by which its flows
//! continue. These have no effect once that time is over; until then they are removed only on request.

use std::process::ExitCode;

use twinpath_bpf::{Left, Leftover, kept, leftovers, remove_kept, tidy};
use twinpath_sys::clock;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only list them
    #[arg(long)]
    dry_run: bool,

    /// Also end the flows of this switch, which continue without it (its `on_exit` is keep)
    #[arg(long, value_name = "SWITCH")]
    kept: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = if args.dry_run { leftovers(None)? } else { tidy(None)? };
    for Leftover { interface, program, pid } in &found {
        let done = if args.dry_run { "there is" } else { "removed" };
        println!("{interface}: {done} {program}, left behind by process {pid}, which was killed");
    }
    let now = clock::now();
    let left = if args.dry_run { kept(now) } else { remove_kept(args.kept.as_deref(), now)? };
    let done = if args.dry_run { "there is" } else { "removed" };
    for Left { switch, interfaces, until, .. } in &left {
        let state = match until {
            Some(until) => format!("whose flows go on for {} s", until.since(now).as_secs() + 1),
            None => "whose flows go on no longer".to_owned(),
        };
        println!("switch {switch}: {done} what it has left at {interfaces} interfaces, {state}");
    }
    let going_on = if args.dry_run { Vec::new() } else { kept(now) };
    for Left { switch, .. } in &going_on {
        println!("switch {switch}: its flows go on in the kernel; `twinpath tidy --kept {switch}` ends that");
    }
    if found.is_empty() && left.is_empty() && going_on.is_empty() {
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
