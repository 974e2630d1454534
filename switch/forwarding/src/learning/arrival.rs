//! What the pipeline reads of a frame: its addresses and its outer tag.

use twinpath_wire::{EtherType, Mac, Tag, eth};

/// A frame as the pipeline sees it. It stands beside the frame, which the pipeline never touches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// The number of the port that it came in by.
    pub(crate) port: u16,
    /// Packets that it is on a wire: more than one for a super-frame.
    pub(crate) packets: u32,
    /// Tag control information of the outer 802.1Q tag.
    pub(crate) tag: Option<u16>,
    /// Whether that tag is within the frame's bytes.
    pub(crate) tag_in_bytes: bool,
    /// Whether a second 802.1Q tag follows the outer one.
    pub(crate) tagged_twice: bool,
    /// Whether the frame is shorter than its headers say.
    pub(crate) runt: bool,
    /// The addresses as numbers.
    pub(crate) destination: u64,
    pub(crate) source: u64,
}

impl Arrival {
    pub(crate) const NONE: Self = Self {
        port: 0,
        packets: 0,
        tag: None,
        tag_in_bytes: false,
        tagged_twice: false,
        runt: true,
        destination: 0,
        source: 0,
    };

    /// Reads the head of a frame that came in by `port`: at least its first 18 bytes, or all of it. `beside` is a tag
    /// that is not among the bytes (host order); it is then the outer tag. `packets` is the number of packets that a
    /// super-frame becomes on a wire.
    ///
    /// A service tag (IEEE 802.1ad) is no tag for this switch, as for any bridge of customer VLANs (IEEE 802.1Q, 5.9): its
    /// frames are untagged.
    #[inline]
    #[must_use]
    pub fn read(port: u16, head: &[u8], beside: Option<u16>, packets: u32) -> Self {
        let Some(header) = head.first_chunk::<{ eth::HEADER_LEN }>() else {
            return Self { port, packets, runt: true, tag: beside, ..Self::default() };
        };
        let (mut tag, mut tag_in_bytes, mut tagged_twice, mut runt) = (beside, false, false, false);
        if u16::from_be_bytes([header[12], header[13]]) == EtherType::VLAN.0 {
            match (beside, head[eth::HEADER_LEN..].first_chunk()) {
                (Some(_), _) => tagged_twice = true,
                (None, None) => (tag_in_bytes, runt) = (true, true),
                (None, Some([c0, c1, t0, t1])) => {
                    (tag, tag_in_bytes) = (Some(u16::from_be_bytes([*c0, *c1])), true);
                    tagged_twice = u16::from_be_bytes([*t0, *t1]) == EtherType::VLAN.0;
                }
            }
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        Self {
            port,
            packets,
            tag,
            tag_in_bytes,
            tagged_twice,
            runt,
            destination: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            source: u64::from_be_bytes([0, 0, g, h, i, j, k, l]),
        }
    }

    /// Whether the outer tag is within the frame's bytes, behind the addresses.
    #[inline]
    #[must_use]
    pub const fn tag_in_bytes(&self) -> bool {
        self.tag_in_bytes
    }

    /// Whether its port, addresses, tag and number of packets are those of another frame. Never true for a runt, whose
    /// fields are not known.
    #[inline]
    pub(crate) fn is_of_same_flow(&self, other: &Self) -> bool {
        (self.destination, self.source, self.tag, self.port, self.packets)
            == (other.destination, other.source, other.tag, other.port, other.packets)
            && (self.tag_in_bytes, self.tagged_twice) == (other.tag_in_bytes, other.tagged_twice)
            && !self.runt
            && !other.runt
    }

    /// The VLAN that the outer tag names: 0 if there is none, or if it gives only a priority.
    #[inline]
    pub(crate) fn tagged_vlan(&self) -> u16 {
        self.tag.map_or(0, |control| Tag { protocol: EtherType::VLAN, control }.id())
    }
}

/// An address as a number of 48 bits.
#[inline]
pub(crate) const fn number_of(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The address of such a number.
pub(crate) const fn mac_of(number: u64) -> Mac {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    Mac([a, b, c, d, e, f])
}

/// Whether it is a group address, broadcast included.
#[inline]
pub(crate) const fn is_group(number: u64) -> bool {
    number >> 40 & 1 != 0
}

/// The broadcast address.
pub(crate) const BROADCAST: u64 = number_of(Mac::BROADCAST);

/// The first of the addresses that no bridge forwards: 01-80-C2-00-00-00 to -0F (IEEE 802.1Q, table 8-1).
const RESERVED: u64 = 0x0180_c200_0000;

/// The one of these for flow control (IEEE 802.3, annex 31B).
pub(crate) const PAUSE: u64 = RESERVED | 1;

/// Whether the address is reserved for the link that the frame came by.
#[inline]
pub(crate) const fn is_reserved(destination: u64) -> bool {
    destination & !0xf == RESERVED
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [u8; 18] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x81, 0, 0x20, 7, 0x81, 0];

    #[test]
    fn the_outer_tag_is_the_one_beside_the_bytes_or_else_the_first_among_them() {
        let among = Arrival::read(3, &HEAD, None, 1);
        assert_eq!((among.tag, among.tag_in_bytes(), among.tagged_vlan()), (Some(0x2007), true, 7));
        let beside = Arrival::read(3, &HEAD, Some(0x0005), 1);
        assert_eq!((beside.tag, beside.tag_in_bytes(), beside.tagged_vlan()), (Some(5), false, 5));
        assert_eq!((beside.destination, beside.source), (0x0200_0000_0001, 0x0200_0000_0009));
        let mut service = HEAD;
        service[12..14].copy_from_slice(&[0x88, 0xa8]);
        assert_eq!(Arrival::read(3, &service, None, 1).tag, None);
    }

    #[test]
    fn a_frame_that_ends_within_its_headers_is_a_runt() {
        for len in 0..HEAD.len() {
            assert!(Arrival::read(3, &HEAD[..len], None, 1).runt, "{len}");
            assert_eq!(Arrival::read(3, &HEAD[..len], Some(5), 1).runt, len < 14, "{len}");
        }
        assert!(!Arrival::read(3, &HEAD, None, 1).runt);
    }

    #[test]
    fn sixteen_addresses_are_reserved() {
        let all =
            (0..0x20).map(|low| Mac([1, 0x80, 0xc2, 0, 0, low])).filter(|mac| is_reserved(number_of(*mac)));
        assert_eq!(all.count(), 16);
        assert!(is_reserved(number_of(Mac([1, 0x80, 0xc2, 0, 0, 0x0f]))));
        assert!(!is_reserved(number_of(Mac::BROADCAST)) && is_group(number_of(Mac::BROADCAST)));
        assert_eq!(mac_of(number_of(Mac([2, 3, 4, 5, 6, 7]))), Mac([2, 3, 4, 5, 6, 7]));
    }
}
