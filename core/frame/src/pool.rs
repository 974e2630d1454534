//! Frame pools: a fixed number of frames, allocated at start, taken and released by one worker.
#![allow(
    unsafe_code,
    reason = "the pool makes frames from raw memory and proves that each chunk has one owner"
)]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::frame::{CHUNK_SIZE, Frame, HEADROOM, Header, Sharing};
use crate::mapping::Mapping;

/// Largest frame that the kernel can put into an AF_XDP chunk: the chunk without [`HEADROOM`].
pub const UMEM_CHUNK_DATA_MAX: u32 = CHUNK_SIZE - HEADROOM;

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The number of frames is zero or beyond 2^20 (2 GiB).
    #[error("a pool of {frames} frames is not possible: choose 1 to 1048576")]
    Size {
        /// The number requested.
        frames: u32,
    },
    /// The kernel refused the memory.
    #[error("cannot map {bytes} bytes of frame memory: {source}; free memory or lower ring_frames")]
    Memory {
        /// The size requested.
        bytes: usize,
        /// The kernel's error.
        source: Errno,
    },
}

/// The memory of a pool, in a memfd that can be registered with AF_XDP or passed to another process.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    memfd: OwnedFd,
}

impl Region {
    /// First byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never true: a pool has at least one frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// The memfd.
    #[must_use]
    pub fn memfd(&self) -> &OwnedFd {
        &self.memfd
    }
}

/// A pool of frames, owned by one worker.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    headers: NonNull<[Header]>,
    /// Frames of other pools that were released here, until they are fetched.
    foreign: Vec<Frame>,
    /// Free chunks, as a stack: the one released last, which is most likely in the cache, is taken first.
    free: Vec<NonNull<Header>>,
    id: u32,
}

// SAFETY: the pool is the only holder of the headers in `free`; frames taken from it own theirs. Nothing is tied to a
// thread.
unsafe impl Send for Pool {}

