//! Segments on their way out: to which next hop, and in which frame.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;

use twinpath_frame::Checksum;
use twinpath_inspect::{FastTcpCounters, Reason};
use twinpath_port::PortId;
use twinpath_tcp::{Outgoing, Sink, Tuple};
use twinpath_time::{Duration, Instant};
use twinpath_udp::egress::{Egress, EgressTable, KernelReason, PEERS_MAX, Update};
use twinpath_wire::eth;
use twinpath_wire::tcp_frame::TcpFrameRepr;
use twinpath_worker::Io;

/// Hop limit of our packets: the kernel's default (net.ipv4.ip_default_ttl).
const HOP_LIMIT: u8 = 64;

/// How long the former next hop of a peer is used after it was forgotten, and control is asked for the new one.
const FORMER_AGE: Duration = Duration::from_secs(5);

/// The last next hops of peers. When routes or links change, the worker's table is cleared, and control is asked anew;
/// segments to known peers leave as before until it has answered.
#[derive(Debug)]
pub(crate) struct FormerHops {
    hops: HashMap<IpAddr, Egress, RandomState>,
    /// Since when the table may lack what is here.
    cleared_at: Instant,
}

impl FormerHops {
    pub(crate) fn new() -> Self {
        Self {
            hops: HashMap::with_capacity_and_hasher(PEERS_MAX, RandomState::new()),
            cleared_at: Instant::ZERO,
        }
    }

    /// Follows the table.
    pub(crate) fn update(&mut self, update: &Update, now: Instant) {
        match update {
            Update::Learn { peer, answer: Ok(egress) } => {
                if self.hops.len() < PEERS_MAX || self.hops.contains_key(peer) {
                    self.hops.insert(*peer, *egress);
                }
            }
            Update::Learn { peer, answer: Err(_) } => {
                self.hops.remove(peer);
            }
            Update::Forget { .. } | Update::Clear => self.cleared_at = now,
            Update::AskAgain { .. } => {}
        }
    }

    fn find(&self, peer: IpAddr, now: Instant) -> Option<Egress> {
        if now.since(self.cleared_at) > FORMER_AGE {
            return None;
        }
        self.hops.get(&peer).copied()
    }
}

/// What sending leaves beside the engine.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) former: FormerHops,
    /// The connections whose path carries less than their segments need, with its MTU.
    pub(crate) too_long: Vec<(Tuple, u16)>,
}

/// The next hops of a worker, as the TCP engine uses them.
pub(crate) struct Hops<'a, 'io, E> {
    pub(crate) now: Instant,
    pub(crate) egress: &'a mut EgressTable,
    pub(crate) former: &'a FormerHops,
    /// The port to be preferred, if several are on the interface.
    pub(crate) port: PortId,
    pub(crate) io: &'a mut Io<'io, E>,
    /// The question to control for the way from our address to the peer's.
    pub(crate) ask: fn(IpAddr, IpAddr) -> E,
}

impl<E: Send> Hops<'_, '_, E> {
    /// How packets from `local` to `peer` leave, through a port of this worker. Asks control if needed.
    ///
    /// # Errors
    /// Why they do not leave here; [`KernelReason::Unknown`]: control was asked.
    pub(crate) fn find(&mut self, local: IpAddr, peer: IpAddr) -> Result<(PortId, Egress), KernelReason> {
        let found = self.egress.lookup(peer, self.now);
        if found.ask && self.io.tell((self.ask)(local, peer)).is_err() {
            self.io.drops().add(Reason::MailboxFull, 1);
            self.egress.not_asked(peer);
        }
        let egress = match found.answer {
            Err(KernelReason::Unknown) => self.former.find(peer, self.now).ok_or(KernelReason::Unknown)?,
            answer => answer?,
        };
        let port = self.io.port_on(egress.ifindex, self.port).ok_or(KernelReason::OtherInterface)?;
        Ok((port, egress))
    }
}

/// Sends segments in frames of the worker.
pub(crate) struct Out<'a, 'io, E> {
    hops: Hops<'a, 'io, E>,
    counters: &'a FastTcpCounters,
    too_long: &'a mut Vec<(Tuple, u16)>,
    /// The next hop of the last segment.
    last: Option<(IpAddr, PortId, Egress)>,
}

impl<'a, 'io, E: Send> Out<'a, 'io, E> {
    /// Sends to these next hops.
    pub(crate) const fn new(
        hops: Hops<'a, 'io, E>,
        too_long: &'a mut Vec<(Tuple, u16)>,
        counters: &'a FastTcpCounters,
    ) -> Self {
        Self { hops, counters, too_long, last: None }
    }

    #[inline]
    fn hop(&mut self, local: IpAddr, peer: IpAddr) -> Option<(PortId, Egress)> {
        if let Some((last, port, egress)) = self.last
            && last == peer
        {
            return Some((port, egress));
        }
        match self.hops.find(local, peer) {
            Ok((port, egress)) => {
                self.last = Some((peer, port, egress));
                Some((port, egress))
            }
            Err(_) => None,
        }
    }
}

impl<E: Send> Sink for Out<'_, '_, E> {
    /// What has no next hop is lost as on a bad network: the engine sends it again. So is what the path does not carry;
    /// [`Beside::too_long`] then has its MTU.
    #[inline]
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let (source, destination) = (tuple.local().ip(), tuple.remote().ip());
        let Some((port, egress)) = self.hop(source, destination) else {
            self.hops.io.drops().add(Reason::NoNextHop, 1);
            return true;
        };
        let repr = TcpFrameRepr {
            source_mac: egress.source_mac,
            destination_mac: egress.next_hop_mac,
            source,
            destination,
            hop_limit: HOP_LIMIT,
            ecn_capable: segment.capable,
        };
        let len = repr.frame_len(segment.options.len(), segment.payload.len());
        if len > egress.mtu as usize + eth::HEADER_LEN {
            self.too_long.push((*tuple, u16::try_from(egress.mtu).unwrap_or(u16::MAX)));
            return true;
        }
        let Some(mut frame) = self.hops.io.take() else {
            self.hops.io.drops().add(Reason::PoolEmpty, 1);
            return false;
        };
        let written = frame.set_len(len).is_ok()
            && repr.write(frame.bytes_mut(), &segment.header, segment.options, segment.payload).is_ok();
        if !written {
            self.hops.io.drops().add(Reason::FrameTooLarge, 1);
            self.hops.io.release(frame);
            return true;
        }
        frame.meta_mut().checksum = Checksum::Verified;
        self.counters.segments_out.add(1);
        self.hops.io.send(port, frame);
        true
    }
}
