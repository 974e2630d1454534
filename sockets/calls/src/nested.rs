//! Sets of `epoll(7)` that are in other sets. A thread that waits for the outer one is told by the kernel alone, so nothing may stay in
//! rings of sockets in the inner one.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::c_int;

use crate::table::DESCRIPTORS;

/// A bit for each descriptor that was a set when it was made.
static SETS: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
/// A bit for each of them that is in another one.
static NESTED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

/// For each descriptor that is a duplicate of a set's, the number by which the set is known, plus one; 0 for all
/// others. tokio, for one, waits for its set by one descriptor and puts sockets into it by another.
static KNOWN_BY: [AtomicI32; DESCRIPTORS] = [const { AtomicI32::new(0) }; DESCRIPTORS];
/// A bit for each number by which a set is known that has, or had, further descriptors.
static DUPLICATED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

fn known_by(set: c_int) -> Option<&'static AtomicI32> {
    KNOWN_BY.get(usize::try_from(set).ok()?)
}

/// The number by which a set is known.
#[inline]
pub(crate) fn first_of(set: c_int) -> c_int {
    match known_by(set).map_or(0, |known_by| known_by.load(Ordering::Acquire)) {
        0 => set,
        known_by => known_by - 1,
    }
}

/// Whether a set had several descriptors, and this was one of them.
#[inline]
#[must_use]
pub(crate) fn is_one_of_several(set: c_int) -> bool {
    known_by(set).is_some_and(|known_by| known_by.load(Ordering::Relaxed) != 0)
        || is(&DUPLICATED, set) == Some(true)
}

/// `new` is a descriptor of the set, too. Returns whether that can be kept in mind.
pub(crate) fn duplicated(set: c_int, new: c_int) -> bool {
    let of = first_of(set);
    let (Some(known_by), Some((duplicated, bit)), Some((sets, new_bit))) =
        (known_by(new), word_of(&DUPLICATED, of), word_of(&SETS, new))
    else {
        return false;
    };
    duplicated.fetch_or(bit, Ordering::Relaxed);
    sets.fetch_or(new_bit, Ordering::Relaxed);
    known_by.store(of + 1, Ordering::Release);
    true
}

/// The descriptor is closed. Returns the number by which its set is known from now on, if that is another one; `Some(None)` if the set goes
/// on as it is.
pub(crate) fn goes_on(set: c_int) -> Option<Option<c_int>> {
    let known_by = known_by(set)?;
    if known_by.swap(0, Ordering::AcqRel) != 0 {
        return Some(None);
    }
    let (duplicated, bit) = word_of(&DUPLICATED, set)?;
    if duplicated.fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
        return None;
    }
    let mut next = None;
    for (number, other) in (0..).zip(&KNOWN_BY) {
        if other.load(Ordering::Acquire) != set + 1 {
            continue;
        }
        // The lowest one stands for the others.
        let known_by = next.map_or(0, |next: c_int| next + 1);
        other.store(known_by, Ordering::Release);
        if known_by == 0 {
            next = Some(number);
        } else if let Some((duplicated, bit)) = word_of(&DUPLICATED, known_by - 1) {
            duplicated.fetch_or(bit, Ordering::Relaxed);
        }
    }
    let next = next?;
    if may_be_nested(set) {
        put(next);
    }
    Some(Some(next))
}

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
    known_by(set).inspect(|known_by| known_by.store(0, Ordering::Release));
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

/// Whether the descriptor was that of a set when it was made, and has no other meaning as far as is known.
#[inline]
#[must_use]
pub fn was_set(descriptor: c_int) -> bool {
    is(&SETS, descriptor) == Some(true)
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
