//! Switches between two hosts, with a socket for controllers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use twinpath_report::Flow;

use crate::lab::instance::Instance;
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SwitchNetwork;

/// For how long flows go on, if they do: longer than a process takes to start.
const KEEP: &str = "keep=30";

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ovs,
    /// The kernel forwards flows where it can.
    Twinpath,
    /// The same, and flows go on in the kernel when the process has ended.
    TwinpathKeeping,
    /// Workers forward all.
    TwinpathWorkers,
    /// Drivers of its ports forward flows.
    TwinpathXdp,
    /// The kernel's bridge, which has no flows.
    Bridge,
    /// Programs in the drivers of two ports, which send every frame to the other one.
    XdpRedirect,
}

/// What differs from a switch as `lab openflow` has it.
#[derive(Debug, Default)]
pub(crate) struct Setting<'a> {
    /// The name of a switch of ours; `None`: `lab`.
    pub(crate) name: Option<&'a str>,
    /// Its ports; `None`: all of the network.
    pub(crate) ports: Option<&'a [&'static str]>,
    /// A controller that it connects to.
    pub(crate) controller: Option<&'a str>,
    /// Where twinpath's log goes.
    pub(crate) log: Option<OwnedFd>,
}

/// A switch that runs.
pub(crate) struct Running {
    process: Process,
    /// The process whose CPU time counts; the kernel's bridge has none.
    pub(crate) pid: Option<u32>,
    /// Where it listens for controllers, if it has flows.
    pub(crate) socket: PathBuf,
    pub(crate) note: Option<String>,
    /// Whether controllers set its flows.
    pub(crate) has_flows: bool,
    /// Its files.
    pub(crate) directory: PathBuf,
}

enum Process {
    Plain(Server),
    Twinpath(Instance),
}

impl Kind {
    /// Starts the switch with the network's ports. Its thread that carries frames has the second CPU.
    pub(crate) async fn start(self, session: &Session, network: &SwitchNetwork) -> anyhow::Result<Running> {
        self.start_as(session, network, Setting::default()).await
    }

    /// The same in a setting of its own.
    pub(crate) async fn start_as(
        self,
        session: &Session,
        network: &SwitchNetwork,
        setting: Setting<'_>,
    ) -> anyhow::Result<Running> {
        let cpu = session.cpus[1];
        if self == Self::Ovs {
            // It does not pass on that a checksum is still to be computed.
            network.whole_checksums()?;
        }
        let directory = session.run_dir.path().join(format!("openflow-{}", fastrand::u32(..)));
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let ports = setting.ports.unwrap_or(&network.ports);
        let controller: Vec<_> =
            setting.controller.iter().flat_map(|to| ["--controller".to_owned(), (*to).to_owned()]).collect();
        let (kind, cpus) = match self {
            Self::Bridge => ("bridge", &session.cpus[1..]),
            Self::XdpRedirect => ("xdp-redirect", &session.cpus[1..]),
            Self::Ovs => ("ovs-netdev --openflow", &session.cpus[..]),
            Self::Twinpath | Self::TwinpathXdp | Self::TwinpathWorkers | Self::TwinpathKeeping => {
                let offload = if self == Self::TwinpathWorkers { "off" } else { "auto" };
                let socket = directory.join("controllers");
                let more = if self == Self::TwinpathXdp { ",offload=xdp" } else { "" };
                let ports: String = ports.iter().map(|port| format!(" --port {port}{more}")).collect();
                let on_exit = if self == Self::TwinpathKeeping { KEEP } else { "dark" };
                let name = setting.name.unwrap_or("lab");
                let mut args = words(&format!(
                    "switch {name}{ports} --cpu {cpu} --offload {offload} --on-exit {on_exit} --listen"
                ));
                args.push(format!("unix:{}", socket.display()));
                args.push("--socket".to_owned());
                args.push(directory.join("commands").display().to_string());
                args.extend(controller);
                let side = Side::At(&network.switch, &session.cpus);
                let instance = Instance::start_with_log(&session.launcher, side, &args, setting.log).await?;
                let pid = Some(instance.pid());
                let process = Process::Twinpath(instance);
                return Ok(Running { process, pid, socket, note: None, has_flows: true, directory });
            }
        };
        let ports = ports.join(",");
        let mut args = words(&format!("plain switch {kind} --ports {ports} --cpu {cpu} --directory"));
        args.push(directory.display().to_string());
        args.extend(controller);
        let server = session.launcher.server(Side::At(&network.switch, cpus), &args).await?;
        let has_flows = self == Self::Ovs;
        let pid = server.ready["switch_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        ensure!(pid.is_some() == has_flows, "`plain switch {kind}` names the wrong process: {pid:?}");
        let note = server.ready["what"].as_str().filter(|_| has_flows).map(str::to_owned);
        let socket = directory.join("br0.mgmt");
        Ok(Running { process: Process::Plain(server), pid, socket, note, has_flows, directory })
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

    /// twinpath's, to be asked.
    pub(crate) const fn instance(&self) -> Option<&Instance> {
        match &self.process {
            Process::Twinpath(instance) => Some(instance),
            Process::Plain(_) => None,
        }
    }

    /// The flows of a switch of ours, and where they are.
    pub(crate) async fn flows(&self) -> anyhow::Result<Vec<Flow>> {
        match &self.process {
            Process::Twinpath(instance) => instance.flows().await,
            Process::Plain(_) => bail!("only twinpath says where its flows are"),
        }
    }

    /// Kills it, and waits for its end.
    pub(crate) async fn kill(self, session: &Session) -> anyhow::Result<()> {
        match self.process {
            Process::Plain(server) => session.launcher.kill(server).await,
            Process::Twinpath(instance) => instance.kill(&session.launcher).await,
        }
    }

    /// Ends it.
    pub(crate) async fn stop(self, session: &Session) -> anyhow::Result<()> {
        match self.process {
            Process::Plain(server) => session.launcher.stop(server).await,
            Process::Twinpath(instance) => instance.stop(&session.launcher).await,
        }
    }
}
