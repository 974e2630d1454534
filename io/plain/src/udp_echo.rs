//! The UDP echo servers.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, recv, recvfrom, send, sendto};
use twinpath_sys::clock;
use twinpath_time::Instant;

use crate::burst::{Burst, receive_glued};
use crate::segments::send_segments;
use crate::socket::{bind_udp, is_icmp, is_transient};
use crate::stop::Stop;
use crate::{PlainError, Wait};

/// Largest datagram, and what `UDP_GRO` may glue together.
pub(crate) const DATAGRAM_BYTES: usize = 65_535;

/// How datagrams go in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoMethod {
    /// `recvfrom` and `sendto`, one datagram each.
    Single,
    /// The same on a socket connected to whoever spoke first, and to nobody else: no route lookup per packet.
    Connected,
    /// `recvmmsg` and `sendmmsg`, up to so many at once.
    Batch(usize),
    /// `recvmmsg` with `UDP_GRO`, and runs of equal replies sent as one message (`UDP_SEGMENT`).
    Segments(usize),
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoCounts {
    /// Requests taken from the kernel; in bursts of segments, those count one each.
    pub received: u64,
    /// Replies the kernel took.
    pub sent: u64,
    /// Replies it refused.
    pub refused: u64,
}

/// A bound echo server that does not run yet.
#[derive(Debug)]
pub struct UdpEcho {
    socket: Arc<OwnedFd>,
    address: SocketAddr,
    wait: Wait,
    method: EchoMethod,
}

impl UdpEcho {
    /// Binds `address`; port 0 takes any. A wildcard IPv6 address also serves IPv4, at the cost of mapping.
    ///
    /// # Errors
    /// The address is taken or not ours, or the kernel lacks `UDP_GRO`.
    pub fn bind(address: SocketAddr, wait: Wait, method: EchoMethod) -> Result<Self, PlainError> {
        let (socket, address) = bind_udp(address)?;
        if matches!(method, EchoMethod::Segments(_)) {
            receive_glued(&socket)
                .map_err(|source| PlainError::Option { option: "UDP_GRO", source: source.into() })?;
        }
        Ok(Self { socket, address, wait, method })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves in the calling thread until `stop` is requested.
    ///
    /// # Errors
    /// Receiving failed in a way that does not pass.
    pub fn run(self, stop: &Stop) -> Result<EchoCounts, PlainError> {
        stop.watch(&self.socket);
        let mut counts = EchoCounts::default();
        let served = match self.method {
            EchoMethod::Single => self.serve_single(stop, &mut counts),
            EchoMethod::Connected => self.serve_connected(stop, &mut counts),
            EchoMethod::Batch(slots) => self.serve_bursts(stop, &mut counts, slots, false),
            EchoMethod::Segments(slots) => self.serve_bursts(stop, &mut counts, slots, true),
        };
        match served {
            Ok(()) => Ok(counts),
            Err(_) if stop.is_requested() => Ok(counts),
            Err(error) => Err(PlainError::Receive(error.into())),
        }
    }

    fn serve_single(&self, stop: &Stop, counts: &mut EchoCounts) -> Result<(), Errno> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut waiter = Waiter::new(self.wait);
        while !stop.is_requested() {
            match recvfrom(&self.socket, &mut buffer[..], waiter.flags()) {
                Ok((len, _, Some(sender))) => {
                    waiter.came();
                    counts.received += 1;
                    self.answer(&buffer[..len], &sender, counts);
                }
                // Shut down.
                Ok((_, _, None)) => {}
                Err(error) => tolerate(error)?,
            }
        }
        Ok(())
    }

    fn answer(&self, payload: &[u8], sender: &SocketAddrAny, counts: &mut EchoCounts) {
        match sendto(&self.socket, payload, SendFlags::empty(), sender) {
            Ok(_) => counts.sent += 1,
            Err(_) => counts.refused += 1,
        }
    }

    fn serve_connected(&self, stop: &Stop, counts: &mut EchoCounts) -> Result<(), Errno> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut waiter = Waiter::new(self.wait);
        while !stop.is_requested() {
            match recvfrom(&self.socket, &mut buffer[..], waiter.flags()) {
                Ok((len, _, Some(sender))) => {
                    rustix::net::connect(&self.socket, &sender)?;
                    counts.received += 1;
                    self.answer(&buffer[..len], &sender, counts);
                    break;
                }
                Ok((_, _, None)) => {}
                Err(error) => tolerate(error)?,
            }
        }
        while !stop.is_requested() {
            match recv(&self.socket, &mut buffer[..], waiter.flags()) {
                Ok((len, _)) => {
                    waiter.came();
                    counts.received += 1;
                    match send(&self.socket, &buffer[..len], SendFlags::empty()) {
                        Ok(_) => counts.sent += 1,
                        Err(_) => counts.refused += 1,
                    }
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
        let socket = self.socket.as_fd();
        while !stop.is_requested() {
            let count = match burst.receive(socket, waiter.spins(), true, segments) {
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
            if segments {
                send_segments(&mut burst, socket, count, counts);
            } else {
                counts.received += count as u64;
                send_burst(&mut burst, socket, count, counts);
            }
        }
        Ok(())
    }
}

/// Echoes the first `count` datagrams. One that the kernel refuses is counted and skipped.
fn send_burst(burst: &mut Burst, socket: rustix::fd::BorrowedFd<'_>, count: usize, counts: &mut EchoCounts) {
    let mut next = 0;
    while next < count {
        match burst.send(socket, next..count, true) {
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

/// Nothing there, or an ICMP error about an earlier reply: no reason to stop serving.
fn tolerate(error: Errno) -> Result<(), Errno> {
    if is_transient(error) || is_icmp(error) { Ok(()) } else { Err(error) }
}

/// When to sleep. Reads the clock only where a budget is kept.
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
