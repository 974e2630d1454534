//! The modes of a walk: what is attached to the client's interface, and the programs for it.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use twinpath_clients::measure::report::BenchReport;
use twinpath_sys::Namespace;

use crate::lab::counters::Counters;
use crate::lab::instance::{Facts, Instance, Proven};
use crate::lab::peers::{FAST_PORT, LINGER_MS, PLAIN_PORT};
use crate::lab::process::{Background, Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::{self, CLIENT, End, OWNED, OWNED_PEER, SERVER};
use crate::plain::nfs::NFS_PORT;

/// Requests per second of the load beside a walk.
pub(super) const LOAD_PER_S: f64 = 50_000.0;
/// The share of it that must have been answered.
const LOAD_SHARE: f64 = 0.95;
/// Longer than any walk; the load is stopped with the walk.
const LOAD_S: u32 = 600;
/// The number of frames in a fifth of a second, twice the warm-up.
const LOADED_FRAMES: u64 = 10_000;
/// The interval of checks for it.
const LOAD_LOOK: Duration = Duration::from_millis(10);
/// Requests that verify an attachment.
const PROBES: u64 = 16;
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// The kernel's interface of the exception port.
const TAP: &str = "tap0";

/// The mode of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    Plain,
    /// The same once more, to show how much two walks of the same mode differ.
    Again,
    Attached,
    Busy,
    BusyKernel,
    Exception,
    ExceptionWorkers,
}

impl Mode {
    pub(super) const ALL: [Self; 7] = [
        Self::Plain,
        Self::Again,
        Self::Attached,
        Self::Busy,
        Self::BusyKernel,
        Self::Exception,
        Self::ExceptionWorkers,
    ];

    /// The row of its walks.
    pub(super) fn row(self) -> &'static str {
        match self {
            Self::Plain => "nfs-plain",
            Self::Again => "nfs-plain-again",
            Self::Attached => "nfs-attached",
            Self::Busy => "nfs-busy",
            Self::BusyKernel => "nfs-busy-kernel",
            Self::Exception => "nfs-exception",
            Self::ExceptionWorkers => "nfs-exception-workers",
        }
    }
}

impl Mode {
    /// The row of a listing in a guest, if there is one.
    pub(super) fn listing_row(self) -> Option<&'static str> {
        match self {
            Self::Plain => Some("guest-nfs-plain"),
            Self::Attached => Some("guest-nfs-attached"),
            Self::Exception => Some("guest-nfs-exception"),
            Self::Again | Self::Busy | Self::BusyKernel | Self::ExceptionWorkers => None,
        }
    }
}

/// A mode that has been set up.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// The namespace of the client's socket, and its interface.
    pub(super) namespace: &'a Namespace,
    pub(super) interface: &'static str,
    /// The server's end of the link, in the server's namespace.
    pub(super) peer: &'static str,
    pub(super) target: SocketAddr,
    /// The path in use.
    pub(super) path: Option<String>,
    pub(super) notes: Vec<String>,
    running: Running,
}

/// The programs of a mode.
#[derive(Debug, Default)]
struct Running {
    twinpath: Option<Instance>,
    kernel: Option<Server>,
    load: Option<Background>,
}

/// Measurements during a walk.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) load: Option<BenchReport>,
    /// Frames that twinpath received on the fast path during the whole scene.
    pub(super) fast_path_frames: Option<u64>,
}

/// Sets scenes up and takes them down.
pub(super) struct Stage<'a> {
    pub(super) session: &'a Session,
    /// A namespace with an interface for user space alone.
    pub(super) owner: &'a Namespace,
}

