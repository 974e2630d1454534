//! The bare XDP redirect: two interfaces whose frames go to each other, without anything in user space.

use aya::maps::DevMap;
use aya::programs::Xdp;
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::{Ebpf, include_bytes_aligned};

use crate::PlainError;

pub(crate) static REDIRECT: &[u8] = include_bytes_aligned!("../object/redirect.o");
pub(crate) const PROGRAM: &str = "redirect_xdp";

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
        let join = |from, to| attach(load(to)?, PROGRAM, from);
        Ok(Self { _programs: [join(one, other)?, join(other, one)?] })
    }
}

/// Loads the programs, with the interface that frames are sent to.
pub(crate) fn load(to: u32) -> Result<Ebpf, PlainError> {
    let failed = |reason: String| PlainError::XdpRedirect { ifindex: to, reason };
    let mut object = Ebpf::load(REDIRECT).map_err(|error| failed(error.to_string()))?;
    let devices = object.map_mut("devices").ok_or_else(|| failed("no map of devices".to_owned()))?;
    let mut devices = DevMap::try_from(devices).map_err(|error| failed(error.to_string()))?;
    devices.set(0, to, None, 0).map_err(|error| failed(error.to_string()))?;
    Ok(object)
}

/// Attaches a program in the driver of an interface.
pub(crate) fn attach(
    mut object: Ebpf,
    name: &'static str,
    ifindex: u32,
) -> Result<(Ebpf, XdpLink), PlainError> {
    let failed = |reason: String| PlainError::XdpRedirect { ifindex, reason };
    let program = object.program_mut(name).ok_or_else(|| failed(format!("no {name}")))?;
    let xdp: &mut Xdp = program.try_into().map_err(|error| failed(format!("{error}")))?;
    xdp.load().map_err(|error| failed(error.to_string()))?;
    let link = xdp.attach_to_if_index(ifindex, XdpMode::Driver).map_err(|error| failed(error.to_string()))?;
    let link = xdp.take_link(link).map_err(|error| failed(error.to_string()))?;
    Ok((object, link))
}
