//! Connections of a worker over the kernel's sockets, driven turn by turn over loopback: no threads, no
//! sleep, and the test sets the time. Tests over any transport are in `service/service/tests/connection` (one
//! connection) and in `service/serve/src/streams/tests.rs` (those of a worker).
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use twinpath_frame::Pool;
use twinpath_inspect::Reason;
use twinpath_serve::{
    HandlerPool, KernelSide, ServeCommand, ServeConfig, ServeCounters, ServeEngine, ServeEvent, Served,
    TcpTotals,
};
use twinpath_service::{Closed, Order, Output, Service};
use twinpath_stream::TcpLimits;
use twinpath_sys::allocations::{self, Counting};
use twinpath_sys::tcp_listener::listen;
use twinpath_time::wheel::TICK;
use twinpath_time::{Duration, Instant};
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::thread::PoolLimits;
use twinpath_worker::{Command, Event, Worker, WorkerConfig, WorkerCounters};

#[path = "tcp/changes.rs"]
mod changes;
#[path = "tcp/limits.rs"]
mod limits;
#[path = "tcp/many_connections.rs"]
mod many_connections;
#[path = "tcp/panics.rs"]
mod panics;
#[path = "tcp/streaming.rs"]
mod streaming;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers a line with as many bytes as its number. `end` and `bad` end the connection, without and with a
/// reason. A single digit, or `+`, is consumed as the beginning of a request.
#[derive(Clone, Default)]
struct Lengths {
    closes: Arc<Mutex<Vec<Closed>>>,
    room_again: u32,
}

impl Service for Lengths {
    type Connection = ();

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        if input.first() == Some(&b'+') {
            output.unfinished();
            return 1;
        }
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        let line = std::str::from_utf8(&input[..end]).unwrap();
        match line {
            "end" => output.end(),
            "bad" => output.refuse(Reason::ProtocolError),
            line if !output.write(&vec![b'x'; line.parse().unwrap()]) => return 0,
            _ => {}
        }
        end + 1
    }

    fn writable(&mut self, _now: Instant, _: &mut (), _output: &mut Output<'_>) {
        self.room_again += 1;
    }

    fn close(&mut self, _connection: (), why: Closed) {
        self.closes.lock().unwrap().push(why);
    }
}

trait Closing: Service {
    fn closes(&self) -> Arc<Mutex<Vec<Closed>>>;
}

impl Closing for Lengths {
    fn closes(&self) -> Arc<Mutex<Vec<Closed>>> {
        Arc::clone(&self.closes)
    }
}

impl Closing for Later {
    fn closes(&self) -> Arc<Mutex<Vec<Closed>>> {
        Arc::clone(&self.closes)
    }
}

struct Rig<S: Service = Lengths> {
    worker: Worker<ServeEngine<S>>,
    commands: Sender<Command<ServeCommand>>,
    events: Receiver<Event<ServeEvent>>,
    counters: Arc<WorkerCounters>,
    serve: Arc<ServeCounters>,
    closes: Arc<Mutex<Vec<Closed>>>,
    totals: Arc<TcpTotals>,
    server: SocketAddr,
    now: Instant,
}

const LIMITS: TcpLimits = TcpLimits {
    connections: 600,
    connections_per_source: 600,
    connection_bytes: 65_536,
    queued_bytes: 1 << 20,
    idle: Duration::from_secs(100),
    request: Duration::from_secs(10),
    send: Duration::from_secs(20),
};

impl Rig {
    fn new(limits: TcpLimits) -> Self {
        Self::serving(Lengths::default(), limits, None)
    }

    /// Requests more than fits, while the peer reads nothing: the connection's output stays full.
    fn fill(&mut self, stream: &mut TcpStream) {
        let lines = "60000\n".repeat(1_000);
        stream.write_all(lines.as_bytes()).unwrap();
        self.turns();
        assert!(self.serve.tcp.queued_bytes.get() > 0, "the peer's buffers are larger than expected");
    }
}

