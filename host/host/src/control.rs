//! The control loop, which is the same for every program; [`Controlled`] is the part that differs.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use twinpath_observe::command::{CommandError, Request, Server, default_socket, run_directory};
use twinpath_observe::report::{self as report, Report};
use twinpath_sys::event_loop::channel::{Receiver, SendOnce, bounded, once};
use twinpath_sys::event_loop::{EventLoop, sleep_until, yield_now};
use twinpath_sys::{clock, race};
use twinpath_time::{Duration, Instant};
use twinpath_worker::thread::panics;

use crate::machine::Answer;
use crate::metrics::{self, MetricsError, Offered};
use crate::notify;
use crate::outbox::RETRY_INTERVAL;
use crate::readable::{any_readable, readable_copy};
use crate::signals::{Heard, Signalled, Signals};
use crate::watchdog::Watchdog;
use crate::worker::Supervised;

/// Maximum number of messages that wait for a control loop. Further ones wait in their sockets.
pub const MESSAGES_MAX: usize = 64;

/// The first state of a program that serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its command socket.
    pub socket: PathBuf,
    /// The address of the metrics, if they are offered.
    pub metrics: Option<SocketAddr>,
    /// The first report.
    pub report: Report,
}

/// The sockets at which a program accepts requests: its command socket, and its listener for metrics, which
/// may change while it runs.
pub struct Offers<'a> {
    /// The command socket.
    pub commands: &'a Server,
    /// The present listener for metrics.
    pub metrics: Offered,
}

/// A program with a control loop: an instance with services, an exception port, a switch, an owner of an
/// interface. All methods are called on the control thread, and none may block.
#[allow(async_fn_in_trait, reason = "a control loop runs on one thread, so no future has to be Send")]
pub trait Controlled {
    /// An event that only this program has: of its mirror of the kernel's tables, its timers or its tasks.
    type Event;
    /// The reason for which the program must end.
    type Error: From<std::io::Error>;

    /// The program's name in messages, such as `the instance`.
    const NAME: &'static str;
    /// Whether [`Controlled::connection`] handles requests whose answer is more than one line.
    const TAKES_CONNECTIONS: bool;

    /// The workers, in the order of their numbers; by default there are none.
    fn workers(&mut self) -> impl Iterator<Item = &mut dyn Supervised> {
        std::iter::empty()
    }

    /// Sends the commands that wait for room in the mailboxes of workers. Returns whether none waits any
    /// more.
    fn flush(&mut self) -> bool {
        flush(self.workers())
    }

    /// Waits for the next event of this program. Cancelling it loses nothing.
    ///
    /// # Errors
    ///
    /// The program cannot continue; the loop ends with this error.
    async fn next(&mut self) -> Result<Self::Event, Self::Error>;

    /// Handles an event of this program. Returns whether the loop continues.
    async fn happened(&mut self, event: Self::Event) -> bool;

    /// Reads the events that the workers have sent.
    async fn read_workers(&mut self) {}

    /// Answers a request, immediately or later.
    async fn request(&mut self, request: Request, answer: Answer);

    /// Handles a request whose answer is more than one line, on its own connection.
    async fn connection(&mut self, request: Request, stream: UnixStream);

    /// The whole report.
    fn report(&mut self) -> Report;

    /// The part of the report from which the metrics are made.
    fn scrape(&mut self) -> Report;

    /// SIGHUP has arrived, or the program asks for it: reloads the configuration. Returns the changes, one
    /// line for each.
    ///
    /// # Errors
    ///
    /// Nothing was changed; one line for each reason, which is also logged.
    async fn reload(&mut self) -> Result<Vec<String>, String>;

    /// SIGINT or SIGTERM has arrived, or the program asks for the end `within` a time: begins to stop.
    /// Returns whether the loop waits for something before it ends.
    async fn end(&mut self, within: Option<Duration>) -> bool;

    /// Called after each event: does all work that is due. Returns whether the loop continues.
    ///
    /// # Errors
    ///
    /// The program cannot continue; the loop ends with this error.
    async fn finish_turn(&mut self) -> Result<bool, Self::Error>;
}

