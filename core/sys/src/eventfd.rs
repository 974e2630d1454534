//! A counter with a file descriptor: how one thread wakes another that waits on fds.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, retry_on_intr, write};

/// An eventfd. Any thread may signal it; it is readable until drained.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// An eventfd whose [`drain`](Self::drain) never blocks: for use with epoll or poll.
    ///
    /// # Errors
    /// From `eventfd(2)`: the limit of descriptors is reached.
    pub fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// An eventfd whose [`drain`](Self::drain) sleeps until it is signalled.
    ///
    /// # Errors
    /// From `eventfd(2)`: the limit of descriptors is reached.
    pub fn new_blocking() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC).map(Self)
    }

    /// An eventfd that another process passed to us.
    #[must_use]
    pub const fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Makes it readable. Signals add up until the next drain.
    pub fn signal(&self) {
        self.signal_many(1);
    }

    /// Signals `count` times at once.
    pub fn signal_many(&self, count: u64) {
        // A full counter, 2^64 - 2 signals, is readable already, which is all that a signal must achieve.
        let _ = retry_on_intr(|| write(&self.0, &count.to_ne_bytes()));
    }

    /// Takes all signals since the last drain; zero when there were none.
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        match retry_on_intr(|| read(&self.0, &mut count)) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    /// As [`Self::drain`], but guaranteed not to block: every holder of the descriptor shares its flags, and could
    /// have cleared `O_NONBLOCK`. (Writes have no such form: never signal an eventfd that an untrusted process
    /// holds.)
    pub fn drain_shared(&self) -> u64 {
        /// The current position: eventfds have no other.
        const HERE: u64 = u64::MAX;
        let mut count = [0; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        match retry_on_intr(|| preadv2(&self.0, &mut into, HERE, ReadWriteFlags::NOWAIT)) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }
}

impl From<EventFd> for OwnedFd {
    fn from(event: EventFd) -> Self {
        event.0
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_add_up_until_drained() {
        let event = EventFd::new().unwrap();
        assert_eq!(event.drain(), 0);
        event.signal();
        event.signal();
        assert_eq!(event.drain(), 2);
        assert_eq!(event.drain(), 0);
    }

    #[test]
    fn a_descriptor_made_blocking_is_drained_without_blocking() {
        let event = EventFd::new_blocking().unwrap();
        assert_eq!(event.drain_shared(), 0);
        event.signal_many(3);
        assert_eq!(event.drain_shared(), 3);
        assert_eq!(event.drain_shared(), 0);
    }

    #[test]
    fn a_signal_wakes_a_sleeping_thread() {
        let event = EventFd::new_blocking().unwrap();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| event.drain());
            event.signal();
            assert_eq!(woken.join().unwrap(), 1);
        });
    }
}
