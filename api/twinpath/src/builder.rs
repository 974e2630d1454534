//! The builder that turns services into a running instance.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::de::DeserializeOwned;
#[cfg(feature = "metrics")]
use twinpath_config::MetricsAddress;
#[cfg(feature = "sandbox")]
use twinpath_config::Sandbox;
use twinpath_config::{Config, Mode, PathAsked, Pool, TcpPathAsked};
use twinpath_host::{Ready, Remote, Signals};
use twinpath_instance as instance;
use twinpath_observe::command::{default_socket, run_directory};
use twinpath_serve::Prototype;
use twinpath_service::Service;
use twinpath_worker::thread::PoolLimits;

use crate::error::Error;
use crate::running::{Running, StopHandle};
use crate::settings::{Draft, Settings, parts};

/// Serves `service`. Set an interface with [`Builder::on`] and at least one of [`Builder::udp`],
/// [`Builder::tcp`] and [`Builder::ethertype`]. Then call [`Builder::run`], or [`Builder::spawn`] to serve
/// on separate threads while the program does other work. Every worker gets a clone of the service.
#[must_use]
pub fn serve<S: Service + Clone + 'static>(service: S) -> Builder {
    let asked = Signals::of_program();
    Builder { services: Vec::new(), settings: Settings::default(), asked }.and(service)
}

/// The services of an instance, and its configuration. Settings without a method here are set by
/// [`Builder::configure`], or by a [file](Builder::file). Settings made by methods override the file, in
/// the order of the calls.
pub struct Builder {
    services: Vec<Box<dyn Prototype + Send>>,
    settings: Settings,
    /// The two ends of the channel between the program and the instance.
    asked: (Remote, Signals),
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("services", &self.settings.names).finish_non_exhaustive()
    }
}

/// Number of further instances started in this process: each gets a command socket of its own.
static SPAWNED: AtomicU32 = AtomicU32::new(0);

