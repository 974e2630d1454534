//! The control loop: one for every program that has workers. What such a program does with what wakes the loop is its [`Controlled`].

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::{mpsc, oneshot, watch};
use twinpath_command::{Request, Server};
use twinpath_machine::Answer;
use twinpath_metrics as metrics;
use twinpath_report::{self as report, Report};
use twinpath_sys::clock;
use twinpath_time::Instant;

use crate::engines::Hosted;
use crate::notify;
use crate::outbox::RETRY_INTERVAL;
use crate::readable::{any_readable, readable_copy};
use crate::signals::{Signalled, Signals};
use crate::watchdog::Watchdog;
use crate::worker::WorkerHandle;

/// Messages that may wait for a control loop; more wait in their sockets.
pub const MESSAGES_MAX: usize = 64;

/// What is known once a program serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its command socket.
    pub socket: PathBuf,
    /// Where metrics are, if they are offered.
    pub metrics: Option<SocketAddr>,
    /// Its first report.
    pub report: Report,
}

/// What the interfaces of a program offer to others: its command socket, and its metrics, which may change while it runs.
pub struct Offers<'a> {
    /// The command socket.
    pub commands: &'a Server,
    /// Where metrics are offered now.
    pub metrics: watch::Receiver<Option<Rc<metrics::Server>>>,
}

/// A program with workers, as its control loop needs it: an instance with services, an exception port. All of it runs on the control
/// thread, and nothing of it may block.
#[allow(async_fn_in_trait, reason = "a control loop runs on one thread, so no future has to be Send")]
pub trait Controlled {
    /// The engine of its workers.
    type Engine: Hosted;
    /// What wakes the loop for this program only: its mirror of the kernel's tables, its timers, its tasks.
    type Event;
    /// Why it cannot go on.
    type Error: From<std::io::Error>;

    /// For messages: `the instance`.
    const NAME: &'static str;
    /// Whether some requests are answered with more than a line, on their own connections ([`Controlled::connection`]).
    const TAKES_CONNECTIONS: bool;

    /// Its workers, in the order of their numbers.
    fn workers(&self) -> impl Iterator<Item = &WorkerHandle<Self::Engine>>;

    /// The worker of that number, which is one of them.
    fn worker_mut(&mut self, number: usize) -> &mut WorkerHandle<Self::Engine>;

    /// Sends what waits for room in the mailboxes of workers. Returns whether nothing waits any more.
    fn flush(&mut self) -> bool;

    /// Waits for what else wakes the loop. Cancelling it loses nothing.
    ///
    /// # Errors
    /// The loop ends with it.
    async fn next(&mut self) -> Result<Self::Event, Self::Error>;

    /// Does what follows from that. Returns whether the loop goes on.
    async fn happened(&mut self, event: Self::Event) -> bool;

    /// Takes what workers have sent.
    async fn read_workers(&mut self);

    /// Answers a request, now or later.
    async fn request(&mut self, request: Request, answer: Answer);

    /// Answers a request on its own connection.
    async fn connection(&mut self, request: Request, stream: UnixStream);

    /// Everything that `show` can tell.
    fn report(&mut self) -> Report;

    /// The part of it that becomes metrics.
    fn scrape(&mut self) -> Report;

    /// SIGHUP: its configuration is to be read again.
    async fn reload(&mut self);

    /// SIGINT or SIGTERM. Returns whether there is something to wait for.
    async fn end(&mut self) -> bool;

    /// Called after each of the above: does what has become due by it. Returns whether the loop goes on.
    ///
    /// # Errors
    /// The loop ends with it.
    async fn finish_turn(&mut self) -> Result<bool, Self::Error>;
}

/// A message to the loop.
enum Message {
    /// From the command socket.
    Request(Request, Answer),
    /// The same, with its connection.
    Connection(Request, UnixStream),
    /// For a scrape of metrics.
    Scrape(oneshot::Sender<Report>),
}

/// What woke the loop.
enum Woken<E> {
    Event(E),
    Worker,
    Watchdog,
    Message(Message),
    Signal(Signalled),
    Retry,
}

