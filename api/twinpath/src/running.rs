//! An instance that serves on its own threads, beside the rest of the program.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

use twinpath_host::{Ended, Ready, Remote, Signals};
use twinpath_instance as instance;
use twinpath_instance::plan::Plan;
use twinpath_observe::report::Report;
use twinpath_serve::Prototype;
use twinpath_time::Duration;

use crate::error::Error;
use crate::settings::{Settings, parts};

/// A service of a running instance, and its ports in host order, including ports chosen by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedPorts {
    /// The service's name.
    pub service: String,
    /// Its UDP port.
    pub udp: Option<u16>,
    /// Its TCP port.
    pub tcp: Option<u16>,
}

/// The result of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections, requests handed over to other threads, and messages from other threads
    /// ([`SendHandle`](crate::SendHandle)) that were not done in time.
    pub cut_off: u64,
}

/// Ends an instance from any thread: from [`Running::stop_handle`], or from
/// [`Builder::stop_handle`](crate::Builder::stop_handle) before it runs.
///
/// Clones end the same instance. A handle keeps nothing alive, and does nothing once the instance has
/// ended.
#[derive(Clone)]
pub struct StopHandle(pub(crate) Remote);

impl std::fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StopHandle")
    }
}

impl StopHandle {
    /// Makes the instance drain for at most `timeout`, and end. Unlike [`Running::drain`] it does not wait,
    /// so it may also be called in a callback of the service. Zero ends the instance immediately. A call
    /// before the instance runs takes effect when it does. If it is called several times, the earliest time
    /// counts.
    pub fn stop(&self, timeout: Duration) {
        self.0.end(timeout);
    }
}

/// How long the control thread may take beyond the timeout of a drain, or after a drop, before it is given
/// up.
const CONTROL_PATIENCE: Duration = Duration::from_secs(5);

/// An instance on its own threads, from [`Builder::spawn`](crate::Builder::spawn).
///
/// All methods may be called on any thread. Those that wait say so; they must not be called in a callback
/// of the service, because its worker would wait for itself. Dropping it ends the instance immediately, and
/// waits for the end: at most one second for each worker whose callback has not returned, and five seconds
/// in all. Such a worker is left behind with its sockets, and logged as an error.
#[derive(Debug)]
pub struct Running {
    services: Vec<ServedPorts>,
    ready: Ready,
    control: Control,
}

/// The control thread; dropping this ends the instance.
struct Control {
    remote: Remote,
    /// How the instance ended; taken by the caller that waits for it.
    outcome: Option<Receiver<Result<u64, Error>>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn start(
        services: Vec<Box<dyn Prototype + Send>>,
        settings: Settings,
        (remote, signals): (Remote, Signals),
    ) -> Result<Self, Error> {
        let (tell, told) = sync_channel(1);
        let (end, outcome) = sync_channel(1);
        let serve = move || {
            let (loaded, source) = settings.load(services)?;
            let ready = |ready: &Ready, plan: &Plan| {
                // Its receiver is waiting, unless the whole program ends.
                let _ = tell.send((ready.clone(), ports(plan)));
            };
            Ok(instance::run(loaded.plan, parts(&loaded.services), source, signals, ready)?)
        };
        let control = thread::Builder::new().name("twinpath".to_owned());
        // The thread that waits for the end may have given it up.
        control.spawn(move || drop(end.send(serve()))).map_err(Error::Thread)?;
        let control = Control { remote, outcome: Some(outcome) };
        match told.recv() {
            Ok((ready, services)) => Ok(Self { services, ready, control }),
            // It has ended without being ready, and says why.
            Err(_) => Err(control.join(None).err().unwrap_or(Error::Ended(Ended))),
        }
    }

    /// The services with their ports, in the order in which they were added.
    #[must_use]
    pub fn services(&self) -> &[ServedPorts] {
        &self.services
    }

