//! Loss recovery: RFC 6675's states as Linux has them, RACK-TLP (RFC 8985), PRR (RFC 9937), F-RTO (RFC 5682), and
//! undoing what was spurious (RFC 3522, RFC 3708).

use twinpath_time::Instant;

use super::acknowledge::Change;
use super::{Connection, Network, Shared, Timer, Undo, flag};
use crate::clock::micros;
use crate::congestion::{Control, Window};
use crate::flight::{Overdue, flag as sent};
use crate::prr::Prr;
use crate::seq::Seq;

impl Connection {
    /// Takes an acknowledgement that is doubtful: a duplicate, selective, one that echoes a mark, or any during a
    /// recovery.
    #[cold]
    pub(super) fn recover(&mut self, now: Instant, change: &mut Change, shared: &mut Shared) {
        if change.congestion {
            self.rare.undo.ssthresh = 0;
        }
        if !self.is(flag::SACK) {
            self.count_duplicates(change);
        }
        if self.network > Network::Disorder
            && !self.snd_una.before(self.high_seq)
            && self.leave(now, change, shared)
        {
            return;
        }
        match self.network {
            Network::Recovery => {
                if change.advances && self.undo_partly(change, shared) {
                    return;
                }
                if change.dsack && self.undo_by_dsack(shared) {
                    self.try_open();
                    return;
                }
                self.find_lost(now, change);
            }
            Network::Loss => {
                self.in_loss(now, change, shared);
                self.find_lost(now, change);
                if !(self.network == Network::Open || change.lost_again) {
                    return;
                }
                self.maybe_recover(now, change, shared);
            }
            _ => {
                if self.network <= Network::Disorder && change.dsack {
                    self.undo_by_dsack(shared);
                }
                self.find_lost(now, change);
                self.maybe_recover(now, change, shared);
            }
        }
    }

    /// Enters recovery if a loss is certain.
    fn maybe_recover(&mut self, now: Instant, change: &Change, shared: &mut Shared) {
        if self.is_loss_certain(shared) {
            self.begin_recovery(now, change, shared);
            return;
        }
        if change.congestion && self.rare.cwr_end.is_none_or(|end| !self.snd_una.before(end)) {
            self.reduce(now, shared);
            self.rare.cwr_end = Some(self.snd_nxt);
        }
        if self.network != Network::Reduced {
            self.try_open();
        }
    }

    fn is_loss_certain(&self, shared: &Shared) -> bool {
        self.flight.lost > 0 || !shared.config.rack && self.flight.sacked.max(self.dupacks) > self.reordering
    }

    /// Without SACK each duplicate acknowledgement stands for a segment that has arrived (RFC 6582).
    fn count_duplicates(&mut self, change: &mut Change) {
        if change.advances {
            // The hole is filled: what was counted is acknowledged now.
            self.dupacks = if self.network >= Network::Recovery {
                self.dupacks.saturating_sub(change.delivered.acked.saturating_sub(1))
            } else {
                0
            };
        } else if change.duplicate {
            self.dupacks = (self.dupacks + 1).min(self.flight.out.saturating_sub(1));
            change.delivered.sacked = 1;
            self.totals.delivered = self.totals.delivered.wrapping_add(1);
        }
    }

    /// All that was sent before the reduction is acknowledged. Returns whether nothing else is to be done.
    fn leave(&mut self, _now: Instant, _change: &Change, shared: &mut Shared) -> bool {
        match self.network {
            Network::Reduced if self.snd_una != self.high_seq => {
                self.end_reduction();
                self.network = Network::Open;
            }
            Network::Recovery => {
                if !self.is(flag::SACK) {
                    self.dupacks = 0;
                }
                if self.undo_whole(shared) {
                    return true;
                }
                self.end_reduction();
            }
            _ => {}
        }
        false
    }

