//! An instance that serves on threads of its own, beside what else the program does.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use twinpath_control::instance;
use twinpath_host::{Ready, Remote, Signals};
use twinpath_plan::Plan;
use twinpath_report::Report;
use twinpath_serve::Prototype;
use twinpath_time::Duration;

use crate::error::Error;
use crate::settings::Settings;

/// A service of a running instance, and its ports, host order; also where the kernel has chosen them.
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

/// The end of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections, and requests handed over to other threads, that were not done in time.
    pub cut_off: u64,
}

/// An instance on threads of its own, from [`Builder::spawn`](crate::Builder::spawn).
///
/// All methods may be called on any thread; those that wait say so, and must not be called in a callback of the
/// service: its worker would wait for itself. If it is dropped, the instance ends at once, and the drop waits for that,
/// and for callbacks that have not returned.
#[derive(Debug)]
pub struct Running {
    services: Vec<ServedPorts>,
    ready: Ready,
    control: Control,
}

/// Control's thread; dropping it ends the instance.
struct Control {
    remote: Remote,
    thread: Option<JoinHandle<Result<u64, Error>>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn start(services: Vec<Box<dyn Prototype + Send>>, settings: Settings) -> Result<Self, Error> {
        let (remote, asked) = Signals::of_program();
        let (tell, told) = sync_channel(1);
        let serve = move || {
            let (loaded, source) = settings.load(services)?;
            let ready = |ready: &Ready, plan: &Plan| {
                // Its receiver waits, and is gone only with the whole program.
                let _ = tell.send((ready.clone(), ports(plan)));
            };
            Ok(instance::run(loaded.plan, &loaded.services, source, Some(asked), ready)?)
        };
        let thread =
            thread::Builder::new().name("twinpath".to_owned()).spawn(serve).map_err(Error::Thread)?;
        let control = Control { remote, thread: Some(thread) };
        match told.recv() {
            Ok((ready, services)) => Ok(Self { services, ready, control }),
            // It has ended without being ready, and says why.
            Err(_) => Err(control.join().err().unwrap_or(Error::Ended(twinpath_host::Ended))),
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

    /// Its command socket, at which `twinpath show --socket` asks.
    #[must_use]
    pub fn socket(&self) -> &FilePath {
        &self.ready.socket
    }

    /// Where its metrics are, if they are offered.
    #[must_use]
    pub const fn metrics(&self) -> Option<SocketAddr> {
        self.ready.metrics
    }

    /// Its present state: what `twinpath show` and the metrics say. Waits for control's thread.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn report(&self) -> Result<Report, Error> {
        Ok(self.control.remote.report()?)
    }

    /// Reads its [file](crate::Builder::file) again, and applies all of it or nothing. Returns the changes, one line for
    /// each. Waits until they are in force.
    ///
    /// # Errors
    /// [`Error::NotReloaded`], [`Error::Ended`].
    pub fn reload(&self) -> Result<Vec<String>, Error> {
        self.control.remote.reload()?.map_err(Error::NotReloaded)
    }

    /// Accepts no more connections, ends each that is open once its requests are answered, closes those that are left
    /// after `timeout`, and ends. Datagrams are answered until then. Waits for that, and for each callback that has not
    /// returned: one that hangs is waited for without end.
    ///
    /// # Errors
    /// Why the instance had ended before.
    pub fn drain(self, timeout: Duration) -> Result<Drained, Error> {
        self.control.remote.end(timeout);
        self.join()
    }

    /// Waits until it ends by itself: by `twinpath drain`, because another instance has taken over, or because it cannot
    /// continue.
    ///
    /// # Errors
    /// Why it could not continue.
    pub fn join(self) -> Result<Drained, Error> {
        let cut_off = self.control.join()?;
        Ok(Drained { cut_off })
    }
}

impl Control {
    fn join(mut self) -> Result<u64, Error> {
        let ended = Err(Error::Ended(twinpath_host::Ended));
        // A panic of control's thread ends the process, so there is none to pass on.
        self.thread
            .take()
            .map_or(ended, |thread| thread.join().unwrap_or(Err(Error::Ended(twinpath_host::Ended))))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.remote.end(Duration::ZERO);
            // Its outcome is in the log.
            let _ = thread.join();
        }
    }
}

fn ports(plan: &Plan) -> Vec<ServedPorts> {
    let ports = |service: &twinpath_plan::ServicePlan| ServedPorts {
        service: service.name.clone(),
        udp: service.udp,
        tcp: service.tcp,
    };
    plan.services.iter().map(ports).collect()
}
