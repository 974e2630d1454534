//! A hierarchical timer wheel: one deadline for each of many entries, set, moved and expired in constant time
//! (Varghese and Lauck, 1987).
//!
//! Each slot of a level spans the whole level below it. Expiry is exact to a [`TICK`] and never early. Entries are
//! small numbers, so the wheel is two arrays and needs no allocation per deadline.

use crate::Instant;

/// Number of low bits cut from a time in nanoseconds: a tick is about a millisecond.
const TICK_BITS: u32 = 20;
/// The granularity to which deadlines are rounded up, ns.
pub const TICK: u64 = 1 << TICK_BITS;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// As many levels as the 44 bits of a tick number need.
const LEVELS: usize = 8;

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    /// The tick at which it expires, and above it level and slot in which the entry is linked: there is one of these for
    /// each of very many connections.
    due: u64,
}

/// Bits of [`Link::due`] that hold the tick.
const DUE_TICK_BITS: u32 = 64 - TICK_BITS;
const DUE_TICK: u64 = (1 << DUE_TICK_BITS) - 1;
/// The place of an entry without a deadline.
const NOWHERE: u32 = (1 << TICK_BITS) - 1;

impl Link {
    const UNSET: Self = Self { before: NONE, after: NONE, due: (NOWHERE as u64) << DUE_TICK_BITS };

    const fn tick(&self) -> u64 {
        self.due & DUE_TICK
    }

    const fn place(&self) -> u32 {
        (self.due >> DUE_TICK_BITS) as u32
    }

    const fn set_place(&mut self, place: u32) {
        self.due = (place as u64) << DUE_TICK_BITS | self.tick();
    }
}

/// A timer wheel over small numbers, each with at most one deadline.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// All deadlines before this tick have been taken.
    tick: u64,
    heads: Box<[[u32; SLOTS]; LEVELS]>,
    occupied: [u64; LEVELS],
    links: Vec<Link>,
    next: Instant,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            tick: 0,
            heads: Box::new([[NONE; SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            links: Vec::new(),
            next: Instant::NEVER,
        }
    }
}

impl Wheel {
    /// Bytes per entry.
    pub const BYTES_EACH: usize = size_of::<Link>();

    /// A wheel without deadlines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for the entries below `count`, so that setting their deadlines allocates nothing.
    pub fn reserve(&mut self, count: usize) {
        if count > self.links.len() {
            self.links.resize(count, Link::UNSET);
        }
    }

    /// When [`Self::take_due`] must be called next. It may find nothing due then, and this returns a later time
    /// afterwards.
    #[inline]
    #[must_use]
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// The deadline of `number`, rounded up to a tick; `NEVER` if it has none.
    #[inline]
    #[must_use]
    pub fn deadline(&self, number: u32) -> Instant {
        match self.links.get(number as usize) {
            Some(link) if link.place() != NOWHERE => from_tick(link.tick()),
            _ => Instant::NEVER,
        }
    }

    /// Gives `number` this deadline instead of its present one; `NEVER` removes it.
    pub fn set(&mut self, number: u32, deadline: Instant) {
        self.reserve(number as usize + 1);
        self.unlink(number);
        if deadline != Instant::NEVER {
            // Nowhere yet. The last tick is one less than the one that the latest times are rounded up to.
            let tick = deadline.as_nanos().div_ceil(TICK).min(DUE_TICK);
            self.links[number as usize].due = u64::from(NOWHERE) << DUE_TICK_BITS | tick;
            self.link(number);
        }
        self.look();
    }

    /// Takes one number whose deadline has come; it has none afterwards.
    pub fn take_due(&mut self, now: Instant) -> Option<u32> {
        if now < self.next {
            return None;
        }
        let taken = self.advance(now.as_nanos() >> TICK_BITS);
        self.look();
        taken
    }

    fn advance(&mut self, now: u64) -> Option<u32> {
        while let Some((level, slot, start)) = self.first() {
            if start > now {
                break;
            }
            self.tick = start;
            let number = self.heads[level][slot];
            if level == 0 {
                self.unlink(number);
                return Some(number);
            }
            // To the rings below, now that its place there is known.
            let mut number = number;
            while number != NONE {
                let after = self.links[number as usize].after;
                self.unlink(number);
                self.link(number);
                number = after;
            }
        }
        self.tick = self.tick.max(now);
        None
    }

    /// The first slot with anything in it, and the tick it begins at: all below a ring's next slot come before it.
    fn first(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = level as u32 * SLOT_BITS;
        let above = shift + SLOT_BITS;
        let start = (self.tick >> above << above) | (u64::from(slot) << shift);
        Some((level, slot as usize, start.max(self.tick)))
    }

