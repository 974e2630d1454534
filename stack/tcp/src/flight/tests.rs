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
    at: Instant,
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
    /// What is older than so many us is lost that was sent before, or with, what was sent so many us ago.
    LoseOverdue(u32, u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u32..5, 0_u32..UNIT, any::<bool>()).prop_map(|(whole, rest, fin)| Step::Push(whole, rest, fin)),
        2 => any::<usize>().prop_map(Step::Acknowledge),
        4 => (any::<usize>(), 0_usize..8).prop_map(|(from, count)| Step::Sack(from, count)),
        2 => any::<usize>().prop_map(Step::Lose),
        1 => any::<bool>().prop_map(Step::LoseAll),
        1 => Just(Step::LoseNothing),
        6 => Just(Step::SendLost),
        6 => (0_u32..60, 0_u64..40, any::<bool>())
            .prop_map(|(limit_us, ago, with)| Step::LoseOverdue(limit_us, ago, with)),
    ]
}

/// The naive list, and the number of the next byte.
#[derive(Debug)]
struct Naive {
    all: Vec<One>,
    next: u32,
    is_ended: bool,
    /// The newest delivered segment.
    newest: (Instant, bool),
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
    fn push(&mut self, whole: u32, rest: u32, fin: bool, at: Instant) -> Option<Sent> {
        let len = whole * UNIT + rest;
        if self.is_ended || len == 0 && !fin {
            return None;
        }
        let end = self.next + len + u32::from(fin);
        let count = len.div_ceil(UNIT).max(1);
        for index in 0..count {
            let start = self.next + index * UNIT;
            let end = if index + 1 == count { end } else { start + UNIT };
            self.all.push(One { start, end, at, ..One::default() });
        }
        let flags = if fin { flag::FIN } else { 0 };
        let start = self.next;
        (self.next, self.is_ended) = (end, fin);
        Some(Sent {
            start: Seq(start),
            end: Seq(end),
            at,
            unit: UNIT as u16,
            flags,
            count,
            ..Sent::default()
        })
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
        let one = &mut naive.all[wanted];
        (one.again, one.ever_again, one.at) = (true, true, now);
    }
}

/// All that is overdue is lost: every segment is looked at.
fn lose_overdue(naive: &mut Naive, now: Instant, overdue: &Overdue) -> Option<u32> {
    let mut wait_us = None;
    for one in &mut naive.all {
        let gone = one.lost && !one.again || one.sacked;
        let behind = overdue.at > one.at || overdue.at == one.at && overdue.end.after(Seq(one.end));
        if gone || !behind {
            continue;
        }
        let age_us = crate::clock::micros(now, one.at);
        if age_us >= overdue.limit_us {
            (one.lost, one.again) = (true, false);
        } else {
            wait_us = wait_us.max(Some(overdue.limit_us - age_us));
        }
    }
    wait_us
}

