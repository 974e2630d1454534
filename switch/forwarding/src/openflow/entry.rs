//! A flow as it was sent, and the places of all flows of a switch by number.

use crate::openflow::pipeline::Flow;
use twinpath_openflow_wire::{Action, FlowStatsRequest, Instruction, Match, flow_flags, number};
use twinpath_time::{Duration, Instant};

use crate::openflow::check::{actions_of, groups_of};

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
    /// As workers have it.
    pub(crate) fn as_flow(&self) -> Flow<'_> {
        Flow {
            table: self.table_id,
            priority: self.priority,
            fields: &self.matches,
            instructions: &self.instructions,
            cookie: self.cookie,
        }
    }

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

/// All flows by number, some of which are free.
#[derive(Debug)]
pub(crate) struct Entries<I>(Vec<Option<FlowEntry<I>>>);

impl<I> Default for Entries<I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I> Entries<I> {
    /// Numbers that there are, used or not.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, flow: u32) -> Option<&FlowEntry<I>> {
        self.0.get(flow as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, flow: u32) -> Option<&mut FlowEntry<I>> {
        self.0.get_mut(flow as usize)?.as_mut()
    }

    /// Puts a flow at a number that is free, or the first one behind all.
    pub(crate) fn put(&mut self, flow: u32, entry: FlowEntry<I>) {
        match self.0.get_mut(flow as usize) {
            Some(place) => *place = Some(entry),
            None => self.0.push(Some(entry)),
        }
    }

    pub(crate) fn take(&mut self, flow: u32) -> Option<FlowEntry<I>> {
        self.0.get_mut(flow as usize)?.take()
    }

    /// Those from a number on, used or not, in order.
    pub(crate) fn from(&self, from: usize) -> &[Option<FlowEntry<I>>] {
        self.0.get(from..).unwrap_or_default()
    }
}
