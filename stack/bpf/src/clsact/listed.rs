//! Reads the kernel's list of filters and disciplines, and the names that we give to our own filters.

use std::fmt;
use std::str::FromStr;

use aya::programs::TcAttachType;
use twinpath_netlink::{Attributes, Message, Netlink, NetlinkError, Request};

use super::{message, parent};
use crate::names::OURS;

pub(super) const CLSACT: &str = "clsact";
/// The kind of filters that are BPF programs.
pub(super) const BPF: &str = "bpf";

/// Bytes of `struct tcmsg`.
const HEADER_LEN: usize = 20;
// linux/rtnetlink.h, linux/pkt_cls.h
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
pub(super) const TC_H_CLSACT: u32 = 0xffff_fff1;
pub(super) const TCA_KIND: u16 = 1;
pub(super) const TCA_OPTIONS: u16 = 2;
const TCA_CHAIN: u16 = 11;
pub(super) const TCA_BPF_NAME: u16 = 7;
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
    /// The name that its owner gave it; empty for kinds other than `bpf`.
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
pub(super) fn filters(
    netlink: &Netlink,
    ifindex: u32,
    hook: TcAttachType,
) -> Result<Vec<Listed>, NetlinkError> {
    let asked = format!("list the filters at tc of interface {ifindex}");
    let body = message(ifindex, 0, parent(hook), 0);
    let answers = netlink.request(&Request::list(&asked, RTM_GETTFILTER, &body))?;
    Ok(answers.iter().filter_map(|answer| listed(&answer, hook)).collect())
}

/// Interfaces with a discipline that holds ingress filters, and its kind: `clsact` or `ingress`.
pub(super) fn disciplines(netlink: &Netlink) -> Result<Vec<(u32, String)>, NetlinkError> {
    let body = message(0, 0, 0, 0);
    let answers = netlink.request(&Request::list("list the queueing disciplines", RTM_GETQDISC, &body))?;
    let found = answers.iter().filter(|answer| answer.kind == RTM_NEWQDISC).filter_map(|answer| {
        let (header, attributes) = parts(&answer)?;
        let kind = attributes.text(TCA_KIND)?;
        (header.parent == TC_H_CLSACT).then_some((header.ifindex, kind))
    });
    Ok(found.collect())
}

/// Reads only the attributes that we need, because options of other kinds may have any layout.
fn listed(answer: &Message<'_>, hook: TcAttachType) -> Option<Listed> {
    let (Header { ifindex, handle, info, .. }, attributes) =
        parts(answer).filter(|_| answer.kind == RTM_NEWTFILTER)?;
    // Other chains run only if a filter of this one refers to them. An entry without a handle is not a filter but the
    // head of several.
    if attributes.u32(TCA_CHAIN).unwrap_or(0) != 0 || handle == 0 {
        return None;
    }
    let kind = attributes.text(TCA_KIND)?;
    let options = if kind == BPF { attributes.inside(TCA_OPTIONS) } else { Attributes::default() };
    Some(Listed {
        ifindex,
        hook,
        handle,
        priority: (info >> 16) as u16,
        protocol: info as u16,
        kind,
        name: options.text(TCA_BPF_NAME).unwrap_or_default(),
        program_id: options.u32(TCA_BPF_ID),
    })
}

/// `struct tcmsg`.
struct Header {
    ifindex: u32,
    handle: u32,
    parent: u32,
    info: u32,
}

fn parts<'a>(answer: &Message<'a>) -> Option<(Header, Attributes<'a>)> {
    let (header, attributes) = answer.parts::<HEADER_LEN>()?;
    let word = |at: usize| header[at * 4..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    Some((Header { ifindex: word(1), handle: word(2), parent: word(3), info: word(4) }, attributes))
}

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
}
