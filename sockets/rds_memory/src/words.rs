//! A mapping as words.
#![allow(
    unsafe_code,
    reason = "memory that outlives a process is read and written by atomics, through its address"
)]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fstat;
use rustix::io::Errno;
use twinpath_frame::Mapping;

/// Words that are read and written one by one, and bytes behind them.
#[derive(Debug)]
pub(crate) struct Words {
    mapping: Mapping,
    count: usize,
}

impl Words {
    /// Maps `count` words and `bytes` bytes behind them.
    pub(crate) fn of_fd(fd: impl AsFd, count: usize, bytes: usize) -> Result<Self, Errno> {
        let len = count * 8 + bytes;
        // Less would be a fault at the first use.
        if usize::try_from(fstat(&fd)?.st_size) != Ok(len) {
            return Err(Errno::INVAL);
        }
        Ok(Self { mapping: Mapping::sparse(fd, len)?, count })
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.count);
        // SAFETY: the word is within the mapping, which lives as long as `self`, and aligned, as the mapping is. All access
        // is atomic.
        unsafe { self.mapping.base().add(number * 8).cast::<AtomicU64>().as_ref() }
    }

    pub(crate) fn get(&self, number: usize) -> u64 {
        self.word(number).load(Ordering::Acquire)
    }

    /// What was set before is there for who reads this.
    pub(crate) fn set(&self, number: usize, value: u64) {
        self.word(number).store(value, Ordering::Release);
    }

    /// Bytes behind the words.
    pub(crate) fn bytes(&self, start: usize, len: usize) -> &[u8] {
        self.check(start, len);
        // SAFETY: the range is within the mapping. No other process has the memory but one that only keeps its descriptor, and
        // `&mut self` is needed to write to it.
        unsafe { std::slice::from_raw_parts(self.mapping.base().add(self.count * 8 + start).as_ptr(), len) }
    }

    /// The same, to be written.
    pub(crate) fn bytes_mut(&mut self, start: usize, len: usize) -> &mut [u8] {
        self.check(start, len);
        // SAFETY: as above, and `&mut self` excludes all other access.
        unsafe {
            std::slice::from_raw_parts_mut(self.mapping.base().add(self.count * 8 + start).as_ptr(), len)
        }
    }

    fn check(&self, start: usize, len: usize) {
        let room = self.mapping.len() - self.count * 8;
        assert!(start <= room && len <= room - start);
    }
}
