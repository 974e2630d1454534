//! Descriptors that the control loop waits on until they are readable.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use twinpath_netlink::Source;
use twinpath_sys::clock;

/// Registers a descriptor to wait on. Called within a tokio runtime.
///
/// # Errors
///
/// What the registration returns.
#[allow(deprecated, reason = "AsyncFd asks for an fd that stays open: it owns this one")]
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Registers a duplicate of `fd`, so that the loop can wait on it while the owner of `fd` is borrowed.
///
/// # Errors
///
/// What duplicating or registering it returns.
pub fn readable_copy(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    readable(fd.try_clone_to_owned()?)
}

/// A source of events, and what the loop waits on for them.
pub struct Awaited<S> {
    source: S,
    readable: Vec<AsyncFd<OwnedFd>>,
}

impl<S: Source> Awaited<S> {
    /// Registers the source's descriptors. Called within a tokio runtime.
    ///
    /// # Errors
    /// What duplicating or registering one of them returns.
    pub fn new(source: S) -> io::Result<Self> {
        let readable = source.descriptors().into_iter().map(readable_copy).collect::<Result<_, _>>()?;
        Ok(Self { source, readable })
    }

    /// Waits for the next event. Cancelling loses nothing.
    ///
    /// # Errors
    /// The source is of no use any more.
    pub async fn next(&mut self) -> Result<S::Event, S::Error> {
        loop {
            // Readiness is told once, so all that is there is taken first.
            if let Some(event) = self.source.take()? {
                return Ok(event);
            }
            let wait = self.source.deadline().map(|at| at.since(clock::now()));
            let watched = self.readable.iter().enumerate().filter(|(at, _)| self.source.is_watched(*at));
            tokio::select! {
                () = any_readable(watched.map(|(_, fd)| fd)) => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }
}

impl<S> Deref for Awaited<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.source
    }
}

impl<S> DerefMut for Awaited<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.source
    }
}

/// Waits until one of the descriptors is readable; for ever if there are none.
pub(crate) async fn any_readable(fds: impl IntoIterator<Item = &AsyncFd<OwnedFd>>) {
    let waits: Vec<_> = fds.into_iter().map(|fd| Box::pin(fd.readable())).collect();
    if waits.is_empty() {
        return std::future::pending().await;
    }
    let (ready, ..) = futures_util::future::select_all(waits).await;
    if let Ok(mut guard) = ready {
        guard.clear_ready();
    }
}

/// Waits until the descriptor is readable; for ever if there is none.
pub async fn until_readable(fd: Option<&AsyncFd<OwnedFd>>) {
    match fd {
        Some(fd) => match fd.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Waits until that time; for ever without one.
pub async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
