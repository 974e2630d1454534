//! The Internet checksum (RFC 1071).
//!
//! Sums run in the machine's byte order, eight bytes at a time: one's complement addition depends on neither (RFC
//! 1071 section 2), as long as every piece but the last has an even length.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ParseError;

/// How far the checksum of a received frame can be trusted. The port knows this from the frame's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumTrust {
    /// The frame crossed a wire: the checksum must be right.
    Verify,
    /// The frame came from a virtual device, whose sender may have left the checksum to hardware: the field then
    /// holds only the pseudo-header's sum. Either that or a right checksum is accepted.
    AcceptPartial,
    /// Hardware or the kernel has checked it already: do not check again.
    Trusted,
}

/// The result of checking a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumFound {
    /// Verified over all bytes.
    Right,
    /// Only the pseudo-header's sum is there: complete it before the frame leaves by another port.
    Partial,
    /// A UDP datagram over IPv4 without a checksum (RFC 768).
    Absent,
    /// Not checked.
    Trusted,
}

/// A one's complement sum in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self(0);

    /// Adds bytes. Every piece but the last must have an even length.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Two independent chains of additions, so that neither waits for the other's carry.
        let (pairs, rest) = bytes.as_chunks::<16>();
        let (mut sum, mut other) = (self.0, 0);
        for &[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] in pairs {
            sum = add_carry(sum, u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
            other = add_carry(other, u64::from_ne_bytes([i, j, k, l, m, n, o, p]));
        }
        sum = add_carry(sum, other);
        let (eights, rest) = rest.as_chunks::<8>();
        for word in eights {
            sum = add_carry(sum, u64::from_ne_bytes(*word));
        }
        let (fours, rest) = rest.as_chunks::<4>();
        for word in fours {
            sum = add_carry(sum, u64::from(u32::from_ne_bytes(*word)));
        }
        // Padding with zeros does not change the sum, in either byte order.
        let last = match *rest {
            [a, b, c] => u32::from_ne_bytes([a, b, c, 0]),
            [a, b] => u32::from_ne_bytes([a, b, 0, 0]),
            [a] => u32::from_ne_bytes([a, 0, 0, 0]),
            _ => 0,
        };
        sum = add_carry(sum, u64::from(last));
        Self(sum)
    }

    /// Adds one 16-bit field given in host order.
    #[inline]
    #[must_use]
    pub const fn field(self, field: u16) -> Self {
        Self(add_carry(self.0, field.to_be() as u64))
    }

    /// Adds the pseudo-header of IPv4 (RFC 768, RFC 9293 section 3.1).
    #[inline]
    #[must_use]
    pub const fn pseudo_ipv4(self, source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Self {
        let addresses =
            u32::from_ne_bytes(source.octets()) as u64 + u32::from_ne_bytes(destination.octets()) as u64;
        let rest = (protocol as u16).to_be() as u64 + len.to_be() as u64;
        Self(add_carry(self.0, addresses + rest))
    }

    /// Adds the pseudo-header of IPv6 (RFC 8200 section 8.1).
    #[inline]
    #[must_use]
    pub fn pseudo_ipv6(self, source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Self {
        let rest = u64::from(u32::from(protocol).to_be()) + u64::from(len.to_be());
        Self(add_carry(self.bytes(&source.octets()).bytes(&destination.octets()).0, rest))
    }

    /// The sum as 16 bits in host order, not complemented: 0xffff if the checksum that was added is right.
    #[inline]
    #[must_use]
    pub const fn fold(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        u16::from_be(sum as u16)
    }

    /// The value for the checksum field, in host order.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// End-around carry (RFC 1071 section 1), 64 bits wide.
#[inline]
const fn add_carry(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Checks the checksum field of a transport segment.
///
/// `pseudo` is the pseudo-header's sum, `segment` the whole segment with its checksum field, `field` that field.
///
/// # Errors
/// `wrong`, if the sum is neither right nor, where that is accepted, the pseudo-header's alone.
#[inline]
pub fn judge(
    pseudo: Sum,
    segment: &[u8],
    field: u16,
    trust: ChecksumTrust,
    wrong: ParseError,
) -> Result<ChecksumFound, ParseError> {
    match trust {
        ChecksumTrust::Trusted => return Ok(ChecksumFound::Trusted),
        // Cheaper than the payload's sum, and on a virtual device the common case.
        ChecksumTrust::AcceptPartial if field == pseudo.fold() => return Ok(ChecksumFound::Partial),
        ChecksumTrust::AcceptPartial | ChecksumTrust::Verify => {}
    }
    if pseudo.bytes(segment).fold() == 0xffff { Ok(ChecksumFound::Right) } else { Err(wrong) }
}

/// Completes a checksum that the sender left to hardware, as `skb_checksum_help` does (net/core/dev.c). The field at
/// `start + offset` holds the pseudo-header's sum; it is replaced by the checksum from `start` to the end of
/// `packet`. Tags and tunnels in front of `start` do not matter.
///
/// A sum of zero is written as 0xffff, which UDP requires (RFC 768) and TCP allows: both are the same number.
///
/// # Errors
/// [`OutOfPacket`] if the field is not within the packet; nothing is changed then.
#[inline]
pub fn complete(packet: &mut [u8], start: usize, offset: usize) -> Result<(), OutOfPacket> {
    let covered = packet.get_mut(start..).ok_or(OutOfPacket)?;
    let end = offset.checked_add(2).ok_or(OutOfPacket)?;
    if covered.get(offset..end).is_none() {
        return Err(OutOfPacket);
    }
    let checksum = match Sum::ZERO.bytes(covered).checksum() {
        0 => 0xffff,
        checksum => checksum,
    };
    covered[offset..end].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The checksum field, or the range it covers, is beyond the end of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfPacket;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 section 4.1, in its simplest form.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let sum = Sum::ZERO.bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
        assert_eq!(sum.checksum(), 0x220d);
    }

    #[test]
    fn carries_survive_any_number_of_ones() {
        for len in [1, 2, 7, 8, 9, 63, 64, 65, 65535] {
            let ones = vec![0xff; len];
            assert_eq!(Sum::ZERO.bytes(&ones).fold(), plain(&ones), "{len}");
        }
        assert_eq!(Sum(u64::MAX).field(0xffff).fold(), 0xffff);
    }

    #[test]
    fn each_carry_of_folding_is_added() {
        // In the machine's byte order. The second sum carries in the last addition only.
        for (sum, folded) in
            [(0x0001_0002_0003_0004, 10), (0xffff_ffff_0001_0000, 1), (u64::MAX, 0xffff), (0, 0)]
        {
            assert_eq!(Sum(sum).fold(), u16::from_be(folded), "{sum:#x}");
        }
    }

    /// A UDP datagram of RFC 768's form, 192.0.2.1:7 to 192.0.2.2:9, with its checksum field at `field`.
    fn datagram(field: u16, payload: &[u8]) -> Vec<u8> {
        let len = 8 + payload.len() as u16;
        let mut bytes = vec![0, 7, 0, 9];
        bytes.extend(len.to_be_bytes());
        bytes.extend(field.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn pseudo(len: usize) -> Sum {
        Sum::ZERO.pseudo_ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), 17, 8 + len as u16)
    }

    #[test]
    fn a_checksum_left_to_hardware_is_completed_behind_any_headers() {
        for (headers, payload) in
            [(0, &b"hello"[..]), (34, b"odd"), (38, b""), (84, b"behind a tag and a tunnel")]
        {
            let mut packet = vec![0xa5; headers];
            packet.extend(datagram(pseudo(payload.len()).fold(), payload));
            let before = packet.clone();
            complete(&mut packet, headers, 6).expect("within");
            assert_eq!(packet[..headers + 6], before[..headers + 6]);
            assert_eq!(packet[headers + 8..], before[headers + 8..]);
            assert_eq!(pseudo(payload.len()).bytes(&packet[headers..]).fold(), 0xffff);
        }
        // By hand: the pseudo-header gives 0x841d (c000 + 0201 + c000 + 0202 + 0011 + 0008), with 7 + 9 + 8 it is 0x8435; complemented.
        let mut packet = datagram(pseudo(0).fold(), b"");
        assert_eq!(packet[6..8], [0x84, 0x1d]);
        complete(&mut packet, 0, 6).expect("within");
        assert_eq!(packet[6..8], [0x7b, 0xca]);
    }

    #[test]
    fn a_sum_of_zero_is_written_as_ones() {
        // The payload makes the sum 0xffff, whose complement would read "no checksum".
        let bare = pseudo(2).bytes(&datagram(0, &[0, 0])).fold();
        let mut packet = datagram(pseudo(2).fold(), &(!bare).to_be_bytes());
        complete(&mut packet, 0, 6).expect("within");
        assert_eq!(packet[6..8], [0xff, 0xff]);
    }

    #[test]
    fn a_checksum_outside_the_packet_is_refused() {
        let packet = datagram(0x1234, b"x");
        for (start, offset) in
            [(0, 8), (8, 0), (9, 0), (10, 0), (usize::MAX, 0), (0, usize::MAX), (usize::MAX, usize::MAX)]
        {
            let mut changed = packet.clone();
            assert_eq!(complete(&mut changed, start, offset), Err(OutOfPacket), "{start} + {offset}");
            assert_eq!(changed, packet);
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_plain_sum(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..150) {
            let (head, tail) = bytes.split_at((at * 2).min(bytes.len() & !1));
            let sum = Sum::ZERO.bytes(head).bytes(tail).fold();
            // 0 and 0xffff are the same number in one's complement.
            prop_assert_eq!(sum % 0xffff, plain(&bytes) % 0xffff);
        }

        #[test]
        fn pseudo_headers_are_what_their_bytes_are(a in any::<[u8; 16]>(), b in any::<[u8; 16]>(), len in any::<u16>()) {
            let mut bytes = [a, b].concat();
            bytes.extend([0, 0]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 0, 0, 17]);
            let v6 = Sum::ZERO.pseudo_ipv6(a.into(), b.into(), 17, u32::from(len));
            prop_assert_eq!(v6.fold() % 0xffff, plain(&bytes) % 0xffff);
            let (a4, b4) = ([a[0], a[1], a[2], a[3]], [b[0], b[1], b[2], b[3]]);
            let mut bytes = [a4, b4].concat();
            bytes.extend([0, 17]);
            bytes.extend(len.to_be_bytes());
            let v4 = Sum::ZERO.pseudo_ipv4(a4.into(), b4.into(), 17, len);
            prop_assert_eq!(v4.fold() % 0xffff, plain(&bytes) % 0xffff);
        }
    }
}
