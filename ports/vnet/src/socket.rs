//! A packet socket with virtio-net headers: the device's side of an exception port.
#![allow(unsafe_code, reason = "these options of sockets have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, sockopt};
use twinpath_sys::descriptors::close_late;
use twinpath_sys::last_errno;
use twinpath_sys::packet_socket::{self, FanoutGroup, Membership, PacketSocketError};

/// Size of each of the socket's two buffers, bytes: 64 of the largest packets. Packets beyond it are lost and
/// counted.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// The configuration of a queue on a packet socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig<'a> {
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// The fan-out group to join: its members share the interface's frames by flow hash.
    pub fanout_group: Option<&'a FanoutGroup>,
    /// The mark that its frames carry (SO_MARK).
    pub mark: u32,
}

/// Opens a socket that receives every frame that arrives on the interface, and can send there. It does not bypass
/// the qdisc, because the kernel drops a super-frame that does if the device cannot segment it
/// (`__dev_direct_xmit`, net/core/dev.c).
///
/// # Errors
/// [`PacketSocketError`].
pub fn open_socket(config: &SocketConfig<'_>) -> Result<OwnedFd, PacketSocketError> {
    let socket = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).map(close_late)?;
    // It receives nothing before the bind, so all options are set before the first frame can come.
    packet_socket::set(&socket, "PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, 1)?;
    packet_socket::set(&socket, "PACKET_VNET_HDR", libc::PACKET_VNET_HDR, 1)?;
    packet_socket::set(&socket, "PACKET_AUXDATA", libc::PACKET_AUXDATA, 1)?;
    let failed = |option| move |source| PacketSocketError::Option { option, source };
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES))
        .map_err(failed("SO_RCVBUF"))?;
    set(socket.as_fd(), libc::SO_SNDBUFFORCE, &(BUFFER_BYTES as c_int))
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES))
        .map_err(failed("SO_SNDBUF"))?;
    set(socket.as_fd(), libc::SO_MARK, &config.mark).map_err(failed("SO_MARK"))?;

    packet_socket::bind(&socket, config.ifindex, libc::ETH_P_ALL as u16)?;
    // Promiscuous mode: the TAP interface uses this device, whose filters do not know the TAP interface's groups,
    // VLANs and bridged addresses. The membership ends with the socket.
    packet_socket::add_membership(&socket, config.ifindex, Membership::Promiscuous)?;
    if let Some(group) = config.fanout_group {
        group.join(&socket)?;
    }
    Ok(socket)
}

fn set<T>(socket: BorrowedFd<'_>, number: c_int, value: &T) -> Result<(), Errno> {
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            number,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
