//! The kinds of services, and the parts of the traffic that they want, as they are written.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_claims::{Prefix, PrefixError};
use twinpath_wire::{FlowKey, Protocol};

/// The kinds of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKind {
    /// Sends back all that it receives (RFC 862).
    Echo,
    /// Drops all that it receives (RFC 863).
    Discard,
    /// Sends characters for as long as the peer reads (RFC 864); over TCP only.
    Chargen,
    /// Sends frames of an EtherType back to their sender.
    Reflect,
    /// Answers ONC RPC: NFSv3 and MOUNT on a small fixed tree.
    Rpc,
    /// Serves directories of this host by NFSv3.
    Nfs,
}

impl ServiceKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Echo, Self::Discard, Self::Chargen, Self::Reflect, Self::Rpc, Self::Nfs];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Discard => "discard",
            Self::Chargen => "chargen",
            Self::Reflect => "reflect",
            Self::Rpc => "rpc",
            Self::Nfs => "nfs",
        }
    }

    /// Whether it serves programs of ONC RPC.
    #[must_use]
    pub const fn is_rpc(self) -> bool {
        matches!(self, Self::Rpc | Self::Nfs)
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ServiceKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            format!("unknown service '{name}': choose echo, discard, chargen, reflect, rpc or nfs")
        })
    }
}

/// A flow as it is written: `udp,10.9.0.1:4444,10.9.0.2:7`, the peer first, then our end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FlowText(pub FlowKey);

/// The text is no flow.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no flow: write udp, the peer and our end, as in udp,10.9.0.1:4444,10.9.0.2:7")]
pub struct FlowTextError(String);

impl FromStr for FlowText {
    type Err = FlowTextError;

    fn from_str(text: &str) -> Result<Self, FlowTextError> {
        let error = || FlowTextError(text.to_owned());
        let mut parts = text.split(',').map(str::trim);
        let protocol = parts.next().and_then(Protocol::from_name).ok_or_else(error)?;
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
