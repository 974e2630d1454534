//! The processes on the receiver's CPU during a row: a server, and perhaps a competing process.

use anyhow::bail;
use twinpath_sys::LatencyRequest;

use super::polled::Polled;
use crate::lab::asking::Marks;
use crate::lab::instance::Instance;
use crate::lab::model::{How, RowSpec};
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
    pub(super) async fn set(session: &Session, spec: &RowSpec) -> anyhow::Result<Self> {
        let launcher = &session.launcher;
        let (how, mode) = (spec.how, spec.mode.unwrap_or_default());
        let request = held(how)?;
        let (mut said, mut polled) = (None, None);
        let (port, receiver) = match how.first() {
            ("kernel", None) => {
                let priority = how.get("priority");
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
            ("busy-poll", Some(us)) => {
                polled = Some(Polled::new(launcher.topology())?);
                let line =
                    format!("plain udp-busy-echo --busy-poll-us {us} --listen {}", peers::server(PLAIN_PORT));
                let args = words(&line);
                (PLAIN_PORT, Running::Kernel(launcher.server(Side::Server, &args).await?))
            }
            ("twinpath", None) => {
                let args = serve(session, mode, how);
                (FAST_PORT, Running::Twinpath(Instance::start(launcher, &args).await?))
            }
            ("nobody", None) => {
                let sender = Side::At(&launcher.topology().server, &session.cpus[..1]);
                let args = udp_echo_on(SCALE_PORT, "connected", "interrupt");
                (SCALE_PORT, Running::Nobody(launcher.server(sender, &args).await?))
            }
            other => bail!("no such receiver: {other:?}"),
        };
        let mut scene = Self { port, receiver, said, competing: None, _request: request, _polled: polled };
        if how.has("beside") {
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
fn held(how: How) -> anyhow::Result<Option<LatencyRequest>> {
    let is_held = how.first().0 == "kernel" && how.get("request") == Some("always");
    Ok(is_held.then(|| LatencyRequest::open(0)).transpose()?)
}

fn start_competing(session: &Session) -> anyhow::Result<Background> {
    session.launcher.background(Side::Server, &words("plain busy"))
}

/// twinpath as it is by default.
pub(super) const DEFAULT: How = How("twinpath request=auto");

/// The command line of a twinpath receiver.
pub(super) fn serve(session: &Session, mode: &str, how: How) -> Vec<String> {
    let request = how.get("request").unwrap_or("never");
    let mut serves = format!(
        "echo --udp {FAST_PORT} --path auto --mode {mode} --reply-rate 0 --reflex off --latency-request {request}"
    );
    for (option, word) in [("cpu-budget", "budget"), ("priority", "priority")] {
        serves.extend(how.get(word).map(|value| format!(" --{option} {value}")));
    }
    peers::serve_by_one(session, &serves)
}
