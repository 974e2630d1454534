//! Closes descriptors that came from programs. Closing may wait, if that is what the program has made: for a file system in a process of its
//! own, or for a TCP connection that lingers. So it is done by threads beside the control thread, which never waits for them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads at a time. What cannot be closed by then stays open until the owner ends.
const THREADS_MAX: usize = 8;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Closes them, some time.
pub(crate) fn close(descriptors: Vec<OwnedFd>) {
    if descriptors.is_empty() {
        return;
    }
    let is_free = |threads: usize| (threads < THREADS_MAX).then_some(threads + 1);
    if THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_free).is_err() {
        return std::mem::forget(descriptors);
    }
    let close = move || {
        drop(descriptors);
        THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    // If there is no thread to be had, the closure is dropped, and with it the descriptors.
    if std::thread::Builder::new().name("twinpath-close".to_owned()).spawn(close).is_err() {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}
