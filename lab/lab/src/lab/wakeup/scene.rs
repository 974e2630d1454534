//! The processes on the receiver's CPU during a row: a server, and perhaps a competing process.

use anyhow::{Context, bail};
use serde::Deserialize;
use twinpath_sys::LatencyRequest;
use twinpath_time::Instant;

use super::cases::{Case, Receiver, Request};
use super::polled::Polled;
use crate::lab::instance::Instance;
use crate::lab::peers::{self, FAST_PORT, PLAIN_PORT, SCALE_PORT, udp_echo, udp_echo_on};
use crate::lab::process::{Background, Launcher, Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// The running processes and settings of a row.
pub(super) struct Scene {
    pub(super) port: u16,
    pub(super) receiver: Running,
    /// A note on how it was set up.
    pub(super) said: Option<String>,
    competing: Option<Background>,
    _request: Option<LatencyRequest>,
    _polled: Option<Polled>,
}

pub(super) enum Running {
    /// A server that sleeps on the sender's CPU and answers, so that the receiver's CPU has none.
    Nobody(Server),
    Kernel(Server),
    Twinpath(Instance),
}

impl Running {
    /// The process whose CPU time is measured.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Nobody(_) => None,
            Self::Kernel(server) => Some(server.pid),
            Self::Twinpath(instance) => Some(instance.pid()),
        }
    }
}

/// The output of `plain busy` at its end.
#[derive(Deserialize)]
struct Marks {
    /// Time, ns of the monotonic clock, and units of work done by then.
    marks: Vec<(u64, u64)>,
}

impl Scene {
    pub(super) async fn set(session: &Session, case: &Case) -> anyhow::Result<Self> {
        let launcher = &session.launcher;
        let request = held(&case.receiver)?;
        let (mut said, mut polled) = (None, None);
        let (port, receiver) = match case.receiver {
            Receiver::Kernel { mode, priority, .. } => {
                let mut args = udp_echo("connected", mode);
                args.extend(
                    priority.into_iter().flat_map(|priority| words(&format!("--priority {priority}"))),
                );
                let server = launcher.server(Side::Server, &args).await?;
                if priority.is_some() {
                    said = Some(format!(
                        "priority granted: {}",
                        server.ready["priority"].as_str().unwrap_or("")
                    ));
                }
                (PLAIN_PORT, Running::Kernel(server))
            }
            Receiver::KernelBusyPoll { us } => {
                polled = Some(Polled::new(launcher.topology())?);
                let line =
                    format!("plain udp-busy-echo --busy-poll-us {us} --listen {}", peers::server(PLAIN_PORT));
                let args = words(&line);
                (PLAIN_PORT, Running::Kernel(launcher.server(Side::Server, &args).await?))
            }
            Receiver::Twinpath { .. } => {
                let args = serve(session, &case.receiver)?;
                (FAST_PORT, Running::Twinpath(Instance::start(launcher, &args).await?))
            }
            Receiver::Nobody => {
                let sender = Side::At(&launcher.topology().server, &session.cpus[..1]);
                let args = udp_echo_on(SCALE_PORT, "connected", "interrupt");
                (SCALE_PORT, Running::Nobody(launcher.server(sender, &args).await?))
            }
            Receiver::Floor { .. } => bail!("a floor has no server"),
        };
        let mut scene = Self { port, receiver, said, competing: None, _request: request, _polled: polled };
        if case.competing {
            match start_competing(session) {
                Ok(competing) => scene.competing = Some(competing),
                Err(error) => {
                    scene.end(launcher).await?;
                    return Err(error);
                }
            }
        }
        Ok(scene)
    }

    /// Ends it; returns the marks of the competing process.
    pub(super) async fn end(self, launcher: &Launcher) -> anyhow::Result<Vec<(u64, u64)>> {
        let Self { receiver, competing, .. } = self;
        // The competing process first, so that the receiver ends sooner.
        let marks = match competing {
            Some(competing) => Some(launcher.finish(competing).await),
            None => None,
        };
        match receiver {
            Running::Nobody(server) | Running::Kernel(server) => launcher.stop(server).await?,
            Running::Twinpath(instance) => instance.stop(launcher).await?,
        }
        let Some(text) = marks.transpose()? else { return Ok(Vec::new()) };
        let last = text.lines().last().unwrap_or_default();
        Ok(serde_json::from_str::<Marks>(last).context("cannot read what plain busy printed")?.marks)
    }
}

/// The latency request that the lab holds during a row.
fn held(receiver: &Receiver) -> anyhow::Result<Option<LatencyRequest>> {
    let is_held = matches!(receiver, Receiver::Kernel { request: Request::Always, .. });
    Ok(is_held.then(|| LatencyRequest::open(0)).transpose()?)
}

fn start_competing(session: &Session) -> anyhow::Result<Background> {
    session.launcher.background(Side::Server, &words("plain busy"))
}

/// The command line of a twinpath receiver.
pub(super) fn serve(session: &Session, receiver: &Receiver) -> anyhow::Result<Vec<String>> {
    let Receiver::Twinpath { mode, request, cpu_budget, priority } = receiver else {
        bail!("not twinpath");
    };
    let request = match request {
        Request::Never => "never",
        Request::Always => "always",
        Request::Auto => "auto",
    };
    let mut line = format!(
        "serve echo --on {} --udp {FAST_PORT} --path auto --mode {mode} --workers 1 --cpu {} --reply-rate 0 \
         --reflex off --latency-request {request} --socket {}",
        SERVER.interface,
        session.cpus[1],
        session.socket("wakeup")
    );
    for (option, value) in [("cpu-budget", cpu_budget), ("priority", priority)] {
        line.extend(value.iter().map(|value| format!(" --{option} {value}")));
    }
    Ok(words(&line))
}

/// Units of work per second between two moments, from marks every few ms.
pub(super) fn work_per_s(marks: &[(u64, u64)], from: Instant, to: Instant) -> Option<f64> {
    let within = |mark: &&(u64, u64)| (from.as_nanos()..=to.as_nanos()).contains(&mark.0);
    let (first, last) = (marks.iter().find(within)?, marks.iter().rfind(within)?);
    let seconds = last.0.checked_sub(first.0).filter(|ns| *ns > 0)? as f64 / 1e9;
    Some((last.1 - first.1) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_between_the_marks_of_a_window() {
        let marks: Vec<_> = (0..100).map(|at| (at * 5_000_000, at * at)).collect();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        // 100 ms to 200 ms: marks 20 to 40.
        let per_s = work_per_s(&marks, at(100), at(203)).unwrap();
        assert!((per_s - (1600.0 - 400.0) / 0.1).abs() < 1e-6, "{per_s}");
        assert_eq!(work_per_s(&marks, at(501), at(600)), None);
        assert_eq!(work_per_s(&marks, at(100), at(104)), None);
    }
}
