//! Names of state, and their generations.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of generations of a service, a power of two.
pub const GENERATIONS: usize = 16_384;

/// The memory of a service's generations: shared with the program that repeats replies, or a plain array if there
/// is none.
pub trait Generations: Send + Sync {
    /// All of its words. They may start at any values, and change only as [`withdraw`] changes them.
    fn words(&self) -> &[AtomicU64; GENERATIONS];
}

impl Generations for Box<[AtomicU64; GENERATIONS]> {
    fn words(&self) -> &[AtomicU64; GENERATIONS] {
        self
    }
}

/// Generations in private memory, for a program in the same process.
#[must_use]
pub fn generations() -> Box<[AtomicU64; GENERATIONS]> {
    Box::new([const { AtomicU64::new(0) }; GENERATIONS])
}

/// A name of state from which replies are made, such as a key or a file handle. A service chooses its names; they
/// have no meaning outside of it. Several names may share one generation. Withdrawing one then withdraws the
/// others, which costs some replies their entry, and nothing else. Which names share one is not secret: if clients
/// can choose and withdraw names, a client that does so continuously can keep another name's replies with the
/// worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(u32);

impl Name {
    /// The name for these bytes.
    ///
    /// The 64-bit FNV-1a hash, mixed once more because names differ in their last bytes.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        Self::numbered(hash)
    }

    /// The name for this number.
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        let mixed = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self((mixed >> (u64::BITS - GENERATIONS.trailing_zeros())) as u32)
    }

    /// The index of its generation among a service's, below [`GENERATIONS`].
    #[must_use]
    pub const fn place(self) -> u32 {
        self.0
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Self::of(bytes)
    }
}

impl From<u64> for Name {
    fn from(number: u64) -> Self {
        Self::numbered(number)
    }
}

/// The generation of a name, as it was before the state for a reply was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    name: Name,
    generation: u64,
}

impl Version {
    /// For use where nothing is kept.
    pub const NONE: Self = Self { name: Name(0), generation: 0 };

    /// The present version of a name. State that is read after this call has this version or a later one.
    #[inline]
    #[must_use]
    pub fn now(words: &[AtomicU64; GENERATIONS], name: Name) -> Self {
        // With acquire ordering, state that is read afterwards is at least as new as the last withdrawal seen here.
        Self { name, generation: words[name.0 as usize].load(Ordering::Acquire) }
    }

    /// The version with this generation, of the name at this index.
    #[must_use]
    pub const fn of(place: u32, generation: u64) -> Self {
        Self { name: Name(place % GENERATIONS as u32), generation }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> Name {
        self.name
    }

    /// Its generation: entries with any other than the present one are void.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.generation
    }

    /// Whether the name has not been withdrawn since.
    #[inline]
    #[must_use]
    pub fn is_current(self, words: &[AtomicU64; GENERATIONS]) -> bool {
        words[self.name.0 as usize].load(Ordering::Acquire) == self.generation
    }
}

/// Makes all replies void that were made from state of this name before this call, including those that are not
/// published yet. To be called after the state has changed, and before anybody is told of the change.
#[inline]
pub fn withdraw(words: &[AtomicU64; GENERATIONS], name: Name) {
    // The release half: the change is visible to all threads that read the new generation.
    words[name.0 as usize].fetch_add(1, Ordering::SeqCst);
    // The increment alone does not order what is stored after it, such as the reply that tells of the change.
    fence(Ordering::SeqCst);
}

/// [`withdraw`] for every name.
pub fn withdraw_all(words: &[AtomicU64; GENERATIONS]) {
    for word in words {
        word.fetch_add(1, Ordering::SeqCst);
    }
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_current_until_its_name_is_withdrawn() {
        let words = generations();
        let words = words.words();
        let (name, other) = (Name::of(b"a key"), Name::of(b"another key"));
        let before = Version::now(words, name);
        assert!(before.is_current(words));
        withdraw(words, other);
        assert!(before.is_current(words), "of another name");
        withdraw(words, name);
        assert!(!before.is_current(words));
        let now = Version::now(words, name);
        assert!(now.is_current(words));
        assert_eq!((now.name(), now.generation()), (name, before.generation() + 1));
        withdraw_all(words);
        assert!(!now.is_current(words));
    }

    #[test]
    fn names_are_spread_over_the_generations() {
        let mut counts = vec![0_u32; GENERATIONS];
        for number in 0..GENERATIONS {
            counts[Name::numbered(number as u64).place() as usize] += 1;
            counts[Name::of(format!("key-{number}").as_bytes()).place() as usize] += 1;
        }
        // 2 names per generation on average.
        assert!(counts.iter().all(|count| *count <= 12), "{:?}", counts.iter().max());
        assert!(counts.iter().filter(|count| **count == 0).count() < GENERATIONS / 5);
    }
}
