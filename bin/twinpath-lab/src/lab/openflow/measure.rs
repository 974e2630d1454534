//! Starts one switch between two hosts, with a socket for controllers, and measures its rows.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use twinpath_sys::child;

use super::tables::{CPU, DUMP, EXACT, HOSTILE, MASKS, MODS};
use crate::lab::instance::{Instance, voluntary_switches};
use crate::lab::model::Sample;
use crate::lab::process::{Server, Side};
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::topology::SwitchNetwork;
use crate::plain::openflow::Modified;
use crate::plain::pipeline::Timed;

/// Until flows are in and out again, however slow a switch is with them.
const MODS_DEADLINE: Duration = Duration::from_secs(60);
/// Until the tables' times per frame are measured.
const PIPELINE_DEADLINE: Duration = Duration::from_secs(60);
/// Until a switch has calmed down after 10,000 flows, and for how long it is watched.
const IDLE_SETTLE: Duration = Duration::from_secs(2);
const IDLE_TIME: Duration = Duration::from_secs(5);
const PORTS: usize = 2;

/// A switch to be measured, and its rows.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    kind: Kind,
    pub(super) rows: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ovs,
    Twinpath,
    /// No switch: the row is a process of its own.
    Alone,
}

/// All of them. One that is measured idle is started for that alone.
pub(super) const CONTENDERS: &[Contender] = &[
    Contender { name: "OVS", kind: Kind::Ovs, rows: &["mods-ovs", "barrier-ovs", "counters-ovs"] },
    Contender {
        name: "twinpath",
        kind: Kind::Twinpath,
        rows: &["mods-twinpath", "barrier-twinpath", "counters-twinpath"],
    },
    Contender { name: "OVS, idle", kind: Kind::Ovs, rows: &["idle-of-ovs"] },
    Contender { name: "twinpath, idle", kind: Kind::Twinpath, rows: &["idle-of-twinpath"] },
    Contender { name: "the tables", kind: Kind::Alone, rows: &["pipeline"] },
];

/// A switch that runs.
struct Running {
    process: Process,
    /// The process whose CPU time counts.
    pid: u32,
    /// Where it listens for controllers.
    socket: PathBuf,
    note: Option<String>,
}

enum Process {
    Plain(Server),
    Twinpath(Instance),
}

/// One round.
pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    pub(super) round: usize,
}

