//! Passes the sockets of a running instance to a new one, so that nothing that waits in them is lost and no
//! client is refused: the connections to new instances. `service/lifecycle/src/hand_over.rs` says who does what when.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use twinpath_inspect::Counter;
use twinpath_lifecycle::{Event, Outcome, Refusal, Step, TakerFailure, TakerId};
use twinpath_observe::command;
use twinpath_sys::event_loop::channel::Sender;
use twinpath_sys::event_loop::{Line, Lines, Task, Watched, spawn, timeout};
use twinpath_sys::socket_kind::peer;
use twinpath_time::Duration;

use super::{Instance, Message};
use crate::hold::{STOPPING, send};

/// How long to wait for the process of a failed new instance to end, so that its programs are detached.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Longest line that a new instance may send, in bytes.
const LINE_MAX: usize = 64;

/// The connection to a new instance that has our sockets.
struct Taker {
    id: TakerId,
    stream: UnixStream,
    /// The task that listens to it.
    listener: Task,
}

/// The connections to new instances.
#[derive(Default)]
pub(super) struct Takers {
    connections: Vec<Taker>,
    /// New instances that got our sockets and never served.
    pub(super) failed: Counter,
}

impl Drop for Takers {
    fn drop(&mut self) {
        self.connections.iter().for_each(|taker| taker.listener.abort());
    }
}

impl Takers {
    /// Sends a line, which fits into the connection's buffer.
    fn tell(&self, id: TakerId, line: &[u8]) {
        if let Some(mut stream) = self.connections.iter().find(|taker| taker.id == id).map(|it| &it.stream) {
            let _ = stream.write_all(line);
        }
    }

    /// Closes the connection.
    fn close(&mut self, id: TakerId) {
        for taker in self.connections.extract_if(.., |taker| taker.id == id) {
            taker.listener.abort();
        }
    }
}

impl Instance {
    /// Answers another instance that asks for the sockets: sends their names in one line, and then the
    /// descriptors.
    pub(super) fn give_sockets(&mut self, id: TakerId) -> Outcome {
        let Some(stream) = self.asking.take() else { return Outcome::Failed };
        // Made first: a connection that closes after the sockets were sent would mean that this instance has ended.
        let heard = stream.try_clone().and_then(Watched::readable);
        let listener = match heard.and_then(|heard| spawn(listen(heard, id, self.tell.clone()))) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!("cannot hand over the sockets: {error}");
                return Outcome::Failed;
            }
        };
        if !send(&stream, &self.held, None) {
            listener.abort();
            return Outcome::Failed;
        }
        self.takers.connections.push(Taker { id, stream, listener });
        self.standbys.has_taker = true;
        self.introduce_standbys();
        Outcome::Done
    }

    /// Sends a refusal in place of the sockets.
    pub(super) fn refuse_sockets(&mut self, refusal: Refusal) {
        let why = match refusal {
            Refusal::StandingBy => format!("it is {}: take over from that one", self.standing_by()),
            Refusal::BeingTakenOver => "another instance is taking over already".to_owned(),
            Refusal::TakenOver => "another instance has taken over already".to_owned(),
            Refusal::Stopping | Refusal::TooManyStandbys => STOPPING.to_owned(),
        };
        if let Some(mut stream) = self.asking.take() {
            let _ = stream.write_all(&command::refusal(&why));
        }
    }

    /// Tells a new instance that it can go on.
    pub(super) fn agree(&mut self, id: TakerId) {
        let has_taken_over = self.lifecycle.taker().is_none_or(|taker| taker.id() != id);
        self.takers.tell(id, &command::agreement());
        if has_taken_over {
            self.takers.close(id);
        }
    }

    /// Tells a new instance that it does not take over.
    pub(super) fn give_up(&mut self, id: TakerId, failure: TakerFailure) {
        let why = match failure {
            TakerFailure::Gone => "it has gone".to_owned(),
            TakerFailure::Late => {
                format!("it took longer than {} ms", self.plan.take_over_patience.as_millis())
            }
            TakerFailure::OutOfStep(step) => format!("{step:?} is not the next step"),
            TakerFailure::NoStep => "it says what is no step".to_owned(),
            TakerFailure::Replaced => "another instance has asked for the sockets after it".to_owned(),
            TakerFailure::Outdated => "the configuration was read again meanwhile".to_owned(),
        };
        self.takers.failed.add(1);
        let sentence = format!("the instance that was to take over does not serve: {why}; this one goes on");
        tracing::warn!("{sentence}");
        // If that instance is only late, this tells it that it does not serve alone.
        self.takers.tell(id, &command::refusal(&sentence));
        // One that may have programs attached yet is listened to until it ends.
        if !self.lifecycle.is_given_up(id) {
            self.takers.close(id);
        }
    }

    /// The new instance serves from here on.
    pub(super) fn leave_registrations(&mut self) {
        tracing::info!("another instance has taken over: draining");
        "another instance has taken over".clone_into(&mut self.interface.choice.why);
        // The registrations with rpcbind stay, as they hold for the new instance.
        self.registered = Default::default();
    }
}

/// Reads the messages of a new instance until its connection closes.
async fn listen(stream: Watched<UnixStream>, id: TakerId, tell: Sender<Message>) {
    // Read now, while the PID certainly belongs to that process.
    let process = peer(stream.get_ref()).ok().and_then(|peer| peer.process);
    let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
    let mut lines = Lines::new(stream);
    loop {
        let line = match lines.next(LINE_MAX).await {
            Ok(Line::Whole(line) | Line::TooLong(line) | Line::End(line)) if !line.is_empty() => line,
            Ok(_) | Err(_) => break,
        };
        let step = serde_json::from_slice::<Step>(&line);
        // It may have failed since it said that.
        if step.is_ok() && has_closed(lines.stream().get_ref()) {
            break;
        }
        let event = step.as_ref().map_or(Event::Misheard(id), |step| Event::Heard(id, *step));
        if tell.send(Message::Event(event)).await.is_err() {
            return;
        }
        if step.is_err() {
            break;
        }
    }
    ended(process).await;
    // If the control loop has ended, there is nothing to restore.
    let _ = tell.send(Message::Event(Event::TakerGone(id))).await;
}

/// Whether the other end of a connection is closed.
fn has_closed(stream: &UnixStream) -> bool {
    poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&Timespec::default())) != Ok(0)
}

/// Waits until a process has ended, so that its programs are detached.
async fn ended(process: Option<OwnedFd>) {
    let Some(process) = process.and_then(|fd| Watched::readable(fd).ok()) else {
        return;
    };
    // A process that takes longer hangs while it ends.
    let _ = timeout(END_PATIENCE, process.until_readable()).await;
}
