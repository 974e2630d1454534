//! The claims of one interface, and the limits and errors of such a table.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use twinpath_wire::{EtherType, FlowKey, Mac, Protocol};

use crate::ethertypes;

/// Maximum number of claims in a table.
pub const CLAIMS_MAX: usize = 4096;
/// Maximum number of an interface's own addresses.
pub const ADDRESSES_MAX: usize = 256;
/// Maximum number of prefixes in one claim's allow-list.
pub const SOURCES_MAX: usize = 64;
/// Maximum number of prefixes in all allow-lists of one table.
pub const SOURCES_TOTAL_MAX: usize = 4096;
/// Maximum number of claims with reflexes in all.
pub const REFLEX_PLACES: usize = 256;
/// Maximum number of a service's claims with reflexes.
pub const REFLEX_CLAIMS_MAX: usize = 16;
/// Maximum number of services with reflexes.
pub const REFLEX_SERVICES_MAX: usize = REFLEX_PLACES / REFLEX_CLAIMS_MAX;
/// The minimum of `frame_len_max`: the shortest Ethernet frame without its checksum, bytes.
pub const FRAME_LEN_MIN: u32 = 60;

// A claim's index fits into the verdict's `u16`.
const _: () = assert!(CLAIMS_MAX <= u16::MAX as usize + 1);

/// What a claim matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// Every frame of this type, which is neither IP nor a VLAN tag. No IP checks apply.
    EtherType(u16),
    /// Datagrams to a port (UDP), or segments that open a connection to it (TCP).
    Port {
        /// UDP or TCP.
        protocol: Protocol,
        /// The destination port, never 0.
        port: u16,
        /// Only this local address; `None`: every local address.
        address: Option<IpAddr>,
    },
    /// Every packet of one connection: source and destination as in the arriving frame.
    Flow(FlowKey),
}

/// Which frames of a claim the kernel's programs may answer by themselves, without a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflex {
    /// The claim's number among those with reflexes, under which replies are counted. Unlike its index in a table,
    /// it stays the same while other claims come and go.
    pub place: u8,
    /// The requests that they answer.
    pub answers: Answers,
    /// Replies per second to one source, if they are as large as their requests; 0: no limit.
    pub source_rate: u32,
}

/// Which requests the kernel's programs answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// All: the reply is the request itself.
    Mirrored,
    /// Those with a kept reply of the service with [this number](Reflex::service).
    Kept,
}

impl Reflex {
    /// The number of the claim's service among those with reflexes.
    #[must_use]
    pub const fn service(self) -> u8 {
        (self.place as usize / REFLEX_CLAIMS_MAX) as u8
    }
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it matches.
    pub kind: ClaimKind,
    /// The 802.1Q VLAN of the frames; `None`: only frames without any tag.
    pub vlan: Option<u16>,
    /// Source prefixes that may use it; empty: every source. Only for [`ClaimKind::Port`].
    pub sources: Vec<Prefix>,
    /// Which requests the kernel's programs may answer; the verdict does not depend on it.
    pub reflex: Option<Reflex>,
    /// Only for a port of TCP, untagged: workers have whole connections, from the SYN on. Without it, a claim on a port
    /// is on SYNs alone.
    pub connections: bool,
}

impl Claim {
    /// A claim on a port at every local address, untagged, from every source.
    #[must_use]
    pub const fn port(protocol: Protocol, port: u16) -> Self {
        Self::of(ClaimKind::Port { protocol, port, address: None })
    }

    /// A claim on connections to a port of TCP at every local address, untagged, from every source.
    #[must_use]
    pub const fn connections(port: u16) -> Self {
        let mut claim = Self::port(Protocol::Tcp, port);
        claim.connections = true;
        claim
    }

    /// A claim on one connection, untagged.
    #[must_use]
    pub const fn flow(flow: FlowKey) -> Self {
        Self::of(ClaimKind::Flow(flow))
    }

    /// A claim on an EtherType, untagged.
    #[must_use]
    pub const fn ethertype(ethertype: u16) -> Self {
        Self::of(ClaimKind::EtherType(ethertype))
    }

