//! Finds out what this kernel and our capabilities allow.

use std::sync::Arc;

use aya::util::KernelVersion;
use rustix::thread::CapabilitySet;
use twinpath_sys::capabilities::effective;
use twinpath_time::Duration;

use crate::{KeptMaps, Path, ReflexPlan, Steering, TcAttach};

/// Which features are available, or a sentence that says why not. Nothing is attached to find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The programs of the packet path: the filter of its sockets, and the one at tc ingress.
    pub packet: Result<(), String>,
    /// The better of the available methods to attach at tc.
    pub tc: TcAttach,
    /// XDP programs and AF_XDP sockets.
    pub xdp: Result<(), String>,
}

/// Finds out by loading the programs and by queries, which has no effect on any interface. It does not depend on
/// the kernel's version: a newer feature may have been backported, or not be configured. Takes some tens of
/// milliseconds of CPU time.
#[must_use]
pub fn probe() -> Probe {
    let Probe { packet, tc, xdp } = probe_without_loading();
    Probe { packet: packet.and_then(|()| loads(Path::Packet)), tc, xdp: xdp.and_then(|()| loads(Path::Xdp)) }
}

/// Finds out by queries alone, which take some microseconds. Whether the kernel accepts a program then shows
/// when the program is loaded to be attached.
#[must_use]
pub fn probe_without_loading() -> Probe {
    Probe { packet: may("the packet path"), tc: TcAttach::here(), xdp: may("AF_XDP").and_then(|()| af_xdp()) }
}

/// Whether the kernel describes coalesced datagrams to packet sockets, as `VIRTIO_NET_HDR_GSO_UDP_L4`
/// (include/linux/virtio_net.h, since Linux 6.2). Otherwise a packet socket loses them. Only the version tells without sending
/// such a frame.
#[must_use]
pub fn describes_datagrams() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 2, 0))
}

/// Which features of programs that reply by themselves are available, or a sentence that says why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflexProbe {
    /// Replies equal to their requests, on the packet path.
    pub mirrors: Result<(), String>,
    /// Replies that services keep: their maps, and the search in them.
    pub kept: Result<(), String>,
    /// The part of this that works on the XDP paths.
    pub at_xdp: Result<(), String>,
}

/// Finds out by loading them, which has no effect on any interface.
#[must_use]
pub fn probe_reflexes() -> ReflexProbe {
    let plan = ReflexPlan { partial_checksums: true, rate: 1, tries_worker: true };
    let loads = |path, kept: Option<&Arc<KeptMaps>>| {
        let loaded = Steering::load_with_reflexes(path, 1, Duration::from_millis(1), &plan, kept);
        loaded.map(drop).map_err(|error| error.to_string())
    };
    let may = may("the packet path");
    let made = || KeptMaps::create(1, 0).map(Arc::new).map_err(|error| error.to_string());
    let mirrors = may.clone().and_then(|()| loads(Path::Packet, None));
    let kept = may.and_then(|()| made());
    let at_xdp = mirrors.clone().and_then(|()| loads(Path::Xdp, kept.as_ref().ok()));
    ReflexProbe { mirrors, kept: kept.and_then(|kept| loads(Path::Packet, Some(&kept))), at_xdp }
}

/// Whether this thread has the capabilities for `what`.
fn may(what: &str) -> Result<(), String> {
    let held = effective();
    let loads =
        if held.contains(CapabilitySet::SYS_ADMIN) { CapabilitySet::empty() } else { CapabilitySet::BPF };
    let missing = (CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | loads) - held;
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    Err(format!("{what} needs {}; run as root or grant it", names.join(", ")))
}

/// Whether the kernel accepts the programs of a path.
fn loads(path: Path) -> Result<(), String> {
    Steering::load(path).map(drop).map_err(|error| error.to_string())
}

fn af_xdp() -> Result<(), String> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map(|_| ())
        .map_err(|error| format!("this kernel gives no AF_XDP socket: {error}"))
}
