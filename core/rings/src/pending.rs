//! One word per queue that says since when a frame has been waiting for the queue's worker. The BPF program that
//! hands frames over sets it, and the worker clears it (`stack/bpf/bpf/pending.h` has the same layout). It lets the
//! program tell a stuck worker from an idle one, and withdraw the queue's claims by itself.
//!
//! - 0: nothing has been handed over since the worker cleared the word;
//! - a time: the first frame since then was handed over at that time, ns of `CLOCK_MONOTONIC` as of the last tick;
//! - a time with the highest bit set (the mark): a frame came when that time was too long ago. From then on, the
//!   claims of this queue are withdrawn.
//!
//! The program sets the word before it hands a frame over. Before a sleep, the worker clears it and then looks into
//! its rings once more. So when a worker sleeps, the word is 0, or it belongs to a frame that will wake the worker.
//! Clearing it while a frame is being handed over does no harm, because the next frame sets it again. A worker that
//! does not sleep clears the word only when it has become older than [`kept_for`], long before it is too old.
//! Otherwise the word would move between two CPUs with each frame, which took 60 to 90 ns.
//!
//! A worker never clears the mark without noticing it: it first discards everything handed over before, because the
//! senders have sent again by then and were answered through the kernel.
#![allow(unsafe_code, reason = "the words lie in memory mapped from the kernel, whose programs change them")]

use twinpath_frame::Mapping;
use twinpath_time::{Duration, Instant};

use crate::layouts::{self, WITHDRAWN};
use crate::sync::{Arc, AtomicU64, Ordering};

/// Bytes from one queue's word to the next.
pub const STRIDE: usize = layouts::pending::LEN;

/// The age at which a worker that does not sleep clears its word, if it counts as stuck after `fail_open`. The
/// program adds the same time to `fail_open`, so that no worker counts as stuck too early.
#[must_use]
pub const fn kept_for(fail_open: Duration) -> Duration {
    Duration::from_nanos(fail_open.as_nanos() as u64 / 8)
}

/// The word of one queue.
#[derive(Clone, Debug)]
pub struct Pending {
    words: Arc<Mapping>,
    at: usize,
    kept_ns: u64,
}

impl Pending {
    /// The word of queue `queue`, for a worker that counts as stuck after `fail_open`; `None` if the mapping has no
    /// word for it.
    #[must_use]
    pub fn new(words: Arc<Mapping>, queue: u32, fail_open: Duration) -> Option<Self> {
        let at = (queue as usize).checked_mul(STRIDE)?;
        let kept_ns = kept_for(fail_open).as_nanos() as u64;
        (at.checked_add(STRIDE)? <= words.len()).then_some(Self { words, at, kept_ns })
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: `new` checked that the mapping holds it; a multiple of 64 in a page is aligned; a 64-bit atomic takes any bits.
        unsafe { self.words.base().add(self.at + layouts::pending::SINCE_AT).cast::<AtomicU64>().as_ref() }
    }

    /// The second and the third word of the queue's line.
    #[inline]
    pub(crate) fn behind(&self) -> &[AtomicU64; 2] {
        // SAFETY: as for the first one; the line has eight.
        unsafe {
            self.words
                .base()
                .add(self.at + layouts::pending::WORKER_UNTIL_AT)
                .cast::<[AtomicU64; 2]>()
                .as_ref()
        }
    }

    /// To be called before the rings are read. `false` means that claims were withdrawn: the caller must discard what
    /// is in the rings and then call [`Self::resume`].
    #[inline]
    #[must_use]
    pub fn may_take(&self, now: Instant) -> bool {
        let since = self.word().load(Ordering::Relaxed);
        let is_young = since & WITHDRAWN == 0 && now.as_nanos() < since.saturating_add(self.kept_ns);
        since == 0 || is_young || self.clear()
    }

    /// To be called before the last look into the rings that precedes a sleep. `false` means that claims were
    /// withdrawn; [`Self::may_take`] will report that as well.
    pub fn clear(&self) -> bool {
        let word = self.word();
        let mut since = word.load(Ordering::Relaxed);
        loop {
            if since == 0 {
                return true;
            }
            if since & WITHDRAWN != 0 {
                return false;
            }
            // By compare and exchange, because the program may be setting the mark. Acquire and release keep the
            // next look into the rings after this, and the previous look before it.
            match word.compare_exchange(since, 0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => since = changed,
            }
        }
    }

