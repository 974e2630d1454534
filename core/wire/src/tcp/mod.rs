//! TCP headers (RFC 9293) and their options (RFC 7323, RFC 2018).

mod options;

pub use options::{OPTIONS_LEN_MAX, Options, SACK_BLOCKS_MAX, Timestamps, UserTimeout, Writer};

use crate::checksum::{Sum, judge};
use crate::{ChecksumFound, ChecksumTrust, EmitError, ParseError, be16};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

/// Control bits (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Echo of congestion experienced (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;

    /// Whether the segment opens a connection: SYN is set; ACK, RST and FIN are not.
    #[inline]
    #[must_use]
    pub const fn opens(self) -> bool {
        self.0 & (Self::SYN | Self::ACK | Self::RST | Self::FIN) == Self::SYN
    }
}

/// The fields of a header that is sent, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledgement number; 0 without ACK.
    pub acknowledgement: u32,
    /// The control bits.
    pub flags: Flags,
    /// The window as sent, without its scale.
    pub window: u16,
    /// How far behind `sequence` urgent data ends (RFC 9293 section 3.8.5), bytes; 0 without URG.
    pub urgent: u16,
}

impl Header {
    /// Writes header and options; returns their length. The checksum is 0.
    ///
    /// # Errors
    /// [`EmitError::BufferTooShort`]; options longer than [`OPTIONS_LEN_MAX`] or no multiple of four bytes are a
    /// mistake of the caller and end as that error, too.
    #[inline]
    pub fn emit(&self, options: &[u8], buffer: &mut [u8]) -> Result<usize, EmitError> {
        let len = HEADER_LEN + options.len();
        let fits = options.len() <= OPTIONS_LEN_MAX && options.len().is_multiple_of(4);
        let target = buffer.get_mut(..len).filter(|_| fits).ok_or(EmitError::BufferTooShort)?;
        let Some((header, rest)) = target.split_first_chunk_mut() else {
            return Err(EmitError::BufferTooShort);
        };
        *header = self.bytes(len);
        // Almost always the three words of timestamps: copied by themselves, they need no call.
        match (rest.as_chunks_mut::<4>().0, options.as_chunks::<4>().0) {
            ([a, b, c], [from_a, from_b, from_c]) => (*a, *b, *c) = (*from_a, *from_b, *from_c),
            (words, from) => words.copy_from_slice(from),
        }
        Ok(len)
    }

    #[inline]
    const fn bytes(&self, len: usize) -> [u8; HEADER_LEN] {
        let [a, b] = self.source_port.to_be_bytes();
        let [c, d] = self.destination_port.to_be_bytes();
        let [e, f, g, h] = self.sequence.to_be_bytes();
        let [i, j, k, l] = self.acknowledgement.to_be_bytes();
        let [m, n] = self.window.to_be_bytes();
        let [o, p] = self.urgent.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, (len as u8 / 4) << 4, self.flags.0, m, n, 0, 0, o, p]
    }
}

