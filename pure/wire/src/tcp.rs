//! TCP headers (RFC 9293): the ports and flags, which steering and demultiplexing need.

use crate::checksum::{Sum, judge};
use crate::{ChecksumFound, ChecksumTrust, ParseError, be16};

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
    /// The acknowledgement field is valid.
    pub const ACK: u8 = 0x10;

    /// Whether the segment opens a connection: SYN is set; ACK, RST and FIN are not.
    #[inline]
    #[must_use]
    pub const fn opens(self) -> bool {
        self.0 & (Self::SYN | Self::ACK | Self::RST | Self::FIN) == Self::SYN
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
