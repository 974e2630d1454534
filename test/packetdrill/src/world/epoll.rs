//! Readiness: `poll`, and `epoll` with its edges.

use std::collections::{BTreeMap, VecDeque};

use libc::pollfd;

use crate::descriptor;
use crate::errno::{Answer, Errno};
use crate::profile::Profile;
use crate::world::World;
use crate::world::socket::Phase;

const EPOLLET: u32 = libc::EPOLLET as u32;
const EPOLLONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EPOLLEXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// Reported whether asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// Events that are asked for, or that have happened, with what comes back with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interest {
    /// `EPOLLIN` and others.
    pub events: u32,
    /// The caller's.
    pub data: u64,
}

/// An epoll descriptor.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    items: BTreeMap<i32, Item>,
    /// Sockets that an edge was seen of, in this order.
    ready: VecDeque<i32>,
}

#[derive(Debug)]
struct Item {
    interest: Interest,
    /// What was true when it was looked at last.
    seen: Seen,
}

/// What makes an edge when it grows or changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    events: u32,
    received: u64,
    acceptable: usize,
}

impl Epoll {
    pub(crate) fn forget(&mut self, fd: i32) {
        self.items.remove(&fd);
        self.ready.retain(|it| *it != fd);
    }

    fn push(&mut self, fd: i32) {
        if !self.ready.contains(&fd) {
            self.ready.push_back(fd);
        }
    }
}

impl World {
    /// What is true of a descriptor now, as Linux's `tcp_poll` says it.
    fn events(&mut self, fd: i32) -> Option<u32> {
        let socket = self.sockets.get(&fd)?;
        let phase = socket.phase;
        let (has_error, is_over) = (socket.error.is_some(), socket.is_over);
        let (no_reading, no_writing) = (socket.has_shut_reading, socket.has_shut_writing);
        let mut events = if has_error { libc::POLLERR } else { 0 };
        match phase {
            Phase::New => events |= libc::POLLHUP | libc::POLLOUT | libc::POLLWRNORM,
            Phase::Connecting(_) => {}
            Phase::Listening(listener) => {
                if self.engine().acceptable(listener) > 0 {
                    events |= libc::POLLIN | libc::POLLRDNORM;
                }
            }
            Phase::Connected(connection) => {
                let low = self.receive_low(fd);
                let view = self.view(connection).unwrap_or_default();
                let is_at_end = view.has_fin || no_reading || is_over;
                if is_over || (is_at_end && no_writing) {
                    events |= libc::POLLHUP;
                }
                if is_at_end {
                    events |= libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP;
                }
                if view.unread >= low.max(1) {
                    events |= libc::POLLIN | libc::POLLRDNORM;
                }
                if no_writing || is_over || self.is_writable(fd, connection) {
                    events |= libc::POLLOUT | libc::POLLWRNORM;
                }
            }
        }
        Some(u32::from(events as u16))
    }

    fn receive_low(&self, fd: i32) -> usize {
        let low = self.sockets.get(&fd).and_then(|it| it.value(libc::SOL_SOCKET, libc::SO_RCVLOWAT));
        low.and_then(|low| usize::try_from(low).ok()).unwrap_or(1)
    }

    /// Linux's `sk_stream_is_writeable`: a third of the buffer is free, and what is unsent is below its limit.
    pub(crate) fn is_writable(&mut self, fd: i32, connection: crate::engine::Connection) -> bool {
        let low = self.unsent_low(fd);
        let view = self.view(connection).unwrap_or_default();
        let room = match self.profile {
            Profile::Linux => self.send_buffer(fd).saturating_sub(view.unacknowledged),
            Profile::FreeBsd => view.room,
        };
        room >= view.unacknowledged / 2 && room > 0 && (view.unsent as u64) < u64::from(low)
    }

