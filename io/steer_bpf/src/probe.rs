//! What this kernel and our capabilities allow.

use aya::util::KernelVersion;
use caps::{CapSet, Capability, CapsHashSet};

use crate::{Path, Steering};

/// For each part `Ok`, or a sentence why not. Nothing is attached to find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Filters on packet sockets.
    pub socket_filter: Result<(), String>,
    /// The claim at tc ingress. The packet path needs this and the filter.
    pub tcx: Result<(), String>,
    /// XDP programs and AF_XDP sockets.
    pub xdp: Result<(), String>,
}

impl Probe {
    /// Whether the packet path can be used, or why not.
    ///
    /// # Errors
    /// The first sentence that speaks against it.
    pub fn packet_path(&self) -> Result<(), String> {
        self.socket_filter.clone().and_then(|()| self.tcx.clone())
    }
}

/// Finds out by loading the programs, which has no effect on any interface.
#[must_use]
pub fn probe() -> Probe {
    let held = caps::read(None, CapSet::Effective).unwrap_or_default();
    let packet = missing(&held, &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW], "the packet path")
        .and_then(|()| loads(Path::Packet));
    let tcx = packet.clone().and_then(|()| {
        if KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0)) {
            Ok(())
        } else {
            Err("this kernel has no tcx links (they came with Linux 6.6), so the kernel would get a copy of every \
                 claimed frame"
                .to_owned())
        }
    });
    let xdp = missing(&held, &[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW], "AF_XDP")
        .and_then(|()| loads(Path::Xdp))
        .and_then(|()| af_xdp());
    Probe { socket_filter: packet, tcx, xdp }
}

fn missing(held: &CapsHashSet, needed: &[Capability], what: &str) -> Result<(), String> {
    let mut missing: Vec<String> =
        needed.iter().filter(|capability| !held.contains(capability)).map(ToString::to_string).collect();
    if !held.contains(&Capability::CAP_BPF) && !held.contains(&Capability::CAP_SYS_ADMIN) {
        missing.push("CAP_BPF".to_owned());
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("{what} needs {}; run as root or grant it", missing.join(", ")))
    }
}

fn loads(path: Path) -> Result<(), String> {
    Steering::load(path).map(|_| ()).map_err(|error| error.to_string())
}

fn af_xdp() -> Result<(), String> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map(|_| ())
        .map_err(|error| format!("this kernel gives no AF_XDP socket: {error}"))
}
