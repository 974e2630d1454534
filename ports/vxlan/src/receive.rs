//! Receives datagrams, several by one system call, and trains of them whole (UDP_GRO).
#![allow(unsafe_code, reason = "recvmmsg(2) takes arrays of pointers")]

use std::ffi::c_void;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use twinpath_sys::last_errno;

use crate::shared::Member;

/// Maximum number of datagrams, or trains of them, that one system call takes.
const MESSAGES: usize = 16;

/// Room for one of them, at the maximum length; only the used part is ever touched.
const ROOM: usize = 1 << 16;

/// The length of each datagram of a train (linux/udp.h).
const UDP_GRO: i32 = 104;

/// Room for two control messages with a number each, aligned as `cmsghdr` must be.
#[repr(align(8))]
#[derive(Clone, Copy, Debug)]
struct Control([u8; 64]);

/// A train of datagrams from one source; usually a single one.
#[derive(Clone, Copy, Debug)]
struct Train {
    from: Ipv6Addr,
    len: usize,
    /// The length of all but the last.
    each: usize,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    /// The source.
    pub(crate) from: Ipv6Addr,
    /// The payload.
    pub(crate) payload: &'a [u8],
    /// This datagram and all that follow it in its train, as they lie in memory.
    pub(crate) rest: &'a [u8],
}

/// The socket that receives, and memory for what it receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    socket: Member,
    memory: Box<[u8]>,
    names: Box<[libc::sockaddr_in6]>,
    controls: Box<[Control]>,
    messages: Box<[libc::mmsghdr]>,
    /// Rewritten for each message of each call.
    vectors: Box<[libc::iovec]>,
    trains: [Train; MESSAGES],
    /// Trains of the last call.
    count: usize,
    /// The first train that is not completely taken, and how much of it is taken.
    next: usize,
    taken: usize,
    /// The kernel's count of datagrams for which there was no room, when it was last reported.
    lost: u32,
}

// SAFETY: the pointers in `messages` and `vectors` are written before each use, and lead into the boxes beside them.
unsafe impl Send for Receiver {}

impl Receiver {
    pub(crate) fn new(socket: Member) -> Self {
        // SAFETY: all-zero values of structs of plain integers and null pointers are valid.
        let (name, message): (libc::sockaddr_in6, libc::mmsghdr) = unsafe { std::mem::zeroed() };
        let nothing = Train { from: Ipv6Addr::UNSPECIFIED, len: 0, each: 0 };
        Self {
            socket,
            memory: vec![0; MESSAGES * ROOM].into_boxed_slice(),
            names: vec![name; MESSAGES].into_boxed_slice(),
            controls: vec![Control([0; 64]); MESSAGES].into_boxed_slice(),
            messages: vec![message; MESSAGES].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MESSAGES].into_boxed_slice(),
            trains: [nothing; MESSAGES],
            count: 0,
            next: 0,
            taken: 0,
            lost: 0,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        self.socket.socket()
    }

    /// Whether there are datagrams that were received and not taken yet.
    #[inline]
    pub(crate) const fn has_more(&self) -> bool {
        self.next < self.count
    }

    /// Receives datagrams; to be called when none is left. Returns how many datagrams were lost since the last call
    /// that received something.
    ///
    /// # Errors
    /// `AGAIN` if there is nothing; what `recvmmsg(2)` returns otherwise.
    pub(crate) fn receive(&mut self) -> Result<u32, Errno> {
        (self.count, self.next, self.taken) = (0, 0, 0);
        for at in 0..MESSAGES {
            let room = &mut self.memory[at * ROOM..(at + 1) * ROOM];
            self.vectors[at] = libc::iovec { iov_base: room.as_mut_ptr().cast::<c_void>(), iov_len: ROOM };
            let message = &mut self.messages[at].msg_hdr;
            message.msg_name = (&raw mut self.names[at]).cast::<c_void>();
            message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            message.msg_iov = &raw mut self.vectors[at];
            message.msg_iovlen = 1;
            message.msg_control = self.controls[at].0.as_mut_ptr().cast::<c_void>();
            message.msg_controllen = size_of::<Control>();
        }
        // SAFETY: each message points at memory, a name and a control buffer of its own, with their lengths, all of which
        // live across the call.
        let count = unsafe {
            libc::recvmmsg(
                self.socket().as_raw_fd(),
                self.messages.as_mut_ptr(),
                MESSAGES as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| last_errno())?;
        let mut lost = self.lost;
        for at in 0..count {
            let (len, message) = (self.messages[at].msg_len as usize, &self.messages[at].msg_hdr);
            let mut each = len;
            visit(message, |level, kind, number| match (level, kind) {
                (libc::SOL_UDP, UDP_GRO) if number > 0 => each = number as usize,
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => lost = number,
                _ => {}
            });
            self.trains[at] = Train { from: Ipv6Addr::from(self.names[at].sin6_addr.s6_addr), len, each };
        }
        self.count = count;
        Ok(lost.wrapping_sub(std::mem::replace(&mut self.lost, lost)))
    }

    /// The next datagram, without taking it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Datagram<'_>> {
        let train = self.trains[..self.count].get(self.next)?;
        let start = self.next * ROOM;
        let rest = &self.memory[start + self.taken..start + train.len];
        Some(Datagram { from: train.from, payload: &rest[..train.each.min(rest.len())], rest })
    }

    /// Takes the next `bytes` bytes of the train that [`Self::peek`] shows: its datagram, or several.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        let is_over = self.trains[..self.count].get(self.next).is_none_or(|train| self.taken >= train.len);
        if is_over {
            (self.next, self.taken) = (self.next + 1, 0);
        }
    }
}

/// Calls `seen` with level, type and value of each control message that holds a number.
fn visit(message: &libc::msghdr, mut seen: impl FnMut(i32, i32, u32)) {
    // SAFETY: the kernel has filled in the message: its control buffer lives, and its length is what was written.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers within the control buffer, or null.
    while let Some(found) = unsafe { header.as_ref() } {
        if found.cmsg_len >= size_of::<libc::cmsghdr>() + size_of::<u32>() {
            // SAFETY: the length above says that four bytes follow the header.
            let number = unsafe { libc::CMSG_DATA(header).cast::<u32>().read_unaligned() };
            seen(found.cmsg_level, found.cmsg_type, number);
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}
