//! Measures one row of `lab tcp` once.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use twinpath_load::INFLIGHT_MAX;
use twinpath_observe::report::Report;
use twinpath_sys::Namespace;

use super::LAB;
use crate::lab::client::{self, BULK, RATE, SLACK, half_of_best};
use crate::lab::instance::Instance;
use crate::lab::model::{How, Sample};
use crate::lab::paced::Draw;
use crate::lab::peers::{self, FAST_PORT, LINGER_MS, TCP_PORT, serve_by_one};
use crate::lab::process::{Finished, Server, Side, words};
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
    /// After it, `paced`, `connect` or `bulk`, or a client as in lab `rpc`, with `half` at half of the best bare server's rate. With
    /// `moved` the connection of `bulk` moves to the kernel.
    pub(super) async fn measure(&self, row: &str) -> anyhow::Result<Sample> {
        let spec = LAB.table.row(row).with_context(|| format!("no such row: {row}"))?;
        let (how, mode) = (spec.how, spec.mode.unwrap_or_default());
        let launcher = &self.session.launcher;
        match how.first().0 {
            "plain" => {
                let (server, target) = if how.has("bulk") {
                    (peers::tcp_echo(), peers::server(TCP_PORT))
                } else {
                    (rpc::tcp_null(mode), rpc::plain())
                };
                let measure = async |server: &Server| self.ask(target, server.pid, how).await;
                launcher.beside(Side::Server, &server, measure).await
            }
            path => {
                let service = if how.has("bulk") { "echo" } else { "rpc" };
                let request = if how.has("half") { " --latency-request never" } else { "" };
                let args = serve_by_one(
                    self.session,
                    &format!(
                        "{service} --tcp {FAST_PORT} --path packet --tcp-path {path} --mode {mode} --linger-ms {LINGER_MS}{request}"
                    ),
                );
                let measure = async |instance: &Instance| {
                    if how.has("moved") {
                        return self.moved(instance).await;
                    }
                    let sample = self.ask(peers::server(FAST_PORT), instance.pid(), how).await?;
                    all_on(&instance.report().await?, path)?;
                    Ok(sample)
                };
                Instance::during(launcher, &args, measure).await
            }
        }
    }

    async fn ask(&self, target: SocketAddr, pid: u32, how: How) -> anyhow::Result<Sample> {
        if how.has("paced") {
            return self.paced(target, pid).await;
        }
        if how.has("connect") || how.has("bulk") {
            return self.calls(target, pid, how.has("bulk"), (SHORT_WARMUP, self.time)).await;
        }
        let plain = LAB.table.against("many-fast");
        let rate = how.has("half").then(|| half_of_best(self.session, plain)).transpose()?;
        Stage::new(self.session, self.time).ask(&Target::of(target, pid), how, rate).await
    }

    /// Calls at a pace, whatever the answers do: latencies count from when each was due. The client spins.
    async fn paced(&self, target: SocketAddr, pid: u32) -> anyhow::Result<Sample> {
        let length = PACED_TIMES * self.time;
        let line = format!(
            "bench rpc {target} --tcp --path kernel --mode poll --inflight {INFLIGHT_MAX} --batch {} --duration {:.3} \
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
        let calls = self.calls(peers::server(FAST_PORT), instance.pid(), true, (SETTLED, AFTER_MOVE));
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

    /// Calls that have a connection each, or large ones on one, for a duration behind a warm-up.
    async fn calls(
        &self,
        target: SocketAddr,
        pid: u32,
        bulk: bool,
        (warmup, duration): (Duration, Duration),
    ) -> anyhow::Result<Sample> {
        let bytes = if bulk { format!(" --bytes {BULK_BYTES}") } else { String::new() };
        let line = format!(
            "plain tcp-calls {target} --warmup {:.3} --duration {:.3}{bytes}",
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
        if bulk {
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

/// Fails unless all connections of the service were on that path.
fn all_on(report: &Report, path: &str) -> anyhow::Result<()> {
    let service = report.services.first().context("the report has no service")?;
    let (accepted, fast) = (service.tcp.accepted, service.fast_tcp.fast_accepted);
    let claims: Vec<_> = service
        .claims
        .iter()
        .map(|claim| format!("{}: {} ({})", claim.claim, claim.path, claim.why))
        .collect();
    let wanted = if path == "fast" { accepted } else { 0 };
    ensure!(
        accepted > 0 && fast == wanted,
        "{fast} of {accepted} connections were on the fast path, instead of {wanted}: {}",
        claims.join("; ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use twinpath_observe::report::Service;

    use super::*;

    #[test]
    fn a_connection_on_another_path_than_the_rows_is_an_error() {
        let of = |accepted, fast_accepted, path: &str| {
            let mut service = Service::default();
            service.tcp.accepted = accepted;
            service.fast_tcp.fast_accepted = fast_accepted;
            all_on(&Report { services: vec![service], ..Report::default() }, path)
        };
        assert!(of(3, 3, "fast").is_ok() && of(3, 0, "kernel").is_ok());
        for (accepted, fast_accepted, path) in
            [(3, 2, "fast"), (0, 0, "fast"), (3, 1, "kernel"), (0, 0, "kernel")]
        {
            assert!(of(accepted, fast_accepted, path).is_err(), "{accepted} {fast_accepted} {path}");
        }
    }
}
