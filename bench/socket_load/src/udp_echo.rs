//! UDP servers over kernel sockets, which differ in the reply that they write in place of a request.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, connect, recv, recvfrom, send, sendto};
use twinpath_sys::clock;
use twinpath_time::Instant;

use crate::burst::{Burst, receive_coalesced};
use crate::counts::EchoCounts;
use crate::segments::send_segments;
use crate::socket::{bind_udp, is_icmp, is_transient};
use crate::stop::Stop;
use crate::{SocketError, Wait};

/// Largest datagram, and largest result of coalescing (`UDP_GRO`).
pub const DATAGRAM_BYTES: usize = 65_535;

/// Which peers a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Every peer.
    Any,
    /// Only the first peer that sends: the socket is connected to it, which saves a route look-up and an
    /// address per packet. It is not a usable service, but shows the maximum speed of sockets for one flow.
    First,
}

/// How datagrams are received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoMethod {
    /// One per system call.
    Single,
    /// `recvmmsg` and `sendmmsg`, with at most this many datagrams.
    Batch(usize),
    /// `recvmmsg` with `UDP_GRO`; consecutive replies of equal size are sent as one message (`UDP_SEGMENT`).
    Segments(usize),
}

/// The reply of a server.
pub trait Reply {
    /// Length of every reply; `None`: that of its request.
    const BYTES: Option<usize>;

    /// Replaces the request at the beginning of `buffer` by its reply, for which there is room.
    fn write(buffer: &mut [u8]);
}

/// The reply is the request itself.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Reply for Echo {
    const BYTES: Option<usize> = None;

    #[inline]
    fn write(_buffer: &mut [u8]) {}
}

/// A bound server that has not been started.
#[derive(Debug)]
pub struct UdpServer<R> {
    socket: Arc<OwnedFd>,
    address: SocketAddr,
    wait: Wait,
    method: EchoMethod,
    peers: Peers,
    reply: PhantomData<R>,
}

/// The echo server.
pub type UdpEcho = UdpServer<Echo>;

impl<R: Reply> UdpServer<R> {
    /// Binds `address`; port 0 takes any free port. A wildcard IPv6 address also serves IPv4, at the cost of mapping.
    ///
    /// # Errors
    /// The address is in use or not a local one, or the kernel lacks `UDP_GRO`.
    pub fn bind(
        address: SocketAddr,
        wait: Wait,
        method: EchoMethod,
        peers: Peers,
    ) -> Result<Self, SocketError> {
        let (socket, address) = bind_udp(address)?;
        if matches!(method, EchoMethod::Segments(_)) {
            receive_coalesced(&socket)
                .map_err(|source| SocketError::Option { option: "UDP_GRO", source: source.into() })?;
        }
        Ok(Self { socket, address, wait, method, peers, reply: PhantomData })
    }

    /// The address that it is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on the calling thread until `stop` is requested.
    ///
    /// # Errors
    /// Receiving failed with an error that is not temporary.
    pub fn run(self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        stop.watch(&self.socket);
        let mut counts = EchoCounts::default();
        match self.serve(stop, &mut counts) {
            Ok(()) => Ok(counts),
            Err(_) if stop.is_requested() => Ok(counts),
            Err(error) => Err(SocketError::Receive(error.into())),
        }
    }

    fn serve(&self, stop: &Stop, counts: &mut EchoCounts) -> Result<(), Errno> {
        if self.peers == Peers::First {
            self.meet(stop, counts)?;
        }
        match (self.method, self.peers) {
            (EchoMethod::Single, Peers::Any) => self.serve_any(stop, counts),
            (EchoMethod::Single, Peers::First) => self.serve_first(stop, counts),
            (EchoMethod::Batch(slots), _) => self.serve_bursts(stop, counts, slots, false),
            (EchoMethod::Segments(slots), _) => self.serve_bursts(stop, counts, slots, true),
        }
    }

