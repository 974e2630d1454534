//! `twinpath set`: changes a running instance.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;
use twinpath_config::{Change, Key, Worker};
use twinpath_observe::command::{Request, Set, ask};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// How a worker idles: `set worker 0 mode poll`, `set worker all latency 20us`.
    Worker {
        /// Its number, as in `show workers`, or `all`.
        worker: Which,
        /// The key of the table `worker` of the configuration.
        #[arg(value_parser = setting())]
        setting: &'static Key,
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

/// The keys of a worker that can be changed while it runs, according to the configuration's definitions.
fn settings() -> impl Iterator<Item = &'static Key> {
    Worker::KEYS.iter().filter(|key| key.change == Change::Set)
}

/// Reads the name of such a key.
fn setting() -> impl TypedValueParser<Value = &'static Key> {
    let names = settings().map(|key| PossibleValue::new(key.name).help(key.help()));
    PossibleValuesParser::new(names)
        .try_map(|name| settings().find(|key| key.name == name).ok_or("there is no such setting"))
}

/// The change that gives a key this value, for one worker or for all.
fn change(worker: Option<u32>, key: &Key, value: &str) -> anyhow::Result<Set> {
    if !key.unset.is_empty() && value == key.unset {
        return Ok(Set { worker, no_goal: true, ..Set::default() });
    }
    key.read(&[value.to_owned()]).map_err(anyhow::Error::msg)?;
    // The fields of the request are named like the keys.
    Ok(serde_json::from_value(json!({ "worker": worker, key.name: value }))?)
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Worker { worker: Which(worker), setting, value, socket } = args.what;
    let change = change(worker, setting, &value)?;
    let socket = crate::show::socket(socket)?;
    let answer = ask(&socket, &Request::Set(change))?;
    for note in answer["notes"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str) {
        eprintln!("twinpath: {note}");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use twinpath_config::Example;

    use super::*;

    #[test]
    fn a_worker_is_a_number_or_all() {
        assert_eq!("all".parse::<Which>().unwrap(), Which(None));
        assert_eq!("3".parse::<Which>().unwrap(), Which(Some(3)));
        assert!("-1".parse::<Which>().is_err() && "every".parse::<Which>().is_err());
    }
    fn key(name: &str) -> &'static Key {
        settings().find(|key| key.name == name).unwrap()
    }

    #[test]
    fn a_wrong_value_is_refused_with_what_to_write() {
        let refused = |name, value| change(None, key(name), value).unwrap_err().to_string();
        assert!(refused("mode", "fast").contains("adaptive"), "{}", refused("mode", "fast"));
        assert!(refused("latency", "20").contains("20us"), "{}", refused("latency", "20"));
        assert!(refused("cpu", "5").contains("5%"), "{}", refused("cpu", "5"));
        assert!(change(None, key("latency"), "none").unwrap().no_goal);
    }

    /// A value that a key may have, as an option's text.
    fn a_value(key: &Key) -> &'static str {
        match key.example {
            Example::Value(text) | Example::Comment(text) => text.trim_matches('"'),
            Example::Default => "poll",
        }
    }

    #[test]
    fn the_request_has_a_field_for_each_key_that_the_configuration_says_set_changes() {
        let names: Vec<_> = settings().map(|key| key.name).collect();
        assert_eq!(names, ["mode", "latency", "cpu"]);
        for key in settings() {
            let change = change(Some(3), key, a_value(key)).unwrap();
            let fields = serde_json::to_value(change).unwrap();
            assert!(fields.get(key.name).is_some_and(|value| !value.is_null()), "{}: {fields}", key.path);
            assert_eq!(fields["worker"], 3);
        }
        let others = twinpath_config::keys().filter(|key| key.change == Change::Set && key.table != "worker");
        assert_eq!(others.count(), 0, "set changes workers only");
    }
}