/// A message to the loop.
enum Message {
    /// From the command socket.
    Request(Request, Answer),
    /// A request whose answer is more than one line, with its connection.
    Connection(Request, UnixStream),
    /// A scraper of metrics wants a report.
    Scrape(SendOnce<Report>),
}

/// An event of the loop.
enum Woken<E> {
    Event(E),
    Worker,
    Watchdog,
    Message(Message),
    Signal(Signalled),
    Retry,
}

/// The addresses at which a program accepts requests.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<'a> {
    /// Its command socket; `None`: the usual one for programs of this kind and name.
    pub socket: Option<&'a Path>,
    /// What it is.
    pub kind: &'a report::InstanceKind,
    /// Its name.
    pub name: &'a str,
    /// The address of the metrics endpoint.
    pub metrics: Option<SocketAddr>,
}

/// Starts a program on this thread, runs it until a signal or the program itself ends it, and stops it.
/// `start` gets the present listener for metrics, which it may change, and the path of the command socket.
/// `ready` is called once the program serves. A panic of any thread ends the process. Returns the result of
/// `stop`: the names of stuck workers, which were left to end with the process.
///
/// # Errors
///
/// The reason for which it could not start or continue. `stop` has been called for a program that had started.
pub fn run_to_end<C: Controlled>(
    addresses: Addresses<'_>,
    start: impl AsyncFnOnce(Offered, &Path) -> Result<C, C::Error>,
    ready: impl FnOnce(&Ready),
    stop: impl FnOnce(C) -> Vec<String>,
) -> Result<Vec<String>, C::Error>
where
    C::Error: From<CommandError> + From<MetricsError>,
{
    let events = EventLoop::new()?;
    panics::end_process_on_panic(|| events.run(to_end(addresses, start, ready, stop)))
}

/// As [`run_to_end`], for a program whose thread runs another event loop, which runs this one's.
///
/// # Errors
///
/// As [`run_to_end`].
pub async fn to_end<C: Controlled>(
    addresses: Addresses<'_>,
    start: impl AsyncFnOnce(Offered, &Path) -> Result<C, C::Error>,
    ready: impl FnOnce(&Ready),
    stop: impl FnOnce(C) -> Vec<String>,
) -> Result<Vec<String>, C::Error>
where
    C::Error: From<CommandError> + From<MetricsError>,
{
    // Before anything is changed, so that a signal cannot interrupt the start halfway.
    let mut signals = Signals::new()?.hear()?;
    let Addresses { socket, kind, name, metrics } = addresses;
    let usual = || default_socket(&run_directory(), kind.text(), name);
    let commands = Server::bind(&socket.map_or_else(usual, Path::to_owned))?;
    let offered = Offered::new(metrics.map(metrics::Server::bind).transpose()?.map(Rc::new));
    let mut program = start(offered.clone(), commands.path()).await?;
    let offers = Offers { commands: &commands, metrics: offered };
    let outcome = run(&mut program, &mut signals, offers, ready).await;
    let left = stop(program);
    outcome.map(|()| left)
}

/// Listens at the command socket, calls `ready`, notifies the service manager, and runs until a signal or the
/// program ends the loop. Called within an event loop.
///
/// # Errors
///
/// The reason for which the program could not continue.
pub async fn run<C: Controlled>(
    program: &mut C,
    signals: &mut Heard,
    offers: Offers<'_>,
    ready: impl FnOnce(&Ready),
) -> Result<(), C::Error> {
    let (ask, messages) = bounded(MESSAGES_MAX);
    let request = |request| {
        let ask = ask.clone();
        async move {
            let (answer, mut wait) = once();
            let stopping = || format!("{} is stopping", C::NAME);
            ask.send(Message::Request(request, answer)).await.map_err(|_| stopping())?;
            wait.recv().await.ok_or_else(stopping)?
        }
    };
    // If the loop cannot take more messages, the client's connection is closed.
    let connection = |request, stream| drop(ask.try_send(Message::Connection(request, stream)));
    let scrape = || {
        let ask = ask.clone();
        async move {
            let (answer, mut wait) = once();
            ask.send(Message::Scrape(answer)).await.ok()?;
            wait.recv().await
        }
    };
    let Offers { commands, metrics: offered } = offers;
    let address = offered.get().map(|server| server.address());
    ready(&Ready { socket: commands.path().to_owned(), metrics: address, report: program.report() });
    if signals.is_process() {
        notify::ready();
    }
    race!(
        turns(program, signals, messages),
        async { match commands.serve_aside(request, C::TAKES_CONNECTIONS.then_some(connection)).await {} },
        async { match metrics::serve_where_offered(offered, scrape).await {} },
    )
}

