//! The programs of tests: cargo builds them and says where they are.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Its package, and what of that it tests if that is not the library.
    pub(super) name: String,
    package: String,
    /// The package's folder, in which cargo would run it.
    folder: PathBuf,
    executable: PathBuf,
}

impl Program {
    /// Runs it as cargo would.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        command
    }

    /// What cargo says of a program of tests that is built; `None` if the line is of something else.
    fn of_line(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let executable = PathBuf::from(message["executable"].as_str()?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        // `path+file:///folder/name#version`, or `...#name@version`.
        let id = text(&message["package_id"])?;
        let (path, version) = id.split_once('#')?;
        let package =
            version.split_once('@').map_or_else(|| path.rsplit('/').next(), |(name, _)| Some(name))?;
        let target = text(&message["target"]["name"])?;
        let of_library = message["target"]["kind"]
            .as_array()?
            .iter()
            .any(|kind| kind.as_str().is_some_and(|kind| kind.ends_with("lib")));
        let name = if of_library { package.to_owned() } else { format!("{package} {target}") };
        Some(Self { name, package: package.to_owned(), folder, executable })
    }
}

/// Builds all programs of tests that `cargo test` with these arguments would run.
///
/// # Errors
/// One of them does not compile; cargo has said why.
pub(super) fn build(mut cargo_test: Command) -> Result<Vec<Program>> {
    let arguments = ["--no-run", "--message-format=json-render-diagnostics"];
    let mut cargo = cargo_test
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo to build the tests")?;
    let output = cargo.stdout.take().context("cargo has no output")?;
    let lines = BufReader::new(output).lines();
    let programs = lines
        .filter_map(|line| line.map(|line| Program::of_line(&line)).transpose())
        .collect::<Result<_, _>>();
    let status = cargo.wait().context("waiting for cargo, which builds the tests")?;
    ensure!(status.success(), "building the tests: cargo ended with {status}, see above");
    programs.context("reading which programs cargo has built")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_tests_and_have_their_package_and_folder() {
        let line = |id: &str, kind: &str, name: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///t/core/sys#{id}","manifest_path":"/t/core/sys/Cargo.toml",
                    "target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":"/t/x"}}"#
            )
        };
        let named = |line: &str| Program::of_line(line).map(|program| (program.name, program.package));
        let owned = |name: &str, package: &str| Some((name.to_owned(), package.to_owned()));
        let named_so = line("twinpath-sys@0.1.0", "lib", "twinpath_sys", true);
        assert_eq!(named(&named_so), owned("twinpath-sys", "twinpath-sys"));
        assert_eq!(named(&line("0.1.0", "test", "pair", true)), owned("sys pair", "sys"));
        assert_eq!(Program::of_line(&named_so).expect("a program").folder, PathBuf::from("/t/core/sys"));
        assert_eq!(named(&line("0.1.0", "bin", "sys", false)), None);
        assert_eq!(named(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
