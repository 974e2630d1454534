//! Classic filters at tc: the way to attach programs at tc where the kernel has no BPF links there (tcx).
//!
//! A filter belongs to its interface and not to a process, so it stays when its process is killed. Programs
//! attached this way must therefore do nothing by themselves once their process is gone. Each filter's name
//! identifies the process that put it there: the program, a number that is held while the process lives
//! ([`Alive`]), and the process ID for people to read. A later instance removes the filters whose number is free
//! ([`tidy`]), and no others.
//!
//! Foreign filters and queueing disciplines are not changed. Ours have priority 1 and are the newest of that
//! priority, which the kernel runs first (`cls_bpf_change` puts a new one at the head of the list). A qdisc that
//! existed before stays; one that we made is removed with the last filter on it. Between our check that no other
//! filter is left and the removal, another process may add one. Its filter is lost, as after any `tc qdisc del`.

mod listed;

use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::programs::TcAttachType;
use rustix::io::Errno;
use twinpath_netlink::{Body, Netlink, NetlinkError, Protocol, Request};
use twinpath_sys::Alive;
use twinpath_sys::alive::is_alive;

pub(crate) use self::listed::Listed;
use self::listed::{
    BPF, CLSACT, TC_H_CLSACT, TCA_BPF_NAME, TCA_KIND, TCA_OPTIONS, Tag, disciplines, filters,
};
use crate::SteerError;
use crate::names::interface_name;

// linux/rtnetlink.h, linux/pkt_cls.h
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAGS_GEN: u16 = 9;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
const TCA_CLS_FLAGS_SKIP_HW: u32 = 1;
/// The handle of a discipline of kind `clsact`, and its two hooks.
const HANDLE: u32 = TC_H_CLSACT & 0xffff_0000;
const TC_H_MIN_INGRESS: u32 = 0xfff2;
const TC_H_MIN_EGRESS: u32 = 0xfff3;

/// Runs before all others.
const PRIORITY: u16 = 1;
/// For all protocols: `ETH_P_ALL`, in network byte order.
const PROTOCOL: u16 = 3u16.to_be();

/// How many times the qdisc may vanish while we add a filter to it: another instance that ends removes its own.
const ATTEMPTS: u32 = 3;

/// One of our filters. Dropping it removes it, and also its qdisc if we made that and nobody else uses it.
pub(crate) struct Filter {
    netlink: Netlink,
    ifindex: u32,
    hook: TcAttachType,
    handle: u32,
    made_discipline: bool,
    _alive: Alive,
}

/// The position of our filter among the others.
pub(crate) enum Position {
    First,
    /// After the filter of this name.
    Behind(String),
    /// It was removed by another party.
    Gone,
}

impl Filter {
    /// Attaches a program before all others.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        name: &str,
        ifindex: u32,
        hook: TcAttachType,
    ) -> Result<Self, SteerError> {
        let interface = interface_name(ifindex)?;
        let failed = |step| {
            let interface = interface.clone();
            move |error| SteerError::Clsact { interface, step, error }
        };
        let netlink = Netlink::open(Protocol::Route).map_err(failed("netlink"))?;
        let alive = Alive::new().map_err(SteerError::Alive)?;
        // Handles start at 1. If another filter has this one, the kernel refuses and the caller draws a new number.
        let handle = (alive.id() as u32).max(1);
        let mut attempts = 0..ATTEMPTS;
        loop {
            attempts.next();
            let made_discipline = make_discipline(&netlink, ifindex).map_err(failed("the discipline"))?;
            let tag =
                Tag { program: name.to_owned(), id: alive.id(), pid: std::process::id(), made_discipline };
            let added = add(&netlink, program, &tag, handle, ifindex, hook);
            let there = filters(&netlink, ifindex, hook).map_err(failed("looking for filters"))?;
            if there.iter().any(|filter| filter.handle == handle && filter.is_ours()) {
                return Ok(Self { netlink, ifindex, hook, handle, made_discipline, _alive: alive });
            }
            let last = attempts.is_empty();
            match added {
                Err(error) if last || !error.is(Errno::NOENT) => {
                    let _ = remove_discipline(&netlink, ifindex, made_discipline);
                    // Within one priority all filters have the same kind and protocol.
                    let first = there.into_iter().find(|filter| filter.priority == PRIORITY);
                    return Err(
                        match first.filter(|first| first.kind != BPF || first.protocol != PROTOCOL) {
                            Some(first) => SteerError::NotFirst { interface, who: first.to_string() },
                            None => failed("the filter")(error),
                        },
                    );
                }
                Ok(()) if last => return Err(failed("the filter")(vanished())),
                _ => {}
            }
        }
    }

    /// Which filter runs before it.
    pub(crate) fn position(&self) -> Result<Position, NetlinkError> {
        let there = filters(&self.netlink, self.ifindex, self.hook)?;
        let ours = |filter: &Listed| filter.handle == self.handle && filter.is_ours();
        let Some(at) = there.iter().position(ours) else { return Ok(Position::Gone) };
        // Another twinpath instance drops only its own frames: it may run before us.
        let in_front = there[..at].iter().find(|filter| !filter.is_ours());
        Ok(in_front.map_or(Position::First, |filter| Position::Behind(filter.to_string())))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Whether the filter existed or its interface still does: afterwards the filter is gone.
        let _ = remove(&self.netlink, self.ifindex, self.hook, self.handle, self.made_discipline);
    }
}

