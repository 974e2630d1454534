//! A running `twinpath serve`, controlled over its command socket, as any operator would do it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use twinpath_observe::report::{Flow, Report, Worker};
use twinpath_sys::child;

use super::process::{Launcher, Server, Side};

/// A worker in `poll` mode on the same CPU delays the control thread by at most a few scheduler ticks.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// How long one may hold a latency request after its last packet: longer than the linger time of a second; and how often that
/// is looked at.
const IDLE_DEADLINE: Duration = Duration::from_secs(4);
const IDLE_LOOK: Duration = Duration::from_millis(60);

/// Until all requests of a probe are answered.
const PROBE_DEADLINE: Duration = Duration::from_secs(6);

/// The name of the thread of the first worker.
const WORKER: &str = "worker-0";

/// A running server.
#[derive(Debug)]
pub(crate) struct Instance {
    server: Server,
    socket: PathBuf,
}

/// A running server that serves on a fast path.
#[derive(Debug)]
pub(crate) struct Proven {
    pub(crate) instance: Instance,
    pub(crate) path: String,
    /// How it is known, for a note.
    pub(crate) proof: String,
}

impl Instance {
    /// Starts it; it serves on both paths when this returns.
    pub(crate) async fn start(launcher: &Launcher, args: &[String]) -> anyhow::Result<Self> {
        // Its worker pins itself (`--cpu`). If the process were confined to one CPU, it could not measure a wake-up
        // between two.
        Self::start_at(launcher, Side::Both, args).await
    }

    /// The same on another side than the server's.
    pub(crate) async fn start_at(
        launcher: &Launcher,
        side: Side<'_>,
        args: &[String],
    ) -> anyhow::Result<Self> {
        Self::start_with_log(launcher, side, args, None).await
    }

    /// The same with a standard error of its own.
    pub(crate) async fn start_with_log(
        launcher: &Launcher,
        side: Side<'_>,
        args: &[String],
        log: Option<OwnedFd>,
    ) -> anyhow::Result<Self> {
        let server = launcher.server_with_log(side, args, log).await?;
        let socket =
            server.ready["socket"].as_str().context("the ready line names no command socket")?.into();
        Ok(Self { server, socket })
    }