    /// Whether claims are withdrawn: frames taken before that are no longer answered.
    #[inline]
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.word().load(Ordering::Relaxed) & WITHDRAWN != 0
    }

    /// Restores the claims, after everything that was handed over has been discarded.
    pub fn resume(&self) {
        self.word().store(0, Ordering::Release);
    }

    /// Since when a frame has been waiting, if claims are withdrawn.
    #[must_use]
    pub fn stuck_since(&self) -> Option<Instant> {
        let since = self.word().load(Ordering::Relaxed);
        (since & WITHDRAWN != 0).then_some(Instant::from_nanos(since & !WITHDRAWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_nanos(800);
    const LATER: Instant = Instant::from_nanos(1_000_000);

    fn two() -> [Pending; 2] {
        let words = Arc::new(Mapping::of_memfd("pending-test", 2 * STRIDE).expect("memory").0);
        assert!(Pending::new(Arc::clone(&words), 2, PATIENCE).is_none());
        [0, 1].map(|queue| Pending::new(Arc::clone(&words), queue, PATIENCE).expect("it is there"))
    }

    #[test]
    fn a_look_clears_the_word_unless_it_is_marked() {
        let [pending, other] = two();
        other.word().store(7, Ordering::Relaxed);
        assert!(pending.may_take(LATER));
        pending.word().store(100, Ordering::Relaxed);
        assert_eq!((pending.is_withdrawn(), pending.stuck_since()), (false, None));
        assert!(pending.may_take(LATER));
        assert_eq!(pending.word().load(Ordering::Relaxed), 0);
        assert_eq!(other.word().load(Ordering::Relaxed), 7, "each queue has a word of its own");
    }

    #[test]
    fn a_worker_that_does_not_sleep_leaves_a_young_word_alone() {
        let [pending, _] = two();
        let at = |now| pending.may_take(Instant::from_nanos(now));
        pending.word().store(1_000, Ordering::Relaxed);
        // An eighth of the time after which the worker is stuck. Another CPU may have a later time.
        assert!(at(900) && at(1_099));
        assert_eq!(pending.word().load(Ordering::Relaxed), 1_000);
        assert!(at(1_100));
        assert_eq!(pending.word().load(Ordering::Relaxed), 0);
        pending.word().store(1_000, Ordering::Relaxed);
        assert!(pending.clear(), "before it sleeps");
        assert_eq!(pending.word().load(Ordering::Relaxed), 0);
        pending.word().store(1_000 | WITHDRAWN, Ordering::Relaxed);
        assert!(!at(900) && !pending.clear(), "a mark is never young");
    }

    #[test]
    fn a_mark_stays_until_everything_is_discarded() {
        let [pending, _] = two();
        pending.word().store(100 | WITHDRAWN, Ordering::Relaxed);
        assert!(!pending.may_take(LATER) && !pending.may_take(LATER));
        assert_eq!(pending.stuck_since(), Some(Instant::from_nanos(100)));
        pending.resume();
        assert!(pending.may_take(LATER) && !pending.is_withdrawn());
        assert_eq!(pending.stuck_since(), None);
    }

    /// The program sets the mark while the worker clears the word, again and again: the worker sees every mark.
    #[test]
    fn clearing_the_word_never_loses_a_mark() {
        let [pending, _] = two();
        let marked = std::thread::scope(|scope| {
            let program = scope.spawn(|| {
                let mut marked = 0u32;
                for time in 1..200_000 {
                    let word = pending.word();
                    let _ = word.compare_exchange(0, time, Ordering::SeqCst, Ordering::SeqCst);
                    let since = word.load(Ordering::SeqCst);
                    if since != 0 && since & WITHDRAWN == 0 {
                        let marks = word.compare_exchange(
                            since,
                            since | WITHDRAWN,
                            Ordering::SeqCst,
                            Ordering::SeqCst,
                        );
                        marked += u32::from(marks.is_ok());
                    }
                }
                marked
            });
            let mut seen = 0u32;
            let mut look = || {
                if !pending.may_take(LATER) {
                    seen += 1;
                    pending.resume();
                }
            };
            while !program.is_finished() {
                look();
            }
            look();
            assert_eq!(program.join().expect("no panic"), seen);
            seen
        });
        assert!(marked > 0);
    }
}
