//! Zeroed cache lines of atomic words, on huge pages where the kernel provides them: memory for a table that is
//! read in random order.
#![allow(unsafe_code, reason = "anonymous memory is mapped here and shown as atomic words")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Words of a cache line.
const WORDS: usize = 8;

/// A cache line of words.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line(pub [AtomicU64; WORDS]);

/// A fixed number of lines, all zero at first. With small pages, most reads of a large table would also miss the
/// TLB.
#[derive(Debug)]
pub struct Lines {
    base: NonNull<Line>,
    count: usize,
}

// SAFETY: the memory is plain and without thread affinity, and only shown as atomic words.
unsafe impl Send for Lines {}
// SAFETY: as above: `&Lines` gives out nothing but atomic words.
unsafe impl Sync for Lines {}

impl Lines {
    /// Allocates all of them and touches each page, so that no later access waits for the kernel.
    ///
    /// # Errors
    /// What `mmap(2)` returns: `ENOMEM`, or `EINVAL` for none.
    pub fn new(count: usize) -> Result<Self, Errno> {
        let bytes = count.checked_mul(size_of::<Line>()).ok_or(Errno::NOMEM)?;
        // SAFETY: a null hint lets the kernel choose an address that no other mapping has.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let base = NonNull::new(base.cast::<Line>()).ok_or(Errno::NOMEM)?;
        let lines = Self { base, count };
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontFork] {
            // SAFETY: the range is exactly the mapping just made. It is advice: a refusal changes nothing but speed.
            let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), bytes, advice) };
        }
        lines.as_slice().iter().for_each(|line| line.0[0].store(0, Ordering::Relaxed));
        Ok(lines)
    }

    /// The lines.
    #[inline]
    #[must_use]
    pub const fn as_slice(&self) -> &[Line] {
        // SAFETY: the mapping is so long, aligned to a page, and stays for as long as `self`. Its bytes were zeroed by
        // the kernel, which is a valid value of an atomic word, and are accessed as such only.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let bytes = size_of_val(self.as_slice());
        // SAFETY: this is the range that was mapped, and `self` was its only owner.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_zero_aligned_and_written_by_any_thread() {
        let lines = Lines::new(100_000).expect("memory");
        assert_eq!(lines.as_slice().len(), 100_000);
        assert!(
            lines.as_slice().iter().all(|line| line.0.iter().all(|word| word.load(Ordering::Relaxed) == 0))
        );
        assert_eq!(lines.as_slice().as_ptr().align_offset(64), 0);
        let (first, last) = lines.as_slice().split_at(50_000);
        std::thread::scope(|scope| {
            for half in [first, last] {
                scope.spawn(|| half.iter().for_each(|line| line.0[7].store(1, Ordering::Relaxed)));
            }
        });
        assert!(lines.as_slice().iter().all(|line| line.0[7].load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn what_does_not_fit_into_memory_is_an_error() {
        assert_eq!(Lines::new(usize::MAX).map(|_| ()), Err(Errno::NOMEM));
        assert_eq!(Lines::new(usize::MAX / 128).map(|_| ()), Err(Errno::NOMEM));
        assert_eq!(Lines::new(0).map(|_| ()), Err(Errno::INVAL));
    }
}
