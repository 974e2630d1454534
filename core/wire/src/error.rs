//! Why received bytes were refused, and why a header could not be written.

/// Why a received frame was refused. Closed: each variant is the name of one drop counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ParseError {
    /// Shorter than an Ethernet header and its tag.
    EthTruncated,
    /// Two VLAN tags, or one that is not 802.1Q.
    EthTag,
    /// Neither IPv4 nor IPv6.
    EtherType,
    /// Shorter than an IP header, options included.
    IpTruncated,
    /// The version nibble disagrees with the EtherType.
    IpVersion,
    /// An IPv4 header length below five words.
    IpHeaderLength,
    /// The IPv4 header checksum is wrong.
    IpHeaderChecksum,
    /// The IP length is below its headers or beyond the frame.
    IpLength,
    /// A fragment; the kernel reassembles those.
    IpFragment,
    /// An IPv6 extension header.
    Ipv6Extension,
    /// IP carries another protocol than the expected one.
    IpProtocol,
    /// Shorter than a UDP header.
    UdpTruncated,
    /// The UDP length is below its header or beyond the IP payload.
    UdpLength,
    /// The UDP checksum is wrong.
    UdpChecksum,
    /// A UDP checksum of zero over IPv6 (RFC 8200 section 8.1).
    UdpChecksumZero,
    /// Shorter than a TCP header, options included.
    TcpTruncated,
    /// A TCP header length below five words.
    TcpHeaderLength,
    /// The TCP checksum is wrong.
    TcpChecksum,
    /// Shorter than a VXLAN header and an Ethernet header.
    VxlanTruncated,
    /// A VXLAN header without a network identifier (RFC 7348 section 5).
    VxlanFlags,
}

impl ParseError {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 20] = [
        Self::EthTruncated,
        Self::EthTag,
        Self::EtherType,
        Self::IpTruncated,
        Self::IpVersion,
        Self::IpHeaderLength,
        Self::IpHeaderChecksum,
        Self::IpLength,
        Self::IpFragment,
        Self::Ipv6Extension,
        Self::IpProtocol,
        Self::UdpTruncated,
        Self::UdpLength,
        Self::UdpChecksum,
        Self::UdpChecksumZero,
        Self::TcpTruncated,
        Self::TcpHeaderLength,
        Self::TcpChecksum,
        Self::VxlanTruncated,
        Self::VxlanFlags,
    ];

    /// The stable name an operator sees.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EthTruncated => "eth_truncated",
            Self::EthTag => "eth_tag",
            Self::EtherType => "ethertype",
            Self::IpTruncated => "ip_truncated",
            Self::IpVersion => "ip_version",
            Self::IpHeaderLength => "ip_header_length",
            Self::IpHeaderChecksum => "ip_header_checksum",
            Self::IpLength => "ip_length",
            Self::IpFragment => "ip_fragment",
            Self::Ipv6Extension => "ipv6_extension",
            Self::IpProtocol => "ip_protocol",
            Self::UdpTruncated => "udp_truncated",
            Self::UdpLength => "udp_length",
            Self::UdpChecksum => "udp_checksum",
            Self::UdpChecksumZero => "udp_checksum_zero",
            Self::TcpTruncated => "tcp_truncated",
            Self::TcpHeaderLength => "tcp_header_length",
            Self::TcpChecksum => "tcp_checksum",
            Self::VxlanTruncated => "vxlan_truncated",
            Self::VxlanFlags => "vxlan_flags",
        }
    }
}

impl core::fmt::Display for ParseError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for ParseError {}

/// Why headers could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is smaller than the headers and the payload that should follow them.
    BufferTooShort,
    /// Source and destination are of different IP families.
    MixedFamilies,
    /// The payload is longer than the length fields can express.
    PayloadTooLong,
}

impl core::fmt::Display for EmitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BufferTooShort => "the buffer is shorter than headers and payload",
            Self::MixedFamilies => "source and destination are of different IP families",
            Self::PayloadTooLong => "the payload is longer than the length field can say",
        })
    }
}

impl core::error::Error for EmitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_number_under_a_name_of_its_own() {
        for (index, reason) in ParseError::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert_eq!(reason.to_string(), reason.name());
            let same = ParseError::ALL.into_iter().filter(|other| other.name() == reason.name());
            assert_eq!(same.count(), 1, "{reason}");
            // The name is the variant's, in lower case with underscores.
            let variant = format!("{reason:?}").to_lowercase();
            assert_eq!(reason.name().replace('_', ""), variant);
        }
    }

    #[test]
    fn a_header_that_cannot_be_written_says_why() {
        for (error, word) in [
            (EmitError::BufferTooShort, "buffer"),
            (EmitError::MixedFamilies, "families"),
            (EmitError::PayloadTooLong, "payload is longer"),
        ] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
