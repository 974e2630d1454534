//! A frame's fields as numbers in a few words, and the masks that tables compare them under.
//!
//! Fields that no frame has together share their place, such as the addresses of IPv4, IPv6 and ARP. So that one of them is
//! never taken for another, each layer has a bit in [`Layers`], which is compared with every field of that layer: a field
//! that a frame does not have matches nothing, whatever its value (OpenFlow 1.3.5, 7.2.3.6 asks for prerequisites, which
//! say the same of well-formed frames).

use twinpath_openflow_wire::{Field, Match};

/// Words of a key; the last two are always zero, so that the number of a word is any four bits.
pub(crate) const WORDS: usize = 16;

/// The layers that a frame has, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers(pub(crate) u16);

impl Layers {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const IPV4: Self = Self(1);
    pub(crate) const IPV6: Self = Self(1 << 1);
    pub(crate) const ARP: Self = Self(1 << 2);
    pub(crate) const TCP: Self = Self(1 << 3);
    pub(crate) const UDP: Self = Self(1 << 4);
    pub(crate) const SCTP: Self = Self(1 << 5);
    pub(crate) const ICMPV4: Self = Self(1 << 6);
    pub(crate) const ICMPV6: Self = Self(1 << 7);
    /// Neighbour discovery: solicitation or advertisement.
    pub(crate) const ND: Self = Self(1 << 8);
    /// A solicitation with the option of its source's link-layer address.
    pub(crate) const ND_SLL: Self = Self(1 << 9);
    /// An advertisement with the option of its target's link-layer address.
    pub(crate) const ND_TLL: Self = Self(1 << 10);
    pub(crate) const MPLS: Self = Self(1 << 11);
    pub(crate) const PBB: Self = Self(1 << 12);
    /// A VLAN tag, in the bytes or beside them.
    pub(crate) const TAG: Self = Self(1 << 13);
    /// Those whose frames the kernel's programs leave to workers.
    pub(crate) const NOT_IN_KERNEL: Self =
        Self(Self::ND.0 | Self::ND_SLL.0 | Self::ND_TLL.0 | Self::MPLS.0 | Self::PBB.0);
    /// IPv4 or IPv6.
    pub(crate) const IP: Self = Self(Self::IPV4.0 | Self::IPV6.0);

    #[inline]
    pub(crate) const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Where a field of up to 64 bits is: the word, and how far it is shifted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) word: usize,
    pub(crate) shift: u32,
}

const fn place(word: usize, shift: u32) -> Place {
    Place { word, shift }
}

/// EtherType, tag control information, port, layers.
pub(crate) const ETH_TYPE: Place = place(0, 48);
pub(crate) const VLAN_VID: Place = place(0, 35);
pub(crate) const VLAN_PCP: Place = place(0, 32);
pub(crate) const IN_PORT: Place = place(0, 16);
pub(crate) const ETH_DST: Place = place(1, 16);
pub(crate) const IP_PROTO: Place = place(1, 8);
pub(crate) const IP_DSCP: Place = place(1, 2);
pub(crate) const IP_ECN: Place = place(1, 0);
pub(crate) const ETH_SRC: Place = place(2, 16);
pub(crate) const ARP_OP: Place = place(2, 0);
/// The source port, or the type of ICMP; the destination port, or the code.
pub(crate) const L4_FIRST: Place = place(3, 48);
pub(crate) const L4_SECOND: Place = place(3, 32);
pub(crate) const IN_PHY_PORT: Place = place(3, 16);
pub(crate) const IPV6_EXTHDR: Place = place(3, 0);
/// IPv4 and ARP addresses, IPv6's from here to word 7, or what stands in front of IP.
pub(crate) const IPV4_SRC: Place = place(4, 32);
pub(crate) const IPV4_DST: Place = place(4, 0);
pub(crate) const MPLS_LABEL: Place = place(4, 12);
pub(crate) const MPLS_TC: Place = place(4, 9);
pub(crate) const MPLS_BOS: Place = place(4, 8);
pub(crate) const PBB_ISID: Place = place(4, 0);
pub(crate) const IPV6_SRC: usize = 4;
pub(crate) const IPV6_DST: usize = 6;
pub(crate) const ARP_SHA: Place = place(5, 16);
pub(crate) const ARP_THA: Place = place(6, 16);
pub(crate) const METADATA: usize = 8;
pub(crate) const TUNNEL_ID: usize = 9;
pub(crate) const IPV6_FLABEL: Place = place(10, 0);
pub(crate) const ND_TARGET: usize = 11;
pub(crate) const ND_LINK_LAYER: Place = place(13, 16);