impl<'a> Stage<'a> {
    /// CPU of twinpath and of all load.
    fn cpu(&self) -> &'a [usize] {
        &self.session.cpus[1..]
    }

    fn client(&self) -> &'a Namespace {
        &self.session.launcher.topology().client
    }

    fn server(&self) -> &'a Namespace {
        &self.session.launcher.topology().server
    }

    pub(super) async fn set(&self, mode: Mode) -> anyhow::Result<Scene<'a>> {
        match mode {
            Mode::Plain | Mode::Again => Ok(self.scene(Running::default())),
            Mode::Attached => {
                let Proven { instance, path, proof } = self.attach().await?;
                instance.until_idle().await?;
                let scene = self.scene(Running { twinpath: Some(instance), ..Running::default() });
                Ok(Scene { path: Some(path), notes: vec![proof], ..scene })
            }
            Mode::Busy => {
                let Proven { instance, path, proof } = self.attach().await?;
                let load = self.load(FAST_PORT).await?;
                let scene = self.scene(Running { twinpath: Some(instance), load: Some(load), kernel: None });
                Ok(Scene { path: Some(path), notes: vec![proof], ..scene })
            }
            Mode::BusyKernel => {
                let echo = words(&format!(
                    "plain udp-echo --listen {}:{PLAIN_PORT} --method connected --mode interrupt",
                    CLIENT.ipv4
                ));
                let launcher = &self.session.launcher;
                let server = launcher.server(Side::At(self.client(), self.cpu()), &echo).await?;
                let load = self.load(PLAIN_PORT).await?;
                Ok(self.scene(Running { kernel: Some(server), load: Some(load), twinpath: None }))
            }
            Mode::Exception | Mode::ExceptionWorkers => self.exception(mode).await,
        }
    }

    /// A scene over the veth pair, with any programs running.
    fn scene(&self, running: Running) -> Scene<'a> {
        Scene {
            namespace: self.client(),
            interface: CLIENT.interface,
            peer: SERVER.interface,
            target: nfs_of(SERVER),
            path: None,
            notes: Vec::new(),
            running,
        }
    }

    /// twinpath on the client's interface.
    async fn attach(&self) -> anyhow::Result<Proven> {
        let mut args = words(&format!(
            "serve echo --on {} --udp {FAST_PORT} --mode adaptive --workers 1 --cpu {} --linger-ms {LINGER_MS} --reply-rate 0 \
             --reflex off",
            CLIENT.interface, self.session.cpus[1]
        ));
        args.extend(["--socket".to_owned(), self.socket()]);
        let probe = self.load_args(FAST_PORT, &format!("--inflight 1 --count {PROBES} --warmup 0"));
        let probe = (Side::At(self.server(), self.cpu()), &probe[..], PROBES);
        let side = Side::At(self.client(), self.cpu());
        Instance::proven(&self.session.launcher, side, &args, probe).await
    }

    /// Starts requests from the server's side to a service on the client's side, on the CPU that the walk does not use.
    /// They arrive at the full rate when this returns, so that the load lasts for the whole walk.
    async fn load(&self, port: u16) -> anyhow::Result<Background> {
        let before = self.frames_received()?;
        let options =
            format!("--inflight 64 --batch --rate {LOAD_PER_S:.0} --duration {LOAD_S} --warmup 0.1");
        let side = Side::At(self.server(), self.cpu());
        let load = self.session.launcher.background(side, &self.load_args(port, &options))?;
        let deadline = Instant::now() + PROBE_DEADLINE;
        while self.frames_received()? < before + LOADED_FRAMES {
            ensure!(Instant::now() < deadline, "the load did not come up to {LOAD_PER_S:.0} requests/s");
            tokio::time::sleep(LOAD_LOOK).await;
        }
        Ok(load)
    }

    /// Frames received on the client's interface, on any path.
    fn frames_received(&self) -> anyhow::Result<u64> {
        Ok(Counters::of(self.client(), CLIENT.interface)?.received)
    }

    fn load_args(&self, port: u16, options: &str) -> Vec<String> {
        words(&format!(
            "bench echo {}:{port} --udp --path kernel --mode interrupt --size 64 {options} --json",
            CLIENT.ipv4
        ))
    }

    /// A TAP interface for the kernel's stack, and twinpath between it and an interface that the kernel does not use.
    ///
    /// Frames that cross within the kernel need no worker. A worker that carries them runs alternately with client and
    /// server on their CPU, because all three wait for each other: on another CPU it would have to wake theirs for
    /// every frame, which costs more than its own work.
    async fn exception(&self, mode: Mode) -> anyhow::Result<Scene<'a>> {
        let (carrier, cpus) = match mode {
            Mode::ExceptionWorkers => ("workers", &self.session.cpus[..1]),
            _ => ("kernel", self.cpu()),
        };
        let mut args = words(&format!(
            "bridge {} --kernel {TAP} --carrier {carrier} --cpu {} --linger-ms {LINGER_MS}",
            OWNED.interface, cpus[0]
        ));
        args.extend(["--socket".to_owned(), self.socket()]);
        let side = Side::At(self.owner, cpus);
        let instance = Instance::start_at(&self.session.launcher, side, &args).await?;
        let tap = End { interface: TAP, ..OWNED };
        topology::address(self.owner, tap).context("the exception port's interface")?;
        let report = instance.report().await?;
        Ok(Scene {
            namespace: self.owner,
            // Frames that cross within the kernel leave the TAP before they could be captured there.
            interface: if mode == Mode::ExceptionWorkers { TAP } else { OWNED.interface },
            peer: OWNED_PEER.interface,
            target: nfs_of(OWNED_PEER),
            path: Some(report.path()),
            notes: vec![format!("bridge between {} and {TAP}, carrier {carrier}", OWNED.interface)],
            running: Running { twinpath: Some(instance), ..Running::default() },
        })
    }

    fn socket(&self) -> String {
        self.session.run_dir.path().join("kni.sock").display().to_string()
    }

    /// Ends everything, and returns the measurements during the walk.
    pub(super) async fn clear(&self, scene: Scene<'a>) -> anyhow::Result<Beside> {
        let launcher = &self.session.launcher;
        let mut beside = Beside::default();
        let Running { twinpath, kernel, load } = scene.running;
        let load = match load {
            Some(load) => Some(launcher.finish(load).await),
            None => None,
        };
        if let Some(instance) = twinpath {
            beside.fast_path_frames = Some(instance.report().await?.frames_in());
            instance.stop(launcher).await?;
        }
        if let Some(server) = kernel {
            launcher.stop(server).await?;
        }
        beside.load = load.transpose()?.map(|printed| load_of(&printed)).transpose()?;
        Ok(beside)
    }
}

fn load_of(printed: &str) -> anyhow::Result<BenchReport> {
    let report: BenchReport = serde_json::from_str(printed).context("cannot read the result of bench")?;
    ensure!(report.corrupt == 0, "{} replies of the load were corrupt", report.corrupt);
    Ok(report)
}

/// Fails a walk whose load did not reach its rate.
pub(super) fn ensure_full_load(load: &BenchReport) -> anyhow::Result<()> {
    ensure!(
        load.requests_per_s >= LOAD_SHARE * LOAD_PER_S,
        "only {:.0} of the load's {LOAD_PER_S:.0} requests/s were answered",
        load.requests_per_s
    );
    Ok(())
}

fn nfs_of(end: End) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(end.ipv4), NFS_PORT)
}