impl<S: Closing + 'static> Rig<S> {
    fn serving(service: S, limits: TcpLimits, pool: Option<PoolLimits>) -> Self {
        let (commands, inbox) = mailbox(16).unwrap();
        let (outbox, events) = mailbox(16).unwrap();
        let (counters, serve) = (Arc::<WorkerCounters>::default(), Arc::<ServeCounters>::default());
        let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
        let local = rustix::net::getsockname(&listener).unwrap();
        let port = SocketAddr::try_from(local).unwrap().port();
        let totals = Arc::new(TcpTotals::new(limits, 1));
        let config = ServeConfig {
            served: Arc::new(Served::new()),
            addresses: [Ipv4Addr::LOCALHOST.into()].into(),
            reply_rate: 0,
            any_source_port: false,
            keeper: None,
            fast_tcp: None,
            kernel: KernelSide {
                listeners: vec![listener],
                connections: limits.connections,
                totals: Arc::clone(&totals),
                handlers: pool.map(|limits| HandlerPool::new(limits, None).unwrap()),
                ..KernelSide::default()
            },
        };
        let closes = service.closes();
        let engine = ServeEngine::new(service, config, Arc::clone(&serve));
        let config = WorkerConfig { idle: twinpath_worker::idle::IdleConfig::default() };
        let pool = Pool::new(64).unwrap();
        let mut worker = Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).unwrap();
        worker.start().unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { worker, commands, events, counters, serve, closes, totals, server, now: Instant::ZERO }
    }

    fn turn(&mut self) -> bool {
        self.now += Duration::from_micros(100);
        self.worker.turn(self.now)
    }

    /// Turns until there is nothing to do.
    fn turns(&mut self) {
        while self.turn() {}
    }

    /// Advances the time by `time`, and by one tick, to which deadlines are exact.
    fn pass(&mut self, time: Duration) {
        self.now += time + Duration::from_nanos(2 * TICK);
        self.turns();
    }

    fn connect(&mut self) -> TcpStream {
        let stream = self.connect_only();
        self.turns();
        stream
    }

    /// Connects, and leaves it to later turns to accept.
    fn connect_only(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Reads `want` bytes while the server turns; returns how many arrived, and whether the stream ended.
    fn read(&mut self, stream: &mut TcpStream, want: usize) -> (usize, bool) {
        let mut buffer = vec![0; 1 << 20];
        let mut got = 0;
        for _ in 0..1_000 {
            self.turn();
            match stream.read(&mut buffer) {
                Ok(0) => return (got, true),
                Ok(len) => got += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if got >= want {
                        return (got, false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return (got, true),
                Err(error) => panic!("{error}"),
            }
        }
        (got, false)
    }

    fn closes(&self) -> Vec<Closed> {
        std::mem::take(&mut self.closes.lock().unwrap())
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.counters.drops.get(reason)
    }
}

/// A line `N` is answered with itself by deferred work, in the order of the requests; `!N` is answered as
/// soon as it is done. `wait` is answered when the test allows it, `fail` panics, and a line that begins
/// with `=` is answered immediately.
#[derive(Clone, Default)]
struct Later {
    closes: Arc<Mutex<Vec<Closed>>>,
    go: Arc<(Mutex<u32>, Condvar)>,
}

impl Service for Later {
    type Connection = ();

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        let line = input[..=end].to_vec();
        if line[0] == b'=' {
            return if output.write(&line) { end + 1 } else { 0 };
        }
        if !output.may_defer() {
            return 0;
        }
        let order = if line[0] == b'!' { Order::AsDone } else { Order::AsAsked };
        let go = Arc::clone(&self.go);
        let taken = output.later(order, move || {
            if line == b"wait\n" {
                let mut leave = go.0.lock().unwrap();
                while *leave == 0 {
                    leave = go.1.wait(leave).unwrap();
                }
                *leave -= 1;
            }
            assert_ne!(line, b"fail\n");
            line
        });
        assert!(taken, "it was asked for");
        end + 1
    }

    fn defers(&self) -> bool {
        true
    }

    fn close(&mut self, _connection: (), why: Closed) {
        self.closes.lock().unwrap().push(why);
    }
}

#[test]
fn requests_in_pieces_and_in_numbers_are_answered_once_each() {
    let mut rig = Rig::new(LIMITS);
    let mut stream = rig.connect();
    for byte in b"12\n" {
        stream.write_all(&[*byte]).unwrap();
        rig.turns();
    }
    assert_eq!(rig.read(&mut stream, 12), (12, false));
    stream.write_all("7\n".repeat(3_000).as_bytes()).unwrap();
    stream.write_all(b"1000").unwrap();
    assert_eq!(rig.read(&mut stream, 21_000), (21_000, false));
    stream.write_all(b"0\n").unwrap();
    assert_eq!(rig.read(&mut stream, 10_000), (10_000, false));
    assert_eq!(rig.serve.tcp.queued_bytes.get(), 0, "an idle connection holds nothing");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rig.read(&mut stream, 1), (0, true));
    assert_eq!(rig.closes(), [Closed::Ended]);
    assert_eq!((rig.serve.tcp.accepted.get(), rig.serve.tcp.connections.get()), (1, 0));
}

