//! Accepts connections from a worker's listening sockets.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use twinpath_inspect::Reason;
use twinpath_time::{Duration, Instant};
use twinpath_worker::Fds;

/// The first token of a TCP server: its listeners have the first ones. The engine that holds the server may use
/// those below.
pub const FIRST_TOKEN: u32 = 1 << 10;
/// Maximum number of listeners of one server: a stand-in has the listeners of all workers.
pub const LISTENERS_MAX: u32 = 1 << 13;

/// Maximum number of connections skipped in a row because the peer had closed them before they were
/// accepted. The next turn continues.
const GONE_MAX: usize = 64;

/// When the process has no descriptor left, accepting pauses for this long, or until one is freed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A worker's listening sockets, watched for connections while the worker accepts.
pub(crate) struct Acceptor {
    listeners: Vec<OwnedFd>,
    /// When a pause of accepting ends; `NEVER` if there is none.
    resume_at: Instant,
}

impl Acceptor {
    pub(crate) const fn new(listeners: Vec<OwnedFd>) -> Self {
        Self { listeners, resume_at: Instant::NEVER }
    }

    pub(crate) fn start(&self, fds: &Fds<'_>) -> Result<(), Errno> {
        (FIRST_TOKEN..)
            .zip(&self.listeners)
            .try_for_each(|(token, listener)| fds.watch(listener, token, false))
    }

    /// Stops accepting. Connections that wait in the listeners stay there.
    pub(crate) fn stop(&mut self, fds: &Fds<'_>) {
        for listener in &self.listeners {
            let _ = fds.unwatch(listener);
        }
        self.resume_at = Instant::NEVER;
    }

    pub(crate) const fn resume_at(&self) -> Instant {
        self.resume_at
    }

    /// Whether the listeners have been closed.
    pub(crate) const fn is_closed(&self) -> bool {
        self.listeners.is_empty()
    }

    /// The number of listeners.
    pub(crate) const fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Accepts one connection that waits at listener `number`, if there is one.
    pub(crate) fn accept(
        &mut self,
        number: usize,
        now: Instant,
        fds: &Fds<'_>,
    ) -> Option<(OwnedFd, SocketAddr)> {
        let listener = self.listeners.get(number)?;
        for _ in 0..GONE_MAX {
            match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => return Some((fd, canonical(peer))),
                Err(Errno::AGAIN) => break,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The listener stays readable, so the worker would spin without a pause.
                    self.watch(false, fds);
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

    /// Ends a pause of accepting, if there is one: the time has passed, or a descriptor was freed.
    pub(crate) fn resume(&mut self, fds: &Fds<'_>) {
        if self.resume_at != Instant::NEVER {
            self.resume_at = Instant::NEVER;
            self.watch(true, fds);
        }
    }

    /// Closes the listeners.
    pub(crate) fn close(&mut self, fds: &Fds<'_>) {
        for listener in self.listeners.drain(..) {
            let _ = fds.unwatch(&listener);
        }
        self.resume_at = Instant::NEVER;
    }

    fn watch(&self, read: bool, fds: &Fds<'_>) {
        for (token, listener) in (FIRST_TOKEN..).zip(&self.listeners) {
            let _ = fds.rewatch(listener, token, read, false);
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
