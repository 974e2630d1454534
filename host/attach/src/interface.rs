//! The state of an interface before attaching: whether it can be used, remains of killed instances, and the facts for
//! the choice of a path.

use std::collections::BTreeSet;

use twinpath_bpf::{Leftover, Withheld};
use twinpath_config::AttachAsked;

use crate::mirror::Mirror;
use crate::mirror::table::Link;
use crate::path::choose::settle;
use crate::path::facts::{self, ForeignXdp, InterfaceFacts, KernelSupport, Support};

/// The reason that frames arriving on an interface cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no such interface.
    #[error("there is no interface {name}; there is {available}")]
    NoInterface {
        /// The name.
        name: String,
        /// The interfaces that exist.
        available: String,
    },
    /// It is the device of an exception port.
    #[error(
        "{name} is carried to {kernel} by a twinpath bridge ({holder}), and nothing else gets its frames: use {kernel} instead"
    )]
    Carried {
        /// The device.
        name: String,
        /// The kernel's interface in its place.
        kernel: String,
        /// `pid 12`.
        holder: String,
    },
}

/// The link of that name, if frames that arrive there can be claimed.
///
/// # Errors
/// [`InterfaceError`]
pub fn find_link(mirror: &Mirror, name: &str) -> Result<Link, InterfaceError> {
    let link = mirror.tables().link_named(name).cloned().ok_or_else(|| {
        let names: BTreeSet<&str> = mirror.tables().links().map(|link| link.name.as_str()).collect();
        let available = names.into_iter().collect::<Vec<_>>().join(", ");
        InterfaceError::NoInterface { name: name.to_owned(), available }
    })?;
    let Some(Withheld { holder, kernel }) = twinpath_bpf::withheld(link.ifindex) else {
        return Ok(link);
    };
    let kernel = kernel.unwrap_or_else(|| "the interface it was given as --kernel".to_owned());
    let pid = holder.map_or_else(|| "not to be seen from here".to_owned(), |(pid, _)| format!("pid {pid}"));
    Err(InterfaceError::Carried { name: link.name, kernel, holder: pid })
}

/// Removes the programs that killed instances have left on the interface.
pub fn tidy(link: &Link) {
    match twinpath_bpf::tidy(Some(link.ifindex)) {
        Ok(removed) => {
            for Leftover { interface, program, pid } in removed {
                tracing::info!(
                    "removed from {interface}: {program}, which process {pid} had left when it was killed"
                );
            }
        }
        // Without the privilege to look, attaching fails as well, with the reason.
        Err(error) => tracing::debug!("{error}"),
    }
}

/// Collects the facts for the choice of a path. No BPF program is loaded, as that takes tens of milliseconds: whether
/// the kernel accepts the programs of a path shows when the path is attached. `sockets`: whether the kernel's sockets
/// could serve all claims; they cannot for frames of an EtherType.
pub fn learn_facts(mirror: &Mirror, link: &Link, sockets: bool, asked: AttachAsked) -> InterfaceFacts {
    let support = |probed: Result<(), String>| probed.map_or_else(Support::No, |()| Support::Yes);
    let probe = twinpath_bpf::probe_without_loading();
    let kernel =
        KernelSupport { tc: probe.packet.and_then(|()| settle(asked, probe.tc)), af_xdp: support(probe.xdp) };
    let mut facts = facts::collect(link, mirror.tables(), kernel);
    // Read again, because the mirror may still show a program of ours that has just been detached.
    if let Ok(holder) = twinpath_bpf::xdp_holder(link.ifindex) {
        facts.foreign_xdp = holder.map(ForeignXdp::from);
    }
    facts.crossed = sockets && twinpath_bpf::crosses(link.ifindex);
    facts
}
