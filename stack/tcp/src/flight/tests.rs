//! The records beside a naive list of segments, each with what is known of it.

use proptest::prelude::*;

use super::*;

const UNIT: u32 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct One {
    start: u32,
    end: u32,
    sacked: bool,
    lost: bool,
    again: bool,
    ever_again: bool,
}

/// What may happen, with numbers that choose among what is there.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Full-sized segments, a shorter one behind them, and FIN, leave as one.
    Push(u32, u32, bool),
    Acknowledge(usize),
    Sack(usize, usize),
    Lose(usize),
    LoseAll(bool),
    LoseNothing,
    SendLost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u32..5, 0_u32..UNIT, any::<bool>()).prop_map(|(whole, rest, fin)| Step::Push(whole, rest, fin)),
        2 => any::<usize>().prop_map(Step::Acknowledge),
        4 => (any::<usize>(), 0_usize..8).prop_map(|(from, count)| Step::Sack(from, count)),
        2 => any::<usize>().prop_map(Step::Lose),
        1 => any::<bool>().prop_map(Step::LoseAll),
        1 => Just(Step::LoseNothing),
        4 => Just(Step::SendLost),
    ]
}

/// The naive list, and the number of the next byte.
#[derive(Debug)]
struct Naive {
    all: Vec<One>,
    next: u32,
    is_ended: bool,
}

impl Naive {
    fn count(&self, what: impl Fn(&One) -> bool) -> u32 {
        self.all.iter().filter(|one| what(one)).count() as u32
    }

    /// A number at the border of two segments.
    fn border(&self, index: usize) -> u32 {
        let place = index % (self.all.len() + 1);
        self.all.get(place).map_or(self.next, |one| one.start)
    }

    /// Segments that leave as one; FIN is counted with the last, if there is one.
    fn push(&mut self, whole: u32, rest: u32, fin: bool) -> Option<Sent> {
        let len = whole * UNIT + rest;
        if self.is_ended || len == 0 && !fin {
            return None;
        }
        let end = self.next + len + u32::from(fin);
        let count = len.div_ceil(UNIT).max(1);
        for index in 0..count {
            let start = self.next + index * UNIT;
            let end = if index + 1 == count { end } else { start + UNIT };
            self.all.push(One { start, end, ..One::default() });
        }
        let flags = if fin { flag::FIN } else { 0 };
        let start = self.next;
        (self.next, self.is_ended) = (end, fin);
        Some(Sent { start: Seq(start), end: Seq(end), at: Instant::ZERO, unit: UNIT as u16, flags, count })
    }

    /// Whether the records say the same of every segment, and their counts are right.
    fn compare(&self, flight: &Flight) {
        let sums = (flight.out, flight.sacked, flight.lost, flight.retransmitted);
        let sacked = self.count(|one| one.sacked);
        let own = (self.count(|_| true), sacked, self.count(|one| one.lost), self.count(|one| one.again));
        assert_eq!(sums, own);
        let mut segments = self.all.iter();
        for record in &flight.records {
            let mut at = record.start.0;
            for _ in 0..record.count {
                let one = segments.next().expect("a segment of the record");
                let flags = [one.sacked, one.lost, one.again, one.ever_again];
                let kinds = [flag::SACKED, flag::LOST, flag::RETRANSMITTED, flag::EVER_RETRANSMITTED];
                assert_eq!(kinds.map(|kind| record.has(kind)), flags, "{one:?} {record:?}");
                assert_eq!(one.start, at);
                at = one.end;
            }
            assert_eq!(at, record.end.0);
        }
        assert_eq!(segments.next(), None);
        flight.check();
        if sacked > 0 {
            let highest = self.all.iter().filter(|one| one.sacked).map(|one| one.end).max();
            assert!(Some(flight.highest_sacked.0) >= highest);
        }
    }
}

