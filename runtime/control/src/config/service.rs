//! `[service]`: what is served, and what of it is claimed.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_steer::{Claim, Prefix, PrefixError, SOURCES_MAX};
use twinpath_wire::{FlowKey, Protocol};

/// Own addresses that can be named: each has a socket of its own.
const ADDRESSES_MAX: usize = 64;
/// Flows that can be named.
const FLOWS_MAX: usize = 1024;
/// Own ends of flows, beside the port served: each has a socket of its own.
const FLOW_ENDS_MAX: usize = 64;

/// `[service]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// Which service.
    pub kind: ServiceKind,
    /// UDP port, on both paths.
    pub udp: Option<NonZeroU16>,
    /// TCP port, on the kernel path.
    pub tcp: Option<NonZeroU16>,
    /// EtherType, on the fast path only.
    pub ethertype: Option<u16>,
    /// Own addresses to serve at; empty: all.
    pub addresses: Vec<IpAddr>,
    /// UDP flows to claim, and no others; empty: the port is claimed.
    pub flows: Vec<FlowText>,
    /// Senders served at the ports; empty: everybody.
    pub sources: Vec<SourceText>,
}

/// The services there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKind {
    /// Sends back what it gets (RFC 862).
    #[default]
    Echo,
    /// Sends frames of an EtherType back to their sender.
    Reflect,
    /// Answers ONC RPC: NFSv3 and MOUNT on a small fixed tree.
    Rpc,
}

impl ServiceKind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Reflect => "reflect",
            Self::Rpc => "rpc",
        }
    }
}

/// A flow as it is written: `udp,10.9.0.1:4444,10.9.0.2:7`, the peer first, then our end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FlowText(pub FlowKey);

/// Not a flow.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no flow: write udp, the peer and our end, as in udp,10.9.0.1:4444,10.9.0.2:7")]
pub struct FlowTextError(String);

impl FromStr for FlowText {
    type Err = FlowTextError;

    fn from_str(text: &str) -> Result<Self, FlowTextError> {
        let error = || FlowTextError(text.to_owned());
        let mut parts = text.split(',').map(str::trim);
        let protocol = match parts.next() {
            Some("udp") => Protocol::Udp,
            Some("tcp") => Protocol::Tcp,
            _ => return Err(error()),
        };
        let mut end = || parts.next().and_then(|part| part.parse::<SocketAddr>().ok()).ok_or_else(error);
        let flow = FlowKey::new(protocol, end()?, end()?);
        if parts.next().is_some() { Err(error()) } else { Ok(Self(flow)) }
    }
}

impl fmt::Display for FlowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.0.protocol, self.0.source, self.0.destination)
    }
}

impl TryFrom<String> for FlowText {
    type Error = FlowTextError;

    fn try_from(text: String) -> Result<Self, FlowTextError> {
        text.parse()
    }
}

impl From<FlowText> for String {
    fn from(flow: FlowText) -> Self {
        flow.to_string()
    }
}

/// Senders as they are written: `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourceText(pub Prefix);