    /// A claim on untagged frames, from every source.
    #[must_use]
    pub const fn of(kind: ClaimKind) -> Self {
        Self { kind, vlan: None, sources: Vec::new(), reflex: None, connections: false }
    }

    /// Checks the claim on its own, without the other claims of a table.
    ///
    /// # Errors
    /// Every variant of [`TableError`] that concerns a single claim.
    pub fn check(&self) -> Result<(), TableError> {
        check_claim(self)
    }

    /// Protocol and destination port, if the claim is on IP traffic.
    #[must_use]
    pub const fn transport(&self) -> Option<(Protocol, u16)> {
        match self.kind {
            ClaimKind::EtherType(_) => None,
            ClaimKind::Port { protocol, port, .. } => Some((protocol, port)),
            ClaimKind::Flow(flow) => Some((flow.protocol, flow.destination.port())),
        }
    }
}

/// An address prefix; the bits after it are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The prefix of the first `len` bits of `address`; the other bits are cleared.
    ///
    /// # Errors
    /// [`PrefixError`], if the address has fewer bits.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let masked = match address {
            IpAddr::V4(v4) if len <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) if len <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
            _ => return Err(PrefixError),
        };
        Ok(Self { address: masked, len })
    }

    /// The first address of the prefix.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Length of the prefix, bits.
    #[must_use]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether the length is 0: every address of the family matches.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether an address is in the prefix.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.len).is_ok_and(|other| other == *self)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The text is not an address, a slash and a prefix length that fits the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a prefix is an address, or an address, a slash and a number of bits, as in 10.0.0.0/8")]
pub struct PrefixError;

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError)?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(whole), |len| len.parse().map_err(|_| PrefixError))?;
        Self::new(address, len)
    }
}

/// Why a rule was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The MAC address cannot be an interface's own.
    #[error("{0} is a group address or zero, not an interface's own; give the interface's MAC address")]
    Mac(Mac),
    /// `frame_len_max` below [`FRAME_LEN_MIN`].
    #[error("frames of at most {0} bytes are shorter than Ethernet's own minimum of {FRAME_LEN_MIN}")]
    FrameLenMax(u32),
    /// More than [`ADDRESSES_MAX`].
    #[error("an interface has more than {ADDRESSES_MAX} addresses; name those to serve")]
    TooManyAddresses,
    /// More than [`CLAIMS_MAX`].
    #[error("more than {CLAIMS_MAX} claims on one interface")]
    TooManyClaims,
    /// More than [`SOURCES_MAX`] or [`SOURCES_TOTAL_MAX`].
    #[error(
        "more than {SOURCES_MAX} source prefixes for one claim, or {SOURCES_TOTAL_MAX} for all; join some"
    )]
    TooManySources,
    /// Two claims match the same frames.
    #[error("claim {0} takes the same as an earlier one; drop one of them")]
    Duplicate(usize),
    /// An EtherType that a host depends on: see [`ethertypes`].
    #[error(
        "EtherType {number:#06x} cannot be claimed: it is {why}; 0x88b5 and 0x88b6 are for local experiments",
        number = .0,
        why = ethertypes::reserved(EtherType(*.0)).unwrap_or_default()
    )]
    EtherType(u16),
    /// Port 0.
    #[error("port 0 cannot be claimed: no frame is sent to it")]
    PortZero,
    /// A VLAN identifier that names no VLAN (IEEE 802.1Q table 9-2).
    #[error("VLAN {0} does not exist: identifiers are 1 to 4094")]
    Vlan(u16),
    /// A flow with one IPv4 and one IPv6 address.
    #[error("flow {0} has ends of different IP families")]
    Flow(FlowKey),
    /// An allow-list on a claim that has no IP source, or only one.
    #[error("source prefixes go with a port claim only")]
    SourcesMisplaced,
    /// Connections of something else than an untagged port of TCP.
    #[error("only a port of TCP has connections, and only frames without a VLAN tag are segments of one")]
    ConnectionsMisplaced,
}

/// The claims of one interface. Valid by construction, and bounded by this module's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    mac: Mac,
    frame_len_max: u32,
    addresses: Vec<IpAddr>,
    claims: Vec<Claim>,
    sources_total: usize,
}

