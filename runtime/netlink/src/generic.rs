//! Generic netlink: finds a family by its name, and sends commands with attributes to it.

use std::io;

use netlink_packet_core::{DefaultNla, Emitable as _, Nla as _, NlasIterator, Parseable as _};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

use crate::Netlink;

/// Length of `struct genlmsghdr`, bytes.
const HEADER_LEN: usize = 4;

// linux/netlink.h
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// The attributes of one message of an answer.
pub type Attributes = Vec<DefaultNla>;

/// A generic netlink socket for requests to one family.
#[derive(Debug)]
pub struct Family {
    netlink: Netlink,
    id: u16,
}

impl Family {
    /// Finds a family, in the calling thread's network namespace.
    ///
    /// # Errors
    /// `ENOENT`: the kernel does not have this family.
    pub fn find(name: &str) -> io::Result<Self> {
        let control = Self { netlink: Netlink::connect(NETLINK_GENERIC)?, id: GENL_ID_CTRL };
        let answers = control.request(CTRL_CMD_GETFAMILY, 0, &[text(CTRL_ATTR_FAMILY_NAME, name)])?;
        let id = answers.first().and_then(|attributes| value(attributes, CTRL_ATTR_FAMILY_ID));
        let id = id.and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
        Ok(Self { id: id.ok_or_else(|| io::Error::from(Errno::NOENT))?, ..control })
    }

    /// The number of the multicast group of that name of a family, in the calling thread's network namespace.
    ///
    /// # Errors
    /// `ENOENT`: the kernel does not have this family, or the family has no such group.
    pub fn group(family: &str, name: &str) -> io::Result<u32> {
        let control = Self { netlink: Netlink::connect(NETLINK_GENERIC)?, id: GENL_ID_CTRL };
        let answers = control.request(CTRL_CMD_GETFAMILY, 0, &[text(CTRL_ATTR_FAMILY_NAME, family)])?;
        let groups = answers.first().and_then(|attributes| value(attributes, CTRL_ATTR_MCAST_GROUPS));
        let wanted = [name.as_bytes(), b"\0"].concat();
        let group = parse(&groups.unwrap_or_default()).find_map(|group| {
            let group = inside(&group);
            let is_wanted = value(&group, CTRL_ATTR_MCAST_GRP_NAME).as_ref() == Some(&wanted);
            unsigned(&group, CTRL_ATTR_MCAST_GRP_ID).filter(|_| is_wanted)
        });
        group.map(|id| id as u32).ok_or_else(|| Errno::NOENT.into())
    }

    /// Sends one command, and returns the attributes of each message of the answer. `flags`: see [`Netlink::request`].
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn request(&self, command: u8, flags: u16, attributes: &[DefaultNla]) -> io::Result<Vec<Attributes>> {
        let mut body = vec![0; HEADER_LEN + attributes.buffer_len()];
        (body[0], body[1]) = (command, 1);
        attributes.emit(&mut body[HEADER_LEN..]);
        let mut answers = Vec::new();
        self.netlink.request(self.id, flags, &body, |_, body| {
            answers.push(parse(body.get(HEADER_LEN..).unwrap_or_default()).collect());
        })?;
        Ok(answers)
    }
}

/// The attributes in the value of another one.
#[must_use]
pub fn attributes_of(bytes: &[u8]) -> Attributes {
    parse(bytes).collect()
}

/// The attributes in the value of `attribute`.
#[must_use]
pub fn inside(attribute: &DefaultNla) -> Attributes {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    attributes_of(&bytes)
}

/// The attributes in `bytes`.
fn parse(bytes: &[u8]) -> impl Iterator<Item = DefaultNla> {
    NlasIterator::new(bytes).filter_map(|attribute| DefaultNla::parse(&attribute.ok()?).ok())
}

/// The value of the attribute of a type.
#[must_use]
pub fn value(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    let attribute = attributes.iter().find(|attribute| attribute.kind() & NLA_TYPE_MASK == kind)?;
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    Some(bytes)
}

/// The value of an unsigned attribute of 32 or 64 bits.
#[must_use]
pub fn unsigned(attributes: &[DefaultNla], kind: u16) -> Option<u64> {
    let bytes = value(attributes, kind)?;
    match bytes.len() {
        4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// An attribute with a text.
#[must_use]
pub fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), b"\0"].concat())
}

/// An attribute of 32 bits.
#[must_use]
pub fn number(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_ne_bytes().to_vec())
}

/// An unsigned attribute of the width that it needs: most take either (`NLA_UINT`), the others 32 bits.
#[must_use]
pub fn uint(kind: u16, number: u64) -> DefaultNla {
    let bytes = u32::try_from(number)
        .map_or_else(|_| number.to_ne_bytes().to_vec(), |small| small.to_ne_bytes().to_vec());
    DefaultNla::new(kind, bytes)
}

/// An attribute that contains others.
#[must_use]
pub fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_name() {
        let control = Family::find("nlctrl").expect("every kernel has it");
        assert_eq!(control.id, GENL_ID_CTRL);
        let missing = Family::find("twinpath-none").expect_err("no kernel has it");
        assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }

    #[test]
    fn a_multicast_group_is_found_by_its_name() {
        assert!(Family::group("nlctrl", "notify").expect("every kernel has it") > 0);
        let missing = Family::group("nlctrl", "none").expect_err("no kernel has it");
        assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }

    #[test]
    fn numbers_take_the_width_they_need_and_are_read_at_either() {
        for number in [7, u64::from(u32::MAX), 1 << 32] {
            let attribute = uint(5, number);
            assert_eq!(attribute.value_len(), if number >> 32 == 0 { 4 } else { 8 });
            assert_eq!(unsigned(&[attribute], 5), Some(number));
        }
        assert_eq!(unsigned(&[text(5, "7")], 5), None, "two bytes");
        assert_eq!(unsigned(&[uint(4, 7)], 5), None, "another attribute");
        assert_eq!(value(&[nested(5, &[])], 5), Some(Vec::new()), "the flag is not part of the type");
    }
}
