//! The bare XDP redirect: two interfaces whose frames go to each other, without anything in user space.

use aya::programs::Xdp;
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::PlainError;

static REDIRECT: &[u8] = include_bytes_aligned!("../object/redirect.o");
const PROGRAM: &str = "redirect_xdp";

/// Two interfaces joined by XDP programs in their drivers. Dropping it takes the programs off.
pub struct XdpRedirect {
    _programs: [(Ebpf, XdpLink); 2],
}

impl XdpRedirect {
    /// Joins the interfaces with these indexes, of the calling thread's namespace. On veth pairs the other ends need
    /// GRO, or frames are dropped (`veth_xdp_xmit`, drivers/net/veth.c).
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN, or where an interface's driver runs no XDP.
    pub fn attach([one, other]: [u32; 2]) -> Result<Self, PlainError> {
        Ok(Self { _programs: [attach(one, other)?, attach(other, one)?] })
    }
}

fn attach(from: u32, to: u32) -> Result<(Ebpf, XdpLink), PlainError> {
    let failed = |reason: String| PlainError::XdpRedirect { ifindex: from, reason };
    let object = EbpfLoader::new().override_global("other", &to, true).load(REDIRECT);
    let mut object = object.map_err(|error| failed(error.to_string()))?;
    let program = object.program_mut(PROGRAM).ok_or_else(|| failed(format!("no {PROGRAM}")))?;
    let xdp: &mut Xdp = program.try_into().map_err(|error| failed(format!("{error}")))?;
    xdp.load().map_err(|error| failed(error.to_string()))?;
    let link = xdp.attach_to_if_index(from, XdpMode::Driver).map_err(|error| failed(error.to_string()))?;
    let link = xdp.take_link(link).map_err(|error| failed(error.to_string()))?;
    Ok((object, link))
}
