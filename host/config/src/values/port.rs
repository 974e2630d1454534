//! Ports of a switch as they are written: names, modes, lists of VLANs, static entries.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twinpath_wire::Mac;

/// The largest VLAN identifier; 4095 is reserved (IEEE 802.1Q, table 9-2).
pub const VLAN_MAX: u16 = 4094;
/// Longest name of an interface: `IFNAMSIZ` of linux/if.h without its terminator.
const INTERFACE_MAX: usize = 15;
/// Longest name of a port that is not an interface: that of a memory port is part of a socket's path.
const WORD_MAX: usize = 32;

/// Whether a number names a VLAN.
const fn is_vlan(vlan: u16) -> bool {
    vlan >= 1 && vlan <= VLAN_MAX
}

/// A kind of port of a switch. A further kind needs its place in these lists, and in the list of the switch
/// (`switch/switch/src/kinds/mod.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortKind {
    /// An interface of the kernel: `veth1`; in another network namespace: `veth1@NETNS`.
    Interface,
    /// A TAP interface that a virtual machine opens: `tap:vm0`. It comes and goes with the machine.
    Tap,
    /// A port for another process: `memory:app1`.
    Memory,
    /// Switches of other hosts, by VXLAN: `vxlan:dc2`; with its sockets in another network namespace:
    /// `vxlan:dc2@NETNS`.
    Vxlan,
    /// The host's own interface, made by the switch. It is not written as a port, but named by `--local`.
    Local,
}

impl PortKind {
    /// The kinds that are written in front of a name, as in `tap:vm0`. A name without a kind is an interface.
    const WRITTEN: [Self; 3] = [Self::Tap, Self::Memory, Self::Vxlan];

    /// The word for it: `interface`, `tap`, `memory`, `vxlan` or `local`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Tap => "tap",
            Self::Memory => "memory",
            Self::Vxlan => "vxlan",
            Self::Local => "local",
        }
    }

    /// Whether a port of this kind has the name of a kernel interface.
    const fn is_interface(self) -> bool {
        matches!(self, Self::Interface | Self::Tap | Self::Local)
    }

    /// Whether a port of this kind may be in another network namespace: `@NETNS` behind its name.
    const fn has_namespace(self) -> bool {
        matches!(self, Self::Interface | Self::Vxlan)
    }

    /// The kinds that are written, for messages: `tap:NAME, memory:NAME or vxlan:NAME`.
    pub(crate) fn listed() -> String {
        let [others @ .., last] = Self::WRITTEN.map(|kind| format!("{}:NAME", kind.word()));
        format!("{} or {last}", others.join(", "))
    }
}

/// A port, by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortName {
    kind: PortKind,
    name: String,
    /// The namespace, as `ip netns` names it, or the path of its file.
    namespace: Option<String>,
}

impl PortName {
    /// The host's own interface, by its name.
    #[must_use]
    pub const fn local(name: String) -> Self {
        Self { kind: PortKind::Local, name, namespace: None }
    }

    /// Why a name is not valid for the host's own interface.
    pub(crate) fn local_fault(name: &str) -> Option<String> {
        interface(name).err()
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> PortKind {
        self.kind
    }

    /// Its name, without its kind and namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel interface that it uses; `None` for a memory port and VXLAN.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.kind.is_interface().then_some(&self.name)
    }

    /// The other network namespace that it is in.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// A name that is part of others.
fn word(kind: &str, name: &str) -> Result<String, String> {
    let fits = (1..=WORD_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let wrong = || format!("`{name}` is no name of a {kind} port: 1 to {WORD_MAX} letters, digits, `-`, `_`");
    if fits { Ok(name.to_owned()) } else { Err(wrong()) }
}

/// A name, followed by the network namespace.
fn in_namespace(text: &str) -> Result<(&str, Option<String>), String> {
    match text.split_once('@') {
        None => Ok((text, None)),
        Some((_, "")) => Err(format!("`{text}`: which network namespace? Name it behind the @")),
        Some((name, namespace)) => Ok((name, Some(namespace.to_owned()))),
    }
}

/// A name of an interface.
fn interface(name: &str) -> Result<String, String> {
    let fits = (1..=INTERFACE_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|at: char| at.is_whitespace() || at.is_control() || "/:,=@".contains(at));
    if fits {
        Ok(name.to_owned())
    } else {
        Err(format!("`{name}` is no name of an interface: see `ip link`"))
    }
}

impl FromStr for PortName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, written) = match text.split_once(':').filter(|(kind, _)| !kind.contains('@')) {
            None => (PortKind::Interface, text),
            Some((word, name)) => match PortKind::WRITTEN.into_iter().find(|kind| kind.word() == word) {
                Some(kind) => (kind, name),
                None => {
                    return Err(format!(
                        "`{text}`: there is no kind of port `{word}`: write an interface (veth1, veth1@NETNS), {}",
                        PortKind::listed()
                    ));
                }
            },
        };
        let (name, namespace) = if kind.has_namespace() { in_namespace(written)? } else { (written, None) };
        let name = if kind.is_interface() { interface(name) } else { word(kind.word(), name) }?;
        Ok(Self { kind, name, namespace })
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if PortKind::WRITTEN.contains(&self.kind) {
            write!(f, "{}:", self.kind.word())?;
        }
        f.write_str(&self.name)?;
        self.namespace.iter().try_for_each(|namespace| write!(f, "@{namespace}"))
    }
}

impl TryFrom<String> for PortName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PortName> for String {
    fn from(name: PortName) -> Self {
        name.to_string()
    }
}

/// VLANs as they are written: `10,20-30`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VlanList(Vec<(u16, u16)>);

