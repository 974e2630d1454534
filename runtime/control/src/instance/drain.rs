//! Stopping without losing what was accepted: listeners close first, connections end once what they asked is answered, and
//! only then does the instance stop. Datagrams are served until the end. Who asked for it by command is told how far it is.

use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;

use tokio::time::Instant;
use twinpath_command::{self as command, DRAIN_PROGRESS};
use twinpath_hold::Held;
use twinpath_inspect::{Counter, Reason};
use twinpath_report::Draining;
use twinpath_serve::{ServeCommand, ServeCounters};
use twinpath_time::Duration;

use super::Instance;

/// How long workers may take to close what is left: they do in the turn after, unless the machine is very busy.
const CUT_PATIENCE: Duration = Duration::from_millis(900);

/// Who may look on at a drain; the next one is told nothing but that it has begun.
const FOLLOWERS_MAX: usize = 8;

/// How far it is.
#[derive(Debug)]
pub(super) struct Drain {
    /// When it ends whatever is left.
    ends_at: Instant,
    /// What is left is being closed.
    cutting: bool,
    /// Services of workers that still have connections.
    services: usize,
    /// Those who asked for it, and when they are told again.
    followers: Vec<UnixStream>,
    tell_at: Instant,
}

impl Drain {
    /// One service of a worker less.
    pub(super) const fn service_drained(&mut self) {
        self.services = self.services.saturating_sub(1);
    }

    pub(super) const fn is_done(&self) -> bool {
        self.services == 0
    }
}

/// When something is due in a drain.
#[derive(Clone, Copy)]
pub(super) struct Due {
    late: Instant,
    tell: Option<Instant>,
}

/// What is due.
pub(super) enum Next {
    /// It has taken as long as it may.
    Late,
    /// Who looks on is to be told.
    Tell,
}

/// Waits until something is due; for ever without a drain.
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
    /// A signal. Says whether there is something to wait for; at the second one there is not.
    pub(super) fn stop_by_signal(&mut self) -> bool {
        if self.drain.is_some() || self.plan.drain == Duration::ZERO {
            return false;
        }
        self.begin_to_drain(false, self.plan.drain);
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

    /// Somebody asks for it by command; who asks again looks on as well. The bound named last counts.
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
        // If it has gone, or is not read, the drain goes on without it.
        if tell(&follower, left) && drain.followers.len() < FOLLOWERS_MAX {
            drain.followers.push(follower);
        }
    }

    /// Has the workers end their connections within that time.
    pub(super) fn begin_to_drain(&mut self, handed_over: bool, timeout: Duration) {
        // What waits is the first instance's, where this one stands by.
        let handed_over = handed_over || self.standing_by.is_some();
        // Who stands by serves from here on.
        self.stood_by.clear();
        // They would keep the listeners open.
        self.held.iter_mut().for_each(Held::let_go);
        self.unserved = None;
        // The workers first, so that they accept nothing while the end of the stand-in is waited for.
        self.everyone_mut().for_each(|worker| worker.tell_services(ServeCommand::Drain { handed_over }));
        self.dismiss_stand_in();
        // Those that are leaving already are waited for besides.
        let all = self.everyone().flat_map(|worker| &worker.services);
        let services = all.filter(|service| !self.reloads.is_leaving(service.slot)).count();
        let now = Instant::now();
        let (cutting, followers) = (false, Vec::new());
        self.drain = Some(Drain {
            ends_at: now + timeout,
            cutting,
            services,
            followers,
            tell_at: now + DRAIN_PROGRESS,
        });
    }

    /// When something is due, if it drains.
    pub(super) fn drain_due(&self) -> Option<Due> {
        let drain = self.drain.as_ref()?;
        Some(Due { late: drain.ends_at, tell: (!drain.followers.is_empty()).then_some(drain.tell_at) })
    }

    /// It has taken as long as it may: what is left is closed. Says whether there is something to wait for.
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

    /// Tells those who look on.
    pub(super) fn tell_followers(&mut self) {
        let left = self.drain_left();
        let Some(drain) = &mut self.drain else { return };
        drain.tell_at = Instant::now() + DRAIN_PROGRESS;
        drain.followers.retain(|follower| tell(follower, left));
    }

    /// It is over: the last thing that those who look on hear.
    pub(super) fn tell_the_end(&mut self) {
        let Draining { connections, cut_off, .. } = self.drain_left();
        // Those that are left at a second signal close with the process.
        let left = Draining { cut_off: cut_off + connections, over: true, ..Draining::default() };
        for follower in self.drain.iter().flat_map(|drain| &drain.followers) {
            tell(follower, left);
        }
    }

    /// What is left to do in a drain.
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

    /// What `show` says of it.
    pub(super) fn report_drain(&self) -> Option<Draining> {
        self.drain.as_ref().map(|_| self.drain_left())
    }
}

/// Says whether that one goes on looking: a line fits into its connection's buffer, unless it has long not read any.
fn tell(mut follower: &UnixStream, left: Draining) -> bool {
    let Ok(line) = serde_json::to_value(left) else { return false };
    match follower.write_all(&command::answer_line(line)) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::Interrupted,
    }
}
