//! `twinpath-lab`: measures twinpath against the kernel and its peers.
//!
//! It is a program of its own, so that the product contains nothing of it, and it starts `twinpath` as any user would.
//! Without the feature `all` it has the lab `quick` and its peers alone: `make run` builds only what it runs.

// What all labs share has parts that only the others use.
#![cfg_attr(not(feature = "all"), allow(dead_code))]

#[cfg(feature = "all")]
mod foreign;
mod lab;
#[cfg(feature = "all")]
mod openflow;
mod plain;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Counts allocations per thread, as the product does, because a lab drives a worker of its own for some rows.
#[global_allocator]
static ALLOCATOR: twinpath_sys::allocations::Counting = twinpath_sys::allocations::Counting;

#[derive(Parser)]
#[command(
    name = "twinpath-lab",
    version,
    about = "Reproduces a measurement of twinpath against the kernel and its peers, both sides in one run",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    lab: Option<lab::Args>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The plain kernel servers that the labs compare against.
    #[command(hide = true)]
    Plain(plain::Args),
    #[cfg(feature = "all")]
    /// The init process of a lab's guest.
    #[command(hide = true)]
    LabGuest,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse() {
        Cli { command: Some(Command::Plain(args)), .. } => plain::run(args),
        #[cfg(feature = "all")]
        Cli { command: Some(Command::LabGuest), .. } => lab::run_inside_guest(),
        Cli { lab: Some(args), command: None } => lab::run(args),
        Cli { lab: None, command: None } => Err(anyhow::anyhow!("which lab? Try --help")),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twinpath-lab: {}", twinpath_clients::measure::in_words(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
