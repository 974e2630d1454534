//! Heap allocations, counted per thread: how a worker proves that it makes none while packets flow.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait; every call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const-initialised and without a destructor, so that touching it allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator with a count per thread. A program that wants the count declares it its global allocator.
#[derive(Debug)]
pub struct Counting;

/// Allocations this thread has made so far; always 0 in a program whose allocator is not [`Counting`].
#[must_use]
pub fn of_this_thread() -> u64 {
    COUNT.with(Cell::get)
}

/// Bytes this thread has allocated and not freed, as they were asked for; what it freed of another thread's counts against it.
#[must_use]
pub fn bytes_of_this_thread() -> i64 {
    BYTES.with(Cell::get)
}

fn count(bytes: usize) {
    // A thread that is going away may have lost its locals already; its last allocations don't matter.
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
