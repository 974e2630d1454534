//! Buffers that the kernel receives into, and the ring by which it is told which are free.
#![allow(
    unsafe_code,
    reason = "memory shared with the kernel: each block says who may touch it at that moment"
)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::RingError;
use crate::ring::errno;

/// The one group of buffers of a ring.
pub(crate) const GROUP: u16 = 1;

/// Between two buffers: a line more than a power of two, so that their beginnings do not all fall into the same sets of the
/// caches.
const GAP: usize = 64;

/// A buffer that the kernel has filled: until it is given back to the ring it came from it is this owner's alone.
#[derive(Debug)]
#[must_use = "a buffer that is not given back is lost to the ring"]
pub struct Lent {
    id: u16,
    len: u32,
}

impl Lent {
    /// Bytes that were received into it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Anonymous memory, unmapped when dropped.
struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> Result<Self, RingError> {
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapped = unsafe {
            mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        mapped.map(|at| Self { at, bytes }).map_err(|error| RingError::Memory { bytes, error })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with that length. The kernel writes into it only within `io_uring_enter` of the ring's own thread,
        // and the one descriptor that call could name is closed by now: `Ring` drops the ring first.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}

/// All buffers of a ring. Outlives the ring that it is registered with.
pub(crate) struct Buffers {
    entries: Mapping,
    memory: Mapping,
    count: u16,
    bytes: u32,
    tail: u16,
    /// Which are the caller's at the moment.
    lent: Box<[bool]>,
}

// SAFETY: the mappings are owned, and reached only through a reference to their owner.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers, a power of two up to 32,768, of `bytes` each; all of them the kernel's.
    pub(crate) fn register(uring: &IoUring, count: u16, bytes: u32) -> Result<Self, RingError> {
        assert!(count.is_power_of_two() && count <= 1 << 15 && bytes > 0);
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Mapping::new(usize::from(count) * (bytes as usize + GAP))?;
        // SAFETY: page-aligned memory of that many entries, which outlives the ring: `Ring` drops the ring first.
        unsafe { uring.submitter().register_buf_ring_with_flags(entries.at as u64, count, GROUP, 0) }
            .map_err(|error| RingError::Register(errno(&error)))?;
        let lent = vec![true; usize::from(count)].into_boxed_slice();
        let mut buffers = Self { entries, memory, count, bytes, tail: 0, lent };
        (0..count).for_each(|id| buffers.offer(id));
        buffers.publish();
        Ok(buffers)
    }

    /// Bytes of each.
    pub(crate) const fn size(&self) -> u32 {
        self.bytes
    }

    /// What the kernel says that it has put into buffer `id`.
    pub(crate) fn take(&mut self, id: u16, len: u32) -> Option<Lent> {
        let lent = self.lent.get_mut(usize::from(id))?;
        let fresh = !std::mem::replace(lent, true) && len <= self.bytes;
        debug_assert!(fresh, "the kernel hands out each buffer once");
        fresh.then_some(Lent { id, len })
    }

    /// # Panics
    /// If it is not one that this ring has lent.
    pub(crate) fn bytes(&self, lent: &Lent) -> &[u8] {
        assert!(self.lent[usize::from(lent.id)] && lent.len <= self.bytes, "a buffer of another ring");
        let at = self.address(lent.id);
        // SAFETY: the buffer is within the mapping, which was zeroes at first, has room for that many bytes, and is not the kernel's until
        // `give`, which borrows `self` exclusively, takes it away.
        unsafe { std::slice::from_raw_parts(at, lent.len as usize) }
    }

    /// Lets the kernel have a buffer again.
    ///
    /// # Panics
    /// If it is not one that this ring has lent.
    pub(crate) fn give(&mut self, lent: Lent) {
        self.offer(lent.id);
        self.publish();
    }

    fn address(&self, id: u16) -> *mut u8 {
        // SAFETY: `id` is below `count`, as whoever asks has looked it up in `lent`, and there is room for so many.
        unsafe { self.memory.at.cast::<u8>().add(usize::from(id) * (self.bytes as usize + GAP)) }
    }

    fn offer(&mut self, id: u16) {
        assert!(std::mem::take(&mut self.lent[usize::from(id)]), "a buffer of another ring");
        let at = usize::from(self.tail % self.count);
        let address = self.address(id) as u64;
        // SAFETY: the entry is within the ring, and the kernel does not read it before the tail has passed it. What is written is the
        // three fields that it reads; the first entry's fourth is the tail.
        unsafe {
            let entry = &mut *self.entries.at.cast::<BufRingEntry>().add(at);
            entry.set_addr(address);
            entry.set_len(self.bytes);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail stands in the first entry (struct io_uring_buf_ring of linux/io_uring.h), which lives as long as `self`.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.at.cast()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// The kernel's code for a failure of `io_uring_setup` as one of ours.
pub(crate) fn set_up_error(error: Errno) -> RingError {
    match error {
        Errno::NOSYS => RingError::Absent(error),
        Errno::PERM | Errno::ACCESS => RingError::Forbidden(error),
        Errno::INVAL => RingError::TooOld(error),
        _ => RingError::SetUp(error),
    }
}
