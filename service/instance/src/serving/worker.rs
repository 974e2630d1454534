//! Control's handle of one worker of an instance.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinpath_host::{StartError, StuckChange, WorkerPlan, rows};
use twinpath_inspect::{ControlReason, Counter, Reason};
use twinpath_observe::report;
use twinpath_serve::fast_tcp::TcpClaims;
use twinpath_serve::{Demux, DemuxCommand, Routes, ServeCommand, ServeCounters};
use twinpath_time::{Duration, Instant};
use twinpath_worker::Command;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::place::Placement;

use crate::serving::service::{NewService, ServiceHandle, engine_with};
use crate::stuck::Unserved;

/// Messages in each direction between control and one worker. A worker asks about at most 4096 peers per ten
/// seconds, and control answers each question with one update. If a ring is full, control's messages wait in
/// the handle, and those events of a worker that must arrive have reserved room.
const MAILBOX_LEN: u32 = 1024;

/// Control's handle of a worker with services.
pub struct WorkerHandle {
    host: twinpath_host::WorkerHandle<Demux>,
    /// Its services.
    pub services: Vec<ServiceHandle>,
    /// Set while requests wait in its sockets although it was woken.
    pub unserved: Option<Unserved>,
}

impl Deref for WorkerHandle {
    type Target = twinpath_host::WorkerHandle<Demux>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl DerefMut for WorkerHandle {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
    }
}

impl WorkerHandle {
    /// Starts worker `number` at `placement`, with these services, and their connections on the fast path.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no thread is left then.
    pub fn start(
        number: usize,
        placement: Placement,
        idle: IdleConfig,
        pool_frames: u32,
        routes: Routes,
        services: Vec<NewService>,
        claims: Option<Box<dyn TcpClaims>>,
    ) -> Result<Self, StartError> {
        let (engine, services) = engine_with(routes, services, claims);
        let plan = WorkerPlan { number, placement, idle, pool_frames, mailbox_len: MAILBOX_LEN };
        let host = twinpath_host::WorkerHandle::start(plan, engine)?;
        Ok(Self { host, services, unserved: None })
    }

    /// Sends a command to all its services.
    pub fn tell_services(&mut self, command: ServeCommand) {
        self.tell(Command::Engine(DemuxCommand::Each(command)));
    }

    /// The handle of the service that is this part.
    #[must_use]
    pub fn service(&self, part: usize) -> Option<&ServiceHandle> {
        self.services.iter().find(|service| service.part == part)
    }

    /// How often any of its services dropped a packet for a reason.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        let own = self.services.iter().map(|service| service.serve.drops.get(reason)).sum::<u64>();
        own + self.counters.drops.get(reason)
    }

    /// The sum of a counter over its services.
    fn sum(&self, count: fn(&ServeCounters) -> &Counter) -> u64 {
        self.services.iter().map(|service| count(&service.serve).get()).sum()
    }

    /// Ends the worker, waits at most `patience` for it, and closes what it leaves open. A stuck worker is
    /// not waited for: it ends with the process.
    ///
    /// # Errors
    ///
    /// It has not ended, and is left behind: one sentence, which is also logged.
    pub fn stop(self, patience: Duration) -> Result<(), String> {
        let (name, stuck) = (self.name(), self.is_stuck());
        let called: Vec<_> =
            self.services.iter().map(|it| (it.name.clone(), Arc::clone(&it.serve.called))).collect();
        if !stuck && self.host.stop_within(patience) {
            return Ok(());
        }
        let called = called.iter().find(|(_, called)| called.load(Ordering::Relaxed));
        let why = called.map_or_else(
            || "it is stuck".to_owned(),
            |(service, _)| format!("a callback of service `{service}` has not returned"),
        );
        let sentence = format!("{name} is left behind: {why}");
        tracing::error!("{sentence}");
        Err(sentence)
    }

    /// Its entry in `show workers`.
    #[must_use]
    pub fn report(&self, request: report::LatencyRequest) -> report::Worker {
        report::Worker {
            connections: self.sum(|serve| &serve.tcp.connections)
                + self.sum(|serve| &serve.fast_connections.connections),
            kernel_requests: self.sum(|serve| &serve.kernel_requests),
            kernel_replies: self.sum(|serve| &serve.kernel_replies),
            ..self.host.report(request)
        }
    }

    /// Drops by the worker and its ports, by service if it has several.
    #[must_use]
    pub fn drops(&self, interface: &str) -> Vec<report::Drop> {
        let mut drops = self.host.drops();
        for ServiceHandle { name, serve, service, .. } in &self.services {
            let place = match self.services.as_slice() {
                [_] => self.name(),
                _ => format!("{} {name}", self.name()),
            };
            let happened = serve.drops.happened().map(|(reason, count)| (reason.name(), count));
            let refusals = service.iter().flat_map(|service| service.refusals());
            let refusals = refusals.map(|(reason, count)| (reason.name(), count));
            let own = service.iter().flat_map(|service| service.own.reasons());
            let own = own.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.name, count));
            let full = [(ControlReason::EgressTableFull.name(), serve.peers_overflow.get())];
            drops.extend(rows(&place, happened.chain(refusals).chain(own).chain(full)));
        }
        drops.extend(self.drops_of_queues(|_| interface.to_owned()));
        drops
    }
}

impl WorkerHandle {
    /// Updates whether it is stuck. `since`: when the oldest packet began to wait, among its claimed frames
    /// or in its sockets; `None`: nothing waits.
    pub fn look_at_stuck(&mut self, since: Option<Instant>, by_claims: bool, now: Instant) {
        let (name, dropped) = (self.name(), self.dropped(Reason::WorkerStuck));
        match self.host.look_at_stuck(since, dropped, now) {
            Some(StuckChange::Begun { waited }) => {
                let waited = waited.as_millis();
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
                // The claims may end with the interface, so from now on the worker counts as stuck until it
                // has turned.
                let unserved = Unserved::now(self.number(), since.unwrap_or(now), &self.counters);
                self.unserved.get_or_insert(unserved);
            }
            Some(StuckChange::Over { after, dropped }) => {
                tracing::warn!(
                    "{name} moves on after {} ms; it dropped {dropped} frames that came before the kernel served",
                    after.as_millis()
                );
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