impl Builder {
    /// Adds another service to the instance, with its own ports. [`Builder::named`], [`Builder::udp`],
    /// [`Builder::tcp`], [`Builder::tcp_path`], [`Builder::ethertype`] and [`Builder::address`] apply to the
    /// service that was added last. Give each service a name; an instance can have at most 16.
    ///
    /// ```no_run
    /// # use twinpath::{Echo, Error};
    /// # fn main() -> Result<(), Error> {
    /// twinpath::serve(Echo).named("echo").udp(7).and(Echo).named("talk").tcp(517).on("eth0").run()
    /// # }
    /// ```
    #[must_use]
    pub fn and<S: Service + Clone + 'static>(mut self, service: S) -> Self {
        self.services.push(Box::new(service));
        self.settings.add_service();
        self
    }

    /// Sets the service's name for `twinpath show` and metrics, and for its table in a file that has
    /// several.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.settings.name_service(name);
        self
    }

    /// Serves on this interface.
    #[must_use]
    pub fn on(self, interface: &str) -> Self {
        let interface = interface.to_owned();
        self.configure(move |config| config.interface.name = Some(interface.clone()))
    }

    /// Serves this UDP port, on both paths. With 0 the kernel chooses a port, which [`Running::udp_port`]
    /// returns.
    #[must_use]
    pub fn udp(mut self, port: u16) -> Self {
        self.settings.change_service(move |draft, at| {
            draft.config.services[at].udp = NonZeroU16::new(port);
            draft.chosen[at].udp = port == 0;
        });
        self
    }

    /// Serves this TCP port. With 0 the kernel chooses a port, which [`Running::tcp_port`] returns.
    #[must_use]
    pub fn tcp(mut self, port: u16) -> Self {
        self.settings.change_service(move |draft, at| {
            draft.config.services[at].tcp = NonZeroU16::new(port);
            draft.chosen[at].tcp = port == 0;
        });
        self
    }

    /// Sets the path of the service's TCP connections; by default it is the kernel's. With
    /// [`TcpPath::Fast`](crate::TcpPath::Fast) a TCP engine in the worker takes the connections that begin while
    /// the interface has a fast path, and the kernel the others. The service cannot tell them apart;
    /// [`Running::report`] counts both.
    ///
    /// ```no_run
    /// # use twinpath::{Echo, Error, TcpPath};
    /// # fn main() -> Result<(), Error> {
    /// twinpath::serve(Echo).on("eth0").tcp(7).tcp_path(TcpPath::Fast).run()
    /// # }
    /// ```
    #[must_use]
    pub fn tcp_path(mut self, path: TcpPathAsked) -> Self {
        self.settings.change_service(move |draft, at| draft.config.services[at].tcp_path = path);
        self
    }

    /// Serves whole frames with this EtherType, on the fast path.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.settings.change_service(move |draft, at| {
            draft.config.services[at].ethertype = Some(ethertype);
        });
        self
    }

    /// Serves only this local address; call it again for each further one.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.settings.change_service(move |draft, at| draft.config.services[at].addresses.push(address));
        self
    }

    /// Uses this path instead of the best one.
    #[must_use]
    pub fn path(self, path: PathAsked) -> Self {
        self.configure(move |config| config.interface.path = path)
    }

    /// Uses this number of workers.
    #[must_use]
    pub fn workers(self, count: u32) -> Self {
        self.configure(move |config| config.worker.count = count)
    }

    /// Runs workers on these CPUs, one each.
    #[must_use]
    pub fn cpus(self, cpus: &[u32]) -> Self {
        let cpus = cpus.to_vec();
        self.configure(move |config| {
            config.worker.count = cpus.len() as u32;
            config.worker.cpus.clone_from(&cpus);
        })
    }

    /// Sets the idle mode of the workers.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        self.configure(move |config| config.worker.mode = mode)
    }

    /// Sets the limits of the threads for work that may block, if the service [defers](Service::defers); `[pool]` in
    /// a file.
    #[must_use]
    pub fn pool(self, pool: PoolLimits) -> Self {
        self.configure(move |config| config.pool = Pool::from(pool))
    }

    /// Sets the path of the command socket.
    #[must_use]
    pub fn socket(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.configure(move |config| config.control.socket = Some(path.clone()))
    }

    /// Confines the process once it has started, as `twinpath serve` does. The calling thread and the
    /// instance's threads permanently give up the capabilities, files and system calls that serving does
    /// not need (docs/operations.md). The service must have opened its files and sockets before. Other
    /// threads of the program are not changed. With [`Builder::spawn`] the calling thread is not changed
    /// either. Needs the feature `sandbox`.
    #[cfg(feature = "sandbox")]
    #[must_use]
    pub fn sandbox(self) -> Self {
        self.configure(|config| config.control.sandbox = Some(Sandbox::On))
    }

    /// Serves metrics over HTTP at this address. Needs the feature `metrics`.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(self, address: std::net::SocketAddr) -> Self {
        self.configure(move |config| config.control.metrics = Some(MetricsAddress(address)))
    }

    /// Changes any setting of the configuration, as described in docs/config.md. Its services are in the
    /// order in which they were added; their kinds and names are ignored. Called at the start, and again
    /// for each reload.
    #[must_use]
    pub fn configure(mut self, change: impl Fn(&mut Config) + Send + 'static) -> Self {
        self.settings.change(move |draft: &mut Draft| change(&mut draft.config));
        self
    }

    /// Reads the configuration from a file in the program's format: at the start, and again with [`Running::reload`],
    /// SIGHUP or `twinpath reload`. The services of the program and the tables `[[service]]` of the file have the same
    /// names; a single `[service]` needs none.
    #[must_use]
    pub fn file(mut self, file: impl AsRef<FilePath>) -> Self {
        self.settings.file = Some(file.as_ref().to_owned());
        self
    }

    /// Passes the program its own table `[program]` of the [file](Self::file), or the table's default if
    /// there is none. `apply` is called on the control thread: at the start, and after each reload, once
    /// the rest of the file is in force. It must not block. A mistake in the table rejects the whole file.
    ///
    /// ```
    /// # #[derive(Clone)] struct Cache;
    /// # impl twinpath::Service for Cache {
    /// #     type Connection = ();
    /// #     fn accept(&mut self, _: twinpath::Instant, _: std::net::SocketAddr) -> Result<(), twinpath::Reason> { Ok(()) }
    /// # }
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// #[derive(Default, serde::Deserialize)]
    /// #[serde(default, deny_unknown_fields)]
    /// struct Section {
    ///     bytes: u64,
    /// }
    ///
    /// let bytes = Arc::new(AtomicU64::new(0));
    /// let of_file = Arc::clone(&bytes);
    /// let builder = twinpath::serve(Cache)
    ///     .section(move |section: Section| of_file.store(section.bytes, Ordering::Relaxed))
    ///     .file("cache.toml");
    /// ```
    #[must_use]
    pub fn section<T: DeserializeOwned + Default + 'static>(
        mut self,
        apply: impl Fn(T) + Send + Sync + 'static,
    ) -> Self {
        self.settings.section(apply);
        self
    }

    /// A handle that ends the instance from any thread. It may be used before the instance
    /// [runs](Self::run).
    ///
    /// ```
    /// # fn main() -> Result<(), twinpath::Error> {
    /// let builder = twinpath::serve(twinpath::Echo).on("lo").path(twinpath::Path::Kernel).udp(0);
    /// let stop = builder.stop_handle();
    /// # let socket = std::env::temp_dir().join(format!("twinpath-{}", std::process::id())).join("socket");
    /// # let builder = builder.socket(socket);
    /// std::thread::spawn(move || stop.stop(std::time::Duration::from_secs(1)));
    /// builder.run()
    /// # }
    /// ```
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.asked.0.clone())
    }

    /// Serves until SIGINT or SIGTERM, or until a [handle](Self::stop_handle) ends it. The calling thread is blocked,
    /// also if it belongs to the runtime of another event loop.
    ///
    /// # Errors
    /// [`Error`]; nothing on the host is left changed then, but for what [`Error::LeftBehind`] names.
    pub fn run(self) -> Result<(), Error> {
        self.run_and_tell(|_| ())
    }

    /// Like [`Builder::run`]; calls `ready` once the instance serves.
    ///
    /// # Errors
    /// As [`Builder::run`].
    pub fn run_and_tell(self, ready: impl FnOnce(&Ready)) -> Result<(), Error> {
        let (_, signals) = self.asked;
        let signals = signals.with_those_of_process();
        let (loaded, source) = self.settings.load(self.services)?;
        let parts = parts(&loaded.services);
        instance::run(loaded.plan, parts, source, signals, |state, _| ready(state))?;
        Ok(())
    }

    /// Serves on separate threads, and returns once it serves. Signals are left to the program, and the
    /// service manager is not notified. A process may have several such instances. As with
    /// [`Builder::run`], the process's limit of open files is raised. A panic on a thread of the instance,
    /// outside of the service's callbacks, ends the process, so that nothing is left half served.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let running = twinpath::serve(twinpath::Echo).on("lo").path(twinpath::Path::Kernel).udp(0).spawn()?;
    /// let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// client.send_to(b"hello", ("127.0.0.1", running.udp_port().expect("it was asked for")))?;
    /// let mut reply = [0; 16];
    /// let (len, _) = client.recv_from(&mut reply)?;
    /// assert_eq!(&reply[..len], b"hello");
    /// assert_eq!(running.report()?.services[0].serve.kernel_requests, 1);
    /// running.drain(std::time::Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Builder::run`], and [`Error::Thread`].
    pub fn spawn(self) -> Result<Running, Error> {
        let number = SPAWNED.fetch_add(1, Ordering::Relaxed);
        // A socket path set by the program takes precedence.
        let mut settings = self.settings;
        settings.finish(move |Draft { config, .. }| {
            let Config { control, interface, services, .. } = config;
            let (None, Some(interface)) = (&control.socket, &interface.name) else { return };
            let name = match services.as_slice() {
                [only] => only.shown_name().to_owned(),
                _ => "services".to_owned(),
            };
            let several = if number == 0 { String::new() } else { format!("-{}", number + 1) };
            control.socket = Some(default_socket(&run_directory(), &name, &format!("{interface}{several}")));
        });
        Running::start(self.services, settings, self.asked)
    }
}
