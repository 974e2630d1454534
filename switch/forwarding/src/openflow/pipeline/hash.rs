//! Masks, and hashes of keys under them.

use crate::openflow::pipeline::key::{Key, WORDS};

/// The secret with which keys are hashed, a number per word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed([u64; WORDS]);

impl Seed {
    /// Pseudo-random numbers from two random ones (the generator is splitmix64).
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        let mut state = seed[0] ^ seed[1].rotate_left(32);
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31 ^ seed[1]
        }))
    }
}

#[cfg(test)]
impl Seed {
    /// Under it, all values of a mask with one word have the same hash, and many of other masks.
    pub(crate) const WEAK: Self = Self([0; WORDS]);
}

/// Both halves of a product, as one number.
#[inline]
const fn fold(one: u64, two: u64) -> u64 {
    let product = one as u128 * two as u128;
    product as u64 ^ (product >> 64) as u64
}

const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;

/// Mixes a number so that all bits of the result depend on it.
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    fold(number ^ 0xd6e8_feb8_6659_fd93, FACTOR)
}

/// Bits of a key that are compared, and which words have any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    key: Key,
    /// The numbers of the words with any bits; the first `len` count.
    words: [u8; WORDS],
    /// Their bits, in the same order.
    bits: [u64; WORDS],
    len: u8,
}

impl Mask {
    pub(crate) fn new(key: Key) -> Self {
        let (mut words, mut bits, mut len) = ([0; WORDS], [0; WORDS], 0);
        for (number, own) in key.0.iter().enumerate() {
            if *own != 0 {
                (words[len], bits[len]) = (number as u8, *own);
                len += 1;
            }
        }
        Self { key, words, bits, len: len as u8 }
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.key
    }

    /// A hash of the bits that count. Each product is of two words, and waits for no other.
    #[inline]
    pub(crate) fn hash(&self, key: &Key, seed: &Seed) -> u64 {
        // Behind the last word there are no bits.
        let of = |at: usize| key.0[usize::from(self.words[at]) % WORDS] & self.bits[at] ^ seed.0[at];
        let mut sum = 0_u64;
        for pair in 0..usize::from(self.len).div_ceil(2) {
            // The remainder changes nothing, but tells the compiler that the number of words is within this bound.
            let at = pair % (WORDS / 2) * 2;
            sum = sum.wrapping_add(fold(of(at), of(at + 1)));
        }
        mix(sum)
    }

    /// How many words it has bits of.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    /// The numbers of the words that it has bits of, in its order.
    pub(crate) fn words(&self) -> impl Iterator<Item = usize> {
        self.words.iter().take(self.len.into()).map(|word| usize::from(*word))
    }

    /// Whether a key has these values in the words that the mask has bits of, from a number of such words on. Words
    /// behind the last one have no bits.
    #[inline]
    pub(crate) fn matches<const N: usize>(&self, key: &Key, values: &[u64; N], from: usize) -> bool {
        let mut differs = 0;
        for (at, value) in values.iter().enumerate() {
            let at = (from + at) % WORDS;
            differs |= key.0[usize::from(self.words[at]) % WORDS] & self.bits[at] ^ value;
        }
        differs == 0
    }

    /// As [`Self::matches`], but compares the bits of `part` alone.
    #[inline]
    pub(crate) fn agrees<const N: usize>(
        &self,
        key: &Key,
        values: &[u64; N],
        from: usize,
        part: &Self,
    ) -> bool {
        let mut differs = 0;
        for (at, value) in values.iter().enumerate() {
            let at = (from + at) % WORDS;
            let word = usize::from(self.words[at]) % WORDS;
            differs |= (key.0[word] & self.bits[at] ^ value) & part.key.0[word];
        }
        differs == 0
    }

    /// Whether two keys are equal in its bits.
    #[inline]
    pub(crate) fn agree(&self, one: &Key, other: &Key) -> bool {
        let words = self.words.iter().zip(&self.bits).take(self.len.into());
        words.fold(0, |differs, (word, bits)| {
            let word = usize::from(*word) % WORDS;
            differs | (one.0[word] ^ other.0[word]) & bits
        }) == 0
    }

    /// Whether all its bits are in `other`.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.key.0.iter().zip(other.key.0).all(|(own, other)| own & !other == 0)
    }

    /// The bits that both have.
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self::new(Key(std::array::from_fn(|word| self.key.0[word] & other.key.0[word])))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn bits(&self) -> u32 {
        self.key.0.iter().map(|bits| bits.count_ones()).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_bits_of_the_mask_count() {
        let mask = Mask::new(Key(std::array::from_fn(|word| if word % 3 == 0 { 0xff00 } else { 0 })));
        let seed = Seed::new([1, 2]);
        let one = Key(std::array::from_fn(|word| word as u64 * 0x0123_4567));
        let other = Key(std::array::from_fn(|word| if word % 3 == 0 { one.0[word] ^ 0xff } else { 7 }));
        assert_eq!(mask.hash(&one, &seed), mask.hash(&other, &seed));
        let values: [u64; WORDS] =
            std::array::from_fn(|at| one.0[usize::from(mask.words[at])] & mask.bits[at]);
        assert!(mask.matches(&one, &values, 0) && mask.matches(&other, &values, 0));
        assert!(mask.matches(&other, &[values[2], values[3]], 2));
        let mut differs = one;
        differs.0[9] ^= 0x100;
        assert!(!mask.matches(&differs, &values, 0));
        assert_ne!(mask.hash(&one, &seed), mask.hash(&differs, &seed));
    }

    #[test]
    fn a_mask_is_within_another_that_has_its_bits() {
        let mask = |bits: u64| Mask::new(Key([bits; WORDS]));
        assert!(mask(6).is_within(&mask(7)) && !mask(6).is_within(&mask(3)));
        assert_eq!(mask(6).common(&mask(3)), mask(2));
        assert_eq!((mask(6).bits(), mask(0).is_empty(), mask(1).is_empty()), (2 * WORDS as u32, true, false));
    }
}
