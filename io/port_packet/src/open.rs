//! Opens the two sockets of a queue on the packet path, with one error per step.
#![allow(unsafe_code, reason = "packet-socket options and addresses have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use twinpath_frame::{CHUNK_SIZE, Mapping};
use twinpath_port::PortId;
use twinpath_rings::packet::PacketRing;
use twinpath_sys::descriptors::close_late;

/// The configuration of a queue on the packet path.
#[derive(Clone, Copy, Debug)]
pub struct PacketConfig {
    /// Number of the port and queue.
    pub id: PortId,
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// Slots of the receive ring, of [`CHUNK_SIZE`] bytes each.
    pub ring_slots: u32,
    /// The fan-out group to join: its members share the interface's frames by flow hash.
    pub fanout_group: Option<u16>,
    /// Whether to pass frames to the driver without a queueing discipline (PACKET_QDISC_BYPASS).
    pub bypass_qdisc: bool,
}

/// Which step of opening failed. `E` is what attaching the filter returns.
#[derive(Debug, thiserror::Error)]
pub enum OpenError<E> {
    /// `socket(2)` failed.
    #[error("cannot open a packet socket: {0}; it needs CAP_NET_RAW (run as root, or grant the capability)")]
    Socket(Errno),
    /// The filter with the verdict could not be attached.
    #[error("cannot attach the verdict to the packet socket: {0}")]
    Filter(E),
    /// A socket option was refused.
    #[error("packet socket option {option}: {source}")]
    Option {
        /// Its name.
        option: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// The ring's memory was refused.
    #[error("cannot make a receive ring of {bytes} bytes: {source}; lower ring_slots or free memory")]
    Ring {
        /// Bytes requested.
        bytes: usize,
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

/// Bytes of a block, in which the kernel allocates slots; one contiguous allocation, so not too large.
const BLOCK_SIZE: u32 = 64 * 1024;

pub(crate) fn receiver<E>(
    config: &PacketConfig,
    attach_filter: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    receives: bool,
) -> Result<(OwnedFd, PacketRing), OpenError<E>> {
    let socket = packet_socket()?;
    // Protocol 0 receives nothing, so the filter is attached before the first frame can come.
    attach_filter(socket.as_fd()).map_err(OpenError::Filter)?;
    set_option(
        &socket,
        "PACKET_VERSION",
        libc::PACKET_VERSION,
        &(libc::tpacket_versions::TPACKET_V2 as c_int),
    )?;
    set_option(&socket, "PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, &1)?;

    let slots_per_block = BLOCK_SIZE / CHUNK_SIZE;
    let blocks = config.ring_slots.div_ceil(slots_per_block).max(1);
    let request = libc::tpacket_req {
        tp_block_size: BLOCK_SIZE,
        tp_block_nr: blocks,
        tp_frame_size: CHUNK_SIZE,
        tp_frame_nr: blocks * slots_per_block,
    };
    let bytes = BLOCK_SIZE as usize * blocks as usize;
    set_option::<_, E>(&socket, "PACKET_RX_RING", libc::PACKET_RX_RING, &request)
        .map_err(|error| ring_error(error, bytes))?;
    let mapping = Mapping::of_fd(&socket, bytes, 0).map_err(|source| OpenError::Ring { bytes, source })?;
    let ring = PacketRing::new(mapping, CHUNK_SIZE as usize, request.tp_frame_nr as usize)
        .map_err(|_| OpenError::Ring { bytes, source: Errno::INVAL })?;

    if receives {
        receive_all(&socket, config.ifindex)?;
    }
    if let Some(group) = config.fanout_group {
        join_fanout(&socket, group)?;
    }
    Ok((socket, ring))
}

/// Joins the fan-out group, whose members share frames by flow hash. The kernel then receives the frames with one
/// hook for the group, which ignores the socket's PACKET_IGNORE_OUTGOING: the group has its own flag for that
/// (`fanout_add`, net/packet/af_packet.c). A kernel without that flag ignores or refuses it; there the filter, which
/// rejects outgoing frames, runs for each of them.
fn join_fanout<E>(socket: &OwnedFd, group: u16) -> Result<(), OpenError<E>> {
    let join = |mode| {
        let argument = c_int::from(group) | (mode as c_int) << 16;
        set_option(socket, "PACKET_FANOUT", libc::PACKET_FANOUT, &argument)
    };
    join(libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING)
        .or_else(|_: OpenError<E>| join(libc::PACKET_FANOUT_HASH))
}

/// Binds the socket to all protocols, so that it receives the interface's frames. Until then it costs these frames
/// nothing.
pub(crate) fn receive_all<E>(socket: &OwnedFd, ifindex: u32) -> Result<(), OpenError<E>> {
    bind(socket, ifindex, libc::ETH_P_ALL as u16)
}

fn ring_error<E>(error: OpenError<E>, bytes: usize) -> OpenError<E> {
    match error {
        OpenError::Option { source, .. } => OpenError::Ring { bytes, source },
        other => other,
    }
}

pub(crate) fn sender<E>(config: &PacketConfig) -> Result<OwnedFd, OpenError<E>> {
    let socket = packet_socket()?;
    if config.bypass_qdisc {
        set_option(&socket, "PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, &1)?;
    }
    bind(&socket, config.ifindex, 0)?;
    Ok(socket)
}

/// Opens a socket for GSO frames; `None` where the kernel has no virtio-net header for them. It does not bypass the
/// queueing discipline, because a frame that bypasses it must not need segmentation (`__dev_direct_xmit`,
/// net/core/dev.c).
pub(crate) fn super_frame_sender<E>(config: &PacketConfig) -> Result<Option<OwnedFd>, OpenError<E>> {
    let socket = packet_socket()?;
    if set_option::<_, E>(&socket, "PACKET_VNET_HDR", libc::PACKET_VNET_HDR, &1).is_err() {
        return Ok(None);
    }
    bind(&socket, config.ifindex, 0)?;
    Ok(Some(socket))
}

/// Frames lost since the last call because the ring was full (reading PACKET_STATISTICS resets it).
pub(crate) fn lost_frames(socket: &OwnedFd) -> u32 {
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

fn packet_socket<E>() -> Result<OwnedFd, OpenError<E>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map(close_late)
        .map_err(OpenError::Socket)
}

fn bind<E>(socket: &OwnedFd, ifindex: u32, protocol: u16) -> Result<(), OpenError<E>> {
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
    if result == 0 { Ok(()) } else { Err(OpenError::Bind { ifindex, source: last_errno() }) }
}

fn set_option<T, E>(
    socket: &OwnedFd,
    option: &'static str,
    number: c_int,
    value: &T,
) -> Result<(), OpenError<E>> {
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            number,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(OpenError::Option { option, source: last_errno() }) }
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
