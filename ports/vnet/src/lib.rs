//! A port over a TAP queue or a packet socket: each read or write moves one packet with its virtio-net header.
//!
//! A TAP queue ([`Tap`]) and a packet socket with PACKET_VNET_HDR ([`open_socket`]) use the same format, so
//! [`VnetPort`] serves both. Together they carry frames between a device and the kernel's own stack (the exception
//! port). Packets keep the offloads of their sender (checksums to be completed, segmentation to be done), so a
//! packet of 64 KiB crosses whole, as a chain of frames.
//!
//! [`carrier`] is a port over one packet socket for all interfaces of a network namespace.
//!
//! There is no ring to look at: [`VnetPort::receive`] tries to read, one system call, and the worker waits on its
//! epoll. The number of tries per turn depends on the results of the last turns: one while frames come singly, a
//! few under load. Packets that do not fit into the pool stay in the kernel.
//!
//! An 802.1Q tag that came beside the frame is inserted into it, because neither fd accepts a tag in another way.
//!
//! Never here: a timer, a sleep, a decision about where a frame goes.
#![allow(unsafe_code, reason = "readv(2), writev(2) and recvmsg(2) take arrays of pointers")]

pub mod carrier;
mod socket;
mod tap;

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Burst, Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_port::fit::insert_tag;
use twinpath_port::{
    Capabilities, GsoKinds, PortId, PortQueue, QueueInfo, Received, WaitSource, vnet_header,
};
use twinpath_rings::pending::Pending;
use twinpath_sys::last_errno;
use twinpath_time::Instant;
use twinpath_wire::eth::{self, EtherType, TAG_LEN};

use twinpath_packet::chain::{CHAIN, Outgoing, PACKET_LEN_MAX, Prepared, refusal};

pub use crate::socket::{SocketConfig, open_socket};
pub use crate::tap::{NAME_LEN_MAX, Offloads, Tap, TapError, TapHandle};

/// Maximum number of reads that one call of [`VnetPort::receive`] tries. It is small: each frame costs a system
/// call on either side in any case, so a larger burst would save nothing, and would delay the frames of the other
/// direction.
const TRIES_MAX: usize = 8;

/// Chunks that one call of [`VnetPort::receive`] takes, exceeded by at most one packet: two of the largest packets.
const CHUNKS_PER_TURN: usize = 2 * CHAIN;

/// Maximum number of frames that one queue may hold: those for the next read, and a burst in transit plus one
/// packet.
pub const QUEUE_FRAMES: u32 = (CHAIN + CHUNKS_PER_TURN + CHAIN) as u32;

/// Maximum number of frames dropped in one go after the worker was stuck: more than a queue on either side holds,
/// even of small frames.
const DISCARDS_MAX: u64 = 1 << 16;

const _: () = assert!(TRIES_MAX <= BURST_MAX && TRIES_MAX <= CHUNKS_PER_TURN);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    Socket,
}

/// A queue over a TAP queue or a packet socket.
#[derive(Debug)]
pub struct VnetPort {
    info: QueueInfo,
    kind: Kind,
    fd: OwnedFd,
    /// The kinds of super-frames that the kernel accepts from us.
    segmentation: GsoKinds,
    prepared: Prepared,
    outgoing: Outgoing,
    /// Reads to try in the next turn.
    tries: usize,
    /// Whether the TAP interface was removed.
    gone: bool,
    /// The words of the frames that wait here, and of those that wait on the other side of the same worker.
    pending: Option<[Pending; 2]>,
}

/// The result of one read.
enum Read {
    /// Bytes without the header, and a tag that came beside them.
    Packet {
        len: usize,
        tag: Option<Tag>,
    },
    Nothing,
    Dropped(Reason),
    Broken,
}

/// An 802.1Q or 802.1ad tag: protocol and control information, as on the wire.
type Tag = [u8; TAG_LEN];

impl VnetPort {
    /// A queue of the TAP interface `ifindex`.
    #[must_use]
    pub fn tap(id: PortId, ifindex: u32, queue: OwnedFd) -> Self {
        Self::new(id, ifindex, Kind::Tap, queue)
    }

    /// A queue on a packet socket bound to `ifindex`, from [`open_socket`].
    #[must_use]
    pub fn socket(id: PortId, ifindex: u32, socket: OwnedFd) -> Self {
        Self::new(id, ifindex, Kind::Socket, socket)
    }

