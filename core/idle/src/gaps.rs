//! Memory of gaps between arrivals: the last ones exactly, and a decaying histogram of many.
//!
//! Gaps are `f32` microseconds. Their 24 bits resolve 350 us to 0.03 ns and 10 s to 1 us, both finer than any wake-up.

/// Octaves that are distinguished where a coarse class of a gap is enough: below 1 us, then doublings up to 8 s and all
/// above.
pub(crate) const CLASSES: usize = 24;

/// Longer gaps are treated as this long, us. A prediction further ahead would be worthless.
pub(crate) const GAP_MAX_US: f32 = 10e6;

/// After a second without a packet, if that is as long as this many gaps, earlier observations may no longer hold.
const SILENCE_US: f32 = 1e6;
const SILENCE_GAPS: f32 = 64.0;

/// Whether a time without a packet is too long to be a gap of the traffic so far.
pub(crate) fn is_silence(passed_us: f32, mean_gap_us: f32) -> bool {
    passed_us >= SILENCE_US && passed_us >= SILENCE_GAPS * mean_gap_us
}

/// The octave of a gap.
#[inline]
pub(crate) const fn class_of(gap_us: f32) -> usize {
    // The exponent: 127 represents [1, 2).
    let exponent = (gap_us.to_bits() >> 23) as usize & 0xff;
    let class = exponent.saturating_sub(126);
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// The shortest gap of an octave in microseconds. The first octave begins at 0; for it, half a microsecond.
pub(crate) const fn shortest_us(class: usize) -> f32 {
    (1u64 << class) as f32 / 2.0
}

/// The last `N` gaps, in order.
#[derive(Clone, Debug)]
pub(crate) struct Ring<const N: usize> {
    gaps: [f32; N],
    next: u32,
    len: u32,
}

impl<const N: usize> Ring<N> {
    pub(crate) const fn new() -> Self {
        Self { gaps: [0.0; N], next: 0, len: 0 }
    }

    #[inline]
    pub(crate) const fn push(&mut self, gap_us: f32) {
        self.gaps[self.next as usize] = gap_us;
        self.next = (self.next + 1) % N as u32;
        if self.len < N as u32 {
            self.len += 1;
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Copies the last `count` gaps, oldest first, into `out`; returns how many there were.
    pub(crate) fn last(&self, count: usize, out: &mut [f32]) -> usize {
        let count = count.min(self.len()).min(out.len());
        let start = self.next as usize + N - count;
        for (at, out) in out[..count].iter_mut().enumerate() {
            *out = self.gaps[(start + at) % N];
        }
        count
    }
}

/// Buckets per octave of the histogram.
const PER_OCTAVE: usize = 16;
const PER_OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();

/// From below 1 us to 2^23 us.
pub(crate) const BUCKETS: usize = PER_OCTAVE * CLASSES;

/// A histogram in log-spaced buckets in which old gaps weigh less and less.
#[derive(Clone, Debug)]
pub(crate) struct Decaying {
    mass: [f32; BUCKETS],
    /// The weight of the next gap: it grows, instead of all others shrinking, until all are scaled back.
    unit: f32,
    /// The factor by which it grows with each gap.
    growth: f32,
    total: f32,
}

/// The weight at which all are scaled back, long before `f32` loses the small ones.
const UNIT_MAX: f32 = 1e6;

impl Decaying {
    /// A histogram that remembers about `memory` gaps.
    pub(crate) fn new(memory: f32) -> Self {
        Self { mass: [0.0; BUCKETS], unit: 1.0, growth: 1.0 + 1.0 / memory, total: 0.0 }
    }

    #[inline]
    fn bucket(gap_us: f32) -> usize {
        if gap_us < 1.0 {
            // One linear octave below 1 us.
            return (gap_us.max(0.0) * PER_OCTAVE as f32) as usize;
        }
        let bits = gap_us.to_bits() - 1.0f32.to_bits();
        let bucket = PER_OCTAVE + (bits >> (23 - PER_OCTAVE_BITS)) as usize;
        if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
    }

    /// The lower edge of a bucket, us.
    pub(crate) fn edge(bucket: usize) -> f32 {
        if bucket < PER_OCTAVE {
            return bucket as f32 / PER_OCTAVE as f32;
        }
        f32::from_bits(1.0f32.to_bits() + ((bucket - PER_OCTAVE) as u32 * (1 << (23 - PER_OCTAVE_BITS))))
    }

    /// Counts `count` gaps of this length.
    #[inline]
    pub(crate) fn add(&mut self, gap_us: f32, count: f32) {
        let mass = self.unit * count;
        self.mass[Self::bucket(gap_us)] += mass;
        self.total += mass;
        self.unit *= self.growth;
        if self.unit > UNIT_MAX {
            self.rescale();
        }
    }

    #[cold]
    fn rescale(&mut self) {
        let scale = 1.0 / self.unit;
        self.mass.iter_mut().for_each(|mass| *mass *= scale);
        self.total = self.mass.iter().sum();
        self.unit = 1.0;
    }

    /// From now on all earlier gaps together weigh no more than `gaps`.
    pub(crate) fn keep(&mut self, gaps: f32) {
        let scale = gaps / self.total;
        if scale * self.unit < 1.0 {
            self.mass.iter_mut().for_each(|mass| *mass *= scale);
            (self.total, self.unit) = (gaps, 1.0);
        }
    }

    /// The sum of all weights, in gaps.
    pub(crate) fn total(&self) -> f32 {
        self.total / self.unit
    }

    /// The buckets that are not empty: lower edge, upper edge, gaps; ascending.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (f32, f32, f32)> + '_ {
        let scale = 1.0 / self.unit;
        let held = self.mass.iter().enumerate().filter(|(_, mass)| **mass > 0.0);
        held.map(move |(at, mass)| (Self::edge(at), Self::edge(at + 1), mass * scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_lies_within_its_bucket() {
        for gap in [0.0, 0.5, 0.999, 1.0, 1.5, 2.0, 349.9, 350.0, 1e6, 8e6] {
            let bucket = Decaying::bucket(gap);
            assert!(Decaying::edge(bucket) <= gap && gap < Decaying::edge(bucket + 1), "{gap}: {bucket}");
        }
        assert_eq!(Decaying::bucket(1e12), BUCKETS - 1);
        assert_eq!((class_of(0.0), class_of(0.99), class_of(1.0), class_of(350.0)), (0, 0, 1, 9));
        assert_eq!((class_of(f32::MAX), class_of(f32::INFINITY)), (CLASSES - 1, CLASSES - 1));
    }

    #[test]
    fn old_gaps_fade_and_nothing_overflows() {
        let mut histogram = Decaying::new(100.0);
        (0..1_000_000).for_each(|_| histogram.add(10.0, 1.0));
        assert!((histogram.total() - 100.0).abs() < 2.0, "{}", histogram.total());
        (0..1_000).for_each(|_| histogram.add(1000.0, 1.0));
        let held: Vec<_> = histogram.buckets().collect();
        assert!(held[0].2 < 0.01 && held[1].2 > 99.0, "{held:?}");
    }

    #[test]
    fn a_ring_gives_its_last_in_order() {
        let mut ring = Ring::<4>::new();
        let mut out = [0.0; 8];
        assert_eq!(ring.last(8, &mut out), 0);
        (1..=6).for_each(|gap| ring.push(gap as f32));
        assert_eq!(ring.last(8, &mut out), 4);
        assert_eq!(out[..4], [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ring.last(2, &mut out), 2);
        assert_eq!(out[..2], [5.0, 6.0]);
    }
}
