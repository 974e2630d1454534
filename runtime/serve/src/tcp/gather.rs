//! Whether a favourite that does not wait for its answers is given a moment to ask more.
//!
//! Every answer that leaves by itself costs both sides a system call, a packet, and the lock of the peer's socket. A peer whose next
//! request is there as soon as the last one is answered does not wait for answers: if a few more are let come, they share a
//! read and a send. How long to wait for them nobody can know, so it is tried: the wait that brings the most bytes in a time
//! is kept for a while, and none at all unless one brings clearly more. A peer that waits for its answers is never held up.

use twinpath_time::{Duration, Instant};

/// Waits that are tried, in this order, for as long as each is better than the one before.
const WAITS: [Duration; 3] = [Duration::ZERO, Duration::from_micros(20), Duration::from_micros(50)];
/// How long each is tried.
const TRIAL: Duration = Duration::from_millis(2);
/// How long the best is kept before all are tried again.
const KEPT: Duration = Duration::from_millis(100);
/// More bytes in a time, by which a longer wait must win: one part of this.
const CLEARLY: u64 = 32;
/// A peer waits for its answers if fewer than one of so many asks at once after an answer found something.
const SELDOM: u32 = 4;
/// Reads in a row that brought no more than they would have without a wait, after which it ends.
const IN_VAIN: u32 = 8;

#[derive(Debug)]
pub(crate) struct Gather {
    /// Which of the waits is in force, and until when.
    wait: usize,
    until: Instant,
    /// Whether it is being tried, or kept.
    trying: bool,
    /// Not to be asked before.
    next: Instant,
    /// What was found since the trial began: bytes, times asked, times that there was something.
    began: Instant,
    bytes: u64,
    asked: u32,
    found: u32,
    /// The best so far, and its bytes per ms.
    best: usize,
    best_rate: u64,
    /// Bytes of a read without a wait, and reads in a row that held no more with one.
    alone_bytes: u64,
    in_vain: u32,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            wait: 0,
            until: Instant::ZERO,
            trying: true,
            next: Instant::ZERO,
            began: Instant::ZERO,
            bytes: 0,
            asked: 0,
            found: 0,
            best: 0,
            best_rate: 0,
            alone_bytes: 0,
            in_vain: 0,
        }
    }
}

impl Gather {
    /// Whether the connection is to be asked now.
    #[inline]
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// It was asked, and gave so many bytes.
    #[inline]
    pub(crate) fn asked(&mut self, now: Instant, bytes: u64) {
        self.asked += 1;
        if bytes > 0 {
            self.found += 1;
            self.bytes += bytes;
            self.next = now + WAITS[self.wait];
            self.in_vain = if bytes <= self.alone_bytes { self.in_vain + 1 } else { 0 };
        }
        if now >= self.until {
            self.over(now);
        } else if self.in_vain == IN_VAIN && self.wait > 0 {
            self.try_wait(0, now);
        }
    }

    /// What was in force has had its time.
    fn over(&mut self, now: Instant) {
        if self.began == Instant::ZERO || !self.trying {
            return self.try_wait(0, now);
        }
        if self.wait == 0 {
            self.alone_bytes = self.bytes / u64::from(self.found.max(1));
        }
        let rate = self.bytes * 1_000_000 / now.nanos_since(self.began).max(1);
        let better = self.wait == 0 || rate > self.best_rate + self.best_rate / CLEARLY;
        if better {
            (self.best, self.best_rate) = (self.wait, rate);
        }
        let waits_for_answers = self.wait == 0 && self.found < self.asked / SELDOM;
        if better && !waits_for_answers && self.wait + 1 < WAITS.len() {
            self.try_wait(self.wait + 1, now);
        } else {
            (self.wait, self.trying, self.until) = (self.best, false, now + KEPT);
        }
    }

