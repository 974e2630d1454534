//! Runs a guest from start to end: reads its messages, enforces deadlines, and leaves no process.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::CpuSet;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;
use twinpath_sys::child::{self, Placement};

use super::machine::Machine;
use super::message::Message;
use super::{qemu, tools};
use crate::lab::process;
use crate::lab::progress::Progress;

/// A guest sends a message every few seconds; one that is silent for this long has hung.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The same with counted instructions: five of the guest's seconds take half a minute of a CPU, and the host may be busy
/// with other things.
const COUNTED_SILENCE_MAX: Duration = Duration::from_secs(600);
/// Time from a guest's last message to qemu's end.
const POWER_OFF_MAX: Duration = Duration::from_secs(10);
/// How much of the console, and of qemu's error output, is read, and how much of the former is shown.
const READ: u64 = 4096;
const CONSOLE_LINES: usize = 6;

/// Deadlines.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// Until the first message.
    pub(super) start: Duration,
    /// Until the last message.
    pub(super) end: Duration,
}

/// The results of a guest.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) printed: String,
    pub(super) json: Option<String>,
    pub(super) html: Option<String>,
    /// The lab's exit code.
    pub(super) code: u8,
}

pub(super) enum End {
    Collected(Collected),
    /// It sent no message, for this reason.
    NotStarted(String),
    /// It started, but did not complete.
    Broken(anyhow::Error),
}

/// Starts the machine and reads its messages to the end; its two CPUs run on `cpus`. It has ended when this returns or
/// is dropped.
pub(super) async fn run(
    machine: &Machine<'_>,
    cpus: [usize; 2],
    limits: &WaitLimits,
    progress: &Progress,
) -> anyhow::Result<End> {
    let mut complaints = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut command = Command::new(&machine.qemu.program);
    // The port counts as connected while its input is open, though nothing is sent to the guest.
    command.args(machine.args()).stdin(Stdio::piped()).stdout(Stdio::piped());
    // A process group of its own: Ctrl-C on the terminal reaches only the lab, which then ends the guest.
    command.stderr(complaints.try_clone()?).kill_on_drop(true).process_group(0);
    child::place(command.as_std_mut(), Placement::default())?;
    let mut child = command.spawn().with_context(|| tools::missing(qemu::PROGRAM, qemu::PACKAGE))?;
    let _gone = Gone::with(&child)?;
    let mut lines = BufReader::new(child.stdout.take().context("no output of qemu")?).lines();
    let started = tokio::time::timeout(limits.start, next(&mut lines)).await;
    let end = match started {
        Ok(Ok(Some(Message::Started))) => {
            pin(&child, cpus)?;
            let silence = if machine.accelerator.counts() { COUNTED_SILENCE_MAX } else { SILENCE_MAX };
            Ok(listen(&mut lines, limits.end, silence, progress).await)
        }
        Ok(Ok(Some(Message::Failed(reason)))) => Ok(Err(anyhow::anyhow!(reason))),
        Ok(Ok(Some(other))) => Ok(Err(anyhow::anyhow!("its first word was {other:?}"))),
        Ok(Ok(None)) => Err("it ended at once".to_owned()),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err(format!("nothing from it in {} s", limits.start.as_secs())),
    };
    if !matches!(&end, Ok(Ok(_))) || tokio::time::timeout(POWER_OFF_MAX, child.wait()).await.is_err() {
        child.kill().await.context("cannot end qemu")?;
    }
    let mut said = || said(&mut complaints, machine.console);
    match end {
        Ok(Ok(collected)) => Ok(End::Collected(collected)),
        Ok(Err(error)) => Ok(End::Broken(error.context(format!("the guest failed{}", said())))),
        Err(reason) => Ok(End::NotStarted(reason + &said())),
    }
}

/// Dropping it ends the process, also when a signal to the lab interrupts the waiting.
struct Gone(OwnedFd);

impl Gone {
    fn with(child: &Child) -> anyhow::Result<Self> {
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("qemu ended at once")?;
        Ok(Self(rustix::process::pidfd_open(id, PidfdFlags::empty()).context("cannot watch qemu")?))
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        process::end(&self.0);
    }
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<Option<Message>> {
    let Some(line) = lines.next_line().await.context("cannot read what the guest says")? else {
        return Ok(None);
    };
    let message = serde_json::from_str(&line);
    message.map(Some).with_context(|| format!("the guest said {line:.200}, which is none of its words"))
}

async fn listen(
    lines: &mut Lines<BufReader<ChildStdout>>,
    longest: Duration,
    silence: Duration,
    progress: &Progress,
) -> anyhow::Result<Collected> {
    let mut collected = Collected::default();
    let deadline = Instant::now() + longest;
    loop {
        let until = deadline.min(Instant::now() + silence);
        let Ok(message) = tokio::time::timeout_at(until, next(lines)).await else {
            if until == deadline {
                bail!("its lab has not ended after {} minutes", longest.as_secs() / 60);
            }
            bail!("nothing more from it for {} s", silence.as_secs());
        };
        match message?.context("it ended before its lab did")? {
            Message::Started | Message::Alive => {}
            Message::Progress(line) => progress.line(&format!("guest: {line}")),
            Message::Printed(text) => collected.printed = text,
            Message::Json(text) => collected.json = Some(text),
            Message::Html(text) => collected.html = Some(text),
            Message::Failed(reason) => bail!(reason),
            Message::Ended(code) => return Ok(Collected { code, ..collected }),
        }
    }
}

/// Pins each of the guest's CPUs, which are threads of qemu, to one of the host's.
fn pin(qemu: &Child, cpus: [usize; 2]) -> anyhow::Result<()> {
    let tasks = format!("/proc/{}/task", qemu.id().context("qemu has ended")?);
    for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}"))?.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let thread = task.file_name().to_str().and_then(|id| Pid::from_raw(id.parse().ok()?));
        if let (Some(thread), Some(cpu)) = (thread, guest_cpu(&name).and_then(|cpu| cpus.get(cpu))) {
            let mut set = CpuSet::new();
            set.set(*cpu);
            rustix::thread::sched_setaffinity(Some(thread), &set)
                .with_context(|| format!("cannot keep a CPU of the guest on the host's CPU {cpu}"))?;
        }
    }
    Ok(())
}

/// qemu names the threads of guest CPUs `CPU 0/KVM`.
pub(super) fn guest_cpu(thread: &str) -> Option<usize> {
    thread.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

/// The beginning of qemu's error output and the end of the guest's console.
fn said(complaints: &mut File, console: &Path) -> String {
    let lines = |file: &mut File| {
        let start = file.metadata().map_or(0, |file| file.len().saturating_sub(READ));
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_to_end(&mut bytes));
        let text = String::from_utf8_lossy(if read.is_ok() { &bytes } else { &[] }).into_owned();
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    let mut text = lines(complaints).first().map_or_else(String::new, |line| format!("; {line}"));
    let console = File::open(console).map(|mut console| lines(&mut console)).unwrap_or_default();
    let last = &console[console.len().saturating_sub(CONSOLE_LINES)..];
    if !last.is_empty() {
        text += &format!("; its console: {}", last.join(" | "));
    }
    text
}
