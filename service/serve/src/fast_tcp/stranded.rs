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

    /// Takes the next connection whose time is over. One whose own address is not here (`is_here`) waits on, as a socket of
    /// the kernel does: an interface that is made anew has its address some time after its link.
    pub(crate) fn next_over(&mut self, now: Instant, is_here: impl Fn(&Tuple) -> bool) -> Option<Tuple> {
        while self.deadline() <= now {
            let (since, tuple) = self.order.pop_front()?;
            if self.since.get(&tuple) != Some(&since) {
                continue;
            }
            self.since.remove(&tuple);
            if is_here(&tuple) {
                return Some(tuple);
            }
            self.add(&tuple, now);
        }
        None
    }

    /// None of them needs a way any more, or each may have one: its time begins anew with the next segment that has none.
    pub(crate) fn clear(&mut self) {
        self.since.clear();
        self.order.clear();
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.order.front().map_or(Instant::NEVER, |(since, _)| *since + GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_given_up_after_its_time_unless_its_address_is_gone() {
        let start = Instant::from_nanos(1 << 40);
        let [here, gone] =
            [1, 2].map(|last| Tuple::new(([192, 0, 2, last], 7).into(), ([192, 0, 2, 9], 4000).into()));
        let is_here = |tuple: &Tuple| *tuple == here;
        let mut stranded = Stranded::default();
        stranded.add(&gone, start);
        stranded.add(&here, start);
        assert_eq!(stranded.next_over(start + GRACE - Duration::from_nanos(1), is_here), None);
        let over = start + GRACE;
        assert_eq!(stranded.next_over(over, is_here), Some(here));
        assert_eq!((stranded.next_over(over, is_here), stranded.deadline()), (None, over + GRACE));
        let is_back = |_: &Tuple| true;
        assert_eq!(stranded.next_over(over, is_back), None, "its time has begun anew");
        assert_eq!(stranded.next_over(over + GRACE, is_back), Some(gone));
        assert_eq!(stranded.deadline(), Instant::NEVER);
    }
}
