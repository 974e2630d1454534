//! Opens the sockets of a queue, with one error per step.
#![allow(unsafe_code, reason = "two options of sockets have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, sockopt};
use twinpath_packet::{OpenError, receive_ring, receive_whole};
use twinpath_port::PortId;
use twinpath_rings::packet::PacketRing;
use twinpath_sys::descriptors::close_late;
use twinpath_sys::last_errno;
use twinpath_sys::packet_socket::{self, FanoutGroup, PacketSocketError};

/// Size of the queue for frames that are longer than a slot, and of the frames that the kernel has not sent yet,
/// bytes. Frames beyond it are lost and counted.
pub(crate) const BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// The same for frames that one port has sent by a spare socket, bytes.
const SPARE_BYTES: usize = 2 * 1024 * 1024;

/// The configuration of a queue.
#[derive(Clone, Copy, Debug)]
pub struct CarrierConfig<'a> {
    /// Number of the queue. Its port number is [`PORTS_MAX`](twinpath_port::PORTS_MAX) or above, because the queue
    /// is not itself a port.
    pub id: PortId,
    /// Slots of the receive ring, of [`CHUNK_SIZE`](twinpath_frame::CHUNK_SIZE) bytes each.
    pub ring_slots: u32,
    /// Maximum number of ports that it carries.
    pub ports_max: usize,
    /// The fan-out group to join: its members share all frames by flow hash.
    pub fanout_group: Option<&'a FanoutGroup>,
    /// The mark (SO_MARK) of its frames that pass the interface's egress hook, which must remove it.
    pub mark: u32,
}

pub(crate) fn receiver<E>(
    config: &CarrierConfig<'_>,
    attach_filter: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
) -> Result<(OwnedFd, PacketRing), OpenError<E>> {
    let socket = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).map(close_late)?;
    // Without a protocol it receives nothing, so everything is set before the first frame can come.
    attach_filter(socket.as_fd()).map_err(OpenError::Filter)?;
    receive_whole(&socket, BUFFER_BYTES)?;
    packet_socket::set(&socket, "PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, 1)?;

    let ring = receive_ring(&socket, config.ring_slots)?;
    // Interface 0: all of the network namespace; the filter accepts only ports.
    packet_socket::bind(&socket, 0, libc::ETH_P_ALL as u16)?;
    if let Some(group) = config.fanout_group {
        group.join(&socket)?;
    }
    Ok((socket, ring))
}

/// The two sockets that send: with virtio-net headers, and without them, past queueing disciplines.
pub(crate) fn senders(config: &CarrierConfig<'_>) -> Result<[OwnedFd; 2], PacketSocketError> {
    // Frames that bypass the qdisc also bypass the program that removes the mark.
    let plain = sender(None, BUFFER_BYTES)?;
    packet_socket::set(&plain, "PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, 1)?;
    Ok([with_headers(config.mark, BUFFER_BYTES)?, plain])
}

/// Opens a socket that sends for one port while the shared ones have no room
/// ([`CarriedPort::spares`](twinpath_port::CarriedPort)), in the network namespace of the calling thread. Its
/// frames carry `mark`.
///
/// # Errors
/// [`PacketSocketError`].
pub fn spare(mark: u32) -> Result<OwnedFd, PacketSocketError> {
    with_headers(mark, SPARE_BYTES)
}

fn with_headers(mark: u32, buffer_bytes: usize) -> Result<OwnedFd, PacketSocketError> {
    let socket = sender(Some(mark), buffer_bytes)?;
    packet_socket::set(&socket, "PACKET_VNET_HDR", libc::PACKET_VNET_HDR, 1)?;
    Ok(socket)
}

fn sender(mark: Option<u32>, buffer_bytes: usize) -> Result<OwnedFd, PacketSocketError> {
    let socket = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).map(close_late)?;
    let failed = |option| move |source| PacketSocketError::Option { option, source };
    set(socket.as_fd(), libc::SO_SNDBUFFORCE, buffer_bytes as c_int)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, buffer_bytes))
        .map_err(failed("SO_SNDBUF"))?;
    if let Some(mark) = mark {
        set(socket.as_fd(), libc::SO_MARK, mark.cast_signed()).map_err(failed("SO_MARK"))?;
    }
    Ok(socket)
}

fn set(socket: BorrowedFd<'_>, number: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            number,
            (&raw const value).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
