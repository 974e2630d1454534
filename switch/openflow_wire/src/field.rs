//! The 40 fields of a match (section 7.2.3.7), with what the specification says of each.

use crate::number::VLAN_PRESENT;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// A field of the class `OFPXMC_OPENFLOW_BASIC` (section 7.2.3.7, `oxm_ofb_match_fields`).
    Field: u8 {
        /// Port that the frame came in by.
        InPort = 0,
        /// Physical port that the frame came in by.
        InPhyPort = 1,
        /// Metadata that tables pass on to later tables.
        Metadata = 2,
        /// Ethernet destination.
        EthDst = 3,
        /// Ethernet source.
        EthSrc = 4,
        /// EtherType, behind VLAN tags.
        EthType = 5,
        /// VLAN id, with the bit [`VLAN_PRESENT`].
        VlanVid = 6,
        /// VLAN priority.
        VlanPcp = 7,
        /// DSCP of IPv4 or IPv6.
        IpDscp = 8,
        /// ECN of IPv4 or IPv6.
        IpEcn = 9,
        /// Protocol of IPv4 or IPv6.
        IpProto = 10,
        /// IPv4 source.
        Ipv4Src = 11,
        /// IPv4 destination.
        Ipv4Dst = 12,
        /// TCP source port.
        TcpSrc = 13,
        /// TCP destination port.
        TcpDst = 14,
        /// UDP source port.
        UdpSrc = 15,
        /// UDP destination port.
        UdpDst = 16,
        /// SCTP source port.
        SctpSrc = 17,
        /// SCTP destination port.
        SctpDst = 18,
        /// ICMP type.
        Icmpv4Type = 19,
        /// ICMP code.
        Icmpv4Code = 20,
        /// ARP operation.
        ArpOp = 21,
        /// ARP sender's IPv4 address.
        ArpSpa = 22,
        /// ARP target's IPv4 address.
        ArpTpa = 23,
        /// ARP sender's Ethernet address.
        ArpSha = 24,
        /// ARP target's Ethernet address.
        ArpTha = 25,
        /// IPv6 source.
        Ipv6Src = 26,
        /// IPv6 destination.
        Ipv6Dst = 27,
        /// IPv6 flow label.
        Ipv6Flabel = 28,
        /// ICMPv6 type.
        Icmpv6Type = 29,
        /// ICMPv6 code.
        Icmpv6Code = 30,
        /// Target address of ND (RFC 4861).
        Ipv6NdTarget = 31,
        /// Source link-layer address of ND (RFC 4861).
        Ipv6NdSll = 32,
        /// Target link-layer address of ND (RFC 4861).
        Ipv6NdTll = 33,
        /// MPLS label of the first entry.
        MplsLabel = 34,
        /// MPLS traffic class of the first entry.
        MplsTc = 35,
        /// MPLS bottom-of-stack bit of the first entry.
        MplsBos = 36,
        /// PBB I-SID of the first service tag.
        PbbIsid = 37,
        /// Metadata of a logical port, such as the key of a tunnel.
        TunnelId = 38,
        /// Which IPv6 extension headers there are, and whether as they should be (`ofp_ipv6exthdr_flags`).
        Ipv6Exthdr = 39,
    }
}

/// What a match must say for a field to be in it (section 7.2.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// Nothing.
    None,
    /// A port that the frame came in by.
    InPort,
    /// That there is a VLAN tag.
    Tagged,
    /// One of these values of that field, without a mask.
    OneOf(Field, &'static [u16]),
}

const ETH_IPV4: u16 = 0x0800;
const ETH_ARP: u16 = 0x0806;
const ETH_IPV6: u16 = 0x86dd;
const ETH_MPLS: u16 = 0x8847;
const ETH_MPLS_MULTICAST: u16 = 0x8848;
const ETH_PBB: u16 = 0x88e7;

impl Field {
    /// How many fields there are.
    pub const COUNT: usize = 40;