/// The loop.
async fn turns<C: Controlled>(
    program: &mut C,
    signals: &mut Heard,
    mut messages: Receiver<Message>,
) -> Result<(), C::Error> {
    let watched: Result<Vec<_>, _> = program.workers().map(|worker| readable_copy(worker.events())).collect();
    let watched = watched?;
    // The service manager is notified about a whole process, not about one thread of a program.
    let mut watchdog =
        if signals.is_process() { Watchdog::of_the_service_manager() } else { Watchdog::nobodys() };
    loop {
        let flushed = program.flush();
        let retry_at = if flushed { Instant::NEVER } else { clock::now() + RETRY_INTERVAL };
        let woken = race!(
            async { program.next().await.map(Woken::Event) },
            async {
                any_readable(&watched).await;
                Ok(Woken::Worker)
            },
            async {
                watchdog.is_due().await;
                Ok(Woken::Watchdog)
            },
            async {
                match messages.recv().await {
                    Some(message) => Ok(Woken::Message(message)),
                    None => std::future::pending().await,
                }
            },
            async { Ok(Woken::Signal(signals.next().await)) },
            async {
                sleep_until(retry_at).await;
                Ok(Woken::Retry)
            },
        )?;
        if !follow(program, woken, &mut watchdog).await || !program.finish_turn().await? {
            return Ok(());
        }
        // Yields, so that the command socket is served after each event, even if events never end.
        yield_now().await;
    }
}

/// Handles an event of the loop. Returns whether the loop continues.
async fn follow<C: Controlled>(program: &mut C, woken: Woken<C::Event>, watchdog: &mut Watchdog) -> bool {
    match woken {
        Woken::Event(event) => return program.happened(event).await,
        // A mailbox was full: the waiting commands are sent at the top of the loop.
        Woken::Retry => {}
        Woken::Worker => program.read_workers().await,
        Woken::Watchdog => {
            let late = watchdog.feed(program.workers().map(|worker| worker.counters().turns()));
            let workers = program.workers().enumerate().filter(|(number, _)| late.contains(number));
            workers.for_each(|(_, worker)| worker.wake());
        }
        Woken::Message(Message::Request(request, answer)) => program.request(request, answer).await,
        Woken::Message(Message::Connection(request, stream)) => program.connection(request, stream).await,
        // The scraper may have closed its connection.
        Woken::Message(Message::Scrape(answer)) => drop(answer.send(program.scrape())),
        Woken::Signal(Signalled::Reload(answer)) => {
            let outcome = program.reload().await;
            // The requester may have gone.
            answer.into_iter().for_each(|answer| drop(answer.try_send(outcome.clone())));
        }
        Woken::Signal(Signalled::Report(answer)) => drop(answer.try_send(program.report())),
        Woken::Signal(Signalled::EndWithin(within)) => return program.end(Some(within)).await,
        Woken::Signal(Signalled::End) => {
            notify::stopping();
            return program.end(None).await;
        }
    }
    true
}

/// Sends the commands that wait for room in the mailboxes of workers. Returns whether none waits any more.
pub fn flush<'a>(workers: impl IntoIterator<Item = &'a mut dyn Supervised>) -> bool {
    // All workers are flushed, even if one of them has no room.
    workers.into_iter().filter_map(|worker| (!worker.flush()).then_some(())).count() == 0
}

/// A program's report of its process: when it started, the bytes of its frame memory, its sandbox.
#[must_use]
pub fn report_process(started: Instant, pool_bytes: u64, sandbox: &report::Sandbox) -> report::Instance {
    report::Instance {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_s: clock::now().since(started).as_secs_f64(),
        pool_mib: pool_bytes as f64 / f64::from(1 << 20),
        sandbox: sandbox.clone(),
        ..report::Instance::default()
    }
}
