//! Sets of `epoll(7)` that are in other sets. A thread that waits for the outer one is told by the kernel alone, so nothing may stay in
//! rings of sockets in the inner one.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use crate::table::DESCRIPTORS;

/// A bit for each descriptor that was a set when it was made.
static SETS: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
/// A bit for each of them that is in another one.
static NESTED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

fn word_of(words: &'static [AtomicU64], set: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(set).ok()?;
    words.get(number / 64).map(|word| (word, 1 << (number % 64)))
}

/// Whether the bit is set; `None` for a number that has none.
fn is(words: &'static [AtomicU64], set: c_int) -> Option<bool> {
    word_of(words, set).map(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// A set was made, which is in no other one.
pub(crate) fn made(set: c_int) {
    if let Some((word, bit)) = word_of(&SETS, set) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    if let Some((word, bit)) = word_of(&NESTED, set) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Whether the descriptor may be that of a set.
#[inline]
#[must_use]
pub fn may_be_set(descriptor: c_int) -> bool {
    is(&SETS, descriptor) != Some(false)
}

/// The set was put into another one.
pub(crate) fn put(set: c_int) {
    if let Some((word, bit)) = word_of(&NESTED, set) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Whether the set may be in another one.
pub(crate) fn may_be_nested(set: c_int) -> bool {
    is(&NESTED, set) != Some(false)
}
