//! The capabilities that are needed again after the start, with their purpose; all others are dropped from every set.

use caps::{CapSet, Capability, CapsHashSet};
use twinpath_observe::report;

use super::Needs;

/// Each capability, and its purpose in a running instance.
const NEEDED: [(Capability, &str); 8] = [
    (Capability::CAP_NET_ADMIN, "attaching and detaching programs; asking the kernel for neighbours"),
    (Capability::CAP_NET_RAW, "packet and AF_XDP sockets, when an interface comes back"),
    (Capability::CAP_BPF, "loading the claim's programs again, and changing claims"),
    (Capability::CAP_PERFMON, "programs that look into packets in loops, as the kernel checks them"),
    (Capability::CAP_SYS_ADMIN, "seeing, and going in front of, programs of others on the interface"),
    (Capability::CAP_IPC_LOCK, "frame memory beyond `ulimit -l`, when it is registered again"),
    (Capability::CAP_SYS_NICE, "the priority of workers, which changes with what they take of their CPU"),
    (
        Capability::CAP_NET_BIND_SERVICE,
        "ports below 1024: a service of a configuration that is read again, asking rpcbind",
    ),
];

/// The capabilities that this instance needs.
fn needed(needs: &Needs) -> impl Iterator<Item = (Capability, &'static str)> {
    let binds = needs.rpcbind || needs.configuration.is_some();
    NEEDED.into_iter().filter(move |(capability, _)| binds || *capability != Capability::CAP_NET_BIND_SERVICE)
}

/// Drops all others, for the calling thread: permitted, effective, inheritable, ambient and bounding. Returns those
/// kept.
pub(super) fn keep(needs: &Needs) -> Vec<report::Capability> {
    let kept: CapsHashSet = needed(needs).map(|(capability, _)| capability).collect();
    // Done while CAP_SETPCAP is there. Without it the bounding set stays; that grants nothing, because no
    // program is executed any more.
    for capability in caps::read(None, CapSet::Bounding).unwrap_or_default() {
        if !kept.contains(&capability) {
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    let held = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let kept: CapsHashSet = held.intersection(&kept).copied().collect();
    let narrowed = caps::clear(None, CapSet::Ambient)
        .and_then(|()| caps::clear(None, CapSet::Inheritable))
        .and_then(|()| caps::set(None, CapSet::Effective, &kept))
        .and_then(|()| caps::set(None, CapSet::Permitted, &kept));
    if let Err(error) = narrowed {
        tracing::warn!("sandbox: capabilities are not given up: {error}");
    }
    self::held(needs)
}

/// The capabilities of the calling thread, each with its purpose here.
pub(super) fn held(needs: &Needs) -> Vec<report::Capability> {
    let mut held: Vec<_> = caps::read(None, CapSet::Permitted).unwrap_or_default().into_iter().collect();
    held.sort_unstable_by_key(|capability| capability.index());
    let reason = |held: Capability| {
        let known = needed(needs).find(|(capability, _)| *capability == held);
        known.map_or_else(String::new, |(_, reason)| reason.to_owned())
    };
    held.into_iter()
        .map(|capability| report::Capability { name: capability.to_string(), needed_for: reason(capability) })
        .collect()
}