    fn new(id: PortId, ifindex: u32, kind: Kind, fd: OwnedFd) -> Self {
        let (prepared, outgoing) = (Prepared::new(), Outgoing::new());
        Self {
            info: QueueInfo::new(id, ifindex),
            kind,
            fd,
            segmentation: GsoKinds::ALL,
            prepared,
            outgoing,
            tries: 1,
            gone: false,
            pending: None,
        }
    }

    /// Makes it send only super-frames of these kinds; a kernel that does not know a kind refuses it.
    #[must_use]
    pub const fn segmenting(mut self, segmentation: GsoKinds) -> Self {
        self.segmentation = segmentation;
        self
    }

    /// Makes the queue clear its word (the first of the two) before each look, so that a BPF program can detect a
    /// stuck worker. The second word belongs to the queue on the other side of the same worker. If the program has
    /// withdrawn either, the kernel has carried later frames by itself, and the frames that the worker still holds
    /// are dropped.
    #[must_use]
    pub fn failing_open(mut self, pending: Option<[Pending; 2]>) -> Self {
        self.pending = pending;
        self
    }

    /// Drops the frames that waited while the worker was stuck.
    #[cold]
    fn discard(&mut self, pool: &mut Pool) {
        let mut frames = 0;
        while frames < DISCARDS_MAX && self.prepared.refill(pool) {
            match self.read() {
                Read::Packet { .. } | Read::Dropped(_) => frames += 1,
                Read::Nothing | Read::Broken => break,
            }
        }
        self.info.counters.times_stuck.add(1);
        self.info.counters.drops.add(Reason::WorkerStuck, frames);
        if let Some([own, _]) = &self.pending {
            own.resume();
        }
    }

    fn read(&mut self) -> Read {
        let (read, tag) = match self.kind {
            Kind::Tap => (read_tap(&self.fd, self.prepared.vectors()), None),
            Kind::Socket => read_socket(&self.fd, self.prepared.vectors()),
        };
        match read {
            Ok(len) if len < vnet_header::LEN + eth::HEADER_LEN => Read::Dropped(Reason::Truncated),
            Ok(len) if len > vnet_header::LEN + PACKET_LEN_MAX => Read::Dropped(Reason::FrameTooLarge),
            Ok(len) => Read::Packet { len: len - vnet_header::LEN, tag },
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            // The kernel dropped the packet: its kind of segmentation cannot be expressed in a virtio-net header.
            Err(Errno::INVAL) => Read::Dropped(Reason::OffloadRefused),
            // ENETDOWN once when the device goes down; EBADFD when the TAP interface is gone; EIO while it is down.
            Err(_) => Read::Broken,
        }
    }

    /// The packet that was read, as a frame or a chain.
    fn packet(&mut self, pool: &mut Pool, len: usize, tag: Option<Tag>) -> Result<Frame, Reason> {
        let header = *self.prepared.header();
        let mut frame = self.prepared.take(len).ok_or(Reason::FrameTooLarge)?;
        let known = vnet_header::decode(&header, frame.meta_mut()).is_ok();
        if known && tag.is_none_or(|tag| insert_tag(&mut frame, tag)) {
            return Ok(frame);
        }
        pool.release(frame);
        Err(Reason::OffloadRefused)
    }
}

impl WaitSource for VnetPort {
    /// Nothing can be checked without a system call. The fd is level-triggered, so a sleeping worker misses
    /// nothing.
    #[inline]
    fn look(&self) -> bool {
        false
    }

    fn arm(&mut self) -> bool {
        // Frames from before the mark must be discarded first.
        self.pending.as_ref().is_none_or(|[own, _]| own.clear())
    }

