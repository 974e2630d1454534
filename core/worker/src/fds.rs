//! An engine's own descriptors: the worker watches them, and tells the engine when one is ready.

use std::cell::Cell;
use std::os::fd::AsFd;

use rustix::io::Errno;
use twinpath_inspect::Drops;

use crate::thread::sleep::Sleeper;

/// Tokens of the engine are above those of the worker's own fds.
pub(crate) const ENGINE_TOKENS: u64 = 1 << 32;

/// The worker's epoll for an engine's own descriptors, and the counters of what the engine drops.
#[derive(Clone, Copy)]
pub struct Fds<'a> {
    pub(crate) sleeper: &'a Sleeper,
    pub(crate) drops: &'a Drops,
    /// The kernel's stamp on the data that woke the worker.
    pub(crate) came: &'a Came,
    /// Where the tokens of a part begin; 0 unless the engine consists of several engines.
    pub(crate) first_token: u32,
}

/// The kernel's stamp on the data that ended a sleep, if it came to a descriptor of the engine.
#[derive(Debug, Default)]
pub(crate) struct Came {
    is_wanted: Cell<bool>,
    stamp_ns: Cell<Option<u64>>,
}

impl Came {
    /// A sleep has ended: asks the engine for the stamp of the data that it reads next.
    pub(crate) fn ask(&self) {
        self.is_wanted.set(true);
    }

    /// The stamp that the engine has given since then, if any. Ends the request.
    pub(crate) fn take(&self) -> Option<u64> {
        self.is_wanted.set(false);
        self.stamp_ns.take()
    }
}

impl Fds<'_> {
    /// Counters for what the engine drops.
    #[must_use]
    pub const fn drops(&self) -> &Drops {
        self.drops
    }

    /// Whether the worker has just been woken, and its idle policy wants the kernel's stamp on the data that woke
    /// it. Without stamps, the policy can only estimate how long a wake-up takes.
    #[inline]
    #[must_use]
    pub fn wants_stamp(&self) -> bool {
        self.came.is_wanted.get()
    }

    /// Gives the kernel's stamp (`CLOCK_REALTIME`, ns) on the data that woke the worker. The first one counts.
    pub fn stamped(&self, stamp_ns: u64) {
        if self.came.is_wanted.replace(false) {
            self.came.stamp_ns.set(Some(stamp_ns));
        }
    }

    const fn token(&self, token: u32) -> u64 {
        ENGINE_TOKENS + (self.first_token | token) as u64
    }

    /// Watches `fd` for reading, and for writing if `write`; [`Engine::ready`](crate::Engine::ready) is called with
    /// `token`.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn watch(&self, fd: impl AsFd, token: u32, write: bool) -> Result<(), Errno> {
        self.sleeper.add(fd, self.token(token), write)
    }

    /// Watches `fd` for reading and writing, edge-triggered: [`Engine::ready`](crate::Engine::ready) is called once
    /// when either becomes possible. It is told of an error if the peer has sent its last byte.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn watch_edges(&self, fd: impl AsFd, token: u32) -> Result<(), Errno> {
        self.sleeper.add_edges(fd, self.token(token))
    }

    /// Changes the events for which `fd` is watched.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn rewatch(&self, fd: impl AsFd, token: u32, read: bool, write: bool) -> Result<(), Errno> {
        self.sleeper.change(fd, self.token(token), read, write)
    }

    /// No longer watches `fd`.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` returns.
    pub fn unwatch(&self, fd: impl AsFd) -> Result<(), Errno> {
        self.sleeper.remove(fd)
    }
}
