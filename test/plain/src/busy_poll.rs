//! A UDP echo server that polls the device from `epoll_wait`, so that the device need not interrupt
//! (Documentation/networking/napi.rst, "epoll-based busy polling" and "IRQ suspension"). On a device whose queues
//! cannot be polled it is a server that sleeps.

#![allow(unsafe_code, reason = "the ioctl by which an epoll is told to poll devices")]

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, connect, recv, recvfrom, send, sendto};
use twinpath_socket_load::socket::{bind_udp, is_icmp, is_transient};
use twinpath_socket_load::{DATAGRAM_BYTES, EchoCounts, SocketError, Stop};

/// Packets per poll of a device: the value that the kernel's documentation recommends.
const BUDGET: u16 = 64;

/// A bound server that has not been started.
#[derive(Debug)]
pub struct BusyPollEcho {
    socket: Arc<OwnedFd>,
    address: SocketAddr,
    epoll: OwnedFd,
}

impl BusyPollEcho {
    /// Binds `address`. An `epoll_wait` that finds nothing polls the device for up to `busy_poll_us` before it
    /// sleeps; with 0 it polls once.
    ///
    /// # Errors
    /// The address is in use, or the kernel is older than 6.9, which added these parameters of epoll.
    pub fn bind(address: SocketAddr, busy_poll_us: u32) -> Result<Self, SocketError> {
        let (socket, address) = bind_udp(address)?;
        let option = |option| move |source: Errno| SocketError::Option { option, source: source.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(option("epoll_create1"))?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &*socket, data, epoll::EventFlags::IN).map_err(option("EPOLL_CTL_ADD"))?;
        let params = libc::epoll_params {
            busy_poll_usecs: busy_poll_us,
            busy_poll_budget: BUDGET,
            prefer_busy_poll: 1,
            __pad: 0,
        };
        // SAFETY: EPIOCSPARAMS reads one `struct epoll_params`, which `params` is; the kernel keeps no pointer to it.
        let code = unsafe { libc::ioctl(epoll.as_raw_fd(), libc::EPIOCSPARAMS, &raw const params) };
        if code != 0 {
            let source = std::io::Error::last_os_error();
            return Err(SocketError::Option { option: "EPIOCSPARAMS", source });
        }
        Ok(Self { socket, address, epoll })
    }

    /// The address that it is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the first peer that sends, on the calling thread, until `stop` is requested.
    ///
    /// # Errors
    /// Receiving or waiting failed with an error that is not temporary.
    pub fn run(self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        stop.watch(&self.socket);
        let mut counts = EchoCounts::default();
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let mut is_connected = false;
        while !stop.is_requested() {
            match epoll::wait(&self.epoll, &mut events, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(SocketError::Poll(error.into())),
            }
            while !stop.is_requested() {
                let answered = if is_connected {
                    self.answer(&mut buffer, &mut counts)
                } else {
                    self.meet(&mut buffer, &mut counts).inspect(|()| is_connected = true)
                };
                match answered {
                    Ok(()) => {}
                    Err(error) if is_transient(error) => break,
                    Err(error) if is_icmp(error) => {}
                    Err(error) => return Err(SocketError::Receive(error.into())),
                }
            }
        }
        Ok(counts)
    }

    fn answer(&self, buffer: &mut [u8], counts: &mut EchoCounts) -> Result<(), Errno> {
        let (len, _) = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        count(send(&self.socket, &buffer[..len], SendFlags::empty()), counts);
        Ok(())
    }

    /// Receives the first datagram and connects the socket to its sender.
    fn meet(&self, buffer: &mut [u8], counts: &mut EchoCounts) -> Result<(), Errno> {
        let (len, _, sender) = recvfrom(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        // A receive without a sender means that the socket was shut down.
        let Some(sender) = sender else { return Ok(()) };
        count(sendto(&self.socket, &buffer[..len], SendFlags::empty(), &sender), counts);
        connect(&self.socket, &sender)
    }
}

fn count(sent: Result<usize, Errno>, counts: &mut EchoCounts) {
    counts.received += 1;
    match sent {
        Ok(_) => counts.sent += 1,
        Err(_) => counts.refused += 1,
    }
}
