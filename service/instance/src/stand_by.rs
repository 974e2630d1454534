//! A standby: an instance that holds the sockets of another one. It serves them only while that one is
//! stuck as a whole, or once it has ended (`service/instance/src/stuck`). While they change places, each
//! datagram and each connection is still taken from its socket by exactly one of the two.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_observe::report;
use twinpath_serve::ServeCommand;
use twinpath_time::Duration;

use super::{Instance, InstanceError};
use crate::hold::{Held, HoldError, Inherited, STOPPING, send};
use crate::rpcbind::Registered;
use crate::stuck::{First, FirstWatch};

/// Maximum number of standbys of one instance.
pub(super) const MOST: usize = 4;

/// The first instance, as its standby sees it.
pub(super) struct StandingBy {
    pid: u32,
    /// Set until the watch begins.
    watch: Option<FirstWatch>,
    /// Whether this instance serves in its place.
    serves: bool,
    /// How often this instance has served in its place.
    times: u64,
    /// Set when this instance cannot be a standby any longer: the reason.
    pub(super) failed: Option<String>,
}

impl StandingBy {
    /// Becomes the standby of the instance that these sockets came from. That instance is checked whenever
    /// something has waited in the sockets for `patience`; with 0, only its end counts.
    ///
    /// # Errors
    ///
    /// Its process cannot be watched.
    pub(super) fn new(former: Inherited, held: &[Held], patience: Duration) -> io::Result<Self> {
        let watch = FirstWatch::new(former, held, patience)?;
        Ok(Self { pid: watch.pid(), watch: Some(watch), serves: false, times: 0, failed: None })
    }

    /// A description for logs and reports.
    pub(super) fn sentence(&self) -> String {
        match self.serves {
            false => format!("standing by for pid {}", self.pid),
            true => format!("serving through the kernel in place of pid {}, which is stuck", self.pid),
        }
    }

    pub(super) const fn report(&self) -> report::StandingBy {
        report::StandingBy { pid: self.pid, serves: self.serves, times: self.times }
    }
}

impl Instance {
    /// Starts to watch the first instance, if this one is a standby.
    pub(super) fn watch_first(&mut self) {
        if let Some(watch) = self.standing_by.as_mut().and_then(|it| it.watch.take()) {
            let tell = self.tell.clone();
            tokio::spawn(async move { watch.run(&tell).await });
        }
    }

    /// Handles a change of the first instance.
    pub(super) async fn first_is(&mut self, first: First) {
        let Some(standing_by) = &mut self.standing_by else { return };
        let pid = standing_by.pid;
        match first {
            First::Stuck if !standing_by.serves => {
                (standing_by.serves, standing_by.times) = (true, standing_by.times + 1);
                tracing::warn!(
                    "pid {pid} leaves what comes, and none of its threads runs: serving in its place"
                );
                self.tell_all(ServeCommand::Begin);
            }
            First::Back if standing_by.serves => {
                standing_by.serves = false;
                tracing::info!("pid {pid} goes on: standing by for it again");
                self.tell_all(ServeCommand::StepBack);
            }
            First::Stuck | First::Back => {}
            First::Gone => {
                tracing::warn!(
                    "pid {pid}, which this instance stood by for, has ended: this one serves from now on"
                );
                self.standing_by = None;
                "the instance that it stood by for has ended".clone_into(&mut self.interface.choice.why);
                self.tell_all(ServeCommand::Begin);
                self.interface.attach_due = self.interface.ifindex.is_some();
                self.registered = Registered::set(&self.plan.registrations()).await;
            }
            First::Changed(why) => standing_by.failed = Some(why),
        }
        if let Some(standing_by) = &self.standing_by {
            self.interface.choice.why = standing_by.sentence();
        }
    }

    /// The error that ends the standby, if there is one.
    pub(super) fn cannot_stand_by(&mut self) -> Option<InstanceError> {
        let why = self.standing_by.as_mut()?.failed.take()?;
        Some(HoldError::StandBy { from: self.plan.stand_by.clone().unwrap_or_default(), why }.into())
    }

    fn tell_all(&mut self, command: ServeCommand) {
        for worker in &mut self.workers {
            worker.tell_services(command.clone());
        }
    }

    /// Answers another instance that wants to be a standby of this one: it gets the sockets. When the
    /// connection ends, the standby knows that the sockets have changed, or that this instance ends.
    pub(super) fn give_to_stand_by(&mut self, stream: UnixStream) {
        let is_open = |stream: &UnixStream| {
            poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&Timespec::default())) == Ok(0)
        };
        self.stood_by.retain(is_open);
        let why = match (&self.standing_by, &self.drain) {
            (Some(other), _) => Some(format!("it is {} itself: name that one", other.sentence())),
            (_, Some(_)) => Some(STOPPING.to_owned()),
            _ if self.stood_by.len() >= MOST => Some(format!("{MOST} instances stand by for it already")),
            _ => None,
        };
        if send(&stream, &self.held, why) {
            tracing::info!("another instance stands by for this one");
            self.stood_by.push(stream);
        }
    }
}
