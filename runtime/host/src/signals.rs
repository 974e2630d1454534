//! What asks an instance to end or to reload while it runs: signals to its process, or the program that runs it on a
//! thread of its own.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use twinpath_report::Report;
use twinpath_time::Duration;

/// Requests of a program that may wait for the control loop: its handle makes one at a time, and the last one ends it.
const REQUESTS_MAX: usize = 4;

/// The request that a signal, or the program, makes.
pub enum Signalled {
    /// SIGINT or SIGTERM: end.
    End,
    /// End within this time instead of the configured one.
    EndWithin(Duration),
    /// SIGHUP: read the configuration again. A program gets the outcome.
    Reload(Option<SyncSender<Result<Vec<String>, String>>>),
    /// The program wants a report.
    Report(SyncSender<Report>),
}

/// Where these requests come from.
pub struct Signals(Source);

enum Source {
    Process { interrupt: Signal, terminate: Signal, hangup: Signal },
    Program(Receiver<Signalled>),
}

/// A program's end of an instance that runs on another thread of it.
#[derive(Clone)]
pub struct Remote {
    /// Its holder makes one request, and waits for the answer.
    requests: Arc<Mutex<Sender<Signalled>>>,
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
    /// What registering a handler returns.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Source::Process {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        }))
    }

    /// Leaves the signals to the program, which makes its requests by the handle.
    #[must_use]
    pub fn of_program() -> (Remote, Self) {
        let (requests, receiver) = channel(REQUESTS_MAX);
        (Remote { requests: Arc::new(Mutex::new(requests)) }, Self(Source::Program(receiver)))
    }

    /// Whether the process is the instance's own, so that the service manager is told of its state.
    #[must_use]
    pub const fn is_process(&self) -> bool {
        matches!(self.0, Source::Process { .. })
    }

    /// Waits for the next request. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Signalled {
        match &mut self.0 {
            Source::Process { interrupt, terminate, hangup } => tokio::select! {
                _ = interrupt.recv() => Signalled::End,
                _ = terminate.recv() => Signalled::End,
                _ = hangup.recv() => Signalled::Reload(None),
            },
            Source::Program(requests) => match requests.recv().await {
                Some(request) => request,
                // The program cannot ask for anything any more, not even for the end.
                None => std::future::pending().await,
            },
        }
    }
}

impl Remote {
    /// Makes a request that has an answer, and waits for it.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Signalled) -> Result<T, Ended> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, wait) = std::sync::mpsc::sync_channel(1);
        // There is room: each earlier request has been answered.
        requests.try_send(request(answer)).map_err(|_| Ended)?;
        wait.recv().map_err(|_| Ended)
    }

    /// The present report. Blocks until control's thread answers.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn report(&self) -> Result<Report, Ended> {
        self.ask(Signalled::Report)
    }

    /// Has the configuration read again; returns the changes, one line for each, or why there are none. Blocks until
    /// they are in force.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn reload(&self) -> Result<Result<Vec<String>, String>, Ended> {
        self.ask(|answer| Signalled::Reload(Some(answer)))
    }

    /// Asks for the end; connections may take `within` to be answered. Does not wait.
    pub fn end(&self, within: Duration) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // If it has ended already, nothing is to be asked.
        let _ = requests.try_send(Signalled::EndWithin(within));
    }
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
        remote.end(Duration::from_secs(3));
        assert_eq!(control.join().expect("no panic"), Duration::from_secs(3));
        assert_eq!(remote.report().map(|_| ()), Err(Ended));
        remote.end(Duration::ZERO);
    }
}
