//! What has arrived out of order: ranges of sequence numbers, whose bytes lie ahead in the receive buffer.

use crate::seq::Seq;

/// Ranges at a time, at most. What would need one more is dropped, and comes again.
pub(crate) const RANGES_MAX: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: Seq,
    end: Seq,
    /// Grows with each segment: the latest ranges are reported first (RFC 2018 section 4).
    changed: u32,
}

/// The ranges, in order, apart from each other.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    ranges: Vec<Range>,
    changes: u32,
}

impl Reassembly {
    pub(crate) const NOTHING: Self = Self { ranges: Vec::new(), changes: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>()
    }

    /// The number behind the last byte.
    pub(crate) fn end(&self) -> Option<Seq> {
        self.ranges.last().map(|range| range.end)
    }

    /// Adds a range. False if there are too many. Returns by `duplicate` what of it was there already.
    pub(crate) fn add(&mut self, start: Seq, end: Seq, duplicate: &mut Option<(Seq, Seq)>) -> bool {
        let first = self.ranges.partition_point(|range| range.end.before(start));
        let last = self.ranges.partition_point(|range| !range.start.after(end));
        self.changes = self.changes.wrapping_add(1);
        let overlaps = &self.ranges[first..last];
        if let Some(range) = overlaps.iter().find(|range| range.end.after(start) && range.start.before(end)) {
            *duplicate = Some((range.start.max(start), range.end.min(end)));
        }
        if overlaps.is_empty() {
            if self.ranges.len() >= RANGES_MAX {
                return false;
            }
            self.ranges.insert(first, Range { start, end, changed: self.changes });
            return true;
        }
        let merged = Range {
            start: overlaps[0].start.min(start),
            end: overlaps[overlaps.len() - 1].end.max(end),
            changed: self.changes,
        };
        self.ranges.drain(first + 1..last);
        self.ranges[first] = merged;
        true
    }

    /// What of a segment is here already: the first piece.
    pub(crate) fn overlap(&self, start: Seq, end: Seq) -> Option<(Seq, Seq)> {
        let first = self.ranges.first().filter(|range| range.start.before(end))?;
        Some((first.start.max(start), first.end.min(end)))
    }

    /// Everything before `next` has arrived in order. Returns the end of the range that continues there, which is
    /// removed with all before it.
    pub(crate) fn advance(&mut self, next: Seq) -> Option<Seq> {
        let gone = self.ranges.partition_point(|range| !range.start.after(next));
        let end = self.ranges[..gone].last().map(|range| range.end).filter(|end| end.after(next));
        self.ranges.drain(..gone);
        if self.ranges.is_empty() {
            self.ranges = Vec::new();
        }
        end
    }

    /// The ranges to report, latest first; their number.
    pub(crate) fn report(&self, blocks: &mut [(u32, u32)]) -> usize {
        let mut count = 0;
        let mut below = u32::MAX;
        // Few are asked for, and few are there.
        while count < blocks.len() {
            let age = |range: &&Range| self.changes.wrapping_sub(range.changed);
            let next =
                self.ranges.iter().filter(|range| below == u32::MAX || age(range) > below).min_by_key(age);
            let Some(range) = next else { break };
            below = age(&range);
            blocks[count] = (range.start.0, range.end.0);
            count += 1;
        }
        count
    }

    /// The range that holds `seq`.
    pub(crate) fn around(&self, seq: Seq) -> Option<(Seq, Seq)> {
        let index = self.ranges.partition_point(|range| !range.end.after(seq));
        let range = self.ranges.get(index).filter(|range| !range.start.after(seq))?;
        Some((range.start, range.end))
    }

    /// Checks that ranges are apart, in order, and behind what has arrived in order.
    pub(crate) fn check(&self, next: Seq) {
        let mut last = next;
        for range in &self.ranges {
            assert!(last.before(range.start) && range.start.before(range.end));
            last = range.end;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ranges = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a naive set of numbers.
        #[test]
        fn ranges_hold_what_was_added(
            first: u32,
            steps in proptest::collection::vec((0_u32..200, 1_u32..30, any::<bool>()), 1..60),
        ) {
            let mut ranges = Reassembly::default();
            let mut naive = std::collections::BTreeSet::new();
            let mut next = 0_u32;
            for (at, len, advance) in steps {
                let start = at.max(next + 1);
                let mut duplicate = None;
                let known = (start..start + len).find(|number| naive.contains(number));
                prop_assert!(ranges.add(Seq(first) + start, Seq(first) + (start + len), &mut duplicate));
                prop_assert_eq!(duplicate.map(|(from, _)| from - Seq(first)), known);
                naive.extend(start..start + len);
                if advance {
                    next = start;
                    let end = ranges.advance(Seq(first) + next);
                    naive.retain(|number| *number >= next);
                    let mut expected = next;
                    while naive.remove(&expected) {
                        expected += 1;
                    }
                    prop_assert_eq!(end.map(|end| end - Seq(first)), (expected > next).then_some(expected));
                    next = expected;
                }
                let mut blocks = [(0, 0); 128];
                let count = ranges.report(&mut blocks);
                let total: u32 = blocks[..count].iter().map(|(from, to)| to.wrapping_sub(*from)).sum();
                prop_assert_eq!(total as usize, naive.len());
            }
        }
    }

    #[test]
    fn the_latest_range_is_reported_first() {
        let mut ranges = Reassembly::default();
        for (start, end) in [(10, 20), (30, 40), (50, 60), (12, 22)] {
            assert!(ranges.add(Seq(start), Seq(end), &mut None));
        }
        let mut blocks = [(0, 0); 4];
        assert_eq!(ranges.report(&mut blocks), 3);
        assert_eq!(blocks[..3], [(10, 22), (50, 60), (30, 40)]);
        assert_eq!(ranges.around(Seq(35)), Some((Seq(30), Seq(40))));
    }
}
