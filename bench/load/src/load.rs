//! A load in progress: the window of outstanding requests, and the accounting of replies.

use twinpath_time::{Duration, Instant};

use crate::codec::{Answer, Codec, RequestId};
use crate::config::{Limit, LoadConfig, LoadError, SILENT_TIMEOUTS};
use crate::schedule::Schedule;
use crate::summary::Summary;

/// Enough for `INFLIGHT_MAX` slots; leaves 54 bits of sequence, 500 years at a million a second.
pub(crate) const SLOT_BITS: u32 = 10;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const _: () = assert!(crate::INFLIGHT_MAX as u64 <= 1 << SLOT_BITS);
/// Number of lost requests remembered per slot, to distinguish a late reply from a duplicate. A reply to an
/// older one counts as a duplicate: it took more than this many loss time-outs.
const LOST_MEMORY: usize = 4;
/// Not the number of any request: its sequence number would be the last of 2^54.
const NO_REQUEST: RequestId = RequestId::MAX;

/// How a reply was classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The first right answer to an outstanding request: its round trip is recorded.
    Matched,
    /// The first answer to an outstanding request, and a refusal.
    Refused,
    /// A further answer to a request that has been answered.
    Duplicate,
    /// The answer to a request that was counted as lost.
    Late,
    /// No answer to any request: a wrong byte, a wrong length, an unknown number.
    Corrupt,
}

/// A load in progress.
pub struct Load {
    config: LoadConfig,
    codec: Box<dyn Codec>,
    /// The number of low bits of a request's number that its reply carries.
    id_bits: u32,
    started: Instant,
    /// The schedule of an open loop.
    schedule: Option<Schedule>,
    measured_from: Instant,
    /// When the load ends; `NEVER` if a count ends it.
    until: Instant,
    /// The latest time that was passed in.
    now: Instant,
    last_reply: Instant,
    answered: bool,
    /// Replies that answer none of our requests, including those during the warm-up.
    strange: u64,
    /// Requests made so far; the next one's sequence number.
    sequence: u64,
    /// Sequence number of the first request after the warm-up, once there is one.
    first_measured: Option<u64>,
    slots: Box<[Slot]>,
    /// Free slots; the one used most recently, which is in the cache, is last.
    free: Vec<u16>,
    lost_ids: Box<[[RequestId; LOST_MEMORY]]>,
    /// No outstanding request expires before this.
    expiry_bound: Instant,
    summary: Summary,
}

/// One slot of the window.
#[derive(Clone, Copy)]
struct Slot {
    /// The request's number; `NO_REQUEST` if the slot is free.
    id: RequestId,
    /// Start of the round trip: the due time in an open loop, the send time in a closed one.
    begun: Instant,
    /// The send time; `NEVER` before that.
    sent: Instant,
}

const FREE_SLOT: Slot = Slot { id: NO_REQUEST, begun: Instant::ZERO, sent: Instant::NEVER };

impl Load {
    /// A load that starts at `now`. It allocates all its memory here.
    ///
    /// # Errors
    /// A field of `config` is out of range.
    pub fn new(config: LoadConfig, codec: Box<dyn Codec>, now: Instant) -> Result<Self, LoadError> {
        config.validate()?;
        let id_bits = codec.id_bits();
        debug_assert!(
            (u32::BITS..=u64::BITS).contains(&id_bits),
            "a reply tells its request from all in flight"
        );
        let slot_count = config.inflight as usize;
        let measured_from = now + config.warmup;
        let schedule = match config.rate_per_s {
            None => None,
            Some(rate) => Some(Schedule::new(config.arrivals, rate, config.arrivals_seed, now)?),
        };
        Ok(Self {
            config,
            codec,
            id_bits,
            started: now,
            schedule,
            measured_from,
            until: match config.limit {
                Limit::Count(_) => Instant::NEVER,
                Limit::Duration(length) => measured_from + length,
            },
            now,
            last_reply: measured_from,
            answered: false,
            strange: 0,
            sequence: 0,
            first_measured: None,
            slots: vec![FREE_SLOT; slot_count].into(),
            free: (0..config.inflight as u16).rev().collect(),
            lost_ids: vec![[NO_REQUEST; LOST_MEMORY]; slot_count].into(),
            expiry_bound: Instant::NEVER,
            summary: Summary::empty(),
        })
    }

    /// Counts this many requests as made and answered.
    #[cfg(test)]
    pub(crate) fn made_before(&mut self, requests: u64) {
        self.sequence = requests;
    }