impl Bench<'_> {
    /// Measures the selected rows of a switch; a failure is recorded as the rows' reason.
    pub(super) async fn measure(&self, contender: &Contender, record: &mut Record) {
        let wanted = |row: &&&'static str| self.session.selection.rows.contains(**row);
        let rows: Vec<_> = contender.rows.iter().filter(wanted).copied().collect();
        let rows: Vec<_> = rows.into_iter().filter(|row| !record.is_hopeless(row)).collect();
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.rows(contender, &rows, record).await {
            for row in rows.into_iter().filter(|row| !record.has(row, self.round)).collect::<Vec<_>>() {
                self.failed(row, &error, record);
            }
        }
    }

    async fn rows(
        &self,
        contender: &Contender,
        rows: &[&'static str],
        record: &mut Record,
    ) -> anyhow::Result<()> {
        if let Kind::Alone = contender.kind {
            record.add("pipeline", self.round, self.pipeline().await?);
            return Ok(());
        }
        let network = SwitchNetwork::build(PORTS)?;
        let running = self.start(contender.kind, &network).await?;
        for row in rows {
            match self.row(row, &network, &running).await {
                Ok(mut sample) => {
                    sample.notes.extend(running.note.clone());
                    record.add(row, self.round, sample);
                }
                Err(error) => self.failed(row, &error, record),
            }
        }
        match running.process {
            Process::Plain(server) => self.session.launcher.stop(server).await,
            Process::Twinpath(instance) => instance.stop(&self.session.launcher).await,
        }
    }

    fn failed(&self, row: &'static str, error: &anyhow::Error, record: &mut Record) {
        let reason = format!("{error:#}");
        self.session.progress.line(&format!("{row}: {reason}"));
        record.fail(row, reason);
    }

    async fn start(&self, kind: Kind, network: &SwitchNetwork) -> anyhow::Result<Running> {
        let launcher = &self.session.launcher;
        let cpu = self.session.cpus[1];
        // Hosts compute checksums for both: not every switch passes on that one is still to be computed.
        network.whole_checksums()?;
        let directory = self.session.run_dir.path().join(format!("openflow-{}", fastrand::u32(..)));
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        match kind {
            Kind::Alone => bail!("no switch"),
            Kind::Ovs => {
                let ports = network.ports.join(",");
                let mut args = words(&format!(
                    "plain switch ovs-netdev --openflow --ports {ports} --cpu {cpu} --directory"
                ));
                args.push(directory.display().to_string());
                let server = launcher.server(Side::At(&network.switch, &self.session.cpus), &args).await?;
                let pid = server.ready["switch_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                let note = server.ready["what"].as_str().map(str::to_owned);
                let pid = pid.context("OVS has no process")?;
                Ok(Running { process: Process::Plain(server), pid, socket: directory.join("br0.mgmt"), note })
            }
            Kind::Twinpath => {
                let socket = directory.join("controllers");
                let ports: String = network.ports.iter().map(|port| format!(" --port {port}")).collect();
                let mut args = words(&format!("switch lab{ports} --cpu {cpu} --listen"));
                args.push(format!("unix:{}", socket.display()));
                args.push("--socket".to_owned());
                args.push(directory.join("commands").display().to_string());
                let side = Side::At(&network.switch, &self.session.cpus);
                let instance = Instance::start_at(launcher, side, &args).await?;
                let pid = instance.pid();
                Ok(Running { process: Process::Twinpath(instance), pid, socket, note: None })
            }
        }
    }

    async fn row(&self, row: &str, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        match row.split('-').next() {
            Some("mods") => self.mods(network, running).await,
            Some("barrier") => super::judged::after_barriers(network, &running.socket),
            Some("counters") => super::judged::counters(network, &running.socket).await,
            Some("idle") => self.idle(network, running).await,
            _ => bail!("{row} is no row of a switch"),
        }
    }

    /// A controller on the hosts' CPU. Its socket is in the file system, so that its namespace does not matter.
    fn controller(&self, running: &Running, task: &str) -> Vec<String> {
        let mut args = words("plain openflow --to");
        args.push(running.socket.display().to_string());
        args.extend(words(task));
        args
    }

    async fn mods(&self, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let args = self.controller(running, "flow-mods");
        let used = child::cpu_time(running.pid)?;
        let finished = self.session.launcher.client(side, &args, MODS_DEADLINE, None).await?;
        let used = child::cpu_time(running.pid)?.saturating_sub(used);
        let modified: Modified =
            serde_json::from_str(&finished.stdout).context("cannot read the result of plain openflow")?;
        let mut sample = Sample::default();
        sample.values.insert(MODS, modified.mods_per_s);
        sample.values.insert(DUMP, modified.dump_s);
        sample.values.insert("cpu_s", used.as_secs_f64());
        Ok(sample)
    }

    /// The CPU that a switch takes while its flows wait for their timeouts.
    async fn idle(&self, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let controller = self.session.launcher.server(side, &self.controller(running, "hold")).await?;
        tokio::time::sleep(IDLE_SETTLE).await;
        let pid = running.pid;
        let (begun, used, sleeps) = (Instant::now(), child::cpu_time(pid)?, voluntary_switches(pid)?);
        tokio::time::sleep(IDLE_TIME).await;
        let elapsed_s = begun.elapsed().as_secs_f64();
        let used = child::cpu_time(pid)?.saturating_sub(used);
        let sleeps = voluntary_switches(pid)?.saturating_sub(sleeps);
        self.session.launcher.stop(controller).await?;
        let mut sample = Sample::default();
        sample.values.insert(CPU, used.as_secs_f64() / elapsed_s);
        sample.values.insert("wakeups_per_s", sleeps as f64 / elapsed_s);
        Ok(sample)
    }

    async fn pipeline(&self) -> anyhow::Result<Sample> {
        let args = format!("plain pipeline --cpu {}", self.session.cpus[1]);
        let launcher = &self.session.launcher;
        let finished = launcher.client(Side::Server, &words(&args), PIPELINE_DEADLINE, None).await?;
        let timed: Timed =
            serde_json::from_str(&finished.stdout).context("cannot read the result of plain pipeline")?;
        let mut sample = Sample::default();
        sample.values.insert(EXACT, timed.exact_ns);
        sample.values.insert("exact_100k_ns", timed.exact_100k_ns);
        sample.values.insert(MASKS, timed.masks_ns);
        sample.values.insert("unknown_ns", timed.unknown_ns);
        sample.values.insert(HOSTILE, timed.hostile_ns);
        sample.values.insert("change_us", timed.change_us);
        sample.values.insert("change_longest_us", timed.change_longest_us);
        Ok(sample)
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tables;
    use super::*;

    #[test]
    fn every_row_is_measured_on_one_switch() {
        let measured: Vec<_> = CONTENDERS.iter().flat_map(|contender| contender.rows).collect();
        let rows: BTreeSet<_> = tables::ROWS.iter().map(|row| &row.id).collect();
        assert_eq!(measured.len(), rows.len());
        assert_eq!(measured.into_iter().collect::<BTreeSet<_>>(), rows);
    }
}
