//! The verdict on one frame. `stack/bpf/bpf/verdict.h` does the same in C, check by check and in the same order.

use core::net::IpAddr;

use twinpath_wire::offload::Headers;
use twinpath_wire::tcp::Flags;
use twinpath_wire::{EtherType, FlowKey, Mac, Protocol, Tag, eth, ipv4, ipv6, tcp, udp};

use crate::{ClaimKind, Table};

/// The kernel's knowledge of a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// A VLAN tag outside the frame's bytes, from which the device or the kernel has removed it.
    pub tag: Option<Tag>,
    /// Number of segments that GSO at the sender or GRO at the receiver coalesced; 0 or 1: none. If only a segment
    /// size is known, a size above 0 means coalesced: pass 2.
    pub segments: u32,
    /// Payload of each coalesced datagram but the last, bytes, if the path takes them apart; otherwise, or if nothing is
    /// coalesced, 0.
    pub segment_len: u16,
    /// A tuple in the kernel's map of connections.
    pub known: Option<Known>,
}

/// A connection of TCP in the kernel's map: a worker has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// As in an arriving segment.
    pub flow: FlowKey,
    /// The worker has declined it: its segments are the kernel's.
    pub declined: bool,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// To the fast path, by the claim of this index.
    Claimed(u16),
    /// The same for a segment of a known connection that is too large for a slot, or coalesced, which the kernel does not
    /// get in any case; and for coalesced datagrams, on a path that takes them apart.
    ClaimedLarge(u16),
    /// A SYN, by a claim on [connections](crate::Claim::connections): a worker gets it if the kernel has no socket for
    /// the tuple, and the worker has room. Otherwise it goes to the kernel.
    Opens(u16),
    /// To the kernel.
    Pass(PassReason),
}

/// Why a frame passes to the kernel. The numbers index the kernel-side counters; numbers are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PassReason {
    /// No claim matches.
    Unclaimed = 1,
    /// The destination MAC is not the interface's.
    NotForThisHost = 2,
    /// Sent to a multicast or broadcast MAC.
    Multicast = 3,
    /// The destination address is not a local one: the packet is to be forwarded, or is multicast.
    NotOwnAddress = 4,
    /// The frame has a VLAN tag that no claim on this traffic names, a service tag, or two tags.
    VlanTag = 5,
    /// An IP fragment, first or later.
    Fragment = 6,
    /// The packet has IPv4 options, an IPv6 extension header, or an IP version that contradicts the EtherType.
    HeaderNotUnderstood = 7,
    /// The frame ends before its headers do.
    Truncated = 8,
    /// A length field contradicts the headers or the frame.
    BadLength = 9,
    /// The frame is longer than the receiver of claimed frames can hold.
    TooLong = 10,
    /// Several segments coalesced by an offload (GSO or GRO).
    Coalesced = 11,
    /// A TCP segment that does not open a connection and belongs to no claimed one.
    TcpNotOpening = 12,
    /// The sender is not on the claim's allow-list.
    SourceNotAllowed = 13,
    /// A SYN with an option that authenticates the connection (RFC 2385, RFC 5925), which the kernel can.
    TcpAuthenticated = 14,
    /// A SYN with payload: its checksum covers more than the worker would get.
    TcpSynData = 15,
    /// A segment of a connection that a worker has declined.
    TcpDeclined = 16,
}

impl PassReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 16] = [
        Self::Unclaimed,
        Self::NotForThisHost,
        Self::Multicast,
        Self::NotOwnAddress,
        Self::VlanTag,
        Self::Fragment,
        Self::HeaderNotUnderstood,
        Self::Truncated,
        Self::BadLength,
        Self::TooLong,
        Self::Coalesced,
        Self::TcpNotOpening,
        Self::SourceNotAllowed,
        Self::TcpAuthenticated,
        Self::TcpSynData,
        Self::TcpDeclined,
    ];

    /// The stable name an operator sees.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unclaimed => "unclaimed",
            Self::NotForThisHost => "not_for_this_host",
            Self::Multicast => "multicast",
            Self::NotOwnAddress => "not_own_address",
            Self::VlanTag => "vlan_tag",
            Self::Fragment => "fragment",
            Self::HeaderNotUnderstood => "header_not_understood",
            Self::Truncated => "truncated",
            Self::BadLength => "bad_length",
            Self::TooLong => "too_long",
            Self::Coalesced => "coalesced",
            Self::TcpNotOpening => "tcp_not_opening",
            Self::SourceNotAllowed => "source_not_allowed",
            Self::TcpAuthenticated => "tcp_authenticated",
            Self::TcpSynData => "tcp_syn_data",
            Self::TcpDeclined => "tcp_declined",
        }
    }
}