/// The fields of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) [u64; WORDS]);

impl Key {
    pub(crate) const ZERO: Self = Self([0; WORDS]);

    #[inline]
    pub(crate) fn set(&mut self, place: Place, value: u64) {
        self.0[place.word] |= value << place.shift;
    }

    #[inline]
    pub(crate) fn set_wide(&mut self, word: usize, value: u128) {
        self.0[word] = (value >> 64) as u64;
        self.0[word + 1] = value as u64;
    }

    /// Adds the bits of another key, as of masks.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    /// Puts a field's value, or a mask's bits, where the field is.
    fn put(&mut self, field: Field, value: u128) {
        match location(field) {
            Location::Wide(word) => {
                self.0[word] |= (value >> 64) as u64;
                self.0[word + 1] |= value as u64;
            }
            Location::Port(place) => self.set(place, u64::from(short_port(value as u32))),
            Location::Narrow(place) => self.set(place, value as u64),
        }
    }
}

enum Location {
    Narrow(Place),
    Port(Place),
    Wide(usize),
}

/// Where a field is in a key.
const fn location(field: Field) -> Location {
    use Location::{Narrow, Port, Wide};
    match field {
        Field::InPort => Port(IN_PORT),
        Field::InPhyPort => Port(IN_PHY_PORT),
        Field::Metadata => Narrow(place(METADATA, 0)),
        Field::EthDst => Narrow(ETH_DST),
        Field::EthSrc => Narrow(ETH_SRC),
        Field::EthType => Narrow(ETH_TYPE),
        Field::VlanVid => Narrow(VLAN_VID),
        Field::VlanPcp => Narrow(VLAN_PCP),
        Field::IpDscp => Narrow(IP_DSCP),
        Field::IpEcn => Narrow(IP_ECN),
        Field::IpProto => Narrow(IP_PROTO),
        Field::Ipv4Src | Field::ArpSpa => Narrow(IPV4_SRC),
        Field::Ipv4Dst | Field::ArpTpa => Narrow(IPV4_DST),
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc | Field::Icmpv4Type | Field::Icmpv6Type => {
            Narrow(L4_FIRST)
        }
        Field::TcpDst | Field::UdpDst | Field::SctpDst | Field::Icmpv4Code | Field::Icmpv6Code => {
            Narrow(L4_SECOND)
        }
        Field::ArpOp => Narrow(ARP_OP),
        Field::ArpSha => Narrow(ARP_SHA),
        Field::ArpTha => Narrow(ARP_THA),
        Field::Ipv6Src => Wide(IPV6_SRC),
        Field::Ipv6Dst => Wide(IPV6_DST),
        Field::Ipv6Flabel => Narrow(IPV6_FLABEL),
        Field::Ipv6NdTarget => Wide(ND_TARGET),
        Field::Ipv6NdSll | Field::Ipv6NdTll => Narrow(ND_LINK_LAYER),
        Field::MplsLabel => Narrow(MPLS_LABEL),
        Field::MplsTc => Narrow(MPLS_TC),
        Field::MplsBos => Narrow(MPLS_BOS),
        Field::PbbIsid => Narrow(PBB_ISID),
        Field::TunnelId => Narrow(place(TUNNEL_ID, 0)),
        Field::Ipv6Exthdr => Narrow(IPV6_EXTHDR),
    }
}

/// The layers that must be there for a field to be.
pub(crate) const fn layer_of(field: Field) -> Layers {
    match field {
        Field::InPort
        | Field::InPhyPort
        | Field::Metadata
        | Field::EthDst
        | Field::EthSrc
        | Field::EthType
        | Field::VlanVid
        | Field::TunnelId => Layers::NONE,
        Field::VlanPcp => Layers::TAG,
        // Either version: the EtherType, which stands beside it in every match, says which.
        Field::IpDscp | Field::IpEcn | Field::IpProto => Layers::IP,
        Field::Ipv4Src | Field::Ipv4Dst => Layers::IPV4,
        Field::TcpSrc | Field::TcpDst => Layers::TCP,
        Field::UdpSrc | Field::UdpDst => Layers::UDP,
        Field::SctpSrc | Field::SctpDst => Layers::SCTP,
        Field::Icmpv4Type | Field::Icmpv4Code => Layers::ICMPV4,
        Field::ArpOp | Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => Layers::ARP,
        Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6Flabel | Field::Ipv6Exthdr => Layers::IPV6,
        Field::Icmpv6Type | Field::Icmpv6Code => Layers::ICMPV6,
        Field::Ipv6NdTarget => Layers::ND,
        Field::Ipv6NdSll => Layers::ND_SLL,
        Field::Ipv6NdTll => Layers::ND_TLL,
        Field::MplsLabel | Field::MplsTc | Field::MplsBos => Layers::MPLS,
        Field::PbbIsid => Layers::PBB,
    }
}

