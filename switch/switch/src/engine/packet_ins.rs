//! Frames for OpenFlow's controllers: copied into the memory that control has lent, no more than each port may send.

use twinpath_forwarding::learning::{Limit, Shared};
use twinpath_forwarding::openflow::pipeline::PacketIn;
use twinpath_frame::{Frame, GsoKind};
use twinpath_inspect::Reason;
use twinpath_port::packets_of;
use twinpath_time::Instant;
use twinpath_worker::Io;

use crate::engine::forward::count_drop;
use crate::engine::message::{LENT_MAX, PacketInBuffer, SwitchEvent};

/// What a worker needs for packet-ins.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "they come and go in mailboxes, which pass pointers on")]
pub(crate) struct PacketIns {
    /// Empty buffers.
    lent: Vec<Box<PacketInBuffer>>,
    /// Full ones, until control is told: within one call.
    full: Vec<Box<PacketInBuffer>>,
    limit: Limit,
}

impl PacketIns {
    pub(crate) fn new() -> Self {
        Self { lent: Vec::with_capacity(LENT_MAX), full: Vec::with_capacity(LENT_MAX), limit: Limit::NOTHING }
    }

    /// Takes an empty buffer; gives it back if there are as many as there may be.
    pub(crate) fn lend(&mut self, buffer: Box<PacketInBuffer>) -> Option<Box<PacketInBuffer>> {
        if self.lent.len() == LENT_MAX {
            return Some(buffer);
        }
        self.lent.push(buffer);
        None
    }

    pub(crate) fn set_rate(&mut self, per_s: u32) {
        self.limit = Limit::new(per_s);
    }

    /// Tells control of a frame. A super-frame is the packets that it would be on a wire: a controller knows nothing of
    /// segmentation, and may send back what it got.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        frame: Frame,
        about: PacketIn,
        shared: &Shared,
        io: &mut Io<'_, SwitchEvent>,
    ) {
        let port = frame.meta().port;
        let packets = packets_of(&frame);
        let mut refused = None;
        match self.room(now, port, shared) {
            Err(reason) => {
                refused = Some((reason, packets));
                io.release(frame);
            }
            Ok(buffer) if frame.meta().gso.kind == GsoKind::None => {
                self.fill(buffer, &frame, about);
                io.release(frame);
            }
            Ok(buffer) => {
                let (mut first, mut done) = (Some(buffer), 0);
                io.segment(frame, |packet| {
                    done += 1;
                    let room = first.take().map_or_else(|| self.room(now, port, shared), Ok);
                    match room {
                        Ok(buffer) => self.fill(buffer, packet, about),
                        Err(reason) => {
                            refused = Some((reason, refused.map_or(1, |(_, count)| count + 1)));
                        }
                    }
                });
                // Nothing came of it: `segment` has counted why.
                self.lent.extend(first);
            }
        }
        if let Some((reason, count)) = refused {
            (0..count).for_each(|_| count_drop(port, reason, io));
        }
        for buffer in self.full.drain(..) {
            if io.tell_reserved(SwitchEvent::PacketIn(buffer)).is_err() {
                io.drops().add(Reason::MailboxFull, 1);
            }
        }
    }

    /// A buffer for one packet of this port, before anything of it is copied.
    fn room(&mut self, now: Instant, port: u16, shared: &Shared) -> Result<Box<PacketInBuffer>, Reason> {
        if self.lent.is_empty() {
            return Err(Reason::PacketInFull);
        }
        if !shared.allows_packet_in(port, self.limit, now) {
            return Err(Reason::PacketInRate);
        }
        self.lent.pop().ok_or(Reason::PacketInFull)
    }

    fn fill(&mut self, mut buffer: Box<PacketInBuffer>, packet: &Frame, about: PacketIn) {
        buffer.fill(packet, about);
        self.full.push(buffer);
    }
}