/// A checked view over a segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    header: &'a [u8; HEADER_LEN],
    header_len: usize,
    whole: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Checks that the header and its options are complete.
    ///
    /// # Errors
    /// [`ParseError::TcpTruncated`], [`ParseError::TcpHeaderLength`].
    #[inline]
    pub fn parse(ip_payload: &'a [u8]) -> Result<Self, ParseError> {
        let header: &[u8; HEADER_LEN] = ip_payload.first_chunk().ok_or(ParseError::TcpTruncated)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(ParseError::TcpHeaderLength);
        }
        if header_len > ip_payload.len() {
            return Err(ParseError::TcpTruncated);
        }
        Ok(Self { header, header_len, whole: ip_payload })
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

    /// The control bits.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.header[13])
    }

    /// The bit AE, which was reserved before RFC 9768.
    #[inline]
    #[must_use]
    pub fn accurate_ecn(&self) -> bool {
        self.header[12] & 1 != 0
    }

    /// The sequence number of the first byte of the payload, or of SYN.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.be32(4)
    }

    /// The acknowledgement number; it has a meaning if ACK is set.
    #[inline]
    #[must_use]
    pub fn acknowledgement(&self) -> u32 {
        self.be32(8)
    }

    /// The window as sent, without its scale.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u16 {
        be16(self.header[14], self.header[15])
    }

    /// The urgent pointer: how far behind the sequence number urgent data ends, bytes. It has a meaning if URG is set.
    #[inline]
    #[must_use]
    pub fn urgent(&self) -> u16 {
        be16(self.header[18], self.header[19])
    }

    /// The bytes of the options.
    #[inline]
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.whole.get(HEADER_LEN..self.header_len).unwrap_or_default()
    }

    #[inline]
    fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.header[at], self.header[at + 1], self.header[at + 2], self.header[at + 3]])
    }

    /// The payload.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.whole.get(self.header_len..).unwrap_or_default()
    }

    /// Checks the checksum.
    ///
    /// # Errors
    /// [`ParseError::TcpChecksum`].
    #[inline]
    pub fn verify(&self, pseudo: Sum, trust: ChecksumTrust) -> Result<ChecksumFound, ParseError> {
        judge(pseudo, self.whole, be16(self.header[16], self.header[17]), trust, ParseError::TcpChecksum)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    /// A segment from port 4000 to port 7 with a header of `words` words, and bytes of `fill` after the fixed part.
    fn segment(words: u8, flags: u8, after: &[u8]) -> Vec<u8> {
        let mut bytes =
            vec![0x0f, 0xa0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, words << 4, flags, 0xff, 0xff, 0, 0, 0, 0];
        bytes.extend(after);
        bytes
    }

    fn pseudo(len: usize) -> Sum {
        Sum::ZERO.pseudo_ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), 6, len as u16)
    }

    #[test]
    fn only_a_bare_syn_opens() {
        for bits in 0..=u8::MAX {
            let [fin, syn, rst, ack] = [0x01, 0x02, 0x04, 0x10].map(|bit| bits & bit != 0);
            assert_eq!(Flags(bits).opens(), syn && !fin && !rst && !ack, "{bits:#04x}");
        }
    }

    #[test]
    fn each_field_has_its_place() {
        let header = Header {
            source_port: 0x0102,
            destination_port: 0x0304,
            sequence: 0x0506_0708,
            acknowledgement: 0x090a_0b0c,
            flags: Flags(Flags::ACK | Flags::URG),
            window: 0x0f10,
            urgent: 0x1314,
        };
        let mut bytes = [0xff; HEADER_LEN];
        assert_eq!(header.emit(&[], &mut bytes), Ok(HEADER_LEN));
        let expected = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x50, 0x30, 15, 16, 0, 0, 19, 20];
        assert_eq!(bytes, expected);
        let found = Segment::parse(&bytes).expect("whole");
        assert_eq!((found.sequence(), found.acknowledgement()), (header.sequence, header.acknowledgement));
        assert_eq!((found.window(), found.urgent()), (header.window, header.urgent));
    }

    #[test]
    fn a_header_ends_within_the_segment_and_has_five_words_or_more() {
        for words in 0..16 {
            let whole = segment(words, Flags::SYN, &[7; 60]);
            for len in 0..whole.len() {
                let expected = match (len, words) {
                    (0..20, _) => Err(ParseError::TcpTruncated),
                    (_, 0..5) => Err(ParseError::TcpHeaderLength),
                    (len, words) if len < 4 * usize::from(words) => Err(ParseError::TcpTruncated),
                    (len, words) => Ok(len - 4 * usize::from(words)),
                };
                let payload = Segment::parse(&whole[..len]).map(|segment| segment.payload().len());
                assert_eq!(payload, expected, "{words} words, {len} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn a_checked_segment_has_the_bytes_of_its_fields(flags: u8, payload: Vec<u8>, options in 0..11_u8, bit: u16) {
            let options_len = 4 * usize::from(options);
            let mut bytes = segment(5 + options, flags, &[&vec![1; options_len], &payload[..]].concat());
            let pseudo = pseudo(bytes.len());
            let checksum = pseudo.bytes(&bytes).checksum().to_be_bytes();
            bytes[16..18].copy_from_slice(&checksum);
            let found = Segment::parse(&bytes).expect("whole");
            prop_assert_eq!((found.source_port(), found.destination_port()), (4000, 7));
            prop_assert_eq!((found.flags(), found.payload()), (Flags(flags), &payload[..]));
            prop_assert_eq!(found.verify(pseudo, ChecksumTrust::Verify), Ok(ChecksumFound::Right));
            // A flipped bit is detected, unless it changes the header length.
            let bit = usize::from(bit) % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = Segment::parse(&bytes) {
                prop_assert_eq!(found.verify(pseudo, ChecksumTrust::Verify), Err(ParseError::TcpChecksum));
            }
        }
    }
}
