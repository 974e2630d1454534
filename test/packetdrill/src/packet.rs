//! IP packets, as they come from packetdrill and go to it.

use core::net::{IpAddr, SocketAddr};

use twinpath_tcp::{Outgoing, Segment, Tuple};
use twinpath_wire::checksum::Sum;
use twinpath_wire::tcp::{self, Flags, Options};
use twinpath_wire::{ipv4, ipv6};

use crate::profile::Profile;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Congestion experienced, and ECT(0) (RFC 3168 section 5).
const CONGESTION: u8 = 3;
const CAPABLE: u8 = 2;

/// A packet that has arrived.
#[derive(Debug)]
pub(crate) enum Arrived<'a> {
    Segment(Tuple, Segment<'a>),
    Icmp(Tuple, Quoted),
}

/// An ICMP error about a segment of this host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted {
    pub(crate) is_ipv4: bool,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// What the error says of the next hop's MTU.
    pub(crate) mtu: u32,
    /// The sequence number of the segment that it quotes.
    pub(crate) sequence: u32,
}

/// What an IP header says beside its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The traffic class, without its two bits for congestion.
    pub(crate) class: u8,
    pub(crate) hops: u8,
}

impl Default for Marks {
    fn default() -> Self {
        Self { class: 0, hops: 64 }
    }
}

/// Reads a packet; `None` if it is none for TCP. A longer payload than `unit` is made of segments of that size; 0: it is
/// one segment.
pub(crate) fn parse(bytes: &[u8], unit: u16) -> Option<Arrived<'_>> {
    let (source, destination, protocol, class, payload) = if bytes.first()? >> 4 == 4 {
        let packet = ipv4::Packet::parse(bytes).ok()?;
        let ends = (IpAddr::from(packet.source()), IpAddr::from(packet.destination()));
        (ends.0, ends.1, packet.protocol(), packet.traffic_class(), packet.payload())
    } else {
        let packet = ipv6::Packet::parse(bytes).ok()?;
        let ends = (IpAddr::from(packet.source()), IpAddr::from(packet.destination()));
        (ends.0, ends.1, packet.next_header(), packet.traffic_class(), packet.payload())
    };
    match protocol {
        TCP => {
            let view = tcp::Segment::parse(payload).ok()?;
            let local = SocketAddr::new(destination, view.destination_port());
            let remote = SocketAddr::new(source, view.source_port());
            let is_glued = unit > 0 && view.payload().len() > usize::from(unit);
            let unit = if is_glued { unit } else { 0 };
            let segment = Segment::new(&view, class & 3 == CONGESTION, unit);
            Some(Arrived::Segment(Tuple::new(local, remote), segment))
        }
        ICMP | ICMPV6 => quoted(protocol == ICMP, payload).map(|(tuple, error)| Arrived::Icmp(tuple, error)),
        _ => None,
    }
}

/// The segment that an ICMP error quotes (RFC 792, RFC 4443): its addresses, ports and sequence number.
fn quoted(is_ipv4: bool, payload: &[u8]) -> Option<(Tuple, Quoted)> {
    let (header, inner) = payload.split_first_chunk::<8>()?;
    let [.., a, b, c, d] = *header;
    let mtu = if is_ipv4 { u32::from(u16::from_be_bytes([c, d])) } else { u32::from_be_bytes([a, b, c, d]) };
    // The quotation may be shorter than the packet says, so the fields are read where they lie.
    let (source, destination, transport): (IpAddr, IpAddr, &[u8]) = if is_ipv4 {
        let len = usize::from(inner.first()? & 15) * 4;
        let octets = |at: usize| inner.get(at..at + 4)?.try_into().ok().map(|it: [u8; 4]| IpAddr::from(it));
        (octets(12)?, octets(16)?, inner.get(len..)?)
    } else {
        let octets = |at: usize| inner.get(at..at + 16)?.try_into().ok().map(|it: [u8; 16]| IpAddr::from(it));
        (octets(8)?, octets(24)?, inner.get(40..)?)
    };
    let [a, b, c, d, e, f, g, h] = *transport.first_chunk::<8>()?;
    let local = SocketAddr::new(source, u16::from_be_bytes([a, b]));
    let remote = SocketAddr::new(destination, u16::from_be_bytes([c, d]));
    let sequence = u32::from_be_bytes([e, f, g, h]);
    let error = Quoted { is_ipv4, kind: header[0], code: header[1], mtu, sequence };
    Some((Tuple::new(local, remote), error))
}

/// A segment that is to become a packet: its bytes without checksum.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) tuple: Tuple,
    bytes: Vec<u8>,
    is_capable: bool,
}

