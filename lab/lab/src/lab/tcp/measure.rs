//! Measures one row of `lab tcp` once.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use twinpath_load::INFLIGHT_MAX;
use twinpath_sys::Namespace;

use super::path::all_on;
use super::{LAB, beside, loss};
use crate::lab::asking::beside_busy;
use crate::lab::client::{self, BULK, RATE, SLACK, half_of_best};
use crate::lab::fallback;
use crate::lab::instance::Instance;
use crate::lab::model::{How, Sample};
use crate::lab::paced::Draw;
use crate::lab::peers::{self, FAST_PORT, LINGER_MS, TCP_PORT, serve_by_one};
use crate::lab::process::{Finished, Server, Side, words};
use crate::lab::rpc::burden::connections;
use crate::lab::rpc::measure::{COST, Stage, Target};
use crate::lab::rpc::peers as rpc;
use crate::lab::session::Session;
use crate::lab::topology::SERVER;
use crate::plain::calls::CallsReport;

/// The period of the paced rows, us.
const PERIOD_US: f64 = 350.0;
/// Time in which the policy learns it.
const WARMUP: Duration = Duration::from_millis(400);
/// Paced rows take so many times the time of others: a second has few calls.
const PACED_TIMES: u32 = 4;
/// The least time in which a client settles.
const SHORT_WARMUP: Duration = Duration::from_millis(50);
const BULK_BYTES: u32 = 128 << 10;
const BULK_CALLS: &str = "--bytes 131072";
/// The most connections of `many=`, and what a service then takes from one source.
const MANY_MAX: usize = 2_000;
const MEMCACHED_PORT: u16 = 7019;
/// Until the library's example has seen the gaps between requests.
const GETS_WARMUP: Duration = Duration::from_millis(200);
/// Time before a connection moves, and the time measured from there.
const SETTLED: Duration = Duration::from_millis(500);
const AFTER_MOVE: Duration = Duration::from_secs(1);

pub(super) struct Bench<'a> {
    session: &'a Session,
    /// Duration of one measurement.
    time: Duration,
    /// The pace, the same for all rows of a round.
    draw: Draw,
}

impl<'a> Bench<'a> {
    pub(super) fn new(session: &'a Session, time: Duration, round: usize) -> Self {
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        Self { session, time, draw: Draw::of(&mut random, PERIOD_US..=PERIOD_US) }
    }

    /// The first word of a row's `by` is the server: `plain`, a bare one; `fast` or `kernel`, twinpath with its connections there.
    /// After it, what is asked, and beside what: `paced`, with `busy` beside processes that want the CPUs; `connect`; `bulk`, with
    /// `moved` on a connection that moves to the kernel; `gets=` of a memcached; `many=` connections, a tenth of which are busy;
    /// `idle`; `flood`, beside forged SYNs; `loss=` percent of a link. Or a client as in lab `rpc`, with `half` at half of the best
    /// bare server's rate, or `twice` at double our own. `tax` has no server: it runs the programs on segments of the kernel's,
    /// with `claimed` at a port at which workers have connections.
    pub(super) async fn measure(&self, row: &str) -> anyhow::Result<Sample> {
        let spec = LAB.table.row(row).with_context(|| format!("no such row: {row}"))?;
        let (how, mode, path) = (spec.how, spec.mode.unwrap_or_default(), spec.how.first().0);
        if path == "tax" {
            return fallback::tcp_tax(self.session, how.has("claimed")).await;
        }
        if let Some(gets) = how.get("gets") {
            return self.gets(path, gets).await;
        }
        if let Some(loss) = how.get("loss") {
            return loss::measure(self.session, path, mode, loss).await;
        }
        let launcher = &self.session.launcher;
        if path == "plain" {
            let (server, target) = if how.has("bulk") {
                (peers::tcp_echo(), peers::server(TCP_PORT))
            } else {
                (rpc::tcp_null(mode), rpc::plain())
            };
            let measure = async |server: &Server| self.ask(target, server.pid, how).await;
            return launcher.beside(Side::Server, &server, measure).await;
        }
        let args = self.serves(path, mode, how);
        let measure = async |instance: &Instance| {
            if how.has("moved") {
                return self.moved(instance).await;
            }
            let sample = if how.has("idle") {
                beside::idle(self.session, instance).await?
            } else {
                self.ask(peers::server(FAST_PORT), instance.pid(), how).await?
            };
            all_on(&instance.report().await?, path)?;
            Ok(sample)
        };
        Instance::during(launcher, &args, measure).await
    }

    /// `twinpath serve` with its connections on that path.
    fn serves(&self, path: &str, mode: &str, how: How) -> Vec<String> {
        let service = if how.has("bulk") { "echo" } else { "rpc" };
        let mut line = format!(
            "{service} --tcp {FAST_PORT} --path packet --tcp-path {path} --mode {mode} --linger-ms {LINGER_MS}"
        );
        if how.has("half") {
            line += " --latency-request never";
        }
        if how.has("flood") {
            // A drain waits for handshakes that nobody completes.
            line += " --drain-ms 500";
        }
        if how.has("idle") || how.get("many").is_some() {
            let most = if how.has("idle") { connections(beside::IDLE).0 } else { MANY_MAX };
            line += &format!(" --connections {most} --connections-per-source {most}");
        }
        serve_by_one(self.session, &line)
    }

