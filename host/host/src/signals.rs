//! Requests to a running instance to end or to reload: signals to its process, or calls of the program that
//! runs it on one of its threads.

use std::future::pending;
use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant as StdInstant;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use twinpath_observe::report::Report;
use twinpath_time::Duration;

/// Maximum number of a program's requests that wait for the control loop: its handle makes one at a time.
const REQUESTS_MAX: usize = 4;

/// The maximum waiting time: a longer one could not be added to the present time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The request that a signal, or the program, makes.
pub enum Signalled {
    /// SIGINT or SIGTERM: end.
    End,
    /// End within this time instead of the configured one.
    EndWithin(Duration),
    /// SIGHUP: reload the configuration. A program gets the outcome.
    Reload(Option<SyncSender<Result<Vec<String>, String>>>),
    /// The program wants a report.
    Report(SyncSender<Report>),
}

/// The source of these requests: the process's signals, the program, or both.
pub struct Signals {
    owns_process: bool,
    process: Option<OfProcess>,
    program: Option<OfProgram>,
}

struct OfProcess {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

struct OfProgram {
    requests: Receiver<Signalled>,
    /// When the instance is to have ended.
    end: watch::Receiver<Option<StdInstant>>,
}

/// The program's handle of an instance that runs on another of its threads.
#[derive(Clone)]
pub struct Remote {
    /// The holder makes one request, and waits for the answer.
    requests: Arc<Mutex<Sender<Signalled>>>,
    end: watch::Sender<Option<StdInstant>>,
}

/// The instance has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the instance has ended")]
pub struct Ended;

impl Signals {
    /// Registers the handlers of the process's signals. Called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The error of registering a handler.
    pub fn new() -> io::Result<Self> {
        let mut signals = Self { owns_process: true, process: None, program: None };
        signals.register()?;
        Ok(signals)
    }

    /// Leaves the signals to the program, which makes its requests through the handle.
    #[must_use]
    pub fn of_program() -> (Remote, Self) {
        let (requests, receiver) = channel(REQUESTS_MAX);
        let (ask, end) = watch::channel(None);
        let program = Some(OfProgram { requests: receiver, end });
        let remote = Remote { requests: Arc::new(Mutex::new(requests)), end: ask };
        (remote, Self { owns_process: false, process: None, program })
    }

    /// The process is the instance's own: its signals count as well, once they are [registered](Self::register).
    #[must_use]
    pub fn with_those_of_process(self) -> Self {
        Self { owns_process: true, ..self }
    }

    /// Registers the handlers of the process's signals, if they count. Called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The error of registering a handler.
    pub fn register(&mut self) -> io::Result<()> {
        if self.owns_process && self.process.is_none() {
            self.process = Some(OfProcess {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: signal(SignalKind::hangup())?,
            });
        }
        Ok(())
    }

    /// Whether the process belongs to the instance, so that the service manager is notified of its state.
    #[must_use]
    pub const fn is_process(&self) -> bool {
        self.owns_process
    }

    /// Waits for the next request. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Signalled {
        let Self { process, program, .. } = self;
        tokio::select! {
            signalled = of_process(process.as_mut()) => signalled,
            signalled = of_program(program.as_mut()) => signalled,
        }
    }
}

async fn of_process(process: Option<&mut OfProcess>) -> Signalled {
    let Some(OfProcess { interrupt, terminate, hangup }) = process else { return pending().await };
    tokio::select! {
        _ = interrupt.recv() => Signalled::End,
        _ = terminate.recv() => Signalled::End,
        _ = hangup.recv() => Signalled::Reload(None),
    }
}

async fn of_program(program: Option<&mut OfProgram>) -> Signalled {
    let Some(OfProgram { requests, end }) = program else { return pending().await };
    tokio::select! {
        Some(request) = requests.recv() => request,
        Ok(()) = end.changed() => {
            let left = |at: StdInstant| at.saturating_duration_since(StdInstant::now());
            Signalled::EndWithin(end.borrow_and_update().map_or(Duration::ZERO, left))
        }
        // The program cannot make requests any more, not even for the end.
        else => pending().await,
    }
}

impl Remote {
    /// Makes a request that has an answer, and waits for it.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Signalled) -> Result<T, Ended> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, wait) = std::sync::mpsc::sync_channel(1);
        // There is room, because each earlier request has been answered.
        requests.try_send(request(answer)).map_err(|_| Ended)?;
        wait.recv().map_err(|_| Ended)
    }

    /// The present report. Blocks until the control thread answers.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn report(&self) -> Result<Report, Ended> {
        self.ask(Signalled::Report)
    }

    /// Reloads the configuration. Returns the changes, one line for each, or why there are none. Blocks
    /// until they are in force.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn reload(&self) -> Result<Result<Vec<String>, String>, Ended> {
        self.ask(|answer| Signalled::Reload(Some(answer)))
    }

    /// Requests the end; connections may take `within` to be answered. Does not wait, not even for another
    /// request. If there are several such requests, the earliest time counts.
    pub fn end(&self, within: Duration) {
        let at = StdInstant::now() + within.min(LONGEST);
        self.end.send_if_modified(|asked| {
            let earlier = asked.is_none_or(|asked| at < asked);
            if earlier {
                *asked = Some(at);
            }
            earlier
        });
    }
}

/// Whether this thread belongs to a tokio runtime. Code with its own runtime must not wait there.
#[must_use]
pub fn is_in_runtime() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_its_answers_until_the_instance_has_ended() {
        let (remote, mut signals) = Signals::of_program();
        assert!(!signals.is_process());
        let control = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                for _ in 0..2 {
                    match signals.next().await {
                        Signalled::Report(answer) => answer.send(Report::default()).expect("it is awaited"),
                        Signalled::Reload(Some(answer)) => {
                            answer.send(Err("no file".to_owned())).expect("it is awaited");
                        }
                        _ => unreachable!("only these were asked for"),
                    }
                }
                match signals.next().await {
                    Signalled::EndWithin(within) => within,
                    _ => unreachable!("the end comes last"),
                }
            })
        });
        assert!(remote.report().is_ok());
        assert_eq!(remote.reload(), Ok(Err("no file".to_owned())));
        remote.end(Duration::MAX);
        remote.end(Duration::from_secs(3));
        remote.clone().end(Duration::from_secs(300));
        let within = control.join().expect("no panic");
        assert!(within <= LONGEST, "{within:?}");
        assert_eq!(remote.report().map(|_| ()), Err(Ended));
        remote.end(Duration::ZERO);
    }
}
