//! TCP on the kernel path: accepting, reading, answering, never blocking.
//!
//! What a connection cannot send at once waits in a bounded buffer of its own, and the connection is not read until that
//! has drained: a client that sends and never reads stops itself, and nobody else.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrAny, SocketFlags, SocketType, acceptfrom_with, bind, socket_with,
    sockopt,
};
use twinpath_inspect::Reason;
use twinpath_service::{Closed, Next, Output, Service};
use twinpath_sys::udp_socket::bind_address;
use twinpath_time::{Duration, Instant};
use twinpath_worker::Io;

use crate::counters::ServeCounters;
use crate::engine::{FIRST_TCP_TOKEN, SOCKETS_MAX, ServeEvent};
use crate::served::Served;

/// Bytes read per connection and turn, and bytes of output gathered for it: enough for large messages, too few for one
/// connection to hold up the others.
pub(crate) const CHUNK: usize = 64 * 1024;

/// Connections waiting to be accepted.
const BACKLOG: i32 = 1024;

/// Connections accepted per turn.
const ACCEPT_BURST: usize = 64;

/// How long accepting pauses when the process has no descriptor left, unless one is freed before.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const FIRST_LISTENER_TOKEN: u32 = FIRST_TCP_TOKEN;
const FIRST_CONNECTION_TOKEN: u32 = FIRST_LISTENER_TOKEN + SOCKETS_MAX;

/// Listens on all addresses of both families, or at one, which need not be there yet.
///
/// # Errors
/// What the kernel returns; `AddrInUse` if another socket listens there.
pub fn listen(address: Option<IpAddr>, port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&fd, false)?;
    // A restart need not wait for the former instance's connections to time out (TIME_WAIT).
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &bind_address(&fd, address, port)?)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

struct Connection<C> {
    fd: OwnedFd,
    state: C,
    /// Input that the service has not used yet.
    unread: Vec<u8>,
    /// Output that the socket has not taken yet.
    unsent: Vec<u8>,
    /// The peer has sent its last byte; closed once everything is answered.
    ending: bool,
}

/// An IPv4 peer of a socket for both families as what it is.
fn canonical(peer: SocketAddr) -> SocketAddr {
    match peer.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::from((v4, peer.port())),
        IpAddr::V6(_) => peer,
    }
}

/// What to do with a connection after work on it.
enum After {
    Keep,
    Close(Closed),
}

pub(crate) struct TcpServer<C> {
    listeners: Vec<OwnedFd>,
    served: Arc<Served>,
    connections: Vec<Option<Connection<C>>>,
    free: Vec<u32>,
    input: Box<[u8]>,
    output: Vec<u8>,
    /// When accepting goes on; `NEVER` while it does.
    resume_at: Instant,
}

impl<C: Send> TcpServer<C> {
    pub(crate) fn new(listeners: Vec<OwnedFd>, served: Arc<Served>, connections_max: u32) -> Self {
        Self {
            listeners,
            served,
            connections: (0..connections_max).map(|_| None).collect(),
            free: (0..connections_max).rev().collect(),
            input: vec![0; CHUNK].into_boxed_slice(),
            output: Vec::with_capacity(CHUNK),
            resume_at: Instant::NEVER,
        }
    }

    pub(crate) fn start(&self, io: &Io<'_, ServeEvent>) -> Result<(), Errno> {
        (FIRST_LISTENER_TOKEN..)
            .zip(&self.listeners)
            .try_for_each(|(token, listener)| io.watch(listener, token, false))
    }

    pub(crate) fn next_deadline(&self) -> Instant {
        self.resume_at
    }

    pub(crate) fn run(&mut self, now: Instant, io: &Io<'_, ServeEvent>) -> bool {
        let due = now >= self.resume_at;
        if due {
            self.resume_accepting(io);
        }
        due
    }