    async fn ask(&self, target: SocketAddr, pid: u32, how: How) -> anyhow::Result<Sample> {
        if how.has("busy") {
            // A client that spun would be the busy process's equal on its CPU.
            return beside_busy(self.session, self.paced(target, pid, "interrupt")).await;
        }
        if how.has("paced") {
            return self.paced(target, pid, "poll").await;
        }
        if how.has("flood") {
            let calls = self.calls(target, pid, beside::CALLS, (beside::SETTLED, beside::TIME));
            return beside::syns(self.session, target, calls).await;
        }
        if let Some(many) = how.get("many") {
            let connections: usize = many.parse().context("many= is a number")?;
            let what =
                format!("--connections {connections} --busy {} --under-way 1", connections.div_ceil(10));
            return self.calls(target, pid, &what, (SHORT_WARMUP, self.time)).await;
        }
        if how.has("connect") || how.has("bulk") {
            return self
                .calls(target, pid, if how.has("bulk") { BULK_CALLS } else { "" }, (SHORT_WARMUP, self.time))
                .await;
        }
        let rate = if how.has("half") {
            Some(half_of_best(self.session, LAB.table.against("many-fast"))?)
        } else if how.has("twice") {
            let peak = self.session.record.borrow().median("peak-fast", RATE);
            Some(2.0 * peak.context("our own rate was not measured")?)
        } else {
            None
        };
        Stage::new(self.session, self.time).ask(&Target::of(target, pid), how, rate).await
    }

    /// Gets of a memcached, so many under way: of memcached itself, or of the library's example with its connections on that path.
    async fn gets(&self, path: &str, gets: &str) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let (target, on) = (peers::server(MEMCACHED_PORT), SERVER.interface);
        let kind = match path {
            "plain" => "memcached".to_owned(),
            path => format!("own-memcached --on {on} --tcp-path {path}"),
        };
        let server =
            launcher.server(Side::Server, &words(&format!("plain program {kind} --listen {target}"))).await?;
        let pid = server.process("program_pid").context("the ready line names no process")?;
        let what = format!("--gets {gets}");
        let asked = self.calls(target, pid, &what, (GETS_WARMUP, self.time));
        if path == "plain" {
            let asked = asked.await;
            launcher.stop(server).await?;
            return asked;
        }
        let instance = Instance::of_program(server, "memcached", on)?;
        let asked = async {
            let sample = asked.await?;
            all_on(&instance.report().await?, path)?;
            anyhow::Ok(sample)
        };
        let asked = asked.await;
        instance.stop(launcher).await?;
        asked
    }

    /// Calls at a pace, whatever the answers do: latencies count from when each was due. The client waits in that mode.
    async fn paced(&self, target: SocketAddr, pid: u32, mode: &str) -> anyhow::Result<Sample> {
        let length = PACED_TIMES * self.time;
        let line = format!(
            "bench rpc {target} --tcp --path kernel --mode {mode} --inflight {INFLIGHT_MAX} --batch {} --duration {:.3} \
             --warmup {:.3} --json",
            self.draw.load().options(),
            length.as_secs_f64(),
            WARMUP.as_secs_f64()
        );
        let finished = self.client(&line, WARMUP + length, pid).await?;
        let sample = client::sample_of(&finished)?;
        ensure!(sample.values.contains_key("cpu_server"), "the server's CPU was not read often enough");
        Ok(sample)
    }

    /// Large calls on one connection, which moves to the kernel as the client begins to count: from then on nothing may be claimed.
    async fn moved(&self, instance: &Instance) -> anyhow::Result<Sample> {
        let server = &self.session.launcher.topology().server;
        strict_sources(server, false)?;
        let calls = self.calls(peers::server(FAST_PORT), instance.pid(), BULK_CALLS, (SETTLED, AFTER_MOVE));
        let forbid = async {
            tokio::time::sleep(SETTLED).await;
            strict_sources(server, true)
        };
        let (sample, forbidden) = tokio::join!(calls, forbid);
        let report = instance.report().await;
        strict_sources(server, false)?;
        forbidden?;
        let moved = report?.services.first().map_or(0, |service| service.fast_tcp.fast_moved);
        ensure!(moved == 1, "{moved} connections have moved to the kernel, instead of 1");
        sample
    }

    /// Calls of `plain tcp-calls` with these options, for a duration behind a warm-up.
    async fn calls(
        &self,
        target: SocketAddr,
        pid: u32,
        what: &str,
        (warmup, duration): (Duration, Duration),
    ) -> anyhow::Result<Sample> {
        let line = format!(
            "plain tcp-calls {target} --warmup {:.3} --duration {:.3} {what}",
            warmup.as_secs_f64(),
            duration.as_secs_f64()
        );
        let finished = self.client(&line, warmup + duration, pid).await?;
        let report: CallsReport = finished.json("plain tcp-calls")?;
        let share = finished
            .cpu_share(Duration::from_secs_f64(report.duration_s))
            .context("the server's CPU was not read often enough")?;
        let mut values = report.rtt_us.map(|rtt| rtt.values()).unwrap_or_default();
        values.extend([
            (RATE, report.calls_per_s),
            ("cpu_server", share),
            (COST, share * 1e6 / report.calls_per_s),
        ]);
        if what == BULK_CALLS {
            values.insert(BULK, report.calls_per_s * f64::from(BULK_BYTES) * 8.0 / 1e9);
        }
        Ok(Sample { values, histogram: report.histogram, ..Sample::default() })
    }

    async fn client(&self, line: &str, time: Duration, watched: u32) -> anyhow::Result<Finished> {
        self.session.launcher.client(Side::Client, &words(line), time + SLACK, Some(watched)).await
    }
}

/// Has the kernel check sources of packets on the server's interface strictly, which claims would bypass: nothing is claimed then.
fn strict_sources(server: &Namespace, strict: bool) -> anyhow::Result<()> {
    let path = format!("/proc/sys/net/ipv4/conf/{}/rp_filter", SERVER.interface);
    let write = || std::fs::write(&path, if strict { "1" } else { "0" });
    server.run(write)?.with_context(|| format!("cannot write {path}"))
}
