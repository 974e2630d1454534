//! The control thread of a switch. Connections of controllers are tokio's, so its runtime sleeps for the event loop of
//! the rest.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;
use twinpath_sys::clock;
use twinpath_sys::event_loop::EventLoop;
use twinpath_time::{Duration, Instant};
use twinpath_worker::thread::panics;

/// The longest time that the runtime waits before it looks again.
const LONGEST: Duration = Duration::from_secs(3600);

/// Runs on this thread until the future has ended. A panic of any thread ends the process.
///
/// # Errors
/// The runtime or the event loop could not be made.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let events = EventLoop::new()?;
    panics::end_process_on_panic(|| {
        let outcome = runtime.block_on(sleeping_for(&events, future));
        // Without this, a resolver that does not answer would delay the end until its time-out.
        runtime.shutdown_background();
        outcome
    })
}

async fn sleeping_for<T>(events: &EventLoop, future: impl Future<Output = T>) -> io::Result<T> {
    #[allow(deprecated, reason = "AsyncFd asks for an fd that stays open: it owns this one")]
    let readable = AsyncFd::with_interest(events.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    let (mut future, mut alarm) = (pin!(future), pin!(tokio::time::sleep(LONGEST)));
    poll_fn(|context| {
        loop {
            let has_events =
                readable.poll_read_ready(context)?.map(|mut guard| guard.clear_ready()).is_ready();
            if has_events {
                events.take_events();
            }
            if let Poll::Ready(output) = events.poll(context, future.as_mut()) {
                return Poll::Ready(Ok(output));
            }
            // Both arrange that this is polled again.
            let is_readable = readable.poll_read_ready(context).is_ready();
            if !is_readable && rings(alarm.as_mut(), events.due(), context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Whether that time has come.
fn rings(mut alarm: Pin<&mut Sleep>, due: Instant, context: &mut Context<'_>) -> Poll<()> {
    let left = due.since(clock::now()).min(LONGEST);
    if left.is_zero() {
        return Poll::Ready(());
    }
    alarm.as_mut().reset(tokio::time::Instant::now() + left);
    alarm.poll(context)
}
