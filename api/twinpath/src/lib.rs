//! Network services on two paths: a fast path in user space for the flows they claim, and the kernel's own for
//! everything else.
//!
//! A service is a value with a few callbacks ([`Service`]); [`serve`] runs it on an interface until SIGINT or
//! SIGTERM, and then drains it. The same service answers on TCP, on UDP through the kernel's sockets, and on UDP over
//! the fast path.
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
//!    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
//!         datagram.echo()
//!     }
//!
//!    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
//!         Ok(())
//!     }
//!
//!    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
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
//! A panic in a callback of the service closes its connection or drops its datagram, and is counted. Any other panic
//! on a thread of the instance, including the one that called [`Builder::run`], ends the process with exit code 70.
//! For that a panic hook is installed, which passes the panics of other threads on to the previous hook.
//!
//! Serving through the kernel's sockets needs no privileges; the log says which ones are missing for the fast path.
//! The instance has a command socket: `twinpath show`, `top`, `set` and `capture` work on it as on the program's own
//! services.

//!
//! # Sockets
//!
//! A program that has a loop of its own uses a [`UdpSocket`], which is the kernel's and has a fast path besides, and waits for
//! it and for other descriptors with [`Poll`]:
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

mod builder;
mod error;
mod running;
mod settings;
pub mod test;

pub use builder::{Builder, serve};
pub use error::Error;
pub use running::{Drained, Running, ServedPorts};
pub use twinpath_config::{Config, Mode, PathAsked as Path};
pub use twinpath_host::Ready;
/// The state of an instance, as [`Running::report`] returns it and `twinpath show` prints it.
pub use twinpath_report as report;
/// ONC RPC: programs with procedures, and the service that connects them to streams and datagrams.
pub use twinpath_rpc as rpc;
pub use twinpath_serve::{PoolLimits, TcpLimits};
pub use twinpath_service::{
    Answer, Begin, Closed, ConnectionId, CounterId, Datagram, Duration, Echo, EthernetFrame, HOLD_MAX,
    HistogramId, Instant, Keep, KeptReplies, Name, NotSent, Order, Outbox, Output, OwnMetrics, Reason,
    ReasonId, Reflect, Reflex, SendHandle, Service, ServiceCounters, SessionLimits, Sessions, Shape, Version,
    WhenFull,
};
pub use twinpath_socket::{
    Access, Event, Interest, LentBy, Poll, SendBy, SocketCounts, SocketPath, UdpSocket,
};
