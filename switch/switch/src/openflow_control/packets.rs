//! Frames between controllers and workers: packet-outs on their way, and what came of them; packet-ins.

use crate::engine::{PACKET_OUTS_MAX, PacketInBuffer};
use twinpath_forwarding::openflow::Punt;
use twinpath_inspect::Reason;
use twinpath_openflow_wire::PacketInReason;

/// The longest frame. Only memory that was written to is taken, so buffers are as small as the frames in them.
pub(crate) const FRAME_MAX: usize = u16::MAX as usize;

/// What is on its way, and what came of it.
#[derive(Debug)]
pub(crate) struct Packets {
    /// Packet-outs that each worker has.
    under_way: Vec<usize>,
    /// Packet-outs done.
    pub(crate) sent: u64,
    /// Frames that came for controllers.
    pub(crate) received: u64,
    /// Packet-outs that were not done, by reason.
    refused: Vec<(Reason, u64)>,
}

impl Packets {
    pub(crate) fn new(workers: usize) -> Self {
        Self { under_way: vec![0; workers], sent: 0, received: 0, refused: Vec::new() }
    }

    /// How many more packet-outs a worker can get now.
    pub(crate) fn room(&self, worker: usize) -> usize {
        self.under_way.get(worker).map_or(0, |count| PACKET_OUTS_MAX.saturating_sub(*count))
    }

    /// A packet-out is on its way to a worker.
    pub(crate) fn goes(&mut self, worker: usize) {
        if let Some(count) = self.under_way.get_mut(worker) {
            *count += 1;
        }
    }

    /// How many are on their way to workers that are not late: a late one may be so for good.
    pub(crate) fn under_way(&self, is_late: impl Fn(usize) -> bool) -> usize {
        self.under_way
            .iter()
            .enumerate()
            .filter(|(worker, _)| !is_late(*worker))
            .map(|(_, count)| count)
            .sum()
    }

    /// It is back.
    pub(crate) fn is_back(&mut self, worker: usize, refused: Option<Reason>) {
        if let Some(count) = self.under_way.get_mut(worker) {
            *count = count.saturating_sub(1);
        }
        let Some(reason) = refused else {
            self.sent += 1;
            return;
        };
        match self.refused.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.refused.push((reason, 1)),
        }
    }

    /// Packet-outs that were not done, by the names of the reasons.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.refused.iter().map(|(reason, count)| (reason.name(), *count))
    }
}

/// What the controllers are told of the frame in a buffer; `None`: there is none in it.
pub(crate) fn punt(buffer: &PacketInBuffer) -> Option<Punt<'_>> {
    use twinpath_forwarding::openflow::pipeline::PacketInReason as Reason;
    let about = buffer.about?;
    Some(Punt {
        reason: match about.reason {
            Reason::NoMatch => PacketInReason::NoMatch,
            Reason::Action => PacketInReason::Action,
            Reason::InvalidTtl => PacketInReason::InvalidTtl,
        },
        table_id: about.table,
        cookie: about.cookie,
        max_len: about.max_len,
        in_port: about.ingress.in_port,
        in_phy_port: about.ingress.in_phy_port,
        tunnel_id: about.ingress.tunnel_id,
        metadata: about.metadata,
        frame: buffer.bytes(),
        total_len: buffer.total_len,
    })
}
