//! The entries of all network namespaces that a switch has ports in.

use std::collections::{BTreeMap, HashSet};

use twinpath_bpf::SteerError;
use twinpath_time::{Duration, Instant};

use crate::offload::{KernelPort, Offloaded, PortForwarded, Record};

/// With more entries, what they have counted is read at most once in [`READ_EVERY`].
const READ_ALWAYS: usize = 256;
const READ_EVERY: Duration = Duration::from_millis(10);

/// The entries of all network namespaces, by their places.
#[derive(Debug, Default)]
pub struct OffloadedHomes {
    homes: BTreeMap<usize, Offloaded>,
    is_suspended: bool,
    read_at: Instant,
    /// Entries and counts that could not be changed or read are reported once.
    has_failed: bool,
}

impl OffloadedHomes {
    /// Adds a namespace.
    pub fn add(&mut self, home: usize, offloaded: Offloaded) {
        self.homes.insert(home, offloaded);
    }

    /// Removes a namespace whose ports are none any more, when all that its entries have counted was added.
    pub fn remove(&mut self, home: usize, counts: &mut impl Record) {
        let Some(mut offloaded) = self.homes.remove(&home) else { return };
        let outcome = offloaded.clear().and_then(|()| offloaded.settle(counts));
        self.note(outcome);
    }

    /// Whether the kernel may forward nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Offloaded> {
        self.homes.values()
    }

    /// Each of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Offloaded> {
        self.homes.values_mut()
    }

    /// The one at that place.
    pub fn get_mut(&mut self, home: usize) -> Option<&mut Offloaded> {
        self.homes.get_mut(&home)
    }

    /// The one that has that port, and its place.
    pub fn of_port(&mut self, number: u32) -> Option<(usize, &mut Offloaded)> {
        let found = self.homes.iter_mut().find(|(_, offloaded)| offloaded.has_port(number));
        found.map(|(home, offloaded)| (*home, offloaded))
    }

    /// Entries in force.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.iter().map(|offloaded| offloaded.entries().len()).sum()
    }

    /// Says in which namespace each port is, and what it is there; others are none.
    pub fn set_ports(&mut self, ports: &[(u32, Option<(usize, KernelPort)>)]) {
        let mut outcome = Ok(());
        let there: HashSet<u32> = ports.iter().map(|(number, _)| *number).collect();
        for (home, offloaded) in &mut self.homes {
            for (number, port) in ports {
                let here = port.filter(|(at, _)| at == home).map(|(_, port)| port);
                outcome = outcome.and(offloaded.set_port(*number, here));
            }
            outcome = outcome.and(offloaded.keep_ports(|number| there.contains(&number)));
            outcome = outcome.and(offloaded.restore());
        }
        self.note(outcome);
    }

    /// Whether workers forward all frames.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Has workers forward all frames, or no longer.
    pub fn suspend(&mut self, is_suspended: bool) {
        if std::mem::replace(&mut self.is_suspended, is_suspended) != is_suspended && is_suspended {
            self.clear();
        }
    }

    /// Makes all entries void.
    pub fn clear(&mut self) {
        self.each(Offloaded::clear);
    }

    /// Does something with each of them, whatever becomes of one.
    pub fn each(&mut self, mut what: impl FnMut(&mut Offloaded) -> Result<(), SteerError>) {
        let mut outcome = Ok(());
        for offloaded in self.homes.values_mut() {
            outcome = outcome.and(what(offloaded));
        }
        self.note(outcome);
    }

    /// The first failure is reported.
    pub fn note(&mut self, outcome: Result<(), SteerError>) {
        if let Err(error) = outcome
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::error!("workers forward what the kernel could: {error}");
        }
    }

    /// Adds what void entries have counted last.
    pub fn settle(&mut self, counts: &mut impl Record) {
        self.each(|offloaded| offloaded.settle(counts));
    }

    /// Adds what the kernel has counted.
    pub fn record(&mut self, now: Instant, counts: &mut impl Record) {
        let entries = self.entries();
        if entries == 0 || entries > READ_ALWAYS && now < self.read_at + READ_EVERY {
            return;
        }
        self.read_at = now;
        self.iter_mut().for_each(|offloaded| offloaded.record_all(counts));
    }

    /// What the kernel has forwarded from and to a port, as recorded so far.
    #[must_use]
    pub fn forwarded(&self, port: u32) -> PortForwarded {
        let each = self.iter().map(|offloaded| offloaded.forwarded(port));
        each.fold(PortForwarded::default(), |sum, more| PortForwarded {
            packets_in: sum.packets_in + more.packets_in,
            bytes_in: sum.bytes_in + more.bytes_in,
            packets_out: sum.packets_out + more.packets_out,
            bytes_out: sum.bytes_out + more.bytes_out,
        })
    }
}
