//! Children: the table is their own from the first use on, and the leases are their parent's.
#![allow(unsafe_code, reason = "the C library is asked for numbers")]

use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_leases::sockets::{await_lapse, early};
use twinpath_sys::fork::{begin_child, process_number};

use super::leaving::close_own;
use super::{ASKED, CLAIMED, EARNING, FIRST, KERNEL, PROCESS, TAKEN, TELL, USED, entries};
use crate::kernel::{errno, set_errno};
use crate::{earning, limit, thread_words, users};

/// The table belongs to this process from now on.
pub(super) fn begin() {
    OWNER.store(process_number(), Ordering::Relaxed);
}

/// In a child made by `fork(3)`.
pub(super) extern "C" fn in_child() {
    begin_child();
    OWNER.store(BECOMES, Ordering::Relaxed);
    become_own(true);
    set_errno(thread_words::before_fork());
}

/// The number of the process that the table belongs to ([`process_number`]); 0 as for [`PROCESS`].
static OWNER: AtomicU64 = AtomicU64::new(0);
/// A thread of a child makes the table its own at this moment.
const BECOMES: u64 = u64::MAX;

/// Whether the table belongs to this process, or to one that shares its memory. A child that was made by `_Fork(3)` or `clone(2)`, which
/// run no handlers, makes it its own here: rings are the parent's, and are not mapped.
#[inline]
pub(super) fn is_table_own() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    owner == 0 || owner == process_number() || has_become_own(owner)
}

#[cold]
fn has_become_own(owner: u64) -> bool {
    if owner == BECOMES
        || OWNER.compare_exchange(owner, BECOMES, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return OWNER.load(Ordering::Acquire) == process_number();
    }
    let error = errno();
    become_own(false);
    if USED.load(Ordering::Relaxed) > 0 {
        await_lapse();
    }
    TELL.get().inspect(|tell| (tell.was_forked)());
    set_errno(error);
    true
}

/// The leases are the parent's. The sockets are the child's by the kernel, until it gives them leases of its own. `by_fork`: the C library
/// has prepared the child, and [`before_fork`] has run.
fn become_own(by_fork: bool) {
    // SAFETY: it takes nothing.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    limit::forget();
    earning::forget();
    users::begin_child(by_fork);
    let mut is_late = false;
    for (descriptor, entry) in entries() {
        let value = entry.load(Ordering::Relaxed);
        if value == KERNEL {
            continue;
        }
        early::forget(descriptor);
        if by_fork {
            is_late |= users::shared(descriptor).is_some_and(|shared| shared.begins(users::own()));
        } else {
            users::set_unknown(descriptor);
        }
        let Some(place) = value.checked_sub(FIRST).and_then(|number| TAKEN.get(usize::from(number))) else {
            match value {
                // The thread that decided is none of the child's.
                CLAIMED => entry.store(KERNEL, Ordering::Relaxed),
                // What the owner was asked for is the parent's; the child earns its own lease.
                EARNING..=ASKED => entry.store(EARNING, Ordering::Relaxed),
                // A page that is not written to stays the parent's as well.
                _ => {}
            }
            continue;
        };
        // Of one that has duplicates it would be decided twice; and sets of the parent tell of the kernel's socket alone.
        let is_last = place.descriptors.load(Ordering::Relaxed) == 1
            && place.sets.iter().all(|in_set| in_set.set.load(Ordering::Relaxed) < 0);
        entry.store(if is_last { EARNING } else { KERNEL }, Ordering::Relaxed);
        // Calls on it are not seen any more.
        users::shared(descriptor).filter(|_| !is_last).inspect(|shared| {
            shared.is_used_by_others(users::own());
        });
    }
    for place in TAKEN.iter().take(USED.load(Ordering::Relaxed) as usize) {
        place.sets.iter().for_each(|in_set| in_set.set.store(-1, Ordering::Relaxed));
        let kept = place.kept.swap(-1, Ordering::Relaxed);
        if kept >= 0 {
            close_own(kept);
        }
        place.calls.forget();
        if place.lessee.forget(by_fork) {
            place.is_used.store(false, Ordering::Relaxed);
        }
    }
    if is_late {
        await_lapse();
    }
    OWNER.store(process_number(), Ordering::Release);
}
