//! Sends bursts: one system call for frames with the same source port, and one message for frames of equal length
//! to one remote. The kernel splits the message into datagrams as late as it can (UDP_SEGMENT, udp(7)).
#![allow(unsafe_code, reason = "sendmmsg(2) takes arrays of pointers")]

use std::ffi::c_void;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Frame};
use twinpath_inspect::Reason;
use twinpath_port::PortCounters;
use twinpath_sys::last_errno;
use twinpath_wire::vxlan;

use crate::flow;
use crate::remotes::{Remotes, Target};

/// Maximum number of messages, and of frame parts, that one system call passes.
const MESSAGES: usize = 64;
const VECTORS: usize = 1024;

/// Maximum number of datagrams in one message (`UDP_MAX_SEGMENTS`, linux/udp.h; later kernels take more).
const DATAGRAMS_MAX: usize = 64;
/// Maximum number of bytes in one message: the payload of the longest datagram over IPv4.
const BYTES_MAX: usize = 65_507;

/// Room for a control message with the length of datagrams, aligned as `cmsghdr` must be.
#[repr(align(8))]
#[derive(Clone, Copy, Debug)]
struct Control([u8; 24]);

/// The contents of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    remote: u16,
    frames: usize,
    /// Bytes of frames.
    bytes: usize,
    /// The length of each datagram but the last one, which may be shorter.
    each: usize,
    /// Whether another frame may follow.
    is_open: bool,
}

/// The sockets that send, and the buffers that describe frames to the kernel; allocated once.
#[derive(Debug)]
pub(crate) struct Sender {
    sources: Vec<OwnedFd>,
    header: Box<[u8; vxlan::HEADER_LEN]>,
    names: Box<[libc::sockaddr_in6]>,
    messages: Box<[libc::mmsghdr]>,
    described: [Message; MESSAGES],
    controls: Box<[Control]>,
    vectors: Box<[libc::iovec]>,
    /// How many of each are in use.
    count: usize,
    parts: usize,
    /// Whether the kernel can segment for the devices in use.
    joins: bool,
}

// SAFETY: the pointers in `messages` and `vectors` are written before each use; those into the boxes beside them stay
// right, as a box's contents stay put.
unsafe impl Send for Sender {}

