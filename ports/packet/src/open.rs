//! Opens the two sockets of a queue on the packet path, with one error per step.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, sockopt};
use twinpath_frame::{CHUNK_SIZE, Mapping};
use twinpath_port::PortId;
use twinpath_rings::packet::PacketRing;
use twinpath_sys::descriptors::close_late;
use twinpath_sys::packet_socket::{self, FanoutGroup, PacketSocketError};

/// The configuration of a queue on the packet path.
#[derive(Clone, Copy, Debug)]
pub struct PacketConfig<'a> {
    /// Number of the port and queue.
    pub id: PortId,
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// Slots of the receive ring, of [`CHUNK_SIZE`] bytes each.
    pub ring_slots: u32,
    /// The fan-out group to join: its members share the interface's frames by flow hash.
    pub fanout_group: Option<&'a FanoutGroup>,
    /// Whether the socket receives nothing until the worker is about to sleep for the first time. Only for the
    /// single worker of an interface that has a direct ring, and a program at tc ingress that ends with this
    /// process: until then, that program receives frames by itself.
    pub binds_late: bool,
    /// Whether to pass frames to the driver without a qdisc (PACKET_QDISC_BYPASS).
    pub bypass_qdisc: bool,
    /// Whether it receives and sends frames with offloads, such as super-frames of TCP, and receives frames that are
    /// longer than a slot. The socket is then needed from the start: `binds_late` has no effect.
    pub super_frames: bool,
    /// Whether it receives coalesced datagrams, which it takes apart. With `binds_late`, the socket is bound once the
    /// program at tc ingress has left some to the kernel. Only from Linux 6.2 on: before, the kernel does not describe
    /// such frames to packet sockets, and they would be lost.
    pub datagrams: bool,
}

impl PacketConfig<'_> {
    /// Whether a virtio-net header is in front of each frame that the socket receives.
    pub(crate) const fn has_headers(&self) -> bool {
        self.super_frames || self.datagrams
    }
}

/// Which step of opening failed. `E` is what attaching the filter returns.
#[derive(Debug, thiserror::Error)]
pub enum OpenError<E> {
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] PacketSocketError),
    /// The filter could not be attached.
    #[error("cannot attach the filter to the packet socket: {0}")]
    Filter(E),
    /// The ring's memory was refused.
    #[error("cannot make a receive ring of {bytes} bytes: {source}; lower ring_slots or free memory")]
    Ring {
        /// Bytes requested.
        bytes: usize,
        /// The kernel's error.
        source: Errno,
    },
}

/// Bytes of a block in which the kernel allocates slots. Each is one contiguous allocation, so it should not be too
/// large.
const BLOCK_SIZE: u32 = 64 * 1024;

/// `PACKET_COPY_THRESH` of linux/if_packet.h: a frame longer than its slot is put into the socket's queue as well.
const PACKET_COPY_THRESH: c_int = 7;

/// Memory of frames in the socket's queue, and of super-frames that the kernel has not sent yet, bytes each: 64 of the
/// longest packets. Frames beyond it are lost and counted.
const SUPER_FRAMES_BYTES: usize = 4 * 1024 * 1024;

pub(crate) fn receiver<E>(
    config: &PacketConfig<'_>,
    attach_filter: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>,
    receives: bool,
) -> Result<(OwnedFd, PacketRing), OpenError<E>> {
    let socket = packet_socket()?;
    // Protocol 0 receives nothing, so the filter is attached before the first frame can come.
    attach_filter(socket.as_fd()).map_err(OpenError::Filter)?;
    packet_socket::set(&socket, "PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, 1)?;
    if config.has_headers() {
        receive_whole(&socket, SUPER_FRAMES_BYTES)?;
    }
    let ring = receive_ring(&socket, config.ring_slots)?;

    if receives {
        receive_all(&socket, config.ifindex)?;
    }
    if let Some(group) = config.fanout_group {
        group.join(&socket)?;
    }
    Ok((socket, ring))
}

/// Makes a packet socket without a ring yet put a virtio-net header in front of each frame, and keep frames that are
/// longer than a slot of its ring in its queue, of up to `queue_bytes` bytes of the kernel's memory.
///
/// # Errors
/// [`PacketSocketError::Option`].
pub fn receive_whole(socket: &OwnedFd, queue_bytes: usize) -> Result<(), PacketSocketError> {
    packet_socket::set(socket, "PACKET_VNET_HDR", libc::PACKET_VNET_HDR, 1)?;
    packet_socket::set(socket, "PACKET_COPY_THRESH", PACKET_COPY_THRESH, 1)?;
    sockopt::set_socket_recv_buffer_size_force(socket, queue_bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, queue_bytes))
        .map_err(|source| PacketSocketError::Option { option: "SO_RCVBUF", source })
}