impl Verdict {
    /// How many different numbers [`Verdict::number`] returns.
    pub const NUMBERS: usize = PassReason::ALL.len() + 3;
    /// The number of [`Verdict::Opens`].
    pub const OPENS: u8 = PassReason::ALL.len() as u8 + 1;
    /// The number of [`Verdict::ClaimedLarge`].
    pub const CLAIMED_LARGE: u8 = Self::OPENS + 1;

    /// The index of this verdict's counter: 0 for claimed, else the reason's number or one behind those.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Claimed(_) => 0,
            Self::ClaimedLarge(_) => Self::CLAIMED_LARGE,
            Self::Opens(_) => Self::OPENS,
            Self::Pass(reason) => reason as u8,
        }
    }

    /// The stable name of the counter with this index.
    #[must_use]
    pub fn name_of(number: u8) -> Option<&'static str> {
        match number {
            0 => Some("claimed"),
            Self::OPENS => Some("tcp_opening"),
            Self::CLAIMED_LARGE => Some("claimed_large"),
            _ => PassReason::ALL.get(usize::from(number) - 1).map(|reason| reason.name()),
        }
    }
}

/// Decides one frame; `frame` starts at its MAC header.
#[must_use]
pub fn verdict(frame: &[u8], context: &Context, table: &Table) -> Verdict {
    decide(frame, context, table).unwrap_or_else(Verdict::Pass)
}

fn decide(frame: &[u8], context: &Context, table: &Table) -> Result<Verdict, PassReason> {
    let header: &[u8; eth::HEADER_LEN] = frame.first_chunk().ok_or(PassReason::Truncated)?;
    let mut ethertype = EtherType(be16(header, 12)?);
    let mut ip_at = eth::HEADER_LEN;
    let mut tag = context.tag;
    if ethertype.is_tag() {
        let control = be16(frame, 14)?;
        let inner = EtherType(be16(frame, 16)?);
        if tag.is_some() || inner.is_tag() {
            return Err(PassReason::VlanTag);
        }
        tag = Some(Tag { protocol: ethertype, control });
        ethertype = inner;
        ip_at += eth::TAG_LEN;
    }
    let coalesced = context.segments > 1 || context.segment_len > 0;
    // What nobody has counted comes from a guest, and may be what no packet socket can take.
    let segment_len = if context.segments > 0 { context.segment_len } else { 0 };
    let (known, segments) = (context.known, context.segments);
    let frame = Frame { bytes: frame, tag, ip_at, coalesced, segment_len, segments, known };
    let names_vlans = table.claims().iter().any(|claim| claim.vlan.is_some());
    if tag.is_some_and(|tag| tag.protocol != EtherType::VLAN || !names_vlans) {
        return Err(PassReason::VlanTag);
    }
    match ethertype {
        EtherType::IPV4 => ipv4(&frame, table),
        EtherType::IPV6 => ipv6(&frame, table),
        EtherType(number) => other(&frame, number, table),
    }
}

/// A frame whose Ethernet header has been read.
struct Frame<'a> {
    bytes: &'a [u8],
    tag: Option<Tag>,
    ip_at: usize,
    coalesced: bool,
    segment_len: u16,
    segments: u32,
    known: Option<Known>,
}

