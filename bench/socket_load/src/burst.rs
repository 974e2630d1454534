//! Many datagrams per system call: `recvmmsg(2)` and `sendmmsg(2)` over buffers that are allocated once.
#![allow(unsafe_code, reason = "rustix has no recvmmsg; the kernel is handed arrays of pointers")]

use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

/// Maximum number of datagrams in one burst.
pub(crate) const BURST_MAX: usize = 64;
/// Bytes of one control message carrying an `int`, rounded up: `CMSG_SPACE(4)` is 24 on 64-bit Linux.
const CONTROL_BYTES: usize = 32;

/// Control data, aligned as `cmsghdr` asks.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// A burst of datagrams with their addresses.
pub(crate) struct Burst {
    slot_bytes: usize,
    buffers: Box<[u8]>,
    lens: Box<[usize]>,
    names: Box<[libc::sockaddr_storage]>,
    name_lens: Box<[u32]>,
    controls: Box<[Control]>,
    /// Segment size that the kernel reported per datagram; zero if the datagram was not coalesced (GRO).
    segment_sizes: Box<[u16]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

impl Burst {
    /// Buffers for `slots` datagrams (at most [`BURST_MAX`]) of `slot_bytes` each.
    pub(crate) fn new(slots: usize, slot_bytes: usize) -> Self {
        let slots = slots.clamp(1, BURST_MAX);
        // SAFETY: all zeroes is a value of each of these plain C structs (null pointers, no family).
        let (name, header) = unsafe { (zeroed::<libc::sockaddr_storage>(), zeroed::<libc::mmsghdr>()) };
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            slot_bytes,
            buffers: vec![0; slots * slot_bytes].into(),
            lens: vec![0; slots].into(),
            names: vec![name; slots].into(),
            name_lens: vec![0; slots].into(),
            controls: vec![Control([0; CONTROL_BYTES]); slots].into(),
            segment_sizes: vec![0; slots].into(),
            vectors: vec![vector; slots].into(),
            headers: vec![header; slots].into(),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.lens.len()
    }

    /// The datagram in `slot`.
    #[inline]
    pub(crate) fn payload(&self, slot: usize) -> &[u8] {
        &self.buffers[slot * self.slot_bytes..][..self.lens[slot]]
    }

    /// A buffer for a datagram of `len` bytes in `slot`.
    #[inline]
    pub(crate) fn payload_mut(&mut self, slot: usize, len: usize) -> &mut [u8] {
        self.lens[slot] = len;
        &mut self.buffers[slot * self.slot_bytes..][..len]
    }

    /// See [`Self::segment_sizes`].
    pub(crate) fn segment_size(&self, slot: usize) -> u16 {
        self.segment_sizes[slot]
    }

    /// Replaces each request in `slot`, coalesced or not, by a reply of `bytes`: `write` turns the start of
    /// a buffer into the reply. If coalesced requests are smaller than a reply, only the first one is
    /// answered.
    #[inline]
    pub(crate) fn rewrite(&mut self, slot: usize, bytes: usize, write: impl Fn(&mut [u8])) {
        let buffer = &mut self.buffers[slot * self.slot_bytes..][..self.slot_bytes];
        let request_bytes = usize::from(self.segment_sizes[slot]);
        let requests = if request_bytes < bytes { 1 } else { self.lens[slot].div_ceil(request_bytes).max(1) };
        for request in 0..requests {
            let (from, to) = (request * request_bytes, request * bytes);
            buffer.copy_within(from..(from + bytes).min(self.slot_bytes), to);
            write(&mut buffer[to..to + bytes]);
        }
        self.lens[slot] = requests * bytes;
        self.segment_sizes[slot] = if requests > 1 { bytes as u16 } else { 0 };
    }

    /// Makes the datagram in `slot` look as if the kernel had coalesced it.
    #[cfg(test)]
    pub(crate) fn mark_coalesced(&mut self, slot: usize, segment_bytes: u16) {
        self.segment_sizes[slot] = segment_bytes;
    }

    /// Receives up to `slots()` datagrams: sleeps for the first one unless `nonblocking`, never for the others. With
    /// `named`, stores their senders; with `coalesced`, the segment sizes (`UDP_GRO`).
    #[inline]
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        nonblocking: bool,
        named: bool,
        coalesced: bool,
    ) -> Result<usize, Errno> {
        for slot in 0..self.slots() {
            self.lens[slot] = self.slot_bytes;
            self.point(slot, named, coalesced);
        }
        let flags = if nonblocking { libc::MSG_DONTWAIT } else { libc::MSG_WAITFORONE };
        // SAFETY: `point` made each header refer to live memory of this burst: a vector of one buffer, and a name
        // and control area of the lengths told. Nothing else touches them before the call returns.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                flags,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(result).map_err(|_| last_error())?;
        for slot in 0..count {
            let header = &self.headers[slot];
            self.lens[slot] = header.msg_len as usize;
            self.name_lens[slot] = header.msg_hdr.msg_namelen;
            if coalesced {
                self.segment_sizes[slot] = self.reported_segment_size(slot);
            }
        }
        Ok(count)
    }

