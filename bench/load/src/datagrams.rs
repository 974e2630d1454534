//! A stream of datagrams to a service that counts them ([`twinpath_service::stream`]), as a value: what to
//! send when, and how much has arrived.
//!
//! It sends a question first, so that a host that does not count is never flooded. While it sends, it asks
//! once per interval. At the end it asks until all datagrams under way have arrived, or no more arrive.

use twinpath_service::stream::{self, Arrived, Message, QUESTION_LEN};
use twinpath_time::{Duration, Instant};

use crate::config::{DATAGRAM_MIN, LOSS_TIMEOUT_MAX, LoadError, PAYLOAD_MAX};

/// Maximum number of samples that a stream keeps: an hour of seconds. A longer stream has longer intervals.
pub const SAMPLES_MAX: usize = 3600;
/// A question is repeated after this time without an answer. At the end, also the time without arrivals
/// after which no more are expected.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// While it sends, it is given up after this many time-outs without an answer: questions get lost among too
/// much data.
const SILENT_TIMEOUTS: u32 = 10;
/// Datagrams that could not be sent within this time after they were due are left out, so that no flood
/// follows a pause.
const BEHIND_MAX: Duration = Duration::from_millis(50);
/// Number of datagrams that may be sent late in any case.
const BEHIND_MIN: u64 = 64;

/// The configuration of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DatagramsConfig {
    /// Distinguishes its datagrams from those of other streams.
    pub session: u64,
    /// Bytes of a datagram, from [`DATAGRAM_MIN`].
    pub size: usize,
    /// Number of datagrams due per second; `None`: unlimited.
    pub rate_per_s: Option<f64>,
    /// How long to send.
    pub duration: Duration,
    /// How long the service may take to answer.
    pub timeout: Duration,
}

impl DatagramsConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The field that is impossible.
    pub fn validate(&self) -> Result<(), LoadError> {
        if !(DATAGRAM_MIN..=PAYLOAD_MAX).contains(&self.size) {
            return Err(LoadError::DatagramLen(self.size));
        }
        if self.duration.is_zero() {
            return Err(LoadError::Empty);
        }
        if self.timeout.is_zero() || self.timeout > LOSS_TIMEOUT_MAX {
            return Err(LoadError::LossTimeout(self.timeout));
        }
        match self.rate_per_s {
            Some(rate) if !(rate > 0.0 && rate <= 1e9) => Err(LoadError::Rate(rate)),
            _ => Ok(()),
        }
    }
}

/// The length of an interval between samples: a second, or a multiple of it if there would be too many
/// samples.
#[must_use]
pub fn sample_interval(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs().div_ceil(SAMPLES_MAX as u64).max(1))
}

/// A stream in progress.
pub struct Datagrams {
    config: DatagramsConfig,
    phase: Phase,
    /// When the first question was asked.
    asked_first: Option<Instant>,
    /// When sending began, and when it ends or ended.
    began: Instant,
    ends: Instant,
    /// Sequence number of the next datagram.
    sequence: u64,
    lost_here: u64,
    left_out: u64,
    /// Number of the next question, and of the first one after the last datagram.
    question: u64,
    first_settling: u64,
    ask_at: Instant,
    awaits_answer: bool,
    interval: Duration,
    /// Number of the last question that was answered, plus one.
    answered: u64,
    answered_at: Instant,
    /// The counts reported by the service, and its last counts before it restarted counting.
    told: Arrived,
    told_before: Arrived,
    has_restarted: bool,
    is_silent: bool,
    foreign: u64,
    samples: Vec<DatagramSample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It asks whether the service counts.
    Asking,
    Sending,
    /// It waits for datagrams under way.
    Settling,
    Done,
}

/// The state of a stream when an answer arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramSample {
    /// Since sending began.
    pub at: Duration,
    /// Datagrams that had left.
    pub sent: u64,
    /// Datagrams that had not left, because there was no room.
    pub lost_here: u64,
    /// Datagrams that had arrived.
    pub arrived: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
}

/// The result of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramsSummary {
    /// Datagrams that left.
    pub sent: u64,
    /// Datagrams for which the port or the kernel had no room.
    pub lost_here: u64,
    /// Datagrams that were due and left out, because this client was too slow.
    pub left_out: u64,
    /// The counts of arrived datagrams.
    pub arrived: Arrived,
    /// How long it was sent.
    pub elapsed: Duration,
    /// Whether the service answered at all.
    pub is_counted: bool,
    /// The service stopped answering: the counts of arrived datagrams are those of its last answer.
    pub is_silent: bool,
    /// The service forgot the stream and restarted counting, so its counts may be too low.
    pub has_restarted: bool,
    /// Datagrams that are not answers.
    pub foreign: u64,
    /// The intervals, in order.
    pub samples: Vec<DatagramSample>,
}

