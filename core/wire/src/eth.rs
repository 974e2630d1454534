//! Ethernet II headers, with at most one VLAN tag.

use core::fmt;
use core::str::FromStr;

use crate::{EmitError, Mac, ParseError, be16};

/// Bytes of an untagged header.
pub const HEADER_LEN: usize = 14;
/// Bytes a tag adds.
pub const TAG_LEN: usize = 4;

/// An EtherType, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A customer tag follows (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// A service tag follows (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// MPLS labels (RFC 5332).
    pub const MPLS: Self = Self(0x8847);
    /// MPLS labels of a multicast tree, or assigned upstream (RFC 5332).
    pub const MPLS_MULTICAST: Self = Self(0x8848);
    /// A PBB service tag, with a whole frame behind it (IEEE 802.1Q, 9.7).
    pub const PBB: Self = Self(0x88e7);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// Smaller numbers are the length field of IEEE 802.3.
    pub const SMALLEST: Self = Self(0x0600);

    /// Whether a tag follows instead of a payload.
    #[inline]
    #[must_use]
    pub const fn is_tag(self) -> bool {
        self.0 == Self::VLAN.0 || self.0 == Self::SERVICE_VLAN.0
    }
}

/// The text is not an EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherTypeError;

impl fmt::Display for EtherTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an EtherType is a number of 16 bits: write 0x88b5")
    }
}

impl core::error::Error for EtherTypeError {}

/// Parses hexadecimal, as EtherTypes are usually written, or decimal.
impl FromStr for EtherType {
    type Err = EtherTypeError;

    fn from_str(text: &str) -> Result<Self, EtherTypeError> {
        let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map(Self).map_err(|_| EtherTypeError)
    }
}

/// A VLAN tag, in the frame's bytes or outside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The tag's own EtherType: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub protocol: EtherType,
    /// Tag control information: priority (3 bits), drop eligible (1), VLAN identifier (12).
    pub control: u16,
}

impl Tag {
    /// An 802.1Q tag of priority 0.
    #[must_use]
    pub const fn customer(id: u16) -> Self {
        Self { protocol: EtherType::VLAN, control: id & 0xfff }
    }

    /// The VLAN identifier, 0 to 4095.
    #[inline]
    #[must_use]
    pub const fn id(self) -> u16 {
        self.control & 0xfff
    }
}

/// A checked view over a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    header: &'a [u8; HEADER_LEN],
    tag: Option<&'a [u8; TAG_LEN]>,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks that the header, and the tag it announces, are there.
    ///
    /// # Errors
    /// [`ParseError::EthTruncated`], or [`ParseError::EthTag`] if a second tag follows the first.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, ParseError> {
        let (header, rest) = frame.split_first_chunk().ok_or(ParseError::EthTruncated)?;
        let ethertype = EtherType(be16(header[12], header[13]));
        if !ethertype.is_tag() {
            return Ok(Self { header, tag: None, payload: rest });
        }
        let (tag, payload) = rest.split_first_chunk::<TAG_LEN>().ok_or(ParseError::EthTruncated)?;
        if EtherType(be16(tag[2], tag[3])).is_tag() {
            return Err(ParseError::EthTag);
        }
        Ok(Self { header, tag: Some(tag), payload })
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = *self.header;
        Mac([a, b, c, d, e, f])
    }

    /// The source address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> Mac {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        Mac([a, b, c, d, e, f])
    }

    /// The tag in the frame.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        let tag = self.tag?;
        Some(Tag {
            protocol: EtherType(be16(self.header[12], self.header[13])),
            control: be16(tag[0], tag[1]),
        })
    }

    /// The type of the payload, after the tag if there is one.
    #[inline]
    #[must_use]
    pub fn ethertype(&self) -> EtherType {
        match self.tag {
            Some(tag) => EtherType(be16(tag[2], tag[3])),
            None => EtherType(be16(self.header[12], self.header[13])),
        }
    }

    /// Bytes of header and tag.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        if self.tag.is_some() { HEADER_LEN + TAG_LEN } else { HEADER_LEN }
    }

    /// Everything after the header, padding included.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An Ethernet header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Where the frame goes.
    pub destination: Mac,
    /// Who sends it.
    pub source: Mac,
    /// The tag to put in.
    pub tag: Option<Tag>,
    /// The type of what follows.
    pub ethertype: EtherType,
}

