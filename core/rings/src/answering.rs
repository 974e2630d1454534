//! The word that says whether the worker of a queue answers what programs could answer: it is behind the word of [`Pending`], in the same
//! line (`stack/bpf/bpf/pending.h` has the same layout).
//!
//! - 0: the programs answer;
//! - [`GIVEN_BACK`]: they do, and the worker has answered until now;
//! - a time, ns of `CLOCK_MONOTONIC`: the worker answers until then.
//!
//! And the word behind that: how many requests a second programs have answered before they have tried the worker.
//!
//! Programs write a time to try the worker, and workers write what they decide ([`Answering`](twinpath_idle::Answering)). Nobody waits
//! for anybody: a time that nobody writes anew lapses.
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

    /// A turn at `now` has found so many frames.
    #[inline]
    pub fn found(&mut self, now: Instant, frames: u32) {
        if frames == 0 {
            return;
        }
        // What was written before it is read after it.
        let until = self.word().load(Ordering::Acquire);
        if until > GIVEN_BACK {
            self.decide(now, frames, until);
        } else {
            self.policy.found_beside(now, frames);
        }
    }

    /// While requests are few the word says nothing.
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

    /// Where a program has begun another trial meanwhile, that goes on.
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
