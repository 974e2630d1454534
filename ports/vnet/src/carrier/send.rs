//! Sends bursts: one system call for frames of all ports.
#![allow(unsafe_code, reason = "sendmmsg(2) takes arrays of pointers")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Burst, Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_packet::chain::refusal;
use twinpath_port::fit::is_plain;
use twinpath_port::{CarriedPort, CarriedPorts, PortCounters, vnet_header};
use twinpath_sys::last_errno;

use crate::carrier::open::BUFFER_BYTES;
use crate::carrier::spare::{SPARES_MAX, Spares, queued};

/// Maximum number of frame parts that one system call passes. A frame with its header has two, a long chain up to
/// 65.
const VECTORS_MAX: usize = 1024;

/// Maximum number of frames in a chain that is sent.
const CHAIN_MAX: usize = 64;

const _: () = assert!(VECTORS_MAX > CHAIN_MAX);

/// The socket through which a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// With a virtio-net header in front, through the qdisc and the programs at tc egress.
    Whole,
    /// Without either: the kernel has nothing to do for the frame, and the interface has no queue of its own.
    Plain,
    /// As [`Way::Whole`], by the spare socket with this index.
    Spare(usize),
}

impl Way {
    /// Its bit in a set of them.
    const fn bit(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Plain => 2,
            Self::Spare(place) => 4 << place,
        }
    }
}

/// In a set of full sockets: no spare one is available.
const NO_SPARE: u32 = 1 << 31;

const _: () = assert!(SPARES_MAX + 2 < 31);

/// The sockets that send, and the buffers that describe a burst to the kernel; allocated once.
#[derive(Debug)]
pub(crate) struct Sender {
    whole: OwnedFd,
    plain: OwnedFd,
    spares: Spares,
    messages: Box<[libc::mmsghdr]>,
    addresses: Box<[libc::sockaddr_ll]>,
    headers: Box<[[u8; vnet_header::LEN]]>,
    vectors: Box<[libc::iovec]>,
}

// SAFETY: the pointers in `messages` lead into `addresses` and `vectors`, which move along (a box's contents stay put);
// those in `vectors` are written before each use.
unsafe impl Send for Sender {}