#[test]
fn a_peer_that_does_not_read_is_not_read_and_gets_everything_once_it_does() {
    let mut rig = Rig::new(LIMITS);
    let mut stream = rig.connect();
    rig.fill(&mut stream);
    assert!(rig.serve.tcp.queued_bytes.get() <= 2 * 65_536 + 6_000);
    assert_eq!(rig.read(&mut stream, 60_000_000), (60_000_000, false));
    assert_eq!(rig.serve.tcp.queued_bytes.get(), 0);
    stream.write_all(b"5\n").unwrap();
    assert_eq!(rig.read(&mut stream, 5), (5, false));
}

#[test]
fn each_time_out_closes_at_its_time_under_its_name() {
    let mut rig = Rig::new(LIMITS);
    let [_idle, mut half, mut used, mut deaf] = [(); 4].map(|()| rig.connect());
    rig.pass(Duration::from_secs(5));
    half.write_all(b"12").unwrap();
    used.write_all(b"+").unwrap();
    rig.fill(&mut deaf);
    rig.pass(Duration::from_secs(9));
    assert_eq!(rig.closes(), []);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.closes(), [Closed::For(Reason::RequestTimeout); 2]);
    rig.pass(Duration::from_secs(9));
    assert_eq!(rig.closes(), []);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.closes(), [Closed::For(Reason::PeerNotReading)]);
    rig.pass(Duration::from_secs(74));
    assert_eq!(rig.closes(), []);
    rig.pass(Duration::from_secs(1));
    assert_eq!(rig.closes(), [Closed::For(Reason::IdleTimeout)]);
    assert_eq!(rig.dropped(Reason::RequestTimeout), 2);
    assert_eq!(rig.serve.tcp.connections.get(), 0);
}

#[test]
fn the_bytes_of_a_service_have_a_limit_that_holds_and_the_longest_held_go_first() {
    let mut rig = Rig::new(LIMITS);
    let mut deaf: Vec<_> = (0..60).map(|_| rig.connect()).collect();
    let mut most = 0;
    for stream in &mut deaf {
        rig.fill(stream);
        most = most.max(rig.totals.bytes());
        rig.now += Duration::from_millis(1);
    }
    assert!((900_000..=LIMITS.queued_bytes).contains(&most), "{most}");
    let shed = rig.closes();
    assert!(!shed.is_empty() && shed.iter().all(|why| *why == Closed::For(Reason::ServiceBytes)), "{shed:?}");
    // The oldest connections were closed, the latest are open, and a new one is served.
    let mut polite = rig.connect();
    polite.write_all(b"9\n").unwrap();
    assert_eq!(rig.read(&mut polite, 9), (9, false));
    assert!(rig.read(&mut deaf[0], 60_000_000).1);
    assert_eq!(rig.read(&mut deaf[59], 60_000_000), (60_000_000, false));
    // Half a request counts as well.
    let before = rig.dropped(Reason::ServiceBytes);
    let mut halves: Vec<_> = (0..40).map(|_| rig.connect()).collect();
    for stream in &mut halves {
        stream.write_all(&[b'0'; 60_000]).unwrap();
        rig.turns();
        assert!(rig.totals.bytes() <= LIMITS.queued_bytes);
    }
    assert!(rig.dropped(Reason::ServiceBytes) > before);
    drop((deaf, halves));
    rig.turns();
    assert_eq!(rig.totals.bytes(), 0);
}

