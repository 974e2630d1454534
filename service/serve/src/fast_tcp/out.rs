//! Segments on their way out: to which next hop, and in which frame.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;

use twinpath_frame::{Checksum, Gso, GsoKind, Meta};
use twinpath_inspect::{FastTcpCounters, Reason};
use twinpath_port::{PortId, SentParts};
use twinpath_tcp::{Outgoing, Sink, Tuple};
use twinpath_time::Instant;
use twinpath_udp::egress::{Egress, EgressTable, KernelReason, PEERS_MAX, Update};
use twinpath_wire::eth;
use twinpath_wire::offload::TCP_CHECKSUM_AT;
use twinpath_wire::tcp::Flags;
use twinpath_wire::tcp_frame::{HEADER_LEN_MAX, TcpFrameRepr};
use twinpath_worker::Io;

use super::stranded::Stranded;
use super::told::ToldPaths;

/// Hop limit of our packets: the kernel's default (net.ipv4.ip_default_ttl).
const HOP_LIMIT: u8 = 64;

/// From this payload on, a super-segment is sent at once from the engine's buffer: a copy would cost more than what is saved by
/// sending what else leaves in this turn with it. Bytes.
const UNCOPIED_MIN: usize = 8 << 10;

/// The last next hops of peers, as long as they have connections. The worker's table holds fewer peers than there may be
/// connections, forgets those that are silent, and is cleared when routes or links change, while control answers only
/// so many questions: until it has answered, segments to known peers leave as before.
#[derive(Debug)]
pub(crate) struct FormerHops {
    hops: HashMap<IpAddr, Egress, RandomState>,
    /// At so many, those of peers without connections are forgotten.
    most: usize,
}

impl FormerHops {
    fn new() -> Self {
        let hops = HashMap::with_capacity_and_hasher(PEERS_MAX, RandomState::new());
        Self { hops, most: PEERS_MAX }
    }

    /// Whether [`Self::keep`] is to be called before more are added.
    pub(crate) fn is_full(&self) -> bool {
        self.hops.len() >= self.most
    }

    /// Forgets the others. The next time comes when there are twice as many.
    pub(crate) fn keep(&mut self, has_connection: impl Fn(&IpAddr) -> bool) {
        self.hops.retain(|peer, _| has_connection(peer));
        self.most = PEERS_MAX.max(2 * self.hops.len());
    }

    /// Follows the table. What was only forgotten stays, until control has another answer.
    pub(crate) fn update(&mut self, update: &Update) {
        match update {
            Update::Learn { peer, answer: Ok(egress) } => {
                self.hops.insert(*peer, *egress);
            }
            Update::Learn { peer, answer: Err(_) } => {
                self.hops.remove(peer);
            }
            Update::Forget { .. } | Update::Clear | Update::AskAgain { .. } => {}
        }
    }

    fn find(&self, peer: IpAddr) -> Option<Egress> {
        self.hops.get(&peer).copied()
    }
}

/// What sending leaves beside the engine.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) former: FormerHops,
    /// The connections whose path carries less than their segments need.
    pub(crate) too_long: Vec<TooLong>,
    pub(crate) stranded: Stranded,
    pub(crate) told: ToldPaths,
}

/// A connection whose path carries less than a segment needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLong {
    pub(crate) tuple: Tuple,
    /// What it carries, bytes of an IP packet.
    pub(crate) mtu: u16,
    /// Whether a router has said so; otherwise the kernel knows it.
    pub(crate) was_told: bool,
}

