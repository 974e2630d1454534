//! `twinpath-lab plain`: the plain kernel peers, as processes that the labs measure against.
//!
//! A server prints one JSON line when it is bound and one when it ends: on SIGTERM or SIGINT, or when the thread that
//! started it dies. The other peers print one JSON line, their result.

mod busy;
mod discard;
pub(crate) mod forward;
mod hold;
pub(crate) mod l2_lookup;
mod memory_ports;
mod mirror;
pub(crate) mod nfs;
mod numbers;
pub(crate) mod offer;
pub(crate) mod openflow;
pub(crate) mod pipeline;
pub(crate) mod program;
pub(crate) mod reflect;
mod socket;
pub(crate) mod switch;
pub(crate) mod tap;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use twinpath_load::{Arrivals, Limit};
use twinpath_measure::attend;
use twinpath_measure::print;
use twinpath_measure::report::{RttUs, buckets};
use twinpath_plain::{BusyPollEcho, Null, Pace, TcpEcho, TcpNull, eventfd_pingpong, paced_wake};
use twinpath_socket_load::{
    BulkCounts, Echo, EchoCounts, EchoMethod, Peers, Reply, Stop, TcpSink, UdpServer, Wait, tcp_bulk,
};
use twinpath_sys::{LatencyRequest, affinity, clock};
use twinpath_thread::priority::Priority;
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

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
        /// Datagrams per system call, of the methods that take several
        #[arg(long, default_value_t = 64)]
        burst: usize,
        /// Priority of the thread that serves: normal, slice:US, nice:N, fifo:N (real time) or auto (the best that is granted)
        #[arg(long, default_value_t = Priority::Normal)]
        priority: Priority,
    },
    /// Echo datagrams in an application's own loop, by a socket of the library, or by the kernel's in its place
    SocketEcho(socket::Args),
    /// Receive numbered datagrams by sockets of the library, in processes that die one after the other
    SocketHolders(numbers::ServerArgs),
    /// Send numbered datagrams to them, and print what has come
    SocketNumbers(numbers::ClientArgs),
    /// Run a server of Debian as it is, alone or under `twinpath run`
    Program(program::ServerArgs),
    /// Ask it, by a client on kernel sockets
    Ask(program::AskArgs),
    /// Change and read few keys of a memcached without end, and compare each answer with what was acknowledged before
    Hammer(program::HammerArgs),
    /// Echo datagrams by a program at tc that does nothing else
    Mirror(mirror::Args),
    /// Send datagrams at a rate, asleep in between, and take the replies
    Offer(offer::Args),
    /// Answer every ONC RPC call over UDP as if it were NULL
    UdpNull {
        #[command(flatten)]
        server: Server,
        /// How datagrams go in and out
        #[arg(long, value_enum, default_value_t = Method::Single)]
        method: Method,
        /// Datagrams per system call, of the methods that take several
        #[arg(long, default_value_t = 64)]
        burst: usize,
    },
    /// Answer every ONC RPC call over TCP as if it were NULL
    TcpNull {
        #[command(flatten)]
        server: Server,
    },
    /// Hold connections to a server that say nothing, or never read
    TcpHold(hold::Args),
    /// Echo datagrams, polling the device from epoll_wait
    UdpBusyEcho {
        /// Where to listen; port 0 takes any
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:0")]
        listen: SocketAddr,
        /// How long an epoll_wait that finds nothing polls before it sleeps
        #[arg(long, default_value_t = 50)]
        busy_poll_us: u32,
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
        /// The CPU to run on
        #[arg(long)]
        cpu: Option<usize>,
    },
    /// Send frames back over a packet socket
    PacketReflect(reflect::PacketArgs),
    /// Send frames back that a worker hands over in shared memory
    ShmReflect(reflect::ShmArgs),
    /// Serve a tree of files by nfs-ganesha
    NfsServer(nfs::ServerArgs),
    /// Walk such a tree as a kernel client's `ls -last -R` does
    NfsWalk(nfs::WalkArgs),
    /// Mount such a tree by the kernel's own client and run `ls -last -R` over it
    NfsLs(nfs::ListArgs),
    /// Run another switch: the kernel's bridge, Open vSwitch or testpmd
    Switch(switch::Args),
    /// Add ports to an Open vSwitch that runs and remove them, over and over
    SwitchPorts(switch::PortsArgs),
    /// Look addresses up in the MAC table of twinpath's switch
    L2Lookup(l2_lookup::Args),
    /// Forward frames between interfaces over packet sockets, with control's work in the same loop or not
    Forward(forward::Args),
    /// Be an OpenFlow controller
    Openflow(openflow::Args),
    /// Take what an OpenFlow controller says, and do nothing
    OpenflowDiscard(discard::Args),
    /// Take frames through the tables of OpenFlow in one thread
    Pipeline(pipeline::Args),
    /// Be the source and sink of `plain switch testpmd-memif`, by another testpmd
    MemifSource(switch::MemifArgs),
    /// Send frames of 64 bytes between two memory ports of twinpath's switch, as many as go, in both directions
    MemoryPorts(memory_ports::Args),
    /// Send frames of 64 bytes, as many as go
    FrameSource(switch::SourceArgs),
    /// Take all frames of an interface in its driver
    XdpSink(switch::SinkArgs),
    /// Note when each frame of a TCP port passes an interface
    Tap(tap::Args),
    /// Work on one CPU all the time, and count it
    Busy(busy::Args),
    /// Wake a thread on another CPU at a given pace
    EventfdWake {
        /// The CPU of the one that signals, spinning in between, and that of the one that sleeps
        #[arg(long, default_value = "0,1")]
        cpus: String,
        /// Signals per second
        #[arg(long, default_value_t = 1000.0)]
        rate: f64,
        /// How they are spread over time: even, jitter:PERCENT, poisson or bursts:SIZE:GAP_US
        #[arg(long, default_value_t)]
        arrivals: Arrivals,
        /// Determines when exactly
        #[arg(long, default_value_t)]
        arrivals_seed: u64,
        /// Seconds
        #[arg(long, default_value_t = 1.0)]
        duration: f64,
        /// Seconds before them that do not count
        #[arg(long, default_value_t = 0.2)]
        warmup: f64,
    },
    /// Bounce a signal between two CPUs
    EventfdPingpong {
        /// The two CPUs
        #[arg(long, default_value = "0,1")]
        cpus: String,
        /// interrupt (sleeping) or poll (spinning)
        #[arg(long, default_value_t = Mode::Interrupt)]
        mode: Mode,
        /// Seconds, unless --rounds is given
        #[arg(long, default_value_t = 1.0)]
        duration: f64,
        /// Round trips
        #[arg(long)]
        rounds: Option<u64>,
        /// Hold a CPU latency request meanwhile
        #[arg(long)]
        latency_request: bool,
    },
}

