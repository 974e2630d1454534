//! Packet sockets (packet(7)): their system calls, which the ports use step by step, and a simple socket that sends
//! and receives whole frames of one EtherType.
#![allow(unsafe_code, reason = "sockaddr_ll and the options of packet sockets have no safe wrapper")]

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send, socket_with,
};

use crate::errno::last_errno;

/// Which step of opening failed.
#[derive(Debug, thiserror::Error)]
pub enum PacketSocketError {
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

impl PacketSocketError {
    /// The kernel's error.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Socket(source) | Self::Option { source, .. } | Self::Bind { source, .. } => *source,
        }
    }
}

impl From<PacketSocketError> for io::Error {
    fn from(error: PacketSocketError) -> Self {
        error.errno().into()
    }
}

/// Opens a socket that is not bound yet. Without a protocol it receives nothing on any interface. It is always
/// closed on exec.
///
/// # Errors
/// [`PacketSocketError::Socket`].
pub fn open(kind: SocketType, flags: SocketFlags) -> Result<OwnedFd, PacketSocketError> {
    socket_with(AddressFamily::PACKET, kind, flags | SocketFlags::CLOEXEC, None)
        .map_err(PacketSocketError::Socket)
}

/// Binds the socket to an interface, to receive the frames of EtherType `protocol` (`ETH_P_ALL`: all; 0: none).
///
/// # Errors
/// [`PacketSocketError::Bind`].
pub fn bind(socket: impl AsFd, ifindex: u32, protocol: u16) -> Result<(), PacketSocketError> {
    // SAFETY: an all-zero sockaddr_ll is a valid value of a struct of plain integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as c_int;
    // SAFETY: the pointer and length describe `address`, which lives across the call.
    let result = unsafe {
        libc::bind(
            socket.as_fd().as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(PacketSocketError::Bind { ifindex, source: last_errno() }) }
}

/// Sets an integer option of packet sockets; `option` is its name, for the error.
///
/// # Errors
/// [`PacketSocketError::Option`].
pub fn set(
    socket: impl AsFd,
    option: &'static str,
    number: c_int,
    value: c_int,
) -> Result<(), PacketSocketError> {
    set_option(socket.as_fd(), option, number, &value)
}

/// Requests a receive ring (PACKET_RX_RING), which the caller then maps.
///
/// # Errors
/// [`PacketSocketError::Option`].
pub fn make_receive_ring(socket: impl AsFd, ring: &libc::tpacket_req) -> Result<(), PacketSocketError> {
    set_option(socket.as_fd(), "PACKET_RX_RING", libc::PACKET_RX_RING, ring)
}

/// A fan-out group (PACKET_FANOUT), whose members share frames by the hash of their flow. The kernel chooses its
/// number when the first socket joins. So no other process can have the same one, even if it has the same process
/// ID in another PID namespace.
#[derive(Debug, Default)]
pub struct FanoutGroup {
    number: OnceLock<c_int>,
}

impl FanoutGroup {
    /// Adds a bound socket to the group. The kernel then receives frames with one hook for the group, which ignores
    /// the socket's PACKET_IGNORE_OUTGOING, so the group gets a flag for that (`fanout_add`,
    /// net/packet/af_packet.c). On a kernel without that flag, the socket's filter also runs for outgoing frames
    /// and must reject them.
    ///
    /// # Errors
    /// [`PacketSocketError::Option`].
    pub fn join(&self, socket: impl AsFd) -> Result<(), PacketSocketError> {
        let socket = socket.as_fd();
        let ignoring = libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let joined = self.join_by(socket, ignoring).or_else(|_| self.join_by(socket, 0));
        joined.map_err(|source| PacketSocketError::Option { option: "PACKET_FANOUT", source })
    }

    fn join_by(&self, socket: BorrowedFd<'_>, flags: u32) -> Result<(), Errno> {
        let (number, unique) = match self.number.get() {
            Some(number) => (*number, 0),
            None => (0, libc::PACKET_FANOUT_FLAG_UNIQUEID),
        };
        let mode = (libc::PACKET_FANOUT_HASH | flags | unique) as c_int;
        set_option(socket, "PACKET_FANOUT", libc::PACKET_FANOUT, &(number | mode << 16))
            .map_err(|error| error.errno())?;
        // The lower half is the number, the upper half the mode.
        self.number.get_or_init(|| fanout_of(socket).unwrap_or_default() & 0xffff);
        Ok(())
    }
}

/// The fan-out group of a socket, as the kernel describes it.
fn fanout_of(socket: BorrowedFd<'_>) -> Result<c_int, Errno> {
    let (mut value, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the pointers and the length describe `value` and `len`, which live across the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(value) } else { Err(last_errno()) }
}

/// Frames that an interface receives in addition to its own, as long as the socket is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// All frames.
    Promiscuous,
    /// Frames for this link-layer multicast address.
    Multicast([u8; 6]),
}

