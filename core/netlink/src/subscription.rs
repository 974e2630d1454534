//! Notifications from the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::bind;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use twinpath_time::Instant;

use crate::socket::{self, NETLINK_ADD_MEMBERSHIP, Protocol};
use crate::{Messages, NetlinkError};

/// The result of a read.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// Messages, in order.
    Messages(Messages<'a>),
    /// Notifications were lost: ask for everything again.
    Overrun,
    /// Nothing waits.
    Nothing,
}

/// Notifications of multicast groups, in the network namespace of the thread that opened it. Its descriptor is readable when
/// there are some.
#[derive(Debug)]
pub struct Subscription {
    socket: OwnedFd,
    datagram: Vec<u8>,
}

impl Subscription {
    /// Subscribes to groups by their numbers (`RTNLGRP_*`, `XFRMNLGRP_*`, or of [`crate::generic::Family::group`]).
    ///
    /// # Errors
    /// [`crate::Failure::Open`]: the kernel has no such protocol. [`crate::Failure::Refused`]: it has no such group, or the process may
    /// not hear it.
    pub fn open(protocol: Protocol, groups: &[u32]) -> Result<Self, NetlinkError> {
        let socket = socket::open(protocol).map_err(NetlinkError::open)?;
        // Without a bound address, the kernel would take the socket for its own and send it nothing.
        bind(&socket, &SocketAddrNetlink::new(0, 0)).map_err(NetlinkError::open)?;
        let subscription = Self { socket, datagram: Vec::new() };
        groups.iter().try_for_each(|group| subscription.join(*group))?;
        Ok(subscription)
    }

    /// Subscribes to another group.
    ///
    /// # Errors
    /// [`crate::Failure::Refused`].
    pub fn join(&self, group: u32) -> Result<(), NetlinkError> {
        socket::set(&self.socket, NETLINK_ADD_MEMBERSHIP, group)
            .map_err(|error| NetlinkError::refused(format!("announce what group {group} hears"), error))
    }

    /// Sets the room for waiting notifications to about this many bytes. More than `net.core.rmem_max` takes
    /// CAP_NET_ADMIN; without it, that is the maximum.
    ///
    /// # Errors
    /// The call is refused.
    pub fn set_room(&self, bytes: usize) -> io::Result<()> {
        set_socket_recv_buffer_size_force(&self.socket, bytes)
            .or_else(|_| set_socket_recv_buffer_size(&self.socket, bytes))
            .map_err(Into::into)
    }

    /// Reads the notifications of one datagram. Does not wait.
    ///
    /// # Errors
    /// The socket cannot be used any more.
    pub fn read(&mut self) -> io::Result<Heard<'_>> {
        match socket::receive(&self.socket, &mut self.datagram) {
            Ok(true) => Ok(Heard::Messages(Messages::of(&self.datagram))),
            Ok(false) => Ok(Heard::Nothing),
            Err(Errno::NOBUFS | Errno::MSGSIZE) => Ok(Heard::Overrun),
            Err(error) => Err(error.into()),
        }
    }

    /// Discards all waiting notifications. Returns whether there were any; lost ones count.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn take_all(&mut self) -> io::Result<bool> {
        let mut any = false;
        while !matches!(self.read()?, Heard::Nothing) {
            any = true;
        }
        Ok(any)
    }

    /// Waits until there is something to read; false if there is nothing at `until`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn wait(&self, until: Instant) -> io::Result<bool> {
        Ok(socket::wait(&self.socket, until)?)
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
