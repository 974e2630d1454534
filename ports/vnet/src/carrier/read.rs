//! Reads frames out of the slots of the ring, or of the socket's queue, and finds the ports to which they belong.

use std::os::fd::OwnedFd;

use twinpath_frame::{Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_packet::{WholeFrames, discard_queued};
use twinpath_port::CarriedPorts;
use twinpath_port::fit::insert_tag;
use twinpath_rings::packet::Slot;

use crate::carrier::ahead::Ahead;

/// EtherType of an 802.1Q tag.
const TAG: u16 = 0x8100;

/// The result of reading one slot.
pub(crate) enum Taken {
    /// A frame, with its length.
    Frame(Frame, usize),
    /// The port to which it belongs, if it is carried, and the reason.
    Dropped(Option<u16>, Reason),
    /// It was truncated, because the socket's queue had no room for all of it.
    Lost(u16),
}

/// The destination of the frames of slots.
pub(crate) struct Reader<'a> {
    pub(crate) receiver: &'a OwnedFd,
    pub(crate) ports: &'a CarriedPorts,
    pub(crate) frames: &'a mut WholeFrames,
    pub(crate) pool: &'a mut Pool,
    /// While ports take turns: their shares of the kept chunks.
    pub(crate) shares: Option<&'a Ahead>,
}

impl Reader<'_> {
    pub(crate) fn read(&mut self, slot: &Slot<'_>) -> Taken {
        let Some(port) = self.ports.on_interface(slot.ifindex()).map(|carried| carried.port) else {
            if slot.is_in_queue {
                discard_queued(self.receiver);
            }
            // The interface was a port when the frame arrived.
            return Taken::Dropped(None, Reason::PortDown);
        };
        if self.shares.is_some_and(|ahead| ahead.has_share(port)) {
            if slot.is_in_queue {
                discard_queued(self.receiver);
            }
            return Taken::Dropped(Some(port), Reason::PortShare);
        }
        let mut frame = match self.frames.read(slot, self.receiver, self.pool) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Taken::Lost(port),
            Err(reason) => return Taken::Dropped(Some(port), reason),
        };
        let tagged = match (slot.vlan_tci, slot.vlan_tpid) {
            (Some(tci), Some(protocol)) if protocol != TAG => {
                // Only an 802.1Q tag can be beside a frame.
                let ([p0, p1], [c0, c1]) = (protocol.to_be_bytes(), tci.to_be_bytes());
                insert_tag(&mut frame, [p0, p1, c0, c1])
            }
            (tci, _) => {
                frame.meta_mut().vlan = tci;
                true
            }
        };
        if !tagged {
            self.pool.release(frame);
            return Taken::Dropped(Some(port), Reason::OffloadRefused);
        }
        frame.meta_mut().port = port;
        let len = frame.chain_len();
        Taken::Frame(frame, len)
    }
}
