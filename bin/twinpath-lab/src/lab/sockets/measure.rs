//! Measures one row of `lab sockets` once.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_measure::report::BenchReport;

use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::{self, FAST_PORT, PLAIN_PORT};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(5);

pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    /// Duration of one measurement.
    pub(super) time: Duration,
}

impl Bench<'_> {
    pub(super) async fn measure(&self, row: &str) -> anyhow::Result<Sample> {
        let listen = peers::server(PLAIN_PORT);
        let own = format!("plain socket-echo --listen {listen} --on {}", SERVER.interface);
        match row {
            "service-spinning" => self.service().await,
            "own-spinning" => self.peer(&words(&format!("{own} --mode poll")), true).await,
            "kernel-spinning" => self.peer(&peers::udp_echo("single", "poll"), true).await,
            "own-loop-sleeping" => self.peer(&words(&format!("{own} --loops --mode interrupt")), false).await,
            "kernel-loop-sleeping" => {
                self.peer(&words(&format!("plain socket-echo --listen {listen} --loops")), false).await
            }
            _ => bail!("no such row: {row}"),
        }
    }

    async fn service(&self) -> anyhow::Result<Sample> {
        let socket = self.session.run_dir.path().join("echo.sock");
        let args = peers::serve_in("packet", "poll", self.session.cpus[1], &socket);
        let instance = Instance::start(&self.session.launcher, &args).await?;
        let result = self.round_trips(FAST_PORT, true).await;
        instance.stop(&self.session.launcher).await?;
        result
    }

    /// A server of the other program. One whose datagrams did not come as they should says so when it ends.
    async fn peer(&self, args: &[String], spins: bool) -> anyhow::Result<Sample> {
        let server = self.session.launcher.server(Side::Server, args).await?;
        let result = self.round_trips(PLAIN_PORT, spins).await;
        self.session.launcher.stop(server).await?;
        result
    }

    /// The client is the same for both sides of a pair: on the packet path where both spin, else on a kernel socket that sleeps.
    async fn round_trips(&self, port: u16, spins: bool) -> anyhow::Result<Sample> {
        let (path, mode) = if spins { ("packet", "poll") } else { ("kernel", "interrupt") };
        let bench = peers::Bench::round_trips(port, path, mode, self.time);
        let finished =
            self.session.launcher.client(Side::Client, &bench.args(), self.time + SLACK, None).await?;
        let report: BenchReport =
            serde_json::from_str(&finished.stdout).context("cannot read the result of bench")?;
        ensure!(report.corrupt == 0, "{} of {} replies were corrupt", report.corrupt, report.received);
        let rtt = report.rtt_us.as_ref().with_context(|| format!("no reply to {} requests", report.sent))?;
        let mut values = rtt.values();
        values.insert("requests_per_s", report.requests_per_s);
        values.insert("lost", report.lost as f64);
        Ok(Sample { values, histogram: report.histogram, ..Sample::default() })
    }
}
