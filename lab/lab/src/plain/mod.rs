//! `twinpath-lab plain`: the plain kernel peers, as processes that the labs measure against.
//!
//! A server prints one JSON line when it is bound and one when it ends: on SIGTERM or SIGINT, or when the thread that
//! started it dies. The other peers print one JSON line, their result.

#[cfg(feature = "all")]
mod busy;
#[cfg(feature = "all")]
pub(crate) mod calls;
#[cfg(feature = "all")]
mod discard;
#[cfg(feature = "all")]
mod hold;
#[cfg(feature = "all")]
mod l2_lookup;
#[cfg(feature = "all")]
mod memory_ports;
#[cfg(feature = "all")]
mod messages;
#[cfg(feature = "all")]
mod mirror;
#[cfg(feature = "all")]
pub(crate) mod nfs;
#[cfg(feature = "all")]
mod numbers;
#[cfg(feature = "all")]
pub(crate) mod offer;
#[cfg(feature = "all")]
mod openflow;
#[cfg(feature = "all")]
mod others;
#[cfg(feature = "all")]
mod pipeline;
#[cfg(feature = "all")]
pub(crate) mod program;
#[cfg(feature = "all")]
pub(crate) mod reflect;
#[cfg(feature = "all")]
pub(crate) mod relay;
#[cfg(feature = "all")]
mod socket;
#[cfg(feature = "all")]
pub(crate) mod switch;
#[cfg(feature = "all")]
pub(crate) mod tap;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use twinpath_clients::measure::attend;
use twinpath_clients::measure::print;
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_load::Limit;
use twinpath_socket_load::{
    BulkCounts, Echo, EchoCounts, EchoMethod, Peers, Reply, Stop, TcpSink, UdpServer, Wait, tcp_bulk,
};
use twinpath_sys::{affinity, clock};
use twinpath_test_plain::{TcpEcho, eventfd_pingpong};
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;
use twinpath_worker::thread::priority::Priority;

/// Datagrams per system call, of the methods that take several.
const BURST: usize = 64;
/// How long an adaptive server polls after the last request before it sleeps; the client's time is the same.
const ADAPTIVE_SPIN: Duration = Duration::from_micros(50);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    peer: Peer,
}

#[derive(Subcommand)]
enum Peer {
    /// Echo datagrams
    UdpEcho {
        #[command(flatten)]
        server: Server,
        /// How datagrams go in and out
        #[arg(long, value_enum, default_value_t = Method::Single)]
        method: Method,
        /// Priority of the thread that serves: normal, slice:US, nice:N, fifo:N (real time) or auto (the best that is granted)
        #[arg(long, default_value_t = Priority::Normal)]
        priority: Priority,
    },
    /// Echo bytes
    TcpEcho {
        #[command(flatten)]
        server: Server,
    },
    /// Take bytes and forget them
    TcpSink {
        #[command(flatten)]
        server: Server,
    },
    /// Send bytes, as many as go
    TcpBulk {
        /// A sink
        target: SocketAddr,
        /// Seconds
        #[arg(long, default_value_t = 1.0)]
        duration: f64,
        /// Seconds before them
        #[arg(long, default_value_t = 0.0)]
        warmup: f64,
    },
    /// Bounce a signal between two CPUs
    EventfdPingpong {
        /// The two CPUs
        #[arg(long, default_value = "0,1")]
        cpus: String,
        /// Seconds
        #[arg(long, default_value_t = 1.0)]
        duration: f64,
    },
    #[cfg(feature = "all")]
    #[command(flatten)]
    Other(others::Peer),
}

#[derive(clap::Args)]
struct Server {
    /// Where to listen; port 0 takes any
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:0")]
    listen: SocketAddr,
    /// How to wait for requests: adaptive, interrupt (sleeping) or poll (spinning)
    #[arg(long, default_value_t = Mode::Interrupt)]
    mode: Mode,
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// recvfrom and sendto
    Single,
    /// recv and send, connected to the first peer
    Connected,
    /// recvmmsg and sendmmsg
    Batch,
    /// The same, connected to the first peer
    BatchConnected,
    /// recvmmsg with UDP_GRO, replies by UDP_SEGMENT
    Segments,
    /// The same, connected to the first peer
    SegmentsConnected,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    // So that servers end with a lab that is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context("cannot ask to end with the parent")?;
    match args.peer {
        Peer::UdpEcho { server, method, priority } => udp_server::<Echo>(&server, method, priority)?,
        Peer::TcpEcho { server } => {
            let echo = TcpEcho::bind(server.listen, wait_of(server.mode))?;
            serve(echo.address(), |stop| Ok(echo_counts(&echo.run(stop)?)))?;
        }
        Peer::TcpSink { server } => tcp_sink(&server)?,
        Peer::TcpBulk { target, duration, warmup } => {
            let times = [seconds(warmup)?, seconds(duration)?];
            let stop = Stop::new();
            let (counts, _) = attend(&stop, None, || tcp_bulk(target, times, None, &stop))?;
            print(bulk_counts(&counts?))?;
        }
        Peer::EventfdPingpong { cpus, duration } => pingpong(&cpus, seconds(duration)?)?,
        #[cfg(feature = "all")]
        Peer::Other(peer) => return others::run(peer),
    }
    Ok(ExitCode::SUCCESS)
}