    /// Bits that count (section 7.2.3.8, table 12).
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::MplsBos => 1,
            Self::IpEcn => 2,
            Self::VlanPcp | Self::MplsTc => 3,
            Self::IpDscp => 6,
            Self::IpProto | Self::Icmpv4Type | Self::Icmpv4Code | Self::Icmpv6Type | Self::Icmpv6Code => 8,
            Self::Ipv6Exthdr => 9,
            Self::VlanVid => 13,
            Self::EthType
            | Self::TcpSrc
            | Self::TcpDst
            | Self::UdpSrc
            | Self::UdpDst
            | Self::SctpSrc
            | Self::SctpDst
            | Self::ArpOp => 16,
            Self::Ipv6Flabel | Self::MplsLabel => 20,
            Self::PbbIsid => 24,
            Self::InPort | Self::InPhyPort | Self::Ipv4Src | Self::Ipv4Dst | Self::ArpSpa | Self::ArpTpa => {
                32
            }
            Self::EthDst | Self::EthSrc | Self::ArpSha | Self::ArpTha | Self::Ipv6NdSll | Self::Ipv6NdTll => {
                48
            }
            Self::Metadata | Self::TunnelId => 64,
            Self::Ipv6Src | Self::Ipv6Dst | Self::Ipv6NdTarget => 128,
        }
    }

    /// Bytes of a value on the wire: those that its bits need, but 4 for labels of 20 bits (section 7.2.3.8).
    #[must_use]
    pub const fn wire_len(self) -> usize {
        match self.bits() {
            20 => 4,
            bits => bits.div_ceil(8) as usize,
        }
    }

    /// Whether a match may have a mask for it (section 7.2.3.8, table 12). Ports of TCP, UDP and SCTP may have one as well, as in Open
    /// vSwitch: controllers make ranges of them.
    #[must_use]
    pub const fn maskable(self) -> bool {
        matches!(
            self,
            Self::Metadata
                | Self::EthDst
                | Self::EthSrc
                | Self::VlanVid
                | Self::Ipv4Src
                | Self::Ipv4Dst
                | Self::ArpSpa
                | Self::ArpTpa
                | Self::ArpSha
                | Self::ArpTha
                | Self::TcpSrc
                | Self::TcpDst
                | Self::UdpSrc
                | Self::UdpDst
                | Self::SctpSrc
                | Self::SctpDst
                | Self::Ipv6Src
                | Self::Ipv6Dst
                | Self::Ipv6Flabel
                | Self::PbbIsid
                | Self::TunnelId
                | Self::Ipv6Exthdr
        )
    }

    /// Every bit that counts.
    #[must_use]
    pub const fn full_mask(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Whether set-field may change it: all but what the switch itself says of a frame, and whether extension headers
    /// are there (section 7.2.5; `OFPBAC_BAD_SET_TYPE`).
    #[must_use]
    pub const fn settable(self) -> bool {
        !matches!(self, Self::InPort | Self::InPhyPort | Self::Metadata | Self::Ipv6Exthdr)
    }

    /// What a match must say beside it (section 7.2.3.8, table 12).
    #[must_use]
    pub const fn prerequisite(self) -> Prerequisite {
        use Prerequisite::{None, OneOf};
        match self {
            Self::InPort
            | Self::Metadata
            | Self::EthDst
            | Self::EthSrc
            | Self::EthType
            | Self::VlanVid
            | Self::TunnelId => None,
            Self::InPhyPort => Prerequisite::InPort,
            Self::VlanPcp => Prerequisite::Tagged,
            Self::IpDscp | Self::IpEcn | Self::IpProto => OneOf(Self::EthType, &[ETH_IPV4, ETH_IPV6]),
            Self::Ipv4Src | Self::Ipv4Dst => OneOf(Self::EthType, &[ETH_IPV4]),
            Self::TcpSrc | Self::TcpDst => OneOf(Self::IpProto, &[6]),
            Self::UdpSrc | Self::UdpDst => OneOf(Self::IpProto, &[17]),
            Self::SctpSrc | Self::SctpDst => OneOf(Self::IpProto, &[132]),
            Self::Icmpv4Type | Self::Icmpv4Code => OneOf(Self::IpProto, &[1]),
            Self::ArpOp | Self::ArpSpa | Self::ArpTpa | Self::ArpSha | Self::ArpTha => {
                OneOf(Self::EthType, &[ETH_ARP])
            }
            Self::Ipv6Src | Self::Ipv6Dst | Self::Ipv6Flabel | Self::Ipv6Exthdr => {
                OneOf(Self::EthType, &[ETH_IPV6])
            }
            Self::Icmpv6Type | Self::Icmpv6Code => OneOf(Self::IpProto, &[58]),
            Self::Ipv6NdTarget => OneOf(Self::Icmpv6Type, &[135, 136]),
            Self::Ipv6NdSll => OneOf(Self::Icmpv6Type, &[135]),
            Self::Ipv6NdTll => OneOf(Self::Icmpv6Type, &[136]),
            Self::MplsLabel | Self::MplsTc | Self::MplsBos => {
                OneOf(Self::EthType, &[ETH_MPLS, ETH_MPLS_MULTICAST])
            }
            Self::PbbIsid => OneOf(Self::EthType, &[ETH_PBB]),
        }
    }

    /// Whether a value makes sense: only bits that count, and for a VLAN either a tag or nothing
    /// (`OFPBMC_BAD_VALUE`, `OFPBAC_BAD_SET_ARGUMENT`).
    #[must_use]
    pub const fn accepts(self, value: u128) -> bool {
        value & !self.full_mask() == 0
    }

    /// Its name, in the specification's spelling without prefix and in small letters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Whether a value and mask of `vlan_vid` let only tagged frames match.
pub(crate) const fn requires_tag(value: u128, mask: u128) -> bool {
    value & mask & VLAN_PRESENT as u128 != 0
}

const NAMES: [&str; Field::COUNT] = [
    "in_port",
    "in_phy_port",
    "metadata",
    "eth_dst",
    "eth_src",
    "eth_type",
    "vlan_vid",
    "vlan_pcp",
    "ip_dscp",
    "ip_ecn",
    "ip_proto",
    "ipv4_src",
    "ipv4_dst",
    "tcp_src",
    "tcp_dst",
    "udp_src",
    "udp_dst",
    "sctp_src",
    "sctp_dst",
    "icmpv4_type",
    "icmpv4_code",
    "arp_op",
    "arp_spa",
    "arp_tpa",
    "arp_sha",
    "arp_tha",
    "ipv6_src",
    "ipv6_dst",
    "ipv6_flabel",
    "icmpv6_type",
    "icmpv6_code",
    "ipv6_nd_target",
    "ipv6_nd_sll",
    "ipv6_nd_tll",
    "mpls_label",
    "mpls_tc",
    "mpls_bos",
    "pbb_isid",
    "tunnel_id",
    "ipv6_exthdr",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_without_gaps() {
        assert_eq!(Field::ALL.len(), Field::COUNT);
        for (number, field) in Field::ALL.iter().enumerate() {
            assert_eq!(field.number() as usize, number);
            assert_eq!(*field as usize, number);
            assert_eq!(Field::from_number(number as u8), Some(*field));
        }
        assert_eq!(Field::from_number(40), None);
    }

    #[test]
    fn lengths_are_those_of_the_specification() {
        let of = |len| Field::ALL.iter().filter(|field| field.wire_len() == len).count();
        assert_eq!([1, 2, 3, 4, 6, 8, 16].map(of), [10, 10, 1, 8, 6, 2, 3]);
    }
}
