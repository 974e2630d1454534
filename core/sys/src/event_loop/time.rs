//! Futures that wait for a time.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use twinpath_time::{Duration, Instant};

use super::CURRENT;
use crate::clock;

/// The time limit has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct TimedOut;

impl From<TimedOut> for io::Error {
    fn from(_: TimedOut) -> Self {
        io::ErrorKind::TimedOut.into()
    }
}

/// Waits until that time; for ever with [`Instant::NEVER`]. It comes up to one millisecond late.
pub async fn sleep_until(at: Instant) {
    poll_fn(|_| {
        if clock::now() >= at {
            return Poll::Ready(());
        }
        CURRENT.with(|current| {
            let current = current.borrow();
            let due = current.as_ref().map(|state| &state.due);
            due.inspect(|due| due.set(due.get().min(at)));
        });
        Poll::Pending
    })
    .await
}

/// Waits for that time.
pub async fn sleep(time: Duration) {
    sleep_until(clock::now() + time).await
}

/// Waits for a future, but no longer than `limit`.
///
/// # Errors
/// [`TimedOut`]: the future was dropped.
pub async fn timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, TimedOut> {
    let (mut future, mut late) = (pin!(future), pin!(sleep(limit)));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        late.as_mut().poll(context).map(|()| Err(TimedOut))
    })
    .await
}

/// Lets all other futures of the loop go on, and the loop note which descriptors are ready.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
