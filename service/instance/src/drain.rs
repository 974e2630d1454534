//! Stops an instance without losing requests: it closes the listeners, then each connection once its requests
//! are answered, and then ends. It answers datagrams until the end. A client that asked for the drain by
//! command is told of its progress.

use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;

use tokio::time::Instant;
use twinpath_inspect::{Counter, Reason};
use twinpath_observe::command::{self as command, DRAIN_PROGRESS};
use twinpath_observe::report::Draining;
use twinpath_serve::{ServeCommand, ServeCounters};
use twinpath_time::Duration;

use super::Instance;
use crate::hold::Held;

/// How long to wait for workers to close the remaining connections. They need one turn, unless the machine is
/// very busy.
const CUT_PATIENCE: Duration = Duration::from_millis(900);

/// How long to wait for a worker to end, and for one that has not closed its connections either.
pub(super) const END_PATIENCE: Duration = Duration::from_millis(900);
const NO_PATIENCE: Duration = Duration::from_millis(10);

/// Maximum number of clients that are told of the progress; further ones are told only that the drain has
/// begun.
const FOLLOWERS_MAX: usize = 8;

/// The state of a drain.
#[derive(Debug)]
pub(super) struct Drain {
    /// When the remaining connections are closed.
    ends_at: Instant,
    /// Whether the remaining connections are being closed.
    cutting: bool,
    /// Workers that may still accept connections.
    accepting: usize,
    /// Services, counted once per worker, that have connections left.
    services: usize,
    /// The clients that are told of the progress, and when they are told next.
    followers: Vec<UnixStream>,
    tell_at: Instant,
}

impl Drain {
    /// A worker has closed its listeners.
    pub(super) const fn listeners_closed(&mut self) {
        self.accepting = self.accepting.saturating_sub(1);
    }

    /// A service of a worker has no connection left.
    pub(super) const fn service_drained(&mut self) {
        self.services = self.services.saturating_sub(1);
    }

    pub(super) const fn is_done(&self) -> bool {
        self.services == 0
    }
}

/// When the next step of a drain is due.
#[derive(Clone, Copy)]
pub(super) struct Due {
    late: Instant,
    tell: Option<Instant>,
}

/// The next step of a drain.
pub(super) enum Next {
    /// Close the remaining connections.
    Late,
    /// Tell the clients of the progress.
    Tell,
}

/// Waits for the next step; for ever without a drain.
pub(super) async fn next(due: Option<Due>) -> Next {
    let Some(Due { late, tell }) = due else { return std::future::pending().await };
    match tell.filter(|tell| *tell < late) {
        Some(tell) => {
            tokio::time::sleep_until(tell).await;
            Next::Tell
        }
        None => {
            tokio::time::sleep_until(late).await;
            Next::Late
        }
    }
}

impl Instance {
    /// Handles a signal to stop, or the program's request. Returns whether to wait for the drain; a second signal ends
    /// the instance at once.
    pub(super) fn stop_within(&mut self, asked: Option<Duration>) -> bool {
        let timeout = asked.unwrap_or(self.plan.drain);
        if let (Some(drain), Some(asked)) = (&mut self.drain, asked.filter(|asked| !asked.is_zero())) {
            // The program asks for an earlier end.
            drain.ends_at = drain.ends_at.min(Instant::now() + asked);
            return true;
        }
        if self.drain.is_some() || timeout == Duration::ZERO {
            return false;
        }
        self.begin_to_drain(false, timeout);
        let left = self.drain_left();
        if left.connections > 0 {
            tracing::info!(
                "stopping: {} connections end once they are answered, within {} ms; a second signal ends at once",
                left.connections,
                left.left_ms
            );
        }
        true
    }

    /// Handles a request to drain. If a drain is under way already, this client is told of its progress as
    /// well, and the new time limit replaces the former one.
    pub(super) fn drain_by_command(&mut self, timeout: Option<Duration>, follower: UnixStream) {
        match (&mut self.drain, timeout) {
            (None, timeout) => self.begin_to_drain(false, timeout.unwrap_or(self.plan.drain)),
            (Some(drain), Some(timeout)) if !drain.cutting => drain.ends_at = Instant::now() + timeout,
            (Some(_), _) => {}
        }
        let left = self.drain_left();
        tracing::info!(
            "draining by command: {} connections end once they are answered, within {} ms; a signal ends at once",
            left.connections,
            left.left_ms
        );
        let Some(drain) = &mut self.drain else { return };
        // If the client has gone, or does not read, the drain continues without it.
        if tell(&follower, left) && drain.followers.len() < FOLLOWERS_MAX {
            drain.followers.push(follower);
        }
    }

