//! The bare redirect at tc: two interfaces whose frames go to each other, unseen.

use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_sys::packet_socket::interface_name;

use crate::PlainError;

static REDIRECT: &[u8] = include_bytes_aligned!("../object/redirect.o");

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
    let failed = |reason: String| PlainError::TcRedirect { ifindex: from, reason };
    let name = interface_name(from).map_err(|error| failed(error.to_string()))?;
    let object = EbpfLoader::new().override_global("other", &to, true).load(REDIRECT);
    let mut object = object.map_err(|error| failed(error.to_string()))?;
    let section = if past { "redirect_tc_peer" } else { "redirect_tc" };
    let program = object.program_mut(section).ok_or_else(|| failed(format!("no {section}")))?;
    let classifier: &mut SchedClassifier = program.try_into().map_err(|error| failed(format!("{error}")))?;
    classifier.load().map_err(|error| failed(error.to_string()))?;
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    classifier
        .attach_with_options(&name, TcAttachType::Ingress, order)
        .map_err(|error| failed(error.to_string()))?;
    Ok(object)
}
