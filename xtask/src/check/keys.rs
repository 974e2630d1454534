//! The rule about configuration keys: their options come from their definitions in `host/config`.

use super::{Finding, Tree};

/// Where keys are defined.
const DEFINITIONS: &str = "host/config/src/";
/// The commands with workers of their own. An option of another command can have the name of a key's option and mean
/// something else, as `--socket` of `show` does.
const COMMANDS: &[&str] = &["cli/src/bridge/", "cli/src/serve/", "cli/src/switch/", "cli/src/tune/"];

/// No command that runs an instance defines the option of a key a second time.
pub(super) fn keys_are_written_once(tree: &Tree) -> Vec<Finding> {
    let definitions = tree.texts.iter().filter(|(path, _)| path.starts_with(DEFINITIONS));
    let options: Vec<&str> = definitions.flat_map(|(_, text)| options_in(text)).collect();
    let mut findings = Vec::new();
    let commands = tree.texts.iter().filter(|(path, _)| COMMANDS.iter().any(|at| path.starts_with(at)));
    for (path, text) in commands {
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if !line.trim_start().starts_with("#[arg(long") {
                continue;
            }
            let named = line.split_once("long = \"").and_then(|(_, rest)| rest.split('"').next());
            let field = lines.next().and_then(|(_, line)| line.split(':').next()?.split_whitespace().last());
            let long = named.map(str::to_owned).or_else(|| field.map(|field| field.replace('_', "-")));
            if let Some(long) = long.filter(|long| options.contains(&long.as_str())) {
                let message = format!(
                    "--{long} is the option of a configuration key: take it from the key, by `KeyOptions`"
                );
                findings.push(Finding::error(path, index + 1, message));
            }
        }
    }
    findings
}

/// The options of the keys that a text defines: `option("drain-ms", ...`.
fn options_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("option(\"").skip(1).filter_map(|rest| rest.split('"').next())
}