/// Answers at the command socket, calls `ready` and tells the service manager, and runs until a signal or the program itself ends it.
/// Called within a current-thread tokio runtime.
///
/// # Errors
/// Why the program cannot go on.
pub async fn run<C: Controlled>(
    program: &mut C,
    signals: &mut Signals,
    offers: Offers<'_>,
    ready: impl FnOnce(&Ready),
) -> Result<(), C::Error> {
    let (ask, messages) = mpsc::channel(MESSAGES_MAX);
    let request = |request| {
        let ask = ask.clone();
        async move {
            let (answer, wait) = oneshot::channel();
            let stopping = || format!("{} is stopping", C::NAME);
            ask.send(Message::Request(request, answer)).await.map_err(|_| stopping())?;
            wait.await.map_err(|_| stopping())?
        }
    };
    // If the loop is so far behind, the client finds its connection closed.
    let connection = |request, stream| drop(ask.try_send(Message::Connection(request, stream)));
    let scrape = || {
        let ask = ask.clone();
        async move {
            let (answer, wait) = oneshot::channel();
            ask.send(Message::Scrape(answer)).await.ok()?;
            wait.await.ok().map(metrics::encode)
        }
    };
    let Offers { commands, metrics: offered } = offers;
    let address = offered.borrow().as_ref().map(|server| server.address());
    ready(&Ready { socket: commands.path().to_owned(), metrics: address, report: program.report() });
    notify::ready();
    tokio::select! {
        outcome = turns(program, signals, messages) => outcome,
        never = commands.serve_aside(request, C::TAKES_CONNECTIONS.then_some(connection)) => match never {},
        never = metrics::serve_where_offered(offered, scrape) => match never {},
    }
}

/// The loop itself.
async fn turns<C: Controlled>(
    program: &mut C,
    signals: &mut Signals,
    mut messages: mpsc::Receiver<Message>,
) -> Result<(), C::Error> {
    let watched: Result<Vec<_>, _> =
        program.workers().map(|worker| readable_copy(worker.events.as_fd())).collect();
    let watched = watched?;
    let mut watchdog = Watchdog::of_the_service_manager();
    loop {
        let flushed = program.flush();
        let woken = tokio::select! {
            event = program.next() => Woken::Event(event?),
            () = any_readable(&watched) => Woken::Worker,
            () = watchdog.is_due() => Woken::Watchdog,
            Some(message) = messages.recv() => Woken::Message(message),
            signalled = signals.next() => Woken::Signal(signalled),
            () = tokio::time::sleep(RETRY_INTERVAL), if !flushed => Woken::Retry,
        };
        if !follow(program, woken, &mut watchdog).await || !program.finish_turn().await? {
            return Ok(());
        }
    }
}

/// Does what follows from what woke the loop. Returns whether the loop goes on.
async fn follow<C: Controlled>(program: &mut C, woken: Woken<C::Event>, watchdog: &mut Watchdog) -> bool {
    match woken {
        Woken::Event(event) => return program.happened(event).await,
        // Only while a worker's mailbox is full: what waits is sent at the top of the loop.
        Woken::Retry => {}
        Woken::Worker => program.read_workers().await,
        Woken::Watchdog => {
            for late in watchdog.feed(program.workers().map(|worker| &*worker.counters)) {
                program.worker_mut(late).wake();
            }
        }
        Woken::Message(Message::Request(request, answer)) => program.request(request, answer).await,
        Woken::Message(Message::Connection(request, stream)) => program.connection(request, stream).await,
        // The scraper may be gone by now.
        Woken::Message(Message::Scrape(answer)) => drop(answer.send(program.scrape())),
        Woken::Signal(Signalled::Reload) => program.reload().await,
        Woken::Signal(Signalled::End) => {
            notify::stopping();
            return program.end().await;
        }
    }
    true
}

/// Sends what waits for room in the mailboxes of workers. Returns whether nothing waits any more.
pub fn flush<'a, E: Hosted + 'a>(workers: impl IntoIterator<Item = &'a mut WorkerHandle<E>>) -> bool {
    // All of them, also after one that has no room.
    workers.into_iter().filter_map(|worker| (!worker.flush()).then_some(())).count() == 0
}

/// What a program that started then reports of its process, with so many bytes of frames.
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
