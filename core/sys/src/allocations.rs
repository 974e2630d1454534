//! Counts heap allocations per thread: tests use it to prove that a worker makes none while packets flow.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait; every call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const-initialised and without a destructor, so that touching it allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator with a count per thread. A program that needs the count declares it as its global
/// allocator.
#[derive(Debug)]
pub struct Counting;

/// Number of allocations by this thread so far; always 0 in a program whose allocator is not [`Counting`].
#[must_use]
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

/// Bytes allocated minus bytes freed by this thread, by requested sizes. Freeing another thread's memory counts
/// against this one.
#[must_use]
pub fn bytes_of_this_thread() -> i64 {
    BYTES.with(Cell::get)
}

fn count(bytes: usize) {
    // A thread that is ending may have lost its thread-local storage already; its last allocations do not matter.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|held| held.set(held.get() + bytes as i64));
}

fn freed(bytes: usize) {
    let _ = BYTES.try_with(|held| held.set(held.get() - bytes as i64));
}

// SAFETY: every call is the system allocator's own, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        freed(layout.size());
        count(new_size);
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
