//! Taps: copies of a worker's frames for captures. A tap never delays its worker: if the tap's ring is full, the
//! frame is counted, and missing in the capture.
//!
//! A copy is the packet as it appears on a wire ([`twinpath_port::wire_copy`]), except that a super-frame stays one
//! packet.

mod copies;

use std::sync::Arc;

use twinpath_frame::{Checksum, Frame, GsoKind};
use twinpath_inspect::Counter;
use twinpath_port::PortQueue;
use twinpath_port::wire_copy::{Seen, WireCopy};
use twinpath_rings::slots::Note;
use twinpath_sys::{EventFd, clock};
use twinpath_time::Instant;
use twinpath_wire::filter::{Filter, outermost_beside};

pub use self::copies::{CopiesError, CopyConsumer, CopyProducer, copies};

/// Maximum number of taps on a worker; control refuses a further one.
pub const TAPS_MAX: usize = 4;

/// Flags in [`Note::tag`]; the number of the queue is in the lower 16 bits, that of the port in the upper 12.
pub mod tag {
    /// The frame was sent; without it, received.
    pub const SENT: u32 = 1 << 16;
    /// The sender left the checksum to hardware, and it could not be completed in the copy.
    pub const CHECKSUM_NOT_READY: u32 = 1 << 17;
    /// The device or the kernel has verified the checksum of a received frame.
    pub const CHECKSUM_VALID: u32 = 1 << 18;
    /// A TCP super-frame: it becomes several packets on a wire.
    pub const TCP_SUPER_FRAME: u32 = 1 << 19;
    /// Where the number of the port begins.
    pub const PORT_SHIFT: u32 = 20;
}

/// The counters of a tap, written by its worker.
#[derive(Debug, Default)]
pub struct TapCounters {
    /// Frames that matched the filter.
    pub wanted: Counter,
    /// Frames that matched but found no room in the ring.
    pub missed: Counter,
}

/// One capture's tap on a worker.
#[derive(Debug)]
pub struct Tap {
    /// The capture that it belongs to.
    pub id: u32,
    filter: Filter,
    /// The only port whose frames it copies; `None`: all ports.
    port: Option<u16>,
    /// Receives the copies.
    ring: CopyProducer,
    /// The consumer of the ring sleeps on it.
    wake: Arc<EventFd>,
    counters: Arc<TapCounters>,
    /// Room for one copy that has to be assembled from pieces.
    scratch: Box<[u8]>,
}

impl Tap {
    /// A tap of capture `id`: frames that match `filter` are copied into `ring`, whose consumer sleeps on `wake`.
    #[must_use]
    pub fn new(
        id: u32,
        filter: Filter,
        ring: CopyProducer,
        wake: Arc<EventFd>,
        counters: Arc<TapCounters>,
    ) -> Self {
        let scratch = vec![0; ring.snaplen() as usize].into_boxed_slice();
        Self { id, filter, port: None, ring, wake, counters, scratch }
    }

    /// Makes it copy only frames of this port.
    #[must_use]
    pub const fn of_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    fn show(&mut self, now: Instant, tag: u32, port: Option<u16>, seen: Seen, frames: &[Frame]) {
        let mut wanted = 0;
        let port_of = |frame: &Frame| port.unwrap_or(frame.meta().port);
        for frame in frames {
            let port = port_of(frame);
            if self.port.is_some_and(|wanted| wanted != port) {
                continue;
            }
            // As tcpdump sees it, whether or not the port has left the tag in the frame.
            let (bytes, beside) = match frame.meta().vlan.filter(|_| seen.has_tags) {
                None => outermost_beside(frame.bytes()),
                tag => (frame.bytes(), tag),
            };
            if !self.filter.wants(bytes, beside) {
                continue;
            }
            wanted += 1;
            let copy = seen.copy(frame, &mut self.scratch);
            let tag = tag | u32::from(port) << tag::PORT_SHIFT;
            let tag = tag | flags(frame, &copy, tag & tag::SENT != 0);
            let note = Note { original_len: copy.packet_len as u32, time_ns: now.as_nanos(), tag };
            if !self.ring.push(note, copy.bytes) {
                self.counters.missed.add(1);
            }
        }
        self.counters.wanted.add(wanted);
        if wanted > 0 && self.ring.publish() {
            self.wake.signal();
        }
    }
}

/// The flags in a tag for the offloads of a packet.
fn flags(frame: &Frame, copy: &WireCopy<'_>, is_sent: bool) -> u32 {
    let meta = frame.meta();
    let states = [
        (copy.checksum_not_ready, tag::CHECKSUM_NOT_READY),
        (meta.checksum == Checksum::Verified && !is_sent, tag::CHECKSUM_VALID),
        (matches!(meta.gso.kind, GsoKind::TcpV4 | GsoKind::TcpV6), tag::TCP_SUPER_FRAME),
    ];
    states.iter().filter(|(is_so, _)| *is_so).fold(0, |flags, (_, flag)| flags | flag)
}

/// The taps of one worker.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "a box comes from control and goes back to it: the worker frees nothing")]
pub(crate) struct Taps(Vec<Box<Tap>>);

impl Taps {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(TAPS_MAX))
    }

    /// Whether there is no capture.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Errors
    /// Returns the tap if there are [`TAPS_MAX`] already.
    pub(crate) fn add(&mut self, tap: Box<Tap>) -> Result<(), Box<Tap>> {
        if self.0.len() == TAPS_MAX {
            return Err(tap);
        }
        self.0.push(tap);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Tap>> {
        let at = self.0.iter().position(|tap| tap.id == id)?;
        Some(self.0.remove(at))
    }

    /// Copies frames that were received on `queue`. Costs one branch while there is no tap.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant, queue: &dyn PortQueue, frames: &[Frame]) {
        if !self.0.is_empty() {
            let may_be_partial = queue.capabilities().partial_checksums;
            let seen = Seen { has_tags: true, may_be_partial };
            self.show(now, u32::from(queue.id().queue), None, seen, frames);
        }
    }

    /// Copies frames that `queue` is about to send through `port`, or else each through the port named in its
    /// metadata.
    #[inline]
    pub(crate) fn sent(&mut self, queue: &dyn PortQueue, port: Option<u16>, frames: &[Frame]) {
        if !self.0.is_empty() {
            let tag = u32::from(queue.id().queue) | tag::SENT;
            let seen = Seen { has_tags: queue.capabilities().tags, may_be_partial: false };
            self.show(clock::now(), tag, port, seen, frames);
        }
    }

    #[cold]
    fn show(&mut self, now: Instant, tag: u32, port: Option<u16>, seen: Seen, frames: &[Frame]) {
        for tap in &mut self.0 {
            tap.show(now, tag, port, seen, frames);
        }
    }
}
