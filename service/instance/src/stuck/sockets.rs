//! Detects workers that leave requests waiting in the kernel's sockets.
//!
//! The programs in the kernel detect a stuck worker by the claimed frames that it does not take. A worker
//! that gets no claimed frames (it serves TCP, or has no fast path) is detected here. The sockets of all
//! workers are watched, each for one event. If a request has waited for three quarters of the time limit
//! and the worker has not turned meanwhile, control wakes it with a message; a sleeping worker turns then.
//! A worker that still has not turned at the time limit is stuck. While nothing waits, nothing runs. Under
//! load the check runs a few times a second.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use twinpath_sys::clock;
use twinpath_sys::event_loop::channel::Sender;
use twinpath_sys::event_loop::{Task, sleep, spawn};
use twinpath_time::{Duration, Instant};
use twinpath_worker::WorkerCounters;

use crate::hold::{Held, Use};
use crate::stuck::waiting::{Waiting, is_something};

/// Workers, by number, that leave requests waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// Something waits in their sockets and they have not turned lately: control wakes them.
    Late(Vec<usize>),
    /// They have not turned although they were woken.
    Stuck(Vec<Unserved>),
}

/// A worker that does not serve its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Its number.
    pub worker: usize,
    /// Since when a request has waited there.
    pub since: Instant,
    /// Its turns so far. It is stuck while they stay the same.
    turns: u64,
}

impl Unserved {
    /// The worker of this number with its present count of turns.
    #[must_use]
    pub fn now(worker: usize, since: Instant, counters: &WorkerCounters) -> Self {
        Self { worker, since, turns: counters.turns() }
    }

    /// Whether the worker has not turned since.
    #[must_use]
    pub fn is_stuck(&self, counters: &WorkerCounters) -> bool {
        self.turns == counters.turns()
    }
}

/// The sockets that one worker serves.
struct WorkerSockets {
    sockets: Vec<OwnedFd>,
    counters: Arc<WorkerCounters>,
}

/// A watch over the sockets of the workers. Dropping it ends the watch and immediately closes its duplicate
/// descriptors: while a duplicate is open, the kernel would still assign connections to that listener.
pub struct Watched {
    _workers: Arc<Vec<WorkerSockets>>,
    task: Task,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    /// Watches the sockets of the workers with these counters (in the order of the workers), and sends an event
    /// when something has waited for `patience`. Called within an event loop.
    ///
    /// # Errors
    ///
    /// There is no descriptor left.
    pub fn begin<T: From<WatchEvent> + 'static>(
        held: &[Held],
        workers: impl Iterator<Item = Arc<WorkerCounters>>,
        patience: Duration,
        tell: Sender<T>,
    ) -> io::Result<Self> {
        let mut workers: Vec<WorkerSockets> =
            workers.map(|counters| WorkerSockets { sockets: Vec::new(), counters }).collect();
        held.iter().try_for_each(|held| assign_sockets(held, &mut workers))?;
        let waiting = Waiting::new(workers.iter().flat_map(|worker| &worker.sockets))?;
        let workers = Arc::new(workers);
        let watch = Watch { workers: Arc::downgrade(&workers), waiting, patience };
        let task = spawn(async move {
            if let Err(error) = watch.run(&tell).await {
                tracing::warn!("a worker that is stuck is found by claimed frames only: {error}");
            }
        })?;
        Ok(Self { _workers: workers, task })
    }
}

struct Watch {
    /// Freed when the watch has been dropped.
    workers: Weak<Vec<WorkerSockets>>,
    waiting: Waiting,
    patience: Duration,
}

impl Watch {
    async fn run<T: From<WatchEvent>>(&self, tell: &Sender<T>) -> io::Result<()> {
        let (late, rest) = (self.patience * 3 / 4, self.patience / 4);
        loop {
            let Some(before) = self.arm()? else { return Ok(()) };
            self.waiting.something().await?;
            let since = clock::now();
            sleep(late).await;
            let Some(workers) = self.unserved(&before, since).filter(|found| !found.is_empty()) else {
                continue;
            };
            let numbers = workers.iter().map(|unserved| unserved.worker).collect();
            if tell.send(WatchEvent::Late(numbers).into()).await.is_err() {
                return Ok(());
            }
            sleep(rest).await;
            let Some(workers) = self.unserved(&before, since).filter(|found| !found.is_empty()) else {
                continue;
            };
            if tell.send(WatchEvent::Stuck(workers).into()).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Arms each socket for one event. Returns the turns of each worker so far; `None` if the watch has been
    /// dropped.
    fn arm(&self) -> io::Result<Option<Vec<u64>>> {
        let Some(workers) = self.workers.upgrade() else { return Ok(None) };
        self.waiting.arm(workers.iter().flat_map(|worker| &worker.sockets))?;
        Ok(Some(workers.iter().map(|worker| worker.counters.turns()).collect()))
    }

    /// The workers that have not turned since, with something in their sockets; `None` if the watch has been
    /// dropped.
    fn unserved(&self, before: &[u64], since: Instant) -> Option<Vec<Unserved>> {
        let workers = self.workers.upgrade()?;
        let stuck = workers.iter().zip(before).enumerate().filter(|(_, (worker, before))| {
            worker.counters.turns() == **before && is_something(&worker.sockets)
        });
        Some(stuck.map(|(worker, (_, turns))| Unserved { worker, since, turns: *turns }).collect())
    }
}

/// Duplicates each socket's descriptor for the worker that serves it, in the order in which the workers got
/// them.
fn assign_sockets(held: &Held, workers: &mut [WorkerSockets]) -> io::Result<()> {
    let mut listeners = BTreeMap::new();
    for (name, socket) in held.sockets() {
        let worker = match name.socket {
            Use::Udp => 0,
            Use::Tcp => {
                let number = listeners.entry((name.address, name.port)).or_insert(0);
                *number += 1;
                (*number - 1) % workers.len().max(1)
            }
            Use::Guard => continue,
        };
        if let Some(worker) = workers.get_mut(worker) {
            worker.sockets.push(socket.try_clone_to_owned()?);
        }
    }
    Ok(())
}