impl Repr {
    /// Bytes that [`Repr::emit`] writes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        if self.tag.is_some() { HEADER_LEN + TAG_LEN } else { HEADER_LEN }
    }

    /// Never: a header always has bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header at the start of `buffer` and returns its length.
    ///
    /// # Errors
    /// [`EmitError::BufferTooShort`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let header = buffer.get_mut(..self.len()).ok_or(EmitError::BufferTooShort)?;
        let (addresses, rest) = header.split_at_mut(12);
        addresses[..6].copy_from_slice(&self.destination.0);
        addresses[6..].copy_from_slice(&self.source.0);
        let type_at = match self.tag {
            Some(tag) => {
                rest[..2].copy_from_slice(&tag.protocol.0.to_be_bytes());
                rest[2..4].copy_from_slice(&tag.control.to_be_bytes());
                4
            }
            None => 0,
        };
        rest[type_at..].copy_from_slice(&self.ethertype.0.to_be_bytes());
        Ok(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethertype_is_read_in_hexadecimal_or_as_a_number() {
        for text in ["0x88b5", "0X88B5", "34997"] {
            assert_eq!(text.parse(), Ok(EtherType(0x88b5)), "{text}");
        }
        for bad in ["", "88b5", "0x188b5", "-1", "0x"] {
            assert_eq!(bad.parse::<EtherType>(), Err(EtherTypeError), "{bad}");
        }
    }

    #[test]
    fn a_text_that_is_no_ethertype_gets_an_example() {
        assert!(EtherTypeError.to_string().contains("0x88b5"));
    }

    #[test]
    fn a_frame_has_its_fields_with_and_without_a_tag() {
        let (destination, source) = (Mac([2, 3, 4, 5, 6, 7]), Mac([8, 9, 10, 11, 12, 13]));
        let service = Tag { protocol: EtherType::SERVICE_VLAN, control: 0xf064 };
        for tag in [None, Some(Tag::customer(100)), Some(service)] {
            let repr = Repr { destination, source, tag, ethertype: EtherType::ARP };
            let header_len = if tag.is_some() { 18 } else { 14 };
            let mut bytes = vec![0xee; header_len + 3];
            assert_eq!(
                (repr.emit(&mut bytes), repr.len(), repr.is_empty()),
                (Ok(header_len), header_len, false)
            );
            let frame = Frame::parse(&bytes).expect("whole");
            assert_eq!((frame.destination(), frame.source()), (destination, source));
            assert_eq!((frame.tag(), frame.ethertype()), (tag, EtherType::ARP));
            assert_eq!((frame.header_len(), frame.payload()), (header_len, &[0xee; 3][..]));
            for len in 0..header_len {
                assert_eq!(Frame::parse(&bytes[..len]).map(|_| ()), Err(ParseError::EthTruncated), "{len}");
                assert_eq!(repr.emit(&mut bytes.clone()[..len]), Err(EmitError::BufferTooShort), "{len}");
            }
        }
    }

    #[test]
    fn a_tag_behind_a_tag_is_refused_and_an_identifier_has_twelve_bits() {
        for (outer, inner) in [([0x81, 0], [0x81, 0]), ([0x81, 0], [0x88, 0xa8]), ([0x88, 0xa8], [0x81, 0])] {
            let mut bytes = [0; 60];
            bytes[12..14].copy_from_slice(&outer);
            bytes[16..18].copy_from_slice(&inner);
            assert_eq!(Frame::parse(&bytes).map(|_| ()), Err(ParseError::EthTag));
        }
        assert_eq!((Tag { protocol: EtherType::VLAN, control: 0xf123 }).id(), 0x123);
        assert_eq!(Tag::customer(0xf123), Tag { protocol: EtherType::VLAN, control: 0x123 });
    }
}
