//! The bare redirect at tc: two interfaces whose frames go to each other, unseen.

use aya::Ebpf;

use crate::xdp_redirect::REDIRECT;
use crate::{PlainError, tc_ingress};

/// Two interfaces joined by programs at tc ingress, by links that end with the object. Dropping it takes the programs off.
pub struct TcRedirect {
    _programs: [Ebpf; 2],
}

impl TcRedirect {
    /// Joins the interfaces with these indexes, of the calling thread's namespace. `past`: frames go directly to the other
    /// ends of veth pairs, which are in other network namespaces.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN, or where the kernel has no BPF links at tc (before Linux 6.6).
    pub fn attach([one, other]: [u32; 2], past: bool) -> Result<Self, PlainError> {
        Ok(Self { _programs: [attach(one, other, past)?, attach(other, one, past)?] })
    }
}

fn attach(from: u32, to: u32, past: bool) -> Result<Ebpf, PlainError> {
    let program = if past { "redirect_tc_peer" } else { "redirect_tc" };
    tc_ingress::attach(REDIRECT, ("other", to), program, from)
        .map_err(|reason| PlainError::TcRedirect { ifindex: from, reason })
}
