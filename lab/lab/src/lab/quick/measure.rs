//! Measures one row of `lab quick` once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_sys::LatencyRequest;

use super::{COST, LAB, RATE, Times, plan};
use crate::lab::client::{self, SLACK};
use crate::lab::instance::{Facts, Instance, watched};
use crate::lab::model::Sample;
use crate::lab::peers::{self, Bench, FAST_PORT, PLAIN_PORT, TCP_PORT};
use crate::lab::process::{Server, Side};
use crate::lab::session::Session;

/// Requests that verify an attachment.
const PROBES: u64 = 16;
/// Requests per second of the paced rows, at random times.
const PACED_PER_S: f64 = 3000.0;
/// Most of them without a reply.
const PACED_INFLIGHT: u32 = 16;

/// twinpath on the server's interface, verified.
#[derive(Debug)]
pub(super) struct Attachment {
    instance: Instance,
    /// The path that its clients request.
    path_asked: &'static str,
    /// The path that it reports.
    path: String,
    proof: String,
}

pub(super) struct Quick<'a> {
    pub(super) session: &'a Session,
    pub(super) times: Times,
    pub(super) tcp_echo_pid: u32,
    pub(super) tcp_sink_pid: u32,
    /// Whether twinpath held a latency request in its last `interrupt` row: the floor is measured under the same
    /// condition.
    pub(super) request_held: Cell<bool>,
    /// The path that `auto` chose, and the reasons against the others: path and reason.
    pub(super) chosen: RefCell<Option<String>>,
    pub(super) why_not: RefCell<BTreeMap<String, String>>,
}

