//! Measures one row of `lab quick` once.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_sys::LatencyRequest;

use super::{COST, LAB, RATE, Times};
use crate::lab::client::{self, SLACK, half_of_best};
use crate::lab::instance::{Facts, Instance, Proven, watched};
use crate::lab::model::{How, Sample};
use crate::lab::peers::{self, Bench, FAST_PORT, PLAIN_PORT, TCP_PORT};
use crate::lab::process::{Server, Side};
use crate::lab::session::Session;

/// Requests that verify an attachment.
const PROBES: u64 = 16;
/// Requests per second of the paced rows, at random times.
const PACED_PER_S: f64 = 3000.0;
/// Most of them without a reply.
const PACED_INFLIGHT: u32 = 16;

pub(super) struct Quick<'a> {
    session: &'a Session,
    times: Times,
    /// The plain TCP echo, and the receiver of bulk TCP.
    tcp_pids: [u32; 2],
    /// Whether twinpath held a latency request in its last `interrupt` row: the floor is measured under the same
    /// condition.
    request_held: bool,
    /// twinpath in this round, or why it could not be attached.
    attached: Option<Result<Proven, String>>,
}

impl<'a> Quick<'a> {
    pub(super) fn new(session: &'a Session, times: Times, tcp_pids: [u32; 2]) -> Self {
        Self { session, times, tcp_pids, request_held: false, attached: None }
    }

    /// Measures a row. Those of twinpath, and of the kernel beside it, that come one after the other share an attachment.
    pub(super) async fn measure(&mut self, row: &str) -> anyhow::Result<Sample> {
        let spec = LAB.table.row(row).with_context(|| format!("no such row: {row}"))?;
        let (how, mode) = (spec.how, spec.mode.unwrap_or_default());
        match how.first() {
            ("floor", None) => self.floor().await,
            ("plain", method) => {
                self.detach().await?;
                self.by_kernel(method, mode, how).await
            }
            ("tcp", None) => {
                self.detach().await?;
                self.tcp(how).await
            }
            ("attached", beside) => {
                let attached = match self.attached.take() {
                    Some(attached) => attached,
                    None => self.attach().await.map_err(|error| format!("{error:#}")),
                };
                let measured = match &attached {
                    Ok(twinpath) if beside.is_some() => self.beside(twinpath, how).await,
                    Ok(twinpath) => self.by_twinpath(twinpath, mode, how).await,
                    Err(reason) => Err(anyhow::anyhow!(reason.clone())),
                };
                self.attached = Some(attached);
                measured
            }
            other => bail!("no such peer: {other:?}"),
        }
    }

    /// Attaches twinpath by the path that `auto` chooses.
    async fn attach(&self) -> anyhow::Result<Proven> {
        let socket = self.session.run_dir.path().join("echo.sock");
        let args = peers::serve("auto", self.session.cpus[1], &socket);
        let probe = Bench {
            count: Some(PROBES),
            ..Bench::round_trips(FAST_PORT, "kernel", "interrupt", Duration::from_secs(1))
        };
        let probe = (Side::Client, &probe.args()[..], PROBES);
        Instance::proven(&self.session.launcher, Side::Both, &args, probe).await
    }

    /// Stops twinpath, if it is there.
    pub(super) async fn detach(&mut self) -> anyhow::Result<()> {
        match self.attached.take() {
            Some(Ok(attached)) => attached.instance.stop(&self.session.launcher).await,
            _ => Ok(()),
        }
    }

    /// A plain server on kernel sockets.
    async fn by_kernel(&self, method: Option<&str>, mode: &'static str, how: How) -> anyhow::Result<Sample> {
        let Some(method) = method else { return self.kernel_cost().await };
        let client = if how.has("rate") {
            Bench::flood(PLAIN_PORT, self.times.rate)
        } else if how.has("paced") {
            self.paced(PLAIN_PORT)
        } else {
            Bench::round_trips(PLAIN_PORT, "kernel", mode, self.times.rtt)
        };
        self.plain(method, mode, &client).await
    }

    /// The same by twinpath, in a mode.
    async fn by_twinpath(
        &mut self,
        attached: &Proven,
        mode: &'static str,
        how: How,
    ) -> anyhow::Result<Sample> {
        attached.instance.set_mode(mode).await?;
        let mut sample = if how.has("rtt") {
            self.fast_round_trips(attached, mode).await?
        } else if how.has("idle") {
            self.idle(attached).await?
        } else if how.has("half") {
            let rate = self.offered()?;
            let client = Bench { rate: Some(rate), ..Bench::flood(FAST_PORT, self.times.cost) };
            cost(self.bench(&client, Some(attached.instance.pid())).await?, rate)?
        } else {
            let client = if how.has("rate") {
                Bench::flood(FAST_PORT, self.times.rate)
            } else {
                self.paced(FAST_PORT)
            };
            self.bench(&client, Some(attached.instance.pid())).await?
        };
        sample.path = Some(attached.path.clone());
        Ok(sample)
    }

    /// The kernel's TCP.
    async fn tcp(&self, how: How) -> anyhow::Result<Sample> {
        let [echo, sink] = self.tcp_pids;
        if how.has("rtt") {
            let times = self.times.tcp_rr;
            let bench = Bench { tcp: true, ..Bench::round_trips(TCP_PORT, "kernel", "interrupt", times) };
            return self.bench(&bench, Some(echo)).await;
        }
        let duration = self.times.tcp_bulk;
        let args = peers::tcp_bulk(duration);
        let finished =
            self.session.launcher.client(Side::Client, &args, duration + SLACK, Some(sink)).await?;
        client::bulk_sample(&finished, duration)
    }

