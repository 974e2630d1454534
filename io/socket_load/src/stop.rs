//! How another thread ends a peer that may be asleep in a system call.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::net::{Shutdown, shutdown};

/// A request to stop, shared by whoever makes it and whoever obeys.
///
/// Sockets are shut down, which wakes their sleepers (for an unconnected UDP socket too: `inet_shutdown` in
/// net/ipv4/af_inet.c reports ENOTCONN and does it all the same). Nothing is left behind: no signal, no extra fd to
/// watch in the loops that are measured.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requested: AtomicBool,
    sockets: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Stop {
    /// Not requested yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every peer that was given this.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        let mut sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.drain(..).filter_map(|socket| socket.upgrade()) {
            wake(&socket);
        }
    }

    /// Whether to end now.
    #[inline]
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }

    /// Has `socket` shut down when the time comes; at once if it has come.
    pub fn watch(&self, socket: &Arc<OwnedFd>) {
        let mut sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.requested.load(Ordering::SeqCst) {
            wake(socket);
        } else {
            sockets.retain(|known| known.strong_count() > 0);
            sockets.push(Arc::downgrade(socket));
        }
    }
}

fn wake(socket: &OwnedFd) {
    // ENOTCONN is expected; anything else means the socket is ending by itself.
    let _ = shutdown(socket, Shutdown::Both);
}

/// How far a client is, for whoever draws a progress bar.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// Replies so far, warm-up included.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts replies. Only one thread may add, so no locked instruction is needed; give each its own.
    #[inline]
    pub fn add(&self, replies: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + replies, Ordering::Relaxed);
    }
}
