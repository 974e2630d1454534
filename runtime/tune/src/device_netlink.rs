//! The two generic netlink families that tuning asks: `ethtool` for coalescing (linux/ethtool_netlink.h) and `netdev` for
//! NAPI instances (linux/netdev.h, Documentation/netlink/specs/netdev.yaml). One question, its answers, no more.

use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable as _, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, Nla as _, NlasIterator, Parseable as _,
    parse_u32,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::io::Errno;

use super::parameter::Parameter;
use super::system::Trouble;

/// `nlmsghdr` and `genlmsghdr`, bytes.
const HEADER: usize = 16;
const GENL_HEADER: usize = 4;

// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

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

/// A socket for questions.
pub(crate) struct Genl(Socket);

impl Genl {
    /// In the calling thread's network namespace.
    pub(crate) fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// As [`super::At::Coalescing`] writes it.
    pub(crate) fn coalescing(&self, interface: &str) -> Result<String, Trouble> {
        let family = self.family("ethtool").map_err(|error| Trouble::of_read(&error))?;
        let header = [named(interface)];
        let answers = self
            .ask(family, ETHTOOL_MSG_COALESCE_GET, 0, &header)
            .map_err(|error| Trouble::of_read(&error))?;
        let attributes = answers.into_iter().next().ok_or(Trouble::Absent)?;
        let parts = COALESCING.iter().filter_map(|(name, kind, switch)| {
            let bytes = value(&attributes, *kind)?;
            match switch {
                true => Some(format!("{name} {}", if bytes.first() == Some(&0) { "off" } else { "on" })),
                false => Some(format!("{name} {}", parse_u32(&bytes).ok()?)),
            }
        });
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() { Err(Trouble::Absent) } else { Ok(parts.join(", ")) }
    }

    /// Sets all parameters named at once, as some of them make sense only together.
    pub(crate) fn set_coalescing(&self, interface: &str, wanted: &str) -> Result<(), Trouble> {
        let mut attributes = vec![named(interface)];
        for part in wanted.split(", ") {
            let wrong = || Trouble::Refused(format!("{part:?} is no parameter of coalescing"));
            let (name, value) = part.split_once(' ').ok_or_else(wrong)?;
            let (_, kind, switch) = COALESCING.iter().find(|known| known.0 == name).ok_or_else(wrong)?;
            let bytes = match switch {
                true => vec![u8::from(value == "on")],
                false => value.parse::<u32>().map_err(|_| wrong())?.to_ne_bytes().to_vec(),
            };
            attributes.push(DefaultNla::new(*kind, bytes));
        }
        let family = self.family("ethtool").map_err(|error| Trouble::of_write(&error))?;
        self.ask(family, ETHTOOL_MSG_COALESCE_SET, 0, &attributes)
            .map_err(|error| Trouble::of_write(&error))?;
        Ok(())
    }

    /// Id and value of each NAPI instance of an interface that has the parameter, by id.
    pub(crate) fn napis(&self, ifindex: u32, parameter: Parameter) -> Result<Vec<(u32, u64)>, Trouble> {
        let trouble = |error: io::Error| Trouble::of_read(&error);
        let family = self.family("netdev").map_err(trouble)?;
        let question = [number(NETDEV_A_NAPI_IFINDEX, ifindex)];
        let answers = self.ask(family, NETDEV_CMD_NAPI_GET, NLM_F_DUMP, &question).map_err(trouble)?;
        let napi = |attributes: &Vec<DefaultNla>| {
            let id = parse_u32(&value(attributes, NETDEV_A_NAPI_ID)?).ok()?;
            Some((id, unsigned(&value(attributes, parameter.attribute())?)?))
        };
        let mut napis: Vec<(u32, u64)> = answers.iter().filter_map(napi).collect();
        napis.sort_unstable();
        Ok(napis)
    }

    /// Sets the parameter of each instance named.
    pub(crate) fn set_napis(&self, napis: &[(u32, u64)], parameter: Parameter) -> Result<(), Trouble> {
        let family = self.family("netdev").map_err(|error| Trouble::of_write(&error))?;
        for (id, value) in napis {
            let attributes = [number(NETDEV_A_NAPI_ID, *id), uint(parameter.attribute(), *value)];
            self.ask(family, NETDEV_CMD_NAPI_SET, 0, &attributes)
                .map_err(|error| Trouble::of_write(&error))?;
        }
        Ok(())
    }

    fn family(&self, name: &str) -> io::Result<u16> {
        let question = [text(CTRL_ATTR_FAMILY_NAME, name)];
        let answers = self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, &question)?;
        let id = answers.first().and_then(|attributes| value(attributes, CTRL_ATTR_FAMILY_ID));
        let id = id.and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
        id.ok_or_else(|| io::Error::from(Errno::NOENT))
    }

    /// One question; the attributes of each answer.
    fn ask(
        &self,
        family: u16,
        command: u8,
        flags: u16,
        attributes: &[DefaultNla],
    ) -> io::Result<Vec<Vec<DefaultNla>>> {
        let length = HEADER + GENL_HEADER + attributes.buffer_len();
        let mut message = vec![0; length];
        message[0..4].copy_from_slice(&(length as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&family.to_ne_bytes());
        message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message[HEADER] = command;
        message[HEADER + 1] = 1;
        attributes.emit(&mut message[HEADER + GENL_HEADER..]);
        self.0.send(&message, 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.0.recv_from_full()?;
            if read_datagram(&datagram, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Takes the answers out of a datagram; true if the last message says that there will be no more.
fn read_datagram(mut datagram: &[u8], answers: &mut Vec<Vec<DefaultNla>>) -> io::Result<bool> {
    while datagram.len() >= HEADER {
        let length = u32::from_ne_bytes([datagram[0], datagram[1], datagram[2], datagram[3]]) as usize;
        let kind = u16::from_ne_bytes([datagram[4], datagram[5]]);
        let message = datagram.get(HEADER..length).ok_or_else(|| io::Error::from(Errno::BADMSG))?;
        match kind {
            // Zero is the acknowledgement; a dump ends with a code as well.
            NLMSG_ERROR | NLMSG_DONE => {
                let code =
                    message.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => {
                let attributes = NlasIterator::new(message.get(GENL_HEADER..).unwrap_or_default())
                    .filter_map(|attribute| DefaultNla::parse(&attribute.ok()?).ok());
                answers.push(attributes.collect());
            }
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn value(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    let attribute = attributes.iter().find(|attribute| attribute.kind() & NLA_TYPE_MASK == kind)?;
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    Some(bytes)
}

/// The header of an ethtool question: the device's name.
fn named(interface: &str) -> DefaultNla {
    let name = [text(ETHTOOL_A_HEADER_DEV_NAME, interface)];
    let mut bytes = vec![0; name.as_slice().buffer_len()];
    name.as_slice().emit(&mut bytes);
    DefaultNla::new(ETHTOOL_A_COALESCE_HEADER | NLA_F_NESTED, bytes)
}

fn text(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), b"\0"].concat())
}

fn number(kind: u16, number: u32) -> DefaultNla {
    DefaultNla::new(kind, number.to_ne_bytes().to_vec())
}

/// An unsigned number of the width that it needs: most attributes take either (`NLA_UINT`), the rest 32 bits.
fn uint(kind: u16, number: u64) -> DefaultNla {
    let bytes = u32::try_from(number)
        .map_or_else(|_| number.to_ne_bytes().to_vec(), |small| small.to_ne_bytes().to_vec());
    DefaultNla::new(kind, bytes)
}

fn unsigned(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}