    /// One that has claimed an interface: `probe` sends so many requests from another side, and all of them have to come by the fast path.
    ///
    /// # Errors
    /// It takes no fast path, or the kernel got some of the requests.
    pub(crate) async fn proven(
        launcher: &Launcher,
        side: Side<'_>,
        args: &[String],
        (from, probe, probes): (Side<'_>, &[String], u64),
    ) -> anyhow::Result<Proven> {
        let instance = Self::start_at(launcher, side, args).await?;
        let before = instance.report().await?;
        let path = before.path();
        if let Some(reasons) = before.no_fast_path() {
            instance.stop(launcher).await?;
            bail!(reasons);
        }
        launcher.client(from, probe, PROBE_DEADLINE, None).await.context("the probe after attaching")?;
        let claimed = instance.report().await?.frames_in() - before.frames_in();
        ensure!(claimed >= probes, "attached on {path}, but only {claimed} of {probes} probes were claimed");
        let why = before.interfaces.first().map_or_else(String::new, |interface| interface.why.clone());
        let proof = format!("attached on {path}: {claimed} of {probes} probe frames came by it ({why})");
        Ok(Proven { instance, path, proof })
    }

    /// The instance of a program that `plain program` has started, and that serves by the library.
    pub(crate) fn of_program(server: Server, service: &str, interface: &str) -> anyhow::Result<Self> {
        let pid = server.ready["program_pid"].as_u64().context("the ready line names no process")?;
        let socket =
            twinpath_observe::command::run_directory().join(format!("{service}-{interface}-{pid}.sock"));
        Ok(Self { server, socket })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid
    }

    /// Its whole report.
    pub(crate) async fn report(&self) -> anyhow::Result<Report> {
        let answer = self.ask(&json!({"show": "all"})).await?;
        serde_json::from_value(answer).context("cannot read what twinpath says of itself")
    }

    /// The flows of a switch.
    pub(crate) async fn flows(&self) -> anyhow::Result<Vec<Flow>> {
        let mut answer = self.ask(&json!({"show": "flows"})).await?;
        serde_json::from_value(answer["flows"].take()).context("cannot read what flows there are")
    }

    /// Waits until no worker holds a latency request of earlier traffic any more.
    pub(crate) async fn until_idle(&self) -> anyhow::Result<Report> {
        let deadline = Instant::now() + IDLE_DEADLINE;
        loop {
            tokio::time::sleep(IDLE_LOOK).await;
            let report = self.report().await?;
            if !report.request_held() {
                return Ok(report);
            }
            let waited_s = IDLE_DEADLINE.as_secs();
            ensure!(
                Instant::now() < deadline,
                "still holds a latency request {waited_s} s after its last packet"
            );
        }
    }

    /// Measures while an instance runs, and stops it.
    pub(crate) async fn during<T>(
        launcher: &Launcher,
        args: &[String],
        measure: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let instance = Self::start(launcher, args).await?;
        let measured = measure(&instance).await;
        instance.stop(launcher).await?;
        measured
    }

    /// Switches all workers to `mode`.
    pub(crate) async fn set_mode(&self, mode: &str) -> anyhow::Result<()> {
        self.ask(&json!({"set": {"worker": null, "mode": mode}})).await.map(|_| ())
    }

    /// The part of its report that is about workers.
    pub(crate) async fn workers(&self) -> anyhow::Result<Vec<Worker>> {
        let mut answer = self.ask(&json!({"show": "workers"})).await?;
        serde_json::from_value(answer["workers"].take())
            .context("cannot read what twinpath says of its workers")
    }

    /// Has its workers measure the CPU time of each turn from now on.
    pub(crate) async fn time_turns(&self) -> anyhow::Result<()> {
        self.ask(&json!({"set": {"turn_times": true}})).await.map(|_| ())
    }

    /// Gives a switch one more port.
    pub(crate) async fn add_port(&self, name: &str) -> anyhow::Result<()> {
        self.ask(&json!({"port": {"add": name}})).await.map(|_| ())
    }

    /// Takes a port from a switch.
    pub(crate) async fn remove_port(&self, name: &str) -> anyhow::Result<()> {
        self.ask(&json!({"port": {"remove": name}})).await.map(|_| ())
    }

    pub(crate) async fn stop(self, launcher: &Launcher) -> anyhow::Result<()> {
        launcher.stop(self.server).await
    }

    /// Kills it, and waits for its end.
    pub(crate) async fn kill(self, launcher: &Launcher) -> anyhow::Result<()> {
        launcher.kill(self.server).await
    }

    async fn ask(&self, request: &serde_json::Value) -> anyhow::Result<serde_json::Value> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            stream.write_all(format!("{request}\n").as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).await?;
            anyhow::Ok(line)
        };
        let line = tokio::time::timeout(ANSWER_DEADLINE, exchange)
            .await
            .with_context(|| format!("no answer to {request} after {} s", ANSWER_DEADLINE.as_secs()))?
            .with_context(|| format!("cannot ask {} for {request}", self.socket.display()))?;
        let mut answer: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("{request} was answered by: {line}"))?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{request} was refused: {error}");
        }
        Ok(answer["ok"].take())
    }
}

/// Facts in a report that rows state.
pub(crate) trait Facts {
    /// The path of the first interface.
    fn path(&self) -> String;
    /// The reason that `--path auto` uses no fast path on the first interface, if it does not.
    fn no_fast_path(&self) -> Option<String>;
    /// Frames received on the fast path, all workers.
    fn frames_in(&self) -> u64;
    /// Heap allocations of all workers' threads.
    fn allocations(&self) -> u64;
    /// Whether any worker holds a CPU latency request.
    fn request_held(&self) -> bool;
    /// The first worker's conclusion about latency requests.
    fn request_verdict(&self) -> Option<&str>;
    /// Frame memory per queue, MiB.
    fn pool_mib_per_queue(&self) -> Option<f64>;
}

