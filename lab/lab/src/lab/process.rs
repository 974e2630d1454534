//! Runs the child processes of labs: servers that print a line when they are ready, and clients that print one JSON
//! object. Every wait has a deadline; a child's error output is part of its failure.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use twinpath_sys::Namespace;
use twinpath_sys::child::{self, Placement};

use super::programs::Programs;
use super::topology::Topology;

/// A server that is not ready by then never will be: attaching and measuring wake-ups take well below a second. In an
/// emulated guest the kernel needs ten seconds to verify the programs.
const READY_DEADLINE: Duration = Duration::from_secs(40);
/// Time from SIGINT to the end of a server, and from SIGKILL to the end of any process.
const STOP_DEADLINE: Duration = Duration::from_secs(3);
/// How often the CPU time of a server is read while a client runs.
const USAGE_PERIOD: Duration = Duration::from_millis(40);
/// The length of the end of a child's error output that is shown.
const STDERR_SHOWN: u64 = 2000;

/// A command line that has no quotes, in words.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The namespace and CPUs of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side<'a> {
    Client,
    Server,
    /// On both CPUs, in the server's namespace: for programs that pin their threads themselves.
    Both,
    /// In this namespace and on these CPUs, for labs with other layouts.
    At(&'a Namespace, &'a [usize]),
}

/// Starts children, and keeps track of those that live.
#[derive(Debug)]
pub(crate) struct Launcher {
    programs: Programs,
    topology: Topology,
    client_cpu: usize,
    server_cpu: usize,
    live: RefCell<HashMap<u32, OwnedFd>>,
    /// Whether the children of a child that ends become children of this process.
    adopts: bool,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) pid: u32,
    /// Its `ready` line.
    pub(crate) ready: serde_json::Value,
    process: Background,
}

/// A process that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) pid: u32,
    what: String,
    child: Child,
    stderr: File,
}

/// A client's output, and the server's CPU usage meanwhile.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) stdout: String,
    usage: Vec<(Instant, Duration)>,
    /// The time of the result.
    end: Instant,
}

/// What a child has printed as one JSON object. `what`: its command, for the error.
pub(crate) fn json<T: DeserializeOwned>(printed: &str, what: &str) -> anyhow::Result<T> {
    serde_json::from_str(printed).with_context(|| format!("cannot read the result of {what}"))
}

/// The name of a value, for as long as this program runs. There are few.
fn kept(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let name = &*name.leak();
    names.insert(name);
    name
}

impl Finished {
    /// The client's result.
    pub(crate) fn json<T: DeserializeOwned>(&self, what: &str) -> anyhow::Result<T> {
        json(&self.stdout, what)
    }

    /// The numbers of the client's result, which are values of its row by the same names.
    pub(crate) fn values(&self, what: &str) -> anyhow::Result<BTreeMap<&'static str, f64>> {
        let printed: BTreeMap<String, serde_json::Value> = self.json(what)?;
        let number = |(name, value): (String, serde_json::Value)| Some((kept(name), value.as_f64()?));
        Ok(printed.into_iter().filter_map(number).collect())
    }

    /// Share of a core that the watched process used over the last `measured` before the result, except for both ends
    /// of this time, which may belong to the client's warm-up or tear-down.
    pub(crate) fn cpu_share(&self, measured: Duration) -> Option<f64> {
        let (from, to) =
            (self.end.checked_sub(measured.mul_f64(0.9))?, self.end.checked_sub(measured.mul_f64(0.05))?);
        let mut within = self.usage.iter().filter(|(time, _)| (from..=to).contains(time));
        let (first, last) = (within.next()?, within.next_back()?);
        Some(last.1.saturating_sub(first.1).as_secs_f64() / (last.0 - first.0).as_secs_f64())
    }
}

impl Server {
    /// A process that its `ready` line names.
    pub(crate) fn process(&self, name: &str) -> Option<u32> {
        self.ready[name].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }
}

impl Launcher {
    pub(crate) fn new(programs: Programs, topology: Topology, cpus: [usize; 2]) -> Self {
        Self {
            programs,
            topology,
            client_cpu: cpus[0],
            server_cpu: cpus[1],
            live: RefCell::default(),
            adopts: false,
        }
    }

    /// From now on orphaned grandchildren become children of this process, which waits for them. Only for a process
    /// whose only children are the launcher's.
    pub(crate) fn adopting(mut self) -> anyhow::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("cannot ask for the children of children")?;
        self.adopts = true;
        Ok(self)
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Starts a server and waits for its `ready` line.
    pub(crate) async fn server(&self, side: Side<'_>, args: &[String]) -> anyhow::Result<Server> {
        self.server_with_log(side, args, None).await
    }

