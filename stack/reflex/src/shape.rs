//! The bytes of a request that do not matter.

use crate::limits::{REPLY_MAX, REQUEST_MAX, VARYING_MAX};

/// A range of bytes of a request that may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Varying {
    /// The first one, counted from the start of the request.
    pub start: u16,
    /// How many, at least 1.
    pub len: u16,
    /// Where the reply repeats them; `None` if it does not.
    pub copy_to: Option<u16>,
}

impl Varying {
    const NONE: Self = Self { start: 0, len: 0, copy_to: None };

    const fn end(self) -> usize {
        self.start as usize + self.len as usize
    }
}

/// Which bytes of a request may be anything, and where the reply repeats them. All others must be equal.
///
/// ```
/// use twinpath_reflex::Shape;
///
/// /// DNS: the reply has the ID of the query (RFC 1035, 4.1.1).
/// const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
/// /// RPC with AUTH_SYS: the reply has the xid; the credential's stamp is arbitrary (RFC 5531, 9 and Appendix A).
/// const STAMPED: Shape = Shape::EXACT.copying(0, 4, 0).ignoring(32, 4);
/// assert_eq!((BY_ID.varying().len(), STAMPED.varying().len()), (1, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    varying: [Varying; VARYING_MAX],
    count: u8,
}

impl Shape {
    /// Every byte matters.
    pub const EXACT: Self = Self { varying: [Varying::NONE; VARYING_MAX], count: 0 };

    /// The same shape, where `len` bytes from `start` on vary as well, and the reply repeats them from `to` on.
    ///
    /// # Panics
    /// The shape is not possible: no bytes, bytes beyond the limit of an entry, bytes that vary already, positions
    /// of the reply that are written already, or more than [`VARYING_MAX`] ranges. In a constant, the compiler
    /// reports this.
    #[must_use]
    pub const fn copying(self, start: u16, len: u16, to: u16) -> Self {
        self.with(Varying { start, len, copy_to: Some(to) })
    }

    /// The same shape, where `len` bytes from `start` on vary as well, and the reply does not depend on them.
    ///
    /// # Panics
    /// As [`Self::copying`].
    #[must_use]
    pub const fn ignoring(self, start: u16, len: u16) -> Self {
        self.with(Varying { start, len, copy_to: None })
    }

    const fn with(mut self, new: Varying) -> Self {
        assert!(
            new.len > 0 && new.end() <= REQUEST_MAX,
            "bytes that vary must be there, and within a request"
        );
        assert!((self.count as usize) < VARYING_MAX, "a shape has few ranges that vary");
        if let Some(to) = new.copy_to {
            assert!(to as usize + new.len as usize <= REPLY_MAX, "a copy must be within a reply");
        }
        let mut at = 0;
        while at < self.count as usize {
            let other = self.varying[at];
            assert!(apart(new.start, other.start, new.len, other.len), "each byte varies once");
            if let (Some(to), Some(other_to)) = (new.copy_to, other.copy_to) {
                assert!(apart(to, other_to, new.len, other.len), "each byte of the reply is copied once");
            }
            at += 1;
        }
        self.varying[self.count as usize] = new;
        self.count += 1;
        self
    }

    /// The ranges that vary, in the order in which they were named.
    #[must_use]
    pub fn varying(&self) -> &[Varying] {
        &self.varying[..usize::from(self.count)]
    }

    /// Which bits of word number `at` of a request matter; the request is read as little-endian words of 8 bytes.
    #[must_use]
    pub fn mask(&self, at: usize) -> u64 {
        let bytes: [u8; 8] = std::array::from_fn(|byte| if self.matters(8 * at + byte) { 0xff } else { 0 });
        u64::from_le_bytes(bytes)
    }

    fn matters(&self, at: usize) -> bool {
        !self.varying().iter().any(|range| (usize::from(range.start)..range.end()).contains(&at))
    }

    /// Minimum length of a request that contains all ranges.
    #[must_use]
    pub fn request_min(&self) -> usize {
        self.varying().iter().map(|range| range.end()).max().unwrap_or_default()
    }

    /// Sets the bytes of a request that vary to zero. If a range extends beyond the end, only its part up to there.
    pub fn clear(&self, request: &mut [u8]) {
        for range in self.varying() {
            let end = range.end().min(request.len());
            request.get_mut(usize::from(range.start)..end).unwrap_or_default().fill(0);
        }
    }

    /// The ranges that are copied, each as the request's bytes and their position in the reply. Ranges that are not
    /// completely in the request are left out: see [`Self::request_min`].
    pub fn copies<'a>(&self, request: &'a [u8]) -> impl Iterator<Item = (&'a [u8], usize)> {
        self.varying().iter().filter_map(|range| {
            let bytes = request.get(usize::from(range.start)..range.end())?;
            Some((bytes, usize::from(range.copy_to?)))
        })
    }
}

/// Whether two ranges have no byte in common.
const fn apart(start: u16, other_start: u16, len: u16, other_len: u16) -> bool {
    start as usize + len as usize <= other_start as usize
        || other_start as usize + other_len as usize <= start as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_zero_in_the_key_and_in_the_mask() {
        let shape = Shape::EXACT.copying(1, 3, 0).ignoring(7, 2);
        let mut request = [0xff_u8; 10];
        shape.clear(&mut request);
        assert_eq!(request, [0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0xff]);
        assert_eq!(shape.mask(0).to_le_bytes(), request[..8]);
        assert_eq!(shape.mask(1).to_le_bytes(), [0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(shape.mask(31), u64::MAX);
        let mut short = [0xff_u8; 8];
        shape.clear(&mut short);
        assert_eq!(short[7], 0, "as much as is there");
        assert_eq!(shape.request_min(), 9);
    }

    #[test]
    fn what_is_copied_is_found_in_the_request() {
        let shape = Shape::EXACT.copying(0, 2, 4).ignoring(4, 1).copying(6, 1, 0);
        let copies: Vec<_> = shape.copies(b"abcdefgh").collect();
        assert_eq!(copies, [(&b"ab"[..], 4), (&b"g"[..], 0)]);
        assert_eq!(shape.copies(b"abcdef").count(), 1, "the other one is not there");
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let refused: [fn() -> Shape; 6] = [
            || Shape::EXACT.ignoring(0, 0),
            || Shape::EXACT.ignoring(255, 2),
            || Shape::EXACT.copying(0, 2, 1023),
            || Shape::EXACT.ignoring(0, 4).ignoring(3, 1),
            || Shape::EXACT.copying(0, 2, 0).copying(2, 2, 1),
            || (0..5).fold(Shape::EXACT, |shape, at| shape.ignoring(at, 1)),
        ];
        for (number, make) in refused.iter().enumerate() {
            assert!(std::panic::catch_unwind(make).is_err(), "{number}");
        }
    }
}