impl Frame<'_> {
    /// The index of the claim of this kind on this frame's VLAN.
    fn claim(&self, table: &Table, kind: ClaimKind) -> Option<u16> {
        let vlan = self.tag.map(Tag::id);
        let index = table.claims().iter().position(|claim| claim.kind == kind && claim.vlan == vlan)?;
        Some(index as u16)
    }

    /// The reason to report when no claim matches.
    fn unclaimed(&self) -> PassReason {
        if self.tag.is_some() { PassReason::VlanTag } else { PassReason::Unclaimed }
    }

    /// The checks that every claim makes, whatever the frame carries.
    fn check_frame(&self, table: &Table) -> Result<(), PassReason> {
        if self.coalesced {
            return Err(PassReason::Coalesced);
        }
        self.check_destination(table)?;
        if self.bytes.len() > table.frame_len_max() as usize {
            return Err(PassReason::TooLong);
        }
        Ok(())
    }

    /// It is for the interface alone.
    fn check_destination(&self, table: &Table) -> Result<(), PassReason> {
        let destination = Mac(*self.bytes.first_chunk().ok_or(PassReason::Truncated)?);
        if destination.is_group() {
            return Err(PassReason::Multicast);
        }
        if destination != table.mac() {
            return Err(PassReason::NotForThisHost);
        }
        Ok(())
    }
}

fn other(frame: &Frame<'_>, ethertype: u16, table: &Table) -> Result<Verdict, PassReason> {
    let claim = frame.claim(table, ClaimKind::EtherType(ethertype)).ok_or_else(|| frame.unclaimed())?;
    frame.check_frame(table)?;
    Ok(Verdict::Claimed(claim))
}

/// An IP packet that carries a transport with ports.
struct Packet {
    protocol: Protocol,
    source: IpAddr,
    destination: IpAddr,
    /// Offset of the transport header in the frame.
    transport_at: usize,
    /// Bytes after the IP header, by that header's length field; `None` if the field is less than the header itself.
    transport_len: Option<usize>,
}

