//! `twinpath set`: changes a running instance.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use twinpath_control::command::{Request, Set, ask};
use twinpath_control::config;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What a worker does when there is no work: `set worker 0 mode poll`.
    Worker {
        /// Its number, as `show workers` says it, or `all`.
        worker: Which,
        /// The setting.
        setting: Setting,
        /// Its new value.
        mode: Mode,
        /// The command socket of the instance, where more than one runs.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which(Option<u32>);

impl std::str::FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(None));
        }
        let number = text.parse().map_err(|_| "give the number of a worker, or all".to_owned())?;
        Ok(Self(Some(number)))
    }
}

/// The settings that can change while running.
#[derive(Clone, Copy, ValueEnum)]
enum Setting {
    /// What it does when there is no work.
    Mode,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Spins for a bounded time, then sleeps.
    Adaptive,
    /// Sleeps at once.
    Interrupt,
    /// Never sleeps.
    Poll,
}

impl From<Mode> for config::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Adaptive => Self::Adaptive,
            Mode::Interrupt => Self::Interrupt,
            Mode::Poll => Self::Poll,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Worker { worker: Which(worker), setting: Setting::Mode, mode, socket } = args.what;
    let socket = crate::show::socket(socket)?;
    ask(&socket, &Request::Set(Set { worker, mode: mode.into() }))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_a_number_or_all() {
        assert_eq!("all".parse::<Which>().unwrap(), Which(None));
        assert_eq!("3".parse::<Which>().unwrap(), Which(Some(3)));
        assert!("-1".parse::<Which>().is_err() && "every".parse::<Which>().is_err());
    }
}
