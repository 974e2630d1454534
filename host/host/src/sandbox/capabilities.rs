//! The capabilities that are needed again after the start, with their purpose; all others are dropped from every set.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use twinpath_observe::report;

use super::Needs;

/// Each capability, and its purpose in a running instance.
const NEEDED: [(CapabilitySet, &str); 8] = [
    (CapabilitySet::NET_ADMIN, "attaching and detaching programs; asking the kernel for neighbours"),
    (CapabilitySet::NET_RAW, "packet and AF_XDP sockets, when an interface comes back"),
    (CapabilitySet::BPF, "loading the claim's programs again, and changing claims"),
    (CapabilitySet::PERFMON, "programs that look into packets in loops, as the kernel checks them"),
    (CapabilitySet::SYS_ADMIN, "seeing, and going in front of, programs of others on the interface"),
    (CapabilitySet::IPC_LOCK, "frame memory beyond `ulimit -l`, when it is registered again"),
    (CapabilitySet::SYS_NICE, "the priority of workers, which changes with what they take of their CPU"),
    (
        CapabilitySet::NET_BIND_SERVICE,
        "ports below 1024: a service of a configuration that is read again, asking rpcbind",
    ),
];

/// Each capability that serving files takes in addition.
const OF_EXPORTS: [(CapabilitySet, &str); 8] = [
    (CapabilitySet::DAC_READ_SEARCH, "opening files by the handles that clients have"),
    (CapabilitySet::SETUID, "acting with the rights of each caller on its files"),
    (CapabilitySet::SETGID, "acting with the groups of each caller"),
    (
        CapabilitySet::DAC_OVERRIDE,
        "callers that are root, and owners of files that may not be opened any more",
    ),
    (CapabilitySet::CHOWN, "callers that are root"),
    (CapabilitySet::FOWNER, "callers that are root"),
    (CapabilitySet::FSETID, "callers that are root"),
    (CapabilitySet::MKNOD, "callers that are root"),
];

/// The capabilities that this instance needs.
fn needed(needs: &Needs) -> impl Iterator<Item = (CapabilitySet, &'static str)> + use<> {
    let binds = needs.rpcbind || needs.configuration.is_some();
    let exports = (!needs.exports.is_empty()).then_some(OF_EXPORTS).into_iter().flatten();
    let always =
        NEEDED.into_iter().filter(move |(needed, _)| binds || *needed != CapabilitySet::NET_BIND_SERVICE);
    always.chain(exports)
}

/// Drops all others, for the calling thread: permitted, effective, inheritable, ambient and bounding. Returns those
/// kept.
pub(super) fn keep(needs: &Needs) -> Vec<report::Capability> {
    let kept = needed(needs).fold(CapabilitySet::empty(), |all, (capability, _)| all | capability);
    // Done while CAP_SETPCAP is there. Without it the bounding set stays; that grants nothing, because no
    // program is executed any more.
    for capability in (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number)) {
        // An error: the kernel knows no such capability.
        if !kept.contains(capability) && capability_is_in_bounding_set(capability).unwrap_or(false) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    let narrowed = clear_ambient_capability_set().and_then(|()| {
        let kept = capabilities(None)?.permitted & kept;
        set_capabilities(
            None,
            CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
        )
    });
    if let Err(error) = narrowed {
        tracing::warn!("sandbox: capabilities are not given up: {error}");
    }
    self::held(needs)
}

/// Drops CAP_SYS_RESOURCE for the calling thread: with it, writing goes past the quotas of callers, and the kernel does
/// not take it from a thread that acts as another user.
pub(super) fn keep_to_quotas() {
    let dropped = capabilities(None).and_then(|sets| {
        let kept = |set: CapabilitySet| set - CapabilitySet::SYS_RESOURCE;
        let (effective, permitted) = (kept(sets.effective), kept(sets.permitted));
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable: kept(sets.inheritable) })
    });
    if let Err(error) = dropped {
        tracing::warn!("CAP_SYS_RESOURCE is not given up, quotas do not hold: {error}");
    }
}

/// The capabilities of the calling thread, each with its purpose here.
pub(super) fn held(needs: &Needs) -> Vec<report::Capability> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let reason = |held: CapabilitySet| {
        let known = needed(needs).find(|(capability, _)| *capability == held);
        known.map_or_else(String::new, |(_, reason)| reason.to_owned())
    };
    held.iter_names()
        .map(|(name, capability)| report::Capability {
            name: format!("CAP_{name}"),
            needed_for: reason(capability),
        })
        .collect()
}
