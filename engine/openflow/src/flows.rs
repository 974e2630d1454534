//! The flows of a switch: found by match, by timeout, and one after the other.

use twinpath_openflow::{Action, FlowStatsRequest, Instruction, Match, flow_flags, number};
use twinpath_time::{Duration, Instant, Wheel};

use crate::check::{actions_of, groups_of};
use crate::index::TableIndex;

/// A flow, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct FlowEntry<I> {
    /// Its name in the datapath.
    pub(crate) id: I,
    pub(crate) table_id: u8,
    pub(crate) priority: u16,
    pub(crate) matches: Match,
    pub(crate) cookie: u64,
    pub(crate) flags: u16,
    pub(crate) idle_timeout_s: u16,
    pub(crate) hard_timeout_s: u16,
    pub(crate) instructions: Box<[Instruction]>,
    pub(crate) created: Instant,
}

/// Which flows a change or a question is about, beside their match (sections 6.4 and 7.3.5.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(crate) out_port: u32,
    pub(crate) out_group: u32,
    pub(crate) cookie: u64,
    pub(crate) cookie_mask: u64,
}

impl Filter {
    pub(crate) const fn of(request: &FlowStatsRequest) -> Self {
        let FlowStatsRequest { out_port, out_group, cookie, cookie_mask, .. } = *request;
        Self { out_port, out_group, cookie, cookie_mask }
    }

    pub(crate) fn takes<I>(&self, flow: &FlowEntry<I>) -> bool {
        (flow.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == number::port::ANY
                || actions_of(&flow.instructions)
                    .any(|action| matches!(action, Action::Output { port, .. } if *port == self.out_port)))
            && (self.out_group == number::group::ANY
                || groups_of(actions_of(&flow.instructions)).any(|group| group == self.out_group))
    }
}

impl<I> FlowEntry<I> {
    pub(crate) fn reports_its_end(&self) -> bool {
        self.flags & flow_flags::SEND_FLOW_REM != 0
    }

    /// When its hard timeout ends it.
    pub(crate) fn hard_deadline(&self) -> Instant {
        timeout(self.created, self.hard_timeout_s)
    }

    /// When its idle timeout ends it, if it was used last at that time.
    pub(crate) fn idle_deadline(&self, used: Instant) -> Instant {
        timeout(used.max(self.created), self.idle_timeout_s)
    }
}

fn timeout(from: Instant, seconds: u16) -> Instant {
    if seconds == 0 { Instant::NEVER } else { from + Duration::from_secs(seconds.into()) }
}

/// All flows of a switch, by number. A number is used again once its flow is gone.
#[derive(Debug)]
pub(crate) struct FlowStore<I> {
    entries: Vec<Option<FlowEntry<I>>>,
    free: Vec<u32>,
    tables: Box<[TableIndex]>,
    /// The next look at each flow that has a timeout.
    wheel: Wheel,
}

impl<I> FlowStore<I> {
    pub(crate) fn new() -> Self {
        let tables = (0..=number::table::MAX).map(|_| TableIndex::default()).collect();
        Self { entries: Vec::new(), free: Vec::new(), tables, wheel: Wheel::new() }
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn table_len(&self, table_id: u8) -> usize {
        self.tables.get(usize::from(table_id)).map_or(0, TableIndex::len)
    }

    pub(crate) fn get(&self, flow: u32) -> Option<&FlowEntry<I>> {
        self.entries.get(flow as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, flow: u32) -> Option<&mut FlowEntry<I>> {
        self.entries.get_mut(flow as usize)?.as_mut()
    }

    pub(crate) fn insert(&mut self, entry: FlowEntry<I>) -> u32 {
        let flow = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        if let Some(table) = self.tables.get_mut(usize::from(entry.table_id)) {
            table.insert(&entry.matches, entry.priority, flow);
        }
        self.wheel.set(flow, entry.hard_deadline().min(entry.idle_deadline(Instant::ZERO)));
        self.entries[flow as usize] = Some(entry);
        flow
    }

    pub(crate) fn remove(&mut self, flow: u32) -> Option<FlowEntry<I>> {
        let entry = self.entries.get_mut(flow as usize)?.take()?;
        if let Some(table) = self.tables.get_mut(usize::from(entry.table_id)) {
            table.remove(&entry.matches, flow);
        }
        self.wheel.set(flow, Instant::NEVER);
        self.free.push(flow);
        Some(entry)
    }

    /// The flow with this match and priority.
    pub(crate) fn strict(&self, table_id: u8, matches: &Match, priority: u16) -> Option<u32> {
        self.tables.get(usize::from(table_id))?.strict(matches, priority)
    }

    /// The flows that a match includes, of a table or of all.
    pub(crate) fn included(&self, table_id: u8, matches: &Match) -> Vec<u32> {
        if table_id == number::table::ALL {
            return self.tables.iter().flat_map(|table| table.included(matches)).collect();
        }
        self.tables.get(usize::from(table_id)).map_or_else(Vec::new, |table| table.included(matches))
    }

    pub(crate) fn overlaps(&self, table_id: u8, matches: &Match, priority: u16) -> bool {
        self.tables.get(usize::from(table_id)).is_some_and(|table| table.overlaps(matches, priority))
    }

    /// Up to `count` numbers from `from` on, used or not, and the number behind them; `None`: there are none.
    pub(crate) fn walk(&self, from: u32, count: usize) -> Option<(u32, impl Iterator<Item = &FlowEntry<I>>)> {
        let from = from as usize;
        let end = (from + count).min(self.entries.len());
        (from < end).then(|| (end as u32, self.entries[from..end].iter().flatten()))
    }

    /// All flows with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &FlowEntry<I>)> {
        (0..).zip(&self.entries).filter_map(|(flow, entry)| Some((flow, entry.as_ref()?)))
    }

    /// When a flow has to be looked at next, for its timeouts.
    pub(crate) const fn deadline(&self) -> Instant {
        self.wheel.next()
    }

    /// A flow that has to be looked at; it is so again only at a deadline set since.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u32> {
        self.wheel.take_due(now)
    }

    pub(crate) fn set_deadline(&mut self, flow: u32, deadline: Instant) {
        self.wheel.set(flow, deadline);
    }
}