    fn disarm(&mut self) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl PortQueue for VnetPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_len_max: PACKET_LEN_MAX as u32,
            checksum: true,
            segmentation: self.segmentation,
            chains: true,
            ..Capabilities::default()
        }
    }

    fn prepare(&mut self, pool: &mut Pool) {
        self.prepared.fill(pool);
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        if self.pending.as_ref().is_some_and(|[own, _]| !own.may_take(now)) {
            self.discard(pool);
        }
        let mut received = Received::new(now, self.info.id);
        let mut chunks = 0;
        let tries = self.tries.min(burst.room());
        let mut tried = 0;
        while tried < tries && chunks < CHUNKS_PER_TURN && self.prepared.refill(pool) {
            let outcome = match self.read() {
                Read::Packet { len, tag } => self.packet(pool, len, tag),
                Read::Dropped(reason) => Err(reason),
                Read::Nothing => {
                    self.tries = 1;
                    break;
                }
                Read::Broken => {
                    self.info.counters.errors.add(1);
                    break;
                }
            };
            tried += 1;
            match outcome {
                Ok(frame) => {
                    chunks += frame.chain().count();
                    let len = frame.chain_len();
                    self.info.counters.count_super_frame_in(&frame);
                    received.push(frame, len, pool, burst);
                }
                Err(reason) => self.info.counters.drops.add(reason, 1),
            }
        }
        if tried == tries {
            // There may be more: the next turn tries twice as many reads.
            self.tries = (2 * self.tries).min(TRIES_MAX);
        }
        received.count(&self.info.counters);
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        if self.is_withdrawn() {
            self.info.counters.drops.add(Reason::WorkerStuck, burst.len() as u64);
            return burst.release(usize::MAX, pool);
        }
        let (mut frames, mut bytes) = (0, 0);
        for frame in burst.drain(usize::MAX) {
            self.info.counters.kicks.add(1);
            match self.outgoing.write(&self.fd, &frame) {
                Ok(()) => {
                    frames += 1;
                    bytes += frame.chain_len() as u64;
                    self.info.counters.count_super_frame_out(&frame);
                }
                Err(error) => self.info.counters.drops.add(refusal(error), 1),
            }
            pool.release(frame);
        }
        if frames > 0 {
            self.info.counters.frames_out.add(frames);
            self.info.counters.bytes_out.add(bytes);
        }
    }

    /// Nothing to do: each frame was sent with its own system call.
    fn flush(&mut self, _pool: &mut Pool) {}

    fn on_error(&mut self) {
        if self.kind == Kind::Tap {
            // The only error that a TAP queue reports is that its interface is gone.
            self.gone = true;
        } else {
            // Reading SO_ERROR clears it. After NETDEV_DOWN the kernel re-registers the socket by itself on NETDEV_UP
            // (`packet_notifier`, net/packet/af_packet.c).
            let _ = rustix::net::sockopt::socket_error(&self.fd);
        }
        self.info.counters.errors.add(1);
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    #[inline]
    fn is_withdrawn(&self) -> bool {
        self.pending.as_ref().is_some_and(|words| words.iter().any(Pending::is_withdrawn))
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        // A frame that waited here no longer waits: the next queue that uses the word starts afresh.
        if let Some([own, _]) = &self.pending {
            own.resume();
        }
        self.prepared.into_frames()
    }
}

fn read_tap(fd: &OwnedFd, vectors: &mut [libc::iovec]) -> Result<usize, Errno> {
    // SAFETY: each vector describes memory of the prepared chain, which nobody else touches during the call.
    let len = unsafe { libc::readv(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as c_int) };
    usize::try_from(len).map_err(|_| last_errno())
}

/// Room for one control message with a `tpacket_auxdata`, aligned as `cmsghdr` must be.
#[repr(align(8))]
struct Control([u8; 64]);

fn read_socket(fd: &OwnedFd, vectors: &mut [libc::iovec]) -> (Result<usize, Errno>, Option<Tag>) {
    let mut control = Control([0; 64]);
    // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len();
    message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
    message.msg_controllen = control.0.len();
    // MSG_TRUNC: the length it had, also where it did not fit.
    // SAFETY: the vectors describe memory of the prepared chain, which nobody else touches during the call; control and
    // message live across it.
    let len =
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
    let Ok(len) = usize::try_from(len) else { return (Err(last_errno()), None) };
    (Ok(len), tag_of(&message))
}

/// The tag that came beside a frame (PACKET_AUXDATA).
fn tag_of(message: &libc::msghdr) -> Option<Tag> {
    const VLAN_VALID: u32 = 1 << 4;
    const VLAN_TPID_VALID: u32 = 1 << 6;
    // SAFETY: the kernel has filled in the message; the first header, if there is one, lies within its control memory.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    let len = size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>();
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA)
        || header.cmsg_len < len
    {
        return None;
    }
    // SAFETY: the length above says that a whole tpacket_auxdata follows the header; it is made of plain integers.
    let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    if data.tp_status & VLAN_VALID == 0 {
        return None;
    }
    let protocol = if data.tp_status & VLAN_TPID_VALID != 0 { data.tp_vlan_tpid } else { EtherType::VLAN.0 };
    let ([p0, p1], [c0, c1]) = (protocol.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([p0, p1, c0, c1])
}

#[cfg(test)]
mod tests;