    fn try_wait(&mut self, wait: usize, now: Instant) {
        (self.wait, self.trying, self.until) = (wait, true, now + TRIAL);
        (self.began, self.bytes, self.asked, self.found, self.in_vain) = (now, 0, 0, 0, 0);
        if wait == 0 {
            self.next = Instant::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK_NS: u64 = 300;
    const ANSWER_NS: u64 = 5_500;
    const CALL_BYTES: u64 = 44;

    /// A peer that sends a call every `gap_ns` while fewer than `window` are unanswered, and that each send of answers takes
    /// `answer_ns` of.
    struct Peer {
        gap_ns: u64,
        window: u64,
        answer_ns: u64,
        now: u64,
        sends_at: u64,
        unanswered: u64,
    }

    impl Peer {
        fn new(gap_ns: u64, window: u64, answer_ns: u64) -> Self {
            Self { gap_ns, window, answer_ns, now: 1, sends_at: 1, unanswered: 0 }
        }

        /// Is answered for so long by one who asks as it is told to; the calls answered per ms.
        fn play(&mut self, gather: &mut Gather, for_ms: u64) -> u64 {
            let (end, mut answered) = (self.now + for_ms * 1_000_000, 0);
            while self.now < end {
                while self.sends_at <= self.now && self.unanswered < self.window {
                    self.unanswered += 1;
                    self.sends_at += self.gap_ns;
                }
                self.now += ASK_NS;
                let now = Instant::from_nanos(self.now);
                if !gather.may_ask(now) {
                    continue;
                }
                gather.asked(now, self.unanswered * CALL_BYTES);
                if self.unanswered > 0 {
                    self.now += ANSWER_NS;
                    if self.unanswered == self.window {
                        self.sends_at = self.sends_at.max(self.now);
                    }
                    answered += std::mem::take(&mut self.unanswered);
                    self.sends_at += self.answer_ns;
                }
            }
            answered / for_ms
        }
    }

    fn wait_for(gap_ns: u64, window: u64, answer_ns: u64) -> Duration {
        let mut gather = Gather::default();
        Peer::new(gap_ns, window, answer_ns).play(&mut gather, 500);
        WAITS[gather.best]
    }

    #[test]
    fn a_peer_that_is_slowed_down_by_every_answer_is_let_ask_more() {
        let mut gather = Gather::default();
        let mut peer = Peer::new(4_500, 128, 1_500);
        peer.play(&mut gather, 500);
        assert_eq!(WAITS[gather.best], WAITS[2]);
        let (rate, without) = (peer.play(&mut gather, 500), 1_000_000 / (4_500 + 1_500));
        assert!(rate > without * 6 / 5, "{rate} calls per ms, {without} without");
    }

    #[test]
    fn a_peer_that_waits_for_its_answers_is_not_held_up() {
        assert_eq!(wait_for(6_000, 1, 0), Duration::ZERO);
        assert_eq!(wait_for(4_000, 2, 0), Duration::ZERO, "its window is small");
        assert_eq!(wait_for(20_000, 128, 1_500), Duration::ZERO, "it asks at its own pace");
    }

    #[test]
    fn a_wait_that_brings_nothing_is_not_kept() {
        assert_eq!(wait_for(5_000, 128, 0), Duration::ZERO, "answers cost this one nothing");
        // A window of eight calls is full within the shorter of the waits.
        let mut gather = Gather::default();
        let mut peer = Peer::new(1_000, 8, 500);
        let without = peer.play(&mut gather, 1);
        let rate = peer.play(&mut gather, 500);
        assert!(rate >= without * 97 / 100, "{rate} calls per ms, {without} without");
    }

    #[test]
    fn it_ends_as_soon_as_the_peer_waits_again() {
        let mut gather = Gather::default();
        let mut peer = Peer::new(4_500, 128, 1_500);
        while gather.trying || gather.wait == 0 {
            peer.play(&mut gather, 1);
        }
        peer.window = 1;
        peer.play(&mut gather, 1);
        assert_eq!(WAITS[gather.wait], Duration::ZERO);
    }
}
