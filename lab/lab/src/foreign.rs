//! Programs of other projects: those whose packages `make lab` has unpacked beside the labs, else those installed here;
//! and how they are run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use twinpath_sys::child::{self, Placement};

/// Directories of programs that a user's PATH may lack.
const ALSO_IN: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/sbin"];
/// The places of libraries in a package.
const LIBRARIES_IN: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// From a request to end to its end.
const STOP_DEADLINE: Duration = Duration::from_secs(2);
/// Words of complaints, which help texts may follow.
const COMPLAINTS: [&str; 7] = ["rror:", "annot", "not compatible", "|ERR|", ":CRIT :", ":MAJ :", ":FATAL :"];
/// The interval of looks whether a program is ready.
const LOOK: Duration = Duration::from_millis(10);

/// The path of an installed program, in PATH or in directories that a user's PATH may lack.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(ALSO_IN.iter().map(PathBuf::from));
    places.map(|place| place.join(name)).find(|program| program.is_file())
}

/// Packages that `make lab` unpacks and does not install.
pub(crate) struct Packages {
    /// Where they are unpacked, beside the directory of this program.
    pub(crate) unpacked: &'static str,
    /// The places of programs in a package.
    pub(crate) programs_in: &'static [&'static str],
    /// The commands that fetch them.
    pub(crate) fetched_by: &'static str,
}

/// A program of a package.
pub(crate) struct Found {
    pub(crate) file: PathBuf,
    /// The directories of the libraries that it needs, if it is not installed; the first one is that of its package.
    pub(crate) libraries: Option<[PathBuf; 2]>,
}

impl Packages {
    /// The roots to look in, each with whether packages are unpacked there.
    fn roots(&self) -> impl Iterator<Item = (PathBuf, bool)> {
        let own = std::env::current_exe().ok();
        let unpacked = own.and_then(|own| Some(own.parent()?.parent()?.join(self.unpacked)));
        unpacked.map(|unpacked| (unpacked, true)).into_iter().chain([(PathBuf::from("/"), false)])
    }

    fn missing(&self, what: &str) -> String {
        format!("{what} was not found: run {}, which fetches its package", self.fetched_by)
    }

    /// A file of a package, by its path in there.
    pub(crate) fn file(&self, path: &str) -> anyhow::Result<PathBuf> {
        let file = self.roots().map(|(root, _)| root.join(path)).find(|file| file.exists());
        file.with_context(|| self.missing(&format!("/{path}")))
    }

    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Found> {
        let in_root = |(root, is_unpacked): (PathBuf, bool)| {
            let files = self.programs_in.iter().map(|place| root.join(place).join(name));
            let file = files.into_iter().find(|file| file.is_file())?;
            let libraries = is_unpacked.then(|| LIBRARIES_IN.map(|place| root.join(Path::new(place))));
            Some(Found { file, libraries })
        };
        self.roots().find_map(in_root).with_context(|| self.missing(name))
    }
}

impl Found {
    /// What the loader's variable for libraries has to be, if it has to be set.
    pub(crate) fn library_path(&self) -> Option<std::ffi::OsString> {
        self.libraries.as_ref().and_then(|libraries| std::env::join_paths(libraries).ok())
    }
}

/// Starts a program that runs on; what it says goes to `log`.
pub(crate) fn spawn(mut command: std::process::Command, log: &Path) -> anyhow::Result<Child> {
    let said = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said);
    child::place(&mut command, Placement::default())?;
    let what = name(&command);
    let mut command = Command::from(command);
    command.kill_on_drop(true).process_group(0);
    command.spawn().with_context(|| format!("cannot start {what}"))
}

/// Runs a program to its end and returns what it printed.
pub(crate) async fn run(command: std::process::Command) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&output(command).await?.stdout).into_owned())
}

/// The same with its error output.
pub(crate) async fn output(command: std::process::Command) -> anyhow::Result<Output> {
    let what = name(&command);
    let mut command = Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot start {what}"))?;
    if !output.status.success() {
        bail!("{what} ({}): {}", output.status, last_lines(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(output)
}

/// The program of a command, also behind `stdbuf -oL`.
fn name(command: &std::process::Command) -> String {
    let program = command.get_program();
    let behind = if program == "stdbuf" { command.get_args().nth(1) } else { None };
    behind.unwrap_or(program).to_string_lossy().into_owned()
}

/// Asks a program to end, so that it cleans up, and ends it if it does not.
pub(crate) async fn stop(mut process: Child) -> anyhow::Result<()> {
    if let Some(pid) = process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        // ESRCH: it has ended.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    let ended = tokio::time::timeout(STOP_DEADLINE, process.wait()).await;
    if ended.is_err() {
        process.kill().await?;
    }
    ended.with_context(|| format!("it did not end within {} s of SIGTERM", STOP_DEADLINE.as_secs()))??;
    Ok(())
}

/// Waits until a program is ready, as `is_ready` finds; fails with its last words if it ends before.
pub(crate) async fn ready(
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
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    let complaints: Vec<_> =
        lines.iter().filter(|line| COMPLAINTS.iter().any(|word| line.contains(word))).collect();
    complaints.first().map_or_else(|| last.join("; "), |first| format!("{first}; {}", last.join("; ")))
}
