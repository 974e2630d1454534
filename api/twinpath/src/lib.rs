//! Network services on two paths: a fast path in user space for the flows they claim, and the kernel's own for
//! everything else.
//!
//! A service is a value with a few callbacks ([`Service`]); [`serve`] runs it on an interface. The same service answers on
//! TCP and on UDP, through the kernel's sockets and over the fast path.
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use twinpath::{Answer, Datagram, Instant, Output, Reason, Service};
//!
//! #[derive(Clone)]
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Connection = ();
//!
//!     fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
//!         datagram.echo()
//!     }
//!
//!     fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
//!         Ok(())
//!     }
//!
//!     fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
//!         let len = input.len().min(output.room());
//!         if output.write(&input[..len]) { len } else { 0 }
//!     }
//! }
//!
//! # fn main() -> Result<(), twinpath::Error> {
//! twinpath::serve(Echo).named("echo").on("eth0").udp(7).tcp(7).run()
//! # }
//! ```
//!
//! # Contents
//!
//! - [Running](#running), [testing](#testing), [time](#time), [sending besides answers](#sending-besides-answers),
//!   [work that blocks](#work-that-blocks), [counting](#counting), [configuration](#configuration), [logging](#logging),
//!   [threads and panics](#threads-and-panics), [sockets](#sockets), [versions](#versions)
//!
//! # Running
//!
//! [`Builder::run`] serves until SIGINT or SIGTERM, and then drains: it accepts no more connections, and
//! closes each open one once its requests are answered. [`Builder::spawn`] serves on separate threads, and
//! returns a handle ([`Running`]) to drain the instance, to reload its file, and to get its report. A
//! [`StopHandle`] ends either from any thread. For a port of 0 the kernel chooses one. [`Builder::and`]
//! adds further services to the same instance, and a process may have several instances.
//!
//! Serving through the kernel's sockets needs no privileges. The log says which privileges are missing for
//! the fast path. `twinpath show` says which paths are in use and why. The instance has a command socket,
//! so `twinpath show`, `top`, `set`, `drain` and `capture` work on it as on the `twinpath` program's own
//! services.
//!
//! # Testing
//!
//! A service is a function of its state, the time and its input, so a test needs no socket: [`test::Simulation`] gives it
//! a network with losses and delays from a seed, and a clock that the test sets.
//!
//! ```
//! use twinpath::test::Simulation;
//!
//! let mut simulation = Simulation::new(twinpath::Echo);
//! let peer = simulation.new_peer();
//! assert_eq!(simulation.ask(peer, b"hello"), [b"hello"]);
//! ```
//!
//! # Time
//!
//! Callbacks are passed the time of their turn ([`Instant`], which has an arbitrary start and never goes
//! back). A service can ask to be called without input, by [`Service::deadline`], and a connection by
//! [`Output::wake_at`]. The worker sleeps until then; no other timer runs.
//!
//! ```
//! use std::net::SocketAddr;
//! use twinpath::test::Simulation;
//! use twinpath::{Duration, Instant, Output, Reason, Service};
//!
//! /// Tells each connection every second how long it has been open.
//! struct Clock;
//!
//! const SECOND: Duration = Duration::from_secs(1);
//!
//! impl Service for Clock {
//!     type Connection = u32;
//!
//!     fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<u32, Reason> {
//!         Ok(0)
//!     }
//!
//!     fn opened(&mut self, now: Instant, _: &mut u32, output: &mut Output<'_>) {
//!         output.wake_at(now + SECOND);
//!     }
//!
//!     fn woken(&mut self, now: Instant, seconds: &mut u32, output: &mut Output<'_>) {
//!         *seconds += 1;
//!         // If the peer does not read, there may be no room: then it misses one.
//!         let _ = output.write(format!("{seconds} s\n").as_bytes());
//!         output.wake_at(now + SECOND);
//!     }
//! }
//!
//! let mut simulation = Simulation::new(Clock);
//! let peer = simulation.new_peer();
//! let client = simulation.connect(peer).expect("it accepts all");
//! simulation.advance(Duration::from_millis(2500));
//! assert_eq!(simulation.read(client), b"1 s\n2 s\n");
//! ```
//!
//! # Sending besides answers
//!
//! [`Datagram::send`] sends datagrams before the answer. An [`Outbox`], in timers and in
//! [`Datagram::outbox`], sends to any peer and on any connection of the same worker. Other threads send by
//! a [`SendHandle`], which a service that [sends later](Service::sends_later) gets when it
//! [starts](Service::start) on a worker. All of these are bounded: a message without room is refused to the
//! caller immediately, or counted under its [`Reason`].
//!
//! # Work that blocks
//!
//! Callbacks must not block: the worker serves nobody meanwhile. [`Output::later`] and [`Datagram::later`]
//! hand work over to threads that may block. The number of threads and their queue are
//! [limited](Builder::pool). A service that uses them returns true from [`Service::defers`].
//!
//! # Counting
//!
//! Input that a service drops or refuses is counted under the [`Reason`] that it returns, and shown by
//! `twinpath show drops`. [`OwnMetrics`] are a service's own counters, histograms and reasons. They appear
//! in the report, in `twinpath show services` and in the [metrics](Builder::metrics).
//!
//! # Configuration
//!
//! [`Builder::file`] reads the same TOML file as `twinpath serve --config` (docs/config.md), at the start
//! and again at each reload. Settings made by the program override it. The table `[program]` is the
//! program's own ([`Builder::section`]).
//!
//! # Logging
//!
//! The library writes `tracing` events, and installs no subscriber: without one nothing is written. Targets
//! begin with `twinpath_`. `error` needs an operator's action. `warn` says what works less well than asked
//! for, and why. `info` is a change of state, such as a reload. There is no lower level and no span.
//! Workers write nothing, so nothing is written per packet or request. Levels are stable; sentences may
//! change in any version.
//!
//! # Threads and panics
//!
//! Each worker has a thread and a clone of each service, whose callbacks are called on that thread only.
//! Control has one thread: that of [`Builder::run`], or one of its own. A panic in a callback of the
//! service closes its connection or drops its datagram, and is counted (`handler_failed`). Any other panic
//! on a thread of the instance ends the process with exit code 70, because a lost worker cannot be
//! replaced. A panic hook is installed for this; it passes the panics of other threads on to the previous
//! hook.
//!
//! # Sockets
//!
//! With the feature `sockets`, a program with its own loop can use a [`UdpSocket`]: a kernel socket with an
//! additional fast path. [`Poll`] waits for it and for other descriptors:
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let socket = twinpath::UdpSocket::bind("[::]:7")?.on("eth0");
//! let mut buffer = [0; 2048];
//! loop {
//!     let (len, peer) = socket.recv_from(&mut buffer)?;
//!     socket.send_to(&buffer[..len], peer)?;
//! }
//! # }
//! ```
//!
//! # Features
//!
//! None is on by default, so that a program is built only from what it needs. Both paths, UDP, TCP,
//! configuration files, reload, the report and the command socket are always included.
//!
//! | feature | adds |
//! |---|---|
//! | `capture` | `twinpath capture` for an instance: frames as pcapng |
//! | `measure-fallback` | `interface.measure_fallback`: measuring at the start what the fast path costs the kernel's own traffic |
//! | `metrics` | [`Builder::metrics`]: the endpoint for Prometheus |
//! | `rpc` | [`rpc`]: programs of ONC RPC |
//! | `sandbox` | [`Builder::sandbox`]: giving up capabilities, files and system calls |
//! | `sockets` | [`UdpSocket`] and [`Poll`], for a program with a loop of its own |
//! | `full` | all of these |
//!
//! A file that asks for a feature which the program was built without gets an error (metrics), or a warning
//! and a line in the report (the sandbox, the measurement).
//!
//! # Versions
//!
//! The public interface follows semantic versioning: while the version is `0.x`, a change of `x` may break
//! programs, and CHANGELOG.md says how to adapt them; other versions only add. New methods of [`Service`]
//! have default bodies. The names of reasons, metrics and fields of the [`report`] are kept in the same
//! way. The underlying crates (`twinpath-*`) promise no stability. The minimum version of Rust may rise
//! with any `x`.

