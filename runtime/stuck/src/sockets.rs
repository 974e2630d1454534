//! Finds workers that leave what waits in the kernel's sockets.
//!
//! The programs in the kernel find a stuck worker by the claimed frames that it does not take. A worker that is sent nothing that is claimed
//! is found here: TCP, and everything where there is no fast path. The sockets of all workers are watched, each for one event. When
//! something has waited for three quarters of the time after which a worker is stuck, and its worker has not turned, that worker is
//! to be woken. A sleeping worker turns then. One that has not turned at the end of the time is stuck. While nothing waits nothing runs, and
//! under load this looks a few times a second.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use twinpath_hold::{Held, Use};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_worker::WorkerCounters;

use crate::waiting::{Waiting, is_something};

/// What is found of workers, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Something waits in their sockets, and they have not turned lately.
    Late(Vec<usize>),
    /// They have not turned although they were told to.
    Stuck(Vec<Unserved>),
}

/// A worker that does not serve its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Its number.
    pub worker: usize,
    /// The time since which something waits there.
    pub since: Instant,
    /// Its turns so far. It is stuck while they stay the same.
    turns: u64,
}

impl Unserved {
    /// The worker of that number, as it is now.
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
struct Share {
    sockets: Vec<OwnedFd>,
    counters: Arc<WorkerCounters>,
}

/// A watch over the sockets of the workers. Dropping it ends the watch and closes its descriptors at once: a listener that is
/// held open by another descriptor would go on taking connections.
pub struct Watched {
    _shares: Arc<Vec<Share>>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    /// Watches the sockets of workers with these counters, in the order of the workers, and sends what is found when something has waited
    /// for `patience`. Called within a tokio runtime.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn begin<T: From<Found> + Send + 'static>(
        held: &[Held],
        workers: impl Iterator<Item = Arc<WorkerCounters>>,
        patience: Duration,
        tell: mpsc::Sender<T>,
    ) -> io::Result<Self> {
        let mut shares: Vec<Share> =
            workers.map(|counters| Share { sockets: Vec::new(), counters }).collect();
        held.iter().try_for_each(|held| share_out(held, &mut shares))?;
        let waiting = Waiting::new(shares.iter().flat_map(|share| &share.sockets))?;
        let shares = Arc::new(shares);
        let watch = Watch { shares: Arc::downgrade(&shares), waiting, patience };
        let task = tokio::spawn(async move {
            if let Err(error) = watch.run(&tell).await {
                tracing::warn!("a worker that is stuck is found by claimed frames only: {error}");
            }
        });
        Ok(Self { _shares: shares, task: task.abort_handle() })
    }
}

struct Watch {
    /// Gone when the watch has ended.
    shares: Weak<Vec<Share>>,
    waiting: Waiting,
    patience: Duration,
}

impl Watch {
    async fn run<T: From<Found>>(&self, tell: &mpsc::Sender<T>) -> io::Result<()> {
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
            if tell.send(Found::Late(numbers).into()).await.is_err() {
                return Ok(());
            }
            sleep(rest).await;
            let Some(workers) = self.unserved(&before, since).filter(|found| !found.is_empty()) else {
                continue;
            };
            if tell.send(Found::Stuck(workers).into()).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Has each socket report once. Returns the turns of each worker so far; `None` if the watch has ended.
    fn arm(&self) -> io::Result<Option<Vec<u64>>> {
        let Some(shares) = self.shares.upgrade() else { return Ok(None) };
        self.waiting.arm(shares.iter().flat_map(|share| &share.sockets))?;
        Ok(Some(shares.iter().map(|share| share.counters.turns()).collect()))
    }

    /// The workers that have not turned since, with something in their sockets; `None` if the watch has ended.
    fn unserved(&self, before: &[u64], since: Instant) -> Option<Vec<Unserved>> {
        let shares = self.shares.upgrade()?;
        let stuck = shares.iter().zip(before).enumerate().filter(|(_, (share, before))| {
            share.counters.turns() == **before && is_something(&share.sockets)
        });
        Some(stuck.map(|(worker, (_, turns))| Unserved { worker, since, turns: *turns }).collect())
    }
}

/// Adds a descriptor of each socket to the share of the worker that serves it: as it was given to the workers.
fn share_out(held: &Held, shares: &mut [Share]) -> io::Result<()> {
    let mut listeners = BTreeMap::new();
    for (name, socket) in held.sockets() {
        let worker = match name.socket {
            Use::Udp => 0,
            Use::Tcp => {
                let number = listeners.entry((name.address, name.port)).or_insert(0);
                *number += 1;
                (*number - 1) % shares.len().max(1)
            }
            Use::Guard => continue,
        };
        if let Some(share) = shares.get_mut(worker) {
            share.sockets.push(socket.try_clone_to_owned()?);
        }
    }
    Ok(())
}