impl Beside {
    pub(crate) fn new() -> Self {
        Self {
            former: FormerHops::new(),
            too_long: Vec::new(),
            stranded: Stranded::default(),
            told: ToldPaths::default(),
        }
    }
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
    /// How packets from `local` to `peer` leave, through a port of this worker. Asks control if needed. `is_proven`: the
    /// peer has completed a handshake.
    ///
    /// # Errors
    /// Why they do not leave here; [`KernelReason::Unknown`]: control was asked.
    pub(crate) fn find(
        &mut self,
        local: IpAddr,
        peer: IpAddr,
        is_proven: bool,
    ) -> Result<(PortId, Egress), KernelReason> {
        let found = if is_proven {
            self.egress.lookup(peer, self.now)
        } else {
            self.egress.lookup_unproven(peer, self.now)
        };
        if found.ask && self.io.tell((self.ask)(local, peer)).is_err() {
            self.io.drops().add(Reason::MailboxFull, 1);
            self.egress.not_asked(peer);
        }
        let egress = match found.answer {
            Err(KernelReason::Unknown) => self.former.find(peer).ok_or(KernelReason::Unknown)?,
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
    too_long: &'a mut Vec<TooLong>,
    stranded: &'a mut Stranded,
    told: &'a ToldPaths,
    /// The way of the last segment.
    last: Option<(IpAddr, Way)>,
}

/// How segments to a peer leave.
#[derive(Clone, Copy)]
struct Way {
    port: PortId,
    egress: Egress,
    /// What a router has said that the path carries.
    told: Option<u16>,
}

impl<'a, 'io, E: Send> Out<'a, 'io, E> {
    /// Sends to these next hops.
    pub(crate) const fn new(
        hops: Hops<'a, 'io, E>,
        (too_long, stranded, told): (&'a mut Vec<TooLong>, &'a mut Stranded, &'a ToldPaths),
        counters: &'a FastTcpCounters,
    ) -> Self {
        Self { hops, counters, too_long, stranded, told, last: None }
    }

    #[inline]
    fn hop(&mut self, tuple: &Tuple, is_proven: bool) -> Option<Way> {
        let (local, peer) = (tuple.local().ip(), tuple.remote().ip());
        if let Some((last, way)) = self.last
            && last == peer
        {
            return Some(way);
        }
        match self.hops.find(local, peer, is_proven) {
            Ok((port, egress)) => {
                let way = Way { port, egress, told: self.told.find(self.hops.now, peer) };
                self.last = Some((peer, way));
                Some(way)
            }
            Err(reason) => {
                if !is_to_come(reason) {
                    self.stranded.add(tuple, self.hops.now);
                }
                None
            }
        }
    }
}

impl<E: Send> Out<'_, '_, E> {
    /// Sends a segment that is cut behind the port, or in front of it if the port has lost this ability since the segment
    /// was made. False if the worker has too few frames in this turn.
    #[inline(never)]
    fn send_super_segment(&mut self, port: PortId, repr: &TcpFrameRepr, segment: &Outgoing<'_>) -> bool {
        let io = &mut *self.hops.io;
        let mut headers = [0; HEADER_LEN_MAX];
        let payload = segment.payload;
        let Ok((tcp_at, headers_len)) =
            repr.write_partial(&mut headers, &segment.header, segment.options, payload.len())
        else {
            io.drops().add(Reason::FrameTooLarge, 1);
            return true;
        };
        let meta = Meta {
            checksum: Checksum::Partial,
            headers_len: headers_len as u16,
            checksum_start: tcp_at as u16,
            checksum_offset: TCP_CHECKSUM_AT as u16,
            gso: Gso {
                kind: if repr.destination.is_ipv4() { GsoKind::TcpV4 } else { GsoKind::TcpV6 },
                // Only the first of the segments has the flag.
                ecn: segment.header.flags.0 & Flags::CWR != 0,
                size: segment.unit,
            },
            ..Meta::default()
        };
        let parts = [&headers[..headers_len], payload];
        let sent = match payload.len() < UNCOPIED_MIN {
            true => SentParts::NotSo,
            false => io.send_parts(port, &meta, parts),
        };
        if sent == SentParts::NotSo {
            let Some(mut frame) = io.take_long(parts) else { return false };
            let next = frame.meta_mut().next.take();
            *frame.meta_mut() = Meta { next, ..meta };
            io.forward(port, frame);
        }
        // What the port has dropped is lost as on a bad network.
        if sent == SentParts::Dropped {
            return true;
        }
        self.counters.fast_segments_out.add(payload.len().div_ceil(usize::from(segment.unit)) as u64);
        true
    }
}

impl<E: Send> Sink for Out<'_, '_, E> {
    /// What has no next hop is lost as on a bad network: the engine sends it again. So is what the path does not carry;
    /// [`Beside::too_long`] then has its MTU.
    #[inline]
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let (source, destination) = (tuple.local().ip(), tuple.remote().ip());
        let Some(Way { port, egress, told }) = self.hop(tuple, segment.header.flags.0 & Flags::SYN == 0)
        else {
            self.hops.io.drops().add(Reason::NoNextHop, 1);
            return true;
        };
        self.stranded.has_left(tuple);
        let repr = TcpFrameRepr {
            source_mac: egress.source_mac,
            destination_mac: egress.next_hop_mac,
            source,
            destination,
            hop_limit: HOP_LIMIT,
            ecn_capable: segment.capable,
            id: segment.id,
        };
        let each = if segment.unit > 0 { usize::from(segment.unit) } else { segment.payload.len() };
        let packet_len = repr.frame_len(segment.options.len(), each) - eth::HEADER_LEN;
        // Routers may cut a packet that has an ID. A segment without payload cannot be shorter, so it is sent in any case.
        let can_be_shorter = segment.id.is_none() && !segment.payload.is_empty();
        let told = told.filter(|mtu| packet_len > usize::from(*mtu) && can_be_shorter);
        if packet_len > egress.mtu as usize || told.is_some() {
            let mtu = told.unwrap_or(u16::try_from(egress.mtu).unwrap_or(u16::MAX));
            self.too_long.push(TooLong { tuple: *tuple, mtu, was_told: told.is_some() });
            return true;
        }
        if segment.unit > 0 {
            return self.send_super_segment(port, &repr, segment);
        }
        let len = repr.frame_len(segment.options.len(), segment.payload.len());
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
        self.counters.fast_segments_out.add(1);
        self.hops.io.send(port, frame);
        true
    }
}

/// Whether control may soon answer otherwise.
pub(crate) const fn is_to_come(reason: KernelReason) -> bool {
    matches!(reason, KernelReason::Unknown) || reason.is_unresolved()
}