/// A filter whose process is gone: it drops nothing, but runs for every frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Name of the interface.
    pub interface: String,
    /// Name of the program.
    pub program: String,
    /// The process ID, in that process's own PID namespace.
    pub pid: u32,
}

/// The filters of dead instances on an interface, or on all interfaces of the calling thread's network namespace.
///
/// # Errors
/// [`SteerError::Leftovers`]: the kernel does not list them.
pub fn leftovers(interface: Option<u32>) -> Result<Vec<Leftover>, SteerError> {
    each_leftover(interface, |_, _, _| Ok(true)).map_err(SteerError::Leftovers)
}

/// Removes the filters of dead instances, and the disciplines that those made and nobody else uses. Returns the
/// filters removed.
///
/// # Errors
/// [`SteerError::Leftovers`]: CAP_NET_ADMIN is missing, or the kernel does not list them.
pub fn tidy(interface: Option<u32>) -> Result<Vec<Leftover>, SteerError> {
    let removed = each_leftover(interface, |netlink, filter, tag| {
        match remove(netlink, filter.ifindex, filter.hook, filter.handle, tag.made_discipline) {
            Ok(()) => Ok(true),
            // Another process removed it first, or the interface is gone.
            Err(error) if error.is(Errno::NOENT) || error.is(Errno::NODEV) => Ok(false),
            Err(error) => Err(error),
        }
    });
    removed.map_err(SteerError::Leftovers)
}

/// The filters on the interface, or on all, whose process is gone and for which `act` returns true.
fn each_leftover(
    interface: Option<u32>,
    act: impl Fn(&Netlink, &Listed, &Tag) -> Result<bool, NetlinkError>,
) -> Result<Vec<Leftover>, NetlinkError> {
    let netlink = Netlink::open(Protocol::Route)?;
    let mut found = Vec::new();
    let held = match interface {
        // The kernel lists the disciplines of all interfaces, of which there may be thousands.
        Some(only) => vec![(only, CLSACT.to_owned())],
        None => disciplines(&netlink)?,
    };
    for (ifindex, kind) in held {
        // The older discipline `ingress` has a single list, returned for either hook.
        let hooks: &[_] = if kind == CLSACT {
            &[TcAttachType::Ingress, TcAttachType::Egress]
        } else {
            &[TcAttachType::Ingress]
        };
        for hook in hooks {
            for filter in filters(&netlink, ifindex, *hook)? {
                let Some(tag) = filter.tag().filter(|tag| !is_alive(tag.id)) else { continue };
                if act(&netlink, &filter, &tag)? {
                    let interface =
                        interface_name(ifindex).unwrap_or_else(|_| format!("interface {ifindex}"));
                    found.push(Leftover { interface, program: tag.program, pid: tag.pid });
                }
            }
        }
    }
    Ok(found)
}