#[derive(clap::Args)]
struct Server {
    /// Where to listen; port 0 takes any
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:0")]
    listen: SocketAddr,
    /// How to wait for requests: adaptive, interrupt (sleeping) or poll (spinning)
    #[arg(long, default_value_t = Mode::Interrupt)]
    mode: Mode,
    /// The CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
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
        Peer::UdpEcho { server, method, burst, priority } => {
            udp_server::<Echo>(&server, method, burst, priority)?;
        }
        Peer::SocketEcho(args) => socket::run(&args)?,
        Peer::SocketHolders(args) => numbers::serve(&args)?,
        Peer::SocketNumbers(args) => numbers::send(&args)?,
        Peer::Program(args) => program::serve(&args)?,
        Peer::Ask(args) => program::ask(&args)?,
        Peer::Hammer(args) => program::hammer(&args)?,
        Peer::Mirror(args) => mirror::run(&args)?,
        Peer::Offer(args) => offer::run(&args)?,
        Peer::UdpNull { server, method, burst } => {
            udp_server::<Null>(&server, method, burst, Priority::Normal)?;
        }
        Peer::TcpNull { server } => {
            let null = TcpNull::bind(server.listen, wait_of(server.mode))?;
            serve(&server, null.address(), |stop| Ok(echo_counts(&null.run(stop)?)))?;
        }
        Peer::TcpHold(args) => hold::run(&args)?,
        Peer::UdpBusyEcho { listen, busy_poll_us } => {
            let echo = BusyPollEcho::bind(listen, busy_poll_us)?;
            let server = Server { listen, mode: Mode::Interrupt, cpu: None };
            serve(&server, echo.address(), |stop| Ok(echo_counts(&echo.run(stop)?)))?;
        }
        Peer::TcpEcho { server } => {
            let echo = TcpEcho::bind(server.listen, wait_of(server.mode))?;
            serve(&server, echo.address(), |stop| Ok(echo_counts(&echo.run(stop)?)))?;
        }
        Peer::TcpSink { server } => tcp_sink(&server)?,
        Peer::TcpBulk { target, duration, warmup, cpu } => {
            let times = [seconds(warmup)?, seconds(duration)?];
            let stop = Stop::new();
            let (counts, _) = attend(&stop, None, || tcp_bulk(target, times, cpu, &stop))?;
            print(bulk_counts(&counts?))?;
        }
        Peer::PacketReflect(args) => reflect::packet(&args)?,
        Peer::ShmReflect(args) => reflect::shm(&args)?,
        Peer::Switch(args) => return switch::run(&args),
        Peer::L2Lookup(args) => l2_lookup::run(&args)?,
        Peer::Forward(args) => forward::run(&args)?,
        Peer::Openflow(args) => openflow::run(&args)?,
        Peer::OpenflowDiscard(args) => discard::run(&args)?,
        Peer::Pipeline(args) => pipeline::run(&args)?,
        Peer::MemifSource(args) => switch::memif_source(&args)?,
        Peer::MemoryPorts(args) => memory_ports::run(&args)?,
        Peer::SwitchPorts(args) => switch::change_ports(&args)?,
        Peer::FrameSource(args) => switch::send(&args)?,
        Peer::XdpSink(args) => switch::sink(&args)?,
        Peer::NfsServer(args) => return nfs::serve(&args),
        Peer::Tap(args) => return tap::run(&args),
        Peer::NfsWalk(args) => return nfs::walk(&args),
        Peer::NfsLs(args) => return nfs::list(&args),
        Peer::Busy(args) => busy::run(&args)?,
        Peer::EventfdWake { cpus, rate, arrivals, arrivals_seed, duration, warmup } => {
            let (length, warmup) = (seconds(duration)?, seconds(warmup)?);
            wake(&cpus, &Pace { rate_per_s: rate, arrivals, seed: arrivals_seed, warmup, length })?;
        }
        Peer::EventfdPingpong { cpus, mode, duration, rounds, latency_request } => {
            let limit = rounds
                .map_or_else(|| seconds(duration).map(Limit::Duration), |rounds| Ok(Limit::Count(rounds)))?;
            pingpong(&cpus, wait_of(mode), limit, latency_request)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn udp_server<R: Reply + Send>(
    server: &Server,
    method: Method,
    burst: usize,
    priority: Priority,
) -> anyhow::Result<()> {
    ensure!((1..=64).contains(&burst), "--burst {burst} is impossible: choose 1 to 64");
    let (method, peers) = match method {
        Method::Single => (EchoMethod::Single, Peers::Any),
        Method::Connected => (EchoMethod::Single, Peers::First),
        Method::Batch => (EchoMethod::Batch(burst), Peers::Any),
        Method::BatchConnected => (EchoMethod::Batch(burst), Peers::First),
        Method::Segments => (EchoMethod::Segments(burst), Peers::Any),
        Method::SegmentsConnected => (EchoMethod::Segments(burst), Peers::First),
    };
    let bound = UdpServer::<R>::bind(server.listen, wait_of(server.mode), method, peers)?;
    serve_at(priority, server, bound.address(), |stop| Ok(echo_counts(&bound.run(stop)?)))
}

fn tcp_sink(server: &Server) -> anyhow::Result<()> {
    let sink = TcpSink::bind(server.listen)?;
    serve(server, sink.address(), |stop| {
        let mut total = BulkCounts::default();
        sink.run(stop, |counts| {
            total.bytes += counts.bytes;
            total.elapsed += counts.elapsed;
        })?;
        Ok(bulk_counts(&total))
    })
}

/// Prints the ready line, serves until a signal, prints the counts.
fn serve(
    server: &Server,
    address: SocketAddr,
    run: impl FnOnce(&Stop) -> anyhow::Result<serde_json::Value> + Send,
) -> anyhow::Result<()> {
    serve_at(Priority::Normal, server, address, run)
}

/// The same at a priority; the ready line contains the one that was granted.
fn serve_at(
    priority: Priority,
    server: &Server,
    address: SocketAddr,
    run: impl FnOnce(&Stop) -> anyhow::Result<serde_json::Value> + Send,
) -> anyhow::Result<()> {
    let stop = Stop::new();
    let cpu_from = clock::process_cpu_time();
    let (counts, _) = attend(&stop, None, || {
        if let Some(cpu) = server.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        let priority = priority.apply()?.priority.to_string();
        print(json!({ "ready": true, "address": address, "pid": std::process::id(), "priority": priority }))?;
        run(&stop)
    })?;
    let mut counts = counts?;
    counts["cpu_ns"] = json!(clock::process_cpu_time().saturating_sub(cpu_from).as_nanos() as u64);
    Ok(print(counts)?)
}

fn pingpong(cpus: &str, wait: Wait, limit: Limit, latency_request: bool) -> anyhow::Result<()> {
    let cpus = two_cpus(cpus)?;
    let _request = latency_request.then(|| LatencyRequest::open(0)).transpose()?;
    let stop = Stop::new();
    let (histogram, _) = attend(&stop, None, || eventfd_pingpong(cpus[0], cpus[1], limit, wait, &stop))?;
    let histogram = histogram?;
    let rtt_us = RttUs::of(&histogram).context("not one round trip was completed")?;
    Ok(print(json!({ "rtt_us": rtt_us, "histogram": buckets(&histogram) }))?)
}

fn wake(cpus: &str, pace: &Pace) -> anyhow::Result<()> {
    let [from, to] = two_cpus(cpus)?;
    let stop = Stop::new();
    let (histogram, _) = attend(&stop, None, || paced_wake(from, to, pace, &stop))?;
    let histogram = histogram?;
    let wake_us = RttUs::of(&histogram).context("nobody was woken")?;
    Ok(print(json!({ "wake_us": wake_us, "histogram": buckets(&histogram) }))?)
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