/// The first lost segment is sent again.
fn send_lost(flight: &mut Flight, naive: &mut Naive, now: Instant) {
    let wanted = naive.all.iter().position(|one| one.lost && !one.again && !one.sacked);
    let found = flight.next_lost();
    assert_eq!(
        found.map(|index| flight.get(index).expect("within").start.0),
        wanted.map(|index| naive.all[index].start)
    );
    if let (Some(found), Some(wanted)) = (found, wanted) {
        // One segment of it.
        let record = *flight.get(found).expect("within");
        if record.count > 1 {
            flight.split(found, record.start + UNIT, false);
        }
        flight.sent_again(found, now);
        (naive.all[wanted].again, naive.all[wanted].ever_again) = (true, true);
    }
}

/// Does a step to both.
fn take(flight: &mut Flight, naive: &mut Naive, step: Step, now: Instant) {
    match step {
        Step::Push(whole, rest, fin) => {
            if let Some(record) = naive.push(whole, rest, fin) {
                flight.push(record, &mut Vec::new());
            }
        }
        Step::Acknowledge(index) => {
            let una = naive.border(index);
            let delivered = flight.acknowledge(Seq(una), Seq(0), |_| {});
            let gone = naive.count(|one| one.end <= una);
            let known = naive.count(|one| one.end <= una && one.sacked);
            assert_eq!((delivered.acked, delivered.acked_sacked), (gone, known));
            naive.all.retain(|one| one.end > una);
        }
        Step::Sack(index, count) => {
            if naive.all.is_empty() {
                return;
            }
            let from = index % naive.all.len();
            let to = (from + count).min(naive.all.len() - 1);
            let (start, end) = (naive.all[from].start, naive.all[to].end);
            let mut delivered = Delivered::default();
            flight.sack(Seq(start), Seq(end), Seq(0), &mut delivered, |_| {});
            let mut new = 0;
            for one in &mut naive.all[from..=to] {
                new += u32::from(!one.sacked);
                (one.sacked, one.lost, one.again) = (true, false, false);
            }
            assert_eq!(delivered.sacked, new);
        }
        Step::Lose(index) => {
            if flight.is_empty() {
                return;
            }
            let index = index % flight.len();
            let record = *flight.get(index).expect("within");
            flight.lose(index);
            for one in
                naive.all.iter_mut().filter(|one| one.start >= record.start.0 && one.end <= record.end.0)
            {
                if !one.sacked {
                    (one.lost, one.again) = (true, false);
                }
            }
        }
        Step::LoseAll(forget) => {
            flight.lose_all(forget);
            for one in &mut naive.all {
                one.sacked &= !forget;
                (one.lost, one.again) = (!one.sacked, false);
            }
        }
        Step::LoseNothing => {
            flight.lose_nothing();
            naive.all.iter_mut().for_each(|one| one.lost = false);
        }
        Step::SendLost => send_lost(flight, naive, now),
    }
}

proptest! {
    #[test]
    fn records_say_of_each_segment_what_a_list_of_all_says(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut flight = Flight::default();
        let mut naive = Naive { all: Vec::new(), next: 1000, is_ended: false };
        for (index, step) in steps.into_iter().enumerate() {
            take(&mut flight, &mut naive, step, Instant::from_nanos(index as u64));
            naive.compare(&flight);
        }
    }
}

#[test]
fn a_fin_that_is_cut_off_is_a_segment_of_its_own() {
    let mut flight = Flight::default();
    let (start, end) = (Seq(100), Seq(100 + 2 * UNIT + 1));
    let record = Sent { start, end, at: Instant::ZERO, unit: UNIT as u16, flags: flag::FIN, count: 2 };
    flight.push(record, &mut Vec::new());
    flight.sack(start, Seq(100 + 2 * UNIT), Seq(0), &mut Delivered::default(), |_| {});
    flight.check();
    assert_eq!((flight.out, flight.sacked, flight.len()), (3, 2, 2));
    assert_eq!(flight.get(1).map(|fin| (fin.count, fin.flags)), Some((1, flag::FIN)));
}
