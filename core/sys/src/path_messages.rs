//! Copies of the ICMP messages from which the kernel learns that a path has changed: a packet was too long for it,
//! or there is a better route. The kernel handles them itself, but announces to nobody what it has learnt.
#![allow(unsafe_code, reason = "setsockopt(2) with a filter has no safe wrapper")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with, sockopt};

use crate::errno::last_errno;

/// The longest part of a message that is kept, bytes. Whoever follows the rules sends no longer one: 576 bytes in IPv4
/// (RFC 1812 section 4.3.2.3), 1280 in IPv6 (RFC 4443 section 2.4). So its checksum can be verified.
pub const MESSAGE_BYTES: usize = 1280;

/// Room for a few dozen messages. More than that in one burst are lost; nothing here depends on a single one.
const BUFFER_BYTES: usize = 64 * 1024;

/// The messages of one family. Opening it needs CAP_NET_RAW.
#[derive(Debug)]
pub struct PathMessages {
    fd: OwnedFd,
}

impl PathMessages {
    /// "Fragmentation needed" and redirects of ICMP (RFC 792, RFC 1191). A message is read with its IP header. The kernel
    /// copies it before it verifies the checksum (`raw_local_deliver` of net/ipv4/raw.c).
    ///
    /// # Errors
    /// What the kernel returns: EPERM without CAP_NET_RAW.
    pub fn of_ipv4() -> io::Result<Self> {
        const UNREACHABLE: u32 = 3;
        const FRAGMENTATION_NEEDED: u32 = 4;
        const REDIRECT: u32 = 5;
        let wanted = [
            // The header's length into X, then the type behind it.
            jump(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
            jump(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0, 0, 0),
            jump(IF_EQUAL, REDIRECT, 3, 0),
            jump(IF_EQUAL, UNREACHABLE, 0, 3),
            jump(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 1, 0, 0),
            jump(IF_EQUAL, FRAGMENTATION_NEEDED, 0, 1),
            jump(RETURN, MESSAGE_BYTES as u32, 0, 0),
            jump(RETURN, 0, 0, 0),
        ];
        let opened = Self::open(AddressFamily::INET, ipproto::ICMP, &wanted)?;
        // Other types are not even copied (`icmp_filter` of net/ipv4/raw.c).
        let unwanted: u32 = !(1 << UNREACHABLE | 1 << REDIRECT);
        opened.set(SOL_RAW, ICMP_FILTER, &unwanted)?;
        Ok(opened)
    }

    /// "Packet too big" (RFC 4443, 3.2) and redirects (RFC 4861, 4.5) of ICMPv6. A message is read without its IP header;
    /// its checksum is right (`rawv6_rcv_skb` of net/ipv6/raw.c).
    ///
    /// # Errors
    /// As [`Self::of_ipv4`], and an error if there is no IPv6.
    pub fn of_ipv6() -> io::Result<Self> {
        const TOO_BIG: u32 = 2;
        const REDIRECT: u32 = 137;
        let wanted = [
            jump(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
            jump(IF_EQUAL, REDIRECT, 1, 0),
            jump(IF_EQUAL, TOO_BIG, 0, 1),
            jump(RETURN, MESSAGE_BYTES as u32, 0, 0),
            jump(RETURN, 0, 0, 0),
        ];
        let opened = Self::open(AddressFamily::INET6, ipproto::ICMPV6, &wanted)?;
        // RFC 3542, 3.2.
        let mut unwanted = [u32::MAX; 8];
        for kind in [TOO_BIG, REDIRECT] {
            unwanted[kind as usize / 32] &= !(1 << (kind % 32));
        }
        opened.set(libc::IPPROTO_ICMPV6, ICMP6_FILTER, &unwanted)?;
        Ok(opened)
    }

    fn open(
        family: AddressFamily,
        protocol: rustix::net::Protocol,
        wanted: &[libc::sock_filter],
    ) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
        sockopt::set_socket_recv_buffer_size(&fd, BUFFER_BYTES)?;
        let program = libc::sock_fprog { len: wanted.len() as u16, filter: wanted.as_ptr().cast_mut() };
        let opened = Self { fd };
        opened.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        Ok(opened)
    }

    /// Sets a socket option to a value of the option's type.
    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        // SAFETY: the kernel copies the value, and of a filter's program as many instructions as that says, which are the caller's.
        let set = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if set == 0 { Ok(()) } else { Err(last_errno().into()) }
    }

    /// Reads one message. Does not wait.
    ///
    /// # Errors
    /// What the kernel returns: `WouldBlock` if there is none.
    pub fn read(&self, message: &mut [u8; MESSAGE_BYTES]) -> io::Result<usize> {
        loop {
            match recv(&self.fd, &mut message[..], RecvFlags::empty()) {
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for PathMessages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::os::fd::AsRawFd for PathMessages {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

/// linux/icmp.h, linux/icmpv6.h, linux/socket.h.
const SOL_RAW: c_int = 255;
const ICMP_FILTER: c_int = 1;
const ICMP6_FILTER: c_int = 1;

const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
