//! Stops a peer that runs on another thread and may be asleep in a system call.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::net::{Shutdown, shutdown};

/// A request to stop, shared by the thread that makes it and the peers that follow it.
///
/// It shuts down their sockets, which wakes the threads that sleep on them. This works for an unconnected
/// UDP socket too: `inet_shutdown` in net/ipv4/af_inet.c reports ENOTCONN, but shuts it down. So the
/// measured loops need neither a signal nor a further descriptor.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requested: AtomicBool,
    sockets: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Stop {
    /// A request that has not been made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops every peer that shares this.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        let mut sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.drain(..).filter_map(|socket| socket.upgrade()) {
            wake(&socket);
        }
    }

    /// Whether to stop now.
    #[inline]
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }

    /// Registers `socket` to be shut down when the request is made; if it has been made already, shuts it
    /// down immediately.
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
    // ENOTCONN is expected; any other error means that the socket is closing already.
    let _ = shutdown(socket, Shutdown::Both);
}

/// The progress of a client, for a progress bar.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// Number of replies so far, including the warm-up; for a stream, of bytes.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts replies, or bytes. Only one thread may add to it, so no locked instruction is needed: give
    /// each thread its own.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}
