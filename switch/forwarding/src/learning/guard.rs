//! The loop guard: two ports that are joined outside the switch.
//!
//! A station that moves does so once, and many that move together do so in one direction. In a loop, the same frames come in
//! by both ports in turn, and so do their source addresses. The guard counts the moves between each two ports, in both
//! directions, for a second; when both counts reach the threshold, it suspects a loop.
//!
//! A host can make addresses move as well, by sending frames with the source addresses of others. So a suspicion alone
//! blocks nothing. The switch sends a probe, a frame of its own, through each of the two ports. Nobody else can know
//! its source address. If a probe comes back, the port that sent it and the port that received it are joined. The one
//! with the higher number is blocked. If both are the same port, it sends back what it gets, and is blocked itself. A
//! host that sends a probe back therefore blocks its own port. If that port leads to a switch, all hosts behind it
//! share the block.
//!
//! Memory is bounded: pairs of ports share words. Where two pairs share a word, the one with more moves keeps it. Only
//! one question is open at a time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use twinpath_time::{Duration, Instant};

use crate::learning::config::{LoopGuard, PORT_MAX};
use crate::learning::table::SipHash13;

/// Words for pairs of ports.
const PAIRS: usize = 1024;

/// A second, roughly, as bits of nanoseconds.
const WINDOW_BITS: u32 = 30;

const FIELD_BITS: u32 = 12;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1;

/// The time between questions. A probe may be lost in a loop, as any frame may; then it is sent again. Where queues are
/// long it may also be late, and only the probes of the last question count. So the time doubles with each question, up
/// to [`INTERVAL_MOST`]. This also bounds the frames that a lying host can cause, and the addresses that other switches
/// learn from them.
const INTERVAL_LEAST: Duration = Duration::from_millis(250);
const INTERVAL_MOST: Duration = Duration::from_secs(4);
/// After this long without a question, the time starts at its minimum again.
const INTERVAL_ANEW: Duration = Duration::from_secs(16);

/// No question was asked yet.
const UNASKED: u64 = u64::MAX;

/// A loop that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The port that is blocked: nothing is learned on it, and nothing flooded from it or to it.
    pub blocked: u16,
    /// The port that it is joined to; the blocked one itself if that sends back what it gets.
    pub other: u16,
    /// Until when it is blocked.
    pub until: Instant,
}

/// The moves between two ports in the present window, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moves {
    /// The lower and the higher port.
    ports: [u16; 2],
    /// Windows since the origin; wraps.
    window: u16,
    /// To the higher port, and to the lower.
    counts: [u16; 2],
}

impl Moves {
    fn of(word: u64) -> Self {
        let field = |at: u32| (word >> at & FIELD_MASK) as u16;
        Self {
            ports: [field(0), field(FIELD_BITS)],
            counts: [field(2 * FIELD_BITS), field(3 * FIELD_BITS)],
            window: (word >> (4 * FIELD_BITS)) as u16,
        }
    }

    fn word(self) -> u64 {
        let fields = [self.ports[0], self.ports[1], self.counts[0], self.counts[1], self.window];
        fields.into_iter().rev().fold(0, |word, field| word << FIELD_BITS | u64::from(field))
    }

    /// The same after one more move of the pair `ports`.
    fn after(mut self, ports: [u16; 2], window: u16, up: bool) -> Self {
        if self.window != window {
            self = Self { ports, window, counts: [0; 2] };
        }
        if self.ports == ports {
            let count = &mut self.counts[usize::from(!up)];
            *count = (*count + 1).min(FIELD_MASK as u16);
        } else if self.counts == [0; 2] {
            self.ports = ports;
            self.counts[usize::from(!up)] = 1;
        } else {
            // Another pair stands here: it stays if it has more moves.
            self.counts = self.counts.map(|count| count.saturating_sub(1));
        }
        self
    }
}

/// A blocked port.
#[derive(Debug, Default)]
struct Block {
    until_ns: AtomicU64,
    other: AtomicU32,
}

/// A suspicion: whether two ports are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The lower and the higher port.
    pub(crate) ports: [u16; 2],
    /// For each of them the source address of the frame that is sent through it.
    pub(crate) sources: [u64; 2],
}

