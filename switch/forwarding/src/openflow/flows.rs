//! The flows of a switch: found by match, by timeout, and one after the other.

use std::hash::{BuildHasher, RandomState};

use twinpath_openflow_wire::{Match, number};
use twinpath_time::{Instant, Wheel};

use crate::openflow::entry::{Entries, FlowEntry};
use crate::openflow::index::TableIndex;

/// All flows of a switch, by number. A number is used again once its flow is gone.
#[derive(Debug)]
pub(crate) struct FlowStore<I> {
    entries: Entries<I>,
    free: Vec<u32>,
    tables: Box<[TableIndex]>,
    /// The next look at each flow that has a timeout.
    wheel: Wheel,
}

impl<I> FlowStore<I> {
    pub(crate) fn new() -> Self {
        let seed = RandomState::new().hash_one(0);
        let tables = (0..=number::table::MAX).map(|_| TableIndex::new(seed)).collect();
        Self { entries: Entries::default(), free: Vec::new(), tables, wheel: Wheel::new() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn table_len(&self, table_id: u8) -> usize {
        self.tables.get(usize::from(table_id)).map_or(0, TableIndex::len)
    }

    pub(crate) fn get(&self, flow: u32) -> Option<&FlowEntry<I>> {
        self.entries.get(flow)
    }

    pub(crate) fn get_mut(&mut self, flow: u32) -> Option<&mut FlowEntry<I>> {
        self.entries.get_mut(flow)
    }

    pub(crate) fn insert(&mut self, entry: FlowEntry<I>) -> u32 {
        let flow = self.free.pop().unwrap_or(self.entries.len() as u32);
        if let Some(table) = self.tables.get_mut(usize::from(entry.table_id)) {
            table.insert(&self.entries, &entry.matches, entry.priority, flow);
        }
        self.wheel.set(flow, entry.hard_deadline().min(entry.idle_deadline(Instant::ZERO)));
        self.entries.put(flow, entry);
        flow
    }

    pub(crate) fn remove(&mut self, flow: u32) -> Option<FlowEntry<I>> {
        let table_id = self.entries.get(flow)?.table_id;
        if let Some(table) = self.tables.get_mut(usize::from(table_id)) {
            table.remove(&self.entries, flow);
        }
        self.wheel.set(flow, Instant::NEVER);
        self.free.push(flow);
        self.entries.take(flow)
    }

    /// The flow with this match and priority.
    pub(crate) fn strict(&self, table_id: u8, matches: &Match, priority: u16) -> Option<u32> {
        self.tables.get(usize::from(table_id))?.strict(&self.entries, matches, priority)
    }

    /// The flows that a match includes, of a table or of all.
    pub(crate) fn included(&self, table_id: u8, matches: &Match) -> Vec<u32> {
        if table_id == number::table::ALL {
            return self.tables.iter().flat_map(|table| table.included(&self.entries, matches)).collect();
        }
        self.tables
            .get(usize::from(table_id))
            .map_or_else(Vec::new, |table| table.included(&self.entries, matches))
    }

    pub(crate) fn overlaps(&self, table_id: u8, matches: &Match, priority: u16) -> bool {
        self.tables
            .get(usize::from(table_id))
            .is_some_and(|table| table.overlaps(&self.entries, matches, priority))
    }

    /// Up to `count` numbers from `from` on, used or not, and the number behind them; `None`: there are none.
    pub(crate) fn walk(&self, from: u32, count: usize) -> Option<(u32, impl Iterator<Item = &FlowEntry<I>>)> {
        let from = from as usize;
        let end = (from + count).min(self.entries.len());
        (from < end).then(|| (end as u32, self.entries.from(from).iter().take(count).flatten()))
    }

    /// All flows with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &FlowEntry<I>)> {
        (0..).zip(self.entries.from(0)).filter_map(|(flow, entry)| Some((flow, entry.as_ref()?)))
    }

    /// When a flow has to be looked at next, for its timeouts.
    pub(crate) const fn deadline(&self) -> Instant {
        self.wheel.next()
    }

    /// The next flow that has to be looked at. It is due again only at a deadline set afterwards.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u32> {
        self.wheel.take_due(now)
    }

    pub(crate) fn set_deadline(&mut self, flow: u32, deadline: Instant) {
        self.wheel.set(flow, deadline);
    }
}
