//! Calls of a connection that wait for room of their lane, while those behind them are served: a disk that hangs, or is
//! slow, holds up its own calls alone. They stay where they are in the connection's input, which bounds them.

/// Maximum number of calls that wait so on one connection. Behind them, all have to wait.
const CALLS_MAX: usize = 64;

/// A call that waits, by its record in the unread input of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Where its record begins, with its first mark.
    pub(super) start: usize,
    /// Length of its record with all marks, bytes.
    pub(super) len: usize,
    /// The lane that has no room for it.
    pub(super) lane: u32,
}

/// The calls of one connection that wait, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Aside {
    calls: Vec<Waiting>,
    /// Where the input begins that nobody has looked at.
    seen: usize,
}

impl Aside {
    /// Where the input begins that nobody has looked at.
    pub(super) const fn seen(&self) -> usize {
        self.seen
    }

    /// Adds the call that came last. Returns whether it has a place here.
    pub(super) fn add(&mut self, call: Waiting) -> bool {
        let has_place = self.calls.len() < CALLS_MAX;
        if has_place {
            self.calls.push(call);
        }
        has_place
    }

    /// The next call to be tried again, from this place on, and its place: the first one of its lane, as there is no room
    /// for the others then either.
    pub(super) fn next(&self, from: usize) -> Option<(usize, Waiting)> {
        let rest = self.calls.iter().enumerate().skip(from);
        let mut first =
            rest.filter(|(at, call)| self.calls[..*at].iter().all(|before| before.lane != call.lane));
        first.next().map(|(at, call)| (at, *call))
    }

    /// The call at this place waits no more.
    pub(super) fn remove(&mut self, at: usize) {
        self.calls.remove(at);
    }

    /// All input before `seen` was looked at. Returns how much of it no call needs that waits: the rest begins with the
    /// first one of those.
    pub(super) fn settle(&mut self, seen: usize) -> usize {
        let used = self.calls.first().map_or(seen, |first| first.start);
        self.calls.iter_mut().for_each(|call| call.start -= used);
        self.seen = seen - used;
        used
    }

    /// Whether no call waits.
    pub(super) const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_call_of_each_lane_is_tried_and_answered_input_before_all_is_given_back() {
        let mut aside = Aside::default();
        for (start, lane) in [(10, 1), (30, 1), (40, 2), (60, 1)] {
            assert!(aside.add(Waiting { start, len: 5, lane }));
        }
        assert_eq!(aside.settle(80), 10);
        assert_eq!((aside.seen(), aside.next(0).map(|(at, call)| (at, call.start))), (70, Some((0, 0))));
        assert_eq!(aside.next(1).map(|(at, call)| (at, call.start)), Some((2, 30)));
        assert_eq!(aside.next(3), None);
        aside.remove(2);
        aside.remove(0);
        assert_eq!(
            aside.next(0).map(|(at, call)| (at, call.start)),
            Some((0, 20)),
            "it is the first one now"
        );
        assert_eq!((aside.settle(70), aside.seen()), (20, 50));
        aside.remove(0);
        aside.remove(0);
        assert!(aside.is_empty());
        assert_eq!((aside.settle(50), aside.seen()), (50, 0));
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let mut aside = Aside::default();
        let added = (0..1000).filter(|start| aside.add(Waiting { start: *start, len: 1, lane: 0 })).count();
        assert_eq!(added, CALLS_MAX);
    }
}
