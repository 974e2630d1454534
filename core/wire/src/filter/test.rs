//! One test of a frame. It reads the same bytes in the same order as the code of tcpdump's compiler, so that the
//! result is the same for a frame that ends early.

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// The fragment header of IPv6.
const FRAGMENT: u8 = 44;

/// The EtherTypes that begin a tag within a frame: 802.1Q, 802.1ad, and 802.1ad before it was a standard.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Length of a tag.
pub(crate) const TAG_LEN: usize = 4;

/// Length of the Ethernet header.
const ETHERNET: usize = 14;

/// Which end of a packet an address or port belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
    Either,
}

/// Addresses, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Net {
    V4 { address: u32, mask: u32 },
    V6 { address: [u32; 4], mask: [u32; 4] },
}

/// Which headers hold the IPv4 address: those of IPv4, ARP or RARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    Ip,
    Arp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// The type field of the Ethernet header.
    EtherType(u16),
    /// This protocol over IPv4.
    Over4(u8),
    /// This protocol over IPv6, including fragments.
    Over6(u8),
    /// This protocol over IPv4 or IPv6.
    Over(u8),
    Address {
        net: Net,
        side: Side,
        family: Family,
    },
    /// A port of TCP, UDP or SCTP, or of one of them.
    Port {
        port: u16,
        side: Side,
        protocol: Option<u8>,
    },
    /// A tag, of this VLAN if one is given.
    Vlan(Option<u16>),
}

impl Test {
    /// The result; `None` if the frame ends before a byte that the test reads.
    pub(crate) fn of(self, frame: &[u8]) -> Option<bool> {
        match self {
            Self::EtherType(wanted) => Some(half(frame, 12)? == wanted),
            Self::Over4(protocol) => over4(frame, protocol),
            Self::Over6(protocol) => over6(frame, protocol),
            Self::Over(protocol) => Some(over4(frame, protocol)? || over6(frame, protocol)?),
            Self::Address { net: Net::V4 { address, mask }, side, family } => {
                address4(frame, address, mask, side, family)
            }
            Self::Address { net: Net::V6 { address, mask }, side, .. } => {
                address6(frame, &address, &mask, side)
            }
            Self::Port { port, side, protocol } => {
                Some(port6(frame, port, side, protocol)? || port4(frame, port, side, protocol)?)
            }
            Self::Vlan(wanted) => {
                let is_tag = TAGS.contains(&half(frame, 12)?);
                Some(is_tag && (wanted.is_none() || is_vlan(half(frame, 14)?, wanted)))
            }
        }
    }
}

fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

pub(crate) fn half(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

fn word(frame: &[u8], at: usize) -> Option<u32> {
    frame.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// Whether a tag's control information has this VLAN number, or none is wanted.
pub(crate) fn is_vlan(control: u16, wanted: Option<u16>) -> bool {
    wanted.is_none_or(|wanted| control & 0x0fff == wanted)
}

fn over4(frame: &[u8], protocol: u8) -> Option<bool> {
    Some(half(frame, 12)? == IPV4 && byte(frame, 23)? == protocol)
}

fn over6(frame: &[u8], protocol: u8) -> Option<bool> {
    if half(frame, 12)? != IPV6 {
        return Some(false);
    }
    let next = byte(frame, 20)?;
    Some(next == protocol || next == FRAGMENT && byte(frame, 54)? == protocol)
}

/// Tests the source, the destination, or either in turn, at the given offsets.
fn ends(side: Side, source: usize, destination: usize, test: impl Fn(usize) -> Option<bool>) -> Option<bool> {
    match side {
        Side::Source => test(source),
        Side::Destination => test(destination),
        Side::Either => Some(test(source)? || test(destination)?),
    }
}

fn address4(frame: &[u8], address: u32, mask: u32, side: Side, family: Family) -> Option<bool> {
    let kind = half(frame, 12)?;
    let is = |at| Some(word(frame, at)? & mask == address);
    match (kind, family) {
        (IPV4, Family::Any | Family::Ip) => ends(side, ETHERNET + 12, ETHERNET + 16, is),
        (ARP, Family::Any | Family::Arp) | (RARP, Family::Any) => {
            ends(side, ETHERNET + 14, ETHERNET + 24, is)
        }
        _ => Some(false),
    }
}

fn address6(frame: &[u8], address: &[u32; 4], mask: &[u32; 4], side: Side) -> Option<bool> {
    if half(frame, 12)? != IPV6 {
        return Some(false);
    }
    ends(side, ETHERNET + 8, ETHERNET + 24, |at| {
        for word_at in 0..4 {
            if word(frame, at + 4 * word_at)? & mask[word_at] != address[word_at] {
                return Some(false);
            }
        }
        Some(true)
    })
}

fn carries_ports(found: u8, wanted: Option<u8>) -> bool {
    wanted.map_or(matches!(found, TCP | UDP | SCTP), |wanted| found == wanted)
}

fn port4(frame: &[u8], port: u16, side: Side, protocol: Option<u8>) -> Option<bool> {
    // Only the first fragment has the ports.
    if half(frame, 12)? != IPV4
        || !carries_ports(byte(frame, 23)?, protocol)
        || half(frame, ETHERNET + 6)? & 0x1fff != 0
    {
        return Some(false);
    }
    let ports = ETHERNET + 4 * usize::from(byte(frame, ETHERNET)? & 0x0f);
    ends(side, ports, ports + 2, |at| Some(half(frame, at)? == port))
}

fn port6(frame: &[u8], port: u16, side: Side, protocol: Option<u8>) -> Option<bool> {
    if half(frame, 12)? != IPV6 || !carries_ports(byte(frame, 20)?, protocol) {
        return Some(false);
    }
    ends(side, ETHERNET + 40, ETHERNET + 42, |at| Some(half(frame, at)? == port))
}