/// Makes the receive ring of a packet socket: of version 2, with `slots` slots of [`CHUNK_SIZE`] bytes.
///
/// # Errors
/// [`OpenError::Socket`], [`OpenError::Ring`].
pub fn receive_ring<E>(socket: &OwnedFd, slots: u32) -> Result<PacketRing, OpenError<E>> {
    let version = libc::tpacket_versions::TPACKET_V2 as c_int;
    packet_socket::set(socket, "PACKET_VERSION", libc::PACKET_VERSION, version)?;
    let slots_per_block = BLOCK_SIZE / CHUNK_SIZE;
    let blocks = slots.div_ceil(slots_per_block).max(1);
    let request = libc::tpacket_req {
        tp_block_size: BLOCK_SIZE,
        tp_block_nr: blocks,
        tp_frame_size: CHUNK_SIZE,
        tp_frame_nr: blocks * slots_per_block,
    };
    let bytes = BLOCK_SIZE as usize * blocks as usize;
    let refused = |source| OpenError::Ring { bytes, source };
    packet_socket::make_receive_ring(socket, &request).map_err(|error| refused(error.errno()))?;
    let mapping = Mapping::of_fd(socket, bytes, 0).map_err(refused)?;
    PacketRing::new(mapping, CHUNK_SIZE as usize, request.tp_frame_nr as usize)
        .map_err(|_| refused(Errno::INVAL))
}

/// Binds the socket to all protocols, so that it receives the interface's frames. Before that, it costs these
/// frames nothing.
pub(crate) fn receive_all(socket: &OwnedFd, ifindex: u32) -> Result<(), PacketSocketError> {
    packet_socket::bind(socket, ifindex, libc::ETH_P_ALL as u16)
}

pub(crate) fn sender(config: &PacketConfig<'_>) -> Result<OwnedFd, PacketSocketError> {
    let socket = packet_socket()?;
    if config.bypass_qdisc {
        packet_socket::set(&socket, "PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, 1)?;
    }
    packet_socket::bind(&socket, config.ifindex, 0)?;
    Ok(socket)
}

/// Opens a socket for super-frames; `None` if the kernel has no virtio-net header for them. It does not bypass the
/// qdisc, because a frame that does must not need segmentation (`__dev_direct_xmit`, net/core/dev.c).
pub(crate) fn super_frame_sender(config: &PacketConfig<'_>) -> Result<Option<OwnedFd>, PacketSocketError> {
    let socket = packet_socket()?;
    if packet_socket::set(&socket, "PACKET_VNET_HDR", libc::PACKET_VNET_HDR, 1).is_err() {
        return Ok(None);
    }
    if config.super_frames {
        sockopt::set_socket_send_buffer_size_force(&socket, SUPER_FRAMES_BYTES)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, SUPER_FRAMES_BYTES))
            .map_err(|source| PacketSocketError::Option { option: "SO_SNDBUF", source })?;
    }
    packet_socket::bind(&socket, config.ifindex, 0)?;
    Ok(Some(socket))
}

/// Frames lost since the last call because the ring was full.
#[must_use]
pub fn lost_frames(socket: &OwnedFd) -> u32 {
    packet_socket::lost_frames(socket).unwrap_or(0)
}

fn packet_socket() -> Result<OwnedFd, PacketSocketError> {
    packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).map(close_late)
}