    /// The same with a standard error of its own, of which nothing is shown if the server fails.
    pub(crate) async fn server_with_log(
        &self,
        side: Side<'_>,
        args: &[String],
        log: Option<OwnedFd>,
    ) -> anyhow::Result<Server> {
        let mut process = self.start(side, args, log)?;
        let mut lines = BufReader::new(process.child.stdout.take().context("no output of a server")?).lines();
        let first = tokio::time::timeout(READY_DEADLINE, lines.next_line()).await;
        let ready = match first {
            Ok(Ok(Some(line))) => {
                let json = line.strip_prefix("ready ").unwrap_or(&line);
                serde_json::from_str(json).with_context(|| {
                    format!("{}: its first line is not the ready line: {line}", process.what)
                })?
            }
            Ok(_) => {
                let status = tokio::time::timeout(STOP_DEADLINE, process.child.wait()).await;
                let status = status.context("it closed its output, but runs on")??;
                self.live.borrow_mut().remove(&process.pid);
                bail!("{}", failure(&process.what, status, &mut process.stderr));
            }
            Err(_) => bail!(
                "not ready after {} s{} ({})",
                READY_DEADLINE.as_secs(),
                said(&mut process.stderr),
                process.what
            ),
        };
        // Further output must not fill the pipe and block the server.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Server { pid: process.pid, ready, process })
    }

    /// Stops a server as an operator would.
    pub(crate) async fn stop(&self, server: Server) -> anyhow::Result<()> {
        self.finish(server.process).await.map(drop)
    }

    /// Measures while a server runs, and stops it.
    pub(crate) async fn beside<T>(
        &self,
        side: Side<'_>,
        args: &[String],
        measure: impl AsyncFnOnce(&Server) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let server = self.server(side, args).await?;
        let measured = measure(&server).await;
        self.stop(server).await?;
        measured
    }

    /// Kills a server, and waits for its end.
    pub(crate) async fn kill(&self, server: Server) -> anyhow::Result<()> {
        let mut process = server.process;
        let ended = tokio::time::timeout(STOP_DEADLINE, process.child.kill()).await;
        self.live.borrow_mut().remove(&process.pid);
        ended.with_context(|| format!("{} did not end when it was killed", process.what))??;
        Ok(())
    }

    /// Runs a client to its end and reads the CPU time of `watched` meanwhile.
    pub(crate) async fn client(
        &self,
        side: Side<'_>,
        args: &[String],
        deadline: Duration,
        watched: Option<u32>,
    ) -> anyhow::Result<Finished> {
        let Background { pid, what, mut child, mut stderr } = self.start(side, args, None)?;
        let mut usage = Vec::new();
        let run = async {
            let mut stdout = child.stdout.take().context("no output of a client")?;
            let mut text = String::new();
            let mut first = [0];
            let begun = stdout.read(&mut first).await?;
            let end = Instant::now();
            text.push_str(std::str::from_utf8(&first[..begun]).unwrap_or("?"));
            stdout.read_to_string(&mut text).await?;
            anyhow::Ok((child.wait().await?, text, end))
        };
        let result = tokio::select! {
            result = tokio::time::timeout(deadline, run) => result,
            never = watch(watched, &mut usage) => match never {},
        };
        let Ok(result) = result else {
            bail!("no end within {:.1} s{} ({what})", deadline.as_secs_f64(), said(&mut stderr));
        };
        self.live.borrow_mut().remove(&pid);
        let (status, stdout, end) = result.with_context(|| what.clone())?;
        if !status.success() {
            bail!("{}", failure(&what, status, &mut stderr));
        }
        Ok(Finished { stdout, usage, end })
    }

    /// Starts a client that runs until it is stopped.
    pub(crate) fn background(&self, side: Side<'_>, args: &[String]) -> anyhow::Result<Background> {
        self.start(side, args, None)
    }

