//! Decides how long to delay reading a pipelining connection so that requests batch.
//!
//! Each reply that is sent alone costs both sides a system call, a packet, and the lock of the peer's
//! socket. If a peer has several requests under way, the worker can wait until a few more have arrived, and
//! answer them with one read and one send. The best delay depends on the peer, so several are tried. The
//! delay with the highest rate of bytes is kept for a while; no delay is used unless one is clearly better.
//! A peer that waits for each reply is delayed only by an occasional trial of the shortest delay, and only
//! if its requests differ in size.

use twinpath_time::{Duration, Instant};

/// The delays that are tried, in this order.
const DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_micros(10), Duration::from_micros(20), Duration::from_micros(40)];
/// A trial lasts until this many requests of the smallest size seen have arrived, within these bounds of
/// time.
const TRIAL_REQUESTS: u64 = 2048;
const TRIAL_MIN: Duration = Duration::from_millis(2);
const TRIAL_MAX: Duration = Duration::from_millis(20);
/// A trial begins again after a silence of this length, because its rate would mean nothing.
const SILENCE: Duration = Duration::from_micros(500);
/// How long the best delay is kept before the next round of trials. If the best is no delay, the time doubles
/// up to `KEPT_MAX`.
const KEPT_MIN: Duration = Duration::from_millis(250);
const KEPT_MAX: Duration = Duration::from_secs(4);
/// A delay must raise the rate by more than one part in this number, and by more than chance can explain.
const CLEARLY: u64 = 32;
/// A delay ends after this many reads in a row that returned no more bytes than reads without a delay did.
const IN_VAIN: u32 = 8;

#[derive(Debug)]
pub(crate) struct ReadDelay {
    /// The delay in force, by its index in `DELAYS`; whether it is on trial; and if not, until when it is
    /// kept.
    delay: usize,
    trying: bool,
    until: Instant,
    /// The connection is not read before this time.
    next: Instant,
    /// When bytes were last read; and since the trial began: bytes, reads, and the smallest read.
    found: Instant,
    began: Instant,
    bytes: u64,
    reads: u64,
    least: u64,
    /// The best delay of this round, the rate that another one must exceed (bytes per ms), and the rate of the
    /// best.
    best: usize,
    to_pass: u64,
    best_rate: u64,
    /// Mean bytes of a read without a delay; and how many reads in a row with a delay returned no more than
    /// that.
    alone_bytes: u64,
    in_vain: u32,
    kept: Duration,
}

impl Default for ReadDelay {
    fn default() -> Self {
        Self {
            delay: 0,
            until: Instant::ZERO,
            trying: false,
            next: Instant::ZERO,
            found: Instant::ZERO,
            began: Instant::ZERO,
            bytes: 0,
            reads: 0,
            least: u64::MAX,
            best: 0,
            to_pass: 0,
            best_rate: 0,
            alone_bytes: 0,
            in_vain: 0,
            kept: KEPT_MIN,
        }
    }
}

