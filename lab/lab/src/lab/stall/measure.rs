//! One case: a switch between two hosts, its bulk traffic, what disturbs it, and the frames that are timed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use twinpath_inspect::Times;

use super::cases::{Case, Disturbance};
use super::disturb::{CONTROLLER, FullPipe, SilentResolver, change_ports};
use super::trace;
use crate::lab::instance::{Instance, worker_thread};
use crate::lab::model::Sample;
use crate::lab::paced::{Draw, Load};
use crate::lab::peers;
use crate::lab::probe::Probe;
use crate::lab::process::{self, Server, Side, words};
use crate::lab::session::Session;
use crate::lab::switches::{Kind, Running, Setting};
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::{Frames, SLACK, frames};
use crate::plain::switch::Sent;

/// Ports with a host, and those that come and go.
const PORTS: usize = 2;
const MORE_PORTS: usize = 100;
/// How long the highest rate of bulk traffic is measured, and its share that frames are timed beside.
const RATE_TIME: Duration = Duration::from_millis(400);
const BULK_SHARE: f64 = 0.3;
/// Frames per system call: of the source that measures the highest rate, and of the one that is paced.
const BATCH: usize = 64;
const PACED_BATCH: usize = 16;
/// The range of the period of timed frames, us.
const PERIOD_US: std::ops::RangeInclusive<f64> = 200.0..=400.0;
/// From the start of bulk traffic to the first frame that counts.
const SETTLE: Duration = Duration::from_millis(300);
/// How long the worker's system calls are watched, after its frames were timed.
const TRACED: Duration = Duration::from_millis(200);
/// Until a controller has put its flows in.
const CONTROLLER_DEADLINE: Duration = Duration::from_secs(20);
/// Frames per second that the bulk traffic had, of those that the switch can carry.
const BULK: &str = "bulk_per_s";
/// The longest turn of a worker by its thread's CPU time.
const TURN: &str = "turn_max_us";
/// System calls of a worker that are none of the packet path.
const OTHER_CALLS: &str = "other_calls";