/// What leaves the host: the segments that `segment` is cut into, as Linux does it before packetdrill's device
/// (`tcp_gso_segment`), or itself.
pub(crate) fn build(tuple: &Tuple, segment: &Outgoing<'_>, profile: Profile) -> Vec<Built> {
    let options = match profile {
        Profile::FreeBsd if segment.header.flags.0 & Flags::SYN != 0 => in_freebsd_order(segment.options),
        _ => segment.options.to_vec(),
    };
    let len = segment.payload.len();
    let unit = if segment.unit == 0 { len.max(1) } else { usize::from(segment.unit) };
    let mut built = Vec::new();
    for start in (0..len.max(1)).step_by(unit) {
        let payload = &segment.payload[start..len.min(start + unit)];
        let mut header = segment.header;
        header.sequence = header.sequence.wrapping_add(start as u32);
        // The last one ends the data; the first one says that the window was reduced.
        if start + unit < len {
            header.flags.0 &= !(Flags::FIN | Flags::PSH);
        }
        if start > 0 {
            header.flags.0 &= !Flags::CWR;
        }
        let mut bytes = vec![0; tcp::HEADER_LEN + options.len()];
        if header.emit(&options, &mut bytes).is_ok() {
            bytes.extend_from_slice(payload);
            built.push(Built { tuple: *tuple, bytes, is_capable: segment.capable });
        }
    }
    built
}

impl Built {
    /// Takes the options out.
    pub(crate) fn strip(&mut self) {
        let Some(words) = self.bytes.get(12).map(|byte| usize::from(byte >> 4)) else { return };
        self.bytes.drain(tcp::HEADER_LEN..(4 * words).max(tcp::HEADER_LEN));
        self.bytes[12] = (tcp::HEADER_LEN as u8 / 4) << 4 | self.bytes[12] & 15;
    }
}

/// The same options, as FreeBSD lays them out (`tcp_addoptions` in its tcp_output.c): a window scale before what SACK and
/// timestamps need, each where its value is aligned, and zeros at the end.
fn in_freebsd_order(options: &[u8]) -> Vec<u8> {
    let read = Options::parse(options);
    let mut bytes: Vec<u8> = Vec::with_capacity(40);
    let mut put = |rest: usize, of: usize, option: &[u8]| {
        while bytes.len() % of != rest {
            bytes.push(1);
        }
        bytes.extend_from_slice(option);
    };
    if let Some(mss) = read.mss {
        let [a, b] = mss.to_be_bytes();
        put(0, 4, &[2, 4, a, b]);
    }
    if let Some(shift) = read.scale {
        put(1, 4, &[3, 3, shift]);
    }
    if read.sack_permitted {
        put(0, 2, &[4, 2]);
    }
    if let Some(times) = read.timestamps {
        put(2, 4, &[[8, 10].as_slice(), &times.value.to_be_bytes(), &times.echo.to_be_bytes()].concat());
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The whole packet.
pub(crate) fn emit(built: Built, marks: Marks) -> Vec<u8> {
    let Built { tuple, mut bytes, is_capable } = built;
    let class = marks.class | if is_capable { CAPABLE } else { 0 };
    let (source, destination) = (tuple.local().ip(), tuple.remote().ip());
    let mut packet = vec![0; 40];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let pseudo = Sum::ZERO.pseudo_ipv4(source, destination, TCP, bytes.len() as u16);
            seal(&mut bytes, pseudo);
            let repr = ipv4::Repr {
                source,
                destination,
                protocol: TCP,
                hop_limit: marks.hops,
                identification: 0,
                payload_len: bytes.len(),
            };
            let len = repr.emit(&mut packet).unwrap_or_default();
            packet.truncate(len);
            packet[1] = class;
            packet[10..12].fill(0);
            let checksum = Sum::ZERO.bytes(&packet).checksum().to_be_bytes();
            packet[10..12].copy_from_slice(&checksum);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let pseudo = Sum::ZERO.pseudo_ipv6(source, destination, TCP, bytes.len() as u32);
            seal(&mut bytes, pseudo);
            let repr = ipv6::Repr {
                source,
                destination,
                next_header: TCP,
                hop_limit: marks.hops,
                payload_len: bytes.len(),
            };
            let len = repr.emit(&mut packet).unwrap_or_default();
            packet.truncate(len);
            packet[0] |= class >> 4;
            packet[1] |= class << 4;
        }
        // A tuple has two addresses of one version.
        _ => packet.clear(),
    }
    packet.extend_from_slice(&bytes);
    packet
}

fn seal(segment: &mut [u8], pseudo: Sum) {
    let checksum = pseudo.bytes(segment).checksum().to_be_bytes();
    segment[16..18].copy_from_slice(&checksum);
}
