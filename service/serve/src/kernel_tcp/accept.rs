//! A worker's listening sockets, and the events of its epoll for them and for their connections.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use twinpath_inspect::Reason;
use twinpath_sys::socket_filter;
use twinpath_time::{Duration, Instant};
use twinpath_worker::Fds;

use crate::kernel_tcp::socket::{Buffers, KernelStream, Socket};
use crate::streams::{Listener, Ready};

/// The first token of a TCP server: its listeners have the first ones. The engine that holds the server may use
/// those below.
pub const FIRST_TOKEN: u32 = 1 << 10;
/// Maximum number of listeners of one server: a stand-in has the listeners of all workers.
pub const LISTENERS_MAX: u32 = 1 << 13;
/// The tokens of connections follow those of the listeners.
const FIRST_CONNECTION_TOKEN: u32 = FIRST_TOKEN + LISTENERS_MAX;

/// Maximum number of connections skipped in a row because the peer had closed them before they were
/// accepted. The next turn continues.
const GONE_MAX: usize = 64;

/// When the process has no descriptor left, accepting pauses for this long, or until one is freed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The event of a token; `ends`: the peer has sent its last byte, or the socket has failed.
#[inline]
#[must_use]
pub const fn ready(token: u32, ends: bool) -> Ready {
    match token.checked_sub(FIRST_CONNECTION_TOKEN) {
        Some(number) => Ready::Connection { number, ends },
        None => Ready::Accept((token - FIRST_TOKEN) as usize),
    }
}

/// A worker's listening sockets, and the buffers of its connections. The worker's epoll watches them. A connection is
/// watched by edges, for as long as it is open.
pub struct KernelListener {
    listeners: Vec<OwnedFd>,
    /// When a pause of accepting ends; `NEVER` if there is none.
    resume_at: Instant,
    buffers: Buffers,
    /// Whether the listeners have a socket filter, which accepted sockets inherit.
    guarded: bool,
}

impl KernelListener {
    /// Accepts from these listeners, at most [`LISTENERS_MAX`]. `output_max`: bytes that a connection sends in one
    /// call.
    #[must_use]
    pub fn new(listeners: Vec<OwnedFd>, output_max: usize) -> Self {
        Self { listeners, resume_at: Instant::NEVER, buffers: Buffers::new(output_max), guarded: false }
    }

    /// The same for listeners that may have a socket filter: accepted sockets lose it.
    #[must_use]
    pub const fn guarded(mut self, guarded: bool) -> Self {
        self.guarded = guarded;
        self
    }

    fn rewatch(&self, read: bool, fds: &Fds<'_>) {
        for (token, listener) in (FIRST_TOKEN..).zip(&self.listeners) {
            let _ = fds.rewatch(listener, token, read, false);
        }
    }
}

impl Listener for KernelListener {
    type Io<'io> = Fds<'io>;
    type Stream = Socket;
    type Transport<'a> = KernelStream<'a>;

    const MAY_POLL: bool = true;

    fn listen(&mut self, fds: &Fds<'_>) -> Result<(), Errno> {
        (FIRST_TOKEN..)
            .zip(&self.listeners)
            .try_for_each(|(token, listener)| fds.watch(listener, token, false))
    }

    fn stop(&mut self, fds: &Fds<'_>) {
        for listener in &self.listeners {
            let _ = fds.unwatch(listener);
        }
        self.resume_at = Instant::NEVER;
    }

    fn close(&mut self, fds: &Fds<'_>) {
        for listener in self.listeners.drain(..) {
            let _ = fds.unwatch(&listener);
        }
        self.resume_at = Instant::NEVER;
    }

    fn is_closed(&self) -> bool {
        self.listeners.is_empty()
    }

    fn places(&self) -> usize {
        self.listeners.len()
    }

    fn accept(&mut self, place: usize, now: Instant, fds: &Fds<'_>) -> Option<(Socket, SocketAddr)> {
        let listener = self.listeners.get(place)?;
        for _ in 0..GONE_MAX {
            match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => {
                    if self.guarded && socket_filter::detach(&fd).is_err() {
                        // With it, the connection would lose what is claimed for another one: it is given up.
                        continue;
                    }
                    return Some((Socket::new(fd), canonical(peer)));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The listener stays readable, so the worker would spin without a pause.
                    self.rewatch(false, fds);
                    self.resume_at = now + ACCEPT_PAUSE;
                    fds.drops().add(Reason::ConnectionLimit, 1);
                    break;
                }
                // The peer closed the connection before it was accepted.
                Err(_) => {}
            }
        }
        None
    }

    #[inline]
    fn paused_until(&self) -> Instant {
        self.resume_at
    }

    fn resume(&mut self, fds: &Fds<'_>) {
        if self.resume_at != Instant::NEVER {
            self.resume_at = Instant::NEVER;
            self.rewatch(true, fds);
        }
    }

    fn watch(&mut self, socket: &mut Socket, number: u32, fds: &Fds<'_>) -> Result<(), Errno> {
        fds.watch_edges(&*socket, FIRST_CONNECTION_TOKEN + number)
    }

    fn unwatch(&mut self, socket: &mut Socket, fds: &Fds<'_>) -> bool {
        fds.unwatch(&*socket).is_ok()
    }

    /// Unlike receiving, this does not take the socket's lock, which the kernel needs while the peer sends.
    #[inline]
    fn has_something(&self, socket: &Socket) -> bool {
        socket.has_something()
    }

    fn has_bytes(&self, socket: &Socket) -> bool {
        socket.has_bytes()
    }

    #[inline]
    fn held(&self, socket: &Socket) -> usize {
        socket.held()
    }

    #[inline]
    fn transport<'a>(&'a mut self, socket: &'a mut Socket, _now: Instant) -> KernelStream<'a> {
        socket.with(&mut self.buffers)
    }

    fn end(&mut self, socket: Socket) {
        drop(socket);
    }

    #[inline]
    fn wants_stamp(&self, fds: &Fds<'_>) -> bool {
        fds.wants_stamp()
    }

    fn ask_stamp(&mut self, socket: &mut Socket) {
        socket.ask_stamp();
    }

    fn give_stamp(&mut self, socket: &mut Socket, fds: &Fds<'_>) {
        if let Some(stamp_ns) = socket.take_stamp() {
            fds.stamped(stamp_ns);
        }
    }
}

/// The peer's address; an IPv4 peer of a dual-stack socket gets its IPv4 address.
fn canonical(peer: Option<SocketAddrAny>) -> SocketAddr {
    let unknown = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(unknown);
    match peer.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::from((v4, peer.port())),
        IpAddr::V6(_) => peer,
    }
}
