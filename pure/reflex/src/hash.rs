//! The hash of a request, which says where in the table its entry is.
//!
//! It decides nothing: an entry that is found by it is compared in all bytes that matter. It is one that a BPF program
//! computes in a bounded loop, with one multiplication per 8 bytes.

use crate::limits::REQUEST_WORDS;
use crate::shape::Shape;

/// 2^64 divided by the golden ratio, odd.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step: a bijection, so two requests that differ in one word only never have the same hash.
const fn mix(word: u64) -> u64 {
    let product = word.wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}

/// The hash of `request` for shape number `number` of a service, with the shape's varying bytes as zero.
///
/// With all arithmetic modulo 2^64 and `mix(x) = (x * 0x9e3779b97f4a7c15) ^ ((x * 0x9e3779b97f4a7c15) >> 32)`:
/// `h = mix(seed ^ service << 32 ^ number << 16 ^ length)`, and then `h = mix(h ^ word)` for each 8 bytes of the
/// request as a little-endian word, the last one filled up with zeros; the hash is `mix(h)`, so that the last word's
/// upper bits reach the lower ones. `length` is in bytes. A request that is longer than
/// [`REQUEST_MAX`](crate::REQUEST_MAX) has no entry; its hash is that of its first bytes.
///
/// ```
/// use twinpath_reflex::{Shape, hash};
///
/// const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
/// assert_eq!(hash(0, 0, 0, &Shape::EXACT, b""), 0);
/// assert_eq!(hash(1, 0, 0, &Shape::EXACT, b""), 0xab16_9eb8_aeae_59a4);
/// assert_eq!(hash(1, 2, 3, &BY_ID, b"\x12\x34 a query"), hash(1, 2, 3, &BY_ID, b"\x56\x78 a query"));
/// ```
#[must_use]
pub fn hash(seed: u64, service: u32, number: u8, shape: &Shape, request: &[u8]) -> u64 {
    let first = seed ^ u64::from(service) << 32 ^ u64::from(number) << 16 ^ request.len() as u64;
    let words = request.chunks(8).take(REQUEST_WORDS).enumerate();
    mix(words.fold(mix(first), |hash, (at, bytes)| mix(hash ^ word(bytes) & shape.mask(at))))
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
            (0, 0, 0, Shape::EXACT, b"a", 0x1f1b_9e58_e58f_0568),
            (0, 0, 0, Shape::EXACT, b"a\0", 0xb4ce_c829_edc5_fdd4),
            (0x0123_4567_89ab_cdef, 5, 1, BY_ID, b"\xde\xad\x01\x00a query", 0x0771_6f4e_e5e0_0087),
            (0x0123_4567_89ab_cdef, 5, 2, STAMPED, &long[..40], 0xaa23_b2f8_726c_0753),
            (0x0123_4567_89ab_cdef, 5, 2, STAMPED, long, 0xb6d3_fd12_9858_8cd1),
        ];
        for (row, (seed, service, number, shape, request, expected)) in vectors.into_iter().enumerate() {
            let found = hash(seed, service, number, &shape, request);
            assert_eq!(found, expected, "row {row}: {found:#018x}");
        }
    }

    #[test]
    fn requests_that_differ_in_one_place_have_hashes_that_differ() {
        let mut hashes = BTreeSet::new();
        let mut request = [0x5a_u8; 64];
        for at in 0..request.len() {
            for bit in 0..8 {
                request[at] ^= 1 << bit;
                assert!(hashes.insert(hash(7, 0, 0, &Shape::EXACT, &request)), "byte {at}, bit {bit}");
                request[at] ^= 1 << bit;
            }
        }
        // Of 512 hashes each of the 512 places of a default table has few.
        let mut places = vec![0; 512];
        hashes.iter().for_each(|hash| places[(hash % 512) as usize] += 1);
        assert!(places.iter().all(|count| *count < 10), "{:?}", places.iter().max());
    }
}