impl ReadDelay {
    /// Whether the connection may be read now.
    #[inline]
    pub(crate) fn may_read(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// When it may be read.
    #[inline]
    pub(crate) const fn next_read(&self) -> Instant {
        self.next
    }

    /// Records a read that returned `bytes` bytes.
    #[inline]
    pub(crate) fn was_read(&mut self, now: Instant, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let silent = now > self.found + SILENCE;
        self.reads += 1;
        self.bytes += bytes;
        self.least = self.least.min(bytes);
        (self.found, self.next) = (now, now + DELAYS[self.delay]);
        if !self.trying {
            // If the peer behaves differently from before, the delays are tried again.
            self.in_vain = if bytes <= self.alone_bytes { self.in_vain + 1 } else { 0 };
            if now >= self.until || (self.in_vain >= IN_VAIN && self.delay > 0) {
                self.try_delay(0, now);
            }
        } else if silent {
            self.try_delay(self.delay, now);
        } else if now >= self.began + TRIAL_MIN
            && (self.bytes / self.least >= TRIAL_REQUESTS || now >= self.began + TRIAL_MAX)
        {
            self.judge(now);
        }
    }

    /// Compares the delay that was tried with the best so far.
    fn judge(&mut self, now: Instant) {
        let (rate, each) = (self.bytes * 1_000_000 / now.nanos_since(self.began), self.bytes / self.reads);
        // Whether a longer delay may be better still.
        let go_on = if self.delay == 0 {
            (self.alone_bytes, self.best, self.best_rate) = (each, 0, rate);
            // The number of requests varies by chance, with the root of their number as its deviation: allow
            // for twice that.
            let requests = self.bytes / self.least;
            self.to_pass = rate + rate / CLEARLY + 2 * rate / requests.isqrt();
            // If all reads are as small as the smallest, each holds one request: the peer waits for its answer.
            clearly_more(each, self.least)
        } else if rate > self.to_pass.max(self.best_rate) {
            (self.best, self.best_rate) = (self.delay, rate);
            true
        } else {
            // If reads differ in size but no delay makes them larger, they hold one request each, too.
            clearly_more(each, self.alone_bytes) && rate >= self.best_rate - self.best_rate / CLEARLY
        };
        if go_on && self.delay + 1 < DELAYS.len() {
            return self.try_delay(self.delay + 1, now);
        }
        self.keep_best(now);
    }

    fn keep_best(&mut self, now: Instant) {
        self.kept = if self.best > 0 { KEPT_MIN } else { (2 * self.kept).min(KEPT_MAX) };
        (self.delay, self.trying, self.until, self.in_vain) = (self.best, false, now + self.kept, 0);
        self.next = now + DELAYS[self.delay];
    }

    fn try_delay(&mut self, delay: usize, now: Instant) {
        (self.delay, self.trying) = (delay, true);
        (self.began, self.bytes, self.reads, self.least) = (now, 0, 0, u64::MAX);
        self.next = now + DELAYS[delay];
    }
}

/// Whether reads of `bytes` bytes hold more requests than reads of `than` bytes.
const fn clearly_more(bytes: u64, than: u64) -> bool {
    bytes >= than + than / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK_NS: u64 = 300;
    const ANSWER_NS: u64 = 6_500;
    const CALL_BYTES: u64 = 44;

    /// A peer that sends a call every `gap_ns` while fewer than `window` are unanswered, and that needs
    /// `answer_ns` to process each batch of answers.
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

        /// Serves the peer for `for_ms`, reading when `delay` allows it; returns the calls answered per ms.
        fn play(&mut self, delay: &mut ReadDelay, for_ms: u64) -> u64 {
            let (end, mut answered) = (self.now + for_ms * 1_000_000, 0);
            while self.now < end {
                while self.sends_at <= self.now && self.unanswered < self.window {
                    self.unanswered += 1;
                    self.sends_at += self.gap_ns;
                }
                self.now += ASK_NS;
                let now = Instant::from_nanos(self.now);
                if !delay.may_read(now) {
                    continue;
                }
                delay.was_read(now, self.unanswered * CALL_BYTES);
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

    fn delay_for(gap_ns: u64, window: u64, answer_ns: u64) -> Duration {
        let mut delay = ReadDelay::default();
        Peer::new(gap_ns, window, answer_ns).play(&mut delay, 1_000);
        DELAYS[delay.best]
    }

    #[test]
    fn a_peer_that_is_slowed_down_by_every_answer_is_read_later() {
        let mut delay = ReadDelay::default();
        let mut peer = Peer::new(4_500, 128, 1_500);
        peer.play(&mut delay, 1_000);
        assert!(delay.best >= 2, "{:?}", DELAYS[delay.best]);
        let (rate, without) = (peer.play(&mut delay, 1_000), 1_000_000 / (4_500 + 1_500));
        assert!(rate > without * 115 / 100, "{rate} calls per ms, {without} without");
    }

    #[test]
    fn a_peer_that_waits_for_its_answers_is_not_held_up() {
        assert_eq!(delay_for(6_000, 1, 0), Duration::ZERO);
        assert_eq!(delay_for(8_000, 2, 0), Duration::ZERO, "its window is small");
        assert_eq!(delay_for(20_000, 128, 1_500), Duration::ZERO, "it asks at its own pace");
    }

    #[test]
    fn nor_is_one_whose_requests_differ_in_size() {
        let mut delay = ReadDelay::default();
        let (mut now, mut held) = (1_000_000, 0);
        for request in 0..200_000_u64 {
            now += 9_000;
            while !delay.may_read(Instant::from_nanos(now)) {
                (now, held) = (now + ASK_NS, held + 1);
            }
            delay.was_read(Instant::from_nanos(now), if request * 2_654_435_761 % 7 < 3 { 100 } else { 160 });
        }
        assert_eq!(delay.best, 0);
        let (held, now) = (held * ASK_NS, now - 1_000_000);
        assert!(held < now / 200, "held up for {held} of {now} ns");
    }

    #[test]
    fn a_delay_that_brings_nothing_is_not_kept() {
        assert_eq!(delay_for(6_000, 128, 0), Duration::ZERO, "answers cost this one nothing");
        // A window of eight calls is full before even the shortest delay is over.
        assert_eq!(delay_for(1_000, 8, 500), Duration::ZERO);
    }

    #[test]
    fn it_ends_as_soon_as_the_peer_waits_again() {
        let mut delay = ReadDelay::default();
        let mut peer = Peer::new(4_500, 128, 1_500);
        while delay.trying || delay.delay == 0 {
            peer.play(&mut delay, 1);
        }
        peer.window = 1;
        peer.play(&mut delay, 1);
        assert_eq!(DELAYS[delay.delay], Duration::ZERO);
    }
}
