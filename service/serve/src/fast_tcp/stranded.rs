//! Connections whose segments have no way on the fast path any more: the route now leaves through another interface,
//! or through something that the fast path does not support.

use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;

use twinpath_tcp::Tuple;
use twinpath_time::{Duration, Instant};

/// How long a connection may be without a way: routes that change are often back soon.
const GRACE: Duration = Duration::from_secs(5);

/// The connections, and since when nothing of them has left.
#[derive(Debug, Default)]
pub(crate) struct Stranded {
    since: HashMap<Tuple, Instant, RandomState>,
    /// The same in order; what has a way again is still here.
    order: VecDeque<(Instant, Tuple)>,
}

impl Stranded {
    /// A segment has no way.
    #[cold]
    pub(crate) fn add(&mut self, tuple: &Tuple, now: Instant) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.since.entry(*tuple) {
            entry.insert(now);
            self.order.push_back((now, *tuple));
        }
    }

    /// A segment of this connection has left.
    #[inline]
    pub(crate) fn has_left(&mut self, tuple: &Tuple) {
        if !self.since.is_empty() {
            self.since.remove(tuple);
        }
    }

    /// Takes the next connection whose time is over.
    pub(crate) fn next_over(&mut self, now: Instant) -> Option<Tuple> {
        while self.deadline() <= now {
            let (since, tuple) = self.order.pop_front()?;
            if self.since.get(&tuple) == Some(&since) {
                self.since.remove(&tuple);
                return Some(tuple);
            }
        }
        None
    }

    /// None of them needs a way any more.
    pub(crate) fn clear(&mut self) {
        self.since.clear();
        self.order.clear();
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.order.front().map_or(Instant::NEVER, |(since, _)| *since + GRACE)
    }
}
