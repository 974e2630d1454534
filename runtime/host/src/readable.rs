//! Descriptors that the control loop waits on until they are readable.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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

/// Waits until one of the descriptors is readable; for ever if there are none.
pub(crate) async fn any_readable(fds: &[AsyncFd<OwnedFd>]) {
    if fds.is_empty() {
        return std::future::pending().await;
    }
    let waits = fds.iter().map(|fd| Box::pin(fd.readable()));
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
