//! A worker that is stuck, and who serves in its place.
//!
//! The programs in the kernel find out (`io/steer_bpf/bpf/maps.h`): they stop claiming, and say so once. What comes from then on comes to the
//! kernel's sockets. One more worker, the stand-in, has descriptors of all of them and sleeps; while a worker is stuck it serves them
//! beside the workers that are not, connections that wait to be accepted as well. Nobody looks regularly but while a worker is stuck, for
//! when it moves on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::io::unix::AsyncFd;
use tokio::time::Instant as Due;
use twinpath_attach::Attachment;
use twinpath_host::{StartError, readable_copy};
use twinpath_inspect::Reason;
use twinpath_serve::{HandlerPool, KernelSide, Prototype, ServeCommand, ServeConfig, Share};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::place::Placement;

use super::start::part_of;
use super::unserved::Unserved;
use super::workers::{NewService, WorkerHandle};
use super::{Instance, InstanceError};

/// How often to look whether a stuck worker has moved on.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// It has no ports: a pool has one frame at least.
const POOL_FRAMES: u32 = 1;

/// A worker that does not look for what was handed over to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    /// Since then something has been waiting for it.
    pub(super) since: Instant,
    /// Frames that had been dropped for that reason before.
    dropped_before: u64,
}

/// The worker that serves in place of others.
pub(super) struct StandIn {
    pub(super) worker: WorkerHandle,
    /// Readable when it has something to say.
    says: AsyncFd<OwnedFd>,
    /// It was told to serve.
    serves: bool,
    /// When to look whether it is still needed.
    look_at: Option<Due>,
}

/// What becomes readable when a worker is stuck; `None` if that is never said.
fn watch(attachment: &Attachment) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    attachment.stuck().map(readable_copy).transpose()
}

