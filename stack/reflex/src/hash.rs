//! The hash of a request, which determines the place of its entry in the table.
//!
//! It decides nothing: all bytes that matter of an entry found by it are compared. A BPF program can compute it in
//! a bounded loop, with one multiplication per 8 bytes.
//!
//! It sums products in which each half of each word has a secret of its own (NH of UMAC, Black et al. 1999; RFC
//! 4418 section 5.2). If the secrets are unknown, any two different requests of one length have the same sum with a
//! probability of 2^-32. So nobody can choose requests that share one.

use crate::limits::REQUEST_WORDS;
use crate::shape::Shape;

/// 2^64 divided by the golden ratio, odd.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes each bit into those above it, and the upper half into the lower one; a bijection.
const fn mix(word: u64) -> u64 {
    let product = word.wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}

/// The secrets of a table's hash.
#[derive(Clone, Debug)]
pub struct HashKeys {
    seed: u64,
    words: [u64; REQUEST_WORDS],
}

impl HashKeys {
    /// Secrets made from a seed, which no peer should be able to guess: the outputs of `SplitMix64` started with
    /// it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let words = std::array::from_fn(|_| {
            state = state.wrapping_add(MULTIPLIER);
            let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        });
        Self { seed, words }
    }

    /// The seed of the secrets.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The secret of each word of a request.
    #[must_use]
    pub const fn words(&self) -> &[u64; REQUEST_WORDS] {
        &self.words
    }
}

/// The hash of `request` for shape number `number` of a service, with the shape's varying bytes as zero.
///
/// With all arithmetic modulo 2^64 and `mix(x) = (x * 0x9e3779b97f4a7c15) ^ ((x * 0x9e3779b97f4a7c15) >> 32)`:
/// `sum = mix(seed ^ service << 32 ^ number << 16 ^ length)`, and then, for each 8 bytes of the request as a
/// little-endian word (the last one filled up with zeros) and the key of its place,
/// `sum += (lower(word) + lower(key)) * (upper(word) + upper(key))`, where the halves are added modulo 2^32; the hash is
/// `mix(mix(sum))`. `length` is in bytes. A request that is longer than [`REQUEST_MAX`](crate::REQUEST_MAX) has no entry;
/// its hash is that of its first bytes.
///
/// ```
/// use twinpath_reflex::{HashKeys, Shape, hash};
///
/// const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
/// let keys = HashKeys::new(1);
/// assert_eq!(hash(&keys, 2, 3, &BY_ID, b"\x12\x34 a query"), hash(&keys, 2, 3, &BY_ID, b"\x56\x78 a query"));
/// ```
#[must_use]
pub fn hash(keys: &HashKeys, service: u32, number: u8, shape: &Shape, request: &[u8]) -> u64 {
    let first = keys.seed ^ u64::from(service) << 32 ^ u64::from(number) << 16 ^ request.len() as u64;
    let words = request.chunks(8).zip(&keys.words).enumerate();
    let products = words.map(|(at, (bytes, key))| product(word(bytes) & shape.mask(at), *key));
    mix(mix(products.fold(mix(first), u64::wrapping_add)))
}

/// The product of the halves of a word, with a secret added to each.
const fn product(word: u64, key: u64) -> u64 {
    let lower = (word as u32).wrapping_add(key as u32);
    let upper = ((word >> 32) as u32).wrapping_add((key >> 32) as u32);
    lower as u64 * upper as u64
}

/// Up to 8 bytes as a little-endian word, with zeros behind them.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Seed, service, number of the shape, the shape, the request, and its hash.
    type Vector = (u64, u32, u8, Shape, &'static [u8], u64);

    /// Vectors for other implementations, such as the one in C.
    #[test]
    fn it_is_what_the_vectors_say() {
        const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
        const STAMPED: Shape = Shape::EXACT.copying(0, 4, 0).ignoring(32, 4);
        let long: Vec<u8> = (0..=255).collect();
        let long: &'static [u8] = long.leak();
        let vectors: [Vector; 6] = [
            (0, 0, 0, Shape::EXACT, b"", 0x0000_0000_0000_0000),
            (0, 0, 0, Shape::EXACT, b"a", 0x37c0_0666_0f52_af0d),
            (0, 0, 0, Shape::EXACT, b"a\0", 0xfa7b_f735_664a_5623),
            (0x0123_4567_89ab_cdef, 5, 1, BY_ID, b"\xde\xad\x01\x00a query", 0x7a78_0e9d_673a_aad2),
            (0x0123_4567_89ab_cdef, 5, 2, STAMPED, &long[..40], 0x060c_fed0_5839_399b),
            (0x0123_4567_89ab_cdef, 5, 2, STAMPED, long, 0xdf17_5abc_ccdd_3cb3),
        ];
        for (row, (seed, service, number, shape, request, expected)) in vectors.into_iter().enumerate() {
            let found = hash(&HashKeys::new(seed), service, number, &shape, request);
            assert_eq!(found, expected, "row {row}: {found:#018x}");
        }
    }

    #[test]
    fn requests_that_differ_in_one_place_have_hashes_that_differ() {
        let keys = HashKeys::new(7);
        let mut hashes = BTreeSet::new();
        let mut request = [0x5a_u8; 64];
        for at in 0..request.len() {
            for bit in 0..8 {
                request[at] ^= 1 << bit;
                assert!(hashes.insert(hash(&keys, 0, 0, &Shape::EXACT, &request)), "byte {at}, bit {bit}");
                request[at] ^= 1 << bit;
            }
        }
        // Of 512 hashes, only a few fall into each of the 512 places of a default table.
        let mut places = vec![0; 512];
        hashes.iter().for_each(|hash| places[(hash % 512) as usize] += 1);
        assert!(places.iter().all(|count| *count < 10), "{:?}", places.iter().max());
    }

    /// Differences that collide, for all secrets, in a hash whose words go through one state without secrets of their own.
    #[test]
    fn no_difference_collides_for_all_secrets() {
        let flips = [[63, 31, 63], [31, 63, 31], [63, 63, 31], [31, 31, 63]];
        let mut collisions = 0;
        for seed in 0..4000_u64 {
            let (keys, mut request) = (HashKeys::new(seed), [0x41_u8; 24]);
            let before = hash(&keys, 1, 0, &Shape::EXACT, &request);
            for (word, bit) in flips[seed as usize % 4].into_iter().enumerate() {
                request[word * 8 + bit / 8] ^= 1 << (bit % 8);
            }
            let after = hash(&keys, 1, 0, &Shape::EXACT, &request);
            assert_ne!(before, after, "seed {seed}");
            collisions += u32::from(before % 512 == after % 512);
        }
        // One in 512 is to be expected.
        assert!(collisions < 30, "{collisions}");
    }
}
