//! Watches sockets until one of them is readable.
//!
//! They are watched by a separate epoll instance, each for one event. So an idle host is never woken, and a
//! busy one is woken once per [`Waiting::arm`], not once per packet.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_sys::event_loop::Watched;

/// A time-out that expires immediately.
pub(crate) const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Maximum number of events read at a time. One of them is enough to know.
const EVENTS: usize = 16;

/// An epoll over sockets, which does not keep them open.
pub(crate) struct Waiting {
    epoll: Watched<OwnedFd>,
}

impl Waiting {
    /// Registers the sockets, to be armed later. Called within an event loop.
    ///
    /// # Errors
    /// What `epoll_create1(2)` or `epoll_ctl(2)` returns.
    pub(crate) fn new<'a>(sockets: impl IntoIterator<Item = &'a OwnedFd>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for socket in sockets {
            epoll::add(&epoll, socket, EventData::new_u64(0), EventFlags::ONESHOT)?;
        }
        Ok(Self { epoll: Watched::readable(epoll)? })
    }

    /// Arms each of these sockets for one event, when it is readable. A socket that is already readable
    /// reports immediately.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl(2)` returns.
    pub(crate) fn arm<'a>(&self, sockets: impl IntoIterator<Item = &'a OwnedFd>) -> io::Result<()> {
        let once = EventFlags::IN | EventFlags::ONESHOT;
        for socket in sockets {
            epoll::modify(self.epoll.get_ref(), socket, EventData::new_u64(0), once)?;
        }
        Ok(())
    }

    /// Waits until an armed socket is readable.
    ///
    /// # Errors
    /// What `epoll_wait(2)` returns.
    pub(crate) async fn something(&self) -> io::Result<()> {
        loop {
            self.epoll.until_readable().await;
            let mut events = Vec::with_capacity(EVENTS);
            epoll::wait(self.epoll.get_ref(), rustix::buffer::spare_capacity(&mut events), Some(&AT_ONCE))?;
            if !events.is_empty() {
                return Ok(());
            }
            self.epoll.clear();
        }
    }
}

/// Whether something waits in one of these sockets now.
pub(crate) fn is_something<'a>(sockets: impl IntoIterator<Item = &'a OwnedFd>) -> bool {
    let mut fds: Vec<_> = sockets.into_iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&AT_ONCE)).is_ok_and(|ready| ready > 0)
}