fn udp_server<R: Reply + Send>(server: &Server, method: Method, priority: Priority) -> anyhow::Result<()> {
    let (method, peers) = match method {
        Method::Single => (EchoMethod::Single, Peers::Any),
        Method::Connected => (EchoMethod::Single, Peers::First),
        Method::Batch => (EchoMethod::Batch(BURST), Peers::Any),
        Method::BatchConnected => (EchoMethod::Batch(BURST), Peers::First),
        Method::Segments => (EchoMethod::Segments(BURST), Peers::Any),
        Method::SegmentsConnected => (EchoMethod::Segments(BURST), Peers::First),
    };
    let bound = UdpServer::<R>::bind(server.listen, wait_of(server.mode), method, peers)?;
    serve_at(priority, bound.address(), |stop| Ok(echo_counts(&bound.run(stop)?)))
}

fn tcp_sink(server: &Server) -> anyhow::Result<()> {
    let sink = TcpSink::bind(server.listen)?;
    serve(sink.address(), |stop| {
        let mut total = BulkCounts::default();
        sink.run(stop, |counts| {
            total.bytes += counts.bytes;
            total.elapsed += counts.elapsed;
        })?;
        Ok(bulk_counts(&total))
    })
}

/// Runs `work` with an event loop.
#[cfg(feature = "all")]
fn on_event_loop<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start an event loop")?.block_on(work)
}

/// Waits until this process is told to end. It has to be made before anything is started.
#[cfg(feature = "all")]
struct EndSignals([tokio::signal::unix::Signal; 2]);

#[cfg(feature = "all")]
impl EndSignals {
    fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    async fn come(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// Prints the ready line, serves until a signal, prints the counts.
fn serve(
    address: SocketAddr,
    run: impl FnOnce(&Stop) -> anyhow::Result<serde_json::Value> + Send,
) -> anyhow::Result<()> {
    serve_at(Priority::Normal, address, run)
}

/// The same at a priority; the ready line contains the one that was granted.
fn serve_at(
    priority: Priority,
    address: SocketAddr,
    run: impl FnOnce(&Stop) -> anyhow::Result<serde_json::Value> + Send,
) -> anyhow::Result<()> {
    let stop = Stop::new();
    let cpu_from = clock::process_cpu_time();
    let (counts, _) = attend(&stop, None, || {
        let priority = priority.apply()?.priority.to_string();
        print(json!({ "ready": true, "address": address, "pid": std::process::id(), "priority": priority }))?;
        run(&stop)
    })?;
    let mut counts = counts?;
    counts["cpu_ns"] = json!(clock::process_cpu_time().saturating_sub(cpu_from).as_nanos() as u64);
    Ok(print(counts)?)
}

/// Both threads sleep.
fn pingpong(cpus: &str, duration: Duration) -> anyhow::Result<()> {
    let (cpus, limit) = (two_cpus(cpus)?, Limit::Duration(duration));
    let stop = Stop::new();
    let (histogram, _) =
        attend(&stop, None, || eventfd_pingpong(cpus[0], cpus[1], limit, Wait::Sleep, &stop))?;
    let histogram = histogram?;
    let rtt_us = RttUs::of(&histogram).context("not one round trip was completed")?;
    Ok(print(json!({ "rtt_us": rtt_us, "histogram": buckets(&histogram) }))?)
}

fn two_cpus(list: &str) -> anyhow::Result<[usize; 2]> {
    let cpus = affinity::parse_cpu_list(list)?;
    cpus.try_into().ok().with_context(|| format!("--cpus {list} does not name two CPUs, as 0,1 does"))
}

fn echo_counts(counts: &EchoCounts) -> serde_json::Value {
    json!({ "received": counts.received, "sent": counts.sent, "refused": counts.refused })
}

fn bulk_counts(counts: &BulkCounts) -> serde_json::Value {
    json!({
        "bytes": counts.bytes,
        "duration_s": counts.elapsed.as_secs_f64(),
        "gbit_per_s": counts.bytes_per_s() * 8.0 / 1e9,
    })
}

fn wait_of(mode: Mode) -> Wait {
    match mode {
        Mode::Adaptive => Wait::SpinThenSleep(ADAPTIVE_SPIN),
        Mode::Interrupt => Wait::Sleep,
        Mode::Poll => Wait::Spin,
    }
}

fn seconds(value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{value} is no time in seconds"))
}
