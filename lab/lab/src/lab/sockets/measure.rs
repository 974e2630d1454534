//! Measures one row of `lab sockets` once.

use std::time::Duration;

use anyhow::{bail, ensure};

use super::programs;
use crate::lab::client;
use crate::lab::instance::{Instance, watched};
use crate::lab::model::Sample;
use crate::lab::paced::{Draw, PERIOD_US};
use crate::lab::peers::{self, FAST_PORT, PLAIN_PORT};
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(5);
/// Time in which the policy learns the period, and before that until the client sends.
const WARMUP: Duration = Duration::from_millis(400);
const CLIENT_START: Duration = Duration::from_millis(60);
/// Part of the measured time that the CPU time leaves out at each end.
const MARGIN: f64 = 0.08;
/// Datagrams of each sender of the row `numbered`, and time for all.
const NUMBERS: u32 = 20_000;
const NUMBERS_TIME: Duration = Duration::from_secs(100);

pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    /// Duration of one measurement.
    time: Duration,
    /// What differs by chance, the same for all rows of a round.
    draw: Draw,
}

impl<'a> Bench<'a> {
    pub(super) fn new(session: &'a Session, time: Duration, round: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(session.seed.wrapping_add(round as u64));
        Self { session, time, draw: Draw::of(&mut random, PERIOD_US) }
    }

    pub(super) async fn measure(&self, row: &str) -> anyhow::Result<Sample> {
        let listen = peers::server(PLAIN_PORT);
        let own = format!("plain socket-echo --listen {listen} --on {}", SERVER.interface);
        match row {
            "service-spinning" => self.service().await,
            "own-spinning" => self.peer(&words(&format!("{own} --frames --mode poll")), true).await,
            "kernel-spinning" => self.peer(&peers::udp_echo("single", "poll"), true).await,
            "own-loop-sleeping" => self.peer(&words(&format!("{own} --loops --mode interrupt")), false).await,
            "kernel-loop-sleeping" => {
                self.peer(&words(&format!("plain socket-echo --listen {listen} --loops")), false).await
            }
            "own-loop-paced" => self.paced(&format!("{own} --frames --loops --mode adaptive")).await,
            "kernel-loop-paced" => self.paced(&format!("plain socket-echo --listen {listen} --loops")).await,
            "numbered" => self.numbered().await,
            "owner-spinning" => self.owned().await,
            "own-spinning-sendto" => self.own().await,
            "run-idle" => self.run_idle().await,
            _ => match programs::measure(self.session, self.time, row).await {
                Some(sample) => sample,
                None => bail!("no such row: {row}"),
            },
        }
    }

    async fn service(&self) -> anyhow::Result<Sample> {
        let socket = self.session.run_dir.path().join("echo.sock");
        let args = peers::serve_in("packet", "poll", self.session.cpus[1], &socket);
        let measure = async |_: &Instance| self.round_trips(FAST_PORT, true).await;
        Instance::during(&self.session.launcher, &args, measure).await
    }

    /// A server of the other program. One whose datagrams did not come as they should says so when it ends.
    pub(super) async fn peer(&self, args: &[String], spins: bool) -> anyhow::Result<Sample> {
        let measure = async |_: &Server| self.round_trips(PLAIN_PORT, spins).await;
        self.session.launcher.beside(Side::Server, args, measure).await
    }

    /// The client is the same for both sides of a pair: on the packet path where both spin, else on a kernel socket that sleeps.
    async fn round_trips(&self, port: u16, spins: bool) -> anyhow::Result<Sample> {
        let (path, mode) = if spins { ("packet", "poll") } else { ("kernel", "interrupt") };
        let bench = peers::Bench::round_trips(port, path, mode, self.time);
        let finished =
            self.session.launcher.client(Side::Client, &bench.args(), self.time + SLACK, None).await?;
        client::sample_of(&finished)
    }

    /// Requests at a pace, whatever the answers do: latencies from when each was due, and the CPU that the server takes.
    async fn paced(&self, server: &str) -> anyhow::Result<Sample> {
        let server = self.session.launcher.server(Side::Server, &words(server)).await?;
        let length = 4 * self.time;
        let args = self.draw.load().bench(PLAIN_PORT, WARMUP, length);
        let watch = async {
            tokio::time::sleep(CLIENT_START + WARMUP + length.mul_f64(MARGIN)).await;
            watched(server.pid, length.mul_f64(1.0 - 2.0 * MARGIN)).await
        };
        let client = self.session.launcher.client(Side::Client, &args, WARMUP + length + SLACK, None);
        let (finished, watched) = tokio::join!(client, watch);
        self.session.launcher.stop(server).await?;
        let mut sample = client::sample_of(&finished?)?;
        sample.values.extend(watched?);
        sample.values.insert("period_us", self.draw.period_us);
        Ok(sample)
    }

    async fn numbered(&self) -> anyhow::Result<Sample> {
        let target = peers::server(PLAIN_PORT);
        let on = SERVER.interface;
        let line = format!("plain socket-holders --listen {target} --on {on} --seed {}", self.draw.seed);
        let server = self.session.launcher.server(Side::Server, &words(&line)).await?;
        let args = words(&format!("plain socket-numbers {target} --count {NUMBERS}"));
        let side = Side::At(&self.session.launcher.topology().client, &self.session.cpus);
        let finished = self.session.launcher.client(side, &args, NUMBERS_TIME, None).await;
        self.session.launcher.stop(server).await?;
        let values = finished?.values("plain socket-numbers")?;
        let count = |name: &str| values.get(name).copied().unwrap_or_default();
        let [by_ring, by_kernel, holders] = ["by_ring", "by_kernel", "holders"].map(count);
        ensure!(
            by_ring > 0.0 && by_kernel > 0.0 && holders > 1.0,
            "nothing was tried: {by_ring} came by rings, {by_kernel} by the kernel, to {holders} processes"
        );
        Ok(Sample { values, ..Sample::default() })
    }
}
