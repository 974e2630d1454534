//! `twinpath set`: changes a running instance.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use twinpath_command::{Request, Set, ask};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// How a worker idles: `set worker 0 mode poll`, `set worker all latency 20us`.
    Worker {
        /// Its number, as `show workers` says it, or `all`.
        worker: Which,
        /// The setting.
        setting: Setting,
        /// Its new value: adaptive, interrupt or poll; a time such as 20us; a share of a core such as 5%; none for no goal.
        value: String,
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
    /// How it idles: adaptive (learns when packets come), interrupt (sleeps at once) or poll (never sleeps).
    Mode,
    /// The goal of adaptive: 99 % of the packets are found within this time.
    Latency,
    /// The goal of adaptive: at most this share of a core is spent waiting.
    Cpu,
}

/// The change for a setting and its value.
fn change(setting: Setting, value: &str) -> anyhow::Result<Set> {
    let mut change = Set::default();
    match setting {
        Setting::Mode => change.mode = Some(value.parse().map_err(anyhow::Error::msg)?),
        Setting::Latency | Setting::Cpu if value == "none" => change.no_goal = true,
        Setting::Latency => change.latency = Some(value.parse()?),
        Setting::Cpu => change.cpu = Some(value.parse()?),
    }
    Ok(change)
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Worker { worker: Which(worker), setting, value, socket } = args.what;
    let change = Set { worker, ..change(setting, &value)? };
    let socket = crate::show::socket(socket)?;
    let answer = ask(&socket, &Request::Set(change))?;
    for note in answer["notes"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str) {
        eprintln!("twinpath: {note}");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_a_number_or_all() {
        assert_eq!("all".parse::<Which>().unwrap(), Which(None));
        assert_eq!("3".parse::<Which>().unwrap(), Which(Some(3)));
        assert!(change(Setting::Mode, "fast").unwrap_err().to_string().contains("choose adaptive"));
        assert!(change(Setting::Latency, "20").unwrap_err().to_string().contains("20us"));
        assert!(change(Setting::Cpu, "5").unwrap_err().to_string().contains("5%"));
        assert!(change(Setting::Cpu, "5%").unwrap().cpu.is_some());
        assert!(change(Setting::Latency, "none").unwrap().no_goal);
        assert!("-1".parse::<Which>().is_err() && "every".parse::<Which>().is_err());
    }
}
