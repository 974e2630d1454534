//! IPv6 headers (RFC 8200). Extension headers are not parsed: packets with them stay with the kernel.

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::{EmitError, ParseError, be16};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// Next header numbers that announce an extension header (RFC 8200 section 4, RFC 4302, RFC 6275, RFC 7401,
/// RFC 5533). The fragment header, 44, has its own name: [`FRAGMENT`].
pub const EXTENSIONS: [u8; 7] = [0, 43, 51, 60, 135, 139, 140];
/// Next header number of the fragment header (RFC 8200 section 4.5).
pub const FRAGMENT: u8 = 44;

/// A checked view over a packet: version and length are right.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks the fixed header and cuts off bytes after the payload length (Ethernet padding).
    ///
    /// # Errors
    /// [`ParseError::IpTruncated`], [`ParseError::IpVersion`], [`ParseError::IpLength`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::IpTruncated)?;
        if header[0] >> 4 != 6 {
            return Err(ParseError::IpVersion);
        }
        let payload_len = usize::from(be16(header[4], header[5]));
        let payload = rest.get(..payload_len).ok_or(ParseError::IpLength)?;
        Ok(Self { header, payload })
    }

    /// Traffic class: DSCP (6 bits) and ECN (2).
    #[inline]
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }

    /// The type of the next header or of the payload.
    #[inline]
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Hop limit.
    #[inline]
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// The source address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        address(self.header, 8)
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        address(self.header, 24)
    }

    /// The payload, without Ethernet padding.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The pseudo-header's sum for a transport segment of `len` bytes.
    #[inline]
    #[must_use]
    pub fn pseudo(&self, len: u16) -> Sum {
        Sum::ZERO.pseudo_ipv6(self.source(), self.destination(), self.next_header(), u32::from(len))
    }
}

#[inline]
fn address(header: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    octets.into()
}

/// A fixed header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
    /// The IANA protocol number of what follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Bytes after the header.
    pub payload_len: usize,
}

impl Repr {
    /// Writes the header at the start of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooShort`], [`EmitError::PayloadTooLong`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let payload_len =
            u16::try_from(self.payload_len).map_err(|_| EmitError::PayloadTooLong)?.to_be_bytes();
        let header: &mut [u8; HEADER_LEN] = buffer.first_chunk_mut().ok_or(EmitError::BufferTooShort)?;
        header[..8].copy_from_slice(&[
            0x60,
            0,
            0,
            0,
            payload_len[0],
            payload_len[1],
            self.next_header,
            self.hop_limit,
        ]);
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7);
    const DESTINATION: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 10, 11, 12, 13, 14, 15);

    proptest! {
        #[test]
        fn a_view_has_the_fields_of_rfc_8200(
            class: u8, label in 0..1_u32 << 20, next_header: u8, hop_limit: u8, payload: Vec<u8>
        ) {
            let mut bytes = (6 << 28 | u32::from(class) << 20 | label).to_be_bytes().to_vec();
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([next_header, hop_limit]);
            bytes.extend(SOURCE.octets());
            bytes.extend(DESTINATION.octets());
            bytes.extend(&payload);
            let whole = bytes.len();
            bytes.extend([0xee; 3]);
            let found = Packet::parse(&bytes).expect("right");
            prop_assert_eq!((found.traffic_class(), found.next_header(), found.hop_limit()), (class, next_header, hop_limit));
            prop_assert_eq!((found.source(), found.destination()), (SOURCE, DESTINATION));
            prop_assert_eq!(found.payload(), &payload[..]);
            prop_assert_eq!(found.pseudo(9), Sum::ZERO.pseudo_ipv6(SOURCE, DESTINATION, next_header, 9));
            for len in 0..whole {
                let expected = if len < HEADER_LEN { ParseError::IpTruncated } else { ParseError::IpLength };
                prop_assert_eq!(Packet::parse(&bytes[..len]).map(|_| ()), Err(expected), "{} bytes", len);
            }
        }
    }

    #[test]
    fn a_written_header_is_read_back_up_to_the_longest_payload() {
        let repr = Repr {
            source: SOURCE,
            destination: DESTINATION,
            next_header: 17,
            hop_limit: 3,
            payload_len: 65_535,
        };
        let mut bytes = vec![0xee; HEADER_LEN + 65_535];
        assert_eq!(repr.emit(&mut bytes), Ok(HEADER_LEN));
        let found = Packet::parse(&bytes).expect("right");
        assert_eq!((found.source(), found.destination()), (SOURCE, DESTINATION));
        assert_eq!((found.next_header(), found.hop_limit(), found.traffic_class()), (17, 3, 0));
        assert_eq!(found.payload().len(), 65_535);
        assert_eq!(Repr { payload_len: 65_536, ..repr }.emit(&mut bytes), Err(EmitError::PayloadTooLong));
        assert_eq!(repr.emit(&mut bytes[..39]), Err(EmitError::BufferTooShort));
    }
}
