//! How the address of the metrics and the sandbox setting are written.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of the metrics endpoint: `[ADDRESS:]PORT`, on loopback without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsAddress(pub SocketAddr);

/// The text is not an address.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no place to listen: give PORT, ADDRESS:PORT or [ADDRESS]:PORT, such as 127.0.0.1:9464")]
pub struct AddressError(String);

impl FromStr for MetricsAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let on_loopback = text.parse::<u16>().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        on_loopback.or_else(|_| text.parse()).map(Self).map_err(|_| AddressError(text.to_owned()))
    }
}

impl TryFrom<String> for MetricsAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<MetricsAddress> for String {
    fn from(address: MetricsAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether an instance confines itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// As far as the kernel allows it.
    On,
    /// Not at all.
    Off,
}

impl Sandbox {
    /// All settings.
    pub const ALL: [Self; 2] = [Self::On, Self::Off];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl FromStr for Sandbox {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|sandbox| sandbox.name() == name)
            .ok_or_else(|| format!("unknown setting '{name}': choose on or off"))
    }
}
