//! Checksums of a frame whose headers change.

use twinpath_frame::Checksum;

use crate::openflow::pipeline::key::Layers;
use crate::openflow::pipeline::packet::Packet;
use crate::openflow::pipeline::parse::{Layout, be16};

/// Where a TCP, UDP and ICMP header has its checksum.
const TCP_AT: usize = 16;
const UDP_AT: usize = 6;
const ICMP_AT: usize = 2;
const SCTP_AT: usize = 8;
const IPV4_AT: usize = 10;

/// What bytes are part of, and so which checksums are over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing that has a checksum.
    Uncovered,
    /// The IPv4 header.
    Ipv4,
    /// An address of IPv4, which is part of the transport's pseudo-header as well.
    Ipv4Address,
    /// An address of IPv6.
    Ipv6Address,
    /// The number of the protocol in the transport's pseudo-header.
    Protocol,
    /// The transport header.
    Transport,
}

/// Writes `bytes` at `at`, and changes the checksums that are over them. `at` is even within its header, and so is the
/// number of bytes.
pub(super) fn write(packet: &mut Packet, at: usize, bytes: &[u8], part: Part) {
    let layout = packet.layout();
    let Some(own) = packet.frame.bytes().get(at..at + bytes.len()) else { return };
    let change = Change { from: sum(own), to: sum(bytes) };
    if change.from == change.to && own == bytes {
        return;
    }
    if part == Part::Transport && layout.has(Layers::SCTP) {
        write_sctp(packet, layout, at, bytes);
        return packet.field_changed();
    }
    if matches!(part, Part::Ipv4 | Part::Ipv4Address) {
        let at = usize::from(layout.l3_at) + IPV4_AT;
        update(packet, at, |checksum| change.of_checksum(checksum));
    }
    if matches!(part, Part::Ipv4Address | Part::Ipv6Address | Part::Transport) {
        update_transport(packet, layout, part, change);
    }
    if let Some(own) = packet.frame.bytes_mut().get_mut(at..at + bytes.len()) {
        own.copy_from_slice(bytes);
    }
    packet.field_changed();
}

/// Changes the checksum of the transport header for another protocol number in the pseudo-header. The caller writes the number
/// afterwards.
pub(super) fn protocol_changes(packet: &mut Packet, from: u8, to: u8) {
    let layout = packet.layout();
    update_transport(packet, layout, Part::Protocol, Change { from: from.into(), to: to.into() });
}

/// The sums of bytes before and after.
#[derive(Clone, Copy, Debug)]
struct Change {
    from: u16,
    to: u16,
}

impl Change {
    /// A checksum after the change (RFC 1624, equation 3).
    const fn of_checksum(self, checksum: u16) -> u16 {
        !add(add(!checksum, !self.from), self.to)
    }

    /// A sum after the change.
    const fn of_sum(self, sum: u16) -> u16 {
        add(add(sum, !self.from), self.to)
    }
}

/// One's complement addition.
const fn add(one: u16, two: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(two);
    sum + carry as u16
}

fn sum(bytes: &[u8]) -> u16 {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().fold(0, |sum, pair| add(sum, u16::from_be_bytes(*pair)))
}

fn update(packet: &mut Packet, at: usize, change: impl FnOnce(u16) -> u16) {
    let Some(own) = be16(packet.frame.bytes(), at) else { return };
    if let Some(bytes) = packet.frame.bytes_mut().get_mut(at..at + 2) {
        bytes.copy_from_slice(&change(own).to_be_bytes());
    }
}

fn update_transport(packet: &mut Packet, layout: Layout, part: Part, change: Change) {
    let is_pseudo = part != Part::Transport;
    let l4_at = usize::from(layout.l4_at);
    let at = if layout.has(Layers::TCP) {
        l4_at + TCP_AT
    } else if layout.has(Layers::UDP) {
        l4_at + UDP_AT
    } else if layout.has(Layers::ICMPV6) || layout.has(Layers::ICMPV4) && !is_pseudo {
        l4_at + ICMP_AT
    } else {
        return;
    };
    let is_udp = layout.has(Layers::UDP);
    if is_partial(packet, at) {
        if is_pseudo {
            update(packet, at, |sum| change.of_sum(sum));
        }
        return;
    }
    update(packet, at, |checksum| match checksum {
        // There is none (RFC 768).
        0 if is_udp => 0,
        _ => match change.of_checksum(checksum) {
            0 if is_udp => 0xffff,
            checksum => checksum,
        },
    });
}

/// Whether the checksum at this place was left to hardware.
fn is_partial(packet: &Packet, at: usize) -> bool {
    let meta = packet.frame.meta();
    let is_known = meta.checksum_start != 0;
    meta.checksum == Checksum::Partial
        && (!is_known || usize::from(meta.checksum_start) + usize::from(meta.checksum_offset) == at)
}

/// The polynomial of CRC32c, lowest power in the highest bit (RFC 9260, appendix A).
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// Changes the ports of an SCTP header. The checksum is linear: it changes by that of the difference alone, so the packet
/// need not be read.
fn write_sctp(packet: &mut Packet, layout: Layout, at: usize, bytes: &[u8]) {
    let l4_at = usize::from(layout.l4_at);
    let len = (layout.ip_end as usize).checked_sub(l4_at);
    let is_whole = layout.ip_end as usize <= packet.frame.chain_len() && !layout.is_fragment;
    let is_left_out = is_partial(packet, l4_at + SCTP_AT);
    let Some(header) = packet.frame.bytes_mut().get_mut(l4_at..l4_at + SCTP_AT + 4) else { return };
    let mut change = [0; 4];
    for (offset, byte) in bytes.iter().enumerate() {
        if let Some(change) = change.get_mut(at - l4_at + offset) {
            *change = header[at - l4_at + offset] ^ byte;
            header[at - l4_at + offset] = *byte;
        }
    }
    // Of a fragment the rest is not known; its checksum is of the former ports then.
    let (Some(behind), true, false) = (len.and_then(|len| len.checked_sub(4)), is_whole, is_left_out) else {
        return;
    };
    let own = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    let crc = own ^ multiply(power(behind as u64 * 8), remainder(change));
    header[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// The remainder of four bytes.
fn remainder(bytes: [u8; 4]) -> u32 {
    (0..32).fold(u32::from_le_bytes(bytes), |rest, _| step(rest))
}

/// The remainder of a polynomial times x.
const fn step(rest: u32) -> u32 {
    if rest & 1 != 0 { rest >> 1 ^ CASTAGNOLI } else { rest >> 1 }
}

/// The remainder of x to this power.
fn power(mut exponent: u64) -> u32 {
    const ONE: u32 = 1 << 31;
    let (mut result, mut square) = (ONE, ONE >> 1);
    while exponent != 0 {
        if exponent & 1 != 0 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

/// The remainder of a product.
fn multiply(one: u32, two: u32) -> u32 {
    let (mut product, mut two) = (0, two);
    for bit in (0..32).rev() {
        if one >> bit & 1 != 0 {
            product ^= two;
        }
        two = step(two);
    }
    product
}