impl Pool {
    /// Allocates memory for `frames` frames, all of it now.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn new(frames: u32) -> Result<Self, PoolError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        if frames == 0 || frames > 1 << 20 {
            return Err(PoolError::Size { frames });
        }
        let bytes = frames as usize * CHUNK_SIZE as usize;
        let (mapping, memfd) = Mapping::of_memfd("twinpath-frames", bytes)
            .map_err(|source| PoolError::Memory { bytes, source })?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let base = mapping.base();
        let headers: Box<[Header]> = (0..frames)
            .map(|index| {
                // SAFETY: index < frames, so the chunk lies within the mapping of frames * CHUNK_SIZE bytes.
                let chunk = unsafe { base.add(index as usize * CHUNK_SIZE as usize) };
                Header::new(chunk, index, id)
            })
            .collect();
        let headers = NonNull::from(Box::leak(headers));
        let first = headers.cast::<Header>();
        // Highest first, so that frames are taken in ascending order at the start.
        // SAFETY: index < frames = the length of `headers`.
        let free = (0..frames as usize).rev().map(|index| unsafe { first.add(index) }).collect();
        Ok(Self { region: Arc::new(Region { mapping, memfd }), headers, free, foreign: Vec::new(), id })
    }

    /// Takes an empty frame; `None` if none is free: the caller then drops and counts, or leaves its input queued.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Frame> {
        let header = self.free.pop()?;
        // SAFETY: a header in `free` is held by nobody else, and lives until the pool is dropped with all frames back
        // in it.
        let mut frame = unsafe { Frame::from_header(header) };
        frame.reset();
        Some(frame)
    }

    /// Takes a frame back, and the chain that follows it.
    ///
    /// A frame of another pool is kept for [`Self::foreign`], if there is room for it; else it counts as leaked.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        let header = frame.header();
        if header.pool == self.id && header.sharing == Sharing::NONE && frame.meta().next.is_none() {
            self.free.push(frame.into_header());
        } else {
            self.release_chain(frame);
        }
    }

    /// Takes a frame back that may have others behind it, share its bytes, or be of another pool.
    #[inline(never)]
    fn release_chain(&mut self, frame: Frame) {
        let mut next = Some(frame);
        while let Some(mut frame) = next {
            next = frame.meta_mut().next.take();
            if frame.header().pool == self.id {
                if frame.header().sharing != Sharing::NONE {
                    self.end_sharing(&mut frame);
                }
                self.free.push(frame.into_header());
            } else if self.foreign.len() < self.foreign.capacity() {
                self.foreign.push(frame);
            } else {
                debug_assert!(false, "a frame goes home to the pool it came from");
            }
        }
    }

    /// Makes room for `frames` frames of other pools. For a worker that sends frames which other workers received.
    pub fn expect_foreign(&mut self, frames: usize) {
        self.foreign.reserve_exact(frames);
    }

    /// The frames of other pools that were released here, unchained, to be returned to their owners.
    #[inline]
    pub fn foreign(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.foreign.drain(..)
    }

    /// Removes a frame of this pool from its source's readers. The last reader releases the source.
    pub(crate) fn end_sharing(&mut self, frame: &mut Frame) {
        let Some(source) = frame.header_mut().end_sharing() else { return };
        let source = self.header_of(source);
        // SAFETY: the source of a frame that counts is held by nobody else, so the pool alone has access to its header; it
        // lives until the pool is dropped with all frames back in it.
        let count = unsafe { &mut (*source.as_ptr()).sharing.0 };
        *count -= 1;
        if *count == 0 {
            self.free.push(source);
        }
    }

    /// Counts one more reader of the source with this index.
    pub(crate) fn count_sharing(&mut self, source: u32) {
        let source = self.header_of(source);
        // SAFETY: as in `end_sharing`.
        unsafe { (*source.as_ptr()).sharing.0 += 1 };
    }

    /// The header with this index.
    fn header_of(&self, index: u32) -> NonNull<Header> {
        debug_assert!(index < self.frames());
        // SAFETY: an index that a header of this pool has, or had noted from another one, is within `headers`.
        unsafe { self.headers.cast::<Header>().add(index as usize) }
    }

    /// Number of frames of the pool.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.headers.len() as u32
    }

    /// Number of free frames.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Its number in this process.
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    /// The pool's memory.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.free.len() == self.headers.len() {
            // SAFETY: every header is back, so no frame points at any; the memory came from `Box::leak` in `new`.
            drop(unsafe { Box::from_raw(self.headers.as_ptr()) });
        } else {
            // Somebody still owns a frame, so its memory must outlive the pool: it is leaked.
            std::mem::forget(Arc::clone(&self.region));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_once_and_can_be_released() {
        let mut pool = Pool::new(2).expect("two frames");
        let mut first = pool.take().expect("one free");
        let second = pool.take().expect("another");
        assert!(pool.take().is_none());
        assert_ne!(first.index(), second.index());
        first.copy_from(b"hello").expect("fits");
        assert_eq!(first.bytes(), b"hello");
        assert_eq!(first.region_offset(), u64::from(HEADROOM));
        pool.release(second);
        pool.release(first);
        assert_eq!(pool.free(), 2);
        let again = pool.take().expect("free again");
        assert!(again.is_empty(), "a taken frame knows nothing of its former life");
        pool.release(again);
    }

    #[test]
    fn frames_of_another_pool_are_kept_one_by_one_until_they_are_fetched() {
        let (mut pool, mut other) = (Pool::new(1).expect("a frame"), Pool::new(3).expect("three frames"));
        pool.expect_foreign(3);
        let mut head = other.take().expect("free");
        head.meta_mut().next = other.take();
        let single = other.take().expect("free");
        pool.release(head);
        pool.release(single);
        assert_eq!((pool.free(), other.free()), (1, 0));
        pool.foreign().for_each(|frame| other.release(frame));
        assert_eq!((other.free(), pool.foreign().count()), (3, 0));
    }

    #[test]
    fn releasing_a_chain_releases_all_its_frames() {
        let mut pool = Pool::new(3).expect("three frames");
        let mut head = pool.take().expect("free");
        let mut middle = pool.take().expect("free");
        middle.meta_mut().next = pool.take();
        head.meta_mut().next = Some(middle);
        pool.release(head);
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn data_stay_within_the_chunk() {
        let mut pool = Pool::new(1).expect("one frame");
        let mut frame = pool.take().expect("free");
        assert!(frame.place(0, CHUNK_SIZE as usize).is_ok());
        assert!(frame.place(1, CHUNK_SIZE as usize).is_err());
        assert!(frame.place(u32::MAX, 2).is_err());
        assert!(frame.set_len(CHUNK_SIZE as usize + 1).is_err());
        assert_eq!(frame.len(), CHUNK_SIZE as usize, "a refused change changes nothing");
        assert!(frame.copy_from(&[0; CHUNK_SIZE as usize]).is_err(), "headroom is kept");
        pool.release(frame);
    }

    #[test]
    fn impossible_sizes_are_refused_with_a_message() {
        assert!(Pool::new(0).expect_err("nothing").to_string().contains("choose 1 to"));
        assert!(Pool::new(u32::MAX).is_err());
    }

    #[test]
    fn a_pool_dropped_before_its_frames_keeps_their_memory() {
        let mut pool = Pool::new(1).expect("one frame");
        let mut frame = pool.take().expect("free");
        drop(pool);
        frame.copy_from(b"still here").expect("fits");
        assert_eq!(frame.bytes(), b"still here");
        let _ = frame.into_header();
    }
}
