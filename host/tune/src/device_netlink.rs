//! The settings of a device that are read and written over generic netlink: coalescing and rings (family `ethtool`,
//! linux/ethtool_netlink.h), and parameters of NAPI instances (family `netdev`, linux/netdev.h,
//! Documentation/netlink/specs/netdev.yaml).

use twinpath_netlink::generic::{Family, command};
use twinpath_netlink::{Attributes, Body};

use super::parameter::Parameter;
use super::system::{Group, Trouble};

// linux/ethtool_netlink.h
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_RINGS_GET: u8 = 15;
const ETHTOOL_MSG_RINGS_SET: u8 = 16;
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
const ETHTOOL_MSG_COALESCE_SET: u8 = 20;
/// The header of every request.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
/// The features that the device can change, and those that are on.
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// A parameter: the name that ethtool(8) uses, the attribute, and whether it is a switch.
type Known = (&'static str, u16, bool);

const COALESCING: [Known; 3] = [("adaptive-rx", 11, true), ("rx-usecs", 2, false), ("rx-frames", 3, false)];
const RINGS: [Known; 2] = [("rx", 6, false), ("tx", 9, false)];
const RING_LIMITS: [Known; 2] = [("rx", 2, false), ("tx", 5, false)];

/// Features: the name that ethtool(8) uses, and that of the kernel.
const FEATURES: [(&str, &str); 1] = [("ntuple-filters", "rx-ntuple-filter")];

// linux/netdev.h
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;

/// Parameters of an interface's device, as text in the form of [`super::At::Ethtool`].
pub(crate) fn group(interface: &str, group: Group) -> Result<String, Trouble> {
    let (message, known) = match group {
        Group::Coalescing => (ETHTOOL_MSG_COALESCE_GET, &COALESCING[..]),
        Group::Rings => (ETHTOOL_MSG_RINGS_GET, &RINGS[..]),
        Group::RingLimits => (ETHTOOL_MSG_RINGS_GET, &RING_LIMITS[..]),
        Group::Features => (ETHTOOL_MSG_FEATURES_GET, &[][..]),
    };
    let ethtool = Family::find("ethtool").map_err(|error| Trouble::of_read(&error))?;
    let asked = format!("tell about {} of {interface}", group.name());
    let answers =
        ethtool.ask(&asked, &request(message, interface)).map_err(|error| Trouble::of_read(&error))?;
    let attributes = answers.first().ok_or(Trouble::Absent)?;
    let parts: Vec<String> = match group {
        Group::Features => features(attributes),
        _ => known.iter().filter_map(|known| parameter(attributes, *known)).collect(),
    };
    if parts.is_empty() { Err(Trouble::Absent) } else { Ok(parts.join(", ")) }
}

/// One parameter with its value, if the device has it.
fn parameter(attributes: Attributes<'_>, (name, kind, switch): Known) -> Option<String> {
    Some(match switch {
        true => format!("{name} {}", if attributes.get(kind)?.first() == Some(&0) { "off" } else { "on" }),
        false => format!("{name} {}", attributes.unsigned(kind)?),
    })
}

/// The features that the device can change, each on or off.
fn features(attributes: Attributes<'_>) -> Vec<String> {
    let names = |kind: u16| -> Vec<String> {
        let bits = attributes.inside(kind).inside(ETHTOOL_A_BITSET_BITS);
        bits.iter().filter_map(|(_, bit)| Attributes::of(bit).text(ETHTOOL_A_BITSET_BIT_NAME)).collect()
    };
    let (changeable, on) = (names(ETHTOOL_A_FEATURES_HW), names(ETHTOOL_A_FEATURES_ACTIVE));
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    let changeable = FEATURES.iter().filter(|(_, kernel)| has(&changeable, kernel));
    changeable
        .map(|(name, kernel)| format!("{name} {}", if has(&on, kernel) { "on" } else { "off" }))
        .collect()
}

/// Sets all named parameters together, because some of them make sense only together.
pub(crate) fn set_group(interface: &str, group: Group, wanted: &str) -> Result<(), Trouble> {
    let (message, known) = match group {
        Group::Coalescing => (ETHTOOL_MSG_COALESCE_SET, &COALESCING[..]),
        Group::Rings => (ETHTOOL_MSG_RINGS_SET, &RINGS[..]),
        Group::RingLimits | Group::Features => {
            return Err(Trouble::Refused("it is not set from here".to_owned()));
        }
    };
    let mut body = request(message, interface);
    for part in wanted.split(", ") {
        let wrong = || Trouble::Refused(format!("{part:?} is no parameter of the device"));
        let (name, value) = part.split_once(' ').ok_or_else(wrong)?;
        let (_, kind, switch) = known.iter().find(|known| known.0 == name).ok_or_else(wrong)?;
        body = match switch {
            true => body.bytes(*kind, [u8::from(value == "on")]),
            false => body.u32(*kind, value.parse().map_err(|_| wrong())?),
        };
    }
    let ethtool = Family::find("ethtool").map_err(|error| Trouble::of_write(&error))?;
    let asked = format!("set {} of {interface} to {wanted}", group.name());
    ethtool.ask(&asked, &body).map_err(|error| Trouble::of_write(&error))?;
    Ok(())
}

/// Id and value of each NAPI instance of an interface that has the parameter, by id.
pub(crate) fn napis(ifindex: u32, parameter: Parameter) -> Result<Vec<(u32, u64)>, Trouble> {
    let netdev = Family::find("netdev").map_err(|error| Trouble::of_read(&error))?;
    let body = command(NETDEV_CMD_NAPI_GET).u32(NETDEV_A_NAPI_IFINDEX, ifindex);
    let asked = format!("list the NAPI instances of interface {ifindex}");
    let answers = netdev.list(&asked, &body).map_err(|error| Trouble::of_read(&error))?;
    let napi = |attributes: Attributes<'_>| {
        let id = attributes.unsigned(NETDEV_A_NAPI_ID)?.try_into().ok()?;
        Some((id, attributes.unsigned(parameter.attribute())?))
    };
    let mut napis: Vec<(u32, u64)> = answers.iter().filter_map(napi).collect();
    napis.sort_unstable();
    Ok(napis)
}

/// Sets the parameter of each instance named.
pub(crate) fn set_napis(napis: &[(u32, u64)], parameter: Parameter) -> Result<(), Trouble> {
    let netdev = Family::find("netdev").map_err(|error| Trouble::of_write(&error))?;
    for (id, value) in napis {
        let body =
            command(NETDEV_CMD_NAPI_SET).u32(NETDEV_A_NAPI_ID, *id).uint(parameter.attribute(), *value);
        let asked = format!("set a parameter of NAPI instance {id}");
        netdev.ask(&asked, &body).map_err(|error| Trouble::of_write(&error))?;
    }
    Ok(())
}

/// A request of the family `ethtool`, up to its header: the device's name.
fn request(message: u8, interface: &str) -> Body {
    command(message).nested(ETHTOOL_A_HEADER, &Body::new([]).text(ETHTOOL_A_HEADER_DEV_NAME, interface))
}
