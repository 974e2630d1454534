//! Counters of flows, groups, buckets and meters, by number.
//!
//! Each worker has counters of its own and is their only writer; control adds them up on request. Control allocates
//! them in blocks, before it publishes a version of the tables that uses them. A number is reused only when no worker
//! has a version left that uses it for its former owner. The count until then is subtracted.

use std::sync::OnceLock;

use twinpath_openflow_wire::Count;
use twinpath_time::Instant;

use crate::openflow::pipeline::sync::{AtomicU64, Ordering};

/// Counters per block. The models have few, as each of their runs allocates them.
const BLOCK: usize = if cfg!(loom) { 2 } else { 1024 };

/// Blocks that there may be.
const BLOCKS: usize = 2048;

/// Tables that are counted for.
const TABLES: usize = if cfg!(loom) { 1 } else { u8::MAX as usize + 1 };

/// Counters that there may be.
pub(crate) const COUNTERS_MAX: usize = BLOCK * BLOCKS;

/// One counter; half a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// When it counted last, ns.
    used: AtomicU64,
}

impl Counter {
    /// Adds with loads and stores, as there is one writer.
    #[inline]
    pub(crate) fn add(&self, now: Instant, count: Count) {
        let add = |own: &AtomicU64, more| {
            own.store(own.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed)
        };
        add(&self.packets, count.packets);
        add(&self.bytes, count.bytes);
        self.used.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> Count {
        Count { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    pub(crate) fn used(&self) -> Instant {
        Instant::from_nanos(self.used.load(Ordering::Relaxed))
    }
}

type Block = Box<[Counter]>;

/// The counters of one worker.
#[derive(Debug)]
pub(crate) struct Counters {
    blocks: Box<[OnceLock<Block>]>,
    /// For each table: frames looked up, and those that matched.
    tables: Box<[[AtomicU64; 2]]>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let tables = (0..TABLES).map(|_| Default::default()).collect();
        Self { blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect(), tables }
    }

    /// Makes the block that has this counter, if there is none yet. Called by control.
    pub(crate) fn allocate(&self, number: u32) {
        if let Some(block) = self.blocks.get(number as usize / BLOCK) {
            block.get_or_init(|| (0..BLOCK).map(|_| Counter::default()).collect());
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Counter> {
        self.blocks.get(number as usize / BLOCK)?.get()?.get(number as usize % BLOCK)
    }

    #[inline]
    pub(crate) fn add(&self, number: u32, now: Instant, count: Count) {
        if let Some(counter) = self.get(number) {
            counter.add(now, count);
        }
    }

    #[inline]
    pub(crate) fn add_lookup(&self, table: u8, matched: bool, packets: u64) {
        let [lookups, matches] = &self.tables[usize::from(table)];
        let add = |own: &AtomicU64, more| {
            own.store(own.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed)
        };
        add(lookups, packets);
        if matched {
            add(matches, packets);
        }
    }

    pub(crate) fn lookups(&self, table: u8) -> [u64; 2] {
        let [lookups, matches] = &self.tables[usize::from(table)];
        [lookups.load(Ordering::Relaxed), matches.load(Ordering::Relaxed)]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let blocks = self.blocks.iter().filter(|block| block.get().is_some()).count();
        blocks * BLOCK * size_of::<Counter>() + size_of_val(&*self.blocks) + size_of_val(&*self.tables)
    }
}

/// Which numbers are taken, and from where each counts.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    free: Vec<u32>,
    before: Vec<Before>,
}

/// What the workers had counted under a number before.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// When it was taken, or set to zero.
    count: Count,
    /// When it was taken: when it had counted last.
    used: Instant,
}

/// All numbers of counters are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoCounter;

impl Numbers {
    pub(crate) fn take(&mut self, workers: &[std::sync::Arc<Counters>]) -> Result<u32, NoCounter> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.before.len() < COUNTERS_MAX => {
                self.before.push(Before::default());
                self.before.len() as u32 - 1
            }
            None => return Err(NoCounter),
        };
        workers.iter().for_each(|worker| worker.allocate(number));
        self.reset(number, workers);
        if let Some(before) = self.before.get_mut(number as usize) {
            before.used = last_used(number, workers);
        }
        Ok(number)
    }

    /// Gives a number back that no worker uses any more.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Counts from zero from now on.
    pub(crate) fn reset(&mut self, number: u32, workers: &[std::sync::Arc<Counters>]) {
        if let Some(before) = self.before.get_mut(number as usize) {
            before.count = sum(number, workers);
        }
    }

    pub(crate) fn count(&self, number: u32, workers: &[std::sync::Arc<Counters>]) -> Count {
        let before = self.before.get(number as usize).copied().unwrap_or_default();
        sum(number, workers).minus(before.count)
    }

    /// When any of the workers counted last; zero: not since the number was taken.
    pub(crate) fn used(&self, number: u32, workers: &[std::sync::Arc<Counters>]) -> Instant {
        let before = self.before.get(number as usize).copied().unwrap_or_default();
        let used = last_used(number, workers);
        if used > before.used { used } else { Instant::ZERO }
    }
}

fn sum(number: u32, workers: &[std::sync::Arc<Counters>]) -> Count {
    let counts = workers.iter().filter_map(|worker| Some(worker.get(number)?.count()));
    counts.fold(Count::default(), Count::plus)
}

fn last_used(number: u32, workers: &[std::sync::Arc<Counters>]) -> Instant {
    let used = workers.iter().filter_map(|worker| Some(worker.get(number)?.used()));
    used.max().unwrap_or(Instant::ZERO)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn workers_are_added_up_and_a_number_that_is_used_again_counts_from_zero() {
        let workers = [Arc::new(Counters::new()), Arc::new(Counters::new())];
        let mut numbers = Numbers::default();
        let taken: Vec<_> = (0..BLOCK as u32 + 5).map(|_| numbers.take(&workers).expect("free")).collect();
        let last = *taken.last().expect("some");
        assert_eq!(last as usize, BLOCK + 4, "in the second block");
        workers[0].add(last, Instant::from_nanos(5), Count { packets: 1, bytes: 60 });
        workers[1].add(last, Instant::from_nanos(3), Count { packets: 2, bytes: 120 });
        assert_eq!(numbers.count(last, &workers), Count { packets: 3, bytes: 180 });
        assert_eq!(numbers.used(last, &workers), Instant::from_nanos(5));
        numbers.give_back(last);
        assert_eq!(numbers.take(&workers), Ok(last));
        assert_eq!(numbers.count(last, &workers), Count::default());
        assert_eq!(numbers.used(last, &workers), Instant::ZERO);
        workers[1].add(last, Instant::from_nanos(9), Count { packets: 1, bytes: 7 });
        assert_eq!(numbers.count(last, &workers), Count { packets: 1, bytes: 7 });
    }

    #[test]
    fn a_number_that_was_never_taken_counts_nothing() {
        let workers = [Arc::new(Counters::new())];
        workers[0].add(u32::MAX, Instant::ZERO, Count { packets: 1, bytes: 1 });
        assert_eq!(Numbers::default().count(7, &workers), Count::default());
    }
}