    /// The UDP port of the first service that has one.
    #[must_use]
    pub fn udp_port(&self) -> Option<u16> {
        self.services.iter().find_map(|service| service.udp)
    }

    /// The TCP port of the first service that has one.
    #[must_use]
    pub fn tcp_port(&self) -> Option<u16> {
        self.services.iter().find_map(|service| service.tcp)
    }

    /// Its command socket, for `twinpath show --socket`.
    #[must_use]
    pub fn socket(&self) -> &FilePath {
        &self.ready.socket
    }

    /// The address of the metrics endpoint, if there is one.
    #[must_use]
    pub const fn metrics(&self) -> Option<SocketAddr> {
        self.ready.metrics
    }

    /// Its present state, as in `twinpath show` and the metrics. Waits for the control thread.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn report(&self) -> Result<Report, Error> {
        Ok(self.control.remote.report()?)
    }

    /// Reloads its [file](crate::Builder::file), and applies all of it or nothing. Waits until the changes
    /// are in force, and returns them, one line each.
    ///
    /// # Errors
    /// [`Error::NotReloaded`], [`Error::Ended`].
    pub fn reload(&self) -> Result<Vec<String>, Error> {
        self.control.remote.reload()?.map_err(Error::NotReloaded)
    }

    /// A handle that ends the instance from any thread.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.control.remote.clone())
    }

    /// Accepts no more connections, closes each open one once its requests are answered, closes the
    /// remaining ones after `timeout`, and ends. Datagrams are answered until the end. Waits for the end:
    /// for the timeout, and a second or two more if a callback hangs.
    ///
    /// # Errors
    /// [`Error::LeftBehind`] if a worker has not ended because a callback of the service has not returned,
    /// or if the control thread has not ended. Otherwise the reason why the instance had ended before.
    pub fn drain(self, timeout: Duration) -> Result<Drained, Error> {
        // Zero would end it without a drain, and would not count what is cut off.
        self.control.remote.end(timeout.max(Duration::from_micros(1)));
        let cut_off = self.control.join(Some(timeout.saturating_add(CONTROL_PATIENCE)))?;
        Ok(Drained { cut_off })
    }

    /// Waits until it ends by itself: because of `twinpath drain`, because another instance has taken over,
    /// or because it cannot continue.
    ///
    /// # Errors
    /// Why it could not continue.
    pub fn join(self) -> Result<Drained, Error> {
        let cut_off = self.control.join(None)?;
        Ok(Drained { cut_off })
    }
}

impl Control {
    /// Waits until the instance has ended, for at most `patience`.
    fn join(mut self, patience: Option<Duration>) -> Result<u64, Error> {
        match self.outcome.take() {
            Some(outcome) => wait(&outcome, patience),
            None => Err(Error::Ended(Ended)),
        }
    }
}

fn wait(outcome: &Receiver<Result<u64, Error>>, patience: Option<Duration>) -> Result<u64, Error> {
    match outcome.recv_timeout(patience.unwrap_or(Duration::MAX)) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(Error::LeftBehind(vec![
            "the control thread is left behind: what it has called has not returned, such as the closure of a section"
                .to_owned(),
        ])),
        // A panic of the control thread ends the process, so there is none to pass on.
        Err(RecvTimeoutError::Disconnected) => Err(Error::Ended(Ended)),
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            self.remote.end(Duration::ZERO);
            // Nobody asks how it ended; the rest of its outcome is in the log.
            if let Err(Error::LeftBehind(who)) = wait(&outcome, Some(CONTROL_PATIENCE)) {
                tracing::error!("the instance was dropped, and {}", who.join("; "));
            }
        }
    }
}

fn ports(plan: &Plan) -> Vec<ServedPorts> {
    let ports = |service: &twinpath_instance::plan::ServicePlan| ServedPorts {
        service: service.name.clone(),
        udp: service.udp,
        tcp: service.tcp,
    };
    plan.services.iter().map(ports).collect()
}
