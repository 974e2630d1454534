//! Generic netlink: finds a family by its name, and sends commands with attributes to it.

use rustix::io::Errno;

use crate::{Attributes, Body, Netlink, NetlinkError, Protocol, Request};

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// A generic netlink socket for requests to one family.
#[derive(Debug)]
pub struct Family {
    netlink: Netlink,
    id: u16,
}

/// The messages of an answer.
#[derive(Clone, Debug, Default)]
pub struct Answers(crate::Answers);

impl Answers {
    /// The attributes of each message.
    pub fn iter(&self) -> impl Iterator<Item = Attributes<'_>> {
        // `struct genlmsghdr`
        self.0.iter().filter_map(|message| Some(message.parts::<4>()?.1))
    }

    /// The attributes of the first message, which is the only one unless a list was asked for.
    #[must_use]
    pub fn first(&self) -> Option<Attributes<'_>> {
        self.iter().next()
    }
}

impl Family {
    /// Finds a family, in the calling thread's network namespace.
    ///
    /// # Errors
    /// `ENOENT`: the kernel does not have this family.
    pub fn find(name: &str) -> Result<Self, NetlinkError> {
        let (control, answers) = Self::ask_for(name)?;
        let id = answers.first().and_then(|family| family.array(CTRL_ATTR_FAMILY_ID));
        let id = id.map(u16::from_ne_bytes).ok_or_else(|| absent(name))?;
        Ok(Self { id, ..control })
    }

    /// The number of the multicast group of that name of a family, in the calling thread's network namespace.
    ///
    /// # Errors
    /// `ENOENT`: the kernel does not have this family, or the family has no such group.
    pub fn group(family: &str, name: &str) -> Result<u32, NetlinkError> {
        let (_, answers) = Self::ask_for(family)?;
        let groups = answers.first().unwrap_or_default().inside(CTRL_ATTR_MCAST_GROUPS);
        let mut groups = groups.iter().map(|(_, group)| Attributes::of(group));
        let group = groups.find(|group| group.text(CTRL_ATTR_MCAST_GRP_NAME).as_deref() == Some(name));
        group.and_then(|group| group.u32(CTRL_ATTR_MCAST_GRP_ID)).ok_or_else(|| absent(name))
    }

    fn ask_for(name: &str) -> Result<(Self, Answers), NetlinkError> {
        let control = Self { netlink: Netlink::open(Protocol::Generic)?, id: GENL_ID_CTRL };
        let body = command(CTRL_CMD_GETFAMILY).text(CTRL_ATTR_FAMILY_NAME, name);
        let answers = control.ask(&format!("find its family {name}"), &body)?;
        Ok((control, answers))
    }

    /// Sends one command, and returns the answer. `asked` is for errors, as in [`Request::new`]; the body begins with [`command`].
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn ask(&self, asked: &str, body: &Body) -> Result<Answers, NetlinkError> {
        self.netlink.request(&Request::new(asked, self.id, body)).map(Answers)
    }

    /// As [`Self::ask`], for a list.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn list(&self, asked: &str, body: &Body) -> Result<Answers, NetlinkError> {
        self.netlink.request(&Request::list(asked, self.id, body)).map(Answers)
    }
}

/// The beginning of a command's body (`struct genlmsghdr`).
#[must_use]
pub fn command(command: u8) -> Body {
    Body::new([command, 1, 0, 0])
}

fn absent(name: &str) -> NetlinkError {
    NetlinkError::refused(format!("find {name}"), Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_name() {
        let control = Family::find("nlctrl").expect("every kernel has it");
        assert_eq!(control.id, GENL_ID_CTRL);
        let missing = Family::find("twinpath-none").expect_err("no kernel has it");
        assert!(missing.is(Errno::NOENT), "{missing}");
        let listed = control.list("list its families", &command(CTRL_CMD_GETFAMILY)).expect("a list");
        assert!(listed.iter().any(|family| family.text(CTRL_ATTR_FAMILY_NAME).as_deref() == Some("nlctrl")));
    }

    #[test]
    fn a_multicast_group_is_found_by_its_name() {
        assert!(Family::group("nlctrl", "notify").expect("every kernel has it") > 0);
        let missing = Family::group("nlctrl", "none").expect_err("no kernel has it");
        assert!(missing.is(Errno::NOENT), "{missing}");
    }
}
