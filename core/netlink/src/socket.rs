//! Netlink sockets: opening them, and reading a datagram.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, netlink, recv, recvfrom, socket_with,
};
use twinpath_sys::clock;
use twinpath_sys::udp_socket::set_option;
use twinpath_time::Instant;

// linux/netlink.h, linux/socket.h
const SOL_NETLINK: i32 = 270;
pub(crate) const NETLINK_ADD_MEMBERSHIP: i32 = 1;
pub(crate) const NETLINK_CAP_ACK: i32 = 10;
pub(crate) const NETLINK_EXT_ACK: i32 = 11;
pub(crate) const NETLINK_GET_STRICT_CHK: i32 = 12;

/// Room for a datagram, bytes. The kernel sends this much of a list at a time, once a reader has shown that it has
/// the room.
const DATAGRAM_USUAL: usize = 32 * 1024;
/// Longest datagram that is read, bytes. The message about one link takes a few KiB, because virtual functions are
/// not requested.
const DATAGRAM_MAX: usize = 1024 * 1024;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes, traffic control.
    Route,
    /// IPsec.
    Xfrm,
    /// Families that are found by name ([`crate::generic`]).
    Generic,
}

/// Opens a socket in the calling thread's network namespace. It stays there, whichever thread uses it later.
pub(crate) fn open(protocol: Protocol) -> io::Result<OwnedFd> {
    let protocol = match protocol {
        // The protocol of number 0.
        Protocol::Route => None,
        Protocol::Xfrm => Some(netlink::XFRM),
        Protocol::Generic => Some(netlink::GENERIC),
    };
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?)
}

/// Sets an option of the level `SOL_NETLINK`.
pub(crate) fn set(socket: impl AsFd, option: i32, value: u32) -> Result<(), Errno> {
    set_option(socket, SOL_NETLINK, option, value.cast_signed())
}

/// Reads the next datagram from the kernel into `buffer`, without waiting: false if there is none.
///
/// # Errors
/// `ENOBUFS`: datagrams were lost because the socket was full. `EMSGSIZE`: a datagram was too long, and is lost.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut Vec<u8>) -> Result<bool, Errno> {
    loop {
        // Ask for the length first: a datagram that does not fit would be lost.
        let look = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
        let len = match recv(&socket, &mut [0_u8; 0][..], look) {
            Ok((_, len)) => len,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        buffer.clear();
        buffer.reserve(len.clamp(DATAGRAM_USUAL, DATAGRAM_MAX));
        match recvfrom(&socket, spare_capacity(buffer), RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
            Ok((_, _, sender)) if !is_kernel(sender.as_ref()) => {}
            Ok((_, len, _)) if len > buffer.len() => return Err(Errno::MSGSIZE),
            Ok(_) => return Ok(true),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The sender's number: 0 for the kernel, others for processes.
fn is_kernel(sender: Option<&SocketAddrAny>) -> bool {
    sender
        .and_then(|sender| SocketAddrNetlink::try_from(sender.clone()).ok())
        .is_none_or(|sender| sender.pid() == 0)
}

/// Waits until something can be read; false if nothing can at `until`.
pub(crate) fn wait(socket: impl AsFd, until: Instant) -> Result<bool, Errno> {
    loop {
        let left = until.since(clock::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut polled = [PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
