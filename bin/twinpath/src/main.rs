//! `twinpath`: every network service on two paths.

mod bench;
mod bridge;
mod capture;
mod drain;
mod lab;
mod log;
mod plain;
mod serve;
mod set;
mod show;
mod top;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Counts allocations per thread, so that a worker can prove it makes none while packets flow.
#[global_allocator]
static ALLOCATOR: twinpath_sys::allocations::Counting = twinpath_sys::allocations::Counting;

#[derive(Parser)]
#[command(
    name = "twinpath",
    version,
    about = "Two paths for every network service: a fast one in user space for the flows it claims, the kernel's own for everything else"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve on both paths.
    Serve(Box<serve::Args>),
    /// Carry frames between a device and a kernel interface in its place: an exception port.
    Bridge(bridge::Args),
    /// Ask a running instance what it does, and why.
    Show(show::Args),
    /// Write what passes on a fast path into a pcapng file.
    Capture(capture::Args),
    /// What running instances do, per second, live.
    Top(top::Args),
    /// Change a running instance.
    Set(set::Args),
    /// Have a running instance answer what it has accepted, and end.
    Drain(drain::Args),
    /// What of this machine and an interface makes services slow to answer; change it, and put it back.
    Tune(tune::Args),
    /// Measure a service, verifying every reply.
    Bench(bench::Args),
    /// Reproduce a measurement against the kernel and its peers, both sides in one run.
    Lab(lab::Args),
    /// The plain kernel servers that the labs compare against.
    #[command(hide = true)]
    Plain(plain::Args),
    /// The only program of a lab's guest.
    #[command(hide = true)]
    LabGuest,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Bridge(args) => bridge::run(args),
        Command::Show(args) => show::run(args),
        Command::Capture(args) => capture::run(args),
        Command::Top(args) => top::run(args),
        Command::Set(args) => set::run(args),
        Command::Drain(args) => drain::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Plain(args) => plain::run(args),
        Command::LabGuest => lab::run_inside_guest(),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twinpath: {}", in_words(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes as one sentence; a cause that its effect already tells is not told again.
fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told {
        told if told.is_empty() => cause,
        told if told.contains(&cause) => told,
        told => format!("{told}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("no route").context("cannot send: no route").context("the bench ended");
        assert_eq!(in_words(&error), "the bench ended: cannot send: no route");
    }
}