    /// Fills what has happened; returns for how many.
    pub(crate) fn poll(&mut self, polls: &mut [pollfd]) -> i32 {
        let mut count = 0;
        for poll in polls {
            let found = match self.events(poll.fd) {
                Some(found) => found as i16,
                None if poll.fd < 0 => 0,
                None => libc::POLLNVAL,
            };
            poll.revents = found & (poll.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
            count += i32::from(poll.revents != 0);
        }
        count
    }

    pub(crate) fn epoll_create(&mut self) -> Answer<i32> {
        let fd = descriptor::open()?;
        self.epolls.insert(fd, Epoll::default());
        Ok(fd)
    }

    pub(crate) fn epoll_ctl(
        &mut self,
        epoll: i32,
        operation: i32,
        fd: i32,
        interest: Option<Interest>,
    ) -> Answer<i32> {
        let seen = self.seen(fd).ok_or(Errno::EBADF)?;
        let epoll = self.epolls.get_mut(&epoll).ok_or(Errno::EBADF)?;
        let is_known = epoll.items.contains_key(&fd);
        match (operation, interest) {
            (libc::EPOLL_CTL_DEL, _) if is_known => epoll.forget(fd),
            (libc::EPOLL_CTL_ADD, Some(_)) if is_known => return Err(Errno::EEXIST),
            (libc::EPOLL_CTL_MOD, Some(interest)) if interest.events & EPOLLEXCLUSIVE != 0 => {
                return Err(Errno::EINVAL);
            }
            (libc::EPOLL_CTL_ADD, Some(interest)) => {
                epoll.items.insert(fd, Item { interest, seen });
                epoll.push(fd);
            }
            (libc::EPOLL_CTL_MOD, Some(interest)) if is_known => {
                epoll.items.insert(fd, Item { interest, seen });
                epoll.push(fd);
            }
            (libc::EPOLL_CTL_DEL | libc::EPOLL_CTL_MOD, _) => return Err(Errno::ENOENT),
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    fn seen(&mut self, fd: i32) -> Option<Seen> {
        let events = self.events(fd)?;
        let socket = self.sockets.get(&fd)?;
        let (connection, phase) = (socket.connection(), socket.phase);
        Some(Seen {
            events,
            received: connection.and_then(|it| self.view(it)).map_or(0, |it| it.received),
            acceptable: match phase {
                Phase::Listening(listener) => self.engine().acceptable(listener),
                _ => 0,
            },
        })
    }

    /// Looks for edges.
    pub(crate) fn wake_epolls(&mut self) {
        let watched: Vec<(i32, i32)> =
            self.epolls.iter().flat_map(|(epoll, it)| it.items.keys().map(|fd| (*epoll, *fd))).collect();
        for (epoll, fd) in watched {
            let Some(now) = self.seen(fd) else { continue };
            let Some(epoll) = self.epolls.get_mut(&epoll) else { continue };
            let Some(item) = epoll.items.get_mut(&fd) else { continue };
            let was = core::mem::replace(&mut item.seen, now);
            let has_edge = now.events & !was.events != 0
                || now.received > was.received
                || now.acceptable > was.acceptable;
            if has_edge {
                epoll.push(fd);
            }
        }
    }

    /// What has happened, for `count` descriptors at most.
    pub(crate) fn epoll_ready(&mut self, epoll: i32, count: usize) -> Answer<Vec<Interest>> {
        let mut found = Vec::new();
        let candidates: Vec<i32> =
            self.epolls.get(&epoll).ok_or(Errno::EBADF)?.ready.iter().copied().collect();
        for fd in candidates {
            if found.len() == count {
                break;
            }
            let Some(now) = self.events(fd) else { continue };
            let Some(epoll) = self.epolls.get_mut(&epoll) else { continue };
            let Some(item) = epoll.items.get_mut(&fd) else { continue };
            let asked = item.interest.events;
            let events = if asked & !(EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE) == 0 {
                0
            } else {
                now & (asked | ALWAYS)
            };
            if events != 0 {
                found.push(Interest { events, data: item.interest.data });
                if asked & EPOLLONESHOT != 0 {
                    item.interest.events &= EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE;
                }
            }
            if events == 0 || asked & (EPOLLET | EPOLLONESHOT) != 0 {
                epoll.ready.retain(|it| *it != fd);
            }
        }
        Ok(found)
    }
}
