//! A lease that does not pay ends. While calls find nearly everything in the kernel's socket, as there is always more, or as they sleep until
//! it comes, a lease saves nothing, and each call asks the kernel once more than without it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use libc::c_int;
use twinpath_sys::clock;

use super::{FIRST, InSet, OF_DESCRIPTOR, Place, TELL};
use crate::earning;

/// Receiving calls from one judgement to the next, at least.
const JUDGED_EVERY: u32 = 1_024;
/// And as long: at the beginning the kernel's socket is emptied before the ring can be used.
const JUDGED_AFTER_NS: u64 = 250_000_000;
/// Of so many datagrams one has to come by the ring.
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
}

/// Ends the lease if it has not paid since the last judgement. What is in the ring is received first.
#[cold]
pub(super) fn judge(number: usize, place: &Place) {
    let now = clock::now().as_nanos();
    if now - place.paying.judged.load(Ordering::Relaxed).min(now) < JUDGED_AFTER_NS {
        return;
    }
    // Another thread receives: the next judgement sees it.
    let Some(counts) = place.lessee.counts() else { return };
    let paying = &place.paying;
    paying.judged.store(now, Ordering::Relaxed);
    let by_ring = counts.by_ring.saturating_sub(paying.by_ring.swap(counts.by_ring, Ordering::Relaxed));
    let by_kernel =
        counts.by_kernel.saturating_sub(paying.by_kernel.swap(counts.by_kernel, Ordering::Relaxed));
    let pays = by_ring * ONE_OF >= by_ring + by_kernel;
    // Calls that found nothing say nothing about the lease.
    if pays
        || by_ring + by_kernel < u64::from(JUDGED_EVERY / 2)
        || !paying.is_earned.load(Ordering::Relaxed)
        || place.lessee.is_over()
        || paying.pays_not.swap(true, Ordering::Relaxed)
    {
        return;
    }
    let is_its = |entry: u8| entry == FIRST + number as u8;
    let descriptor = (0..).zip(&OF_DESCRIPTOR).find(|(_, entry)| is_its(entry.load(Ordering::Relaxed)));
    if let (Some((descriptor, _)), Some(tell)) = (descriptor, TELL.get()) {
        (tell.pays_not)(descriptor);
    }
    place.lessee.finish();
}

/// Whether a socket whose lease is over earns another one: that lease has not paid, and everything is known that another one needs to know.
/// Otherwise the kernel has it for good.
pub(super) fn earns_again(descriptor: c_int, place: &Place, descriptors: u32) -> bool {
    // Calls that wait for it now would not be known to a lease that it gets while they wait.
    if !place.paying.pays_not() || descriptors != 1 || place.shared().is_some() || place.calls.have_it() {
        return false;
    }
    let mut memberships = place.sets.iter().filter_map(InSet::membership);
    let is_noted = memberships.all(|membership| earning::is_in(descriptor, membership.set, Some(membership)));
    if !is_noted {
        // Of a socket that is the kernel's nothing is to be known.
        earning::forget_memberships(descriptor);
    }
    is_noted && earning::pause(descriptor)
}