#[test]
fn a_service_ends_a_connection_and_its_last_words_arrive() {
    let mut rig = Rig::new(LIMITS);
    for (word, why) in [("end", Closed::Ended), ("bad", Closed::For(Reason::ProtocolError))] {
        let mut stream = rig.connect();
        // The requests that follow are not read, and must not make the kernel discard the reply.
        write!(stream, "50000\n{word}\n{}", "7\n".repeat(10_000)).unwrap();
        assert_eq!(rig.read(&mut stream, 50_000), (50_000, true), "{word}");
        assert_eq!(rig.closes(), [], "it waits for its peer");
        drop(stream);
        rig.turns();
        assert_eq!(rig.closes(), [why]);
    }
    let _stays = {
        let mut stream = rig.connect();
        stream.write_all(b"end\n").unwrap();
        rig.turns();
        stream
    };
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.closes(), [Closed::Ended], "a peer that does not end is not waited for");
}

#[test]
fn a_drain_answers_what_came_and_then_everything_ends() {
    let mut rig = Rig::new(LIMITS);
    let [mut asked, mut idle, mut late, mut deaf] = [(); 4].map(|()| rig.connect());
    rig.fill(&mut deaf);
    idle.write_all(b"5\n").unwrap();
    assert_eq!(rig.read(&mut idle, 5), (5, false));
    // A connection in the listener's queue, with a request, not accepted yet.
    let mut waiting = TcpStream::connect(rig.server).unwrap();
    waiting.set_nonblocking(true).unwrap();
    waiting.write_all(b"17\n").unwrap();
    asked.write_all(b"30\n5\n").unwrap();
    assert!(rig.commands.send(Command::Engine(ServeCommand::Drain { handed_over: false })).is_ok());
    assert_eq!(rig.read(&mut asked, 35), (35, true));
    assert_eq!(rig.read(&mut waiting, 17), (17, true));
    assert_eq!(rig.read(&mut idle, 0), (0, true), "one that was answered before ends at once");
    assert!(TcpStream::connect(rig.server).is_err(), "nobody listens any more");
    drop((asked, idle, waiting));
    rig.turns();
    assert_eq!(rig.closes(), [Closed::Stopped; 3]);
    // A connection that was accepted before, whose first request arrives only now.
    late.write_all(b"19\n").unwrap();
    assert_eq!(rig.read(&mut late, 19), (19, true));
    drop(late);
    rig.turns();
    assert_eq!(rig.closes(), [Closed::Stopped]);
    assert!(rig.events.take().is_none(), "one has not taken its replies yet");
    let (got, ended) = rig.read(&mut deaf, usize::MAX);
    assert!(ended && got % 60_000 == 0 && got > 0, "whole replies, then the end: {got}");
    drop(deaf);
    rig.turns();
    assert!(matches!(rig.events.take(), Some(Event::Engine(ServeEvent::Drained))));
}

#[test]
fn a_reset_in_any_state_frees_everything() {
    let mut rig = Rig::new(LIMITS);
    let reset = |stream: TcpStream| {
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
    };
    let [idle, mut half, mut deaf] = [(); 3].map(|()| rig.connect());
    half.write_all(b"12").unwrap();
    rig.fill(&mut deaf);
    for stream in [idle, half, deaf] {
        reset(stream);
    }
    rig.turns();
    assert_eq!(rig.closes(), [Closed::Broken; 3]);
    assert_eq!((rig.totals.bytes(), rig.serve.tcp.connections.get()), (0, 0));
}

#[test]
fn an_idle_connection_takes_little_memory_of_ours() {
    let mut rig = Rig::new(LIMITS);
    let before = allocations::bytes_of_this_thread();
    let streams: Vec<_> = (0..512).map(|_| rig.connect()).collect();
    let each = (allocations::bytes_of_this_thread() - before) / 512;
    assert!(each <= 4096, "{each} bytes per connection");
    drop(streams);
}

const POOL: PoolLimits = PoolLimits {
    threads_min: 1,
    threads_max: 3,
    requests: 40,
    connection_requests: 30,
    datagram_requests: 20,
    idle: Duration::from_secs(10),
};

