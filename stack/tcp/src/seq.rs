//! Sequence numbers (RFC 9293 section 3.4): numbers modulo 2^32, compared within half of the space.

use core::ops::{Add, AddAssign, Sub};

/// A sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether it comes before `other`.
    #[inline]
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether it comes behind `other`.
    #[inline]
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// The earlier of two.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }

    /// The later of two.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.after(other) { self } else { other }
    }

    /// The distance from an earlier number; 0 if `earlier` comes behind.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        if earlier.before(self) { self.0.wrapping_sub(earlier.0) } else { 0 }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl Sub for Seq {
    type Output = u32;

    /// The distance, modulo 2^32.
    #[inline]
    fn sub(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let (old, new) = (Seq(u32::MAX - 1), Seq(3));
        assert!(old.before(new) && new.after(old) && !new.before(old) && !new.before(new));
        assert_eq!((old.min(new), old.max(new)), (old, new));
        assert_eq!((new.since(old), old.since(new), new - old), (5, 0, 5));
    }
}
