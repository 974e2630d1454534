//! Which records were sent long enough before a delivered one to be lost (RFC 8985 section 6.2, step 5), in the order in
//! which they were sent: a call looks at what it takes for lost, and at few records beside.
//!
//! First transmissions leave in the order of sequence numbers. Later ones are in a queue of their own. So both are
//! sorted by time, and a search of either ends at the first record that is not late.

use std::collections::VecDeque;

use twinpath_time::Instant;

use super::{Flight, Sent, flag};
use crate::clock::micros;
use crate::seq::Seq;

/// Records that were sent again, at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    start: Seq,
    end: Seq,
    at: Instant,
    /// At least this many entries, up to this one, hold nothing any more.
    behind: u32,
}

/// Where searches begin: indices of records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// No record before this one needs to be retransmitted.
    pub(super) lost: u32,
    /// No record before this one is a first transmission that waits.
    settled: u32,
    /// All before this one were sent before the newest delivered segment, or sent again.
    newer: u32,
}

/// What searches know.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub(super) hints: Hints,
    /// Of what is lost, segments that were sent again since.
    pub(super) resent: u32,
    /// What was sent again, in this order. What holds nothing any more is left in it for a while.
    again: VecDeque<Again>,
    /// Records that were looked at.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl Search {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.again.capacity() * size_of::<Again>()
    }

    /// The first record is not there any more.
    pub(super) fn first_is_gone(&mut self) {
        for hint in [&mut self.hints.lost, &mut self.hints.settled, &mut self.hints.newer] {
            *hint = hint.saturating_sub(1);
        }
    }

    /// What lies before `una` is not in flight any more.
    pub(super) fn forget(&mut self, una: Seq) {
        while self.again.front().is_some_and(|front| !front.end.after(una)) {
            self.again.pop_front();
        }
    }

    /// All `records` are lost, or acknowledged selectively.
    pub(super) fn all_is_lost(&mut self, records: u32) {
        self.again.clear();
        self.resent = 0;
        (self.hints.lost, self.hints.settled) = (0, records);
    }
}

/// The newest delivered segment, and how old a segment sent before it has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    pub(crate) at: Instant,
    pub(crate) end: Seq,
    /// A round trip and the time by which segments may overtake each other, us.
    pub(crate) limit_us: u32,
}

impl Overdue {
    /// Whether a segment was sent before the newest delivered one.
    fn is_behind(&self, at: Instant, end: Seq) -> bool {
        self.at > at || self.at == at && self.end.after(end)
    }

    /// Until what was sent at `at` is late, us; 0: it is.
    fn left_us(&self, now: Instant, at: Instant) -> u32 {
        self.limit_us.saturating_sub(micros(now, at))
    }
}

impl Sent {
    /// A first transmission of which nothing is known.
    const fn waits(&self) -> bool {
        !self.has(flag::SACKED | flag::LOST | flag::EVER_RETRANSMITTED)
    }

    /// Sent again at `at`, and nothing is known of it since.
    fn waits_again(&self, at: Instant) -> bool {
        self.at == at
            && self.has(flag::EVER_RETRANSMITTED)
            && !self.has(flag::SACKED)
            && (self.has(flag::RETRANSMITTED) || !self.has(flag::LOST))
    }
}

impl Flight {
    /// Takes for lost what is overdue at `now`. Returns after how many us the last of those is that will be, if nothing
    /// comes.
    pub(crate) fn lose_overdue(&mut self, now: Instant, overdue: &Overdue) -> Option<u32> {
        let first = self.lose_overdue_first(now, overdue);
        let again = self.lose_overdue_again(now, overdue);
        first.max(again)
    }

    fn lose_overdue_first(&mut self, now: Instant, overdue: &Overdue) -> Option<u32> {
        let mut index = self.hints().settled as usize;
        let waits = loop {
            let Some(record) = self.records.get(index).copied() else { break false };
            self.look();
            if record.has(flag::SACKED) {
                index = self.behind_sacked(index);
            } else if !record.waits() {
                index += 1;
            } else if !overdue.is_behind(record.at, record.end) {
                break false;
            } else if overdue.left_us(now, record.at) > 0 {
                break true;
            } else {
                self.lose(index);
                index += 1;
            }
        };
        if self.hints().settled != index as u32 {
            self.search().hints.settled = index as u32;
        }
        if !waits {
            return None;
        }
        let youngest = self.youngest_behind(index, overdue)?;
        Some(overdue.left_us(now, self.records.get(youngest)?.at))
    }

