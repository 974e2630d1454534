//! UDP headers (RFC 768).

use crate::checksum::{Sum, judge};
use crate::{ChecksumFound, ChecksumTrust, EmitError, ParseError, be16};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// A checked view over a datagram: the length is right; [`Datagram::verify_ipv4`] and [`Datagram::verify_ipv6`] check
/// the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    header: &'a [u8; HEADER_LEN],
    whole: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Checks the length and cuts off bytes of the IP payload after the datagram.
    ///
    /// # Errors
    /// [`ParseError::UdpTruncated`], [`ParseError::UdpLength`].
    #[inline]
    pub fn parse(ip_payload: &'a [u8]) -> Result<Self, ParseError> {
        let header: &[u8; HEADER_LEN] = ip_payload.first_chunk().ok_or(ParseError::UdpTruncated)?;
        let len = usize::from(be16(header[4], header[5]));
        if len < HEADER_LEN {
            return Err(ParseError::UdpLength);
        }
        let whole = ip_payload.get(..len).ok_or(ParseError::UdpLength)?;
        Ok(Self { header, whole })
    }

    /// The sender's port.
    #[inline]
    #[must_use]
    pub fn source_port(&self) -> u16 {
        be16(self.header[0], self.header[1])
    }

    /// The receiver's port.
    #[inline]
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        be16(self.header[2], self.header[3])
    }

    /// Length of header and payload, from the header, bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u16 {
        be16(self.header[4], self.header[5])
    }

    /// Whether the payload is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload().is_empty()
    }

    /// The checksum field.
    #[inline]
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.header[6], self.header[7])
    }

    /// The payload.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.whole.get(HEADER_LEN..).unwrap_or_default()
    }

    /// Checks the checksum over IPv4, where zero means that there is none.
    ///
    /// # Errors
    /// [`ParseError::UdpChecksum`].
    #[inline]
    pub fn verify_ipv4(&self, pseudo: Sum, trust: ChecksumTrust) -> Result<ChecksumFound, ParseError> {
        if self.checksum() == 0 && trust != ChecksumTrust::Trusted {
            return Ok(ChecksumFound::Absent);
        }
        judge(pseudo, self.whole, self.checksum(), trust, ParseError::UdpChecksum)
    }

    /// Checks the checksum over IPv6, where it is mandatory (RFC 8200 section 8.1).
    ///
    /// # Errors
    /// [`ParseError::UdpChecksum`], [`ParseError::UdpChecksumZero`].
    #[inline]
    pub fn verify_ipv6(&self, pseudo: Sum, trust: ChecksumTrust) -> Result<ChecksumFound, ParseError> {
        if self.checksum() == 0 && trust != ChecksumTrust::Trusted {
            return Err(ParseError::UdpChecksumZero);
        }
        judge(pseudo, self.whole, self.checksum(), trust, ParseError::UdpChecksum)
    }
}

/// A header to be written in front of a payload that is already in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Bytes of payload.
    pub payload_len: usize,
}

impl Repr {
    /// Writes the header at the start of `buffer`, with the checksum over the payload that follows it. `pseudo` is
    /// the pseudo-header's sum, its length included.
    ///
    /// # Errors
    /// [`EmitError::BufferTooShort`], [`EmitError::PayloadTooLong`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8], pseudo: Sum) -> Result<usize, EmitError> {
        let len = u16::try_from(self.payload_len + HEADER_LEN).map_err(|_| EmitError::PayloadTooLong)?;
        let whole = buffer.get_mut(..usize::from(len)).ok_or(EmitError::BufferTooShort)?;
        let (header, payload) =
            whole.split_first_chunk_mut::<HEADER_LEN>().ok_or(EmitError::BufferTooShort)?;
        let (s, d, l) =
            (self.source_port.to_be_bytes(), self.destination_port.to_be_bytes(), len.to_be_bytes());
        let mut bytes = [s[0], s[1], d[0], d[1], l[0], l[1], 0, 0];
        let checksum = match pseudo.bytes(&bytes).bytes(payload).checksum() {
            // Zero on the wire means "none" (RFC 768) and is forbidden over IPv6.
            0 => 0xffff,
            sum => sum,
        };
        [bytes[6], bytes[7]] = checksum.to_be_bytes();
        *header = bytes;
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From port 4000 to port 7, `len` bytes long by its header.
    fn datagram(len: u16, payload: &[u8]) -> Vec<u8> {
        let len = len.to_be_bytes();
        [&[0x0f, 0xa0, 0, 7, len[0], len[1], 0x12, 0x34][..], payload].concat()
    }

    #[test]
    fn a_datagram_ends_where_its_header_says() {
        let bytes = datagram(11, b"abcdef");
        let found = Datagram::parse(&bytes).expect("whole");
        assert_eq!((found.source_port(), found.destination_port()), (4000, 7));
        assert_eq!((found.len(), found.checksum(), found.payload()), (11, 0x1234, &b"abc"[..]));
        assert!(!found.is_empty());
        let empty = datagram(8, b"padding");
        assert!(Datagram::parse(&empty).expect("whole").is_empty());
        for len in 0..bytes.len() {
            let expected = match len {
                0..8 => Err(ParseError::UdpTruncated),
                8..11 => Err(ParseError::UdpLength),
                _ => Ok(3),
            };
            assert_eq!(Datagram::parse(&bytes[..len]).map(|found| found.payload().len()), expected, "{len}");
        }
        for len in 0..8 {
            assert_eq!(
                Datagram::parse(&datagram(len, b"abc")).map(|_| ()),
                Err(ParseError::UdpLength),
                "{len}"
            );
        }
    }

    #[test]
    fn a_written_header_takes_what_its_length_field_can_say() {
        let mut bytes = vec![0; 65_536];
        let repr = |payload_len| Repr { source_port: 4000, destination_port: 7, payload_len };
        assert_eq!(repr(65_527).emit(&mut bytes, Sum::ZERO), Ok(HEADER_LEN));
        assert_eq!(Datagram::parse(&bytes).map(|found| found.payload().len()), Ok(65_527));
        assert_eq!(repr(65_528).emit(&mut bytes, Sum::ZERO), Err(EmitError::PayloadTooLong));
        assert_eq!(repr(4).emit(&mut bytes[..11], Sum::ZERO), Err(EmitError::BufferTooShort));
        assert_eq!(repr(4).emit(&mut bytes[..12], Sum::ZERO), Ok(HEADER_LEN));
    }
}