    fn look(&mut self) {
        self.next = self.first().map_or(Instant::NEVER, |(.., start)| from_tick(start));
    }

    /// Puts it where its tick first differs from the present one.
    fn link(&mut self, number: u32) {
        let tick = self.links[number as usize].tick().max(self.tick);
        let differs = (tick ^ self.tick) | 1;
        let level = (u64::BITS - 1 - differs.leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        let head = &mut self.heads[level as usize][slot];
        let after = std::mem::replace(head, number);
        self.occupied[level as usize] |= 1 << slot;
        let link = &mut self.links[number as usize];
        (link.before, link.after) = (NONE, after);
        link.set_place(level * SLOTS as u32 + slot as u32);
        if let Some(after) = self.links.get_mut(after as usize) {
            after.before = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        let (before, after, place) = (link.before, link.after, link.place());
        if place == NOWHERE {
            return;
        }
        link.set_place(NOWHERE);
        if let Some(after) = self.links.get_mut(after as usize) {
            after.before = before;
        }
        if let Some(before) = self.links.get_mut(before as usize) {
            before.after = after;
            return;
        }
        let (level, slot) = (place as usize / SLOTS, place as usize % SLOTS);
        self.heads[level][slot] = after;
        if after == NONE {
            self.occupied[level] &= !(1 << slot);
        }
    }
}

fn from_tick(tick: u64) -> Instant {
    Instant::from_nanos(tick.saturating_mul(TICK))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// xorshift64*: enough to find what a naive model would catch.
    struct Seed(u64);

    impl Seed {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
        }
    }

    fn all_due(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
        let mut due: Vec<u32> = std::iter::from_fn(|| wheel.take_due(now)).collect();
        due.sort_unstable();
        due
    }

    #[test]
    fn the_wheel_agrees_with_a_map_for_any_deadlines_and_times() {
        for seed in 1..=20 {
            let mut seed = Seed(seed);
            let (mut wheel, mut model) = (Wheel::new(), BTreeMap::new());
            let mut now = seed.below(1 << 40);
            for _ in 0..3_000 {
                let number = seed.below(50) as u32;
                let ahead = 1 << seed.below(45);
                match seed.below(4) {
                    0 | 1 => {
                        let deadline = now + seed.below(ahead);
                        wheel.set(number, Instant::from_nanos(deadline));
                        model.insert(number, deadline.div_ceil(TICK));
                    }
                    2 => {
                        wheel.set(number, Instant::NEVER);
                        model.remove(&number);
                    }
                    _ => now += seed.below(ahead),
                }
                let due: Vec<u32> = model
                    .iter()
                    .filter(|(_, tick)| **tick <= now / TICK)
                    .map(|(number, _)| *number)
                    .collect();
                model.retain(|_, tick| *tick > now / TICK);
                assert_eq!(all_due(&mut wheel, Instant::from_nanos(now)), due);
                let first = model.values().min().copied();
                match first {
                    None => assert_eq!(wheel.next(), Instant::NEVER),
                    Some(tick) => assert!(wheel.next() <= from_tick(tick), "it would be missed"),
                }
                for number in 0..50 {
                    let deadline = model.get(&number).map_or(Instant::NEVER, |tick| from_tick(*tick));
                    assert_eq!(wheel.deadline(number), deadline);
                }
            }
        }
    }

    #[test]
    fn polling_at_the_returned_times_is_exact_and_takes_few_steps() {
        let mut wheel = Wheel::new();
        for (number, seconds) in [(0, 600), (1, 30), (2, 86_400 * 365)] {
            wheel.set(number, Instant::from_nanos(seconds * 1_000_000_000));
        }
        let (mut due, mut steps) = (Vec::new(), 0);
        while wheel.next() != Instant::NEVER {
            let now = wheel.next();
            steps += 1;
            due.extend(wheel.take_due(now).map(|number| (number, now.as_nanos().div_euclid(1_000_000_000))));
        }
        assert_eq!(due, [(1, 30), (0, 600), (2, 86_400 * 365)]);
        assert!(steps <= 3 * LEVELS, "{steps}");
    }

    #[test]
    fn a_clock_that_goes_back_takes_nothing_and_loses_nothing() {
        let mut wheel = Wheel::new();
        wheel.set(0, Instant::from_nanos(100 * TICK));
        assert_eq!(wheel.take_due(Instant::from_nanos(90 * TICK)), None);
        wheel.set(1, Instant::from_nanos(5 * TICK));
        assert_eq!(wheel.take_due(Instant::from_nanos(5 * TICK)), None, "the wheel has been further");
        assert_eq!(wheel.take_due(Instant::from_nanos(90 * TICK)), Some(1));
        assert_eq!(all_due(&mut wheel, Instant::from_nanos(100 * TICK)), [0]);
    }
}
