//! A packet socket with virtio-net headers: the device's side of an exception port.
#![allow(unsafe_code, reason = "packet-socket options and addresses have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use twinpath_sys::descriptors::close_late;

use crate::tap::last_errno;

/// Size of each of the socket's two buffers, bytes: 64 of the largest packets. Packets beyond it are lost, and
/// counted.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// The configuration of a queue on a packet socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// The fan-out group to join: its members share the interface's frames by flow hash.
    pub fanout_group: Option<u16>,
    /// Whether to pass frames to the driver without a queueing discipline (PACKET_QDISC_BYPASS).
    pub bypass_qdisc: bool,
    /// The mark that its frames carry (SO_MARK).
    pub mark: u32,
}

/// Which step of opening failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// `socket(2)` failed.
    #[error("cannot open a packet socket: {0}; it needs CAP_NET_RAW (run as root, or grant the capability)")]
    Socket(Errno),
    /// A socket option was refused.
    #[error("packet socket option {option}: {source}")]
    Option {
        /// Its name.
        option: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// `bind(2)` to the interface failed.
    #[error("cannot bind the packet socket to interface index {ifindex}: {source}")]
    Bind {
        /// Index of the interface.
        ifindex: u32,
        /// The kernel's error.
        source: Errno,
    },
}

/// Opens a socket that receives every frame that arrives on the interface, and can send there.
///
/// # Errors
/// [`SocketError`].
pub fn open_socket(config: &SocketConfig) -> Result<OwnedFd, SocketError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map(close_late)
        .map_err(SocketError::Socket)?;
    // Protocol 0 receives nothing, so all options are set before the first frame can come.
    set_option(&socket, "PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, &1)?;
    set_option(&socket, "PACKET_VNET_HDR", libc::PACKET_VNET_HDR, &1)?;
    set_option(&socket, "PACKET_AUXDATA", libc::PACKET_AUXDATA, &1)?;
    if config.bypass_qdisc {
        set_option(&socket, "PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, &1)?;
    }
    let failed = |option| move |source| SocketError::Option { option, source };
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES))
        .map_err(failed("SO_RCVBUF"))?;
    set_socket_option(&socket, "SO_SNDBUFFORCE", libc::SO_SNDBUFFORCE, &(BUFFER_BYTES as c_int)).or_else(
        |_| sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES).map_err(failed("SO_SNDBUF")),
    )?;
    set_socket_option(&socket, "SO_MARK", libc::SO_MARK, &config.mark)?;

    bind(&socket, config.ifindex, libc::ETH_P_ALL as u16)?;
    // Promiscuous mode: the TAP interface uses this device, whose filters do not know the TAP interface's groups,
    // VLANs and bridged addresses. The membership ends with the socket.
    let membership = libc::packet_mreq {
        mr_ifindex: config.ifindex as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&socket, "PACKET_ADD_MEMBERSHIP", libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    if let Some(group) = config.fanout_group {
        // The group has its own hook, which must be told separately to ignore outgoing frames.
        const FLAG_IGNORE_OUTGOING: c_int = 0x4000;
        let kind = libc::PACKET_FANOUT_HASH as c_int | FLAG_IGNORE_OUTGOING;
        set_option(&socket, "PACKET_FANOUT", libc::PACKET_FANOUT, &(c_int::from(group) | kind << 16))?;
    }
    Ok(socket)
}

/// Makes the socket receive arriving frames, or ignore all of them, as needed while programs at tc redirect the
/// frames.
///
/// # Errors
/// What `setsockopt(2)` returns.
pub fn set_listening(socket: &OwnedFd, listening: bool) -> Result<(), Errno> {
    if listening {
        // If there is no filter to detach, the result is the same.
        return match set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        };
    }
    // Accepts no byte of any frame (`ret #0`).
    let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Frames lost since the last call because the socket's buffer was full (reading PACKET_STATISTICS resets it).
#[must_use]
pub fn lost_frames(socket: &OwnedFd) -> u32 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a struct of that size, made of plain integers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 { statistics.tp_drops } else { 0 }
}

fn bind(socket: &OwnedFd, ifindex: u32, protocol: u16) -> Result<(), SocketError> {
    // SAFETY: an all-zero sockaddr_ll is a valid value of a struct of plain integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as c_int;
    // SAFETY: the pointer and length describe `address`, which lives across the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(SocketError::Bind { ifindex, source: last_errno() }) }
}

fn set_option<T>(
    socket: &OwnedFd,
    option: &'static str,
    number: c_int,
    value: &T,
) -> Result<(), SocketError> {
    set(socket.as_fd(), libc::SOL_PACKET, number, value)
        .map_err(|source| SocketError::Option { option, source })
}

fn set_socket_option<T>(
    socket: &OwnedFd,
    option: &'static str,
    number: c_int,
    value: &T,
) -> Result<(), SocketError> {
    set(socket.as_fd(), libc::SOL_SOCKET, number, value)
        .map_err(|source| SocketError::Option { option, source })
}

fn set<T>(socket: BorrowedFd<'_>, level: c_int, number: c_int, value: &T) -> Result<(), Errno> {
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            number,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
