//! The peers of all labs but `quick`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_clients::measure::{attend, print};
use twinpath_load::Arrivals;
use twinpath_socket_load::Stop;
use twinpath_test_plain::{BusyPollEcho, Null, Pace, TcpNull, paced_wake};
use twinpath_worker::thread::priority::Priority;

use super::{
    Method, Server, busy, calls, discard, echo_counts, hold, l2_lookup, memory_ports, messages, mirror, nfs,
    numbers, offer, openflow, pipeline, program, reflect, relay, seconds, serve, socket, switch, tap,
    two_cpus, udp_server, wait_of,
};

#[derive(Subcommand)]
pub(super) enum Peer {
    /// Echo datagrams in an application's own loop, by a socket of the library, or by the kernel's in its place
    SocketEcho(socket::Args),
    /// Receive numbered datagrams by sockets of the library, in processes that die one after the other
    SocketHolders(numbers::ServerArgs),
    /// Send numbered datagrams to them, and print what has come
    SocketNumbers(numbers::ClientArgs),
    /// Echo messages by UDP or Reliable Datagram Sockets, asleep in between
    MessageEcho(messages::EchoArgs),
    /// Send it messages, and compare what comes back
    MessageAsk(messages::AskArgs),
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
    },
    /// Answer every ONC RPC call over TCP as if it were NULL
    TcpNull {
        #[command(flatten)]
        server: Server,
    },
    /// Call over TCP, each time on a new connection, or by large calls of echo on one
    TcpCalls(calls::Args),
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
    /// Hand frames from one interface to another, late, and lose some
    Relay(relay::Args),
    /// Send frames back over a packet socket
    PacketReflect(reflect::PacketArgs),
    /// Send frames back that a worker hands over in shared memory
    ShmReflect(reflect::ShmArgs),
    /// Serve a tree of files by nfs-ganesha
    NfsServer(nfs::ServerArgs),
    /// Make such a tree, and have twinpath serve it
    NfsTree(nfs::TreeArgs),
    /// Mount such a tree by the kernel's own client, and work with files in it
    NfsMounted(nfs::MountedArgs),
    /// Walk such a tree as a kernel client's `ls -last -R` does
    NfsWalk(nfs::WalkArgs),
    /// Mount such a tree by the kernel's own client and run `ls -last -R` over it
    NfsLs(nfs::ListArgs),
    /// Run another switch: the kernel's bridge, Open vSwitch or testpmd
    Switch(switch::Args),
    /// Look addresses up in the MAC table of twinpath's switch
    L2Lookup(l2_lookup::Args),
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
        /// How they are spread over time: even, jitter:PERCENT, poisson, bursts:SIZE:GAP_US or steps:MS:PERCENT
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
}

pub(super) fn run(peer: Peer) -> anyhow::Result<ExitCode> {
    match peer {
        Peer::SocketEcho(args) => socket::run(&args)?,
        Peer::SocketHolders(args) => numbers::serve(&args)?,
        Peer::SocketNumbers(args) => numbers::send(&args)?,
        Peer::MessageEcho(args) => messages::echo(&args)?,
        Peer::MessageAsk(args) => messages::ask(&args)?,
        Peer::Program(args) => program::serve(&args)?,
        Peer::Ask(args) => program::ask(&args)?,
        Peer::Hammer(args) => program::hammer(&args)?,
        Peer::Mirror(args) => mirror::run(&args)?,
        Peer::Offer(args) => offer::run(&args)?,
        Peer::UdpNull { server, method } => udp_server::<Null>(&server, method, Priority::Normal)?,
        Peer::TcpNull { server } => {
            let null = TcpNull::bind(server.listen, wait_of(server.mode))?;
            serve(null.address(), |stop| Ok(echo_counts(&null.run(stop)?)))?;
        }
        Peer::TcpCalls(args) => calls::run(&args)?,
        Peer::TcpHold(args) => hold::run(&args)?,
        Peer::UdpBusyEcho { listen, busy_poll_us } => {
            let echo = BusyPollEcho::bind(listen, busy_poll_us)?;
            serve(echo.address(), |stop| Ok(echo_counts(&echo.run(stop)?)))?;
        }
        Peer::Relay(args) => relay::run(&args)?,
        Peer::PacketReflect(args) => reflect::packet(&args)?,
        Peer::ShmReflect(args) => reflect::shm(&args)?,
        Peer::Switch(args) => return switch::run(&args),
        Peer::L2Lookup(args) => l2_lookup::run(&args)?,
        Peer::Openflow(args) => openflow::run(&args)?,
        Peer::OpenflowDiscard(args) => discard::run(&args)?,
        Peer::Pipeline(args) => pipeline::run(&args)?,
        Peer::MemifSource(args) => switch::memif_source(&args)?,
        Peer::MemoryPorts(args) => memory_ports::run(&args)?,
        Peer::FrameSource(args) => switch::send(&args)?,
        Peer::XdpSink(args) => switch::sink(&args)?,
        Peer::NfsServer(args) => return nfs::serve(&args),
        Peer::NfsTree(args) => return nfs::keep(&args),
        Peer::NfsMounted(args) => return nfs::work(&args),
        Peer::Tap(args) => return tap::run(&args),
        Peer::NfsWalk(args) => return nfs::walk(&args),
        Peer::NfsLs(args) => return nfs::list(&args),
        Peer::Busy(args) => busy::run(&args)?,
        Peer::EventfdWake { cpus, rate, arrivals, arrivals_seed, duration, warmup } => {
            let (length, warmup) = (seconds(duration)?, seconds(warmup)?);
            wake(&cpus, &Pace { rate_per_s: rate, arrivals, seed: arrivals_seed, warmup, length })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn wake(cpus: &str, pace: &Pace) -> anyhow::Result<()> {
    let [from, to] = two_cpus(cpus)?;
    let stop = Stop::new();
    let (histogram, _) = attend(&stop, None, || paced_wake(from, to, pace, &stop))?;
    let histogram = histogram?;
    let wake_us = RttUs::of(&histogram).context("nobody was woken")?;
    Ok(print(json!({ "wake_us": wake_us, "histogram": buckets(&histogram) }))?)
}