impl FromStr for SourceText {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for SourceText {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<SourceText> for String {
    fn from(source: SourceText) -> Self {
        source.0.to_string()
    }
}

/// A key and what is wrong with it.
type Wrong = (&'static str, String);

impl Service {
    /// Everything wrong with what is served.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        let faults = [self.kind_fault(), self.addresses_fault(), self.flows_fault(), self.sources_fault()];
        faults.into_iter().flatten().collect()
    }

    fn has_port(&self) -> bool {
        self.udp.is_some() || self.tcp.is_some()
    }

    fn kind_fault(&self) -> Option<Wrong> {
        match (self.kind, self.ethertype) {
            (ServiceKind::Echo | ServiceKind::Rpc, Some(_)) => {
                let sentence = format!("{} serves ports: frames are served by reflect", self.kind.name());
                Some(("service.ethertype", sentence))
            }
            (ServiceKind::Echo, None) => self.no_port_fault("7 is echo's"),
            (ServiceKind::Rpc, None) => self.no_port_fault("2049 is NFS's; clients find others by rpcbind"),
            (ServiceKind::Reflect, _) if self.has_port() => {
                Some(("service.udp", "reflect serves frames of an EtherType: leave out udp and tcp".into()))
            }
            (ServiceKind::Reflect, None) => Some((
                "service.ethertype",
                "which frames? Set it, or give --ethertype 0x88b5 (IEEE 802 leaves that to local experiments)"
                    .into(),
            )),
            (ServiceKind::Reflect, Some(ethertype)) => {
                let fault = Claim::ethertype(ethertype).check().err()?;
                Some(("service.ethertype", fault.to_string()))
            }
        }
    }

    fn no_port_fault(&self, usual: &str) -> Option<Wrong> {
        (!self.has_port() && self.flows.is_empty())
            .then(|| ("service.udp", format!("no port: give --udp PORT, --tcp PORT or both, or set service.udp or service.tcp ({usual})")))
    }

    fn addresses_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.addresses", sentence));
        if !self.addresses.is_empty() && !self.has_port() {
            return wrong("there is no port to serve at them: set service.udp or service.tcp".into());
        }
        if self.addresses.len() > ADDRESSES_MAX {
            let count = self.addresses.len();
            return wrong(format!("{count} addresses: name at most {ADDRESSES_MAX}, or none for all"));
        }
        if let Some(twice) = twice(&self.addresses) {
            return wrong(format!("{twice} stands there twice"));
        }
        let misplaced = self.addresses.iter().find(|address| match address.to_canonical() {
            IpAddr::V4(v4) => v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast() || v6.is_unicast_link_local(),
        });
        let address = misplaced.or_else(|| self.addresses.iter().find(|ip| ip.to_canonical() != **ip))?;
        wrong(format!(
            "{address} is not an address of its own to serve at: name an interface's, not a link-local one"
        ))
    }

    fn flows_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.flows", sentence));
        if self.flows.is_empty() {
            return None;
        }
        if self.kind == ServiceKind::Reflect {
            return wrong("reflect serves frames of an EtherType: leave out flows".into());
        }
        if self.flows.len() > FLOWS_MAX {
            return wrong(format!("{} flows: name at most {FLOWS_MAX}", self.flows.len()));
        }
        if let Some(twice) = twice(&self.flows) {
            return wrong(format!("{twice} stands there twice"));
        }
        if let Some(tcp) = self.flows.iter().find(|flow| flow.0.protocol == Protocol::Tcp) {
            return wrong(format!("{tcp}: TCP has the kernel path only, so there is nothing to claim"));
        }
        for flow in &self.flows {
            if let Err(fault) = Claim::flow(flow.0).check() {
                return wrong(format!("{flow}: {fault}"));
            }
            if flow.0.source.port() == 0 || flow.0.destination.ip().is_unspecified() {
                return wrong(format!("{flow}: a flow has both its ends in full"));
            }
        }
        let ends: HashSet<_> = self.flows.iter().map(|flow| flow.0.destination).collect();
        let own_ends = ends.iter().filter(|end| self.udp.map(NonZeroU16::get) != Some(end.port())).count();
        (own_ends > FLOW_ENDS_MAX).then(|| {
            let sentence =
                format!("{own_ends} of our addresses and ports: at most {FLOW_ENDS_MAX} have a socket");
            ("service.flows", sentence)
        })
    }

    fn sources_fault(&self) -> Option<Wrong> {
        let wrong = |sentence: String| Some(("service.sources", sentence));
        if !self.sources.is_empty() && !self.has_port() {
            return wrong("senders are listed for ports: a flow names its own, frames have none".into());
        }
        if self.sources.len() > SOURCES_MAX {
            return wrong(format!("{} prefixes: name at most {SOURCES_MAX}, join some", self.sources.len()));
        }
        twice(&self.sources).and_then(|twice| wrong(format!("{} stands there twice", twice.0)))
    }
}

/// The first that stands in the list a second time.
fn twice<T: Copy + Eq + std::hash::Hash>(list: &[T]) -> Option<T> {
    let mut seen = HashSet::new();
    list.iter().copied().find(|item| !seen.insert(*item))
}
