//! Makes the manual pages and the shell completions from the definitions of the options.
//!
//! `make documents` writes them. Without `WRITE_DOCUMENTS` in the environment they are only compared.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

/// Pages in docs/man/ that are written by hand, because they contain more than the options.
const BY_HAND: [&str; 2] = ["twinpath-run.1", "twinpath-sockets.1"];

/// The folder of documents.
fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The program without its hidden commands.
fn command() -> Command {
    let whole = Cli::command();
    let about = whole.get_about().cloned().unwrap_or_default();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("twinpath")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .subcommand_required(true)
        .subcommands(shown)
}

/// The files made from the definitions of the options, by their paths below docs/generated/.
fn made() -> Vec<(PathBuf, String)> {
    let directory = tempfile::tempdir().unwrap();
    let (pages, completions) = (directory.path().join("man"), directory.path().join("completions"));
    for directory in [&pages, &completions] {
        std::fs::create_dir(directory).unwrap();
    }
    clap_mangen::generate_to(command(), &pages).unwrap();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command(), "twinpath", &completions).unwrap();
    }
    let mut files = Vec::new();
    for from in [pages, completions] {
        for entry in std::fs::read_dir(&from).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if !BY_HAND.contains(&name.as_str()) {
                let text = std::fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(directory.path()).unwrap().to_owned(), tidy(&text)));
            }
        }
    }
    files.sort();
    files
}

/// Without spaces at the ends of lines.
fn tidy(text: &str) -> String {
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_manual_and_the_completions_are_made_from_the_options() {
    let documents = docs().join("generated");
    let made = made();
    assert!(made.len() > 15, "a page for each command, and three completions: {}", made.len());
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        for (path, text) in &made {
            let path = documents.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
    for (path, text) in &made {
        let written = std::fs::read_to_string(documents.join(path)).unwrap_or_default();
        assert_eq!(written, *text, "{} is not what the options say: run `make documents`", path.display());
    }
}

#[test]
fn no_page_is_of_a_command_that_is_gone() {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(docs().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let made: Vec<PathBuf> = made().into_iter().map(|(path, _)| path).collect();
    for name in names(Path::new("generated/man")) {
        let is_known = made.contains(&Path::new("man").join(&name));
        assert!(is_known, "docs/generated/man/{name} is of no command: remove it");
    }
    let mut by_hand = names(Path::new("man"));
    by_hand.sort();
    assert_eq!(by_hand, BY_HAND, "docs/man has the pages that are written by hand, and no other");
}
