//! The Internet checksum (RFC 1071).
//!
//! Sums run in the machine's byte order, eight bytes at a time. One's complement addition depends on neither (RFC
//! 1071 section 2), if every piece but the last has an even length.

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
    /// Only the pseudo-header's sum is there. It must be completed before the frame leaves through another port.
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

    /// Adds another sum.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(add_carry(self.0, other.0))
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

/// The sum of bytes that come in pieces of any length, odd ones too.
#[derive(Clone, Copy, Debug, Default)]
pub struct PiecewiseSum {
    sum: Sum,
    is_odd: bool,
}

impl PiecewiseSum {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        let sum = Sum::ZERO.bytes(piece);
        // After an odd number of bytes, high and low bytes are swapped (RFC 1071 section 2 (B)).
        self.sum = if self.is_odd { self.sum.field(sum.fold().swap_bytes()) } else { self.sum.and(sum) };
        self.is_odd ^= piece.len() % 2 == 1;
    }

    /// The sum of all pieces so far.
    #[must_use]
    pub const fn sum(self) -> Sum {
        self.sum
    }
}

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

    proptest! {
        #[test]
        fn any_split_gives_the_plain_sum(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..150) {
            let (head, tail) = bytes.split_at((at * 2).min(bytes.len() & !1));
            let sum = Sum::ZERO.bytes(head).bytes(tail).fold();
            // 0 and 0xffff are the same number in one's complement.
            prop_assert_eq!(sum % 0xffff, plain(&bytes) % 0xffff);
        }

        #[test]
        fn pieces_of_any_length_give_the_plain_sum(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1usize..40, first in 0usize..40,
        ) {
            let (first, rest) = bytes.split_at(first.min(bytes.len()));
            let mut sum = PiecewiseSum::default();
            sum.add(first);
            rest.chunks(cut).for_each(|piece| sum.add(piece));
            prop_assert_eq!(sum.sum().fold() % 0xffff, plain(&bytes) % 0xffff);
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
