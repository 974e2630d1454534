//! A lease that does not pay ends. Calls may find nearly everything in the kernel's socket, as there is always more, or
//! as they sleep until it comes. Then a lease saves nothing, and each call asks the kernel once more than without it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use twinpath_leases::sockets::SocketCounts;
use twinpath_sys::clock;

/// Minimum number of receiving calls between two judgements.
const JUDGED_EVERY: u32 = 1_024;
/// Minimum time between two judgements: at the beginning the kernel's socket is emptied before the ring can be used.
const JUDGED_AFTER_NS: u64 = 250_000_000;
/// Of this many datagrams, one has to come by the ring.
const ONE_OF: u64 = 8;

/// What is known of a place to judge it.
#[derive(Debug)]
pub(super) struct Paying {
    /// The socket has earned its lease. One that a rule asks for, or the program itself, keeps it.
    is_earned: AtomicBool,
    /// Receiving calls. If several threads receive, some may not be counted.
    calls: AtomicU32,
    /// When it was judged last, or begun, ns of the clock.
    judged: AtomicU64,
    by_ring: AtomicU64,
    by_kernel: AtomicU64,
    pays_not: AtomicBool,
}

impl Paying {
    pub(super) const fn new() -> Self {
        Self {
            is_earned: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            judged: AtomicU64::new(0),
            by_ring: AtomicU64::new(0),
            by_kernel: AtomicU64::new(0),
            pays_not: AtomicBool::new(false),
        }
    }

    /// The place is another socket's, which has not earned its lease; or its socket earns none any more.
    pub(super) fn begin(&self) {
        self.is_earned.store(false, Ordering::Relaxed);
        self.pays_not.store(false, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.judged.store(clock::now().as_nanos(), Ordering::Relaxed);
        self.by_ring.store(0, Ordering::Relaxed);
        self.by_kernel.store(0, Ordering::Relaxed);
    }

    pub(super) fn set_earned(&self, is: bool) {
        self.is_earned.store(is, Ordering::Relaxed);
    }

    /// Whether the lease has ended as it did not pay: the socket may earn another one.
    pub(super) fn pays_not(&self) -> bool {
        self.pays_not.load(Ordering::Relaxed)
    }

    /// A receiving call has ended. Returns whether it is time to judge.
    #[inline]
    pub(super) fn count(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls.is_multiple_of(JUDGED_EVERY)
    }

    /// Judges by what the socket has received so far: whether its lease is to end, as it has not paid since the last judgement. That is
    /// said once.
    pub(super) fn judge(&self, counts: SocketCounts, is_over: bool) -> bool {
        let since = |counted: &AtomicU64, now: u64| now.saturating_sub(counted.swap(now, Ordering::Relaxed));
        self.judged.store(clock::now().as_nanos(), Ordering::Relaxed);
        let by_ring = since(&self.by_ring, counts.by_ring);
        let by_kernel = since(&self.by_kernel, counts.by_kernel);
        let pays = by_ring * ONE_OF >= by_ring + by_kernel;
        // Calls that found nothing say nothing about the lease.
        let is_known = by_ring + by_kernel >= u64::from(JUDGED_EVERY / 2);
        let ends = !pays && is_known && self.is_earned.load(Ordering::Relaxed) && !is_over;
        ends && !self.pays_not.swap(true, Ordering::Relaxed)
    }

    /// Whether the last judgement is long enough ago.
    pub(super) fn is_due(&self) -> bool {
        let now = clock::now().as_nanos();
        now.saturating_sub(self.judged.load(Ordering::Relaxed)) >= JUDGED_AFTER_NS
    }
}