impl VlanList {
    /// Whether it names none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The VLANs, in order, each once.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl FromStr for VlanList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |part: &str| format!("`{part}` is no VLAN: write numbers of 1 to {VLAN_MAX}, such as 10,20-30");
        let mut ranges = Vec::new();
        for part in text.split([',', '+']).map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let vlan = |text: &str| {
                text.trim().parse().ok().filter(|vlan| is_vlan(*vlan)).ok_or_else(|| wrong(part))
            };
            let (first, last) = (vlan(first)?, vlan(last)?);
            if first > last {
                return Err(wrong(part));
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Ok(Self(joined))
    }
}

impl fmt::Display for VlanList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for VlanList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<VlanList> for String {
    fn from(list: VlanList) -> Self {
        list.to_string()
    }
}

/// Addresses of other hosts as they are written: `192.0.2.2,192.0.2.3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressList(Vec<IpAddr>);

impl AddressList {
    /// The addresses, each once.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }
}

impl FromStr for AddressList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = Vec::new();
        for part in text.split([',', '+']).map(str::trim).filter(|part| !part.is_empty()) {
            let address: IpAddr = part.parse().map_err(|_| {
                format!("`{part}` is no address: write one of IPv4 or IPv6, such as 192.0.2.2")
            })?;
            let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
            if address.is_unspecified() || address.is_multicast() || is_broadcast {
                return Err(format!("{address} is not the address of one host"));
            }
            if !list.contains(&address) {
                list.push(address);
            }
        }
        Ok(Self(list))
    }
}

impl fmt::Display for AddressList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for AddressList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AddressList> for String {
    fn from(list: AddressList) -> Self {
        list.to_string()
    }
}

/// The mode of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// One VLAN, without tags.
    #[default]
    Access,
    /// Several VLANs, with tags.
    Trunk,
    /// None: it only sends copies of the frames of other ports.
    Monitor,
}

impl PortMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Access, Self::Trunk, Self::Monitor];

    /// The name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Trunk => "trunk",
            Self::Monitor => "monitor",
        }
    }
}

impl FromStr for PortMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("unknown mode '{name}': choose access, trunk or monitor"))
    }
}

/// A static entry as it is written: `02:00:00:00:00:01,veth1,10`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StaticEntry {
    /// The address, of one host.
    pub mac: Mac,
    /// The port that it is at.
    pub port: PortName,
    /// Its VLAN.
    pub vlan: u16,
}

impl FromStr for StaticEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` is no static entry ({why}): write MAC,PORT or MAC,PORT,VLAN, as in 02:00:00:00:00:01,veth1"
            )
        };
        let mut parts = text.split(',').map(str::trim);
        let mac: Mac = parts.next().unwrap_or_default().parse().map_err(|_| wrong("its address"))?;
        if mac.0[0] & 1 != 0 || mac.0 == [0; 6] {
            return Err(wrong("the address is not that of one host"));
        }
        let port = parts.next().ok_or_else(|| wrong("which port?"))?.parse()?;
        let vlan = match parts.next() {
            None => 1,
            Some(vlan) => {
                vlan.parse().ok().filter(|vlan| is_vlan(*vlan)).ok_or_else(|| wrong("a VLAN is 1 to 4094"))?
            }
        };
        if parts.next().is_some() { Err(wrong("it has more parts")) } else { Ok(Self { mac, port, vlan }) }
    }
}

impl fmt::Display for StaticEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.mac, self.port, self.vlan)
    }
}

impl TryFrom<String> for StaticEntry {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<StaticEntry> for String {
    fn from(entry: StaticEntry) -> Self {
        entry.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "veth1",
            "veth1@blue",
            "veth1@/run/netns/blue",
            "tap:vm0",
            "memory:app_1",
            "vxlan:dc-2",
            "vxlan:dc2@blue",
            "eth0.10",
        ] {
            assert_eq!(text.parse::<PortName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for wrong in [
            "",
            "a b",
            "far-too-long-a-name",
            "veth1@",
            "@blue",
            "tap:",
            "tap:a/b",
            "memory:",
            "memory:a.b",
            "vxlan:",
            "vxlan:dc2@",
            "vxlan:a b",
            "vhost:x",
            "..",
        ] {
            assert!(wrong.parse::<PortName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_vlans_are_sorted_and_joined() {
        for (text, shown) in [
            ("", ""),
            ("10", "10"),
            ("20-30,10", "10,20-30"),
            ("1+2+3", "1-3"),
            ("5-9,7-12,13", "5-13"),
            ("1-4094", "1-4094"),
        ] {
            assert_eq!(text.parse::<VlanList>().map(|list| list.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for wrong in ["0", "4095", "10-5", "ten", "1-", "70000"] {
            assert!(wrong.parse::<VlanList>().is_err(), "{wrong}");
        }
        assert_eq!("3-5,1".parse::<VlanList>().unwrap().iter().collect::<Vec<_>>(), [1, 3, 4, 5]);
    }

    #[test]
    fn lists_of_addresses_are_of_single_hosts() {
        for (text, shown) in [
            ("", ""),
            ("192.0.2.2", "192.0.2.2"),
            ("192.0.2.2+2001:db8::1, 192.0.2.2", "192.0.2.2,2001:db8::1"),
        ] {
            assert_eq!(
                text.parse::<AddressList>().map(|list| list.to_string()),
                Ok(shown.to_owned()),
                "{text}"
            );
        }
        for wrong in
            ["host", "192.0.2", "0.0.0.0", "::", "239.0.0.1", "ff02::1", "255.255.255.255", "fe80::1%eth0"]
        {
            assert!(wrong.parse::<AddressList>().is_err(), "{wrong}");
        }
    }
}