// The guide links to items that exist only with some features.
#![cfg_attr(not(feature = "full"), allow(rustdoc::broken_intra_doc_links))]

mod builder;
mod error;
mod running;
mod settings;
pub mod test;

pub use builder::{Builder, serve};
pub use error::Error;
pub use running::{Drained, Running, ServedPorts, StopHandle};
pub use twinpath_config::{Config, Mode, PathAsked as Path, TcpPathAsked as TcpPath};
pub use twinpath_host::Ready;
#[cfg(feature = "sockets")]
pub use twinpath_leases::WhyKernel;
#[cfg(feature = "sockets")]
pub use twinpath_leases::sockets::{
    Access, Event, Interest, LentBy, Poll, SendBy, SocketCounts, SocketPath, UdpSocket,
};
/// The state of an instance, as [`Running::report`] returns it and `twinpath show` prints it.
pub use twinpath_observe::report;
/// ONC RPC: programs with procedures, and the service that connects them to streams and datagrams.
#[cfg(feature = "rpc")]
pub use twinpath_rpc as rpc;
pub use twinpath_service::{
    Answer, Begin, Closed, ConnectionId, CounterId, Datagram, Duration, Echo, EthernetFrame, HOLD_MAX,
    HistogramId, Instant, Keep, KeptReplies, Name, NotSent, Order, Outbox, Output, OwnMetrics, Reason,
    ReasonId, Reflect, Reflex, SendHandle, Service, ServiceCounters, SessionLimits, Sessions, Shape, Version,
    WhenFull,
};
pub use twinpath_stream::TcpLimits;
pub use twinpath_worker::thread::PoolLimits;
