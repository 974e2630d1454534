//! The stand-in: one more worker, which serves the kernel's sockets in place of a worker that is stuck.

use std::future::pending;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant as Due;
use twinpath_hold::Held;
use twinpath_host::{StartError, readable_copy, until_readable};
use twinpath_plan::ServicePlan;
use twinpath_serve::{HandlerPool, KernelSide, Prototype, Routes, ServeCommand, ServeConfig, Share};
use twinpath_time::Duration;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::place::Placement;

use crate::service::{NewService, part_of};
use crate::worker::WorkerHandle;

/// How often to look whether a stuck worker has moved on.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// It has no ports: a pool has one frame at least.
const POOL_FRAMES: u32 = 1;

/// The worker that serves in place of others. While none is stuck it sleeps.
pub struct StandIn {
    /// Its handle.
    pub worker: WorkerHandle,
    /// Readable when it has something to say.
    says: AsyncFd<OwnedFd>,
    /// It was told to serve.
    serves: bool,
    /// When to look whether it is still needed.
    look_at: Option<Due>,
}

impl StandIn {
    /// Starts one for these services, which are held by now, beside so many workers. It has limits of its own, as those of one worker
    /// more, and is pinned to no CPU: that of the stuck worker may be taken. Called within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]; there is no thread then.
    pub fn start<'a>(
        workers: usize,
        services: impl Iterator<Item = (&'a ServicePlan, &'a Held, &'a dyn Prototype)>,
        addresses: &Arc<[IpAddr]>,
        routes: Routes,
    ) -> Result<Self, StartError> {
        let descriptors = |source| StartError::Descriptors { worker: workers, source };
        let mut new = Vec::new();
        for (plan, held, service) in services {
            let (udp, listeners) = held.for_stand_in().map_err(descriptors)?;
            let handlers = service.defers().then(|| HandlerPool::new(plan.pool, None)).transpose();
            let kernel = KernelSide {
                udp,
                receives: true,
                listeners,
                connections: part_of(plan.tcp_limits.connections, workers as u32, 0),
                share: Arc::new(Share::new(plan.tcp_limits, 1)),
                handlers: handlers.map_err(descriptors)?,
                waits: true,
            };
            let (served, addresses) = (Arc::new(plan.served()), Arc::clone(addresses));
            let config = ServeConfig { served, addresses, reply_rate: plan.reply_rate, kernel };
            new.push(NewService::new(held.slot, &plan.name, service, config));
        }
        let idle = IdleConfig { mode: Mode::Interrupt, ..IdleConfig::default() };
        let worker = WorkerHandle::start(workers, Placement::on(None), idle, POOL_FRAMES, routes, new)?;
        let says = readable_copy(worker.events.as_fd());
        let says = says.map_err(|error| descriptors(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Self { worker, says, serves: false, look_at: None })
    }

    /// Waits until it says something or, while a worker is stuck, until it is time to look whether one still is.
    pub async fn is_due(&self) {
        let late = async {
            match self.look_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = until_readable(Some(&self.says)) => {}
            () = late => {}
        }
    }

    /// Whether it has nothing to do: no worker is stuck, and no connection is left that it has accepted.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.serves && self.worker.services.iter().all(|service| service.serve.tcp.connections.get() == 0)
    }

    /// Has it looked at again at once, if it serves: the workers have something new to be stuck with.
    pub fn look_soon(&mut self) {
        if self.serves {
            self.look_at = Some(Due::now());
        }
    }

    /// Has it serve while a worker is stuck, and only then.
    pub fn serve_if(&mut self, is_stuck: bool) {
        self.look_at = is_stuck.then(|| Due::now() + LOOK_INTERVAL);
        if self.serves != is_stuck {
            self.serves = is_stuck;
            let command = if is_stuck { ServeCommand::Begin } else { ServeCommand::StepBack };
            self.worker.tell_services(command);
        }
    }
}
