//! The snapshots that workers judge frames by: made from what is configured and there, sent, and freed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::SwitchCommand;
use twinpath_config::{PortMode, PortName, SwitchPort};
use twinpath_forwarding::learning::{
    ConfigError, LoopGuard, Mode, PortConfig, Snapshot, StaticEntry, StormLimits, SwitchConfig, VlanSet,
};
use twinpath_time::Duration;
use twinpath_worker::Command;

use super::{SwitchError, Switching};

/// The snapshot in force, and how far workers are.
pub(super) struct Snapshots {
    /// The one that workers were told of last, and its number.
    pub(super) current: Arc<Snapshot>,
    number: u64,
    /// The one that every worker had when what they share was last adapted.
    settled: Arc<Snapshot>,
    /// The number that each worker has.
    adopted: Vec<u64>,
}

impl Snapshots {
    pub(super) fn new(first: Arc<Snapshot>, workers: usize) -> Self {
        Self { settled: Arc::clone(&first), current: first, number: 0, adopted: vec![0; workers] }
    }

    /// The number of the one that workers were told of last.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether what workers share is that of the one that they were told of last.
    pub(super) fn is_settled(&self) -> bool {
        Arc::ptr_eq(&self.settled, &self.current)
    }

    /// The number of one that every worker has, or has had; those that are stuck are left out.
    pub(super) fn adopted_by_all(&self, is_stuck: impl Fn(usize) -> bool) -> u64 {
        let turning = self.adopted.iter().enumerate().filter(|(worker, _)| !is_stuck(*worker));
        turning.map(|(_, number)| *number).min().unwrap_or(self.number)
    }
}

/// The numbers of ports by their names.
type Numbers<'a> = HashMap<&'a PortName, u16>;

impl Switching {
    /// Makes the snapshot that workers begin with.
    ///
    /// # Errors
    /// What the switch refuses, and static entries that find no place.
    pub(super) fn begin_with_snapshot(&mut self) -> Result<(), SwitchError> {
        let first = Arc::new(Snapshot::compile(self.switch_config())?);
        if let Err(error) = self.shared.adopt(None, &first) {
            tracing::error!("a static entry is not in force: {error}");
        }
        self.snapshots = Snapshots::new(first, self.plan.workers());
        Ok(())
    }

    /// Tells workers what is configured and there now.
    pub(super) fn take_snapshot(&mut self) {
        self.ports_changed = true;
        let snapshot = match Snapshot::compile(self.switch_config()) {
            Ok(snapshot) => Arc::new(snapshot),
            // It was checked when it was configured.
            Err(error) => return tracing::error!("frames go on as before: {error}"),
        };
        if snapshot.config() == self.snapshots.current.config() {
            return;
        }
        // Until all workers have it, they forward all frames: what the kernel does is by the former one.
        self.with_learned(|learned, now, former| learned.suspend(true, now, former));
        self.snapshots.number += 1;
        self.snapshots.current = snapshot;
        for worker in &mut self.workers {
            let snapshot = Arc::clone(&self.snapshots.current);
            worker.tell(Command::Engine(SwitchCommand::Adopt(self.snapshots.number, snapshot)));
        }
    }

    /// A worker judges by the snapshot of that number.
    pub(super) fn adopted(&mut self, worker: usize, number: u64) {
        let Snapshots { current, number: latest, settled, adopted } = &mut self.snapshots;
        adopted[worker] = number;
        if !Arc::ptr_eq(settled, current) && adopted.iter().all(|number| number >= latest) {
            if let Err(error) = self.shared.adopt(Some(settled), current) {
                tracing::error!("a static entry is not in force: {error}");
            }
            *settled = Arc::clone(current);
        }
        self.claim_joined();
    }

    /// The configuration of the switch that consists of the ports that are there.
    pub(super) fn switch_config(&self) -> SwitchConfig {
        let switch = self.plan.switch();
        let vlans = switch.has_vlans();
        let there = || self.ports.iter().filter(|port| port.is_attached() && !port.removed);
        let numbers: Numbers<'_> = there().map(|port| (&port.name, port.number)).collect();
        let ports = there().map(|port| port_config(port.number, &port.config, &numbers)).collect();
        let entries = switch.static_entries.iter().filter_map(|entry| {
            let port = *numbers.get(&entry.port)?;
            Some(StaticEntry { mac: entry.mac, vlan: if vlans { entry.vlan } else { 0 }, port })
        });
        SwitchConfig { ports, static_entries: entries.collect(), ..common(switch, vlans) }
    }
}

/// What a configuration says of the switch as a whole.
fn common(switch: &twinpath_config::Switch, vlans: bool) -> SwitchConfig {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let guard = LoopGuard { block: seconds(switch.loop_block_s), ..LoopGuard::default() };
    SwitchConfig {
        vlans,
        ageing: seconds(switch.ageing_s),
        loop_guard: (switch.loop_block_s > 0).then_some(guard),
        ..SwitchConfig::default()
    }
}

/// What a configuration says of one port.
fn port_config(number: u16, port: &SwitchPort, numbers: &Numbers<'_>) -> PortConfig {
    let some = |limit: u32| (limit > 0).then_some(limit);
    let mode = match port.mode {
        PortMode::Access => Mode::Access { vlan: port.vlan as u16 },
        PortMode::Trunk => {
            let vlans = if port.vlans.is_empty() { VlanSet::all() } else { port.vlans.iter().collect() };
            Mode::Trunk { native: port.native.map(|vlan| vlan as u16), vlans }
        }
        PortMode::Monitor => Mode::Monitor,
    };
    let mirror = port.mirror_to.as_ref().and_then(|to| numbers.get(to).copied());
    PortConfig {
        mode,
        mac_limit: some(port.mac_limit),
        storm: StormLimits {
            broadcast_per_s: some(port.broadcast_limit),
            unknown_per_s: some(port.unknown_limit),
            multicast_per_s: some(port.multicast_limit),
        },
        mirror_ingress: mirror,
        mirror_egress: mirror,
        tunnel_id: port.vni.unwrap_or(0),
        ..PortConfig::new(number)
    }
}

/// What is wrong with a configuration once all of its ports are there.
///
/// # Errors
/// What the switch refuses, by the numbers of ports in their order.
pub(super) fn check(switch: &twinpath_config::Switch) -> Result<(), ConfigError> {
    let names: Vec<PortName> = switch.names().collect();
    let numbers: Numbers<'_> = names.iter().zip(0..).collect();
    let vlans = switch.has_vlans();
    let local = switch.local.iter().map(|_| SwitchPort::default());
    let ports = switch.port.iter().cloned().chain(local).enumerate();
    let ports = ports.map(|(at, port)| port_config(at as u16, &port, &numbers)).collect();
    let entries = switch.static_entries.iter().filter_map(|entry| {
        let port = *numbers.get(&entry.port)?;
        Some(StaticEntry { mac: entry.mac, vlan: if vlans { entry.vlan } else { 0 }, port })
    });
    let config = SwitchConfig { ports, static_entries: entries.collect(), ..common(switch, vlans) };
    Snapshot::compile(config).map(drop)
}