    pub(crate) fn ready<S: Service<Connection = C>>(
        &mut self,
        now: Instant,
        token: u32,
        error: bool,
        service: &mut S,
        counters: &ServeCounters,
        io: &Io<'_, ServeEvent>,
    ) {
        if token < FIRST_CONNECTION_TOKEN {
            return self.accept((token - FIRST_LISTENER_TOKEN) as usize, now, service, counters, io);
        }
        let slot = (token - FIRST_CONNECTION_TOKEN) as usize;
        // Its place may be empty: it was closed earlier in this very turn.
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let after = if error && connection.ending {
            After::Close(Closed::Broken)
        } else {
            connection.work(now, token, service, &mut self.input, &mut self.output, counters, io)
        };
        if let After::Close(why) = after {
            self.close(slot, why, service, counters, io);
        }
    }

    fn accept<S: Service<Connection = C>>(
        &mut self,
        number: usize,
        now: Instant,
        service: &mut S,
        counters: &ServeCounters,
        io: &Io<'_, ServeEvent>,
    ) {
        for _ in 0..ACCEPT_BURST {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let Some(listener) = self.listeners.get(number) else { return };
            match acceptfrom_with(listener, flags) {
                Ok((fd, peer)) => self.open(fd, peer, now, service, counters, io),
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Still readable: without a pause it would spin.
                    self.watch_listeners(false, io);
                    self.resume_at = now + ACCEPT_PAUSE;
                    io.drops().add(Reason::ConnectionLimit, 1);
                    return;
                }
                // The peer left before it was accepted.
                Err(_) => {}
            }
        }
    }

    fn open<S: Service<Connection = C>>(
        &mut self,
        fd: OwnedFd,
        peer: Option<SocketAddrAny>,
        now: Instant,
        service: &mut S,
        counters: &ServeCounters,
        io: &Io<'_, ServeEvent>,
    ) {
        let unknown = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).map_or(unknown, canonical);
        // Closed before it is served: the same senders as over UDP.
        if !self.served.allows(peer.ip()) {
            io.drops().add(Reason::SourceNotAllowed, 1);
            return;
        }
        let Some(slot) = self.free.pop() else {
            io.drops().add(Reason::ConnectionLimit, 1);
            return;
        };
        // Replies are gathered here, so the kernel need not wait for more.
        let _ = sockopt::set_tcp_nodelay(&fd, true);
        if io.watch(&fd, FIRST_CONNECTION_TOKEN + slot, false).is_err() {
            self.free.push(slot);
            io.drops().add(Reason::ConnectionLimit, 1);
            return;
        }
        let state = match service.accept(now, peer) {
            Ok(state) => state,
            Err(reason) => {
                let _ = io.unwatch(&fd);
                self.free.push(slot);
                io.drops().add(reason, 1);
                return;
            }
        };
        let connection = Connection { fd, state, unread: Vec::new(), unsent: Vec::new(), ending: false };
        self.connections[slot as usize] = Some(connection);
        counters.accepted.add(1);
        counters.connections.set((self.connections.len() - self.free.len()) as u64);
    }

    fn close<S: Service<Connection = C>>(
        &mut self,
        slot: usize,
        why: Closed,
        service: &mut S,
        counters: &ServeCounters,
        io: &Io<'_, ServeEvent>,
    ) {
        if let Some(connection) = self.connections[slot].take() {
            let _ = io.unwatch(&connection.fd);
            self.free.push(slot as u32);
            if let Closed::For(reason) = why {
                io.drops().add(reason, 1);
            }
            service.close(connection.state, why);
        }
        counters.connections.set((self.connections.len() - self.free.len()) as u64);
        if self.resume_at != Instant::NEVER {
            self.resume_accepting(io);
        }
    }

    fn resume_accepting(&mut self, io: &Io<'_, ServeEvent>) {
        self.resume_at = Instant::NEVER;
        self.watch_listeners(true, io);
    }

    fn watch_listeners(&self, read: bool, io: &Io<'_, ServeEvent>) {
        for (token, listener) in (FIRST_LISTENER_TOKEN..).zip(&self.listeners) {
            let _ = io.rewatch(listener, token, read, false);
        }
    }
}

