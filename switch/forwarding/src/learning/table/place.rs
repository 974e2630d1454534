//! Where an address may be in the table, and back: which address stands at a place.
//!
//! An address and its VLAN are one number of 60 bits. Its lower bits are the number of its bucket, each exclusive-or
//! a bit of a keyed hash of the upper ones (one round of a Feistel network), so that
//!
//! - a bucket's number and the upper bits give the address back: an entry stores only the upper bits, and has room for the
//!   port in the same word;
//! - addresses that follow one another, as those of one maker's cards do, never meet in a bucket;
//! - which others meet depends on the hash, SipHash-1-3 with a secret key: nobody can choose addresses that do.

/// Bits of an address with its VLAN.
const KEY_BITS: u32 = 60;
const MAC_BITS: u32 = 48;

/// Minimum and maximum number of buckets, in bits: with fewer, the rest of an address would not fit beside its port.
pub(crate) const BITS_MIN: u32 = 11;
pub(crate) const BITS_MAX: u32 = 21;

/// The two buckets in which an address may be, and what is stored of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) upper: u64,
    pub(crate) buckets: [u32; 2],
}

/// SipHash-1-3 of one word. Written out, as it takes a third of a look-up; a library's version handles any number of
/// bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipHash13([u64; 4]);

impl SipHash13 {
    pub(crate) fn new([k0, k1]: [u64; 2]) -> Self {
        let start =
            [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];
        Self([start[0] ^ k0, start[1] ^ k1, start[2] ^ k0, start[3] ^ k1])
    }

    #[inline]
    pub(crate) fn hash(self, word: u64) -> u64 {
        /// The last block has the length in bytes on top.
        const LAST: u64 = 8 << 56;
        let Self([v0, v1, v2, v3]) = self;
        let [v0, v1, v2, v3] = round([v0, v1, v2, v3 ^ word]);
        let [v0, v1, v2, v3] = round([v0 ^ word, v1, v2, v3 ^ LAST]);
        let [v0, v1, v2, v3] = round(round(round([v0 ^ LAST, v1, v2 ^ 0xff, v3])));
        v0 ^ v1 ^ v2 ^ v3
    }
}

#[inline]
fn round([mut v0, mut v1, mut v2, mut v3]: [u64; 4]) -> [u64; 4] {
    v0 = v0.wrapping_add(v1);
    v2 = v2.wrapping_add(v3);
    v1 = v1.rotate_left(13) ^ v0;
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.rotate_left(32).wrapping_add(v3);
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v3 = v3.rotate_left(21) ^ v0;
    [v0, v1, v2.rotate_left(32), v3]
}

/// Finds places, with a secret key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    hasher: SipHash13,
    bits: u32,
}

impl Places {
    pub(crate) fn new(seed: [u64; 2], bits: u32) -> Self {
        Self { hasher: SipHash13::new(seed), bits }
    }

    /// The two values that the lower bits are mixed with; they differ, so that the two buckets do.
    #[inline]
    fn mixed(&self, upper: u64) -> [u32; 2] {
        let hash = self.hasher.hash(upper);
        let mask = (1_u32 << self.bits) - 1;
        let (first, second) = (hash as u32 & mask, (hash >> 32) as u32 & mask);
        [first, if first == second { second ^ 1 } else { second }]
    }

    /// The place of an address: 48 bits, and 12 bits of VLAN.
    #[inline]
    pub(crate) fn of(&self, mac: u64, vlan: u16) -> Place {
        let key = u64::from(vlan & 0xfff) << MAC_BITS | mac & ((1 << MAC_BITS) - 1);
        let (upper, lower) = (key >> self.bits, key as u32 & ((1 << self.bits) - 1));
        // Written out, as it is not inlined otherwise.
        let [first, second] = self.mixed(upper);
        Place { upper, buckets: [lower ^ first, lower ^ second] }
    }

    /// The address and VLAN whose `choice`th bucket is `bucket`.
    pub(crate) fn back(&self, upper: u64, bucket: u32, choice: usize) -> (u64, u16) {
        let lower = bucket ^ self.mixed(upper)[choice];
        let key = upper << self.bits | u64::from(lower);
        debug_assert!(key >> KEY_BITS == 0, "an address and its VLAN have 60 bits");
        (key & ((1 << MAC_BITS) - 1), (key >> MAC_BITS) as u16)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_hash_is_that_of_the_library(seed in any::<[u64; 2]>(), word in any::<u64>()) {
            let library = siphasher::sip::SipHasher13::new_with_keys(seed[0], seed[1]);
            prop_assert_eq!(SipHash13::new(seed).hash(word), library.hash(&word.to_le_bytes()));
        }

        #[test]
        fn a_place_gives_its_address_back(
            mac in 0..1_u64 << MAC_BITS,
            vlan in 0..4096_u16,
            bits in BITS_MIN..=BITS_MAX,
            seed in any::<[u64; 2]>(),
        ) {
            let places = Places::new(seed, bits);
            let place = places.of(mac, vlan);
            prop_assert!(place.buckets[0] != place.buckets[1]);
            for (choice, bucket) in place.buckets.into_iter().enumerate() {
                prop_assert!(bucket >> bits == 0);
                prop_assert_eq!(places.back(place.upper, bucket, choice), (mac, vlan));
            }
        }
    }

    #[test]
    fn consecutive_addresses_have_a_bucket_each() {
        let places = Places::new([1, 2], BITS_MIN);
        let buckets: HashSet<_> =
            (0..1 << BITS_MIN).map(|low| places.of(0x0200_0000_0000 + low, 1).buckets[0]).collect();
        assert_eq!(buckets.len(), 1 << BITS_MIN);
    }
}
