//! Options for configuration keys: the arguments of every command with such options are made from the
//! definitions in `twinpath_config`.

use std::marker::PhantomData;

use clap::builder::{StringValueParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgMatches};
use twinpath_config::Setting;
use twinpath_config::{CliOption, Command, Config, Given, Key, Overrides, Takes, keys};

/// A command that has options for keys.
pub(crate) trait HasKeys {
    /// The command.
    const COMMAND: Command;

    /// Whether a number is compared with the range of its key immediately. `serve` compares it later, to
    /// report all mistakes together.
    const CHECKS_RANGES: bool = true;

    /// The values of keys that are not given.
    fn usual() -> Config {
        Config::default()
    }

    /// The help text of a key and its default, if they differ from the key's own.
    fn help(_: &Key) -> Option<(&'static str, &'static str)> {
        None
    }
}

/// The options of a command for keys.
#[derive(Debug)]
pub(crate) struct KeyOptions<C> {
    /// The values that were given.
    pub(crate) overrides: Overrides,
    command: PhantomData<C>,
}

/// The keys for which a command has options.
fn keys_of<C: HasKeys>() -> impl Iterator<Item = (&'static Key, CliOption)> {
    let with_option = keys().filter_map(|key| Some((key, key.option?)));
    with_option.filter(|(_, option)| option.of.contains(&C::COMMAND))
}

impl<C: HasKeys> clap::Args for KeyOptions<C> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let settings = C::usual().settings(&C::usual(), &Given::default());
        keys_of::<C>().fold(command, |command, (key, option)| {
            let setting = settings.iter().find(|setting| setting.key == key.path);
            command.arg(argument::<C>(key, option, setting))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<C: HasKeys> clap::FromArgMatches for KeyOptions<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut overrides = Overrides::default();
        for (key, option) in keys_of::<C>() {
            let texts: Vec<String> = match key.takes {
                Takes::Nothing if matches.get_flag(option.long) => vec![String::new()],
                Takes::Nothing => Vec::new(),
                _ => matches.get_many(option.long).into_iter().flatten().cloned().collect(),
            };
            if !texts.is_empty() {
                let wrong = |sentence| clap::Error::raw(clap::error::ErrorKind::ValueValidation, sentence);
                overrides.set(key, &texts).map_err(wrong)?;
            }
        }
        Ok(Self { overrides, command: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The argument of a key.
fn argument<C: HasKeys>(key: &'static Key, option: CliOption, setting: Option<&Setting>) -> Arg {
    let (help, default) = match C::help(key) {
        Some((help, default)) => (help.to_owned(), default.to_owned()),
        None => (key.help(), setting.map(Setting::default_in_words).unwrap_or_default()),
    };
    let again = if key.takes == Takes::Several { "; may be given again" } else { "" };
    let default = default.trim_start_matches("none: ");
    let shown = match default {
        "" | "none" | "has to be given" => String::new(),
        _ if key.takes == Takes::Nothing => String::new(),
        default => format!(" [default: {default}]"),
    };
    let argument = Arg::new(option.long)
        .long(option.long)
        .help(format!("{help}{again}{shown}"))
        .conflicts_with_all(option.conflicts);
    let argument = match key.table {
        "limits" => argument.help_heading("Limits"),
        "rpc" => argument.help_heading("RPC"),
        "nfs" => argument.help_heading("NFS"),
        _ => argument,
    };
    let argument = match key.takes {
        Takes::Nothing => return argument.action(ArgAction::SetTrue),
        Takes::One => argument.action(ArgAction::Set),
        Takes::Several => argument.action(ArgAction::Append),
    };
    let read = move |text: String| {
        let number = key.read(std::slice::from_ref(&text))?;
        let fault = number.filter(|_| C::CHECKS_RANGES).and_then(|number| key.range_fault(number));
        fault.map_or(Ok(text), Err)
    };
    argument.value_name(option.value).value_parser(StringValueParser::new().try_map(read))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The arguments of a command, by the names of the subcommands that lead to it.
    fn command_of(names: &[&str]) -> clap::Command {
        let root = crate::Cli::command();
        names.iter().fold(root, |command, name| command.find_subcommand(name).expect(name).clone())
    }

    #[test]
    fn every_command_has_the_options_that_keys_say() {
        for (command, names) in [
            (Command::Serve, ["serve"].as_slice()),
            (Command::ServeEcho, &["serve", "echo"]),
            (Command::ServeDiscard, &["serve", "discard"]),
            (Command::ServeChargen, &["serve", "chargen"]),
            (Command::ServeReflect, &["serve", "reflect"]),
            (Command::ServeRpc, &["serve", "rpc"]),
            (Command::ServeNfs, &["serve", "nfs"]),
            (Command::Bridge, &["bridge"]),
            (Command::Switch, &["switch"]),
            (Command::Bench, &["bench", "echo"]),
            (Command::Tune, &["tune"]),
        ] {
            let there = command_of(names);
            let has = |long| there.get_arguments().find(|argument| argument.get_long() == Some(long));
            for (key, option) in keys().filter_map(|key| Some((key, key.option?))) {
                let argument = has(option.long);
                if option.of.contains(&command) {
                    let argument = argument.unwrap_or_else(|| panic!("{names:?} has --{}", option.long));
                    assert!(argument.get_help().is_some(), "{names:?} --{}", key.path);
                } else if names[0] == "serve" {
                    assert!(argument.is_none(), "{names:?} has no --{}", option.long);
                }
            }
            there.debug_assert();
        }
    }

    #[test]
    fn an_option_says_what_it_is_measured_in_and_its_default() {
        let help = command_of(&["serve", "echo"]).render_help().to_string();
        assert!(help.contains("when the instance stops, ms [default: 5000]"), "{help}");
        assert!(help.contains("Workers [default: 1]"), "{help}");
        let help = command_of(&["bridge"]).render_help().to_string();
        assert!(help.contains("[default: interrupt; adaptive if it has a goal]"), "{help}");
        assert!(help.contains("fifo:N (real time) [default: normal]"), "{help}");
    }
}
