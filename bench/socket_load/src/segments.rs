//! Sends replies of equal size to one peer as one message, which the kernel or the device segments (`UDP_SEGMENT`).

use std::ops::Range;

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::burst::Burst;
use crate::counts::EchoCounts;

/// `UDP_MAX_SEGMENTS` (include/linux/udp.h) was 64 before Linux 6.9.
const SEGMENTS_MAX: usize = 64;
/// A segment must fit the path's MTU, or the kernel refuses the whole message: the smallest MTU of IPv6, 1280, less
/// 48 of headers.
const SEGMENT_BYTES_MAX: usize = 1232;
/// Maximum payload of one message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 65_487;

/// Sends the first `count` datagrams of `burst` back; consecutive ones of equal size to one peer leave as one
/// message.
pub(crate) fn send_segments(
    burst: &mut Burst,
    socket: BorrowedFd<'_>,
    count: usize,
    named: bool,
    counts: &mut EchoCounts,
) {
    let mut next = 0;
    while next < count {
        let run = run_from(burst, next, count, named);
        next = run.slots.end;
        counts.received += run.datagrams;
        let sent = loop {
            let sent = if run.datagrams > 1 {
                burst.send_segmented(socket, run.slots.clone(), run.segment_bytes as u16, named)
            } else {
                burst.send(socket, run.slots.clone(), named).map(|_| ())
            };
            if sent != Err(Errno::INTR) {
                break sent;
            }
        };
        match sent {
            Ok(()) => counts.sent += run.datagrams,
            Err(_) => counts.refused += run.datagrams,
        }
    }
}

/// Consecutive slots that can leave as one message.
struct Run {
    slots: Range<usize>,
    segment_bytes: usize,
    datagrams: u64,
}

fn run_from(burst: &Burst, first: usize, count: usize, named: bool) -> Run {
    let segment_bytes = segment_bytes_of(burst, first);
    let mut bytes = burst.payload(first).len();
    let mut end = first + 1;
    let fits =
        |bytes: usize| bytes <= MESSAGE_BYTES_MAX && bytes.div_ceil(segment_bytes.max(1)) <= SEGMENTS_MAX;
    // Only the last segment may be short.
    while end < count
        && (1..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
        && bytes.is_multiple_of(segment_bytes)
        && segment_bytes_of(burst, end) == segment_bytes
        && fits(bytes + burst.payload(end).len())
        && (!named || burst.same_sender(first, end))
    {
        bytes += burst.payload(end).len();
        end += 1;
    }
    let datagrams = if segment_bytes == 0 { 1 } else { bytes.div_ceil(segment_bytes) as u64 };
    Run { slots: first..end, segment_bytes, datagrams }
}

/// The segment size that the kernel reported for a coalesced datagram; else the length of the datagram.
fn segment_bytes_of(burst: &Burst, slot: usize) -> usize {
    match burst.segment_size(slot) {
        0 => burst.payload(slot).len(),
        size => usize::from(size),
    }
}
