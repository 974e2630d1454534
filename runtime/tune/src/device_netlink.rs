//! The settings of a device that are read and written over generic netlink: coalescing (family `ethtool`,
//! linux/ethtool_netlink.h), and parameters of NAPI instances (family `netdev`, linux/netdev.h,
//! Documentation/netlink/specs/netdev.yaml).

use netlink_packet_core::{DefaultNla, NLM_F_DUMP};
use twinpath_netlink::generic::{Attributes, Family, nested, number, text, uint, unsigned, value};

use super::parameter::Parameter;
use super::system::Trouble;

// linux/ethtool_netlink.h
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
const ETHTOOL_MSG_COALESCE_SET: u8 = 20;
const ETHTOOL_A_COALESCE_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;

/// Parameters of coalescing that are tuned: the name that ethtool(8) uses, the attribute, and whether it is a switch.
const COALESCING: [(&str, u16, bool); 3] =
    [("adaptive-rx", 11, true), ("rx-usecs", 2, false), ("rx-frames", 3, false)];

// linux/netdev.h
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;

/// The coalescing of an interface, as text in the form of [`super::At::Coalescing`].
pub(crate) fn coalescing(interface: &str) -> Result<String, Trouble> {
    let ethtool = Family::find("ethtool").map_err(|error| Trouble::of_read(&error))?;
    let answers = ethtool
        .request(ETHTOOL_MSG_COALESCE_GET, 0, &[header(interface)])
        .map_err(|error| Trouble::of_read(&error))?;
    let attributes = answers.into_iter().next().ok_or(Trouble::Absent)?;
    let parts = COALESCING.iter().filter_map(|(name, kind, switch)| match switch {
        true => {
            let off = value(&attributes, *kind)?.first() == Some(&0);
            Some(format!("{name} {}", if off { "off" } else { "on" }))
        }
        false => Some(format!("{name} {}", unsigned(&attributes, *kind)?)),
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { Err(Trouble::Absent) } else { Ok(parts.join(", ")) }
}

/// Sets all parameters named at once, as some of them make sense only together.
pub(crate) fn set_coalescing(interface: &str, wanted: &str) -> Result<(), Trouble> {
    let mut attributes = vec![header(interface)];
    for part in wanted.split(", ") {
        let wrong = || Trouble::Refused(format!("{part:?} is no parameter of coalescing"));
        let (name, value) = part.split_once(' ').ok_or_else(wrong)?;
        let (_, kind, switch) = COALESCING.iter().find(|known| known.0 == name).ok_or_else(wrong)?;
        attributes.push(match switch {
            true => DefaultNla::new(*kind, vec![u8::from(value == "on")]),
            false => number(*kind, value.parse().map_err(|_| wrong())?),
        });
    }
    let ethtool = Family::find("ethtool").map_err(|error| Trouble::of_write(&error))?;
    ethtool.request(ETHTOOL_MSG_COALESCE_SET, 0, &attributes).map_err(|error| Trouble::of_write(&error))?;
    Ok(())
}

/// Id and value of each NAPI instance of an interface that has the parameter, by id.
pub(crate) fn napis(ifindex: u32, parameter: Parameter) -> Result<Vec<(u32, u64)>, Trouble> {
    let netdev = Family::find("netdev").map_err(|error| Trouble::of_read(&error))?;
    let answers = netdev
        .request(NETDEV_CMD_NAPI_GET, NLM_F_DUMP, &[number(NETDEV_A_NAPI_IFINDEX, ifindex)])
        .map_err(|error| Trouble::of_read(&error))?;
    let napi = |attributes: &Attributes| {
        let id = unsigned(attributes, NETDEV_A_NAPI_ID)?.try_into().ok()?;
        Some((id, unsigned(attributes, parameter.attribute())?))
    };
    let mut napis: Vec<(u32, u64)> = answers.iter().filter_map(napi).collect();
    napis.sort_unstable();
    Ok(napis)
}

/// Sets the parameter of each instance named.
pub(crate) fn set_napis(napis: &[(u32, u64)], parameter: Parameter) -> Result<(), Trouble> {
    let netdev = Family::find("netdev").map_err(|error| Trouble::of_write(&error))?;
    for (id, value) in napis {
        let attributes = [number(NETDEV_A_NAPI_ID, *id), uint(parameter.attribute(), *value)];
        netdev.request(NETDEV_CMD_NAPI_SET, 0, &attributes).map_err(|error| Trouble::of_write(&error))?;
    }
    Ok(())
}

/// The header of an ethtool request: the device's name.
fn header(interface: &str) -> DefaultNla {
    nested(ETHTOOL_A_COALESCE_HEADER, &[text(ETHTOOL_A_HEADER_DEV_NAME, interface)])
}