impl Table {
    /// An empty table, which claims nothing. `frame_len_max` is the longest frame that the receiver of claimed frames
    /// can hold, bytes from the MAC header on.
    ///
    /// # Errors
    /// [`TableError::Mac`], [`TableError::FrameLenMax`].
    pub fn new(mac: Mac, frame_len_max: u32) -> Result<Self, TableError> {
        if mac.is_group() || mac == Mac::default() {
            return Err(TableError::Mac(mac));
        }
        if frame_len_max < FRAME_LEN_MIN {
            return Err(TableError::FrameLenMax(frame_len_max));
        }
        Ok(Self { mac, frame_len_max, addresses: Vec::new(), claims: Vec::new(), sources_total: 0 })
    }

    /// Adds a local address; adding it again changes nothing.
    ///
    /// # Errors
    /// [`TableError::TooManyAddresses`].
    pub fn add_address(&mut self, address: IpAddr) -> Result<(), TableError> {
        if self.addresses.contains(&address) {
            return Ok(());
        }
        if self.addresses.len() == ADDRESSES_MAX {
            return Err(TableError::TooManyAddresses);
        }
        self.addresses.push(address);
        Ok(())
    }

    /// Adds a claim and returns its index.
    ///
    /// # Errors
    /// Every variant of [`TableError`] that concerns claims.
    pub fn add_claim(&mut self, claim: Claim) -> Result<u16, TableError> {
        if self.claims.len() == CLAIMS_MAX {
            return Err(TableError::TooManyClaims);
        }
        check_claim(&claim)?;
        if self.claims.iter().any(|other| other.kind == claim.kind && other.vlan == claim.vlan) {
            return Err(TableError::Duplicate(self.claims.len()));
        }
        if self.sources_total + claim.sources.len() > SOURCES_TOTAL_MAX {
            return Err(TableError::TooManySources);
        }
        self.sources_total += claim.sources.len();
        self.claims.push(claim);
        Ok((self.claims.len() - 1) as u16)
    }

    /// The interface's own MAC address.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// The longest frame that is claimed, bytes from the MAC header on.
    #[must_use]
    pub const fn frame_len_max(&self) -> u32 {
        self.frame_len_max
    }

    /// The host's local addresses.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The claims; a verdict's index points here.
    #[must_use]
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }
}

