//! Accepting.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use twinpath_inspect::Reason;
use twinpath_time::{Duration, Instant};
use twinpath_worker::Fds;

/// The tokens of a TCP server begin here, with those of its listeners; its engine may use those below.
pub const FIRST_TOKEN: u32 = 1 << 10;
/// Most listeners: those of as many workers as there may be, for a stand-in of all of them.
pub const LISTENERS_MAX: u32 = 1 << 13;

/// Peers in a row that may have left before they were accepted; the peer behind them is accepted in the next turn.
const GONE_MAX: usize = 64;

/// How long accepting pauses when the process has no descriptor left, unless one is freed before.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A worker's listeners, and whether they are listened to.
pub(crate) struct Acceptor {
    listeners: Vec<OwnedFd>,
    /// When accepting goes on; `NEVER` while it does.
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

    /// Leaves what waits where it is.
    pub(crate) fn stop(&mut self, fds: &Fds<'_>) {
        for listener in &self.listeners {
            let _ = fds.unwatch(listener);
        }
        self.resume_at = Instant::NEVER;
    }

    pub(crate) const fn resume_at(&self) -> Instant {
        self.resume_at
    }

    /// Whether there is nothing left to listen to.
    pub(crate) const fn is_closed(&self) -> bool {
        self.listeners.is_empty()
    }

    /// How many listeners there are.
    pub(crate) const fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Takes one of the connections that wait at listener `number`.
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
                    // Still readable: without a pause it would spin.
                    self.watch(false, fds);
                    self.resume_at = now + ACCEPT_PAUSE;
                    fds.drops().add(Reason::ConnectionLimit, 1);
                    break;
                }
                // The peer left before it was accepted.
                Err(_) => {}
            }
        }
        None
    }

    /// Goes on after a pause, if there is one: its time has come, or a descriptor was freed.
    pub(crate) fn resume(&mut self, fds: &Fds<'_>) {
        if self.resume_at != Instant::NEVER {
            self.resume_at = Instant::NEVER;
            self.watch(true, fds);
        }
    }

    /// Listens no more.
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

/// An IPv4 peer of a socket for both families as what it is.
fn canonical(peer: Option<SocketAddrAny>) -> SocketAddr {
    let unknown = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(unknown);
    match peer.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::from((v4, peer.port())),
        IpAddr::V6(_) => peer,
    }
}
