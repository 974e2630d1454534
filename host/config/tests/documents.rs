//! Checks that docs/config.md and the example file agree with the definitions of the keys.
//!
//! `make documents` writes both; without `WRITE_DOCUMENTS` in the environment they are compared.

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use twinpath_config::{
    Change, Command, Config, EXAMPLE, EXAMPLE_OF_SWITCH, Example, Given, Key, Switch, SwitchPort, Takes, keys,
};

/// Columns of comments in the example.
const COLUMNS: usize = 110;

/// What each table of the example is about.
const TABLES: [(&str, &str); 8] = [
    ("service", "A service."),
    ("interface", "The interface that it is served on."),
    ("worker", "The threads that serve."),
    ("limits", "Bounds, each with a counter of what was refused or closed."),
    (
        "pool",
        "Threads for work that may block, of nfs and of services of your own; nfs has that many for each export.",
    ),
    ("rpc", "Bounds of ONC RPC, for kind = \"rpc\" and kind = \"nfs\"."),
    ("nfs", "Data and state of NFS, for kind = \"nfs\"."),
    ("control", "The command socket, the sandbox and the metrics of the instance."),
];

/// The same for the example of a switch. The last table may occur several times.
const TABLES_OF_SWITCH: [(&str, &str); 2] =
    [("switch", "A switch."), ("switch.port", "A port of it; again for each.")];

/// A sentence as comment lines.
fn comment(sentence: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => *line += &format!(" {word}"),
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}

fn example_entry(key: &Key, defaults: &Table) -> String {
    let name = key.name;
    let line = match key.example {
        Example::Value(value) => format!("{name} = {value}\n"),
        Example::Comment(value) => format!("# {name} = {value}\n"),
        Example::Default => {
            let table = key.table.split('.').try_fold(defaults, |table, part| match table.get(part)? {
                Value::Array(tables) => tables.first()?.as_table(),
                value => value.as_table(),
            });
            let default = table.and_then(|table| table.get(name));
            let default =
                default.map(Value::to_string).expect("the example has a value if there is no default");
            format!("{name} = {default}\n")
        }
    };
    let help = key.help();
    let end = if help.ends_with('.') { "" } else { "." };
    comment(&format!("{help}{end}")) + &line
}

/// A switch with one port, all with its defaults.
fn usual() -> Config {
    let switch = Switch { port: vec![SwitchPort::default()], ..Switch::default() };
    Config { switch: Some(switch), ..Config::default() }
}

fn example(tables: &[(&str, &str)]) -> String {
    let defaults = Table::try_from(usual()).expect("a configuration is TOML");
    let table = |&(name, about): &(&str, &str)| {
        // Values written as separate tables are not lines of the surrounding table.
        let is_line = |key: &&Key| key.table == name && key.path != "switch.port";
        let entries = keys().filter(is_line).map(|key| example_entry(key, &defaults));
        let header = if name == "switch.port" { format!("[[{name}]]") } else { format!("[{name}]") };
        format!("{}{header}\n{}", comment(about), entries.collect::<String>())
    };
    tables.iter().map(table).collect::<Vec<_>>().join("\n")
}

