//! A packet socket that receives the frames of an interface in both directions, with the kernel's time stamps
//! (packet(7)).
#![allow(unsafe_code, reason = "recvmsg(2) with a timestamp beside the bytes has no safe wrapper")]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, sockopt};

use crate::errno::last_errno;
use crate::packet_socket;

/// Bytes; enough for all frames between two reads. Each frame is charged with the memory of its whole buffer.
const RECEIVE_BUFFER: usize = 64 << 20;

/// Metadata of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tapped {
    /// When the kernel received it, or passed it to the device; nanoseconds since 1970.
    pub at_ns: u64,
    /// Whether it is an outgoing frame.
    pub outgoing: bool,
    /// Bytes that were copied.
    pub kept: usize,
    /// Its length, from the MAC header on.
    pub length: usize,
}

/// Room for one control message: `struct timespec`.
#[repr(C, align(8))]
pub(crate) struct Control(pub(crate) [u8; 64]);

impl Default for Control {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// A tap on one interface: it sees every frame and never blocks.
#[derive(Debug)]
pub struct FrameTap {
    fd: OwnedFd,
}

impl FrameTap {
    /// Taps `interface` of the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel returned: ENODEV without such an interface, EPERM without CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let fd = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK)?;
        let index = rustix::net::netdevice::name_to_index(&fd, interface)?;
        sockopt::set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)?;
        packet_socket::bind(&fd, index, libc::ETH_P_ALL as u16)?;
        Ok(Self { fd })
    }

    /// Takes the next frame; truncated if `buffer` is shorter.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is none; what recvmsg(2) returns otherwise.
    pub fn next(&self, buffer: &mut [u8]) -> Result<Tapped, Errno> {
        let mut address = MaybeUninit::<libc::sockaddr_ll>::zeroed();
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = Control::default();
        // SAFETY: an all-zero msghdr is a valid value: no name, no parts, no control.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_name = address.as_mut_ptr().cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: every pointer in `message` is to a live value of the length said there, for the length of the call.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let length = usize::try_from(length).map_err(|_| last_errno())?;
        // SAFETY: all-zero bytes are a valid sockaddr_ll, and the kernel wrote nothing but integers into it.
        let address = unsafe { address.assume_init() };
        Ok(Tapped {
            at_ns: timestamp(&message).ok_or(Errno::IO)?,
            outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
            kept: length.min(buffer.len()),
            length,
        })
    }

    /// Frames lost since the last call because the socket's buffer was full.
    ///
    /// # Errors
    /// What getsockopt(2) returns.
    pub fn dropped(&self) -> io::Result<u32> {
        Ok(packet_socket::lost_frames(&self.fd)?)
    }
}

impl AsFd for FrameTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn set(fd: impl AsFd, level: i32, option: i32) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and length describe `on`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's stamp in a received message (`CLOCK_REALTIME`, ns).
pub(crate) fn timestamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: `message` is what recvmsg filled in, and its control buffer is still live and aligned for cmsghdr.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the macros give null or a whole header inside the control buffer.
        let found = unsafe { &*header };
        if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            // SAFETY: the kernel puts a whole timespec behind this header; it need not be aligned.
            let time = unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::timespec>()) };
            return Some(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned());
        }
        // SAFETY: as for CMSG_FIRSTHDR; `header` came from it.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn a_frame_over_loopback_is_seen_leaving_and_then_arriving() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let tap = FrameTap::open("lo").unwrap();
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let before = since_1970.as_nanos() as u64;
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let marker = [0xa5; 300];
        from.send_to(&marker, to.local_addr().unwrap()).unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 64];
        let port = from.local_addr().unwrap().port().to_be_bytes();
        while seen.len() < 2 {
            let wait = Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(poll(&mut [PollFd::new(&tap, PollFlags::IN)], Some(&wait)), Ok(1));
            while let Ok(tapped) = tap.next(&mut buffer) {
                if buffer[34..36] == port {
                    seen.push(tapped);
                }
            }
        }
        assert_eq!([seen[0].outgoing, seen[1].outgoing], [true, false]);
        assert!(seen.iter().all(|tapped| tapped.length == 14 + 20 + 8 + marker.len() && tapped.kept == 64));
        assert!(before <= seen[0].at_ns && seen[0].at_ns <= seen[1].at_ns, "{before} {seen:?}");
        assert_eq!(tap.dropped().unwrap(), 0);
    }

    #[test]
    fn a_missing_interface_is_an_error() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        assert!(FrameTap::open("no-such-one").is_err());
    }
}
