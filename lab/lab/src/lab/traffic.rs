//! Traffic of kernel sockets between the two hosts of a switch.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::client::{self, BULK};
use super::counters::Counters;
use super::model::Sample;
use super::peers;
use super::process::{Finished, Server, Side, words};
use super::session::Session;
use super::topology::{HOSTS, SwitchNetwork};
use crate::plain::switch::Sent;

/// Ports of the second host's servers.
pub(crate) const ECHO_PORT: u16 = 7001;
const BULK_PORT: u16 = 7003;
/// Until a connection has its window, and a switch knows where its frames go.
const BULK_WARM_UP: Duration = Duration::from_millis(100);
/// Transfers of a row: how often segments overtake each other, which are sent by both CPUs, differs from connection to
/// connection.
const TRANSFERS: usize = 3;
/// Time for start-up, warm-up and tear-down, beyond the measured time.
pub(crate) const SLACK: Duration = Duration::from_secs(5);
/// Requests that show that a switch passes frames in both directions; they also make both hosts' addresses known.
pub(crate) const PROBES: u32 = 16;

/// Traffic through one switch.
#[derive(Clone, Copy)]
pub(crate) struct Traffic<'a> {
    pub(crate) session: &'a Session,
    pub(crate) network: &'a SwitchNetwork,
    /// How long a row is measured.
    pub(crate) time: Duration,
    /// The process whose CPU time counts, if there is one.
    pub(crate) switch: Option<u32>,
}

impl Traffic<'_> {
    /// A server of the second host that returns datagrams. It has the first CPU. With the method `connected` it answers
    /// one client only.
    pub(crate) async fn echo_server(&self, method: &str) -> anyhow::Result<Server> {
        let listen = words(&format!(
            "plain udp-echo --listen {} --method {method} --mode interrupt",
            address(ECHO_PORT)
        ));
        let side = Side::At(&self.network.hosts[1], &self.session.cpus[..1]);
        self.session.launcher.server(side, &listen).await
    }

    /// Some round trips, so that what follows begins with a switch that passes frames.
    ///
    /// # Errors
    /// None comes back.
    pub(crate) async fn probe(&self) -> anyhow::Result<()> {
        let probe = words(&format!("--count {PROBES} --warmup 0 --inflight 1"));
        self.round_trips(&probe).await.context("no frame passes").map(drop)
    }

    /// For the time of a row. One request is under way at a time.
    pub(crate) async fn for_its_time(&self, options: &str) -> anyhow::Result<Sample> {
        let time_s = self.time.as_secs_f64();
        self.round_trips(&words(&format!("--duration {time_s:.3} --warmup 0.05 --inflight 1 {options}")))
            .await
    }

    /// The same with a server for it, which answers one client.
    pub(crate) async fn round_trips_of_one(&self) -> anyhow::Result<Sample> {
        let server = self.echo_server("connected").await?;
        let measured = self.for_its_time("").await;
        self.session.launcher.stop(server).await?;
        measured
    }

    /// Round trips from the first host to [`Self::echo_server`].
    async fn round_trips(&self, load: &[String]) -> anyhow::Result<Sample> {
        let mut args = words(&format!(
            "bench echo {} --udp --path kernel --mode interrupt --size 64 --json",
            address(ECHO_PORT)
        ));
        args.extend_from_slice(load);
        let side = Side::At(&self.network.hosts[0], &self.session.cpus[..1]);
        let finished = self.session.launcher.client(side, &args, self.time + SLACK, self.switch).await?;
        client::sample_of(&finished)
    }

    /// One TCP connection from the first host to the second, as fast as it goes; the median of [`TRANSFERS`]. The receiving host
    /// has the second CPU.
    pub(crate) async fn bulk(&self) -> anyhow::Result<Sample> {
        let mut transfers = Vec::with_capacity(TRANSFERS);
        for _ in 0..TRANSFERS {
            transfers.push(self.transfer().await?);
        }
        transfers.sort_by(|one, other| one.values[BULK].total_cmp(&other.values[BULK]));
        Ok(transfers.swap_remove(TRANSFERS / 2))
    }

    async fn transfer(&self) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let [client, server] = self.session.cpus;
        let sink = words(&format!("plain tcp-sink --listen {}", address(BULK_PORT)));
        let sink = launcher.server(Side::At(&self.network.hosts[1], &[server]), &sink).await?;
        let time_s = self.time.as_secs_f64();
        let warm_up_s = BULK_WARM_UP.as_secs_f64();
        let args = words(&format!(
            "plain tcp-bulk {} --warmup {warm_up_s:.3} --duration {time_s:.3}",
            address(BULK_PORT)
        ));
        let side = Side::At(&self.network.hosts[0], &[client]);
        let finished = launcher.client(side, &args, self.time + SLACK, self.switch).await;
        launcher.stop(sink).await?;
        client::bulk_sample(&finished?, self.time)
    }
}

/// Frames that were sent, and what became of them.
pub(crate) struct Frames {
    pub(crate) sent: Sent,
    /// How many the second host's interface has received.
    pub(crate) arrived: u64,
    pub(crate) finished: Finished,
}

/// Sends frames of 64 bytes from the first host's interface to the second one's, by a process on `cpus`; watches the CPU of the
/// switch's.
pub(crate) async fn frames(
    session: &Session,
    network: &SwitchNetwork,
    cpus: &[usize],
    options: &str,
    deadline: Duration,
    switch: Option<u32>,
) -> anyhow::Result<Frames> {
    let args = peers::frame_source(HOSTS[0].interface, HOSTS[0].mac, HOSTS[1].mac, options);
    let sink = || Counters::of(&network.hosts[1], HOSTS[1].interface);
    let before = sink()?.received;
    let side = Side::At(&network.hosts[0], cpus);
    let finished = session.launcher.client(side, &args, deadline, switch).await?;
    let arrived = sink()?.received.saturating_sub(before);
    let sent: Sent = finished.json("plain frame-source")?;
    ensure!(arrived > 0, "none of {} frames came through", sent.frames);
    Ok(Frames { sent, arrived, finished })
}

/// The second host's address, with a port.
pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(HOSTS[1].ipv4), port)
}
