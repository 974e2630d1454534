//! Switches between two hosts, with a socket for controllers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use twinpath_observe::report::Flow;
use twinpath_sys::Namespace;

use crate::lab::instance::Instance;
use crate::lab::process::{Server, Side, words};
use crate::lab::session::{Lab, Session};
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

/// What differs from a switch of ours as `lab openflow` has it.
#[derive(Debug, Default)]
pub(crate) struct Setting<'a> {
    /// Its name; `None`: `lab`.
    pub(crate) name: Option<&'a str>,
    /// Its ports; `None`: all of the network.
    pub(crate) ports: Option<&'a [&'static str]>,
    /// A controller that it connects to.
    pub(crate) controller: Option<&'a str>,
    /// Where its log goes.
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
        let kind = match self {
            Self::Bridge => "bridge",
            Self::XdpRedirect => "xdp-redirect",
            Self::Ovs => "ovs-netdev --openflow",
            Self::Twinpath | Self::TwinpathXdp | Self::TwinpathWorkers | Self::TwinpathKeeping => {
                return self.start_twinpath(session, network, setting).await;
            }
        };
        let running = start_plain(session, network, kind).await?;
        let has_process = running.pid.is_some();
        ensure!(has_process == running.has_flows, "`plain switch {kind}` names the wrong process");
        Ok(running)
    }

    async fn start_twinpath(
        self,
        session: &Session,
        network: &SwitchNetwork,
        setting: Setting<'_>,
    ) -> anyhow::Result<Running> {
        let directory = directory(session, "openflow")?;
        let socket = directory.join("controllers");
        let of_ports = if self == Self::TwinpathXdp { ",offload=xdp" } else { "" };
        let offload = if self == Self::TwinpathWorkers { "off" } else { "auto" };
        let on_exit = if self == Self::TwinpathKeeping { KEEP } else { "dark" };
        let ports = setting.ports.unwrap_or(&network.ports);
        let ports: Vec<_> = ports.iter().map(|port| format!("{port}{of_ports}")).collect();
        let mut options = words(&format!("--offload {offload} --on-exit {on_exit}"));
        options.extend(["--listen".to_owned(), format!("unix:{}", socket.display())]);
        options.extend(["--socket".to_owned(), directory.join("commands").display().to_string()]);
        options
            .extend(setting.controller.into_iter().flat_map(|to| ["--controller".to_owned(), to.to_owned()]));
        let name = setting.name.unwrap_or("lab");
        let instance = twinpath(session, &network.switch, name, &ports, &options, setting.log).await?;
        Ok(Running { socket, has_flows: true, ..Running::of_twinpath(instance) })
    }
}

/// An empty directory for a switch's files.
pub(crate) fn directory(session: &Session, kind: &str) -> anyhow::Result<PathBuf> {
    let directory = session.run_dir.path().join(format!("{kind}-{}", fastrand::u32(..)));
    std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

/// `plain switch` with the network's ports, of this kind and with its options: on the second CPU, and Open vSwitch, some of
/// whose threads poll, on both.
pub(crate) async fn start_plain(
    session: &Session,
    network: &SwitchNetwork,
    kind: &str,
) -> anyhow::Result<Running> {
    let has_flows = kind.contains("--openflow");
    if kind != "bridge" {
        // The others do not pass on that a checksum is still to be computed.
        network.whole_checksums()?;
    }
    let directory = directory(session, "switch")?;
    let ports = network.ports.join(",");
    let mut args =
        words(&format!("plain switch {kind} --ports {ports} --cpu {} --directory", session.cpus[1]));
    args.push(directory.display().to_string());
    let cpus = if has_flows { &session.cpus[..] } else { &session.cpus[1..] };
    let server = session.launcher.server(Side::At(&network.switch, cpus), &args).await?;
    let pid = server.process("switch_pid");
    let note = server.ready["what"].as_str().map(str::to_owned);
    let socket = directory.join("br0.mgmt");
    Ok(Running { process: Process::Plain(server), pid, socket, note, has_flows })
}

/// twinpath's switch in that namespace, on both CPUs, its worker on the second.
pub(crate) async fn twinpath(
    session: &Session,
    namespace: &Namespace,
    name: &str,
    ports: &[String],
    options: &[String],
    log: Option<OwnedFd>,
) -> anyhow::Result<Instance> {
    let ports: String = ports.iter().map(|port| format!(" --port {port}")).collect();
    let mut args = words(&format!("switch {name}{ports} --cpu {}", session.cpus[1]));
    args.extend_from_slice(options);
    Instance::start_with_log(&session.launcher, Side::At(namespace, &session.cpus), &args, log).await
}

impl Running {
    /// One of twinpath's without controllers.
    pub(crate) fn of_twinpath(instance: Instance) -> Self {
        let pid = Some(instance.pid());
        let socket = PathBuf::new();
        Self { process: Process::Twinpath(instance), pid, socket, note: None, has_flows: false }
    }

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

/// A switch to be measured, by the name that its rows have in the table of its lab.
#[derive(Debug)]
pub(crate) struct Contender<K> {
    pub(crate) name: &'static str,
    pub(crate) kind: K,
}

impl<K> Contender<K> {
    /// Its rows, in the order of the table.
    pub(crate) fn rows(&self, lab: &Lab) -> impl Iterator<Item = &'static str> {
        lab.table.rows.iter().filter(|row| row.how.0 == self.name).map(|row| row.id)
    }
}

/// Measures the contenders of which rows are due in this one of all rounds, in an order of their own in each. A failure to start one is
/// recorded as the reason of those of its rows that were not measured.
pub(crate) async fn in_turns<K>(
    session: &Session,
    (rounds, round): (usize, usize),
    contenders: &'static [Contender<K>],
    random: &mut Rng,
    mut measure: impl AsyncFnMut(&'static Contender<K>, &[&'static str]) -> anyhow::Result<()>,
) {
    let mut contenders: Vec<_> = contenders.iter().collect();
    random.shuffle(&mut contenders);
    for contender in contenders {
        let is_hopeless = |row: &str| session.record.borrow().is_hopeless(row);
        let rows = contender.rows(session.lab).filter(|row| session.is_due(row, rounds, round));
        let rows: Vec<_> = rows.filter(|row| !is_hopeless(row)).collect();
        if rows.is_empty() {
            continue;
        }
        if let Err(error) = measure(contender, &rows).await {
            let left = |row: &&str| !session.record.borrow().has(row, round);
            session.fail(&rows.into_iter().filter(left).collect::<Vec<_>>(), &error);
        }
    }
}
