//! The traffic that a service serves: the same decision for a frame of the fast path and for a datagram of a kernel
//! socket.

use std::net::{IpAddr, SocketAddr};

use twinpath_claims::Prefix;
use twinpath_inspect::Reason;
use twinpath_wire::{FlowKey, Protocol};

/// A port, at every address or at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedPort {
    /// The transport.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// `None`: at every address.
    pub address: Option<IpAddr>,
}

/// All traffic that one service serves. Its entries are numbered: flows, then ports, then the EtherType.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Sorted, each once.
    flows: Vec<FlowKey>,
    ports: Vec<ServedPort>,
    sources: Vec<Prefix>,
    ethertype: Option<u16>,
}

impl Served {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A port, at each of `addresses`, or at every address if there are none.
    #[must_use]
    pub fn with_port(mut self, protocol: Protocol, port: u16, addresses: &[IpAddr]) -> Self {
        let at = |address| ServedPort { protocol, port, address };
        if addresses.is_empty() {
            self.ports.push(at(None));
        }
        self.ports.extend(addresses.iter().map(|address| at(Some(*address))));
        self
    }

    /// Flows, whether or not their ports are served as well.
    #[must_use]
    pub fn with_flows(mut self, flows: &[FlowKey]) -> Self {
        self.flows.extend(flows);
        self.flows.sort_unstable();
        self.flows.dedup();
        self
    }

    /// Only these senders at its ports; everybody if there are none. A flow names its sender itself.
    #[must_use]
    pub fn with_sources(mut self, sources: &[Prefix]) -> Self {
        self.sources.extend(sources);
        self
    }

    /// Whole frames of a type.
    #[must_use]
    pub const fn with_ethertype(mut self, ethertype: Option<u16>) -> Self {
        self.ethertype = ethertype;
        self
    }

    /// The flows, in the order of their entries.
    #[must_use]
    pub fn flows(&self) -> &[FlowKey] {
        &self.flows
    }

    /// The ports, in the order of their entries.
    #[must_use]
    pub fn ports(&self) -> &[ServedPort] {
        &self.ports
    }

    /// The EtherType whose frames are served whole.
    #[must_use]
    pub const fn ethertype(&self) -> Option<u16> {
        self.ethertype
    }

    /// The number of the EtherType's entry, whether or not there is one.
    #[must_use]
    pub fn ethertype_entry(&self) -> usize {
        self.flows.len() + self.ports.len()
    }

    /// How many entries there are.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.ethertype_entry() + usize::from(self.ethertype.is_some())
    }

    /// The entry that a packet from `peer` to `local` belongs to.
    ///
    /// # Errors
    /// Why it is not served.
    #[inline]
    pub fn find(&self, protocol: Protocol, peer: SocketAddr, local: SocketAddr) -> Result<usize, Reason> {
        if !self.flows.is_empty() {
            let flow = FlowKey::new(protocol, peer, local);
            if let Ok(entry) = self.flows.binary_search(&flow) {
                return Ok(entry);
            }
        }
        let is = |port: &ServedPort| {
            (port.protocol, port.port) == (protocol, local.port())
                && port.address.is_none_or(|address| address == local.ip())
        };
        let entry = self.ports.iter().position(is).ok_or(Reason::NotClaimed)?;
        if !self.allows(peer.ip()) {
            return Err(Reason::SourceNotAllowed);
        }
        Ok(self.flows.len() + entry)
    }

    /// Whether that sender may be served at a port. This host itself always may.
    #[inline]
    #[must_use]
    pub fn allows(&self, peer: IpAddr) -> bool {
        self.sources.is_empty()
            || peer.is_loopback()
            || self.sources.iter().any(|prefix| prefix.contains(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn flows_come_before_ports_and_each_entry_has_its_number() {
        let flow = |peer| FlowKey::new(Protocol::Udp, at(peer), at("192.0.2.1:7"));
        let addresses = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().expect("ip"));
        let served = Served::new()
            .with_port(Protocol::Udp, 9, &addresses)
            .with_flows(&[flow("192.0.2.9:2"), flow("192.0.2.9:1"), flow("192.0.2.9:1")])
            .with_ethertype(Some(0x88b5));
        assert_eq!((served.flows().len(), served.ethertype_entry(), served.entries()), (2, 4, 5));
        assert_eq!(served.ethertype(), Some(0x88b5));
        assert_eq!(served.find(Protocol::Udp, at("192.0.2.9:1"), at("192.0.2.1:7")), Ok(0));
        assert_eq!(served.find(Protocol::Udp, at("192.0.2.9:2"), at("192.0.2.1:7")), Ok(1));
        assert_eq!(served.find(Protocol::Udp, at("192.0.2.9:3"), at("192.0.2.1:7")), Err(Reason::NotClaimed));
        assert_eq!(served.find(Protocol::Udp, at("192.0.2.9:3"), at("192.0.2.1:9")), Ok(2));
        assert_eq!(served.find(Protocol::Tcp, at("192.0.2.9:3"), at("192.0.2.1:9")), Err(Reason::NotClaimed));
        assert_eq!(served.find(Protocol::Udp, at("[2001:db8::9]:3"), at("[2001:db8::1]:9")), Ok(3));
        assert_eq!(served.find(Protocol::Udp, at("192.0.2.9:3"), at("192.0.2.2:9")), Err(Reason::NotClaimed));
    }

    #[test]
    fn only_listed_senders_are_served_at_a_port() {
        let prefixes = ["192.0.2.0/28", "2001:db8::/64"].map(|prefix| prefix.parse().expect("a prefix"));
        let flow = FlowKey::new(Protocol::Udp, at("203.0.113.1:5"), at("192.0.2.1:7"));
        let served =
            Served::new().with_port(Protocol::Udp, 7, &[]).with_sources(&prefixes).with_flows(&[flow]);
        assert_eq!(served.find(Protocol::Udp, at("192.0.2.9:1"), at("192.0.2.1:7")), Ok(1));
        assert_eq!(
            served.find(Protocol::Udp, at("192.0.2.19:1"), at("192.0.2.1:7")),
            Err(Reason::SourceNotAllowed)
        );
        assert_eq!(served.find(Protocol::Udp, at("[2001:db8::5]:1"), at("[2001:db8::1]:7")), Ok(1));
        assert_eq!(
            served.find(Protocol::Udp, at("203.0.113.1:5"), at("192.0.2.1:7")),
            Ok(0),
            "a flow names its sender"
        );
    }
}
