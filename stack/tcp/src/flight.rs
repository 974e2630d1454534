//! What has been sent and is not yet acknowledged, by segments: the scoreboard of RFC 6675, with the time of sending
//! that RFC 8985 needs.
//!
//! Counts are in full-sized segments, also where a record holds several that left as one.

mod late;

use std::collections::VecDeque;

use twinpath_time::Instant;

pub(crate) use self::late::Overdue;
use self::late::Search;
use crate::seq::Seq;

/// Bits of [`Sent::flags`].
pub(crate) mod flag {
    /// Selectively acknowledged.
    pub(crate) const SACKED: u8 = 1;
    /// Taken for lost.
    pub(crate) const LOST: u8 = 2;
    /// Retransmitted, and the retransmission is in flight.
    pub(crate) const RETRANSMITTED: u8 = 4;
    /// Retransmitted at some time.
    pub(crate) const EVER_RETRANSMITTED: u8 = 8;
    /// Its last sequence number is FIN.
    pub(crate) const FIN: u8 = 16;
    /// It ended at the end of what was written then.
    pub(crate) const PUSH: u8 = 32;
}

/// A segment in flight, or several that left as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
    /// When it was sent last.
    pub(crate) at: Instant,
    /// Payload bytes of each segment.
    pub(crate) unit: u16,
    pub(crate) flags: u8,
    /// Segments.
    pub(crate) count: u32,
    /// If this record is acknowledged selectively: at least this many records are, from this one on.
    pub(crate) sacked_from: u32,
    /// If this record is no first transmission that waits: at least this many records up to it are none either.
    pub(crate) settled_before: u32,
}

impl Sent {
    #[inline]
    pub(crate) const fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Its segments, if it was sent again after it was taken for lost.
    const fn resent(&self) -> u32 {
        if self.flags & (flag::LOST | flag::RETRANSMITTED) == flag::LOST | flag::RETRANSMITTED {
            self.count
        } else {
            0
        }
    }

    /// Segments from a number within it on: FIN is counted with the last one, unless it is alone.
    fn segments_from(&self, seq: Seq) -> u32 {
        let bytes = (self.end - seq) - u32::from(self.has(flag::FIN));
        bytes.div_ceil(u32::from(self.unit).max(1)).max(1)
    }
}

/// What an acknowledgement has taken out of flight, and what it says about time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Segments acknowledged cumulatively.
    pub(crate) acked: u32,
    /// Of these, segments that had been acknowledged selectively before.
    pub(crate) acked_sacked: u32,
    /// Segments newly acknowledged selectively.
    pub(crate) sacked: u32,
    /// Whether a segment was among the cumulatively acknowledged ones that was retransmitted.
    pub(crate) retransmitted: bool,
    /// When the first and the last of those were sent that were acknowledged cumulatively and never retransmitted.
    pub(crate) first_at: Option<Instant>,
    /// See above.
    pub(crate) last_at: Option<Instant>,
    /// The same of those that were acknowledged selectively.
    pub(crate) first_sacked_at: Option<Instant>,
    /// See above.
    pub(crate) last_sacked_at: Option<Instant>,
    /// The lowest segment that was acknowledged cumulatively, neither retransmitted nor acknowledged selectively before.
    pub(crate) lowest: Option<Seq>,
    /// The lowest segment that was acknowledged selectively behind a higher one, and never retransmitted.
    pub(crate) reordered: Option<Seq>,
    /// Whether an original transmission from before a time-out was acknowledged (RFC 5682).
    pub(crate) original: bool,
}

/// The delivered segment that was sent last (RFC 8985 section 6.2, step 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) at: Instant,
    pub(crate) end: Seq,
    pub(crate) retransmitted: bool,
}

impl Delivered {
    fn saw(&mut self, record: &Sent, visit: &mut impl FnMut(&Newest)) {
        visit(&Newest {
            at: record.at,
            end: record.end,
            retransmitted: record.has(flag::EVER_RETRANSMITTED),
        });
    }
}

/// The records, in the order of sequence numbers, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    records: VecDeque<Sent>,
    /// Segments of all records; of those with SACKED, LOST and RETRANSMITTED.
    pub(crate) out: u32,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) retransmitted: u32,
    /// The number behind the highest selectively acknowledged byte; it has a meaning if `sacked` > 0.
    pub(crate) highest_sacked: Seq,
    /// Apart: from the first that is sacked or lost until nothing is in flight.
    search: Option<Box<Search>>,
}

