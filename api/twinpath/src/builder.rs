//! From a service to a running instance.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path as FilePath, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use twinpath_config::{
    Config, ConfigError, MetricsAddress, Mode, PathAsked, Pool, Sandbox, Service as Asked, ServiceKind,
};
use twinpath_control::instance::{self, InstanceError, Plan, Ready};
use twinpath_serve::PoolLimits;
use twinpath_service::Service;

/// Why a service does not run.
///
/// Its `Debug` is its `Display`: a `main` that returns it is what most programs have, and Rust prints its error by `Debug`.
#[derive(thiserror::Error)]
pub enum Error {
    /// Something asked of the builder, or in the file, does not work: one line for each.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// The file.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// It could not start.
    #[error("{0}")]
    Instance(#[from] InstanceError),
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Serves `service`: say where with [`Builder::on`] and at least one of [`Builder::udp`], [`Builder::tcp`] and
/// [`Builder::ethertype`], then [`Builder::run`]. Every worker gets a clone of the service.
#[must_use]
pub fn serve<S: Service + Clone + 'static>(service: S) -> Builder<S> {
    Builder { service, name: "service", config: Config::default() }
}

/// What a service is to run with. Whatever has no method here is in [`Builder::config`].
#[derive(Clone, Debug)]
pub struct Builder<S> {
    service: S,
    name: &'static str,
    config: Config,
}

impl<S: Service + Clone + 'static> Builder<S> {
    /// The word for it in `twinpath show` and in metrics.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// What is asked for: a file may name several services, which [`Builder::run`] refuses.
    fn asked(&mut self) -> &mut Asked {
        if self.config.services.is_empty() {
            self.config.services.push(Asked::default());
        }
        &mut self.config.services[0]
    }

    /// On this interface.
    #[must_use]
    pub fn on(mut self, interface: &str) -> Self {
        self.config.interface.name = Some(interface.to_owned());
        self
    }

    /// At a UDP port, on both paths.
    #[must_use]
    pub fn udp(mut self, port: u16) -> Self {
        self.asked().udp = NonZeroU16::new(port);
        self
    }

    /// At a TCP port.
    #[must_use]
    pub fn tcp(mut self, port: u16) -> Self {
        self.asked().tcp = NonZeroU16::new(port);
        self
    }

    /// Frames of an EtherType, whole, on the fast path.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.asked().ethertype = Some(ethertype);
        self
    }

    /// Only at this address of ours; again for each.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.asked().addresses.push(address);
        self
    }

    /// By this path instead of the best one.
    #[must_use]
    pub const fn path(mut self, path: PathAsked) -> Self {
        self.config.interface.path = path;
        self
    }

    /// With so many workers.
    #[must_use]
    pub const fn workers(mut self, count: u32) -> Self {
        self.config.worker.count = count;
        self
    }

    /// Workers on these CPUs, one each.
    #[must_use]
    pub fn cpus(mut self, cpus: &[u32]) -> Self {
        self.config.worker.count = cpus.len() as u32;
        self.config.worker.cpus = cpus.to_vec();
        self
    }

    /// Workers that idle like this.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.config.worker.mode = mode;
        self
    }

    /// With these threads for what may block, if the service [defers](Service::defers); `[pool]` in a file.
    #[must_use]
    pub fn pool(mut self, pool: PoolLimits) -> Self {
        self.config.pool = Pool::from(pool);
        self
    }

    /// With its command socket there.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.control.socket = Some(path.into());
        self
    }

    /// Confined once it has started, as `twinpath serve` is: the calling thread, and those that the instance starts, give up
    /// capabilities, files and system calls that serving does not need (docs/operations.md), for good. What the service itself
    /// needs to open has to be open before. Other threads of the program stay as they are.
    #[must_use]
    pub const fn sandbox(mut self) -> Self {
        self.config.control.sandbox = Some(Sandbox::On);
        self
    }

    /// With metrics over HTTP there.
    #[must_use]
    pub const fn metrics(mut self, address: SocketAddr) -> Self {
        self.config.control.metrics = Some(MetricsAddress(address));
        self
    }

    /// Everything there is, as docs/config.md describes it; there is one service, and its kind and name mean nothing here.
    pub const fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Takes everything from a file, in the program's format, instead.
    ///
    /// # Errors
    /// [`Error::Config`] names file, line and key.
    pub fn file(mut self, file: &FilePath) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigError::Read { file: file.to_owned(), error })?;
        self.config = Config::parse(&text, file)?;
        Ok(self)
    }

    /// Serves until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// [`Error`]; nothing is left changed then.
    pub fn run(self) -> Result<(), Error> {
        self.run_and_tell(|_| ())
    }

    /// As [`Builder::run`]; `ready` is called once it serves.
    ///
    /// # Errors
    /// As [`Builder::run`].
    pub fn run_and_tell(self, ready: impl FnOnce(&Ready)) -> Result<(), Error> {
        let Self { service, name, mut config } = self;
        let [asked] = config.services.as_mut_slice() else {
            let sentence = "service: this program serves one: leave one table [service] in the file";
            return Err(Error::Invalid(vec![sentence.to_owned()]));
        };
        if asked.udp.is_none() && asked.tcp.is_none() && asked.ethertype.is_none() && asked.flows.is_empty() {
            let sentence = "what is to be served? Add udp(PORT), tcp(PORT) or ethertype(TYPE)";
            return Err(Error::Invalid(vec![sentence.to_owned()]));
        }
        asked.name = Some(name.to_owned());
        // The kinds of the program's own services stand for what may go together.
        asked.kind = Some(if asked.ethertype.is_some() { ServiceKind::Reflect } else { ServiceKind::Echo });
        // Refused: running out of files is counted where it happens.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let files = limit.maximum.and_then(|hard| config.check_open_files(hard));
        let faults: Vec<String> =
            config.validate().into_iter().chain(files).map(|fault| fault.to_string()).collect();
        let plan = Plan::of(&config).filter(|_| faults.is_empty()).ok_or(Error::Invalid(faults))?;
        Ok(instance::run(plan, &[Box::new(service)], None, ready)?)
    }
}