fn on_the_command_line(key: &Key) -> String {
    if key.path == "switch.name" {
        return "`switch NAME`".to_owned();
    }
    if key.table == "switch.port" {
        let value = if key.name == "name" { "PORT".to_owned() } else { format!("PORT,{}=...", key.name) };
        return format!("`--port {value}` (`switch`)");
    }
    if key.path == "service.kind" {
        return "`serve echo`, `serve discard`, `serve chargen`, `serve reflect`, `serve rpc`, `serve nfs`"
            .to_owned();
    }
    let Some(option) = key.option else { return String::new() };
    let value = if key.takes == Takes::Nothing { String::new() } else { format!(" {}", option.value) };
    let again = if key.takes == Takes::Several { ", again for each" } else { "" };
    let serve = [
        Command::Serve,
        Command::ServeEcho,
        Command::ServeDiscard,
        Command::ServeChargen,
        Command::ServeReflect,
        Command::ServeRpc,
        Command::ServeNfs,
    ];
    let is_serve = serve.iter().all(|command| option.of.contains(command));
    let of = option.of.iter().filter(|command| !is_serve || !serve.contains(command));
    let names = of.map(|command| match command {
        Command::Serve => "`serve --config`",
        Command::ServeEcho => "`serve echo`",
        Command::ServeDiscard => "`serve discard`",
        Command::ServeChargen => "`serve chargen`",
        Command::ServeReflect => "`serve reflect`",
        Command::ServeRpc => "`serve rpc`",
        Command::ServeNfs => "`serve nfs`",
        Command::Bridge => "`bridge`",
        Command::Switch => "`switch`",
        Command::Bench => "`bench`",
        Command::Tune => "`tune`",
    });
    let names: Vec<_> = is_serve.then_some("`serve`").into_iter().chain(names).collect();
    let of = if names == ["`serve`"] { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("`--{}{value}`{again}{of}", option.long)
}

fn rows() -> String {
    let mut settings = Config::default().settings(&Config::default(), &Given::default());
    settings.extend(usual().settings(&usual(), &Given::default()));
    let row = |key: &Key| {
        let default = settings.iter().find(|setting| setting.key == key.path);
        let default = match default {
            Some(setting) if setting.default.is_null() || setting.default == serde_json::json!([]) => {
                setting.default_in_words()
            }
            Some(setting) => format!("`{}`", setting.default_in_words()),
            None => key.unset.to_owned(),
        };
        let changed_by = match key.change {
            Change::Restart => "restart",
            Change::ReloadAnew => "reload, anew",
            Change::Reload => "reload",
            Change::Set => "set, reload",
            Change::Port => "port, reload",
        };
        let cells = [
            format!("`{}`", key.path),
            key.values(),
            key.unit.to_owned(),
            default,
            on_the_command_line(key),
            changed_by.to_owned(),
        ];
        format!("| {} |\n", cells.join(" | ").replace("|  |", "| |").replace("|  |", "| |"))
    };
    let header =
        "| key | values | unit | default | on the command line | changed by |\n|---|---|---|---|---|---|\n";
    header.to_owned() + &keys().map(row).collect::<String>()
}

/// The document, with the parts that are generated from the keys: the first block of TOML, and the table of
/// keys.
fn with_parts(document: &str) -> String {
    let (before, rest) = document.split_once("```toml\n").expect("an example");
    let (_, rest) = rest.split_once("```\n").expect("its end");
    let (to_switch, rest) = rest.split_once("```toml\n# A switch.").expect("an example of a switch");
    let (_, rest) = rest.split_once("```\n").expect("its end");
    let (between, rest) = rest.split_once("| key |").expect("a table of keys");
    let (_, after) = rest.split_once("|\n\n").expect("its end");
    let (services, switch) = (example(&TABLES), example(&TABLES_OF_SWITCH));
    format!("{before}```toml\n{services}```\n{to_switch}```toml\n{switch}```\n{between}{}\n{after}", rows())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_documents_say_what_the_keys_say() {
    let path = root().join("docs/config.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (made, example, of_switch) = (with_parts(&document), example(&TABLES), example(&TABLES_OF_SWITCH));
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        std::fs::write(path, made).unwrap();
        std::fs::write(root().join("host/config/src/example.toml"), example).unwrap();
        std::fs::write(root().join("host/config/src/switch.toml"), of_switch).unwrap();
        return;
    }
    let advice = "differs from the keys of host/config/src: run `make documents`";
    let differs = |made: &str, there: &str| {
        let mut lines = made.lines().zip(there.lines());
        lines.find(|(made, there)| made != there).map(|(made, there)| format!("{there}\ninstead of\n{made}"))
    };
    assert_eq!(differs(&example, EXAMPLE), None, "the example {advice}");
    assert_eq!(differs(&of_switch, EXAMPLE_OF_SWITCH), None, "the example of a switch {advice}");
    assert_eq!(differs(&made, &document), None, "docs/config.md {advice}");
    assert!(
        example == EXAMPLE && of_switch == EXAMPLE_OF_SWITCH && made == document,
        "docs/config.md {advice}"
    );
}

/// Paragraphs about keys name only keys that exist.
#[test]
fn the_paragraphs_are_about_keys() {
    let document = std::fs::read_to_string(root().join("docs/config.md")).unwrap();
    let names = document.lines().filter_map(|line| line.strip_prefix("- **`")?.split('`').next());
    for name in names.filter(|name| name.contains('.') && *name != "worker.sockets") {
        assert!(keys().any(|key| key.path == name), "docs/config.md describes {name}, which is no key");
    }
}

#[test]
fn a_key_has_an_option_of_its_own_a_help_text_and_a_unit_that_its_name_ends_with() {
    for key in keys() {
        assert!(!key.help().is_empty() && !key.help().ends_with('.'), "{}: {}", key.path, key.help());
        assert!(!key.values().is_empty(), "{}: its values are described", key.path);
        if ["us", "ms", "s", "bytes"].contains(&key.unit) {
            assert!(key.name.ends_with(&format!("_{}", key.unit)), "{} is in {}", key.path, key.unit);
        }
        let options = |key: &Key| key.option.map(|option| option.long);
        let alike = keys().filter(|other| key.option.is_some() && options(other) == options(key)).count();
        assert!(alike <= 1, "{}: its option is that of another key, too", key.path);
    }
}
