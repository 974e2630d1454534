//! One case: a switch between two hosts, its bulk traffic, its controller, and the round trips.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use twinpath_load::Arrivals;

use super::tables::BULK;
use crate::lab::counters::Counters;
use crate::lab::model::Sample;
use crate::lab::openflow::switches::{Kind, Running};
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::{SLACK, Traffic};
use crate::plain::switch::Sent;

const PORTS: usize = 2;
/// How long the highest rate of bulk traffic is measured, and its share that the round trips run beside.
const RATE_TIME: Duration = Duration::from_millis(400);
const BULK_SHARE: f64 = 0.3;
/// Frames per system call: of the source that measures the highest rate, and of the one that is paced.
const BATCH: usize = 64;
const PACED_BATCH: usize = 16;
/// The range of the period of round trips, us, and by how much each gap differs.
const PERIOD_US: std::ops::RangeInclusive<f64> = 200.0..=400.0;
const JITTER: f64 = 0.03;
/// From the start of bulk traffic to the first round trip that counts.
const SETTLE: Duration = Duration::from_millis(500);
/// Until a controller has put 100,000 flows in.
const CONTROLLER_DEADLINE: Duration = Duration::from_secs(20);

/// A row.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) row: &'static str,
    kind: Kind,
    /// As `plain openflow disturb` names it.
    how: &'static str,
    /// Whether the controller's traffic goes to a process that does nothing of it.
    is_base: bool,
}

const fn case(row: &'static str, kind: Kind, how: &'static str, is_base: bool) -> Case {
    Case { row, kind, how, is_base }
}

/// All of them.
pub(super) const CASES: &[Case] = &[
    case("base-mods", Kind::Twinpath, "mods", true),
    case("stall-mods", Kind::Twinpath, "mods", false),
    case("ovs-base-mods", Kind::Ovs, "mods", true),
    case("ovs-mods", Kind::Ovs, "mods", false),
    case("base-replace", Kind::Twinpath, "replace", true),
    case("stall-replace", Kind::Twinpath, "replace", false),
    case("ovs-base-replace", Kind::Ovs, "replace", true),
    case("ovs-replace", Kind::Ovs, "replace", false),
    case("base-dump", Kind::Twinpath, "dump", true),
    case("stall-dump", Kind::Twinpath, "dump", false),
    case("ovs-base-dump", Kind::Ovs, "dump", true),
    case("ovs-dump", Kind::Ovs, "dump", false),
    case("base-barriers", Kind::Twinpath, "barriers", true),
    case("stall-barriers", Kind::Twinpath, "barriers", false),
    case("ovs-base-barriers", Kind::Ovs, "barriers", true),
    case("ovs-barriers", Kind::Ovs, "barriers", false),
    case("base-silent", Kind::Twinpath, "silent", true),
    case("stall-silent", Kind::Twinpath, "silent", false),
    case("ovs-base-silent", Kind::Ovs, "silent", true),
    case("ovs-silent", Kind::Ovs, "silent", false),
];