impl Sender {
    pub(crate) fn new([whole, plain]: [OwnedFd; 2]) -> Self {
        // SAFETY: an all-zero sockaddr_ll is a valid value of a struct of plain integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        let mut addresses = vec![address; BURST_MAX].into_boxed_slice();
        let messages = addresses
            .iter_mut()
            .map(|address| {
                // SAFETY: an all-zero mmsghdr is a valid value: null pointers and zero lengths.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_name = ptr::from_mut(address).cast::<c_void>();
                message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                message
            })
            .collect();
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            whole,
            plain,
            spares: Spares::new(),
            messages,
            addresses,
            headers: vec![[0; vnet_header::LEN]; BURST_MAX].into_boxed_slice(),
            vectors: vec![nothing; VECTORS_MAX].into_boxed_slice(),
        }
    }

    /// Keeps the spare socket that came with a port.
    pub(crate) fn add_spare(&mut self, socket: &Arc<OwnedFd>) {
        self.spares.add(socket);
    }

    /// Sends all frames of the burst in order, each through its port. A frame that the kernel refuses is counted
    /// for its port.
    pub(crate) fn send(
        &mut self,
        burst: &mut Burst,
        ports: &CarriedPorts,
        own: &PortCounters,
        pool: &mut Pool,
    ) {
        let frames = burst.frames();
        let counters_of = |frame: &Frame| ports.get(frame.meta().port).map_or(own, |port| &port.counters);
        let (whole, plain) = (&self.whole, &self.plain);
        self.spares.give_back(|| queued(whole).max(queued(plain)) < BUFFER_BYTES);
        // The sockets that hold as much as they may.
        let mut full = 0_u32;
        let mut done = 0;
        while let Some(rest) = frames.get(done..).filter(|rest| !rest.is_empty()) {
            let Some(port) = ports.get(rest[0].meta().port) else {
                own.drops.add(Reason::PortDown, 1);
                done += 1;
                continue;
            };
            let Some(way) = self.way_with_room(&rest[0], port, &mut full) else {
                port.counters.drops.add(Reason::PortFull, 1);
                done += 1;
                continue;
            };
            let count = self.lay_out(rest, way, ports);
            if count == 0 {
                port.counters.drops.add(Reason::FrameTooLarge, 1);
                done += 1;
                continue;
            }
            own.kicks.add(1);
            // SAFETY: the first `count` messages point at addresses and vectors that describe living headers and frames;
            // the kernel only reads them (sending never writes through iov_base) and copies before it returns.
            let sent = unsafe {
                let socket = self.socket(way).as_raw_fd();
                libc::sendmmsg(socket, self.messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
            };
            if let Ok(sent) = usize::try_from(sent) {
                for frame in &rest[..sent] {
                    let counters = counters_of(frame);
                    counters.frames_out.add(1);
                    counters.bytes_out.add(frame.chain_len() as u64);
                    counters.count_super_frame_out(frame);
                }
                done += sent;
                continue;
            }
            match last_errno() {
                // A signal came before any frame was sent.
                Errno::INTR => {}
                // The kernel already holds as much of this socket as it may.
                Errno::AGAIN => full |= way.bit(),
                // The error is for the first frame; the others may go to other ports.
                error => {
                    port.counters.drops.add(refusal(error), 1);
                    done += 1;
                }
            }
        }
        burst.release(usize::MAX, pool);
    }

    fn socket(&self, way: Way) -> &OwnedFd {
        match way {
            Way::Whole => &self.whole,
            Way::Plain => &self.plain,
            Way::Spare(place) => self.spares.socket(place),
        }
    }

    /// The socket through which a frame leaves, other than the full ones. `None` if it cannot leave: its port has
    /// as much queued as it may, or all spare sockets belong to stuck ports.
    #[inline]
    fn way_with_room(&mut self, frame: &Frame, port: &CarriedPort, full: &mut u32) -> Option<Way> {
        let way = way_of(frame, port, &self.spares);
        if way.bit() & *full == 0 {
            return Some(way);
        }
        match way {
            Way::Whole | Way::Plain if *full & NO_SPARE == 0 => {
                let spare = self.spares.give(port.port).map(Way::Spare);
                // A search costs a system call for each socket, so it is made only once in a burst.
                *full |= if spare.is_none() { NO_SPARE } else { 0 };
                spare
            }
            _ => None,
        }
    }

    /// Describes frames, from the first one on, while they leave through the same socket, their ports are carried
    /// and there is room. Returns their number.
    fn lay_out(&mut self, frames: &[Frame], way: Way, ports: &CarriedPorts) -> usize {
        let Self { messages, addresses, headers, vectors, spares, .. } = self;
        let mut used = 0;
        let places = messages.iter_mut().zip(addresses.iter_mut()).zip(headers.iter_mut());
        for (at, (frame, ((message, address), header))) in frames.iter().zip(places).enumerate() {
            let Some(port) = ports.get(frame.meta().port) else { return at };
            if way_of(frame, port, spares) != way {
                return at;
            }
            address.sll_ifindex = port.ifindex.cast_signed();
            let parts = match way {
                Way::Plain => vectors.get_mut(used).map(|place| {
                    *place = vector(frame.bytes());
                    1
                }),
                Way::Whole | Way::Spare(_) => {
                    *header = vnet_header::encode(frame.meta());
                    describe(frame, header, &mut vectors[used..])
                }
            };
            let Some(parts) = parts else { return at };
            message.msg_hdr.msg_iov = vectors[used..].as_mut_ptr();
            message.msg_hdr.msg_iovlen = parts;
            used += parts;
        }
        frames.len().min(BURST_MAX)
    }
}

#[inline]
fn way_of(frame: &Frame, port: &CarriedPort, spares: &Spares) -> Way {
    if let Some(place) = spares.of(port.port) {
        return Way::Spare(place);
    }
    if port.bypass_qdisc && is_plain(frame) { Way::Plain } else { Way::Whole }
}

/// A vector over bytes that the kernel only reads.
fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() }
}

/// Vectors over the header and the parts of a frame, with adjacent ones joined; returns their number. `None` if
/// there is no room for them.
fn describe(frame: &Frame, header: &[u8], vectors: &mut [libc::iovec]) -> Option<usize> {
    let (first, rest) = vectors.split_first_mut()?;
    *first = vector(header);
    let mut count = 0_usize;
    for part in frame.chain() {
        let next = vector(part.bytes());
        if let Some(last) = count.checked_sub(1).map(|last| &mut rest[last])
            && last.iov_base.wrapping_byte_add(last.iov_len) == next.iov_base
        {
            last.iov_len += next.iov_len;
            continue;
        }
        if count == CHAIN_MAX {
            return None;
        }
        *rest.get_mut(count)? = next;
        count += 1;
    }
    Some(1 + count)
}