fn ipv4(frame: &Frame<'_>, table: &Table) -> Result<Verdict, PassReason> {
    let header: &[u8; ipv4::HEADER_LEN] =
        frame.bytes.get(frame.ip_at..).and_then(<[u8]>::first_chunk).ok_or(PassReason::Truncated)?;
    if header[0] != 0x45 {
        return Err(PassReason::HeaderNotUnderstood);
    }
    let protocol = Protocol::from_number(header[9]).ok_or_else(|| frame.unclaimed())?;
    if be16(header, 6)? & 0x3fff != 0 {
        return Err(PassReason::Fragment);
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let packet = Packet {
        protocol,
        source: IpAddr::from([a, b, c, d]),
        destination: IpAddr::from([e, f, g, h]),
        transport_at: frame.ip_at + ipv4::HEADER_LEN,
        transport_len: usize::from(be16(header, 2)?).checked_sub(ipv4::HEADER_LEN),
    };
    transport(frame, &packet, table)
}

fn ipv6(frame: &Frame<'_>, table: &Table) -> Result<Verdict, PassReason> {
    let header: &[u8; ipv6::HEADER_LEN] =
        frame.bytes.get(frame.ip_at..).and_then(<[u8]>::first_chunk).ok_or(PassReason::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(PassReason::HeaderNotUnderstood);
    }
    let protocol = match header[6] {
        ipv6::FRAGMENT => return Err(PassReason::Fragment),
        number if ipv6::EXTENSIONS.contains(&number) => return Err(PassReason::HeaderNotUnderstood),
        number => Protocol::from_number(number).ok_or_else(|| frame.unclaimed())?,
    };
    let address = |at: usize| header.get(at..).and_then(<[u8]>::first_chunk::<16>).copied();
    let packet = Packet {
        protocol,
        source: address(8).ok_or(PassReason::Truncated)?.into(),
        destination: address(24).ok_or(PassReason::Truncated)?.into(),
        transport_at: frame.ip_at + ipv6::HEADER_LEN,
        transport_len: Some(usize::from(be16(header, 4)?)),
    };
    transport(frame, &packet, table)
}

fn transport(frame: &Frame<'_>, packet: &Packet, table: &Table) -> Result<Verdict, PassReason> {
    let port = be16(frame.bytes, packet.transport_at + 2)?;
    // The kernel's programs look this up in a bitmap. It is the only look-up that an unclaimed frame costs.
    if !table.claims().iter().any(|claim| claim.transport() == Some((packet.protocol, port))) {
        return Err(frame.unclaimed());
    }
    if frame.segment_len > 0 && packet.protocol == Protocol::Udp {
        check_datagrams(frame, packet, table)?;
        return Ok(match decide_ports(frame, packet, table, None)? {
            Verdict::Claimed(claim) => Verdict::ClaimedLarge(claim),
            other => other,
        });
    }
    let large = check_size(frame, packet, table)?;
    decide_ports(frame, packet, table, large)
}

/// Decides by the packet's tuple. `large` is not `None` if the frame is too large, or coalesced.
fn decide_ports(
    frame: &Frame<'_>,
    packet: &Packet,
    table: &Table,
    large: Option<PassReason>,
) -> Result<Verdict, PassReason> {
    let source_port = be16(frame.bytes, packet.transport_at)?;
    let port = be16(frame.bytes, packet.transport_at + 2)?;
    // What a frame that is too large gets, if it belongs to no known connection.
    let wrong = |reason: PassReason| large.unwrap_or(reason);
    let opening = check_lengths(frame.bytes, packet).map_err(wrong)?;
    if !table.addresses().contains(&packet.destination) {
        return Err(wrong(PassReason::NotOwnAddress));
    }
    let flow = FlowKey {
        protocol: packet.protocol,
        source: (packet.source, source_port).into(),
        destination: (packet.destination, port).into(),
    };
    if let Some(claim) = frame.claim(table, ClaimKind::Flow(flow)).filter(|_| large.is_none()) {
        return Ok(Verdict::Claimed(claim));
    }
    let at = |address| frame.claim(table, ClaimKind::Port { protocol: packet.protocol, port, address });
    let found = at(Some(packet.destination)).or_else(|| at(None));
    let claim_of = |index: u16| table.claims().get(usize::from(index));
    let connections = found.and_then(claim_of).is_some_and(|claim| claim.connections);
    if let (Some(claim), Some(known)) = (found.filter(|_| connections), frame.known)
        && known.flow == flow
    {
        return match large {
            _ if known.declined => Err(wrong(PassReason::TcpDeclined)),
            Some(_) => Ok(Verdict::ClaimedLarge(claim)),
            None => Ok(Verdict::Claimed(claim)),
        };
    }
    if let Some(reason) = large {
        return Err(reason);
    }
    if !opening {
        return Err(PassReason::TcpNotOpening);
    }
    let claim = found.ok_or_else(|| frame.unclaimed())?;
    let sources = claim_of(claim).map_or(&[][..], |claim| &claim.sources);
    if !sources.is_empty() && !sources.iter().any(|prefix| prefix.contains(packet.source)) {
        return Err(PassReason::SourceNotAllowed);
    }
    if !connections {
        return Ok(Verdict::Claimed(claim));
    }
    check_syn(frame.bytes, packet)?;
    Ok(Verdict::Opens(claim))
}

/// The checks that every claim makes. A frame that is too large, or coalesced, may still be a segment of a known
/// connection: then the reason is returned as a value.
fn check_size(frame: &Frame<'_>, packet: &Packet, table: &Table) -> Result<Option<PassReason>, PassReason> {
    let Err(reason) = frame.check_frame(table) else { return Ok(None) };
    let is_size = matches!(reason, PassReason::Coalesced | PassReason::TooLong);
    let is_for_host = frame.bytes.starts_with(&table.mac().0);
    let has_connections = table.claims().iter().any(|claim| claim.connections);
    if is_size && is_for_host && packet.protocol == Protocol::Tcp && has_connections {
        return Ok(Some(reason));
    }
    Err(reason)
}

/// Maximum number of coalesced datagrams in a claimed frame: `UDP_MAX_SEGMENTS` of linux/udp.h, which was 64 before Linux
/// 6.9.
pub const DATAGRAMS_MAX: usize = 128;

/// The checks of coalesced datagrams, in place of those of other frames. Their lengths must agree, and their checksum must be
/// left to hardware, as it is unless they are a list; the kernel has all others.
fn check_datagrams(frame: &Frame<'_>, packet: &Packet, table: &Table) -> Result<(), PassReason> {
    frame.check_destination(table)?;
    let (at, segment_len) = (packet.transport_at, usize::from(frame.segment_len));
    let payload_at = at + udp::HEADER_LEN;
    let len = packet.transport_len.filter(|len| *len >= udp::HEADER_LEN).ok_or(PassReason::BadLength)?;
    if frame.bytes.len() <= payload_at {
        return Err(PassReason::BadLength);
    }
    let is_whole = at + len == frame.bytes.len() && usize::from(be16(frame.bytes, at + 4)?) == len;
    // Those within a packet of a tunnel may be fewer.
    let is_counted = (frame.bytes.len() - payload_at).div_ceil(segment_len) == frame.segments as usize;
    let is_bounded = payload_at + segment_len <= table.frame_len_max() as usize
        && frame.bytes.len() - payload_at <= DATAGRAMS_MAX * segment_len;
    let is_partial = Headers::find(frame.bytes).is_some_and(|found| found.has_partial_checksum(frame.bytes));
    if is_whole && is_counted && is_bounded && is_partial { Ok(()) } else { Err(PassReason::Coalesced) }
}

/// The kinds of options that end the list, fill it, and authenticate the segment: RFC 9293 section 3.2, RFC 2385,
/// RFC 5925.
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MD5: u8 = 19;
const OPTION_AO: u8 = 29;

/// Whether a worker may answer a SYN. Its lengths have been checked.
fn check_syn(frame: &[u8], packet: &Packet) -> Result<(), PassReason> {
    let [offset, _] = be16(frame, packet.transport_at + 12)?.to_be_bytes();
    let header_len = usize::from(offset >> 4) * 4;
    if packet.transport_len.is_some_and(|len| len > header_len) {
        return Err(PassReason::TcpSynData);
    }
    let options = frame.get(packet.transport_at + tcp::HEADER_LEN..packet.transport_at + header_len);
    let mut rest = options.unwrap_or_default();
    while let [kind, after @ ..] = rest {
        rest = match (*kind, after) {
            (OPTION_END, _) => break,
            (OPTION_NOP, _) => after,
            (OPTION_MD5 | OPTION_AO, _) => return Err(PassReason::TcpAuthenticated),
            // An invalid length is for the worker to judge.
            (_, [len, ..]) if *len >= 2 => rest.get(usize::from(*len)..).unwrap_or_default(),
            _ => break,
        };
    }
    Ok(())
}

/// Checks the transport header's lengths against those of the packet and the frame. Returns whether the packet may
/// open a new flow: TCP only with a SYN, UDP always.
fn check_lengths(frame: &[u8], packet: &Packet) -> Result<bool, PassReason> {
    let len = packet.transport_len.ok_or(PassReason::BadLength)?;
    if packet.transport_at + len > frame.len() {
        return Err(PassReason::BadLength);
    }
    match packet.protocol {
        Protocol::Udp => {
            if len < udp::HEADER_LEN {
                return Err(PassReason::BadLength);
            }
            let udp_len = usize::from(be16(frame, packet.transport_at + 4)?);
            if udp_len < udp::HEADER_LEN || udp_len > len {
                return Err(PassReason::BadLength);
            }
            Ok(true)
        }
        Protocol::Tcp => {
            if len < tcp::HEADER_LEN {
                return Err(PassReason::BadLength);
            }
            let [offset, flags] = be16(frame, packet.transport_at + 12)?.to_be_bytes();
            let header_len = usize::from(offset >> 4) * 4;
            if header_len < tcp::HEADER_LEN || header_len > len {
                return Err(PassReason::BadLength);
            }
            Ok(Flags(flags).opens())
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, PassReason> {
    let pair = bytes.get(at..).and_then(<[u8]>::first_chunk::<2>).ok_or(PassReason::Truncated)?;
    Ok(u16::from_be_bytes(*pair))
}

#[cfg(test)]
mod tests;
