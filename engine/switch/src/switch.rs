//! A worker's end of a switch: its snapshot, what it shares with the other workers, its counters.

use std::sync::Arc;

use twinpath_time::{Duration, Instant};

use crate::arrival::Arrival;
use crate::counters::SwitchCounters;
use crate::guard::Loop;
use crate::learning::{self, Classified};
use crate::outputs::Judgement;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::table::{BATCH, Learned};

/// How often a worker asks for places to be freed at most.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What control should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Two ports are a loop, and one of them is blocked now.
    Loop(Loop),
    /// An address was not learned for want of a place that [`MacTable::sweep`](crate::MacTable::sweep) might free.
    Sweep,
}

/// What a worker has to tell control.
#[derive(Debug, Default)]
struct Notices {
    found: Option<Loop>,
    sweep: bool,
    sweep_after: Instant,
}

/// One worker's end of a switch.
#[derive(Debug)]
pub struct Switch {
    snapshot: Arc<Snapshot>,
    shared: Arc<Shared>,
    counters: Arc<SwitchCounters>,
    notices: Notices,
}

impl Switch {
    /// A worker's end of the switch that has this snapshot and this state.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, shared: Arc<Shared>, counters: Arc<SwitchCounters>) -> Self {
        Self { snapshot, shared, counters, notices: Notices::default() }
    }

    /// Goes on with a new snapshot. The former one goes back to control, which frees it.
    #[must_use]
    pub fn replace(&mut self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        std::mem::replace(&mut self.snapshot, snapshot)
    }

    /// The snapshot in use.
    #[must_use]
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What the workers of the switch share.
    #[must_use]
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// This worker's counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<SwitchCounters> {
        &self.counters
    }

    /// Judges one frame: learns its source, and says where it goes.
    pub fn judge(&mut self, now: Instant, arrival: &Arrival) -> Judgement<'_> {
        let classified = learning::classify(&self.snapshot, &self.shared, arrival);
        self.judge_classified(now, arrival, &classified)
    }

    /// Judges frames in order, as [`Self::judge`] does each, and calls `each` with the number of the frame and what becomes
    /// of it. Faster for several frames, as their addresses are looked up together.
    pub fn judge_each(
        &mut self,
        now: Instant,
        arrivals: &[Arrival],
        mut each: impl FnMut(usize, Judgement<'_>),
    ) {
        for (batch, arrivals) in arrivals.chunks(BATCH).enumerate() {
            let mut classified = [Classified::NONE; BATCH];
            let mut former = Arrival { runt: true, ..Arrival::default() };
            let mut known = Classified::NONE;
            for (classified, arrival) in classified.iter_mut().zip(arrivals) {
                // A flow's frames come one after the other.
                if !arrival.is_of_same_flow(&former) {
                    known = learning::classify(&self.snapshot, &self.shared, arrival);
                    former = *arrival;
                }
                *classified = known;
            }
            let places = classified[..arrivals.len()].iter();
            self.shared.table.fetch(places.flat_map(|frame| [&frame.source, &frame.destination]));
            for (number, (arrival, classified)) in arrivals.iter().zip(&classified).enumerate() {
                each(batch * BATCH + number, self.judge_classified(now, arrival, classified));
            }
        }
    }

    /// OpenFlow's output to NORMAL (OpenFlow 1.3.5, 4.5): judges a frame as [`Self::judge`], except that the copy for a mirror
    /// of the port that it came by was made when it came.
    pub fn normal(&mut self, now: Instant, arrival: &Arrival) -> Judgement<'_> {
        let Judgement { dropped, outputs } = self.judge(now, arrival);
        Judgement { dropped, outputs: outputs.without_ingress_mirror() }
    }

    /// OpenFlow's output to FLOOD: all other ports of the frame's VLAN, also if its destination is known or reserved. Nothing
    /// is learned. The storm limits and the loop guard hold here too.
    pub fn flood(&mut self, now: Instant, arrival: &Arrival) -> Judgement<'_> {
        let Judgement { dropped, outputs } =
            learning::flood(&self.snapshot, &self.shared, &self.counters, now, arrival);
        Judgement { dropped, outputs: outputs.without_ingress_mirror() }
    }

    /// What a frame passes after its VLAN is known.
    fn judge_classified(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        classified: &Classified,
    ) -> Judgement<'_> {
        let learned = learning::learn(&self.snapshot, &self.shared, now, arrival, classified);
        if let Some(learned) = learned {
            self.note(now, arrival.port, learned);
        }
        learning::forward(&self.snapshot, &self.shared, &self.counters, now, arrival, classified)
    }

    /// Counts what came of learning, and looks for a loop where an address has moved.
    #[inline]
    fn note(&mut self, now: Instant, port: u16, learned: Learned) {
        match learned {
            Learned::Known | Learned::Static | Learned::Busy => {}
            Learned::New => self.counters.learned.add(1),
            Learned::Limited => {
                self.counters.mac_limit.add(1);
                self.want_sweep(now);
            }
            Learned::Full => {
                self.counters.table_full.add(1);
                self.want_sweep(now);
            }
            Learned::Moved { from } => {
                self.counters.moved.add(1);
                let guard = self.snapshot.config().loop_guard;
                if let Some(found) = guard.and_then(|guard| self.shared.guard.moved(now, from, port, guard)) {
                    self.counters.loops.add(1);
                    self.notices.found = Some(found);
                }
            }
        }
    }

    fn want_sweep(&mut self, now: Instant) {
        if now >= self.notices.sweep_after {
            self.notices.sweep = true;
            self.notices.sweep_after = now + SWEEP_INTERVAL;
        }
    }

    /// Something that control should hear of, if there is; to be asked for after each burst. Nothing is lost if it cannot be
    /// passed on: a loop can be read from [`Shared::loops`], and a sweep is asked for again.
    #[inline]
    pub fn take_notice(&mut self) -> Option<Notice> {
        if let Some(found) = self.notices.found.take() {
            return Some(Notice::Loop(found));
        }
        std::mem::take(&mut self.notices.sweep).then_some(Notice::Sweep)
    }
}
