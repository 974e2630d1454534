//! The source of frames for a switch: copies of one frame, or of several by turns, as many as a packet socket takes, several
//! per system call.
#![allow(unsafe_code, reason = "rustix has no sendmmsg; the kernel is handed an array of pointers")]

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType};
use rustix::thread::{ClockId, Timespec};
use twinpath_socket_load::Stop;
use twinpath_sys::{clock, packet_socket};
use twinpath_time::{Duration, Instant};

use crate::PlainError;

/// Most frames per system call: `UIO_MAXIOV` of linux/uio.h.
pub const BATCH_MAX: usize = 1024;
/// The shortest frame of Ethernet without its checksum; with it these are 64 bytes.
pub const FRAME_BYTES: usize = 60;
/// IEEE Std 802 - Local Experimental EtherType 1, which no kernel serves: the receiving host counts the frame and drops it.
const ETHERTYPE: u16 = 0x88b5;

/// A frame.
pub type Frame = [u8; FRAME_BYTES];

/// A frame without content between these addresses.
#[must_use]
pub fn bare_frame(from: [u8; 6], to: [u8; 6]) -> Frame {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The frames, which are sent by turns. Without any, nothing is sent.
    pub frames: &'a [Frame],
    /// Frames per system call, 1 to [`BATCH_MAX`].
    pub batch: usize,
    /// For how long.
    pub duration: Duration,
    /// Frames per second; `None`: as many as go.
    pub rate: Option<f64>,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Frames that the interface took.
    pub frames: u64,
    /// System calls.
    pub calls: u64,
    /// The time that it took.
    pub elapsed: Duration,
}

/// Sends on the interface with that index, on the calling thread, without its queueing discipline.
///
/// # Errors
/// Without CAP_NET_RAW, if there is no such interface, or if sending fails with an error other than a full queue.
pub fn send_frames(ifindex: u32, sending: &Sending<'_>, stop: &Stop) -> Result<Sent, PlainError> {
    let cannot = |source: packet_socket::PacketSocketError| PlainError::PacketSocket {
        ifindex,
        source: source.into(),
    };
    let socket = packet_socket::open(SocketType::RAW, SocketFlags::empty()).map_err(cannot)?;
    packet_socket::set(&socket, "PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS, 1).map_err(cannot)?;
    packet_socket::bind(&socket, ifindex, 0).map_err(cannot)?;
    let Some(first) = sending.frames.first() else { return Ok(Sent::default()) };
    // The kernel copies the frame of each message.
    let vector =
        |frame: &Frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
    let mut vectors = vec![vector(first); sending.batch.clamp(1, BATCH_MAX)];
    // SAFETY: all zeroes is a value of this plain C struct (null pointers, no name, no control data).
    let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let mut headers = vec![header; vectors.len()];
    for (header, vector) in headers.iter_mut().zip(&mut vectors) {
        header.msg_hdr.msg_iov = ptr::from_mut(vector);
        header.msg_hdr.msg_iovlen = 1;
    }
    let mut turns = sending.frames.iter().cycle();
    let mut sent = Sent::default();
    let begun: Instant = clock::now();
    let end = begun + sending.duration;
    loop {
        if sending.frames.len() > 1 {
            for (header, frame) in headers.iter().zip(&mut turns) {
                // SAFETY: the header refers to its own vector in `vectors`, which lives, and to which no reference is held.
                unsafe { *header.msg_hdr.msg_iov = vector(frame) };
            }
        }
        // SAFETY: each header refers to one vector, and it to one frame, which all live across the call; the kernel only
        // reads the frames, and writes the lengths in the headers.
        let result = unsafe {
            libc::sendmmsg(socket.as_fd().as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, 0)
        };
        sent.calls += 1;
        match u64::try_from(result) {
            Ok(frames) => sent.frames += frames,
            Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                // The peer's queue is full: the frame is lost, as on any link.
                Some(Errno::NOBUFS | Errno::AGAIN | Errno::INTR) => {}
                error => {
                    let source = error.unwrap_or(Errno::IO).into();
                    return Err(PlainError::PacketSocket { ifindex, source });
                }
            },
        }
        let now = clock::now();
        if now >= end || stop.is_requested() {
            sent.elapsed = now.since(begun);
            return Ok(sent);
        }
        if let Some(rate) = sending.rate.filter(|rate| *rate > 0.0) {
            let due = begun + Duration::from_secs_f64((sent.calls * headers.len() as u64) as f64 / rate);
            sleep_until(due.min(end), now);
        }
    }
}

/// Sleeps by the kernel's timer. A signal may end it sooner.
fn sleep_until(due: Instant, now: Instant) {
    let left = Duration::from_nanos(due.nanos_since(now));
    if left > Duration::ZERO {
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // EINTR: the next call looks again.
        let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &left);
    }
}
