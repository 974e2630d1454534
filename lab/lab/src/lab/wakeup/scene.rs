//! The processes on the receiver's CPU during a row: a server, and perhaps a competing process.

use anyhow::bail;
use twinpath_sys::LatencyRequest;

use super::cases::{Case, Receiver, Request};
use super::polled::Polled;
use crate::lab::asking::Marks;
use crate::lab::instance::Instance;
use crate::lab::peers::{self, FAST_PORT, PLAIN_PORT, SCALE_PORT, udp_echo, udp_echo_on};
use crate::lab::process::{Background, Launcher, Server, Side, words};
use crate::lab::session::Session;

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
    pub(super) async fn end(self, launcher: &Launcher) -> anyhow::Result<Marks> {
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
        marks.transpose()?.map_or_else(|| Ok(Marks::default()), |printed| Marks::of(&printed))
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
    let mut serves = format!(
        "echo --udp {FAST_PORT} --path auto --mode {mode} --reply-rate 0 --reflex off --latency-request {request}"
    );
    for (option, value) in [("cpu-budget", cpu_budget), ("priority", priority)] {
        serves.extend(value.iter().map(|value| format!(" --{option} {value}")));
    }
    Ok(peers::serve_by_one(session, &serves))
}
