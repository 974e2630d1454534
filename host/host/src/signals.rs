//! Requests to a running instance to end or to reload: signals to its process, or calls of the program that
//! runs it on one of its threads.

use std::future::pending;
use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use twinpath_observe::report::Report;
use twinpath_sys::event_loop::Watched;
use twinpath_sys::event_loop::channel::{Receiver, Sender, bounded};
use twinpath_sys::{ProcessSignal, ProcessSignals, clock, race};
use twinpath_time::{Duration, Instant};

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
    process: Option<ProcessSignals>,
    program: Option<OfProgram>,
}

/// The source of requests, on an event loop.
pub struct Heard {
    owns_process: bool,
    process: Option<Watched<ProcessSignals>>,
    program: Option<OfProgram>,
}

struct OfProgram {
    requests: Receiver<Signalled>,
    /// `end` has changed.
    ends: Receiver<()>,
    end: End,
}

/// When the instance is to have ended; `None` as long as the program has not asked for that.
#[derive(Clone, Default)]
struct End(Arc<Mutex<Option<Instant>>>);

impl End {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program's handle of an instance that runs on another of its threads.
#[derive(Clone)]
pub struct Remote {
    /// The holder makes one request, and waits for the answer.
    requests: Arc<Mutex<Sender<Signalled>>>,
    ends: Sender<()>,
    end: End,
}

/// The instance has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the instance has ended")]
pub struct Ended;

impl Signals {
    /// The process's signals, which do not end it from now on.
    ///
    /// # Errors
    ///
    /// The error of installing a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self { owns_process: true, process: Some(ProcessSignals::new()?), program: None })
    }

    /// Leaves the signals to the program, which makes its requests through the handle.
    #[must_use]
    pub fn of_program() -> (Remote, Self) {
        let ((requests, receiver), (ends, told)) = (bounded(REQUESTS_MAX), bounded(1));
        let end = End::default();
        let program = Some(OfProgram { requests: receiver, ends: told, end: end.clone() });
        let remote = Remote { requests: Arc::new(Mutex::new(requests)), ends, end };
        (remote, Self { owns_process: false, process: None, program })
    }

    /// The process is the instance's own: its signals count as well, once they are [heard](Self::hear).
    #[must_use]
    pub fn with_those_of_process(self) -> Self {
        Self { owns_process: true, ..self }
    }

    /// Installs the handlers of the process's signals, if they count. Called within an event loop.
    ///
    /// # Errors
    ///
    /// The error of installing a handler.
    pub fn hear(self) -> io::Result<Heard> {
        let Self { owns_process, process, program } = self;
        let process = match (owns_process, process) {
            (true, None) => Some(ProcessSignals::new()?),
            (_, process) => process,
        };
        let process = process.map(Watched::readable).transpose()?;
        Ok(Heard { owns_process, process, program })
    }
}

impl Heard {
    /// Whether the process belongs to the instance, so that the service manager is notified of its state.
    #[must_use]
    pub const fn is_process(&self) -> bool {
        self.owns_process
    }

    /// Waits for the next request. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Signalled {
        let Self { process, program, .. } = self;
        race!(of_process(process.as_mut()), of_program(program.as_mut()))
    }
}

async fn of_process(process: Option<&mut Watched<ProcessSignals>>) -> Signalled {
    let Some(process) = process else { return pending().await };
    loop {
        process.until_readable().await;
        // Several may have come at once.
        match process.get_mut().take() {
            Some(ProcessSignal::Interrupt | ProcessSignal::Terminate) => return Signalled::End,
            Some(ProcessSignal::Hangup) => return Signalled::Reload(None),
            None => process.clear(),
        }
    }
}

async fn of_program(program: Option<&mut OfProgram>) -> Signalled {
    let Some(OfProgram { requests, ends, end }) = program else { return pending().await };
    let request = async {
        match requests.recv().await {
            Some(request) => request,
            // The program cannot make requests any more.
            None => pending().await,
        }
    };
    let ends = async {
        if ends.recv().await.is_none() {
            return pending().await;
        }
        let at = *end.lock();
        Signalled::EndWithin(at.map_or(Duration::ZERO, |at| at.since(clock::now())))
    };
    race!(request, ends)
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
        let at = clock::now() + within.min(LONGEST);
        let mut end = self.end.lock();
        if end.is_none_or(|asked| at < asked) {
            *end = Some(at);
            drop(end);
            // If there is no room, the control loop has not looked at an earlier time yet.
            let _ = self.ends.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use twinpath_sys::event_loop::EventLoop;

    use super::*;

    #[test]
    fn a_program_gets_its_answers_until_the_instance_has_ended() {
        let (remote, signals) = Signals::of_program();
        let control = std::thread::spawn(move || {
            EventLoop::new().expect("a loop").run(async {
                let mut signals = signals.hear().expect("the process's are left to the program");
                assert!(!signals.is_process());
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
