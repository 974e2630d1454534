//! Switches between two hosts, with a socket for controllers.

use std::path::PathBuf;

use anyhow::Context;

use crate::lab::instance::Instance;
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SwitchNetwork;

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ovs,
    /// The kernel forwards flows where it can.
    Twinpath,
    /// Workers forward all.
    TwinpathWorkers,
    /// The kernel's bridge, which has no flows.
    Bridge,
}

/// A switch that runs.
pub(crate) struct Running {
    process: Process,
    /// The process whose CPU time counts; the kernel's bridge has none.
    pub(crate) pid: Option<u32>,
    /// Where it listens for controllers.
    pub(crate) socket: PathBuf,
    pub(crate) note: Option<String>,
    /// Whether controllers set its flows.
    pub(crate) has_flows: bool,
}

enum Process {
    Plain(Server),
    Twinpath(Instance),
}

impl Kind {
    /// Starts the switch with the network's ports. Its thread that carries frames has the second CPU.
    pub(crate) async fn start(self, session: &Session, network: &SwitchNetwork) -> anyhow::Result<Running> {
        let cpu = session.cpus[1];
        if self == Self::Ovs {
            // It does not pass on that a checksum is still to be computed.
            network.whole_checksums()?;
        }
        let directory = session.run_dir.path().join(format!("openflow-{}", fastrand::u32(..)));
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        match self {
            Self::Bridge => {
                let ports = network.ports.join(",");
                let mut args = words(&format!("plain switch bridge --ports {ports} --cpu {cpu} --directory"));
                args.push(directory.display().to_string());
                let server = session.launcher.server(Side::At(&network.switch, &[cpu]), &args).await?;
                Ok(Running {
                    process: Process::Plain(server),
                    pid: None,
                    socket: directory,
                    note: None,
                    has_flows: false,
                })
            }
            Self::Ovs => {
                let ports = network.ports.join(",");
                let mut args = words(&format!(
                    "plain switch ovs-netdev --openflow --ports {ports} --cpu {cpu} --directory"
                ));
                args.push(directory.display().to_string());
                let server = session.launcher.server(Side::At(&network.switch, &session.cpus), &args).await?;
                let pid = server.ready["switch_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                let note = server.ready["what"].as_str().map(str::to_owned);
                let pid = Some(pid.context("OVS has no process")?);
                Ok(Running {
                    process: Process::Plain(server),
                    pid,
                    socket: directory.join("br0.mgmt"),
                    note,
                    has_flows: true,
                })
            }
            Self::Twinpath | Self::TwinpathWorkers => {
                let offload = if self == Self::Twinpath { "auto" } else { "off" };
                let socket = directory.join("controllers");
                let ports: String = network.ports.iter().map(|port| format!(" --port {port}")).collect();
                let mut args = words(&format!("switch lab{ports} --cpu {cpu} --offload {offload} --listen"));
                args.push(format!("unix:{}", socket.display()));
                args.push("--socket".to_owned());
                args.push(directory.join("commands").display().to_string());
                let side = Side::At(&network.switch, &session.cpus);
                let instance = Instance::start_at(&session.launcher, side, &args).await?;
                let pid = Some(instance.pid());
                Ok(Running { process: Process::Twinpath(instance), pid, socket, note: None, has_flows: true })
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
