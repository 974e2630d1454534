//! A plain packet socket for whole frames of one EtherType, one system call each (packet(7)).
#![allow(unsafe_code, reason = "sockaddr_ll has no safe wrapper")]

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

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
    /// What `socket(2)` and `bind(2)` return.
    pub fn open(ifindex: u32, ethertype: u16) -> io::Result<Self> {
        // No protocol yet: before the bind it would get the frames of every interface.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        // SAFETY: an all-zero sockaddr_ll is a valid value of a struct of plain integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = ifindex as i32;
        // SAFETY: the pointer and length describe `address`, which lives across the call.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast::<libc::sockaddr>(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        let on: libc::c_int = 1;
        // SAFETY: the pointer and length describe `on`, which lives across the call.
        let ignored = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const on).cast::<c_void>(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if ignored != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd })
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

    /// Receives one frame and returns its whole length, also if it was truncated to the buffer.
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

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
