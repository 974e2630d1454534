//! The bare RPC server over TCP: one epoll, and the same reply to every record.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use twinpath_socket_load::socket::{is_transient, listen_tcp, may_pass};
use twinpath_socket_load::{EchoCounts, SocketError, Stop, Wait};
use twinpath_sys::clock;

use crate::rpc_null::{RECORD_BYTES, Records, Replies};

/// Most connections served at the same time; a further one is closed and counted as refused.
const CONNECTIONS_MAX: usize = 64;
/// Bytes read at once: more than 1024 calls, and still within the second-level cache.
const INPUT_BYTES: usize = 64 << 10;
/// The epoll token of the listener; a connection's token is its index.
const LISTENER: u64 = u64::MAX;

/// A listening server that has not been started.
#[derive(Debug)]
pub struct TcpNull {
    listener: Arc<OwnedFd>,
    address: SocketAddr,
    wait: Wait,
}

impl TcpNull {
    /// Listens on `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// The address is in use or not a local one.
    pub fn bind(address: SocketAddr, wait: Wait) -> Result<Self, SocketError> {
        let (listener, address) = listen_tcp(address)?;
        Ok(Self { listener, address, wait })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on the calling thread until `stop` is requested: one wait, then for each ready connection one receive
    /// and one send of all replies. It counts calls and replies.
    ///
    /// # Errors
    /// Accepting or waiting failed with an error that is not temporary.
    pub fn run(self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        stop.watch(&self.listener);
        rustix::io::ioctl_fionbio(&self.listener, true)
            .map_err(|source| SocketError::Option { option: "O_NONBLOCK", source: source.into() })?;
        let wait = |source: Errno| SocketError::Poll(source.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wait)?;
        let listener = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &self.listener, listener, epoll::EventFlags::IN).map_err(wait)?;
        let mut server = Server { epoll, connections: Vec::new(), counts: EchoCounts::default() };
        let mut events = Vec::with_capacity(CONNECTIONS_MAX);
        let mut last = clock::now();
        while !stop.is_requested() {
            let spins = match self.wait {
                Wait::SpinThenSleep(_) => self.wait.spins(last, clock::now()),
                Wait::Spin => true,
                Wait::Sleep => false,
            };
            const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
            events.clear();
            match epoll::wait(&server.epoll, spare_capacity(&mut events), spins.then_some(&AT_ONCE)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(wait(error)),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER if stop.is_requested() => {}
                    LISTENER => server.accept(&self.listener)?,
                    place => server.ready(place as usize, event.flags),
                }
            }
            if let Wait::SpinThenSleep(_) = self.wait {
                last = clock::now();
            }
        }
        Ok(server.counts)
    }
}

struct Server {
    epoll: OwnedFd,
    /// The connections, by epoll token; a closed one leaves its slot to the next.
    connections: Vec<Option<Connection>>,
    counts: EchoCounts,
}

impl Server {
    fn accept(&mut self, listener: &OwnedFd) -> Result<(), SocketError> {
        let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(error) if may_pass(error) => return Ok(()),
            Err(error) => return Err(SocketError::Accept(error.into())),
        };
        let _ = set_tcp_nodelay(&socket, true);
        let place = match self.connections.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.push(None);
                self.connections.len() - 1
            }
            None => {
                self.counts.refused += 1;
                return Ok(());
            }
        };
        // Edge-triggered: the kernel need not check a socket again that was read to its end. It reports that a socket
        // can be written to only after a write was refused, so registering for that from the start costs nothing.
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&self.epoll, &socket, data, flags).map_err(|source| SocketError::Poll(source.into()))?;
        self.connections[place] = Some(Connection::new(socket));
        Ok(())
    }

    #[inline]
    fn ready(&mut self, place: usize, flags: epoll::EventFlags) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let ends =
            flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if connection.turn(ends, &mut self.counts).is_err() {
            self.connections[place] = None;
        }
    }
}

struct Connection {
    socket: OwnedFd,
    records: Records,
    /// Bytes read and not answered yet: the beginning of a fragment, at `..filled`.
    input: Box<[u8]>,
    filled: usize,
    /// The bytes of the replies before `sent` were passed to the kernel.
    replies: Replies,
    sent: usize,
}

impl Connection {
    fn new(socket: OwnedFd) -> Self {
        let input = vec![0; INPUT_BYTES].into();
        Self { socket, records: Records::default(), input, filled: 0, replies: Replies::new(), sent: 0 }
    }

    /// Reads and answers what has arrived; an error when the connection is closed. `ends`: no event will report bytes
    /// that are left, so all must be read now.
    #[inline]
    fn turn(&mut self, ends: bool, counts: &mut EchoCounts) -> Result<(), Errno> {
        let owes = !self.replies.bytes().is_empty();
        if owes && !self.send_rest()? {
            return Ok(());
        }
        if owes && !self.answer(counts)? {
            return Ok(());
        }
        loop {
            let room = self.input.len() - self.filled;
            match recv(&self.socket, &mut self.input[self.filled..], RecvFlags::empty()) {
                // The connection was closed, or a fragment is larger than any call of the lab.
                Ok((0, _)) => return Err(Errno::PIPE),
                Ok((len, _)) => {
                    self.filled += len;
                    if !self.answer(counts)? || (len < room && !ends) {
                        return Ok(());
                    }
                }
                Err(error) if is_transient(error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers all complete records; returns whether the kernel took all replies.
    #[inline]
    fn answer(&mut self, counts: &mut EchoCounts) -> Result<bool, Errno> {
        let mut used = 0;
        let mut all = true;
        while all {
            let more = self.records.answer(&self.input[used..self.filled], &mut self.replies);
            if more == 0 {
                break;
            }
            used += more;
            let replies = (self.replies.bytes().len() / RECORD_BYTES) as u64;
            counts.received += replies;
            counts.sent += replies;
            all = self.send_rest()?;
        }
        if used > 0 {
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
        }
        Ok(all)
    }

    /// Sends the rest of the replies; returns whether the kernel took all of it.
    #[inline]
    fn send_rest(&mut self) -> Result<bool, Errno> {
        let rest = &self.replies.bytes()[self.sent..];
        if !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) if sent < rest.len() => self.sent += sent,
                Ok(_) => {
                    self.replies.clear();
                    self.sent = 0;
                }
                Err(error) if is_transient(error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.replies.bytes().is_empty())
    }
}