    fn serve_any(&self, stop: &Stop, counts: &mut EchoCounts) -> Result<(), Errno> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut waiter = Waiter::new(self.wait);
        while !stop.is_requested() {
            match recvfrom(&self.socket, &mut buffer[..], waiter.flags()) {
                Ok((len, _, Some(sender))) => {
                    waiter.came();
                    counts.received += 1;
                    let reply = reply::<R>(&mut buffer, len);
                    count(sendto(&self.socket, reply, SendFlags::empty(), &sender), counts);
                }
                // The socket was shut down.
                Ok((_, _, None)) => {}
                Err(error) => tolerate(error)?,
            }
        }
        Ok(())
    }

    /// Answers the first datagram and connects the socket to its sender.
    fn meet(&self, stop: &Stop, counts: &mut EchoCounts) -> Result<(), Errno> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let waiter = Waiter::new(self.wait);
        while !stop.is_requested() {
            match recvfrom(&self.socket, &mut buffer[..], waiter.flags()) {
                Ok((len, _, Some(sender))) => {
                    connect(&self.socket, &sender)?;
                    counts.received += 1;
                    count(send(&self.socket, reply::<R>(&mut buffer, len), SendFlags::empty()), counts);
                    return Ok(());
                }
                Ok((_, _, None)) => {}
                Err(error) => tolerate(error)?,
            }
        }
        Ok(())
    }

    fn serve_first(&self, stop: &Stop, counts: &mut EchoCounts) -> Result<(), Errno> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut waiter = Waiter::new(self.wait);
        while !stop.is_requested() {
            match recv(&self.socket, &mut buffer[..], waiter.flags()) {
                // The socket was shut down.
                Ok((0, _)) if stop.is_requested() => {}
                Ok((len, _)) => {
                    waiter.came();
                    counts.received += 1;
                    count(send(&self.socket, reply::<R>(&mut buffer, len), SendFlags::empty()), counts);
                }
                Err(error) => tolerate(error)?,
            }
        }
        Ok(())
    }

    fn serve_bursts(
        &self,
        stop: &Stop,
        counts: &mut EchoCounts,
        slots: usize,
        segments: bool,
    ) -> Result<(), Errno> {
        let mut burst = Burst::new(slots, DATAGRAM_BYTES);
        let mut waiter = Waiter::new(self.wait);
        let named = self.peers == Peers::Any;
        let socket = self.socket.as_fd();
        while !stop.is_requested() {
            let count = match burst.receive(socket, waiter.spins(), named, segments) {
                Ok(count) => count,
                Err(error) => {
                    tolerate(error)?;
                    continue;
                }
            };
            if stop.is_requested() {
                break;
            }
            waiter.came();
            if let Some(bytes) = R::BYTES {
                (0..count).for_each(|slot| burst.rewrite(slot, bytes, R::write));
            }
            if segments {
                send_segments(&mut burst, socket, count, named, counts);
            } else {
                counts.received += count as u64;
                send_burst(&mut burst, socket, count, named, counts);
            }
        }
        Ok(())
    }
}

/// Writes the reply over the request of `len` bytes in `buffer` and returns it.
#[inline]
fn reply<R: Reply>(buffer: &mut [u8], len: usize) -> &[u8] {
    R::write(buffer);
    &buffer[..R::BYTES.unwrap_or(len)]
}

fn count(sent: Result<usize, Errno>, counts: &mut EchoCounts) {
    match sent {
        Ok(_) => counts.sent += 1,
        Err(_) => counts.refused += 1,
    }
}

/// Sends the first `count` datagrams back. A datagram that the kernel refuses is counted and skipped.
fn send_burst(burst: &mut Burst, socket: BorrowedFd<'_>, count: usize, named: bool, counts: &mut EchoCounts) {
    let mut next = 0;
    while next < count {
        match burst.send(socket, next..count, named) {
            Ok(sent) => {
                counts.sent += sent as u64;
                next += sent;
            }
            Err(Errno::INTR) => {}
            Err(_) => {
                counts.refused += 1;
                next += 1;
            }
        }
    }
}

/// Ignores errors that are no reason to stop: nothing was received, or an ICMP error about an earlier reply
/// was reported.
fn tolerate(error: Errno) -> Result<(), Errno> {
    if is_transient(error) || is_icmp(error) { Ok(()) } else { Err(error) }
}

/// Decides when to sleep. It reads the clock only in mode [`Wait::SpinThenSleep`].
struct Waiter {
    wait: Wait,
    last: Instant,
}

impl Waiter {
    fn new(wait: Wait) -> Self {
        Self { wait, last: Instant::ZERO }
    }

    #[inline]
    fn came(&mut self) {
        if let Wait::SpinThenSleep(_) = self.wait {
            self.last = clock::now();
        }
    }

    #[inline]
    fn spins(&self) -> bool {
        match self.wait {
            Wait::Sleep => false,
            Wait::Spin => true,
            Wait::SpinThenSleep(_) => self.wait.spins(self.last, clock::now()),
        }
    }

    #[inline]
    fn flags(&self) -> RecvFlags {
        if self.spins() { RecvFlags::DONTWAIT } else { RecvFlags::empty() }
    }
}
