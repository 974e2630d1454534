//! Attaches programs at tc, by BPF links or by classic filters.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aya::programs::links::FdLink;
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, ProgramInfo, SchedClassifier, TcAttachType};

use crate::SteerError;
use crate::clsact::Filter;
use crate::link::attach_first;
use crate::names::{OURS, interface_name};

/// How programs are attached at tc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcAttach {
    /// By BPF links, which end with the process.
    Tcx,
    /// By classic filters, which stay if the process is killed, and then do nothing.
    Clsact,
}

impl TcAttach {
    /// The better of the two ways that this kernel supports. To find out, it is asked which programs are attached
    /// by links; nothing is attached.
    #[must_use]
    pub fn here() -> Self {
        match SchedClassifier::query_tcx("lo", TcAttachType::Ingress) {
            // The kernel returns EINVAL for an attachment type that it does not know.
            Err(ProgramError::SyscallError(error))
                if error.call == "bpf_prog_query" && error.io_error.raw_os_error() == Some(libc::EINVAL) =>
            {
                Self::Clsact
            }
            _ => Self::Tcx,
        }
    }

    /// `tcx` or `clsact`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }

    /// Whether such an attachment ends with its process, however the process ends.
    #[must_use]
    pub const fn ends_with_process(self) -> bool {
        matches!(self, Self::Tcx)
    }
}

impl fmt::Display for TcAttach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A program at tc. Dropping it detaches it.
pub(crate) enum TcLink {
    /// Held, not read: the program is in force while it is open, or pinned.
    Tcx(FdLink),
    /// The same, only by its descriptor.
    Passable(OwnedFd),
    Clsact(Filter),
}

impl TcLink {
    /// As a link that can be pinned.
    pub(crate) fn into_link(self) -> Result<FdLink, SteerError> {
        match self {
            Self::Tcx(link) => Ok(link),
            Self::Passable(_) | Self::Clsact(_) => Err(SteerError::KeepWithoutLinks),
        }
    }
}

impl TcLink {
    /// The descriptor, if another process can keep the program attached by it.
    pub(crate) fn passable(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Passable(link) => Some(link.as_fd()),
            Self::Tcx(_) | Self::Clsact(_) => None,
        }
    }
}

/// Replaces the program of a link by another loaded one, between two frames.
pub(crate) fn replace(
    program: &mut SchedClassifier,
    link: SchedClassifierLink,
) -> Result<TcLink, ProgramError> {
    let id = program.attach_to_link(link)?;
    let link = program.take_link(id)?;
    Ok(TcLink::Tcx(FdLink::try_from(link).map_err(|_| ProgramError::UnexpectedProgramType)?))
}

/// Attaches a loaded program before all others: a program that changed the frame first would make it look like
/// another one.
pub(crate) fn attach(
    program: &mut SchedClassifier,
    name: &str,
    ifindex: u32,
    hook: TcAttachType,
    how: TcAttach,
) -> Result<TcLink, SteerError> {
    let interface = interface_name(ifindex)?;
    let failed = |error| SteerError::Tcx { interface: interface.clone(), error: Box::new(error) };
    match how {
        TcAttach::Tcx => {
            let order = TcAttachOptions::TcxOrder(LinkOrder::first());
            let link = program
                .attach_with_options(&interface, hook, order)
                .and_then(|id| program.take_link(id))
                .map_err(failed)?;
            let link = FdLink::try_from(link).map_err(|_| SteerError::TcxWithoutLink(interface))?;
            Ok(TcLink::Tcx(link))
        }
        TcAttach::Clsact => {
            refuse_behind_tcx(&interface, hook)?;
            let fd = program.fd().map_err(failed)?;
            Filter::attach(fd.as_fd(), name, ifindex, hook).map(TcLink::Clsact)
        }
    }
}

/// As [`attach`], but by a link that can be passed to another process, if the kernel has links.
pub(crate) fn attach_passable(
    program: &mut SchedClassifier,
    name: &str,
    ifindex: u32,
    hook: TcAttachType,
    how: TcAttach,
) -> Result<TcLink, SteerError> {
    if how == TcAttach::Clsact {
        return attach(program, name, ifindex, hook, how);
    }
    let interface = interface_name(ifindex)?;
    let failed =
        |error: ProgramError| SteerError::Tcx { interface: interface.clone(), error: Box::new(error) };
    let link = attach_first(program.fd().map_err(failed)?.as_fd(), ifindex, hook);
    link.map(TcLink::Passable).map_err(|error| failed(ProgramError::IOError(error)))
}

/// Refuses if a foreign tcx program is attached: such programs run before any filter and may end the chain.
fn refuse_behind_tcx(interface: &str, hook: TcAttachType) -> Result<(), SteerError> {
    // A kernel without tcx, or one that does not answer the query, has no such programs.
    let Ok((_, programs)) = SchedClassifier::query_tcx(interface, hook) else { return Ok(()) };
    let name = |program: &ProgramInfo| program.name_as_str().unwrap_or("without a name").to_owned();
    // Our own programs pass on what they do not drop.
    let Some(name) = programs.iter().map(name).find(|name| !name.starts_with(OURS)) else { return Ok(()) };
    Err(SteerError::NotFirst { interface: interface.to_owned(), who: format!("the tcx program {name}") })
}
