//! A standby: an instance that holds the sockets of another one. It serves them only while that one is
//! stuck as a whole, or once it has ended (`service/instance/src/stuck`). While they change places, each
//! datagram and each connection is still taken from its socket by exactly one of the two.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_lifecycle::{self as lifecycle, Event, Refusal, STANDBYS_MAX};
use twinpath_observe::command;
use twinpath_observe::report;
use twinpath_serve::ServeCommand;
use twinpath_sys::event_loop::spawn;
use twinpath_sys::socket_kind::peer;
use twinpath_time::Duration;

use super::Instance;
use crate::hold::{Held, HoldError, Inherited, STOPPING, send};
use crate::stuck::{First, FirstWatch, ToStandby};

/// The first instance, as its standby sees it.
pub(super) struct FirstInstance {
    pid: u32,
    /// Set until the watch begins.
    watch: Option<FirstWatch>,
}

impl FirstInstance {
    /// The instance that these sockets came from. It is checked whenever something has waited in the sockets
    /// for `patience`; with 0, only its end counts.
    ///
    /// # Errors
    ///
    /// Its process cannot be watched.
    pub(super) fn new(former: Inherited, held: &[Held], patience: Duration) -> io::Result<Self> {
        let watch = FirstWatch::new(former, held, patience)?;
        Ok(Self { pid: watch.pid(), watch: Some(watch) })
    }
}

/// Connections to the standbys of this instance.
#[derive(Default)]
pub(super) struct Standbys {
    streams: Vec<UnixStream>,
    /// Whether a new instance has the sockets, too.
    pub(super) has_taker: bool,
}

impl Standbys {
    /// How many there are.
    fn count(&mut self) -> usize {
        let is_open = |stream: &UnixStream| {
            poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&Timespec::default())) == Ok(0)
        };
        self.streams.retain(is_open);
        self.streams.len()
    }

    /// Sends them a message, which fits into the connection's buffer.
    fn tell(&self, message: &ToStandby) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        for mut stream in &self.streams {
            // One that has gone needs to know nothing.
            let _ = stream.write_all(&line);
        }
    }
}

impl Instance {
    /// A description of the standby for logs and reports.
    pub(super) fn standing_by(&self) -> String {
        let pid = self.first.as_ref().map_or(0, |first| first.pid);
        match self.lifecycle.standby().is_some_and(|standby| standby.serves) {
            false => format!("standing by for pid {pid}"),
            true => format!("serving through the kernel in place of pid {pid}, which is stuck"),
        }
    }

    pub(super) fn report_standby(&self) -> Option<report::StandingBy> {
        let (lifecycle::StandBy { serves, times }, first) =
            (*self.lifecycle.standby()?, self.first.as_ref()?);
        Some(report::StandingBy { pid: first.pid, serves, times })
    }

    /// Starts to watch the first instance.
    pub(super) fn watch_first(&mut self) {
        if let Some(watch) = self.first.as_mut().and_then(|first| first.watch.take()) {
            let tell = self.tell.clone();
            let watch = async move { watch.run(&tell).await };
            if let Err(error) = spawn(watch) {
                tracing::error!("the first instance is not watched: {error}");
            }
        }
    }

    /// Handles a change of the first instance.
    pub(super) async fn first_is(&mut self, first: First) {
        let Some(before) = self.lifecycle.standby().copied() else { return };
        let pid = self.first.as_ref().map_or(0, |first| first.pid);
        let event = match first {
            First::Stuck => lifecycle::First::Stuck,
            First::Back => lifecycle::First::Back,
            First::Gone => {
                tracing::warn!(
                    "pid {pid}, which this instance stood by for, has ended: this one serves from now on"
                );
                "the instance that it stood by for has ended".clone_into(&mut self.interface.choice.why);
                lifecycle::First::Gone
            }
            First::Succeeded => {
                self.cannot_stand_by(
                    "it has ended, and another instance serves in its place: stand by for that one"
                        .to_owned(),
                );
                lifecycle::First::Succeeded
            }
            First::Changed(why) => {
                self.cannot_stand_by(why);
                lifecycle::First::Changed
            }
        };
        self.on(Event::First(event)).await;
        let Some(now) = self.lifecycle.standby() else { return };
        match (before.serves, now.serves) {
            (false, true) => tracing::warn!(
                "pid {pid} leaves what comes, and none of its threads runs: serving in its place"
            ),
            (true, false) => tracing::info!("pid {pid} goes on: standing by for it again"),
            _ => {}
        }
        self.interface.choice.why = self.standing_by();
    }

    /// The standby ends with an error.
    fn cannot_stand_by(&mut self, why: String) {
        let from = self.plan.stand_by.clone().unwrap_or_default();
        self.error = Some(HoldError::StandBy { from, why }.into());
    }

    /// Lets the workers serve what waits in the sockets, or step back.
    pub(super) fn serve_sockets(&mut self, serves: bool) {
        let command = if serves { ServeCommand::Begin } else { ServeCommand::StepBack };
        for worker in &mut self.workers {
            worker.tell_services(command.clone());
        }
    }

    /// Handles a request of another instance that wants to be a standby of this one.
    pub(super) async fn standby_asks(&mut self, stream: UnixStream) {
        let others = self.standbys.count();
        self.asking = Some(stream);
        self.on(Event::StandbyAsked { others }).await;
    }

    /// A standby gets the sockets. When the connection ends, it knows that the sockets have changed, or that this
    /// instance ends.
    pub(super) fn give_standby(&mut self) {
        let Some(stream) = self.asking.take() else { return };
        if send(&stream, &self.held, None) {
            tracing::info!("another instance stands by for this one");
            self.standbys.streams.push(stream);
            self.introduce_standbys();
        }
    }

    /// Sends a refusal in place of the sockets.
    pub(super) fn refuse_standby(&mut self, refusal: Refusal) {
        let why = match refusal {
            Refusal::StandingBy => format!("it is {} itself: name that one", self.standing_by()),
            Refusal::BeingTakenOver | Refusal::TakenOver => {
                "another instance has taken over from it: stand by for that one".to_owned()
            }
            Refusal::Stopping => STOPPING.to_owned(),
            Refusal::TooManyStandbys => format!("{STANDBYS_MAX} instances stand by for it already"),
        };
        if let Some(mut stream) = self.asking.take() {
            let _ = stream.write_all(&command::refusal(&why));
        }
    }

    /// Tells the standbys of each other, and whether a new instance has the sockets: if this instance ends, only one
    /// of all these may serve.
    pub(super) fn introduce_standbys(&mut self) {
        let pid = |stream: &UnixStream| peer(stream).ok()?.pid();
        let pids = self.standbys.streams.iter().filter_map(pid).collect();
        self.standbys.tell(&ToStandby::Others { pids, taker: self.standbys.has_taker });
    }

    /// No new instance has the sockets any more.
    pub(super) fn no_taker(&mut self) {
        self.standbys.has_taker = false;
        self.introduce_standbys();
    }

    /// Closes the connections to the standbys. With `ask_again`, they ask again, as the sockets may have changed.
    pub(super) fn close_standbys(&mut self, ask_again: bool) {
        if ask_again {
            self.standbys.tell(&ToStandby::AskAgain);
        }
        self.standbys.streams.clear();
    }
}