/// Does a step to both.
fn take(flight: &mut Flight, naive: &mut Naive, step: Step, now: Instant) {
    match step {
        Step::Push(whole, rest, fin) => {
            if let Some(record) = naive.push(whole, rest, fin, now) {
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
        Step::LoseOverdue(limit_us, ago, with) => {
            let at = Instant::from_nanos(now.as_nanos().saturating_sub(ago * 1000));
            naive.newest = naive.newest.max((at, with));
            let (at, with) = naive.newest;
            let end = Seq(if with { 1 << 30 } else { 0 });
            let overdue = Overdue { at, end, limit_us };
            assert_eq!(flight.lose_overdue(now, &overdue), lose_overdue(naive, now, &overdue));
        }
    }
}

proptest! {
    #[test]
    fn records_say_of_each_segment_what_a_list_of_all_says(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut flight = Flight::default();
        let mut naive =
            Naive { all: Vec::new(), next: 1000, is_ended: false, newest: (Instant::ZERO, false) };
        for (index, step) in steps.into_iter().enumerate() {
            take(&mut flight, &mut naive, step, Instant::from_nanos(index as u64 * 1000));
            naive.compare(&flight);
        }
    }
}

#[test]
fn a_fin_that_is_cut_off_is_a_segment_of_its_own() {
    let mut flight = Flight::default();
    let (start, end) = (Seq(100), Seq(100 + 2 * UNIT + 1));
    let record = Sent {
        start,
        end,
        at: Instant::ZERO,
        unit: UNIT as u16,
        flags: flag::FIN,
        count: 2,
        ..Sent::default()
    };
    flight.push(record, &mut Vec::new());
    flight.sack(start, Seq(100 + 2 * UNIT), Seq(0), &mut Delivered::default(), |_| {});
    flight.check();
    assert_eq!((flight.out, flight.sacked, flight.len()), (3, 2, 2));
    assert_eq!(flight.get(1).map(|fin| (fin.count, fin.flags)), Some((1, flag::FIN)));
}

/// Records of a full window, of one segment each, sent a microsecond after each other.
fn full(records: u32) -> Flight {
    let mut flight = Flight::default();
    for index in 0..records {
        let (start, at) = (Seq(index * UNIT), Instant::from_nanos(u64::from(index) * 1000));
        let record = Sent { start, end: start + UNIT, at, unit: UNIT as u16, count: 1, ..Sent::default() };
        flight.push(record, &mut Vec::new());
    }
    flight
}

/// A hostile peer acknowledges each segment of a full window by itself, in this order; the newest block is as long as
/// it can be. What is older than `limit_us` is lost, and sent again at once. Returns the records looked at for each
/// acknowledgement and each loss.
fn looks_for_each(order: &[u32], limit_us: u32) -> u64 {
    let mut flight = full(order.len() as u32);
    let mut newest = (Instant::ZERO, Seq(0));
    let (mut has, mut losses) = (vec![false; order.len()], 0);
    for (step, index) in order.iter().enumerate() {
        let now = Instant::from_nanos((order.len() + step) as u64 * 1000);
        has[*index as usize] = true;
        let (mut from, mut to) = (*index as usize, *index as usize);
        while from > 0 && has[from - 1] {
            from -= 1;
        }
        while to + 1 < has.len() && has[to + 1] {
            to += 1;
        }
        let (start, end) = (Seq(from as u32 * UNIT), Seq((to as u32 + 1) * UNIT));
        flight.sack(start, end, Seq(0), &mut Delivered::default(), |seen| {
            newest = newest.max_by_time((seen.at, seen.end));
        });
        flight.lose_overdue(now, &Overdue { at: newest.0, end: newest.1, limit_us });
        while let Some(lost) = flight.next_lost() {
            flight.sent_again(lost, now);
            losses += 1;
        }
    }
    flight.check();
    flight.search().looks / (order.len() as u64 + losses)
}

trait Later {
    fn max_by_time(self, other: Self) -> Self;
}

impl Later for (Instant, Seq) {
    fn max_by_time(self, other: Self) -> Self {
        if other.0 > self.0 || other.0 == self.0 && other.1.after(self.1) { other } else { self }
    }
}

#[test]
fn each_acknowledgement_of_a_hostile_peer_looks_at_few_records_however_many_are_in_flight() {
    const RECORDS: u32 = 4000;
    let ascending: Vec<u32> = (0..RECORDS).collect();
    let descending: Vec<u32> = ascending.iter().rev().copied().collect();
    let seconds = (1..RECORDS).step_by(2);
    let every_second: Vec<u32> = seconds.chain((0..RECORDS).step_by(2)).collect();
    let from_both_ends: Vec<u32> = (0..RECORDS / 2).flat_map(|index| [RECORDS - 1 - index, index]).collect();
    let mut random = ascending.clone();
    let mut state = 1_u64;
    for index in (1..random.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random.swap(index, (state >> 33) as usize % (index + 1));
    }
    for (name, order) in [
        ("ascending", ascending),
        ("descending", descending),
        ("every second", every_second),
        ("from both ends", from_both_ends),
        ("random", random),
    ] {
        for limit_us in [1, 100, 3000, u32::MAX] {
            let looks = looks_for_each(&order, limit_us);
            assert!(looks < 12, "{name}, lost after {limit_us} us: {looks} records");
        }
    }
}