impl Datagrams {
    /// A stream that has not asked yet.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn new(config: DatagramsConfig) -> Result<Self, LoadError> {
        config.validate()?;
        let interval = sample_interval(config.duration);
        let samples = config.duration.as_secs().div_ceil(interval.as_secs()) as usize + 2;
        Ok(Self {
            config,
            phase: Phase::Asking,
            asked_first: None,
            began: Instant::ZERO,
            ends: Instant::NEVER,
            sequence: 0,
            lost_here: 0,
            left_out: 0,
            question: 0,
            first_settling: 0,
            ask_at: Instant::ZERO,
            awaits_answer: false,
            interval,
            answered: 0,
            answered_at: Instant::ZERO,
            told: Arrived::default(),
            told_before: Arrived::default(),
            has_restarted: false,
            is_silent: false,
            foreign: 0,
            samples: Vec::with_capacity(samples.min(SAMPLES_MAX + 2)),
        })
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &DatagramsConfig {
        &self.config
    }

    /// Length of a question: that of a data datagram, so that both take the same path, unless that is
    /// shorter than the minimum.
    #[must_use]
    pub const fn question_len(&self) -> usize {
        if self.config.size > QUESTION_LEN { self.config.size } else { QUESTION_LEN }
    }

    /// Whether a question is due. If so, [`Self::write_question`] must be called.
    #[inline]
    pub fn asks(&mut self, now: Instant) -> bool {
        self.proceed(now);
        self.phase != Phase::Done && now >= self.ask_at
    }

    /// Writes the question that is due. `payload` has [`Self::question_len`] bytes.
    pub fn write_question(&mut self, payload: &mut [u8], now: Instant) {
        payload[..QUESTION_LEN].copy_from_slice(&stream::question(self.config.session, self.question));
        self.question += 1;
        self.asked_first.get_or_insert(now);
        self.ask_at = now + ASK_AGAIN;
        self.awaits_answer = true;
    }

    /// The number of datagrams that may leave now: all that are due, or any number.
    #[inline]
    pub fn due(&mut self, now: Instant) -> u64 {
        if self.phase != Phase::Sending {
            return 0;
        }
        let Some(rate) = self.config.rate_per_s else {
            return if now < self.ends { u64::MAX } else { 0 };
        };
        let behind = self.behind(rate, now);
        let most = BEHIND_MIN.max((rate * BEHIND_MAX.as_secs_f64()) as u64);
        self.left_out += behind.saturating_sub(most);
        behind.min(most)
    }

    /// The number of datagrams that are due and were neither written nor left out. One is due at the
    /// beginning, none at the end.
    fn behind(&self, rate_per_s: f64, now: Instant) -> u64 {
        let per_ns = rate_per_s / 1e9;
        let whole = (self.ends.nanos_since(self.began) as f64 * per_ns).ceil() as u64;
        let due = (now.nanos_since(self.began) as f64 * per_ns) as u64 + 1;
        due.min(whole).saturating_sub(self.sequence + self.left_out)
    }

    /// Writes the next data datagram, which then counts as sent.
    #[inline]
    pub fn write(&mut self, payload: &mut [u8]) {
        stream::write_data(payload, self.config.session, self.sequence);
        self.sequence += 1;
    }

    /// Records that this many of the datagrams written last did not leave, because there was no room.
    #[inline]
    pub fn lost_here(&mut self, count: u64) {
        self.lost_here += count;
    }

