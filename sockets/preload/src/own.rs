//! The descriptors of this library, which the program knows nothing of: programs that close every descriptor from some number on must
//! not close them.
#![allow(unsafe_code, reason = "descriptors are asked for their kind by pointers")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use twinpath_calls::table::DESCRIPTORS;

use crate::preloader;

/// More than a process has: a connection to the owner of each interface.
const MOST: usize = 32;

/// A descriptor in the upper half. In the lower half is the lower half of its inode, by which it is recognised.
static OWN: [AtomicU64; MOST] = [const { AtomicU64::new(FREE) }; MOST];
const FREE: u64 = u64::MAX;
/// The program has taken the number for itself: what the library had there is gone, but the library does not know it.
const TAKEN: u64 = 1 << 63;

/// A bit for each number that the library has had a descriptor at.
static EVER_OWN: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

thread_local! {
    /// Where no [`preloader`] has a word for it: a library that is loaded later has such memory only after an allocation.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it exists, calls of this thread are the library's, and not the program's.
pub(crate) struct Inside {
    was_inside: bool,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        Self { was_inside: replace_inside(true) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        replace_inside(self.was_inside);
    }
}

pub(crate) fn is_inside() -> bool {
    preloader::is_inside().unwrap_or_else(|| INSIDE.get())
}

fn replace_inside(is: bool) -> bool {
    preloader::replace_inside(is).unwrap_or_else(|| INSIDE.replace(is))
}

/// A descriptor is about to be closed. Returns whether that must not be done: it is the library's and the program closes it, or the
/// other way around.
pub(crate) fn refuses(descriptor: c_int) -> bool {
    if is_inside() {
        let was_taken = leave(descriptor, |own| own & TAKEN != 0);
        leave(descriptor, |_| true);
        return was_taken;
    }
    is_own(descriptor)
}

/// Whether the descriptor is this library's.
fn is_own(descriptor: c_int) -> bool {
    let Some(own) = find(descriptor).map(|own| own.load(Ordering::Relaxed)).find(|own| own & TAKEN == 0)
    else {
        return false;
    };
    if inode(descriptor) == Some(own as u32) {
        return true;
    }
    // It was closed by a call that is not hooked, and the number has another meaning now.
    leave(descriptor, |other| other == own);
    false
}

fn find(descriptor: c_int) -> impl Iterator<Item = &'static AtomicU64> {
    let is_it = move |own: &&AtomicU64| {
        let own = own.load(Ordering::Relaxed);
        own != FREE && (own & !TAKEN) >> 32 == descriptor as u64
    };
    OWN.iter().filter(is_it)
}

/// Returns whether there was one.
fn leave(descriptor: c_int, is_it: impl Fn(u64) -> bool) -> bool {
    let left = find(descriptor).filter(|own| {
        let before = own.load(Ordering::Relaxed);
        is_it(before) && own.compare_exchange(before, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    left.count() > 0
}

/// The program has taken the number for itself: what the library had there is gone.
pub(crate) fn is_taken(descriptor: c_int) {
    find(descriptor).for_each(|own| {
        own.fetch_or(TAKEN, Ordering::AcqRel);
    });
}

/// Whether anything is, or was, known of a descriptor with that number.
#[inline]
pub(crate) fn may_be_known(descriptor: c_int) -> bool {
    word_of(&EVER_OWN, descriptor).is_some_and(|(own, bit)| own.load(Ordering::Relaxed) & bit != 0)
}

/// As [`may_be_known`], of any of the 64 numbers from 64 times `word` on.
#[inline]
pub(crate) fn may_be_known_in(word: usize) -> bool {
    EVER_OWN.get(word).is_some_and(|own| own.load(Ordering::Relaxed) != 0)
}

#[inline]
fn word_of(words: &'static [AtomicU64], descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    words.get(number / 64).map(|word| (word, 1 << (number % 64)))
}

/// In a child: what it has of the parent's may be closed.
pub(crate) fn forget() {
    OWN.iter().for_each(|own| own.store(FREE, Ordering::Relaxed));
}

/// The descriptor is this library's.
pub(crate) fn remember(descriptor: c_int) {
    let Some(inode) = inode(descriptor) else { return };
    let value = (descriptor as u64) << 32 | u64::from(inode);
    if find(descriptor).any(|own| own.load(Ordering::Relaxed) == value) {
        return;
    }
    if let Some((word, bit)) = word_of(&EVER_OWN, descriptor) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    let free =
        |own: &&AtomicU64| own.compare_exchange(FREE, value, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // If there is no room for it, the program may close it.
    let _ = OWN.iter().find(free);
}

fn status_of(descriptor: c_int) -> Option<libc::stat> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for it.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it, and zeros are valid as well.
    Some(unsafe { status.assume_init() })
}

/// Device and inode of the file that a descriptor is of. It does not allocate.
pub(crate) fn file_of(descriptor: c_int) -> Option<[u64; 2]> {
    status_of(descriptor).map(|status| [status.st_dev, status.st_ino])
}

/// The lower half of a descriptor's inode. It does not allocate.
fn inode(descriptor: c_int) -> Option<u32> {
    status_of(descriptor).map(|status| status.st_ino as u32)
}
