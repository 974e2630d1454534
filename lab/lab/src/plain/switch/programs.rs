//! The programs of other switches: those that `make lab` has unpacked beside the labs, else those installed here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::process::{Child, Command};
use twinpath_sys::child::{self, Placement};

use crate::foreign::Packages;

const PACKAGES: Packages = Packages {
    unpacked: "lab-peers",
    programs_in: &["usr/sbin", "usr/bin", "usr/lib/openvswitch-switch", "sbin"],
    fetched_by: "`make lab LAB=switch`",
};
/// From a request to end to its end.
pub(super) const STOP_DEADLINE: Duration = Duration::from_secs(2);
/// Words of complaints, which help texts may follow.
const COMPLAINTS: [&str; 4] = ["rror:", "annot", "not compatible", "|ERR|"];
/// The interval of looks whether a program is ready.
const LOOK: Duration = Duration::from_millis(10);

/// The path of a file of a package, by its path in there.
pub(super) fn file(path: &str) -> anyhow::Result<PathBuf> {
    PACKAGES.file(path)
}

/// A command that runs a program in the caller's namespace and on its CPUs, and dies with it.
pub(super) fn command(program: &str) -> anyhow::Result<std::process::Command> {
    let found = PACKAGES.program(program)?;
    let mut command = std::process::Command::new("stdbuf");
    // Line by line, also into a file: a program that says that it is ready has to be heard.
    command.arg("-oL").arg(&found.file);
    if let Some([libraries, _]) = &found.libraries {
        // libxdp looks for the program that it attaches in a directory of the system otherwise.
        command.env("LIBXDP_OBJECT_PATH", libraries.join("bpf"));
    }
    if let Some(libraries) = found.library_path() {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    Ok(command)
}

/// Starts a program that runs on; what it says goes to `log`.
pub(super) fn spawn(mut command: std::process::Command, log: &Path) -> anyhow::Result<Child> {
    let said = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said);
    child::place(&mut command, Placement::default())?;
    let what = name(&command);
    let mut command = Command::from(command);
    command.kill_on_drop(true).process_group(0);
    command.spawn().with_context(|| format!("cannot start {what}"))
}

/// Runs a program to its end and returns what it printed.
pub(super) async fn run(command: std::process::Command) -> anyhow::Result<String> {
    let what = name(&command);
    let mut command = Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot start {what}"))?;
    if !output.status.success() {
        bail!("{what} ({}): {}", output.status, last_lines(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The program of a command that [`command`] has made.
fn name(command: &std::process::Command) -> String {
    command.get_args().nth(1).unwrap_or(command.get_program()).to_string_lossy().into_owned()
}

/// Waits until a program is ready, as `is_ready` finds; fails with its last words if it ends before.
pub(super) async fn ready(
    process: &mut Child,
    log: &Path,
    deadline: Duration,
    is_ready: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        if is_ready(&said) {
            return Ok(());
        }
        if let Some(status) = process.try_wait()? {
            bail!("it ended ({status}): {}", last_lines(&said));
        }
        if begun.elapsed() > deadline {
            bail!("it was not ready after {} s: {}", deadline.as_secs(), last_lines(&said));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The first complaint of an output and its last lines, on one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    let complaints: Vec<_> =
        lines.iter().filter(|line| COMPLAINTS.iter().any(|word| line.contains(word))).collect();
    complaints.first().map_or_else(|| last.join("; "), |first| format!("{first}; {}", last.join("; ")))
}
