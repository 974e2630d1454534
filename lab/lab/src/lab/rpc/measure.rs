//! Measures one row of `lab rpc` once.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_clients::measure::report::BenchReport;

use super::{LAB, peers};
use crate::lab::client::{self, half_of_best};
use crate::lab::instance::{Facts, Instance};
use crate::lab::model::{How, Sample};
use crate::lab::peers::{LINGER_MS, serve_by_one};
use crate::lab::process::{Server, Side};
use crate::lab::session::Session;
use crate::plain::nfs;

/// CPU time of the server for a call.
pub(crate) const COST: &str = "cpu_us_per_call";
/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(6);
/// The share of the offered rate that must have been answered.
const ANSWERED: f64 = 0.95;

/// The state that rows share.
pub(crate) struct Stage<'a> {
    pub(super) session: &'a Session,
    /// Duration of one measurement.
    pub(super) time: Duration,
    /// Started for its first row.
    ganesha: Option<Ganesha>,
}

struct Ganesha {
    server: Server,
    pid: u32,
    /// The handle of its root, in hexadecimal digits.
    root: String,
}

/// The server that a client uses.
pub(crate) struct Target {
    address: SocketAddr,
    /// The process whose CPU time is measured.
    pid: u32,
    /// The option that names a file of its tree.
    file: String,
}

impl Target {
    /// One that is asked for nothing of a file.
    pub(crate) fn of(address: SocketAddr, pid: u32) -> Self {
        Self { address, pid, file: String::new() }
    }

    pub(super) fn twinpath(instance: &Instance) -> Self {
        let file = peers::TWINPATH_FILE.to_owned();
        Self { address: peers::twinpath(), pid: instance.pid(), file }
    }
}

impl<'a> Stage<'a> {
    pub(crate) fn new(session: &'a Session, time: Duration) -> Self {
        Self { session, time, ganesha: None }
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        if let Some(ganesha) = self.ganesha {
            self.session.launcher.stop(ganesha.server).await?;
        }
        Ok(())
    }

    /// The first word of a row's `by` is the server: `ganesha`, which is started once for all of its rows; `plain`, a bare server over
    /// TCP, or over UDP by the method that it equals; `twinpath`, or `twinpath=requestless`, which never holds a CPU latency request.
    /// Then comes the client, as [`peers::bench`] takes it, with `half` at half of the best bare server's rate.
    pub(super) async fn measure(&mut self, row: &str) -> anyhow::Result<Sample> {
        let spec = LAB.table.row(row).with_context(|| format!("no such row: {row}"))?;
        let (how, mode) = (spec.how, spec.mode.unwrap_or_default());
        let plain = LAB.table.against("null-tcp-128-twinpath");
        let rate = how.has("half").then(|| half_of_best(self.session, plain)).transpose()?;
        let more = match how.first() {
            ("ganesha", None) => {
                let (pid, root) = self.ganesha().await?;
                let target = Target { address: peers::ganesha(), pid, file: format!("--handle {root}") };
                return self.ask(&target, how, rate).await;
            }
            ("plain", None) => return self.plain(&peers::tcp_null(mode), how, rate).await,
            ("plain", Some(method)) => return self.plain(&peers::udp_null(method, mode), how, rate).await,
            ("twinpath", None) => "",
            ("twinpath", Some("requestless")) => "--latency-request never",
            other => bail!("no such server: {other:?}"),
        };
        let instance = self.twinpath(mode, more).await?;
        let result = self.ask_twinpath(&instance, how, rate).await;
        instance.stop(&self.session.launcher).await?;
        result
    }

    /// A running `twinpath serve rpc`, with more options.
    pub(super) async fn twinpath(&self, mode: &str, more: &str) -> anyhow::Result<Instance> {
        let args = serve_by_one(
            self.session,
            &format!(
                "rpc {} --path auto --mode {mode} --linger-ms {LINGER_MS} {more}",
                peers::twinpath_ports()
            ),
        );
        Instance::start(&self.session.launcher, &args).await
    }

    /// Also verifies that calls used the fast path if they should, and counts allocations.
    async fn ask_twinpath(
        &self,
        instance: &Instance,
        asked: How,
        rate: Option<f64>,
    ) -> anyhow::Result<Sample> {
        if !matches!(asked.get("client"), Some("fast" | "segments")) {
            return self.ask(&Target::twinpath(instance), asked, rate).await;
        }
        let before = instance.report().await?;
        let mut sample = self.ask(&Target::twinpath(instance), asked, rate).await?;
        let after = instance.report().await?;
        let frames = after.frames_in() - before.frames_in();
        ensure!(frames > 0, "no call came by the fast path: it is {}", after.path());
        let allocated = (after.allocations() - before.allocations()) as f64 / frames as f64;
        let client = sample.values.get("allocations_per_packet").copied().unwrap_or(0.0);
        sample.values.insert("allocations_per_packet", allocated.max(client));
        sample.path = Some(after.path());
        Ok(sample)
    }

    async fn plain(&self, args: &[String], asked: How, rate: Option<f64>) -> anyhow::Result<Sample> {
        let measure =
            async |server: &Server| self.ask(&Target::of(peers::plain(), server.pid), asked, rate).await;
        self.session.launcher.beside(Side::Server, args, measure).await
    }

    /// Its process id, and the handle of its root.
    async fn ganesha(&mut self) -> anyhow::Result<(u32, String)> {
        if let Some(ganesha) = &self.ganesha {
            return Ok((ganesha.pid, ganesha.root.clone()));
        }
        nfs::find_ganesha()?;
        let directory = self.session.run_dir.path().join("nfs");
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut args: Vec<_> = ["plain", "nfs-server", "--files", "100", "--directories", "1", "--directory"]
            .map(str::to_owned)
            .to_vec();
        args.push(directory.display().to_string());
        let server = self.session.launcher.server(Side::Server, &args).await.context("nfs-ganesha")?;
        let pid = server.ready["ganesha_pid"].as_u64().context("nfs-ganesha's process is not known")? as u32;
        let root = server.ready["root"].as_str().context("nfs-ganesha's root is not known")?.to_owned();
        self.ganesha = Some(Ganesha { server, pid, root: root.clone() });
        Ok((pid, root))
    }

    /// Runs a client, and measures the server's CPU meanwhile.
    pub(crate) async fn ask(&self, target: &Target, asked: How, rate: Option<f64>) -> anyhow::Result<Sample> {
        let args = peers::bench(target.address, asked, rate, &target.file, self.time)?;
        let finished =
            self.session.launcher.client(Side::Client, &args, self.time + SLACK, Some(target.pid)).await?;
        let report: BenchReport = finished.json("bench")?;
        let mut sample = client::sample(&report)?;
        let values = &mut sample.values;
        if let Some(offered) = rate {
            let answered = report.requests_per_s;
            ensure!(
                asked.has("twice") || answered > ANSWERED * offered,
                "only {answered:.0} of the offered {offered:.0} calls/s were answered"
            );
            values.insert("offered_per_s", offered);
        }
        if let Some(share) = finished.cpu_share(Duration::from_secs_f64(report.duration_s)) {
            values.extend([("cpu_server", share), (COST, share * 1e6 / report.requests_per_s)]);
        } else if rate.is_some() {
            bail!("the server's CPU was not read often enough");
        }
        Ok(sample)
    }
}
