//! Connections by source: how many each source has, and which connection a worker closes first to make room.
//!
//! A source is an IPv4 address, or the upper 64 bits of an IPv6 address, because one host may use all addresses
//! of such a prefix (RFC 4291, 2.5.4).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use twinpath_time::Instant;

/// A source of connections: the upper 64 bits of an IPv6 address, or an IPv4 address below 32 bits of a block that is
/// reserved (0000::/8, RFC 4291 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(u64);

impl Source {
    const IPV4: u64 = 0x00ff_ffff << 32;

    pub(crate) fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
            IpAddr::V4(v4) => Self(Self::IPV4 | u64::from(v4.to_bits())),
        }
    }
}

/// Rows of the sketch: each source has one counter in each row.
const ROWS: usize = 4;

/// The number of connections per source, over all workers, counted without a lock or an allocation. This is
/// a count-min sketch: a keyed hash assigns each source one counter per row, and the minimum of its
/// counters is its number. A source is counted too high only if other sources share all of its counters.
/// Suppose there are as many sources as connections are allowed, with one connection each: then 1 source in
/// 400 is counted 1 too high, and 1 in two million is counted 2 too high.
#[derive(Debug)]
pub(crate) struct SourceCounts {
    rows: [Box<[AtomicU32]>; ROWS],
    key: RandomState,
}

impl SourceCounts {
    /// A sketch for `connections` connections, with at least four times as many counters per row.
    pub(crate) fn new(connections: u32) -> Self {
        let width = (4 * connections as usize).next_power_of_two();
        let row = |_| (0..width).map(|_| AtomicU32::new(0)).collect();
        Self { rows: std::array::from_fn(row), key: RandomState::new() }
    }

    fn counters(&self, source: Source) -> [&AtomicU32; ROWS] {
        let hash = self.key.hash_one(source);
        // The rows are nearly independent, though made from the two halves of one hash (Kirsch and Mitzenmacher
        // 2006).
        let (first, step) = (hash & 0xffff_ffff, hash >> 32 | 1);
        std::array::from_fn(|number| {
            let row = &self.rows[number];
            &row[(first + number as u64 * step) as usize & (row.len() - 1)]
        })
    }

    /// Counts a connection, unless its source already has `most`. Returns whether it was counted.
    pub(crate) fn opened(&self, source: Source, most: u32) -> bool {
        let before = self.counters(source).map(|counter| counter.fetch_add(1, Ordering::Relaxed));
        let fits = before.into_iter().min().is_some_and(|count| count < most);
        if !fits {
            self.closed(source);
        }
        fits
    }

    pub(crate) fn closed(&self, source: Source) {
        for counter in self.counters(source) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A worker's connections by source, and the order in which idle ones are closed to make room: of the source
/// with most connections, the one that has been idle for longest.
///
/// The order is not updated with each request: a connection is listed under the time at which it became
/// idle. Before the server closes the first one, it checks whether that connection has been used since. If
/// so, it is listed again under its new time.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    counts: HashMap<Source, u32>,
    idle: BTreeSet<(Source, Instant, u32)>,
    /// One entry per source with an idle connection: its number of connections, and since when its first one is
    /// idle.
    order: BTreeSet<(Reverse<u32>, Instant, Source)>,
}

impl Sources {
    /// Counts a new connection.
    pub(crate) fn opened(&mut self, source: Source) {
        self.change(source, |sources| *sources.counts.entry(source).or_default() += 1);
    }

    /// Counts a closed connection, which is not listed as idle any more.
    pub(crate) fn closed(&mut self, source: Source) {
        self.change(source, |sources| {
            let count = sources.counts.entry(source).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                sources.counts.remove(&source);
            }
        });
    }

    /// Lists connection `number` as idle since `since`.
    pub(crate) fn list(&mut self, source: Source, since: Instant, number: u32) {
        self.change(source, |sources| sources.idle.extend([(source, since, number)]));
    }

    /// Removes a connection from the list.
    pub(crate) fn unlist(&mut self, source: Source, since: Instant, number: u32) {
        self.change(source, |sources| {
            sources.idle.remove(&(source, since, number));
        });
    }

    /// The number of the connection to be closed first.
    pub(crate) fn first(&self) -> Option<u32> {
        let (_, _, source) = self.order.first()?;
        self.first_of(*source).map(|(_, number)| number)
    }

    fn first_of(&self, source: Source) -> Option<(Instant, u32)> {
        let (of, since, number) = self.idle.range((source, Instant::ZERO, 0)..).next()?;
        (*of == source).then_some((*since, *number))
    }

    fn rank(&self, source: Source) -> Option<(Reverse<u32>, Instant, Source)> {
        let count = self.counts.get(&source).copied().unwrap_or(0);
        self.first_of(source).map(|(since, _)| (Reverse(count), since, source))
    }

    /// Makes a change to one source, and updates the order.
    fn change(&mut self, source: Source, change: impl FnOnce(&mut Self)) {
        let before = self.rank(source);
        change(self);
        let after = self.rank(source);
        if before != after {
            before.map(|rank| self.order.remove(&rank));
            self.order.extend(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::of(address.parse().expect("an address"))
    }

    const fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_64_bits_of_an_ipv6_address() {
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8:0:1::1"), source("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(source("2001:db8:0:1::1"), source("2001:db8:0:2::1"));
    }

    #[test]
    fn each_source_has_its_own_count_and_gets_back_what_it_closes() {
        let counts = SourceCounts::new(1024);
        let greedy = source("192.0.2.1");
        assert_eq!((0..1000).filter(|_| counts.opened(greedy, 100)).count(), 100);
        let others = |last: u32| Source::of(IpAddr::V4((0x0a00_0000 + last).into()));
        // With a limit of 1, a shared counter might refuse one of them.
        assert_eq!((0..900).filter(|last| counts.opened(others(*last), 4)).count(), 900);
        counts.closed(greedy);
        assert_eq!((counts.opened(greedy, 100), counts.opened(greedy, 100)), (true, false));
        (0..900).for_each(|last| counts.closed(others(last)));
        (0..100).for_each(|_| counts.closed(greedy));
        assert!(counts.rows.iter().flatten().all(|counter| counter.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn the_source_with_most_goes_first_and_of_it_the_one_idle_for_longest() {
        let mut sources = Sources::default();
        let [one, two, three] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(source);
        let open = |sources: &mut Sources, source, since, number| {
            sources.opened(source);
            sources.list(source, at(since), number);
        };
        open(&mut sources, one, 5, 10);
        open(&mut sources, two, 3, 11);
        open(&mut sources, three, 4, 12);
        assert_eq!(sources.first(), Some(11), "all have as many");
        open(&mut sources, three, 9, 13);
        assert_eq!(sources.first(), Some(12), "it has two");
        sources.unlist(three, at(4), 12);
        assert_eq!(sources.first(), Some(13), "the other one of it, as the first is not idle");
        sources.unlist(three, at(9), 13);
        assert_eq!(sources.first(), Some(11));
        sources.list(three, at(20), 12);
        assert_eq!(sources.first(), Some(12), "it has two, though only one is idle");
        sources.closed(three);
        assert_eq!(sources.first(), Some(11), "it has one, of a later time");
        for (source, since, number) in [(one, 5, 10), (two, 3, 11), (three, 20, 12)] {
            sources.unlist(source, at(since), number);
            sources.closed(source);
        }
        assert!(sources.counts.is_empty() && sources.idle.is_empty() && sources.order.is_empty());
    }
}