impl Quick<'_> {
    /// Attaches twinpath and verifies its claim: probes must arrive on the fast path.
    pub(super) async fn attach(&self, path: &'static str) -> anyhow::Result<Attachment> {
        let socket = self.session.run_dir.path().join("echo.sock");
        let args = peers::serve(path, self.session.cpus[1], &socket);
        let instance = Instance::start(&self.session.launcher, &args).await?;
        let before = instance.report().await?;
        let path_found = before.path();
        if path == "auto" {
            self.chosen.borrow_mut().get_or_insert_with(|| path_found.clone());
            let reasons = before.interfaces.iter().flat_map(|interface| &interface.why_not);
            self.why_not.borrow_mut().extend(reasons.map(|not| (not.path.clone(), not.reason.clone())));
        }
        if path_found == "kernel" {
            instance.stop(&self.session.launcher).await?;
            let reasons: Vec<_> =
                self.why_not.borrow().iter().map(|(path, why)| format!("{path}: {why}")).collect();
            bail!("no fast path can be had here: {}", reasons.join("; "));
        }
        let probe = Bench {
            count: Some(PROBES),
            ..Bench::round_trips(FAST_PORT, "kernel", "interrupt", Duration::from_secs(1))
        };
        self.bench(&probe, None).await.context("the probe after attaching")?;
        let claimed = instance.report().await?.frames_in() - before.frames_in();
        ensure!(
            claimed >= PROBES,
            "attached on {path_found}, but only {claimed} of {PROBES} probes were claimed"
        );
        let why = before.interfaces.first().map_or_else(String::new, |interface| interface.why.clone());
        let proof =
            format!("attached on {path_found}: {claimed} of {PROBES} probe frames came by it ({why})");
        Ok(Attachment { instance, path_asked: path, path: path_found, proof })
    }

    pub(super) async fn detach(&self, attachment: Attachment) -> anyhow::Result<()> {
        attachment.instance.stop(&self.session.launcher).await
    }

    /// Measures a row that needs no twinpath.
    pub(super) async fn without(&self, row: &str) -> anyhow::Result<Sample> {
        match row {
            "kernel-sleeping" => self.kernel_round_trips("interrupt").await,
            "kernel-spinning" => self.kernel_round_trips("poll").await,
            "kernel-sleeping-request" => {
                let _held = LatencyRequest::open(0)?;
                self.kernel_round_trips("interrupt").await
            }
            row if row.starts_with("rate-kernel-") => {
                let method = row.trim_start_matches("rate-kernel-");
                match method.strip_suffix("-spinning") {
                    Some(method) => self.kernel_rate(method, "poll").await,
                    None => self.kernel_rate(method, "interrupt").await,
                }
            }
            "cpu-kernel" => self.kernel_cost().await,
            "paced-kernel" => self.kernel_paced().await,
            "tcp-rr-without" => self.tcp_round_trips().await,
            "tcp-bulk-without" => self.tcp_bulk().await,
            "floor-eventfd" => self.floor().await,
            _ => bail!("no such row: {row}"),
        }
    }

    /// Measures a row of twinpath, or of the kernel beside it.
    pub(super) async fn with(&self, row: &str, attached: &Attachment) -> anyhow::Result<Sample> {
        let kind = plan::other_path(row).map_or(row, |path| &row[path.len() + 1..]);
        let mut sample = match kind {
            "floor-eventfd" => return self.floor().await,
            "twinpath-poll" | "poll" => self.fast_round_trips(attached, "poll").await?,
            "twinpath-adaptive" | "adaptive" => self.fast_round_trips(attached, "adaptive").await?,
            "twinpath-interrupt" | "interrupt" => self.fast_round_trips(attached, "interrupt").await?,
            "rate-twinpath" | "rate" => self.fast_rate(attached).await?,
            "cpu-twinpath" => self.fast_cost(attached).await?,
            "paced-twinpath" => self.fast_paced(attached).await?,
            "idle-adaptive" => self.idle(attached).await?,
            "tcp-rr-with" | "tcp-rr" => self.beside(attached, async || self.tcp_round_trips().await).await?,
            "tcp-bulk-with" | "tcp-bulk" => self.beside(attached, async || self.tcp_bulk().await).await?,
            _ => bail!("no such row: {row}"),
        };
        sample.path = Some(attached.path.clone());
        Ok(sample)
    }

    /// A plain server, and a client that asks it.
    async fn plain(&self, method: &str, mode: &str, client: &Bench) -> anyhow::Result<Sample> {
        let measure = async |server: &Server| self.bench(client, Some(server.pid)).await;
        self.session.launcher.beside(Side::Server, &peers::udp_echo(method, mode), measure).await
    }

    async fn kernel_round_trips(&self, mode: &'static str) -> anyhow::Result<Sample> {
        let client = Bench::round_trips(PLAIN_PORT, "kernel", mode, self.times.rtt);
        self.plain("connected", mode, &client).await
    }

    async fn kernel_paced(&self) -> anyhow::Result<Sample> {
        self.plain("connected", "interrupt", &self.paced(PLAIN_PORT)).await
    }

    async fn fast_paced(&self, attached: &Attachment) -> anyhow::Result<Sample> {
        attached.instance.set_mode("adaptive").await?;
        self.bench(&self.paced(FAST_PORT), Some(attached.instance.pid())).await
    }

    /// The client of both paced rows: the kernel's socket, spinning, so that only the servers differ.
    fn paced(&self, port: u16) -> Bench {
        Bench {
            rate: Some(PACED_PER_S),
            inflight: PACED_INFLIGHT,
            ..Bench::round_trips(port, "kernel", "poll", self.times.paced)
        }
    }

    async fn kernel_rate(&self, method: &str, mode: &str) -> anyhow::Result<Sample> {
        self.plain(method, mode, &Bench::flood(PLAIN_PORT, self.times.rate)).await
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

    async fn fast_cost(&self, attached: &Attachment) -> anyhow::Result<Sample> {
        let rate = self.offered()?;
        attached.instance.set_mode("interrupt").await?;
        let bench = Bench { rate: Some(rate), ..Bench::flood(FAST_PORT, self.times.cost) };
        cost(self.bench(&bench, Some(attached.instance.pid())).await?, rate)
    }

    /// Half of the best plain server's rate, by the medians so far.
    fn offered(&self) -> anyhow::Result<f64> {
        let record = self.session.record.borrow();
        let best = record
            .best(LAB.table.against(RATE), "requests_per_s")
            .context("no plain server's rate was measured")?;
        Ok(record.median(best, "requests_per_s").context("no rate")? / 2.0)
    }

    async fn fast_round_trips(&self, attached: &Attachment, mode: &'static str) -> anyhow::Result<Sample> {
        attached.instance.set_mode(mode).await?;
        let bench = Bench::round_trips(FAST_PORT, attached.path_asked, mode, self.times.rtt);
        let before = attached.instance.report().await?;
        let mut sample = self.bench(&bench, Some(attached.instance.pid())).await?;
        let after = attached.instance.report().await?;
        if mode == "interrupt" {
            self.request_held.set(after.request_held());
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

    async fn fast_rate(&self, attached: &Attachment) -> anyhow::Result<Sample> {
        attached.instance.set_mode("poll").await?;
        self.bench(&Bench::flood(FAST_PORT, self.times.rate), Some(attached.instance.pid())).await
    }

    async fn tcp_round_trips(&self) -> anyhow::Result<Sample> {
        let bench =
            Bench { tcp: true, ..Bench::round_trips(TCP_PORT, "kernel", "interrupt", self.times.tcp_rr) };
        self.bench(&bench, Some(self.tcp_echo_pid)).await
    }

    async fn tcp_bulk(&self) -> anyhow::Result<Sample> {
        let duration = self.times.tcp_bulk;
        let args = peers::tcp_bulk(duration);
        let watched = Some(self.tcp_sink_pid);
        let finished = self.session.launcher.client(Side::Client, &args, duration + SLACK, watched).await?;
        client::bulk_sample(&finished, duration)
    }

    /// Measures a row of the kernel while twinpath is attached and idle, and verifies both.
    async fn beside(
        &self,
        attached: &Attachment,
        measure: impl AsyncFnOnce() -> anyhow::Result<Sample>,
    ) -> anyhow::Result<Sample> {
        attached.instance.set_mode("adaptive").await?;
        let before = attached.instance.until_idle().await?;
        let mut sample = measure().await?;
        let after = attached.instance.report().await?;
        ensure!(after.path() == attached.path, "the path changed from {} to {}", attached.path, after.path());
        sample
            .values
            .insert("request_held", f64::from(u8::from(before.request_held() || after.request_held())));
        sample.values.insert("fast_path_frames_before", before.frames_in() as f64);
        sample.values.insert("fast_path_frames_during", (after.frames_in() - before.frames_in()) as f64);
        sample.notes.push(attached.proof.clone());
        Ok(sample)
    }

    async fn floor(&self) -> anyhow::Result<Sample> {
        let held = if self.request_held.get() { Some(LatencyRequest::open(0)?) } else { None };
        let mut sample = client::eventfd_floor(self.session, self.times.floor).await?;
        let note = if held.is_some() { "latency request held" } else { "no latency request held" };
        sample.notes.push(note.to_owned());
        Ok(sample)
    }

    /// An idle server: waits until the linger time is over, then measures.
    async fn idle(&self, attached: &Attachment) -> anyhow::Result<Sample> {
        attached.instance.set_mode("adaptive").await?;
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

impl Attachment {
    /// The path found in use.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}
