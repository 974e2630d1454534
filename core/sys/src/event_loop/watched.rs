//! Descriptors that a loop watches.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::Poll;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{State, current};

/// What the kernel has reported, and nobody has cleared.
#[derive(Default)]
pub(super) struct Readiness {
    readable: Cell<bool>,
    writable: Cell<bool>,
}

impl Readiness {
    #[cfg(test)]
    pub(super) fn is_readable(&self) -> bool {
        self.readable.get()
    }

    pub(super) fn add(&self, flags: EventFlags) {
        let ended = EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP | ended) {
            self.readable.set(true);
        }
        if flags.intersects(EventFlags::OUT | ended) {
            self.writable.set(true);
        }
    }
}

/// A descriptor that the loop of a thread watches. The kernel reports each change once (`EPOLLET`): who has been told
/// reads until nothing is left, and clears it. An error and the end of a connection count as readable.
pub struct Watched<T: AsFd> {
    /// `None` while it is being dropped.
    fd: Option<T>,
    number: u64,
    pub(super) readiness: Rc<Readiness>,
    state: Rc<State>,
}

impl<T: AsFd> Watched<T> {
    /// Watches until it is readable.
    ///
    /// # Errors
    /// No loop runs on this thread, or from `epoll_ctl(2)`.
    pub fn readable(fd: T) -> io::Result<Self> {
        Self::new(fd, EventFlags::IN | EventFlags::RDHUP)
    }

    /// Watches until it is readable, and until it is writable.
    ///
    /// # Errors
    /// As [`Self::readable`].
    pub fn both(fd: T) -> io::Result<Self> {
        Self::new(fd, EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT)
    }

    fn new(fd: T, flags: EventFlags) -> io::Result<Self> {
        let state = current()?;
        let number = state.number.get();
        epoll::add(&state.epoll, &fd, EventData::new_u64(number), flags | EventFlags::ET)?;
        state.number.set(number + 1);
        let readiness = Rc::<Readiness>::default();
        state.watched.borrow_mut().insert(number, Rc::clone(&readiness));
        Ok(Self { fd: Some(fd), number, readiness, state })
    }

    /// The descriptor.
    pub fn get_ref(&self) -> &T {
        // It is there until `self` is dropped.
        self.fd.as_ref().unwrap_or_else(|| unreachable!())
    }

    /// The same, to change its owner; the descriptor stays the same.
    pub fn get_mut(&mut self) -> &mut T {
        self.fd.as_mut().unwrap_or_else(|| unreachable!())
    }

    /// The descriptor, which is watched no longer.
    pub fn into_inner(mut self) -> T {
        self.forget();
        self.fd.take().unwrap_or_else(|| unreachable!())
    }

    fn forget(&self) {
        // Before it is closed: another process may have it as well, and then it would be watched for ever.
        let _ = self.fd.as_ref().map(|fd| epoll::delete(&self.state.epoll, fd));
        self.state.watched.borrow_mut().remove(&self.number);
    }

    /// Waits until it is readable. It stays so until it is cleared, by [`Self::clear`] or [`Self::try_read`].
    pub fn until_readable(&self) -> impl Future<Output = ()> + '_ {
        poll_fn(|_| if self.readiness.readable.get() { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Waits until the kernel reports that it is readable, and clears that.
    pub async fn event(&self) {
        self.until_readable().await;
        self.clear();
    }

    /// Nothing is left to read.
    pub fn clear(&self) {
        self.readiness.readable.set(false);
    }

    /// Reads by `read`, if it may be readable. It is cleared once `read` would block.
    ///
    /// # Errors
    /// Those of `read`; `WouldBlock` if it is not readable.
    pub fn try_read<R>(&self, read: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        attempt(&self.readiness.readable, || read(self.get_ref()))
    }

    /// Reads by `read` as soon as that does not block. Cancelling it loses nothing.
    ///
    /// # Errors
    /// Those of `read`, but for `WouldBlock` and `Interrupted`.
    pub async fn read<R>(&self, mut read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        poll_fn(|_| attempts(&self.readiness.readable, || read(self.get_ref()))).await
    }

    /// Writes by `write` as soon as that does not block.
    ///
    /// # Errors
    /// Those of `write`, but for `WouldBlock` and `Interrupted`.
    pub async fn write<R>(&self, mut write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        poll_fn(|_| attempts(&self.readiness.writable, || write(self.get_ref()))).await
    }

    /// As [`Self::read`], once.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn poll_read<R>(&self, read: impl FnMut(&T) -> io::Result<R>) -> Poll<io::Result<R>> {
        let mut read = read;
        attempts(&self.readiness.readable, || read(self.get_ref()))
    }

    /// As [`Self::write`], once.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn poll_write<R>(&self, write: impl FnMut(&T) -> io::Result<R>) -> Poll<io::Result<R>> {
        let mut write = write;
        attempts(&self.readiness.writable, || write(self.get_ref()))
    }
}

impl<T: AsFd> Watched<T>
where
    for<'a> &'a T: io::Write,
{
    /// Writes all of it.
    ///
    /// # Errors
    /// From `write(2)`; part of it may have been written.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(|mut to| io::Write::write(&mut to, bytes)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }
}

impl<T: AsFd> Drop for Watched<T> {
    fn drop(&mut self) {
        self.forget();
    }
}

fn attempt<R>(ready: &Cell<bool>, work: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    if !ready.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let outcome = work();
    if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        ready.set(false);
    }
    outcome
}

fn attempts<R>(ready: &Cell<bool>, mut work: impl FnMut() -> io::Result<R>) -> Poll<io::Result<R>> {
    loop {
        match attempt(ready, &mut work) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return Poll::Ready(outcome),
        }
    }
}
