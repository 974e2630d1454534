//! Connections that burden a server: idle ones, and ones that send calls and never read a reply.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

use twinpath_socket_load::socket::{Source, connect_tcp, is_transient};
use twinpath_socket_load::{SocketError, Stop};
use twinpath_time::Duration;

use crate::rpc_null::null_call;

/// When no bytes have been accepted for this long, all buffers on the way are full.
const FULL_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// Calls passed to the kernel at once.
const CALLS_AT_ONCE: usize = 512;
const EVENTS_MAX: usize = 256;
/// The epoll token of the request to stop; a connection's token is its index.
const STOP: u64 = u64::MAX;

/// The behaviour of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Nothing.
    Idle,
    /// They send NULL calls of NFS as long as the kernel takes any, and never read.
    NeverReads,
}

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Connections opened.
    pub connections: usize,
    /// Connections that the server has closed.
    pub closed: usize,
    /// Bytes that the kernel took for sending.
    pub sent_bytes: u64,
}

/// Holds connections to `target` until `stop` is requested. Calls `ready` once: when all are open, and no more bytes
/// are accepted.
///
/// # Errors
/// A connection could not be opened: nothing listens, or one of the two processes has reached its limit of
/// descriptors.
pub fn tcp_hold(
    target: SocketAddr,
    connections: usize,
    holding: Holding,
    stop: &Stop,
    ready: impl FnOnce(&Held),
) -> Result<Held, SocketError> {
    let wait = |source: Errno| SocketError::Poll(source.into());
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wait)?;
    // This socket stops the thread: any of the connections may be closed by then.
    let (ours, _theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(wait)?;
    let ours = Arc::new(ours);
    stop.watch(&ours);
    epoll::add(&epoll, &ours, epoll::EventData::new_u64(STOP), epoll::EventFlags::RDHUP).map_err(wait)?;
    let mut holder = Holder { calls: null_call(7).repeat(CALLS_AT_ONCE), ..Holder::default() };
    for place in 0..connections {
        if stop.is_requested() {
            return Ok(holder.held);
        }
        let socket = connect_tcp(target, Source::Any, false)?;
        // They end with a reset: ports in TIME_WAIT would be missing to a later run that opens as many.
        set_socket_linger(&socket, Some(Duration::ZERO))
            .map_err(|source| SocketError::Option { option: "SO_LINGER", source: source.into() })?;
        let mut flags = epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if holding == Holding::NeverReads {
            flags |= epoll::EventFlags::OUT;
        }
        epoll::add(&epoll, &socket, epoll::EventData::new_u64(place as u64), flags).map_err(wait)?;
        holder.open.push(Some((socket, 0)));
        holder.held.connections += 1;
    }
    if holding == Holding::NeverReads {
        while !stop.is_requested() && holder.wait(&epoll, Some(&FULL_AFTER))? {}
    }
    ready(&holder.held);
    while !stop.is_requested() {
        holder.wait(&epoll, None)?;
    }
    Ok(holder.held)
}

#[derive(Default)]
struct Holder {
    held: Held,
    /// The connections that the server has not closed, each with its position in the calls it sends.
    open: Vec<Option<(Arc<OwnedFd>, usize)>>,
    calls: Vec<u8>,
}

impl Holder {
    /// Waits for events and handles them; returns whether there were any.
    fn wait(&mut self, epoll: &OwnedFd, timeout: Option<&Timespec>) -> Result<bool, SocketError> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        match epoll::wait(epoll, spare_capacity(&mut events), timeout) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(SocketError::Poll(error.into())),
        }
        for event in events {
            self.turn(event.data.u64(), event.flags);
        }
        Ok(true)
    }

    fn turn(&mut self, place: u64, flags: epoll::EventFlags) {
        let Some(slot) = usize::try_from(place).ok().and_then(|place| self.open.get_mut(place)) else {
            return;
        };
        let Some((socket, at)) = slot else { return };
        let over = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        let mut closed = flags.intersects(over);
        while !closed && flags.contains(epoll::EventFlags::OUT) {
            match send(&**socket, &self.calls[*at..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => {
                    *at = (*at + sent) % self.calls.len();
                    self.held.sent_bytes += sent as u64;
                }
                Err(error) if is_transient(error) => break,
                Err(_) => closed = true,
            }
        }
        if closed {
            *slot = None;
            self.held.closed += 1;
        }
    }
}