    /// Data datagrams written so far, whether they left or not.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.sequence
    }

    /// Whether an answer may arrive.
    #[must_use]
    pub const fn awaits_answer(&self) -> bool {
        self.awaits_answer
    }

    /// Takes a datagram from the service.
    pub fn receive(&mut self, datagram: &[u8], now: Instant) {
        match stream::read(datagram) {
            Some((session, Message::Answer { number, arrived }))
                if session == self.config.session && number < self.question =>
            {
                // A late answer to an earlier question contains nothing new.
                if number >= self.answered && self.phase != Phase::Done {
                    self.answer(number, &arrived, now);
                }
            }
            _ => self.foreign += 1,
        }
    }

    fn answer(&mut self, number: u64, arrived: &Arrived, now: Instant) {
        let had = self.arrived().datagrams;
        if arrived.datagrams < self.told.datagrams {
            self.told_before = self.arrived();
            self.has_restarted = true;
        }
        self.told = *arrived;
        (self.answered, self.answered_at) = (number + 1, now);
        self.awaits_answer = false;
        let is_all = number > self.first_settling && had == self.arrived().datagrams;
        match self.phase {
            Phase::Asking => {
                self.phase = Phase::Sending;
                (self.began, self.ends) = (now, now + self.config.duration);
                self.ask_at = now + self.interval;
            }
            Phase::Sending => {
                self.sample(now);
                let past = now.since(self.began).as_secs() / self.interval.as_secs();
                self.ask_at = self.began + self.interval * u32::try_from(past + 1).unwrap_or(u32::MAX);
            }
            // Everything has arrived, or nothing more has since the last answer.
            Phase::Settling if number >= self.first_settling => {
                if self.arrived().datagrams >= self.sent() || is_all {
                    self.sample(self.ends);
                    self.phase = Phase::Done;
                }
                self.ask_at = now + ASK_AGAIN;
            }
            Phase::Settling | Phase::Done => {}
        }
    }

    fn sample(&mut self, at: Instant) {
        let arrived = self.arrived();
        let sample = DatagramSample {
            at: at.since(self.began),
            sent: self.sent(),
            lost_here: self.lost_here,
            arrived: arrived.datagrams,
            bytes: arrived.bytes,
        };
        // Datagrams that arrive after the end belong to the last interval.
        self.samples.pop_if(|last| last.at >= sample.at);
        if self.samples.len() < self.samples.capacity() {
            self.samples.push(sample);
        }
    }

    fn sent(&self) -> u64 {
        self.sequence - self.lost_here
    }

    fn arrived(&self) -> Arrived {
        let (before, told) = (&self.told_before, &self.told);
        Arrived {
            datagrams: before.datagrams + told.datagrams,
            bytes: before.bytes + told.bytes,
            highest: before.highest.max(told.highest),
            out_of_order: before.out_of_order + told.out_of_order,
            elapsed: before.elapsed + told.elapsed,
        }
    }

    /// Makes the changes that depend only on time.
    fn proceed(&mut self, now: Instant) {
        let timeout = self.config.timeout;
        match self.phase {
            Phase::Asking if self.asked_first.is_some_and(|asked| now.since(asked) >= timeout) => {
                self.phase = Phase::Done;
            }
            Phase::Sending if now.since(self.answered_at) >= timeout * SILENT_TIMEOUTS + self.interval => {
                self.is_silent = true;
                self.ends = now;
                self.phase = Phase::Done;
            }
            // Datagrams due before the end are sent first.
            Phase::Sending
                if now >= self.ends
                    && self.config.rate_per_s.is_none_or(|rate| self.behind(rate, now) == 0) =>
            {
                self.settle(now);
            }
            Phase::Settling if now.since(self.ends.max(self.answered_at)) >= timeout.max(2 * ASK_AGAIN) => {
                self.is_silent = true;
                self.phase = Phase::Done;
            }
            _ => {}
        }
    }

    fn settle(&mut self, now: Instant) {
        self.phase = Phase::Settling;
        self.ends = now;
        self.first_settling = self.question;
        self.ask_at = now;
    }

    /// Stops sending: asks for the counts, and is then done.
    pub fn end(&mut self, now: Instant) {
        match self.phase {
            Phase::Asking => self.phase = Phase::Done,
            Phase::Sending => self.settle(now),
            Phase::Settling | Phase::Done => {}
        }
    }

    /// No more answers are expected: it is done now.
    pub fn give_up(&mut self, now: Instant) {
        self.is_silent |= self.is_counted();
        if self.phase == Phase::Sending {
            self.ends = now;
        }
        self.phase = Phase::Done;
    }

    /// Whether the service has answered.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        self.answered > 0
    }

    /// Whether it is sending.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.phase == Phase::Sending
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// The latest time of the next action.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        match self.phase {
            Phase::Done => Instant::ZERO,
            Phase::Asking | Phase::Settling => self.ask_at,
            Phase::Sending => self.next_due().min(self.ask_at).min(self.ends),
        }
    }

    /// When the next datagram is due.
    fn next_due(&self) -> Instant {
        let Some(rate) = self.config.rate_per_s else { return Instant::ZERO };
        let offset_ns = (self.sequence + self.left_out) as f64 * 1e9 / rate;
        self.began + Duration::from_nanos(offset_ns.ceil() as u64)
    }

    /// The result.
    #[must_use]
    pub fn summary(&self) -> DatagramsSummary {
        DatagramsSummary {
            sent: self.sent(),
            lost_here: self.lost_here,
            left_out: self.left_out,
            arrived: self.arrived(),
            elapsed: if self.is_counted() { self.ends.since(self.began) } else { Duration::ZERO },
            is_counted: self.is_counted(),
            is_silent: self.is_silent,
            has_restarted: self.has_restarted,
            foreign: self.foreign,
            samples: self.samples.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
