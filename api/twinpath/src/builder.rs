//! The builder that turns a service into a running instance.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path as FilePath, PathBuf};

use twinpath_config::{
    Config, ConfigError, Given, MetricsAddress, Mode, PathAsked, Pool, Sandbox, Service as ServiceConfig,
    ServiceKind,
};
use twinpath_control::instance::{self, InstanceError};
use twinpath_host::Ready;
use twinpath_plan::Plan;
use twinpath_serve::PoolLimits;
use twinpath_service::Service;
use twinpath_sys::descriptors;

/// Why a service could not run.
///
/// Its `Debug` is its `Display`: most programs return it from `main`, and Rust prints such an error by `Debug`.
#[derive(thiserror::Error)]
pub enum Error {
    /// Settings of the builder or the file are invalid: one line for each.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// The configuration file could not be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The instance could not start.
    #[error("{0}")]
    Instance(#[from] InstanceError),
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Serves `service`. Set an interface with [`Builder::on`] and at least one of [`Builder::udp`], [`Builder::tcp`] and
/// [`Builder::ethertype`], then call [`Builder::run`]. Every worker gets a clone of the service.
#[must_use]
pub fn serve<S: Service + Clone + 'static>(service: S) -> Builder<S> {
    Builder { service, name: "service", config: Config::default(), given: Given::default() }
}

/// The configuration of a service's instance. Settings without a method here are in [`Builder::config`].
#[derive(Clone, Debug)]
pub struct Builder<S> {
    service: S,
    name: &'static str,
    config: Config,
    given: Given,
}

impl<S: Service + Clone + 'static> Builder<S> {
    /// Sets the service's name for `twinpath show` and metrics.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The configuration of the service. A file may have several services, which [`Builder::run`] refuses.
    fn service_config(&mut self) -> &mut ServiceConfig {
        if self.config.services.is_empty() {
            self.config.services.push(ServiceConfig::default());
        }
        &mut self.config.services[0]
    }

    /// Serves on this interface.
    #[must_use]
    pub fn on(mut self, interface: &str) -> Self {
        self.config.interface.name = Some(interface.to_owned());
        self
    }

    /// Serves this UDP port, on both paths.
    #[must_use]
    pub fn udp(mut self, port: u16) -> Self {
        self.service_config().udp = NonZeroU16::new(port);
        self
    }

    /// Serves this TCP port.
    #[must_use]
    pub fn tcp(mut self, port: u16) -> Self {
        self.service_config().tcp = NonZeroU16::new(port);
        self
    }

    /// Serves whole frames of this EtherType, on the fast path.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.service_config().ethertype = Some(ethertype);
        self
    }

    /// Serves only this local address; call it again for each further one.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.service_config().addresses.push(address);
        self
    }

    /// Uses this path instead of the best one.
    #[must_use]
    pub const fn path(mut self, path: PathAsked) -> Self {
        self.config.interface.path = path;
        self
    }

    /// Uses this number of workers.
    #[must_use]
    pub const fn workers(mut self, count: u32) -> Self {
        self.config.worker.count = count;
        self
    }

    /// Runs workers on these CPUs, one each.
    #[must_use]
    pub fn cpus(mut self, cpus: &[u32]) -> Self {
        self.config.worker.count = cpus.len() as u32;
        self.config.worker.cpus = cpus.to_vec();
        self
    }

    /// Sets the workers' idle mode.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.config.worker.mode = mode;
        self
    }

    /// Sets the limits of the threads for work that may block, if the service [defers](Service::defers); `[pool]` in
    /// a file.
    #[must_use]
    pub fn pool(mut self, pool: PoolLimits) -> Self {
        self.config.pool = Pool::from(pool);
        self
    }

    /// Sets the path of the command socket.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.control.socket = Some(path.into());
        self
    }

    /// Confines the process once it has started, as `twinpath serve` does: the calling thread and the instance's
    /// threads give up capabilities, files and system calls that serving does not need (docs/operations.md), for
    /// good. The service must have opened what it needs before. Other threads of the program are not changed.
    #[must_use]
    pub const fn sandbox(mut self) -> Self {
        self.config.control.sandbox = Some(Sandbox::On);
        self
    }

    /// Serves metrics over HTTP at this address.
    #[must_use]
    pub const fn metrics(mut self, address: SocketAddr) -> Self {
        self.config.control.metrics = Some(MetricsAddress(address));
        self
    }

    /// The whole configuration, as docs/config.md describes it. There is one service, and its kind and name are
    /// ignored.
    pub const fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Replaces the configuration by that of a file in the program's format.
    ///
    /// # Errors
    /// [`Error::Config`] names file, line and key.
    pub fn file(mut self, file: &FilePath) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigError::Read { file: file.to_owned(), error })?;
        self.config = Config::parse(&text, file)?;
        self.given = Given::of_file(&text);
        Ok(self)
    }

    /// Serves until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// [`Error`]; nothing on the host is left changed then.
    pub fn run(self) -> Result<(), Error> {
        self.run_and_tell(|_| ())
    }

    /// As [`Builder::run`]; calls `ready` once it serves.
    ///
    /// # Errors
    /// As [`Builder::run`].
    pub fn run_and_tell(self, ready: impl FnOnce(&Ready)) -> Result<(), Error> {
        let Self { service, name, mut config, given } = self;
        let [configured] = config.services.as_mut_slice() else {
            let sentence = "service: this program serves one: leave one table [service] in the file";
            return Err(Error::Invalid(vec![sentence.to_owned()]));
        };
        if configured.udp.is_none()
            && configured.tcp.is_none()
            && configured.ethertype.is_none()
            && configured.flows.is_empty()
        {
            let sentence = "what is to be served? Add udp(PORT), tcp(PORT) or ethertype(TYPE)";
            return Err(Error::Invalid(vec![sentence.to_owned()]));
        }
        configured.name = Some(name.to_owned());
        // The kind of one of the program's own services selects which settings are allowed together.
        configured.kind =
            Some(if configured.ethertype.is_some() { ServiceKind::Reflect } else { ServiceKind::Echo });
        // If this is refused, the limit of descriptors is counted where it is reached.
        let files = descriptors::raise_limit().and_then(|hard| config.check_open_files(hard));
        let faults: Vec<String> =
            config.validate().into_iter().chain(files).map(|fault| fault.to_string()).collect();
        let mut plan = Plan::of(&config).filter(|_| faults.is_empty()).ok_or(Error::Invalid(faults))?;
        // Its kind is ours to say, and is none of the program's.
        plan.settings = config.settings(&Config::default(), &given);
        plan.settings.retain(|setting| setting.key != "service.kind");
        Ok(instance::run(plan, &[Box::new(service)], None, ready)?)
    }
}