impl Facts for Report {
    fn path(&self) -> String {
        self.interfaces.first().map_or_else(|| "kernel".to_owned(), |interface| interface.path.clone())
    }

    fn no_fast_path(&self) -> Option<String> {
        let interface = self.interfaces.first().filter(|interface| interface.path == "kernel")?;
        let reasons: Vec<_> =
            interface.why_not.iter().map(|not| format!("{}: {}", not.path, not.reason)).collect();
        Some(format!("no fast path, kernel sockets on twinpath's worker instead: {}", reasons.join("; ")))
    }

    fn frames_in(&self) -> u64 {
        self.workers.iter().map(|worker| worker.frames_in).sum()
    }

    fn allocations(&self) -> u64 {
        self.workers.iter().map(|worker| worker.counts.allocations).sum()
    }

    fn request_held(&self) -> bool {
        self.workers.iter().any(|worker| worker.latency_request.held)
    }

    fn request_verdict(&self) -> Option<&str> {
        self.workers.first().map(|worker| worker.latency_request.verdict.as_str())
    }

    fn pool_mib_per_queue(&self) -> Option<f64> {
        let queues: usize = self.interfaces.iter().map(|interface| interface.queues.len()).sum();
        (queues > 0).then(|| self.instance.pool_mib / queues as f64)
    }
}

/// What a process does in a time: the share of a core that it uses, and how often it sleeps per second.
pub(crate) async fn watched(pid: u32, time: Duration) -> anyhow::Result<BTreeMap<&'static str, f64>> {
    let (begun, cpu, sleeps) = (Instant::now(), child::cpu_time(pid)?, voluntary_switches(pid)?);
    tokio::time::sleep(time).await;
    let seconds = begun.elapsed().as_secs_f64();
    let used = child::cpu_time(pid)?.saturating_sub(cpu).as_secs_f64();
    let slept = voluntary_switches(pid)?.saturating_sub(sleeps) as f64;
    Ok([("cpu_server", used / seconds), ("wakeups_per_s", slept / seconds)].into())
}

/// Voluntary context switches of all threads of a process: the number of sleeps, and so of wake-ups.
fn voluntary_switches(pid: u32) -> anyhow::Result<u64> {
    context_switches(pid).map(|[voluntary, _]| voluntary)
}

/// Context switches of all threads of a process: voluntary, and involuntary.
pub(crate) fn context_switches(pid: u32) -> anyhow::Result<[u64; 2]> {
    let tasks = format!("/proc/{pid}/task");
    let mut total = [0; 2];
    for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}"))? {
        // A thread may end between listing and reading.
        let Ok(status) = std::fs::read_to_string(task?.path().join("status")) else { continue };
        let here = switches_of(&status).with_context(|| format!("no voluntary_ctxt_switches in {tasks}"))?;
        total = [total[0] + here[0], total[1] + here[1]];
    }
    Ok(total)
}

/// The thread of the only worker of an instance.
pub(crate) fn worker_thread(pid: u32) -> anyhow::Result<u32> {
    let tasks = format!("/proc/{pid}/task");
    let mut found = Vec::new();
    for task in std::fs::read_dir(&tasks).with_context(|| format!("cannot list {tasks}"))? {
        let task = task?;
        // A thread may end between listing and reading.
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() == WORKER {
            found.extend(task.file_name().to_string_lossy().parse::<u32>());
        }
    }
    ensure!(found.len() == 1, "process {pid} has {} threads called {WORKER}", found.len());
    Ok(found[0])
}

fn switches_of(status: &str) -> Option<[u64; 2]> {
    let count = |name| status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
    Some([count("voluntary_ctxt_switches:")?, count("nonvoluntary_ctxt_switches:")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4000\n";
        assert_eq!(switches_of(status), Some([17, 4000]));
        assert_eq!(switches_of("Name:\tx\n"), None);
        assert!(voluntary_switches(std::process::id()).unwrap() < 1_000_000_000);
    }
}
