//! Passes the sockets of a running instance to a new one, so that nothing that waits in them is lost and no
//! client is refused.
//!
//! The steps follow each other on one connection, and until the last one this instance serves. First the new
//! instance gets the sockets. At its step `aside`, this instance detaches its programs, so that the new one can
//! attach its own. At its step `serving`, the new instance serves; this one accepts nothing more, agrees, and
//! drains. If the connection breaks before that, or the new instance takes too long, this one restores its
//! former state: if the new one fails, this one serves.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;

use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use twinpath_config::Path;
use twinpath_host::readable;
use twinpath_inspect::Counter;
use twinpath_observe::command;
use twinpath_time::Duration;

use super::{Instance, Outcome};
use crate::hold::{Step, send};

/// How long to wait for the process of a failed new instance to end, so that its programs are detached.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Longest line that a new instance may send, in bytes.
const LINE_MAX: u64 = 64;

/// A message about a new instance.
#[derive(Debug)]
pub(super) enum Heard {
    Said(Step),
    /// It has ended or taken too long; the reason in a few words.
    Gone(String),
}

/// The new instance that has our sockets.
pub(super) struct Taker {
    number: u32,
    stream: StdStream,
    /// Set once the programs are detached for it: whether they were attached before.
    aside: Option<bool>,
    /// Whether it waits for the answer that the programs are detached.
    waits: bool,
}

/// The new instance, if there is one, and how many there have been.
#[derive(Default)]
pub(super) struct Takers {
    current: Option<Taker>,
    next_number: u32,
    /// New instances that got our sockets and never served.
    pub(super) failed: Counter,
}

impl Instance {
    /// Answers another instance that asks for the sockets: sends their names in one line, and then the
    /// descriptors.
    pub(super) fn give_sockets(&mut self, stream: StdStream) {
        let taken = self.takers.current.as_ref().is_some_and(|taker| taker.aside.is_some());
        let why = match &self.standing_by {
            Some(other) => Some(format!("it is {}: take over from that one", other.sentence())),
            None => taken.then(|| "another instance is taking over already".to_owned()),
        };
        if !send(&stream, &self.held, why) {
            return;
        }
        let heard = match stream.try_clone().and_then(UnixStream::from_std) {
            Ok(heard) => heard,
            Err(error) => return tracing::warn!("cannot hand over the sockets: {error}"),
        };
        let number = self.takers.next_number;
        self.takers.next_number += 1;
        // An earlier new instance that has not sent `aside` yet has changed nothing.
        self.takers.current = Some(Taker { number, stream, aside: None, waits: false });
        let (tell, patience) = (self.tell.clone(), self.plan.take_over_patience);
        tokio::spawn(async move { listen(heard, number, patience, tell).await });
    }

    /// Handles a message about new instance `number`.
    pub(super) fn taker_heard(&mut self, number: u32, heard: Heard) {
        let Some(taker) = self.takers.current.as_mut().filter(|taker| taker.number == number) else { return };
        match heard {
            Heard::Said(Step::Aside) if taker.aside.is_none() && self.drain.is_none() => {
                tracing::info!("another instance is taking over: the kernel's sockets serve until it does");
                (taker.aside, taker.waits) = (Some(self.interface.attachment.is_some()), true);
                self.stand_aside("another instance is taking over");
            }
            Heard::Said(Step::Serving) if taker.aside.is_some() => {
                let Some(mut taker) = self.takers.current.take() else { return };
                if self.drain.is_none() {
                    tracing::info!("another instance has taken over: draining");
                    self.hand_over();
                }
                // The new instance reports that it is ready when we agree. A client that connects after that must not
                // be accepted here, where its connection would end at once.
                self.wait_until_listeners_closed();
                // The line fits into the connection's buffer.
                let _ = taker.stream.write_all(&command::agreement());
            }
            Heard::Said(step) => {
                let _ = taker.stream.write_all(&command::refusal(&format!("{step:?} is not the next step")));
                self.taker_failed("it did not keep to the steps");
            }
            Heard::Gone(why) => self.taker_failed(&why),
        }
    }