    /// Sends `slots`, to their senders if `named`, else to the connected peer; returns how many were sent.
    #[inline]
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: std::ops::Range<usize>,
        named: bool,
    ) -> Result<usize, Errno> {
        for slot in slots.clone() {
            self.point(slot, false, false);
            if named {
                let header = &mut self.headers[slot].msg_hdr;
                header.msg_name = ptr::from_mut(&mut self.names[slot]).cast();
                header.msg_namelen = self.name_lens[slot];
            }
        }
        let headers = &mut self.headers[slots];
        // SAFETY: as in `receive`; the kernel only reads what the headers refer to.
        let result =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, 0) };
        usize::try_from(result).map_err(|_| last_error())
    }

    /// Sends `slots` as one message, to the sender of the first one if `named`; the kernel or the device segments it
    /// into datagrams of `segment_bytes` (`UDP_SEGMENT`, udp(7)). All slots but the last must hold a multiple of
    /// that.
    pub(crate) fn send_segmented(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: std::ops::Range<usize>,
        segment_bytes: u16,
        named: bool,
    ) -> Result<(), Errno> {
        let first = slots.start;
        for slot in slots.clone() {
            self.point(slot, false, false);
        }
        let mut header = self.headers[first].msg_hdr;
        if named {
            header.msg_name = ptr::from_mut(&mut self.names[first]).cast();
            header.msg_namelen = self.name_lens[first];
        }
        header.msg_iov = ptr::from_mut(&mut self.vectors[first]);
        header.msg_iovlen = slots.len();
        header.msg_control = self.controls[first].0.as_mut_ptr().cast();
        // SAFETY: the control area is aligned for `cmsghdr` and holds CMSG_SPACE(2) bytes (24), which are told.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(2) as usize;
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            (*control).cmsg_level = libc::SOL_UDP;
            (*control).cmsg_type = libc::UDP_SEGMENT;
            (*control).cmsg_len = libc::CMSG_LEN(2) as usize;
            libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment_bytes);
        }
        // SAFETY: the vectors of `slots` are contiguous and point into this burst's buffers, as do name and control.
        let result = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, 0) };
        if result < 0 { Err(last_error()) } else { Ok(()) }
    }

    /// Whether two datagrams came from the same sender.
    pub(crate) fn same_sender(&self, one: usize, other: usize) -> bool {
        let name = |slot: usize| {
            let len = (self.name_lens[slot] as usize).min(size_of::<libc::sockaddr_storage>());
            // SAFETY: any `len` bytes within a `sockaddr_storage` that began zeroed are initialised bytes.
            unsafe { std::slice::from_raw_parts(ptr::from_ref(&self.names[slot]).cast::<u8>(), len) }
        };
        name(one) == name(other)
    }

    /// Makes the header of `slot` refer to its buffer and, if asked, to its name and control area.
    #[inline]
    fn point(&mut self, slot: usize, named: bool, controlled: bool) {
        let buffer = &mut self.buffers[slot * self.slot_bytes..][..self.lens[slot]];
        self.vectors[slot] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let header = &mut self.headers[slot].msg_hdr;
        header.msg_iov = ptr::from_mut(&mut self.vectors[slot]);
        header.msg_iovlen = 1;
        header.msg_flags = 0;
        (header.msg_name, header.msg_namelen) = if named {
            (ptr::from_mut(&mut self.names[slot]).cast(), size_of::<libc::sockaddr_storage>() as u32)
        } else {
            (ptr::null_mut(), 0)
        };
        (header.msg_control, header.msg_controllen) = if controlled {
            (self.controls[slot].0.as_mut_ptr().cast(), CONTROL_BYTES)
        } else {
            (ptr::null_mut(), 0)
        };
    }

    /// The segment size from the `UDP_GRO` control message of a received datagram; zero without one.
    fn reported_segment_size(&self, slot: usize) -> u16 {
        let header = &self.headers[slot].msg_hdr;
        // SAFETY: the kernel filled the control area up to the length now in the header; CMSG_FIRSTHDR returns null
        // when that holds no whole header, and the one message asked for (an int) fits.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(ptr::from_ref(header));
            if control.is_null()
                || ((*control).cmsg_level, (*control).cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO)
            {
                return 0;
            }
            u16::try_from(libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned()).unwrap_or(0)
        }
    }
}

/// Makes the kernel coalesce datagrams of one flow and report their size (`UDP_GRO`).
pub(crate) fn receive_coalesced(socket: impl AsFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int, whose address and size are given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const on).cast(),
            size_of_val(&on) as u32,
        )
    };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
