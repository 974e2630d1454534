//! What the workers of a switch share: the MAC table, the buckets of storm control and of packet-ins, the loop
//! guard.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use twinpath_time::Instant;
use twinpath_wire::Mac;

use crate::learning::arrival::mac_of;
use crate::learning::config::{Mode, PORT_MAX, PortConfig, StaticEntry};
use crate::learning::guard::{Guard, Loop};
use crate::learning::snapshot::Snapshot;
use crate::learning::storm::{Bucket, Kind, Limit};
use crate::learning::table::{MacTable, NoMemory, NoPlace};

/// Is told immediately of addresses that have moved from one port to another, on the thread of the worker that learned
/// it.
pub trait OnMove: Send + Sync + std::fmt::Debug {
    /// An address was on the port `from`, if only for a moment. The table no longer says so. The call must not block,
    /// allocate or fail.
    fn moved(&self, mac: Mac, vlan: u16, from: u16);
}

/// What the workers of a switch share, in an `Arc`: each call may be made from any thread, and none waits for another.
#[derive(Debug)]
pub struct Shared {
    /// The MAC table.
    pub table: MacTable,
    pub(crate) guard: Guard,
    /// Three per port.
    storm: Box<[[Bucket; 3]]>,
    /// One per port, and the first for frames that came by none.
    packet_ins: Box<[Bucket]>,
    on_move: Option<Arc<dyn OnMove>>,
}

impl Shared {
    /// The state of a switch that has seen no frame. [`MacTable::new`] says what the arguments are.
    ///
    /// # Errors
    /// [`NoMemory`] for the table.
    pub fn new(capacity: u32, seed: [u64; 2]) -> Result<Self, NoMemory> {
        let table = MacTable::new(capacity, seed)?;
        let storm = (0..=PORT_MAX).map(|_| Default::default()).collect();
        let packet_ins = (0..=PORT_MAX).map(|_| Bucket::default()).collect();
        Ok(Self { table, guard: Guard::new(seed), storm, packet_ins, on_move: None })
    }

    /// Sets the listener that is told of all moves.
    #[must_use]
    pub fn heard_by(self, on_move: Arc<dyn OnMove>) -> Self {
        Self { on_move: Some(on_move), ..self }
    }

    /// An address is not on a port any more, and the table says so.
    pub(crate) fn moved(&self, mac: u64, vlan: u16, from: u16) {
        if let Some(on_move) = &self.on_move {
            on_move.moved(mac_of(mac), vlan, from);
        }
    }

    /// Bytes that it occupies, all of them from the start.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.guard.memory_bytes()
            + size_of_val(&*self.storm)
            + size_of_val(&*self.packet_ins)
    }

    /// Whether a port may send one more packet to OpenFlow's controllers; if so, that counts. All workers share a port's
    /// budget. [`NO_PORT`](crate::learning::NO_PORT) has one too.
    #[must_use]
    pub fn allows_packet_in(&self, port: u16, limit: Limit, now: Instant) -> bool {
        let bucket = self.packet_ins.get(usize::from(port)).unwrap_or(&self.packet_ins[0]);
        bucket.allows(limit, now, 1)
    }

    #[inline]
    pub(crate) fn storm(&self, port: u16, kind: Kind) -> Option<&Bucket> {
        Some(&self.storm.get(usize::from(port))?[kind as usize])
    }

    /// The ports that the loop guard blocks now, each with the other port of its loop.
    pub fn loops(&self, now: Instant) -> impl Iterator<Item = Loop> + '_ {
        self.guard.blocked(now)
    }

    /// Ends the loop guard's block of a port.
    pub fn unblock(&self, port: u16) {
        self.guard.unblock(port);
    }

    /// Forgets what belongs to a former configuration: addresses on ports that are gone or whose VLANs have changed, and
    /// static entries. Enters the static entries of the new one. Control calls it when every worker has taken `new`, as
    /// a worker with the former one learns on its ports until then.
    ///
    /// # Errors
    /// [`NoPlace`] for the first static entry that found no place; all others are entered.
    pub fn adopt(&self, former: Option<&Snapshot>, new: &Snapshot) -> Result<(), NoPlace> {
        if let Some(former) = former {
            let modes: HashMap<u16, &Mode> =
                new.config().ports.iter().map(|port| (port.number, &port.mode)).collect();
            let unchanged = |port: &&PortConfig| {
                former.config().vlans == new.config().vlans && modes.get(&port.number) == Some(&&port.mode)
            };
            let kept: HashSet<u16> =
                former.config().ports.iter().filter(unchanged).map(|port| port.number).collect();
            for PortConfig { number, .. } in &former.config().ports {
                if !kept.contains(number) {
                    self.table.flush_port(*number);
                    self.guard.unblock(*number);
                }
            }
            let still: HashSet<&StaticEntry> = new.config().static_entries.iter().collect();
            let removed = former.config().static_entries.iter().filter(|entry| !still.contains(entry));
            removed.for_each(|entry| self.table.remove_static(entry.mac, entry.vlan));
        }
        let mut result = Ok(());
        for entry in &new.config().static_entries {
            result = result.and(self.table.set_static(entry.mac, entry.vlan, entry.port));
        }
        result
    }
}