    /// The last first transmission before the newest delivered one that waits; the one at `oldest` does.
    fn youngest_behind(&mut self, oldest: usize, overdue: &Overdue) -> Option<usize> {
        let mut index = (self.hints().newer as usize).max(oldest);
        while let Some(record) = self.records.get(index).copied() {
            self.look();
            if record.has(flag::SACKED) {
                index = self.behind_sacked(index);
            } else if record.waits() && !overdue.is_behind(record.at, record.end) {
                break;
            } else {
                index += 1;
            }
        }
        index = index.min(self.records.len());
        self.search().hints.newer = index as u32;
        let last = index.checked_sub(1)?;
        let mut index = last;
        while let Some(record) = self.records.get(index).filter(|record| !record.waits() && index > oldest) {
            index = index.saturating_sub(record.settled_before.max(1) as usize).max(oldest);
            self.look();
        }
        if let Some(record) = self.records.get_mut(last).filter(|record| !record.waits()) {
            record.settled_before = (last - index) as u32;
        }
        Some(index)
    }

    /// The index behind a run of selectively acknowledged records.
    pub(super) fn behind_sacked(&mut self, index: usize) -> usize {
        let mut next = index;
        while let Some(record) = self.records.get(next).filter(|record| record.has(flag::SACKED)) {
            next += record.sacked_from.max(1) as usize;
            self.look();
        }
        if let Some(record) = self.records.get_mut(index) {
            record.sacked_from = (next - index) as u32;
        }
        next
    }

    fn lose_overdue_again(&mut self, now: Instant, overdue: &Overdue) -> Option<u32> {
        loop {
            let front = self.search.as_ref()?.again.front().copied()?;
            self.look();
            if self.holds(&front) {
                if !overdue.is_behind(front.at, front.end) {
                    return None;
                }
                if overdue.left_us(now, front.at) > 0 {
                    break;
                }
                self.lose_again(&front);
            }
            self.search().again.pop_front();
        }
        let last = self
            .search()
            .again
            .partition_point(|entry| overdue.is_behind(entry.at, entry.end))
            .checked_sub(1)?;
        let mut index = last;
        while let Some(entry) =
            self.search().again.get(index).copied().filter(|entry| index > 0 && !self.holds(entry))
        {
            index = index.saturating_sub(entry.behind.max(1) as usize);
            self.look();
        }
        if index < last
            && let Some(entry) = self.search().again.get_mut(last)
        {
            entry.behind = (last - index) as u32;
        }
        Some(overdue.left_us(now, self.search().again.get(index)?.at))
    }

    /// The records of an entry, by index: the first of them is here, if any is left.
    fn place(&self, entry: &Again) -> usize {
        self.records.partition_point(|record| !record.end.after(entry.start))
    }

    /// Whether nothing is known yet of a record that was sent again.
    fn holds(&self, entry: &Again) -> bool {
        let records = self.records.range(self.place(entry).min(self.records.len())..);
        let mut within = records.take_while(|record| record.start.before(entry.end));
        within.any(|record| record.waits_again(entry.at))
    }

    fn lose_again(&mut self, entry: &Again) {
        let mut index = self.place(entry);
        while let Some(record) = self.records.get(index).filter(|record| record.start.before(entry.end)) {
            if record.waits_again(entry.at) {
                self.lose(index);
            }
            index += 1;
        }
    }

    /// The record was sent again, as it is.
    pub(super) fn queue_again(&mut self, index: usize) {
        let Some(Sent { start, end, at, .. }) = self.records.get(index).copied() else { return };
        while let Some(front) = self.search().again.front().copied()
            && !self.holds(&front)
        {
            self.search().again.pop_front();
        }
        if self.search().again.len() >= 2 * self.records.len() + 8 {
            // Without RACK nothing is taken out but at the front.
            self.sort_again();
        }
        self.search().again.push_back(Again { start, end, at, behind: 0 });
    }

    /// Begins the queue anew, and the search of first transmissions: what was lost is not any more.
    pub(super) fn sort_again(&mut self) {
        let Self { records, search, .. } = self;
        let search = search.get_or_insert_default();
        search.again.clear();
        search.resent = 0;
        for record in records.iter_mut() {
            record.settled_before = 0;
            search.resent += record.resent();
            if record.waits_again(record.at) {
                search.again.push_back(Again {
                    start: record.start,
                    end: record.end,
                    at: record.at,
                    behind: 0,
                });
            }
        }
        let start = records.front().map_or(Seq::default(), |first| first.start);
        search.again.make_contiguous().sort_unstable_by_key(|entry| (entry.at, entry.start - start));
        (search.hints.settled, search.hints.newer) = (0, 0);
    }

    pub(super) fn search(&mut self) -> &mut Search {
        self.search.get_or_insert_default()
    }

    pub(super) fn hints(&self) -> Hints {
        self.search.as_ref().map_or(Hints::default(), |search| search.hints)
    }

    /// Of what is lost, so many segments count as sent again, and no longer as many as `before`.
    pub(super) fn count_resent(&mut self, before: u32, after: u32) {
        if before != after {
            let resent = &mut self.search().resent;
            *resent = *resent - before + after;
        }
    }

    /// Counts a record that is looked at.
    #[inline(always)]
    pub(super) fn look(&mut self) {
        #[cfg(test)]
        {
            self.search().looks += 1;
        }
    }
}