impl Rig<Later> {
    fn later(pool: PoolLimits) -> (Self, Arc<(Mutex<u32>, Condvar)>) {
        let service = Later::default();
        let go = Arc::clone(&service.go);
        (Self::serving(service, LIMITS, Some(pool)), go)
    }
}

impl<S: Closing + 'static> Rig<S> {
    /// Reads until as many bytes as `expected` have arrived. Because threads work meanwhile, only the
    /// test's patience limits it.
    fn hear(&mut self, stream: &mut TcpStream, expected: &str) {
        let begun = std::time::Instant::now();
        let mut heard = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while heard.len() < expected.len() && begun.elapsed() < std::time::Duration::from_secs(20) {
            self.turn();
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => heard.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        // The message does not contain both of them, because they may be long.
        assert!(heard == expected.as_bytes(), "heard: {:.200}", String::from_utf8_lossy(&heard));
    }

    fn until(&mut self, so: impl Fn(&Self) -> bool) {
        let begun = std::time::Instant::now();
        while !so(self) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(20));
            self.turn();
            std::thread::yield_now();
        }
    }
}

fn go(on: &(Mutex<u32>, Condvar)) {
    *on.0.lock().unwrap() += 1;
    on.1.notify_one();
}

#[test]
fn a_busy_pool_takes_what_it_has_room_for_and_the_rest_when_there_is_room() {
    let (mut rig, on) = Rig::later(PoolLimits { requests: 4, ..POOL });
    let [mut first, mut second] = [(); 2].map(|()| rig.connect());
    first.write_all(b"wait\nwait\nwait\nwait\nwait\n").unwrap();
    rig.turns();
    second.write_all(b"1\n=x\n").unwrap();
    rig.turns();
    for _ in 0..5 {
        go(&on);
    }
    rig.hear(&mut first, "wait\nwait\nwait\nwait\nwait\n");
    rig.hear(&mut second, "1\n=x\n");
    // The worker serves others while all threads of the pool are blocked.
    first.write_all(b"wait\nwait\nwait\n").unwrap();
    rig.turns();
    second.write_all(b"=y\n").unwrap();
    rig.hear(&mut second, "=y\n");
    // The request is complete, so the time that its handler takes does not count as the peer's.
    rig.pass(Duration::from_secs(1_000));
    for _ in 0..3 {
        go(&on);
    }
    rig.hear(&mut first, "wait\nwait\nwait\n");
}

#[test]
fn a_reply_to_nobody_is_counted_and_a_panic_closes_one_connection() {
    let (mut rig, on) = Rig::later(POOL);
    let [mut gone, mut failing, mut asked] = [(); 3].map(|()| rig.connect());
    gone.write_all(b"wait\n").unwrap();
    rig.turns();
    rustix::net::sockopt::set_socket_linger(&gone, Some(std::time::Duration::ZERO)).unwrap();
    drop(gone);
    rig.turns();
    assert_eq!(rig.closes(), [Closed::Broken]);
    let mut next = rig.connect();
    go(&on);
    rig.until(|rig| rig.dropped(Reason::LateReply) == 1);
    failing.write_all(b"fail\n").unwrap();
    rig.until(|rig| rig.dropped(Reason::HandlerFailed) == 1);
    assert_eq!(rig.closes(), [Closed::For(Reason::HandlerFailed)]);
    next.write_all(b"1\n").unwrap();
    rig.hear(&mut next, "1\n");
    // The peer has sent its last request: it is answered, and a drain waits for work in progress.
    asked.write_all(b"wait\n").unwrap();
    asked.shutdown(Shutdown::Write).unwrap();
    next.write_all(b"wait\n").unwrap();
    rig.turns();
    assert!(rig.commands.send(Command::Engine(ServeCommand::Drain { handed_over: false })).is_ok());
    rig.turns();
    go(&on);
    go(&on);
    rig.hear(&mut asked, "wait\n");
    rig.hear(&mut next, "wait\n");
    drop((asked, next));
    rig.until(|rig| rig.serve.tcp.connections.get() == 0);
    assert_eq!(rig.totals.bytes(), 0);
}
