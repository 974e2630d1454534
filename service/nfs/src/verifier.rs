//! The write verifier (RFC 1813, 3.3.7 and 3.3.21): by it a client learns that data which was not durable may be lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number per life of an instance, and another one after each sync that failed. Threads share it.
///
/// A WRITE takes it before it writes: if a sync fails after that, the later COMMIT shows another one, and the client
/// writes again. A COMMIT takes it after its sync. The kernel tells one of two syncs of an error: the other one succeeds,
/// and must find the new verifier, so [`Files::sync`](crate::Files::sync) lets them follow each other.
#[derive(Debug)]
pub struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    /// The verifier of an instance that drew this random number.
    #[must_use]
    pub const fn new(random: u64) -> Self {
        Self(AtomicU64::new(random))
    }

    /// The present one.
    #[must_use]
    pub fn now(&self) -> [u8; 8] {
        self.0.load(Ordering::SeqCst).to_be_bytes()
    }

    /// A sync failed: data that was written before may be lost.
    pub fn sync_failed(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