/// The question that probes may answer now.
#[derive(Debug)]
struct OpenQuestion {
    /// The source of the probe that was sent through the lower port, and of the other one. Neither reveals the other.
    sources: [AtomicU64; 2],
    /// The lower port, and the higher one above it.
    ports: AtomicU32,
    at_ns: AtomicU64,
    /// The time until the next one.
    interval_ns: AtomicU64,
}

/// The state of the loop guard, shared by all workers.
#[derive(Debug)]
pub(crate) struct Guard {
    pairs: Box<[AtomicU64]>,
    blocks: Box<[Block]>,
    /// After this no port is blocked.
    last_until_ns: AtomicU64,
    asked: OpenQuestion,
    /// Makes addresses that nobody else knows.
    hasher: SipHash13,
}

impl Guard {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self {
            asked: OpenQuestion {
                sources: [AtomicU64::new(UNASKED), AtomicU64::new(UNASKED)],
                ports: AtomicU32::new(0),
                at_ns: AtomicU64::new(0),
                interval_ns: AtomicU64::new(INTERVAL_LEAST.as_nanos() as u64),
            },
            // Another key than that of the table of addresses, whose collisions can be timed.
            hasher: SipHash13::new(seed.map(|word| word.rotate_left(32) ^ 0x6c6f_6f70)),
            pairs: (0..PAIRS).map(|_| AtomicU64::new(0)).collect(),
            blocks: (0..=PORT_MAX).map(|_| Block::default()).collect(),
            last_until_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.pairs) + size_of_val(&*self.blocks)
    }

    /// Whether a port is blocked now.
    #[inline]
    pub(crate) fn is_blocked(&self, port: u16, now: Instant) -> bool {
        now.as_nanos() < self.last_until_ns.load(Ordering::Relaxed) && self.until(port) > now
    }

    fn until(&self, port: u16) -> Instant {
        let block = self.blocks.get(usize::from(port));
        Instant::from_nanos(block.map_or(0, |block| block.until_ns.load(Ordering::Acquire)))
    }

    /// An address has moved. Returns a suspicion if this move raises one; only the worker that notices it first gets
    /// it.
    pub(crate) fn moved(&self, now: Instant, from: u16, to: u16, guard: LoopGuard) -> Option<Question> {
        let (ports, up) = if from < to { ([from, to], true) } else { ([to, from], false) };
        let window = (now.as_nanos() >> WINDOW_BITS) as u16;
        // Any mapping will do: pairs that share a word only lose part of their counts.
        let at = &self.pairs[(usize::from(ports[0]) * 61 + usize::from(ports[1])) % PAIRS];
        let former = at.load(Ordering::Relaxed);
        let moves = Moves::of(former).after(ports, window, up);
        // A move that is lost to another worker's store does no harm: a loop has thousands.
        let counted = at.compare_exchange(former, moves.word(), Ordering::Relaxed, Ordering::Relaxed);
        let enough =
            moves.ports == ports && moves.counts.iter().all(|count| u32::from(*count) >= guard.moves_per_s);
        if counted.is_err() || !enough {
            return None;
        }
        at.store(0, Ordering::Relaxed);
        if ports.iter().any(|port| self.is_blocked(*port, now)) { None } else { self.ask(now, ports) }
    }

    fn ask(&self, now: Instant, ports: [u16; 2]) -> Option<Question> {
        let OpenQuestion { sources, ports: asked_ports, at_ns, interval_ns } = &self.asked;
        let (now_ns, former) = (now.as_nanos(), at_ns.load(Ordering::Relaxed));
        let interval = Duration::from_nanos(interval_ns.load(Ordering::Relaxed));
        let since = now.since(Instant::from_nanos(former));
        if former != 0 && since < interval {
            return None;
        }
        at_ns.compare_exchange(former, now_ns, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let goes_on = former != 0 && since < INTERVAL_ANEW;
        let next = if goes_on { (interval * 2).min(INTERVAL_MOST) } else { INTERVAL_LEAST };
        interval_ns.store(next.as_nanos() as u64, Ordering::Relaxed);
        // Unicast addresses, locally administered.
        let secret = |number| self.hasher.hash(now_ns << 1 | number) & 0xfcff_ffff_ffff | 0x0200_0000_0000;
        let secrets = [secret(0), secret(1)];
        // A worker that sees the new ports no longer sees the former addresses.
        sources.iter().for_each(|source| source.store(UNASKED, Ordering::Relaxed));
        asked_ports.store(u32::from(ports[1]) << 16 | u32::from(ports[0]), Ordering::Release);
        sources.iter().zip(secrets).for_each(|(source, secret)| source.store(secret, Ordering::Release));
        Some(Question { ports, sources: secrets })
    }

    /// Through which port the probe with this source was sent: the lower, or the higher one. `None`: it is no probe.
    #[inline]
    fn sent_through(&self, source: u64) -> Option<usize> {
        self.asked.sources.iter().position(|of_probe| of_probe.load(Ordering::Acquire) == source)
    }

    /// Whether a frame with this source address is a probe.
    #[inline]
    pub(crate) fn is_probe(&self, source: u64) -> bool {
        self.sent_through(source).is_some()
    }

    /// A probe came in by a port. Returns the loop if it shows one; only the worker that finds it first gets it.
    #[cold]
    pub(crate) fn came_back(&self, now: Instant, source: u64, on: u16, guard: LoopGuard) -> Option<Loop> {
        let ports = self.asked.ports.load(Ordering::Acquire);
        let sent_by = [ports as u16, (ports >> 16) as u16][self.sent_through(source)?];
        // If two ports are joined, only the lower one's probe counts.
        if on < sent_by {
            return None;
        }
        let found = self.block(now, on, sent_by, now + guard.block)?;
        self.asked.interval_ns.store(INTERVAL_LEAST.as_nanos() as u64, Ordering::Relaxed);
        Some(found)
    }

    fn block(&self, now: Instant, port: u16, other: u16, until: Instant) -> Option<Loop> {
        let block = self.blocks.get(usize::from(port))?;
        let former = block.until_ns.load(Ordering::Acquire);
        if former > now.as_nanos() {
            return None;
        }
        block.other.store(u32::from(other), Ordering::Release);
        let first =
            block.until_ns.compare_exchange(former, until.as_nanos(), Ordering::AcqRel, Ordering::Relaxed);
        first.ok()?;
        self.last_until_ns.fetch_max(until.as_nanos(), Ordering::AcqRel);
        Some(Loop { blocked: port, other, until })
    }

    /// The ports that are blocked now.
    pub(crate) fn blocked(&self, now: Instant) -> impl Iterator<Item = Loop> + '_ {
        (0..=PORT_MAX).filter(move |port| self.is_blocked(*port, now)).map(|port| Loop {
            blocked: port,
            other: self.blocks[usize::from(port)].other.load(Ordering::Acquire) as u16,
            until: self.until(port),
        })
    }

    /// Ends the block of a port.
    pub(crate) fn unblock(&self, port: u16) {
        if let Some(block) = self.blocks.get(usize::from(port)) {
            block.until_ns.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: LoopGuard = LoopGuard { moves_per_s: 10, block: twinpath_time::Duration::from_secs(3) };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos((1 << 40) + ms * 1_000_000)
    }

    /// Moves an address back and forth, and returns the first question with the number of moves.
    fn flap(
        guard: &Guard,
        ports: [u16; 2],
        start_ms: u64,
        every_ms: u64,
        moves: u64,
    ) -> Option<(u64, Question)> {
        (0..moves).find_map(|number| {
            let [a, b] = ports;
            let (from, to) = if number % 2 == 0 { (a, b) } else { (b, a) };
            Some((number, guard.moved(at(start_ms + number * every_ms), from, to, GUARD)?))
        })
    }

    #[test]
    fn a_loop_blocks_the_higher_port_for_its_time_and_is_found_again() {
        let guard = Guard::new([3, 4]);
        let (moves, Question { ports, sources }) = flap(&guard, [7, 3], 0, 0, 1000).expect("a suspicion");
        assert_eq!((moves, ports), (19, [3, 7]));
        assert!(!guard.is_blocked(7, at(1)) && !guard.is_blocked(3, at(1)), "it may be a host that lies");
        // What left by the higher port comes by the lower one, and the other way round.
        assert_eq!(guard.came_back(at(1), sources[1], 3, GUARD), None);
        let found = guard.came_back(at(1), sources[0], 7, GUARD);
        assert_eq!(found, Some(Loop { blocked: 7, other: 3, until: at(3001) }));
        assert!(
            guard.is_blocked(7, at(3000)) && !guard.is_blocked(7, at(3001)) && !guard.is_blocked(3, at(1))
        );
        assert_eq!(guard.blocked(at(1)).collect::<Vec<_>>(), [found.expect("found")]);
        assert_eq!(guard.came_back(at(1), sources[0], 7, GUARD), None, "said once");
        assert_eq!(flap(&guard, [7, 3], 1000, 0, 1000), None, "it is blocked already");
        assert!(flap(&guard, [7, 3], 3001, 0, 1000).is_some(), "the loop is still there");
        guard.unblock(7);
        assert!(!guard.is_blocked(7, at(3002)));
    }

    #[test]
    fn nothing_but_the_last_question_is_answered_and_it_is_not_asked_often() {
        let guard = Guard::new([3, 4]);
        assert!(!guard.is_probe(0) && !guard.is_probe(1) && !guard.is_probe(UNASKED & 0xffff_ffff_ffff));
        let (_, first) = flap(&guard, [1, 9], 0, 0, 1000).expect("a suspicion");
        assert_eq!(flap(&guard, [1, 9], 249, 0, 1000), None);
        let (_, second) = flap(&guard, [1, 9], 250, 0, 1000).expect("a suspicion");
        assert_eq!(guard.came_back(at(260), first.sources[0], 9, GUARD), None);
        for source in second.sources {
            assert!(guard.is_probe(source) && source >> 40 & 3 == 2, "{source:x}: unicast, local");
            assert!(!guard.is_probe(source ^ 2) && !guard.is_probe(source ^ 1 << 47));
        }
        // Through the uplink to a host at port 1 that knows one beyond it: that blocks nobody else's port.
        assert_eq!(guard.came_back(at(260), second.sources[1], 1, GUARD), None);
        // A port that sends back what it gets.
        let reflected = guard.came_back(at(260), second.sources[0], 1, GUARD);
        assert_eq!(reflected.map(|found| (found.blocked, found.other)), Some((1, 1)));
    }

    /// As with long queues: each probe comes back after this time.
    #[test]
    fn a_loop_that_answers_late_is_found_and_a_host_that_lies_causes_few_questions() {
        for late_ms in [100, 400, 900, 1900] {
            let guard = Guard::new([3, 4]);
            let mut asked = Vec::new();
            let found = (0..20_000_u64).find(|ms| {
                asked.extend(flap(&guard, [1, 9], *ms, 0, 40).map(|(_, question)| (*ms, question)));
                let answered = asked.iter().find(|(sent_ms, _)| sent_ms + late_ms == *ms);
                answered
                    .is_some_and(|(_, asked)| guard.came_back(at(*ms), asked.sources[0], 9, GUARD).is_some())
            });
            assert!(found.is_some_and(|ms| ms < 6_000), "{late_ms} ms: {found:?}");
        }
        let guard = Guard::new([3, 4]);
        let questions = (0..60_000_u64).filter(|ms| flap(&guard, [1, 9], *ms, 0, 40).is_some()).count();
        assert!((15..=20).contains(&questions), "{questions} in a minute");
    }

    #[test]
    fn moves_in_one_direction_or_too_few_in_a_second_are_no_loop() {
        let guard = Guard::new([3, 4]);
        assert!((0..4000).all(|_| guard.moved(at(0), 1, 2, GUARD).is_none()));
        assert_eq!(flap(&guard, [1, 2], 5_000, 200, 1000), None);
    }

    #[test]
    fn a_loop_is_found_among_moves_between_other_ports() {
        let guard = Guard::new([3, 4]);
        let mut random = 1_u32;
        for number in 0..100_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let ports = [(random >> 20) as u16, (random >> 8) as u16 & 0xfff].map(|port| port.min(PORT_MAX));
            if ports[0] != ports[1] {
                assert_eq!(guard.moved(at(0), ports[0], ports[1], GUARD), None);
            }
            let (from, to) = if number % 2 == 0 { (100, 101) } else { (101, 100) };
            if guard.moved(at(0), from, to, GUARD).is_some() {
                return;
            }
        }
        panic!("the loop was not found");
    }

    #[test]
    fn moves_fit_their_word() {
        let moves = Moves { ports: [0, 4094], window: u16::MAX, counts: [4095, 1] };
        assert_eq!(Moves::of(moves.word()), moves);
    }
}
