//! The privileges of this process: its effective capabilities.

use rustix::thread::CapabilitySet;
use twinpath_sys::capabilities::effective;

/// The capabilities that twinpath uses, and their purpose: see docs/operations.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// CAP_NET_RAW: packet and AF_XDP sockets.
    pub net_raw: bool,
    /// CAP_NET_ADMIN: attaching programs, asking the kernel to resolve neighbours.
    pub net_admin: bool,
    /// CAP_BPF (or CAP_SYS_ADMIN, which contains it): loading programs.
    pub bpf: bool,
    /// CAP_IPC_LOCK: frame memory beyond the memlock limit.
    pub ipc_lock: bool,
    /// CAP_SYS_NICE: real-time scheduling of workers.
    pub sys_nice: bool,
    /// CAP_NET_BIND_SERVICE: ports below 1024.
    pub net_bind_service: bool,
}

impl Capabilities {
    /// All capabilities.
    pub const ALL: Self = Self {
        net_raw: true,
        net_admin: true,
        bpf: true,
        ipc_lock: true,
        sys_nice: true,
        net_bind_service: true,
    };

    /// The effective capabilities of the calling thread. One that cannot be read counts as missing.
    #[must_use]
    pub fn held() -> Self {
        let held = effective();
        let has = |capability| held.contains(capability);
        Self {
            net_raw: has(CapabilitySet::NET_RAW),
            net_admin: has(CapabilitySet::NET_ADMIN),
            bpf: has(CapabilitySet::BPF) || has(CapabilitySet::SYS_ADMIN),
            ipc_lock: has(CapabilitySet::IPC_LOCK),
            sys_nice: has(CapabilitySet::SYS_NICE),
            net_bind_service: has(CapabilitySet::NET_BIND_SERVICE),
        }
    }
}
