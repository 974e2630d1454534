//! VXLAN headers (RFC 7348): eight bytes between a UDP header and the Ethernet frame that the datagram carries.

use crate::{ParseError, eth};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// The destination port that IANA has assigned (RFC 7348 section 8.1).
pub const UDP_PORT: u16 = 4789;
/// The largest network identifier (VNI): it has 24 bits.
pub const VNI_MAX: u32 = 0x00ff_ffff;

/// The flag that says that there is a network identifier (RFC 7348 section 5).
const FLAG_VNI: u8 = 0x08;

/// A checked view over a datagram's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    vni: u32,
    frame: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks that there are the header, a network identifier and an Ethernet header. Reserved bits are ignored, as
    /// RFC 7348 section 5 says.
    ///
    /// # Errors
    /// [`ParseError::VxlanTruncated`], [`ParseError::VxlanFlags`].
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (header, frame) = payload.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::VxlanTruncated)?;
        let [flags, _, _, _, high, middle, low, _] = *header;
        if flags & FLAG_VNI == 0 {
            return Err(ParseError::VxlanFlags);
        }
        if frame.len() < eth::HEADER_LEN {
            return Err(ParseError::VxlanTruncated);
        }
        Ok(Self { vni: u32::from_be_bytes([0, high, middle, low]), frame })
    }

    /// The network identifier.
    #[inline]
    #[must_use]
    pub const fn vni(&self) -> u32 {
        self.vni
    }

    /// The frame that it carries, from the Ethernet header, without a frame check sequence.
    #[inline]
    #[must_use]
    pub const fn frame(&self) -> &'a [u8] {
        self.frame
    }
}

/// The header for frames of a network; only the lower 24 bits of `vni` count.
#[must_use]
pub const fn header(vni: u32) -> [u8; HEADER_LEN] {
    let [_, high, middle, low] = vni.to_be_bytes();
    [FLAG_VNI, 0, 0, 0, high, middle, low, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these flags and this network, and a frame of `len` bytes.
    fn payload(flags: u8, vni: u32, len: usize) -> Vec<u8> {
        let mut bytes = header(vni).to_vec();
        bytes[0] = flags;
        bytes.resize(HEADER_LEN + len, 7);
        bytes
    }

    #[test]
    fn what_is_written_reads_back() {
        for vni in [0, 1, 100, 0x0001_0203, VNI_MAX] {
            let bytes = payload(header(vni)[0], vni, 60);
            let packet = Packet::parse(&bytes).expect("valid");
            assert_eq!((packet.vni(), packet.frame()), (vni, &bytes[HEADER_LEN..]));
        }
        // RFC 7348 section 5: flags, 24 reserved bits, the identifier, 8 reserved bits.
        assert_eq!(header(0x0001_0203), [0x08, 0, 0, 0, 1, 2, 3, 0]);
        assert_eq!(header(u32::MAX), header(VNI_MAX));
    }

    #[test]
    fn only_the_flag_of_the_identifier_counts() {
        assert!(Packet::parse(&payload(0xff, 5, 60)).is_ok(), "reserved bits are ignored");
        for flags in [0, 0xf7, 0x80] {
            assert_eq!(Packet::parse(&payload(flags, 5, 60)), Err(ParseError::VxlanFlags));
        }
        let mut reserved = payload(0x08, 5, 60);
        (reserved[1], reserved[2], reserved[3], reserved[7]) = (1, 2, 3, 4);
        assert_eq!(Packet::parse(&reserved).map(|packet| packet.vni()), Ok(5));
    }

    #[test]
    fn a_payload_holds_both_headers() {
        let bytes = payload(0x08, 5, eth::HEADER_LEN);
        assert!(Packet::parse(&bytes).is_ok());
        for len in 0..bytes.len() {
            assert_eq!(Packet::parse(&bytes[..len]), Err(ParseError::VxlanTruncated), "{len}");
        }
    }
}