    /// The window is the threshold from now on.
    fn end_reduction(&mut self) {
        if self.window.ssthresh < Window::INFINITE
            && (self.network == Network::Reduced || self.rare.undo.marker.is_some())
        {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// Back to normal, or almost.
    fn try_open(&mut self) {
        let doubtful = self.flight.lost > 0
            || self.flight.sacked > 0
            || self.flight.retransmitted > 0
            || self.dupacks > 0;
        let next = if doubtful { Network::Disorder } else { Network::Open };
        if self.network != next {
            self.network = next;
            self.high_seq = self.snd_nxt;
        }
    }

    /// RFC 8985 section 6.2, step 5, or RFC 6582 without SACK.
    fn find_lost(&mut self, now: Instant, change: &mut Change) {
        if self.flight.is_empty() {
            return;
        }
        if !self.is(flag::SACK) {
            let at_threshold = self.network < Network::Recovery && self.dupacks >= self.reordering;
            let partial = self.network == Network::Recovery && change.advances;
            if at_threshold || partial {
                self.lose_first();
            }
            return;
        }
        let before = self.flight.retransmitted;
        self.detect(now);
        change.lost_again |= before > self.flight.retransmitted;
    }

    /// Takes the first segment in flight for lost.
    fn lose_first(&mut self) {
        let Some(first) = self.flight.first().copied() else { return };
        if first.count > 1 {
            self.flight.split(0, first.start + u32::from(first.unit), false);
        }
        if !first.has(sent::LOST) {
            self.flight.lose(0);
        }
    }

    /// The time by which segments may overtake each other, us (RFC 8985 section 6.2, step 4).
    fn reordering_window_us(&self) -> u32 {
        if !self.rack.reordering_seen
            && (self.network >= Network::Recovery || self.flight.sacked >= self.reordering)
        {
            return 0;
        }
        (self.rtt.min_us() / 4).saturating_mul(u32::from(self.rack.steps)).min(self.rtt.srtt_us())
    }

    /// Marks segments as lost that were sent long enough before a delivered one. Sets the timer for those that will
    /// be, if nothing comes.
    pub(super) fn detect(&mut self, now: Instant) {
        if !self.is(flag::RACK_ADVANCED) {
            return;
        }
        self.clear(flag::RACK_ADVANCED);
        if let Some(wait_us) = self.mark_lost(now) {
            self.timer = Timer::Reordering;
            self.timer_at = now + twinpath_time::Duration::from_micros(u64::from(wait_us));
            self.clear(flag::REARM);
        }
    }

    /// Returns after how many us the last of those is to be taken for lost that wait.
    pub(super) fn mark_lost(&mut self, now: Instant) -> Option<u32> {
        let limit_us = self.rack.rtt_us.saturating_add(self.reordering_window_us());
        self.flight.lose_overdue(now, &Overdue { at: self.rack.at, end: self.rack.end, limit_us })
    }

    /// The reordering timer has fired (RFC 8985 section 6.3).
    #[cold]
    pub(super) fn reordering_is_over(&mut self, now: Instant, shared: &mut Shared) {
        let in_flight = self.flight.in_flight();
        let waits = self.mark_lost(now);
        if in_flight != self.flight.in_flight() && self.network != Network::Recovery {
            let change = self.no_change();
            self.begin_recovery(now, &change, shared);
            // RFC 9937 section 6: as an acknowledgement of one segment that is not safe.
            if let Some(cwnd) = self.rare.prr.allowed(1, self.flight.in_flight(), false) {
                self.window.cwnd = cwnd;
            }
        }
        match waits {
            Some(wait_us) => {
                self.timer = Timer::Reordering;
                self.timer_at = now + twinpath_time::Duration::from_micros(u64::from(wait_us));
            }
            None => self.set(flag::REARM),
        }
    }

    fn no_change(&self) -> Change {
        Change {
            una: self.snd_una,
            in_flight: self.flight.in_flight(),
            highest: self.snd_una,
            lost: self.flight.lost,
            delivered: crate::flight::Delivered::default(),
            advances: false,
            duplicate: false,
            dsack: false,
            congestion: false,
            lost_again: false,
        }
    }

    /// The threshold to return to if a reduction proves to be spurious.
    fn present_ssthresh(&self) -> u32 {
        if matches!(self.network, Network::Reduced | Network::Recovery) {
            self.window.ssthresh
        } else {
            self.window.ssthresh.max(self.window.cwnd / 4 * 3 + self.window.cwnd % 4 * 3 / 4)
        }
    }

    fn remember(&mut self, ssthresh: u32) {
        let probing = u32::from(self.probe_end.is_some() && self.is(flag::PROBE_IS_OLD));
        let left = self.flight.retransmitted + probing;
        self.rare.undo = Undo {
            marker: Some(self.snd_una),
            retransmissions: (left > 0).then_some(left),
            stamp: self.rare.undo.stamp,
            ssthresh,
        };
    }

    #[cold]
    pub(super) fn begin_recovery(&mut self, now: Instant, change: &Change, shared: &mut Shared) {
        shared.counters.recoveries += 1;
        self.rare.undo.ssthresh = 0;
        let reduced = matches!(self.network, Network::Reduced | Network::Recovery);
        let present = self.present_ssthresh();
        if self.flight.retransmitted == 0 {
            self.rare.undo.stamp = None;
        }
        self.remember(if change.congestion || reduced { 0 } else { present });
        if !reduced {
            self.begin_reduction(now);
        }
        self.network = Network::Recovery;
    }

    /// PRR begins (RFC 9937 section 6).
    fn begin_reduction(&mut self, now: Instant) {
        self.high_seq = self.snd_nxt;
        self.probe_end = None;
        self.window.credit = 0;
        let before = self.window.cwnd;
        self.window.ssthresh = self.congestion.ssthresh(&self.window, now).max(2);
        self.rare.prr = Prr::enter(before, self.window.ssthresh);
        if self.is(flag::ECN) {
            self.set(flag::SEND_CWR);
        }
    }

    /// The window is reduced without a loss: for a congestion mark (RFC 3168 section 6.1.2), or as a probe has
    /// repaired one.
    #[cold]
    pub(super) fn reduce(&mut self, now: Instant, _shared: &Shared) {
        self.rare.undo.ssthresh = 0;
        if self.network < Network::Reduced {
            self.rare.undo.marker = None;
            self.begin_reduction(now);
            self.network = Network::Reduced;
        }
    }

    /// The retransmission timer has fired (RFC 6298 section 5).
    #[cold]
    pub(super) fn begin_loss(&mut self, now: Instant, shared: &mut Shared) {
        let fresh = self.network < Network::Recovery;
        let reneged = self.flight.first().is_some_and(|first| first.has(sent::SACKED));
        let keep = self.is(flag::SACK) && !reneged && shared.config.rack;
        if keep {
            self.lose_old(now);
        } else {
            self.flight.lose_all(reneged || !self.is(flag::SACK));
        }
        self.dupacks = 0;
        if self.network <= Network::Disorder
            || !self.high_seq.after(self.snd_una)
            || self.network == Network::Loss && self.retries == 0
        {
            let present = self.present_ssthresh();
            if self.flight.retransmitted == 0 && self.retries == 0 {
                self.rare.undo.stamp = None;
            }
            self.window.ssthresh = self.congestion.ssthresh(&self.window, now).max(2);
            self.congestion.on_timeout();
            self.remember(present);
        }
        self.window.cwnd = self.flight.in_flight() + 1;
        self.window.credit = 0;
        if self.network <= Network::Disorder && self.flight.sacked >= self.reordering {
            self.reordering = self.reordering.min(shared.config.reordering);
        }
        self.network = Network::Loss;
        self.high_seq = self.snd_nxt;
        if self.is(flag::ECN) {
            self.set(flag::SEND_CWR);
        }
        self.clear(flag::FRTO);
        if shared.config.frto && (fresh || self.retries > 0) {
            self.set(flag::FRTO);
        }
        self.probe_end = None;
    }

    /// At a time-out only segments are lost that are old enough, and the first (RFC 8985 section 6.3).
    fn lose_old(&mut self, now: Instant) {
        let limit_us = self.rack.rtt_us.saturating_add(self.reordering_window_us());
        for index in 0..self.flight.len() {
            let Some(record) = self.flight.get(index).copied() else { break };
            if index == 0 || micros(now, record.at) >= limit_us {
                self.flight.lose(index);
            }
        }
    }

    /// An acknowledgement after a time-out: F-RTO (RFC 5682 section 3.1), or the end of the loss.
    fn in_loss(&mut self, _now: Instant, change: &mut Change, shared: &mut Shared) {
        let recovered = !self.snd_una.before(self.high_seq);
        if change.advances && self.undo_loss(false, shared) {
            return;
        }
        if self.is(flag::FRTO) {
            if change.delivered.original && self.undo_loss(true, shared) {
                return;
            }
            if self.snd_nxt.after(self.high_seq) {
                if change.delivered.sacked > 0 || change.duplicate {
                    // Step 3a: the loss is real.
                    self.clear(flag::FRTO);
                }
            } else if change.advances && !recovered {
                // Step 2b: new data shows whether the original segments arrive.
                self.high_seq = self.snd_nxt;
                if self.unsent() > 0 && self.window_end().after(self.snd_nxt) {
                    return;
                }
                self.clear(flag::FRTO);
            }
        }
        if recovered {
            self.undo_whole(shared);
        }
    }

    /// Whether new data goes first, for F-RTO.
    pub(super) fn is_new_data_first(&self) -> bool {
        self.is(flag::FRTO) && self.network == Network::Loss && self.retries == 0
    }

    /// Whether the reduction was for nothing: every retransmission was reported as a duplicate, or what was
    /// acknowledged had been sent before the first of them (RFC 3522).
    fn may_undo(&self) -> bool {
        self.rare.undo.marker.is_some() && (self.rare.undo.retransmissions == Some(0) || self.was_delayed())
    }

    /// The echoed timestamp is older than the first retransmission.
    fn was_delayed(&self) -> bool {
        match self.rare.undo.stamp {
            None => {
                self.rare.undo.marker.is_some()
                    && self.flight.retransmitted == 0
                    && self.rare.undo.retransmissions.is_none()
            }
            Some(first) => {
                self.is(flag::TIMESTAMPS) && self.last_echo != 0 && Seq(self.last_echo).before(Seq(first))
            }
        }
    }

    fn undo_reduction(&mut self, unmark: bool, shared: &mut Shared) {
        if unmark {
            self.flight.lose_nothing();
        }
        if self.rare.undo.ssthresh > 0 {
            self.window.cwnd = self.congestion.undo(&self.window).max(self.window.cwnd);
            if self.rare.undo.ssthresh > self.window.ssthresh {
                self.window.ssthresh = self.rare.undo.ssthresh;
            }
            self.clear(flag::SEND_CWR);
        }
        shared.counters.undos += 1;
        self.rare.undo.marker = None;
        // RACK looks again at what was sent.
        self.set(flag::RACK_ADVANCED);
    }

    /// At the end of a recovery. Returns whether the state is left for the next acknowledgement.
    fn undo_whole(&mut self, shared: &mut Shared) -> bool {
        if self.may_undo() {
            self.undo_reduction(false, shared);
        } else if self.rack.persist > 0 {
            self.rack.persist -= 1;
            if self.rack.persist == 0 {
                self.rack.steps = 1;
            }
        }
        if self.snd_una == self.high_seq && !self.is(flag::SACK) {
            // Duplicates of old segments must not begin another recovery (RFC 6582 section 4).
            return true;
        }
        self.end_reduction_of_recovery();
        self.network = Network::Open;
        false
    }

    fn end_reduction_of_recovery(&mut self) {
        if self.network == Network::Recovery {
            self.end_reduction();
        }
    }

    fn undo_by_dsack(&mut self, shared: &mut Shared) -> bool {
        let spurious = self.rare.undo.marker.is_some() && self.rare.undo.retransmissions == Some(0);
        if spurious {
            self.widen();
            self.undo_reduction(false, shared);
        }
        spurious
    }

    /// A DSACK says that segments were only late: RACK waits longer (RFC 8985 section 6.2, step 4).
    fn widen(&mut self) {
        self.rack.persist = 16;
        if !self.snd_una.before(self.rack.round) {
            self.rack.steps = self.rack.steps.saturating_add(1);
            self.rack.round = self.snd_nxt;
        }
    }

    fn undo_loss(&mut self, certain: bool, shared: &mut Shared) -> bool {
        if !certain && !self.may_undo() {
            return false;
        }
        self.undo_reduction(true, shared);
        self.retries = 0;
        self.clear(flag::FRTO);
        if certain || self.is(flag::SACK) {
            self.network = Network::Open;
        }
        true
    }

    /// A partial acknowledgement of something that was not lost at all (RFC 3522).
    fn undo_partly(&mut self, change: &Change, shared: &mut Shared) -> bool {
        if self.rare.undo.marker.is_none() || !self.was_delayed() {
            return false;
        }
        self.see_reordering(change.una, change.highest);
        if self.flight.retransmitted > 0 {
            return true;
        }
        self.rare.undo.stamp = None;
        self.undo_reduction(true, shared);
        self.try_open();
        true
    }

    /// What the answer to a tail loss probe says (RFC 8985 section 7.4).
    pub(super) fn take_probe_answer(&mut self, now: Instant, ack: Seq, change: &Change, shared: &mut Shared) {
        let Some(end) = self.probe_end else { return };
        if ack.before(end) {
            return;
        }
        if !self.is(flag::PROBE_IS_OLD) {
            self.probe_end = None;
        } else if change.dsack {
            // Original and probe have both arrived.
            self.probe_end = None;
        } else if ack.after(end) {
            // It repaired a loss.
            self.probe_end = None;
            shared.counters.probe_recoveries += 1;
            self.reduce(now, shared);
            self.end_reduction();
            self.try_open();
        } else if change.duplicate && change.delivered.sacked == 0 {
            // Without DSACK a duplicate says the same.
            self.probe_end = None;
        }
    }
}
