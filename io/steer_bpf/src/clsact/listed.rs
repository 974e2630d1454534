//! Reads the kernel's list of filters and disciplines, and the names that we give to our own filters.

use std::fmt;
use std::io;
use std::str::FromStr;

use aya::programs::TcAttachType;
use netlink_packet_core::{NLM_F_DUMP, parse_string, parse_u32};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcHeader, TcMessage};

use super::parent;
use crate::names::OURS;
use crate::netlink::{Answer, Netlink};

pub(super) const CLSACT: &str = "clsact";

/// Bytes of `struct tcmsg`.
const HEADER_LEN: usize = 20;
// linux/rtnetlink.h, linux/pkt_cls.h
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_CHAIN: u16 = 11;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;

/// A filter as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) ifindex: u32,
    pub(crate) hook: TcAttachType,
    pub(crate) handle: u32,
    pub(crate) priority: u16,
    /// In network byte order.
    pub(crate) protocol: u16,
    /// The kind: `bpf`, `flower`, ...
    pub(crate) kind: String,
    /// Name that its owner gave it; empty for kinds other than `bpf`.
    pub(crate) name: String,
    /// ID of its program.
    pub(crate) program_id: Option<u32>,
}

impl Listed {
    /// The parsed name, if the filter is one of ours.
    pub(crate) fn tag(&self) -> Option<Tag> {
        self.name.parse().ok()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.tag().is_some()
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, priority, .. } = self;
        match name.as_str() {
            "" => write!(f, "a filter of kind {kind}")?,
            name => write!(f, "the filter {name}")?,
        }
        write!(f, " (priority {priority})")
    }
}

/// The parsed name of one of our filters: `twinpath_ingress:0123456789abcdef:4711`, and `:discipline` if the
/// discipline was made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) program: String,
    /// The number held while its process lives.
    pub(crate) id: u64,
    pub(crate) pid: u32,
    pub(crate) made_discipline: bool,
}

const MADE_DISCIPLINE: &str = "discipline";

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, id, pid, made_discipline } = self;
        write!(f, "{program}:{id:016x}:{pid}")?;
        if *made_discipline { write!(f, ":{MADE_DISCIPLINE}") } else { Ok(()) }
    }
}

impl FromStr for Tag {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let words: Vec<&str> = name.split(':').collect();
        let (program, id, pid, made_discipline) = match words[..] {
            [program, id, pid] => (program, id, pid, false),
            [program, id, pid, MADE_DISCIPLINE] => (program, id, pid, true),
            _ => return Err(()),
        };
        if !program.starts_with(OURS) || id.len() != 16 {
            return Err(());
        }
        let id = u64::from_str_radix(id, 16).map_err(drop)?;
        Ok(Self { program: program.to_owned(), id, pid: pid.parse().map_err(drop)?, made_discipline })
    }
}

/// Filters at a hook, in the order in which they run; none where no discipline holds filters.
pub(super) fn filters(netlink: &Netlink, ifindex: u32, hook: TcAttachType) -> io::Result<Vec<Listed>> {
    let header = TcHeader { index: ifindex.cast_signed(), parent: parent(hook), ..TcHeader::default() };
    let question = RouteNetlinkMessage::GetTrafficFilter(TcMessage::from_parts(header, Vec::new()));
    let answers = netlink.ask(question, NLM_F_DUMP)?;
    Ok(answers.iter().filter_map(|answer| listed(answer, hook)).collect())
}

/// Interfaces with a discipline that holds ingress filters, and its kind: `clsact` or `ingress`.
pub(super) fn disciplines(netlink: &Netlink) -> io::Result<Vec<(u32, String)>> {
    let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let answers = netlink.ask(question, NLM_F_DUMP)?;
    let found = answers.iter().filter(|answer| answer.kind == RTM_NEWQDISC).filter_map(|answer| {
        let (header, attributes) = parts(answer)?;
        let kind = value(attributes, TCA_KIND).and_then(|kind| parse_string(kind).ok())?;
        (header.parent == TcHandle::CLSACT).then(|| (header.index.cast_unsigned(), kind))
    });
    Ok(found.collect())
}

/// Reads only the attributes that we need: options of other kinds may have any layout.
fn listed(answer: &Answer, hook: TcAttachType) -> Option<Listed> {
    let (header, attributes) = parts(answer).filter(|_| answer.kind == RTM_NEWTFILTER)?;
    let number = |bytes: &[u8]| parse_u32(bytes).ok();
    // Other chains run only if a filter of this one refers to them. An entry without a handle is not a filter but the
    // head of several.
    let (chain, handle) = (value(attributes, TCA_CHAIN).and_then(number), u32::from(header.handle));
    if chain.unwrap_or(0) != 0 || handle == 0 {
        return None;
    }
    let kind = value(attributes, TCA_KIND).and_then(|kind| parse_string(kind).ok())?;
    let options = value(attributes, TCA_OPTIONS).filter(|_| kind == "bpf").unwrap_or_default();
    let name = value(options, TCA_BPF_NAME).and_then(|name| parse_string(name).ok());
    Some(Listed {
        ifindex: header.index.cast_unsigned(),
        hook,
        handle,
        priority: (header.info >> 16) as u16,
        protocol: header.info as u16,
        kind,
        name: name.unwrap_or_default(),
        program_id: value(options, TCA_BPF_ID).and_then(number),
    })
}

fn parts(answer: &Answer) -> Option<(TcHeader, &[u8])> {
    Some((TcHeader::parse(&answer.payload).ok()?, answer.payload.get(HEADER_LEN..)?))
}

fn value(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    // The library's iterator returns values that borrow from its own items.
    while let [a, b, c, d, ..] = *rest {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        if u16::from_ne_bytes([c, d]) & KIND_MASK == kind {
            return rest.get(4..len);
        }
        rest = rest.get(len.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// The other bits describe the encoding of the value.
const KIND_MASK: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_our_filter_identifies_its_process() {
        let tag = Tag { program: "twinpath_ingress".to_owned(), id: 0x12, pid: 4711, made_discipline: true };
        assert_eq!(tag.to_string(), "twinpath_ingress:0000000000000012:4711:discipline");
        for tag in [Tag { made_discipline: false, ..tag.clone() }, tag] {
            assert_eq!(tag.to_string().parse(), Ok(tag));
        }
    }

    #[test]
    fn foreign_filter_names_are_not_parsed() {
        for name in [
            "",
            "twinpath_ingress",
            "twinpath_ingress:12:4711",
            "twinpath_ingress:0000000000000012:4711:discipline:more",
            "twinpath_ingress:0000000000000012:4711:",
            "twinpath_ingress:000000000000001g:4711",
            "twinpath_ingress:0000000000000012:-1",
            "cil_from_netdev:0000000000000012:4711",
        ] {
            assert_eq!(name.parse::<Tag>(), Err(()), "{name}");
        }
    }

    #[test]
    fn attributes_that_end_too_early_are_not_read() {
        let bytes = [8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9, 0, 0, 0, 12, 0, 3, 0, 1];
        assert_eq!(value(&bytes, 1), Some(&[1, 2, 3, 4][..]));
        assert_eq!(value(&bytes, 2), Some(&[9][..]));
        assert_eq!((value(&bytes, 3), value(&[0, 0, 0, 0], 1)), (None, None));
        assert_eq!(value(&[0, 0, 1, 0], 1), None);
    }
}