fn check_claim(claim: &Claim) -> Result<(), TableError> {
    match claim.kind {
        ClaimKind::EtherType(number) => {
            if ethertypes::reserved(EtherType(number)).is_some() {
                return Err(TableError::EtherType(number));
            }
        }
        ClaimKind::Port { port: 0, .. } => return Err(TableError::PortZero),
        ClaimKind::Flow(flow) if !flow.is_consistent() => return Err(TableError::Flow(flow)),
        ClaimKind::Flow(flow) if flow.destination.port() == 0 => return Err(TableError::PortZero),
        ClaimKind::Port { .. } | ClaimKind::Flow(_) => {}
    }
    if let Some(vlan) = claim.vlan.filter(|vlan| !(1..=4094).contains(vlan)) {
        return Err(TableError::Vlan(vlan));
    }
    let is_tcp_port = matches!(claim.kind, ClaimKind::Port { protocol: Protocol::Tcp, .. });
    if claim.connections && (!is_tcp_port || claim.vlan.is_some()) {
        return Err(TableError::ConnectionsMisplaced);
    }
    if claim.sources.len() > SOURCES_MAX {
        return Err(TableError::TooManySources);
    }
    if !claim.sources.is_empty() && !matches!(claim.kind, ClaimKind::Port { .. }) {
        return Err(TableError::SourcesMisplaced);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table {
        Table::new(Mac([2, 0, 0, 0, 0, 2]), 2048).unwrap()
    }

    #[test]
    fn limits_are_errors_not_surprises() {
        assert_eq!(Table::new(Mac::BROADCAST, 2048), Err(TableError::Mac(Mac::BROADCAST)));
        assert_eq!(Table::new(Mac([2; 6]), 59), Err(TableError::FrameLenMax(59)));
        let mut table = table();
        for i in 0..ADDRESSES_MAX as u32 {
            table.add_address(IpAddr::V4(i.into())).unwrap();
        }
        table.add_address(IpAddr::V4(0.into())).unwrap();
        assert_eq!(table.add_address(IpAddr::V4(u32::MAX.into())), Err(TableError::TooManyAddresses));
        for port in 1..=CLAIMS_MAX as u16 {
            assert_eq!(table.add_claim(Claim::port(Protocol::Udp, port)), Ok(port - 1));
        }
        assert_eq!(table.add_claim(Claim::port(Protocol::Tcp, 1)), Err(TableError::TooManyClaims));
    }

    #[test]
    fn claims_that_make_no_sense_are_refused() {
        let mut table = table();
        for number in [0x0800, 0x0806, 0x86dd, 0x8100, 0x8864, 0x888e, 0x88a8, 0x05ff] {
            assert_eq!(table.add_claim(Claim::ethertype(number)), Err(TableError::EtherType(number)));
        }
        assert_eq!(
            TableError::EtherType(0x0806).to_string(),
            "EtherType 0x0806 cannot be claimed: it is ARP: no peer would find this host any more; 0x88b5 and 0x88b6 are for \
             local experiments"
        );
        assert_eq!(table.add_claim(Claim::port(Protocol::Udp, 0)), Err(TableError::PortZero));
        for vlan in [0, 4095, 65535] {
            let claim = Claim { vlan: Some(vlan), ..Claim::port(Protocol::Udp, 7) };
            assert_eq!(table.add_claim(claim), Err(TableError::Vlan(vlan)));
        }
        let mixed =
            FlowKey::new(Protocol::Tcp, "10.0.0.1:1".parse().unwrap(), "[fd00::2]:2".parse().unwrap());
        assert_eq!(table.add_claim(Claim::flow(mixed)), Err(TableError::Flow(mixed)));
        let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
        let claim = Claim { sources: vec![prefix], ..Claim::ethertype(0x88b5) };
        assert_eq!(table.add_claim(claim), Err(TableError::SourcesMisplaced));
        for claim in [
            Claim { vlan: Some(7), ..Claim::connections(7) },
            Claim { connections: true, ..Claim::port(Protocol::Udp, 7) },
            Claim { connections: true, ..Claim::ethertype(0x88b5) },
        ] {
            assert_eq!(table.add_claim(claim), Err(TableError::ConnectionsMisplaced));
        }
        let claim = Claim { sources: vec![prefix; SOURCES_MAX + 1], ..Claim::port(Protocol::Udp, 7) };
        assert_eq!(table.add_claim(claim), Err(TableError::TooManySources));
        table.add_claim(Claim::port(Protocol::Udp, 7)).unwrap();
        table.add_claim(Claim { vlan: Some(7), ..Claim::port(Protocol::Udp, 7) }).unwrap();
        assert_eq!(table.add_claim(Claim::port(Protocol::Udp, 7)), Err(TableError::Duplicate(2)));
    }

    #[test]
    fn prefixes() {
        let prefix: Prefix = "10.1.2.3/8".parse().unwrap();
        assert_eq!(prefix.to_string(), "10.0.0.0/8");
        assert!(prefix.contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix.contains("11.0.0.1".parse().unwrap()));
        assert!(!prefix.contains("a00::".parse().unwrap()));
        let all: Prefix = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()) && !all.contains("10.0.0.1".parse().unwrap()));
        assert_eq!("fd00::1".parse::<Prefix>().unwrap().len(), 128);
        for bad in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0/8", "10.0.0.0/-1", ""] {
            assert_eq!(bad.parse::<Prefix>(), Err(PrefixError), "{bad}");
        }
    }

    #[test]
    fn a_limit_that_is_reached_is_no_error_yet() {
        assert_eq!(Table::new(Mac([2; 6]), FRAME_LEN_MIN).unwrap().frame_len_max(), FRAME_LEN_MIN);
        assert_eq!(Table::new(Mac::default(), 2048), Err(TableError::Mac(Mac::default())));
        let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
        let with_sources =
            |port, count| Claim { sources: vec![prefix; count], ..Claim::port(Protocol::Udp, port) };
        let mut table = table();
        for port in 1..=(SOURCES_TOTAL_MAX / SOURCES_MAX) as u16 {
            assert_eq!(table.add_claim(with_sources(port, SOURCES_MAX)), Ok(port - 1));
        }
        assert_eq!(table.add_claim(with_sources(1000, 1)), Err(TableError::TooManySources));
        assert_eq!(table.add_claim(with_sources(1000, 0)), Ok(64), "those without a list go on");
        assert_eq!(table.claims().len(), 65);
        for vlan in [1, 4094] {
            assert!(table.add_claim(Claim { vlan: Some(vlan), ..Claim::port(Protocol::Udp, 7) }).is_ok());
        }
    }

    #[test]
    fn a_claim_is_checked_by_itself_as_in_a_table() {
        let flow = |source: &str, destination: &str| {
            Claim::flow(FlowKey::new(Protocol::Tcp, source.parse().unwrap(), destination.parse().unwrap()))
        };
        let good = flow("10.0.0.1:0", "10.0.0.2:7");
        assert_eq!((good.check(), good.transport()), (Ok(()), Some((Protocol::Tcp, 7))));
        assert_eq!(flow("10.0.0.1:4000", "10.0.0.2:0").check(), Err(TableError::PortZero));
        let port = Claim::port(Protocol::Udp, 9);
        assert_eq!((port.check(), port.transport()), (Ok(()), Some((Protocol::Udp, 9))));
        let ethertype = Claim::ethertype(0x88b5);
        assert_eq!((ethertype.check(), ethertype.transport()), (Ok(()), None));
        assert_eq!(Claim::port(Protocol::Tcp, 0).check(), Err(TableError::PortZero));
    }

    #[test]
    fn a_table_has_what_was_added_and_an_address_once() {
        let mut table = table();
        let addresses = ["10.0.0.2", "fd00::2"].map(|text| text.parse::<IpAddr>().unwrap());
        for address in [addresses[0], addresses[1], addresses[0]] {
            table.add_address(address).unwrap();
        }
        assert_eq!(table.addresses(), addresses);
        assert_eq!((table.mac(), table.frame_len_max()), (Mac([2, 0, 0, 0, 0, 2]), 2048));
        // The same port is another claim for another protocol, address or VLAN.
        let port = Claim::port(Protocol::Udp, 7);
        let kind = ClaimKind::Port { protocol: Protocol::Udp, port: 7, address: Some(addresses[0]) };
        let claims = [
            port.clone(),
            Claim::port(Protocol::Tcp, 7),
            Claim { kind, ..port.clone() },
            Claim { vlan: Some(9), ..port },
        ];
        for (index, claim) in claims.iter().enumerate() {
            assert_eq!(table.add_claim(claim.clone()), Ok(index as u16));
        }
        assert_eq!(table.claims(), claims);
        for claim in claims {
            assert_eq!(table.add_claim(claim), Err(TableError::Duplicate(4)));
        }
    }

    proptest! {
        /// Against the definition: two addresses share a prefix if their first bits are the same, one by one.
        #[test]
        fn an_address_is_in_a_prefix_if_its_first_bits_are(
            bits: u128, v6: bool, len in 0..130_u8, flip in 0..128_u32
        ) {
            let (width, address) = if v6 {
                (128, IpAddr::V6(bits.into()))
            } else {
                (32, IpAddr::V4((bits as u32).into()))
            };
            let prefix = Prefix::new(address, len);
            prop_assert_eq!(prefix.is_err(), u32::from(len) > width);
            let Ok(prefix) = prefix else { return Ok(()) };
            prop_assert_eq!((prefix.len(), prefix.is_empty()), (len, len == 0));
            prop_assert!(prefix.contains(address) && prefix.contains(prefix.address()));
            prop_assert_eq!(Prefix::new(prefix.address(), len), Ok(prefix));
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            // One bit, counted from the first one, is flipped.
            let flip = flip % width;
            let other = match address {
                IpAddr::V4(v4) => IpAddr::V4((u32::from(v4) ^ 1 << (31 - flip)).into()),
                IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) ^ 1 << (127 - flip)).into()),
            };
            prop_assert_eq!(prefix.contains(other), flip >= u32::from(len));
        }
    }
}
