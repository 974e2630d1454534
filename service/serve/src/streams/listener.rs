//! The interface to a source of stream connections.

use std::net::SocketAddr;

use rustix::io::Errno;
use twinpath_stream::Transport;
use twinpath_time::Instant;

/// A source of stream connections: the kernel's listening sockets, or a TCP engine. It accepts them, moves their bytes
/// ([`Transport`]), and announces events, which its owner passes to [`StreamServer::ready`](super::StreamServer::ready).
///
/// The server may receive later than the event, because other connections have their turn first. What has arrived and
/// was not received when [`StreamServer::ready`](super::StreamServer::ready) returns stays with the listener.
///
/// All methods are called on the worker's thread, and none blocks.
pub trait Listener: 'static {
    /// What the worker lends it for a call, such as the worker's epoll.
    type Io<'io>;

    /// Its part of a connection; the server keeps it.
    type Stream;

    /// A connection's transport, for the duration of a call.
    type Transport<'a>: Transport
    where
        Self: 'a;

    /// Whether the server may read a connection without an event ([`Self::unwatch`]), because an event costs more than a
    /// read. If not, events announce everything. In both cases the reads of a connection may be delayed for some tens of
    /// microseconds.
    const MAY_POLL: bool = false;

    /// Starts to announce connections that wait to be accepted.
    ///
    /// # Errors
    /// The kernel refuses to watch a descriptor.
    fn listen(&mut self, io: &Self::Io<'_>) -> Result<(), Errno>;

    /// Stops announcing connections, until the next [`Self::listen`]. Those that wait are left waiting.
    fn stop(&mut self, io: &Self::Io<'_>);

    /// Accepts no more. Connections that wait are refused, or left to another instance.
    fn close(&mut self, io: &Self::Io<'_>);

    /// Whether [`Self::close`] was called.
    fn is_closed(&self) -> bool;

    /// The number of places at which connections wait, such as listening sockets.
    fn places(&self) -> usize;

    /// Accepts one connection that waits at a place, with its peer's address; an IPv4 peer has its IPv4 address. If
    /// there is none, an event announces the next one. It may pause accepting for lack of a resource.
    fn accept(&mut self, place: usize, now: Instant, io: &Self::Io<'_>)
    -> Option<(Self::Stream, SocketAddr)>;

    /// When a pause of accepting ends: then [`Self::resume`] is called, or earlier. `NEVER` if there is none.
    fn paused_until(&self) -> Instant {
        Instant::NEVER
    }

    /// Ends a pause of accepting, if there is one: the time has passed, or a connection was closed.
    fn resume(&mut self, _io: &Self::Io<'_>) {}

    /// From now on the connection's edges ([`Transport`]) are announced under `number`. What has arrived before is
    /// announced, too.
    ///
    /// # Errors
    /// The kernel refuses to watch a descriptor.
    fn watch(&mut self, stream: &mut Self::Stream, number: u32, io: &Self::Io<'_>) -> Result<(), Errno>;

    /// No longer announces the connection's edges, as the server reads it in every turn. Returns whether it does not:
    /// it need not if [`Self::MAY_POLL`] is false.
    fn unwatch(&mut self, _stream: &mut Self::Stream, _io: &Self::Io<'_>) -> bool {
        false
    }

    /// Whether receiving would return bytes, an end or an error; `true` if finding out costs as much as receiving.
    fn has_something(&self, _stream: &Self::Stream) -> bool {
        true
    }

    /// Whether bytes have arrived that were not received.
    fn has_bytes(&self, stream: &Self::Stream) -> bool;

    /// Bytes of memory that a connection holds in it, beyond what every idle one has. The server limits the sum.
    /// It changes only in calls for this connection: memory that arriving or acknowledged segments take and give back
    /// is limited by the engine itself, and not part of it.
    fn held(&self, stream: &Self::Stream) -> usize;

    /// The transport of a connection, for a call at `now`.
    fn transport<'a>(&'a mut self, stream: &'a mut Self::Stream, now: Instant) -> Self::Transport<'a>;

    /// A connection is over. What was committed is still sent to the peer if the connection's stream was finished;
    /// otherwise, or if bytes arrive that nobody will receive, the peer gets a reset.
    fn end(&mut self, stream: Self::Stream);

    /// Whether the worker was woken and wants to know when the bytes arrived that it reads next.
    fn wants_stamp(&self, _io: &Self::Io<'_>) -> bool {
        false
    }

    /// The next receive of this connection finds out when its bytes arrived.
    fn ask_stamp(&mut self, _stream: &mut Self::Stream) {}

    /// Tells the worker when those bytes arrived, if the receive has found it out.
    fn give_stamp(&mut self, _stream: &mut Self::Stream, _io: &Self::Io<'_>) {}
}

/// An event of a [`Listener`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Connections wait to be accepted at this place.
    Accept(usize),
    /// An edge of a connection.
    Connection {
        /// The number under which it is watched.
        number: u32,
        /// It was the last edge: the peer has sent its last byte, or the transport has failed.
        ends: bool,
    },
}
