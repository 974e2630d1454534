//! Threads that wait in the kernel for a socket without a lease, which may get one meanwhile. Nothing may be left in
//! its ring, as these threads do not look there.

use std::sync::atomic::{AtomicU16, Ordering};

/// Descriptors from here on get no lease.
pub const DESCRIPTORS: usize = 1 << 16;

/// Of each descriptor, the number of threads that wait for it.
static WAITING: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(0) }; DESCRIPTORS];

fn count(descriptor: i32) -> Option<&'static AtomicU16> {
    WAITING.get(usize::try_from(descriptor).ok()?)
}

/// A thread begins to wait for the socket with this descriptor.
fn begin(descriptor: i32) {
    count(descriptor).inspect(|count| {
        count.fetch_add(1, Ordering::SeqCst);
    });
}

/// It no longer waits.
fn end(descriptor: i32) {
    let one_less = |count: u16| count.checked_sub(1);
    // In a child that a signal's handler has forked, nobody has waited.
    count(descriptor).inspect(|count| {
        let _ = count.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_less);
    });
}

/// In a child: it has none of the threads that waited.
pub fn forget(descriptor: i32) {
    let waited = count(descriptor).filter(|count| count.load(Ordering::Relaxed) != 0);
    waited.inspect(|count| count.store(0, Ordering::Relaxed));
}

/// How many threads have begun to wait before the socket had a lease, and still do.
#[must_use]
pub fn waiting(descriptor: i32) -> u32 {
    count(descriptor).map_or(0, |count| u32::from(count.load(Ordering::SeqCst)))
}

/// Maximum number of sockets of one call that a thread is counted for. A call for more sockets soon finds the ring of
/// each anyway.
const SOCKETS_MAX: usize = 8;

/// A thread waits for sockets, until this is dropped; also if it is cancelled meanwhile.
#[derive(Debug)]
pub struct EarlyWaits {
    descriptors: [i32; SOCKETS_MAX],
    count: u8,
}

impl Default for EarlyWaits {
    fn default() -> Self {
        Self::new()
    }
}

impl EarlyWaits {
    /// For none yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { descriptors: [-1; SOCKETS_MAX], count: 0 }
    }

    /// For this one as well, from now on. Returns whether it is counted.
    pub fn add(&mut self, descriptor: i32) -> bool {
        let free = self.descriptors.get_mut(usize::from(self.count));
        let is_counted = free.is_some();
        if let Some(free) = free {
            *free = descriptor;
            self.count += 1;
            begin(descriptor);
        }
        is_counted
    }
}

impl Drop for EarlyWaits {
    fn drop(&mut self) {
        self.descriptors[..usize::from(self.count)].iter().for_each(|descriptor| end(*descriptor));
    }
}