    /// Starts the drain: workers close their connections within `timeout`.
    ///
    /// With `handed_over`, connections that wait in the listeners are left to another instance.
    pub(super) fn begin_to_drain(&mut self, handed_over: bool, timeout: Duration) {
        // A standby leaves what waits to the first instance.
        let handed_over = handed_over || self.standing_by.is_some();
        // Closing these connections tells the standbys that they are to serve.
        self.stood_by.clear();
        // These descriptors would keep the listeners open.
        self.held.iter_mut().for_each(Held::let_go);
        self.unserved = None;
        // The workers come first, so that they accept nothing while the stand-in ends, which takes time.
        self.everyone_mut().for_each(|worker| worker.tell_services(ServeCommand::Drain { handed_over }));
        self.dismiss_stand_in();
        // Services that are leaving after a reload are waited for separately.
        let all = self.everyone().flat_map(|worker| &worker.services);
        let services = all.filter(|service| !self.reloads.is_leaving(service.part)).count();
        let accepting = self.everyone().count();
        let now = Instant::now();
        let (cutting, followers) = (false, Vec::new());
        self.drain = Some(Drain {
            ends_at: now + timeout,
            cutting,
            accepting,
            services,
            followers,
            tell_at: now + DRAIN_PROGRESS,
        });
    }

    /// Waits until no worker accepts connections any more. A stuck worker accepts none, so it is waited for
    /// no longer than the others.
    pub(super) fn wait_until_listeners_closed(&mut self) {
        let accepts = |instance: &Self| instance.drain.as_ref().is_some_and(|drain| drain.accepting > 0);
        if !self.wait_for_workers(accepts) {
            tracing::warn!("a worker has not closed its listeners yet: it is stuck or very busy");
        }
    }

    /// When the next step is due, if there is a drain.
    pub(super) fn drain_due(&self) -> Option<Due> {
        let drain = self.drain.as_ref()?;
        Some(Due { late: drain.ends_at, tell: (!drain.followers.is_empty()).then_some(drain.tell_at) })
    }

    /// The time limit has passed: closes the remaining connections. Returns whether to wait for that.
    pub(super) fn drained_late(&mut self) -> bool {
        let Draining { connections, .. } = self.drain_left();
        let Some(drain) = self.drain.as_mut().filter(|drain| !drain.cutting) else { return false };
        tracing::warn!("{connections} connections had not ended in time: they are closed now");
        (drain.cutting, drain.ends_at) = (true, Instant::now() + CUT_PATIENCE);
        for worker in self.everyone_mut() {
            worker.tell_services(ServeCommand::Cut);
        }
        true
    }

    /// How long to wait for each worker to end.
    pub(super) fn end_patience(&self) -> Duration {
        let hangs = self.drain.as_ref().is_some_and(|drain| drain.cutting && !drain.is_done());
        if hangs { NO_PATIENCE } else { END_PATIENCE }
    }

    /// Tells the clients of the progress.
    pub(super) fn tell_followers(&mut self) {
        let left = self.drain_left();
        let Some(drain) = &mut self.drain else { return };
        drain.tell_at = Instant::now() + DRAIN_PROGRESS;
        drain.followers.retain(|follower| tell(follower, left));
    }

    /// Tells the clients that the drain has ended. Returns how many connections and requests were cut off.
    pub(super) fn tell_the_end(&mut self) -> u64 {
        let Draining { connections, cut_off, .. } = self.drain_left();
        // After a second signal, the remaining connections close with the process.
        let left = Draining { cut_off: cut_off + connections, over: true, ..Draining::default() };
        for follower in self.drain.iter().flat_map(|drain| &drain.followers) {
            tell(follower, left);
        }
        left.cut_off
    }

    /// The connections and requests left.
    fn drain_left(&self) -> Draining {
        let left = self
            .drain
            .as_ref()
            .map_or(Duration::ZERO, |drain| drain.ends_at.saturating_duration_since(Instant::now()));
        let serve = |count: fn(&ServeCounters) -> &Counter| {
            let services = self.everyone().flat_map(|worker| &worker.services);
            services.map(|service| count(&service.serve).get()).sum()
        };
        Draining {
            connections: serve(|serve| &serve.tcp.connections),
            deferred: serve(|serve| &serve.deferred),
            left_ms: left.as_millis() as u64,
            cut_off: self.everyone().map(|worker| worker.dropped(Reason::DrainTimeout)).sum(),
            over: false,
        }
    }

    /// The state of the drain for `show`.
    pub(super) fn report_drain(&self) -> Option<Draining> {
        self.drain.as_ref().map(|_| self.drain_left())
    }
}

/// Sends one line. Returns whether further lines can be sent to the client; a line does not fit only if the
/// client has not read for long.
fn tell(mut follower: &UnixStream, left: Draining) -> bool {
    let Ok(line) = serde_json::to_value(left) else { return false };
    match follower.write_all(&command::answer_line(line)) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::Interrupted,
    }
}
