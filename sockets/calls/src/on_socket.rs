//! Calls that are on a socket with a lease: those that may open its ring, and those that have the socket until they return.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnSocket {
    /// It receives, or waits by `poll(2)`, and looks at the ring. It has the socket until it returns, even if that is closed meanwhile.
    ReceivesAndLooks,
    /// The same, and does not look, as it sleeps.
    Receives,
    /// It waits for the socket, as long as that is not closed, and looks at the ring.
    WaitsAndLooks,
    /// The same, and does not look.
    Waits,
}

const BITS: u32 = 16;

impl OnSocket {
    const fn one(self) -> u64 {
        1 << (self as u32 * BITS)
    }

    const fn count(self, calls: u64) -> u64 {
        calls >> (self as u32 * BITS) & ((1 << BITS) - 1)
    }
}

/// How many calls are on a socket: of each kind a part of the word.
#[derive(Debug, Default)]
pub(crate) struct Calls(AtomicU64);

impl Calls {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A call begins.
    pub(crate) fn begins(&self, kind: OnSocket) {
        self.0.fetch_add(kind.one(), Ordering::SeqCst);
    }

    /// A call is of another kind from now on, or ends. In a child that was forked by a signal handler, none has begun.
    pub(crate) fn change(&self, before: OnSocket, now: Option<OnSocket>) {
        let added = now.map_or(0, OnSocket::one);
        let changed =
            |calls: u64| (before.count(calls) > 0).then(|| (calls - before.one()).wrapping_add(added));
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, changed);
    }

    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// Whether some may be about to open the ring, without having seen a thread that has just begun to wait.
    pub(crate) fn look(&self) -> bool {
        let calls = self.0.load(Ordering::SeqCst);
        OnSocket::ReceivesAndLooks.count(calls) + OnSocket::WaitsAndLooks.count(calls) > 0
    }

    /// Whether some have the socket.
    pub(crate) fn have_it(&self) -> bool {
        let calls = self.0.load(Ordering::SeqCst);
        OnSocket::ReceivesAndLooks.count(calls) + OnSocket::Receives.count(calls) > 0
    }
}