/// Free lists of records that are kept.
const SPARE_MAX: usize = 256;
/// A list with room for more records is given to the allocator.
const SPARE_CAPACITY_MAX: usize = 64;

impl Flight {
    /// Segments in the network, as the sender believes (RFC 6675 section 4, SetPipe).
    #[inline]
    pub(crate) const fn in_flight(&self) -> u32 {
        (self.out + self.retransmitted).saturating_sub(self.sacked + self.lost)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.records.capacity() * size_of::<Sent>() + self.search.as_ref().map_or(0, |search| search.memory())
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Sent> {
        self.records.front()
    }

    /// The record, if there is no other.
    #[inline]
    pub(crate) fn only(&self) -> Option<Sent> {
        if self.records.len() == 1 { self.records.front().copied() } else { None }
    }

    /// Removes the only record, which has no mark.
    #[inline(always)]
    pub(crate) fn remove_only(&mut self) {
        self.records.clear();
        self.out = 0;
        if self.search.is_some() {
            self.end_search();
        }
    }

    #[cold]
    fn end_search(&mut self) {
        self.search = None;
    }

    pub(crate) fn last(&self) -> Option<&Sent> {
        self.records.back()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Sent> {
        self.records.get(index)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, record: Sent, spare: &mut Vec<VecDeque<Sent>>) {
        if self.records.capacity() == 0 {
            self.records = spare.pop().unwrap_or_default();
        }
        self.out += record.count;
        self.records.push_back(record);
    }

    /// Gives the memory back once nothing is in flight.
    #[inline]
    pub(crate) fn release(&mut self, spare: &mut Vec<VecDeque<Sent>>) {
        debug_assert!(self.records.is_empty());
        self.search = None;
        if spare.len() < SPARE_MAX && (1..=SPARE_CAPACITY_MAX).contains(&self.records.capacity()) {
            spare.push(core::mem::take(&mut self.records));
        } else {
            self.records = VecDeque::new();
        }
    }

    /// Removes what `una` acknowledges. `visit` is called with each segment that this delivers, for RACK. `high` is
    /// the highest number sent before the last loss.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Seq, high: Seq, mut visit: impl FnMut(&Newest)) -> Delivered {
        let mut delivered = Delivered::default();
        while let Some(first) = self.records.front_mut() {
            if una.before(first.end) {
                if una.after(first.start) {
                    self.acknowledge_part(una, &mut delivered);
                }
                break;
            }
            let record = *first;
            self.records.pop_front();
            if let Some(search) = self.search.as_deref_mut() {
                search.first_is_gone();
            }
            self.out -= record.count;
            self.forget(&record);
            delivered.acked += record.count;
            if record.has(flag::SACKED) {
                delivered.acked_sacked += record.count;
                continue;
            }
            if record.has(flag::EVER_RETRANSMITTED) {
                delivered.retransmitted = true;
            } else {
                delivered.first_at = delivered.first_at.or(Some(record.at));
                delivered.last_at = Some(record.at);
                delivered.lowest = delivered.lowest.or(Some(record.start));
                delivered.original |= !record.end.after(high);
            }
            delivered.saw(&record, &mut visit);
        }
        if let Some(search) = self.search.as_deref_mut() {
            search.forget(una);
        }
        delivered
    }

    /// Takes a record that leaves out of the counts of its flags.
    fn forget(&mut self, record: &Sent) {
        if record.has(flag::SACKED) {
            self.sacked -= record.count;
        }
        if record.has(flag::LOST) {
            self.lost -= record.count;
        }
        if record.has(flag::RETRANSMITTED) {
            self.retransmitted -= record.count;
        }
        self.count_resent(record.resent(), 0);
    }

    /// Cuts the first record at `una`. Only whole segments count as delivered.
    #[cold]
    fn acknowledge_part(&mut self, una: Seq, delivered: &mut Delivered) {
        let Some(first) = self.records.front_mut() else { return };
        let left = first.segments_from(una);
        let gone = first.count.saturating_sub(left);
        first.start = una;
        let record = Sent { count: gone, ..*first };
        first.count -= gone;
        self.out -= gone;
        self.forget(&record);
        delivered.acked += gone;
        if record.has(flag::SACKED) {
            delivered.acked_sacked += gone;
        } else if record.has(flag::EVER_RETRANSMITTED) {
            delivered.retransmitted |= gone > 0;
        }
    }

    /// Marks what lies within `start..end` as acknowledged selectively; the range lies within the records.
    pub(crate) fn sack(
        &mut self,
        start: Seq,
        end: Seq,
        high: Seq,
        delivered: &mut Delivered,
        mut visit: impl FnMut(&Newest),
    ) {
        let mut index = self.records.partition_point(|record| !record.end.after(start));
        while let Some(record) = self.records.get(index).copied() {
            if !record.start.before(end) {
                break;
            }
            self.look();
            if record.has(flag::SACKED) {
                index = self.behind_sacked(index);
                continue;
            }
            // Only whole segments, counted from the record's start, can be acknowledged.
            if record.start.before(start) && self.split(index, start, true) {
                index += 1;
                continue;
            }
            if record.start.before(start) || record.end.after(end) && !self.split(index, end, false) {
                index += 1;
                continue;
            }
            self.mark_sacked(index, high, delivered, &mut visit);
            index += 1;
        }
    }

    fn mark_sacked(
        &mut self,
        index: usize,
        high: Seq,
        delivered: &mut Delivered,
        visit: &mut impl FnMut(&Newest),
    ) {
        let Some(record) = self.records.get_mut(index) else { return };
        let before = *record;
        record.flags = record.flags & !(flag::LOST | flag::RETRANSMITTED) | flag::SACKED;
        if before.has(flag::LOST) {
            self.lost -= before.count;
        }
        if before.has(flag::RETRANSMITTED) {
            self.retransmitted -= before.count;
        }
        self.count_resent(before.resent(), 0);
        if !before.has(flag::EVER_RETRANSMITTED) {
            if self.sacked > 0 && before.start.before(self.highest_sacked) {
                let lowest = delivered.reordered.map_or(before.start, |seq| seq.min(before.start));
                delivered.reordered = Some(lowest);
            }
            delivered.original |= !before.end.after(high);
            delivered.first_sacked_at = delivered.first_sacked_at.or(Some(before.at));
            delivered.last_sacked_at = Some(before.at);
        }
        let is_highest = self.sacked == 0 || before.end.after(self.highest_sacked);
        if is_highest {
            self.highest_sacked = before.end;
        }
        self.sacked += before.count;
        delivered.sacked += before.count;
        delivered.saw(&before, visit);
    }

    /// Cuts a record in two at a boundary of its segments: the one at `seq` or, if it is within a segment, the next
    /// one above (`up`) or below. False if there is none within the record.
    pub(crate) fn split(&mut self, index: usize, seq: Seq, up: bool) -> bool {
        let Some(record) = self.records.get_mut(index) else { return false };
        let unit = u32::from(record.unit).max(1);
        let units = seq.since(record.start);
        let units = if up { units.div_ceil(unit) } else { units / unit };
        let at = record.start + units * unit;
        if units == 0 || !at.before(record.end) {
            return false;
        }
        // FIN alone is a segment, too, which the record of the data did not count.
        let alone = u32::from(record.count <= units);
        let rest = Sent { start: at, count: record.count.saturating_sub(units) + alone, ..*record };
        (record.end, record.count) = (at, units.min(record.count));
        record.flags &= !(flag::FIN | flag::PUSH);
        self.out += alone;
        self.sacked += if rest.has(flag::SACKED) { alone } else { 0 };
        self.lost += if rest.has(flag::LOST) { alone } else { 0 };
        self.retransmitted += if rest.has(flag::RETRANSMITTED) { alone } else { 0 };
        self.count_resent(0, if rest.resent() > 0 { alone } else { 0 });
        self.records.insert(index + 1, rest);
        true
    }

    /// Takes a record for lost, if it is not yet, or its retransmission is.
    pub(crate) fn lose(&mut self, index: usize) {
        let Some(record) = self.records.get_mut(index) else { return };
        if record.has(flag::SACKED) {
            return;
        }
        let (count, resent) = (record.count, record.resent());
        if record.has(flag::RETRANSMITTED) {
            record.flags &= !flag::RETRANSMITTED;
            self.retransmitted -= count;
        }
        if !record.has(flag::LOST) {
            record.flags |= flag::LOST;
            self.lost += count;
        }
        self.count_resent(resent, 0);
        if let Some(search) = self.search.as_deref_mut() {
            search.hints.lost = search.hints.lost.min(index as u32);
        }
    }

    /// Takes all for lost that is not acknowledged selectively. With `forget`, that is forgotten, as the peer may have
    /// dropped what it reported (RFC 2018 section 8).
    pub(crate) fn lose_all(&mut self, forget: bool) {
        for record in &mut self.records {
            if forget {
                record.flags &= !flag::SACKED;
            }
            record.flags &= !(flag::RETRANSMITTED | flag::LOST);
            if !record.has(flag::SACKED) {
                record.flags |= flag::LOST;
            }
        }
        if forget {
            self.sacked = 0;
            self.records.iter_mut().for_each(|record| record.sacked_from = 0);
        }
        (self.lost, self.retransmitted) = (self.out - self.sacked, 0);
        let settled = self.records.len() as u32;
        self.search().all_is_lost(settled);
    }

    /// Nothing is taken for lost any more.
    pub(crate) fn lose_nothing(&mut self) {
        for record in &mut self.records {
            record.flags &= !flag::LOST;
        }
        self.lost = 0;
        self.sort_again();
    }

    /// The first record from `hint` on that is lost and not retransmitted.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        if self.lost == self.search.as_ref().map_or(0, |search| search.resent) {
            return None;
        }
        let from = self.hints().lost as usize;
        let mut looks = 0;
        let found = self.records.range(from.min(self.records.len())..).position(|record| {
            looks += 1;
            record.flags & (flag::LOST | flag::RETRANSMITTED | flag::SACKED) == flag::LOST
        });
        (0..looks).for_each(|_| self.look());
        match found {
            Some(distance) => {
                self.search().hints.lost = (from + distance) as u32;
                Some(from + distance)
            }
            None => {
                self.search().hints.lost = self.records.len() as u32;
                None
            }
        }
    }

    /// A record was sent again.
    pub(crate) fn sent_again(&mut self, index: usize, now: Instant) {
        let Some(record) = self.records.get_mut(index) else { return };
        if !record.has(flag::RETRANSMITTED) {
            self.retransmitted += record.count;
        }
        let before = record.resent();
        record.flags |= flag::RETRANSMITTED | flag::EVER_RETRANSMITTED;
        record.at = now;
        let after = record.resent();
        self.count_resent(before, after);
        self.queue_again(index);
    }

    /// Segments of a smaller size from now on: records are counted and cut by it.
    pub(crate) fn resize(&mut self, unit: u16) {
        let (mut out, mut sacked, mut lost, mut retransmitted, mut resent) = (0, 0, 0, 0, 0);
        for record in &mut self.records {
            if record.unit > unit {
                record.unit = unit;
                record.count = record.segments_from(record.start);
            }
            out += record.count;
            sacked += if record.has(flag::SACKED) { record.count } else { 0 };
            lost += if record.has(flag::LOST) { record.count } else { 0 };
            retransmitted += if record.has(flag::RETRANSMITTED) { record.count } else { 0 };
            resent += record.resent();
        }
        (self.out, self.sacked, self.lost, self.retransmitted) = (out, sacked, lost, retransmitted);
        let before = self.search.as_ref().map_or(0, |search| search.resent);
        self.count_resent(before, resent);
    }

    /// Drops all records.
    pub(crate) fn clear(&mut self) {
        *self = Self { records: core::mem::take(&mut self.records), ..Self::default() };
        self.records.clear();
    }

    /// Checks that the counts are those of the records.
    pub(crate) fn check(&self) {
        let sum = |flags: u8| -> u32 {
            self.records
                .iter()
                .filter(|record| flags == 0 || record.has(flags))
                .map(|record| record.count)
                .sum()
        };
        assert_eq!(
            (self.out, self.sacked, self.lost, self.retransmitted),
            (sum(0), sum(flag::SACKED), sum(flag::LOST), sum(flag::RETRANSMITTED))
        );
        let resent = self.search.as_ref().map_or(0, |search| search.resent);
        assert_eq!(resent, self.records.iter().map(Sent::resent).sum::<u32>());
        for record in &self.records {
            assert!(!record.has(flag::SACKED) || !record.has(flag::LOST | flag::RETRANSMITTED));
            assert!(record.start.before(record.end) && record.count > 0);
        }
        let ends = self.records.iter().zip(self.records.iter().skip(1));
        assert!(ends.into_iter().all(|(one, next)| one.end == next.start && one.start.before(one.end)));
    }
}

#[cfg(test)]
mod tests;
