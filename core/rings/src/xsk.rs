//! The rings of an AF_XDP socket (include/uapi/linux/if_xdp.h; Documentation/networking/af_xdp.rst, "Rings").
//!
//! Fill and TX are produced by us, RX and completion by the kernel. The kernel publishes with a release store of the
//! producer position and reads ours with acquire (net/xdp/xsk_queue.h, "The structure of the shared state of the
//! rings are a simple circular buffer").
#![allow(unsafe_code, reason = "the positions and descriptors lie in memory mapped from the kernel")]

use std::ptr::NonNull;

use twinpath_frame::Mapping;

use crate::cursor::{ConsumerCursor, ProducerCursor};
use crate::sync::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP`: the kernel needs a system call before it processes this ring.
const NEED_WAKEUP: u32 = 1;

/// A descriptor of the RX and TX rings (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Offset into the UMEM of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// `XDP_PKT_CONTD` and the like.
    pub options: u32,
}

/// Where the parts of a ring are in its mapping (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// The producer position.
    pub producer: u64,
    /// The consumer position.
    pub consumer: u64,
    /// The flags word.
    pub flags: u64,
    /// The first entry.
    pub entries: u64,
}

/// A type of ring entry.
///
/// # Safety
/// Any bit pattern must be a valid value: the kernel writes them.
pub unsafe trait Entry: Copy {}
// SAFETY: plain integers.
unsafe impl Entry for Descriptor {}
// SAFETY: a plain integer.
unsafe impl Entry for u64 {}

#[derive(Debug)]
struct Shared<E> {
    mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<E>,
}

// SAFETY: the pointers lie in `mapping`, which moves along; the ring has one user on our side, its owner.
unsafe impl<E: Entry> Send for Shared<E> {}

/// The layout the kernel gave does not fit its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLayout;

impl<E: Entry> Shared<E> {
    fn new(mapping: Mapping, offsets: Offsets, len: u32) -> Result<Self, BadLayout> {
        let at = |offset: u64, size: usize, align: usize| {
            let offset = usize::try_from(offset).map_err(|_| BadLayout)?;
            let end = offset.checked_add(size).ok_or(BadLayout)?;
            if end > mapping.len() || !offset.is_multiple_of(align) {
                return Err(BadLayout);
            }
            // SAFETY: the range lies within the mapping.
            Ok(unsafe { mapping.base().add(offset) })
        };
        if !len.is_power_of_two() {
            return Err(BadLayout);
        }
        let word = |offset| at(offset, size_of::<AtomicU32>(), align_of::<AtomicU32>()).map(NonNull::cast);
        let (producer, consumer, flags) =
            (word(offsets.producer)?, word(offsets.consumer)?, word(offsets.flags)?);
        let entries = at(offsets.entries, size_of::<E>() * len as usize, align_of::<E>())?.cast();
        Ok(Self { mapping, producer, consumer, flags, entries })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: checked in `new` to lie in the mapping, aligned; a 32-bit atomic takes any bits.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as `producer`. Relaxed: it is a hint; a worker that sleeps looks again after arming.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// A ring that we write: fill or TX.
#[derive(Debug)]
pub struct Producer<E> {
    shared: Shared<E>,
    cursor: ProducerCursor,
    written: u32,
}

/// A ring that we read: RX or completion.
#[derive(Debug)]
pub struct Consumer<E> {
    shared: Shared<E>,
    cursor: ConsumerCursor,
}

impl<E: Entry> Producer<E> {
    /// A ring of `len` entries laid out in `mapping` as the kernel said.
    ///
    /// # Errors
    /// [`BadLayout`] if an offset is outside the mapping or `len` is not a power of two.
    pub fn new(mapping: Mapping, offsets: Offsets, len: u32) -> Result<Self, BadLayout> {
        let shared = Shared::new(mapping, offsets, len)?;
        let at = shared.producer().load(Ordering::Relaxed);
        Ok(Self { shared, cursor: ProducerCursor::new(len, at), written: 0 })
    }

    /// Entries that can be written. Reads the kernel's position only if fewer than `want` are known to be free.
    #[inline]
    pub fn free(&mut self, want: u32) -> u32 {
        let Self { shared, cursor, written } = self;
        // Acquire: the kernel's reads of those entries are done before we write them again.
        cursor.free(want + *written, || shared.consumer().load(Ordering::Acquire)).saturating_sub(*written)
    }

    /// Writes one entry; `false` if the ring is full. The kernel sees it after the next [`Self::publish`].
    #[inline]
    pub fn write(&mut self, entry: E) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        // SAFETY: the index is below the ring's length, whose entries lie in the mapping; `free` said it is ours.
        unsafe { self.shared.entries.add(self.cursor.index(self.written)).write(entry) };
        self.written += 1;
        true
    }

    /// Publishes the entries written since the last call to the kernel.
    #[inline]
    pub fn publish(&mut self) {
        if self.written > 0 {
            // Release: the entries are written before the position says so.
            self.shared.producer().store(self.cursor.advance(self.written), Ordering::Release);
            self.written = 0;
        }
    }

    /// Whether the kernel needs a system call before it processes this ring.
    #[inline]
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }

    /// Entries published that the kernel has not taken yet.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.shared
            .producer()
            .load(Ordering::Relaxed)
            .wrapping_sub(self.shared.consumer().load(Ordering::Acquire))
    }
}

impl<E: Entry> Consumer<E> {
    /// A ring of `len` entries laid out in `mapping` as the kernel said.
    ///
    /// # Errors
    /// [`BadLayout`] if an offset is outside the mapping or `len` is not a power of two.
    pub fn new(mapping: Mapping, offsets: Offsets, len: u32) -> Result<Self, BadLayout> {
        let shared = Shared::new(mapping, offsets, len)?;
        let at = shared.consumer().load(Ordering::Relaxed);
        Ok(Self { shared, cursor: ConsumerCursor::new(len, at) })
    }

    /// Takes up to `max` entries in order, then gives their room back to the kernel.
    #[inline]
    pub fn take(&mut self, max: u32, mut each: impl FnMut(E)) -> u32 {
        let Self { shared, cursor } = self;
        // Acquire: the kernel's writes of those entries are seen before we read them.
        let count = cursor.available(1, || shared.producer().load(Ordering::Acquire)).min(max);
        for nth in 0..count {
            // SAFETY: the index is below the ring's length, whose entries lie in the mapping; any bits are a value.
            each(unsafe { shared.entries.add(cursor.index(nth)).read() });
        }
        if count > 0 {
            // Release: the entries are read before the position says so.
            shared.consumer().store(cursor.advance(count), Ordering::Release);
        }
        count
    }

    /// Whether there is something to take, without taking it.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        self.cursor.peek(|| self.shared.producer().load(Ordering::Acquire))
    }

    /// Bytes of the mapping.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.shared.mapping.len()
    }
}

#[cfg(test)]
mod tests;