/// Adds a membership to the interface (PACKET_ADD_MEMBERSHIP).
///
/// # Errors
/// [`PacketSocketError::Option`].
pub fn add_membership(
    socket: impl AsFd,
    ifindex: u32,
    membership: Membership,
) -> Result<(), PacketSocketError> {
    let (option, number) = ("PACKET_ADD_MEMBERSHIP", libc::PACKET_ADD_MEMBERSHIP);
    set_option(socket.as_fd(), option, number, &request(ifindex, membership))
}

/// Ends a membership before the socket is closed (PACKET_DROP_MEMBERSHIP).
///
/// # Errors
/// [`PacketSocketError::Option`]; EADDRNOTAVAIL if there is none, also after the interface has gone.
pub fn drop_membership(
    socket: impl AsFd,
    ifindex: u32,
    membership: Membership,
) -> Result<(), PacketSocketError> {
    let (option, number) = ("PACKET_DROP_MEMBERSHIP", libc::PACKET_DROP_MEMBERSHIP);
    set_option(socket.as_fd(), option, number, &request(ifindex, membership))
}

fn request(ifindex: u32, membership: Membership) -> libc::packet_mreq {
    let mut wanted = libc::packet_mreq {
        mr_ifindex: ifindex as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    if let Membership::Multicast(address) = membership {
        wanted.mr_type = libc::PACKET_MR_MULTICAST as u16;
        wanted.mr_alen = address.len() as u16;
        wanted.mr_address[..address.len()].copy_from_slice(&address);
    }
    wanted
}

fn set_option<T>(
    socket: BorrowedFd<'_>,
    option: &'static str,
    number: c_int,
    value: &T,
) -> Result<(), PacketSocketError> {
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
    if result == 0 { Ok(()) } else { Err(PacketSocketError::Option { option, source: last_errno() }) }
}

/// Frames lost since the last call because the socket's buffer or ring was full (reading PACKET_STATISTICS resets it).
///
/// # Errors
/// What `getsockopt(2)` returns.
pub fn lost_frames(socket: impl AsFd) -> Result<u32, Errno> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a struct of that size, made of plain integers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(statistics.tp_drops) } else { Err(last_errno()) }
}

/// A packet socket bound to one interface. It blocks unless its descriptor is set to non-blocking.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket that receives the frames of `ethertype` on `ifindex`, from the MAC header on, and sends whole
    /// frames there. With an `ethertype` of 0 it only sends.
    ///
    /// # Errors
    /// What `socket(2)`, `setsockopt(2)` and `bind(2)` return.
    pub fn open(ifindex: u32, ethertype: u16) -> io::Result<Self> {
        let fd = open(SocketType::RAW, SocketFlags::empty())?;
        set(&fd, "PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING, 1)?;
        bind(&fd, ifindex, ethertype)?;
        Ok(Self { fd })
    }

    /// Sets the mark of the frames that it sends (SO_MARK).
    ///
    /// # Errors
    /// What `setsockopt(2)` returns.
    pub fn set_mark(&self, mark: u32) -> Result<(), Errno> {
        // SAFETY: the pointer and length describe `mark`, which lives across the call.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MARK,
                (&raw const mark).cast::<c_void>(),
                size_of_val(&mark) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// The link-layer address of its interface; `None` if it does not have six bytes.
    ///
    /// # Errors
    /// What `getsockname(2)` returns.
    pub fn mac(&self) -> io::Result<Option<[u8; 6]>> {
        // SAFETY: an all-zero sockaddr_ll is a valid value of a struct of plain integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, which lives across the call; the kernel writes no more than `len`.
        let named = unsafe {
            libc::getsockname(self.fd.as_raw_fd(), (&raw mut address).cast::<libc::sockaddr>(), &raw mut len)
        };
        if named != 0 {
            return Err(io::Error::last_os_error());
        }
        let [a, b, c, d, e, f, ..] = address.sll_addr;
        Ok((address.sll_halen == 6).then_some([a, b, c, d, e, f]))
    }

    /// Sends one frame, from its MAC header on.
    ///
    /// # Errors
    /// What `send(2)` returns.
    pub fn send(&self, frame: &[u8]) -> Result<(), Errno> {
        send(&self.fd, frame, SendFlags::empty()).map(|_| ())
    }

    /// Receives one frame and returns its whole length, even if it was truncated to the buffer.
    ///
    /// # Errors
    /// What `recv(2)` returns.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        recv(&self.fd, buffer, RecvFlags::TRUNC).map(|(_, len)| len)
    }
}

/// The index of an interface in the calling thread's namespace.
///
/// # Errors
/// `ENODEV` if there is none of that name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| Errno::NODEV)?;
    // SAFETY: the name is a string that ends in a zero byte and lives across the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The name of an interface of the calling thread's namespace.
///
/// # Errors
/// `ENODEV` if there is none of that index.
pub fn interface_name(ifindex: u32) -> io::Result<String> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(netdevice::index_to_name(socket, ifindex)?)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
