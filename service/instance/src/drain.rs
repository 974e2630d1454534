//! Stops an instance without losing requests: it closes the listeners, then each connection once its requests
//! are answered, and then ends. It answers datagrams until the end. A client that asked for the drain by
//! command is told of its progress. `service/lifecycle/src/drain.rs` says what is done when.

use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;

use twinpath_inspect::{Counter, Reason};
use twinpath_lifecycle::{Event, Outcome};
use twinpath_observe::command::{self as command, DRAIN_PROGRESS};
use twinpath_observe::report::Draining;
use twinpath_serve::{ServeCommand, ServeCounters};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::Instance;

/// How long to wait for a worker to end, while nothing is served: on a very busy machine a thread waits for its CPU for seconds,
/// and one that is left behind is an error.
const END_PATIENCE: Duration = Duration::from_secs(3);
const NO_PATIENCE: Duration = Duration::from_millis(10);

/// Maximum number of clients that are told of the progress; further ones are told only that the drain has
/// begun.
const FOLLOWERS_MAX: usize = 8;

/// How far workers have come that close connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CutLeft {
    /// Connections that services have.
    connections: u64,
    /// Connections that have left the fast path in all, also some that no service has any more.
    moved: u64,
}

/// The clients that are told of the progress of a drain.
#[derive(Debug, Default)]
pub(super) struct Followers {
    streams: Vec<UnixStream>,
    /// When they are told next.
    tell_at: Option<Instant>,
}

impl Followers {
    /// When they are told next, if there are some.
    pub(super) fn due(&self) -> Option<Instant> {
        self.tell_at.filter(|_| !self.streams.is_empty())
    }
}

impl Instance {
    /// Handles a signal to stop, or the program's request. Returns whether to wait for the drain; a second signal ends
    /// the instance at once.
    pub(super) async fn stop_within(&mut self, asked: Option<Duration>) -> bool {
        let was_draining = self.lifecycle.is_draining();
        self.on(Event::StopAsked(asked)).await;
        let left = self.drain_left();
        if !was_draining && left.connections > 0 && self.lifecycle.is_draining() {
            tracing::info!(
                "stopping: {} connections end once they are answered, within {} ms; a second signal ends at once",
                left.connections,
                left.left_ms
            );
        }
        !self.lifecycle.is_ended()
    }

    /// Handles a request to drain. If a drain is under way already, this client is told of its progress as
    /// well, and the new time limit replaces the former one.
    pub(super) async fn drain_by_command(&mut self, timeout: Option<Duration>, follower: UnixStream) {
        self.on(Event::DrainAsked(timeout)).await;
        let left = self.drain_left();
        tracing::info!(
            "draining by command: {} connections end once they are answered, within {} ms; a signal ends at once",
            left.connections,
            left.left_ms
        );
        if self.lifecycle.is_ended() {
            let over = Draining { cut_off: self.cut_off, over: true, ..left };
            tell(&follower, over);
            return;
        }
        // If the client has gone, or does not read, the drain continues without it.
        let Followers { streams, tell_at } = &mut self.followers;
        if tell(&follower, left) && streams.len() < FOLLOWERS_MAX {
            tell_at.get_or_insert_with(|| clock::now() + DRAIN_PROGRESS);
            streams.push(follower);
        }
    }

    /// Lets the workers close their listeners, and then their connections. With `handed_over`, connections that wait in
    /// the listeners are left to another instance.
    pub(super) fn begin_to_drain(&mut self, handed_over: bool) -> Outcome {
        self.unserved = None;
        if !handed_over {
            self.catch(&self.plan.claims());
        }
        // The workers come first, so that they accept nothing while the stand-in ends, which takes time.
        self.everyone_mut().for_each(|worker| worker.tell_services(ServeCommand::Drain { handed_over }));
        self.dismiss_stand_in();
        // Services that are leaving after a reload are waited for separately.
        let all = self.everyone().flat_map(|worker| &worker.services);
        let services = all.filter(|service| !self.lifecycle.is_leaving(service.part)).count();
        Outcome::Draining { services, listening: self.everyone().count() }
    }

    /// The time limit has passed: closes the remaining connections.
    pub(super) fn cut(&mut self) {
        let Draining { connections, .. } = self.drain_left();
        self.cut_left = self.cut_left();
        tracing::warn!("{connections} connections had not ended in time: they are closed now");
        for worker in self.everyone_mut() {
            worker.tell_services(ServeCommand::Cut);
        }
    }

    /// Looks whether the connections that are closed at the end of a drain have become fewer.
    pub(super) fn look_at_cut(&mut self) {
        if self.lifecycle.drain().is_some_and(|drain| drain.is_cutting) {
            let left = self.cut_left();
            let before = std::mem::replace(&mut self.cut_left, left);
            if left.connections < before.connections || left.moved > before.moved {
                self.events.push_back(Event::CutGoesOn);
            }
        }
    }

    fn cut_left(&self) -> CutLeft {
        let services = self.everyone().flat_map(|worker| &worker.services);
        let moved = services.map(|service| {
            let counted = &service.serve.fast_tcp;
            counted.fast_moved.get() + counted.fast_not_moved.get()
        });
        CutLeft { connections: self.drain_left().connections, moved: moved.sum() }
    }

    /// Ends the workers. If they do not close their connections either, they are not waited for.
    pub(super) fn stop_workers(&mut self, patient: bool) {
        // One that has moved on is waited for.
        self.look_at_stuck();
        self.captures.end_all();
        let patience = if patient { END_PATIENCE } else { NO_PATIENCE };
        let all = self.workers.drain(..).chain(self.stand_in.take().map(|it| it.worker));
        self.left_behind.extend(all.filter_map(|worker| worker.stop(patience).err()));
    }

    /// Tells the clients of the progress.
    pub(super) fn tell_followers(&mut self) {
        let left = self.drain_left();
        self.followers.tell_at = Some(clock::now() + DRAIN_PROGRESS);
        self.followers.streams.retain(|follower| tell(follower, left));
    }

    /// Tells the clients that the drain has ended. Returns how many connections and requests were cut off.
    pub(super) fn tell_the_end(&mut self) -> u64 {
        let Draining { connections, cut_off, .. } = self.drain_left();
        // After a second signal, the remaining connections close with the process.
        let left = Draining { cut_off: cut_off + connections, over: true, ..Draining::default() };
        for follower in &self.followers.streams {
            tell(follower, left);
        }
        left.cut_off
    }

    /// The connections and requests left.
    fn drain_left(&self) -> Draining {
        let left = self.lifecycle.drain().map_or(Duration::ZERO, |drain| drain.ends_at.since(clock::now()));
        let serve = |count: fn(&ServeCounters) -> &Counter| {
            let services = self.everyone().flat_map(|worker| &worker.services);
            services.map(|service| count(&service.serve).get()).sum()
        };
        Draining {
            connections: serve(|serve| &serve.tcp.connections)
                + serve(|serve| &serve.fast_connections.connections),
            deferred: serve(|serve| &serve.deferred),
            left_ms: left.as_millis() as u64,
            cut_off: self.everyone().map(|worker| worker.dropped(Reason::DrainTimeout)).sum(),
            over: false,
        }
    }

    /// The state of the drain for `show`.
    pub(super) fn report_drain(&self) -> Option<Draining> {
        self.lifecycle.drain().map(|_| self.drain_left())
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