/// A port's number in 16 bits. No switch has ports above 0xfeff, so those that are reserved can have the numbers above.
/// A number that no port has becomes 0xff00, which no frame comes from.
#[inline]
pub(crate) const fn short_port(port: u32) -> u16 {
    const NOBODY: u16 = 0xff00;
    if port < NOBODY as u32 {
        port as u16
    } else if port > twinpath_openflow_wire::number::port::MAX {
        NOBODY | port as u16
    } else {
        NOBODY
    }
}

/// Whether a frame may have the field: what stands for IP in either version needs one of two bits, which a mask cannot say.
fn is_either_ip(layers: Layers) -> bool {
    layers.has(Layers::IPV4) && layers.has(Layers::IPV6)
}

/// The value and the mask that a match is in terms of keys. The value has no bit that the mask does not have.
pub(crate) fn compile(match_: &Match) -> (Key, Key) {
    let (mut value, mut mask) = (Key::default(), Key::default());
    for entry in match_.fields() {
        let bits = entry.effective_mask();
        if bits == 0 {
            continue;
        }
        match location(entry.field) {
            // Ports are compared whole.
            Location::Port(place) => mask.set(place, 0xffff),
            Location::Narrow(_) | Location::Wide(_) => mask.put(entry.field, bits),
        }
        value.put(entry.field, entry.value & bits);
        let mut layers = layer_of(entry.field);
        if is_either_ip(layers) {
            let is_ipv6 = match_.get(Field::EthType).is_some_and(|entry| entry.value == 0x86dd);
            layers = if is_ipv6 { Layers::IPV6 } else { Layers::IPV4 };
        }
        mask.0[0] |= u64::from(layers.0);
        value.0[0] |= u64::from(layers.0);
    }
    (value, mask)
}

#[cfg(test)]
mod tests {
    use twinpath_openflow_wire::MatchField;

    use super::*;

    #[test]
    fn no_two_fields_of_one_layer_share_bits() {
        for one in Field::ALL {
            for two in Field::ALL.iter().filter(|two| *two != one) {
                let of = |field: Field| {
                    let mut key = Key::default();
                    match location(field) {
                        Location::Port(place) => key.set(place, 0xffff),
                        Location::Narrow(_) | Location::Wide(_) => key.put(field, field.full_mask()),
                    }
                    key.0[0] &= !0xffff;
                    key
                };
                let overlap = of(*one).0.iter().zip(of(*two).0).any(|(one, two)| one & two != 0);
                let (one_layer, two_layer) = (layer_of(*one), layer_of(*two));
                let together =
                    one_layer == two_layer || one_layer == Layers::NONE || two_layer == Layers::NONE;
                assert!(!(overlap && together), "{one:?} {two:?}");
            }
        }
    }

    #[test]
    fn a_field_brings_the_bit_of_its_layer() {
        let eth = MatchField::exact(Field::EthType, 0x86dd);
        let proto = MatchField::exact(Field::IpProto, 6);
        let port = MatchField::exact(Field::TcpDst, 80);
        let (value, mask) = compile(&Match::new([eth, proto, port]).expect("valid"));
        let layers = |key: Key| Layers(key.0[0] as u16);
        assert_eq!(layers(value), Layers::IPV6.with(Layers::TCP));
        assert_eq!(layers(mask), layers(value));
        assert_eq!(value.0[0] >> 48, 0x86dd);
        assert_eq!((value.0[3], mask.0[3]), (80 << 32, 0xffff << 32));
    }

    #[test]
    fn a_port_that_no_switch_has_is_nobody() {
        let of = |port: u32| short_port(port);
        assert_eq!((of(1), of(0xfeff), of(0xff00), of(0x1_0001)), (1, 0xfeff, 0xff00, 0xff00));
        assert_eq!((of(0xffff_fffe), of(0xffff_fffd), of(0xffff_ff00)), (0xfffe, 0xfffd, 0xff00));
    }
}
