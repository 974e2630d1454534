//! Threads that wait for a socket whose ring another thread has.

use std::io;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{Timespec, epoll};
use twinpath_sys::{EventFd, clock};
use twinpath_time::Instant;

use crate::sockets::holder::Wait;
use crate::sockets::precise;

/// What a thread that waited is to do.
pub(crate) enum Came {
    /// Look for the ring: something was left there, or the thread that had it is gone.
    InRing,
    /// Read the kernel's socket.
    BySocket,
    /// Nothing: the time is over.
    Nothing,
}

const RING: u64 = 0;
const SOCKET: u64 = 1;

/// One set of descriptors for all of them, so that a datagram wakes one. It is made when the first thread waits.
#[derive(Debug, Default)]
pub(crate) struct Others {
    set: OnceLock<Set>,
}

#[derive(Debug)]
struct Set {
    epoll: OwnedFd,
    /// Something was left in the ring.
    left: EventFd,
}

impl Set {
    fn new(socket: &UdpSocket) -> io::Result<Self> {
        let (epoll, left) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, EventFd::new()?);
        let add = |descriptor: &dyn AsFd, token, flags| {
            epoll::add(
                &epoll,
                descriptor.as_fd(),
                epoll::EventData::new_u64(token),
                epoll::EventFlags::IN | flags,
            )
        };
        add(&left, RING, epoll::EventFlags::empty())?;
        // As threads that sleep in the kernel's own call: each datagram wakes one of all.
        add(socket, SOCKET, epoll::EventFlags::EXCLUSIVE)?;
        Ok(Self { epoll, left })
    }
}

impl Others {
    /// Something was left in the ring: one of the waiting threads takes it, or the next one that begins to wait.
    pub(crate) fn tell(&self) {
        self.set.get().inspect(|set| set.left.signal());
    }

    /// What [`Others::tell`] needs, which is there before this thread says that it waits.
    pub(crate) fn prepare(&self, socket: &UdpSocket) -> io::Result<()> {
        self.set(socket).map(drop)
    }

    fn set(&self, socket: &UdpSocket) -> io::Result<&Set> {
        if let Some(set) = self.set.get() {
            return Ok(set);
        }
        let made = Set::new(socket)?;
        // Another thread may have been faster.
        Ok(self.set.get_or_init(|| made))
    }

    /// Called after [`Others::prepare`].
    pub(crate) fn wait(&self, socket: &UdpSocket, wait: Wait) -> io::Result<Came> {
        let set = self.set(socket)?;
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; 1];
        let event = loop {
            match precise::epoll_wait(&set.epoll, &mut room, timeout(wait).as_ref())?.first() {
                Some(event) => break *event,
                // Another thread was faster.
                None if matches!(wait, Wait::Until(deadline) if clock::now() < deadline) => {}
                None => return Ok(Came::Nothing),
            }
        };
        // Copied out: the struct is packed on x86-64.
        let data = event.data;
        if data.u64() == RING {
            set.left.drain();
            return Ok(Came::InRing);
        }
        Ok(Came::BySocket)
    }
}

fn timeout(wait: Wait) -> Option<Timespec> {
    let left = match wait {
        Wait::Not => 0,
        Wait::Until(Instant::NEVER) => return None,
        Wait::Until(deadline) => deadline.nanos_since(clock::now()),
    };
    Some(Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 })
}
