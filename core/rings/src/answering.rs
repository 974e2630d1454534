//! The word that says whether the worker of a queue answers requests that programs could answer. It follows the
//! word of [`Pending`] in the same cache line (`stack/bpf/bpf/pending.h` has the same layout).
//!
//! - 0: the programs answer;
//! - [`GIVEN_BACK`]: the programs answer, and the worker has answered until now;
//! - a time, ns of `CLOCK_MONOTONIC`: the worker answers until then.
//!
//! The word after it: how many requests a second the programs answered before they let the worker try.
//!
//! Programs write a time to let the worker try, and workers write what they decide
//! ([`Answering`](twinpath_idle::Answering)). Neither waits for the other: a time that is not renewed expires.
#![allow(unsafe_code, reason = "the words lie in memory mapped from the kernel, whose programs change them")]

use twinpath_idle::{Answering, Tried, Word};
use twinpath_time::Instant;

use crate::layouts::GIVEN_BACK;
use crate::pending::Pending;
use crate::sync::{AtomicU64, Ordering};

/// Whether the worker of a queue answers.
#[derive(Debug)]
pub struct ByWorker {
    of: Pending,
    policy: Answering,
}

impl ByWorker {
    /// For the queue that has this word.
    #[must_use]
    pub fn new(of: Pending) -> Self {
        Self { of, policy: Answering::default() }
    }

    fn word(&self) -> &AtomicU64 {
        &self.of.behind()[0]
    }

    /// A turn at `now` has found `frames` frames.
    #[inline]
    pub fn found(&mut self, now: Instant, frames: u32) {
        if frames == 0 {
            return;
        }
        // The acquire makes visible everything that was written before it.
        let until = self.word().load(Ordering::Acquire);
        if until > GIVEN_BACK {
            self.decide(now, frames, until);
        } else {
            self.policy.found_beside(now, frames);
        }
    }

    /// While there are few requests, the word stays unchanged.
    #[cold]
    fn decide(&mut self, now: Instant, frames: u32, until: u64) {
        let before = self.of.behind()[1].load(Ordering::Relaxed);
        let said = self.policy.found(now, frames, Tried { until: Instant::from_nanos(until), before });
        self.write(until, said);
    }

    /// The worker is about to sleep, after a turn at `now`.
    pub fn sleeps(&mut self, now: Instant) {
        let until = self.word().load(Ordering::Relaxed);
        let said = self.policy.sleeps(now);
        if until > GIVEN_BACK {
            self.write(until, said);
        }
    }

    /// If a program has begun another trial meanwhile, that one continues.
    fn write(&self, from: u64, said: Option<Word>) {
        let to = match said {
            None => return,
            Some(Word::Worker { until }) => until.as_nanos(),
            Some(Word::Programs) => 0,
            Some(Word::GivenBack) => GIVEN_BACK,
        };
        let _ = self.word().compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }
}