impl<C: Send> Connection<C> {
    /// Sends what waits, else reads and answers; once per call, so that the others get their turn.
    #[expect(clippy::too_many_arguments, reason = "all of a turn's")]
    fn work<S: Service<Connection = C>>(
        &mut self,
        now: Instant,
        token: u32,
        service: &mut S,
        input: &mut [u8],
        output: &mut Vec<u8>,
        counters: &ServeCounters,
        io: &Io<'_, ServeEvent>,
    ) -> After {
        let was_blocked = !self.unsent.is_empty();
        if was_blocked {
            let unsent = std::mem::take(&mut self.unsent);
            match self.send(&unsent, counters) {
                Ok(sent) if sent < unsent.len() => {
                    self.unsent = unsent;
                    self.unsent.drain(..sent);
                    return After::Keep;
                }
                Ok(_) => {}
                Err(_) => return After::Close(Closed::Broken),
            }
        }
        let mut more = 0;
        if !self.ending && self.unread.len() < CHUNK {
            match rustix::io::read(&self.fd, &mut *input) {
                Ok(0) => self.ending = true,
                Ok(len) => more = len,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return After::Close(Closed::Broken),
            }
        }
        counters.stream_bytes_in.add(more as u64);
        output.clear();
        if was_blocked {
            service.writable(now, &mut self.state, &mut Output::new(output, CHUNK));
        }
        let (mut used, mut next) = self.serve(now, &input[..more], service, output);
        let blocked = loop {
            let Ok(sent) = self.send(output, counters) else { return After::Close(Closed::Broken) };
            self.unsent.extend_from_slice(&output[sent..]);
            let blocked = !self.unsent.is_empty();
            if blocked || used == 0 || self.unread.is_empty() || next != Next::Keep {
                break blocked;
            }
            // Output was the limit, not input: nothing else would call again for what is left.
            output.clear();
            (used, next) = self.serve(now, &[], service, output);
        };
        match next {
            Next::Refuse(reason) => return After::Close(Closed::For(reason)),
            Next::End => {
                self.ending = true;
                self.unread = Vec::new();
            }
            Next::Keep => {}
        }
        if blocked != was_blocked && io.rewatch(&self.fd, token, !blocked, blocked).is_err() {
            return After::Close(Closed::Broken);
        }
        // A service that makes nothing of a full buffer never will.
        let deaf = used == 0 && !blocked && self.unread.len() >= CHUNK;
        if deaf {
            return After::Close(Closed::For(Reason::RequestTooLarge));
        }
        let done = self.ending && !blocked && (used == 0 || self.unread.is_empty());
        if done { After::Close(Closed::Ended) } else { After::Keep }
    }

    /// Gives the service what it has not used yet and `more`; how much it used, and what it wants.
    fn serve<S: Service<Connection = C>>(
        &mut self,
        now: Instant,
        more: &[u8],
        service: &mut S,
        output: &mut Vec<u8>,
    ) -> (usize, Next) {
        let mut output = Output::new(output, CHUNK);
        if self.unread.is_empty() {
            // The common case: nothing is copied.
            let used = service.stream(now, &mut self.state, more, &mut output).min(more.len());
            self.unread.extend_from_slice(&more[used..]);
            return (used, output.next());
        }
        self.unread.extend_from_slice(more);
        let used = service.stream(now, &mut self.state, &self.unread, &mut output).min(self.unread.len());
        self.unread.drain(..used);
        (used, output.next())
    }

    fn send(&self, bytes: &[u8], counters: &ServeCounters) -> Result<usize, Errno> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let sent = match rustix::net::send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        counters.stream_bytes_out.add(sent as u64);
        Ok(sent)
    }
}
