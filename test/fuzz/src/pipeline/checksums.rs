//! The checksums of a frame, computed over all that they are over.

use twinpath_forwarding::openflow::pipeline::Ingress;
use twinpath_openflow_wire::Field;

use super::fields;

/// A sum of 16-bit words, folded.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Internet,
    Udp,
    /// CRC32c.
    Crc,
}

/// A checksum of a frame: where it is, the bytes that it is over, and where it is among them.
struct Covered {
    at: usize,
    bytes: Vec<u8>,
    checksum_at: usize,
    kind: Kind,
}

fn covered(frame: &[u8]) -> Vec<Covered> {
    let none = Ingress::default();
    let field = |field| fields::get(frame, &none, 0, field);
    let mut all = Vec::new();
    let Some((ip_at, _)) = fields::ip(frame) else { return all };
    let pseudo = if field(Field::Ipv4Src).is_some() {
        let header = &frame[ip_at..ip_at + usize::from(frame[ip_at] & 15) * 4];
        all.push(Covered { at: ip_at + 10, bytes: header.to_vec(), checksum_at: 10, kind: Kind::Internet });
        let is_fragment = frame[ip_at + 6] & 0x3f != 0 || frame[ip_at + 7] != 0;
        if is_fragment {
            return all;
        }
        frame[ip_at + 12..ip_at + 20].to_vec()
    } else if field(Field::Ipv6Src).is_some() {
        let is_fragment = field(Field::Ipv6Exthdr).is_some_and(|flags| flags >> 4 & 1 == 1);
        if is_fragment {
            return all;
        }
        frame[ip_at + 8..ip_at + 40].to_vec()
    } else {
        return all;
    };
    let protocol = field(Field::IpProto).unwrap_or(0) as u8;
    let is = |kind| field(kind).is_some();
    let (offset, has_pseudo) = if is(Field::TcpSrc) {
        (16, true)
    } else if is(Field::UdpSrc) {
        (6, true)
    } else if is(Field::Icmpv6Type) {
        (2, true)
    } else if is(Field::Icmpv4Type) {
        (2, false)
    } else if is(Field::SctpSrc) {
        (8, false)
    } else {
        return all;
    };
    let l4_at = fields::l4_at(frame).unwrap_or(0);
    let segment = &frame[l4_at..];
    let mut bytes = Vec::new();
    if has_pseudo {
        bytes.extend(&pseudo);
        bytes.extend((segment.len() as u32).to_be_bytes());
        bytes.extend([0, protocol]);
    }
    bytes.extend(segment);
    let kind = match (is(Field::SctpSrc), is(Field::UdpSrc)) {
        (true, _) => Kind::Crc,
        (_, true) => Kind::Udp,
        _ => Kind::Internet,
    };
    let checksum_at = bytes.len() - segment.len() + offset;
    all.push(Covered { at: l4_at + offset, bytes, checksum_at, kind });
    all
}

/// CRC32c (RFC 9260, appendix A), bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut rest = u32::MAX;
    for byte in bytes {
        rest ^= u32::from(*byte);
        for _ in 0..8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ 0x82f6_3b78 } else { rest >> 1 };
        }
    }
    !rest
}

/// Computes the checksums of a frame anew, but for a datagram that has none.
pub(super) fn complete(frame: &mut [u8]) {
    for Covered { at, mut bytes, checksum_at, kind } in covered(frame) {
        if kind == Kind::Crc {
            bytes[checksum_at..checksum_at + 4].fill(0);
            frame[at..at + 4].copy_from_slice(&crc(&bytes).to_le_bytes());
            continue;
        }
        if kind == Kind::Udp && frame[at..at + 2] == [0, 0] {
            continue;
        }
        bytes[checksum_at..checksum_at + 2].fill(0);
        let checksum = match !sum(&bytes) {
            0 if kind == Kind::Udp => 0xffff,
            checksum => checksum,
        };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The same for an IPv4 header that stands behind others, if there is one here.
pub(super) fn complete_ipv4(frame: &mut [u8], at: usize) {
    let len = frame.get(at).map_or(0, |first| usize::from(first & 15) * 4);
    if len >= 20 && frame[at] >> 4 == 4 && frame.len() >= at + len {
        frame[at + 10..at + 12].fill(0);
        let checksum = !sum(&frame[at..at + len]);
        frame[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
    }
}
