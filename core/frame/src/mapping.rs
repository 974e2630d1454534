//! A shared memory mapping that is unmapped when dropped.
#![allow(unsafe_code, reason = "memory shared with the kernel is mapped and unmapped here, and only here")]

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A `MAP_SHARED` mapping of `len` bytes that only its owner unmaps.
///
/// It is shared, because after `fork(2)` a private mapping would be copied on write, and the process and the kernel
/// would see different bytes. It is also `MADV_DONTFORK`, except for [`Mapping::with_children`], so that a child
/// does not have it at all.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is plain memory without thread affinity; all access goes through raw pointers whose users state
// their own exclusion.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives out a pointer and a length, never a reference to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` (a multiple of the page size, or one of the ring offsets that the
    /// kernel defines for a socket).
    ///
    /// # Errors
    /// What `mmap(2)` returns.
    pub fn of_fd(fd: impl AsFd, len: usize, offset: u64) -> Result<Self, Errno> {
        let mapping = Self::with_children(fd, len, offset)?;
        // SAFETY: the range is exactly the mapping just made. It is advice: a refusal (device memory) changes nothing.
        let _ = unsafe { madvise(mapping.base.as_ptr().cast::<c_void>(), len, Advice::LinuxDontFork) };
        Ok(mapping)
    }

    /// As [`Mapping::of_fd`], but children of `fork(2)` have it as well. Only for memory where each access is
    /// atomic and leaves it consistent.
    ///
    /// # Errors
    /// As [`Mapping::of_fd`].
    pub fn with_children(fd: impl AsFd, len: usize, offset: u64) -> Result<Self, Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a null hint lets the kernel choose an address that no other mapping has.
        let base =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// As [`Mapping::of_fd`] from the beginning, but pages that are not used take no memory.
    ///
    /// # Errors
    /// As [`Mapping::of_fd`].
    pub fn sparse(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose an address that no other mapping has.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0)? };
        Ok(Self { base: NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?, len })
    }

    /// Maps `len` bytes of `fd` that others write; writing to them is a fault.
    ///
    /// # Errors
    /// What `mmap(2)` returns.
    pub fn read_only(fd: impl AsFd, len: usize) -> Result<Self, Errno> {
        // SAFETY: a null hint lets the kernel choose an address that no other mapping has.
        let base = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, 0)? };
        Ok(Self { base: NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?, len })
    }

    /// Maps `len` zeroed bytes of a new memfd, and returns it with the mapping.
    ///
    /// # Errors
    /// What `memfd_create(2)`, `ftruncate(2)` or `mmap(2)` returns.
    pub fn of_memfd(name: &str, len: usize) -> Result<(Self, OwnedFd), Errno> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, len as u64)?;
        Ok((Self::of_fd(&fd, len, 0)?, fd))
    }

    /// First byte; page-aligned.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Always false: the kernel refuses to map nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that was mapped, and `self` was its only owner.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}