    /// The sockets have changed since a new instance got them.
    pub(super) fn taker_is_outdated(&mut self) {
        self.taker_failed("the configuration was read again meanwhile");
    }

    /// A new instance has failed: restores the former state.
    fn taker_failed(&mut self, why: &str) {
        let Some(mut taker) = self.takers.current.take() else { return };
        self.takers.failed.add(1);
        let sentence = format!("the instance that was to take over does not serve: {why}; this one goes on");
        tracing::warn!("{sentence}");
        // If that instance is only late, this tells it that it does not serve alone.
        let _ = taker.stream.write_all(&command::refusal(&sentence));
        if taker.aside == Some(true) && self.drain.is_none() && self.interface.ifindex.is_some() {
            self.interface.attach_due = true;
        }
    }

    /// Tells a new instance that the programs are detached, once the workers have returned the last queue: the
    /// kernel gives a queue to one socket at a time.
    pub(super) fn answer_taker(&mut self) {
        if self.leaving() == 0
            && let Some(taker) = self.takers.current.as_mut().filter(|taker| taker.waits)
        {
            taker.waits = false;
            let _ = taker.stream.write_all(&command::agreement());
        }
    }

    /// Whether the programs must stay detached, because another instance attaches its own.
    pub(super) fn stands_aside(&self) -> bool {
        self.standing_by.is_some() || self.is_taken_over()
    }

    /// Whether another instance is taking over.
    pub(super) fn is_taken_over(&self) -> bool {
        self.takers.current.as_ref().is_some_and(|taker| taker.aside.is_some())
    }

    fn stand_aside(&mut self, why: &str) {
        if let Some(ifindex) = self.interface.ifindex.filter(|_| self.interface.attachment.is_some()) {
            self.detach(ifindex);
            self.interface.choice.path = Path::Kernel;
            why.clone_into(&mut self.interface.choice.why);
        }
    }

    /// The new instance serves from here on.
    fn hand_over(&mut self) {
        self.interface.frame_claims.clear();
        "another instance has taken over".clone_into(&mut self.interface.choice.why);
        // The registrations with rpcbind stay, as they hold for the new instance.
        self.registered = Default::default();
        self.begin_to_drain(true, self.plan.drain);
    }
}

/// Reads the messages of a new instance until it serves or fails. After each of its messages it may be silent
/// for `patience`.
async fn listen(stream: UnixStream, number: u32, patience: Duration, tell: mpsc::Sender<Outcome>) {
    // Read now, while the PID certainly belongs to that process.
    let pid = stream.peer_cred().ok().and_then(|peer| rustix::process::Pid::from_raw(peer.pid()?));
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut reader = BufReader::new(stream);
    let mut wait = Duration::MAX;
    let why = loop {
        let mut line = String::new();
        let mut limited = tokio::io::AsyncReadExt::take(&mut reader, LINE_MAX);
        match timeout(wait, limited.read_line(&mut line)).await {
            Err(_) => break format!("it took longer than {} ms", patience.as_millis()),
            Ok(Ok(0) | Err(_)) => {
                ended(process).await;
                break "it has gone".to_owned();
            }
            Ok(Ok(_)) => {}
        }
        let Ok(step) = serde_json::from_str(&line) else { break "it says what is no step".to_owned() };
        wait = patience;
        if tell.send(Outcome::Taker(number, Heard::Said(step))).await.is_err() || step == Step::Serving {
            return;
        }
    };
    // If the control loop has ended, there is nothing to restore.
    let _ = tell.send(Outcome::Taker(number, Heard::Gone(why))).await;
}

/// Waits until a process has ended, so that its programs are detached.
async fn ended(process: Option<OwnedFd>) {
    let Some(process) = process.and_then(|fd| readable(fd).ok()) else {
        return;
    };
    // A process that takes longer hangs while it ends.
    let _ = timeout(END_PATIENCE, process.readable()).await;
}
