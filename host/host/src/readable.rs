//! Sources of events, and the descriptors that the control loop waits on for them.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};

use twinpath_netlink::Source;
use twinpath_observe::together::first_of;
use twinpath_sys::event_loop::{Watched, sleep_until, yield_now};
use twinpath_sys::{clock, race};
use twinpath_time::Instant;

/// Watches a duplicate of `fd`, so that the loop can wait on it while the owner of `fd` is borrowed. Called within an event
/// loop.
///
/// # Errors
///
/// The error of duplicating or watching it.
pub fn readable_copy(fd: BorrowedFd<'_>) -> io::Result<Watched<OwnedFd>> {
    Watched::readable(fd.try_clone_to_owned()?)
}

/// A source of events, and the descriptors that the loop waits on for them.
pub struct Awaited<S> {
    source: S,
    readable: Vec<Watched<OwnedFd>>,
    /// Whether there may be events. Taking them costs system calls, and there may be a thousand sources.
    is_due: bool,
}

impl<S: Source> Awaited<S> {
    /// Watches the source's descriptors. Called within an event loop.
    ///
    /// # Errors
    /// The error of duplicating or watching one of them.
    pub fn new(source: S) -> io::Result<Self> {
        let readable = source.descriptors().into_iter().map(readable_copy).collect::<Result<_, _>>()?;
        Ok(Self { source, readable, is_due: true })
    }

    /// Waits for the next event. Cancelling loses nothing.
    ///
    /// # Errors
    /// The source has failed for good.
    pub async fn next(&mut self) -> Result<S::Event, S::Error> {
        loop {
            // Readiness is reported once, so all available events are taken first.
            if self.is_due {
                match self.source.take()? {
                    Some(event) => return Ok(event),
                    None => self.is_due = false,
                }
            }
            let due = self.source.deadline();
            if due.is_some_and(|at| at <= clock::now()) {
                // Others get their turn as well.
                yield_now().await;
                self.is_due = true;
                continue;
            }
            let watched = self.readable.iter().enumerate().filter(|(at, _)| self.source.is_watched(*at));
            race!(any_readable(watched.map(|(_, fd)| fd)), sleep_until(due.unwrap_or(Instant::NEVER)));
            self.is_due = true;
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
        // The change may have caused an event.
        self.is_due = true;
        &mut self.source
    }
}

/// Waits until one of the descriptors is readable; for ever if there are none.
pub(crate) async fn any_readable(fds: impl IntoIterator<Item = &Watched<OwnedFd>>) {
    first_of(fds.into_iter().map(Watched::event)).await;
}

/// Waits until the descriptor is readable; for ever if there is none.
pub async fn until_readable(fd: Option<&Watched<OwnedFd>>) {
    match fd {
        Some(fd) => fd.event().await,
        None => std::future::pending().await,
    }
}

/// Waits until that time; for ever without one.
pub async fn until(at: Option<Instant>) {
    sleep_until(at.unwrap_or(Instant::NEVER)).await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use twinpath_sys::event_loop::{EventLoop, timeout};

    use super::*;

    struct Events {
        fd: OwnedFd,
        waiting: VecDeque<u32>,
        takes: u32,
    }

    impl Source for Events {
        type Event = u32;
        type Error = Infallible;

        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            vec![self.fd.as_fd()]
        }

        fn take(&mut self) -> Result<Option<u32>, Infallible> {
            self.takes += 1;
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let mut count = [0; 8];
            Ok(rustix::io::read(&self.fd, &mut count).ok().map(|_| u64::from_ne_bytes(count) as u32))
        }
    }

    #[test]
    fn a_source_is_asked_only_when_it_may_have_events_and_then_until_it_has_none() {
        EventLoop::new().unwrap().run(async {
            let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
            let mut events = Awaited::new(Events { fd, waiting: [1, 2].into(), takes: 0 }).unwrap();
            assert_eq!((events.next().await, events.next().await), (Ok(1), Ok(2)));
            let nothing = Duration::from_millis(1);
            for _ in 0..3 {
                assert!(timeout(nothing, events.next()).await.is_err());
            }
            assert_eq!(events.takes, 3);
            rustix::io::write(&events.fd, &7_u64.to_ne_bytes()).unwrap();
            assert_eq!(events.next().await, Ok(7));
            assert!(timeout(nothing, events.next()).await.is_err());
            // A change may cause an event that no descriptor reports.
            events.waiting.push_back(9);
            assert_eq!(events.next().await, Ok(9));
        });
    }
}