    /// Stops a process, as Ctrl-C does, and returns the output that nobody has read.
    pub(crate) async fn finish(&self, mut process: Background) -> anyhow::Result<String> {
        let Background { pid, what, child, stderr } = &mut process;
        if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
            // ESRCH: it has already ended, and `wait` returns how.
            let _ = rustix::process::kill_process(pid, Signal::INT);
        }
        let mut text = String::new();
        let end = async {
            if let Some(stdout) = &mut child.stdout {
                stdout.read_to_string(&mut text).await?;
            }
            child.wait().await
        };
        let ended = tokio::time::timeout(STOP_DEADLINE, end).await;
        if ended.is_err() {
            child.kill().await?;
        }
        self.live.borrow_mut().remove(pid);
        let late = || format!("{what} did not end within {} s of SIGINT", STOP_DEADLINE.as_secs());
        let status = ended.with_context(late)??;
        if status.success() || status.signal() == Some(Signal::INT.as_raw()) {
            return Ok(text);
        }
        Err(anyhow!(failure(what, status, stderr)))
    }

    /// Ends all remaining children and waits for them: when this returns, programs, links and mounts are gone.
    pub(crate) fn end_all(&self) {
        self.live.borrow_mut().drain().for_each(|(_, pidfd)| end(&pidfd));
        if self.adopts {
            // The kernel has ended their children with them, and these are now children of this process.
            children(std::process::id()).iter().for_each(end);
        }
    }

    /// `log`: where its error output goes, of which nothing is shown then.
    fn start(&self, side: Side<'_>, args: &[String], log: Option<OwnedFd>) -> anyhow::Result<Background> {
        let what = self.programs.command_line(args);
        let stderr = tempfile::tempfile().context("cannot create a temporary file")?;
        let both = [self.client_cpu, self.server_cpu];
        let (namespace, cpus) = match side {
            Side::Client => (&self.topology.client, &both[..1]),
            Side::Server => (&self.topology.server, &both[1..]),
            Side::Both => (&self.topology.server, &both[..]),
            Side::At(namespace, cpus) => (namespace, cpus),
        };
        let mut command = std::process::Command::new(self.programs.of(args));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        match log {
            Some(log) => command.stderr(log),
            None => command.stderr(stderr.try_clone()?),
        };
        child::place(&mut command, Placement { namespace: Some(namespace), cpus })?;
        let mut command = Command::from(command);
        // A process group of its own: Ctrl-C on the terminal reaches only the lab, which then ends its children in
        // order.
        command.kill_on_drop(true).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {what}"))?;
        let pid = child.id().with_context(|| format!("{what} ended at once"))?;
        let raw = Pid::from_raw(pid.cast_signed()).context("a process id of 0")?;
        let pidfd = rustix::process::pidfd_open(raw, PidfdFlags::empty())?;
        self.live.borrow_mut().insert(pid, pidfd);
        Ok(Background { pid, what, child, stderr })
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// Kills a process and waits until it has ended.
pub(crate) fn end(process: &OwnedFd) {
    // ESRCH: it has already ended.
    let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    let deadline = Instant::now() + STOP_DEADLINE;
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    // The end of another child interrupts the wait, as SIGCHLD has a handler.
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = rustix::event::Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        if rustix::event::poll(&mut ended, Some(&left)) != Err(rustix::io::Errno::INTR) {
            return;
        }
    }
}

/// The children of a process. Empty if the kernel lacks `CONFIG_PROC_CHILDREN`.
fn children(pid: u32) -> Vec<OwnedFd> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<i32> = listed
        .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    let open = |pid| rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok();
    pids.into_iter().filter_map(open).collect()
}

/// Reads the CPU time of a process repeatedly, which takes 0.1 % of the client's CPU.
async fn watch(pid: Option<u32>, usage: &mut Vec<(Instant, Duration)>) -> std::convert::Infallible {
    let Some(pid) = pid else { return std::future::pending().await };
    let mut tick = tokio::time::interval(USAGE_PERIOD);
    loop {
        tick.tick().await;
        if let Ok(used) = child::cpu_time(pid) {
            usage.push((Instant::now(), used));
        }
    }
}

fn failure(what: &str, status: ExitStatus, stderr: &mut File) -> String {
    let said = said(stderr);
    // The reason comes first, as a table has room for little.
    if said.is_empty() { format!("{status} ({what})") } else { format!("{} ({what}: {status})", &said[2..]) }
}

/// The end of a child's error output, on one line, after a colon; empty if there is none.
fn said(stderr: &mut File) -> String {
    let mut text = Vec::new();
    let start = stderr.metadata().map_or(0, |file| file.len().saturating_sub(STDERR_SHOWN));
    let read = stderr.seek(SeekFrom::Start(start)).and_then(|_| stderr.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let without_name = |line: &str| {
        let line = line.trim();
        ["twinpath: ", "twinpath-lab: "]
            .iter()
            .find_map(|name| line.strip_prefix(name))
            .unwrap_or(line)
            .to_owned()
    };
    let lines = text.lines().map(without_name);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    match read {
        Ok(_) if !lines.is_empty() => format!(": {}", lines.join("; ")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_measured_window_without_its_ends() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        // Idle during 100 ms of start-up, then half a core until 1100 ms, then a whole one while the client ends.
        let used =
            |ms: u64| Duration::from_millis(ms.saturating_sub(100).min(1000) / 2 + ms.saturating_sub(1100));
        let usage = (0..=1200).step_by(50).map(|ms| (at(ms), used(ms))).collect();
        let finished = Finished { stdout: String::new(), usage, end: at(1100) };
        assert!((finished.cpu_share(Duration::from_secs(1)).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(finished.cpu_share(Duration::from_millis(40)), None);
    }
}
