//! Starts the two servers, and measures one row once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_clients::measure::report::BenchReport;

use super::LAB;
use crate::lab::client;
use crate::lab::instance::Instance;
use crate::lab::model::{How, Sample};
use crate::lab::peers::{LINGER_MS, serve_by_one};
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;
use crate::plain::nfs::NFS_PORT;

/// The tree of `nfs-list`, in which the other rows make their files.
const SHAPE: &str = "--files 50000 --directories 300";
const NAMES: u64 = 50_300;
/// The port of ours, beside ganesha's.
const OWN_PORT: u16 = 2050;
/// For start-up, files that are made, written and read back, and a listing, beyond the measured time.
const SLACK: Duration = Duration::from_secs(60);
const WARMUP_S: f64 = 0.1;

/// The tree that a kernel's client mounts, and how long its work may take where instructions are emulated.
const MOUNTED_SHAPE: &str = "--files 500 --directories 20";
const MOUNTED_MAX: Duration = Duration::from_secs(200);
/// A client over TCP waits for 3 s before it connects again.
const MOUNTED_KILLS: &str = "--kill-every-ms 5000";

/// The servers, each started for its first row.
pub(super) struct Stage<'a> {
    session: &'a Session,
    /// Duration of one measurement.
    time: Duration,
    ganesha: Option<Server>,
    own: Option<Instance>,
}

/// A server, as a client sees it.
struct Target {
    port: u16,
    export: PathBuf,
    /// The process whose CPU time is measured.
    pid: u32,
    more: String,
}

impl<'a> Stage<'a> {
    pub(super) fn new(session: &'a Session, time: Duration) -> Self {
        Self { session, time, ganesha: None, own: None }
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        if let Some(own) = self.own {
            own.stop(&self.session.launcher).await?;
        }
        if let Some(ganesha) = self.ganesha {
            self.session.launcher.stop(ganesha).await?;
        }
        Ok(())
    }

    /// A row's `by` has the server, `proc=` what is asked of it, and `inflight=` calls.
    pub(super) async fn measure(&mut self, row: &str) -> anyhow::Result<Sample> {
        let how = LAB.table.row(row).with_context(|| format!("no such row: {row}"))?.how;
        if how.first().0 == "mounted" {
            return self.mounted(row, how).await;
        }
        let target = match how.first().0 {
            "ganesha" => self.ganesha().await?,
            "twinpath" => self.own().await?,
            other => bail!("no such server: {other}"),
        };
        let asked = how.get("proc").context("a row names no proc")?;
        let load = how.get("inflight").map_or_else(String::new, |inflight| {
            let time = self.time.as_secs_f64();
            format!("--inflight {inflight} --duration {time:.3} --warmup {WARMUP_S}")
        });
        let mut args = words(&format!(
            "bench nfs {}:{} --mode interrupt --proc {asked} {load} {} --json --export",
            SERVER.ipv4, target.port, target.more
        ));
        args.push(target.export.display().to_string());
        let launcher = &self.session.launcher;
        let finished = launcher.client(Side::Client, &args, self.time + SLACK, Some(target.pid)).await?;
        let report: BenchReport = finished.json("bench")?;
        let mut sample = client::sample(&report)?;
        if let Some(bytes_per_s) = report.bytes_per_s {
            // What the server does before and after, when files are made and read back, is no part of it.
            sample.values.insert("mb_per_s", bytes_per_s / 1e6);
            return Ok(sample);
        }
        if let Some(listing_s) = report.listing_s {
            ensure!(report.names == Some(NAMES), "{:?} of {NAMES} names were listed", report.names);
            sample.values.insert("wall_s", listing_s);
            return Ok(sample);
        }
        let share = finished.cpu_share(Duration::from_secs_f64(report.duration_s));
        let share = share.context("the server's CPU was not read often enough")?;
        let per_core = ("calls_per_core_s", report.requests_per_s / share);
        sample.values.extend([("cpu_server", share), per_core]);
        Ok(sample)
    }

    /// A kernel's client works with files of ours. `kills`: the server is killed meanwhile.
    async fn mounted(&self, row: &str, how: How) -> anyhow::Result<Sample> {
        let directory = self.directory(row)?;
        let proto = how.get("proto").context("a row names no proto")?;
        let (kills, seconds) = if how.has("kills") { (MOUNTED_KILLS, 20) } else { ("", 5) };
        let server = self.tree(&format!("{MOUNTED_SHAPE} {kills}"), &directory);
        let export = directory.join("tree");
        let mut client = words(&format!(
            "plain nfs-mounted {}:{OWN_PORT} --mount-port {OWN_PORT} --proto {proto} --seconds {seconds} {MOUNTED_SHAPE} \
             --export",
            SERVER.ipv4
        ));
        client.push(export.display().to_string());
        let launcher = &self.session.launcher;
        let work = async |_: &Server| launcher.client(Side::Client, &client, MOUNTED_MAX, None).await;
        let finished = launcher.beside(Side::Server, &server, work).await?;
        Ok(Sample { values: finished.values("plain nfs-mounted")?, ..Sample::default() })
    }

    /// The arguments that make a tree and have twinpath serve it.
    fn tree(&self, more: &str, directory: &Path) -> Vec<String> {
        let mut args = words(&format!("plain nfs-tree {more} --directory"));
        args.extend([directory.display().to_string(), "--".to_owned()]);
        let (export, state) = (directory.join("tree"), directory.join("state"));
        args.extend(serve_by_one(
            self.session,
            &format!(
                "nfs --tcp {OWN_PORT} --udp {OWN_PORT} --path auto --mode adaptive --linger-ms {LINGER_MS} --export \
                 {}:rw,no_root_squash --state-directory {}",
                export.display(),
                state.display()
            ),
        ));
        args
    }

    /// An empty directory for a server's tree.
    fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.session.run_dir.path().join(name);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(directory)
    }

    async fn ganesha(&mut self) -> anyhow::Result<Target> {
        if self.ganesha.is_none() {
            let directory = self.directory("ganesha")?;
            let mut args = words(&format!("plain nfs-server --writable {SHAPE} --directory"));
            args.push(directory.display().to_string());
            let started = self.session.launcher.server(Side::Server, &args).await;
            self.ganesha = Some(started.context("nfs-ganesha")?);
        }
        let server = self.ganesha.as_ref().context("it was started")?;
        let export = server.ready["export"].as_str().context("its export is not known")?.into();
        let pid = server.process("ganesha_pid").context("nfs-ganesha's process is not known")?;
        Ok(Target {
            port: NFS_PORT,
            export,
            pid,
            more: format!("--mount-port {}", crate::plain::nfs::MOUNT_PORT),
        })
    }

    async fn own(&mut self) -> anyhow::Result<Target> {
        let directory = self.directory("own")?;
        let export = directory.join("tree");
        if self.own.is_none() {
            let args = self.tree(SHAPE, &directory);
            let started = Instance::start_at(&self.session.launcher, Side::Server, &args).await;
            self.own = Some(started.context("twinpath")?);
        }
        let own = self.own.as_ref().context("it was started")?;
        Ok(Target { port: OWN_PORT, export, pid: own.pid(), more: String::new() })
    }
}
