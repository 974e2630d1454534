//! `[control]`: the command socket, the metrics, and the sandbox of an instance.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::key::{Change, section};
use super::{INSTANCES, Wrong};

/// Longest path of a UNIX socket: `sun_path` of linux/un.h without its terminator.
const SOCKET_PATH_MAX: usize = 107;

section! {
    /// `[control]`
    pub struct Control, ControlOverrides in "control" {
        /// The command socket of `twinpath show` and `twinpath set`
        socket: Option<PathBuf> = None =>
            values_are("a path of at most 107 bytes"), unset("SERVICE-IFACE-PID.sock in the run directory"),
            option("socket", "PATH", INSTANCES), example("\"/run/twinpath/echo.sock\"");

        /// Once it has started, the instance gives up rights, files and system calls that it no longer needs: on or off
        sandbox: Option<Sandbox> = None =>
            unset("on; off in a library"), option("sandbox", "ON_OFF", INSTANCES), example("\"on\"");

        /// Metrics for Prometheus over HTTP at /metrics, on loopback without an address
        metrics: Option<MetricsAddress> = None =>
            values_are("`PORT`, `ADDRESS:PORT`, `[ADDRESS]:PORT`"), unset("none: no metrics"),
            option("metrics", "[ADDRESS:]PORT", INSTANCES), example("\"127.0.0.1:9464\""),
            change(Change::Reload);
    }
}

impl Control {
    /// Everything that cannot work.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        let length = self.socket.as_ref().map_or(1, |socket| socket.as_os_str().len());
        let fits = (1..=SOCKET_PATH_MAX).contains(&length);
        let sentence = || format!("a path of {length} bytes: a UNIX socket takes 1 to {SOCKET_PATH_MAX}");
        let socket = (!fits).then(|| ("control.socket", sentence()));
        socket.into_iter().chain(self.range_faults()).collect()
    }
}

/// Where metrics are offered: `[ADDRESS:]PORT`, on loopback without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricsAddress(pub SocketAddr);

/// The text is no address.
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
