//! A running instance gives a new one its very sockets, so that nothing that waits in them is lost and nobody is refused meanwhile.
//!
//! It goes step by step over one connection, and until the last step this instance serves. The new one has been given the
//! sockets; it says `aside`, and the programs come off here, so that it can attach its own; it says `serving` when it serves, and
//! only then this instance drains. If the connection breaks before that, or the new one takes too long, everything is put
//! back as it was: whatever becomes of the new one, somebody serves.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;

use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use twinpath_command as command;
use twinpath_config::Path;
use twinpath_hold::{Step, send};
use twinpath_host::readable;
use twinpath_inspect::Counter;
use twinpath_time::Duration;

use super::{Instance, Outcome};

/// How long the process of a new instance that failed may take to end, until what it had attached is off.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Longest line of a new instance, bytes.
const LINE_MAX: u64 = 64;

/// What became of a new instance.
#[derive(Debug)]
pub(super) enum Heard {
    Said(Step),
    /// It has gone, or taken too long: why, in a few words.
    Gone(String),
}

/// The new instance that has our sockets.
pub(super) struct Taker {
    number: u32,
    stream: StdStream,
    /// The programs have come off for it; whether they were on.
    aside: Option<bool>,
    /// It waits to be told that they have.
    waits: bool,
}

/// New instances so far, and what became of them.
#[derive(Default)]
pub(super) struct Takers {
    current: Option<Taker>,
    next_number: u32,
    /// Those that had our sockets and never served.
    pub(super) failed: Counter,
}

impl Instance {
    /// Another instance wants our sockets: their names in a line, then they themselves. Who has gone gets none.
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
        // An earlier one that has them and has said nothing since has changed nothing.
        self.takers.current = Some(Taker { number, stream, aside: None, waits: false });
        let (tell, patience) = (self.tell.clone(), self.plan.take_over_patience);
        tokio::spawn(async move { listen(heard, number, patience, tell).await });
    }

    /// What becomes of the new instance of that number.
    pub(super) fn taker_heard(&mut self, number: u32, heard: Heard) {
        let Some(taker) = self.takers.current.as_mut().filter(|taker| taker.number == number) else { return };
        match heard {
            Heard::Said(Step::Aside) if taker.aside.is_none() && self.drain.is_none() => {
                tracing::info!("another instance is taking over: the kernel's sockets serve until it does");
                (taker.aside, taker.waits) = (Some(self.interface.attachment.is_some()), true);
                self.stand_aside("another instance is taking over");
            }
            Heard::Said(Step::Serving) if taker.aside.is_some() => {
                // A line fits into the connection's buffer.
                let _ = taker.stream.write_all(&command::agreement());
                self.takers.current = None;
                if self.drain.is_none() {
                    tracing::info!("another instance has taken over: draining");
                    self.hand_over();
                }
            }
            Heard::Said(step) => {
                let _ = taker.stream.write_all(&command::refusal(&format!("{step:?} is not the next step")));
                self.taker_failed("it did not keep to the steps");
            }
            Heard::Gone(why) => self.taker_failed(&why),
        }
    }

    /// Other sockets are served than those that a new instance was given.
    pub(super) fn taker_is_outdated(&mut self) {
        self.taker_failed("the configuration was read again meanwhile");
    }

    /// Puts back what had been taken off for a new instance.
    fn taker_failed(&mut self, why: &str) {
        let Some(mut taker) = self.takers.current.take() else { return };
        self.takers.failed.add(1);
        let sentence = format!("the instance that was to take over does not serve: {why}; this one goes on");
        tracing::warn!("{sentence}");
        // For one that is only late. It must not believe that it is alone.
        let _ = taker.stream.write_all(&command::refusal(&sentence));
        if taker.aside == Some(true) && self.drain.is_none() && self.interface.ifindex.is_some() {
            self.interface.attach_due = true;
        }
    }

    /// Tells a new instance that the programs are off, once the last queue has come back: the kernel gives a queue to one
    /// socket at a time.
    pub(super) fn answer_taker(&mut self) {
        if self.leaving() == 0
            && let Some(taker) = self.takers.current.as_mut().filter(|taker| taker.waits)
        {
            taker.waits = false;
            let _ = taker.stream.write_all(&command::agreement());
        }
    }

    /// Whether the programs are to stay off for another instance.
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

    /// Somebody else serves from here on.
    fn hand_over(&mut self) {
        self.interface.frame_claims.clear();
        "another instance has taken over".clone_into(&mut self.interface.choice.why);
        // What rpcbind was told holds for the new one.
        drop(std::mem::take(&mut self.registered));
        self.begin_to_drain(true, self.plan.drain);
    }
}

/// Listens to a new instance until it serves or fails; once it has said something, it may be silent for so long.
async fn listen(stream: UnixStream, number: u32, patience: Duration, tell: mpsc::Sender<Outcome>) {
    // Now, while it is certain whose number that is.
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
    // If the loop has ended, there is nothing to put back.
    let _ = tell.send(Outcome::Taker(number, Heard::Gone(why))).await;
}

/// Waits until a process has ended, and what it had attached has come off.
async fn ended(process: Option<OwnedFd>) {
    let Some(process) = process.and_then(|fd| readable(fd).ok()) else {
        return;
    };
    // If it takes longer, it hangs in its end.
    let _ = timeout(END_PATIENCE, process.readable()).await;
}