impl Sender {
    pub(crate) fn new(
        sources: Vec<OwnedFd>,
        vni: u32,
        remotes: impl Iterator<Item = Ipv6Addr>,
        udp_port: u16,
    ) -> Self {
        let names = remotes.map(|remote| {
            // SAFETY: all-zero values of a struct of plain integers are valid.
            let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            name.sin6_family = libc::AF_INET6 as u16;
            name.sin6_port = udp_port.to_be();
            name.sin6_addr.s6_addr = remote.octets();
            name
        });
        // SAFETY: all-zero values of a struct of plain integers and null pointers are valid.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            sources,
            header: Box::new(vxlan::header(vni)),
            names: names.collect(),
            messages: vec![message; MESSAGES].into_boxed_slice(),
            described: [Message::default(); MESSAGES],
            controls: vec![Control([0; 24]); MESSAGES].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; VECTORS].into_boxed_slice(),
            count: 0,
            parts: 0,
            joins: true,
        }
    }

    /// Sends frames to their remotes, those of a flow in order. Frames that the kernel refuses are counted.
    pub(crate) fn send(&mut self, frames: &[Frame], remotes: &Remotes, counters: &PortCounters) {
        let mut source_of = [0_u8; BURST_MAX];
        let mut used = 0_u32;
        for (frame, source) in frames.iter().zip(&mut source_of) {
            *source = (flow::of(frame.bytes()) as usize % self.sources.len()) as u8;
            used |= 1 << *source;
        }
        for source in (0..self.sources.len()).filter(|source| used & 1 << source != 0) {
            let of_source = frames.iter().zip(source_of).filter(|(_, of)| usize::from(*of) == source);
            for (frame, _) in of_source {
                match remotes.target(frame.bytes(), frame.meta().arrival) {
                    Target::One(remote) => self.put(frame, remote, source, counters),
                    Target::All => {
                        (0..remotes.count())
                            .for_each(|remote| self.put(frame, remote as u16, source, counters));
                    }
                }
            }
            self.flush(source, counters);
        }
    }

    /// Adds a datagram with this frame to the messages. If there is no room for it, the messages are sent first.
    fn put(&mut self, frame: &Frame, remote: u16, source: usize, counters: &PortCounters) {
        let (parts, bytes) = (1 + frame.chain().count(), frame.chain_len());
        let len = vxlan::HEADER_LEN + bytes;
        if len > BYTES_MAX || parts > VECTORS {
            return counters.drops.add(Reason::FrameTooLarge, 1);
        }
        if self.parts + parts > VECTORS {
            self.flush(source, counters);
        }
        let joins = self.joins
            && self.last().is_some_and(|last| {
                last.is_open
                    && last.remote == remote
                    && len <= last.each
                    && last.frames < DATAGRAMS_MAX
                    && last.bytes + last.frames * vxlan::HEADER_LEN + len <= BYTES_MAX
            });
        if !joins {
            if self.count == MESSAGES {
                self.flush(source, counters);
            }
            self.begin(remote, len);
        }
        self.describe(frame);
        let last = self.count - 1;
        self.messages[last].msg_hdr.msg_iovlen += parts;
        let message = &mut self.described[last];
        (message.frames, message.bytes) = (message.frames + 1, message.bytes + bytes);
        message.is_open = len == message.each;
    }

    fn last(&self) -> Option<&Message> {
        self.described.get(self.count.checked_sub(1)?)
    }

    /// Begins a message with datagrams of `each` bytes.
    fn begin(&mut self, remote: u16, each: usize) {
        let message = &mut self.messages[self.count].msg_hdr;
        message.msg_name = (&raw mut self.names[usize::from(remote)]).cast::<c_void>();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        message.msg_iov = self.vectors[self.parts..].as_mut_ptr();
        message.msg_iovlen = 0;
        self.described[self.count] = Message { remote, each, is_open: true, ..Message::default() };
        self.count += 1;
    }

    /// Adds vectors over the header and the parts of a frame.
    fn describe(&mut self, frame: &Frame) {
        let vector = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: bytes.len(),
        };
        self.vectors[self.parts] = vector(&self.header[..]);
        for (place, part) in self.vectors[self.parts + 1..].iter_mut().zip(frame.chain()) {
            *place = vector(part.bytes());
        }
        self.parts += 1 + frame.chain().count();
    }

    /// Sends all messages of that source port.
    fn flush(&mut self, source: usize, counters: &PortCounters) {
        for at in 0..self.count {
            let Message { frames, each, .. } = self.described[at];
            let message = &mut self.messages[at].msg_hdr;
            (message.msg_control, message.msg_controllen) = (ptr::null_mut(), 0);
            if frames > 1 {
                message.msg_controllen = put_segment_size(&mut self.controls[at], each as u16);
                message.msg_control = self.controls[at].0.as_mut_ptr().cast::<c_void>();
            }
        }
        let mut done = 0;
        while done < self.count {
            counters.kicks.add(1);
            // SAFETY: the messages point at names, control messages and vectors that describe the header and living frames; the
            // kernel only reads them (sending never writes through iov_base) and copies before it returns.
            let sent = unsafe {
                libc::sendmmsg(
                    self.sources[source].as_raw_fd(),
                    self.messages[done..].as_mut_ptr(),
                    (self.count - done) as u32,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if let Ok(sent) = usize::try_from(sent) {
                for message in &self.described[done..done + sent] {
                    counters.frames_out.add(message.frames as u64);
                    counters.bytes_out.add(message.bytes as u64);
                    if message.frames > 1 {
                        counters.frames_joined.add(message.frames as u64);
                    }
                }
                done += sent;
                continue;
            }
            let first = self.described[done];
            match last_errno() {
                // A signal came before anything was sent.
                Errno::INTR => {}
                // The kernel already holds as much of this socket as it may: the others would fail as well.
                Errno::AGAIN => {
                    let frames: usize =
                        self.described[done..self.count].iter().map(|message| message.frames).sum();
                    counters.drops.add(Reason::PortFull, frames as u64);
                    done = self.count;
                }
                // The error is for the first message; the others may go to other remotes.
                error => {
                    if error == Errno::IO && first.frames > 1 {
                        // The device computes no checksums, so the kernel does not segment for it.
                        self.joins = false;
                        counters.super_frames_refused.add(1);
                    }
                    counters.drops.add(refusal(error), first.frames as u64);
                    done += 1;
                }
            }
        }
        (self.count, self.parts) = (0, 0);
    }
}

/// Why the kernel did not take a message.
const fn refusal(error: Errno) -> Reason {
    match error {
        // Longer than the MTU of the route. For several datagrams, kernels before 6.13 return EINVAL in this case.
        Errno::MSGSIZE | Errno::INVAL => Reason::FrameTooLarge,
        Errno::NOBUFS | Errno::NOMEM => Reason::PortFull,
        Errno::IO => Reason::OffloadRefused,
        // ENETUNREACH, EHOSTUNREACH: no route. EPERM: a packet filter of the host.
        _ => Reason::PortDown,
    }
}

/// Writes the control message with the length of datagrams; returns its length.
fn put_segment_size(control: &mut Control, each: u16) -> usize {
    // SAFETY: these only compute sizes.
    let (len, space) = unsafe {
        let size = size_of::<u16>() as u32;
        (libc::CMSG_LEN(size) as usize, libc::CMSG_SPACE(size) as usize)
    };
    let header = libc::cmsghdr { cmsg_len: len, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
    let base = control.0.as_mut_ptr();
    // SAFETY: `Control` is aligned for a cmsghdr and not smaller than `space`, which covers the header and the data behind it.
    unsafe {
        base.cast::<libc::cmsghdr>().write(header);
        libc::CMSG_DATA(base.cast::<libc::cmsghdr>()).cast::<u16>().write_unaligned(each);
    }
    space
}