/// One round.
pub(super) struct Bench<'a> {
    session: &'a Session,
    time: Duration,
    /// The pace and the seed of its gaps, the same for all cases of a round.
    period_us: f64,
    seed: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(session: &'a Session, time: Duration, random: &mut Rng) -> Self {
        let (from, to) = PERIOD_US.into_inner();
        let period_us = from + (to - from) * random.f64();
        Self { session, time, period_us, seed: random.u64(..1 << 32) }
    }

    pub(super) async fn measure(&self, case: &Case) -> anyhow::Result<Sample> {
        let network = SwitchNetwork::build(PORTS)?;
        let running = case.kind.start(self.session, &network).await?;
        let measured = self.beside(case, &network, &running).await;
        let mut sample = measured?;
        sample.notes.extend(running.note.clone());
        running.stop(self.session).await?;
        Ok(sample)
    }

    async fn beside(
        &self,
        case: &Case,
        network: &SwitchNetwork,
        running: &Running,
    ) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let host = |at: usize| Side::At(&network.hosts[at], &self.session.cpus[..1]);
        let flood = if case.how == "silent" && !case.is_base { " --flood" } else { "" };
        let two_ports = running.controller(&format!("two-ports{flood}"));
        launcher.client(host(0), &two_ports, CONTROLLER_DEADLINE, None).await?;
        let traffic = Traffic { session: self.session, network, time: self.time, switch: None };
        let echo = traffic.echo_server("single").await?;
        traffic.probe().await?;
        let most = self.bulk_alone(network).await?;
        let discarder = if case.is_base { Some(self.discarder(network).await?) } else { None };
        let mut args = words("plain openflow --to");
        let socket = discarder.as_ref().map_or(&running.socket, |(_, socket)| socket);
        args.push(socket.display().to_string());
        args.extend(words(&format!("disturb {}", case.how)));
        let controller = launcher.server(host(0), &args).await.context("the controller")?;
        let rate = most * BULK_SHARE;
        let source = self.source(&format!("--batch {PACED_BATCH} --rate {rate:.0}"), self.time + SLACK);
        let source = launcher.background(host(0), &source)?;
        tokio::time::sleep(SETTLE).await;
        let (rate, arrivals) = (1e6 / self.period_us, Arrivals::Jittered(JITTER));
        let pace = format!("--rate {rate} --arrivals {arrivals} --arrivals-seed {}", self.seed);
        let measured = traffic.for_its_time(&pace).await;
        let sent: Sent = serde_json::from_str(&launcher.finish(source).await?)
            .context("cannot read the result of plain frame-source")?;
        let done = launcher.stop(controller).await;
        if let Some((discarder, _)) = discarder {
            launcher.stop(discarder).await?;
        }
        launcher.stop(echo).await?;
        let mut sample = measured?;
        done.context("the controller")?;
        sample.values.insert(BULK, sent.frames as f64 / sent.duration_s);
        sample.values.insert("most_per_s", most);
        Ok(sample)
    }

    /// The most frames per second that come through.
    async fn bulk_alone(&self, network: &SwitchNetwork) -> anyhow::Result<f64> {
        let sink = || Counters::of(&network.hosts[1], HOSTS[1].interface);
        let before = sink()?.received;
        let args = self.source(&format!("--batch {BATCH}"), RATE_TIME);
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let finished = self.session.launcher.client(side, &args, RATE_TIME + SLACK, None).await?;
        let sent: Sent =
            serde_json::from_str(&finished.stdout).context("cannot read the result of plain frame-source")?;
        let frames = sink()?.received.saturating_sub(before);
        ensure!(frames > 0, "none of {} frames came through", sent.frames);
        Ok(frames as f64 / sent.duration_s)
    }

    fn source(&self, options: &str, time: Duration) -> Vec<String> {
        let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
        words(&format!(
            "plain frame-source --on {} --from {} --to {} --duration {:.3} {options}",
            HOSTS[0].interface,
            mac(HOSTS[0].mac),
            mac(HOSTS[1].mac),
            time.as_secs_f64()
        ))
    }

    /// A process on the hosts' CPU that takes the controller's traffic instead of the switch.
    async fn discarder(&self, network: &SwitchNetwork) -> anyhow::Result<(Server, PathBuf)> {
        let socket = self.session.run_dir.path().join(format!("discard-{}", fastrand::u32(..)));
        let mut args = words("plain openflow-discard --at");
        args.push(socket.display().to_string());
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        Ok((self.session.launcher.server(side, &args).await?, socket))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tables;
    use super::*;

    #[test]
    fn every_row_is_a_case() {
        let cases: BTreeSet<_> = CASES.iter().map(|case| &case.row).collect();
        assert_eq!(cases.len(), CASES.len());
        assert_eq!(cases, tables::ROWS.iter().map(|row| &row.id).collect());
    }
}
