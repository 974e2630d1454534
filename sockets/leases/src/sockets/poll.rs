//! Waits for sockets with a fast path and for any other descriptors, in one call.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use twinpath_idle::{Arrival, Woken};
use twinpath_rings::lease::Room;
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::idle::{Decision, Idle, IdleConfig, Mode};

use crate::sockets::UdpSocket;
use crate::sockets::precise::{self, Precise};
use crate::sockets::socket::Shared;
use crate::sockets::waiting::{Awaited, wait};

/// Events of one call.
const EVENTS_MAX: usize = 64;

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// That it is readable.
    Readable,
    /// That it is writable.
    Writable,
    /// Either.
    Both,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token that it was added with.
    pub token: u64,
    /// There is something to read, the end of it, or an error.
    pub readable: bool,
    /// Something can be written, or there is an error.
    pub writable: bool,
}

/// A set of descriptors, as the kernel's epoll (level-triggered), with sockets whose datagrams may be in a ring. One thread
/// uses it; datagrams are received with calls that do not block.
///
/// While a call of [`Poll::wait`] spins it holds the leases of the sockets. Before it sleeps it gives them back, and sleeps in
/// the kernel's call. The idle policy decides, by when anything was ready.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    sockets: Vec<(u64, Arc<Shared>)>,
    idle: Idle,
    ask_at: Instant,
    events: Vec<Event>,
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.sockets.iter().for_each(|(_, socket)| socket.polled.store(false, Ordering::Relaxed));
    }
}

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sockets: Vec::new(),
            idle: Idle::new(IdleConfig::default()),
            ask_at: Instant::ZERO,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Sets how calls wait, as [`UdpSocket::set_mode`].
    pub fn set_mode(&mut self, mode: Mode) {
        self.idle.set_mode(mode);
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// What the kernel returns: `AlreadyExists` if it is in the set, `PermissionDenied` for regular files.
    pub fn add(&mut self, descriptor: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Readable => epoll::EventFlags::IN,
            Interest::Writable => epoll::EventFlags::OUT,
            Interest::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        };
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token), flags)?)
    }

    /// Adds a socket, to be told when it is readable. From now on its calls that do not block neither take nor give back the lease.
    ///
    /// # Errors
    /// As [`Poll::add`].
    pub fn add_socket(&mut self, socket: &UdpSocket, token: u64) -> io::Result<()> {
        let shared = socket.shared();
        self.add(shared.kernel(), token, Interest::Readable)?;
        shared.polled.store(true, Ordering::Relaxed);
        self.sockets.push((token, Arc::clone(shared)));
        Ok(())
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// `NotFound` if it is not in the set.
    pub fn remove(&mut self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, descriptor)?)
    }

    /// Removes a socket.
    ///
    /// # Errors
    /// `NotFound` if it is not in the set.
    pub fn remove_socket(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let shared = socket.shared();
        self.remove(shared.kernel())?;
        shared.polled.store(false, Ordering::Relaxed);
        self.sockets.retain(|(_, other)| !Arc::ptr_eq(other, shared));
        Ok(())
    }

    /// Waits until something is ready, or until the time-out: `None` is for ever, zero not at all. Returns what is ready.
    ///
    /// # Errors
    /// `Interrupted` if a signal came while the call slept.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[Event]> {
        let mut ask_at = self.ask_at;
        self.events.clear();
        let waited = wait(timeout, &mut ask_at, self);
        self.ask_at = ask_at;
        waited?;
        Ok(&self.events)
    }

    /// Asks the kernel what is ready.
    fn ask_kernel(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let ready = precise::epoll_wait(&self.epoll, &mut buffer, timeout)?;
        for event in ready.iter() {
            // Copied out: the struct is packed on x86-64.
            let (data, flags) = (event.data, event.flags);
            let token = data.u64();
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            let readable = failed || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP);
            let writable = failed || flags.contains(epoll::EventFlags::OUT);
            if !self.events.iter().any(|event| event.token == token) {
                self.events.push(Event { token, readable, writable });
            }
        }
        if !ready.is_empty() {
            self.sockets.iter().for_each(|(_, socket)| socket.was_told());
        }
        Ok(())
    }
}

impl Awaited for Poll {
    fn look(&mut self, now: Instant) -> bool {
        self.events.clear();
        for (token, shared) in &self.sockets {
            // If another thread receives, the socket is not ready for this one.
            if shared.with_holder(|holder, socket| holder.is_ready(socket, now)) == Some(true) {
                self.events.push(Event { token: *token, readable: true, writable: false });
            }
        }
        !self.events.is_empty()
    }

    fn ask(&mut self, until: Instant) -> io::Result<bool> {
        let left = if until == Instant::ZERO { 0 } else { until.nanos_since(clock::now()) };
        let timeout =
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let _precise = (left > 0 && until != Instant::NEVER).then(Precise::new);
        self.ask_kernel((until != Instant::NEVER).then_some(&timeout))?;
        Ok(!self.events.is_empty())
    }

    fn hold(&mut self, now: Instant) {
        for (_, shared) in &self.sockets {
            let room = if shared.may_stay() { Room::All } else { Room::One };
            shared.with_holder(|holder, _| holder.hold(now, room));
        }
    }

    fn give_back(&mut self, now: Instant) -> bool {
        for (_, shared) in &self.sockets {
            shared.with_holder(|holder, _| holder.give_back());
        }
        let is_ready = |(_, shared): &(u64, Arc<Shared>)| {
            shared.with_holder(|holder, socket| holder.is_ready(socket, now)) == Some(true)
        };
        !self.sockets.iter().any(is_ready)
    }

    fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        self.idle.decide(now, deadline)
    }

    fn woke(&mut self, now: Instant, woken: Woken) {
        self.idle.woke(now, woken);
    }

    fn found(&mut self, now: Instant, looked: Instant) {
        self.idle.worked(now);
        self.idle.arrived(now, Arrival::since_look(looked, now, 1));
    }
}
