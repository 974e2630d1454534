//! Counts the instructions per RPC call, or per frame of a switch, under valgrind, and compares them with the committed figures.
//!
//! Each case runs twice with different numbers of calls; the difference, divided by the difference of the numbers,
//! does not contain the start-up. Callgrind counts instructions, not time: the figure is nearly the same on every
//! machine, but not with every compiler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The file with the committed figures.
const COMMITTED: &str = "test/sim/instructions.toml";
/// Number of calls of the shorter run, and of the longer one.
const CALLS: [u64; 2] = [1_000, 3_000];
/// How far a figure may exceed the committed one, per cent: with the compiler of the committed figures, and with
/// others.
const TOLERANCE_PERCENT: [f64; 2] = [3.0, 15.0];

/// Counts every case and prints it beside the committed figure. With `check`, a case that exceeds it fails; with
/// `write`, the counts become the committed figures. The counted program is built in one go with the packages `beside`.
pub(crate) fn run(root: &Path, check: bool, write: bool, beside: &[String]) -> Result<()> {
    let rustc = output(Command::new("rustc").arg("--version"))?.trim().to_owned();
    let program = build_counted(root, beside)?;
    let cases = output(&mut Command::new(&program))?;
    let committed = committed(root)?;
    let same_rustc = committed.get("rustc").and_then(toml::Value::as_str) == Some(&rustc);
    let tolerance = TOLERANCE_PERCENT[usize::from(!same_rustc)];
    let mut counted = BTreeMap::new();
    let mut worse = Vec::new();
    println!("{:<28}{:>10}{:>12}{:>9}", "instructions per call", "now", "committed", "change");
    for case in cases.lines() {
        let now = count(&program, case)?;
        let former = committed.get("calls").and_then(|calls| calls.get(case)).and_then(toml::Value::as_float);
        let change = former.map(|former| (now / former - 1.0) * 100.0);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let (former, shown) =
            (former.map(|former| format!("{former:.0}")), change.map(|change| format!("{change:+.1} %")));
        println!("{case:<28}{now:>10.0}{:>12}{:>9}", or_none(former), or_none(shown));
        if change.is_none_or(|change| change > tolerance) {
            worse.push(case.to_owned());
        }
        counted.insert(case.to_owned(), now);
    }
    println!("{rustc}; committed figures may be passed by {tolerance} %");
    if write {
        return store(root, &rustc, &counted);
    }
    if check && !worse.is_empty() {
        bail!(
            "{} takes more instructions than {COMMITTED} says: find out why, or commit the new figures \
             (cargo run -p xtask -- instructions --write)",
            worse.join(", ")
        );
    }
    Ok(())
}

/// Builds the program to be measured, optimised as the product is.
fn build_counted(root: &Path, beside: &[String]) -> Result<std::path::PathBuf> {
    let arguments = ["build", "--locked", "--release", "-q", "-p", "twinpath-test-sim"];
    let mut build = crate::cargo();
    build.args(arguments).args(beside.iter().flat_map(|package| ["-p", package])).current_dir(root);
    let status = build.status().context("running cargo")?;
    ensure!(status.success(), "the counted program did not build");
    let metadata =
        output(crate::cargo().args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root))?;
    // Extracts one string from cargo's JSON, which is not worth a parser.
    let target = metadata.split_once("\"target_directory\":\"").and_then(|(_, rest)| rest.split_once('"'));
    let (target, _) = target.context("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("release/twinpath-test-instructions"))
}

/// Instructions per call of one case.
fn count(program: &Path, case: &str) -> Result<f64> {
    let collected = |calls: u64| -> Result<f64> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        let run = valgrind.arg(program).arg(case).arg(calls.to_string()).output();
        let run = run.context("running valgrind: install it (apt-get install valgrind)")?;
        let text = String::from_utf8_lossy(&run.stderr);
        ensure!(run.status.success(), "{case} failed under valgrind:\n{text}");
        let line = text.lines().find_map(|line| line.split_once("Collected :"));
        let (_, number) =
            line.with_context(|| format!("valgrind says nothing of what it counted:\n{text}"))?;
        number.trim().parse().with_context(|| format!("{number} is no count"))
    };
    let [fewer, more] = CALLS;
    Ok((collected(more)? - collected(fewer)?) / (more - fewer) as f64)
}

fn committed(root: &Path) -> Result<toml::Table> {
    let path = root.join(COMMITTED);
    match std::fs::read_to_string(&path) {
        Ok(text) => text.parse().with_context(|| format!("reading {COMMITTED}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(toml::Table::new()),
        Err(error) => Err(error).with_context(|| format!("reading {COMMITTED}")),
    }
}

fn store(root: &Path, rustc: &str, counted: &BTreeMap<String, f64>) -> Result<()> {
    let mut text = format!(
        "# Instructions per call of the pure part of RPC: record, header, dispatch, reply;\n\
         # of a switch (l2-*): per address looked up, and per frame judged; of OpenFlow's tables (tables-*): per frame;\n\
         # of a flow-mod: from its bytes to the tables, with a version for each 5,000 of them;\n\
         # of TCP (tcp-*): per request in and reply out, without checksums.\n\
         # Written by `cargo run -p xtask -- instructions --write`; held by `make instructions`.\n\
         rustc = \"{rustc}\"\n\n[calls]\n"
    );
    for (case, count) in counted {
        writeln!(text, "{case} = {count:.1}")?;
    }
    std::fs::write(root.join(COMMITTED), text).with_context(|| format!("writing {COMMITTED}"))
}

fn output(command: &mut Command) -> Result<String> {
    let run = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(run.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&run.stderr));
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}
