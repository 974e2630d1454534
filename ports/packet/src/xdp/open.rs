//! Opens an AF_XDP socket, with one error per step (Documentation/networking/af_xdp.rst).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use twinpath_frame::{CHUNK_SIZE, Mapping, Region};
use twinpath_port::PortId;
use twinpath_rings::xsk::{Consumer, Descriptor, Offsets, Producer};
use twinpath_sys::descriptors::close_late;

/// The offset at which each ring is mapped (`XDP_PGOFF_*`, include/uapi/linux/if_xdp.h).
const RX_OFFSET: u64 = 0;
const TX_OFFSET: u64 = 0x8000_0000;
const FILL_OFFSET: u64 = 0x1_0000_0000;
const COMPLETION_OFFSET: u64 = 0x1_8000_0000;

/// Whether the driver accesses the registered memory itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// The kernel copies: works with every driver.
    #[default]
    Copy,
    /// The driver must work without a copy, or opening fails.
    ZeroCopy,
}

/// The configuration of a queue on the XDP path.
#[derive(Clone, Copy, Debug)]
pub struct XdpConfig {
    /// Number of the port and queue.
    pub id: PortId,
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// Entries of each of the four rings, and frames lent to the kernel if the queue receives; a power of two.
    pub ring_frames: u32,
    /// Whether it receives. A queue that only sends needs no XDP program, and lends the kernel no frames to receive
    /// into.
    pub receives: bool,
    /// Whether the kernel copies.
    pub copy_mode: CopyMode,
    /// Whether frames come from a program on this host or its hypervisor (veth, virtio), so that their transport
    /// checksum may be incomplete.
    pub virtual_device: bool,
}

/// Which step of opening failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `socket(2)` failed.
    #[error("cannot open an AF_XDP socket: {0}; it needs CAP_NET_RAW and a kernel with CONFIG_XDP_SOCKETS")]
    Socket(Errno),
    /// The memory could not be registered.
    #[error(
        "cannot register {bytes} bytes of frame memory with AF_XDP: {source}; raise RLIMIT_MEMLOCK (ulimit -l) above that, grant CAP_IPC_LOCK, or lower ring_frames"
    )]
    Memory {
        /// Bytes to be registered.
        bytes: usize,
        /// The kernel's error.
        source: Errno,
    },
    /// A ring could not be made or mapped.
    #[error("AF_XDP {ring} ring of {frames} entries: {source}")]
    Ring {
        /// Which ring.
        ring: &'static str,
        /// Entries requested.
        frames: u32,
        /// The kernel's error.
        source: Errno,
    },
    /// The kernel's rings have no flags word: it is older than 5.4.
    #[error("this kernel's AF_XDP has no need_wakeup (it came with Linux 5.4)")]
    NoWakeup,
    /// Another socket holds the queue.
    #[error("queue {queue} of interface index {ifindex} is in use by another AF_XDP socket")]
    Busy {
        /// Index of the interface.
        ifindex: u32,
        /// The queue.
        queue: u16,
    },
    /// `bind(2)` failed.
    #[error("cannot bind an AF_XDP socket to queue {queue} of interface index {ifindex}: {source}")]
    Bind {
        /// Index of the interface.
        ifindex: u32,
        /// The queue.
        queue: u16,
        /// The kernel's error.
        source: Errno,
    },
}

/// The memory registered by a worker's first queue, for its other queues.
#[derive(Debug)]
pub struct Umem(OwnedFd);

impl Umem {
    pub(crate) fn of(socket: &OwnedFd) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(socket, 0).map(Self)
    }
}

pub(crate) struct Opened {
    pub(crate) socket: OwnedFd,
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) receive: Consumer<Descriptor>,
    pub(crate) transmit: Producer<Descriptor>,
}

pub(crate) fn open(config: &XdpConfig, umem: Option<&Umem>, region: &Region) -> Result<Opened, OpenError> {
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map(close_late)
        .map_err(OpenError::Socket)?;
    if umem.is_none() {
        register(&socket, region)?;
    }
    let frames = config.ring_frames;
    let ring_error = |ring| move |source| OpenError::Ring { ring, frames, source };
    set_xdp_umem_fill_ring_size(&socket, frames).map_err(ring_error("fill"))?;
    set_xdp_umem_completion_ring_size(&socket, frames).map_err(ring_error("completion"))?;
    set_xdp_rx_ring_size(&socket, frames).map_err(ring_error("receive"))?;
    set_xdp_tx_ring_size(&socket, frames).map_err(ring_error("transmit"))?;

    let offsets = xdp_mmap_offsets(&socket).map_err(ring_error("any"))?;
    let map = |ring, at: &XdpRingOffset, page_offset, entry_size: usize| {
        let len = at.desc as usize + frames as usize * entry_size;
        let mapping = Mapping::of_fd(&socket, len, page_offset).map_err(ring_error(ring))?;
        let flags = at.flags.ok_or(OpenError::NoWakeup)?;
        let offsets = Offsets { producer: at.producer, consumer: at.consumer, flags, entries: at.desc };
        Ok::<_, OpenError>((mapping, offsets))
    };
    let bad = |ring| move |_| OpenError::Ring { ring, frames, source: Errno::INVAL };
    let descriptor = size_of::<Descriptor>();
    let (mapping, at) = map("fill", &offsets.fr, FILL_OFFSET, size_of::<u64>())?;
    let fill = Producer::new(mapping, at, frames).map_err(bad("fill"))?;
    let (mapping, at) = map("completion", &offsets.cr, COMPLETION_OFFSET, size_of::<u64>())?;
    let completion = Consumer::new(mapping, at, frames).map_err(bad("completion"))?;
    let (mapping, at) = map("receive", &offsets.rx, RX_OFFSET, descriptor)?;
    let receive = Consumer::new(mapping, at, frames).map_err(bad("receive"))?;
    let (mapping, at) = map("transmit", &offsets.tx, TX_OFFSET, descriptor)?;
    let transmit = Producer::new(mapping, at, frames).map_err(bad("transmit"))?;

    bind_queue(&socket, config, umem)?;
    Ok(Opened { socket, fill, completion, receive, transmit })
}

fn register(socket: &OwnedFd, region: &Region) -> Result<(), OpenError> {
    let registration = XdpUmemReg {
        addr: region.base().as_ptr() as u64,
        len: region.len() as u64,
        chunk_size: CHUNK_SIZE,
        // The kernel leaves XDP_PACKET_HEADROOM free by itself; no more is needed.
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    set_xdp_umem_reg(socket, registration).map_err(|source| OpenError::Memory { bytes: region.len(), source })
}

fn bind_queue(socket: &OwnedFd, config: &XdpConfig, umem: Option<&Umem>) -> Result<(), OpenError> {
    let (ifindex, queue) = (config.ifindex, config.id.queue);
    let mode = match config.copy_mode {
        CopyMode::Copy => SocketAddrXdpFlags::XDP_COPY,
        CopyMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
    };
    let result = match umem {
        None => {
            let flags = mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            bind(socket, &SocketAddrXdp::new(flags, ifindex, u32::from(queue)))
        }
        // A socket that shares a UMEM takes its modes from the first one (`xsk_bind`, net/xdp/xsk.c).
        Some(Umem(shared)) => {
            let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, ifindex, u32::from(queue));
            bind(socket, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: shared.as_fd() })
        }
    };
    result.map_err(|source| match source {
        Errno::BUSY => OpenError::Busy { ifindex, queue },
        source => OpenError::Bind { ifindex, queue, source },
    })
}