    /// The next request to send now, if there is one: the window has room and, in an open loop, the request is due.
    ///
    /// Each call takes a slot of the window; the caller must call [`sent`](Self::sent) for it.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Option<RequestId> {
        self.now = now;
        if self.issued_all(now) {
            return None;
        }
        let begun = self.next_begin(now);
        if begun > now {
            return None;
        }
        let slot = self.free.pop()?;
        let id = self.sequence << SLOT_BITS | u64::from(slot);
        if begun >= self.measured_from && self.first_measured.is_none() {
            self.first_measured = Some(self.sequence);
        }
        self.sequence += 1;
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        self.slots[usize::from(slot)] = Slot { id, begun, sent: Instant::NEVER };
        Some(id)
    }

    /// Writes request `id`: [`Codec::request_len`] bytes.
    #[inline]
    pub fn write(&self, id: RequestId, payload: &mut [u8]) {
        self.codec.write(id, payload);
    }

    /// Must be called after request `id` was passed to the transport. `now` is the time just before that,
    /// so that sending is part of the round trip.
    #[inline]
    pub fn sent(&mut self, id: RequestId, now: Instant) {
        let Some(slot) = self.slots.get_mut((id & SLOT_MASK) as usize) else { return };
        debug_assert!(slot.id == id && slot.sent == Instant::NEVER, "sent once, and only what was due");
        slot.sent = now;
        let waited_ns = now.nanos_since(slot.begun);
        if self.schedule.is_none() {
            slot.begun = now;
        } else if self.first_measured.is_some_and(|first| id >> SLOT_BITS >= first) {
            self.summary.pacing.saturating_record(waited_ns);
        }
        self.expiry_bound = self.expiry_bound.min(now + self.config.loss_timeout);
        self.summary.sent += u64::from(self.is_measured(id));
    }

    /// Handles a reply: checks every byte of it and, if it answers an outstanding request, records the round trip.
    #[inline]
    pub fn reply(&mut self, reply: &[u8], now: Instant) -> Reply {
        let answer = self.check(reply);
        self.answer(answer, now)
    }

    /// The first half of [`reply`](Self::reply), which takes most of the time. If the caller reads the
    /// clock between the two halves, the check is part of the round trip.
    #[inline]
    pub fn check(&mut self, reply: &[u8]) -> Answer {
        self.codec.check(reply)
    }

    /// The second half of [`reply`](Self::reply).
    #[inline]
    pub fn answer(&mut self, answer: Answer, now: Instant) -> Reply {
        self.now = now;
        let (low, is_right) = match answer {
            Answer::Right(low) => (low, true),
            Answer::Refused(low) => (low, false),
            Answer::Wrong => return self.corrupt(now),
        };
        let id = self.widen(low);
        let Some(slot) = self.slots.get((id & SLOT_MASK) as usize).copied() else { return self.corrupt(now) };
        if slot.id == id && slot.sent != Instant::NEVER {
            self.release(id);
            self.answered = true;
            if self.is_measured(id) {
                self.last_reply = now;
                if is_right {
                    self.summary.received += 1;
                    self.summary.histogram.saturating_record(now.nanos_since(slot.begun));
                } else {
                    self.summary.refused += 1;
                }
            } else {
                self.summary.warmup_replies += 1;
            }
            return if is_right { Reply::Matched } else { Reply::Refused };
        }
        if id >> SLOT_BITS < self.sequence && slot.id != id { self.stray(id) } else { self.corrupt(now) }
    }

    /// Counts bytes that are not a reply.
    #[cold]
    pub fn corrupt(&mut self, now: Instant) -> Reply {
        self.now = now;
        self.strange += 1;
        self.summary.corrupt += u64::from(now >= self.measured_from);
        Reply::Corrupt
    }

    /// The latest request whose number ends in the bits of `low`, which are the bits that replies carry.
    #[inline]
    fn widen(&self, low: u64) -> RequestId {
        if self.id_bits == u64::BITS {
            return low;
        }
        let newest = (self.sequence << SLOT_BITS).wrapping_sub(1);
        newest.wrapping_sub(newest.wrapping_sub(low) & ((1 << self.id_bits) - 1))
    }

    /// Counts requests as lost that have been outstanding for the loss time-out; returns their number. This
    /// is cheap if none can have expired, so it may be called every turn.
    #[inline]
    pub fn expire(&mut self, now: Instant) -> u32 {
        self.now = now;
        if now < self.expiry_bound { 0 } else { self.expire_slots(now) }
    }

    /// Whether [`due`](Self::due) would return a request now.
    #[inline]
    #[must_use]
    pub fn has_due(&self, now: Instant) -> bool {
        !self.free.is_empty() && !self.issued_all(now) && self.next_begin(now) <= now
    }

    /// When the client must act without a reply: at the next due request of an open loop, or at the next
    /// loss. It is in the past if a request is due now, or if nothing is left. It is never too late. It is
    /// too early only once per loss time-out, if [`expire`](Self::expire) is called at each deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        if self.done(self.now) {
            // A client that called [`done`](Self::done) before the last request was counted as lost would wait for
            // ever.
            return self.now;
        }
        if self.free.is_empty() || self.issued_all(self.now) {
            return self.expiry_bound;
        }
        self.expiry_bound.min(self.next_begin(self.started))
    }

    /// Whether all requests were sent, and answered or lost.
    #[inline]
    #[must_use]
    pub fn done(&self, now: Instant) -> bool {
        self.open_requests() == 0 && self.issued_all(now)
    }

    /// Whether the warm-up is over.
    #[inline]
    #[must_use]
    pub fn is_measuring(&self, now: Instant) -> bool {
        now >= self.measured_from
    }

    /// Requests that occupy a slot of the window.
    #[inline]
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing was answered for [`SILENT_TIMEOUTS`] loss time-outs, including the warm-up: there is
    /// no server, or it does not know the protocol.
    #[inline]
    #[must_use]
    pub fn is_hopeless(&self, now: Instant) -> bool {
        !self.answered && now.since(self.started) > self.config.loss_timeout * SILENT_TIMEOUTS
    }

    /// A description of the first reply that was refused or wrong. If nothing was answered, the number of
    /// replies that belong to none of our requests.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let strange = || format!("replies to requests that were never made: {}", self.strange);
        self.codec.complaint().or_else(|| (!self.answered && self.strange > 0).then(strange))
    }

    /// The completed share, 0 to 1.
    #[must_use]
    pub fn progress(&self, now: Instant) -> f64 {
        let fraction = match self.config.limit {
            Limit::Count(count) => self.measured_issued() as f64 / count as f64,
            Limit::Duration(length) => {
                now.since(self.started).as_secs_f64() / (self.config.warmup + length).as_secs_f64()
            }
        };
        fraction.min(1.0)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &LoadConfig {
        &self.config
    }

    /// The codec.
    #[inline]
    #[must_use]
    pub fn codec(&self) -> &dyn Codec {
        &*self.codec
    }

    /// The result so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let ended = match self.config.limit {
            // A load with a count ends with its last reply. Otherwise a loss at the end would add its
            // time-out to the duration.
            Limit::Count(_) => self.last_reply,
            Limit::Duration(_) => self.until.min(self.now),
        };
        let unanswered =
            self.slots.iter().filter(|slot| slot.sent != Instant::NEVER && self.is_measured(slot.id)).count();
        Summary {
            unanswered: unanswered as u64,
            elapsed: ended.since(self.measured_from),
            quiet: if self.summary.lost > 0 { self.now.since(self.last_reply) } else { Duration::ZERO },
            ..self.summary.clone()
        }
    }

    /// When the next request begins: immediately in a closed loop, as scheduled in an open one.
    #[inline]
    fn next_begin(&self, now: Instant) -> Instant {
        self.schedule.as_ref().map_or(now, Schedule::due)
    }

    #[inline]
    fn issued_all(&self, now: Instant) -> bool {
        match self.config.limit {
            Limit::Count(count) => self.measured_issued() >= count,
            Limit::Duration(_) => now >= self.until || self.next_begin(now) >= self.until,
        }
    }

    #[inline]
    fn measured_issued(&self) -> u64 {
        self.first_measured.map_or(0, |first| self.sequence - first)
    }

    #[inline]
    fn is_measured(&self, id: RequestId) -> bool {
        self.first_measured.is_some_and(|first| id != NO_REQUEST && id >> SLOT_BITS >= first)
    }

    #[inline]
    fn release(&mut self, id: RequestId) {
        let slot = (id & SLOT_MASK) as u16;
        self.slots[usize::from(slot)] = FREE_SLOT;
        self.free.push(slot);
    }

    /// Classifies a correct payload for a request that is no longer outstanding.
    #[cold]
    fn stray(&mut self, id: RequestId) -> Reply {
        let counted = u64::from(self.is_measured(id));
        let lost_ids = &mut self.lost_ids[(id & SLOT_MASK) as usize];
        if let Some(lost) = lost_ids.iter_mut().find(|lost| **lost == id) {
            *lost = NO_REQUEST;
            self.summary.late += counted;
            return Reply::Late;
        }
        self.summary.duplicates += counted;
        Reply::Duplicate
    }

    #[cold]
    fn expire_slots(&mut self, now: Instant) -> u32 {
        let mut expired = 0;
        self.expiry_bound = Instant::NEVER;
        for index in 0..self.slots.len() {
            let Slot { id, sent, .. } = self.slots[index];
            if sent == Instant::NEVER {
                continue;
            }
            let deadline = sent + self.config.loss_timeout;
            if deadline > now {
                self.expiry_bound = self.expiry_bound.min(deadline);
                continue;
            }
            self.lost_ids[index].rotate_right(1);
            self.lost_ids[index][0] = id;
            self.summary.lost += u64::from(self.is_measured(id));
            self.release(id);
            expired += 1;
        }
        expired
    }
}

#[cfg(test)]
mod tests;