/// The filters at a hook of the interface, in the order in which they run; none where no discipline holds filters.
pub(crate) fn at(ifindex: u32, hook: TcAttachType) -> Result<Vec<Listed>, NetlinkError> {
    filters(&Netlink::open(Protocol::Route)?, ifindex, hook)
}

/// Makes the qdisc that holds the filters. Returns whether to remove it with the last of them: if it did not exist,
/// or if another instance made it and left its removal to the last one.
fn make_discipline(netlink: &Netlink, ifindex: u32) -> Result<bool, NetlinkError> {
    let asked = format!("make the discipline {CLSACT} of interface {ifindex}");
    match netlink.request(&Request::create(&asked, RTM_NEWQDISC, &discipline(ifindex))) {
        Ok(_) => Ok(true),
        Err(error) if error.is(Errno::EXIST) => {
            let made = |filter: &Listed| filter.tag().is_some_and(|tag| tag.made_discipline);
            Ok(filters(netlink, ifindex, TcAttachType::Ingress)?.iter().any(made)
                || filters(netlink, ifindex, TcAttachType::Egress)?.iter().any(made))
        }
        Err(error) => Err(error),
    }
}

/// The error if a filter was added but is not there.
fn vanished() -> NetlinkError {
    NetlinkError::refused("keep the filter".to_owned(), Errno::NOENT)
}

fn discipline(ifindex: u32) -> Body {
    message(ifindex, HANDLE, TC_H_CLSACT, 0).text(TCA_KIND, CLSACT)
}

/// `struct tcmsg`: family, padding, interface, handle, parent, and further information of a filter.
fn message(ifindex: u32, handle: u32, parent: u32, info: u32) -> Body {
    Body::new([0, ifindex, handle, parent, info].map(u32::to_ne_bytes).concat())
}

fn add(
    netlink: &Netlink,
    program: BorrowedFd<'_>,
    tag: &Tag,
    handle: u32,
    ifindex: u32,
    hook: TcAttachType,
) -> Result<(), NetlinkError> {
    let options = Body::new([])
        .bytes(TCA_BPF_FD, program.as_raw_fd().to_ne_bytes())
        .text(TCA_BPF_NAME, &tag.to_string())
        // The program's return value decides about the frame.
        .u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT)
        // The device is not asked to run it in hardware.
        .u32(TCA_BPF_FLAGS_GEN, TCA_CLS_FLAGS_SKIP_HW);
    let body = filter(ifindex, hook, handle).nested(TCA_OPTIONS, &options);
    let asked = format!("add a filter at tc of interface {ifindex}");
    netlink.request(&Request::create(&asked, RTM_NEWTFILTER, &body)).map(drop)
}

/// Removes a filter, and also its discipline if one of our instances made it and nobody else uses it.
fn remove(
    netlink: &Netlink,
    ifindex: u32,
    hook: TcAttachType,
    handle: u32,
    made_discipline: bool,
) -> Result<(), NetlinkError> {
    let asked = format!("remove a filter at tc of interface {ifindex}");
    netlink.request(&Request::new(&asked, RTM_DELTFILTER, &filter(ifindex, hook, handle)))?;
    remove_discipline(netlink, ifindex, made_discipline)
}

fn remove_discipline(netlink: &Netlink, ifindex: u32, made: bool) -> Result<(), NetlinkError> {
    if !made
        || !filters(netlink, ifindex, TcAttachType::Ingress)?.is_empty()
        || !filters(netlink, ifindex, TcAttachType::Egress)?.is_empty()
    {
        return Ok(());
    }
    let asked = format!("remove the discipline {CLSACT} of interface {ifindex}");
    netlink.request(&Request::new(&asked, RTM_DELQDISC, &discipline(ifindex))).map(drop)
}

/// A message that identifies the filter of that handle.
fn filter(ifindex: u32, hook: TcAttachType, handle: u32) -> Body {
    let info = u32::from(PRIORITY) << 16 | u32::from(PROTOCOL);
    message(ifindex, handle, parent(hook), info).text(TCA_KIND, BPF)
}

fn parent(hook: TcAttachType) -> u32 {
    HANDLE
        | match hook {
            TcAttachType::Egress => TC_H_MIN_EGRESS,
            _ => TC_H_MIN_INGRESS,
        }
}
