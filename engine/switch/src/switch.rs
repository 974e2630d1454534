//! A worker's end of a switch: its snapshot, what it shares with the other workers, its counters.

use std::ops::Range;
use std::sync::Arc;

use twinpath_time::{Duration, Instant};

use crate::arrival::Arrival;
use crate::counters::SwitchCounters;
use crate::guard::Loop;
use crate::learning::{self, Classified};
use crate::outputs::Judgement;
use crate::runs::{Run, Runs};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::table::Learned;

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

impl Notices {
    /// Counts what came of learning, and looks for a loop where an address has moved. Most frames have nothing to learn from.
    #[cold]
    #[inline(never)]
    fn note(
        &mut self,
        snapshot: &Snapshot,
        shared: &Shared,
        counters: &SwitchCounters,
        now: Instant,
        port: u16,
        learned: Learned,
    ) {
        match learned {
            Learned::Known | Learned::Static | Learned::Busy => {}
            Learned::New => counters.learned.add(1),
            Learned::Limited => {
                counters.mac_limit.add(1);
                self.want_sweep(now);
            }
            Learned::Full => {
                counters.table_full.add(1);
                self.want_sweep(now);
            }
            Learned::Moved { from } => {
                counters.moved.add(1);
                let guard = snapshot.config().loop_guard;
                if let Some(found) = guard.and_then(|guard| shared.guard.moved(now, from, port, guard)) {
                    counters.loops.add(1);
                    self.found = Some(found);
                }
            }
        }
    }

    fn want_sweep(&mut self, now: Instant) {
        if now >= self.sweep_after {
            self.sweep = true;
            self.sweep_after = now + SWEEP_INTERVAL;
        }
    }
}

/// What a frame passes after its VLAN is known: its source is learned, and then it is judged.
#[inline]
fn judged<'a>(
    snapshot: &'a Snapshot,
    shared: &'a Shared,
    counters: &SwitchCounters,
    notices: &mut Notices,
    now: Instant,
    arrival: &Arrival,
    classified: &Classified,
) -> (Judgement<'a>, Option<Learned>) {
    let learned = learning::learn(snapshot, shared, now, arrival, classified);
    if let Some(learned) = learned.filter(|learned| *learned != Learned::Known) {
        notices.note(snapshot, shared, counters, now, arrival.port, learned);
    }
    (learning::forward(snapshot, shared, counters, now, arrival, classified), learned)
}

/// Whether the next frame of the same flow at the same time gets the same judgement, and changes and counts nothing.
#[inline]
fn repeated(judgement: &Judgement<'_>, learned: Option<Learned>) -> bool {
    let nothing_to_learn = matches!(learned, Some(Learned::Known | Learned::Static | Learned::New));
    nothing_to_learn && judgement.outputs.is_to_known_address()
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
        let Self { snapshot, shared, counters, notices } = self;
        let classified = learning::classify(snapshot, shared, arrival);
        judged(snapshot, shared, counters, notices, now, arrival, &classified).0
    }

    /// Judges frames in order, as [`Self::judge`] does each, and calls `each` with the numbers of some that follow each other,
    /// and of what is known of each of them and becomes of it. Faster for several frames, as their addresses are looked up
    /// together, and those of one flow that come one after the other are judged once.
    pub fn judge_each(
        &mut self,
        now: Instant,
        runs: &mut Runs,
        mut each: impl FnMut(Range<usize>, &Arrival, Judgement<'_>),
    ) {
        let Self { snapshot, shared, counters, notices } = self;
        let runs = runs.as_mut_slice();
        for run in &mut *runs {
            run.classified = learning::classify(snapshot, shared, &run.arrival);
        }
        shared.table.fetch(runs.iter().flat_map(|run| [&run.classified.source, &run.classified.destination]));
        let mut number = 0;
        for Run { arrival, frames, classified } in runs {
            let end = number + *frames;
            while number < end {
                let (judgement, learned) =
                    judged(snapshot, shared, counters, notices, now, arrival, classified);
                let behind = if repeated(&judgement, learned) { end } else { number + 1 };
                each(number..behind, arrival, judgement);
                number = behind;
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
