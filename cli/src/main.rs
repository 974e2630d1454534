//! `twinpath`: network services on two paths, the fast path and the kernel's stack.

mod bench;
#[cfg(feature = "all")]
mod bridge;
#[cfg(feature = "all")]
mod capture;
mod doctor;
#[cfg(test)]
mod documents;
mod drain;
#[cfg(feature = "all")]
mod elf;
mod log;
#[cfg(not(feature = "all"))]
mod not_built;
mod options;
mod port;
mod preload;
#[cfg(feature = "all")]
mod program;
#[cfg(feature = "all")]
mod rds;
mod reload;
#[cfg(feature = "all")]
mod run;
mod serve;
mod set;
mod show;
#[cfg(feature = "all")]
mod sockets;
#[cfg(feature = "all")]
mod starter;
#[cfg(feature = "all")]
mod switch;
mod tidy;
#[cfg(feature = "all")]
mod top;
mod tune;
mod wrap;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(not(feature = "all"))]
use crate::{
    not_built as bridge, not_built as capture, not_built as rds, not_built as run, not_built as sockets,
    not_built as starter, not_built as switch, not_built as top,
};

/// Counts allocations per thread, to verify that workers make none while packets flow.
#[global_allocator]
static ALLOCATOR: twinpath_sys::allocations::Counting = twinpath_sys::allocations::Counting;

#[derive(Parser)]
#[command(
    name = "twinpath",
    version = env!("TWINPATH_VERSION"),
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
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Bridge(Box<bridge::Args>),
    /// Carry frames between interfaces and processes: an Ethernet switch.
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Switch(Box<switch::Args>),
    /// Show the state of a running instance, with the reasons for its choices.
    Show(show::Args),
    /// Write the frames of a fast path to a pcapng file.
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Capture(capture::Args),
    /// Show the activity of running instances per second, live.
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Top(top::Args),
    /// Change a running instance.
    Set(set::Args),
    /// Add, remove or change a port of a running switch.
    Port(port::Args),
    /// Let a running instance read its configuration again.
    Reload(reload::Args),
    /// Let a running instance answer all accepted requests, then end.
    Drain(drain::Args),
    /// Remove the programs that killed instances have left on interfaces.
    Tidy(tidy::Args),
    /// Examine this host: the path of each interface, obstacles, and the benefit of newer kernels.
    Doctor(doctor::Args),
    /// Find settings of this machine and an interface that make replies slow; change and restore them.
    Tune(Box<tune::Args>),
    /// Run an unmodified program with a fast path for its UDP sockets.
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Run(run::Args),
    /// Own an interface: give programs without rights rings for their own UDP sockets.
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Sockets(sockets::Args),
    /// Serve Reliable Datagram Sockets to the programs of this host.
    #[cfg_attr(not(feature = "all"), command(hide = true, disable_help_flag = true))]
    Rds(rds::Args),
    /// Starts owners for the program of `twinpath run`, which runs it.
    #[command(hide = true)]
    Starter(starter::Args),
    /// Keeps the sockets of programs for the next `twinpath rds`, if one is killed.
    #[cfg(feature = "all")]
    #[command(hide = true)]
    RdsKeeper(rds::KeeperArgs),
    /// Measure a service, verifying every reply.
    Bench(bench::Args),
    /// Where the labs went.
    #[command(hide = true, disable_help_flag = true)]
    Lab(Moved),
    /// Where the plain servers of the labs went.
    #[command(hide = true, disable_help_flag = true)]
    Plain(Moved),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Bridge(args) => bridge::run(*args),
        Command::Switch(args) => switch::run(*args),
        Command::Show(args) => show::run(args),
        Command::Capture(args) => capture::run(args),
        Command::Top(args) => top::run(args),
        Command::Set(args) => set::run(args),
        Command::Port(args) => port::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Drain(args) => drain::run(args),
        Command::Tidy(args) => tidy::run(&args),
        Command::Doctor(args) => doctor::run(args),
        Command::Tune(args) => tune::run(*args),
        Command::Run(args) => run::run(args),
        Command::Sockets(args) => sockets::run(args),
        Command::Rds(args) => rds::run(args),
        #[cfg(feature = "all")]
        Command::Starter(args) => starter::run(&args),
        #[cfg(not(feature = "all"))]
        Command::Starter(args) => starter::run(args),
        #[cfg(feature = "all")]
        Command::RdsKeeper(args) => rds::keep(&args),
        Command::Bench(args) => bench::run(args),
        Command::Lab(args) => args.refuse("lab", ""),
        Command::Plain(args) => args.refuse("plain", "plain "),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("twinpath: {}", twinpath_clients::measure::in_words(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a program with workers. `left`: threads that hung at the end; the log names them, and
/// they ended with the process.
fn ended(left: &[String]) -> ExitCode {
    if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The exit code, the same as for a wrong command line.
const MOVED: u8 = 2;

/// The arguments of a command that has moved to another program.
#[derive(clap::Args)]
struct Moved {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Moved {
    /// Prints the command to use instead of `twinpath COMMAND ...`.
    fn refuse(&self, command: &str, there: &str) -> anyhow::Result<ExitCode> {
        eprintln!(
            "twinpath: `{command}` is in a program of its own, twinpath-lab, which `make build` builds beside this one: \
             run `twinpath-lab {there}{}`",
            self.arguments.join(" ")
        );
        Ok(ExitCode::from(MOVED))
    }
}