async fn until_readable(fd: Option<&AsyncFd<OwnedFd>>) {
    match fd {
        Some(fd) => match fd.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Waits until a worker is said to be stuck, the stand-in says something or, while a worker is stuck, it is time to look whether it has moved
/// on.
pub(super) async fn look_due(said: Option<&AsyncFd<OwnedFd>>, stand_in: Option<&StandIn>) {
    let late = async {
        match stand_in.and_then(|stand_in| stand_in.look_at) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = until_readable(said) => {}
        () = until_readable(stand_in.map(|stand_in| &stand_in.says)) => {}
        () = late => {}
    }
}

impl Instance {
    /// A stand-in for services of the plan, which are held by now; none where nobody looks for stuck workers. It has limits of its own, as
    /// those of one worker more, and is pinned to no CPU: that of the stuck worker may be taken.
    pub(super) fn new_stand_in(
        &self,
        services: &[Box<dyn Prototype>],
    ) -> Result<Option<StandIn>, InstanceError> {
        if self.plan.fail_open.is_zero() {
            return Ok(None);
        }
        let number = self.workers.len();
        let descriptors = |source| StartError::Descriptors { worker: number, source };
        let (addresses, mut new) = (Arc::from(self.addresses()), Vec::with_capacity(services.len()));
        for ((plan, held), service) in self.plan.services.iter().zip(&self.held).zip(services) {
            let (udp, listeners) = held.for_stand_in().map_err(descriptors)?;
            let handlers = service.defers().then(|| HandlerPool::new(plan.pool, None)).transpose();
            let kernel = KernelSide {
                udp,
                receives: true,
                listeners,
                connections: part_of(plan.tcp_limits.connections, number as u32, 0),
                share: Arc::new(Share::new(plan.tcp_limits, 1)),
                handlers: handlers.map_err(descriptors)?,
                waits: true,
            };
            let (served, addresses) = (Arc::new(plan.served()), Arc::clone(&addresses));
            let config = ServeConfig { served, addresses, reply_rate: plan.reply_rate, kernel };
            new.push(NewService::new(held.slot, &plan.name, &**service, config));
        }
        let idle = IdleConfig { mode: Mode::Interrupt, ..IdleConfig::default() };
        let placement = Placement::on(None);
        let worker = WorkerHandle::start(number, placement, idle, POOL_FRAMES, self.routes(), new)?;
        let says = readable_copy(worker.events.as_fd()).map_err(InstanceError::Control)?;
        Ok(Some(StandIn { worker, says, serves: false, look_at: None }))
    }

    /// The plan is another one: so is its stand-in. Connections that the former one has accepted end.
    pub(super) fn renew_stand_in(&mut self, services: &[Box<dyn Prototype>]) {
        if let Some(StandIn { worker, .. }) = self.stand_in.take() {
            worker.stop();
        }
        self.stand_in = self.new_stand_in(services).unwrap_or_else(|error| {
            tracing::error!("nobody serves in place of a worker that is stuck: {error}");
            None
        });
    }
}

impl Instance {
    /// All workers, the stand-in among them.
    pub(super) fn everyone(&self) -> impl Iterator<Item = &WorkerHandle> {
        self.workers.iter().chain(self.stand_in.iter().map(|stand_in| &stand_in.worker))
    }

    /// The same, to be told something.
    pub(super) fn everyone_mut(&mut self) -> impl Iterator<Item = &mut WorkerHandle> {
        self.workers.iter_mut().chain(self.stand_in.iter_mut().map(|stand_in| &mut stand_in.worker))
    }

    /// Ends the stand-in unless it has something to do: its listeners close before anybody is told that they do.
    pub(super) fn dismiss_stand_in(&mut self) {
        let is_idle = |stand_in: &mut StandIn| {
            let mut services = stand_in.worker.services.iter();
            !stand_in.serves && services.all(|service| service.serve.tcp.connections.get() == 0)
        };
        if let Some(StandIn { worker, .. }) = self.stand_in.take_if(is_idle) {
            worker.stop();
        }
    }

    /// There is a fast path from now on: waits to hear that a worker is stuck, and looks whether one still is.
    pub(super) fn watch_workers(&mut self) {
        let said = self.interface.attachment.as_ref().map_or(Ok(None), watch);
        self.interface.stuck_said = said.unwrap_or_else(|error| {
            tracing::warn!("nobody serves in place of a worker that is stuck: {error}");
            None
        });
        if let Some(stand_in) = self.stand_in.as_mut().filter(|stand_in| stand_in.serves) {
            stand_in.look_at = Some(Due::now());
        }
    }

    /// Looks which workers are stuck, and has the stand-in serve while one is.
    pub(super) fn look_at_stuck(&mut self) {
        self.read_workers();
        let now = clock::now();
        if let Some(attachment) = &mut self.interface.attachment {
            attachment.read_stuck();
        }
        let attachment = self.interface.attachment.as_ref();
        for worker in &mut self.workers {
            worker.unserved = worker.unserved.filter(|unserved| unserved.is_stuck(&worker.counters));
            let queues = worker.queues().iter();
            let by_claims = queues.filter_map(|queue| attachment?.stuck_since(queue.id)).min();
            let by_sockets = worker.unserved.map(|unserved| unserved.since);
            worker.look_at_stuck(by_claims.or(by_sockets), by_claims.is_some(), now);
        }
        let is_stuck = self.drain.is_none() && self.workers.iter().any(|worker| worker.stuck.is_some());
        let Some(stand_in) = &mut self.stand_in else { return };
        stand_in.look_at = is_stuck.then(|| Due::now() + LOOK_INTERVAL);
        if stand_in.serves != is_stuck {
            stand_in.serves = is_stuck;
            let command = if is_stuck { ServeCommand::Begin } else { ServeCommand::StepBack };
            stand_in.worker.tell_services(command);
        }
    }
}

impl WorkerHandle {
    /// Something has been waiting for it `since` then, for too long: what is claimed for it, or in its sockets. Or nothing has.
    fn look_at_stuck(&mut self, since: Option<Instant>, by_claims: bool, now: Instant) {
        let name = self.name();
        match (self.stuck, since) {
            (None, Some(since)) => {
                let waited = now.since(since).as_millis();
                if by_claims {
                    tracing::warn!(
                        "{name} is stuck: for {waited} ms it has not looked for what was handed over to it. The kernel claims nothing for it \
                         any more, and what comes is served through the kernel's sockets until it moves on"
                    );
                } else {
                    tracing::warn!(
                        "{name} is stuck: for {waited} ms it has left what waits in its sockets. Another thread serves them until it moves on"
                    );
                }
                // Its claims may end meanwhile, with the interface: it is stuck until it turns.
                let unserved = Unserved::now(self.number(), since, &self.counters);
                self.unserved.get_or_insert(unserved);
                self.stuck = Some(Stuck { since, dropped_before: self.dropped_as_stuck() });
                self.times_seen_stuck += 1;
            }
            (Some(stuck), None) => {
                tracing::warn!(
                    "{name} moves on after {} ms; it dropped {} frames that came before the kernel served",
                    now.since(stuck.since).as_millis(),
                    self.dropped_as_stuck() - stuck.dropped_before
                );
                self.stuck = None;
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// What it dropped as others had served it meanwhile.
    fn dropped_as_stuck(&self) -> u64 {
        let by_ports =
            self.queues().iter().map(|queue| queue.counters.drops.get(Reason::WorkerStuck)).sum::<u64>();
        by_ports + self.dropped(Reason::WorkerStuck)
    }
}