    /// A plain server, and a client that asks it.
    async fn plain(&self, method: &str, mode: &str, client: &Bench) -> anyhow::Result<Sample> {
        let measure = async |server: &Server| self.bench(client, Some(server.pid)).await;
        self.session.launcher.beside(Side::Server, &peers::udp_echo(method, mode), measure).await
    }

    /// The client of both paced rows: the kernel's socket, spinning, so that only the servers differ.
    fn paced(&self, port: u16) -> Bench {
        Bench {
            rate: Some(PACED_PER_S),
            inflight: PACED_INFLIGHT,
            ..Bench::round_trips(port, "kernel", "poll", self.times.paced)
        }
    }

    /// The best sleeping plain server, at half of the best rate of all. A spinning one takes a core at any load, so a
    /// comparison with it would prove nothing.
    async fn kernel_cost(&self) -> anyhow::Result<Sample> {
        let rate = self.offered()?;
        let mode = |row: &str| LAB.table.row(row).and_then(|row| row.mode);
        let plain = LAB.table.against(RATE).iter().copied();
        let sleeping: Vec<_> = plain.filter(|row| mode(row) == mode(COST)).collect();
        let best = self.session.record.borrow().best(&sleeping, "requests_per_s");
        let best = best.context("the rate of no sleeping plain server was measured")?;
        let method = best.trim_start_matches("rate-kernel-");
        let bench = Bench { rate: Some(rate), ..Bench::flood(PLAIN_PORT, self.times.cost) };
        let mut sample = cost(self.plain(method, "interrupt", &bench).await?, rate)?;
        sample.notes.push(format!("the best plain server that sleeps is {best}"));
        Ok(sample)
    }

    /// Half of the best plain server's rate.
    fn offered(&self) -> anyhow::Result<f64> {
        half_of_best(self.session, LAB.table.against(RATE))
    }

    async fn fast_round_trips(&mut self, attached: &Proven, mode: &'static str) -> anyhow::Result<Sample> {
        let bench = Bench::round_trips(FAST_PORT, "auto", mode, self.times.rtt);
        let before = attached.instance.report().await?;
        let mut sample = self.bench(&bench, Some(attached.instance.pid())).await?;
        let after = attached.instance.report().await?;
        if mode == "interrupt" {
            self.request_held = after.request_held();
        }
        let frames = after.frames_in() - before.frames_in();
        ensure!(frames > 0, "no frame came by the fast path");
        let allocated = (after.allocations() - before.allocations()) as f64 / frames as f64;
        // Both ends are ours: the larger count is used.
        let client = sample.values.get("allocations_per_packet").copied().unwrap_or(0.0);
        sample.values.insert("allocations_per_packet", allocated.max(client));
        sample.notes.extend(after.request_verdict().map(|verdict| format!("CPU latency request: {verdict}")));
        if let Some(mib) = after.pool_mib_per_queue() {
            sample.values.insert("pool_mib_per_queue", mib);
        }
        Ok(sample)
    }

    /// Measures a row of the kernel while twinpath is attached and idle, and verifies both.
    async fn beside(&self, attached: &Proven, how: How) -> anyhow::Result<Sample> {
        attached.instance.set_mode("adaptive").await?;
        let before = attached.instance.until_idle().await?;
        let mut sample = self.tcp(how).await?;
        let after = attached.instance.report().await?;
        ensure!(after.path() == attached.path, "the path changed from {} to {}", attached.path, after.path());
        sample.values.extend([
            ("request_held", f64::from(u8::from(before.request_held() || after.request_held()))),
            ("fast_path_frames_before", before.frames_in() as f64),
            ("fast_path_frames_during", (after.frames_in() - before.frames_in()) as f64),
        ]);
        sample.notes.push(attached.proof.clone());
        sample.path = Some(attached.path.clone());
        Ok(sample)
    }

    async fn floor(&self) -> anyhow::Result<Sample> {
        let held = if self.request_held { Some(LatencyRequest::open(0)?) } else { None };
        let mut sample = client::eventfd_floor(self.session, self.times.floor).await?;
        let note = if held.is_some() { "latency request held" } else { "no latency request held" };
        sample.notes.push(note.to_owned());
        Ok(sample)
    }

    /// An idle server: waits until the linger time is over, then measures.
    async fn idle(&self, attached: &Proven) -> anyhow::Result<Sample> {
        attached.instance.until_idle().await?;
        let mut values = watched(attached.instance.pid(), self.times.idle).await?;
        let held = attached.instance.report().await?.request_held();
        values.insert("request_held", f64::from(u8::from(held)));
        Ok(Sample { values, ..Sample::default() })
    }

    /// Runs a client, and measures the server's CPU meanwhile.
    async fn bench(&self, bench: &Bench, watched: Option<u32>) -> anyhow::Result<Sample> {
        client::bench(self.session, bench, watched).await
    }
}

/// CPU per reply, if the offered rate was reached.
fn cost(mut sample: Sample, offered: f64) -> anyhow::Result<Sample> {
    let rate = sample.values["requests_per_s"];
    ensure!(rate > 0.95 * offered, "only {rate:.0} of the offered {offered:.0} requests/s were answered");
    let share = sample.values.get("cpu_server").context("the server's CPU was not read often enough")?;
    sample.values.insert("cpu_us_per_reply", share * 1e6 / rate);
    sample.values.insert("offered_per_s", offered);
    Ok(sample)
}
