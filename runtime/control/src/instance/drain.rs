//! Stopping without losing what was accepted: listeners close first, connections end once what they asked is answered, and
//! only then does the instance stop. Datagrams are served until the end.

use tokio::time::Instant;
use twinpath_serve::ServeCommand;
use twinpath_service::Service;
use twinpath_time::Duration;
use twinpath_worker::Command;

use super::Instance;

/// How far it is.
#[derive(Debug)]
pub(super) struct Drain {
    /// When it ends whatever is left.
    ends_at: Instant,
    /// Workers that still have connections.
    workers: usize,
}

impl Drain {
    /// One worker less.
    pub(super) const fn worker_drained(&mut self) {
        self.workers = self.workers.saturating_sub(1);
    }

    pub(super) const fn is_done(&self) -> bool {
        self.workers == 0
    }
}

/// Waits until a drain has taken as long as it may; for ever without one.
pub(super) async fn late(drain: Option<Instant>) {
    match drain {
        Some(ends_at) => tokio::time::sleep_until(ends_at).await,
        None => std::future::pending().await,
    }
}

impl<S: Service + 'static> Instance<S> {
    /// Asked to stop. Says whether there is something to wait for; asked again, there is not.
    pub(super) fn begin_to_drain(&mut self, handed_over: bool) -> bool {
        let open: u64 = self.workers.iter().map(|worker| worker.serve.connections.get()).sum();
        if self.drain.is_some() || self.plan.drain == Duration::ZERO || self.plan.tcp.is_none() {
            return false;
        }
        // They would keep the listeners open.
        self.guards.clear();
        self.kept = Default::default();
        let told = self.workers.iter_mut().filter_map(|worker| {
            worker.tell(Command::Engine(ServeCommand::Drain { handed_over })).then_some(())
        });
        let drain = Drain { workers: told.count(), ends_at: Instant::now() + self.plan.drain };
        if open > 0 {
            tracing::info!(
                "stopping: {open} connections end once they are answered, within {} ms; a second signal ends at once",
                self.plan.drain.as_millis()
            );
        }
        let waits = !drain.is_done();
        self.drain = Some(drain);
        waits
    }

    /// When the drain ends, if there is one.
    pub(super) fn drain_ends_at(&self) -> Option<Instant> {
        self.drain.as_ref().map(|drain| drain.ends_at)
    }

    /// Says what is cut off.
    pub(super) fn drained_late(&self) {
        let open: u64 = self.workers.iter().map(|worker| worker.serve.connections.get()).sum();
        tracing::warn!("{open} connections had not ended in time: they are closed now");
    }
}
