//! OpenFlow settings of a switch: the addresses of controllers, the datapath ID, and the behaviour without
//! a controller.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address of a controller, or one to listen at, as it is written: `tcp:HOST:PORT`, `tls:HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Endpoint {
    /// Host and port, as a resolver takes them.
    Tcp(String),
    /// The same with TLS.
    Tls(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// The port of OpenFlow (OpenFlow 1.3.5, section 6.3.1).
const PORT: u16 = 6653;

/// Host and port, if the text is one; without a port, it is [`PORT`].
fn host_and_port(address: &str) -> Option<String> {
    let host = address.strip_suffix(']').map_or(address, |_| address);
    let has_port = !host.ends_with(']') && host.rsplit_once(':').is_some();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if has_port => (name, port.parse().ok()?),
        _ => (host, PORT),
    };
    let is_name = !name.is_empty() && (name.starts_with('[') || !name.contains(':'));
    is_name.then(|| format!("{name}:{port}"))
}

impl Endpoint {
    /// Its path, if it is a socket in the file system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.split_once(':').and_then(|(kind, address)| match kind {
            "unix" if !address.is_empty() => Some(Self::Unix(address.into())),
            "tcp" => host_and_port(address).map(Self::Tcp),
            "tls" => host_and_port(address).map(Self::Tls),
            _ => None,
        });
        read.ok_or_else(|| {
            format!(
                "`{text}` is no address of an OpenFlow controller: write tcp:HOST:PORT, tls:HOST:PORT or unix:PATH, as \
                 in tcp:192.0.2.1:6653"
            )
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Tls(address) => write!(f, "tls:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

/// What a switch with tables does while no controller is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// Its flows stay in force.
    #[default]
    Secure,
    /// It forwards by learned addresses.
    Standalone,
}

impl FailMode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Secure, Self::Standalone];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::Standalone => "standalone",
        }
    }
}

impl FromStr for FailMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("unknown choice '{name}': choose secure or standalone"))
    }
}

/// Whether the kernel forwards flows of a switch by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Those that it can.
    #[default]
    Auto,
    /// None.
    Off,
}

impl Offload {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Off];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

impl FromStr for Offload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("unknown choice '{name}': choose auto or off"))
    }
}

/// Where the kernel looks for a flow for the frames of a port, if it forwards any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortOffload {
    /// In the driver where that is known to cost nothing else, otherwise at tc.
    #[default]
    Auto,
    /// At tc.
    Tc,
    /// In the driver first.
    Xdp,
}

impl PortOffload {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Tc, Self::Xdp];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tc => "tc",
            Self::Xdp => "xdp",
        }
    }
}

impl FromStr for PortOffload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|place| place.name() == name);
        known.ok_or_else(|| format!("unknown choice '{name}': choose auto, tc or xdp"))
    }
}

/// Which context receives the frames of a port on a veth pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Receive {
    /// The system call that sends them at the other end.
    #[default]
    Sender,
    /// A kernel thread.
    Thread,
}

impl Receive {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sender, Self::Thread];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Thread => "thread",
        }
    }
}

impl FromStr for Receive {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|place| place.name() == name);
        known.ok_or_else(|| format!("unknown choice '{name}': choose sender or thread"))
    }
}

/// The datapath ID, by which controllers identify a switch, as it is written: up to 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatapathId(pub u64);

impl FromStr for DatapathId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
        let number = number.filter(|number| *number != 0);
        number.map(Self).ok_or_else(|| {
            format!("`{text}` is no datapath id: write 1 to 16 hexadecimal digits, such as 00000000000000a1, not 0")
        })
    }
}

impl fmt::Display for DatapathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TryFrom<String> for DatapathId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DatapathId> for String {
    fn from(id: DatapathId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let tcp = |text: &str| Ok(Endpoint::Tcp(text.to_owned()));
        assert_eq!("tcp:192.0.2.1:6633".parse(), tcp("192.0.2.1:6633"));
        assert_eq!("tcp:controller".parse(), tcp("controller:6653"));
        assert_eq!("tcp:[::1]:1".parse(), tcp("[::1]:1"));
        assert_eq!("tcp:[::1]".parse(), tcp("[::1]:6653"));
        assert_eq!("unix:/run/of".parse(), Ok(Endpoint::Unix("/run/of".into())));
        assert_eq!("tcp:[::1]".parse::<Endpoint>().expect("an address").to_string(), "tcp:[::1]:6653");
        for bad in ["", "tcp", "tcp:", "tcp:::1", "tcp:a:70000", "tcp:a:", "unix:", "ssl:a:1", "tcp::1"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn datapath_ids_are_hexadecimal() {
        for (text, number) in
            [("1", 1), ("0xA1", 0xa1), ("00000000000000a1", 0xa1), ("ffffffffffffffff", u64::MAX)]
        {
            assert_eq!(text.parse(), Ok(DatapathId(number)), "{text}");
        }
        assert_eq!(DatapathId(0xa1).to_string(), "00000000000000a1");
        for bad in ["", "0", "0x", "g", "+1", "10000000000000000"] {
            assert!(bad.parse::<DatapathId>().is_err(), "{bad}");
        }
    }
}
