//! Switches between two hosts, with a socket for controllers.

use std::path::PathBuf;

use anyhow::Context;

use crate::lab::instance::Instance;
use crate::lab::process::{Server, Side};
use crate::lab::session::Session;
use crate::lab::topology::SwitchNetwork;

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ovs,
    Twinpath,
}

/// A switch that runs.
pub(crate) struct Running {
    process: Process,
    /// The process whose CPU time counts.
    pub(crate) pid: u32,
    /// Where it listens for controllers.
    pub(crate) socket: PathBuf,
    pub(crate) note: Option<String>,
}

enum Process {
    Plain(Server),
    Twinpath(Instance),
}

impl Kind {
    /// Starts the switch with the network's ports. Its thread that carries frames has the second CPU.
    pub(crate) async fn start(self, session: &Session, network: &SwitchNetwork) -> anyhow::Result<Running> {
        let cpu = session.cpus[1];
        // Hosts compute checksums for both: not every switch passes on that one is still to be computed.
        network.whole_checksums()?;
        let directory = session.run_dir.path().join(format!("openflow-{}", fastrand::u32(..)));
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        match self {
            Self::Ovs => {
                let ports = network.ports.join(",");
                let mut args = words(&format!(
                    "plain switch ovs-netdev --openflow --ports {ports} --cpu {cpu} --directory"
                ));
                args.push(directory.display().to_string());
                let server = session.launcher.server(Side::At(&network.switch, &session.cpus), &args).await?;
                let pid = server.ready["switch_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                let note = server.ready["what"].as_str().map(str::to_owned);
                let pid = pid.context("OVS has no process")?;
                Ok(Running { process: Process::Plain(server), pid, socket: directory.join("br0.mgmt"), note })
            }
            Self::Twinpath => {
                let socket = directory.join("controllers");
                let ports: String = network.ports.iter().map(|port| format!(" --port {port}")).collect();
                let mut args = words(&format!("switch lab{ports} --cpu {cpu} --listen"));
                args.push(format!("unix:{}", socket.display()));
                args.push("--socket".to_owned());
                args.push(directory.join("commands").display().to_string());
                let side = Side::At(&network.switch, &session.cpus);
                let instance = Instance::start_at(&session.launcher, side, &args).await?;
                let pid = instance.pid();
                Ok(Running { process: Process::Twinpath(instance), pid, socket, note: None })
            }
        }
    }
}

impl Running {
    /// The arguments of a controller. The switch's socket is in the file system, so that its namespace does not matter.
    pub(crate) fn controller(&self, task: &str) -> Vec<String> {
        let mut args = words("plain openflow --to");
        args.push(self.socket.display().to_string());
        args.extend(words(task));
        args
    }

    /// Ends it.
    pub(crate) async fn stop(self, session: &Session) -> anyhow::Result<()> {
        match self.process {
            Process::Plain(server) => session.launcher.stop(server).await,
            Process::Twinpath(instance) => instance.stop(&session.launcher).await,
        }
    }
}

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
