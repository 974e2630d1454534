//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::{EmitError, ParseError, be16};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

/// A checked view over a packet: version, lengths and header checksum are right.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    header_len: usize,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks the header and cuts off bytes after the total length (Ethernet padding).
    ///
    /// # Errors
    /// The `Ip*` variants of [`ParseError`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(ParseError::IpTruncated)?;
        if header[0] >> 4 != 4 {
            return Err(ParseError::IpVersion);
        }
        let header_len = usize::from(header[0] & 0xf) * 4;
        if header_len < HEADER_LEN {
            return Err(ParseError::IpHeaderLength);
        }
        let with_options = bytes.get(..header_len).ok_or(ParseError::IpTruncated)?;
        let total_len = usize::from(be16(header[2], header[3]));
        let payload = bytes.get(header_len..total_len).ok_or(ParseError::IpLength)?;
        if Sum::ZERO.bytes(with_options).fold() != 0xffff {
            return Err(ParseError::IpHeaderChecksum);
        }
        Ok(Self { header, header_len, payload })
    }

    /// Bytes of the header with its options.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Type of service: DSCP (6 bits) and ECN (2).
    #[inline]
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.header[1]
    }

    /// The identification field.
    #[inline]
    #[must_use]
    pub fn identification(&self) -> u16 {
        be16(self.header[4], self.header[5])
    }

    /// Whether more fragments follow or this is not the first.
    #[inline]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        be16(self.header[6], self.header[7]) & 0x3fff != 0
    }

    /// Time to live.
    #[inline]
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.header[8]
    }

    /// The IANA protocol number of the payload.
    #[inline]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// The source address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.header[12], self.header[13], self.header[14], self.header[15])
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.header[16], self.header[17], self.header[18], self.header[19])
    }

    /// The payload, without Ethernet padding.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The pseudo-header's sum for a transport segment of the whole payload.
    #[inline]
    #[must_use]
    pub fn pseudo(&self, len: u16) -> Sum {
        Sum::ZERO.pseudo_ipv4(self.source(), self.destination(), self.protocol(), len)
    }
}

/// A header to be written, without options. "Don't fragment" is always set: a datagram that needs fragmentation is
/// sent through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
    /// The IANA protocol number of the payload.
    pub protocol: u8,
    /// Time to live.
    pub hop_limit: u8,
    /// Identification; arbitrary, because the packet is never fragmented (RFC 6864 section 4.1).
    pub identification: u16,
    /// Bytes after the header.
    pub payload_len: usize,
}

impl Repr {
    /// Writes the header with its checksum at the start of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooShort`], [`EmitError::PayloadTooLong`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let total_len = u16::try_from(self.payload_len + HEADER_LEN)
            .map_err(|_| EmitError::PayloadTooLong)?
            .to_be_bytes();
        let identification = self.identification.to_be_bytes();
        let (s, d) = (self.source.octets(), self.destination.octets());
        let header: &mut [u8; HEADER_LEN] = buffer.first_chunk_mut().ok_or(EmitError::BufferTooShort)?;
        #[rustfmt::skip]
        let mut bytes = [
            0x45, 0, total_len[0], total_len[1],
            identification[0], identification[1], 0x40, 0,
            self.hop_limit, self.protocol, 0, 0,
            s[0], s[1], s[2], s[3],
            d[0], d[1], d[2], d[3],
        ];
        let checksum = Sum::ZERO.bytes(&bytes).checksum().to_be_bytes();
        bytes[10] = checksum[0];
        bytes[11] = checksum[1];
        *header = bytes;
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet with `options` words of options and a right checksum, and 3 bytes of Ethernet padding.
    fn packet(fields: [u8; 10], options: u8, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + 4 * usize::from(options);
        let mut bytes = fields.to_vec();
        bytes[0] = 0x45 + options;
        bytes[2..4].copy_from_slice(&((header_len + payload.len()) as u16).to_be_bytes());
        bytes.extend([0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
        bytes.resize(header_len, 1);
        let checksum = Sum::ZERO.bytes(&bytes).checksum().to_be_bytes();
        bytes[10..12].copy_from_slice(&checksum);
        bytes.extend(payload);
        bytes.extend([0xee; 3]);
        bytes
    }

    proptest! {
        #[test]
        fn a_view_has_the_fields_of_rfc_791(fields: [u8; 10], options in 0..11_u8, payload: Vec<u8>) {
            let bytes = packet(fields, options, &payload);
            let found = Packet::parse(&bytes).expect("right");
            prop_assert_eq!(found.header_len(), 20 + 4 * usize::from(options));
            prop_assert_eq!(found.payload(), &payload[..]);
            prop_assert_eq!((found.traffic_class(), found.hop_limit(), found.protocol()), (fields[1], fields[8], fields[9]));
            prop_assert_eq!(found.identification(), u16::from_be_bytes([fields[4], fields[5]]));
            // Three bits of flags, the last of them "more fragments"; 13 bits of offset.
            let offset = u16::from_be_bytes([fields[6] & 0x1f, fields[7]]);
            prop_assert_eq!(found.is_fragment(), fields[6] & 0x20 != 0 || offset != 0);
            prop_assert_eq!(found.source(), Ipv4Addr::new(192, 0, 2, 1));
            prop_assert_eq!(found.destination(), Ipv4Addr::new(198, 51, 100, 2));
            let pseudo = Sum::ZERO.pseudo_ipv4(found.source(), found.destination(), fields[9], 9);
            prop_assert_eq!(found.pseudo(9), pseudo);
        }
    }

    #[test]
    fn a_packet_that_ends_before_its_options_or_its_length_is_refused() {
        let whole = packet([0; 10], 2, b"payload");
        for len in 0..whole.len() {
            let expected = match len {
                0..28 => Err(ParseError::IpTruncated),
                28..35 => Err(ParseError::IpLength),
                _ => Ok(7),
            };
            assert_eq!(
                Packet::parse(&whole[..len]).map(|packet| packet.payload().len()),
                expected,
                "{len} bytes"
            );
        }
    }

    #[test]
    fn a_written_header_is_never_to_be_fragmented_and_says_its_length() {
        let repr = Repr {
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(192, 0, 2, 2),
            protocol: 17,
            hop_limit: 3,
            identification: 0x1234,
            payload_len: 65_515,
        };
        let mut bytes = vec![0; 65_535];
        assert_eq!(repr.emit(&mut bytes), Ok(HEADER_LEN));
        let found = Packet::parse(&bytes).expect("right");
        assert_eq!((found.identification(), found.hop_limit(), found.payload().len()), (0x1234, 3, 65_515));
        assert_eq!((found.is_fragment(), bytes[6]), (false, 0x40));
        assert_eq!(Repr { payload_len: 65_516, ..repr }.emit(&mut bytes), Err(EmitError::PayloadTooLong));
        assert_eq!(repr.emit(&mut bytes[..19]), Err(EmitError::BufferTooShort));
    }
}