/// One round.
pub(super) struct Bench<'a> {
    session: &'a Session,
    time: Duration,
    /// The pace, the same for all cases of a round.
    load: Load,
    /// The highest rates of this round, frames per second, by flows.
    most: RefCell<HashMap<&'static str, f64>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(session: &'a Session, time: Duration, random: &mut Rng) -> Self {
        Self { session, time, load: Draw::of(random, PERIOD_US).load(), most: RefCell::default() }
    }

    pub(super) async fn measure(&self, case: &Case) -> anyhow::Result<Sample> {
        let is = |disturbance| case.is_disturbed && case.disturbance == disturbance;
        let more = if case.disturbance == Disturbance::Ports { MORE_PORTS } else { 0 };
        let network = SwitchNetwork::build(PORTS + more)?;
        let resolver = is(Disturbance::Resolver).then(|| SilentResolver::new(&network.switch)).transpose()?;
        let mut setting = Setting {
            ports: Some(&network.ports[..PORTS]),
            controller: resolver.is_some().then_some(CONTROLLER),
            ..Setting::default()
        };
        let full = is(Disturbance::Log).then(FullPipe::new).transpose()?;
        let _unread = full.map(|(pipe, log)| {
            setting.log = Some(log);
            pipe
        });
        let running = Kind::TwinpathWorkers.start_as(self.session, &network, setting).await?;
        let measured = self.beside(case, &network, &running).await;
        running.stop(self.session).await?;
        resolver.as_ref().map_or(Ok(()), SilentResolver::has_been_asked)?;
        measured
    }

    async fn beside(
        &self,
        case: &Case,
        network: &SwitchNetwork,
        running: &Running,
    ) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let instance = running.instance().context("twinpath's switch is asked")?;
        let host = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        launcher.client(host, &running.controller(case.flows()), CONTROLLER_DEADLINE, None).await?;
        let probe = Probe::open(network)?;
        let most = self.most(case, network).await?;
        let (mut discarder, mut controller) = (None, None);
        if let Some(how) = case.controller() {
            let mut socket = &running.socket;
            if !case.is_disturbed {
                socket = &discarder.insert(self.discarder(network).await?).1;
            }
            let mut args = words("plain openflow --to");
            args.push(socket.display().to_string());
            args.extend(words(&format!("disturb {how}")));
            controller = Some(launcher.server(host, &args).await.context("the controller")?);
        }
        let more = if case.is_disturbed { &network.ports[PORTS..] } else { &[] };
        let measured = self.timed(case, network, instance, probe, most);
        let failed = async {
            if more.is_empty() { std::future::pending().await } else { change_ports(instance, more).await }
        };
        let measured = tokio::select! {
            measured = measured => measured,
            error = failed => Err(error.context("ports cannot be changed")),
        };
        let controlled = match controller {
            Some(controller) => launcher.stop(controller).await,
            None => Ok(()),
        };
        if let Some((discarder, _)) = discarder {
            launcher.stop(discarder).await?;
        }
        let sample = measured?;
        controlled.context("the controller")?;
        Ok(sample)
    }

    /// Frames that are timed beside bulk traffic, and the turns of the worker meanwhile.
    async fn timed(
        &self,
        case: &Case,
        network: &SwitchNetwork,
        instance: &Instance,
        probe: Probe,
        most: f64,
    ) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let host = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let options = format!(
            "--batch {PACED_BATCH} --rate {:.0} --priority fifo:2 --varied {} --duration {:.3}",
            most * BULK_SHARE,
            case.varied(),
            (self.time + SLACK).as_secs_f64()
        );
        let source = peers::frame_source(HOSTS[0].interface, HOSTS[0].mac, HOSTS[1].mac, &options);
        let source = launcher.background(host, &source)?;
        instance.time_turns().await?;
        tokio::time::sleep(SETTLE).await;
        let before = done(instance).await?;
        let measured = probe.run(self.session.cpus[0], self.load.pace(self.time)).await;
        let after = done(instance).await?;
        let mut sample = measured?;
        if case.is_disturbed {
            self.traced(instance, &mut sample).await;
        }
        let sent: Sent = process::json(&launcher.finish(source).await?, "plain frame-source")?;
        let waited = after.waited.saturating_sub(before.waited);
        sample.values.insert("waited_us", waited.as_secs_f64() * 1e6);
        sample.values.insert("priority_steps", after.steps.saturating_sub(before.steps) as f64);
        let turns = after.turns.since(&before.turns);
        for (name, quantile) in [("turn_p50_us", 0.5), ("turn_p99_9_us", 0.999), (TURN, 1.0)] {
            let time = turns.quantile(quantile).context("the worker has not turned")?;
            sample.values.insert(name, time as f64 / 1e3);
        }
        sample.values.insert(BULK, sent.frames as f64 / sent.duration_s);
        sample.values.insert("most_per_s", most);
        Ok(sample)
    }

    /// Which system calls the worker makes that are none of the packet path. A kernel without tracing leaves the value out.
    async fn traced(&self, instance: &Instance, sample: &mut Sample) {
        let traced = async { trace::other_calls(worker_thread(instance.pid())?, TRACED).await };
        match traced.await {
            Ok(calls) => {
                sample.values.insert(OTHER_CALLS, calls.values().sum::<u64>() as f64);
                let calls: Vec<_> = calls.iter().map(|(name, count)| format!("{count} {name}")).collect();
                if !calls.is_empty() {
                    sample.notes.push(format!("calls of the worker beyond frames: {}", calls.join(", ")));
                }
            }
            Err(error) => sample.notes.push(format!("calls of the worker are not known: {error:#}")),
        }
    }

    /// The most frames per second that come through, measured once a round.
    async fn most(&self, case: &Case, network: &SwitchNetwork) -> anyhow::Result<f64> {
        let flows = case.flows().split(' ').next().unwrap_or_default();
        let known = self.most.borrow().get(flows).copied();
        match known {
            Some(most) => Ok(most),
            None => {
                let most = self.bulk_alone(network).await?;
                self.most.borrow_mut().insert(flows, most);
                Ok(most)
            }
        }
    }

    async fn bulk_alone(&self, network: &SwitchNetwork) -> anyhow::Result<f64> {
        let options = format!("--batch {BATCH} --duration {:.3}", RATE_TIME.as_secs_f64());
        let cpus = &self.session.cpus[..1];
        let Frames { sent, arrived, .. } =
            frames(self.session, network, cpus, &options, RATE_TIME + SLACK, None).await?;
        Ok(arrived as f64 / sent.duration_s)
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

/// What the first worker has done so far.
struct Done {
    /// CPU times of its turns.
    turns: Times,
    /// How long it has waited for its CPU.
    waited: Duration,
    /// How often it has changed between its two priorities.
    steps: u64,
}

async fn done(instance: &Instance) -> anyhow::Result<Done> {
    let workers = instance.workers().await?;
    let worker = workers.first().context("twinpath has no worker")?;
    let waited = trace::waited(instance.pid(), worker_thread(instance.pid())?)?;
    let steps = worker.guard.as_ref().map_or(0, |guard| guard.counts.priority_steps);
    Ok(Done { turns: worker.counts.turn_cpu.clone(), waited, steps })
}
