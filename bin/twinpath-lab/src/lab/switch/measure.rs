//! Starts one switch between two hosts, and measures its rows.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use twinpath_load::Arrivals;
use twinpath_plain::Pace;
use twinpath_report::SwitchPort;
use twinpath_sys::child;

use super::tables::{self, FRAMES, KILL9};
use crate::lab::counters::Counters;
use crate::lab::instance::{Instance, voluntary_switches};
use crate::lab::model::Sample;
use crate::lab::process::{Server, Side, words};
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::{SLACK, Traffic};
use crate::plain::switch::Sent;

/// The range of the period of paced requests, us, and by how much each gap differs.
const PERIOD_US: std::ops::RangeInclusive<f64> = 250.0..=500.0;
const JITTER: f64 = 0.03;
/// Ports of an idle switch.
pub(super) const IDLE_PORTS: usize = 10;
/// Until an idle switch has calmed down after its start.
const IDLE_SETTLE: Duration = Duration::from_millis(1500);
/// Frames per system call of the source, where a row does not name it.
pub(super) const BATCH: usize = 64;

/// A switch to be measured, and its rows.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    kind: Kind,
    pub(super) rows: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// As `plain switch` names it.
    Plain(&'static str),
    /// In the mode in which it starts; workers forward all frames.
    Twinpath(&'static str),
    /// As it is by default: the kernel forwards between learned addresses.
    Offloading,
    /// The same, and a thread of the kernel takes the frames of each port.
    Threads,
    /// In adaptive mode, with so many ports, of which two are in use.
    Ports(usize),
    /// Without hosts: each row is a process of its own.
    Alone,
}

/// All of them; a switch that is measured idle has more ports, so it is started for that alone.
pub(super) const CONTENDERS: &[Contender] = &[
    Contender {
        name: "the kernel's bridge",
        kind: Kind::Plain("bridge"),
        rows: &[
            "rate-bridge",
            "rtt-bridge",
            "paced-bridge",
            "bulk-bridge",
            "rate-bridge-1",
            "rate-bridge-8",
            "load-bridge-5k",
            "load-bridge-20k",
            "load-bridge-50k",
        ],
    },
    Contender {
        name: "OVS on packet sockets",
        kind: Kind::Plain("ovs-netdev"),
        rows: &[
            "rate-ovs-netdev",
            "rtt-ovs-netdev",
            "paced-ovs-netdev",
            "bulk-ovs-netdev",
            "rate-ovs-netdev-1",
            "rate-ovs-netdev-8",
            "load-ovs-netdev-5k",
            "load-ovs-netdev-20k",
            "load-ovs-netdev-50k",
        ],
    },
    Contender {
        name: "OVS on AF_XDP",
        kind: Kind::Plain("ovs-afxdp"),
        rows: &[
            "rate-ovs-afxdp",
            "rtt-ovs-afxdp",
            "rate-ovs-afxdp-1",
            "rate-ovs-afxdp-8",
            "load-ovs-afxdp-5k",
            "load-ovs-afxdp-20k",
            "load-ovs-afxdp-50k",
        ],
    },
    Contender {
        name: "testpmd on packet sockets",
        kind: Kind::Plain("testpmd-packet"),
        rows: &["rate-testpmd-packet", "rtt-testpmd-packet"],
    },
    Contender {
        name: "testpmd on AF_XDP",
        kind: Kind::Plain("testpmd-afxdp"),
        rows: &["rate-testpmd-afxdp", "rtt-testpmd-afxdp"],
    },
    Contender {
        name: "bare XDP redirect",
        kind: Kind::Plain("xdp-redirect"),
        rows: &["rate-xdp-redirect", "rtt-xdp-redirect"],
    },
    Contender {
        name: "twinpath",
        kind: Kind::Offloading,
        rows: &[
            "rate-twinpath",
            "rate-twinpath-1",
            "rate-twinpath-8",
            "rtt-twinpath-kernel",
            "bulk-twinpath-kernel",
        ],
    },
    Contender {
        name: "twinpath, frames taken by threads",
        kind: Kind::Threads,
        rows: &["rate-thread", "rate-thread-1", "rate-thread-8", "rtt-thread"],
    },
    Contender {
        name: "twinpath's worker, adaptive",
        kind: Kind::Twinpath("adaptive"),
        rows: &[
            "rate-worker",
            "rate-worker-1",
            "rate-worker-8",
            "paced-twinpath",
            "bulk-twinpath",
            "load-twinpath-5k",
            "load-twinpath-20k",
            "load-twinpath-50k",
        ],
    },
    Contender { name: "twinpath, poll", kind: Kind::Twinpath("poll"), rows: &["rtt-twinpath-poll"] },
    Contender {
        name: "twinpath, interrupt",
        kind: Kind::Twinpath("interrupt"),
        rows: &["rtt-twinpath-interrupt"],
    },
    Contender { name: "twinpath, 10 ports", kind: Kind::Ports(10), rows: &["ports-10"] },
    Contender { name: "twinpath, 1,000 ports", kind: Kind::Ports(1000), rows: &["ports-1000"] },
    Contender {
        name: "OVS on packet sockets, idle",
        kind: Kind::Plain("ovs-netdev"),
        rows: &["idle-ovs-netdev"],
    },
    Contender { name: "the MAC table", kind: Kind::Alone, rows: &["l2-lookup"] },
    Contender {
        name: "twinpath, memory ports",
        kind: Kind::Alone,
        rows: &["memory-twinpath", "memory-twinpath-1", "memory-twinpath-8"],
    },
    Contender { name: "testpmd on memif", kind: Kind::Alone, rows: &["memory-testpmd"] },
    Contender {
        name: "one loop, and a packet thread beside control",
        kind: Kind::Alone,
        rows: &["loop-1", "threads-1", "loop-64", "threads-64"],
    },
    Contender {
        name: "the kernel's VXLAN",
        kind: Kind::Alone,
        rows: &["vxlan-bulk-kernel", "vxlan-rtt-kernel"],
    },
    Contender {
        name: "twinpath, VXLAN",
        kind: Kind::Alone,
        rows: &["vxlan-bulk-twinpath", "vxlan-rtt-twinpath"],
    },
    Contender {
        name: "twinpath, flooded by a third port",
        kind: Kind::Alone,
        rows: &["flood-base", "flood-limited", "flood-unlimited"],
    },
    Contender { name: "twinpath, killed", kind: Kind::Alone, rows: &["kill9-bridge"] },
    Contender { name: "twinpath, idle", kind: Kind::Offloading, rows: &["idle-twinpath"] },
];

/// A switch that runs.
struct Running {
    process: Process,
    /// The process whose CPU time counts; the kernel's bridge has none.
    pid: Option<u32>,
    note: Option<String>,
}

enum Process {
    Plain(Server),
    Twinpath(Instance),
}

/// One round.
pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    round: usize,
    pub(super) time: Duration,
    idle_time: Duration,
    /// The pace and the seed of its gaps, the same for all switches of a round.
    period_us: f64,
    seed: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        session: &'a Session,
        round: usize,
        time: Duration,
        idle_time: Duration,
        random: &mut Rng,
    ) -> Self {
        let (from, to) = PERIOD_US.into_inner();
        let period_us = from + (to - from) * random.f64();
        Self { session, round, time, idle_time, period_us, seed: random.u64(..1 << 32) }
    }

    /// Measures the selected rows of a switch; a failure is recorded as the rows' reason.
    pub(super) async fn measure(&self, contender: &Contender, record: &mut Record) {
        let wanted = |row: &&&'static str| self.session.selection.rows.contains(**row);
        let due = |row: &&str| self.round < super::PLOT_ROUNDS || !tables::is_for_a_plot(row);
        let rows: Vec<_> = contender.rows.iter().filter(wanted).copied().filter(due).collect();
        let rows: Vec<_> = rows.into_iter().filter(|row| !record.is_hopeless(row)).collect();
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.rows(contender, &rows, record).await {
            let reason = format!("{error:#}");
            self.session.progress.line(&format!("{}: {reason}", contender.name));
            for row in rows {
                if !record.has(row, self.round) {
                    record.fail(row, reason.clone());
                }
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
            for row in rows.iter().filter(|row| self.round == 0 || **row != KILL9) {
                self.keep(row, self.alone(row).await, record);
            }
            return Ok(());
        }
        let ports = match contender.kind {
            Kind::Ports(_) if self.round >= super::PORTS_ROUNDS => return Ok(()),
            Kind::Ports(ports) => ports,
            _ if rows.iter().any(|row| row.starts_with("idle-")) => IDLE_PORTS,
            _ => HOSTS.len(),
        };
        let network = SwitchNetwork::build(ports)?;
        let running = self.start(contender, &network).await?;
        if let Kind::Ports(_) = contender.kind {
            // What the kernel says of a thousand interfaces is read for a second after the start, by control.
            tokio::time::sleep(IDLE_SETTLE).await;
        }
        for row in rows {
            let mut measured = self.row(row, &network, &running).await;
            if let (Ok(sample), Process::Twinpath(instance)) = (&mut measured, &running.process) {
                sample.values.insert("kernel_share", kernel_share(instance).await?);
            }
            if let Ok(sample) = &mut measured {
                sample.notes.extend(running.note.clone());
            }
            self.keep(row, measured, record);
        }
        match running.process {
            Process::Plain(server) => self.session.launcher.stop(server).await,
            Process::Twinpath(instance) => instance.stop(&self.session.launcher).await,
        }
    }

    fn keep(&self, row: &'static str, measured: anyhow::Result<Sample>, record: &mut Record) {
        match measured {
            Ok(sample) => record.add(row, self.round, sample),
            Err(error) => {
                let reason = format!("{error:#}");
                self.session.progress.line(&format!("{row}: {reason}"));
                record.fail(row, reason);
            }
        }
    }

    async fn start(&self, contender: &Contender, network: &SwitchNetwork) -> anyhow::Result<Running> {
        let launcher = &self.session.launcher;
        let cpu = self.session.cpus[1];
        match contender.kind {
            Kind::Alone => bail!("{} is no switch", contender.name),
            Kind::Plain(kind) => {
                let whole_checksums = kind != "bridge";
                if whole_checksums {
                    network.whole_checksums()?;
                }
                let directory = self.directory(kind)?;
                let mut args = words(&format!(
                    "plain switch {kind} --ports {} --cpu {cpu} --directory",
                    network.ports.join(",")
                ));
                args.push(directory.display().to_string());
                let server = launcher.server(Side::At(&network.switch, &[cpu]), &args).await?;
                let pid = server.ready["switch_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                let what = server.ready["what"].as_str().unwrap_or(kind);
                let hosts = if whole_checksums {
                    "; the hosts compute checksums, which it does not pass on"
                } else {
                    ""
                };
                let note = Some(format!("{what}{hosts}"));
                Ok(Running { process: Process::Plain(server), pid, note })
            }
            Kind::Twinpath(_) | Kind::Ports(_) | Kind::Offloading | Kind::Threads => {
                let options = match contender.kind {
                    Kind::Offloading | Kind::Threads => "--mode adaptive".to_owned(),
                    Kind::Twinpath(mode) => format!("--mode {mode} --offload off"),
                    _ => "--mode adaptive --offload off".to_owned(),
                };
                let receive = if let Kind::Threads = contender.kind { ",receive=thread" } else { "" };
                let ports: Vec<_> = network.ports.iter().map(|port| format!("{port}{receive}")).collect();
                let ports: Vec<_> = ports.iter().map(String::as_str).collect();
                let instance = self.twinpath(network, &ports, &options).await?;
                let pid = Some(instance.pid());
                Ok(Running { process: Process::Twinpath(instance), pid, note: None })
            }
        }
    }

    /// twinpath's switch with these ports.
    pub(super) async fn twinpath(
        &self,
        network: &SwitchNetwork,
        ports: &[&str],
        options: &str,
    ) -> anyhow::Result<Instance> {
        let socket = self.session.run_dir.path().join("switch.sock");
        let ports: String = ports.iter().map(|port| format!(" --port {port}")).collect();
        let cpu = self.session.cpus[1];
        let mut args = words(&format!("switch lab{ports} --cpu {cpu} {options} --socket"));
        args.push(socket.display().to_string());
        let side = Side::At(&network.switch, &self.session.cpus);
        Instance::start_at(&self.session.launcher, side, &args).await
    }

    /// An empty directory for a switch's files.
    pub(super) fn directory(&self, kind: &str) -> anyhow::Result<PathBuf> {
        let directory = self.session.run_dir.path().join(format!("{kind}-{}", fastrand::u32(..)));
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(directory)
    }

    async fn row(&self, row: &str, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        if row.starts_with("idle-") {
            return self.idle(running).await;
        }
        let traffic = Traffic { session: self.session, network, time: self.time, switch: running.pid };
        if row.starts_with("bulk-") {
            return traffic.bulk().await;
        }
        let server = traffic.echo_server("connected").await?;
        let measured = async {
            if row.starts_with("rate-") || row.starts_with("ports-") {
                traffic.probe().await?;
                // The number of a row of ports is theirs.
                let batch = number(row).filter(|_| tables::is_for_a_plot(row)).unwrap_or(BATCH);
                return self.rate(network, running.pid, batch).await;
            }
            if row.starts_with("load-") {
                let thousands = number(row).with_context(|| format!("{row} has no rate"))?;
                return traffic.at_rate(thousands as f64 * 1e3, self.seed).await;
            }
            let options = if row.starts_with("paced-") { self.pace() } else { String::new() };
            traffic.for_its_time(&options).await
        };
        let measured = measured.await;
        self.session.launcher.stop(server).await?;
        measured
    }

    /// This round's pace, for frames that the kernel times.
    pub(super) fn timed_pace(&self) -> Pace {
        Pace {
            rate_per_s: 1e6 / self.period_us,
            arrivals: Arrivals::Jittered(JITTER),
            seed: self.seed,
            warmup: twinpath_time::Duration::ZERO,
            length: twinpath_time::Duration::from_secs_f64(self.time.as_secs_f64()),
        }
    }

    /// The options of a load at this round's pace.
    pub(super) fn pace(&self) -> String {
        let (rate, arrivals) = (1e6 / self.period_us, Arrivals::Jittered(JITTER));
        format!("--rate {rate} --arrivals {arrivals} --arrivals-seed {}", self.seed)
    }

    /// Frames of 64 bytes, as many as the first host's interface takes, counted by the second host's.
    pub(super) async fn rate(
        &self,
        network: &SwitchNetwork,
        switch: Option<u32>,
        batch: usize,
    ) -> anyhow::Result<Sample> {
        let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
        let args = words(&format!(
            "plain frame-source --on {} --from {} --to {} --batch {batch} --duration {:.3}",
            HOSTS[0].interface,
            mac(HOSTS[0].mac),
            mac(HOSTS[1].mac),
            self.time.as_secs_f64()
        ));
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let used = || switch.map(child::cpu_time).transpose();
        let sink = || Counters::of(&network.hosts[1], HOSTS[1].interface);
        let (before, used_before) = (sink()?.received, used()?);
        let finished = self.session.launcher.client(side, &args, self.time + SLACK, switch).await?;
        let (after, used_after) = (sink()?.received, used()?);
        let sent: Sent =
            serde_json::from_str(&finished.stdout).context("cannot read the result of plain frame-source")?;
        let frames = after.saturating_sub(before) as f64;
        ensure!(frames > 0.0, "none of {} frames came through", sent.frames);
        let mut sample = Sample::default();
        sample.values.insert(FRAMES, frames / sent.duration_s);
        sample.values.insert(tables::BATCH, batch as f64);
        sample.values.insert("offered_per_s", sent.frames as f64 / sent.duration_s);
        if let (Some(before), Some(after)) = (used_before, used_after) {
            sample
                .values
                .insert("cpu_us_per_frame", after.saturating_sub(before).as_secs_f64() * 1e6 / frames);
        }
        if let Some(cpu) = finished.cpu_share(self.time) {
            sample.values.insert("cpu_server", cpu);
        }
        Ok(sample)
    }

    /// The CPU that a switch takes while nothing comes.
    async fn idle(&self, running: &Running) -> anyhow::Result<Sample> {
        let pid = running.pid.context("no process to watch")?;
        tokio::time::sleep(IDLE_SETTLE).await;
        let (begun, before, sleeps) = (Instant::now(), child::cpu_time(pid)?, voluntary_switches(pid)?);
        tokio::time::sleep(self.idle_time).await;
        let elapsed_s = begun.elapsed().as_secs_f64();
        let used = child::cpu_time(pid)?.saturating_sub(before);
        let mut sample = Sample::default();
        sample.values.insert("cpu_server", used.as_secs_f64() / elapsed_s);
        let sleeps = voluntary_switches(pid)?.saturating_sub(sleeps);
        sample.values.insert("wakeups_per_s", sleeps as f64 / elapsed_s);
        Ok(sample)
    }
}

/// The share of the frames received so far that the kernel has forwarded without a worker.
async fn kernel_share(instance: &Instance) -> anyhow::Result<f64> {
    let report = instance.report().await?;
    let sum = |of: fn(&SwitchPort) -> u64| report.ports.iter().map(of).sum::<u64>() as f64;
    Ok(sum(|port| port.kernel_in) / sum(|port| port.frames_in).max(1.0))
}

/// The number at the end of a row's id: frames at once, or thousands of requests per second.
pub(super) fn number(row: &str) -> Option<usize> {
    row.rsplit('-').next()?.trim_end_matches('k').parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_measured_on_one_switch() {
        let measured: Vec<_> = CONTENDERS.iter().flat_map(|contender| contender.rows).collect();
        let rows: BTreeSet<_> = tables::ROWS.iter().map(|row| &row.id).collect();
        assert_eq!(measured.len(), rows.len());
        assert_eq!(measured.into_iter().collect::<BTreeSet<_>>(), rows);
    }
}
